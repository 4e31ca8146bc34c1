//! The report of a run.

mod accounting;
mod channel;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_io::escape::{escaped_path, path_text, printable};
use sluice_io::output::{Outputs, PublishedFile};
use sluice_model::plugin::SOURCES_LOST;
use sluice_model::{ChannelSet, Channels, Damage, Error, Input, RunDamage, UnmetExpectation};

use self::accounting::{Accounting, Label};
pub use self::channel::ChannelReport;
use crate::names::{MatchOutcome, NameReport};
pub use crate::note::Note;
use crate::run::tally::RunResults;

/// What a run did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// By source name.
    pub sources: BTreeMap<String, SourceReport>,
    /// By sink name.
    pub sinks: BTreeMap<String, SinkReport>,
    /// The accounting of each channel on the way to each sink.
    pub channels: Vec<ChannelReport>,
    /// Damaged ranges, in reading order; the first 100 000.
    pub damage: Vec<DamageReport>,
    /// The total number of damaged ranges.
    pub damaged_ranges: u64,
    /// Notes by node, with how often each happened (0 if a count has no meaning).
    pub notes: Vec<Note>,
    /// Events whose time a sink or stage cannot represent, and which got the nearest representable
    /// one.
    pub clamped_times: u64,
    /// The names in options, with what the run had of them.
    #[serde(default)]
    pub names: Vec<NameReport>,
    /// The expectations that the inputs do not meet; the first 10 000.
    #[serde(default)]
    pub unmet_expectations: Vec<UnmetReport>,
    /// The total number of expectations that are not met.
    #[serde(default)]
    pub unmet_count: u64,
    /// Whether nothing was published because the run was strict and a name in an option matched
    /// nothing.
    #[serde(default)]
    pub refused: bool,
    /// The files that were published.
    pub files: Vec<PublishedFile>,
    /// Wall time.
    pub seconds: f64,
    /// Whether a run was interrupted that has then published what it had received.
    pub interrupted: bool,
    /// Whether a full disk ended a recording, even if nothing was lost.
    #[serde(default)]
    pub disk_full: bool,
    /// Whether a full disk cost a recording its last file, which could not be completed.
    #[serde(default)]
    pub last_file_lost: bool,
    /// Bytes of input read.
    pub bytes_read: u64,
}

/// The totals of a source.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SourceReport {
    /// Events read.
    pub events: u64,
    /// Damaged bytes skipped.
    pub damaged_bytes: u64,
    /// Messages lost from a live input.
    pub lost: u64,
    /// Lost messages by reason.
    pub losses: BTreeMap<String, u64>,
}

/// The totals of a sink.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SinkReport {
    /// Events written.
    pub events: u64,
}

/// A range of an input that could not be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DamageReport {
    /// The pipeline's source.
    pub source: String,
    /// The input file, as in [`Damage`].
    pub input: String,
    /// Its start, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// What was found.
    pub reason: String,
}

/// An expectation that an input does not meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmetReport {
    /// The node.
    pub node: String,
    /// The input; `None` if the node saw events of several.
    pub input: Option<String>,
    /// The expectation.
    #[serde(flatten)]
    pub unmet: UnmetExpectation,
}

/// The maximum number of expectations in a report that are not met.
const MAX_UNMET: usize = 10_000;

/// The maximum number of notes per node; notes that name channels are as many as there are
/// channels.
const MAX_NOTES: usize = 1000;

impl Report {
    /// Builds the report of a run and checks that its accounting balances.
    ///
    /// `Err` means that a plugin lost or invented events without reporting it.
    pub(crate) fn from_run(
        labels: &[Label],
        results: &RunResults,
        inputs: &[Input],
        channels: &Channels,
    ) -> Result<Self, Error> {
        let mut accounting = Accounting::new(labels, &results.tally);
        accounting.check_stage_counts()?;
        let mut report = Self::from_failed_run(labels, results, inputs, channels);
        for (node, (name, from)) in labels.iter().enumerate() {
            let tally = results.tally.get(node);
            if !from.is_empty() && accounting.readers[node] == 0 {
                report.sinks.insert(name.clone(), SinkReport { events: tally.left.total() });
                report.channels.extend(accounting.sink_rows(node, channels)?);
            }
            report.clamped_times += tally.clamped;
            report.disk_full |= tally.disk_full;
            report.last_file_lost |= tally.last_file_lost;
            report.add_unmet(unmet_reports(name, tally.unmet, inputs));
        }
        Ok(report)
    }

