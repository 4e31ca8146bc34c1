//! Snapshots of a folder: read, compared and restored. Knows nothing about sinks.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// All files below a folder by relative path. Folders have a trailing slash and no content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DirSnapshot(BTreeMap<String, Vec<u8>>);

impl DirSnapshot {
    /// Reads a folder. An unreadable one is empty.
    pub(super) fn read(folder: &Path) -> Self {
        let mut tree = Self::default();
        tree.collect(folder, "");
        tree
    }

    fn collect(&mut self, folder: &Path, before: &str) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = format!("{before}{}", entry.file_name().to_string_lossy());
            if path.is_dir() {
                self.0.insert(format!("{name}/"), Vec::new());
                self.collect(&path, &format!("{name}/"));
            } else {
                self.0.insert(name, fs::read(&path).unwrap_or_default());
            }
        }
    }

    /// Restores a folder to this content.
    pub(super) fn restore(&self, folder: &Path) -> io::Result<()> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir_all(folder)?,
        }
        for (name, bytes) in &self.0 {
            match name.strip_suffix('/') {
                Some(name) => fs::create_dir_all(folder.join(name))?,
                None => fs::write(folder.join(name), bytes)?,
            }
        }
        Ok(())
    }

    /// Whether it has no file.
    pub(super) fn is_empty(&self) -> bool {
        self.files().next().is_none()
    }

    /// The paths of the files.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name).filter(|name| !name.ends_with('/'))
    }

    /// The snapshot without files of this name.
    pub(super) fn without(&self, name: &str) -> Self {
        let is_other = |path: &String| path.rsplit('/').next() != Some(name);
        let kept = self.0.iter().filter(|(path, _)| is_other(path));
        Self(kept.map(|(path, bytes)| (path.clone(), bytes.clone())).collect())
    }

    /// The part whose paths `other` has too.
    pub(super) fn only(&self, other: &Self) -> Self {
        let kept = self.0.iter().filter(|(path, _)| other.0.contains_key(*path));
        Self(kept.map(|(path, bytes)| (path.clone(), bytes.clone())).collect())
    }

    /// The first difference to another snapshot, in words.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        if let Some(name) = self.0.keys().find(|name| !other.0.contains_key(*name)) {
            return Some(format!("`{name}` is missing"));
        }
        if let Some(name) = other.0.keys().find(|name| !self.0.contains_key(*name)) {
            return Some(format!("`{name}` is there, which should not be"));
        }
        self.0.iter().zip(other.0.values()).find_map(|((name, one), other)| {
            let at = one.iter().zip(other).position(|(one, other)| one != other);
            let at = at.unwrap_or(one.len().min(other.len()));
            let (is, due) = (other.len(), one.len());
            let len = if is == due { String::new() } else { format!("; {is} bytes, not {due}") };
            (one != other).then(|| format!("`{name}` from byte {at} on{len}"))
        })
    }
}
