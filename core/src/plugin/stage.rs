//! Stages: what turns batches into batches.

use std::fmt::Display;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{ChannelQuery, Query, TimeWindow, times_clamped};
use crate::programs::RunHandle;
use crate::{Batch, ChannelId, Channels, DeclaredColumns, Error, Event, FieldPath, Pattern};

/// A stage says by its kind how it may be run; there is no flag to get wrong.
pub enum Stage {
    /// Treats each batch alone: any thread, any order.
    Map(Box<dyn Map>),
    /// Has a memory: one thread, in order.
    Fold(Box<dyn Fold>),
    /// Made of others, which run one after another as if they stood so in the pipeline file. Its events
    /// are counted, and what it says is told, under its own name.
    ///
    /// A fold that only puts beside each event what a map after it needs leaves the work to all cores.
    /// Its parts share nothing but the batches: when sources are read once more, folds are made again and
    /// maps are not. A chain of nothing lets everything pass.
    Chain(Vec<Self>),
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Map(_) => f.write_str("Map"),
            Self::Fold(_) => f.write_str("Fold"),
            Self::Chain(parts) => f.debug_list().entries(parts).finish(),
        }
    }
}

impl Stage {
    /// The maps and folds that it is made of, in order: no chain is among them.
    pub fn into_parts(self) -> Vec<Self> {
        let (mut parts, mut left) = (Vec::new(), vec![self]);
        while let Some(stage) = left.pop() {
            match stage {
                Self::Chain(chain) => left.extend(chain.into_iter().rev()),
                part => parts.push(part),
            }
        }
        parts
    }

    /// The same, borrowed.
    pub fn parts(&self) -> Vec<&Self> {
        let (mut parts, mut left) = (Vec::new(), vec![self]);
        while let Some(stage) = left.pop() {
            match stage {
                Self::Chain(chain) => left.extend(chain.iter().rev()),
                part => parts.push(part),
            }
        }
        parts
    }

    /// Whether one of its parts has to know when the first event happened.
    pub fn needs_origin(&self) -> bool {
        self.parts().into_iter().any(|part| match part {
            Self::Map(map) => map.needs_origin(),
            Self::Fold(fold) => fold.needs_origin(),
            Self::Chain(_) => false,
        })
    }

    /// What beside its options decides what it does, a line for each part that has something to say.
    pub fn fingerprints(&self) -> Vec<String> {
        let of = |part: &Self| match part {
            Self::Map(map) => map.fingerprint(),
            Self::Fold(fold) => fold.fingerprint(),
            Self::Chain(_) => None,
        };
        self.parts().into_iter().filter_map(of).collect()
    }

    /// What is to be told of it before any event: see [`Map::notes`].
    pub fn notes(&self) -> Vec<String> {
        let of = |part: &Self| match part {
            Self::Map(map) => map.notes(),
            Self::Fold(_) | Self::Chain(_) => Vec::new(),
        };
        self.parts().into_iter().flat_map(of).collect()
    }
}

/// What a stage needs from its run, and where it says what became of events.
///
/// The engine counts the events that go in and come out; a stage that does not account for the
/// difference fails the run: what goes in and is added comes out or is left out.
#[derive(Debug)]
pub struct StageContext<'r> {
    /// Every channel of the run.
    pub channels: &'r Channels,
    /// When the first event of the run's sources happened, where that is known.
    pub origin: Option<i64>,
    /// When the events happened that are wanted of what the stage gives. Others come only because a source
    /// may give more than was asked for: what the stage would say of them, nobody asked.
    pub window: TimeWindow,
    /// Events left out because that is what the stage is for.
    pub filtered: u64,
    /// Events that came out without having gone in: for each, its number in [`Batch::origins`].
    pub added: Vec<u32>,
    /// Events whose payload could not be decoded or encoded and that went on as they were: for each,
    /// its number in [`Batch::origins`].
    pub undecoded: Vec<u32>,
    /// How many events go on with the nearest time there is, because theirs lies beyond it.
    pub clamped: u64,
    /// Things worth telling once, with how often they happened.
    pub notes: Vec<(String, u64)>,
    /// What a stage with memory has to do with its run while it waits for a program.
    pub run_handle: RunHandle,
}

