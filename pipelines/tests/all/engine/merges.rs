//! Merges of delayed and undelayed streams.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sluice_model::options::ByteSize;
use sluice_model::time::TimeLength;
use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelId, DynSink, Encoding, Error, Fold, Input, LiveBatches,
    LiveSender, Map, Name, Query, ReadContext, Reader, Source, Split, SplitStart, Stage,
    StageContext,
};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Pipeline, PluginInstance, Report};

use crate::engine::kit::{LineSink, MadeUpSource, SECOND, node, with_payloads};

/// Lets some channels pass.
struct OnlyChannels(&'static [&'static str]);

impl Map for OnlyChannels {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let channels = batch.channels();
        let passes = |row: usize| {
            let channel = context.channels.get(ChannelId(channels[row]));
            self.0.contains(&channel.name.text())
        };
        let kept = batch.retain(passes);
        context.report.filtered += (batch.len() - kept.len()) as u64;
        Ok(kept)
    }
}

/// Returns an event once this many others have followed.
struct DelayingFold {
    events: usize,
    held: VecDeque<Batch>,
}

impl DelayingFold {
    fn stage(events: usize) -> Stage {
        Stage::Fold(Box::new(Self { events, held: VecDeque::new() }))
    }

    fn give_all_but(&mut self, events: usize) -> Vec<Batch> {
        let (mut given, mut held) = (Vec::new(), self.held.iter().map(Batch::len).sum::<usize>());
        while held > events
            && let Some(batch) = self.held.pop_front()
        {
            let ready = batch.len().min(held - events);
            given.push(batch.slice(0, ready));
            if ready < batch.len() {
                self.held.push_front(batch.slice(ready, batch.len() - ready));
            }
            held -= ready;
        }
        given
    }
}

impl Fold for DelayingFold {
    fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.held.push_back(batch);
        Ok(self.give_all_but(self.events))
    }

    fn finish(&mut self, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        Ok(self.give_all_but(0))
    }
}

/// Adds to each time.
struct Shift(i64);

impl Map for Shift {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        let shifted = batch.timestamps().iter().map(|time| time + self.0).collect();
        Ok(batch.with_timestamps(shifted))
    }

    fn shift(&self) -> TimeLength {
        TimeLength(self.0)
    }
}

/// Passes events through.
struct UnbufferedFold;

impl Fold for UnbufferedFold {
    fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        Ok(vec![batch])
    }

    fn delays_events(&self) -> bool {
        false
    }
}

/// Live events, of which the second step arrives when something has been seen.
#[derive(Clone)]
struct LiveSource {
    /// The times and channels of the events of each step.
    steps: [&'static [(i64, &'static str)]; 2],
    /// What is still to arrive.
    held: Arc<Mutex<Option<HeldStep>>>,
    has_gone_on: Arc<AtomicBool>,
}

/// A step, and where it is to arrive.
type HeldStep = (LiveSender, Batch);

impl LiveSource {
    fn new(steps: [&'static [(i64, &'static str)]; 2]) -> Self {
        Self { steps, held: Arc::default(), has_gone_on: Arc::default() }
    }

    /// Sends the second step, and ends.
    fn go_on(&self) {
        let held = self.held.lock().unwrap().take();
        self.has_gone_on.store(true, Ordering::Relaxed);
        held.into_iter().for_each(|(sender, batch)| assert!(sender.send(batch)));
    }

    /// Sends the second step once more. Whether it has not gone on yet.
    fn repeat(&self) -> bool {
        let held = self.held.lock().unwrap();
        held.iter().for_each(|(sender, batch)| assert!(sender.send(batch.clone())));
        held.is_some() || !self.has_gone_on.load(Ordering::Relaxed)
    }
}

impl Source for LiveSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        Ok(vec![Split::live("live")])
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        Ok(Box::new(self.listen(split, context)?))
    }

    fn listen(&self, _: &Split, context: &ReadContext) -> Result<LiveBatches, Error> {
        let (sender, batches) = LiveSender::unbounded();
        let mut steps = self.steps.iter().map(|events| {
            let mut batch = BatchBuilder::default();
            for (time, name) in *events {
                let channel = Channel::new(Name::from_text(name), "live", Encoding::Unknown);
                batch.push_copy(*time, 0, context.channels.intern(channel)?, b"");
            }
            Ok::<_, Error>(batch.finish())
        });
        assert!(sender.send(steps.next().unwrap()?));
        *self.held.lock().unwrap() = Some((sender, steps.next().unwrap()?));
        Ok(batches)
    }
}

