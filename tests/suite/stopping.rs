//! A run that is asked to end early publishes the beginning of what it would have written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_core::{
    BatchBuilder, Channel, Encoding, Entry, Error, ErrorKind, Input, Name, Overwrite, Query,
    ReadContext, Reader, Source, Split,
};
use sluice_pipeline::Part;
use sluice_pipeline::run::{self, Options, Progress, Snapshot, Stop};

use crate::kit::{COPY, Folder, SMALL_MEMORY, drive, log, pipeline};

/// Asks the run to end after so many steps.
struct Impatient {
    steps: AtomicU64,
    /// After how many steps it is asked, and how often.
    asks: BTreeMap<u64, u32>,
    stop: Arc<Stop>,
}

impl Progress for Impatient {
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
) -> Result<sluice_pipeline::Report, sluice_core::Error> {
    let stop = Arc::<Stop>::default();
    let asks = asks.iter().copied().collect();
    let impatient = Impatient { steps: AtomicU64::new(0), asks, stop: Arc::clone(&stop) };
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
fn what_is_published_is_the_beginning_of_the_whole() {
    let (folder, whole) = (Folder::new(), log(&drive(1, 3_000)));
    folder.write("in.lcm", &whole);
    for (step, jobs) in [(1, 1), (1, 4), (3, 2), (5, 8)] {
        let report = run_until(COPY, &folder, jobs, &[(step, 1)]).unwrap();
        let written = folder.read("out.lcm");
        assert!(whole.starts_with(&written), "after {step} steps with {jobs} jobs");
        assert!(report.interrupted && report.exit() == 3);
        let events = crate::kit::events(&written).len() as u64;
        assert_eq!(report.sinks["out"].events, events);
        crate::shape::Shape::of(&report).check();
    }
}

#[test]
fn no_file_is_left_out_between_two_that_are_not() {
    let folder = Folder::new();
    let logs: Vec<Vec<u8>> = (0..40).map(|seed| log(&drive(seed, 150))).collect();
    for (n, bytes) in logs.iter().enumerate() {
        folder.write(&format!("{n:02}.lcm"), bytes);
    }
    let (text, whole) = (COPY.replace("in.lcm", "[0-9]*.lcm"), logs.concat());
    for jobs in [1, 2, 4, 8] {
        for step in 1..6 {
            run_until(&text, &folder, jobs, &[(step, 1)]).unwrap();
            let written = folder.read("out.lcm");
            assert!(whole.starts_with(&written), "after {step} steps with {jobs} jobs");
        }
    }
}

/// Its first split is not read to its end before the run is asked to end; its second one asks for it.
struct Halting {
    stop: Arc<Stop>,
    begun: Arc<AtomicU64>,
}

impl Source for Halting {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        Ok(["first", "second"].map(|name| Split::whole(name, Some(1))).into())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: Entry,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let context = context.clone();
        let channel = Channel::new(Name::from_text("C"), "test", Encoding::Unknown);
        let channel = context.channels.intern(channel)?;
        let first = split.input.ends_with("first");
        let mut given = false;
        self.begun.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(std::iter::from_fn(move || {
            if first {
                // As a reader does that looks whether the run is to end.
                while !context.is_cancelled() {
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

#[test]
fn what_follows_something_unfinished_is_not_published() {
    let folder = Folder::new();
    folder.write("in.lcm", "");
    let stop = Arc::<Stop>::default();
    let mut pipeline = pipeline(COPY, folder.path());
    let source = Halting { stop: Arc::clone(&stop), begun: Arc::default() };
    pipeline.nodes[0].part = Part::Source(Box::new(source));
    let options = Options { jobs: Some(2), memory: Some(SMALL_MEMORY), stop, ..Options::default() };
    let report = run::run(pipeline, &options).unwrap();
    assert!(report.interrupted);
    assert_eq!(folder.read("out.lcm"), b"");
}

#[test]
fn being_asked_twice_aborts_and_publishes_nothing() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 3_000)));
    let error = run_until(COPY, &folder, 2, &[(2, 2)]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Aborted), "{error}");
    assert_eq!(folder.names(), ["in.lcm"]);
}
