//! Counts how many events of each channel entered and left each node. Validates nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_io::output::PublishedFile;
use sluice_kit::counts::EventCounts;
use sluice_model::{ChannelSet, Damage, Error, UnmetExpectation};

use super::observed::ObservedNames;

/// The counts of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTally {
    /// For sources, events read; for other nodes, events that entered.
    pub(crate) entered: EventCounts,
    /// For stages, events that left; for sinks, events passed to the writer.
    pub(crate) left: EventCounts,
    /// For sources, events of known position that could not be read; for sinks, events refused.
    pub(crate) damaged: EventCounts,
    /// Events that a stage reports as dropped.
    pub(crate) filtered: u64,
    /// Events that left a stage without having entered it.
    pub(crate) added: EventCounts,
    /// Payloads that a stage reports as not decodable or not encodable.
    pub(crate) undecoded: EventCounts,
    /// Events that passed, or were written, with the nearest representable time.
    pub(crate) clamped: u64,
    /// Notes, with how often each happened.
    pub(crate) notes: BTreeMap<String, u64>,
    /// The expectations that its events do not meet.
    pub(crate) unmet: Vec<UnmetExpectation>,
    /// Channels that a sink wrote without their source names.
    pub(crate) without_sources: ChannelSet,
    /// Whether a full disk ended a recording.
    pub(crate) disk_full: bool,
    /// Whether that cost it its last file.
    pub(crate) last_file_lost: bool,
    /// What it observed of the names in its options.
    pub(crate) observed: ObservedNames,
}

impl NodeTally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.entered.add(&other.entered);
        self.left.add(&other.left);
        self.damaged.add(&other.damaged);
        self.undecoded.add(&other.undecoded);
        self.added.add(&other.added);
        self.filtered += other.filtered;
        self.clamped += other.clamped;
        self.disk_full |= other.disk_full;
        self.last_file_lost |= other.last_file_lost;
        for (note, count) in &other.notes {
            self.note(note, *count);
        }
        self.unmet.extend(other.unmet.iter().cloned());
        self.without_sources.add(&other.without_sources);
        self.observed.add(&other.observed);
    }

    /// Adds an observation.
    pub(crate) fn observe(&mut self, met: Option<ObservedNames>) {
        met.iter().for_each(|met| self.observed.add(met));
    }

    /// Recounts written events as lost.
    pub(crate) fn count_lost(&mut self, events: &EventCounts) {
        self.left.subtract(events);
        self.damaged.add(events);
    }

    /// Recounts events of a recording as lost because its disk is full. `is_kept` says whether its
    /// last file is complete, without these events.
    pub(super) fn count_lost_to_full_disk(
        &mut self,
        events: &EventCounts,
        error: &Error,
        is_kept: bool,
    ) {
        const KEPT: &str = "everything recorded before is kept";
        const NOT_KEPT: &str = "its last file could not be completed, and those before it are kept";
        self.disk_full = true;
        self.last_file_lost |= !is_kept;
        self.count_lost(events);
        self.note(&format!("{error}; {}", if is_kept { KEPT } else { NOT_KEPT }), 0);
    }

    pub(crate) fn note(&mut self, what: &str, count: u64) {
        match self.notes.get_mut(what) {
            Some(so_far) => *so_far += count,
            None => drop(self.notes.insert(what.to_owned(), count)),
        }
    }
}

/// The counts of every node, by node index.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTally(BTreeMap<usize, NodeTally>);

impl RunTally {
    pub(crate) fn node(&mut self, node: usize) -> &mut NodeTally {
        self.0.entry(node).or_default()
    }

    pub(crate) fn get(&self, node: usize) -> NodeTally {
        self.0.get(&node).cloned().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (node, tally) in &other.0 {
            self.node(*node).add(tally);
        }
    }
}

/// The results of a run, for its report.
pub(crate) struct RunResults {
    pub(crate) tally: RunTally,
    pub(crate) damage: Vec<(usize, Arc<Damage>)>,
    pub(crate) damaged_ranges: u64,
    pub(crate) damaged_bytes: BTreeMap<usize, u64>,
    pub(crate) bytes_read: u64,
    /// The messages each live source lost, by reason.
    pub(crate) losses: BTreeMap<usize, BTreeMap<String, u64>>,
    /// Files published before the end.
    pub(crate) published: Vec<PublishedFile>,
    /// The events of a recording that may be lost if its last piece cannot be published, by sink
    /// node.
    pub(crate) unpublished: BTreeMap<usize, EventCounts>,
    /// Whether everything requested was read: no source was cut short.
    pub(crate) is_complete: bool,
}

impl RunResults {
    /// Recounts the events of a recording's last piece as lost, which this error of a full disk
    /// kept from being published.
    pub(super) fn lose_last_piece(&mut self, error: &Error) {
        for (node, events) in std::mem::take(&mut self.unpublished) {
            self.tally.node(node).count_lost_to_full_disk(&events, error, false);
        }
    }
}
