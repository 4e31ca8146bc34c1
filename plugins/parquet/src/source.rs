//! Source `parquet`: tables as events. A single table is read by row groups in parallel; the tables
//! of a folder are merged.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_io::escape::escaped_path;
use sluice_io::files::{self, FileChoice};
use sluice_model::options::InPaths;
use sluice_model::{
    Batch, Damage, Error, ErrorKind, Input, LogPayloads, Query, ReadContext, Reader, SniffResult,
    Source, Split, SplitStart,
};

use crate::folder::{FolderFile, is_entered, is_plain, tables_below};
use crate::input::{GroupSpan, TimeUnits};
use crate::manifest::{FolderManifests, differences, is_empty_output};
use crate::merge::{MergeReader, TableMerge};
use crate::table::{GroupReader, ParquetTable, TARGET_BYTES};

/// Reads Parquet tables: those that the sink `parquet` wrote, and others with a column `timestamp`.
///
/// A table of all events restores the events it was made from. Other columns become fields of
/// decoded messages.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parquet {
    /// The tables: a file, a glob, a folder, or a list of them. The tables of one folder or glob
    /// that hold one channel each are merged in the order of their events.
    #[serde(deserialize_with = "InPaths::without_stdin")]
    path: InPaths,
    /// The table opened last. Its row groups are read one after the other, and each would have to
    /// parse the metadata of all of them.
    #[serde(skip)]
    opened: Mutex<Option<Arc<ParquetTable>>>,
    /// The units of INT96 times of tables opened before: choosing them reads whole columns.
    #[serde(skip)]
    time_units: Mutex<HashMap<PathBuf, TimeUnits>>,
    /// The folders whose tables differ from their manifests, and notes about each.
    #[serde(skip)]
    differences: OnceLock<Vec<(PathBuf, String)>>,
}

sluice_model::register! {
    source "parquet": Parquet,
    about: "reads Parquet tables as events",
    sample: include_str!("../samples/parquet-source.toml"),
    extensions: &["parquet"],
    sniff: sniff,
    sniff_path: sniff_path,
    gives_rows: true,
    payloads: Some(payloads),
}

const MAGIC: &[u8] = b"PAR1";

fn sniff(head: &[u8]) -> SniffResult {
    if head.starts_with(MAGIC) { SniffResult::Yes } else { SniffResult::No }
}

/// Recognises a folder with tables and nothing but what describes them, or one to which a run
/// without events wrote none. Beside the tables that a manifest lists may be other files.
///
/// `Err` if it has tables, but must not be read without the other files in it.
fn sniff_path(path: &Path) -> Result<SniffResult, Error> {
    if !files::is_folder(path) {
        return Ok(SniffResult::No);
    }
    let (mut other, mut manifests) = (None, FolderManifests::new(path));
    let tables = files::below(path, is_entered, |file| match FolderFile::from_path(file) {
        FolderFile::Table => FileChoice::Take,
        FolderFile::Side => FileChoice::Skip,
        FolderFile::Other if manifests.is_below_one(file.parent().unwrap_or(path)) => {
            FileChoice::Skip
        }
        FolderFile::Other => {
            other = Some(file.to_owned());
            FileChoice::Stop
        }
    })?;
    match other {
        Some(_) if tables.is_empty() && !has_partition_table(path)? => Ok(SniffResult::No),
        Some(other) => Err(Error::refused(format!(
            "expected a folder of Parquet tables, found other files beside them, such as {}: pass \
             its files, such as {}, and the tables in folders below it, such as '{}'",
            other.display(),
            path.join("*").display(),
            path.join("**/*.parquet").display()
        ))),
        None if !tables.is_empty() || is_empty_output(path)? => Ok(SniffResult::Yes),
        None => Ok(SniffResult::No),
    }
}

/// Whether a table is directly in a folder or in its partitions, whatever other files come first.
fn has_partition_table(folder: &Path) -> Result<bool, Error> {
    let is_partition = |folder: &Path| {
        folder
            .file_name()
            .is_some_and(|name| is_plain(name) && name.as_encoded_bytes().contains(&b'='))
    };
    let mut is_table = false;
    files::below(folder, is_partition, |file| {
        is_table = FolderFile::from_path(file) == FolderFile::Table;
        if is_table { FileChoice::Stop } else { FileChoice::Skip }
    })?;
    Ok(is_table)
}

