//! Which output of which run a table belongs to, and which of the numbered events it has.

use std::path::Path;

use sluice_kit::event_table::SEQUENCE;

use super::ParquetTable;
use crate::meta::TableOrigin;

impl ParquetTable {
    /// The run that wrote the table.
    pub(crate) fn origin(&self) -> TableOrigin<'_> {
        TableOrigin::from_entries(self.input.metadata().file_metadata().key_value_metadata())
    }

    /// The path of the sink that wrote the table: the folder with a folder for each channel, or the
    /// table itself.
    pub(crate) fn output(&self) -> &Path {
        let path = self.path();
        let mut folders = path.ancestors().skip(1).skip_while(|path| is_called(path, "schema="));
        let channel = folders.next().filter(|path| is_called(path, "channel="));
        channel.and_then(Path::parent).unwrap_or(path)
    }

    /// The least and the greatest sequence number of its rows; `None` if it has no rows. Any number
    /// may be there if there are no statistics.
    pub(crate) fn numbers(&self) -> Option<(i64, i64)> {
        let groups = self.groups().iter().filter(|group| group.num_rows() > 0);
        let numbers = groups.map(|group| {
            let extremes = self.extremes(group, SEQUENCE);
            extremes.filter(|_| self.input.footer_fault().is_none()).unwrap_or((i64::MIN, i64::MAX))
        });
        numbers.reduce(|(least, most), (first, last)| (least.min(first), most.max(last)))
    }
}

fn is_called(folder: &Path, prefix: &str) -> bool {
    folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
}
