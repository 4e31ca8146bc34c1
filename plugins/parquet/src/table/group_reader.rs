//! Reads the rows of a row group as batches of events.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryViewArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema, TimeUnit};
use sluice_io::escape::escaped_path;
use sluice_kit::event_table::{
    CHANNEL, PAYLOAD, SEQUENCE, SOURCE, TIMESTAMP, TIMESTAMP_NS, VARIANT,
};
use sluice_model::cast::cast;
use sluice_model::{Batch, Damage, Error, MessageType, Payloads, ReadContext, Rows, TypeKey};

use super::channel_resolver::{ChannelColumns, ChannelResolver};
use super::{MAX_SORTED_GROUP, ParquetTable, is_same_time, nanos_of};
use crate::input::{EVENT, GroupRows, GroupSpan, int96_times, retyped, word_dictionary};

/// The maximum rows per batch.
const MAX_ROWS: usize = 8 << 10;

/// The approximate bytes per batch.
pub(crate) const TARGET_BYTES: usize = 2 << 20;

/// Reads a row group.
pub(crate) struct GroupReader {
    pub(super) table: Arc<ParquetTable>,
    pub(super) span: GroupSpan,
    /// The rows still to be decoded.
    pub(super) rows: Option<GroupRows>,
    /// Decoded batches, the next one last.
    pub(super) ready: Vec<Batch>,
    pub(super) context: ReadContext,
    pub(super) resolver: ChannelResolver,
    /// The number of the next row, for tables without a sequence column.
    pub(super) sequence: i64,
}

