//! A stopped run publishes nothing if all its inputs can be read again, and otherwise the start of
//! what it would have written.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Scope;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use sluice_model::{
    BatchBuilder, Channel, Encoding, Error, ErrorKind, Input, Name, Overwrite, Query, ReadContext,
    Reader, Registry, Source, Split, SplitStart,
};
use sluice_pipeline::batch::{Batch, BatchReport, FailurePolicy, Status};
use sluice_pipeline::run::{self, Options, Progress, Snapshot, Stop};
use sluice_pipeline::{PluginInstance, Report};

use crate::batch::tree;
use crate::kit::{COPY, Folder, SMALL_MEMORY, drive, log, pipeline};

/// Stops the run after some number of steps.
struct StopAfterSteps {
    steps: AtomicU64,
    /// How often to request the stop, by step.
    asks: BTreeMap<u64, u32>,
    stop: Arc<Stop>,
}

impl Progress for StopAfterSteps {
    fn update(&self, _: &Snapshot) {
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        for _ in 0..self.asks.get(&step).copied().unwrap_or(0) {
            self.stop.request();
        }
    }
}

fn run_until(
    text: &str,
    folder: &Folder,
    jobs: usize,
    asks: &[(u64, u32)],
) -> Result<Report, Error> {
    let stop = Arc::<Stop>::default();
    let asks = asks.iter().copied().collect();
    let impatient = StopAfterSteps { steps: AtomicU64::new(0), asks, stop: Arc::clone(&stop) };
    let options = Options {
        jobs: Some(jobs),
        memory: Some(SMALL_MEMORY),
        overwrite: Overwrite::Replace,
        hash: false,
        stop,
        progress: Some(Arc::new(impatient)),
        ..Options::default()
    };
    run::run(pipeline(text, folder.path()), &options)
}

#[test]
fn runs_whose_inputs_can_be_read_again_publish_nothing_if_stopped() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 3_000)));
    folder.write("out.lcm", "what was there before");
    for (step, jobs) in [(1, 1), (1, 4), (3, 2), (5, 8)] {
        let error = run_until(COPY, &folder, jobs, &[(step, 1)]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Interrupted), "{error}");
        assert_eq!(folder.names(), ["in.lcm", "out.lcm"], "after {step} steps with {jobs} jobs");
        assert_eq!(folder.read("out.lcm"), b"what was there before");
    }
}

/// Writes this to a pipe `in.lcm` on a thread, as far as it is read.
fn feed<'s>(scope: &'s Scope<'s, '_>, folder: &Folder, bytes: &'s [u8]) {
    let path = folder.at("in.lcm");
    drop(fs::remove_file(&path));
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    scope.spawn(move || {
        let mut pipe = fs::OpenOptions::new().write(true).open(path).unwrap();
        // A stopped run no longer reads.
        let _closed = pipe.write_all(bytes);
    });
}

#[test]
fn the_events_of_a_pipe_are_published_and_are_the_start_of_the_whole() {
    let (folder, whole) = (Folder::new(), log(&drive(1, 3_000)));
    for (step, jobs) in [(1, 1), (1, 4), (3, 2), (5, 8)] {
        let report = std::thread::scope(|scope| {
            feed(scope, &folder, &whole);
            run_until(COPY, &folder, jobs, &[(step, 1)]).unwrap()
        });
        let written = folder.read("out.lcm");
        assert!(whole.starts_with(&written), "after {step} steps with {jobs} jobs");
        assert!(report.interrupted && report.exit() == 3);
        let events = crate::kit::events(&written).len() as u64;
        assert_eq!(report.sinks["out"].events, events);
        crate::report_shape::ReportShape::from_report(&report).check();
    }
}