impl<'r> StageContext<'r> {
    /// A context in which nothing has happened yet, and everything is wanted.
    pub fn new(channels: &'r Channels, origin: Option<i64>) -> Self {
        Self {
            channels,
            origin,
            window: TimeWindow::default(),
            filtered: 0,
            added: Vec::new(),
            undecoded: Vec::new(),
            clamped: 0,
            notes: Vec::new(),
            run_handle: RunHandle::default(),
        }
    }

    /// The same, where only events of this window are wanted.
    #[must_use]
    pub fn within(self, wanted: TimeWindow) -> Self {
        Self { window: wanted, ..self }
    }

    /// Says of all events of which the timestamp is not the time that they go on with it.
    pub fn note_clamped_times(&mut self, batch: &Batch) {
        if batch.wide_times().is_none() {
            return;
        }
        for (row, channel) in batch.channels().iter().enumerate() {
            if batch.wide_time(row).is_some() {
                self.clamped += 1;
                self.note(times_clamped(&self.channels.get(ChannelId(*channel))), 1);
            }
        }
    }

    /// Says something that belongs into the report, once, with a count.
    pub fn note(&mut self, what: impl Into<String>, count: u64) {
        self.notes.push((what.into(), count));
    }
}

/// What becomes of events that cannot be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UndecodedPolicy {
    /// They go on as they are, and are counted.
    #[default]
    Keep,
    /// They are left out.
    Drop,
    /// They end the run.
    Stop,
}

impl UndecodedPolicy {
    /// The error that ends the run at an event, for those that stop.
    pub fn refusal(event: &Event<'_>, context: &StageContext<'_>, why: impl Display) -> Error {
        let channel = context.channels.get(event.channel);
        Error::invalid(format!(
            "event {} on channel `{}` cannot be decoded: {why}; `undecoded = \"keep\"` would let it pass \
             as it is",
            event.sequence,
            channel.name.text()
        ))
    }

    /// The batch as it goes on, if those at the positions `failed` could not be decoded. Counts them.
    pub fn apply(
        self,
        batch: Batch,
        mut failed: Vec<u32>,
        context: &mut StageContext<'_>,
    ) -> Batch {
        failed.sort_unstable();
        if self == Self::Drop && !failed.is_empty() {
            context.filtered += failed.len() as u64;
            return batch.retain(|row| failed.binary_search(&(row as u32)).is_err());
        }
        let origins = batch.origins();
        context.undecoded.extend(failed.iter().map(|event| origins[*event as usize]));
        batch
    }
}

/// A stage without memory.
pub trait Map: Send + Sync {
    /// Turns a batch into a batch. How events are cut into batches must not matter.
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error>;

    /// What the stage lets through, if that can be said without seeing events: lets a source skip.
    fn query(&self) -> MapQuery {
        MapQuery::default()
    }

    /// Whether it has to know when the first event happened. Finding out may mean waiting for it.
    fn needs_origin(&self) -> bool {
        false
    }

    /// The fields of decoded messages that it cannot do without, where an option is an expression that names
    /// some. Those that options list by themselves need not be told.
    fn fields(&self) -> Vec<FieldPath> {
        Vec::new()
    }

    /// The channels that an option names in an expression, each with that option: a run says which of them
    /// never came. Those that options list by themselves need not be told.
    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        Vec::new()
    }

    /// What becomes of decoded rows, as far as that is clear beforehand: lets fields that no type has be
    /// told before the run.
    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Unclear
    }

    /// Whether decoded rows make a difference to it.
    fn uses_rows(&self) -> bool {
        !matches!(self.rows_after(), RowsEffect::Same) || !self.fields().is_empty()
    }

    /// What beside its options decides what it does, as a line of text: the contents of files they name.
    /// Outputs made with another one are made again under `--resume`.
    fn fingerprint(&self) -> Option<String> {
        None
    }

    /// What is to be told of it once in every run, whatever events come: what of its options it cannot use.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What becomes of decoded rows in a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RowsEffect {
    /// Nobody can tell before the events are there.
    #[default]
    Unclear,
    /// They go on with the columns they have.
    Same,
    /// Events may get rows with these columns; others go on as they are.
    Decoded(DeclaredColumns),
}

