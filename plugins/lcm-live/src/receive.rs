//! Receiving: the threads that take messages off the network, as fast as it gives them, and keep the
//! books of what it did not give.

use std::io::{self, IoSliceMut};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn, recvmmsg};
use nix::sys::time::TimeSpec;
use sluice_core::{Batch, Error, LossLog, ReadContext, Reader};
use socket2::Socket;

use crate::batcher::{Batcher, Wanted};
use crate::inbox::{Inbox, Mail};
use crate::intake::{Intake, Limits, Payload};
use crate::options::Card;
use crate::tcpq::client::{CONNECT, Client, RETRY};
use crate::udp;
use crate::url::{TcpUrl, UdpUrl};

/// When receiving ends by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Until {
    pub(crate) duration: Option<Duration>,
    pub(crate) idle: Option<Duration>,
}

/// Gives what a thread receives.
pub(crate) struct LiveReader {
    inbox: Arc<Inbox>,
    stop: Arc<AtomicBool>,
    context: ReadContext,
    thread: Option<JoinHandle<()>>,
}

/// How long to wait for messages before looking whether the run is to end.
const PATIENCE: Duration = Duration::from_millis(50);

impl LiveReader {
    /// Starts a thread that receives, and fills the inbox until it is told to stop.
    pub(crate) fn start(
        inbox: Arc<Inbox>,
        context: &ReadContext,
        receive: impl FnOnce(&AtomicBool) -> Result<(), Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let stop = Arc::<AtomicBool>::default();
        let (full, stopped) = (Ending(Arc::clone(&inbox)), Arc::clone(&stop));
        let run = move || full.0.end(receive(&stopped));
        let thread = std::thread::Builder::new().name("sluice-receive".into()).spawn(run);
        let thread = thread
            .map_err(|e| Error::refused(format!("cannot start a thread that receives: {e}")))?;
        Ok(Self { inbox, stop, context: context.clone(), thread: Some(thread) })
    }
}

/// Ends an inbox whatever becomes of who fills it: whoever waits for it would wait for ever.
struct Ending(Arc<Inbox>);

impl Drop for Ending {
    fn drop(&mut self) {
        // Does nothing where it has ended well.
        self.0.end(Err(Error::internal("the thread that receives has panicked")));
    }
}

impl Reader for LiveReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        loop {
            if self.context.is_cancelled() {
                self.stop.store(true, Ordering::Relaxed);
            }
            match self.inbox.take(PATIENCE)? {
                Mail::Batch(batch) => {
                    self.context.count_read(batch.payload_bytes());
                    return Ok(Some(batch));
                }
                Mail::Nothing => {}
                Mail::End => return Ok(None),
            }
        }
    }
}

impl Drop for LiveReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// What a thread needs that receives.
pub(crate) struct Receiving {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) batcher: Batcher,
    pub(crate) wanted: Wanted,
    pub(crate) until: Until,
    pub(crate) losses: Arc<LossLog>,
    started: Instant,
    /// When the last message came.
    heard: Instant,
    seen: u64,
}

impl Receiving {
    pub(crate) fn new(
        inbox: Arc<Inbox>,
        batcher: Batcher,
        wanted: Wanted,
        until: Until,
        losses: Arc<LossLog>,
    ) -> Self {
        let now = Instant::now();
        Self { inbox, batcher, wanted, until, losses, started: now, heard: now, seen: 0 }
    }

    /// Whether it is time to end.
    fn is_over(&mut self, stop: &AtomicBool) -> bool {
        if self.batcher.events() > self.seen {
            (self.seen, self.heard) = (self.batcher.events(), Instant::now());
        }
        let past = |limit: Option<Duration>, since: Instant| {
            limit.is_some_and(|limit| since.elapsed() >= limit)
        };
        stop.load(Ordering::Relaxed)
            || self.batcher.is_done()
            || past(self.until.duration, self.started)
            || past(self.until.idle, self.heard)
    }

    /// How long there is nothing to do unless something comes.
    fn patience(&self) -> Duration {
        let left = |limit: Option<Duration>, since: Instant| {
            limit.map(|limit| limit.saturating_sub(since.elapsed()))
        };
        let times = [
            self.batcher.due(),
            left(self.until.duration, self.started),
            left(self.until.idle, self.heard),
        ];
        times.into_iter().flatten().fold(PATIENCE, Duration::min)
    }

