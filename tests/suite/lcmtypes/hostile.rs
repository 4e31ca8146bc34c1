//! Payloads that do not match their type: they pass unchanged, are counted, and stop nothing.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::peer::here;
use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, log, run_sluice, sluice};

/// Builds payloads: the fingerprint of the type, and the fields.
struct Writer {
    fingerprints: BTreeMap<String, u64>,
}

impl Writer {
    fn new(folder: &Folder) -> Self {
        folder.write("hostile.lcm", std::fs::read(here().join("hostile.lcm")).unwrap());
        let output = run_sluice(folder, &["types", "hostile.lcm", "--json"]).expect(0).text();
        let fingerprint = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            let hex = line["fingerprint"].as_str().unwrap();
            (line["name"].as_str().unwrap().to_owned(), u64::from_str_radix(hex, 16).unwrap())
        };
        Self { fingerprints: output.lines().map(fingerprint).collect() }
    }

    fn payload(&self, of: &str, parts: &[&[u8]]) -> Vec<u8> {
        let mut payload = self.fingerprints[of].to_be_bytes().to_vec();
        payload.extend(parts.concat());
        payload
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as i32 + 1).to_be_bytes()[..], text.as_bytes(), &[0]].concat()
}

fn item(values: &[f64], label: &str) -> Vec<u8> {
    let mut item = (values.len() as i16).to_be_bytes().to_vec();
    item.extend(values.iter().flat_map(|value| value.to_be_bytes()));
    item.extend(text(label));
    item
}

/// A message of the type `nested`.
fn nested(writer: &Writer) -> Vec<u8> {
    let names = [text(""), text("größe")].concat();
    let items = [item(&[1.0, f64::NAN], "first"), item(&[], "")].concat();
    let fixed = [item(&[-0.0], "a"), item(&[0.5; 3], "bc")].concat();
    writer.payload("nested", &[&2_i32.to_be_bytes(), &names, &items, &fixed, &[1]])
}

/// Runs the program with 4 GiB of address space: less than the counts in these payloads ask for.
fn ran_in_little_memory(folder: &Folder, arguments: &[&str]) -> ProgramOutput {
    let program = sluice(folder);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -v 4194304 && exec \"$0\" \"$@\""]).arg(program.get_program());
    shell.args(arguments).current_dir(folder.path()).stdin(Stdio::null());
    ProgramOutput::from_output(shell.output().unwrap())
}

/// The events of a log, and the expected results.
#[derive(Default)]
struct Drive {
    events: Vec<LcmEvent>,
    /// The number of undecodable events, by channel.
    undecoded: BTreeMap<String, u64>,
}

impl Drive {
    fn good(&mut self, channel: &str, payload: Vec<u8>) {
        self.undecoded.entry(channel.to_owned()).or_default();
        let number = self.events.len() as i64;
        self.events.push(LcmEvent::new(number, BEGIN + number, channel, &payload));
    }

    fn bad(&mut self, channel: &str, payload: Vec<u8>) {
        *self.undecoded.entry(channel.to_owned()).or_default() += 1;
        self.good(channel, payload);
    }

    /// Converts the log to tables and back, and checks that it is unchanged, with these counts, in
    /// reasonable time.
    #[track_caller]
    fn run(&self, folder: &Folder) -> String {
        let bytes = log(&self.events);
        folder.write("in.lcm", &bytes);
        let started = Instant::now();
        let types = ["--types", "hostile.lcm", "--overwrite"];
        let copy = ["convert", "in.lcm", "--to", "out.lcm", "--report", "report.json"];
        ran_in_little_memory(folder, &[&copy[..], &types].concat()).expect(0);
        assert!(folder.read("out.lcm") == bytes, "the copy differs");
        let tables = ["convert", "in.lcm", "--to", "tables/", "--report", "tables.json"];
        ran_in_little_memory(folder, &[&tables[..], &types].concat()).expect(0);
        run_sluice(folder, &["convert", "tables/", "--to", "back.lcm", "--overwrite"]).expect(0);
        assert!(folder.read("back.lcm") == bytes, "what comes back out of tables differs");
        // A guard against hanging, generous for busy machines.
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());

        let mut notes = String::new();
        for name in ["report.json", "tables.json"] {
            let report: Value = serde_json::from_slice(&folder.read(name)).unwrap();
            let counts = |key: &str| -> BTreeMap<String, u64> {
                let channels = report["channels"].as_array().unwrap().iter();
                let count = |channel: &Value| {
                    (
                        channel["channel"].as_str().unwrap().to_owned(),
                        channel[key].as_u64().unwrap(),
                    )
                };
                channels.map(count).collect()
            };
            assert_eq!(counts("undecoded"), self.undecoded, "{name}: {:#}", report["notes"]);
            notes = format!("{:#}", report["notes"]);
        }
        notes
    }
}

