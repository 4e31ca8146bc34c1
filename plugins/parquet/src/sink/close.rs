//! Completes tables: footers, and the folders that tables are in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sluice_core::name::{portable, short_path_escaped};
use sluice_core::{Error, OrderedTasks};

use super::ParquetSink;
use super::tables::{Key, Numbers, Tables};
use crate::meta::{GroupsMeta, Meta};

impl ParquetSink {
    /// Where a table is, in the folder or as the file that was asked for. `all` keys are sorted; the folders of
    /// some channels are called otherwise.
    fn place(&self, key: &Key, all: &[Key], otherwise: &BTreeMap<String, String>) -> PathBuf {
        const PART: &str = "part-00000.parquet";
        let Some((channel, kind, variant)) = key else { return self.folder().join(PART) };
        let folder = escaped(channel);
        let folder = otherwise.get(&folder).unwrap_or(&folder);
        let mut path = self.folder().join(format!("channel={folder}"));
        let name_of = |key: &Key| key.as_ref().map(|(name, ..)| Arc::clone(name));
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

    /// Completes the tables of `keys`; `all` are those of the whole output, sorted.
    pub(super) fn close(
        &self,
        tables: &mut Tables,
        keys: &[Key],
        all: &[Key],
    ) -> Result<(), Error> {
        let by_sequence = tables.numbers != Numbers::Fall;
        // Channels `a` and `A` must not get one folder where case is ignored.
        let channels = all.iter().flatten().map(|(channel, ..)| escaped(channel));
        let otherwise = portable(channels, ("channel=", ""));
        let Tables { tables, places, context, variants, .. } = tables;
        // Footers are written and files synced beside each other; they are completed in order.
        let mut closing = OrderedTasks::new(&context.tasks, 4 * context.tasks.width());
        let variants = variants.table();
        for place in keys.iter().filter_map(|key| places.get(key)) {
            let table = &mut tables[*place];
            let Some(file) = table.file.take() else { continue };
            let (channels, rows) = table.channels(context, &variants);
            let (key, form) = (&table.key, table.form.take());
            let meta = Meta {
                channels,
                groups: GroupsMeta { rows, ..file.said.clone() },
                by_sequence,
                message: form.as_ref().and_then(|form| form.message.clone()),
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

/// A channel's name as readers of folders with values in their names expect it. What is too long for a
/// folder is shortened: the table's footer has the whole name.
fn escaped(name: &str) -> String {
    const EMPTY: &str = "__HIVE_DEFAULT_PARTITION__";
    match name {
        "" => EMPTY.to_owned(),
        EMPTY => EMPTY.replacen('_', "%5F", 1),
        name => short_path_escaped(name),
    }
}
