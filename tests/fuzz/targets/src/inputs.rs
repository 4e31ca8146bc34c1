//! What targets derive from their input and the registry: texts, files, and plugin instances.
//! Checks nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value;
use sluice_model::{OptionsError, Registry, Source, Stage};
use tempfile::TempDir;

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::linked);

thread_local! {
    // One per thread, so that concurrent tests are separate and none is left at the end.
    static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
}

/// Every plugin of the repository.
pub(crate) fn registry() -> &'static Registry {
    use sluice_all as _;
    &REGISTRY
}

/// The longest prefix of the bytes that is text.
pub(crate) fn text(bytes: &[u8]) -> &str {
    match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(wrong) => {
            str::from_utf8(&bytes[..wrong.valid_up_to()]).expect("it is valid up to there")
        }
    }
}

/// Two inputs: the first byte is the length of the first one.
pub(crate) fn split_two(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    Some(rest.split_at(usize::from(*len).min(rest.len())))
}

/// The bytes before and after the first such byte.
pub(crate) fn cut_at(bytes: &[u8], byte: u8) -> (&[u8], &[u8]) {
    let at = bytes.iter().position(|found| *found == byte).unwrap_or(bytes.len());
    let (before, behind) = bytes.split_at(at);
    (before, behind.get(1..).unwrap_or_default())
}

/// A path in this thread's folder.
pub(crate) fn path(name: &str) -> PathBuf {
    FOLDER.with(|folder| folder.path().join(name))
}

/// Writes a file in this thread's folder, replacing an existing one.
pub(crate) fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = path(name);
    fs::write(&path, bytes).expect("a temporary file takes bytes");
    path
}

/// An empty folder in this thread's folder.
pub(crate) fn empty_folder(name: &str) -> PathBuf {
    let path = path(name);
    if path.exists() {
        fs::remove_dir_all(&path).expect("a temporary folder can be removed");
    }
    fs::create_dir(&path).expect("a temporary folder");
    path
}

/// All files below a folder, in no order.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("it can be listed").path();
            let list = if path.is_dir() { &mut left } else { &mut found };
            list.push(path);
        }
    }
    found
}

/// A source with valid options.
pub(crate) fn source(name: &str, options: Value) -> Box<dyn Source> {
    make_source(name, options).expect("good options")
}

/// A source with any options.
pub(crate) fn make_source(name: &str, options: Value) -> Result<Box<dyn Source>, OptionsError> {
    registry().source(name, options)
}

/// A stage with any options.
pub(crate) fn stage(name: &str, options: Value) -> Result<Stage, OptionsError> {
    registry().stage(name, options)
}
