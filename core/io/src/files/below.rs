//! The files below a folder. Opens none of them.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use super::folder_queue::{FolderQueue, QueuedPath};
use super::identity::FileIdentity;
use super::input::Input;
use super::objects;
use crate::store::StorePath;
use crate::{Error, path_order};

/// How many entries of a folder, and of the folders below it, are looked at.
const MAX_ENTRIES: usize = 1_000_000;

/// What becomes of a file below a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChoice {
    /// It is one of the result.
    Take,
    /// It is not.
    Skip,
    /// It is not, and the search ends.
    Stop,
}

/// The chosen files below a folder or an address, sorted by path. Enters only folders whose paths
/// below it satisfy `is_entered`.
///
/// A folder to which several paths lead is listed once, and a link to a file that is taken by its
/// own name is not taken. Paths without links come first.
///
/// `Err` if a folder cannot be listed, a link that is taken leads nowhere, or there are more than a
/// million entries.
pub fn below(
    folder: &Path,
    is_entered: fn(&Path) -> bool,
    choose: impl FnMut(&Path) -> FileChoice,
) -> Result<Vec<Input>, Error> {
    below_up_to(MAX_ENTRIES, folder, is_entered, choose)
}

fn below_up_to(
    most: usize,
    folder: &Path,
    is_entered: fn(&Path) -> bool,
    choose: impl FnMut(&Path) -> FileChoice,
) -> Result<Vec<Input>, Error> {
    if let Some(place) = StorePath::parse(folder)? {
        let objects = objects::below(folder, &place, most.saturating_add(1))?;
        check_count(objects.len(), most, folder)?;
        return Ok(choose_objects(folder, objects, is_entered, choose));
    }
    let mut search = FolderSearch {
        root: folder,
        is_entered,
        choose,
        most,
        entries: 0,
        queue: FolderQueue::default(),
        linked_files: VecDeque::new(),
        taken: Vec::new(),
        own_names: HashSet::new(),
    };
    search.queue.push_folder(folder.to_owned());
    while search.step()? == SearchState::Unfinished {}
    search.taken.sort_by(|a, b| path_order::compare(&a.path, &b.path));
    Ok(search.taken)
}

fn check_count(entries: usize, most: usize, folder: &Path) -> Result<(), Error> {
    if entries <= most {
        return Ok(());
    }
    Err(Error::refused(format!(
        "expected at most {most} entries below this folder, found more: pass files or folders in \
         it, such as {}",
        folder.join("*").display()
    )))
}

fn choose_objects(
    folder: &Path,
    objects: Vec<Input>,
    is_entered: fn(&Path) -> bool,
    mut choose: impl FnMut(&Path) -> FileChoice,
) -> Vec<Input> {
    let mut taken = Vec::new();
    for object in objects {
        let below = object.path.strip_prefix(folder).unwrap_or(&object.path);
        let mut folders = below.ancestors().skip(1).filter(|above| *above != Path::new(""));
        if !folders.all(is_entered) {
            continue;
        }
        match choose(&object.path) {
            FileChoice::Take => taken.push(object),
            FileChoice::Skip => {}
            FileChoice::Stop => break,
        }
    }
    taken
}

/// A search below a folder of a file system, level by level.
struct FolderSearch<'f, C> {
    root: &'f Path,
    is_entered: fn(&Path) -> bool,
    choose: C,
    most: usize,
    /// How many entries have been looked at.
    entries: usize,
    queue: FolderQueue,
    /// The links to files, which are chosen when no other link is left.
    linked_files: VecDeque<PathBuf>,
    taken: Vec<Input>,
    /// The files that are taken by their own names, not by links.
    own_names: HashSet<FileIdentity>,
}

#[derive(PartialEq, Eq)]
enum SearchState {
    Unfinished,
    Finished,
}

impl<C: FnMut(&Path) -> FileChoice> FolderSearch<'_, C> {
    fn step(&mut self) -> Result<SearchState, Error> {
        match self.queue.pop() {
            Some(QueuedPath::Folder(folder)) => return self.list(&folder),
            Some(QueuedPath::Link(link)) if link.is_dir() => self.add_folder(link),
            Some(QueuedPath::Link(link)) => self.linked_files.push_back(link),
            None => match self.linked_files.pop_front() {
                Some(file) => return self.choose_file(file, FileName::Link),
                None => return Ok(SearchState::Finished),
            },
        }
        Ok(SearchState::Unfinished)
    }

    fn list(&mut self, folder: &Path) -> Result<SearchState, Error> {
        let fail = |e| Error::io("list", folder, e);
        let meta = fs::metadata(folder).map_err(fail)?;
        if !self.queue.note_listed(&meta) {
            return Ok(SearchState::Unfinished);
        }
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder).map_err(fail)? {
            self.entries += 1;
            check_count(self.entries, self.most, self.root)?;
            let entry = entry.map_err(fail)?;
            entries.push((entry.path(), entry.file_type().map_err(fail)?));
        }
        entries.sort_by(|(a, _), (b, _)| path_order::compare(a, b));
        for (path, kind) in entries {
            if kind.is_dir() {
                self.add_folder(path);
            } else if kind.is_symlink() {
                self.queue.push_link(path);
            } else if self.choose_file(path, FileName::Own)? == SearchState::Finished {
                return Ok(SearchState::Finished);
            }
        }
        Ok(SearchState::Unfinished)
    }

    fn add_folder(&mut self, path: PathBuf) {
        if (self.is_entered)(path.strip_prefix(self.root).unwrap_or(&path)) {
            self.queue.push_folder(path);
        }
    }

    fn choose_file(&mut self, path: PathBuf, name: FileName) -> Result<SearchState, Error> {
        match (self.choose)(&path) {
            FileChoice::Stop => return Ok(SearchState::Finished),
            FileChoice::Skip => return Ok(SearchState::Unfinished),
            FileChoice::Take => {}
        }
        let meta = fs::metadata(&path).map_err(|e| Error::io("open", &path, e))?;
        let identity = FileIdentity::from_metadata(&meta);
        match (name, identity) {
            // Links to one file elsewhere may be different files of a dataset with the same bytes.
            (FileName::Link, Some(file)) if self.own_names.contains(&file) => {
                return Ok(SearchState::Unfinished);
            }
            (FileName::Own, Some(file)) => drop(self.own_names.insert(file)),
            _ => {}
        }
        self.taken.push(Input { path, bytes: meta.is_file().then_some(meta.len()) });
        Ok(SearchState::Unfinished)
    }
}

