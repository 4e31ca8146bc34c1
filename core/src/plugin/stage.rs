//! Stages: what turns batches into batches.

use super::ChannelQuery;
use crate::{Batch, Channels, Error};

/// A stage says by its kind how it may be run; there is no flag to get wrong.
pub enum Stage {
    /// Treats each batch alone: any thread, any order.
    Map(Box<dyn Map>),
    /// Has a memory: one thread, in order.
    Fold(Box<dyn Fold>),
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Map(_)) { "Map" } else { "Fold" })
    }
}

/// What a stage needs from its run, and where it says what became of events.
///
/// The engine counts the events that go in and come out; a stage that does not account for the
/// difference fails the run.
#[derive(Debug)]
pub struct StageContext<'r> {
    /// Every channel of the run.
    pub channels: &'r Channels,
    /// When the first event of the run's sources happened, where that is known.
    pub origin: Option<i64>,
    /// Events left out because that is what the stage is for.
    pub filtered: u64,
    /// Events whose payload could not be decoded or encoded and that went on as they were: for each,
    /// its number in [`Batch::origins`].
    pub undecoded: Vec<u32>,
    /// Things worth telling once, with how often they happened.
    pub notes: Vec<(String, u64)>,
}

impl<'r> StageContext<'r> {
    /// A context in which nothing has happened yet.
    pub fn new(channels: &'r Channels, origin: Option<i64>) -> Self {
        Self { channels, origin, filtered: 0, undecoded: Vec::new(), notes: Vec::new() }
    }

    /// Says something that belongs into the report, once, with a count.
    pub fn note(&mut self, what: impl Into<String>, count: u64) {
        self.notes.push((what.into(), count));
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

    /// What beside its options decides what it does, as a line of text: the contents of files they name.
    /// Outputs made with another one are made again under `--resume`.
    fn beside_options(&self) -> Option<String> {
        None
    }
}

/// What a stage lets through, as far as times and channels go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapQuery {
    /// Only events at or after this time pass.
    pub start: Option<crate::time::When>,
    /// Only events before this time pass.
    pub end: Option<crate::time::When>,
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

    /// Whether it has to know when the first event happened. Finding out may mean waiting for it.
    fn needs_origin(&self) -> bool {
        false
    }

    /// Whether nothing more will come out, whatever goes in: reading may stop.
    fn is_done(&self) -> bool {
        false
    }
}
