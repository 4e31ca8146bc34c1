//! Source and sink over real sockets on the loopback interface: bytes, losses, ends and refusals.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_kit::Playback;
use sluice_kit::contract::PlainEvent;
use sluice_lcm_live::{LcmHub, LcmLive, LcmLiveSink};
use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelId, Channels, Encoding, Name, PrepareContext, Query,
    ReadContext, Reader, RunHandle, Service, Sink, SinkContext, Source, SplitStart,
};
use socket2::{Domain, Socket, Type};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 76, 67);

/// A port that no other socket gets until the tests end.
fn free_port() -> u16 {
    let reserving = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = reserving.local_addr().unwrap().port();
    std::mem::forget(reserving);
    port
}

fn url(port: u16) -> String {
    format!("udpm://{GROUP}:{port}?ttl=0")
}

fn source(options: Value) -> LcmLive {
    serde_json::from_value(options).unwrap()
}

fn sink(options: Value) -> LcmLiveSink {
    serde_json::from_value(options).unwrap()
}

/// A socket that sends arbitrary datagrams to the group over the loopback interface.
struct RawSender {
    socket: Socket,
    to: SocketAddrV4,
}

impl RawSender {
    fn new(port: u16) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        socket.set_multicast_ttl_v4(0).unwrap();
        Self { socket, to: SocketAddrV4::new(GROUP, port) }
    }

    fn send(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, &self.to.into()).unwrap();
    }

    fn short(&self, sequence: u32, channel: &str, payload: &[u8]) {
        self.send(
            &[b"LC02", &sequence.to_be_bytes()[..], channel.as_bytes(), &[0], payload].concat(),
        );
    }

    /// Sends fragment `number` of `parts`; the first has the channel.
    fn fragment(&self, sequence: u32, number: usize, channel: &str, parts: &[&[u8]]) {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let offset: usize = parts[..number].iter().map(|part| part.len()).sum();
        let mut datagram = b"LC03".to_vec();
        for field in [sequence, size as u32, offset as u32] {
            datagram.extend(field.to_be_bytes());
        }
        for field in [number, parts.len()] {
            datagram.extend((field as u16).to_be_bytes());
        }
        if number == 0 {
            datagram.extend([channel.as_bytes(), &[0]].concat());
        }
        datagram.extend(parts[number]);
        self.send(&datagram);
    }
}

/// What a source read until its end.
#[derive(Debug, Default)]
struct ReceivedEvents {
    events: Vec<PlainEvent>,
    losses: BTreeMap<String, u64>,
    notes: Vec<(String, u64)>,
}

/// Runs `act` while `source` receives, and returns what it received.
fn receive(source: &LcmLive, act: impl FnOnce()) -> ReceivedEvents {
    let context = ReadContext::standalone("live");
    receive_in(source, &context, act)
}

/// As [`receive`], of a source that ends after `act`.
fn receive_during(source: &LcmLive, act: impl FnOnce()) -> ReceivedEvents {
    let context = ReadContext::standalone("live");
    let run = context.run.clone();
    receive_in(source, &context, || {
        act();
        run.cancel();
    })
}

fn receive_in(source: &LcmLive, context: &ReadContext, act: impl FnOnce()) -> ReceivedEvents {
    let mut reader = open(source, context);
    act();
    let mut heard = ReceivedEvents::default();
    while let Some(batch) = reader.next_batch().unwrap() {
        heard.add(&batch, context);
    }
    heard.losses = context.losses.losses();
    heard.notes = context.losses.take_notes();
    heard
}

fn open<'s>(source: &'s LcmLive, context: &'s ReadContext) -> Box<dyn Reader + 's> {
    let splits = source.splits(1 << 20, &Query::default()).unwrap();
    assert!(splits.len() == 1 && splits[0].live);
    source.read(&splits[0], SplitStart::At(0), context).unwrap()
}

impl ReceivedEvents {
    fn add(&mut self, batch: &Batch, context: &ReadContext) {
        for event in batch.iter() {
            let channel = context.channels.get(event.channel);
            self.events.push(PlainEvent {
                timestamp: event.timestamp,
                sequence: event.sequence,
                source: channel.source.to_string(),
                channel: channel.name.text().to_owned(),
                payload: event.payload.to_vec(),
            });
        }
    }

