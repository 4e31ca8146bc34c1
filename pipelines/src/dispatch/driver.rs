//! The driver's side: has orders carried, takes the first delivery of each unit, and settles it. What happens to
//! carriers and workers shows in the room alone.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, Scope};
use std::time::Duration;

use sluice_core::output::remove_file;
use sluice_core::{Error, ErrorKind};

use super::delivery::{Delivery, What};
use super::heartbeat::Heartbeat;
use super::order::Order;
use super::publish::Came;
use super::room::Room;
use super::{ATTEMPTS, Carrier};
use crate::batch::Outcome;
use crate::run::{Options, Stop};

/// How long to wait before looking again: after something was found, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));

/// Has orders carried, and settles what comes of them.
pub(super) struct Driver<'d> {
    pub(super) carrier: &'d dyn Carrier,
    pub(super) options: &'d Options,
    pub(super) room: &'d Room,
    /// Whether what is done is recorded, so that a later run can go on.
    pub(super) is_recorded: bool,
}

/// How it stands.
struct Board<'b, S> {
    outcomes: Vec<Option<Outcome>>,
    /// Why workers would not do units that nobody has done so far.
    refused: BTreeMap<usize, String>,
    /// Why the room could not be looked at the last time, if so.
    trouble: Option<Error>,
    /// Whether anybody has said anything.
    heard: bool,
    settle: &'b mut S,
}

/// The end of one round of carrying.
type Ended = Result<(), Error>;

