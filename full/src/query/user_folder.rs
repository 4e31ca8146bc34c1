//! Folders of the user, as the XDG base directory specification places them.

use std::path::PathBuf;

/// The folder for history.
pub(super) fn state() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

/// The folder for what can be deleted at any time.
pub(super) fn cache() -> Option<PathBuf> {
    folder("XDG_CACHE_HOME", ".cache")
}

/// The program's folder in the one that a variable names, or else in this one of the home folder.
fn folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(in_home)))?;
    Some(folder.join("sluice"))
}