#[test]
fn trailing_bytes_of_a_message_are_not_lost() {
    let folder = Folder::new();
    let (writer, mut drive) = (Writer::new(&folder), Drive::default());
    for more in [1, 7, 8, 1000] {
        drive.good("small", writer.payload("small", &[&[1, 2, 3]]));
        drive.bad("small", writer.payload("small", &[&[1, 2, 3], &vec![0; more]]));
        drive.bad("nested", [nested(&writer), vec![0; more]].concat());
        // The same message twice is too long as well.
        drive.bad("twice", [nested(&writer), nested(&writer)].concat());
        drive.bad("nothing", writer.payload("nothing", &[&vec![0; more]]));
    }
    drive.good("nothing", writer.payload("nothing", &[]));
    let notes = drive.run(&folder);
    assert!(
        notes.contains("not a valid `small`: bytes are left over after the message"),
        "{notes}"
    );
}

#[test]
fn a_message_may_be_cut_anywhere() {
    let folder = Folder::new();
    let (writer, mut drive) = (Writer::new(&folder), Drive::default());
    let whole = nested(&writer);
    for len in 0..whole.len() {
        drive.bad("nested", whole[..len].to_vec());
        // A partly decoded message leaves nothing in the columns.
        drive.good("nested", whole.clone());
    }
    let notes = drive.run(&folder);
    assert!(
        notes.contains("not a valid `nested`: the payload ends before its message does"),
        "{notes}"
    );
    assert!(notes.contains("payload does not identify its type"), "{notes}");
}

#[test]
fn a_byte_may_be_any_other() {
    let folder = Folder::new();
    let (writer, mut drive) = (Writer::new(&folder), Drive::default());
    let whole = nested(&writer);
    for at in 8..whole.len() {
        for to in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let mut payload = whole.clone();
            payload[at] = to;
            drive.good("nested", payload);
        }
    }
    // Some may be valid messages; all come out unchanged.
    let bytes = log(&drive.events);
    folder.write("in.lcm", &bytes);
    for to in ["out.lcm", "tables/"] {
        run_sluice(&folder, &["convert", "in.lcm", "--types", "hostile.lcm", "--to", to]).expect(0);
    }
    run_sluice(&folder, &["convert", "tables/", "--to", "back.lcm"]).expect(0);
    assert!(folder.read("out.lcm") == bytes && folder.read("back.lcm") == bytes);
}

#[test]
fn counts_may_be_below_zero_and_too_great() {
    let folder = Folder::new();
    let (writer, mut drive) = (Writer::new(&folder), Drive::default());
    let counted = |a: i8, b: i16, c: i32, d: i64| {
        let counts: [&[u8]; 4] =
            [&a.to_be_bytes(), &b.to_be_bytes(), &c.to_be_bytes(), &d.to_be_bytes()];
        writer.payload("counted", &[&counts.concat(), &[0; 64]])
    };
    drive.good("zero", writer.payload("counted", &[&[0; 15]]));
    for a in [-1, i8::MIN, i8::MAX] {
        drive.bad("int8", counted(a, 0, 0, 0));
    }
    for b in [-1, i16::MIN, i16::MAX] {
        drive.bad("int16", counted(0, b, 0, 0));
    }
    for c in [-1, i32::MIN, i32::MAX] {
        drive.bad("int32", counted(0, 0, c, 0));
    }
    for d in [-1, i64::MIN, i64::MAX, 1 << 32, i64::from(i32::MAX)] {
        drive.bad("int64", counted(0, 0, 0, d));
        drive.bad("bytes", writer.payload("bytes", &[&d.to_be_bytes(), b"some"]));
    }
    drive.good("bytes", writer.payload("bytes", &[&4_i64.to_be_bytes(), b"some"]));
    for (n, m) in [(i32::MAX, i16::MAX), (1 << 16, 1), (-1, -1), (1, -1), (-1, 1)] {
        drive.bad("grid", writer.payload("grid", &[&n.to_be_bytes(), &m.to_be_bytes(), &[0; 64]]));
    }
    let notes = drive.run(&folder);
    assert!(notes.contains("not a valid `counted`: a length field is negative"), "{notes}");
    assert!(
        notes.contains("not a valid `counted`: a length field says more than the payload"),
        "{notes}"
    );
}

/// Counts without a bound, as the elements take no bytes.
#[test]
fn elements_without_bytes_take_no_time() {
    let folder = Folder::new();
    let (writer, mut drive) = (Writer::new(&folder), Drive::default());
    let most = i32::MAX.to_be_bytes();
    // Structs without members have no columns, however many there are.
    drive.good("nothings", writer.payload("nothings", &[&most, &[1]]));
    drive.good("places", writer.payload("places", &[&most, &[1]]));
    drive.good("nothings", writer.payload("nothings", &[&(-1_i32).to_be_bytes(), &[1]]));
    // Rows without elements are rows of a table: some are allowed, but not billions.
    let grid = |n: i32, m: i16| writer.payload("grid", &[&n.to_be_bytes(), &m.to_be_bytes()]);
    drive.good("grid", grid(0, 0));
    drive.good("grid", grid(0, i16::MAX));
    drive.good("grid", grid(200, 0));
    drive.bad("grid", grid(i32::MAX, 0));
    let cube = |sizes: [i32; 3]| writer.payload("cube", &[&sizes.map(i32::to_be_bytes).concat()]);
    drive.good("cube", cube([0, i32::MAX, i32::MAX]));
    drive.good("cube", cube([1, 0, i32::MAX]));
    drive.bad("cube", cube([i32::MAX, 0, 0]));
    drive.bad("cube", cube([1 << 16, 1 << 16, 0]));
    drive.bad("cube", cube([15_000, 15_000, 0]));
    drive.good("zeros", writer.payload("zeros", &[&text("text")]));
    drive.run(&folder);
}