    /// What was lost on this side of the network.
    fn own_losses(&self) -> [(&'static str, u64); 2] {
        [
            ("messages received while the pipeline or the disk was too slow", self.inbox.dropped()),
            ("messages on more channels than are told apart (65536)", self.batcher.homeless),
        ]
    }
}

/// Most datagrams that are taken at a time.
const BATCH: usize = 64;
/// Fewer, if they are so long that together they would not stay in a core's own cache until they have been
/// looked at.
const NEAR: usize = 512 << 10;
const FEW: usize = 8;
/// The longest datagram there is, and more.
const SLOT: usize = 1 << 16;
/// How often the books are shown to others.
const SHOWN: Duration = Duration::from_millis(100);
/// How long a message may have been without news when receiving ends, and not count as lost.
const IN_PROGRESS: Duration = Duration::from_millis(100);

/// Receives from a multicast group.
pub(crate) struct FromGroup {
    socket: Socket,
    url: UdpUrl,
    card: Card,
    intake: Intake,
    /// When an unfinished message is given up.
    age: Duration,
    slots: Vec<u8>,
    /// How long datagrams usually are.
    usual: usize,
    started: Instant,
    /// Datagrams that the system has dropped, as it counts them: it wraps.
    overflow: u32,
    dropped: u64,
    /// How many of them behind the last datagram that came; known at the end.
    dropped_last: u64,
    shown: Option<Instant>,
}

impl FromGroup {
    pub(crate) fn new(socket: Socket, url: UdpUrl, card: Card, limits: Limits) -> Self {
        let (age, intake) = (limits.age, Intake::new(limits));
        let (slots, started) = (vec![0; BATCH * SLOT], Instant::now());
        Self {
            socket,
            url,
            card,
            intake,
            age,
            slots,
            usual: 0,
            started,
            overflow: 0,
            dropped: 0,
            dropped_last: 0,
            shown: None,
        }
    }

    /// Receives until it is time to end.
    pub(crate) fn run(mut self, mut to: Receiving, stop: &AtomicBool) -> Result<(), Error> {
        while !to.is_over(stop) {
            let got = self.receive(&mut to)?;
            to.batcher.tick(false);
            self.show(&to, false);
            if got == 0 {
                self.wait(to.patience())?;
            }
        }
        // What the system has received by now is ours, too.
        let most = Instant::now() + Duration::from_secs(1);
        while !to.batcher.is_done() && Instant::now() < most && self.receive(&mut to)? > 0 {}
        to.batcher.tick(true);
        self.finish(&to);
        Ok(())
    }

