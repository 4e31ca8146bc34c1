//! `sluice query` as users run it: rows, damage, the names of tables.

mod mistakes;
mod output;
mod prompt;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::kit::{
    BEGIN, Folder, LcmEvent, ProgramOutput, log, python_with, root, run_sluice, sluice,
};
use crate::s3::server::Server;

/// The example in the contract of the command line.
const BY_CHANNEL: &str = "select channel, count(*) from drive group by 1 order by 2 desc";

/// Two seconds of driving: `drive.lcm`, and its decoded messages in `tables/`.
fn drive() -> Folder {
    let folder = Folder::new();
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=2", "--set", "OUT=."]).expect(0);
    folder
}

/// The rows of a query on `drive.lcm`, from JSON lines.
#[track_caller]
fn query_rows(folder: &Folder, query: &str, more: &[&str]) -> Vec<Value> {
    let arguments = [&["query", query, "drive.lcm", "--format", "jsonl"], more].concat();
    lines(&run_sluice(folder, &arguments).expect(0).stdout)
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn info(folder: &Folder, log: &str) -> Value {
    serde_json::from_slice(&run_sluice(folder, &["info", "--json", log]).stdout).unwrap()
}

/// Runs the program with this stdin.
fn run_with_stdin(folder: &Folder, arguments: &[&str], input: &[u8]) -> ProgramOutput {
    let mut command = sluice(folder);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The reader has closed the pipe.
    drop(child.stdin.take().unwrap().write_all(input));
    ProgramOutput::from_output(child.wait_with_output().unwrap())
}

#[test]
fn archives_and_tables_are_decoded_by_the_types_that_their_log_declares() {
    let folder = Folder::new();
    let recording = root().join("tests/suite/ros/array_msgs_0.mcap");
    folder.write("drive.mcap", std::fs::read(recording).unwrap());
    let query = "select orientation from drive.\"/one_shot/imu\"";
    let rows = |log: &str| {
        let output = run_sluice(&folder, &["query", query, log, "--format", "jsonl"]).expect(0);
        assert!(!output.stderr.contains("note:"), "{}", output.stderr);
        lines(&output.stdout)
    };
    let expected = rows("drive.mcap");
    assert_eq!(expected.len(), 1);
    for log in ["drive.arrow.zst", "drive.parquet"] {
        run_sluice(&folder, &["convert", "drive.mcap", "--to", log]).expect(0);
        assert_eq!(rows(log), expected, "{log}");
    }
}

#[test]
fn tables_without_the_lengths_of_fixed_arrays_are_read_with_those_that_have_them() {
    let folder = Folder::new();
    let recording = root().join("tests/suite/ros/array_msgs_0.mcap");
    folder.write("drive.mcap", std::fs::read(recording).unwrap());
    run_sluice(&folder, &["convert", "drive.mcap", "--to", "tables/"]).expect(0);
    let mut table =
        std::fs::read(folder.at("tables/channel=%2Fone_shot%2Fimu/part-00000.parquet")).unwrap();
    std::fs::create_dir(folder.at("drives")).unwrap();
    folder.write("drives/b.parquet", &table);
    // As a footer without a checksum that has no such record.
    for (from, to) in [("SluiceCk", "--------"), ("sluice.lists", "other..lists")] {
        let at = table.windows(from.len()).rposition(|found| found == from.as_bytes()).unwrap();
        table[at..at + from.len()].copy_from_slice(to.as_bytes());
    }
    for (old, types) in [("a", "List(%)"), ("c", "FixedSizeList(9 x %)")] {
        folder.write(&format!("drives/{old}.parquet"), &table);
        let query = format!(
            "select sum(orientation_covariance[1]) / min(orientation_covariance[1]) as n from \
             drives.\"/one_shot/imu\" where arrow_typeof(orientation_covariance) like '{types}'"
        );
        let arguments = ["query", &query, "drives/", "--format", "jsonl"];
        let output = run_sluice(&folder, &arguments).expect(0);
        assert_eq!((lines(&output.stdout), &*output.stderr), (vec![json!({ "n": 2.0 })], ""));
        std::fs::remove_file(folder.at(&format!("drives/{old}.parquet"))).unwrap();
    }
}

#[test]
fn times_out_of_range_are_reported_if_shown() {
    let folder = Folder::new();
    // The second log counts nanoseconds instead of microseconds.
    let times = [BEGIN, BEGIN * 1_000];
    let events = times.map(|utime| LcmEvent::new(0, utime, "POSE", b"x"));
    folder.write("drive.lcm", log(&events));
    run_sluice(&folder, &["query", "select count(*) from drive", "drive.lcm"]).expect(0);
    run_sluice(&folder, &["query", "select timestamp from drive", "drive.lcm"])
        .expect(3)
        .expect_stderr("POSE: times outside the range of 64-bit nanoseconds");
}

#[test]
fn events_are_counted_by_channel_as_info_counts_them() {
    let folder = drive();
    let output = info(&folder, "drive.lcm");
    let mut expected: Vec<(u64, String)> = Vec::new();
    for channel in output["channels"].as_array().unwrap() {
        expected
            .push((channel["events"].as_u64().unwrap(), channel["name"].as_str().unwrap().into()));
    }
    let table = run_sluice(&folder, &["query", BY_CHANNEL, "drive.lcm"]).expect(0);
    let text = table.text();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["channel", "count(*)"]);
    let mut found: Vec<(u64, String)> =
        rows[2..].iter().map(|row| (row[1].parse().unwrap(), row[0].to_owned())).collect();
    assert!(found.is_sorted_by(|a, b| a.0 >= b.0), "{text}");
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(table.stderr, "");
}