    fn messages(&self) -> Vec<(&str, &[u8])> {
        self.events.iter().map(|event| (&*event.channel, &event.payload[..])).collect()
    }

    fn note(&self, part: &str) -> Option<u64> {
        self.notes.iter().find(|(what, _)| what.contains(part)).map(|(_, count)| *count)
    }

    fn lost(&self) -> u64 {
        self.losses.values().sum()
    }
}

#[test]
fn messages_are_given_as_they_came_with_times_and_numbers() {
    let port = free_port();
    let source = source(json!({ "url": url(port), "interface": "lo", "limit": 4 }));
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let heard = receive(&source, || {
        let wild = RawSender::new(port);
        wild.short(0, "POSE", b"one");
        wild.short(1, "", b"");
        wild.short(2, "LCM_SELF_TEST", b"lcm self test");
        let parts: [&[u8]; 3] = [b"a message ", b"in three ", b"parts"];
        [2, 0, 1].into_iter().for_each(|number| wild.fragment(3, number, "LONG", &parts));
        wild.short(4, "POSE", &[7; 60_000]);
    });
    let big = [7; 60_000];
    let wanted: [(&str, &[u8]); 4] =
        [("POSE", b"one"), ("", b""), ("LONG", b"a message in three parts"), ("POSE", &big)];
    assert_eq!(heard.messages(), wanted);
    assert_eq!(heard.events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let times: Vec<i64> = heard.events.iter().map(|event| event.timestamp).collect();
    assert!(times.is_sorted() && times[0] >= before.as_micros() as i64 * 1000, "{times:?}");
    assert!(times.iter().all(|time| time % 1000 == 0));
    assert_eq!(heard.lost(), 0, "{:?}", heard.losses);
}

#[test]
fn what_is_missing_twice_late_or_wrong_is_told_apart() {
    let port = free_port();
    // Long enough for any machine to send the next datagram.
    let source = source(json!({ "url": url(port), "interface": "lo", "idle_timeout": "2s" }));
    let heard = receive(&source, || {
        let wild = RawSender::new(port);
        let other = RawSender::new(port);
        for sequence in [u32::MAX - 1, 0, u32::MAX, 0, 3] {
            wild.short(sequence, "A", &sequence.to_be_bytes());
        }
        other.short(100, "B", b"x");
        // Of this one the middle never comes.
        let parts: [&[u8]; 3] = [b"11", b"22", b"33"];
        [0, 2].into_iter().for_each(|number| other.fragment(101, number, "B", &parts));
        // And of this one the last comes twice, and its first never.
        [1, 2, 2].into_iter().for_each(|number| other.fragment(102, number, "B", &parts));
        other.short(103, "B", b"y");
        for wrong in [&b"LC"[..], b"nothing of lcm", b"LC02\0\0\0\x68no end", &[0; 2000]] {
            other.send(wrong);
        }
        // The first fragment alone claims a quarter of a gigabyte.
        other.send(
            &[b"LC03", &[0, 0, 0, 104, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0][..], b"C\0x"]
                .concat(),
        );
        wild.short(4, "A", b"last");
    });
    let of = |name: &str| heard.messages().iter().filter(|(channel, _)| *channel == name).count();
    assert_eq!((of("A"), of("B"), of("C")), (5, 2, 0), "{:?}", heard.messages());
    // Numbers 1 and 2 of the first sender; three unfinished messages of the second.
    assert_eq!(heard.losses.get("messages of which nothing came"), Some(&2), "{:?}", heard.losses);
    assert_eq!(heard.lost(), 5, "{:?}", heard.losses);
    assert_eq!(heard.note("late messages"), Some(1), "{:?}", heard.notes);
    assert_eq!(heard.note("duplicate datagrams"), Some(2), "{:?}", heard.notes);
    assert_eq!(heard.note("no magic number"), Some(2), "{:?}", heard.notes);
    assert_eq!(heard.note("shorter than its header"), Some(1));
    assert_eq!(heard.note("without its zero byte"), Some(1));
}

#[test]
fn channels_are_chosen_and_the_self_test_on_demand() {
    let port = free_port();
    let send = || {
        let wild = RawSender::new(port);
        for (n, name) in ["POSE", "CAM_A", "CAM_B", "LCM_SELF_TEST", "OTHER"].iter().enumerate() {
            wild.short(n as u32, name, b"?");
        }
    };
    let mut options = json!({ "url": url(port), "interface": "127.0.0.1",
        "channels": ["CAM_*", "LCM_*"], "exclude": "re:.*_B" });
    let heard = receive_during(&source(options.clone()), send);
    assert_eq!(heard.messages(), [("CAM_A", &b"?"[..])]);
    assert_eq!(heard.lost(), 0, "what is not wanted is not lost: {:?}", heard.losses);
    options["self_test"] = true.into();
    let heard = receive_during(&source(options), send);
    assert_eq!(heard.messages(), [("CAM_A", &b"?"[..]), ("LCM_SELF_TEST", b"?")]);
}

#[test]
fn receiving_ends_by_itself_or_when_it_is_told_to() {
    let port = free_port();
    let ends = |options: Value| {
        let begun = Instant::now();
        let heard = receive(&source(options), || RawSender::new(port).short(0, "A", b""));
        assert!(heard.events.len() <= 1 && heard.lost() == 0);
        begun.elapsed()
    };
    let url = url(port);
    assert!(
        ends(json!({ "url": url, "interface": "lo", "duration": 0.2 }))
            >= Duration::from_millis(200)
    );
    assert!(
        ends(json!({ "url": url, "interface": "lo", "idle_timeout": 0.2 }))
            >= Duration::from_millis(200)
    );
    ends(json!({ "url": url, "interface": "lo", "limit": 1 }));
    let endless = source(json!({ "url": url, "interface": "lo" }));
    // As many as fit into the smallest buffer that systems give sockets.
    let heard = receive_during(&endless, || {
        let wild = RawSender::new(port);
        (0..300).for_each(|n| wild.short(n, "A", &[1; 100]));
    });
    assert_eq!((heard.events.len(), heard.lost()), (300, 0), "what has come is given to the end");
}

#[test]
fn a_flood_of_unfinished_messages_leaves_others_alone() {
    let port = free_port();
    // The limit ends it: nothing is complete until the end, which an idle timeout might not wait
    // for. What is sent fits into the smallest buffer that systems give sockets.
    let source = source(json!({ "url": url(port), "interface": "lo", "limit": 1,
        "unfinished": "64KiB", "socket_buffer": "4MiB" }));
    let heard = receive(&source, || {
        let (victim, attacker) = (RawSender::new(port), RawSender::new(port));
        let parts: [&[u8]; 4] = [&[1u8; 2_000]; 4];
        victim.fragment(7, 0, "VICTIM", &parts);
        (0..60).for_each(|sequence| attacker.fragment(sequence, 1, "FLOOD", &parts));
        (1..4).for_each(|number| victim.fragment(7, number, "VICTIM", &parts));
    });
    assert_eq!(
        heard.messages().iter().map(|(name, of)| (*name, of.len())).collect::<Vec<_>>(),
        [("VICTIM", 8_000)]
    );
    let evicted = heard.losses.get("messages given up because too many were unfinished");
    assert!(evicted.is_some_and(|count| *count >= 20), "{:?}", heard.losses);
}

/// A batch of these messages, at these times in milliseconds.
fn batch(channels: &Channels, messages: &[(i64, &str, Vec<u8>)]) -> Batch {
    let mut builder = BatchBuilder::default();
    for (n, (time, name, payload)) in messages.iter().enumerate() {
        let channel = Channel::new(Name::from_bytes(name.as_bytes()), "log", Encoding::Lcm);
        let id: ChannelId = channels.intern(channel).unwrap();
        builder.push_copy(time * 1_000_000, n as i64, id, payload);
    }
    builder.finish()
}

/// Plays messages; gives how many were sent, and why others were refused.
fn play(
    sink: &LcmLiveSink,
    context: &SinkContext,
    messages: &[(i64, &str, Vec<u8>)],
) -> (u64, Vec<String>) {
    let batch = batch(&context.channels, messages);
    let mut output = sink.open(context).unwrap();
    let blocks = sluice_model::BlockPool::new(1 << 20, 4);
    let mut encode = PrepareContext::new(&context.channels, &blocks);
    let block = sink.prepare(batch, &mut encode).unwrap();
    let refused = encode.report.refused.into_iter().map(|(_, why)| why).collect();
    let sent = sink.write(&mut output, block).unwrap().events;
    sink.finish(output).unwrap();
    (sent, refused)
}

#[test]
fn what_is_sent_is_what_the_library_sends() {
    let port = free_port();
    let ears = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    ears.set_reuse_address(true).unwrap();
    ears.set_recv_buffer_size(1 << 20).unwrap();
    ears.bind(&SocketAddrV4::new(GROUP, port).into()).unwrap();
    ears.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST).unwrap();
    ears.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let sink = sink(json!({ "url": url(port), "interface": "lo", "speed": 0 }));
    // The longest short message on a channel of four letters, and one byte more.
    let messages =
        [(0, "EDGE", vec![5; 65_494]), (1, "EDGE", vec![6; 65_495]), (2, "POSE", b"end".to_vec())];
    assert_eq!(play(&sink, &SinkContext::standalone(), &messages).0, 3);
    let ears: UdpSocket = ears.into();
    let mut buffer = vec![0; 1 << 16];
    let mut next = || {
        let len = ears.recv(&mut buffer).unwrap();
        buffer[..len].to_vec()
    };
    let whole = next();
    assert_eq!((whole.len(), &whole[..13]), (65_507, &b"LC02\0\0\0\0EDGE\0"[..]));
    let first = next();
    // Sequence 1, 65495 bytes in all, offset 0, fragment 0 of 2.
    let header = [b"LC03", &[0, 0, 0, 1, 0, 0, 0xff, 0xd7, 0, 0, 0, 0, 0, 0, 0, 2][..]].concat();
    assert_eq!((first.len(), &first[..20], &first[20..25]), (65_507, &header[..], &b"EDGE\0"[..]));
    let second = next();
    // Offset 65482, fragment 1 of 2: the 13 bytes that are left.
    let header =
        [b"LC03", &[0, 0, 0, 1, 0, 0, 0xff, 0xd7, 0, 0, 0xff, 0xca, 0, 1, 0, 2][..]].concat();
    assert_eq!((second.len(), &second[..20]), (33, &header[..]));
    assert_eq!(next(), b"LC02\0\0\0\x02POSE\0end");
}