/// Lets live sources go on behind an event of a channel.
struct WhenSeen(&'static str, [LiveSource; 2]);

impl Map for WhenSeen {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let mut channels = batch.channels().iter().map(|id| context.channels.get(ChannelId(*id)));
        if channels.any(|channel| channel.name.text() == self.0) {
            self.1.iter().for_each(LiveSource::go_on);
        }
        Ok(batch)
    }
}

pub(crate) fn stage(name: &str, from: &[usize], stage: Stage) -> sluice_pipeline::PipelineNode {
    node(name, from, PluginInstance::Stage(stage), None)
}

pub(crate) fn only(channels: &'static [&'static str]) -> Stage {
    Stage::Map(Box::new(OnlyChannels(channels)))
}

/// Events of A go through `fold`, and meet those of B and C again.
fn parted(made: &MadeUpSource, fold: Stage, lines: &LineSink) -> Pipeline {
    let nodes = vec![
        node("made", &[], PluginInstance::Source(Box::new(made.clone())), None),
        stage("fold", &[0], fold),
        stage("keep", &[1], only(&["A"])),
        stage("other", &[0], only(&["B", "C"])),
        stage("both", &[2, 3], Stage::Chain(Vec::new())),
        node("out", &[4], PluginInstance::Sink(DynSink::new(lines.clone())), None),
    ];
    Pipeline { nodes, ..Pipeline::default() }
}

pub(crate) fn ran(
    pipeline: Pipeline,
    lines: &LineSink,
    jobs: usize,
    mib: u64,
) -> (Vec<String>, Report) {
    let memory = Some(ByteSize(mib << 20));
    let report =
        run::run(pipeline, &Options { jobs: Some(jobs), memory, ..Options::default() }).unwrap();
    let lines = lines.lines.lock().unwrap().clone();
    (lines, report)
}

pub(crate) fn times(lines: &[String]) -> Vec<i64> {
    lines.iter().map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect()
}

#[test]
fn what_is_held_back_is_merged_by_time_however_much_is_read_at_once() {
    for split in [1, 2, 7, 30] {
        for (jobs, mib) in [(1, 16), (8, 64), (2, 512)] {
            let made =
                MadeUpSource { seconds: 30, per_second: 90, split, ..MadeUpSource::default() };
            let lines = LineSink::default();
            let (lines, report) =
                ran(parted(&made, DelayingFold::stage(50), &lines), &lines, jobs, mib);
            assert_eq!(lines.len(), 30 * 90);
            assert!(times(&lines).is_sorted(), "{split} seconds a split, {jobs} jobs, {mib} MiB");
            assert!(report.notes.is_empty());
        }
    }
}

#[test]
fn two_branches_of_what_is_held_back_are_merged_by_time() {
    for split in [1, 30] {
        let made = MadeUpSource { seconds: 30, per_second: 90, split, ..MadeUpSource::default() };
        let lines = LineSink::default();
        let mut pipeline = parted(&made, DelayingFold::stage(50), &lines);
        pipeline.nodes[3].from = vec![1];
        let (lines, report) = ran(pipeline, &lines, 2, 64);
        assert_eq!(lines.len(), 30 * 90);
        assert!(times(&lines).is_sorted() && report.notes.is_empty());
    }
}

#[test]
fn a_stage_that_holds_nothing_back_is_merged_by_time() {
    let made = MadeUpSource { seconds: 30, per_second: 90, split: 3, ..MadeUpSource::default() };
    let lines = LineSink::default();
    let fold = Stage::Fold(Box::new(UnbufferedFold));
    let (lines, report) = ran(parted(&made, fold, &lines), &lines, 2, 64);
    assert_eq!(lines.len(), 30 * 90);
    assert!(times(&lines).is_sorted() && report.notes.is_empty());
}

/// Builds its events anew, and drops some.
struct Anew;

impl Map for Anew {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let kept = batch.retain(|row| batch.sequences()[row] % 5 != 0);
        context.report.filtered += (batch.len() - kept.len()) as u64;
        Ok(with_payloads(&kept, |_| "anew".to_owned()))
    }
}

