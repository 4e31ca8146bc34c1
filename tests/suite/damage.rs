//! The damage matrix of LCM logs through the whole engine: which events are read, which bytes are
//! reported, and that the output is exactly the log of the remaining events.

use serde_json::Value;

use crate::kit::{BEGIN, COPY, Folder, LcmEvent, log, run, run_sluice};
use crate::report_shape::ReportShape;

/// A part of a log.
#[derive(Clone)]
enum LogPart {
    /// An event that must be read.
    Kept(LcmEvent),
    /// Bytes that must be read as an event in spite of an odd header.
    Odd(Vec<u8>),
    /// Bytes that must be reported as damage.
    Lost(Vec<u8>),
}

use LogPart::{Kept, Lost, Odd};

/// An ordinary event: always 100 bytes long, for easy offsets.
fn event(number: i64) -> LcmEvent {
    LcmEvent::new(number, BEGIN + number * 1_000, "POSE", &[number as u8; 68])
}

fn kept(number: i64) -> LogPart {
    Kept(event(number))
}

/// An event of 100 bytes in total on this channel.
fn on(number: i64, channel: &[u8]) -> LcmEvent {
    let payload = vec![7; 72usize.saturating_sub(channel.len())];
    LcmEvent { channel: channel.to_vec(), payload, ..event(number) }
}

/// Bytes that are no event.
fn stray(len: usize) -> LogPart {
    Lost((0..len).map(|n| b"stray!"[n % 6]).collect())
}

/// An event that was cut off after `len` bytes.
fn cut(number: i64, len: usize) -> LogPart {
    Lost(event(number).bytes()[..len].to_vec())
}

/// An event with other bytes at `at`.
fn with(number: i64, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut event = event(number).bytes();
    event[at..at + bytes.len()].copy_from_slice(bytes);
    event
}

/// Offsets of the fields of an event.
const NUMBER: usize = 4;
const TIME: usize = 12;
const CHANNEL_LEN: usize = 20;
const DATA_LEN: usize = 24;
const SYNC: [u8; 4] = [0xED, 0xA1, 0xDA, 0x01];

#[derive(Clone)]
struct DamageCase {
    name: &'static str,
    log: Vec<LogPart>,
    /// The numbers of the events that must be read.
    numbers: Vec<i64>,
    /// Offset and length of the damage that must be reported.
    damage: Vec<(u64, u64)>,
}

fn case(name: &'static str, log: &[LogPart], numbers: &[i64], damage: &[(u64, u64)]) -> DamageCase {
    DamageCase { name, log: log.to_vec(), numbers: numbers.into(), damage: damage.into() }
}

fn clean(name: &'static str, log: &[LogPart], numbers: &[i64]) -> DamageCase {
    case(name, log, numbers, &[])
}

fn cases() -> Vec<DamageCase> {
    [
        whole_logs(),
        bytes_before_the_first_event(),
        bytes_between_events(),
        sync_words_between_events(),
        truncated_tails(),
        trailing_bytes(),
        channel_lengths(),
        data_lengths(),
        sync_words(),
        unordered_events(),
        odd_names(),
    ]
    .concat()
}

fn whole_logs() -> Vec<DamageCase> {
    vec![
        clean("empty", &[], &[]),
        clean("clean", &[kept(0), kept(1), kept(2)], &[0, 1, 2]),
        // Text alone is refused: see `inputs`.
        case("rubbish only", &[Lost(vec![0x7f; 300])], &[], &[(0, 300)]),
    ]
}

fn bytes_before_the_first_event() -> Vec<DamageCase> {
    vec![
        case("1 byte before the first event", &[stray(1), kept(0)], &[0], &[(0, 1)]),
        case("5 bytes before the first event", &[stray(5), kept(0), kept(1)], &[0, 1], &[(0, 5)]),
        case("500 bytes before the first event", &[stray(500), kept(0)], &[0], &[(0, 500)]),
    ]
}

