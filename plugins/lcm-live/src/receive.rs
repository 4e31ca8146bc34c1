//! The receiving threads: they take messages off the network as fast as possible, and report what
//! was lost.

use std::io::{self, IoSliceMut};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn, recvmmsg};
use nix::sys::time::TimeSpec;
use sluice_model::{Error, LossLog, ReadContext, RunHandle};
use socket2::Socket;

use crate::batcher::{Batcher, LiveChannelFilter};
use crate::intake::{Intake, IntakeLimits, MessagePayload};
use crate::membership::Membership;
use crate::options::{Interface, SocketInterface};
use crate::tcpq::client::{CONNECT_TIMEOUT, HubClient, RETRY_INTERVAL};
use crate::udp;
use crate::url::{TcpUrl, UdpUrl};

/// Conditions under which receiving ends by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StopConditions {
    pub(crate) duration: Option<Duration>,
    pub(crate) idle: Option<Duration>,
}

/// How long to wait for messages before checking whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Receives on a new thread until it is time to stop, which ends the batches.
pub(crate) fn start(
    session: ReceiveSession,
    receive: impl FnOnce(ReceiveSession) -> Result<(), Error> + Send + 'static,
) -> Result<(), Error> {
    session.batcher.inbox.sender().start_thread(move |_| receive(session))
}

/// The state of a receiving thread.
pub(crate) struct ReceiveSession {
    pub(crate) batcher: Batcher,
    pub(crate) filter: LiveChannelFilter,
    pub(crate) stop_conditions: StopConditions,
    pub(crate) losses: Arc<LossLog>,
    run: RunHandle,
    started: Instant,
    /// When the last message arrived.
    last_message: Instant,
    events_seen: u64,
}

impl ReceiveSession {
    pub(crate) fn new(
        batcher: Batcher,
        filter: LiveChannelFilter,
        stop_conditions: StopConditions,
        context: &ReadContext,
    ) -> Self {
        let now = Instant::now();
        Self {
            batcher,
            filter,
            stop_conditions,
            losses: Arc::clone(&context.losses),
            run: context.run.clone(),
            started: now,
            last_message: now,
            events_seen: 0,
        }
    }

    /// Whether to stop receiving.
    fn should_stop(&mut self) -> bool {
        if self.batcher.events() > self.events_seen {
            (self.events_seen, self.last_message) = (self.batcher.events(), Instant::now());
        }
        let past = |limit: Option<Duration>, since: Instant| {
            limit.is_some_and(|limit| since.elapsed() >= limit)
        };
        self.run.is_cancelled()
            || self.batcher.is_done()
            || past(self.stop_conditions.duration, self.started)
            || past(self.stop_conditions.idle, self.last_message)
    }

    /// How long to wait for messages at most.
    fn poll_timeout(&self) -> Duration {
        let left = |limit: Option<Duration>, since: Instant| {
            limit.map(|limit| limit.saturating_sub(since.elapsed()))
        };
        let times = [
            self.batcher.time_to_flush(),
            left(self.stop_conditions.duration, self.started),
            left(self.stop_conditions.idle, self.last_message),
        ];
        times.into_iter().flatten().fold(POLL_INTERVAL, Duration::min)
    }

    /// Losses on this side of the network.
    fn own_losses(&self) -> [(&'static str, u64); 2] {
        [
            (
                "messages received while the pipeline or the disk was too slow",
                self.batcher.inbox.dropped(),
            ),
            (
                "messages on more channels than are told apart (65536)",
                self.batcher.over_channel_limit,
            ),
        ]
    }
}

/// Most datagrams taken with one call.
const MAX_DATAGRAMS: usize = 64;
/// Large datagrams are taken in smaller batches that stay in the core's own cache.
const CACHE_BYTES: usize = 512 << 10;
const MIN_DATAGRAMS: usize = 8;
/// Longer than any datagram.
const DATAGRAM_SLOT: usize = 1 << 16;
/// How often counts are published.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
/// A message that was still active this long before the end is not counted as lost.
const IN_PROGRESS: Duration = Duration::from_millis(100);

/// The datagrams that the system dropped, and which of them no number tells of.
///
/// Dropped datagrams show up as gaps in the numbers that their sender sends later. Only the system
/// counts those after the last message of a sender, and those of senders never heard. A gap is
/// never older than the drops that caused it, so losses explain drops that came before them, and
/// none after them: a message lost in the network hides no drops that follow. A message may be many
/// datagrams; losses explain as many as they may stand for, so that none is counted twice.
#[derive(Debug, Default)]
struct DroppedDatagrams {
    all: u64,
    unexplained: u64,
    /// The datagrams that losses stood for when drops were last explained.
    missing: u64,
}

impl DroppedDatagrams {
    /// Adds dropped datagrams. `missing` is how many the losses noticed before may stand for.
    fn add(&mut self, new: u64, missing: u64) {
        self.explain(missing);
        self.all += new;
        self.unexplained += new;
    }