#[test]
fn what_lcm_cannot_send_is_refused_and_the_rest_is_sent() {
    let port = free_port();
    let source = source(json!({ "url": url(port), "interface": "lo", "limit": 2 }));
    let long = "x".repeat(64);
    let heard = receive(&source, || {
        let sink = sink(json!({ "url": url(port), "interface": "lo", "speed": 0 }));
        let messages =
            [(0, "A", vec![1]), (0, &*long, vec![2]), (0, "a\0b", vec![3]), (0, "B", vec![4])];
        let (sent, refused) = play(&sink, &SinkContext::standalone(), &messages);
        assert_eq!((sent, refused.len()), (2, 2), "{refused:?}");
    });
    assert_eq!(heard.messages(), [("A", &[1][..]), ("B", &[4])]);
}

#[test]
fn messages_of_any_size_arrive() {
    let port = free_port();
    let sizes = [0, 1, 65_494, 65_495, 130_000, 280_000, 3_000_000];
    let source = source(
        json!({ "url": url(port), "interface": "lo", "limit": sizes.len(), "duration": 20 }),
    );
    let messages: Vec<(i64, &str, Vec<u8>)> =
        sizes.iter().map(|size| (0, "SIZE", (0..*size).map(|n| n as u8).collect())).collect();
    let heard = receive(&source, || {
        // A buffer of 208 KiB takes it even if the receiver has to wait for a processor.
        let sink = sink(
            json!({ "url": url(port), "interface": "lo", "speed": 0, "max_bandwidth": "4MB" }),
        );
        assert_eq!(play(&sink, &SinkContext::standalone(), &messages).0, sizes.len() as u64);
    });
    let wanted: Vec<(&str, &[u8])> =
        messages.iter().map(|(_, name, of)| (*name, &of[..])).collect();
    assert!(heard.messages() == wanted, "lost: {:?}", heard.losses);
}