    /// Builds the part of the report that is known of a run that failed at any point: what it read
    /// and published, and what its nodes noted. Batches on their way are not accounted for.
    pub(crate) fn from_failed_run(
        labels: &[Label],
        results: &RunResults,
        inputs: &[Input],
        channels: &Channels,
    ) -> Self {
        let mut report = Self {
            damaged_ranges: results.damaged_ranges,
            bytes_read: results.bytes_read,
            files: results.published.clone(),
            ..Self::default()
        };
        for (node, (name, from)) in labels.iter().enumerate() {
            let mut tally = results.tally.get(node);
            tally.notes.extend(lost_sources(&tally.without_sources, channels));
            if from.is_empty() {
                let damaged_bytes = results.damaged_bytes.get(&node).copied().unwrap_or(0);
                let losses = results.losses.get(&node).cloned().unwrap_or_default();
                let (events, lost) = (tally.left.total(), losses.values().sum());
                let source = SourceReport { events, damaged_bytes, lost, losses };
                report.sources.insert(name.clone(), source);
            }
            report.notes.extend(notes_of(name, tally.notes));
        }
        let damage = results.damage.iter();
        report.damage = damage.map(|(n, damage)| damage_report(&labels[*n].0, damage)).collect();
        let names = inputs.iter().enumerate();
        let places: BTreeMap<String, usize> =
            names.rev().map(|(n, input)| (escaped_path(&input.path).into_owned(), n)).collect();
        report.damage.sort_by_key(|damage| (places.get(&damage.input).copied(), damage.offset));
        report
    }

    /// Adds the report of a later unit of the same batch, or of a later run of the same command.
    /// Leaves `seconds` alone, because units run concurrently.
    pub fn add(&mut self, unit: Self) {
        for (name, source) in unit.sources {
            let ours = self.sources.entry(name).or_default();
            ours.events += source.events;
            ours.damaged_bytes += source.damaged_bytes;
            ours.lost += source.lost;
            for (reason, count) in source.losses {
                *ours.losses.entry(reason).or_default() += count;
            }
        }
        for (name, sink) in unit.sinks {
            self.sinks.entry(name).or_default().events += sink.events;
        }
        unit.channels.into_iter().for_each(|row| self.add_channel(row));
        let room = RunDamage::MAX_RANGES.saturating_sub(self.damage.len());
        self.damage.extend(unit.damage.into_iter().take(room));
        self.damaged_ranges += unit.damaged_ranges;
        self.clamped_times += unit.clamped_times;
        let listed = unit.unmet_expectations.len() as u64;
        for note in unit.notes {
            let same = |ours: &&mut Note| ours.node == note.node && ours.what == note.what;
            match self.notes.iter_mut().find(same) {
                Some(ours) => ours.count += note.count,
                None => self.notes.push(note),
            }
        }
        self.add_unmet(unit.unmet_expectations);
        self.unmet_count += unit.unmet_count.saturating_sub(listed);
        for name in unit.names {
            match self.names.iter_mut().find(|ours| ours.is_same(&name)) {
                Some(ours) => ours.add(name),
                None => self.names.push(name),
            }
        }
        self.files.extend(unit.files);
        self.interrupted |= unit.interrupted;
        self.disk_full |= unit.disk_full;
        self.last_file_lost |= unit.last_file_lost;
        self.bytes_read += unit.bytes_read;
    }

    /// Adds the names that matched nothing in units that earlier runs have done: all others did.
    pub(crate) fn add_unmatched(&mut self, units: Vec<Vec<NameReport>>) {
        let mut units = units.into_iter();
        if self.names.is_empty() {
            self.names = units.next().unwrap_or_default();
        }
        for unit in units {
            for name in &mut self.names {
                match unit.iter().find(|unmatched| unmatched.is_same(name)) {
                    Some(unmatched) => name.add(unmatched.clone()),
                    None => name.found = MatchOutcome::Something,
                }
            }
        }
    }

