//! Expands globs to paths, which need not be UTF-8. Reads folders, but opens no file.
//!
//! As in shells, a name that begins with a dot matches only if the glob has that dot. Unfinished
//! outputs match no glob.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern};

use crate::Error;
use crate::files::is_litter;

/// How globs match paths and keys.
pub(crate) const MATCH_OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Whether a name contains glob characters.
pub(crate) fn is_glob(name: &OsStr) -> bool {
    name.as_bytes().iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// All matches, sorted by name: files, folders, and dangling links. As in shells, a glob that ends
/// with a slash matches folders only.
///
/// `Err` if it is not a glob, or a folder cannot be listed.
pub(crate) fn expand(glob: &Path) -> Result<Vec<PathBuf>, Error> {
    let parsed = |part: &OsStr| {
        let refused = |e| Error::invalid(format!("`{}` is not a glob: {e}", glob.display()));
        Pattern::new(&lossless_text(part)).map_err(refused)
    };
    parsed(glob.as_os_str())?;
    let mut found = vec![PathBuf::new()];
    for part in glob.components() {
        let name = part.as_os_str();
        let mut next = Vec::new();
        if part == Component::CurDir {
            continue;
        } else if name == "**" {
            for folder in &found {
                folders_below(folder, &mut Vec::new(), &mut next)?;
            }
        } else if is_glob(name) {
            let pattern = parsed(name)?;
            for folder in &found {
                next.extend(list(folder)?.into_iter().filter(|path| {
                    let name = lossless_text(last(path));
                    pattern.matches_with(&name, MATCH_OPTIONS) && !is_litter(&name)
                }));
            }
        } else {
            for folder in &found {
                let path = folder.join(part);
                let is_there =
                    ignore_missing(fs::symlink_metadata(&path), "open", &path)?.is_some();
                next.extend(is_there.then_some(path));
            }
        }
        next.sort();
        next.dedup();
        found = next;
    }
    if glob.as_os_str().as_bytes().ends_with(b"/") {
        found.retain(|path| path.is_dir());
    }
    Ok(found)
}

/// A name as text, without loss: bytes that are not UTF-8 become private characters.
///
/// A pattern that matches any character matches such a byte.
fn lossless_text(name: &OsStr) -> String {
    const NO_TEXT: u32 = 0x10_ff00;
    let mut text = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        text += chunk.valid();
        let bytes = chunk.invalid().iter();
        text.extend(bytes.filter_map(|byte| char::from_u32(NO_TEXT + u32::from(*byte))));
    }
    text
}

