//! A source whose sample is cut off and changed in every way: what it gives then is judged, and so is that it gives
//! anything.

use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_core::BlockPool;
use sluice_core::contract::trials;

use crate::Promise;
use crate::extents::{Cut, Cuts, Extents};
use crate::finding::Fault;
use crate::hostile::{Change, changes};
use crate::isolation::Cases;
use crate::judge::{Judge, plausible};
use crate::reading::{Bounds, Read, counted, read_all, said};
use crate::reading_trial::{Sample, Subject};

/// How many bytes are read, about, to see what cuts and what changes give.
const BUDGET: usize = 8 << 20;
const LEAST_CHANGES: usize = 64;
/// Every so many changes, the changed sample is read in pieces too.
const PIECES_EVERY: usize = 8;
/// How many changed samples are read by the engine.
const RUNS: usize = 3;

/// How thoroughly samples are damaged.
struct Effort {
    /// Samples up to this length are cut off behind every byte.
    small: usize,
    /// At how many places longer ones are cut off, at most, all over; and how many bytes at each end.
    most_cuts: usize,
    edge: usize,
    most_changes: usize,
}

impl Effort {
    fn asked() -> Self {
        let of = |short, long| trials(short, long) as usize;
        Self {
            small: of(512, 8 << 10),
            most_cuts: of(128, 1_024),
            edge: of(128, 1_024),
            most_changes: of(300, 1_500),
        }
    }
}

/// What to do about a format that cannot give a part of a file.
const DECLARE: &str = "if the format cannot do better, say `whole_or_nothing()`";

/// A source whose sample is damaged.
pub(crate) struct Damaged<'s, 't> {
    pub(crate) subject: &'s Subject<'t>,
    pub(crate) folder: PathBuf,
    pub(crate) sound: Read,
    pub(crate) pool: BlockPool,
}

impl Damaged<'_, '_> {
    /// Tries a file of the sample, cut off and changed.
    pub(crate) fn try_damage(&self, cases: &mut Cases, sample: &Sample<'_>) {
        let mut judge = Judge::new(&self.sound, self.subject.trial.integrity);
        judge.is_single = sample.place == 0 && self.subject.is_single(&self.folder);
        judge.bytes = sample.bytes;
        judge.footer = self.subject.trial.footer;
        judge.is_divisible = judge.is_single && !self.subject.trial.whole_or_nothing;
        judge.header = if sample.place == 0 { self.subject.trial.header } else { 0 };
        judge.is_plain = !sluice_core::files::is_zstd(&sample.path(&self.folder)).unwrap_or(false);
        let cuts = self.try_cuts(cases, sample, &judge);
        self.try_silence(cases, sample, &judge, &cuts);
        self.try_giving_up(cases, sample, &judge, &cuts);
        let extents = judge
            .is_single
            .then(|| cuts.extents(self.sound.events.len(), sample.bytes.len()))
            .flatten()
            .map(|extents| extents.with_header(judge.header));
        judge.extents = extents.as_ref();
        self.try_changes(cases, sample, &judge, extents.as_ref());
        sample.write(&self.folder, sample.bytes);
    }

    fn bounds(&self) -> Bounds {
        Bounds::around(&self.sound, self.subject.len())
    }

    /// Reads the sample as it is now; asks what else there is to say where less was read and nothing told.
    fn read(&self) -> Result<Read, Fault> {
        let source = self.subject.source(&self.folder)?;
        let mut read = read_all(&*source, u64::MAX, &self.pool, self.bounds());
        read.says.retain(|what| !self.sound.says.contains(what));
        if !read.tells() && read.events.len() < self.sound.events.len() {
            read.says = said(&*source);
            read.says.retain(|what| !self.sound.says.contains(what));
        }
        Ok(read)
    }

    /// Tries cuts everywhere, or where they say most.
    fn try_cuts(&self, cases: &mut Cases, sample: &Sample<'_>, judge: &Judge<'_>) -> Cuts {
        let len = sample.bytes.len();
        for at in first_cuts(len) {
            self.try_cut(cases, sample, judge, at);
        }
        let mut cuts = learned(cases, sample, self.sound.events.len());
        if len > Effort::asked().small && judge.is_single {
            self.refine(cases, sample, judge, &mut cuts);
        }
        cuts
    }