fn bytes_between_events() -> Vec<DamageCase> {
    vec![
        case("a hole of zeros", &[kept(0), Lost(vec![0; 4096]), kept(1)], &[0, 1], &[(100, 4096)]),
        case(
            "a hole that looks like text",
            &[kept(0), stray(999), kept(1)],
            &[0, 1],
            &[(100, 999)],
        ),
        case(
            "1 byte between events",
            &[kept(0), stray(1), kept(1), kept(2)],
            &[0, 1, 2],
            &[(100, 1)],
        ),
        case(
            "2 bytes between events",
            &[kept(0), stray(2), kept(1), kept(2)],
            &[0, 1, 2],
            &[(100, 2)],
        ),
        case(
            "3 bytes between events",
            &[kept(0), stray(3), kept(1), kept(2)],
            &[0, 1, 2],
            &[(100, 3)],
        ),
        case(
            "4 bytes between events",
            &[kept(0), stray(4), kept(1), kept(2)],
            &[0, 1, 2],
            &[(100, 4)],
        ),
        case(
            "5 bytes between events",
            &[kept(0), stray(5), kept(1), kept(2)],
            &[0, 1, 2],
            &[(100, 5)],
        ),
        case(
            "damage in two places",
            &[kept(0), stray(7), kept(1), stray(70), kept(2)],
            &[0, 1, 2],
            &[(100, 7), (207, 70)],
        ),
    ]
}

fn sync_words_between_events() -> Vec<DamageCase> {
    vec![
        case(
            "1 byte of a sync word between events",
            &[kept(0), Lost(SYNC[..1].into()), kept(1), kept(2)],
            &[0, 1, 2],
            &[(100, 1)],
        ),
        case(
            "3 bytes of a sync word between events",
            &[kept(0), Lost(SYNC[..3].into()), kept(1), kept(2)],
            &[0, 1, 2],
            &[(100, 3)],
        ),
        case(
            "a sync word too many between events",
            &[kept(0), Lost(SYNC.into()), kept(1), kept(2)],
            &[0, 1, 2],
            &[(100, 4)],
        ),
    ]
}

fn truncated_tails() -> Vec<DamageCase> {
    vec![
        case("cut in the sync word", &[kept(0), cut(1, 2)], &[0], &[(100, 2)]),
        case("cut behind the sync word", &[kept(0), cut(1, 4)], &[0], &[(100, 4)]),
        case("cut in the number", &[kept(0), cut(1, 8)], &[0], &[(100, 8)]),
        case("cut in the time", &[kept(0), cut(1, 15)], &[0], &[(100, 15)]),
        case("cut in the channel length", &[kept(0), cut(1, 22)], &[0], &[(100, 22)]),
        case("cut in the data length", &[kept(0), cut(1, 26)], &[0], &[(100, 26)]),
        case("cut behind the header", &[kept(0), cut(1, 28)], &[0], &[(100, 28)]),
        case("cut in the channel", &[kept(0), cut(1, 30)], &[0], &[(100, 30)]),
        case("cut in the payload", &[kept(0), cut(1, 99)], &[0], &[(100, 99)]),
        case(
            "cut, and written on",
            &[kept(0), cut(1, 50), kept(2), kept(3)],
            &[0, 2, 3],
            &[(100, 50)],
        ),
    ]
}

fn trailing_bytes() -> Vec<DamageCase> {
    let stale = log(&[event(70), event(71)])[130..].to_vec();
    vec![
        case("1 byte at the end", &[kept(0), kept(1), stray(1)], &[0, 1], &[(200, 1)]),
        case("3 bytes at the end", &[kept(0), kept(1), stray(3)], &[0, 1], &[(200, 3)]),
        case("4 bytes at the end", &[kept(0), kept(1), stray(4)], &[0, 1], &[(200, 4)]),
        case("400 bytes at the end", &[kept(0), kept(1), stray(400)], &[0, 1], &[(200, 400)]),
        case("a longer old log's tail", &[kept(0), kept(1), Lost(stale)], &[0, 1], &[(200, 70)]),
    ]
}

fn channel_lengths() -> Vec<DamageCase> {
    let long = |len: usize| on(1, &vec![b'c'; len]);
    let wrong_length = |len: i32| Lost(with(1, CHANNEL_LEN, &i32::to_be_bytes(len)));
    vec![
        clean("channel length 0", &[kept(0), Kept(on(1, b"")), kept(2)], &[0, 1, 2]),
        clean("channel length 63", &[kept(0), Kept(long(63)), kept(2)], &[0, 1, 2]),
        clean("channel length 256", &[kept(0), Kept(long(256)), kept(2)], &[0, 1, 2]),
        clean("channel length 999", &[kept(0), Kept(long(999)), kept(2)], &[0, 1, 2]),
        clean("channel length 1000", &[kept(0), Kept(long(1000)), kept(2)], &[0, 1, 2]),
        clean("channel length 5000", &[kept(0), Kept(long(5000)), kept(2)], &[0, 1, 2]),
        case("channel length -1", &[kept(0), wrong_length(-1), kept(2)], &[0, 2], &[(100, 100)]),
        case(
            "channel length least",
            &[kept(0), wrong_length(i32::MIN), kept(2)],
            &[0, 2],
            &[(100, 100)],
        ),
        case(
            "channel length most",
            &[kept(0), wrong_length(i32::MAX), kept(2)],
            &[0, 2],
            &[(100, 100)],
        ),
        case(
            "channel length 2 MiB",
            &[kept(0), wrong_length(2 << 20), kept(2)],
            &[0, 2],
            &[(100, 100)],
        ),
        case(
            "channel length one too many",
            &[kept(0), wrong_length(5), kept(2)],
            &[0, 2],
            &[(100, 100)],
        ),
    ]
}

