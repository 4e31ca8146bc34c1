//! The context in which stages process batches, and what they say of them.

use std::sync::Arc;

use super::{ChannelQuery, RunOrigin, TimeWindow, times_clamped};
use crate::{Batch, ChannelId, Channels, DeclaredColumns, RunHandle, UnmetExpectation};

/// The context of a stage, in which it accounts for events.
///
/// The engine counts events before and after a stage, and the run fails if the difference is not
/// accounted for: events in plus [`added`](StageReport::added) equal events out plus
/// [`filtered`](StageReport::filtered).
#[derive(Debug)]
pub struct StageContext<'r> {
    /// Every channel of the run.
    pub channels: &'r Channels,
    /// The time of the first event of the sources that the stage reads from, if known, shifted like
    /// the events: see [`Map::shift`](super::Map::shift).
    pub origin: Option<i64>,
    /// The time window of events needed after the stage. Sources may return more; events outside
    /// this window are not reported.
    pub window: TimeWindow,
    /// The channels whose events are needed after the stage; `None` for all. Like `window`, only a
    /// hint: it may spare work on events that are dropped later.
    pub needed_channels: Option<&'r ChannelQuery>,
    /// What the stage did with events.
    pub report: StageReport,
    /// The connection to the run.
    pub run: RunHandle,
    /// A description of the run and its inputs; for folds only.
    pub run_origin: Option<Arc<RunOrigin>>,
}

/// What a stage did with the events it was given.
#[derive(Clone, Debug, Default)]
pub struct StageReport {
    /// The number of events dropped on purpose.
    pub filtered: u64,
    /// Events the stage has created: for each, its channel in [`Batch::origins`].
    pub added: Vec<u32>,
    /// Events passed on unchanged because their payload could not be decoded or encoded: for each,
    /// its channel in [`Batch::origins`].
    pub undecoded: Vec<u32>,
    /// The number of events whose time was clamped.
    pub clamped: u64,
    /// Notes, with counts.
    pub notes: Vec<(String, u64)>,
    /// The expectations that the events do not meet.
    pub unmet: Vec<UnmetExpectation>,
}

impl<'r> StageContext<'r> {
    /// An empty context, with an open time window.
    pub fn new(channels: &'r Channels, origin: Option<i64>) -> Self {
        Self {
            channels,
            origin,
            window: TimeWindow::default(),
            needed_channels: None,
            report: StageReport::default(),
            run: RunHandle::default(),
            run_origin: None,
        }
    }

    /// Restricts the time window.
    #[must_use]
    pub fn within(self, wanted: TimeWindow) -> Self {
        Self { window: wanted, ..self }
    }

    /// Restricts the channels that are needed.
    #[must_use]
    pub fn needing(self, channels: &'r ChannelQuery) -> Self {
        Self { needed_channels: Some(channels), ..self }
    }

    /// Records all events whose timestamp is clamped.
    pub fn note_clamped_times(&mut self, batch: &Batch) {
        if batch.wide_times().is_none() {
            return;
        }
        for (row, channel) in batch.channels().iter().enumerate() {
            if batch.wide_time(row).is_some() {
                self.report.clamped += 1;
                self.note(times_clamped(&self.channels.get(ChannelId(*channel))), 1);
            }
        }
    }

    /// Adds a note to the report, with a count.
    pub fn note(&mut self, what: impl Into<String>, count: u64) {
        self.report.notes.push((what.into(), count));
    }
}

/// The effect of a stage on decoded rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RowsEffect {
    /// Unknown before the events are read.
    #[default]
    Unclear,
    /// Their columns do not change.
    Same,
    /// Events may get rows with these columns; others do not change.
    Decoded(DeclaredColumns),
    /// All events are new ones of fields of others, with columns that are not known before. They
    /// have no payload, and are no messages that `encode` could make one of.
    PartsOnly,
}