    /// Finds where some of the events of a long sample end.
    fn refine(&self, cases: &mut Cases, sample: &Sample<'_>, judge: &Judge<'_>, cuts: &mut Cuts) {
        let events = self.sound.events.len();
        for event in some_events(events) {
            let (mut low, mut high) = cuts.around(event).unwrap_or_default();
            while low + 1 < high {
                let middle = low.midpoint(high);
                self.try_cut(cases, sample, judge, middle);
                *cuts = learned(cases, sample, events);
                let gives = cuts.at(middle).is_some_and(|cut| cut.events > event);
                (low, high) = if gives { (low, middle) } else { (middle, high) };
            }
            for at in (high + 1..high + 6).filter(|at| *at < sample.bytes.len()) {
                self.try_cut(cases, sample, judge, at);
            }
        }
        *cuts = learned(cases, sample, events);
    }

    fn try_cut(&self, cases: &mut Cases, sample: &Sample<'_>, judge: &Judge<'_>, at: usize) {
        let change = Change::cut(at, sample.bytes.len());
        let what = format!("{}: {change}", sample.name);
        cases.case(&what, |cases| {
            sample.write(&self.folder, &change.apply(sample.bytes));
            let read = match self.read() {
                Ok(read) => read,
                Err(fault) => return vec![fault],
            };
            let events = judge.prefix(&read);
            cases.learn(json!([sample.place, at, events, read.tells(), read.error.is_some()]));
            let mut faults = plausible(&read, &self.folder);
            faults.extend(judge.cut(at, &read));
            faults
        });
    }

    /// Whether a cut inside of an event is not told.
    fn try_silence(&self, cases: &mut Cases, sample: &Sample<'_>, judge: &Judge<'_>, cuts: &Cuts) {
        // Of what lies beside the first file, all that is not there may be told event by event.
        if judge.integrity == crate::Integrity::Nothing || !judge.is_single {
            return;
        }
        let Some((at, more)) = cuts.silent(sample.bytes.len()) else { return };
        let change = Change::cut(at, sample.bytes.len());
        cases.case(&format!("{}: {change}", sample.name), |_| {
            sample.write(&self.folder, &change.apply(sample.bytes));
            let what = "a cut inside of an event, or of what stands before it, is not told";
            vec![Fault::new(Promise::Damage, what, format!("nor are {more} others"))]
        });
    }

    /// Whether a cut costs events that lie in front of it.
    fn try_giving_up(
        &self,
        cases: &mut Cases,
        sample: &Sample<'_>,
        judge: &Judge<'_>,
        cuts: &Cuts,
    ) {
        if !judge.is_divisible {
            return;
        }
        let events = self.sound.events.len();
        let given_up = cuts.given_up(judge.header);
        // Of what is packed, nothing may be there before a block is whole.
        let is_all_or_nothing = judge.is_plain && events > 2 && cuts.gives_nothing(events);
        let half = sample.bytes.len() / 2;
        let Some((at, what, detail)) = given_up
            .map(|(at, lost, more)| {
                let detail = format!("{lost} are lost, and some with {more} other cuts");
                (at, "a cut costs events that lie in front of it", detail)
            })
            .or_else(|| {
                let detail = format!("none of {events} is given; {DECLARE}");
                is_all_or_nothing.then_some((half, "a cut file gives nothing at all", detail))
            })
        else {
            return;
        };
        let change = Change::cut(at, sample.bytes.len());
        cases.case(&format!("{}: {change}", sample.name), |_| {
            sample.write(&self.folder, &change.apply(sample.bytes));
            vec![Fault::new(Promise::Damage, what, detail)]
        });
    }