    /// Takes out those that the losses since the last call may stand for, out of `missing` in all.
    fn explain(&mut self, missing: u64) {
        let new = missing.saturating_sub(self.missing);
        self.unexplained = self.unexplained.saturating_sub(new);
        self.missing = missing;
    }
}

/// Receives from a multicast group.
pub(crate) struct GroupReceiver {
    socket: Socket,
    url: UdpUrl,
    interface: SocketInterface,
    membership: Membership,
    intake: Intake,
    /// Age at which an unfinished message is given up.
    age: Duration,
    slots: Vec<u8>,
    /// Average length of datagrams.
    average_len: usize,
    started: Instant,
    /// The system's counter of dropped datagrams, which wraps.
    overflow: u32,
    dropped: DroppedDatagrams,
    last_published: Option<Instant>,
}

impl GroupReceiver {
    pub(crate) fn new(
        socket: Socket,
        url: UdpUrl,
        (given_interface, interface): (Option<Interface>, SocketInterface),
        limits: IntakeLimits,
    ) -> Self {
        let membership = Membership::new(url.clone(), given_interface, interface);
        let (age, intake) = (limits.age, Intake::new(limits));
        let (slots, started) = (vec![0; MAX_DATAGRAMS * DATAGRAM_SLOT], Instant::now());
        Self {
            socket,
            url,
            interface,
            membership,
            intake,
            age,
            slots,
            average_len: 0,
            started,
            overflow: 0,
            dropped: DroppedDatagrams::default(),
            last_published: None,
        }
    }

    /// Receives until it is time to stop.
    pub(crate) fn run(mut self, mut to: ReceiveSession) -> Result<(), Error> {
        while !to.should_stop() {
            let received = self.receive(&mut to)?;
            to.batcher.flush_due(false);
            self.publish_counts(&to, false);
            if received == 0 {
                self.wait(to.poll_timeout())?;
                self.membership.renew_if_silent(&self.socket, &to.losses);
            } else {
                self.membership.confirm();
            }
        }
        // Also take what the system has received by now.
        let most = Instant::now() + Duration::from_secs(1);
        while !to.batcher.is_done() && Instant::now() < most && self.receive(&mut to)? > 0 {}
        to.batcher.flush_due(true);
        self.finish(&to);
        Ok(())
    }

    fn finish(&mut self, to: &ReceiveSession) {
        let now = self.now();
        let spare = self.age.saturating_sub(IN_PROGRESS).as_nanos() as u64;
        self.intake.expire(now.saturating_add(spare));
        // After the last message wanted, nothing counts as lost.
        if !to.batcher.is_done() {
            let all = udp::dropped_datagrams(&self.socket).unwrap_or_default();
            let after_last = all.saturating_sub(self.dropped.all);
            self.dropped.add(after_last, self.intake.missing_datagrams());
        }
        let unfinished = self.intake.unfinished() as u64;
        if unfinished > 0 {
            to.losses.note("messages were incomplete when receiving ended", unfinished);
        }
        self.publish_counts(to, true);
        for (what, count) in self.intake.counts().observations() {
            to.losses.note(what, count);
        }
        if self.dropped.all > 0 {
            to.losses.note(
                "datagrams were dropped by the system because the socket buffer was full; raise \
                 `socket_buffer` or recv_buf_size, or send fewer at a time",
                self.dropped.all,
            );
        }
        for sender in self.intake.senders().filter(|sender| sender.lost() > 0).take(20) {
            let (lost, sent, from) = (sender.lost(), sender.sent, sender.address);
            to.losses.note(format!("{lost} of {sent} messages from {from} were lost"), 0);
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Waits for a datagram, at most this long.
    fn wait(&self, patience: Duration) -> Result<(), Error> {
        // Rounded up: otherwise the last millisecond would be a busy loop.
        let patience = patience + Duration::from_micros(999);
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: Errno) -> Error {
        udp::explain_error("receive from", &self.url, self.interface, io::Error::from(error))
    }

    /// Takes the datagrams that are there, up to a batch. Returns how many.
    fn receive(&mut self, to: &mut ReceiveSession) -> Result<usize, Error> {
        let now = self.started.elapsed().as_nanos() as u64;
        // Allocated for each call: the system overwrites the capacity of control messages with
        // their length.
        let control = nix::cmsg_space!(TimeSpec, u32);
        let most = (CACHE_BYTES / self.average_len.max(1)).clamp(MIN_DATAGRAMS, MAX_DATAGRAMS);
        let mut headers = MultiHeaders::<SockaddrIn>::preallocate(most, Some(control));
        let slots = self.slots.chunks_exact_mut(DATAGRAM_SLOT).take(most);
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            slots.map(|slot| [IoSliceMut::new(slot)]).collect();
        let fd = self.socket.as_raw_fd();
        let messages =
            match recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None) {
                Ok(messages) => messages,
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(0),
                Err(error) => return Err(self.failed(error)),
            };
        let ReceiveSession { batcher, filter, .. } = to;
        let (mut received, mut failed) = (0, None);
        for message in messages {
            if batcher.is_done() {
                // Messages after the last one wanted are no loss.
                break;
            }
            received += 1;
            let mut time = None;
            for control in message.cmsgs().into_iter().flatten() {
                match control {
                    ControlMessageOwned::ScmTimestampns(at) => time = Some(nanos(at)),
                    ControlMessageOwned::RxqOvfl(count) => {
                        let new = u64::from(count.wrapping_sub(self.overflow));
                        self.dropped.add(new, self.intake.missing_datagrams());
                        self.overflow = count;
                    }
                    _ => {}
                }
            }
            let time = time.unwrap_or_else(wall_clock);
            let from =
                message.address.as_ref().map_or(SocketAddrV4::new([0; 4].into(), 0), |address| {
                    SocketAddrV4::new(address.ip(), address.port())
                });
            let datagram = message.iovs().next().unwrap_or_default();
            self.average_len = (self.average_len * 7 + datagram.len()) / 8;
            self.intake.take(
                datagram,
                from,
                now,
                |name| filter.accepts(name),
                |message| {
                    if let Err(error) = batcher.push(message.channel, message.payload, time) {
                        failed.get_or_insert(error);
                    }
                },
            );
        }
        failed.map_or(Ok(received), Err)
    }

    /// Publishes the counts, at most every [`PUBLISH_INTERVAL`].
    fn publish_counts(&mut self, to: &ReceiveSession, at_end: bool) {
        if !at_end && self.last_published.is_some_and(|shown| shown.elapsed() < PUBLISH_INTERVAL) {
            return;
        }
        self.last_published = Some(Instant::now());
        if !at_end {
            self.intake.expire(self.now());
        }
        let counts = self.intake.counts();
        self.dropped.explain(self.intake.missing_datagrams());
        let unexplained = self.dropped.unexplained;
        let unseen = [("datagrams dropped by the system, of which no number tells", unexplained)];
        to.losses.set(counts.losses().chain(to.own_losses()).chain(unseen));
    }
}

/// Receives from a hub.
pub(crate) struct HubReceiver {
    url: TcpUrl,
    /// The subscriptions.
    regexes: Vec<String>,
    client: Option<HubClient>,
}

impl HubReceiver {
    /// Connects. The first attempt has to succeed.
    pub(crate) fn connect(url: TcpUrl, regexes: Vec<String>) -> Result<Self, Error> {
        let mut hub = Self { url, regexes, client: None };
        hub.client = Some(hub.try_connect().map_err(Error::refused)?);
        Ok(hub)
    }

