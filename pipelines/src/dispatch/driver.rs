//! The driver's side: hands orders to the carrier, takes the first delivery of each unit and
//! settles it. It learns of progress only from the exchange directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use sluice_io::output::remove_file;
use sluice_model::{Error, ErrorKind};

use super::delivery::{AttemptResult, UnitDelivery};
use super::exchange::ExchangeDir;
use super::heartbeat::Heartbeat;
use super::order::{ATTEMPTS, UnitOrder};
use super::publish::ReceivedDelivery;
use crate::batch::UnitOutcome;
use crate::run::{Options, Stop};

/// The shortest and the longest interval of polling for deliveries.
const POLL_INTERVALS: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(320));

/// Between these, the interval is the time since a delivery was found, divided by this. So what is
/// lost of a unit's time is small, and a folder is seldom listed for nothing.
const POLL_DIVISOR: u32 = 16;

/// Brings orders to workers. Scheduling and retries are its responsibility.
pub trait Carrier: Sync {
    /// Has every order executed by some worker. Returns when no order will run any more; results
    /// are only taken from the exchange directory. Returns promptly once `stop` is requested. `say`
    /// shows the user a line at once; the line has no newline.
    ///
    /// `Err` if some orders could not be completed, with the reason.
    fn carry(
        &self,
        orders: &[UnitOrder],
        stop: &Stop,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error>;
}

/// Hands out orders and settles their deliveries.
pub(super) struct DispatchDriver<'d> {
    pub(super) carrier: &'d dyn Carrier,
    pub(super) options: &'d Options,
    pub(super) exchange: &'d ExchangeDir,
    /// Whether finished units are recorded, so that a later run can resume.
    pub(super) is_recorded: bool,
}

/// The state of a dispatched run.
struct DispatchState<'b, S> {
    outcomes: Vec<Option<UnitOutcome>>,
    /// Refusals by workers, for units that no other worker has done yet.
    refused: BTreeMap<usize, String>,
    /// The last error from reading the exchange directory.
    last_error: Option<Error>,
    /// Whether any delivery has arrived.
    has_heard: bool,
    settle: &'b mut S,
}

/// The result of one `carry` call.
type CarryResult = Result<(), Error>;