impl Driver<'_> {
    /// What became of each unit. `settle` is given the first delivery of each, one at a time.
    ///
    /// `Err` if nobody was reached, and nothing settled.
    pub(super) fn run<S>(&self, orders: &[Order], mut settle: S) -> Result<Vec<Outcome>, Error>
    where
        S: FnMut(usize, Came) -> Outcome,
    {
        let mut board = Board {
            outcomes: orders.iter().map(|_| None).collect(),
            refused: BTreeMap::new(),
            trouble: None,
            heard: false,
            settle: &mut settle,
        };
        // Of its own: when all units are settled, those that are still run for nothing need not be waited for.
        let stop = Stop::default();
        let why = std::thread::scope(|scope| {
            let _heartbeat = Heartbeat::start(scope, self.room)?;
            let (send, ended) = self.start(scope, &stop)?;
            let driven = self.drive(orders, &mut board, &stop, (&send, &ended));
            // Whatever ended it, nobody is to go on.
            stop.request();
            drop(send);
            driven
        })?;
        Ok(self.outcomes(board, why))
    }

    /// Starts the thread that carries: gives where it takes orders, and where it says that it has carried them.
    fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        stop: &'s Stop,
    ) -> Result<(Sender<Vec<Order>>, Receiver<Ended>), Error> {
        let (send, orders) = mpsc::channel::<Vec<Order>>();
        let (say_ended, ended) = mpsc::channel();
        let say = move |line: &str| {
            if let Some(progress) = &self.options.progress {
                progress.said("cluster", line);
            }
        };
        let work = move || {
            for orders in orders {
                let carried =
                    catch_unwind(AssertUnwindSafe(|| self.carrier.carry(&orders, stop, &say)));
                let panicked = |_| Err(Error::internal("what brings units to workers panicked"));
                if say_ended.send(carried.unwrap_or_else(panicked)).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("sluice-carry".into()).spawn_scoped(scope, work);
        thread.map_err(|e| Error::refused(format!("cannot start a thread: {e}")))?;
        Ok((send, ended))
    }

    /// Carries and settles until nothing is left, or nothing more can be done. Gives why the last round ended.
    fn drive<S>(
        &self,
        orders: &[Order],
        board: &mut Board<'_, S>,
        stop: &Stop,
        (send, ended): (&Sender<Vec<Order>>, &Receiver<Ended>),
    ) -> Result<Option<String>, Error>
    where
        S: FnMut(usize, Came) -> Outcome,
    {
        let gone = || Error::internal("the thread that carries orders is gone");
        if self.options.stop.is_requested() {
            return Ok(None);
        }
        send.send(orders.to_vec()).map_err(|_| gone())?;
        let (mut round, mut pause) = (1, PAUSES.0);
        loop {
            let settled = self.settle_all(board);
            self.pass_on(stop, board);
            pause = if settled > 0 { PAUSES.0 } else { (pause * 2).min(PAUSES.1) };
            let why = match ended.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => Err(gone()),
                Ok(carried) => carried,
            };
            self.settle_all(board);
            let left: Vec<Order> =
                orders.iter().filter(|order| board.is_open(order.unit())).cloned().collect();
            if left.is_empty() || self.options.stop.is_requested() {
                return Ok(why.err().map(|error| error.to_string()));
            }
            match why {
                Err(error) if !board.heard && !self.was_any_begun(orders) => return Err(error),
                why if round == ATTEMPTS => return Ok(why.err().map(|error| error.to_string())),
                _ => {}
            }
            round += 1;
            if send.send(left).is_err() {
                return Ok(Some(gone().to_string()));
            }
        }
    }

    /// Settles every unit of which there is a delivery; gives how many. Of several that are there, a good one counts.
    fn settle_all<S>(&self, board: &mut Board<'_, S>) -> usize
    where
        S: FnMut(usize, Came) -> Outcome,
    {
        let looked = self.room.deliveries();
        // A file system may come back, and this is asked again soon.
        let (there, trouble) = looked.map_or_else(|e| (Vec::new(), Some(e)), |there| (there, None));
        board.trouble = trouble;
        board.heard |= !there.is_empty();
        // One unit at a time: what is said of each may be long.
        let units = there.chunk_by(|(unit, _), (next, _)| unit == next);
        units.filter(|deliveries| self.settle_unit(board, deliveries)).count()
    }

    /// Settles a unit of which these deliveries are there; gives whether it is settled by one of them.
    fn settle_unit<S>(&self, board: &mut Board<'_, S>, there: &[(usize, PathBuf)]) -> bool
    where
        S: FnMut(usize, Came) -> Outcome,
    {
        let Some((unit, _)) = there.first().cloned() else { return false };
        let was_open = board.is_open(unit);
        let (mut found, mut over) = (Vec::new(), Vec::new());
        for (_, path) in there {
            // Second ones, and what is none, are only removed.
            match was_open.then(|| Delivery::read(self.room.site(), path, unit)) {
                // A file system, or a store, may come back: it is looked at again.
                Some(Err(error)) if matches!(error.kind(), ErrorKind::Io { .. }) => continue,
                Some(Ok(delivery)) => found.push(delivery),
                Some(Err(_)) | None => {}
            }
            over.push(path);
        }
        found.sort_by_key(|delivery| delivery.what.rank());
        for Delivery { attempt, what, .. } in found {
            if board.is_open(unit) && !self.options.stop.is_aborted() {
                let folder = self.room.site().unit(unit).join(attempt);
                board.take(unit, Came { what, folder });
            }
        }
        over.into_iter().for_each(|path| remove(path));
        let is_settled = !board.is_open(unit);
        if is_settled {
            self.room.clear(unit);
        }
        was_open && is_settled
    }

    /// Tells those who carry that they are to stop: since the user says so, or nothing is left to do.
    fn pass_on<S>(&self, stop: &Stop, board: &Board<'_, S>) {
        let all_settled = board.outcomes.iter().all(Option::is_some);
        if (all_settled || self.options.stop.is_requested()) && !stop.is_requested() {
            stop.request();
        }
        if self.options.stop.is_aborted() && !stop.is_aborted() {
            stop.request();
        }
    }

    /// What became of the units, also of those that were not settled.
    fn outcomes<S>(&self, board: Board<'_, S>, why: Option<String>) -> Vec<Outcome> {
        let Board { outcomes, refused, trouble, .. } = board;
        let why = trouble.map(|error| error.to_string()).or(why);
        let again = if self.is_recorded { "; --resume does it again" } else { "" };
        let why = why.unwrap_or_else(|| "no worker brought it to an end".to_owned()) + again;
        let left = |unit: usize| match refused.get(&unit) {
            _ if self.options.stop.is_aborted() && self.was_begun(unit) => Outcome::Interrupted,
            _ if self.options.stop.is_requested() => Outcome::NotStarted,
            Some(refused) => Outcome::Failed(refused.clone()),
            None => Outcome::Failed(why.clone()),
        };
        let each = outcomes.into_iter().enumerate();
        each.map(|(unit, outcome)| outcome.unwrap_or_else(|| left(unit))).collect()
    }

    fn was_any_begun(&self, orders: &[Order]) -> bool {
        orders.iter().any(|order| self.was_begun(order.unit()))
    }

    fn was_begun(&self, unit: usize) -> bool {
        self.room.site().attempts(unit).is_ok_and(|attempts| attempts > 0)
    }
}

impl<S: FnMut(usize, Came) -> Outcome> Board<'_, S> {
    /// Takes what came of a unit. That settles it, unless a worker refused it.
    fn take(&mut self, unit: usize, came: Came) {
        if let What::Refused { why } = &came.what {
            self.refused.insert(unit, why.clone());
            return;
        }
        let outcome = (self.settle)(unit, came);
        if let Some(place) = self.outcomes.get_mut(unit) {
            *place = Some(outcome);
        }
    }
}

impl<S> Board<'_, S> {
    /// Whether this is a unit that is not settled yet.
    fn is_open(&self, unit: usize) -> bool {
        self.outcomes.get(unit).is_some_and(Option::is_none)
    }
}

impl What {
    /// Good ones come first.
    fn rank(&self) -> u8 {
        match self {
            Self::Done(_) | Self::Skipped(_) => 0,
            Self::Failed { .. } => 1,
            Self::Refused { .. } => 2,
        }
    }
}

/// What cannot be removed goes with the room.
fn remove(path: &Path) {
    drop(remove_file(path));
}
