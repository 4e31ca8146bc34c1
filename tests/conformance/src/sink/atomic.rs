//! Checks that outputs are complete or absent, whichever step of writing them fails.

use std::sync::Arc;

use sluice_io::output::{faults::FaultInjector, faults::StepFault};

use super::files::DirSnapshot;
use super::{SinkBench, SinkRun, run_fault};
use crate::Promise;
use crate::events::Events;
use crate::finding::{Fault, FindingSet};
use crate::pipe::RunFailure;

/// The number and maximum length of events for failing runs, of which there are many.
const FEW: usize = 20;
const SHORT: usize = 4096;

impl SinkBench<'_> {
    /// Makes every step of the outputs fail in turn: for a new output, and for one that is
    /// replaced, there also with all later steps.
    pub(super) fn atomic(&self, found: &mut FindingSet) {
        let (few, fewer) = self.few();
        self.reset(&DirSnapshot::default());
        let counted = Arc::new(FaultInjector::none());
        let how = SinkRun { faults: Some(Arc::clone(&counted)), ..SinkRun::standard(&few) };
        if let Err(failure) = self.run(&how) {
            found.add(run_fault(&failure), "some of the events");
            return;
        }
        if counted.steps() == 0 {
            let kind = "it writes without its `Outputs`: nothing can be rolled back";
            found.add(Fault::new(Promise::Atomic, kind, String::new()), "any run");
            return;
        }
        let alone = |step| FaultInjector::at(step, StepFault::Short);
        self.fail_each_step(&DirSnapshot::default(), &SinkRun::standard(&few), &alone, found);
        self.reset(&DirSnapshot::default());
        if self.run(&SinkRun::standard(&fewer)).is_ok() {
            let before = DirSnapshot::read(&self.out());
            let replacing = SinkRun::standard(&few).replacing();
            self.fail_each_step(
                &before,
                &replacing,
                &|step| FaultInjector::at(step, StepFault::Broken),
                found,
            );
            self.fail_each_step(
                &before,
                &replacing,
                &|step| FaultInjector::since(step, StepFault::Full),
                found,
            );
        }
    }

    /// A few events, and a part of these.
    fn few(&self) -> (Arc<Events>, Arc<Events>) {
        let few = self.events.few(FEW, SHORT);
        let few = if few.len() == 0 { self.events.slice(0, self.events.len().min(4)) } else { few };
        let fewer = few.slice(0, few.len() / 2);
        (Arc::new(few), Arc::new(fewer))
    }

    /// Makes every step of a run fail that starts with this folder content.
    fn fail_each_step(
        &self,
        before: &DirSnapshot,
        how: &SinkRun,
        fails: &dyn Fn(u64) -> FaultInjector,
        found: &mut FindingSet,
    ) {
        // The steps are specific to this run: replacing takes additional ones.
        for step in 0.. {
            self.reset(before);
            let faults = Arc::new(fails(step));
            let ran = self.run(&SinkRun { faults: Some(Arc::clone(&faults)), ..how.clone() });
            let Some(failed_step) = faults.failed_step() else { return };
            let what =
                if before == &DirSnapshot::default() { "a new output" } else { "one that exists" };
            let case = format!("step {step} ({failed_step:?}) of writing {what} failing");
            self.check_atomic(before, ran.map(drop), found, &case);
        }
    }

    fn check_atomic(
        &self,
        before: &DirSnapshot,
        ran: Result<(), RunFailure>,
        found: &mut FindingSet,
        case: &str,
    ) {
        let mut add = |kind: &str, what: String| {
            found.add(Fault::new(Promise::Atomic, kind, what), case);
        };
        match ran {
            Ok(()) => add("the run succeeds although a step of it failed", String::new()),
            Err(RunFailure::Panic(what)) => found.add(run_fault(&RunFailure::Panic(what)), case),
            Err(RunFailure::Error(what)) => {
                if !what.contains(&*self.folder.path().to_string_lossy()) {
                    add("the error does not name its file", what);
                }
                if let Some(what) = before.difference(&DirSnapshot::read(&self.out())) {
                    add("the run fails, and the previous output is not intact", what);
                }
            }
        }
    }
}