impl DispatchDriver<'_> {
    /// The outcome of each unit. `settle` gets the first delivery of each unit, one at a time.
    ///
    /// `Err` if no worker was reached and no unit settled.
    pub(super) fn run<S>(
        &self,
        orders: &[UnitOrder],
        mut settle: S,
    ) -> Result<Vec<UnitOutcome>, Error>
    where
        S: FnMut(usize, ReceivedDelivery) -> UnitOutcome,
    {
        let mut state = DispatchState {
            outcomes: orders.iter().map(|_| None).collect(),
            refused: BTreeMap::new(),
            last_error: None,
            has_heard: false,
            settle: &mut settle,
        };
        // Separate from the user's stop: once all units are settled, redundant attempts need not be
        // waited for.
        let stop = Stop::default();
        let why = std::thread::scope(|scope| {
            let _heartbeat = Heartbeat::start(scope, self.exchange)?;
            let (send, ended) = self.start(scope, &stop)?;
            let driven = self.drive(orders, &mut state, &stop, (&send, &ended));
            // However this ended, all workers stop.
            stop.request();
            drop(send);
            driven
        })?;
        Ok(self.outcomes(state, why))
    }

    /// Starts the carrier thread; returns the channel for orders and the channel for results.
    fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        stop: &'s Stop,
    ) -> Result<(Sender<Vec<UnitOrder>>, Receiver<CarryResult>), Error> {
        let (send, orders) = mpsc::channel::<Vec<UnitOrder>>();
        let (say_ended, ended) = mpsc::channel();
        let say = move |line: &str| {
            if let Some(progress) = &self.options.progress {
                progress.program_output("cluster", line);
            }
        };
        let work = move || {
            for orders in orders {
                let carried = Error::catching(|| self.carrier.carry(&orders, stop, &say));
                if say_ended.send(carried).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("sluice-carry".into()).spawn_scoped(scope, work);
        thread.map_err(|e| Error::refused(format!("cannot start a thread: {e}")))?;
        Ok((send, ended))
    }

    /// Dispatches and settles until no unit is left or nothing more can be done. Returns why the
    /// last round ended.
    fn drive<S>(
        &self,
        orders: &[UnitOrder],
        state: &mut DispatchState<'_, S>,
        stop: &Stop,
        (send, ended): (&Sender<Vec<UnitOrder>>, &Receiver<CarryResult>),
    ) -> Result<Option<String>, Error>
    where
        S: FnMut(usize, ReceivedDelivery) -> UnitOutcome,
    {
        let gone = || Error::internal("the carrier thread is gone");
        if self.options.stop.is_requested() {
            return Ok(None);
        }
        send.send(orders.to_vec()).map_err(|_| gone())?;
        // A round may end early, such as that of an executor whose disk is full once its unit is
        // done. Only rounds that settle nothing are counted.
        let (mut open, mut rounds_in_vain, mut last_found) = (orders.len(), 0, Instant::now());
        loop {
            if self.settle_all(state) > 0 {
                last_found = Instant::now();
            }
            self.forward_stop(stop, state);
            let pause =
                (last_found.elapsed() / POLL_DIVISOR).clamp(POLL_INTERVALS.0, POLL_INTERVALS.1);
            let why = match ended.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => Err(gone()),
                Ok(carried) => carried,
            };
            self.settle_all(state);
            let left: Vec<UnitOrder> =
                orders.iter().filter(|order| state.is_open(order.unit())).cloned().collect();
            if left.is_empty() || self.options.stop.is_requested() {
                return Ok(why.err().map(|error| error.to_string()));
            }
            rounds_in_vain = if left.len() < open { 0 } else { rounds_in_vain + 1 };
            open = left.len();
            match why {
                Err(error) if !state.has_heard && !self.was_any_started(orders) => {
                    return Err(error);
                }
                why if rounds_in_vain == ATTEMPTS => {
                    return Ok(why.err().map(|error| error.to_string()));
                }
                _ => {}
            }
            if send.send(left).is_err() {
                return Ok(Some(gone().to_string()));
            }
        }
    }

    /// Settles every unit that has a delivery and returns how many. Successful deliveries are
    /// preferred.
    fn settle_all<S>(&self, state: &mut DispatchState<'_, S>) -> usize
    where
        S: FnMut(usize, ReceivedDelivery) -> UnitOutcome,
    {
        let listing = self.exchange.deliveries();
        // The file system may recover before the next poll.
        let (deliveries, trouble) =
            listing.map_or_else(|e| (Vec::new(), Some(e)), |deliveries| (deliveries, None));
        state.last_error = trouble;
        state.has_heard |= !deliveries.is_empty();
        // One unit at a time, because deliveries can be large.
        let units = deliveries.chunk_by(|(unit, _), (next, _)| unit == next);
        units.filter(|deliveries| self.settle_unit(state, deliveries)).count()
    }

    /// Settles a unit that has these deliveries; returns whether one of them settled it.
    fn settle_unit<S>(
        &self,
        state: &mut DispatchState<'_, S>,
        deliveries: &[(usize, PathBuf)],
    ) -> bool
    where
        S: FnMut(usize, ReceivedDelivery) -> UnitOutcome,
    {
        let Some((unit, _)) = deliveries.first().cloned() else { return false };
        let was_open = state.is_open(unit);
        let (mut found, mut over) = (Vec::new(), Vec::new());
        for (_, path) in deliveries {
            // Redundant and invalid deliveries are just removed.
            match was_open.then(|| UnitDelivery::read(self.exchange.site(), path, unit)) {
                // The file system or store may recover: retried at the next poll.
                Some(Err(error)) if matches!(error.kind(), ErrorKind::Io { .. }) => continue,
                Some(Ok(delivery)) => found.push(delivery),
                Some(Err(_)) | None => {}
            }
            over.push(path);
        }
        found.sort_by_key(|delivery| delivery.what.rank());
        for UnitDelivery { attempt, what, .. } in found {
            if state.is_open(unit) && !self.options.stop.is_aborted() {
                let folder = self.exchange.site().unit(unit).join(attempt);
                state.accept(unit, ReceivedDelivery { what, folder });
            }
        }
        over.into_iter().for_each(|path| remove(path));
        let is_settled = !state.is_open(unit);
        if is_settled {
            self.exchange.clear(unit);
        }
        was_open && is_settled
    }

    /// Stops the carrier once the user requests it or no unit is left.
    fn forward_stop<S>(&self, stop: &Stop, state: &DispatchState<'_, S>) {
        let all_settled = state.outcomes.iter().all(Option::is_some);
        if (all_settled || self.options.stop.is_requested()) && !stop.is_requested() {
            stop.request();
        }
        if self.options.stop.is_aborted() && !stop.is_aborted() {
            stop.request();
        }
    }

    /// The outcomes of all units, including those not settled.
    fn outcomes<S>(&self, state: DispatchState<'_, S>, why: Option<String>) -> Vec<UnitOutcome> {
        let DispatchState { outcomes, refused, last_error: trouble, .. } = state;
        let why = trouble.map(|error| error.to_string()).or(why);
        let again = if self.is_recorded { "; --resume retries it" } else { "" };
        let why = why.unwrap_or_else(|| "no worker completed it".to_owned()) + again;
        let left = |unit: usize| match refused.get(&unit) {
            _ if self.options.stop.is_aborted() && self.was_started(unit) => {
                UnitOutcome::Interrupted(Box::default())
            }
            _ if self.options.stop.is_requested() => UnitOutcome::NotStarted,
            Some(refused) => UnitOutcome::Failed(refused.clone(), Box::default()),
            None => UnitOutcome::Failed(why.clone(), Box::default()),
        };
        let each = outcomes.into_iter().enumerate();
        each.map(|(unit, outcome)| outcome.unwrap_or_else(|| left(unit))).collect()
    }

    fn was_any_started(&self, orders: &[UnitOrder]) -> bool {
        orders.iter().any(|order| self.was_started(order.unit()))
    }

    fn was_started(&self, unit: usize) -> bool {
        self.exchange.site().attempts(unit).is_ok_and(|attempts| attempts > 0)
    }
}

impl<S: FnMut(usize, ReceivedDelivery) -> UnitOutcome> DispatchState<'_, S> {
    /// Takes a delivery. It settles the unit, unless the worker refused it.
    fn accept(&mut self, unit: usize, delivery: ReceivedDelivery) {
        if let AttemptResult::Refused { why } = &delivery.what {
            self.refused.insert(unit, why.clone());
            return;
        }
        let outcome = (self.settle)(unit, delivery);
        if let Some(place) = self.outcomes.get_mut(unit) {
            *place = Some(outcome);
        }
    }
}

impl<S> DispatchState<'_, S> {
    /// Whether this unit is not settled yet.
    fn is_open(&self, unit: usize) -> bool {
        self.outcomes.get(unit).is_some_and(Option::is_none)
    }
}

impl AttemptResult {
    /// Successful results come first.
    fn rank(&self) -> u8 {
        match self {
            Self::Done(_) | Self::Skipped(_) => 0,
            Self::Failed { .. } => 1,
            Self::Refused { .. } => 2,
        }
    }
}

/// Files that cannot be removed now go with the exchange directory.
fn remove(path: &Path) {
    drop(remove_file(path));
}
