//! Compares what a table's statistics say of times with its rows: time windows skip row groups by
//! them. For who verifies tables, as it reads the times of all rows.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;
use sluice_kit::event_table::TIMESTAMP;
use sluice_model::Error;
use sluice_model::cast::cast;

use super::{ParquetTable, TARGET_BYTES};
use crate::input::GroupSpan;

impl ParquetTable {
    /// The row groups with times that their statistics exclude, one sentence each. Tables whose
    /// footer has a checksum have none.
    pub(crate) fn statistics_faults(&self) -> Result<Vec<String>, Error> {
        let mut faults = Vec::new();
        if !self.meta.groups.crc32.is_empty() {
            return Ok(faults);
        }
        for span in self.input.spans() {
            let bounds = self.groups().get(span.number).and_then(|group| self.stored_times(group));
            let Some((least, most)) = bounds else { continue };
            let excluded = self.times_outside(*span, least, most)?;
            if excluded > 0 {
                faults.push(format!(
                    "row group {}: the statistics of `{TIMESTAMP}` exclude {excluded} of its \
                     rows: time windows leave them out",
                    span.number
                ));
            }
        }
        Ok(faults)
    }

    /// How many rows of a group have times outside of these bounds, as stored. Reading the events
    /// reports what cannot be read.
    fn times_outside(&self, span: GroupSpan, least: i64, most: i64) -> Result<usize, Error> {
        let bytes = self.input.prefetch(span)?;
        let Ok(mut rows) = self.input.read(bytes, span, Some(&[TIMESTAMP]), None, TARGET_BYTES)?
        else {
            return Ok(0);
        };
        let mut outside = 0;
        while let Ok(Some(slice)) = rows.next_slice()? {
            let times = slice.column_by_name(TIMESTAMP).map(|times| cast(times, &DataType::Int64));
            let Some(Ok(times)) = times else { return Ok(0) };
            let times = times.as_primitive::<Int64Type>().iter().flatten();
            outside += times.filter(|time| *time < least || *time > most).count();
        }
        Ok(outside)
    }
}
