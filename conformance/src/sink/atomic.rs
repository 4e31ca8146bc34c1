//! Whether outputs are whole or not there at all, whichever step of writing them fails.

use std::sync::Arc;

use sluice_core::output::faults::{FaultInjector, StepFault};

use super::files::Tree;
use super::{Bench, How, unfit};
use crate::Promise;
use crate::events::Events;
use crate::finding::{Fault, Gathered};
use crate::pipe::Failure;

/// How many events are written when something fails, and how long they may be: each is many runs.
const FEW: usize = 20;
const SHORT: usize = 4096;

impl Bench<'_> {
    /// Lets every step of the outputs fail in turn: where nothing was, and where something is replaced, there also
    /// with all steps after it.
    pub(super) fn atomic(&self, found: &mut Gathered) {
        let (few, fewer) = self.few();
        self.reset(&Tree::default());
        let counted = Arc::new(FaultInjector::none());
        let how = How { faults: Some(Arc::clone(&counted)), ..How::usual(&few) };
        if let Err(failure) = self.run(&how) {
            found.add(unfit(&failure), "some of the events");
            return;
        }
        if counted.steps() == 0 {
            let kind = "it writes without the outputs it is given: nothing can be taken back";
            found.add(Fault::new(Promise::Atomic, kind, String::new()), "any run");
            return;
        }
        let alone = |step| FaultInjector::at(step, StepFault::Short);
        self.over(&Tree::default(), &How::usual(&few), &alone, found);
        self.reset(&Tree::default());
        if self.run(&How::usual(&fewer)).is_ok() {
            let before = Tree::of(&self.out());
            let replacing = How::usual(&few).replacing();
            self.over(
                &before,
                &replacing,
                &|step| FaultInjector::at(step, StepFault::Broken),
                found,
            );
            self.over(
                &before,
                &replacing,
                &|step| FaultInjector::since(step, StepFault::Full),
                found,
            );
        }
    }

    /// Some of the events, and some of these.
    fn few(&self) -> (Arc<Events>, Arc<Events>) {
        let few = self.events.few(FEW, SHORT);
        let few = if few.len() == 0 { self.events.slice(0, self.events.len().min(4)) } else { few };
        let fewer = few.slice(0, few.len() / 2);
        (Arc::new(few), Arc::new(fewer))
    }

    /// Lets every step of a run fail that finds this in its folder.
    fn over(
        &self,
        before: &Tree,
        how: &How,
        fails: &dyn Fn(u64) -> FaultInjector,
        found: &mut Gathered,
    ) {
        // Steps are what they are only in this very run: what is replaced takes some of its own.
        for step in 0.. {
            self.reset(before);
            let faults = Arc::new(fails(step));
            let ran = self.run(&How { faults: Some(Arc::clone(&faults)), ..how.clone() });
            let Some(struck) = faults.struck() else { return };
            let what = if before == &Tree::default() { "a new output" } else { "one that exists" };
            let case = format!("step {step} ({struck:?}) of writing {what} failing");
            self.judge(before, ran.map(drop), found, &case);
        }
    }

    fn judge(&self, before: &Tree, ran: Result<(), Failure>, found: &mut Gathered, case: &str) {
        let mut add = |kind: &str, what: String| {
            found.add(Fault::new(Promise::Atomic, kind, what), case);
        };
        match ran {
            Ok(()) => add("the run succeeds although a step of it failed", String::new()),
            Err(Failure::Panic(what)) => found.add(unfit(&Failure::Panic(what)), case),
            Err(Failure::Error(what)) => {
                if !what.contains(&*self.folder.path().to_string_lossy()) {
                    add("the error does not say which file it is about", what);
                }
                if let Some(what) = before.difference(&Tree::of(&self.out())) {
                    add("the run fails, and what was there is not what is there", what);
                }
            }
        }
    }
}