#[test]
fn branches_come_in_the_order_of_their_source_even_if_its_times_step_back() {
    let numbers = |lines: &[String]| -> Vec<i64> {
        lines.iter().map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect()
    };
    for (split, jobs, mib) in [(1, 1, 16), (2, 8, 64), (7, 2, 512), (30, 2, 64)] {
        let made = MadeUpSource {
            seconds: 30,
            per_second: 90,
            split,
            steps_back: true,
            ..MadeUpSource::default()
        };
        for delays in [false, true] {
            let fold = match delays {
                true => DelayingFold::stage(50),
                false => Stage::Fold(Box::new(UnbufferedFold)),
            };
            let lines = LineSink::default();
            let mut pipeline = parted(&made, fold, &lines);
            // Both branches are behind the fold, meet in `both`, part and meet once more.
            pipeline.nodes[3].from = vec![1];
            pipeline.nodes[5].from = vec![6, 7];
            pipeline.nodes.push(stage("half", &[4], only(&["C"])));
            let rest = Stage::Chain(vec![only(&["A", "B"]), Stage::Map(Box::new(Anew))]);
            pipeline.nodes.push(stage("rest", &[4], rest));
            let (lines, report) = ran(pipeline, &lines, jobs, mib);
            let wanted: Vec<i64> = (0..30 * 90).filter(|n| n % 3 == 2 || n % 5 != 0).collect();
            let case = format!("{split} seconds a split, {jobs} jobs, {mib} MiB, {delays}");
            assert!(numbers(&lines) == wanted, "{case}");
            assert!(report.notes.is_empty(), "{case}");
        }
    }
}

/// Adds events of its own before the first batch, without knowing where they came from.
struct AddingFold(Option<usize>);

impl Fold for AddingFold {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let Some(count) = self.0.take() else { return Ok(vec![batch]) };
        let mut added = BatchBuilder::default();
        let channel = ChannelId(batch.channels()[0]);
        (0..count).for_each(|_| added.push_copy(batch.timestamps()[0], -1, channel, b""));
        let added = added.finish();
        context.report.added.extend_from_slice(added.channels());
        Ok(vec![added, batch])
    }

    fn delays_events(&self) -> bool {
        false
    }
}

#[test]
fn events_that_a_stage_adds_move_no_others() {
    for steps_back in [false, true] {
        let made = MadeUpSource { seconds: 3, per_second: 90, steps_back, ..Default::default() };
        // Among them as many as the first batch has.
        for count in [1, 45, 46, 134, 135, 136] {
            let lines = LineSink::default();
            let fold = Stage::Fold(Box::new(AddingFold(Some(count))));
            let mut pipeline = parted(&made, fold, &lines);
            pipeline.nodes[3].from = vec![1];
            pipeline.nodes[2].from = vec![1];
            let (lines, _) = ran(pipeline, &lines, 2, 64);
            let numbers: Vec<i64> =
                lines.iter().map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect();
            let added = numbers.iter().take_while(|number| **number < 0).count();
            assert_eq!(added, count);
            assert!(numbers[count..].iter().copied().eq(0..270), "{count}, {steps_back}");
        }
    }
}

#[test]
fn a_branch_whose_times_are_shifted_is_merged_by_time() {
    let second = 1_000_000_000;
    for shift in [-7 * second, -1, 1, second / 2, 7 * second] {
        for (jobs, mib) in [(1, 16), (8, 64)] {
            let made =
                MadeUpSource { seconds: 30, per_second: 90, split: 1, ..MadeUpSource::default() };
            let lines = LineSink::default();
            let mut pipeline = parted(&made, Stage::Map(Box::new(Shift(shift))), &lines);
            // The merged branches meet the first events in another merge.
            pipeline.nodes[5].from.push(0);
            let (lines, report) = ran(pipeline, &lines, jobs, mib);
            assert_eq!(lines.len(), 2 * 30 * 90);
            assert!(times(&lines).is_sorted(), "{shift}, {jobs} jobs, {mib} MiB");
            assert!(report.notes.is_empty());
        }
    }
}

#[test]
fn late_events_are_noted_and_are_the_same_with_any_number_of_threads() {
    let made =
        MadeUpSource { seconds: 30, per_second: 90, payload: 4096, ..MadeUpSource::default() };
    let told = |jobs| {
        let lines = LineSink::default();
        let (lines, report) =
            ran(parted(&made, DelayingFold::stage(10_000), &lines), &lines, jobs, 16);
        assert_eq!(lines.len(), 30 * 90);
        let [note] = &report.notes[..] else { panic!("{:?}", report.notes) };
        assert!(note.node == "both" && note.what.starts_with("merged out of order"));
        assert!(!times(&lines).is_sorted() && (1..=900).contains(&note.count), "{}", note.count);
        (lines, note.count)
    };
    let expected = told(1);
    assert_eq!(told(8), expected);
}

