//! A cache of tables on disk: columns that a query has read from a log, for later queries.
//!
//! One file per table and set of columns, complete or absent. Keys are texts that the caller makes:
//! this module knows no logs and no plans, reads no environment variables, and reports no errors. A
//! table that cannot be stored is not stored, and a file that is damaged, foreign or of another
//! version is treated as absent.

mod file;

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use arrow_schema::Schema;
use serde::{Deserialize, Serialize};

use crate::table::TableFindings;

pub(crate) use file::{StoredBatches, TableWriter};

/// The end of the names of cached tables.
const EXTENSION: &str = "table";

/// How long a temporary file is left alone: a running query may be writing it.
const MAX_TEMPORARY_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// A folder with tables of logs, for
/// [`LogTables::with_cache`](crate::table::LogTables::with_cache).
///
/// Other processes may use the folder at the same time. Its files have rows of logs, so only their
/// owner can read them; a folder that others can write to, or that belongs to somebody else, is not
/// used.
#[derive(Clone, Debug)]
pub struct TableCache {
    /// The folder. Created when the first table is stored.
    pub folder: PathBuf,
    /// Identifies the program: tables of other programs are not used.
    pub program: String,
    /// Tables of shorter logs are not stored: reading these is fast.
    pub min_log_bytes: u64,
    /// Longer tables are not stored. The memory of a session limits them, too.
    pub max_table_bytes: u64,
    /// The most bytes of all tables: those that were not used for longest are removed.
    pub max_bytes: u64,
    /// The most tables, since the folder is listed before each query.
    pub max_tables: usize,
    /// Tables of logs that were written more recently are not stored: until the clock of the file
    /// system advances, another write would leave the same time.
    pub min_log_age: Duration,
}

/// What is stored about a table beside its rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TableSummary {
    /// The whole key.
    pub(crate) key: String,
    /// The columns, as places in the table.
    pub(crate) columns: Vec<usize>,
    /// The name and source of each channel, by channel id.
    pub(crate) labels: Vec<(String, String)>,
    /// The names of the channels that were read.
    pub(crate) channels: Vec<String>,
    /// What reading the whole table found.
    pub(crate) findings: TableFindings,
}

/// A cached table whose rows have not been checked yet.
#[derive(Clone, Debug)]
pub(crate) struct CachedTable {
    path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) summary: TableSummary,
}

impl TableCache {
    /// A cache in this folder, with the usual limits.
    pub fn new(folder: PathBuf, program: String) -> Self {
        Self {
            folder,
            program,
            min_log_bytes: 64 << 20,
            max_table_bytes: 256 << 20,
            max_bytes: 1 << 30,
            max_tables: 1_000,
            min_log_age: Duration::from_secs(2),
        }
    }

    /// The tables stored under this key, shortest first. Reads only their summaries.
    pub(crate) fn tables(&self, key: &str) -> Vec<CachedTable> {
        if !is_private(&self.folder) {
            return Vec::new();
        }
        let prefix = format!("{}-", hash(key.as_bytes()));
        let files = self.files(&prefix, EXTENSION).into_iter();
        let mut tables: Vec<CachedTable> = files
            .filter(|(_, meta)| meta.len() <= self.max_table_bytes)
            .filter_map(|(path, _)| {
                let (bytes, summary) = file::read_summary(&path).ok().flatten()?;
                Some(CachedTable { path, bytes, summary })
            })
            .filter(|table| table.summary.key == key)
            .collect();
        tables.sort_by(|a, b| (a.bytes, &a.path).cmp(&(b.bytes, &b.path)));
        tables
    }

    /// Opens a table to read these columns of its file, and returns its summary as it is now.
    /// `None` if the table is gone or damaged. A damaged table is removed.
    pub(crate) fn open(
        &self,
        table: &CachedTable,
        columns: Vec<usize>,
    ) -> Option<(TableSummary, StoredBatches)> {
        let read = file::read_table(&table.path, columns, self.max_table_bytes);
        if let Ok(None) = &read {
            drop(fs::remove_file(&table.path));
        }
        let is_same = |new: &TableSummary| {
            new.key == table.summary.key && new.columns == table.summary.columns
        };
        read.ok().flatten().filter(|(summary, _)| is_same(summary))
    }

    /// Starts to store a table of at most `max_bytes`. `None` if the folder cannot be used.
    pub(crate) fn create(&self, schema: &Schema, max_bytes: u64) -> Option<TableWriter> {
        DirBuilder::new().mode(0o700).recursive(true).create(&self.folder).ok()?;
        if !is_private(&self.folder) {
            return None;
        }
        let mut names = tempfile::Builder::new();
        let file = names.prefix(".").suffix(".tmp").tempfile_in(&self.folder).ok()?;
        TableWriter::new(file, schema, max_bytes.min(self.max_table_bytes)).ok()
    }

    /// Completes a table, which replaces an earlier one with the same key and columns.
    pub(crate) fn finish(&self, writer: TableWriter, summary: &TableSummary) {
        let columns: Vec<String> = summary.columns.iter().map(usize::to_string).collect();
        let (key, columns) = (hash(summary.key.as_bytes()), hash(columns.join(",").as_bytes()));
        let path = self.folder.join(format!("{key}-{columns}.{EXTENSION}"));
        if writer.finish(summary, &path).is_ok() {
            self.remove_oldest();
        }
    }

    /// Removes the tables that were not used for longest, as far as there are too many, and
    /// temporary files of processes that were killed.
    fn remove_oldest(&self) {
        let mut tables = self.files("", EXTENSION);
        let used = |meta: &fs::Metadata| meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        tables.sort_by_key(|(_, meta)| used(meta));
        let mut count = tables.len();
        let mut bytes: u64 = tables.iter().map(|(_, meta)| meta.len()).sum();
        for (path, meta) in tables {
            if count <= self.max_tables && bytes <= self.max_bytes {
                break;
            }
            drop(fs::remove_file(path));
            (count, bytes) = (count - 1, bytes - meta.len());
        }
        for (path, meta) in self.files(".", "tmp") {
            if used(&meta).elapsed().is_ok_and(|age| age > MAX_TEMPORARY_AGE) {
                drop(fs::remove_file(path));
            }
        }
    }

    /// The regular files in the folder with such names.
    fn files(&self, prefix: &str, extension: &str) -> Vec<(PathBuf, fs::Metadata)> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let files = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let path = entry.path();
            let is_named = path.extension().is_some_and(|e| e == extension)
                && entry.file_name().to_string_lossy().starts_with(prefix);
            // Does not follow links.
            let meta = if is_named { entry.metadata().ok() } else { None };
            Some((path, meta.filter(fs::Metadata::is_file)?))
        });
        files.collect()
    }
}

/// Whether nobody else can put files into this folder.
fn is_private(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|meta| {
        meta.is_dir()
            && meta.uid() == rustix::process::geteuid().as_raw()
            && meta.mode() & 0o022 == 0
    })
}

/// A short hash for names of files.
fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().chars().take(32).collect()
}