fn last(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// The entries of a folder; empty if it is not one.
fn list(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let at = if folder == Path::new("") { Path::new(".") } else { folder };
    let Some(names) = ignore_missing(fs::read_dir(at), "list", at)? else { return Ok(Vec::new()) };
    let path = |name: io::Result<fs::DirEntry>| match name {
        Ok(name) => Ok(folder.join(name.file_name())),
        Err(error) => Err(Error::io("list", at, error)),
    };
    names.map(path).collect()
}

/// A folder and all folders below it that are not hidden, following links except into cycles.
fn folders_below(
    folder: &Path,
    around: &mut Vec<(u64, u64)>,
    found: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    let at = if folder == Path::new("") { Path::new(".") } else { folder };
    let Some(meta) = ignore_missing(fs::metadata(at), "open", at)? else { return Ok(()) };
    let identity = (meta.dev(), meta.ino());
    if !meta.is_dir() || around.contains(&identity) {
        return Ok(());
    }
    found.push(folder.to_owned());
    around.push(identity);
    for path in list(folder)? {
        if !last(&path).as_bytes().starts_with(b".") {
            folders_below(&path, around, found)?;
        }
    }
    around.pop();
    Ok(())
}

/// The result of a system call; `None` if the path does not exist.
fn ignore_missing<T>(
    result: io::Result<T>,
    action: &'static str,
    path: &Path,
) -> Result<Option<T>, Error> {
    use ErrorKind::{NotADirectory, NotFound};
    const LOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();
    match result {
        Ok(result) => Ok(Some(result)),
        Err(e) if matches!(e.kind(), NotFound | NotADirectory) => Ok(None),
        // A link to itself is not a folder; opening it reports the error.
        Err(e) if action == "open" && e.raw_os_error() == Some(LOOP) => Ok(None),
        Err(error) => Err(Error::io(action, path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder(files: &[&[u8]]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(OsStr::from_bytes(file));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    fn found(folder: &tempfile::TempDir, glob: &[u8]) -> Vec<Vec<u8>> {
        let paths = expand(&folder.path().join(OsStr::from_bytes(glob))).unwrap();
        let bytes = |path: PathBuf| {
            path.strip_prefix(folder.path()).unwrap().as_os_str().as_bytes().to_owned()
        };
        paths.into_iter().map(bytes).collect()
    }

    #[test]
    fn names_that_are_not_utf8_are_found() {
        let folder =
            folder(&[b"a.lcm", b"b\xff.lcm", b"b\xfe.lcm", b"x\xff/c.lcm", b"\xc3\xbc.lcm"]);
        let all: [&[u8]; 4] = [b"a.lcm", b"b\xfe.lcm", b"b\xff.lcm", b"\xc3\xbc.lcm"];
        assert_eq!(found(&folder, b"*.lcm"), all);
        assert_eq!(found(&folder, b"?.lcm"), [&b"a.lcm"[..], b"\xc3\xbc.lcm"]);
        assert_eq!(found(&folder, b"b\xff*"), [b"b\xff.lcm"]);
        assert_eq!(found(&folder, b"*/*.lcm"), [b"x\xff/c.lcm"]);
        assert_eq!(found(&folder, b"**/c.lcm"), [b"x\xff/c.lcm"]);
    }

    #[test]
    fn folders_at_any_depth_are_looked_through_once() {
        let folder = folder(&[b"a/x/1", b"a/1", b"b/1", b"1", b".h/1"]);
        symlink("..", folder.path().join("a/up")).unwrap();
        symlink("me", folder.path().join("me")).unwrap();
        assert_eq!(found(&folder, b"**/1"), [&b"1"[..], b"a/1", b"a/x/1", b"b/1"]);
        assert_eq!(found(&folder, b"a/**/x/*"), [b"a/x/1"]);
        assert_eq!(found(&folder, b"a/../b/[1]"), [b"a/../b/1"]);
        assert_eq!(found(&folder, b"1/*"), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_name_with_a_leading_dot_matches_only_a_written_dot() {
        let folder = folder(&[b"a", b".b", b".c.9-0.sluice-tmp", b".h/a", b".h/.b", b".h/i/a"]);
        assert_eq!(found(&folder, b"*"), [b"a"]);
        assert_eq!(found(&folder, b"?b"), Vec::<Vec<u8>>::new());
        assert_eq!(found(&folder, b"[.]b"), Vec::<Vec<u8>>::new());
        assert_eq!(found(&folder, b"**/a"), [b"a"]);
        assert_eq!(found(&folder, b".h/**/a"), [&b".h/a"[..], b".h/i/a"]);
        assert_eq!(found(&folder, b"**/.b"), [b".b"]);
        assert_eq!(found(&folder, b"*/a"), Vec::<Vec<u8>>::new());
        assert_eq!(found(&folder, b".*/a"), [b".h/a"]);
        // An unfinished output is read only by its name.
        assert_eq!(found(&folder, b".*"), [&b".b"[..], b".h"]);
        let exact: &[u8] = b".c.9-0.sluice-tmp";
        assert_eq!(found(&folder, exact), [exact]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found_like_files() {
        let folder = folder(&[b"a/1", b"b/2"]);
        symlink("nowhere", folder.path().join("b/1")).unwrap();
        assert_eq!(found(&folder, b"*/1"), [b"a/1", b"b/1"]);
        assert_eq!(found(&folder, b"b/*"), [b"b/1", b"b/2"]);
    }

    #[test]
    fn a_slash_at_the_end_means_folders() {
        let folder = folder(&[b"a/1", b"b/1", b"c"]);
        symlink("b", folder.path().join("link")).unwrap();
        symlink("nowhere", folder.path().join("lost")).unwrap();
        assert_eq!(found(&folder, b"*/"), [&b"a"[..], b"b", b"link"]);
        assert_eq!(found(&folder, b"[bc]/"), [b"b"]);
        assert_eq!(found(&folder, b"**/1/"), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn an_invalid_glob_is_refused() {
        for wrong in ["a[", "**a/b", "a***"] {
            assert!(expand(Path::new(wrong)).unwrap_err().to_string().contains("is not a glob"));
        }
    }
}
