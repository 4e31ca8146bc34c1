//! Checks that every event that a sink reports as written is in its output: leaves out one event
//! at a time, which has to change the output. Checks the row counts that it passes with its files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_io::output::{MANIFEST, PublishedFile, faults::FaultInjector};
use sluice_pipeline::Report;

use super::files::DirSnapshot;
use super::{SinkBench, SinkRun, written};
use crate::Promise;
use crate::finding::{Fault, FindingSet};
use crate::hostile::SeededRandom;
use crate::pipe::stable_report;

/// The number of channels of which the first and last event are left out, and the number of events
/// between.
const MAX_CHANNELS: usize = 12;
const BETWEEN: usize = 16;

impl SinkBench<'_> {
    /// Checks that each written event changes the output.
    pub(super) fn every_event_counts(
        &self,
        tree: &DirSnapshot,
        report: &Report,
        found: &mut FindingSet,
    ) {
        let (whole, notes) = (written(report), stable_report(report).get("notes").cloned());
        for row in self.rows_to_leave_out() {
            let without = Arc::new(self.events.without(row));
            self.reset(&DirSnapshot::default());
            // Without faults, but also without waiting for the disk.
            let faults = Some(Arc::new(FaultInjector::none()));
            let how = SinkRun { faults, ..SinkRun::standard(&without) };
            let Ok(report) = self.run(&how) else { continue };
            let same = tree
                .without(MANIFEST)
                .difference(&DirSnapshot::read(&self.out()).without(MANIFEST));
            // A sink may note how much of something it does not write.
            let is_said = stable_report(&report).get("notes") != notes.as_ref();
            if written(&report) < whole && same.is_none() && !is_said {
                let kind = "an event that counts as written is not in the output";
                let which = match row {
                    0 => "the first event".to_owned(),
                    row if row + 1 == self.events.len() => "the last event".to_owned(),
                    row => format!("event {row}"),
                };
                let what = format!("the output is the same without {which}");
                found.add(
                    Fault::new(Promise::Accounting, kind, what),
                    "the events it is tried with",
                );
            }
        }
    }

    /// Checks the row counts of its files, which the manifest shows, as
    /// [`finish`](sluice_io::output::OutputFile::finish) defines them: the number of events in a
    /// single file from which a source reads these back, and 0 in any file without events.
    pub(super) fn counts_rows(&self, report: &Report, found: &mut FindingSet) {
        let kind = "the row count that is passed to `finish` of a file is wrong";
        let mut add = |case: &str, due: u64, file: &PublishedFile| {
            let name = file.path.file_name().unwrap_or_default().display();
            let what = format!("`{name}` has {} rows instead of {due}", file.rows);
            found.add(Fault::new(Promise::Accounting, kind, what), case);
        };
        if let ([file], Some(_)) = (&report.files[..], &self.trial.reader)
            && file.rows != written(report)
        {
            add("the events it is tried with", written(report), file);
        }
        self.reset(&DirSnapshot::default());
        let none = Arc::new(self.events.slice(0, 0));
        // A format may need events.
        let Ok(report) = self.run(&SinkRun::standard(&none)) else { return };
        if let Some(file) = report.files.iter().find(|file| file.rows > 0) {
            add("no events", 0, file);
        }
    }

    /// The events to leave out, one at a time: the first and the last; without a reader, also those
    /// of each channel and some between.
    fn rows_to_leave_out(&self) -> BTreeSet<usize> {
        let count = self.events.len();
        let mut places = BTreeSet::from([0, count - 1]);
        if self.trial.reader.is_some() {
            return places;
        }
        let channels = self.events.batch.channels();
        let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
        for (row, channel) in channels.iter().enumerate() {
            first.entry(channel).or_insert(row);
            last.insert(channel, row);
        }
        places.extend(first.into_values().take(MAX_CHANNELS));
        places.extend(last.into_values().take(MAX_CHANNELS));
        // Not evenly spaced, to catch sinks that drop every third event.
        let (mut dice, step) = (SeededRandom::new(11), count.div_ceil(BETWEEN));
        let between = (0..BETWEEN).map(|part| part * step + dice.below(step));
        places.extend(between.filter(|row| *row < count));
        places
    }
}
