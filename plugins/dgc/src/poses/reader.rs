//! Reading what is known off a channel, whether its events are decoded or not. Remembers nothing.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef};
use sluice_core::{
    Batch, Channel, ChannelId, Error, OptionsError, Pattern, PerChannel, Rows, StageContext,
};

use super::Timed;
use crate::messages::Messages;
use crate::points::{UTIME, Utimes};

/// Something that events of one channel say.
pub(crate) trait Known: Timed + Clone + Send + 'static {
    /// Which fields its rows have.
    const NEEDS: &str;
    /// What is wrong with a row that has the fields and yet says nothing.
    const WRONG: &str;

    /// What each row says; nothing for a row that says nothing, and nothing at all if these rows do not
    /// have the fields. `timestamps` are those of the batch, for rows without a time.
    fn of(rows: &Rows, timestamps: &[i64]) -> Option<Vec<Option<Self>>>;
}

/// Reads what the events of a channel say.
pub(crate) struct Reader {
    channel: Pattern,
    is_it: PerChannel<bool>,
    messages: Messages,
}

impl Reader {
    /// A reader of the channels that match.
    pub(crate) fn new(channel: Pattern) -> Result<Self, OptionsError> {
        Ok(Self { channel, is_it: PerChannel::default(), messages: Messages::of_dataset()? })
    }

    /// The channels it reads.
    pub(crate) fn channel(&self) -> &Pattern {
        &self.channel
    }

    /// What the batch's events on the channel say, with their positions, in order. Notes those that say
    /// nothing.
    pub(crate) fn read<K: Known>(
        &self,
        batch: &Batch,
        context: &mut StageContext<'_>,
    ) -> Result<Vec<(u32, K)>, Error> {
        let is_it = |channel: &Channel| Ok(self.channel.matches(channel.name.text()));
        let is_it = self.is_it.table(context.channels, is_it)?;
        let events = (0u32..).zip(batch.channels());
        let events: Vec<u32> =
            events.filter(|(_, on)| is_it[**on as usize]).map(|(event, _)| event).collect();
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.messages.rows(batch, &events, context.channels)?;
        let mut bad = Bad::default();
        found.bad.iter().for_each(|(event, why)| bad.add(batch, *event, || (*why).to_owned()));
        let mut known = Vec::with_capacity(events.len());
        for rows in &found.rows {
            let said = K::of(rows, batch.timestamps());
            let has_fields = said.is_some();
            let said = said.unwrap_or_else(|| vec![None; rows.events.len()]);
            for (event, said) in rows.events.iter().zip(said) {
                match said {
                    Some(said) => known.push((*event, said)),
                    None if has_fields => bad.add(batch, *event, || K::WRONG.to_owned()),
                    None => bad.add(batch, *event, || format!("decoded without {}", K::NEEDS)),
                }
            }
        }
        known.sort_by_key(|(event, _)| *event);
        bad.tell(context);
        Ok(known)
    }
}

/// Events that say nothing, by channel and reason.
#[derive(Default)]
struct Bad(BTreeMap<(u32, String), u64>);

impl Bad {
    fn add(&mut self, batch: &Batch, event: u32, why: impl FnOnce() -> String) {
        *self.0.entry((batch.channels()[event as usize], why())).or_default() += 1;
    }

    fn tell(self, context: &mut StageContext<'_>) {
        for ((channel, why), count) in self.0 {
            let channel = context.channels.get(ChannelId(channel));
            context.note(format!("{}: {why}", channel.name.text()), count);
        }
    }
}

/// When each row is of: what its message says, or else its event's timestamp.
pub(crate) fn times<'r>(
    rows: &'r Rows,
    timestamps: &'r [i64],
) -> impl Iterator<Item = i64> + use<'r> {
    let utimes = Utimes::of(rows.columns.column_by_name(UTIME));
    let events = rows.events.iter().enumerate();
    events.map(move |(row, event)| utimes.nanos(row, timestamps[*event as usize]))
}

/// A column of lists of `N` doubles, fixed or not; nothing if there is none. A row without so many says
/// nothing.
pub(crate) fn doubles<const N: usize>(rows: &Rows, name: &str) -> Option<Vec<Option<[f64; N]>>> {
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

/// The numbers, if all of them are finite.
pub(crate) fn finite<const N: usize>(numbers: [f64; N]) -> Option<[f64; N]> {
    numbers.iter().all(|number| number.is_finite()).then_some(numbers)
}