/// What a stage lets through, as far as times and channels go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapQuery {
    /// Only events at or after this time pass.
    pub start: Option<crate::time::TimePoint>,
    /// Only events before this time pass.
    pub end: Option<crate::time::TimePoint>,
    /// Only events of these channels pass.
    pub channels: ChannelQuery,
    /// The stage leaves timestamps as they are, so that what stages after it want can be passed on.
    pub keeps_times: bool,
    /// The stage leaves channels as they are.
    pub keeps_channels: bool,
}

/// A stage with memory.
pub trait Fold: Send {
    /// Takes the next batch; gives what is ready.
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error>;

    /// Gives what is left.
    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let _ = context;
        Ok(Vec::new())
    }

    /// Gives more of what `push` or `finish` did not give at once, because it would have been too much:
    /// asked after each of them until it gives nothing.
    fn more(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let _ = context;
        Ok(Vec::new())
    }

    /// What it needs of the events before it, so that what stages after it want can be passed on: lets a
    /// source skip. A source may give more than is asked for, or everything.
    fn query(&self) -> FoldQuery {
        FoldQuery::default()
    }

    /// Whether it has to know when the first event happened. Finding out may mean waiting for it.
    fn needs_origin(&self) -> bool {
        false
    }

    /// What beside its options decides what it does, as a line of text: see [`Map::beside_options`].
    fn fingerprint(&self) -> Option<String> {
        None
    }

    /// The channels that an option names in an expression: see [`Map::named_channels`].
    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        Vec::new()
    }

    /// What becomes of decoded rows: see [`Map::rows_after`].
    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Unclear
    }

    /// Whether events may come out later than with the batch they came in with: where its output meets
    /// other events of the same source, each has to be waited for.
    ///
    /// Whoever says no promises that what comes of a batch is given when that batch is pushed, in order.
    fn delays_events(&self) -> bool {
        true
    }

    /// Whether nothing more will come out, whatever goes in: reading may stop.
    fn is_done(&self) -> bool {
        false
    }
}

/// What a stage with memory needs of the events before it, where stages after it want only some.
///
/// As it is made by default it needs all of them. Whoever says less promises that leaving out events which
/// nobody after the stage wants, and which are not asked for here, changes nothing of those that are wanted,
/// and nothing else of the run: what is noted, what ends the run and which clock a channel has may depend on
/// no event that is neither wanted ([`StageContext::wanted`]) nor asked for here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldQuery {
    /// The stage leaves timestamps as they are, and needs no events from outside of a window that is wanted
    /// after it but for those within its reach.
    pub keeps_times: bool,
    /// The stage leaves channels as they are, and needs no others than those that are wanted after it but
    /// for those of `also`.
    pub keeps_channels: bool,
    /// Channels that it needs whether or not anybody after it wants them; nothing if there are none.
    pub also: Option<ChannelQuery>,
    /// How many nanoseconds before and after a window that is wanted it needs events.
    pub reach: i64,
}

impl FoldQuery {
    /// What is wanted before the stage, where this is wanted after it.
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

    struct NoOpStage(&'static str);

    impl Map for NoOpStage {
        fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
            Ok(batch)
        }

        fn fingerprint(&self) -> Option<String> {
            Some(self.0.to_owned())
        }
    }

    impl Fold for NoOpStage {
        fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
            Ok(vec![batch])
        }

        fn needs_origin(&self) -> bool {
            true
        }
    }

    fn channels(names: &[&str]) -> ChannelQuery {
        let names = names.iter().map(|name| Pattern::parse(name).unwrap()).collect();
        ChannelQuery::from_patterns(&Patterns(names), &Patterns::default(), &Patterns::default())
    }

    #[test]
    fn chains_in_chains_are_one_line() {
        let map = |name| Stage::Map(Box::new(NoOpStage(name)));
        let inner = Stage::Chain(vec![Stage::Fold(Box::new(NoOpStage("f"))), map("b")]);
        let chain = Stage::Chain(vec![map("a"), Stage::Chain(Vec::new()), inner, map("c")]);
        assert!(chain.needs_origin());
        assert_eq!(chain.fingerprints(), ["a", "b", "c"]);
        assert_eq!(format!("{:?}", chain.parts()), "[Map, Fold, Map, Map]");
        assert_eq!(format!("{:?}", chain.into_parts()), "[Map, Fold, Map, Map]");
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
