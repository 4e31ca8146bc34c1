//! The names of subfiles: which are free, and which belong to the log being replaced.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sluice_io::escape::{escaped, folded};
use sluice_io::output::folder_of;
use sluice_model::{Outputs, TypeKey};

use super::LogWriter;
use super::subfile_key::SubfileKey;
use crate::log::{name_key, subfiles_in};
use crate::master::{self, MasterHeader, encoded_word, is_file_name};

impl LogWriter {
    /// An unused name for a subfile: the one it was read from, if that is allowed.
    ///
    /// That name comes from the events, not from the user: it must not overwrite an existing file,
    /// unless that belongs to the log being replaced. In a folder where other logs are being
    /// written, it begins with the whole name of the master, and what follows has one dot: so it is
    /// that of no other log's subfile.
    pub(super) fn name_for(&mut self, key: &SubfileKey) -> String {
        let master = master_name(&self.path);
        let is_shared = self.outputs.shares_folder_of(&self.path);
        let old = key.file.as_ref().filter(|name| !is_shared && is_safe_file_name(name));
        let old = old.filter(|name| self.is_replaced(name) || !exists(&self.path_of(name)));
        if let Some(name) = old.filter(|name| self.names.insert(folded(name))) {
            return name.clone();
        }
        let begin = match is_shared {
            true => format!("{}.", whole_name(&master)),
            false => format!("{}_", stem(&master)),
        };
        let interface = file_name_part(&key.interface);
        let mut number = 0;
        loop {
            let name = format!("{begin}{interface}{number}.log");
            if self.names.insert(folded(&name)) && self.is_free(&name) {
                return name;
            }
            number += 1;
        }
    }

    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// Whether the log being replaced has a subfile of this name.
    pub(super) fn is_replaced(&self, name: &str) -> bool {
        self.replaced.contains(name.as_bytes())
    }

    /// Whether writing to this name overwrites no file of others. Devices and pipes may be written
    /// to.
    pub(super) fn is_free(&self, name: &str) -> bool {
        let path = self.path_of(name);
        let is_device = fs::metadata(&path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        self.is_replaced(name) || is_device || !exists(&path)
    }
}

/// The name of the master at `path`.
pub(super) fn master_name(path: &Path) -> String {
    escaped(path.file_name().unwrap_or_default().as_encoded_bytes()).into_owned()
}

/// Whether the path exists, even as a dangling link.
pub(super) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// The names of the subfiles that belong to the log at `path`: those of its master. If there is
/// none, those of the masters that killed runs were about to publish or to replace, except for
/// names that another log has taken since.
pub(super) fn own_subfiles(outputs: &Outputs, path: &Path) -> BTreeSet<Vec<u8>> {
    // A link leads nowhere while its master is taken away.
    if path.exists() {
        return subfiles_of_master(path);
    }
    let abandoned = outputs.abandoned_indexes(path);
    let mut names: BTreeSet<_> = abandoned.iter().flat_map(|m| subfiles_of_master(m)).collect();
    if !names.is_empty() {
        let taken = subfiles_in(folder_of(path), &abandoned);
        names.retain(|name| !taken.contains(&name_key(name)));
    }
    names
}

/// The subfile names of the log with this master; none if it is not readable.
fn subfiles_of_master(path: &Path) -> BTreeSet<Vec<u8>> {
    if !path.is_file() {
        return BTreeSet::new();
    }
    let header = master::open(path).and_then(|mut lines| MasterHeader::read(&mut lines));
    let files = header.map(|header| header.files).unwrap_or_default();
    files.into_iter().filter(|file| file.refused.is_none()).map(|file| file.name).collect()
}

/// Whether a name fits into a column and looks like one that a logger gave to a file.
pub(super) fn is_safe_file_name(name: &str) -> bool {
    let begins = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_short = name.len() <= 128;
    let is_whole = is_file_name(name.as_bytes()) && name.ends_with(".log");
    begins && is_short && is_whole && name.bytes().all(|b| b.is_ascii_graphic())
}

/// The start of subfile names: the master's name up to its first dot.
pub(super) fn stem(master: &str) -> String {
    let stem = master.split('.').find(|part| !part.is_empty()).unwrap_or("log");
    encoded_word(stem.as_bytes()).chars().take(64).collect()
}

/// The whole name of a master as a word; a long one is cut, and told apart by a hash.
fn whole_name(master: &str) -> String {
    const LONGEST: usize = 150;
    let name = encoded_word(master.as_bytes());
    if name.len() <= LONGEST {
        return name;
    }
    let begin: String = name.chars().take(64).collect();
    format!("{begin}-{}", TypeKey::from_parts([master.as_bytes()]))
}

pub(super) fn file_name_part(interface: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = interface.to_ascii_lowercase().chars().map(plain).take(64).collect();
    if name.is_empty() { "channel".to_owned() } else { name }
}
