use std::io::Read;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use super::super::client::{ClientError, ConnectError, HubClient};
use super::super::frame::{Publish, TcpqFrame};
use super::super::handshake::HANDSHAKE_LEN;
use super::*;

const LONG: Duration = Duration::from_secs(20);

/// The lines that a hub reported.
#[derive(Default)]
struct HubLog {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

impl HubLog {
    fn say(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
        self.more.notify_all();
    }

    /// Waits for the first line that contains `words`.
    fn line(&self, words: &str) -> String {
        let lines = self.lines.lock().unwrap();
        let lacks = |lines: &mut Vec<String>| !lines.iter().any(|line| line.contains(words));
        let (lines, _) = self.more.wait_timeout_while(lines, LONG, lacks).unwrap();
        let found = lines.iter().find(|line| line.contains(words));
        found.unwrap_or_else(|| panic!("no `{words}` in {lines:#?}")).clone()
    }
}

/// Stops a hub even if its test fails.
struct StopGuard<'a>(&'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn with_hub<T>(limits: HubLimits, body: impl FnOnce(&Hub, &HubLog) -> T) -> T {
    let hub = Hub::with_limits("127.0.0.1:0", limits).unwrap();
    let (stop, log) = (AtomicBool::new(false), HubLog::default());
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| hub.serve(&stop, |line| log.say(line)));
        let guard = StopGuard(&stop);
        let found = body(&hub, &log);
        drop(guard);
        serving.join().unwrap().unwrap();
        found
    })
}

fn client(hub: &Hub) -> HubClient {
    HubClient::connect("127.0.0.1", hub.local_addr().port(), LONG).unwrap()
}

/// A client whose subscriptions are known to the hub.
fn receiver(hub: &Hub, regexes: &[&str]) -> HubClient {
    let mut client = client(hub);
    for regex in regexes {
        client.subscribe(regex).unwrap();
    }
    // The hub handles what one client sends in order. No other client may receive this message.
    let name = format!("SETTLED_{}", client.local_addr().port());
    client.subscribe(&name).unwrap();
    client.publish(name.as_bytes(), b"").unwrap();
    assert_eq!(next(&mut client), (name.into_bytes(), Vec::new()));
    client
}

fn next(client: &mut HubClient) -> (Vec<u8>, Vec<u8>) {
    let message = client.next(LONG).unwrap().expect("a message comes");
    (message.channel().to_vec(), message.payload().to_vec())
}

fn send(client: &mut HubClient, channel: &str, payload: &[u8]) {
    client.publish(channel.as_bytes(), payload).unwrap();
    client.flush().unwrap();
}

/// A connection after the handshake, for sending what no client would.
fn raw(hub: &Hub) -> TcpStream {
    let socket = TcpStream::connect(hub.local_addr()).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    { &socket }.write_all(&handshake(PeerRole::Client)).unwrap();
    let mut hello = [0; HANDSHAKE_LEN];
    { &socket }.read_exact(&mut hello).unwrap();
    assert_eq!(hello, handshake(PeerRole::Server));
    socket
}

fn subscribe_raw(socket: &TcpStream, regex: &[u8]) {
    let frame = TcpqFrame::Subscribe(Bytes::copy_from_slice(regex));
    { socket }.write_all(&frame.to_bytes()).unwrap();
}

/// Polls until the condition holds.
fn until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !what() {
        assert!(Instant::now() < deadline, "it does not come about");
        std::thread::yield_now();
    }
}