#[test]
fn merges_behind_merges_of_two_sources_are_in_order() {
    let made = |seconds, split| {
        let made = MadeUpSource {
            seconds,
            per_second: 90,
            payload: 512,
            split,
            ..MadeUpSource::default()
        };
        PluginInstance::Source(Box::new(made))
    };
    for (jobs, mib) in [(1, 16), (8, 128)] {
        let lines = LineSink::default();
        let nodes = vec![
            node("one", &[], made(30, 1), None),
            node("two", &[], made(20, 5), None),
            stage("fold", &[0, 1], DelayingFold::stage(50)),
            stage("keep", &[2], only(&["A"])),
            stage("other", &[0], only(&["B"])),
            stage("all", &[3, 4, 1], Stage::Chain(Vec::new())),
            node("out", &[5], PluginInstance::Sink(DynSink::new(lines.clone())), None),
        ];
        let (lines, report) = ran(Pipeline { nodes, ..Pipeline::default() }, &lines, jobs, mib);
        assert_eq!(lines.len(), 30 * 60 + 20 * 120);
        assert!(times(&lines).is_sorted() && report.notes.is_empty(), "{jobs} jobs, {mib} MiB");
    }
}

/// The events that come out of a merge of two live sources, in whose first one B is shifted. Both
/// go on behind an event of `seen`.
fn merged_live(sources: [LiveSource; 2], shift: i64, seen: &'static str) -> Vec<String> {
    let lines = LineSink::default();
    let [live, other] = sources.clone().map(|source| PluginInstance::Source(Box::new(source)));
    let shifted = Stage::Chain(vec![only(&["B"]), Stage::Map(Box::new(Shift(shift)))]);
    let nodes = vec![
        node("live", &[], live, None),
        node("other", &[], other, None),
        stage("keep", &[0], only(&["A"])),
        stage("shifted", &[0], shifted),
        stage("all", &[2, 3, 1], Stage::Map(Box::new(WhenSeen(seen, sources)))),
        node("out", &[4], PluginInstance::Sink(DynSink::new(lines.clone())), None),
    ];
    let (lines, _) = ran(Pipeline { nodes, ..Pipeline::default() }, &lines, 2, 64);
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn shifted_branches_of_a_live_source_are_in_order_behind_a_silence() {
    let live = LiveSource::new([&[(0, "B"), (10, "A")], &[(20, "A")]]);
    // C is merged when the first source has been silent for long.
    let other = LiveSource::new([&[(15, "C")], &[]]);
    let mut merged = merged_live([live, other], 3600 * SECOND, "C");
    merged.retain(|line| !line.starts_with('C'));
    assert_eq!(merged, ["A 0 10", "A 0 20", "B 0 3600000000000"]);
}

#[test]
fn shifted_branches_of_a_live_source_come_out_once_nothing_can_precede_them() {
    let live = LiveSource::new([&[(0, "B"), (10, "A")], &[(SECOND, "A")]]);
    let other = LiveSource::new([&[], &[]]);
    let merged = merged_live([live, other], SECOND / 10, "B");
    assert_eq!(merged, ["A 0 10", "B 0 100000000", "A 0 1000000000"]);
}

/// Lets a live source go on, and ends another one when that has been silent for long.
struct Slow(LiveSource, LiveSource);

impl Map for Slow {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        self.0.go_on();
        thread::sleep(Duration::from_millis(300));
        self.1.go_on();
        Ok(batch)
    }
}

#[test]
fn a_live_source_is_not_silent_while_others_keep_it_waiting() {
    let live = LiveSource::new([&[(0, "B"), (10, "A")], &[(20_000_000, "A")]]);
    let other = LiveSource::new([&[(15, "C")], &[]]);
    let shifted = Stage::Chain(vec![only(&["B"]), Stage::Map(Box::new(Shift(SECOND / 20)))]);
    let slow = Stage::Map(Box::new(Slow(live.clone(), other.clone())));
    let lines = LineSink::default();
    let nodes = vec![
        node("live", &[], PluginInstance::Source(Box::new(live)), None),
        node("other", &[], PluginInstance::Source(Box::new(other)), None),
        stage("keep", &[0], only(&["A"])),
        stage("shifted", &[0], shifted),
        node("out", &[2, 3], PluginInstance::Sink(DynSink::new(lines.clone())), None),
        stage("slow", &[1], slow),
        node("rest", &[5], PluginInstance::Sink(DynSink::new(LineSink::default())), None),
    ];
    let (lines, _) = ran(Pipeline { nodes, ..Pipeline::default() }, &lines, 2, 64);
    let merged: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    assert_eq!(merged, ["A 0 10", "A 0 20000000", "B 0 50000000"]);
}