#[test]
fn playing_can_be_told_to_go_elsewhere() {
    let port = free_port();
    let playback = Arc::new(Playback::default());
    let run = RunHandle::default().sharing(&playback);
    let context = SinkContext { run, ..SinkContext::standalone() };
    let sink = sink(json!({ "url": url(port), "interface": "lo" }));
    let messages = [(0, "A", vec![0]), (3_600_000, "A", vec![1]), (3_600_001, "B", vec![2])];
    let batch = batch(&context.channels, &messages);
    let mut output = sink.open(&context).unwrap();
    let blocks = sluice_model::BlockPool::new(1 << 20, 4);
    let block = sink.prepare(batch, &mut PrepareContext::new(&context.channels, &blocks)).unwrap();
    let written = std::thread::scope(|scope| {
        scope.spawn(|| {
            while playback.played() == 0 {
                std::thread::yield_now();
            }
            playback.end();
        });
        // The second message is an hour away.
        sink.write(&mut output, block).unwrap()
    });
    assert_eq!((written.events, written.skipped.len()), (1, 2));
    assert!(sink.finish(output).unwrap().skipped.is_empty());
}

/// Ends what waits for this, also if a test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_hub_hands_messages_on() {
    let hub: LcmHub = serde_json::from_value(json!({ "listen": "127.0.0.1:0" })).unwrap();
    let (stop, is_heard) = (AtomicBool::new(false), AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let big: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
    std::thread::scope(|scope| {
        let (hub, stop, is_heard, big) = (&hub, &stop, &is_heard, &big);
        let _guards = [SetOnDrop(stop), SetOnDrop(is_heard)];
        scope.spawn(move || hub.serve(stop, &|line| drop(tell.send(line.to_owned()))).unwrap());
        let first_line = told.recv().unwrap();
        let url = first_line.strip_prefix("listening on ").unwrap();
        let source = source(json!({ "url": url, "duration": 60, "exclude": "NO" }));
        let context = ReadContext::standalone("live");
        let mut reader = open(&source, &context);
        let options = json!({ "url": url, "speed": 0 });
        scope.spawn(move || {
            let send = |all: &[_]| play(&sink(options.clone()), &SinkContext::standalone(), all).0;
            // The hub has to have read the subscription, which nobody confirms.
            while !is_heard.load(Ordering::Relaxed) {
                send(&[(0, "TEST", Vec::new())]);
            }
            let messages = [
                (0, "A", vec![1]),
                (0, "NO", vec![2]),
                (0, "BIG", big.clone()),
                (0, "A", Vec::new()),
            ];
            assert_eq!(send(&messages), 4);
        });
        let mut heard = ReceivedEvents::default();
        let wanted: [(&str, &[u8]); 3] = [("A", &[1]), ("BIG", big), ("A", &[])];
        while heard.events.len() < wanted.len() {
            heard.add(&reader.next_batch().unwrap().unwrap(), &context);
            is_heard.store(true, Ordering::Relaxed);
            heard.events.retain(|event| event.channel != "TEST");
        }
        assert!(heard.messages() == wanted);
        context.run.cancel();
    });
}