#[test]
fn strings_may_be_of_any_length_and_without_an_end() {
    let folder = Folder::new();
    let (writer, mut drive) = (Writer::new(&folder), Drive::default());
    let of = |length: i32, bytes: &[u8]| writer.payload("text", &[&length.to_be_bytes(), bytes]);
    drive.good("text", of(1, b"\0"));
    drive.good("text", of(4, b"abc\0"));
    for (length, bytes) in [
        (0, &b""[..]),
        (0, b"\0"),
        (-1, b"abc\0"),
        (i32::MIN, b"abc\0"),
        (i32::MAX, b"abc\0"),
        (5, b"abc\0"),
        (3, b"abc\0"),
        (1, b""),
        (1, b"a"),
        (4, b"abcd"),
    ] {
        drive.bad("text", of(length, bytes));
        let three = [text("one"), length.to_be_bytes().to_vec(), bytes.to_vec(), text("three")];
        drive.bad("texts", writer.payload("texts", &[&three.concat()]));
    }
    // Invalid UTF-8, zeros inside, and text that looks like our escapes are strings all the same.
    for bytes in [&b"\xff\xfe\0"[..], b"a\0b\0", b"\\xff\0", b"\\\\x\xe9\\\0", b"\xed\xa0\x80\0"] {
        drive.good("text", of(bytes.len() as i32, bytes));
    }
    let notes = drive.run(&folder);
    assert!(notes.contains("not a valid `text`: a string does not end with a zero"), "{notes}");
}

#[test]
fn a_boolean_that_is_2_is_true_and_comes_back_as_2() {
    let folder = Folder::new();
    let (writer, mut drive) = (Writer::new(&folder), Drive::default());
    let flags = |flags: [u8; 6]| {
        let (fixed, counted) = flags.split_at(4);
        writer.payload("flags", &[fixed, &2_i32.to_be_bytes(), counted])
    };
    drive.good("flags", flags([0, 1, 0, 1, 0, 1]));
    for at in 0..6 {
        for value in [2, 0x7f, 0x80, 0xff] {
            let mut wrong = [1, 0, 1, 0, 1, 0];
            wrong[at] = value;
            drive.good("flags", flags(wrong));
        }
    }
    drive.run(&folder);
}

#[test]
fn recursive_messages_may_nest_to_any_depth() {
    let folder = Folder::new();
    let (writer, mut drive) = (Writer::new(&folder), Drive::default());
    let chain = |of: &str, depth: usize| writer.payload(of, &[&vec![1; depth], &[0]]);
    for depth in [0, 1, 2, 3, 100, 200] {
        drive.good("chain", chain("chain", depth));
        drive.good("left", chain("left", depth));
    }
    for depth in [1_000, 100_000, 1_000_000] {
        drive.bad("chain", chain("chain", depth));
        drive.bad("left", chain("left", depth));
    }
    // Recursive without end, once and several times.
    drive.bad("chain", writer.payload("chain", &[&[1; 100_000]]));
    drive.bad("chain", writer.payload("chain", &[&[127; 100_000]]));
    drive.bad("endless", writer.payload("endless", &[]));
    drive.bad("endless", writer.payload("endless", &[&[0; 100]]));
    let notes = drive.run(&folder);
    assert!(
        notes.contains("not a valid `chain`: it holds itself deeper than 256 levels"),
        "{notes}"
    );
}

#[test]
fn payloads_of_unknown_types_are_unchanged() {
    let folder = Folder::new();
    let (writer, mut drive) = (Writer::new(&folder), Drive::default());
    for len in 0..8 {
        drive.bad("short", nested(&writer)[..len].to_vec());
    }
    drive.bad("unknown", vec![0xff; 8]);
    drive.bad("unknown", vec![0; 100]);
    // A fingerprint with swapped bytes, and a channel with messages of several types.
    let turned: Vec<u8> = writer.fingerprints["small"].to_le_bytes().to_vec();
    drive.bad("mixed", [&turned[..], &[1, 2, 3]].concat());
    drive.good("mixed", writer.payload("small", &[&[1, 2, 3]]));
    drive.good("mixed", nested(&writer));
    let notes = drive.run(&folder);
    assert!(notes.contains("payload of no declared type"), "{notes}");
    assert!(notes.contains("payload does not identify its type"), "{notes}");
}