#[test]
fn shifted_events_come_while_the_source_has_events_for_others() {
    let live = LiveSource::new([&[(0, "B"), (1, "X")], &[(2, "X")]]);
    let shifted = Stage::Chain(vec![only(&["B"]), Stage::Map(Box::new(Shift(SECOND / 20)))]);
    let seen = Stage::Map(Box::new(WhenSeen("B", [live.clone(), LiveSource::new([&[], &[]])])));
    let lines = LineSink::default();
    let nodes = vec![
        node("live", &[], PluginInstance::Source(Box::new(live.clone())), None),
        stage("keep", &[0], only(&["A"])),
        stage("shifted", &[0], shifted),
        stage("all", &[1, 2], seen),
        node("out", &[3], PluginInstance::Sink(DynSink::new(lines.clone())), None),
        stage("others", &[0], only(&["X"])),
        node("rest", &[5], PluginInstance::Sink(DynSink::new(LineSink::default())), None),
    ];
    let (lines, _) = thread::scope(|scope| {
        scope.spawn(|| {
            while live.repeat() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        ran(Pipeline { nodes, ..Pipeline::default() }, &lines, 2, 64)
    });
    assert_eq!(lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>(), ["B 0 50000000"]);
}

/// Lets the second step of a live source arrive again before the last one has been merged, until
/// it goes on by itself or a time that no run takes is over.
struct Endless(LiveSource, Instant, Arc<AtomicBool>);

impl Map for Endless {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        if self.1.elapsed() < Duration::from_secs(20) {
            self.0.repeat();
        } else {
            self.2.store(true, Ordering::Relaxed);
            self.0.go_on();
        }
        Ok(batch)
    }
}

/// The events that come out of a merge of A and a shifted B of one live source, and of another one,
/// while there is always more of the first source for another sink. Both end behind an event of
/// `seen`; `None` if none comes before.
fn merged_endless(sources: [LiveSource; 2], shift: i64, seen: &'static str) -> Option<Vec<String>> {
    let [live, other] = sources.clone().map(|source| PluginInstance::Source(Box::new(source)));
    let shifted = Stage::Chain(vec![only(&["B"]), Stage::Map(Box::new(Shift(shift)))]);
    let is_given_up = Arc::<AtomicBool>::default();
    let endless = Endless(sources[0].clone(), Instant::now(), Arc::clone(&is_given_up));
    let lines = LineSink::default();
    let nodes = vec![
        node("live", &[], live, None),
        node("other", &[], other, None),
        stage("keep", &[0], only(&["A"])),
        stage("shifted", &[0], shifted),
        stage("all", &[1, 2, 3], Stage::Map(Box::new(WhenSeen(seen, sources)))),
        node("out", &[4], PluginInstance::Sink(DynSink::new(lines.clone())), None),
        stage("endless", &[0], Stage::Map(Box::new(endless))),
        node("rest", &[6], PluginInstance::Sink(DynSink::new(LineSink::default())), None),
    ];
    let (lines, _) = ran(Pipeline { nodes, ..Pipeline::default() }, &lines, 2, 64);
    let lines = lines.iter().map(|line| line.trim_end().to_owned()).collect();
    (!is_given_up.load(Ordering::Relaxed)).then_some(lines)
}

#[test]
fn shifted_events_come_while_there_is_always_more_for_others() {
    let live = LiveSource::new([&[(0, "B"), (1, "X")], &[(2, "X")]]);
    let other = LiveSource::new([&[], &[]]);
    let merged = merged_endless([live, other], SECOND / 20, "B");
    assert_eq!(merged.unwrap(), ["B 0 50000000"]);
}

#[test]
fn a_silent_branch_keeps_no_other_source_waiting_while_there_is_always_more_for_others() {
    let live = LiveSource::new([&[(0, "X")], &[(2, "X")]]);
    let other = LiveSource::new([&[(15, "C")], &[]]);
    assert_eq!(merged_endless([live, other], 0, "C").unwrap(), ["C 0 15"]);
}
