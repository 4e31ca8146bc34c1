//! Counts of received and lost messages, by reason.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use crate::wire::Reject;

/// Totals over all senders, including those forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IntakeCounts {
    /// Datagrams received, valid or not.
    pub datagrams: u64,
    /// Bytes of these datagrams.
    pub bytes: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Messages on channels that are filtered out.
    pub unwanted: u64,
    /// Datagrams received before.
    pub duplicates: u64,
    /// Messages with the number of another one.
    pub reused: u64,
    /// Ignored fragments of messages that are filtered out or were given up.
    pub passed_over: u64,
    /// Messages that arrived after later ones.
    pub late: u64,
    /// Messages whose first fragments were sent before receiving began.
    pub begun_before: u64,
    /// How often a sender restarted.
    pub restarts: u64,
    /// Senders found to have several numberings, whose skipped numbers are not considered missing.
    pub mixed: u64,
    /// Senders forgotten because there were too many.
    pub forgotten: u64,
    /// Messages that never arrived.
    pub missing: u64,
    /// Messages that arrived in part, by reason.
    pub incomplete: BTreeMap<LossReason, u64>,
    /// Malformed datagrams, by reason.
    pub rejected: BTreeMap<Reject, u64>,
}

/// Why a partly received message was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// No fragment arrived for [`IntakeLimits::age`](super::IntakeLimits::age), or while very many
    /// other datagrams of its sender did.
    Expired,
    /// Evicted to make room for other messages.
    Evicted,
    /// Larger than the whole memory for unfinished messages.
    TooLarge,
    /// Its fragments contradict each other.
    Contradictory,
    /// Its sender restarted before the rest arrived.
    Restarted,
    /// Its sender was forgotten because there were too many.
    Forgotten,
    /// The rest had not arrived when receiving ended.
    Ended,
}

impl LossReason {
    /// The reason as shown to the user; a key in the report.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Expired => "messages of which a fragment never came",
            Self::Evicted => "messages given up because too many were unfinished",
            Self::TooLarge => "messages larger than the memory for unfinished ones",
            Self::Contradictory => "messages whose fragments contradict each other",
            Self::Restarted => "messages unfinished when their sender began anew",
            Self::Forgotten => "messages unfinished when there were too many senders",
            Self::Ended => "messages unfinished at the end",
        }
    }
}

impl IntakeCounts {
    /// Messages lost: the sum of [`losses`](Self::losses).
    pub fn lost(&self) -> u64 {
        self.missing + self.incomplete.values().sum::<u64>()
    }

    /// Number of lost messages by reason, without zeroes, in a fixed order.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let missing = Some(("messages of which nothing came", self.missing));
        let incomplete = self.incomplete.iter().map(|(loss, count)| (loss.reason(), *count));
        missing.into_iter().chain(incomplete).filter(|(_, count)| *count > 0)
    }

    /// Other events of note, without zeroes, in a fixed order.
    ///
    /// A malformed datagram also makes its message incomplete or missing, so it appears in both.
    pub fn observations(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let plain = [
            ("duplicate datagrams", self.duplicates),
            ("messages with the number of another one of their sender", self.reused),
            ("late messages", self.late),
            ("messages that began before receiving did", self.begun_before),
            ("sender restarts", self.restarts),
            ("senders with several numberings, of which losses cannot be counted", self.mixed),
            ("senders forgotten because of too many senders", self.forgotten),
        ];
        let rejected = self.rejected.iter().map(|(reject, count)| (reject.reason(), *count));
        plain.into_iter().chain(rejected).filter(|(_, count)| *count > 0)
    }
}

/// What one sender has sent: `sent == messages + lost() + unfinished`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Address and port.
    pub address: SocketAddrV4,
    /// Valid datagrams received.
    pub datagrams: u64,
    /// Bytes of these datagrams.
    pub bytes: u64,
    /// Messages sent, by their sequence numbers.
    pub sent: u64,
    /// Messages received, including those filtered out.
    pub messages: u64,
    /// Messages that never arrived.
    pub missing: u64,
    /// Messages that arrived in part.
    pub incomplete: u64,
    /// Messages that may still be completed.
    pub unfinished: u64,
    /// How often it restarted.
    pub restarts: u64,
    /// Time of the last datagram, in nanoseconds of the clock passed to
    /// [`Intake::take`](super::Intake::take).
    pub last_heard: u64,
}

impl SenderStats {
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
            last_heard: now,
        }
    }

    /// Takes back that so many messages are missing; returns how many were.
    pub(super) fn retract(&mut self, missing: u64) -> u64 {
        let retracted = missing.min(self.missing);
        self.missing -= retracted;
        self.sent -= retracted;
        retracted
    }

    /// Messages sent but not received.
    pub fn lost(&self) -> u64 {
        self.missing + self.incomplete
    }
}
