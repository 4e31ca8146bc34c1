//! Finds the checkout of Sluice that a new crate depends on. Never a registry: the crates are not
//! published, and names there may belong to others.

use std::path::{Path, PathBuf};

/// A checkout of the repository, by its absolute UTF-8 path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkout {
    root: PathBuf,
}

/// The folder of this crate in the checkout that the program was built from.
const CLI_MANIFEST_DIR: &str = env!("CARGO_MANIFEST_DIR");

/// The crates that new crates depend on, and their folders in a checkout.
const CRATES: [(&str, &str); 6] = [
    ("sluice-all", "plugins/all"),
    ("sluice-conformance", "tests/conformance"),
    ("sluice-io", "core/io"),
    ("sluice-kit", "core/kit"),
    ("sluice-logs", "cli"),
    ("sluice-model", "core/model"),
];

impl Checkout {
    /// Opens the checkout at `path`. `Err` says why it is not one.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let full = path
            .canonicalize()
            .map_err(|e| format!("expected a checkout of Sluice: {e}: {shown}"))?;
        if let Some((name, folder)) = missing_crate(&full) {
            return Err(format!(
                "expected a checkout of Sluice, but its {folder} has no crate `{name}`: {shown}"
            ));
        }
        if full.to_str().is_none() {
            return Err(format!("this path is not UTF-8, so a manifest cannot name it: {shown}"));
        }
        Ok(Self { root: full })
    }

    /// The checkout that this program was built from. `Err` says why it cannot be found.
    pub(super) fn of_current_program() -> Result<Self, String> {
        let program = std::env::current_exe().ok();
        Self::for_program(program.as_deref(), Path::new(CLI_MANIFEST_DIR))
    }

    /// The checkout that has the program in its target folder, as a checkout may have been moved;
    /// otherwise the one it was built from, if it still exists.
    fn for_program(program: Option<&Path>, sources: &Path) -> Result<Self, String> {
        let full = program.and_then(|program| program.canonicalize().ok());
        let is_target = |folder: &&Path| folder.file_name().is_some_and(|name| name == "target");
        let checkout =
            full.as_deref().and_then(|p| p.ancestors().find(is_target)).and_then(Path::parent);
        if let Some(Ok(checkout)) = checkout.map(Self::open) {
            return Ok(checkout);
        }
        let built_from = sources.parent().unwrap_or(sources);
        Self::open(built_from).map_err(|why| {
            format!(
                "a new crate needs a checkout of Sluice, whose crates are not published; the one \
                 that this program was built from is not there ({why}); name one: --sluice PATH"
            )
        })
    }

    /// The absolute path.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The value of a dependency such as `sluice-model` in a manifest.
    pub(super) fn dependency(&self, name: &str) -> String {
        let folder = CRATES.iter().find(|(known, _)| *known == name).map(|(_, at)| *at);
        let path = self.root.join(folder.unwrap_or_default());
        let path = toml::Value::String(path.to_string_lossy().into_owned());
        format!("{{ path = {path} }}")
    }
}

/// The first crate that is missing from its folder.
fn missing_crate(root: &Path) -> Option<&'static (&'static str, &'static str)> {
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
        let found = Checkout::open(root()).unwrap();
        assert_eq!(found.root(), root().canonicalize().unwrap());
        let refused = Checkout::open(&root().join("cli")).unwrap_err();
        assert!(refused.contains("has no crate `sluice-all`"), "{refused}");
        assert!(Checkout::open(&root().join("no-such-folder")).is_err());
    }

    #[test]
    fn a_program_outside_a_checkout_uses_the_one_it_was_built_from_if_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("target/debug/sluice");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "").unwrap();
        let gone = folder.path().join("gone/cli");
        for program in [Some(&*program), None] {
            let found = Checkout::for_program(program, Path::new(CLI_MANIFEST_DIR)).unwrap();
            assert_eq!(found, Checkout::open(root()).unwrap());
            let refused = Checkout::for_program(program, &gone).unwrap_err();
            assert!(refused.contains("not published"), "{refused}");
            assert!(refused.ends_with("name one: --sluice PATH"), "{refused}");
        }
    }

    #[test]
    fn a_checkout_that_was_moved_with_its_target_folder_is_found_by_the_program() {
        let folder = tempfile::tempdir().unwrap();
        for (name, at) in CRATES {
            let manifest = format!("[package]\nname = {name:?}\n");
            std::fs::create_dir_all(folder.path().join(at)).unwrap();
            std::fs::write(folder.path().join(at).join("Cargo.toml"), manifest).unwrap();
        }
        let program = folder.path().join("target/release/sluice");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "").unwrap();
        let found = Checkout::for_program(Some(&program), Path::new(CLI_MANIFEST_DIR));
        assert_eq!(found, Checkout::open(folder.path()));
    }

    #[test]
    fn paths_are_written_so_that_a_manifest_can_be_read() {
        let odd = Checkout { root: "/a \"b\" \\c".into() };
        let table: toml::Table = format!("x = {}", odd.dependency("sluice-model")).parse().unwrap();
        assert_eq!(table["x"]["path"].as_str(), Some("/a \"b\" \\c/core/model"));
    }
}