#[test]
fn no_file_is_left_out_between_two_that_are_not() {
    let folder = Folder::new();
    let logs: Vec<Vec<u8>> = (0..40).map(|seed| log(&drive(seed, 150))).collect();
    for (n, bytes) in logs.iter().enumerate() {
        folder.write(&format!("{n:02}.lcm"), bytes);
    }
    // A pipe after them all: it cannot be read again.
    mknodat(CWD, folder.at("99.lcm"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (text, whole) = (COPY.replace("in.lcm", "[0-9]*.lcm"), logs.concat());
    for jobs in [1, 2, 4, 8] {
        for step in 1..6 {
            run_until(&text, &folder, jobs, &[(step, 1)]).unwrap();
            let written = folder.read("out.lcm");
            assert!(whole.starts_with(&written), "after {step} steps with {jobs} jobs");
        }
    }
}

const BATCH: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "${DIR}/in/*.lcm"
[sinks.packed]
plugin = "lcm-log"
from = "log"
path = "${DIR}/out/{stem}.lcm"
[sinks.lines]
plugin = "jsonl"
from = "log"
path = "${DIR}/out/lines/{stem}.jsonl"
"#;

/// Runs the batch and stops it after this many steps, or never for 0.
fn batch_until(
    folder: &Folder,
    step: u64,
    (overwrite, failing, jobs): (Overwrite, FailurePolicy, usize),
) -> BatchReport {
    let stop = Arc::<Stop>::default();
    let asks = BTreeMap::from([(step, 1)]);
    let impatient = StopAfterSteps { steps: AtomicU64::new(0), asks, stop: Arc::clone(&stop) };
    let options = Options {
        jobs: Some(jobs),
        memory: Some(SMALL_MEMORY),
        overwrite,
        stop,
        progress: Some(Arc::new(impatient)),
        ..Options::default()
    };
    let registry = Registry::linked();
    let batch = Batch::new(&pipeline(BATCH, folder.path()), &registry, failing).unwrap();
    batch.run(&registry, &options).unwrap()
}

#[test]
fn units_that_are_not_whole_are_given_up_and_resuming_gives_the_whole_batch() {
    const UNITS: usize = 5;
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for n in 0..UNITS {
        folder.write(&format!("in/{n}.lcm"), log(&drive(n as u64, 600)));
    }
    let how = (Overwrite::Refuse, FailurePolicy::Stop, 1);
    assert_eq!(batch_until(&folder, 0, how).exit(), 0);
    let expected = tree(&folder.at("out"));
    let mut was_given_up = 0;
    for (step, failing, jobs) in [
        (1, FailurePolicy::Stop, 1),
        (2, FailurePolicy::Continue, 1),
        (4, FailurePolicy::Stop, 2),
        (7, FailurePolicy::Continue, 4),
    ] {
        fs::remove_dir_all(folder.at("out")).unwrap();
        let report = batch_until(&folder, step, (Overwrite::Refuse, failing, jobs));
        let done = report.count(Status::Done);
        let left = report.count(Status::Interrupted) + report.count(Status::NotStarted);
        assert_eq!((done + left, report.exit()), (UNITS, 130), "{:?}", report.units);
        was_given_up += report.count(Status::Interrupted);
        let json = report.to_json();
        assert_eq!((&json["interrupted"], &json["exit"]), (&true.into(), &130.into()));
        // The outputs are those of the whole batch, and belong to finished units.
        let is_there = folder.at("out").exists();
        let written = if is_there { tree(&folder.at("out")) } else { BTreeMap::new() };
        let outputs = written.iter().filter(|(name, _)| !name.ends_with("_manifest.json"));
        let outputs: Vec<_> = outputs.collect();
        assert!(outputs.iter().all(|(name, bytes)| expected.get(*name) == Some(*bytes)));
        assert_eq!(outputs.len(), done * 2);
        let report = batch_until(&folder, 0, (Overwrite::Redo, failing, jobs));
        assert_eq!((report.count(Status::Skipped), report.exit()), (done, 0));
        assert!(tree(&folder.at("out")) == expected, "after {step} steps with {jobs} jobs");
    }
    assert!(was_given_up > 0);
}

/// A source whose first split is not finished when the run is stopped; its second split requests
/// the stop.
struct StoppingSource {
    stop: Arc<Stop>,
    begun: Arc<AtomicU64>,
}

impl Source for StoppingSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let files = ["first", "second"].map(|name| Split::whole(name, Some(1)));
        // Without it, everything could be read again and would be discarded.
        Ok(files.into_iter().chain([Split::whole("pipe", None)]).collect())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let context = context.clone();
        let channel = Channel::new(Name::from_text("C"), "test", Encoding::Unknown);
        let channel = context.channels.intern(channel)?;
        let first = split.input.ends_with("first");
        let mut given = false;
        if split.input.ends_with("pipe") {
            return Ok(Box::new(std::iter::empty()));
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(std::iter::from_fn(move || {
            if first {
                // As a reader that checks for cancellation.
                while !context.run.is_cancelled() {
                    std::thread::yield_now();
                }
                return None;
            }
            while self.begun.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            if !self.stop.is_requested() {
                self.stop.request();
            }
            let mut batch = BatchBuilder::default();
            batch.push_copy(0, 1, channel, b"second");
            (!std::mem::replace(&mut given, true)).then(|| Ok(batch.finish()))
        })))
    }
}