#[test]
fn a_window_of_time_on_one_channel_has_the_events_that_cat_shows() {
    let folder = drive();
    let window = ["--start", "+0.5", "--end", "+1.25", "--channel", "POSE", "--json"];
    let shown = run_sluice(&folder, &[&["cat", "drive.lcm"], &window[..]].concat()).expect(0);
    let shown: Vec<Value> =
        lines(&shown.stdout).iter().map(|event| event["sequence"].clone()).collect();
    assert!(shown.len() > 10);
    let first = info(&folder, "drive.lcm")["first_timestamp_ns"].as_i64().unwrap();
    let (start, end) = (first + 500_000_000, first + 1_250_000_000);
    let query = format!(
        "select sequence from drive where channel = 'POSE' and timestamp >= \
         to_timestamp_nanos({start}) and timestamp < to_timestamp_nanos({end})"
    );
    let found: Vec<Value> =
        query_rows(&folder, &query, &[]).iter().map(|row| row["sequence"].clone()).collect();
    assert_eq!(found, shown);
}

/// What a script prints, as JSON.
#[track_caller]
fn run_script(module: &str, folder: &Folder, script: &str) -> Option<Value> {
    let output =
        Command::new(python_with(module)?).args(["-c", script]).current_dir(folder.path()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn aggregates_over_fields_match_duckdb() {
    let folder = drive();
    let query =
        "select count(*) as n, sum(utime) as t, max(pos[1]) as x, avg(vel[2]) as v from drive.POSE";
    let found = query_rows(&folder, query, &["--types", "mit-dgc"]);
    let script = "
import duckdb, json
values = 'count(*), sum(utime)::bigint, max(pos[1]), avg(vel[2])'
table = 'tables/channel=POSE/*.parquet'
row = duckdb.sql(f\"select {values} from '{table}'\").fetchall()[0]
print(json.dumps(dict(zip('ntxv', row))))";
    let Some(expected) = run_script("duckdb", &folder, script) else { return };
    assert_eq!((&found[0]["n"], &found[0]["t"]), (&expected["n"], &expected["t"]));
    assert_eq!(found[0]["x"], expected["x"]);
    let near = |row: &Value| (row["v"].as_f64().unwrap() * 1e9).round();
    assert_eq!(near(&found[0]), near(&expected));
}

#[test]
fn correlations_and_regressions_over_moving_frames_match_duckdb() {
    let folder = drive();
    let columns = "corr(y, x) over w as a, covar_samp(y, x) over w as b, regr_slope(y, x) over w \
                   as c, regr_intercept(y, x) over w as d, regr_r2(y, x) over w as e";
    let rest = "window w as (order by utime rows 9 preceding) order by utime";
    let from = "select utime, pos[1] as y, vel[2] as x from";
    let query = format!("select {columns} from ({from} drive.POSE) {rest}");
    let found = query_rows(&folder, &query, &["--types", "mit-dgc"]);
    let table = "'tables/channel=POSE/*.parquet'";
    let script = format!(
        "
import duckdb, json
rows = duckdb.sql(\"\"\"select {columns} from ({from} {table}) {rest}\"\"\").fetchall()
print(json.dumps([dict(zip('abcde', row)) for row in rows[2:]]))"
    );
    let Some(expected) = run_script("duckdb", &folder, &script) else { return };
    let expected = expected.as_array().unwrap();
    // Two points are always on a line.
    let found = &found[2..];
    assert!(found.len() == expected.len() && found.len() > 20, "{}", found.len());
    for (found, expected) in found.iter().zip(expected) {
        for column in ["a", "b", "c", "d", "e"] {
            let number = |row: &Value| row[column].as_f64().unwrap();
            let (found, expected) = (number(found), number(expected));
            let is_near = (found - expected).abs() <= 1e-6 * expected.abs().max(1e-3);
            assert!(is_near, "{column}: {found}, expected {expected}");
        }
    }
}

#[test]
fn damage_is_reported_as_by_cat_and_sets_the_exit_code() {
    let folder = drive();
    let mut bytes = folder.read("drive.lcm");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 5_000].fill(0xA5);
    folder.write("drive.lcm", &bytes);
    let shown = run_sluice(&folder, &["cat", "drive.lcm"]).expect(3);
    let output =
        run_sluice(&folder, &["query", "select count(*) as n from drive", "drive.lcm"]).expect(3);
    assert_eq!(output.stderr, shown.stderr);
    assert!(output.stderr.contains("could not be read"));
    let count = output.text().lines().last().unwrap().trim().to_owned();
    assert_eq!(count, info(&folder, "drive.lcm")["events"].to_string());
    // The file is written, and --quiet suppresses the message.
    let arguments = ["-q", "query", "select * from drive", "drive.lcm", "--to", "all.parquet"];
    assert_eq!(run_sluice(&folder, &arguments).expect(3).stderr, "");
    assert!(folder.at("all.parquet").exists());
}

#[test]
fn events_that_cannot_be_decoded_are_left_out_and_counted() {
    let folder = drive();
    let mut bytes = folder.read("drive.lcm");
    for number in 0..3 {
        bytes.extend(LcmEvent::new(100_000 + number, BEGIN, "POSE", b"rubbish").bytes());
    }
    folder.write("drive.lcm", &bytes);
    let query = "select count(utime) as n from drive.POSE";
    let output =
        run_sluice(&folder, &["query", query, "drive.lcm", "--types", "mit-dgc"]).expect(3);
    let output = output.expect_stderr("3 events");
    let poses = query_rows(&folder, "select count(*) as n from drive where channel = 'POSE'", &[]);
    let decoded = output.text().lines().last().unwrap().trim().parse::<u64>().unwrap();
    assert_eq!(decoded + 3, poses[0]["n"].as_u64().unwrap());
}

#[test]
fn tables_are_named_after_files_or_by_the_user() {
    let folder = drive();
    std::fs::create_dir(folder.at("logs")).unwrap();
    for name in ["logs/2007-11-03.lcm", "logs/drive.lcm"] {
        std::fs::copy(folder.at("drive.lcm"), folder.at(name)).unwrap();
    }
    let events = info(&folder, "drive.lcm")["events"].as_u64().unwrap();
    let count = |query: &str, logs: &[&str]| {
        let arguments = [&["query", "--format", "csv", query], logs].concat();
        let text = run_sluice(&folder, &arguments).expect(0).text();
        text.lines().last().unwrap().parse::<u64>().unwrap()
    };
    let day = "logs/2007-11-03.lcm";
    assert_eq!(count("select count(*) from \"2007-11-03\"", &[day]), events);
    assert_eq!(count("select count(*) from log", &[day]), events);
    assert_eq!(count("select count(*) from days", &["days=logs/*.lcm"]), 2 * events);
    let twice = ["a=drive.lcm", "a=logs/drive.lcm", "b=logs/2007-11-03.lcm"];
    assert_eq!(count("select count(*) from a", &twice), 2 * events);
    let joined = "select count(*) from drive d join \"2007-11-03\" t on d.sequence = t.sequence";
    assert_eq!(count(joined, &["drive.lcm", day]), events);
    let same = ["query", "select 1", "drive.lcm", "logs/drive.lcm"];
    run_sluice(&folder, &same).expect(2).expect_stderr("first=drive.lcm second=logs/drive.lcm");
    run_sluice(&folder, &["query", "select 1", "no-such.lcm"])
        .expect(1)
        .expect_stderr("no-such.lcm");
    run_sluice(&folder, &["query", "select * from log", "drive.lcm", day])
        .expect(2)
        .expect_stderr("log");
    run_sluice(&folder, &["query", "select 1", "--format", "csv", "--limit-rows", "1"])
        .expect(2)
        .expect_stderr("LIMIT");
    run_sluice(&folder, &["query"]).expect(2).expect_stderr("expected a query or a log");
}

#[test]
fn aliases_are_not_listed() {
    let folder = Folder::new();
    folder.write("day.lcm", log(&[LcmEvent::new(0, BEGIN, "A", b"a")]));
    let shown =
        run_sluice(&folder, &["query", "show tables", "day.lcm", "--format", "csv"]).expect(0);
    let text = shown.text();
    assert!(text.contains("sluice,day,A,") && !text.contains("sluice,log,"), "{text}");
    let listed = run_with_stdin(&folder, &["query", "day.lcm"], b".tables\n").expect(0);
    assert_eq!(listed.text(), "day\nday.A\n");
    run_sluice(&folder, &["query", "select * from log.A, Log", "day.lcm"]).expect(0);
}

#[test]
fn help_explains_tables_and_shells_complete_the_command() {
    let folder = Folder::new();
    let help = run_sluice(&folder, &["query", "--help"]).expect(0).text();
    for what in ["NAME=FILE", "drive.CHANNEL", "--limit-rows", "also the table `log`"] {
        assert!(help.contains(what), "{help}");
    }
    assert!(
        run_sluice(&folder, &["completions", "bash"]).expect(0).text().contains("--limit-rows")
    );
}

#[test]
fn a_query_that_needs_more_than_its_memory_spills_or_says_what_to_do() {
    let folder = drive();
    let mut all: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    for memory in ["64MiB", "1GiB"] {
        let query = "select payload from drive order by payload, sequence";
        let arguments = ["query", query, "drive.lcm", "--memory", memory, "--format", "csv"];
        all.insert(memory, run_sluice(&folder, &arguments).expect(0).stdout);
    }
    assert_eq!(all["64MiB"], all["1GiB"]);
    // Its first rows have more than a kilobyte each.
    let query = "select count(*) as n from (select distinct payload, sequence from drive)";
    let arguments = ["query", query, "drive.lcm", "--memory", "8MiB", "--format", "jsonl"];
    let events = info(&folder, "drive.lcm")["events"].clone();
    assert_eq!(lines(&run_sluice(&folder, &arguments).expect(0).stdout), [json!({ "n": events })]);
}

#[test]
fn objects_are_queried_like_files_and_reread_each_time() {
    let (folder, server) = (Folder::new(), Server::start());
    let one = log(&[LcmEvent::new(0, BEGIN, "A", b"a")]);
    let two = log(&[LcmEvent::new(0, BEGIN, "A", b"a"), LcmEvent::new(1, BEGIN, "B", b"b")]);
    server.put("logs/day.lcm", &one);
    let count = "select count(*) as n from day";
    for (query, log) in [(count, "s3://logs/day.lcm"), (count, "day=s3://logs/*.lcm")] {
        let ran = server.ran(&folder, &["query", query, log, "--format", "csv"]).expect(0);
        assert_eq!(ran.text(), "n\n1\n", "{log}");
    }
    let to = ["query", count, "s3://logs/day.lcm", "--to", "s3://out/n.csv"];
    server.ran(&folder, &to).expect(0);
    assert_eq!(server.get("out/n.csv"), b"n\n1\n");
    let onto = [&to[..4], &["s3://logs/day.lcm", "--format", "csv", "--overwrite"]].concat();
    server.ran(&folder, &onto).expect(1).expect_stderr("the output is also an input");

    let mut command = server.sluice(&folder);
    command.args(["query", "s3://logs/day.lcm", "--format", "csv"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().map(BufReader::new));
    for (bytes, expected) in [(one, "n\n1\n"), (two, "n\n2\n")] {
        server.put("logs/day.lcm", &bytes);
        writeln!(to, "{count};").unwrap();
        let mut text = String::new();
        for _ in 0..2 {
            from.as_mut().unwrap().read_line(&mut text).unwrap();
        }
        assert_eq!(text, expected);
    }
    drop(to);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_byte_order_mark_before_statements_is_skipped() {
    let folder = Folder::new();
    folder.write("a.lcm", log(&[LcmEvent::new(0, BEGIN, "A", b"a")]));
    let text = "\u{feff}select 1 as a; select 2 as b;\n";
    folder.write("q.sql", text);
    let file = run_sluice(&folder, &["query", "-f", "q.sql", "--format", "csv"]).expect(0);
    let piped = run_with_stdin(&folder, &["query", "a.lcm", "--format", "csv"], text.as_bytes());
    assert_eq!((file.text(), piped.expect(0).text()), ("a\n1\nb\n2\n".into(), file.text()));
    folder.write("q.sql", "\u{feff}selec 1;");
    run_sluice(&folder, &["query", "-f", "q.sql"]).expect(2).expect_stderr("q.sql:1:1");
}
