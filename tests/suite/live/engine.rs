//! The engine with endless sources and playing sinks, on the loopback interface.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_kit::Playback;
use sluice_pipeline::Report;
use sluice_pipeline::report::Note;
use sluice_pipeline::run::{self, Options, Progress, Snapshot, Stop};
use socket2::Socket;

use super::{PATIENCE, until};
use crate::kit::{BEGIN, Folder, LcmEvent, log, pipeline};

/// A port that no other socket gets until the tests end.
fn port() -> u16 {
    let reserving = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = reserving.local_addr().unwrap().port();
    std::mem::forget(reserving);
    port
}

fn address(port: u16) -> String {
    format!("url = \"udpm://239.255.76.67:{port}?ttl=0\"\ninterface = \"lo\"")
}

/// A source of this name and these options.
fn live(name: &str, port: u16, options: &str) -> String {
    format!("[sources.{name}]\nplugin = \"lcm-udp\"\n{}\n{options}\n", address(port))
}

/// A sink that plays the events of `from`.
fn player(from: &str, port: u16, options: &str) -> String {
    format!(
        "[sinks.again]\nplugin = \"lcm-udp\"\nfrom = \"{from}\"\n{}\n{options}\n",
        address(port)
    )
}

fn file(name: &str, from: &str) -> String {
    format!(
        "[sinks.{name}]\nplugin = \"lcm-log\"\nfrom = \"{from}\"\npath = \"${{DIR}}/{name}.lcm\"\n"
    )
}

/// Sends short messages through the loopback interface.
fn send(port: u16, messages: impl IntoIterator<Item = u32>) {
    let socket = sender();
    messages.into_iter().for_each(|n| send_from(&socket, port, n));
}

fn sender() -> Socket {
    let socket = Socket::from(UdpSocket::bind("127.0.0.1:0").unwrap());
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    socket
}

fn send_from(socket: &Socket, port: u16, n: u32) {
    let to = std::net::SocketAddrV4::new([239, 255, 76, 67].into(), port);
    let datagram = [b"LC02", &n.to_be_bytes()[..], b"A\0", &n.to_be_bytes()].concat();
    socket.send_to(&datagram, &to.into()).unwrap();
    std::thread::sleep(Duration::from_millis(1));
}

fn run(text: &str, folder: &Folder, options: &Options) -> Report {
    run::run(pipeline(text, folder.path()), options).unwrap()
}

/// Ends a run if the thread beside it fails: the test would wait for it without end.
struct OnFailure<F: Fn()>(F);

impl<F: Fn()> Drop for OnFailure<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Waits until the live sources of a run listen, and until they have received.
#[derive(Default)]
struct Readiness {
    /// The number of listening sources.
    listening: AtomicU64,
    received: AtomicU64,
}

impl Readiness {
    /// The options of a run with this as its progress.
    fn options(self: &Arc<Self>) -> Options {
        Options { progress: Some(Arc::clone(self) as _), ..Options::default() }
    }

    /// Waits until this many sources listen, as earlier messages would be lost.
    fn wait_for(&self, sources: u64) {
        let listen = || self.listening.load(Ordering::Relaxed) >= sources;
        assert!(until(PATIENCE, listen), "{sources} sources never listened");
    }

    /// Waits until the run has read this many events.
    fn wait_for_events(&self, events: u64) {
        let received = || self.received.load(Ordering::Relaxed);
        assert!(until(PATIENCE, || received() >= events), "{} of {events} events", received());
    }
}

impl Progress for Readiness {
    fn update(&self, snapshot: &Snapshot) {
        self.received.store(snapshot.events, Ordering::Relaxed);
    }

