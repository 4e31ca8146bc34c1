//! Where Sluice comes from for a new crate: a checkout of its repository, or crates of this version.

use std::path::{Path, PathBuf};

/// Where a crate finds Sluice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A checkout, by its full path.
    Checkout(PathBuf),
    /// The crates of this version.
    Version(&'static str),
}

/// The crates that new ones depend on, and where a checkout has them.
const CRATES: [(&str, &str); 4] = [
    ("sluice-all", "plugins/all"),
    ("sluice-conformance", "conformance"),
    ("sluice-core", "core"),
    ("sluice-logs", "cli"),
];

impl Origin {
    /// The checkout that a user names. `Err` says why it is none.
    pub(super) fn named(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let full = path
            .canonicalize()
            .map_err(|e| format!("a checkout of Sluice was expected: {e}: {shown}"))?;
        if let Some((name, folder)) = missing(&full) {
            return Err(format!(
                "a checkout of Sluice was expected, and its {folder} has no crate `{name}`: {shown}"
            ));
        }
        if full.to_str().is_none() {
            return Err(format!("a manifest cannot hold this path, which is not UTF-8: {shown}"));
        }
        Ok(Self::Checkout(full))
    }

    /// The checkout that a program was built in, if it lies in its target folder; else this version.
    pub(super) fn of_program(program: Option<&Path>) -> Self {
        let full = program.and_then(|program| program.canonicalize().ok());
        let is_target = |folder: &&Path| folder.file_name().is_some_and(|name| name == "target");
        let checkout =
            full.as_deref().and_then(|p| p.ancestors().find(is_target)).and_then(Path::parent);
        match checkout.map(Self::named) {
            Some(Ok(checkout)) => checkout,
            _ => Self::Version(env!("CARGO_PKG_VERSION")),
        }
    }

    /// What stands behind `sluice-core =` and the like in a manifest.
    pub(super) fn dependency(&self, name: &str) -> String {
        match self {
            Self::Version(version) => format!("{version:?}"),
            Self::Checkout(root) => {
                let folder = CRATES.iter().find(|(known, _)| *known == name).map(|(_, at)| *at);
                let path = root.join(folder.unwrap_or_default());
                let path = toml::Value::String(path.to_string_lossy().into_owned());
                format!("{{ path = {path} }}")
            }
        }
    }
}

/// The first crate that is not where a checkout has it.
fn missing(root: &Path) -> Option<&'static (&'static str, &'static str)> {
    CRATES.iter().find(|(name, folder)| {
        let manifest = std::fs::read_to_string(root.join(folder).join("Cargo.toml"));
        let manifest: Option<toml::Table> = manifest.ok().and_then(|text| text.parse().ok());
        let found = manifest.as_ref().and_then(|table| table.get("package")?.get("name")?.as_str());
        found != Some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn this_repository_is_a_checkout_and_its_parts_are_none() {
        let Ok(Origin::Checkout(found)) = Origin::named(root()) else { panic!("no checkout") };
        assert_eq!(found, root().canonicalize().unwrap());
        let refused = Origin::named(&root().join("cli")).unwrap_err();
        assert!(refused.contains("has no crate `sluice-all`"), "{refused}");
        assert!(Origin::named(&root().join("no-such-folder")).is_err());
    }

    #[test]
    fn a_program_elsewhere_depends_on_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("target/debug/sluice");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "").unwrap();
        let version = Origin::Version(env!("CARGO_PKG_VERSION"));
        assert_eq!(Origin::of_program(Some(&program)), version);
        assert_eq!(Origin::of_program(None), version);
        assert_eq!(version.dependency("sluice-logs"), format!("\"{}\"", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn paths_are_written_so_that_a_manifest_can_be_read() {
        let odd = Origin::Checkout("/a \"b\" \\c".into());
        let table: toml::Table = format!("x = {}", odd.dependency("sluice-core")).parse().unwrap();
        assert_eq!(table["x"]["path"].as_str(), Some("/a \"b\" \\c/core"));
    }
}