    /// Counts these expectations, and lists as many as there is room for.
    fn add_unmet(&mut self, unmet: Vec<UnmetReport>) {
        self.unmet_count += unmet.len() as u64;
        let room = MAX_UNMET.saturating_sub(self.unmet_expectations.len());
        self.unmet_expectations.extend(unmet.into_iter().take(room));
    }

    /// Rows are sorted by sink, source and channel.
    fn add_channel(&mut self, row: ChannelReport) {
        let key = |row: &ChannelReport| (row.sink.clone(), row.source.clone(), row.channel.clone());
        match self.channels.binary_search_by_key(&key(&row), key) {
            Ok(at) => {
                let ours = &mut self.channels[at];
                ours.entered += row.entered;
                ours.out += row.out;
                ours.filtered += row.filtered;
                ours.damaged += row.damaged;
                ours.undecoded += row.undecoded;
            }
            Err(at) => self.channels.insert(at, row),
        }
    }

    /// Notes at each sink that the input had not ended.
    pub(crate) fn note_early_end(&mut self, labels: &[Label]) {
        let sinks = labels.iter().filter(|(name, _)| self.sinks.contains_key(name));
        self.notes.extend(sinks.map(|(node, _)| Note {
            node: node.clone(),
            what: "stopped before the end of its input".to_owned(),
            count: 0,
        }));
    }

    /// Notes what publishing has left behind.
    pub(crate) fn note_leftover(&mut self, outputs: &Outputs) {
        let note = |what| Note { node: "publish".to_owned(), what, count: 0 };
        self.notes.extend(outputs.leftover().map(note));
    }

    /// Adds the name reports, and drops the node notes that say the same.
    pub(crate) fn with_names(mut self, names: Vec<NameReport>) -> Self {
        let is_told = |note: &Note| {
            let same = |name: &&NameReport| name.node == note.node && name.is_unmatched();
            names.iter().filter(same).any(|name| name.describe().as_ref() == Some(&note.what))
        };
        self.notes.retain(|note| !is_told(note));
        Self { names, ..self }
    }

    /// The names in options that matched nothing.
    pub fn unmatched(&self) -> impl Iterator<Item = &NameReport> {
        self.names.iter().filter(|name| name.is_unmatched())
    }

    /// Whether nothing was lost, and nothing ended the run early.
    pub fn is_complete(&self) -> bool {
        let carried = self.channels.iter().all(|row| row.damaged == 0);
        let carried = carried && self.clamped_times == 0;
        let received = self.sources.values().all(|source| source.lost == 0);
        let ended = !self.interrupted && !self.disk_full;
        self.damaged_ranges == 0 && carried && received && ended
    }

    /// The exit code: 0 for success, 3 for losses, 4 for expectations that are not met, with or
    /// without losses, 2 if publishing was refused.
    pub fn exit(&self) -> u8 {
        match self.refused {
            true => 2,
            false if self.unmet_count > 0 => 4,
            false if self.is_complete() => 0,
            false => 3,
        }
    }

    /// The report as `--report` writes it.
    pub fn to_json(&self) -> Value {
        json!({
            "sources": self.sources,
            "sinks": self.sinks,
            "channels": self.channels,
            "damage": self.damage,
            "damaged_ranges": self.damaged_ranges,
            "clamped_times": self.clamped_times,
            "notes": self.notes,
            "unmet_expectations": self.unmet_expectations,
            "unmet_count": self.unmet_count,
            "unmatched": self.unmatched().collect::<Vec<_>>(),
            "files": self.files,
            "bytes_read": self.bytes_read,
            "interrupted": self.interrupted,
            "disk_full": self.disk_full,
            "seconds": self.seconds,
            "exit": self.exit(),
        })
    }
}

/// The expectations that the events of a node do not meet, with the input if there is one only.
fn unmet_reports(node: &str, unmet: Vec<UnmetExpectation>, inputs: &[Input]) -> Vec<UnmetReport> {
    let input = match inputs {
        [input] => Some(path_text(&input.path).into_owned()),
        _ => None,
    };
    let report = |unmet| UnmetReport { node: node.to_owned(), input: input.clone(), unmet };
    unmet.into_iter().map(report).collect()
}

/// A node's notes, sorted by text; the excess is summarised.
fn notes_of(node: &str, notes: BTreeMap<String, u64>) -> Vec<Note> {
    let more = notes.len().saturating_sub(MAX_NOTES);
    let more = (more > 0).then(|| (format!("{more} more notes"), 0));
    let told = notes.into_iter().take(MAX_NOTES).chain(more);
    told.map(|(what, count)| Note { node: node.to_owned(), what, count }).collect()
}

