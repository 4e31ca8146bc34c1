//! Logs described in pipeline files, through the whole program.

use serde_json::Value;

use sluice_conformance::{Integrity, source};

use crate::kit::{
    Folder, SMALL_MEMORY, decompressed, python_with, report_skip, root, run_sluice, run_with,
    sluice,
};
use crate::tables::asks;

fn readme() -> String {
    std::fs::read_to_string(root().join("plugins/records/README.md")).unwrap()
}

/// The blocks of a text between start and end lines.
fn blocks(text: &str, begin: &str) -> Vec<String> {
    let begin = format!("{begin}\n");
    let pieces = text.split(&begin).skip(1);
    pieces.map(|piece| piece.split("```").next().unwrap().to_owned()).collect()
}

/// The bytes of a hex dump as `xxd` prints it.
fn parse_dump(dump: &str) -> Vec<u8> {
    let digits = dump.lines().flat_map(|line| {
        let (_, hex) = line.split_once(": ").unwrap();
        hex.split("  ").next().unwrap().chars().filter(|c| *c != ' ').collect::<Vec<_>>()
    });
    let digits: Vec<u32> = digits.map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_readme_reads_its_own_hex_dump() {
    let (readme, folder) = (readme(), Folder::new());
    let dump = readme.split("```\n").find(|block| block.starts_with("00000000:")).unwrap();
    folder.write("rig.toml", &blocks(&readme, "```toml")[0]);
    run_sluice(&folder, &["check", "rig.toml"]).expect(0);
    folder.write("run.bin", parse_dump(dump));
    let ran = run_sluice(&folder, &["run", "rig.toml"]).expect(0);
    let events = lines(&ran.text());
    assert_eq!(events.len(), 2);
    folder.write("other.bin", parse_dump(dump));
    let other = run_sluice(&folder, &["run", "rig.toml", "--set", "INPUT=other.bin"]).expect(0);
    assert_eq!(lines(&other.text()).len(), 2);
    let convert = ["convert", "run.bin", "--describe", "rig.toml", "--to", "tables/"];
    run_sluice(&folder, &convert).expect(0);
    assert!(folder.path().join("tables/channel=rig").is_dir());
    let shown = events[1].to_string();
    for part in ["\"channel\":\"rig\"", "\"pos\":[2.0,3.0,4.0]", "\"mode\":3", "\"volts\":1.234"] {
        assert!(shown.contains(part), "no {part} in {shown}");
    }
}

/// The output of three devices, including messages that the README does not describe: a log, its
/// name in the README, and its number of events.
const DEVICES: &str = r#"
import struct, zlib
def ubx(kind, payload):
    a = b = 0
    body = struct.pack(">H", kind) + struct.pack("<H", len(payload)) + payload
    for byte in body:
        a = (a + byte) % 256
        b = (b + a) % 256
    return b"\xb5\x62" + body + bytes([a, b])
def mavlink(kind, extra, payload):
    crc, body = 0xffff, bytes([len(payload), 7, 1, 1, kind]) + payload
    for byte in body + bytes([extra]):
        t = (byte ^ crc) & 0xff
        t = (t ^ t << 4) & 0xff
        crc = (crc >> 8 ^ t << 8 ^ t << 3 ^ t >> 4) & 0xffff
    return b"\xfe" + body + struct.pack("<H", crc)
def novatel(kind, n, payload):
    head = struct.pack("<BHHHIHIQ", 28, kind, 0, len(payload), 0, 2200, n * 100, 0)
    record = b"\xaa\x44\x12" + head + payload
    return record + struct.pack("<I", zlib.crc32(record, 0xffffffff) ^ 0xffffffff)
with open("run.ubx", "wb") as log:
    for n in range(200):
        log.write(ubx(0x0120, struct.pack("<IihBBI", n * 200, 5, 2200, 18, 7, 20)))
        log.write(ubx(0x0a09, bytes(n % 60)))
with open("flight.bin", "wb") as log:
    for n in range(200):
        log.write(mavlink(30, 39, struct.pack("<I6f", n * 20, 0.1, 0.2, 0.3, 0, 0, 0)))
        log.write(mavlink(0, 50, struct.pack("<IBBBBB", 5, 2, 3, 81, 4, 3)))
        log.write(mavlink(33, 104, bytes(28)))
with open("receiver.bin", "wb") as log:
    for n in range(200):
        log.write(novatel(43, n, struct.pack("<I", n) + bytes(n % 30)))
        log.write(novatel(42, n, bytes(72)))
"#;

#[test]
fn every_format_of_the_readme_reads_logs_of_such_devices() {
    let folder = Folder::new();
    let Some(python) = python_with("pyarrow") else { return report_skip("Python writes the logs") };
    let mut command = std::process::Command::new(python);
    let wrote = command.args(["-c", DEVICES]).current_dir(folder.path()).output().unwrap();
    assert!(wrote.status.success(), "{}", String::from_utf8_lossy(&wrote.stderr));
    for (n, block) in blocks(&readme(), "```toml").into_iter().enumerate().skip(1) {
        let name = block.split(['.', ']']).nth(1).unwrap().to_owned();
        let (channel, others) = match &*name {
            "ubx" => ("NAV-TIMEGPS", 200),
            "mavlink" => ("ATTITUDE", 0),
            _ => ("RANGE", 200),
        };
        let file = format!("{n}.toml");
        let sink = format!("[sinks.out]\nplugin = \"jsonl\"\nfrom = \"{name}\"\npath = \"-\"\n");
        folder.write(&file, format!("{block}\n{sink}"));
        run_sluice(&folder, &["check", &file]).expect(0);
        let events = lines(&run_sluice(&folder, &["run", &file]).expect(0).text());
        let described = events.iter().filter(|event| event["channel"] == channel).count();
        assert_eq!((described, events.len() - described), (200, others), "{name}");
    }
}

#[test]
fn mistakes_are_shown_where_they_stand() {
    let folder = Folder::new();
    let text = r#"[sources.rig]
plugin = "records"
path = "nowhere.bin"
sync = "0xb5"
fields = [
  { name = "t", type = "u32", role = "time", unit = "furlong" },
  { name = "x", type = "u8", count = "n" },
]
max_record = 0
[sinks.end]
plugin = "null"
from = "rig"
"#;
    folder.write("wrong.toml", text);
    run_sluice(&folder, &["check", "wrong.toml"])
        .expect(2)
        .expect_stderr("wrong.toml:6:53")
        .expect_stderr("`furlong` is not a unit of time")
        .expect_stderr("also at `fields.1`: no earlier field is called `n`")
        .expect_stderr("wrong.toml:9:14");
}

/// Records with a CRC-16, of two kinds.
const PACKETS: &str = r#"
[sources.log]
plugin = "records"
path = "${DIR}/in.bin"
sync = "0xaa 55"
epoch = "2020-01-01T00:00:00Z"
head = [
  { type = "u8", role = "length" },
  { type = "u8", role = "kind" },
  { name = "unit", type = "u8" },
  { name = "ms", type = "u32", role = "time", unit = "ms" },
]
tail = [{ type = "u8", role = "checksum", algorithm = "xor8", from = 2 }]
channel = "unit-{unit}"
[sources.log.kinds.1]
name = "SAMPLE"
fields = [{ name = "x", type = "i16", scale = 0.5 }]
[sources.log.kinds.2]
name = "NOTE"
fields = [{ name = "note", type = "text", size = "rest" }]
"#;

fn packet(kind: u8, unit: u8, ms: u32, payload: &[u8]) -> Vec<u8> {
    let mut body = vec![payload.len() as u8, kind, unit];
    body.extend(ms.to_le_bytes());
    body.extend(payload);
    let sum = body.iter().fold(0, |sum, byte| sum ^ byte);
    [&[0xaa, 0x55][..], &body, &[sum]].concat()
}

fn packets(count: u32) -> Vec<u8> {
    let each = (0..count).map(|n| match n % 3 {
        0 => packet(2, 0, n, format!("note {n}").as_bytes()),
        unit => packet(1, unit as u8, n, &(n as i16).to_le_bytes()),
    });
    each.flatten().collect()
}

#[test]
fn any_number_of_threads_writes_the_same() {
    let folder = Folder::new();
    let mut log = packets(40_000);
    for at in (1000..log.len()).step_by(50_021) {
        log[at] ^= 0x55;
    }
    folder.write("in.bin", log);
    let text = format!(
        "{PACKETS}\n[sinks.out]\nplugin = \"jsonl\"\nfrom = \"log\"\n\
         path = \"${{DIR}}/out.jsonl\"\n"
    );
    let mut written = Vec::new();
    for jobs in [1, 4] {
        let report = run_with(&text, folder.path(), jobs, SMALL_MEMORY).unwrap();
        assert!(!report.is_complete(), "damage is reported");
        written.push(folder.read("out.jsonl"));
    }
    assert!(written[0] == written[1] && written[0].len() > 1_000_000);
}

#[test]
fn damage_is_reported_and_sets_the_exit_code() {
    let folder = Folder::new();
    let mut log = packets(9);
    log[40] ^= 1;
    folder.write("in.bin", log);
    folder.write(
        "p.toml",
        format!(
            "{PACKETS}\n[sinks.out]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"out.jsonl\"\n"
        ),
    );
    let dir = format!("DIR={}", folder.path().display());
    run_sluice(&folder, &["run", "p.toml", "--set", &dir])
        .expect(3)
        .expect_stderr("16 bytes at byte 40 could not be read");
}

#[test]
fn pipes_and_compressed_logs_are_read_like_files() {
    let folder = Folder::new();
    let log = packets(3_000);
    folder.write("in.bin", &log);
    let packed = zstd::encode_all(&*log, 1).unwrap();
    assert_eq!(decompressed(&packed), log);
    folder.write("in.bin.zst", packed);
    let sink = "[sinks.out]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"-\"\n";
    let with = |path: &str| format!("{PACKETS}\n{sink}").replace("${DIR}/in.bin", path);
    let mut shown = Vec::new();
    for path in ["in.bin", "in.bin.zst", "-"] {
        folder.write("p.toml", with(path));
        let mut command = sluice(&folder);
        command.args(["run", "p.toml"]);
        if path == "-" {
            command.stdin(std::fs::File::options().read(true).open(folder.at("in.bin")).unwrap());
        }
        shown.push(
            crate::kit::ProgramOutput::from_output(command.output().unwrap()).expect(0).text(),
        );
    }
    assert_eq!(shown[0].lines().count(), 3_000);
    assert!(shown[0] == shown[1] && shown[0] == shown[2]);
}

/// A description on its own, in which a NOTE is a number of eight bytes.
const DESCRIPTION: &str = r#"
plugin = "records"
path = "elsewhere.bin"
on_damage = "stop"
sync = "0xaa 55"
epoch = 2020-01-01T00:00:00Z
head = [
  { type = "u8", role = "length" },
  { type = "u8", role = "kind" },
  { name = "unit", type = "u8" },
  { name = "ms", type = "u32", role = "time", unit = "ms" },
]
tail = [{ type = "u8", role = "checksum", algorithm = "xor8", from = 2 }]
[kinds.1]
name = "SAMPLE"
fields = [{ name = "x", type = "i16", scale = 0.5 }]
[kinds.2]
name = "NOTE"
fields = [{ name = "note", type = "u64" }]
"#;

#[test]
fn described_logs_are_read_by_info_cat_and_convert() {
    let folder = Folder::new();
    folder.write("in.bin", packets(9));
    let right = DESCRIPTION.replace("type = \"u64\"", "type = \"text\", size = \"rest\"");
    folder.write("rig.toml", &right);
    folder.write(
        "pipeline.toml",
        format!("{PACKETS}\n[sinks.out]\nplugin = \"null\"\nfrom = \"log\"\n"),
    );
    for file in ["rig.toml", "pipeline.toml"] {
        let info = run_sluice(&folder, &["info", "in.bin", "--describe", file, "--json"]).expect(0);
        let summary: Value = serde_json::from_str(&info.text()).unwrap();
        assert_eq!(
            (&summary["events"], &summary["format"]),
            (&9.into(), &"records".into()),
            "{summary}"
        );
        let cat =
            run_sluice(&folder, &["cat", "in.bin", "--describe", file, "--json", "--limit", "2"]);
        let events = lines(&cat.expect(0).text());
        assert_eq!(events.len(), 2);
        assert!(events[1].to_string().contains("\"x\":0.5"), "{}", events[1]);
        let to = format!("{file}.jsonl");
        run_sluice(&folder, &["convert", "in.bin", "--describe", file, "--to", &to]).expect(0);
        assert_eq!(lines(&String::from_utf8(folder.read(&to)).unwrap()).len(), 9);
    }
    for (to, report) in [("rig.toml", "report.json"), ("out.jsonl", "rig.toml")] {
        let convert = ["convert", "in.bin", "--describe", "rig.toml", "--to", to, "--as", "jsonl"];
        run_sluice(&folder, &[&convert[..], &["--overwrite", "--report", report]].concat())
            .expect(if to == "rig.toml" { 1 } else { 2 })
            .expect_stderr("rig.toml");
        assert_eq!(folder.read("rig.toml"), right.as_bytes());
    }
    let options = ["--source-option", "channel=all-{unit}"];
    let args = [&["cat", "in.bin", "--from", "records", "--describe", "rig.toml"], &options[..]];
    run_sluice(&folder, &[&args.concat()[..], &["--channel", "all-1", "--json"]].concat())
        .expect(0);
    run_sluice(&folder, &["info", "in.bin", "--from", "records"])
        .expect(2)
        .expect_stderr("--describe FILE.toml");
    run_sluice(&folder, &["info", "in.bin", "--describe", "in.bin"])
        .expect(2)
        .expect_stderr("not UTF-8");
    run_sluice(&folder, &["cat", "in.bin", "--from", "csv", "--describe", "rig.toml"])
        .expect(2)
        .expect_stderr("of `records`, not of `csv`");
}

#[test]
fn the_bytes_of_undescribed_kinds_are_kept_in_every_output() {
    let folder = Folder::new();
    let record = |n: u8| {
        let kind = if n.is_multiple_of(3) { 1 } else { 9 };
        let ms = (1_700_000_000_000 + u64::from(n)).to_le_bytes();
        [&[0xa5, 0x5a, kind, 8][..], &ms, b"SECRET", &[b'0' + n; 2]].concat()
    };
    let records: Vec<Vec<u8>> = (0..9).map(record).collect();
    folder.write("in.bin", records.concat());
    let description = r#"plugin = "records"
sync = "0xa5 5a"
head = [
  { type = "u8", role = "kind" },
  { type = "u8", role = "length" },
  { name = "ms", type = "u64", role = "time", unit = "ms" },
]
kinds.1 = { name = "A", fields = [{ name = "x", type = "text", size = 8 }] }
"#;
    folder.write("my.toml", description);
    let hex = |record: &Vec<u8>| record.iter().map(|byte| format!("{byte:02x}")).collect();
    let others: Vec<String> = records.iter().filter(|record| record[2] == 9).map(hex).collect();
    for to in ["tables/", "one.parquet", "log.mcap", "log.lcm", "log.arrow.zst"] {
        let convert = ["convert", "in.bin", "--describe", "my.toml", "--to", to];
        run_sluice(&folder, &convert).expect(0);
        // Through a second output, so that what the first one says of its events counts, too.
        for again in ["again/", "again.mcap"] {
            let other = ["-c", "other", "--overwrite"];
            run_sluice(&folder, &[&["convert", to, "--to", again], &other[..]].concat()).expect(0);
            let back = ["convert", again, "--to", "back.csv"];
            let payload = ["--sink-option", "payload=hex", "--sink-option", "fields=[]"];
            run_sluice(&folder, &[&back[..], &payload, &other].concat()).expect(0);
            let rows = String::from_utf8(folder.read("back.csv")).unwrap();
            let found: Vec<&str> =
                rows.lines().skip(1).map(|row| row.rsplit(',').next().unwrap()).collect();
            assert_eq!(found, others, "{to} {again}");
        }
    }
    // Columns stay beside the bytes.
    let read = run_sluice(&folder, &["cat", "tables/", "-c", "other", "--json"]).expect(0);
    assert_eq!(lines(&read.text())[0]["fields"]["ms"], 1_700_000_000_001u64);
}

#[test]
fn described_logs_are_verified_and_played() {
    let folder = Folder::new();
    let right = DESCRIPTION.replace("type = \"u64\"", "type = \"text\", size = \"rest\"");
    folder.write("rig.toml", right);
    folder.write("in.bin", packets(9));
    let verify = ["verify", "in.bin", "--describe", "rig.toml"];
    assert!(run_sluice(&folder, &verify).expect(0).text().contains("in.bin: ok"));
    // Without a description the format is unknown.
    run_sluice(&folder, &["verify", "in.bin"]).expect(1);
    run_sluice(&folder, &["verify", "in.bin", "--from", "records"])
        .expect(2)
        .expect_stderr("give them with --describe FILE.toml");
    run_sluice(&folder, &["verify", "in.bin", "--describe", "in.bin"])
        .expect(2)
        .expect_stderr("not UTF-8");
    let mut cut = packets(9);
    cut.truncate(cut.len() - 3);
    folder.write("in.bin", cut);
    assert!(run_sluice(&folder, &verify).expect(3).text().contains("in.bin: damaged"));
    let play = ["play", "in.bin", "--describe", "rig.toml", "--print-pipeline"];
    let pipeline = run_sluice(&folder, &play).expect(0).text();
    assert!(pipeline.contains("plugin = \"records\"") && pipeline.contains("NOTE"), "{pipeline}");
    let options = ["--source-option", "channel=all-{unit}"];
    let pipeline = run_sluice(&folder, &[&play[..], &options].concat()).expect(0).text();
    assert!(pipeline.contains("all-{unit}"), "{pipeline}");
}

#[test]
fn mistakes_in_a_description_are_reported_with_its_file() {
    let folder = Folder::new();
    folder.write("in.bin", packets(9));
    folder.write("my rig.toml", "plugin = \"records\"\nhead = 3\n");
    for verb in ["cat", "verify", "info"] {
        let arguments = [verb, "in.bin", "--describe", "my rig.toml"];
        run_sluice(&folder, &arguments)
            .expect(2)
            .expect_stderr("--describe my rig.toml: `head`: expected a list, found an integer");
    }
    let given = ["cat", "in.bin", "--describe", "my rig.toml", "--source-option", "head=4"];
    run_sluice(&folder, &given).expect(2).expect_stderr("--source-option head: expected a list");
    run_sluice(&folder, &["cat", "in.bin", "--describe", "none.toml"])
        .expect(2)
        .expect_stderr("--describe: cannot open none.toml: no such file");
}

#[test]
fn mistakes_in_a_description_are_reported_with_line_and_field() {
    let folder = Folder::new();
    folder.write("in.bin", packets(9));
    let description = r#"plugin = "records"
sync = "0xaa 55"
head = [{ type = "u8", role = "kind" }, { name = "ms", type = "u32", role = "time", unit = "ms" }]

[kinds.1]
fields = [
  { name = "x", type = "u9" },
  { name = "y", type = "f3" },
]
"#;
    folder.write("my.toml", description);
    for verb in ["cat", "verify", "info"] {
        let ran = run_sluice(&folder, &[verb, "in.bin", "--describe", "my.toml"]).expect(2);
        let ran = ran.expect_stderr("my.toml:7:24").expect_stderr("my.toml:8:24");
        let ran = ran.expect_stderr("--describe my.toml: `kinds.1.fields.0.type`: expected `u8`");
        let ran = ran.expect_stderr("2 mistakes in my.toml");
        assert!(!ran.stderr.contains("needs `kinds`"), "{}", ran.stderr);
    }
    let json = ["cat", "in.bin", "--describe", "my.toml", "--log-format", "json"];
    let ran = run_sluice(&folder, &json).expect(2);
    let first = &lines(&ran.stderr)[0];
    assert_eq!((&first["file"], &first["line"]), (&"my.toml".into(), &7.into()), "{first}");
    assert_eq!((&first["column"], &first["kind"]), (&24.into(), &"mistake".into()), "{first}");
}

#[test]
fn a_wrong_description_is_reported_once_per_reason() {
    let folder = Folder::new();
    folder.write("in.bin", packets(150));
    folder.write("rig.toml", DESCRIPTION);
    let ran =
        run_sluice(&folder, &["convert", "in.bin", "--describe", "rig.toml", "--to", "out.jsonl"]);
    let ran = ran.expect(3);
    let about: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("NOTE")).collect();
    assert_eq!(about.len(), 2, "{about:?}");
    let warning = "in.bin: 4 ranges (64 bytes), the first at byte 0, could not be read: NOTE: its \
        fields need 8 bytes, its payload has 6";
    assert!(about[0].contains(warning), "{about:?}");
    assert_eq!(lines(&String::from_utf8(folder.read("out.jsonl")).unwrap()).len(), 116);
}

