//! What was received and what was lost, and why.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use crate::wire::Reject;

/// Totals over all senders, those forgotten included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Datagrams, whatever was in them.
    pub datagrams: u64,
    /// Bytes of these datagrams.
    pub bytes: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Messages received on channels that are not wanted.
    pub unwanted: u64,
    /// Datagrams that came before.
    pub duplicates: u64,
    /// Further fragments of messages that are not wanted or were given up.
    pub passed_over: u64,
    /// Messages that came after later ones.
    pub late: u64,
    /// How often a sender began anew.
    pub restarts: u64,
    /// Senders forgotten because there were too many.
    pub forgotten: u64,
    /// Messages of which nothing came.
    pub missing: u64,
    /// Messages of which something came, but that were not made whole.
    pub incomplete: BTreeMap<Loss, u64>,
    /// Datagrams that are wrong in themselves.
    pub rejected: BTreeMap<Reject, u64>,
}

/// Why a message of which something came was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// No fragment came for [`Limits::age`](super::Limits::age), or while very many other datagrams of its
    /// sender did.
    Expired,
    /// Its room was needed for others.
    Crowded,
    /// It alone is larger than all the room there is.
    TooLarge,
    /// Its fragments contradict each other.
    Contradictory,
    /// Its sender began anew before the rest came.
    Restarted,
    /// Its sender was forgotten because there were too many.
    Forgotten,
    /// The rest had not come when everything ended.
    Ended,
}

impl Loss {
    /// What happened, for the user.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Expired => "messages of which a fragment never came",
            Self::Crowded => "messages given up because too many were unfinished",
            Self::TooLarge => "messages larger than the memory for unfinished ones",
            Self::Contradictory => "messages whose fragments contradict each other",
            Self::Restarted => "messages unfinished when their sender began anew",
            Self::Forgotten => "messages unfinished when there were too many senders",
            Self::Ended => "messages unfinished at the end",
        }
    }
}

impl Counts {
    /// Messages sent that were not received: the sum of [`losses`](Self::losses).
    pub fn lost(&self) -> u64 {
        self.missing + self.incomplete.values().sum::<u64>()
    }

    /// Why messages were lost and how many; no zeroes, always in the same order.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let missing = Some(("messages of which nothing came", self.missing));
        let incomplete = self.incomplete.iter().map(|(loss, count)| (loss.reason(), *count));
        missing.into_iter().chain(incomplete).filter(|(_, count)| *count > 0)
    }

    /// What happened without a message being lost by it; no zeroes, always in the same order.
    ///
    /// A refused datagram of a message makes that message incomplete, or missing: it is in both.
    pub fn observations(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let plain = [
            ("datagrams that came twice", self.duplicates),
            ("messages that came late", self.late),
            ("senders that began anew", self.restarts),
            ("senders forgotten because there were too many", self.forgotten),
        ];
        let rejected = self.rejected.iter().map(|(reject, count)| (reject.reason(), *count));
        plain.into_iter().chain(rejected).filter(|(_, count)| *count > 0)
    }
}

/// What one sender has sent, as far as it is known: `sent == messages + lost() + unfinished`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sender {
    /// Its address and port.
    pub address: SocketAddrV4,
    /// Datagrams that could be read.
    pub datagrams: u64,
    /// Bytes of these datagrams.
    pub bytes: u64,
    /// Messages that it sent, by their sequence numbers.
    pub sent: u64,
    /// Messages received, those not wanted included.
    pub messages: u64,
    /// Messages of which nothing came.
    pub missing: u64,
    /// Messages of which something came, but that were not made whole.
    pub incomplete: u64,
    /// Messages of which more may come.
    pub unfinished: u64,
    /// How often it began anew.
    pub restarts: u64,
    /// When it was last heard, in nanoseconds of the clock that [`Intake::take`](super::Intake::take) is given.
    pub heard: u64,
}

impl Sender {
    pub(super) fn new(address: SocketAddrV4, now: u64) -> Self {
        Self {
            address,
            datagrams: 0,
            bytes: 0,
            sent: 0,
            messages: 0,
            missing: 0,
            incomplete: 0,
            unfinished: 0,
            restarts: 0,
            heard: now,
        }
    }

    /// Messages sent that were not received.
    pub fn lost(&self) -> u64 {
        self.missing + self.incomplete
    }
}
