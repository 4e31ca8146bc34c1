//! Damages a source's sample, by truncation and changes, and checks the result.

use std::ops::Range;
use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_kit::contract::trials;
use sluice_model::BlockPool;

use crate::Promise;
use crate::damage_checker::{DamageChecker, read_faults};
use crate::extents::{CutResult, CutResults, EventExtents};
use crate::finding::Fault;
use crate::hostile::{ByteChange, changes};
use crate::isolation::Cases;
use crate::reading::{ReadBounds, ReadResult, claimed_count, read_all, source_remarks};
use crate::subject::{Integrity, SampleFile, TrialSubject};

/// The approximate number of bytes to read for truncations and for changes.
const BUDGET: usize = 8 << 20;
const LEAST_CHANGES: usize = 64;
/// For one in this many changes, the sample is also read in splits.
const PIECES_EVERY: usize = 10;
/// How many changed samples the engine reads.
const RUNS: usize = 3;

/// How thoroughly to damage samples.
struct TrialEffort {
    /// Samples up to this length are truncated after every byte.
    small: usize,
    /// The maximum number of truncations of longer samples, and the number of bytes at each end.
    most_cuts: usize,
    edge: usize,
    most_changes: usize,
}

impl TrialEffort {
    fn from_env() -> Self {
        let of = |short, long| trials(short, long) as usize;
        Self {
            small: of(512, 8 << 10),
            most_cuts: of(128, 1_024),
            edge: of(128, 1_024),
            most_changes: of(400, 2_000),
        }
    }
}

/// Advice for formats that cannot yield a part of a file.
const DECLARE: &str = "if the format cannot do better, say `whole_or_nothing()`";

/// A source whose sample is being damaged.
pub(crate) struct DamageTrial<'s, 't> {
    pub(crate) subject: &'s TrialSubject<'t>,
    pub(crate) folder: PathBuf,
    pub(crate) valid: ReadResult,
    pub(crate) pool: BlockPool,
}

impl DamageTrial<'_, '_> {
    /// Tests one file of the sample, truncated and changed.
    pub(crate) fn try_damage(&self, cases: &mut Cases, sample: &SampleFile<'_>) {
        let mut checker = DamageChecker::new(&self.valid, self.subject.trial.integrity);
        checker.is_single = sample.place == 0 && self.subject.is_single(&self.folder);
        checker.bytes = sample.bytes;
        checker.footer = self.subject.trial.footer;
        checker.is_divisible = checker.is_single && !self.subject.trial.whole_or_nothing;
        checker.header = if sample.place == 0 { self.subject.trial.header } else { 0 };
        checker.is_plain = !sluice_io::files::is_zstd(&sample.path(&self.folder)).unwrap_or(false);
        let cuts = self.try_cuts(cases, sample, &checker);
        self.try_silent_cuts(cases, sample, &checker, &cuts);
        self.try_lossy_cuts(cases, sample, &checker, &cuts);
        let extents = self.extents(sample, &checker, &cuts);
        checker.extents = extents.as_ref();
        self.try_changes(cases, sample, &checker, &cuts);
        sample.write(&self.folder, sample.bytes);
    }

    /// Where the events of the sample lie, if truncation shows it.
    fn extents(
        &self,
        sample: &SampleFile<'_>,
        checker: &DamageChecker<'_>,
        cuts: &CutResults,
    ) -> Option<EventExtents> {
        let single = checker.is_single.then_some(cuts)?;
        let extents = single.extents(self.valid.events.len(), sample.bytes.len())?;
        Some(extents.with_header(checker.header).in_frames(&self.subject.trial.frames))
    }

    fn bounds(&self) -> ReadBounds {
        ReadBounds::around(&self.valid, self.subject.len())
    }

    /// Reads the sample in its current state; asks for remarks if fewer events were read and
    /// nothing reported.
    fn read(&self) -> Result<ReadResult, Fault> {
        let source = self.subject.source(&self.folder)?;
        let mut read = read_all(&*source, u64::MAX, &self.pool, self.bounds());
        read.remarks.retain(|what| !self.valid.remarks.contains(what));
        if !read.reports_anything() && read.events.len() < self.valid.events.len() {
            read.remarks = source_remarks(&*source);
            read.remarks.retain(|what| !self.valid.remarks.contains(what));
        }
        Ok(read)
    }

    /// Tests truncations everywhere, or where they are most telling.
    fn try_cuts(
        &self,
        cases: &mut Cases,
        sample: &SampleFile<'_>,
        checker: &DamageChecker<'_>,
    ) -> CutResults {
        let len = sample.bytes.len();
        for at in first_cuts(len) {
            self.try_cut(cases, sample, checker, at);
        }
        let mut cuts = learned_cuts(cases, sample, self.valid.events.len());
        if len > TrialEffort::from_env().small && checker.is_single {
            self.refine(cases, sample, checker, &mut cuts);
        }
        cuts
    }

