//! Completes tables: footers and folders.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sluice_io::OrderedTasks;
use sluice_io::escape::{portable, short_path_escaped};
use sluice_model::Error;

use super::ParquetSink;
use super::tables::{OpenTables, SequenceOrder, TableKey};
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

    /// Completes the tables of `keys`. `all` is every key of the output, sorted.
    pub(super) fn close(
        &self,
        tables: &mut OpenTables,
        keys: &[TableKey],
        all: &[TableKey],
    ) -> Result<(), Error> {
        let by_sequence = tables.sequence_order != SequenceOrder::Unordered;
        // Channels `a` and `A` need different folders on case-insensitive file systems.
        let channels = all.iter().flatten().map(|(channel, ..)| escaped(channel));
        let otherwise = portable(channels, ("channel=", ""));
        let OpenTables { tables, places, context, variants, .. } = tables;
        // Footers are written and synced concurrently; tables are completed in order.
        let mut closing = OrderedTasks::new(&context.tasks, 4 * context.tasks.width());
        let variants = variants.table();
        for place in keys.iter().filter_map(|key| places.get(key)) {
            let table = &mut tables[*place];
            let Some(file) = table.file.take() else { continue };
            let (channels, rows) = table.channels(context, &variants);
            let (key, schema) = (&table.key, table.schema.take());
            let meta = FooterMeta {
                channels,
                groups: GroupsMeta { rows, ..file.groups_meta.clone() },
                by_sequence,
                message: schema.as_ref().and_then(|schema| schema.message.clone()),
            };
            let entries = meta.to_entries(&context.origin)?;
            let target = self.writes_folder().then(|| self.place(key, all, &otherwise));
            let close = move || Ok((file.close(entries)?, target));
            if let Some((table, target)) = closing.push(close)? {
                table.finish(target.as_deref())?;
            }
        }
        while let Some((table, target)) = closing.take_oldest()? {
            table.finish(target.as_deref())?;
        }
        Ok(())
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
