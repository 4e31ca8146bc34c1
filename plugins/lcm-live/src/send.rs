//! Sends messages to the network, many with one call, and no faster than the limits.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg};
use sluice_kit::Playback;
use sluice_model::{Error, RunHandle};

use crate::options::{self, Interface, SocketInterface};
use crate::tcpq::client::{CONNECT_TIMEOUT, HubClient, RETRY_INTERVAL};
use crate::udp::{self, SendingSocket};
use crate::url::{TcpUrl, UdpUrl};
use crate::wire::{self, DatagramHeader};

/// A message to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'m> {
    /// The channel name with a terminating NUL.
    pub(crate) channel: &'m [u8],
    pub(crate) payload: &'m [u8],
}

/// A channel name without the terminating NUL.
pub(crate) fn without_nul(channel: &[u8]) -> &[u8] {
    channel.split_last().map_or(channel, |(_, name)| name)
}

/// The destination of messages.
pub(crate) enum Transport {
    Group(GroupSender),
    Hub(HubSender),
}

impl Transport {
    /// Sends messages in order.
    pub(crate) fn send(
        &mut self,
        messages: &[Outgoing<'_>],
        limit: &mut RateLimiter,
    ) -> Result<(), Error> {
        match self {
            Self::Group(group) => group.send(messages, limit),
            Self::Hub(hub) => hub.send(messages, limit),
        }
    }

    /// Notes for the report.
    pub(crate) fn notes(&self) -> Vec<(String, u64)> {
        match self {
            Self::Hub(hub) if hub.reconnections > 0 => {
                let what = "the connection to the hub was lost and restored; messages sent then \
                    may be lost or duplicated";
                vec![(what.to_owned(), hub.reconnections)]
            }
            Self::Hub(_) => Vec::new(),
            Self::Group(group) => group.outages.clone().into_iter().collect(),
        }
    }
}

/// Most datagrams sent with one call.
const MAX_DATAGRAMS: usize = 64;

/// Sends to a multicast group.
pub(crate) struct GroupSender {
    socket: SendingSocket,
    url: UdpUrl,
    /// The interface as given: the index of a name changes if the interface is replaced.
    given_interface: Option<Interface>,
    interface: SocketInterface,
    /// The sequence number of the next message.
    sequence: u32,
    /// Whether anything was sent: what fails from the start does not pass by itself.
    has_sent: bool,
    /// Errors that passed by themselves, and how often.
    outages: BTreeMap<String, u64>,
}

/// One datagram, in the parts it is sent from.
struct OutgoingDatagram<'m> {
    header: DatagramHeader,
    channel: &'m [u8],
    payload: &'m [u8],
}

impl OutgoingDatagram<'_> {
    fn cost(&self) -> DatagramCost {
        let bytes = self.header.len() + self.channel.len() + self.payload.len();
        DatagramCost { bytes, messages: usize::from(!self.channel.is_empty()) }
    }
}

impl GroupSender {
    pub(crate) fn open(url: UdpUrl, given_interface: Option<Interface>) -> Result<Self, Error> {
        let interface = options::resolve_interface(given_interface.as_ref())?;
        let socket = udp::open_sender(&url, interface)?;
        let (sequence, has_sent, outages) = (0, false, BTreeMap::new());
        Ok(Self { socket, url, given_interface, interface, sequence, has_sent, outages })
    }