/// Notes about sources lost by a format that stores only channel names: none if all channels have
/// one source; otherwise also which names now merge several sources.
fn lost_sources(written: &ChannelSet, channels: &Channels) -> Vec<(String, u64)> {
    let written: Vec<_> = written.iter().map(|id| channels.get(id)).collect();
    if written.windows(2).all(|pair| pair[0].source == pair[1].source) {
        return Vec::new();
    }
    let mut by_name = BTreeMap::<&str, BTreeSet<&str>>::new();
    for channel in &written {
        by_name.entry(channel.name.text()).or_default().insert(&channel.source);
    }
    let merged = by_name.into_iter().filter(|(_, sources)| sources.len() > 1);
    let told = merged.map(|(name, sources)| {
        const SHOWN: usize = 4;
        let shown: Vec<String> =
            sources.iter().take(SHOWN).map(|source| format!("`{}`", printable(source))).collect();
        let more = if sources.len() > SHOWN { ", …" } else { "" };
        let what = format!(
            "{}: {} sources ({}{more}) became one channel; `rename` with \
             `suffix = \".{{source}}\"` keeps them apart",
            printable(name),
            sources.len(),
            shown.join(", ")
        );
        (what, 0)
    });
    std::iter::once((SOURCES_LOST.to_owned(), 0)).chain(told).collect()
}

fn damage_report(source: &str, damage: &Damage) -> DamageReport {
    let Damage { input, offset, length, reason, .. } = damage;
    let (source, input, reason) = (source.to_owned(), input.to_string(), reason.clone());
    DamageReport { source, input, offset: *offset, length: *length, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::{Channel, ChannelId, Encoding};

    #[test]
    fn channel_names_that_merge_several_sources_are_noted() {
        let channels = Channels::default();
        let id = |name: &str, source: &str| {
            let name = sluice_model::Name::from_bytes(name.as_bytes());
            channels.intern(Channel::new(name, source, Encoding::Unknown)).unwrap()
        };
        let set = |ids: &[ChannelId]| ids.iter().copied().collect();
        let one = set(&[id("A", "x"), id("B", "x")]);
        assert!(lost_sources(&one, &channels).is_empty());
        let apart = set(&[id("A", "x"), id("B", "y")]);
        assert_eq!(lost_sources(&apart, &channels), [(SOURCES_LOST.to_owned(), 0)]);
        let merged = set(&[id("A", "x"), id("A", "y"), id("B", "x")]);
        let told = lost_sources(&merged, &channels);
        assert!(told.len() == 2 && told[1].0.starts_with("A: 2 sources (`x`, `y`)"), "{told:?}");
    }

    #[test]
    fn expectations_that_are_not_met_outweigh_losses_and_add_up() {
        let unmet = |count| {
            let listed = unmet_reports("gate", vec![UnmetExpectation::default(); count], &[]);
            let mut report = Report { damaged_ranges: 1, ..Report::default() };
            report.add_unmet(listed);
            report
        };
        assert_eq!((unmet(0).exit(), unmet(1).exit()), (3, 4));
        let mut all = unmet(MAX_UNMET - 1);
        all.add(unmet(3));
        assert_eq!(all.unmet_expectations.len(), MAX_UNMET);
        assert_eq!(all.unmet_count, MAX_UNMET as u64 + 2);
        let mut later = Report::default();
        later.add(all);
        assert_eq!(later.unmet_count, MAX_UNMET as u64 + 2);
    }

    #[test]
    fn notes_are_bounded_however_many_channels_they_name() {
        let notes =
            |count: usize| (0..count).map(|n| (format!("C{n:05}: no payload"), 1)).collect();
        assert_eq!(notes_of("decode", notes(MAX_NOTES)).len(), MAX_NOTES);
        let told = notes_of("decode", notes(MAX_NOTES + 7));
        assert_eq!(told.len(), MAX_NOTES + 1);
        assert_eq!((told[0].what.as_str(), told[0].count), ("C00000: no payload", 1));
        assert_eq!(told[MAX_NOTES].what, "7 more notes");
    }
}