    fn note(&self, _: &str, what: &str, _: u64) {
        if what.starts_with("listening to") {
            self.listening.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn read_events(folder: &Folder, name: &str) -> Vec<LcmEvent> {
    crate::kit::events(&folder.read(name))
}

/// A log of events an hour apart, each with its number as its payload.
fn slow_log(folder: &Folder, count: i64) {
    let event = |n: i64| LcmEvent::new(n, BEGIN + n * HOUR, "A", &(n as u32).to_be_bytes());
    folder.write("in.lcm", log(&(0..count).map(event).collect::<Vec<_>>()));
}

/// In the unit of times in LCM logs.
const HOUR: i64 = 3_600_000_000;

const LOG: &str = "[sources.log]\nplugin = \"lcm-log\"\npath = \"${DIR}/in.lcm\"\n";

fn numbers(events: &[LcmEvent]) -> Vec<u32> {
    let number = |event: &LcmEvent| u32::from_be_bytes(event.payload[..].try_into().unwrap());
    events.iter().map(number).collect()
}

#[test]
fn a_silent_live_source_keeps_no_other_waiting() {
    let (folder, busy, silent) = (Folder::new(), port(), port());
    // Neither source ends: the run ends when enough events have passed the merge.
    let text = live("busy", busy, "")
        + &live("silent", silent, "")
        + "[stages.some]\nplugin = \"limit\"\nfrom = [\"busy\", \"silent\"]\nevents = 20\n"
        + &file("got", "some");
    let readiness = Arc::<Readiness>::default();
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            readiness.wait_for(2);
            send(busy, 0..20);
        });
        run(&text, &folder, &readiness.options())
    });
    assert_eq!(read_events(&folder, "got.lcm").len(), 20);
    assert!(!report.interrupted);
}

/// Runs a pipeline that listens to a port, sends messages to it, and asks the run to end.
fn run_until_asked(text: &str, folder: &Folder, port: u16, messages: u32) -> Report {
    let (stop, readiness) = (Arc::<Stop>::default(), Arc::<Readiness>::default());
    let options = Options { stop: Arc::clone(&stop), ..readiness.options() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = OnFailure(|| stop.request());
            readiness.wait_for(1);
            send(port, 0..messages);
            stop.request();
        });
        run(text, folder, &options)
    })
}

#[test]
fn asking_a_live_run_to_end_is_its_end() {
    let (folder, port) = (Folder::new(), port());
    let text = live("live", port, "") + &file("got", "live");
    let report = run_until_asked(&text, &folder, port, 200);
    let got = numbers(&read_events(&folder, "got.lcm"));
    assert_eq!(got, (0..200).collect::<Vec<_>>());
    assert_eq!((report.interrupted, report.exit()), (false, 0));
}

#[test]
fn a_relay_that_is_asked_to_end_sends_what_its_stages_hold_back() {
    let (folder, from, to) = (Folder::new(), port(), port());
    let text = live("live", from, "")
        + "[stages.ordered]\nplugin = \"time\"\nfrom = \"live\"\nsort = \"1h\"\n"
        + &player("ordered", to, "speed = 0");
    let report = run_until_asked(&text, &folder, from, 20);
    let counts = report.channels.iter().map(|row| (row.entered, row.out, row.filtered));
    assert_eq!(counts.collect::<Vec<_>>(), [(20, 20, 0)]);
}

#[test]
fn what_a_receiver_tells_at_its_end_is_reported() {
    let (folder, port) = (Folder::new(), port());
    let text = live("live", port, "") + &file("got", "live");
    let (stop, readiness) = (Arc::<Stop>::default(), Arc::<Readiness>::default());
    let options = Options { stop: Arc::clone(&stop), ..readiness.options() };
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = OnFailure(|| stop.request());
            readiness.wait_for(1);
            let socket = sender();
            // Each message twice, of a sender that does not start anew.
            (0..40).for_each(|n| send_from(&socket, port, n / 2));
            stop.request();
        });
        run(&text, &folder, &options)
    });
    assert_eq!(numbers(&read_events(&folder, "got.lcm")), (0..20).collect::<Vec<_>>());
    let told = |note: &Note| note.what.contains("duplicate") && note.count == 20;
    assert!(report.notes.iter().any(told), "{:?}", report.notes);
}

