//! Sending: puts messages on the network, many with one call, no faster than asked.

use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg};
use sluice_core::{Error, Playback};
use socket2::Socket;

use crate::options::Card;
use crate::tcpq::client::{CONNECT, Client, RETRY};
use crate::udp;
use crate::url::{TcpUrl, UdpUrl};
use crate::wire::{self, Header};

/// A message to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'m> {
    /// The channel's name with a NUL behind it.
    pub(crate) channel: &'m [u8],
    pub(crate) payload: &'m [u8],
}

/// A channel's name without the NUL behind it.
pub(crate) fn without_nul(channel: &[u8]) -> &[u8] {
    channel.split_last().map_or(channel, |(_, name)| name)
}

/// Where messages go.
pub(crate) enum Transport {
    Group(ToGroup),
    Hub(ToHub),
}

impl Transport {
    /// Sends messages in order.
    pub(crate) fn send(
        &mut self,
        messages: &[Outgoing<'_>],
        limit: &mut Limiter,
    ) -> Result<(), Error> {
        match self {
            Self::Group(group) => group.send(messages, limit),
            Self::Hub(hub) => hub.send(messages, limit),
        }
    }

    /// What the report is to say of the way there.
    pub(crate) fn notes(&self) -> Vec<(String, u64)> {
        match self {
            Self::Hub(hub) if hub.reconnections > 0 => {
                let what = "the hub went away and came back; messages sent then may have come twice, or not";
                vec![(what.to_owned(), hub.reconnections)]
            }
            _ => Vec::new(),
        }
    }
}

/// Datagrams that are sent at a time.
const BATCH: usize = 64;

/// Sends to a multicast group.
pub(crate) struct ToGroup {
    socket: Socket,
    url: UdpUrl,
    card: Card,
    /// The number of the next message.
    sequence: u32,
}

/// One datagram, in the parts it is sent from.
struct Parts<'m> {
    header: Header,
    channel: &'m [u8],
    payload: &'m [u8],
}

impl Parts<'_> {
    fn weight(&self) -> Weight {
        let bytes = self.header.len() + self.channel.len() + self.payload.len();
        Weight { bytes, messages: usize::from(!self.channel.is_empty()) }
    }
}

impl ToGroup {
    pub(crate) fn open(url: UdpUrl, card: Card) -> Result<Self, Error> {
        let socket = udp::sender(&url, card)?;
        Ok(Self { socket, url, card, sequence: 0 })
    }