/// A logger in Python, independent of our code.
const LOGGER: &str = r#"
import struct, zlib, random
random.seed(7)
log = open("in.bin", "wb")
log.write(b"LOGGER v3\nrate=100\nEND\n")
for n in range(5000):
    ranges = [random.randrange(65536) for _ in range(n % 9)]
    time = (1_600_000_000 + n // 100, n % 100 / 100)
    body = struct.pack(">HIId3hB", n % 2, n, *time, n % 300, -n % 300, 7, len(ranges))
    body += struct.pack(f">{len(ranges)}H", *ranges) + b"L%03d\0\0" % (n % 50)
    record = b"\xc0\xde" + struct.pack(">H", len(body)) + body
    log.write(record + struct.pack(">I", zlib.crc32(record)))
"#;

const LOGGED: &str = r#"
[sources.log]
plugin = "records"
path = "in.bin"
magic = "LOGGER"
header = "END\n"
endian = "big"
sync = "0xc0 de"
head = [{ type = "u16", role = "length" }, { name = "unit", type = "u16", role = "channel" }]
channels = { 0 = "front", 1 = "rear" }
fields = [
  { name = "n", type = "u32", role = "sequence" },
  { type = "u32", role = "time", unit = "s" },
  { type = "f64", role = "time", unit = "s" },
  { name = "acceleration", type = "i16", count = 3, scale = 0.01, unit = "m/s2" },
  { name = "count", type = "u8" },
  { name = "ranges", type = "u16", count = "count" },
  { name = "label", type = "text", size = 6 },
]
tail = [{ type = "u32", role = "checksum", algorithm = "crc32" }]
[sinks.tables]
plugin = "parquet"
from = "log"
path = "tables/"
"#;

#[test]
fn a_log_that_python_wrote_is_a_table_that_pyarrow_reads() {
    let folder = Folder::new();
    let Some(python) = python_with("pyarrow") else {
        return report_skip("pyarrow reads the tables");
    };
    let mut command = std::process::Command::new(python);
    let wrote = command.args(["-c", LOGGER]).current_dir(folder.path()).output().unwrap();
    assert!(wrote.status.success(), "{}", String::from_utf8_lossy(&wrote.stderr));
    // The length covers what is between header and trailer, and this logger includes the unit
    // number.
    folder.write("p.toml", LOGGED.replace("role = \"length\" }", "role = \"length\", plus = -2 }"));
    run_sluice(&folder, &["run", "p.toml"]).expect(0);
    asks(
        "pyarrow",
        &folder,
        r#"
import glob, random
import pyarrow as pa, pyarrow.parquet as pq
random.seed(7)
ranges = [[random.randrange(65536) for _ in range(n % 9)] for n in range(5000)]
for unit, name in enumerate(["front", "rear"]):
    (path,) = glob.glob(f"tables/**/channel={name}/*.parquet", recursive=True)
    table = pq.read_table(path)
    assert table.schema.field("ranges").type.value_type == pa.uint16(), table.schema
    assert table.schema.field("label").type == pa.string(), table.schema
    rows = table.to_pylist()
    assert [row["n"] for row in rows] == list(range(unit, 5000, 2))
    for row in rows:
        n = row["n"]
        assert row["sequence"] == n and row["ranges"] == ranges[n]
        assert row["label"] == f"L{n % 50:03}"
        raw = (n % 300, -n % 300, 7)
        assert [round(a, 6) for a in row["acceleration"]] == [round(v * 0.01, 6) for v in raw]
        assert round(row["timestamp"].timestamp(), 6) == round(1_600_000_000 + n / 100, 6), row
"#,
    );
}

/// The options of the only source in a pipeline file, without its path.
fn options(text: &str) -> Value {
    let file: toml::Table = text.parse().unwrap();
    let sources = file["sources"].as_table().unwrap();
    let mut options = sources.values().next().unwrap().as_table().unwrap().clone();
    options.remove("plugin");
    options.remove("path");
    serde_json::to_value(options).unwrap()
}

#[test]
fn packets_with_a_checksum_keep_every_promise_of_a_source() {
    source("records")
        .options(options(PACKETS))
        .integrity(Integrity::Framed)
        .sample("packets.bin", packets(60))
        .check();
}

#[test]
fn messages_of_a_receiver_keep_every_promise_of_a_source() {
    let message = |kind: u16, payload: &[u8]| {
        let mut body = kind.to_be_bytes().to_vec();
        body.extend((payload.len() as u16).to_le_bytes());
        body.extend(payload);
        let sums = body.iter().fold((0u8, 0u8), |(a, b), byte| {
            let a = a.wrapping_add(*byte);
            (a, b.wrapping_add(a))
        });
        [&[0xb5, 0x62][..], &body, &[sums.0, sums.1]].concat()
    };
    let time = |n: u32| {
        let mut payload = (345_600_000 + n * 200).to_le_bytes().to_vec();
        payload.extend([5, 0, 0, 0, 0x98, 0x08, 18, 7, 20, 0, 0, 0]);
        message(0x0120, &payload)
    };
    let log: Vec<u8> =
        (0..20).flat_map(|n| [time(n), message(0x0a09, &[n as u8; 9])].concat()).collect();
    // Messages without a time take that of the previous one, so damage affects those that follow.
    source("records")
        .options(options(&blocks(&readme(), "```toml")[1]))
        .sample("run.ubx", log)
        .header(24)
        .check();
}