fn data_lengths() -> Vec<DamageCase> {
    let be = i32::to_be_bytes;
    let wrong_length = |len: i32| Lost(with(1, DATA_LEN, &i32::to_be_bytes(len)));
    vec![
        clean("data length 0", &[kept(0), Kept(payload(b"")), kept(2)], &[0, 1, 2]),
        case("data length -1", &[kept(0), wrong_length(-1), kept(2)], &[0, 2], &[(100, 100)]),
        case(
            "data length least",
            &[kept(0), wrong_length(i32::MIN), kept(2)],
            &[0, 2],
            &[(100, 100)],
        ),
        case(
            "data length 0x7fffffff",
            &[kept(0), wrong_length(i32::MAX), kept(2)],
            &[0, 2],
            &[(100, 100)],
        ),
        case(
            "data length past the end",
            &[kept(0), wrong_length(1 << 20), kept(2)],
            &[0, 2],
            &[(100, 100)],
        ),
        case(
            "data length one too many",
            &[kept(0), wrong_length(69), kept(2), kept(3)],
            &[0, 2, 3],
            &[(100, 100)],
        ),
        case(
            "data length reaching into the event after next",
            &[kept(0), wrong_length(200), kept(2), kept(3), kept(4)],
            &[0, 2, 3, 4],
            &[(100, 100)],
        ),
        case(
            "data length one too few",
            &[kept(0), Odd(with(1, DATA_LEN, &be(67))[..99].into()), Lost(vec![1]), kept(2)],
            &[0, 1, 2],
            &[(199, 1)],
        ),
    ]
}

fn sync_words() -> Vec<DamageCase> {
    let inner = [event(50).bytes(), event(51).bytes()].concat();
    vec![
        case(
            "a flipped bit in the sync word",
            &[kept(0), Lost(with(1, 0, &[0xEC])), kept(2)],
            &[0, 2],
            &[(100, 100)],
        ),
        case(
            "another flipped bit in the sync word",
            &[kept(0), Lost(with(1, 3, &[0x00])), kept(2)],
            &[0, 2],
            &[(100, 100)],
        ),
        clean(
            "a sync word in a payload",
            &[kept(0), Kept(payload(&SYNC.repeat(5))), kept(2)],
            &[0, 1, 2],
        ),
        clean("events in a payload", &[kept(0), Kept(payload(&inner)), kept(2)], &[0, 1, 2]),
        case(
            "events in a payload, in front of damage",
            &[kept(0), Kept(payload(&inner)), stray(9), kept(2)],
            &[0, 1, 2],
            &[(332, 9)],
        ),
    ]
}

fn unordered_events() -> Vec<DamageCase> {
    vec![
        clean("numbers that do not begin at 0", &[kept(5), kept(6), kept(7)], &[5, 6, 7]),
        clean("gaps in the numbers", &[kept(0), kept(9), kept(90)], &[0, 9, 90]),
        clean(
            "numbers and times that go back",
            &[kept(5), kept(3), kept(4), kept(0)],
            &[5, 3, 4, 0],
        ),
        clean("an event twice", &[kept(0), kept(1), kept(1), kept(2)], &[0, 1, 1, 2]),
        clean("a log appended to itself", &[kept(0), kept(1), kept(0), kept(1)], &[0, 1, 0, 1]),
        clean(
            "a negative number",
            &[kept(0), Kept(LcmEvent { number: -3, ..event(1) }), kept(2)],
            &[0, -3, 2],
        ),
        clean(
            "a number of 2^63 and above",
            &[kept(0), Odd(with(1, NUMBER, &[0x80, 0, 0, 0, 0, 0, 0, 0])), kept(2)],
            &[0, i64::MIN, 2],
        ),
        clean("a time before 1970", &[Kept(LcmEvent { utime: -7, ..event(0) }), kept(1)], &[0, 1]),
        clean(
            "a time beyond what 64 bits of nanoseconds hold",
            &[kept(0), Odd(with(1, TIME, &i64::MAX.to_be_bytes())), kept(2)],
            &[0, 1, 2],
        ),
    ]
}