impl GroupReader {
    /// The next events; `None` at the end of the group.
    pub(crate) fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        match self.ready.pop() {
            Some(batch) => Ok(Some(batch)),
            None => self.decode(),
        }
    }

    pub(super) fn decode(&mut self) -> Result<Option<Batch>, Error> {
        loop {
            let Some(rows) = &mut self.rows else { return Ok(None) };
            let decoded = match rows.next_slice()? {
                Ok(None) => return Ok(None),
                Ok(Some(rows)) => self.batch(&rows)?,
                Err(reason) => Err(reason),
            };
            match decoded {
                Ok(batch) if batch.is_empty() => {}
                Ok(batch) => return Ok(Some(batch)),
                Err(reason) => {
                    self.fail(&reason);
                    return Ok(None);
                }
            }
        }
    }

    /// Reports that the rest of the row group cannot be read.
    pub(super) fn fail(&mut self, reason: &str) {
        self.rows = None;
        self.report(self.span.end - self.span.start, reason);
    }

    /// Reports damage in the row group: this many bytes of it are lost.
    fn report(&self, bytes: u64, reason: &str) {
        let GroupSpan { number, start, .. } = self.span;
        let input: Arc<str> = escaped_path(self.table.path()).into();
        let reason = format!("row group {number}: {reason}");
        self.context.damage.report(Damage::new(&input, start, bytes, reason));
    }

    /// Decodes all rows and sorts them by sequence number.
    pub(super) fn sort_by_sequence(&mut self) -> Result<(), Error> {
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while let Some(batch) = self.decode()? {
            bytes += batch.len() * EVENT;
            bytes += batch.rows().iter().map(Rows::memory).sum::<usize>();
            if bytes > MAX_SORTED_GROUP {
                self.fail("the row group is too long to sort its rows");
                break;
            }
            batches.push(batch);
        }
        let mut picks: Vec<(i64, (u32, u32))> = Vec::new();
        for (n, batch) in batches.iter().enumerate() {
            let rows = batch.sequences().iter().enumerate();
            picks.extend(rows.map(|(row, number)| (*number, (n as u32, row as u32))));
        }
        // Rows come as one sorted run per channel, which a stable sort exploits.
        picks.sort_by_key(|(number, _)| *number);
        let picks: Vec<(u32, u32)> = picks.into_iter().map(|(_, pick)| pick).collect();
        let mut start = 0;
        while start < picks.len() {
            let (mut end, mut bytes) = (start, 0);
            while end < picks.len() && end - start < MAX_ROWS && bytes < TARGET_BYTES {
                let (n, row) = picks[end];
                bytes += batches[n as usize].payload_len(row as usize);
                end += 1;
            }
            self.ready.push(Batch::interleave(&batches, &picks[start..end]));
            start = end;
        }
        self.ready.reverse();
        Ok(())
    }

    /// Converts rows to events. The inner `Err` is the reason that is not possible.
    pub(super) fn batch(&mut self, rows: &RecordBatch) -> Result<Result<Batch, String>, Error> {
        let (mut faults, first_row) = (BTreeMap::new(), self.sequence);
        let read = self.columns(rows, &mut faults);
        let EventColumns { timestamps, sequences, channels: named, payloads } = match read {
            Ok(columns) => columns,
            Err(reason) => return Ok(Err(reason)),
        };
        let channels =
            self.resolver.resolve(rows.num_rows(), &named, &self.table, &self.context)?;
        let batch = Batch::from_columns(timestamps.into(), sequences.into(), channels, &payloads);
        let message = match self.message(rows) {
            Ok(message) => message,
            Err(reason) => return Ok(Err(reason)),
        };
        let batch = batch.with_rows(message.into_iter().collect());
        let Some((row, reason)) = faults.first_key_value() else { return Ok(Ok(batch)) };
        let first = format!("row {}: {reason}", first_row.saturating_add(*row as i64));
        let reason = match faults.len() {
            1 => first,
            count => format!("{count} rows are no events; {first}"),
        };
        // Other rows of the row group are whole.
        self.report(0, &reason);
        Ok(Ok(batch.retain(|row| !faults.contains_key(&row))))
    }

    /// The columns that each event has. Adds the rows that lack one of them to `faults`, with the
    /// reason.
    pub(super) fn columns(
        &mut self,
        rows: &RecordBatch,
        faults: &mut BTreeMap<usize, String>,
    ) -> Result<EventColumns, String> {
        let len = rows.num_rows();
        let mut column = |name: &str, data_type: &DataType| -> Result<Option<ArrayRef>, String> {
            let Some(column) = rows.column_by_name(name) else { return Ok(None) };
            let wrong = |e| format!("column `{name}`: {e}");
            let stored = column.data_type();
            if *data_type == DataType::Int64 && (stored.is_floating() || stored.is_decimal()) {
                let numbers = cast(column, &DataType::Float64).map_err(wrong)?;
                let numbers = numbers.as_primitive::<Float64Type>().iter().enumerate();
                for (row, _) in numbers.filter(|(_, n)| n.is_some_and(|n| n.fract() != 0.0)) {
                    faults.entry(row).or_insert_with(|| format!("its `{name}` has a fraction"));
                }
            }
            let there = match stored {
                DataType::FixedSizeBinary(_) if name == TIMESTAMP => {
                    Arc::new(int96_times(column, TimeUnit::Nanosecond))
                }
                _ => cast(column, data_type).map_err(wrong)?,
            };
            // A value that does not fit has become null.
            for row in nulls(&there) {
                let is_missing = column.logical_nulls().is_some_and(|nulls| nulls.is_null(row));
                let what = match stored {
                    _ if is_missing => "is missing",
                    stored if stored.is_string() => "is not a number",
                    _ => "is out of range",
                };
                faults.entry(row).or_insert_with(|| format!("its `{name}` {what}"));
            }
            Ok(Some(there))
        };
        let has_nanos = self.table.has_nanos;
        let nanos =
            has_nanos.then(|| column(TIMESTAMP_NS, &DataType::Int64)).transpose()?.flatten();
        let times = if nanos.is_none() { column(TIMESTAMP, &DataType::Int64)? } else { None };
        let sequences = match column(SEQUENCE, &DataType::Int64)? {
            Some(sequences) => sequences.as_primitive::<Int64Type>().values().to_vec(),
            None => (0..len as i64).map(|row| self.sequence.saturating_add(row)).collect(),
        };
        self.sequence = self.sequence.saturating_add(len as i64);
        let payloads = match column(PAYLOAD, &DataType::BinaryView)? {
            Some(payloads) => payloads.as_binary_view().clone(),
            None => BinaryViewArray::from_iter_values(std::iter::repeat_n(b"", len)),
        };
        let (sources, names) =
            (column(SOURCE, &word_dictionary())?, column(CHANNEL, &word_dictionary())?);
        let variants = column(VARIANT, &DataType::Int32)?;
        let variants = variants.map(|column| column.as_primitive::<Int32Type>().values().to_vec());
        let timestamps = match (nanos, times) {
            (Some(nanos), _) => {
                let nanos = nanos.as_primitive::<Int64Type>().values().to_vec();
                if let Some(times) = rows.column_by_name(TIMESTAMP) {
                    compare_times(&nanos, times, faults)
                        .map_err(|e| format!("column `{TIMESTAMP}`: {e}"))?;
                }
                nanos
            }
            (None, Some(times)) => {
                let stored = rows.column_by_name(TIMESTAMP).map(|column| column.data_type());
                in_nanos(&times, stored, faults)
            }
            (None, None) => return Err("a row group without times".to_owned()),
        };
        Ok(EventColumns {
            timestamps,
            sequences,
            channels: ChannelColumns { sources, names, variants },
            payloads,
        })
    }

    /// The columns that are fields of a message.
    pub(super) fn message(&self, rows: &RecordBatch) -> Result<Option<Rows>, String> {
        let schema = rows.schema();
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (place, field) in &self.table.fields {
            let column = self.table.input.as_stored(*place, rows.column(*place))?;
            fields.push(retyped(field, &column));
            columns.push(column);
        }
        let declared = self.table.meta.message.clone();
        let has_payload = schema.column_with_name(PAYLOAD).is_some();
        if fields.is_empty() && declared.is_none() && has_payload {
            return Ok(None);
        }
        // For a table of another program, only the column names identify the type.
        let message = declared.unwrap_or_else(|| {
            MessageType::named(self.table.channel.text(), key_of(&fields)).into()
        });
        let payloads = if has_payload { Payloads::Kept } else { Payloads::Gone };
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        let columns = RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(|e| e.to_string())?;
        let events = (0..rows.num_rows() as u32).collect();
        Ok(Some(Rows { message, payloads, events, columns }))
    }
}

