//! Completes tables: footers and folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_io::escape::{portable, short_path_escaped};
use sluice_model::{Error, Job};

use super::tables::{OpenTables, SequenceOrder, TableBuffer, TableKey, TableUnit};
use super::{ParquetSink, TableLayout};
use crate::meta::{FooterMeta, GroupsMeta};

impl ParquetSink {
    /// The path of a table. `all` keys are sorted; `otherwise` has other folder names for some
    /// channels.
    fn place(
        &self,
        key: &TableKey,
        all: &[TableKey],
        otherwise: &BTreeMap<String, String>,
    ) -> PathBuf {
        const PART: &str = "part-00000.parquet";
        let Some((channel, kind, variant)) = key else { return self.folder().join(PART) };
        let folder = escaped(channel);
        let folder = otherwise.get(&folder).unwrap_or(&folder);
        let mut path = self.folder().join(format!("channel={folder}"));
        let name_of = |key: &TableKey| key.as_ref().map(|(name, ..)| Arc::clone(name));
        let first = all.partition_point(|other| name_of(other).as_ref() < Some(channel));
        let end = all.partition_point(|other| name_of(other).as_ref() <= Some(channel));
        let of_channel = all.get(first..end).unwrap_or_default();
        if of_channel.len() > 1 {
            let name = kind.map_or_else(|| "raw".to_owned(), |kind| kind.to_string());
            let of_kind = of_channel.iter().flatten().filter(|(_, of, _)| of == kind);
            let before = of_kind.filter(|(.., at)| at < variant).count();
            let number = if before == 0 { String::new() } else { format!("-{before}") };
            path.push(format!("schema={name}{number}"));
        }
        path.join(PART)
    }

    /// The last unit of each table, by their keys: completed in this order, each is open only as
    /// long as it is written.
    pub(super) fn last_units(&self, tables: &mut OpenTables) -> Result<Vec<Job<TableUnit>>, Error> {
        // Without any events, the table is still written.
        if self.layout() == TableLayout::Single && tables.tables.is_empty() {
            tables.tables.push(TableBuffer::new(None));
            tables.places.insert(None, 0);
        }
        let places: Vec<(TableKey, usize)> =
            tables.places.iter().map(|(key, place)| (key.clone(), *place)).collect();
        let keys: Vec<TableKey> = tables.places.keys().cloned().collect();
        // Channels `a` and `A` need different folders on case-insensitive file systems.
        let channels = keys.iter().flatten().map(|(channel, ..)| escaped(channel));
        let otherwise = portable(channels, ("channel=", ""));
        let mut units = Vec::new();
        for (key, place) in places {
            let target = self.writes_folder().then(|| self.place(&key, &keys, &otherwise));
            units.extend(self.cut_group(tables, place, Some(target))?);
        }
        Ok(units)
    }

    /// Completes a table: writes the footer.
    pub(super) fn close(
        &self,
        tables: &mut OpenTables,
        place: usize,
        target: Option<&Path>,
    ) -> Result<(), Error> {
        let OpenTables { tables, context, variants, sequence_order, projection, .. } = tables;
        let table = &mut tables[place];
        if table.schema.is_none() {
            table.schema = Some(self.table_schema(&table.key, &[], projection, context)?);
        }
        let file = match table.file.take() {
            Some(file) => file,
            None => self.create(table, context)?,
        };
        let (channels, rows) = table.channels(context, &variants.table());
        let schema = table.schema.take();
        let meta = FooterMeta {
            channels,
            groups: GroupsMeta { rows, ..file.groups_meta.clone() },
            by_sequence: *sequence_order != SequenceOrder::Unordered,
            message: schema.and_then(|schema| schema.message),
        };
        file.close(meta.to_entries(&context.origin)?, target)
    }
}

/// A channel's name as Hive partition readers expect it. A name that is too long for a folder is
/// shortened: the footer has it in full.
fn escaped(name: &str) -> String {
    const EMPTY: &str = "__HIVE_DEFAULT_PARTITION__";
    match name {
        "" => EMPTY.to_owned(),
        EMPTY => EMPTY.replacen('_', "%5F", 1),
        name => short_path_escaped(name),
    }
}