    fn send(&mut self, messages: &[Outgoing<'_>], limit: &mut Limiter) -> Result<(), Error> {
        if messages.is_empty() {
            return Ok(());
        }
        let mut parts: Vec<Parts<'_>> = Vec::with_capacity(BATCH);
        for message in messages {
            let Outgoing { channel, payload } = *message;
            let cut = wire::cut(without_nul(channel), payload.len())
                .map_err(|e| Error::internal(e.to_string()))?;
            for piece in cut {
                parts.push(Parts {
                    header: piece.header(self.sequence),
                    channel: if piece.with_channel { channel } else { &[] },
                    payload: payload.get(piece.payload.clone()).unwrap_or_default(),
                });
                if parts.len() == BATCH {
                    self.send_parts(&mut parts, limit)?;
                }
            }
            self.sequence = self.sequence.wrapping_add(1);
        }
        self.send_parts(&mut parts, limit)
    }

    fn send_parts(&mut self, parts: &mut Vec<Parts<'_>>, limit: &mut Limiter) -> Result<(), Error> {
        let slices: Vec<[IoSlice<'_>; 3]> = parts
            .iter()
            .map(|Parts { header, channel, payload }| {
                [IoSlice::new(header), IoSlice::new(channel), IoSlice::new(payload)]
            })
            .collect();
        let mut headers = MultiHeaders::preallocate(slices.len(), None);
        let mut sent = 0;
        while sent < slices.len() {
            let now = limit.admit(parts.iter().skip(sent).map(Parts::weight));
            let next = slices.get(sent..sent + now).unwrap_or_default();
            sent += send_some(&self.socket, &mut headers, next)
                .map_err(|e| udp::explained("send to", &self.url, self.card, e))?;
        }
        parts.clear();
        Ok(())
    }
}

/// How long to wait when the system has no room for another datagram.
const BREATH: Duration = Duration::from_micros(100);
/// How long to go on waiting for that.
const OUT_OF_BREATH: Duration = Duration::from_secs(5);

/// Sends some of these datagrams, at least one; gives how many.
fn send_some(
    socket: &Socket,
    headers: &mut MultiHeaders<SockaddrIn>,
    datagrams: &[[IoSlice<'_>; 3]],
) -> io::Result<usize> {
    const NOWHERE: [Option<SockaddrIn>; BATCH] = [None; BATCH];
    let since = Instant::now();
    loop {
        let fd = socket.as_raw_fd();
        match sendmmsg(fd, headers, datagrams.iter(), NOWHERE, [], MsgFlags::empty()) {
            Ok(results) => return Ok(results.count()),
            Err(Errno::EINTR) => {}
            Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::ENOMEM)
                if since.elapsed() < OUT_OF_BREATH =>
            {
                std::thread::sleep(BREATH);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// How long to try to reach a hub that is gone.
const GONE: Duration = Duration::from_secs(10);

/// Sends to a hub.
pub(crate) struct ToHub {
    url: TcpUrl,
    client: Client,
    /// How often it went away and came back.
    reconnections: u64,
}

impl ToHub {
    pub(crate) fn open(url: TcpUrl) -> Result<Self, Error> {
        let client = Client::connect(&url.host, url.port, CONNECT);
        let client = client.map_err(|e| Error::refused(e.to_string()))?;
        Ok(Self { url, client, reconnections: 0 })
    }

    fn send(&mut self, messages: &[Outgoing<'_>], limit: &mut Limiter) -> Result<(), Error> {
        for Outgoing { channel, payload } in messages {
            limit.admit([Weight { bytes: channel.len() + payload.len(), messages: 1 }]);
        }
        let Err(mut failed) = publish(&mut self.client, messages) else { return Ok(()) };
        let since = Instant::now();
        while since.elapsed() < GONE && !limit.cancelled.load(Ordering::Relaxed) {
            std::thread::sleep(RETRY);
            let client = Client::connect(&self.url.host, self.url.port, RETRY);
            let Ok(mut client) = client else { continue };
            // All of them: nobody knows which the hub had handed on before it went away.
            match publish(&mut client, messages) {
                Ok(()) => {
                    self.client = client;
                    self.reconnections += 1;
                    return Ok(());
                }
                Err(error) => failed = error,
            }
        }
        Err(Error::refused(format!("{}: {failed}; it could not be reached again", self.url)))
    }
}

/// Publishes messages, and sees to it that the system has them.
fn publish(client: &mut Client, messages: &[Outgoing<'_>]) -> Result<(), String> {
    for Outgoing { channel, payload } in messages {
        client.publish(without_nul(channel), payload).map_err(|e| e.to_string())?;
    }
    client.flush().map_err(|e| e.to_string())
}

/// Holds back what would be sent faster than it may be.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// Seconds a message and a byte take.
    message: f64,
    byte: f64,
    /// When the next datagram may go.
    next: Instant,
    cancelled: Arc<AtomicBool>,
    playback: Arc<Playback>,
}

/// How much may be sent at once.
const BURST: Duration = Duration::from_millis(1);
/// How long to wait before looking whether the run is to end.
const PATIENCE: Duration = Duration::from_millis(50);

impl Limiter {
    /// At most so many messages, and bytes, a second.
    pub(crate) fn new(
        messages: Option<f64>,
        bytes: Option<f64>,
        (playback, cancelled): (Arc<Playback>, Arc<AtomicBool>),
    ) -> Self {
        let per = |rate: Option<f64>| rate.map_or(0.0, |rate| 1.0 / rate);
        let next = Instant::now();
        Self { message: per(messages), byte: per(bytes), next, cancelled, playback }
    }

    /// Whether nothing is ever held back.
    pub(crate) fn is_free(&self) -> bool {
        self.message == 0.0 && self.byte == 0.0
    }

    /// Waits until something may be sent; gives how many of these may go now.
    ///
    /// When the run ends early they may all go: nobody is to get half a message.
    fn admit(&mut self, weights: impl IntoIterator<Item = Weight>) -> usize {
        let weights = weights.into_iter();
        if self.is_free() {
            return weights.count();
        }
        while let Some(wait) = self.next.checked_duration_since(Instant::now()) {
            if self.cancelled.load(Ordering::Relaxed) || self.playback.is_redirected() {
                return weights.count();
            }
            std::thread::sleep(wait.min(PATIENCE));
        }
        // Time that was not used is not saved up.
        let now = Instant::now();
        self.next = self.next.max(now.checked_sub(BURST).unwrap_or(now));
        let mut admitted = 0;
        for Weight { bytes, messages } in weights {
            if admitted > 0 && self.next > now {
                break;
            }
            let seconds = bytes as f64 * self.byte + messages as f64 * self.message;
            self.next += Duration::from_secs_f64(seconds.min(3600.0));
            admitted += 1;
        }
        admitted
    }
}

/// What a datagram counts for.
struct Weight {
    bytes: usize,
    /// 1, if it begins a message.
    messages: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_without_bursts() {
        let mut limiter = Limiter::new(Some(10_000.0), None, Default::default());
        let (begun, mut sent, mut most) = (Instant::now(), 0, 0);
        while sent < 500 {
            let now = limiter.admit((sent..500).map(|_| Weight { bytes: 100, messages: 1 }));
            (sent, most) = (sent + now, most.max(now));
        }
        // A burst and its last message may be ahead of their time.
        assert!(begun.elapsed() >= Duration::from_millis(45), "{:?}", begun.elapsed());
        assert!(most <= 30, "{most} at once");
    }

    #[test]
    fn without_a_limit_everything_may_go() {
        let mut limiter = Limiter::new(None, None, Default::default());
        assert_eq!(limiter.admit((0..64).map(|_| Weight { bytes: 65_507, messages: 1 })), 64);
    }

    #[test]
    fn what_ends_early_is_not_cut() {
        let cancelled = Arc::new(AtomicBool::new(true));
        let mut limiter = Limiter::new(None, Some(1.0), (Arc::default(), cancelled));
        limiter.admit([Weight { bytes: 1_000_000, messages: 1 }]);
        assert_eq!(limiter.admit((0..46).map(|_| Weight { bytes: 65_507, messages: 0 })), 46);
    }
}