    /// Finds where some events of a long sample end.
    fn refine(
        &self,
        cases: &mut Cases,
        sample: &SampleFile<'_>,
        checker: &DamageChecker<'_>,
        cuts: &mut CutResults,
    ) {
        let events = self.valid.events.len();
        for event in some_events(events) {
            let high = cuts.refine(event, |at| {
                self.try_cut(cases, sample, checker, at);
                learned_cuts(cases, sample, events).at(at)
            });
            for at in (high + 1..high + 6).filter(|at| *at < sample.bytes.len()) {
                self.try_cut(cases, sample, checker, at);
            }
        }
        *cuts = learned_cuts(cases, sample, events);
    }

    fn try_cut(
        &self,
        cases: &mut Cases,
        sample: &SampleFile<'_>,
        checker: &DamageChecker<'_>,
        at: usize,
    ) {
        let change = ByteChange::cut(at, sample.bytes.len());
        let what = format!("{}: {change}", sample.name);
        cases.case(&what, |cases| {
            sample.write(&self.folder, &change.apply(sample.bytes));
            let read = match self.read() {
                Ok(read) => read,
                Err(fault) => return vec![fault],
            };
            let cut = CutResult::of(&read, checker.prefix(&read), at);
            cases.learn(json!([
                sample.place,
                at,
                cut.events,
                cut.reported,
                cut.failed,
                cut.ends_damaged
            ]));
            let mut faults = read_faults(&read, &self.folder);
            faults.extend(checker.cut_faults(at, &read));
            faults
        });
    }

    /// Checks that truncation inside an event is reported.
    fn try_silent_cuts(
        &self,
        cases: &mut Cases,
        sample: &SampleFile<'_>,
        checker: &DamageChecker<'_>,
        cuts: &CutResults,
    ) {
        // A missing secondary file may be reported event by event.
        if checker.integrity == Integrity::Nothing || !checker.is_single {
            return;
        }
        let Some((at, more)) = cuts.silent(sample.bytes.len()) else { return };
        let change = ByteChange::cut(at, sample.bytes.len());
        cases.case(&format!("{}: {change}", sample.name), |_| {
            sample.write(&self.folder, &change.apply(sample.bytes));
            let what = "a cut inside an event, or inside a header, is not reported";
            vec![Fault::new(Promise::Damage, what, format!("nor are {more} others"))]
        });
    }

    /// Checks that truncation loses no event before it.
    fn try_lossy_cuts(
        &self,
        cases: &mut Cases,
        sample: &SampleFile<'_>,
        checker: &DamageChecker<'_>,
        cuts: &CutResults,
    ) {
        if !checker.is_divisible {
            return;
        }
        let events = self.valid.events.len();
        let given_up = cuts.lossy(checker.header);
        // Compressed data may yield nothing before a block is complete.
        let is_all_or_nothing = checker.is_plain && events > 2 && cuts.gives_nothing(events);
        let half = sample.bytes.len() / 2;
        let Some((at, what, detail)) = given_up
            .map(|(at, lost, more)| {
                let detail = format!("{lost} are lost, and some with {more} other cuts");
                (at, "a cut loses events before it", detail)
            })
            .or_else(|| {
                let detail = format!("none of {events} is given; {DECLARE}");
                is_all_or_nothing.then_some((half, "a cut file yields nothing at all", detail))
            })
        else {
            return;
        };
        let change = ByteChange::cut(at, sample.bytes.len());
        cases.case(&format!("{}: {change}", sample.name), |_| {
            sample.write(&self.folder, &change.apply(sample.bytes));
            vec![Fault::new(Promise::Damage, what, detail)]
        });
    }

    fn try_changes(
        &self,
        cases: &mut Cases,
        sample: &SampleFile<'_>,
        checker: &DamageChecker<'_>,
        cuts: &CutResults,
    ) {
        let (len, extents) = (sample.bytes.len(), checker.extents);
        let files = self.subject.trial.files.len().max(1);
        let most = (BUDGET / len.max(1)).clamp(LEAST_CHANGES, TrialEffort::from_env().most_changes)
            / files;
        let mut places = vec![0, HEADER_AT, len.saturating_sub(64), len.saturating_sub(32)];
        places.extend(extents.map(|extents| extents.some_ends()).unwrap_or_default());
        let all = changes(sample.bytes, &places, most, self.subject.trial.seed);
        let run_every = all.len().div_ceil(RUNS);
        for (n, change) in all.iter().enumerate() {
            let what = format!("{}: {change}", sample.name);
            let in_pieces = n % PIECES_EVERY == 0;
            cases.case(&what, |_| self.changed(sample, checker, cuts, change, in_pieces));
            if n % run_every == run_every - 1 {
                cases.unlimited_case(&what, |_| self.run_changed(sample, change));
            }
        }
    }