    fn try_connect(&self) -> Result<HubClient, String> {
        let mut client = HubClient::connect(&self.url.host, self.url.port, CONNECT_TIMEOUT)
            .map_err(|e| e.to_string())?;
        for regex in &self.regexes {
            client.subscribe(regex).map_err(|e| e.to_string())?;
        }
        client.flush().map_err(|e| e.to_string())?;
        Ok(client)
    }

    /// Receives until it is time to stop.
    pub(crate) fn run(mut self, mut to: ReceiveSession) -> Result<(), Error> {
        let (mut tried, mut shown) = (Instant::now(), Instant::now());
        while !to.should_stop() {
            if shown.elapsed() >= PUBLISH_INTERVAL {
                shown = Instant::now();
                to.losses.set(to.own_losses());
            }
            if self.client.is_some() {
                let patience = to.poll_timeout();
                if !self.receive(&mut to, patience)? && self.client.is_none() {
                    tried = Instant::now();
                }
            } else if tried.elapsed() >= RETRY_INTERVAL {
                tried = Instant::now();
                self.client = self.try_connect().ok();
            } else {
                std::thread::sleep(POLL_INTERVAL);
            }
            to.batcher.flush_due(false);
        }
        // Also take what the system has received by now.
        let most = Instant::now() + Duration::from_secs(1);
        while !to.batcher.is_done()
            && Instant::now() < most
            && self.receive(&mut to, Duration::ZERO)?
        {}
        to.batcher.flush_due(true);
        to.losses.set(to.own_losses());
        Ok(())
    }

    /// Takes a message if one arrives in time. Returns whether one did.
    fn receive(&mut self, to: &mut ReceiveSession, wait: Duration) -> Result<bool, Error> {
        let Some(client) = &mut self.client else { return Ok(false) };
        match client.next(wait) {
            Ok(Some(publish)) => {
                if to.filter.accepts(publish.channel()) {
                    let channel = publish.channel().to_vec();
                    let payload = MessagePayload::Owned(publish.into_payload());
                    to.batcher.push(&channel, payload, wall_clock())?;
                }
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => {
                to.losses.note(format!("{}: {error}; reconnecting", self.url), 1);
                let gone = error.ends_connection();
                self.client = self.client.take().filter(|_| !gone);
                Ok(false)
            }
        }
    }
}

fn nanos(at: TimeSpec) -> i64 {
    at.tv_sec().saturating_mul(1_000_000_000).saturating_add(at.tv_nsec())
}

/// The time of day, in nanoseconds since 1970.
fn wall_clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