/// The rows without a value.
fn nulls(column: &ArrayRef) -> Vec<usize> {
    let nulls = column.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    nulls.map_or(Vec::new(), |nulls| (0..nulls.len()).filter(|row| nulls.is_null(*row)).collect())
}

/// Times of this type in nanoseconds. Adds the rows whose times are out of range to `faults`.
fn in_nanos(
    times: &ArrayRef,
    stored: Option<&DataType>,
    faults: &mut BTreeMap<usize, String>,
) -> Vec<i64> {
    let nanos = match stored {
        Some(DataType::Timestamp(unit, _)) => nanos_of(*unit),
        _ => 1,
    };
    let times = times.as_primitive::<Int64Type>().values().iter().enumerate();
    let each = times.map(|(row, time)| {
        time.checked_mul(nanos).unwrap_or_else(|| {
            faults.entry(row).or_insert_with(|| format!("its time {time} is out of range"));
            0
        })
    });
    each.collect()
}

/// Adds the rows whose nanoseconds are of another time than their `timestamp` to `faults`: whoever
/// changed one of the two has forgotten the other.
fn compare_times(
    nanos: &[i64],
    times: &ArrayRef,
    faults: &mut BTreeMap<usize, String>,
) -> Result<(), ArrowError> {
    let unit = match times.data_type() {
        DataType::Timestamp(unit, _) => *unit,
        _ => return Ok(()),
    };
    let times = cast(times, &DataType::Int64)?;
    let each = nanos.iter().zip(times.as_primitive::<Int64Type>()).enumerate();
    for (row, (nanos, time)) in each {
        let time = time.map(|time| time.saturating_mul(nanos_of(unit)));
        if time.is_some_and(|time| !is_same_time(time, *nanos, unit)) {
            let fault = || {
                format!(
                    "its `{TIMESTAMP}` and its `{TIMESTAMP_NS}` are not the same time: correct or \
                     drop the column `{TIMESTAMP_NS}`"
                )
            };
            faults.entry(row).or_insert_with(fault);
        }
    }
    Ok(())
}

pub(super) struct EventColumns {
    pub(super) timestamps: Vec<i64>,
    pub(super) sequences: Vec<i64>,
    pub(super) channels: ChannelColumns,
    pub(super) payloads: BinaryViewArray,
}

/// A key for a type without one: the same for the same fields.
pub(super) fn key_of(fields: &[Arc<Field>]) -> TypeKey {
    let mut hasher = crc32fast::Hasher::new();
    fields.hash(&mut hasher);
    TypeKey(hasher.finish())
}