#[test]
fn a_loop_plays_everything_again_also_through_stages_with_memory() {
    let (folder, port) = (Folder::new(), port());
    slow_log(&folder, 10);
    let sorted = "[stages.sorted]\nplugin = \"time\"\nfrom = \"log\"\nsort = \"1s\"\n";
    let text =
        LOG.to_owned() + sorted + &player("sorted", port, "speed = 0\nloop = 3\nmax_rate = 2000");
    let ears = live("live", port, "limit = 30\nidle_timeout = 20") + &file("got", "live");
    let readiness = Arc::<Readiness>::default();
    let (report, _) = std::thread::scope(|scope| {
        let heard = scope.spawn(|| run(&ears, &folder, &readiness.options()));
        readiness.wait_for(1);
        (run(&text, &folder, &Options::default()), heard.join().unwrap())
    });
    let thrice: Vec<u32> = (0..3).flat_map(|_| 0..10).collect();
    assert_eq!(numbers(&read_events(&folder, "got.lcm")), thrice);
    assert_eq!((report.sinks["again"].events, report.sources["log"].events), (30, 30));
}

#[test]
fn playback_continues_after_a_seek_and_every_event_is_counted() {
    let (folder, port) = (Folder::new(), port());
    slow_log(&folder, 3600);
    let text = LOG.to_owned() + &player("log", port, "speed = 1");
    let playback = Arc::<Playback>::default();
    let options = Options { playback: Arc::clone(&playback), ..Options::default() };
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = OnFailure(|| playback.end());
            let at = |hour: i64| (BEGIN + hour * HOUR) * 1_000;
            let wait_for = |events| {
                assert!(until(PATIENCE, || playback.played() >= events), "{events} events");
            };
            wait_for(1);
            playback.seek(at(3000));
            wait_for(2);
            // Back again, then to the end.
            playback.seek(at(100));
            wait_for(3);
            playback.seek(at(3599));
        });
        run(&text, &folder, &options)
    });
    let row = &report.channels[0];
    assert_eq!(row.entered, row.out + row.filtered);
    // One at each position.
    assert_eq!(row.out, 4, "{row:?}");
    assert!(!report.interrupted);
}

#[test]
fn a_loop_goes_on_after_a_seek_behind_its_end() {
    let (folder, port) = (Folder::new(), port());
    slow_log(&folder, 3600);
    let text = LOG.to_owned() + &player("log", port, "speed = 1\nloop = 2");
    let playback = Arc::<Playback>::default();
    let options = Options { playback: Arc::clone(&playback), ..Options::default() };
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = OnFailure(|| playback.end());
            let at = |hour: i64| (BEGIN + hour * HOUR) * 1_000;
            let has_played = |events| until(PATIENCE, || playback.played() >= events);
            assert!(has_played(1));
            playback.seek(at(4000));
            assert!(has_played(2), "the second round");
            playback.seek(at(3599));
        });
        run(&text, &folder, &options)
    });
    assert!(report.channels[0].out >= 3 && !report.interrupted);
}

#[test]
fn late_messages_of_a_live_source_are_received_at_once() {
    let (folder, busy, late) = (Folder::new(), port(), port());
    let text = live("busy", busy, "")
        + &live("late", late, "")
        + "[stages.renamed]\nplugin = \"rename\"\nfrom = \"late\"\nmap = { A = \"LATE\" }\n"
        + "[sinks.got]\nplugin = \"lcm-log\"\nfrom = [\"busy\", \"renamed\"]\n\
            path = \"${DIR}/got.lcm\"\n";
    let (stop, readiness) = (Arc::<Stop>::default(), Arc::<Readiness>::default());
    let options = Options { stop: Arc::clone(&stop), ..readiness.options() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = OnFailure(|| stop.request());
            readiness.wait_for(2);
            send(busy, 0..300);
            readiness.wait_for_events(300);
            send(late, 0..100);
            readiness.wait_for_events(400);
            send(busy, 300..600);
            stop.request();
        });
        run(&text, &folder, &options)
    });
    let events = read_events(&folder, "got.lcm");
    assert_eq!(events.len(), 700);
    let is_late = |event: &LcmEvent| event.channel == b"LATE";
    let (first, last) = (events.iter().position(is_late), events.iter().rposition(is_late));
    assert_eq!((first, last), (Some(300), Some(399)));
}
