//! Opens the logs on the command line as tables of a session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice::extension::{
    Failure, LogArgs, SOURCE_NAME, Shell, expand, open_logs, own_types, path_of_url,
};
use sluice_io::escape::printable;
use sluice_model::{Error, Input};
use sluice_pipeline::run::DEFAULT_MEMORY;
use sluice_query::session::{Session, SessionOptions};
use sluice_query::table::LogTables;

use super::args::QueryArgs;
use super::arguments::LogArgument;
use super::cache;

/// Batches of operators have a row for this much of the memory limit, within limits.
const BYTES_PER_ROW: usize = 8 << 10;

/// The fewest rows of a batch.
const MIN_BATCH_ROWS: usize = 256;

/// The alias of an only log.
pub(super) const ALIAS: &str = "log";

/// How to start later than at the beginning.
const START_BY_QUERY: &str = "a query sets the start itself: `where timestamp >= '…'`";

/// A session and its logs.
pub(super) struct Logs {
    pub(super) session: Session,
    /// All files that are read.
    pub(super) files: Vec<PathBuf>,
    /// All inputs, as JSON.
    pub(super) inputs: String,
    /// Where the types come from.
    pub(super) types: Vec<String>,
}

/// A table and its paths or globs.
#[derive(Debug, PartialEq, Eq)]
struct NamedTable {
    name: String,
    paths: Vec<String>,
}

impl Logs {
    /// Opens the logs, only to detect their formats.
    pub(super) fn open(
        args: &QueryArgs,
        logs: &[LogArgument],
        shell: &Shell,
    ) -> Result<Self, Failure> {
        let memory = args.memory.unwrap_or(DEFAULT_MEMORY).0;
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let defaults = SessionOptions::default();
        // Operators cannot spill the batch that they work on.
        let batch_rows = (memory / BYTES_PER_ROW).clamp(MIN_BATCH_ROWS, defaults.batch_rows);
        let options = SessionOptions { jobs: args.jobs, memory, batch_rows, ..defaults };
        let session = Session::new(options)?;
        let cache = if args.no_cache { None } else { cache::table_cache() }.map(Arc::new);
        let (mut files, mut all_inputs, mut types) =
            (Vec::new(), Vec::new(), args.decoding.types.clone());
        let tables = tables(logs, shell)?;
        for table in &tables {
            let (plugin, source) = open_logs(
                &LogArgs { verb: "sluice query", paths: &table.paths, format: &args.log_format },
                shell,
            )?;
            files.extend(source.files()?.into_iter().map(|file| file.path));
            all_inputs.extend(source.inputs()?);
            let own = types_of(own_types(plugin, &table.paths, &args.decoding.types, shell), args);
            let mut log = typed(LogTables::new(source, SOURCE_NAME, &shell.registry), &own, args)?;
            if let Some(cache) = &cache
                && let Some(source) = cache::source_key(plugin, &args.log_format)
            {
                log = log.with_cache(Arc::clone(cache), &source);
            }
            let new = own.into_iter().filter(|own| !types.contains(own));
            types.extend(new.collect::<Vec<_>>());
            add(&session, &table.name, tables.len() == 1, log)?;
        }
        Ok(Self { session, files, inputs: as_json(&all_inputs), types })
    }

    /// Lets the next query see what was written to logs meanwhile.
    pub(super) fn refresh(&self) -> Result<(), Error> {
        sluice_io::files::forget_states();
        let logs = self.session.log_names().into_iter();
        let mut logs = logs.filter_map(|name| self.session.log(&name));
        logs.try_for_each(|log| log.refresh())
    }
}

/// Adds a log as a table; an only log gets an alias.
fn add(session: &Session, name: &str, is_only: bool, log: LogTables) -> Result<(), Failure> {
    let log = Arc::new(log);
    let refused = |error: Error| {
        Failure::Usage(format!("{error}; NAME=FILE on the command line renames a log"))
    };
    session.add_log(name, Arc::clone(&log)).map_err(refused)?;
    if is_only && !name.eq_ignore_ascii_case(ALIAS) {
        session.add_alias(ALIAS, log)?;
    }
    Ok(())
}

fn as_json(inputs: &[Input]) -> String {
    serde_json::to_string(inputs).unwrap_or_default()
}

/// The tables of these logs: one per given name, in the order of first use, and one per file
/// without a name.
fn tables(logs: &[LogArgument], shell: &Shell) -> Result<Vec<NamedTable>, Failure> {
    let mut tables: Vec<NamedTable> = Vec::new();
    for LogArgument { name, path } in logs {
        let path = path_of_url(path, START_BY_QUERY, shell)?;
        let Some(name) = name else {
            for input in expand(shell, &path)? {
                let name = name_of(&input.path);
                expect_new(&tables, &name, &input.path)?;
                tables.push(NamedTable { name, paths: vec![text(&input.path)?] });
            }
            continue;
        };
        match tables.iter_mut().find(|table| table.name == *name) {
            Some(table) => table.paths.push(path),
            None => tables.push(NamedTable { name: name.clone(), paths: vec![path] }),
        }
    }
    Ok(tables)
}

fn expect_new(tables: &[NamedTable], name: &str, path: &Path) -> Result<(), Failure> {
    let Some(other) = tables.iter().find(|table| table.name == name) else { return Ok(()) };
    let (name, other) = (printable(name), other.paths.join(", "));
    let path = path.display();
    Err(Failure::Usage(format!(
        "two logs would be the table `{name}`: {other} and {path}; rename them: first={other} \
         second={path}, or make them one table: both={other} both={path}"
    )))
}

/// The table name of a file: its name without `.zst` and then without its extension.
fn name_of(path: &Path) -> String {
    if path == Path::new("-") {
        return "stdin".to_owned();
    }
    let unpacked = if path.extension().is_some_and(|e| e == "zst") {
        path.with_extension("")
    } else {
        path.to_owned()
    };
    let stem = unpacked.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.filter(|stem| !stem.is_empty()).unwrap_or_else(|| ALIAS.to_owned())
}

fn text(path: &Path) -> Result<String, Failure> {
    let not_text = || Failure::Usage(format!("this path is not UTF-8: {}", path.display()));
    path.to_str().map(str::to_owned).ok_or_else(not_text)
}

/// The log's own types and those in the arguments.
fn types_of(own: Vec<String>, args: &QueryArgs) -> Vec<String> {
    own.into_iter()
        .filter(|own| !args.decoding.types.contains(own))
        .chain(args.decoding.types.iter().cloned())
        .collect()
}

/// The log, decoded by these types.
fn typed(log: LogTables, types: &[String], args: &QueryArgs) -> Result<LogTables, Failure> {
    let channel_types: BTreeMap<String, String> =
        args.decoding.channel_types.iter().cloned().collect();
    log.with_types(types, &channel_types).map_err(|error| Failure::Usage(error.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_after_their_files() {
        for (path, name) in [
            ("a/drive.lcm", "drive"),
            ("2007-11-03.lcm.zst", "2007-11-03"),
            ("lcmlog-2009-12-01.00", "lcmlog-2009-12-01"),
            ("-", "stdin"),
            (".hidden", ".hidden"),
            ("s3://bucket/x/drive.vel", "drive"),
        ] {
            assert_eq!(name_of(Path::new(path)), name, "{path}");
        }
    }
}