/// What the footers of a table, or of those in a folder, tell of messages that are not decoded.
fn payloads(path: &Path) -> Result<LogPayloads, Error> {
    let mut found = LogPayloads::default();
    let tables = match files::is_folder(path) {
        true => paths_of(tables_below(path)?),
        false if files::is_address_or_file(path) => vec![path.to_owned()],
        false => Vec::new(),
    };
    let is_alone = tables.len() == 1;
    for path in tables {
        match ParquetTable::open(&path) {
            Ok(table) => table.add_payloads(&mut found),
            // Reading reports those that cannot be opened.
            Err(error) if is_alone || whole_damage(&path, &error).is_none() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(found)
}

/// How the tables of a path are read.
enum TableInput {
    /// The tables of one path, each read by itself.
    Separate(Vec<PathBuf>),
    /// The tables of one path, merged.
    Merged { name: PathBuf, tables: ChannelTables },
}

/// Tables of one channel each.
struct ChannelTables {
    opened: Vec<ParquetTable>,
    /// Those that are damaged as a whole: without a footer, nothing of a table can be read.
    damage: Vec<Damage>,
}

impl Parquet {
    /// The files of each path.
    fn files_by_name(&self) -> Result<Vec<(PathBuf, Vec<Input>)>, Error> {
        let mut each = Vec::new();
        for name in &self.path.0 {
            let folders = files::folders(name)?;
            if folders.is_empty() {
                each.push((name.clone(), files::expand(std::slice::from_ref(name))?));
            }
            for folder in folders {
                let inputs = tables_below(&folder)?;
                if inputs.is_empty() && !is_empty_output(&folder)? {
                    return Err(Error::refused(format!(
                        "no Parquet files in this folder: {}",
                        folder.display()
                    )));
                }
                each.push((folder, inputs));
            }
        }
        Ok(each)
    }

    /// Opens a table, unless it is the one opened last.
    fn table(&self, path: &Path) -> Result<Arc<ParquetTable>, Error> {
        let last = self.last_opened().clone().filter(|table| table.path() == path);
        last.map_or_else(|| self.reopen(path), Ok)
    }

    fn reopen(&self, path: &Path) -> Result<Arc<ParquetTable>, Error> {
        let mut table = ParquetTable::open(path)?;
        if let Some(units) = table.time_units_mut() {
            let mut known = self.time_units.lock().unwrap_or_else(PoisonError::into_inner);
            *units = known.entry(path.to_owned()).or_insert_with(|| units.clone()).clone();
        }
        let table = Arc::new(table);
        *self.last_opened() = Some(Arc::clone(&table));
        Ok(table)
    }

    fn last_opened(&self) -> MutexGuard<'_, Option<Arc<ParquetTable>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how the tables in the folder of an input differ from those that were written.
    fn note_differences(&self, input: &Path, context: &ReadContext) {
        let differences = self.differences.get_or_init(|| {
            let folders = self.path.0.iter().flat_map(|name| files::folders(name).ok());
            let notes = |folder: PathBuf| {
                let notes = differences(&folder).unwrap_or_default();
                notes.into_iter().map(move |note| (folder.clone(), note))
            };
            folders.flatten().flat_map(notes).collect()
        });
        for (_, note) in differences.iter().filter(|(folder, _)| input.starts_with(folder)) {
            context.losses.note(note, 0);
        }
    }

    /// The splits of tables that are read by themselves: one per row group, and one for a whole
    /// table that is damaged. `Err` if none of them can be read.
    fn splits_of(&self, tables: &[PathBuf], query: &Query) -> Result<Vec<Split>, Error> {
        let (mut splits, mut is_any_sound, mut first_error) = (Vec::new(), false, None);
        for path in tables {
            match self.reopen(path) {
                Ok(table) => {
                    is_any_sound = true;
                    let groups = table.matching_groups(query, None, |_| true).into_iter();
                    splits.extend(groups.map(|group| Split {
                        input: path.clone(),
                        start: group.start,
                        end: Some(group.end),
                        bytes: Some(group.plain_bytes),
                        live: false,
                    }));
                }
                Err(error) if whole_damage(path, &error).is_none() => return Err(error),
                Err(error) => {
                    splits.push(Split::whole(path, Some(0)));
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.filter(|_| !is_any_sound).map_or(Ok(splits), Err)
    }

    fn table_inputs(&self) -> Result<Vec<TableInput>, Error> {
        let mut pieces = Vec::new();
        for (name, inputs) in self.files_by_name()? {
            let tables = paths_of(inputs);
            pieces.push(match open_channel_tables(&tables)? {
                Some(tables) => TableInput::Merged { name, tables },
                None => TableInput::Separate(tables),
            });
        }
        Ok(pieces)
    }
}

fn paths_of(inputs: Vec<Input>) -> Vec<PathBuf> {
    inputs.into_iter().map(|input| input.path).collect()
}

/// Opens several tables if each holds one channel. `Err` if none of them can be read.
fn open_channel_tables(paths: &[PathBuf]) -> Result<Option<ChannelTables>, Error> {
    if paths.len() < 2 {
        return Ok(None);
    }
    let (mut opened, mut damage, mut first_error) = (Vec::new(), Vec::new(), None);
    for path in paths {
        match ParquetTable::open(path) {
            Ok(table) if table.has_channels() => return Ok(None),
            Ok(table) => opened.push(table),
            Err(error) => {
                let Some(whole) = whole_damage(path, &error) else { return Err(error) };
                damage.push(whole);
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) if opened.is_empty() => Err(error),
        _ => Ok(Some(ChannelTables { opened, damage })),
    }
}

/// The damage of a table that cannot be opened, if it is what its file contains that is wrong.
fn whole_damage(path: &Path, error: &Error) -> Option<Damage> {
    let ErrorKind::Malformed { at: end, what, .. } = error.kind() else { return None };
    let reason = format!("{what}; restore the table, or remove it");
    Some(Damage::new(&escaped_path(path).into(), 0, *end, reason))
}

impl Source for Parquet {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(self.files_by_name()?.into_iter().flat_map(|(_, inputs)| inputs).collect())
    }

    /// A folder of tables by channel is one log.
    fn logs(&self) -> Result<Vec<Input>, Error> {
        let mut logs = Vec::new();
        for (name, inputs) in self.files_by_name()? {
            // Reading reports those that cannot be opened.
            let is_whole_log = |input: &Input| {
                ParquetTable::open(&input.path).ok().map(|table| table.has_channels())
            };
            let by_channel =
                files::is_folder(&name) && inputs.iter().find_map(is_whole_log) != Some(true);
            if by_channel {
                let bytes = inputs.iter().map(|input| input.bytes).sum();
                logs.push(Input { path: name, bytes });
            } else {
                logs.extend(inputs);
            }
        }
        Ok(logs)
    }

    fn splits(&self, _target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        let mut splits = Vec::new();
        for piece in self.table_inputs()? {
            match piece {
                TableInput::Merged { name, tables } => {
                    let bytes = tables.opened.iter().map(ParquetTable::bytes);
                    let bytes = bytes.fold(0, u64::saturating_add);
                    splits.push(Split::whole(name, Some(bytes)));
                }
                TableInput::Separate(tables) => {
                    splits.append(&mut self.splits_of(&tables, query)?);
                }
            }
        }
        Ok(splits)
    }

    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        Ok(Some(ParquetTable::open(input)?.rows()))
    }

    /// What is wrong with the footer of a table without rows: the first split of another reports it
    /// as damage. Of a table with rows, what is wrong with its statistics.
    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        match ParquetTable::open(input) {
            Ok(table) if table.rows() == 0 => Ok(table.faults),
            Ok(table) => table.statistics_faults(),
            // Reading reports it.
            Err(error) if whole_damage(input, &error).is_some() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        // A split of a table that is read by itself ends where its row group does.
        if split.end.is_some() {
            let table = self.table(&split.input)?;
            // A damaged footer may have row groups inside of others.
            let is_it =
                |group: &GroupSpan| group.start == split.start && Some(group.end) == split.end;
            if table.first_start(&context.query) == Some(split.start) {
                self.note_differences(&split.input, context);
                if table.has_footer_faults() {
                    table.report_footer(context);
                }
            }
            let source = Some(&*context.source);
            let mut groups = table.matching_groups(&context.query, source, is_it);
            groups.reverse();
            let context = context.clone();
            return Ok(Box::new(TableReader { table, groups, reader: None, context }));
        }
        let input = &split.input;
        let changed = || {
            let input = input.display();
            Err(Error::refused(format!("the tables changed while they were being read: {input}")))
        };
        // Only this input is looked at, as there may be many splits.
        let is_folder = files::is_folder(input);
        if !is_folder && !self.path.0.contains(input) {
            // One of several tables that are read by themselves, and damaged as a whole.
            let Err(error) = ParquetTable::open(input) else { return changed() };
            let Some(whole) = whole_damage(input, &error) else { return Err(error) };
            context.damage.report(whole);
            return Ok(Box::new(std::iter::empty()));
        }
        let inputs = match is_folder {
            true => tables_below(input)?,
            false => files::expand(std::slice::from_ref(input))?,
        };
        let Some(tables) = open_channel_tables(&paths_of(inputs))? else { return changed() };
        self.note_differences(input, context);
        let ChannelTables { opened, damage } = tables;
        damage.into_iter().for_each(|whole| context.damage.report(whole));
        opened.iter().for_each(|table| table.report_footer(context));
        let tables = opened.into_iter().map(Arc::new).collect();
        let merge = TableMerge::new(tables, &context.query, context)?;
        Ok(Box::new(MergeReader { merge, context: context.clone() }))
    }
}

/// Reads row groups of one table.
struct TableReader {
    table: Arc<ParquetTable>,
    /// The next one last.
    groups: Vec<GroupSpan>,
    reader: Option<GroupReader>,
    context: ReadContext,
}

impl Reader for TableReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        loop {
            let batch = self.reader.as_mut().map(GroupReader::next_batch).transpose()?.flatten();
            if batch.is_some() {
                return Ok(batch);
            }
            let Some(group) = self.groups.pop() else { return Ok(None) };
            let query = self.context.query.clone();
            self.reader =
                Some(self.table.read_group(group, TARGET_BYTES, &query, &self.context)?);
        }
    }
}