#[test]
fn what_cannot_be_reached_is_explained() {
    let port = free_port();
    let refusal = |options: Value| {
        let context = ReadContext::standalone("live");
        let source = source(options);
        let split = source.splits(1 << 20, &Query::default()).unwrap().remove(0);
        source.read(&split, SplitStart::At(0), &context).map(drop).unwrap_err().to_string()
    };
    let none = refusal(json!({ "url": url(port), "interface": "no-such-card" }));
    assert!(none.contains("no-such-card") && none.contains("ip link"), "{none}");
    // A program that shares the port with nobody.
    let owner = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = owner.local_addr().unwrap().port();
    let taken = refusal(json!({ "url": url(port), "interface": "lo" }));
    assert!(taken.contains("another program uses the port"), "{taken}");
    drop(owner);
    // Nobody listens on it.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = silent.local_addr().unwrap().as_socket_ipv4().unwrap();
    let gone = refusal(json!({ "url": format!("tcpq://{address}") }));
    assert!(gone.contains("refused"), "{gone}");
    let wrong =
        |options: Value| serde_json::from_value::<LcmLive>(options).unwrap_err().to_string();
    assert!(wrong(json!({ "url": "udpm://10.0.0.1:7667" })).contains("224.0.0.0"));
    assert!(wrong(json!({ "url": "udp://x" })).contains("udpm://"));
}
