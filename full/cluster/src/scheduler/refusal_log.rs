//! Messages on refused requests and connections, a few of many.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;

/// The least time between two messages on refused requests: a client that retries, or a port
/// scanner, does not fill the log.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(10);

/// Reports refused requests, a few of many.
#[derive(Debug)]
pub(super) struct RefusalLog {
    messages: Sender<String>,
    state: Mutex<RefusalState>,
}

/// What a log of refusals remembers.
#[derive(Debug, Default)]
struct RefusalState {
    last_message: Option<Instant>,
    /// How many refusals since then were not reported.
    unreported: u64,
}

impl RefusalLog {
    /// Sends its messages here.
    pub(super) fn new(messages: Sender<String>) -> Self {
        Self { messages, state: Mutex::default() }
    }

    /// Reports a refusal, unless one was reported just now.
    pub(super) fn push(&self, peer: SocketAddr, reason: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = state.message(peer, reason, Instant::now()) {
            // A full queue means that stderr is blocked.
            drop(self.messages.try_send(text));
        }
    }
}

impl RefusalState {
    fn message(&mut self, peer: SocketAddr, reason: &str, now: Instant) -> Option<String> {
        let elapsed = self.last_message.map(|last| now.saturating_duration_since(last));
        if elapsed.is_some_and(|elapsed| elapsed < MESSAGE_INTERVAL) {
            self.unreported += 1;
            return None;
        }
        self.last_message = Some(now);
        let more = match std::mem::take(&mut self.unreported) {
            0 => String::new(),
            count => format!(" ({count} more since the last such message)"),
        };
        Some(format!("refused a request from {}: {reason}{more}", peer.ip()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_refusals_are_few_messages_that_count_them() {
        let (mut state, start) = (RefusalState::default(), Instant::now());
        let peer: SocketAddr = "10.0.0.9:4000".parse().unwrap();
        let mut message =
            |seconds| state.message(peer, "no secret", start + Duration::from_secs(seconds));
        let first = "refused a request from 10.0.0.9: no secret";
        assert_eq!(message(0).as_deref(), Some(first));
        assert_eq!((message(1), message(9)), (None, None));
        let counted = format!("{first} (2 more since the last such message)");
        assert_eq!(message(10), Some(counted));
        assert_eq!(message(30).as_deref(), Some(first));
    }
}
