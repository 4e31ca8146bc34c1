//! The pipelines that every program carries, by name. They work without any file beside them.

macro_rules! carried {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../library/", $name, ".toml")))),*]
    };
}

const PIPELINES: [(&str, &str); 18] = carried![
    "archive-to-log",
    "batch",
    "dgc-all",
    "dgc-gps",
    "dgc-images",
    "dgc-poses",
    "dgc-sick",
    "dgc-velodyne",
    "fields-to-csv",
    "filter-by-field",
    "log-to-archive",
    "log-to-tables",
    "orca-to-log",
    "orca-to-tables",
    "quickstart",
    "typed-tables",
    "vel-repair",
    "vel-to-tables",
];

/// The text of the pipeline of that name, given with or without `.toml`.
pub fn get(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix(".toml").unwrap_or(name);
    PIPELINES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The names of all pipelines, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    PIPELINES.iter().map(|(name, _)| *name)
}