/// How a path leads to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileName {
    Own,
    Link,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::store::memory::MEMORY;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "12").unwrap();
        }
        folder
    }

    fn is_plain(folder: &Path) -> bool {
        !folder.file_name().unwrap().as_encoded_bytes().starts_with(b".")
    }

    /// The paths below a folder or an address, and the lengths.
    fn all(folder: &Path) -> Vec<(String, Option<u64>)> {
        let found = below(folder, is_plain, |_| FileChoice::Take).unwrap();
        let name = |input: Input| {
            (input.path.strip_prefix(folder).unwrap().display().to_string(), input.bytes)
        };
        found.into_iter().map(name).collect()
    }

    #[test]
    fn files_below_a_folder_or_an_address_are_sorted_by_path() {
        let files = ["b/x/1", "b/10", "b/9", "b.d/1", "a", ".h/1", ".f"];
        let sorted = [".f", "a", "b/9", "b/10", "b/x/1", "b.d/1"];
        let sorted = sorted.map(|name| (name.to_owned(), Some(2)));
        assert_eq!(all(folder(&files).path()), sorted);
        for file in files {
            MEMORY.set("below", &format!("at/{file}"), "12");
        }
        assert_eq!(all(Path::new("mem://below/at")), sorted);
    }

    #[test]
    fn what_links_lead_to_is_found_once_and_by_its_own_name() {
        let folder = folder(&["t/z/1", "t/z/2", "o/p/3", "o/4", ".h/5", "q/6"]);
        for (to, link) in [
            (".", "t/self"),
            ("z", "t/a"),
            ("../o/p", "t/b"),
            ("../o", "t/c"),
            ("c/4", "t/d"),
            ("../../t", "o/p/up"),
            ("self", "t/.self"),
            ("../.h", "t/h"),
            ("../q/6", "t/6"),
            ("../q/6", "t/7"),
        ] {
            symlink(to, folder.path().join(link)).unwrap();
        }
        fs::hard_link(folder.path().join("t/z/1"), folder.path().join("t/0")).unwrap();
        let names = all(&folder.path().join("t")).into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["0", "6", "7", "b/3", "c/4", "h/5", "z/1", "z/2"]);
    }

    #[test]
    fn folders_that_are_not_entered_hide_no_others() {
        let folder = folder(&["t/z/1", "x/c/2", "x/c/d/3", "x/4"]);
        let t = folder.path().join("t");
        symlink("../x", t.join("a")).unwrap();
        symlink("../x/c", t.join("c")).unwrap();
        for file in ["z/1", "a/4", "a/c/2", "c/2", "c/d/3"] {
            MEMORY.set("depth", &format!("t/{file}"), "12");
        }
        for top in [&t, Path::new("mem://depth/t")] {
            let is_entered = |folder: &Path| folder.iter().count() == 1;
            let found = below(top, is_entered, |_| FileChoice::Take).unwrap().into_iter();
            let names = found.map(|input| input.path.strip_prefix(top).unwrap().to_owned());
            assert_eq!(names.collect::<Vec<_>>(), ["a/4", "c/2", "z/1"].map(PathBuf::from));
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_fails_if_it_is_taken() {
        let folder = folder(&["a"]);
        symlink("nowhere", folder.path().join("b")).unwrap();
        symlink("c", folder.path().join("c")).unwrap();
        let skip = |path: &Path| match path.ends_with("a") {
            true => FileChoice::Take,
            false => FileChoice::Skip,
        };
        assert_eq!(below(folder.path(), is_plain, skip).unwrap().len(), 1);
        let error = below(folder.path(), is_plain, |_| FileChoice::Take).unwrap_err().to_string();
        assert!(error.contains("no such file") && error.contains("/b"), "{error}");
    }

    #[test]
    fn a_search_that_is_stopped_looks_no_further() {
        let folder = folder(&["a/1", "b/1", "2"]);
        let mut seen = Vec::new();
        let found = below(folder.path(), is_plain, |path| {
            seen.push(path.strip_prefix(folder.path()).unwrap().to_owned());
            if path.ends_with("a/1") { FileChoice::Stop } else { FileChoice::Take }
        });
        assert_eq!(seen, [Path::new("2"), Path::new("a/1")]);
        assert_eq!(found.unwrap().len(), 1);
    }

    #[test]
    fn a_folder_with_too_many_entries_is_refused() {
        let folder = folder(&["a/1", "a/2", ".h/1"]);
        MEMORY.set("many", "a/1", "12");
        MEMORY.set("many", "a/2", "12");
        for (folder, entries) in [(folder.path(), 4), (Path::new("mem://many/a"), 2)] {
            let look = |most| below_up_to(most, folder, is_plain, |_| FileChoice::Take);
            assert_eq!(look(entries).unwrap().len(), 2);
            let error = look(entries - 1).unwrap_err().to_string();
            let advice = format!("such as {}", folder.join("*").display());
            assert!(error.contains("entries below this folder") && error.contains(&advice));
        }
    }
}