#[test]
fn a_message_goes_once_to_every_client_that_wants_it() {
    with_hub(HubLimits::default(), |hub, _| {
        let mut one = receiver(hub, &["CAM_.*", "CAM_1", ".*_1"]);
        let mut two = receiver(hub, &["POSE|CAM_2"]);
        for (channel, payload) in [("CAM_1", "a"), ("CAM_2", "b"), ("CAM_22", "c"), ("POSE", "d")] {
            send(&mut two, channel, payload.as_bytes());
        }
        let messages = |pairs: &[(&str, &str)]| -> Vec<(Vec<u8>, Vec<u8>)> {
            pairs.iter().map(|(channel, text)| ((*channel).into(), (*text).into())).collect()
        };
        let got: Vec<_> = (0..3).map(|_| next(&mut one)).collect();
        assert_eq!(got, messages(&[("CAM_1", "a"), ("CAM_2", "b"), ("CAM_22", "c")]));
        let own: Vec<_> = (0..2).map(|_| next(&mut two)).collect();
        assert_eq!(own, messages(&[("CAM_2", "b"), ("POSE", "d")]));
        assert_eq!(one.next(Duration::ZERO).unwrap(), None);
    });
}

#[test]
fn messages_of_any_length_arrive_whole() {
    with_hub(HubLimits::default(), |hub, _| {
        let (mut to, mut from) = (receiver(hub, &["DATA"]), client(hub));
        let byte = |i: usize| u8::try_from(i % 251).unwrap();
        for len in [0, 1, 65_535, 65_536, 3_000_000] {
            let payload: Vec<u8> = (0..len).map(byte).collect();
            send(&mut from, "DATA", &payload);
            assert!(next(&mut to) == (b"DATA".to_vec(), payload), "{len} bytes");
        }
    });
}

#[test]
fn messages_keep_their_order_and_are_counted() {
    with_hub(HubLimits::default(), |hub, _| {
        let (mut to, mut from) = (receiver(hub, &["N"]), client(hub));
        for n in 0..20_000u32 {
            from.publish(b"N", &n.to_be_bytes()).unwrap();
        }
        from.flush().unwrap();
        for n in 0..20_000u32 {
            assert_eq!(next(&mut to).1, n.to_be_bytes());
        }
        // The first was the receiver's own. Who writes counts after writing.
        until(|| hub.counts().messages_out == 20_001);
        let name = format!("SETTLED_{}", to.local_addr().port());
        let (bytes, settled) = (20_000 * (12 + 1 + 4), 12 + name.len() as u64);
        assert_eq!(
            hub.counts(),
            HubCounts {
                clients: 2,
                messages_in: 20_001,
                messages_out: 20_001,
                dropped: 0,
                bytes_in: bytes + settled,
                bytes_out: bytes + settled,
            }
        );
        assert_eq!(hub.clients()[0].sent, 20_001);
        assert_eq!(hub.clients()[0].subscriptions, 2);
    });
}

#[test]
fn an_ended_subscription_gets_nothing_more() {
    with_hub(HubLimits::default(), |hub, log| {
        let (socket, mut from) = (raw(hub), client(hub));
        subscribe_raw(&socket, b"A");
        subscribe_raw(&socket, b"B");
        until(|| hub.clients()[0].subscriptions == 2);
        let received = |channel: &[u8], payload: &[u8]| {
            let message = Publish::new(channel, payload, &frame::FrameLimits::default()).unwrap();
            let mut found = vec![0; message.frame().len()];
            { &socket }.read_exact(&mut found).unwrap();
            assert_eq!(found, message.frame()[..]);
        };
        send(&mut from, "A", b"1");
        received(b"A", b"1");
        let ended =
            |text: &'static [u8]| TcpqFrame::Unsubscribe(Bytes::from_static(text)).to_bytes();
        { &socket }.write_all(&ended(b"A")).unwrap();
        until(|| hub.clients()[0].subscriptions == 1);
        send(&mut from, "A", b"2");
        send(&mut from, "B", b"3");
        received(b"B", b"3");
        { &socket }.write_all(&ended(b"\x1b[2J")).unwrap();
        assert!(log.line("ends a sub").ends_with("does not have: `\\u{1b}[2J`"));
    });
}