fn odd_names() -> Vec<DamageCase> {
    vec![
        clean(
            "a channel that is not UTF-8",
            &[kept(0), Kept(on(1, b"\xff\xfe")), kept(2)],
            &[0, 1, 2],
        ),
        clean("a NUL in the channel", &[kept(0), Kept(on(1, b"PO\0SE")), kept(2)], &[0, 1, 2]),
        case(
            "a NUL in the channel in front of damage",
            &[kept(0), Lost([on(1, b"PO\0SE").bytes(), b"stray".to_vec()].concat()), kept(2)],
            &[0, 2],
            &[(100, 105)],
        ),
    ]
}

/// Event 1 with another payload.
fn payload(bytes: &[u8]) -> LcmEvent {
    LcmEvent { payload: bytes.into(), ..event(1) }
}

impl DamageCase {
    fn log(&self) -> Vec<u8> {
        let bytes = |piece: &LogPart| match piece {
            Kept(event) => event.bytes(),
            Odd(bytes) | Lost(bytes) => bytes.clone(),
        };
        self.log.iter().flat_map(bytes).collect()
    }

    /// The log of exactly the events that can be read.
    fn ideal(&self) -> Vec<u8> {
        let bytes = |piece: &LogPart| match piece {
            Kept(event) => event.bytes(),
            Odd(bytes) => bytes.clone(),
            Lost(_) => Vec::new(),
        };
        self.log.iter().flat_map(bytes).collect()
    }

    /// Runs the case after this many clean events, and compares everything.
    fn check(&self, folder: &Folder, before: i64, jobs: usize) {
        let name = format!("{}, behind {before} events, {jobs} jobs", self.name);
        let front = log(&(0..before).map(|n| event(n - before)).collect::<Vec<_>>());
        folder.write("in.lcm", [front.clone(), self.log()].concat());
        let report = run(COPY, folder.path(), jobs).unwrap_or_else(|e| panic!("{name}: {e}"));
        let written = folder.read("out.lcm");
        let read = crate::kit::numbers(&written);
        assert_eq!(read[before as usize..], self.numbers, "{name}: events");
        let shift = front.len() as u64;
        let damage: Vec<_> = report.damage.iter().map(|d| (d.offset - shift, d.length)).collect();
        assert_eq!(damage, self.damage, "{name}: damage");
        assert!(written == [front, self.ideal()].concat(), "{name}: the log written");
        let lossy = !self.damage.is_empty();
        assert_eq!(report.exit(), if lossy { 3 } else { 0 }, "{name}: exit code");
        let lost: u64 = self.damage.iter().map(|(_, length)| length).sum();
        assert_eq!(report.sources["log"].damaged_bytes, lost, "{name}: damaged bytes");
        ReportShape::from_report(&report).check();
    }
}

#[test]
fn every_kind_of_damage_costs_only_the_events_it_touches() {
    let folder = Folder::new();
    for case in cases() {
        case.check(&folder, 0, 1);
    }
}

/// Logs are read in pieces of 64 KiB here: the damage is before, at and after a cut.
#[test]
fn damage_at_a_cut_between_pieces_costs_the_same() {
    let folder = Folder::new();
    for case in cases() {
        for before in [653, 654, 655] {
            case.check(&folder, before, 2);
        }
    }
}

