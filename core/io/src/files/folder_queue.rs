//! The folders that a search is still to list. Lists none of them.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Folders and links to be looked at, where a folder to which several paths lead is listed once.
/// Paths without links come first.
#[derive(Debug, Default)]
pub(crate) struct FolderQueue {
    folders: VecDeque<PathBuf>,
    /// The links to be followed when no folder is left.
    links: VecDeque<PathBuf>,
    /// The device and inode of each folder listed.
    listed: HashSet<(u64, u64)>,
}

/// What is to be looked at next.
#[derive(Debug)]
pub(crate) enum QueuedPath {
    Folder(PathBuf),
    /// A link, which may lead to a file, or nowhere.
    Link(PathBuf),
}

impl FolderQueue {
    pub(crate) fn push_folder(&mut self, folder: PathBuf) {
        self.folders.push_back(folder);
    }

    pub(crate) fn push_link(&mut self, link: PathBuf) {
        self.links.push_back(link);
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedPath> {
        let folder = self.folders.pop_front().map(QueuedPath::Folder);
        folder.or_else(|| self.links.pop_front().map(QueuedPath::Link))
    }

    /// Notes that a folder is listed. False if it was listed before, by this path or another.
    pub(crate) fn note_listed(&mut self, folder: &fs::Metadata) -> bool {
        self.listed.insert((folder.dev(), folder.ino()))
    }
}
