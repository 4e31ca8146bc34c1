//! `sluice query` as users run it: every format, messages, and refusals.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::kit::{
    BEGIN, Folder, LcmEvent, ProgramOutput, log, python_with, report_skip, root, run_sluice, sluice,
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
fn other_programs_read_every_format() {
    let folder = drive();
    let query = "select timestamp, channel, sequence, payload, named_struct('a', [1, null]) as \
                 nested, cast(null as double) as nothing, to_timestamp_seconds(sequence) as \
                 second from drive order by sequence";
    for name in ["all.parquet", "all.csv", "all.jsonl", "all.arrow", "all.csv.zst"] {
        run_sluice(&folder, &["query", query, "drive.lcm", "--to", name])
            .expect(0)
            .expect_stderr("wrote");
    }
    let events = info(&folder, "drive.lcm")["events"].clone();
    assert_eq!(lines(&folder.read("all.jsonl")).len() as u64, events.as_u64().unwrap());
    assert_eq!(crate::kit::decompressed(&folder.read("all.csv.zst")), folder.read("all.csv"));
    let script = r#"
import base64, csv, duckdb, json, pyarrow as pa, pyarrow.ipc, pyarrow.parquet as pq
parquet, arrow = pq.read_table("all.parquet"), pa.ipc.open_file("all.arrow").read_all()
assert str(parquet.schema.field("timestamp").type) == "timestamp[ns, tz=UTC]", parquet.schema
assert parquet.schema.field("nested").type.num_fields == 1
assert str(parquet.schema.field("second").type) == "timestamp[ms]", parquet.schema
meta = pq.read_metadata("all.parquet").metadata
assert json.loads(meta[b"sluice.inputs"])[0]["path"] == "drive.lcm"
assert b"named_struct" in meta[b"sluice.query"]
assert pq.ParquetFile("all.parquet").metadata.row_group(0).column(0).compression == "ZSTD"
assert parquet.to_pydict() == arrow.to_pydict()
csv.field_size_limit(1 << 30)
rows = list(csv.DictReader(open("all.csv", newline="")))
lines = [json.loads(line) for line in open("all.jsonl")]
times = parquet["timestamp"].cast(pa.int64())
for row, line, payload, ns in zip(rows, lines, parquet["payload"], times):
    assert row["timestamp"] == line["timestamp"] and row["timestamp"].endswith("Z")
    assert base64.b64decode(row["payload"]) == base64.b64decode(line["payload"]) == payload.as_py()
    assert json.loads(row["nested"]) == line["nested"] == {"a": [1, None]}
    assert row["nothing"] == "" and line["nothing"] is None
summary = lambda time, table: duckdb.sql(
    f"select max(epoch_ns({time})), count(*), min(sequence) from '{table}'").fetchall()[0]
ns = summary("timestamp", "all.parquet")
same = summary("timestamp::timestamptz", "all.csv")
assert ns == same, (ns, same)
print(json.dumps(len(rows)))
"#;
    let Some(rows) = run_script("duckdb, pyarrow", &folder, script) else { return };
    assert_eq!(rows, events);
}