#[test]
fn a_slow_client_loses_messages_which_is_reported_and_a_fast_one_gets_all() {
    let limits = HubLimits { queue_bytes: 1 << 20, ..HubLimits::default() };
    with_hub(limits, |hub, log| {
        let (slow, mut fast, mut from) = (raw(hub), receiver(hub, &["A"]), client(hub));
        subscribe_raw(&slow, b".*");
        until(|| hub.clients()[0].subscriptions == 1);
        let payload = vec![1; 100_000];
        let mut sent = 0;
        // The queue also overflows while the client's writer had no time to run, which then empties
        // it: the client is slow if nothing at all was sent to it during some messages.
        let (mut before, mut unsent) = (hub.clients()[0], 0);
        while unsent < 20 {
            send(&mut from, "A", &payload);
            assert_eq!(next(&mut fast).1, payload);
            sent += 1;
            assert!(sent < 10_000, "nothing is ever dropped");
            let now = hub.clients()[0];
            let is_full = now.dropped >= 5 && now.waiting > 900_000;
            unsent = if is_full && now.sent == before.sent { unsent + 1 } else { 0 };
            before = now;
        }
        assert!(log.line("is too slow: ").ends_with("in all"));
        let slow_one = hub.clients()[0];
        assert!(slow_one.waiting > 900_000, "{slow_one:?}");
        assert_eq!(hub.counts().dropped, slow_one.dropped);
        assert_eq!(hub.clients()[1].dropped, 0);
        drop(slow);
        let words = format!("queued messages were not sent, {} were dropped", slow_one.dropped);
        assert!(log.line(&words).contains("has left"));
        send(&mut from, "A", b"after");
        assert_eq!(next(&mut fast).1, b"after");
    });
}

#[test]
fn a_client_that_never_reads_is_disconnected() {
    let limits = HubLimits { stall: Duration::from_millis(200), ..HubLimits::default() };
    with_hub(limits, |hub, log| {
        let (idle, mut from) = (raw(hub), client(hub));
        subscribe_raw(&idle, b".*");
        until(|| hub.clients()[0].subscriptions == 1);
        for _ in 0..20 {
            send(&mut from, "A", &[0; 1 << 20]);
        }
        let line = log.line("accepted no data");
        let words = format!(
            "{} was disconnected: it accepted no data for 200ms; ",
            idle.local_addr().unwrap()
        );
        assert!(line.starts_with(&words), "{line}");
        until(|| hub.counts().clients == 1);
    });
}

#[test]
fn only_clients_that_break_the_protocol_are_disconnected() {
    with_hub(HubLimits::default(), |hub, log| {
        let mut other = receiver(hub, &["A"]);
        let mut web = TcpStream::connect(hub.local_addr()).unwrap();
        web.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut of_type = raw(hub);
        of_type.write_all(&[0, 0, 0, 9]).unwrap();
        let mut too_long = raw(hub);
        too_long.write_all(&[0, 0, 0, 2, 0xff, 0, 0, 0]).unwrap();
        let mut too_large = raw(hub);
        too_large.write_all(&[0, 0, 0, 1, 0, 0, 0, 0, 0x10, 0, 0, 1]).unwrap();
        let mut cut = raw(hub);
        cut.write_all(&[0, 0, 0, 1, 0]).unwrap();
        cut.shutdown(Shutdown::Write).unwrap();
        for words in [
            "found 47 45 54 20 2f 20 48 54 (`GET / HT`)",
            "found type 9 (0x00000009) at byte 8 of the stream",
            "regular expression of 4278190080 bytes is longer than the 65536 allowed at byte 12",
            "payload of 268435457 bytes is longer than the 268435456 allowed at byte 16",
            "has left 5 bytes into a frame",
        ] {
            let line = log.line(words);
            assert!(line.contains(" was disconnected: ") || line.contains("has left"), "{line}");
        }
        until(|| hub.counts().clients == 1);
        send(&mut other, "A", b"still here");
        assert_eq!(next(&mut other).1, b"still here");
    });
}

#[test]
fn a_silent_client_is_disconnected() {
    let limits =
        HubLimits { handshake_timeout: Duration::from_millis(200), ..HubLimits::default() };
    with_hub(limits, |hub, log| {
        let _silent = TcpStream::connect(hub.local_addr()).unwrap();
        let line = log.line("the handshake of an lcm client within 200ms, found nothing");
        assert!(line.contains(" was disconnected: "), "{line}");
        until(|| hub.counts().clients == 0);
    });
}

