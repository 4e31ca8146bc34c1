//! Every format of `sluice query`, and the files that it writes.

use std::process::Stdio;

use super::{drive, info, lines, query_rows, run_script, run_with_stdin};
use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, log, run_sluice, sluice};

#[test]
fn other_programs_read_every_format() {
    let folder = drive();
    let query = "select timestamp, channel, sequence, payload, named_struct('a', [1, null]) as \
                 nested, cast(null as double) as nothing, to_timestamp_seconds(sequence) as \
                 second from drive order by sequence";
    for name in ["all.parquet", "all.csv", "all.json", "all.jsonl", "all.arrow", "all.csv.zst"] {
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
assert str(parquet.schema.field("second").type) == "timestamp[ms, tz=UTC]", parquet.schema
meta = pq.read_metadata("all.parquet").metadata
assert json.loads(meta[b"sluice.inputs"])[0]["path"] == "drive.lcm"
assert b"named_struct" in meta[b"sluice.query"]
assert pq.ParquetFile("all.parquet").metadata.row_group(0).column(0).compression == "ZSTD"
assert parquet.to_pydict() == arrow.to_pydict()
csv.field_size_limit(1 << 30)
rows = list(csv.DictReader(open("all.csv", newline="")))
lines = [json.loads(line) for line in open("all.jsonl")]
assert json.load(open("all.json")) == lines
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
same = summary("timestamp::timestamptz", "all.json")
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
fn formats_that_have_an_end_take_one_statement_on_standard_output_too() {
    let folder = Folder::new();
    let query = "select 1 as a; select 2 as b";
    folder.write("two.sql", query);
    folder.write("a.lcm", log(&[LcmEvent::new(0, BEGIN, "A", b"a")]));
    for format in ["parquet", "arrow", "json"] {
        for to in [&[][..], &["--to", "-"]] {
            let refused = |output: ProgramOutput| {
                let output = output.expect(2).expect_stderr("one statement, but there are 2");
                assert_eq!(output.stdout, b"", "{format}");
            };
            let arguments = [&["query", "--format", format][..], to].concat();
            refused(run_sluice(&folder, &[&arguments[..], &[query]].concat()));
            refused(run_sluice(&folder, &[&arguments[..], &["-f", "two.sql"]].concat()));
            let arguments = [&arguments[..], &["a.lcm"]].concat();
            refused(run_with_stdin(&folder, &arguments, query.as_bytes()));
            let one = run_with_stdin(&folder, &arguments, b"select 1 as a;\n").expect(0);
            assert!(!one.stdout.is_empty(), "{format}");
        }
    }
    let lines = ["query", query, "--format", "jsonl"];
    assert_eq!(run_sluice(&folder, &lines).expect(0).text(), "{\"a\":1}\n{\"b\":2}\n");
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
