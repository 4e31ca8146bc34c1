//! What a cached table depends on: the program, the files of the log, how they are read, and types.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use sluice_io::store::is_address;
use sluice_kit::event_table::TableKind;
use sluice_model::Input;

use super::log::{LogCache, LogTables};

/// The version of what is stored. Increase it when rows, columns or findings change their meaning.
const FORMAT_VERSION: u32 = 1;

/// Logs of more files are not cached: looking at each takes time before every query.
const MAX_FILES: usize = 1_000;

impl LogTables {
    /// The key of a table as the log is now. `None` if the table cannot be cached: the log has
    /// inputs other than regular files, is short, or was written just now.
    ///
    /// Equal keys mean equal rows, batches and findings. Looks at the files of the source, which
    /// may read some of them.
    pub(super) fn cache_key(&self, kind: &TableKind, split_bytes: u64) -> Option<String> {
        let LogCache { tables, source } = self.cache.as_ref()?;
        let files = self.source.files().ok().filter(|files| files.len() <= MAX_FILES)?;
        let states = files.iter().map(|file| file_state(file, tables.min_log_age));
        let states: Vec<FileState> = states.collect::<Option<_>>()?;
        if states.iter().map(|state| state.bytes).sum::<u64>() < tables.min_log_bytes {
            return None;
        }
        let files: Vec<Value> = states.into_iter().map(|state| state.text).collect();
        let types = match kind {
            TableKind::Fields(_, rows) => json!({
                "options": self.types,
                "files": self.decode.as_ref().and_then(|decode| decode.fingerprint()),
                "message": &*rows.message,
            }),
            // Nothing is decoded.
            TableKind::Events | TableKind::Payloads(_) => Value::Null,
        };
        let schema = kind.schema();
        let columns = schema.fields().iter().map(|f| format!("{}: {}", f.name(), f.data_type()));
        let key = json!({
            "version": FORMAT_VERSION,
            "program": tables.program,
            "source": source,
            "source_name": &*self.source_name,
            "split_bytes": split_bytes,
            "types": types,
            "channel": kind.channel().map(|channel| &**channel),
            "columns": columns.collect::<Vec<_>>(),
            "files": files,
        });
        Some(key.to_string())
    }
}

/// The state of a file.
struct FileState {
    bytes: u64,
    /// Differs whenever the contents may.
    text: Value,
}

/// `None` unless it is a regular file that was last written long enough ago.
fn file_state(file: &Input, min_age: Duration) -> Option<FileState> {
    let path = &file.path;
    if path == Path::new("-") || is_address(path) {
        return None;
    }
    let canonical = fs::canonicalize(path).ok()?;
    if !fs::metadata(&canonical).is_ok_and(|meta| meta.is_file()) {
        return None;
    }
    // On network file systems only an open file has times that are certainly current.
    let meta = File::open(&canonical).ok()?.metadata().ok()?;
    // Time of change also counts: whoever sets the time of a write back cannot set this one.
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let written = nanos(meta.mtime(), meta.mtime_nsec());
    let changed = nanos(meta.ctime(), meta.ctime_nsec());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_nanos();
    let oldest = i128::try_from(now.saturating_sub(min_age.as_nanos())).ok()?;
    if written.max(changed) > oldest {
        return None;
    }
    // Damage is reported under the path as given.
    let text = json!({
        "path": path.to_string_lossy(),
        "canonical": canonical.to_string_lossy(),
        "device": meta.dev(),
        "inode": meta.ino(),
        "bytes": meta.len(),
        "written": written.to_string(),
        "changed": changed.to_string(),
    });
    Some(FileState { bytes: meta.len(), text })
}