    fn changed(
        &self,
        sample: &SampleFile<'_>,
        checker: &DamageChecker<'_>,
        cuts: &CutResults,
        change: &ByteChange,
        in_pieces: bool,
    ) -> Vec<Fault> {
        sample.write(&self.folder, &change.apply(sample.bytes));
        let read = match self.read() {
            Ok(read) => read,
            Err(fault) => return vec![fault],
        };
        let mut faults = read_faults(&read, &self.folder);
        let is_removed =
            |events: Range<usize>| self.is_removed(sample, checker, cuts, change, events);
        faults.extend(checker.change_faults(change, &read, &is_removed));
        // Endless results differ by where they were stopped.
        if in_pieces && read.endless.is_none() {
            // The count for a damaged file may be wrong, but must not panic.
            drop(self.subject.source(&self.folder).map(|source| claimed_count(&*source).is_some()));
            let target = (self.subject.len() as u64 / 50).max(64);
            let targets = [target, target * 9];
            let (folder, bounds) = (&self.folder, self.bounds());
            let other = self.subject.split_difference(folder, &read, bounds, &targets);
            faults.extend(
                other.or_else(|| {
                    self.subject.order_difference(folder, &read, bounds, &targets[1..])
                }),
            );
        }
        faults
    }

    /// Whether a change removes all bytes of these events. Truncates the sample to find their ends,
    /// which are not known of all events of a long one.
    fn is_removed(
        &self,
        sample: &SampleFile<'_>,
        checker: &DamageChecker<'_>,
        cuts: &CutResults,
        change: &ByteChange,
        events: Range<usize>,
    ) -> bool {
        let removed = change.range.len().saturating_sub(change.replacement.len());
        let (before, last) = (events.start.checked_sub(1), events.end.saturating_sub(1));
        if removed == 0 {
            return false;
        }
        let cut_at = |at: usize| {
            sample.write(&self.folder, sample.bytes.get(..at)?);
            let read = self.read().ok()?;
            Some(CutResult::of(&read, checker.prefix(&read), at))
        };
        let mut cuts = cuts.clone();
        for event in before.into_iter().chain([last]) {
            cuts.refine(event, cut_at);
        }
        let Some(extents) = self.extents(sample, checker, &cuts) else { return false };
        // Which bytes are removed is not known if the neighbours of a removed piece are equal.
        let start = extents.end(last).saturating_sub(removed);
        let is_header = || cut_at(start).is_some_and(|cut| !cut.reported && cut.events == 0);
        let is_removed = match before {
            Some(before) => start <= extents.end(before),
            // A header may precede the first event.
            None => start == 0 || is_header(),
        };
        sample.write(&self.folder, &change.apply(sample.bytes));
        is_removed
    }

    fn run_changed(&self, sample: &SampleFile<'_>, change: &ByteChange) -> Vec<Fault> {
        sample.write(&self.folder, &change.apply(sample.bytes));
        match self.read() {
            Ok(read) if read.endless.is_none() => {
                self.subject.by_engine(&self.folder, &read.in_reported_order())
            }
            _ => Vec::new(),
        }
    }
}

/// After the start of most headers.
const HEADER_AT: usize = 24;

/// The first truncations of a file.
fn first_cuts(len: usize) -> Vec<usize> {
    let effort = TrialEffort::from_env();
    if len <= effort.small {
        return (0..len).collect();
    }
    // A truncated file has half the length on average.
    let count = (BUDGET / (len / 2).max(1)).clamp(40, effort.most_cuts);
    let edge = effort.edge.min(count * 8);
    let stride = (len / count).max(1);
    let mut cuts: Vec<usize> = (0..edge).chain((0..len).step_by(stride)).collect();
    cuts.extend(len - edge.min(count)..len);
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// A selection of events: the first ones, which may be of different kinds, the last and some
/// between.
fn some_events(events: usize) -> Vec<usize> {
    const BETWEEN: usize = 10;
    let mut some: Vec<usize> = (0..events).step_by(events.div_ceil(BETWEEN).max(1)).collect();
    some.extend((0..4).chain(events.saturating_sub(2)..events));
    some.retain(|event| *event < events);
    some.sort_unstable();
    some.dedup();
    some
}

/// The truncation results for this file so far, including those of processes that have died.
fn learned_cuts(cases: &Cases, sample: &SampleFile<'_>, events: usize) -> CutResults {
    let mut cuts = CutResults::default();
    let whole = CutResult { events, reported: false, failed: false, ends_damaged: false };
    cuts.add(sample.bytes.len(), whole);
    for learned in cases.learned() {
        let number = |place: usize| learned.get(place).and_then(Value::as_u64).map(|n| n as usize);
        let flag = |place: usize| learned.get(place).and_then(Value::as_bool);
        if let (Some(place), Some(at), Some(events), Some(told)) =
            (number(0), number(1), number(2), flag(3))
            && place == sample.place
        {
            let [failed, ends_damaged] = [4, 5].map(|place| flag(place).unwrap_or(false));
            cuts.add(at, CutResult { events, reported: told, failed, ends_damaged });
        }
    }
    cuts
}