/// Runs a pipeline with this source in place of its first node, which stops it.
fn run_stopped(
    text: &str,
    folder: &Folder,
    source: impl Source + 'static,
    stop: Arc<Stop>,
) -> Report {
    let mut pipeline = pipeline(text, folder.path());
    pipeline.nodes[0].instance = PluginInstance::Source(Box::new(source));
    let options = Options { jobs: Some(2), memory: Some(SMALL_MEMORY), stop, ..Options::default() };
    let report = run::run(pipeline, &options).unwrap();
    assert!(report.interrupted);
    report
}

#[test]
fn events_after_an_unfinished_split_are_not_published() {
    let folder = Folder::new();
    folder.write("in.lcm", "");
    let stop = Arc::<Stop>::default();
    let source = StoppingSource { stop: Arc::clone(&stop), begun: Arc::default() };
    run_stopped(COPY, &folder, source, stop);
    assert_eq!(folder.read("out.lcm"), b"");
}

/// A source without an end, whose reader never checks for cancellation. It requests the stop with
/// its first batch and counts the payload bytes it gives.
struct EndlessSource {
    stop: Arc<Stop>,
    given: Arc<AtomicU64>,
}

impl Source for EndlessSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        Ok(vec![Split::whole("endless", None)])
    }

    fn read<'s>(
        &'s self,
        _: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let channel = Channel::new(Name::from_text("C"), "test", Encoding::Unknown);
        let channel = context.channels.intern(channel)?;
        let payload = vec![0; 1 << 20];
        Ok(Box::new(std::iter::from_fn(move || {
            if !self.stop.is_requested() {
                self.stop.request();
            }
            let mut batch = BatchBuilder::default();
            batch.push_copy(0, 1, channel, &payload);
            self.given.fetch_add(payload.len() as u64, Ordering::Relaxed);
            Some(Ok(batch.finish()))
        })))
    }
}

#[test]
fn a_reader_without_an_end_is_left_after_a_stop_request() {
    let folder = Folder::new();
    folder.write("in.lcm", "");
    let (stop, given) = (Arc::<Stop>::default(), Arc::<AtomicU64>::default());
    let (source, _) = COPY.split_once("[sinks").unwrap();
    let text = format!("{source}[sinks.out]\nplugin = \"null\"\nfrom = \"log\"\n");
    let source = EndlessSource { stop: Arc::clone(&stop), given: Arc::clone(&given) };
    let report = run_stopped(&text, &folder, source, stop);
    let given = given.load(Ordering::Relaxed);
    assert!(given < 100 << 20, "{given} bytes");
    assert_eq!(report.sinks["out"].events, given >> 20);
}

#[test]
fn being_asked_twice_aborts_and_publishes_nothing() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 3_000)));
    let error = run_until(COPY, &folder, 2, &[(2, 2)]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Aborted), "{error}");
    assert_eq!(folder.names(), ["in.lcm"]);
}
