//! The trait of stages with state.

use super::stage_context::{RowsEffect, StageContext};
use super::{ChannelQuery, Query};
use crate::time::TimeLength;
use crate::{Batch, Error, FieldPath, Pattern};

/// A stage with state: it sees all events in order, on one thread at a time.
///
/// The engine calls [`push`](Self::push) for every batch in the order of the events, then
/// [`finish`](Self::finish) once. After each of them it calls [`more`](Self::more) until that
/// returns nothing, so a fold never has to return everything at once. When sources are read again
/// from the start, a new fold is made from the same options.
///
/// How events are cut into batches must not matter. Events are conserved as for
/// [`Map`](super::Map): those held back are counted when they come out. `Err` ends the run.
///
/// A fold that looks only a bounded time back or ahead should say so in [`query`](Self::query), so
/// that sources can skip what is not needed.
///
/// ```
/// use sluice_model::{Batch, BatchBuilder, ChannelId, Channels, Error, Fold, StageContext};
///
/// /// Lets the first `left` events pass.
/// struct First {
///     left: usize,
/// }
///
/// impl Fold for First {
///     fn push(
///         &mut self,
///         batch: Batch,
///         context: &mut StageContext<'_>,
///     ) -> Result<Vec<Batch>, Error> {
///         let kept = batch.len().min(self.left);
///         self.left -= kept;
///         context.report.filtered += (batch.len() - kept) as u64;
///         Ok(vec![batch.slice(0, kept)])
///     }
///
///     fn delays_events(&self) -> bool {
///         false
///     }
///
///     fn is_done(&self) -> bool {
///         self.left == 0
///     }
/// }
///
/// let channels = Channels::default();
/// let mut context = StageContext::new(&channels, None);
/// let mut batch = BatchBuilder::default();
/// for n in 0..5 {
///     batch.push_copy(n, n, ChannelId(0), b"");
/// }
/// let mut first = First { left: 2 };
/// assert_eq!(first.push(batch.finish(), &mut context)?[0].len(), 2);
/// assert!(first.is_done() && context.report.filtered == 3);
/// # Ok::<(), Error>(())
/// ```
pub trait Fold: Send {
    /// Processes the next batch, and returns what is ready.
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error>;

    /// Returns the remaining events.
    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let _ = context;
        Ok(Vec::new())
    }

    /// Returns more of the results of `push` or `finish`. Called after each of them until it
    /// returns nothing.
    fn more(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let _ = context;
        Ok(Vec::new())
    }

    /// Which events it needs, so that queries can be pushed down through it. Sources may still
    /// return more.
    fn query(&self) -> FoldQuery {
        FoldQuery::default()
    }

    /// Whether it needs the time of the first event, which may have to be waited for.
    fn needs_origin(&self) -> bool {
        false
    }

    /// See [`Map::shift`](super::Map::shift).
    fn shift(&self) -> TimeLength {
        TimeLength::default()
    }

    /// See [`Map::fingerprint`](super::Map::fingerprint).
    fn fingerprint(&self) -> Option<String> {
        None
    }

    /// See [`Map::named_fields`](super::Map::named_fields).
    fn named_fields(&self) -> Vec<(&'static str, FieldPath)> {
        Vec::new()
    }

    /// See [`Map::named_channels`](super::Map::named_channels).
    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        Vec::new()
    }

    /// See [`Map::rows_after`](super::Map::rows_after).
    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Unclear
    }

    /// Whether events may come out later than the batch they came in with. Merging its output with
    /// other events of the same source then has to wait.
    ///
    /// `false` promises that `push` returns all results of its batch, in order.
    fn delays_events(&self) -> bool {
        true
    }

    /// Whether no more events will come out, so that reading may stop.
    fn is_done(&self) -> bool {
        false
    }

    /// Whether it must see all events, even if no node needs more of those that come out. Reading
    /// then never stops early.
    fn needs_all_events(&self) -> bool {
        false
    }
}

/// Which events a fold needs if the stages after it need only some.
///
/// The default is all events. Anything else promises that events that are neither needed after the
/// stage ([`StageContext::window`]) nor requested here have no effect: not on the events that are
/// needed, on notes, on errors, or on the clock of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldQuery {
    /// Whether timestamps do not change, and events outside a time window are only needed within
    /// `reach` of it.
    pub keeps_times: bool,
    /// Whether channels do not change, and no channels are needed besides those needed after it and
    /// those of `also`.
    pub keeps_channels: bool,
    /// Channels it needs in any case; `None` if there are none.
    pub also: Option<ChannelQuery>,
    /// The nanoseconds before and after a time window in which it needs events.
    pub reach: i64,
}

impl FoldQuery {
    /// The query before the stage, given the query after it.
    pub fn before(self, after: Query) -> Query {
        let reach = self.reach.max(0);
        let times = if self.keeps_times { (after.start, after.end) } else { (None, None) };
        let channels = match self.also {
            _ if !self.keeps_channels => ChannelQuery::default(),
            Some(also) => after.channels.or(also),
            None => after.channels,
        };
        Query {
            start: times.0.map(|start| start.saturating_sub(reach)),
            end: times.1.map(|end| end.saturating_add(reach)),
            channels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Patterns;

    fn channels(names: &[&str]) -> ChannelQuery {
        let names = names.iter().map(|name| Pattern::parse(name).unwrap()).collect();
        ChannelQuery::from_patterns(&Patterns(names), &Patterns::default(), &Patterns::default())
    }

    #[test]
    fn a_fold_that_says_nothing_needs_everything() {
        let after = Query { start: Some(5), end: Some(9), channels: channels(&["A"]) };
        assert!(FoldQuery::default().before(after).is_all());
    }

    #[test]
    fn a_folds_reach_and_channels_are_added_to_what_is_wanted() {
        let fold = FoldQuery {
            keeps_times: true,
            keeps_channels: true,
            also: Some(channels(&["POSE"])),
            reach: 3,
        };
        let after = Query { start: Some(5), end: Some(i64::MAX), channels: channels(&["A"]) };
        let before = fold.before(after);
        assert_eq!((before.start, before.end), (Some(2), Some(i64::MAX)));
        let wants = |name: &str| before.channels.wants(name, "");
        assert!(wants("A") && wants("POSE") && !wants("B"));
    }
}