#[test]
fn an_invalid_regular_expression_is_reported_and_ignored() {
    with_hub(HubLimits::default(), |hub, log| {
        let mut client = receiver(hub, &["CAM(", "B"]);
        let line = log.line("CAM(");
        assert!(
            line.ends_with(": its subscription `CAM(` is not a regular expression: unclosed group"),
            "{line}"
        );
        send(&mut client, "B", b"1");
        assert_eq!(next(&mut client).1, b"1");
        for _ in 0..100 {
            client.subscribe("(").unwrap();
        }
        log.line("; further mistakes are not reported");
        receiver(hub, &[]);
        let complaints =
            log.lines.lock().unwrap().iter().filter(|l| l.contains("unclosed")).count();
        assert_eq!(complaints, 10);
    });
}

#[test]
fn names_that_are_no_utf_8_are_matched_as_latin_1() {
    with_hub(HubLimits::default(), |hub, _| {
        let mut client = receiver(hub, &["caf."]);
        client.publish(b"caf\xe9", b"x").unwrap();
        assert_eq!(next(&mut client), (b"caf\xe9".to_vec(), b"x".to_vec()));
    });
}

#[test]
fn one_client_too_many_is_disconnected() {
    with_hub(HubLimits { clients: 1, ..HubLimits::default() }, |hub, log| {
        let mut first = receiver(hub, &["A"]);
        let second = HubClient::connect("127.0.0.1", hub.local_addr().port(), LONG);
        assert!(matches!(
            second,
            Err(ConnectError::Handshake { .. } | ConnectError::Connect { .. })
        ));
        log.line("was refused: the limit of 1 clients is reached");
        send(&mut first, "A", b"1");
        assert_eq!(next(&mut first).1, b"1");
        drop(first);
        until(|| hub.counts().clients == 0);
        receiver(hub, &["A"]);
    });
}

#[test]
fn a_stopped_hub_ends_all_connections() {
    let mut left = with_hub(HubLimits::default(), |hub, log| {
        let idle = TcpStream::connect(hub.local_addr()).unwrap();
        until(|| hub.counts().clients == 1);
        let clients = [receiver(hub, &["A"]), receiver(hub, &["B"])];
        log.line("has connected");
        (idle, clients)
    });
    for client in &mut left.1 {
        let error = client.next(LONG).unwrap_err();
        assert!(matches!(error, ClientError::Closed { pending: 0 }), "{error}");
    }
}

#[test]
fn a_hub_can_serve_again() {
    let hub = Hub::bind("127.0.0.1:0").unwrap();
    for _ in 0..2 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| hub.serve(&stop, |_| {}));
            let _guard = StopGuard(&stop);
            receiver(&hub, &["A"]);
        });
        assert_eq!(hub.counts().clients, 0);
    }
}

#[test]
fn a_port_in_use_is_reported() {
    let hub = Hub::bind("127.0.0.1:0").unwrap();
    let error = Hub::bind(hub.local_addr()).unwrap_err();
    assert!(matches!(error, HubError::InUse), "{error}");
    assert!(error.to_string().contains("choose another port"));
}

#[test]
fn hosts_are_names_or_addresses_of_either_kind() {
    with_hub(HubLimits::default(), |hub, _| {
        let port = hub.local_addr().port();
        // Where it also means ::1, on which nothing listens, the next address is tried.
        assert!(HubClient::connect("localhost", port, LONG).is_ok());
        assert!(matches!(
            HubClient::connect("no such host", port, LONG),
            Err(ConnectError::Resolve { .. })
        ));
    });
    let Ok(hub) = Hub::bind("[::1]:0") else {
        println!("skipped: no IPv6 here");
        return;
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| hub.serve(&stop, |_| {}));
        let _guard = StopGuard(&stop);
        for host in ["::1", "[::1]"] {
            assert!(HubClient::connect(host, hub.local_addr().port(), LONG).is_ok());
        }
    });
}
