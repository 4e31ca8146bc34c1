//! The files of a new crate: those of `cli/templates` with placeholders filled in.

use super::args::NewKind;
use super::checkout::Checkout;

/// A file of a new crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TemplateFile {
    /// The path in the crate.
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
}

/// A template file: its path in the new crate, and its contents.
type TemplateEntry = (&'static str, &'static [u8]);

macro_rules! template {
    ($folder:literal: $($path:literal from $file:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("../../../templates/", $folder, "/", $file)))),*]
    };
}

const COMMON: &[TemplateEntry] = template!("common":
    "Cargo.toml" from "Cargo.toml.in",
    ".gitignore" from "gitignore",
    "src/main.rs" from "main.rs",
);

const SOURCE: &[TemplateEntry] = template!("source":
    "README.md" from "README.md",
    "src/lib.rs" from "src/lib.rs",
    "tests/contract.rs" from "tests/contract.rs",
    "samples/{{name}}.toml" from "samples/plugin.toml",
    "testdata/drive.bin" from "testdata/drive.bin",
    "pipeline.toml" from "pipeline.toml",
);

const SINK: &[TemplateEntry] = template!("sink":
    "README.md" from "README.md",
    "src/lib.rs" from "src/lib.rs",
    "tests/contract.rs" from "tests/contract.rs",
    "samples/{{name}}.toml" from "samples/plugin.toml",
    "pipeline.toml" from "pipeline.toml",
);

const STAGE: &[TemplateEntry] = template!("stage":
    "README.md" from "README.md",
    "src/lib.rs" from "src/lib.rs",
    "tests/contract.rs" from "tests/contract.rs",
    "samples/{{name}}.toml" from "samples/plugin.toml",
    "pipeline.toml" from "pipeline.toml",
);

const CODEC: &[TemplateEntry] = template!("codec":
    "README.md" from "README.md",
    "src/lib.rs" from "src/lib.rs",
    "tests/contract.rs" from "tests/contract.rs",
    "samples/{{name}}.toml" from "samples/plugin.toml",
    "testdata/samples.jsonl" from "testdata/samples.jsonl",
    "pipeline.toml" from "pipeline.toml",
);

/// All files of a new crate of this kind.
pub(super) fn files(kind: NewKind, name: &str, checkout: &Checkout) -> Vec<TemplateFile> {
    let own = match kind {
        NewKind::Source => SOURCE,
        NewKind::Sink => SINK,
        NewKind::Stage => STAGE,
        NewKind::Codec => CODEC,
    };
    let blanks = [
        ("{{name}}", name.to_owned()),
        ("{{crate}}", name.replace('-', "_")),
        ("{{dependencies}}", dependencies(kind, checkout)),
        ("{{conformance}}", checkout.dependency("sluice-conformance")),
    ];
    let filled = |text: &str| {
        blanks.iter().fold(text.to_owned(), |text, (blank, with)| text.replace(blank, with))
    };
    let file = |(path, bytes): &TemplateEntry| TemplateFile {
        path: filled(path),
        // Binary files have no placeholders.
        bytes: str::from_utf8(bytes).map_or(bytes.to_vec(), |text| filled(text).into_bytes()),
    };
    COMMON.iter().chain(own).map(file).collect()
}

/// The dependencies of the crate, as lines of its manifest.
fn dependencies(kind: NewKind, checkout: &Checkout) -> String {
    let mut lines = vec![
        "schemars = \"1\"".to_owned(),
        "serde = { version = \"1\", features = [\"derive\"] }".to_owned(),
    ];
    for name in ["sluice-all", "sluice-io", "sluice-kit", "sluice-logs", "sluice-model"] {
        lines.push(format!("{name} = {}", checkout.dependency(name)));
    }
    if kind == NewKind::Codec {
        lines.insert(0, "arrow-schema = { version = \"59\", default-features = false }".to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    fn checkout() -> Checkout {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        Checkout::open(root).unwrap()
    }

    #[test]
    fn every_blank_is_filled_in() {
        for kind in NewKind::value_variants() {
            for file in files(*kind, "my-log", &checkout()) {
                let text = String::from_utf8_lossy(&file.bytes);
                assert!(
                    !text.contains("{{") && !file.path.contains('{'),
                    "{kind:?}: {}",
                    file.path
                );
            }
        }
    }

    #[test]
    fn every_file_of_a_template_is_used() {
        let templates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let count = |folder: &str| files_below(&templates.join(folder));
        assert_eq!(count("common"), COMMON.len());
        for (folder, list) in
            [("source", SOURCE), ("sink", SINK), ("stage", STAGE), ("codec", CODEC)]
        {
            assert_eq!(count(folder), list.len(), "{folder}");
        }
    }

    fn files_below(folder: &std::path::Path) -> usize {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
    }

    #[test]
    fn the_manifest_can_be_read() {
        for kind in NewKind::value_variants() {
            let files = files(*kind, "my-log", &checkout());
            let text = str::from_utf8(&files[0].bytes).unwrap();
            let manifest: toml::Table = text.parse().unwrap_or_else(|e| panic!("{kind:?}: {e}"));
            assert_eq!(manifest["package"]["name"].as_str(), Some("my-log"));
            // A version would refer to a registry, where the name is not ours.
            let ours = |name: &&String| name.starts_with("sluice");
            for list in ["dependencies", "dev-dependencies"] {
                let list = manifest[list].as_table().unwrap();
                assert!(list.keys().filter(ours).all(|name| list[name].get("path").is_some()));
            }
        }
    }
}