    fn finish(&mut self, to: &Receiving) {
        // Behind the last message that was asked for, nothing was.
        if !to.batcher.is_done() {
            let all = udp::drops(&self.socket).unwrap_or(self.dropped);
            self.dropped_last = all.saturating_sub(self.dropped);
            self.dropped = self.dropped.max(all);
        }
        let now = self.now();
        let spare = self.age.saturating_sub(IN_PROGRESS).as_nanos() as u64;
        self.intake.expire(now.saturating_add(spare));
        let unfinished = self.intake.unfinished() as u64;
        if unfinished > 0 {
            to.losses.note("messages were still coming in when receiving ended", unfinished);
        }
        self.show(to, true);
        for (what, count) in self.intake.counts().observations() {
            to.losses.note(what, count);
        }
        if self.dropped > 0 {
            to.losses.note(
                "datagrams were dropped by the system because the socket buffer was full: a larger \
                 `socket_buffer` or recv_buf_size, or fewer of them at a time",
                self.dropped,
            );
        }
        for sender in self.intake.senders().filter(|sender| sender.lost() > 0).take(20) {
            let what = format!("lost of the {} messages of {}", sender.sent, sender.address);
            to.losses.note(what, sender.lost());
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Waits until something has come, at most that long.
    fn wait(&self, patience: Duration) -> Result<(), Error> {
        // Rounded up, or the last millisecond would be spent in a busy loop.
        let patience = patience + Duration::from_micros(999);
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: Errno) -> Error {
        udp::explained("receive from", &self.url, self.card, io::Error::from(error))
    }

    /// Takes what has come, as much as fits; gives how many datagrams.
    fn receive(&mut self, to: &mut Receiving) -> Result<usize, Error> {
        let now = self.started.elapsed().as_nanos() as u64;
        // Anew each time: the system writes how long control messages were to where it reads how long
        // they may be.
        let control = nix::cmsg_space!(TimeSpec, u32);
        let most = (NEAR / self.usual.max(1)).clamp(FEW, BATCH);
        let mut headers = MultiHeaders::<SockaddrIn>::preallocate(most, Some(control));
        let slots = self.slots.chunks_exact_mut(SLOT).take(most);
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            slots.map(|slot| [IoSliceMut::new(slot)]).collect();
        let fd = self.socket.as_raw_fd();
        let messages =
            match recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None) {
                Ok(messages) => messages,
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(0),
                Err(error) => return Err(self.failed(error)),
            };
        let Receiving { batcher, wanted, .. } = to;
        let (mut got, mut failed) = (0, None);
        for message in messages {
            if batcher.is_done() {
                // What comes behind the last one that was asked for is nobody's loss.
                break;
            }
            got += 1;
            let mut time = None;
            for control in message.cmsgs().into_iter().flatten() {
                match control {
                    ControlMessageOwned::ScmTimestampns(at) => time = Some(nanos(at)),
                    ControlMessageOwned::RxqOvfl(count) => {
                        self.dropped += u64::from(count.wrapping_sub(self.overflow));
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
            self.usual = (self.usual * 7 + datagram.len()) / 8;
            self.intake.take(
                datagram,
                from,
                now,
                |name| wanted.wants(name),
                |message| {
                    if let Err(error) = batcher.push(message.channel, message.payload, time) {
                        failed.get_or_insert(error);
                    }
                },
            );
        }
        failed.map_or(Ok(got), Err)
    }

    /// Shows the books, every now and then.
    fn show(&mut self, to: &Receiving, at_end: bool) {
        if !at_end && self.shown.is_some_and(|shown| shown.elapsed() < SHOWN) {
            return;
        }
        self.shown = Some(Instant::now());
        if !at_end {
            self.intake.expire(self.now());
        }
        let counts = self.intake.counts();
        // What was dropped shows in the numbers of what comes after it. Behind the last message, and of
        // senders of whom nothing came, only the system's own count tells.
        let unseen = if counts.lost() == 0 { self.dropped } else { self.dropped_last };
        let unseen = [("datagrams dropped by the system, of which no number tells", unseen)];
        to.losses.set(counts.losses().chain(to.own_losses()).chain(unseen));
    }
}

/// Receives from a hub.
pub(crate) struct FromHub {
    url: TcpUrl,
    /// What the hub is asked for.
    regexes: Vec<String>,
    client: Option<Client>,
}

impl FromHub {
    /// Connects. The first time has to succeed.
    pub(crate) fn connect(url: TcpUrl, regexes: Vec<String>) -> Result<Self, Error> {
        let mut hub = Self { url, regexes, client: None };
        hub.client = Some(hub.reach().map_err(Error::refused)?);
        Ok(hub)
    }

    fn reach(&self) -> Result<Client, String> {
        let mut client =
            Client::connect(&self.url.host, self.url.port, CONNECT).map_err(|e| e.to_string())?;
        for regex in &self.regexes {
            client.subscribe(regex).map_err(|e| e.to_string())?;
        }
        client.flush().map_err(|e| e.to_string())?;
        Ok(client)
    }

    /// Receives until it is time to end.
    pub(crate) fn run(mut self, mut to: Receiving, stop: &AtomicBool) -> Result<(), Error> {
        let (mut tried, mut shown) = (Instant::now(), Instant::now());
        while !to.is_over(stop) {
            if shown.elapsed() >= SHOWN {
                shown = Instant::now();
                to.losses.set(to.own_losses());
            }
            if self.client.is_some() {
                let patience = to.patience();
                if !self.receive(&mut to, patience)? && self.client.is_none() {
                    tried = Instant::now();
                }
            } else if tried.elapsed() >= RETRY {
                tried = Instant::now();
                self.client = self.reach().ok();
            } else {
                std::thread::sleep(PATIENCE);
            }
            to.batcher.tick(false);
        }
        // What the system has received by now is ours, too.
        let most = Instant::now() + Duration::from_secs(1);
        while !to.batcher.is_done()
            && Instant::now() < most
            && self.receive(&mut to, Duration::ZERO)?
        {}
        to.batcher.tick(true);
        to.losses.set(to.own_losses());
        Ok(())
    }

    /// Takes a message, if one comes in that time; gives whether one has.
    fn receive(&mut self, to: &mut Receiving, wait: Duration) -> Result<bool, Error> {
        let Some(client) = &mut self.client else { return Ok(false) };
        match client.next(wait) {
            Ok(Some(publish)) => {
                if to.wanted.wants(publish.channel()) {
                    let channel = publish.channel().to_vec();
                    let payload = Payload::Owned(publish.into_payload());
                    to.batcher.push(&channel, payload, wall_clock())?;
                }
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => {
                to.losses.note(format!("{}: {error}; trying again", self.url), 1);
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
