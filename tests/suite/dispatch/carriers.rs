//! Carriers in place of a cluster: threads of this process that run orders, with every kind of
//! failure.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sluice_model::{Error, Registry};
use sluice_pipeline::dispatch::{ATTEMPTS, Carrier, OrderOutcome, UnitOrder};
use sluice_pipeline::run::{Options, Stop};

use crate::kit::SeededRng;

/// What happens to an order on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitFate {
    /// It runs.
    Run,
    /// It is lost the first time.
    Lost,
    /// Two workers run it at the same time.
    Twice,
    /// A worker runs it after the end of the run; the first time, it counts as lost.
    Late,
    /// Its worker panics after running it.
    Panics,
    /// Its worker dies before running it, and it is not retried.
    Dies,
}

const RANDOM_FATES: [UnitFate; 8] = [
    UnitFate::Run,
    UnitFate::Run,
    UnitFate::Run,
    UnitFate::Lost,
    UnitFate::Twice,
    UnitFate::Late,
    UnitFate::Panics,
    UnitFate::Run,
];

/// Threads that run orders.
pub(super) struct ThreadCarrier {
    fates: Mutex<FatePlan>,
    /// The options of the workers.
    pub(super) options: Options,
    /// The plugins of the workers, which may be of another build.
    pub(super) registry: fn() -> Registry,
    /// The number of orders started but not delivered.
    pub(super) again: AtomicUsize,
    pub(super) rounds: AtomicUsize,
    late: Mutex<Vec<UnitOrder>>,
}

enum FatePlan {
    Random(SeededRng),
    /// By unit: the fates of consecutive attempts.
    Set(BTreeMap<usize, Vec<UnitFate>>),
}

impl ThreadCarrier {
    /// No failures.
    pub(super) fn reliable() -> Self {
        Self::with(FatePlan::Set(BTreeMap::new()))
    }

    /// Random failures.
    pub(super) fn random(seed: u64) -> Self {
        Self::with(FatePlan::Random(SeededRng(seed)))
    }

    /// These fates, by unit; other units run.
    pub(super) fn with_fates(fates: &[(usize, &[UnitFate])]) -> Self {
        let fates = fates.iter().map(|(unit, fates)| (*unit, fates.to_vec()));
        Self::with(FatePlan::Set(fates.collect()))
    }

    fn with(fates: FatePlan) -> Self {
        Self {
            fates: Mutex::new(fates),
            options: Options { jobs: Some(1), ..Options::default() },
            registry: Registry::linked,
            again: AtomicUsize::new(0),
            rounds: AtomicUsize::new(0),
            late: Mutex::default(),
        }
    }

    /// Runs the late orders, after the end of the run, and returns the results.
    pub(super) fn run_late(&self) -> Vec<OrderOutcome> {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        late.iter()
            .map(|order| order.execute(&Registry::linked(), &self.options).unwrap())
            .collect()
    }

    fn fate(&self, unit: usize) -> UnitFate {
        match &mut *self.fates.lock().unwrap() {
            // The last attempt always succeeds.
            FatePlan::Random(_) if self.rounds.load(Ordering::Relaxed) >= ATTEMPTS => UnitFate::Run,
            FatePlan::Random(rng) => RANDOM_FATES[rng.below(RANDOM_FATES.len() as u64) as usize],
            FatePlan::Set(fates) => match fates.get_mut(&unit) {
                Some(fates) if !fates.is_empty() => fates.remove(0),
                _ => UnitFate::Run,
            },
        }
    }

    /// The orders as workers get them: serialized, in any order, some twice.
    fn dealt(&self, orders: &[UnitOrder]) -> Vec<(UnitOrder, UnitFate)> {
        let mut dealt: Vec<(UnitOrder, UnitFate)> = Vec::new();
        for order in orders {
            let fate = self.fate(order.unit());
            let (shared, own) = order.to_json_parts().unwrap();
            let sent = || UnitOrder::from_json_parts(&shared, &own).unwrap();
            match fate {
                UnitFate::Lost => {}
                UnitFate::Late => self.late.lock().unwrap().push(sent()),
                UnitFate::Twice => dealt.extend([(sent(), fate), (sent(), fate)]),
                _ => dealt.push((sent(), fate)),
            }
        }
        if let FatePlan::Random(rng) = &mut *self.fates.lock().unwrap() {
            for n in (1..dealt.len()).rev() {
                dealt.swap(n, rng.below(n as u64 + 1) as usize);
            }
        }
        dealt
    }

    fn work(&self, order: &UnitOrder, fate: UnitFate) {
        if fate == UnitFate::Dies {
            return order.give_up("its process died").unwrap();
        }
        let registry = (self.registry)();
        loop {
            match order.execute(&registry, &self.options).unwrap() {
                OrderOutcome::Retry(_) if order.attempts().unwrap() < ATTEMPTS => {
                    self.again.fetch_add(1, Ordering::Relaxed);
                }
                OrderOutcome::Retry(why) => return order.give_up(&why).unwrap(),
                OrderOutcome::Delivered | OrderOutcome::Abandoned(_) => break,
            }
        }
        assert_ne!(fate, UnitFate::Panics, "a worker panics on purpose");
    }
}

impl Carrier for ThreadCarrier {
    fn carry(
        &self,
        orders: &[UnitOrder],
        stop: &Stop,
        _: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error> {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        let dealt = Mutex::new(self.dealt(orders));
        let next = || dealt.lock().unwrap().pop().filter(|_| !stop.is_requested());
        let work = || {
            while let Some((order, fate)) = next() {
                self.work(&order, fate);
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                // Other workers take over the orders of a worker that panicked.
                if worker.join().is_err() {
                    work();
                }
            }
        });
        Ok(())
    }
}

/// Reaches no worker.
pub(super) struct IdleCarrier;

impl Carrier for IdleCarrier {
    fn carry(&self, _: &[UnitOrder], _: &Stop, _: &(dyn Fn(&str) + Sync)) -> Result<(), Error> {
        Err(Error::refused("cannot reach anybody"))
    }
}

/// Fails after each order that it has run.
pub(super) struct FailingCarrier;

impl Carrier for FailingCarrier {
    fn carry(
        &self,
        orders: &[UnitOrder],
        _: &Stop,
        _: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error> {
        orders[0].execute(&Registry::linked(), &Options::default())?;
        Err(Error::refused("no space left on its disk"))
    }
}

/// Runs some orders; then the user stops the run.
pub(super) struct InterruptingCarrier {
    pub(super) after: usize,
    pub(super) stop: Arc<Stop>,
}

impl Carrier for InterruptingCarrier {
    fn carry(
        &self,
        orders: &[UnitOrder],
        _: &Stop,
        _: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error> {
        for order in orders.iter().take(self.after) {
            order.execute(&Registry::linked(), &Options::default())?;
        }
        self.stop.request();
        Ok(())
    }
}
