//! What a hub reports about its clients: lost messages and failed connections, at a bounded rate.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{ClientConnection, POLL_MS, REPORT_INTERVAL};

/// Reports lost messages and refused connections now and then.
pub(super) struct LossReporter {
    last_report: Instant,
    /// The number of lost messages last reported, by client.
    reported: Vec<(SocketAddr, u64)>,
    refused: Option<Instant>,
}

impl LossReporter {
    pub(super) fn new() -> Self {
        Self { last_report: Instant::now(), reported: Vec::new(), refused: None }
    }

    /// Reports which clients lost messages, if it is time.
    pub(super) fn report_losses(&mut self, members: &[ClientConnection], say: &impl Fn(&str)) {
        if self.last_report.elapsed() < REPORT_INTERVAL {
            return;
        }
        self.last_report = Instant::now();
        let before = std::mem::take(&mut self.reported);
        for client in members.iter().map(|member| &member.client) {
            let all = client.dropped.load(Ordering::Relaxed);
            let reported = before.iter().find(|(peer, _)| *peer == client.peer);
            let new = all - reported.map_or(0, |(_, all)| *all).min(all);
            if new > 0 {
                say(&format!("{} is too slow: {new} messages dropped, {all} in all", client.peer));
            }
            if all > 0 {
                self.reported.push((client.peer, all));
            }
        }
    }

    /// Reports why a client could not be accepted. Sleeps, as the cause usually persists.
    pub(super) fn report_refusal(&mut self, error: &io::Error, say: &impl Fn(&str)) {
        if matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
        ) {
            return;
        }
        if self.refused.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL) {
            self.refused = Some(Instant::now());
            say(&format!("cannot accept a client: {error}"));
        }
        std::thread::sleep(Duration::from_millis(POLL_MS.into()));
    }
}

/// Messages that a disconnected client did not get.
pub(super) struct UndeliveredMessages {
    pub(super) waiting: usize,
    pub(super) dropped: u64,
}

impl fmt::Display for UndeliveredMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.waiting, self.dropped) {
            (0, 0) => Ok(()),
            (waiting, 0) => write!(f, "; {waiting} queued messages were not sent"),
            (0, dropped) => write!(f, "; {dropped} messages were dropped"),
            (waiting, dropped) => {
                write!(f, "; {waiting} queued messages were not sent, {dropped} were dropped")
            }
        }
    }
}
