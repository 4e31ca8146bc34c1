//! The built-in pipelines, by name. They need no files next to the program.

macro_rules! carried {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../library/", $name, ".toml")))),*]
    };
}

const BUILT_IN: [(&str, &str); 22] = carried![
    "archive-to-log",
    "batch",
    "demo-to-lerobot",
    "dgc-all",
    "dgc-gps",
    "dgc-images",
    "dgc-poses",
    "dgc-sick",
    "dgc-velodyne",
    "dgc-view",
    "fields-to-csv",
    "filter-by-field",
    "lcm-to-lerobot",
    "log-to-archive",
    "log-to-tables",
    "orca-to-log",
    "orca-to-tables",
    "quickstart",
    "ros2-to-lerobot",
    "typed-tables",
    "vel-repair",
    "vel-to-tables",
];

/// The text of a built-in pipeline; the name may end in `.toml`.
pub fn get(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix(".toml").unwrap_or(name);
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The names of all built-in pipelines, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}