    fn send(&mut self, messages: &[Outgoing<'_>], limit: &mut RateLimiter) -> Result<(), Error> {
        if messages.is_empty() {
            return Ok(());
        }
        let mut parts: Vec<OutgoingDatagram<'_>> = Vec::with_capacity(MAX_DATAGRAMS);
        for message in messages {
            let Outgoing { channel, payload } = *message;
            let cut = wire::split_message(without_nul(channel), payload.len())
                .map_err(|e| Error::internal(e.to_string()))?;
            for piece in cut {
                parts.push(OutgoingDatagram {
                    header: piece.header(self.sequence),
                    channel: if piece.with_channel { channel } else { &[] },
                    payload: payload.get(piece.payload.clone()).unwrap_or_default(),
                });
                if parts.len() == MAX_DATAGRAMS {
                    self.send_datagrams(&mut parts, limit)?;
                }
            }
            self.sequence = self.sequence.wrapping_add(1);
        }
        self.send_datagrams(&mut parts, limit)
    }

    fn send_datagrams(
        &mut self,
        parts: &mut Vec<OutgoingDatagram<'_>>,
        limit: &mut RateLimiter,
    ) -> Result<(), Error> {
        let slices: Vec<[IoSlice<'_>; 3]> = parts
            .iter()
            .map(|OutgoingDatagram { header, channel, payload }| {
                [IoSlice::new(header), IoSlice::new(channel), IoSlice::new(payload)]
            })
            .collect();
        let mut headers = MultiHeaders::preallocate(slices.len(), None);
        let mut sent = 0;
        while sent < slices.len() {
            let now = limit.acquire(parts.iter().skip(sent).map(OutgoingDatagram::cost));
            let next = slices.get(sent..sent + now).unwrap_or_default();
            sent += match send_some(&self.socket, &mut headers, next) {
                Err(error) if self.has_sent && udp::is_passing(&error) => {
                    self.send_after_outage(&error, &mut headers, next, limit)?
                }
                sent => sent.map_err(|error| self.explain(error))?,
            };
            self.has_sent = true;
        }
        parts.clear();
        Ok(())
    }

    fn explain(&self, error: io::Error) -> Error {
        udp::explain_error("send to", &self.url, self.interface, error)
    }

    /// Retries until the network is back, as with a hub. Returns how many datagrams were sent.
    fn send_after_outage(
        &mut self,
        error: &io::Error,
        headers: &mut MultiHeaders<SockaddrIn>,
        datagrams: &[[IoSlice<'_>; 3]],
        limit: &RateLimiter,
    ) -> Result<usize, Error> {
        let note = format!(
            "cannot send to {}:{} ({error}); messages wait until the network is back, for {} \
             seconds at most, and one that was sent in part may be lost",
            self.url.group,
            self.url.port,
            RECONNECT_TIMEOUT.as_secs()
        );
        limit.run.note(&note, 1);
        *self.outages.entry(note).or_default() += 1;
        let since = Instant::now();
        loop {
            std::thread::sleep(POLL_INTERVAL);
            let failed = match send_some(&self.socket, headers, datagrams) {
                Err(error) if udp::is_passing(&error) => error,
                sent => return sent.map_err(|error| self.explain(error)),
            };
            if limit.run.is_cancelled() || limit.playback.is_redirected() {
                // Nobody waits for them any more.
                return Ok(datagrams.len());
            }
            if since.elapsed() >= RECONNECT_TIMEOUT {
                let failed = self.explain(failed);
                return Err(Error::refused(format!("{failed}; retrying failed")));
            }
            // A firewall does not concern the socket, and a new one would lose the message of which
            // a part is sent.
            if failed.kind() != io::ErrorKind::PermissionDenied {
                self.reopen();
            }
        }
    }

    /// Replaces the socket if another one can be opened: if the interface was replaced, this one
    /// never sends again.
    fn reopen(&mut self) {
        let Ok(interface) = options::resolve_interface(self.given_interface.as_ref()) else {
            return;
        };
        if let Ok(socket) = udp::open_sender(&self.url, interface) {
            (self.socket, self.interface) = (socket, interface);
        }
    }
}

/// Pause when the system has no buffer for another datagram.
const RETRY_DELAY: Duration = Duration::from_micros(100);
/// How long to retry in that case.
const MAX_RETRY_TIME: Duration = Duration::from_secs(5);

/// Sends at least one of these datagrams. Returns how many.
fn send_some(
    SendingSocket { socket, destination }: &SendingSocket,
    headers: &mut MultiHeaders<SockaddrIn>,
    datagrams: &[[IoSlice<'_>; 3]],
) -> io::Result<usize> {
    let destinations = [*destination; MAX_DATAGRAMS];
    let since = Instant::now();
    loop {
        let fd = socket.as_raw_fd();
        match sendmmsg(fd, headers, datagrams.iter(), destinations, [], MsgFlags::empty()) {
            Ok(results) => return Ok(results.count()),
            Err(Errno::EINTR) => {}
            Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::ENOMEM)
                if since.elapsed() < MAX_RETRY_TIME =>
            {
                std::thread::sleep(RETRY_DELAY);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// How long to try to reach a hub again, or a network that was there.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends to a hub.
pub(crate) struct HubSender {
    url: TcpUrl,
    client: HubClient,
    /// How often the connection was lost and restored.
    reconnections: u64,
}

impl HubSender {
    pub(crate) fn open(url: TcpUrl) -> Result<Self, Error> {
        let client = HubClient::connect(&url.host, url.port, CONNECT_TIMEOUT);
        let client = client.map_err(|e| Error::refused(e.to_string()))?;
        Ok(Self { url, client, reconnections: 0 })
    }

    fn send(&mut self, messages: &[Outgoing<'_>], limit: &mut RateLimiter) -> Result<(), Error> {
        for Outgoing { channel, payload } in messages {
            limit.acquire([DatagramCost { bytes: channel.len() + payload.len(), messages: 1 }]);
        }
        let Err(mut failed) = publish(&mut self.client, messages) else { return Ok(()) };
        let since = Instant::now();
        while since.elapsed() < RECONNECT_TIMEOUT && !limit.run.is_cancelled() {
            std::thread::sleep(RETRY_INTERVAL);
            let client = HubClient::connect(&self.url.host, self.url.port, RETRY_INTERVAL);
            let Ok(mut client) = client else { continue };
            // Sends all of them again: nobody knows which ones the lost hub has relayed.
            match publish(&mut client, messages) {
                Ok(()) => {
                    self.client = client;
                    self.reconnections += 1;
                    return Ok(());
                }
                Err(error) => failed = error,
            }
        }
        Err(Error::refused(format!("{}: {failed}; reconnecting failed", self.url)))
    }
}

/// Publishes messages and flushes the connection.
fn publish(client: &mut HubClient, messages: &[Outgoing<'_>]) -> Result<(), String> {
    for Outgoing { channel, payload } in messages {
        client.publish(without_nul(channel), payload).map_err(|e| e.to_string())?;
    }
    client.flush().map_err(|e| e.to_string())
}

/// Limits the rate of messages and bytes.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Seconds per message and per byte.
    message: f64,
    byte: f64,
    /// When the next datagram may be sent.
    next_send: Instant,
    run: RunHandle,
    playback: Arc<Playback>,
}

/// Longest burst.
const BURST: Duration = Duration::from_millis(1);
/// How long to wait before checking whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl RateLimiter {
    /// Limits messages and bytes per second.
    pub(crate) fn new(
        messages: Option<f64>,
        bytes: Option<f64>,
        (playback, run): (Arc<Playback>, RunHandle),
    ) -> Self {
        let per = |rate: Option<f64>| rate.map_or(0.0, |rate| 1.0 / rate);
        let next = Instant::now();
        Self { message: per(messages), byte: per(bytes), next_send: next, run, playback }
    }

    /// Whether there is no limit.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.message == 0.0 && self.byte == 0.0
    }

    /// Waits until something may be sent. Returns how many of these may be sent now.
    ///
    /// When the run ends early all may be sent: nobody should receive half a message.
    fn acquire(&mut self, weights: impl IntoIterator<Item = DatagramCost>) -> usize {
        let weights = weights.into_iter();
        if self.is_unlimited() {
            return weights.count();
        }
        while let Some(wait) = self.next_send.checked_duration_since(Instant::now()) {
            if self.run.is_cancelled() || self.playback.is_redirected() {
                return weights.count();
            }
            std::thread::sleep(wait.min(POLL_INTERVAL));
        }
        // Unused time is not saved up.
        let now = Instant::now();
        self.next_send = self.next_send.max(now.checked_sub(BURST).unwrap_or(now));
        let mut admitted = 0;
        for DatagramCost { bytes, messages } in weights {
            if admitted > 0 && self.next_send > now {
                break;
            }
            let seconds = bytes as f64 * self.byte + messages as f64 * self.message;
            self.next_send += Duration::from_secs_f64(seconds.min(3600.0));
            admitted += 1;
        }
        admitted
    }
}

/// What a datagram costs against the limits.
struct DatagramCost {
    bytes: usize,
    /// 1 if it starts a message.
    messages: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_without_bursts() {
        let mut limiter = RateLimiter::new(Some(10_000.0), None, Default::default());
        let (started, mut sent, mut most) = (Instant::now(), 0, 0);
        while sent < 500 {
            let now =
                limiter.acquire((sent..500).map(|_| DatagramCost { bytes: 100, messages: 1 }));
            (sent, most) = (sent + now, most.max(now));
        }
        // A burst and its last message may be ahead of their time.
        assert!(started.elapsed() >= Duration::from_millis(45), "{:?}", started.elapsed());
        assert!(most <= 30, "{most} at once");
    }

    #[test]
    fn without_a_limit_everything_may_go() {
        let mut limiter = RateLimiter::new(None, None, Default::default());
        assert_eq!(
            limiter.acquire((0..64).map(|_| DatagramCost { bytes: 65_507, messages: 1 })),
            64
        );
    }

    #[test]
    fn what_ends_early_is_not_cut() {
        let run = RunHandle::default();
        run.cancel();
        let mut limiter = RateLimiter::new(None, Some(1.0), (Arc::default(), run));
        limiter.acquire([DatagramCost { bytes: 1_000_000, messages: 1 }]);
        assert_eq!(
            limiter.acquire((0..46).map(|_| DatagramCost { bytes: 65_507, messages: 0 })),
            46
        );
    }
}
