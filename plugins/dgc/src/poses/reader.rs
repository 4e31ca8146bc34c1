//! Reads values from the events of a channel, decoded or not. Stateless.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef};
use sluice_model::{
    Batch, Channel, ChannelId, Error, OptionsError, Pattern, PerChannel, Registry, Rows,
    StageContext,
};

use super::Timestamped;
use crate::dataset_decoder::DatasetDecoder;
use crate::points::{MessageTimes, UTIME};

/// A value that can be read from the rows of a channel.
pub(crate) trait ReadFromRows: Timestamped + Clone + Send + 'static {
    /// The required fields, for notes.
    const REQUIRED_FIELDS: &str;
    /// Describes rows with the required fields but without a valid value, for notes.
    const INVALID: &str;

    /// The value of each row, `None` for invalid ones. Returns `None` if the rows lack the required
    /// fields. `timestamps` are those of the batch, for rows without their own time.
    fn read_rows(rows: &Rows, timestamps: &[i64]) -> Option<Vec<Option<Self>>>;
}

/// Reads values from channels.
pub(crate) struct ChannelReader {
    channel: Pattern,
    matches: PerChannel<bool>,
    decoder: DatasetDecoder,
}

impl ChannelReader {
    /// A reader of the matching channels.
    pub(crate) fn new(channel: Pattern, registry: &Registry) -> Result<Self, OptionsError> {
        Ok(Self {
            channel,
            matches: PerChannel::default(),
            decoder: DatasetDecoder::new(registry)?,
        })
    }

    /// The channels it reads.
    pub(crate) fn channel(&self) -> &Pattern {
        &self.channel
    }

    /// The values in the batch with their event numbers, in order. Notes invalid events.
    pub(crate) fn read<K: ReadFromRows>(
        &self,
        batch: &Batch,
        context: &mut StageContext<'_>,
    ) -> Result<Vec<(u32, K)>, Error> {
        let matches = |channel: &Channel| Ok(self.channel.matches(channel.name.text()));
        let matches = self.matches.table(context.channels, matches)?;
        let events = (0u32..).zip(batch.channels());
        let events: Vec<u32> =
            events.filter(|(_, on)| matches[**on as usize]).map(|(event, _)| event).collect();
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.decoder.decode_rows(batch, &events, context.channels)?;
        let mut invalid = InvalidEvents::default();
        found
            .failed
            .iter()
            .for_each(|(event, reason)| invalid.add(batch, *event, || (*reason).to_owned()));
        let mut results = Vec::with_capacity(events.len());
        for rows in &found.rows {
            let values = K::read_rows(rows, batch.timestamps());
            let has_fields = values.is_some();
            let values = values.unwrap_or_else(|| vec![None; rows.events.len()]);
            for (event, value) in rows.events.iter().zip(values) {
                match value {
                    Some(value) => results.push((*event, value)),
                    None if has_fields => invalid.add(batch, *event, || K::INVALID.to_owned()),
                    None => invalid.add(batch, *event, || {
                        format!("events decoded without {}", K::REQUIRED_FIELDS)
                    }),
                }
            }
        }
        results.sort_by_key(|(event, _)| *event);
        invalid.report(context);
        Ok(results)
    }
}

/// Invalid events, by channel and reason.
#[derive(Default)]
struct InvalidEvents(BTreeMap<(u32, String), u64>);

impl InvalidEvents {
    fn add(&mut self, batch: &Batch, event: u32, reason: impl FnOnce() -> String) {
        *self.0.entry((batch.channels()[event as usize], reason())).or_default() += 1;
    }

    fn report(self, context: &mut StageContext<'_>) {
        for ((channel, reason), count) in self.0 {
            let channel = context.channels.get(ChannelId(channel));
            context.note(format!("{}: {reason}", channel.name.text()), count);
        }
    }
}

/// The time of each row: its message's own time, or else that of its event.
pub(crate) fn row_times<'r>(
    rows: &'r Rows,
    timestamps: &'r [i64],
) -> impl Iterator<Item = i64> + use<'r> {
    let utimes = MessageTimes::from_column(rows.columns.column_by_name(UTIME));
    let events = rows.events.iter().enumerate();
    events.map(move |(row, event)| utimes.nanos(row, timestamps[*event as usize]))
}

/// A column of lists of `N` doubles, fixed-size or not. Returns `None` if there is none. Rows of
/// another length become `None`.
pub(crate) fn double_lists<const N: usize>(
    rows: &Rows,
    name: &str,
) -> Option<Vec<Option<[f64; N]>>> {
    let column = rows.columns.column_by_name(name)?;
    let one = |list: Option<ArrayRef>| {
        let list = list?;
        let values = list.as_primitive_opt::<Float64Type>()?;
        (values.null_count() == 0).then(|| values.values().as_ref().try_into().ok()).flatten()
    };
    if let Some(fixed) = column.as_fixed_size_list_opt() {
        let values = fixed.values().as_primitive_opt::<Float64Type>()?;
        if fixed.value_length() != N as i32 {
            return None;
        }
        if fixed.null_count() + values.null_count() > 0 {
            return Some(fixed.iter().map(one).collect());
        }
        return Some(values.values().as_chunks::<N>().0.iter().copied().map(Some).collect());
    }
    let lists = column.as_list_opt::<i32>()?;
    lists.values().as_primitive_opt::<Float64Type>()?;
    Some(lists.iter().map(one).collect())
}

/// The numbers, if all are finite.
pub(crate) fn finite<const N: usize>(numbers: [f64; N]) -> Option<[f64; N]> {
    numbers.iter().all(|number| number.is_finite()).then_some(numbers)
}