#[test]
fn binary_formats_can_be_piped_and_closed_pipes_are_no_failure() {
    let folder = drive();
    let arguments = ["query", "select 1 as one", "--to", "-", "--format", "parquet"];
    assert!(run_sluice(&folder, &arguments).expect(0).stdout.starts_with(b"PAR1"));
    let mut command = sluice(&folder);
    command.args(["query", "select * from drive", "drive.lcm", "--format", "csv"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ran = ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(0);
    assert_eq!(ran.stderr, "");
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
fn mistakes_in_queries_are_shown_with_position_and_help() {
    let folder = drive();
    let wrong: [(&str, &[&str]); 6] = [
        ("select chanel from drive", &["query:1:8", "no column `chanel`", "`channel`", "^^^^^^"]),
        ("select *\nfrom drvie", &["query:2:6", "no table `drvie`", "`drive`", "^^^^^"]),
        ("selec * from drive", &["query:1:1", "not valid SQL", "^^^^^"]),
        ("select nosuch(1) from drive", &["nosuch"]),
        ("select * from drive where", &["query:1:26", "not valid SQL"]),
        ("select * from drive; select pay_load from drive", &["query:1:29", "`payload`"]),
    ];
    for (query, expected) in wrong {
        let mut message = run_sluice(&folder, &["query", query, "drive.lcm"]).expect(2);
        for what in expected {
            message = message.expect_stderr(what);
        }
    }
    folder.write("wrong.sql", "-- two lines\nselect channel, frm drive;");
    let arguments = ["query", "--file", "wrong.sql", "drive.lcm"];
    run_sluice(&folder, &arguments).expect(2).expect_stderr("wrong.sql:2:");
}

#[test]
fn constants_that_are_no_values_of_their_type_are_wrong_sql() {
    let folder = drive();
    for (condition, expected) in [
        ("timestamp < 'rubbish'", "'rubbish'"),
        ("timestamp < '2300-01-01T00:00:00Z'", "`2300-01-01 00:00:00` is out of range"),
        ("timestamp between '1500-01-01' and '2020-01-01'", "between 1677-09-21 and 2262-04-11"),
        ("sequence < cast('x' as int)", "'x'"),
    ] {
        let query = format!("select count(*) from drive where {condition}");
        let ran = run_sluice(&folder, &["query", &query, "drive.lcm"]).expect(2);
        assert!(!ran.expect_stderr(expected).stderr.contains("arrow"), "{condition}");
    }
}

#[test]
fn other_statements_are_refused_and_write_nothing() {
    let folder = drive();
    let before = folder.names();
    for statement in [
        "create table x as select 1",
        "copy drive to 'x.parquet'",
        "insert into drive select * from drive",
        "set datafusion.execution.batch_size = 1",
        "create external table x stored as csv location '/etc/passwd'",
        "drop table drive",
    ] {
        run_sluice(&folder, &["query", statement, "drive.lcm"])
            .expect(2)
            .expect_stderr("not a query");
    }
    folder.write("secret.csv", "a,b\n1,2\n");
    for query in ["select * from 'secret.csv'", "select * from \"secret.csv\""] {
        run_sluice(&folder, &["query", query, "drive.lcm"]).expect(2);
    }
    std::fs::remove_file(folder.at("secret.csv")).unwrap();
    assert_eq!(folder.names(), before);
}

#[test]
fn a_file_appears_only_when_complete() {
    let folder = drive();
    let before = folder.names();
    let to = |query: &str, more: &[&str]| {
        run_sluice(&folder, &[&["query", query, "drive.lcm", "--to", "out.csv"], more].concat())
    };
    // It fails after rows were written.
    let fails = "select 10 / (sequence - 500) as x, channel from drive";
    to(fails, &[]).expect(1).expect_stderr("zero");
    assert_eq!(folder.names(), before);
    to("select 1 as one", &[]).expect(0);
    to("select 2 as two", &[]).expect(1).expect_stderr("--overwrite");
    assert_eq!(folder.read("out.csv"), b"one\n1\n");
    to(fails, &["--overwrite"]).expect(1);
    assert_eq!(folder.read("out.csv"), b"one\n1\n");
    to("select 2 as two", &["--overwrite"]).expect(0);
    assert_eq!(folder.read("out.csv"), b"two\n2\n");
    // No log is overwritten, under any name.
    let over = ["query", "select 1", "drive.lcm", "--to", "./drive.lcm", "--format", "csv"];
    run_sluice(&folder, &[&over[..], &["--overwrite"]].concat()).expect(1).expect_stderr("input");
    to("select 1; select 2", &["--overwrite"]).expect(2).expect_stderr("one statement");
    let piped = ["query", "drive.lcm", "--to", "out.csv", "--overwrite"];
    run_with_stdin(&folder, &piped, b"select 1;\nselect 2;\n")
        .expect(2)
        .expect_stderr("one statement");
    assert_eq!(folder.read("out.csv"), b"two\n2\n");
    run_with_stdin(&folder, &piped, b"select 3 as three;\n").expect(0);
    assert_eq!(folder.read("out.csv"), b"three\n3\n");
    run_sluice(&folder, &["query", "select 1", "--to", "x.lcm"])
        .expect(2)
        .expect_stderr(".parquet");
    assert_eq!(folder.names().len(), before.len() + 1);
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
fn each_query_sees_what_was_appended_to_a_log() {
    let folder = Folder::new();
    let mut events = vec![LcmEvent::new(0, BEGIN, "A", b"a")];
    folder.write("day.lcm", log(&events));
    let mut command = sluice(&folder);
    command.args(["query", "day.lcm", "--format", "csv"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().map(BufReader::new));
    let mut send = |message: &str, lines: usize| {
        to.write_all(message.as_bytes()).unwrap();
        let mut text = String::new();
        for _ in 0..lines {
            from.as_mut().unwrap().read_line(&mut text).unwrap();
        }
        text
    };
    assert_eq!(send(".tables\n", 2), "day\nday.A\n");
    assert_eq!(send("select count(*) as n from day;\n", 2), "n\n1\n");
    events.push(LcmEvent::new(1, BEGIN, "B", b"b"));
    folder.write("day.lcm", log(&events));
    assert_eq!(send("select count(*) as n from day.B;\n", 2), "n\n1\n");
    assert_eq!(send(".tables\n", 3), "day\nday.A\nday.B\n");
    drop(to);
    assert!(child.wait().unwrap().success());
}

#[test]
fn statements_come_on_standard_input_or_in_a_file() {
    let folder = drive();
    let input = b"select 1 as a; select\n ';' as b;\n-- the end;\n.format csv\nselect 2 as c";
    let output = run_with_stdin(&folder, &["query", "drive.lcm"], input).expect(0);
    assert_eq!(output.text(), "a\n-\n1\n\nb\n-\n;\nc\n2\n");
    let output =
        run_with_stdin(&folder, &["query", "drive.lcm"], b"select 1 as a;\nselect b;\nselect 3;")
            .expect(2);
    assert_eq!(output.text(), "a\n-\n1\n");
    run_with_stdin(&folder, &["query", "drive.lcm"], b".nonsense\n")
        .expect(2)
        .expect_stderr(".help");
    let output = run_with_stdin(
        &folder,
        &["query", "drive.lcm", "--types", "mit-dgc"],
        b".tables\n.schema drive.POSE\n",
    );
    let text = output.expect(0).text();
    assert!(text.contains("\ndrive.POSE\n") && text.contains("utime"), "{text}");
    folder.write("two.sql", "select 1 as a;\nselect 2 as b;\n");
    let arguments = ["query", "--format", "csv", "-f", "two.sql", "drive.lcm"];
    assert_eq!(run_sluice(&folder, &arguments).expect(0).text(), "a\n1\nb\n2\n");
    let count = run_with_stdin(
        &folder,
        &["query", "--format", "csv", "-f", "-", "drive.lcm"],
        b"select 7 as n",
    );
    assert_eq!(count.expect(0).text(), "n\n7\n");
    let events = info(&folder, "drive.lcm")["events"].to_string();
    let log = folder.read("drive.lcm");
    let arguments =
        ["query", "select count(*) as n from stdin", "-", "--from", "lcm-log", "--format", "csv"];
    assert_eq!(
        run_with_stdin(&folder, &arguments, &log).expect(0).text(),
        format!("n\n{events}\n")
    );
}

#[test]
fn plans_are_shown_line_by_line() {
    let folder = drive();
    let query = "explain select count(*) from drive where channel = 'POSE'";
    let text = run_sluice(&folder, &["query", query, "drive.lcm"]).expect(0).text();
    assert!(text.lines().any(|line| line == "physical_plan"), "{text}");
    assert!(text.lines().filter(|line| line.starts_with("  ")).count() > 3, "{text}");
}

#[test]
fn hostile_names_are_escaped() {
    let folder = Folder::new();
    let names = ["a\"b; drop table x --", "x\u{1b}[31m\u{7}", "SELECT", "", "a.b"];
    let mut events = Vec::new();
    for (number, name) in names.iter().enumerate() {
        events.push(LcmEvent::new(number as i64, BEGIN + number as i64, name, b"\x1b[2J"));
    }
    folder.write("drive.lcm", log(&events));
    let rows = query_rows(&folder, "select channel, payload from drive", &[]);
    let found: Vec<&str> = rows.iter().map(|row| row["channel"].as_str().unwrap()).collect();
    assert_eq!(found, names);
    let shown = run_sluice(&folder, &["query", "select * from drive", "drive.lcm"]).expect(0);
    assert!(!shown.stdout.iter().any(|byte| *byte < b' ' && *byte != b'\n'), "{}", shown.text());
    assert!(shown.text().contains("4 B 1b5b324a"), "{}", shown.text());
    let tables = run_with_stdin(&folder, &["query", "drive.lcm"], b".tables\n").expect(0).text();
    for table in ["drive.\"a\"\"b; drop table x --\"", "drive.\"SELECT\"", "drive.\"a.b\""] {
        assert!(tables.lines().any(|line| line == table), "{table} in {tables}");
        let count = format!("select count(*) as n from {table}");
        assert_eq!(query_rows(&folder, &count, &[])[0]["n"], 1, "{table}");
    }
    let wrong =
        run_sluice(&folder, &["query", "select \"\u{1b}[31m\" from drive", "drive.lcm"]).expect(2);
    assert!(!wrong.stderr.contains('\u{1b}'), "{}", wrong.stderr);
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

/// The result of a program in a terminal, step by step.
fn in_terminal(folder: &Folder, arguments: &[&str], steps: &[Value]) -> Option<Value> {
    let has_pty = Command::new("python3").args(["-c", "import pty, termios"]).output();
    if !has_pty.is_ok_and(|output| output.status.success()) {
        report_skip("there is no python3 with pty, to press keys with");
        return None;
    }
    let mut command = Command::new("python3");
    command
        .args([Path::new("-B"), &root().join("tests/suite/terminal.py")])
        .arg(Value::from(steps.to_vec()).to_string())
        .arg(sluice(folder).get_program())
        .args(arguments)
        .current_dir(folder.path())
        .env("TERM", "xterm")
        .env("XDG_CACHE_HOME", folder.at("cache"))
        .env("XDG_STATE_HOME", folder.at("state"));
    let output = ProgramOutput::from_output(command.output().unwrap()).expect(0);
    let output: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output["failed"], Value::Null, "{}", output["output"]);
    assert_eq!(output["restored"], true, "{}", output["output"]);
    Some(output)
}

fn until(text: &str) -> Value {
    json!({ "until": text })
}

fn send(text: &str) -> Value {
    json!({ "send": text })
}

#[test]
fn a_prompt_runs_until_it_is_closed() {
    let folder = drive();
    let steps = [
        until("tables: drive;"),
        until("sluice> "),
        send("select count(*) as n\r"),
        send("from drive where channel = 'POSE';\r"),
        until("1 row in "),
        until("sluice> "),
        // Errors are shown, and the prompt continues.
        send("select nothing from drive;\r"),
        until("no column"),
        until("sluice> "),
        send(".sch\t drive\r"),
        until("sequence +Int64"),
        until("sluice> "),
        // Ctrl-C discards a line.
        send("select rubbish\u{3}"),
        until("sluice> "),
        send(".to out.csv\r"),
        until("sluice> "),
        send("select seq\t from dri\t limit 2;\r"),
        until("2 rows in .*out.csv"),
        until("sluice> "),
        send("\u{4}"),
    ];
    let Some(output) = in_terminal(&folder, &["query", "drive.lcm"], &steps) else { return };
    assert_eq!(output["code"], 0, "{}", output["output"]);
    assert_eq!(folder.read("out.csv"), b"sequence\n0\n1\n");
    let history = String::from_utf8(folder.read("state/sluice/query_history")).unwrap();
    assert!(history.contains("from drive where channel") && history.contains(".to out.csv"));
}

#[test]
fn ctrl_c_stops_a_query_but_not_the_prompt() {
    let folder = drive();
    let endless = "with recursive n as (select 1 as x union all select x + 1 from n) \
                   select count(*) from n where x < 0;\r";
    let steps = [
        until("sluice> "),
        send(endless),
        // When the editor has returned the line.
        until("x < 0;.*2004l"),
        // The terminal is in cooked mode while the query runs: Ctrl-C is a signal.
        json!({ "signal": 2 }),
        until("aborted"),
        until("sluice> "),
        send("select 40 + 2 as answer;\r"),
        until("42"),
        until("sluice> "),
        send(".quit\r"),
    ];
    let Some(output) = in_terminal(&folder, &["query", "drive.lcm"], &steps) else { return };
    assert_eq!(output["code"], 0, "{}", output["output"]);
}

#[test]
fn a_table_fits_the_terminal_and_names_hidden_columns() {
    let folder = drive();
    let wide: Vec<String> = (0..30).map(|n| format!("channel as column_{n}")).collect();
    let query = format!("select {} from drive limit 3", wide.join(", "));
    let Some(output) = in_terminal(&folder, &["query", &query, "drive.lcm"], &[]) else { return };
    let output = output["output"].as_str().unwrap();
    assert!(output.lines().take(5).all(|line| line.trim_end().chars().count() <= 110), "{output}");
    assert!(output.contains("the terminal is too narrow for 21 columns"), "{output}");
    let query = "select sequence from drive";
    let Some(output) = in_terminal(&folder, &["query", query, "drive.lcm"], &[]) else { return };
    let output = output["output"].as_str().unwrap();
    assert!(output.contains("the first 1,000 of "), "{output:.500}");
    let refused = ["query", "select 1", "--to", "-", "--format", "arrow"];
    let Some(output) = in_terminal(&folder, &refused, &[]) else { return };
    assert_eq!(output["code"], 1, "{output}");
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
