//! Expands globs to paths, which need not be UTF-8. Reads folders, but opens no file.
//!
//! As in shells, a name that begins with a dot matches only if the glob has that dot, and links are
//! followed. Unfinished outputs match no glob.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, FileType};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern};

use crate::files::folder_queue::{FolderQueue, QueuedPath};
use crate::files::is_litter;
use crate::{Error, path_order};

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

/// All matches, sorted by name, and by numbers in names: files, folders, and dangling links. As in
/// shells, a glob that ends with a slash matches folders only.
///
/// A folder that `**` reaches by several paths matches once, by a path without links if there is
/// one. A link below it to a file that matches by its own name does not match.
///
/// `Err` if it is not a glob, or a folder cannot be listed.
pub(crate) fn expand(glob: &Path) -> Result<Vec<PathBuf>, Error> {
    let parsed = |part: &OsStr| {
        let refused = |e| Error::invalid(format!("`{}` is not a glob: {e}", glob.display()));
        Pattern::new(&lossless_text(part)).map_err(refused)
    };
    parsed(glob.as_os_str())?;
    let (mut found, mut is_any_depth) = (vec![PathBuf::new()], false);
    for part in glob.components() {
        let name = part.as_os_str();
        let mut next = Vec::new();
        if part == Component::CurDir {
            continue;
        } else if name == "**" {
            next = folders_below(found)?;
            is_any_depth = true;
        } else if is_glob(name) {
            let pattern = parsed(name)?;
            for folder in &found {
                next.extend(list(folder)?.into_iter().map(|(path, _)| path).filter(|path| {
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
        next.sort_by(|a, b| path_order::compare(a, b));
        next.dedup();
        if is_any_depth {
            drop_repeated(&mut next);
        }
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

/// The entries of a folder, and what they are by themselves; empty if it is not one.
fn list(folder: &Path) -> Result<Vec<(PathBuf, FileType)>, Error> {
    let at = or_here(folder);
    let Some(entries) = ignore_missing(fs::read_dir(at), "list", at)? else {
        return Ok(Vec::new());
    };
    let mut listed = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| Error::io("list", at, e))?;
        let kind = ignore_missing(entry.file_type(), "open", &entry.path())?;
        listed.extend(kind.map(|kind| (folder.join(entry.file_name()), kind)));
    }
    Ok(listed)
}

/// Some folders and all folders below them that are not hidden, following links.
fn folders_below(mut tops: Vec<PathBuf>) -> Result<Vec<PathBuf>, Error> {
    let mut queue = FolderQueue::default();
    let links = |path: &PathBuf| path.ancestors().filter(|above| above.is_symlink()).count();
    tops.sort_by_cached_key(links);
    // All folders below one come before the next, which may be a link to one of them: as links,
    // they wait until no folder is left.
    tops.into_iter().for_each(|top| queue.push_link(top));
    let mut found = Vec::new();
    while let Some(next) = queue.pop() {
        let folder = match next {
            QueuedPath::Folder(path) | QueuedPath::Link(path) => path,
        };
        let at = or_here(&folder);
        let meta = ignore_missing(fs::metadata(at), "open", at)?.filter(fs::Metadata::is_dir);
        if !meta.is_some_and(|meta| queue.note_listed(&meta)) {
            continue;
        }
        let mut entries = list(&folder)?;
        entries.sort_by(|(a, _), (b, _)| path_order::compare(a, b));
        for (path, kind) in entries {
            if last(&path).as_bytes().starts_with(b".") {
                continue;
            } else if kind.is_dir() {
                queue.push_folder(path);
            } else if kind.is_symlink() {
                queue.push_link(path);
            }
        }
        found.push(folder);
    }
    Ok(found)
}

/// Drops links to what is there by its own name, and of several links to a folder all but the
/// first.
///
/// Links to one file elsewhere may be different files of a dataset with the same bytes.
fn drop_repeated(paths: &mut Vec<PathBuf>) {
    if !paths.iter().any(|path| path.is_symlink()) {
        return;
    }
    let identity = |path: &PathBuf| {
        let meta = fs::metadata(path).ok()?;
        Some(((meta.dev(), meta.ino()), meta.is_dir()))
    };
    let own_names = paths.iter().filter(|path| !path.is_symlink());
    let mut matched: HashSet<_> = own_names.filter_map(identity).collect();
    paths.retain(|path| match identity(path).filter(|_| path.is_symlink()) {
        Some(folder @ (_, true)) => matched.insert(folder),
        Some(file) => !matched.contains(&file),
        None => true,
    });
}

/// The path by which a folder is opened.
fn or_here(folder: &Path) -> &Path {
    if folder == Path::new("") { Path::new(".") } else { folder }
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
    fn matches_are_sorted_by_the_numbers_in_their_names() {
        let folder = folder(&[b"a.100", b"a.99", b"a.\xff", b"9/a", b"10/a"]);
        assert_eq!(found(&folder, b"a.*"), [&b"a.\xff"[..], b"a.99", b"a.100"]);
        assert_eq!(found(&folder, b"**/a"), [&b"9/a"[..], b"10/a"]);
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
    fn what_two_stars_reach_by_several_paths_is_found_once_and_by_its_own_name() {
        let folder = folder(&[b"tuesday/1", b"tuesday/sub/1", b"monday/1", b"far/.h/1", b"0"]);
        for (to, link) in [
            ("tuesday", "latest"),
            ("tuesday/1", "1"),
            ("../monday", "tuesday/before"),
            ("../tuesday", "monday/after"),
            ("../0", "monday/0"),
            ("../0", "tuesday/0"),
            (".h", "far/a"),
            (".h", "far/b"),
            ("far", "again"),
        ] {
            symlink(to, folder.path().join(link)).unwrap();
        }
        let once: [&[u8]; 4] = [b"far/a/1", b"monday/1", b"tuesday/1", b"tuesday/sub/1"];
        assert_eq!(found(&folder, b"**/1"), once);
        assert_eq!(found(&folder, b"**/*/1"), once);
        assert_eq!(found(&folder, b"*/**/1"), once);
        assert_eq!(found(&folder, b"**/**/[1]"), once);
        let two_deep: [&[u8]; 4] =
            [b"far/a/1", b"monday/after/1", b"tuesday/before/1", b"tuesday/sub/1"];
        assert_eq!(found(&folder, b"*/*/**/1"), two_deep);
        let folders: [&[u8]; 6] = [b"", b"far", b"far/a", b"monday", b"tuesday", b"tuesday/sub"];
        assert_eq!(found(&folder, b"**"), folders);
        assert_eq!(found(&folder, b"**/*/"), folders[1..]);
        // Links that a glob names, or that other patterns match, are followed as in shells.
        let latest: [&[u8]; 3] = [b"latest/1", b"latest/before/1", b"latest/sub/1"];
        assert_eq!(found(&folder, b"latest/**/1"), latest);
        assert_eq!(found(&folder, b"**/latest/1"), [b"latest/1"]);
        assert_eq!(found(&folder, b"[lt]*/1"), [&b"latest/1"[..], b"tuesday/1"]);
        assert_eq!(found(&folder, b"[m]*/0"), [b"monday/0"]);
        // Links to one file elsewhere may be different files of a dataset with the same bytes.
        assert_eq!(found(&folder, b"[mt]*/**/0"), [&b"monday/0"[..], b"tuesday/0"]);
        assert_eq!(found(&folder, b"**/0"), [b"0"]);
    }

    #[test]
    fn of_several_links_to_a_folder_the_first_by_number_is_followed() {
        let folder = folder(&[b".h/1"]);
        for link in ["run10", "run9"] {
            symlink(".h", folder.path().join(link)).unwrap();
        }
        assert_eq!(found(&folder, b"**/1"), [b"run9/1"]);
        assert_eq!(found(&folder, b"**/*/"), [b"run9"]);
    }

    #[test]
    fn folders_that_link_each_other_are_each_listed_once() {
        let names: Vec<String> = (0..10).map(|n| format!("{n}")).collect();
        let files: Vec<String> = names.iter().map(|name| format!("{name}/log")).collect();
        let files: Vec<&[u8]> = files.iter().map(String::as_bytes).collect();
        let folder = folder(&files);
        for (from, to) in names.iter().flat_map(|from| names.iter().map(move |to| (from, to))) {
            symlink(format!("../{to}"), folder.path().join(from).join(format!("to{to}"))).unwrap();
        }
        assert_eq!(found(&folder, b"**/log"), files);
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