    fn try_changes(
        &self,
        cases: &mut Cases,
        sample: &Sample<'_>,
        judge: &Judge<'_>,
        extents: Option<&Extents>,
    ) {
        let len = sample.bytes.len();
        let files = self.subject.trial.files.len().max(1);
        let most = (BUDGET / len.max(1)).clamp(LEAST_CHANGES, Effort::asked().most_changes) / files;
        let mut places = vec![0, HEADER_AT, len.saturating_sub(64), len.saturating_sub(32)];
        places.extend(extents.map(|extents| extents.some_ends(6)).unwrap_or_default());
        let all = changes(sample.bytes, &places, most, self.subject.trial.seed);
        let run_every = all.len().div_ceil(RUNS);
        for (n, change) in all.iter().enumerate() {
            let what = format!("{}: {change}", sample.name);
            cases.case(&what, |_| self.changed(sample, judge, change, n % PIECES_EVERY == 0));
            if n % run_every == run_every - 1 {
                cases.roomy_case(&what, |_| self.run_changed(sample, change));
            }
        }
    }

    fn changed(
        &self,
        sample: &Sample<'_>,
        judge: &Judge<'_>,
        change: &Change,
        in_pieces: bool,
    ) -> Vec<Fault> {
        sample.write(&self.folder, &change.apply(sample.bytes));
        let read = match self.read() {
            Ok(read) => read,
            Err(fault) => return vec![fault],
        };
        let mut faults = plausible(&read, &self.folder);
        faults.extend(judge.changed(change, &read));
        // What has no end differs by where it was stopped.
        if in_pieces && read.endless.is_none() {
            // What it says of a damaged file may be wrong, but has to be said.
            drop(self.subject.source(&self.folder).map(|source| counted(&*source).is_some()));
            let target = (self.subject.len() as u64 / 50).max(64);
            let targets = [target, target * 9];
            let (folder, bounds) = (&self.folder, self.bounds());
            let other = self.subject.cut_otherwise(folder, &read, bounds, &targets);
            faults.extend(
                other.or_else(|| self.subject.in_turns(folder, &read, bounds, &targets[1..])),
            );
        }
        faults
    }

    fn run_changed(&self, sample: &Sample<'_>, change: &Change) -> Vec<Fault> {
        sample.write(&self.folder, &change.apply(sample.bytes));
        match self.read() {
            Ok(read) if read.endless.is_none() => {
                self.subject.by_engine(&self.folder, &read.in_reported_order())
            }
            _ => Vec::new(),
        }
    }
}

/// Behind what most headers begin with.
const HEADER_AT: usize = 24;

/// Where a file is cut off at first.
fn first_cuts(len: usize) -> Vec<usize> {
    let effort = Effort::asked();
    if len <= effort.small {
        return (0..len).collect();
    }
    // What is cut off anywhere has half of the length.
    let room = (BUDGET / (len / 2).max(1)).clamp(40, effort.most_cuts);
    let edge = effort.edge.min(room * 8);
    let stride = (len / room).max(1);
    let mut cuts: Vec<usize> = (0..edge).chain((0..len).step_by(stride)).collect();
    cuts.extend(len - edge.min(room)..len);
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Some of so many events: the first and last ones, and some between.
fn some_events(events: usize) -> Vec<usize> {
    const BETWEEN: usize = 10;
    let mut some: Vec<usize> = (0..events).step_by(events.div_ceil(BETWEEN).max(1)).collect();
    some.extend((0..2).chain(events.saturating_sub(2)..events));
    some.retain(|event| *event < events);
    some.sort_unstable();
    some.dedup();
    some
}

/// What cutting off this file has given so far, also in processes that are no more.
fn learned(cases: &Cases, sample: &Sample<'_>, events: usize) -> Cuts {
    let mut cuts = Cuts::default();
    cuts.add(sample.bytes.len(), Cut { events, told: false, failed: false });
    for learned in cases.learned() {
        let number = |place: usize| learned.get(place).and_then(Value::as_u64).map(|n| n as usize);
        let told = learned.get(3).and_then(Value::as_bool);
        if let (Some(place), Some(at), Some(events), Some(told)) =
            (number(0), number(1), number(2), told)
            && place == sample.place
        {
            let failed = learned.get(4).and_then(Value::as_bool).unwrap_or(false);
            cuts.add(at, Cut { events, told, failed });
        }
    }
    cuts
}