#[test]
fn two_cases_do_not_share_a_name() {
    let mut names: Vec<&str> = cases().iter().map(|case| case.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn compressed_and_piped_logs_have_the_same_damage_at_the_same_places() {
    let folder = Folder::new();
    for case in cases().iter().filter(|case| !case.log().is_empty()) {
        folder.write("in.lcm.zst", zstd::encode_all(&case.log()[..], 1).unwrap());
        let report = run(&COPY.replace("in.lcm", "in.lcm.zst"), folder.path(), 2);
        let report = report.unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let damage: Vec<_> = report.damage.iter().map(|d| (d.offset, d.length)).collect();
        assert_eq!(damage, case.damage, "{}", case.name);
        assert!(folder.read("out.lcm") == case.ideal(), "{}", case.name);
    }
}

#[test]
fn an_erased_block_of_a_vel_log_costs_only_the_messages_in_it() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&(0..400).map(event).collect::<Vec<_>>()));
    let convert = ["convert", "in.lcm", "--to", "in.vel", "--sink-option", "index=none"];
    run_sluice(&folder, &convert).expect(0);
    let good = folder.read("in.vel");
    let lines = |options: &[&str], code| {
        let cat = ["cat", "in.vel", "--json", "--payload"];
        run_sluice(&folder, &[&cat[..], options].concat()).expect(code).text()
    };
    let whole = lines(&[], 0);
    let mut bad = good.clone();
    bad[5_030..9_126].fill(0xff);
    folder.write("in.vel", &bad);
    let found = lines(&[], 3);
    let read = found.lines().filter(|line| whole.lines().any(|event| event == *line)).count();
    let in_block = 4_096 / (good.len() / 400) + 2;
    assert!((400 - in_block..400).contains(&read), "{read}");
    assert!(found.lines().last() == whole.lines().last());
    let verified = run_sluice(&folder, &["verify", "in.vel"]).expect(3).text();
    assert!(verified.contains("an erased block before further messages"), "{verified}");
    // As the format says.
    let stopped = lines(&["--source-option", "after_damage=stop"], 0);
    assert!(whole.lines().next() == stopped.lines().next());
    assert!((10..read).contains(&stopped.lines().count()));
    // Nothing that may be a message follows the mark.
    for rest in [&[0; 5_000][..], &[0xff; 5_000], &good[..12], b"leftover text"] {
        folder.write("in.vel", [&good[..], &[0xff; 4], rest].concat());
        assert!(lines(&[], 0) == whole);
        run_sluice(&folder, &["verify", "in.vel"]).expect(0);
    }
}

const POLICY: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "in.lcm"
on_damage = "skip"
[sinks.out]
plugin = "lcm-log"
from = "log"
path = "out.lcm"
"#;

#[test]
fn a_run_that_stops_at_damage_publishes_nothing() {
    let folder = Folder::new();
    folder.write("in.lcm", [event(0).bytes(), b"stray".to_vec(), event(1).bytes()].concat());
    folder.write("stop.toml", POLICY.replace("skip", "stop"));
    let stopped = run_sluice(&folder, &["run", "stop.toml", "--report", "r.json"]).expect(1);
    stopped.expect_stderr("5 bytes at byte 100");
    assert_eq!(folder.names(), ["in.lcm", "r.json", "stop.toml"]);
    let report: Value = serde_json::from_slice(&folder.read("r.json")).unwrap();
    let damage = report["damage"].as_array().unwrap();
    let [offset, length] = ["offset", "length"].map(|key| damage[0][key].as_u64());
    assert_eq!((damage.len(), offset, length), (1, Some(100), Some(5)), "{report}");
    assert_eq!(report["sources"]["log"]["damaged_bytes"], 5);
}

#[test]
fn quarantine_keeps_the_bytes_that_could_not_be_read_and_only_those() {
    let folder = Folder::new();
    let bytes =
        [event(0).bytes(), b"first".to_vec(), event(1).bytes(), b"second".to_vec()].concat();
    folder.write("in.lcm", &bytes);
    folder.write("in.lcm.zst", zstd::encode_all(&bytes[..], 1).unwrap());
    let policy = "quarantine\"\nquarantine = \"bad.bin";
    for input in ["in.lcm", "in.lcm.zst"] {
        folder.write("keep.toml", POLICY.replace("skip", policy).replace("in.lcm", input));
        run_sluice(&folder, &["run", "keep.toml", "--overwrite"]).expect(3);
        assert_eq!(folder.read("bad.bin"), b"firstsecond", "{input}");
        assert_eq!(folder.read("out.lcm"), log(&[event(0), event(1)]), "{input}");
    }
    // A log that is read twice, to find sensors that share a name: only the conversion keeps them.
    run_sluice(&folder, &["convert", "in.lcm", "--to", "in.vel"]).expect(3);
    folder.write("in.vel", [&folder.read("in.vel")[..], b"\x40\0\0\0\x31"].concat());
    let keep = ["on_damage=quarantine", "quarantine=kept.bin"];
    let keep = keep.iter().flat_map(|option| ["--source-option", option]);
    let convert: Vec<&str> =
        ["convert", "in.vel", "--to", "vel.lcm"].into_iter().chain(keep).collect();
    run_sluice(&folder, &[&convert[..], &["--dry-run"]].concat()).expect(0);
    assert!(!folder.at("kept.bin").exists());
    run_sluice(&folder, &convert).expect(3);
    assert_eq!(folder.read("kept.bin"), b"\x40\0\0\0\x31");
    // Without damage, it is not of this run.
    folder.write("in.lcm", event(0).bytes());
    folder.write("keep.toml", POLICY.replace("skip", policy));
    let told = "log: no damage; bad.bin is of an earlier run, and stays";
    run_sluice(&folder, &["run", "keep.toml", "--overwrite"]).expect(0).expect_stderr(told);
}
