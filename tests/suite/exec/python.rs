//! Programs in Python that use pyarrow.

use std::process::{Command, Stdio};

use super::*;

/// The Python with pyarrow; `None`, with a message, if there is none.
fn python() -> Option<String> {
    let peers = std::env::var("SLUICE_PEERS").map(|peers| format!("{peers}/bin/python3"));
    let python = peers.unwrap_or_else(|_| "python3".to_owned());
    let has = Command::new(&python).args(["-c", "import pyarrow"]).stderr(Stdio::null()).status();
    if has.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    report_skip("there is no Python with pyarrow, which programs are written with");
    None
}

/// The path of an example as a command-line argument.
fn example(name: &str) -> String {
    root().join("plugins/exec/examples").join(name).display().to_string()
}

#[test]
fn a_python_program_of_a_few_lines_is_a_source() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    folder.write("in.txt", "1194098400000 POSE where am i\n1194098400250 CAM a picture\n");
    let command = format!("[{python:?}, {:?}, \"{{input}}\"]", example("source.py"));
    allowed(&source_pipeline(&command, r#"path = "${DIR}/in.txt""#), &folder, 2).unwrap();
    let found = events(&folder.read("out.lcm"));
    assert_eq!(found[0], LcmEvent::new(0, BEGIN, "POSE", b"where am i"));
    assert_eq!(found[1], LcmEvent::new(1, BEGIN + 250_000, "CAM", b"a picture"));
}

#[test]
fn a_python_program_of_a_few_lines_is_a_stage() {
    let Some(python) = python() else { return };
    let folder = with_log(3000);
    let command = format!("[{python:?}, {:?}, \"400\"]", example("stage.py"));
    let expected: Vec<LcmEvent> = drive(7, 3000)
        .into_iter()
        .filter(|event| event.payload.len() >= 400)
        .map(|event| LcmEvent { channel: [b"LONG_", &event.channel[..]].concat(), ..event })
        .collect();
    for jobs in [1, 4] {
        let report = allowed(&stage_pipeline(&command), &folder, jobs).unwrap();
        assert!(events(&folder.read("out.lcm")) == expected);
        // Events are counted by the channels that were read.
        let names: Vec<&str> = report.channels.iter().map(|row| &*row.channel).collect();
        assert_eq!(names, ["A", "B", "C", "D", "E"]);
        assert_eq!(total(&report, |row| row.filtered), 3000 - expected.len() as u64);
    }
}

#[test]
fn a_python_program_of_a_few_lines_is_a_sink() {
    let Some(python) = python() else { return };
    let folder = with_log(3000);
    let command = format!("[{python:?}, {:?}]", example("sink.py"));
    allowed(&sink_pipeline(&command, r#"path = "${DIR}/out.txt""#), &folder, 2).unwrap();
    let drive = drive(7, 3000);
    let expected = ["A", "B", "C", "D", "E"].map(|channel| {
        let sizes = drive.iter().filter(|event| event.channel == channel.as_bytes());
        let sizes: Vec<usize> = sizes.map(|event| event.payload.len()).collect();
        format!("{channel} {} {}\n", sizes.len(), sizes.iter().sum::<usize>())
    });
    assert_eq!(String::from_utf8(folder.read("out.txt")).unwrap(), expected.concat());
}

/// A stage that is this Python program.
fn stage_of(folder: &Folder, python: &str, program: &str) -> String {
    folder.write("stage.py", program);
    stage_pipeline(&format!("[{python:?}, \"stage.py\"]"))
}

#[test]
fn new_events_are_counted_separately() {
    let Some(python) = python() else { return };
    let folder = with_log(1000);
    // Every event twice, and an invented one.
    let program = r#"
import sys, pyarrow as pa
with pa.ipc.open_stream(sys.stdin.buffer) as events:
    with pa.ipc.new_stream(sys.stdout.buffer, events.schema) as out:
        for batch in events:
            out.write_batch(batch)
            out.write_batch(batch)
        new = {"timestamp": 5, "channel": "NEW", "payload": b"x", "sequence": 9, "source": "me"}
        out.write_batch(pa.RecordBatch.from_pylist([new], schema=events.schema))
"#;
    let report = allowed(&stage_of(&folder, &python, program), &folder, 2).unwrap();
    let found = events(&folder.read("out.lcm"));
    assert_eq!(found.len(), 2001);
    assert_eq!(found[2000].channel, b"NEW");
    assert_eq!(total(&report, |row| row.entered), 2001);
    assert_eq!(total(&report, |row| row.filtered), 0);
    let new: Vec<_> = report.channels.iter().filter(|row| row.channel == "NEW").collect();
    assert_eq!((new[0].entered, new[0].out, &*new[0].source), (1, 1, "me"));
}

#[test]
fn columns_that_a_program_omits_are_unchanged() {
    let Some(python) = python() else { return };
    let folder = with_log(200);
    let program = r#"
import sys, pyarrow as pa
schema = pa.schema({
    "number": pa.int64(), "timestamp": pa.timestamp("us"), "channel": pa.string(),
    "payload": pa.binary()})
with pa.ipc.open_stream(sys.stdin.buffer) as events:
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as out:
        for batch in events:
            table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
            out.write_table(table, max_chunksize=7)
"#;
    let report = allowed(&stage_of(&folder, &python, program), &folder, 2).unwrap();
    assert!(events(&folder.read("out.lcm")) == events(&folder.read("in.lcm")));
    // With another source, they still count as events of the channels that were read.
    assert!(report.channels.iter().all(|row| row.source == "log" && row.filtered == 0));
}

#[test]
fn a_number_that_was_never_sent_is_an_error() {
    let Some(python) = python() else { return };
    let folder = with_log(20);
    let program = r#"
import sys, pyarrow as pa, pyarrow.compute as pc
with pa.ipc.open_stream(sys.stdin.buffer) as events:
    with pa.ipc.new_stream(sys.stdout.buffer, events.schema) as out:
        for batch in events:
            numbers = pc.add(batch["number"], 1000)
            out.write_batch(batch.set_column(0, events.schema.field(0), numbers))
"#;
    let message = failure(&stage_of(&folder, &python, program), &folder);
    assert_contains(&message, &["`number`: no event was sent with the number 1000"]);
}

#[test]
fn the_error_of_a_python_program_is_reported() {
    let Some(python) = python() else { return };
    let folder = with_log(20);
    let message = failure(
        &stage_of(&folder, &python, "import sys\nraise ValueError('no such robot')\n"),
        &folder,
    );
    assert_contains(&message, &["failed with exit code 1", "ValueError: no such robot"]);
    let program = "import sys, pyarrow as pa\nt = pa.table({'time': [1.5], 'channel': ['A']})\n\
                   with pa.ipc.new_stream(sys.stdout.buffer, t.schema) as out: \
                   out.write_table(t)\n";
    let message = failure(&stage_of(&folder, &python, program), &folder);
    assert_contains(
        &message,
        &[
            "column `timestamp` is missing",
            "column `payload` is missing",
            "it has `time` (Float64)",
        ],
    );
}

#[test]
fn decoded_fields_are_given_as_json() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    let program = r#"
import json, sys, pyarrow as pa
with pa.ipc.open_stream(sys.stdin.buffer) as events:
    for batch in events:
        for fields in batch["fields"].to_pylist():
            print(json.loads(fields)["utime"] if fields else "-")
"#;
    folder.write("sink.py", program);
    let text = format!(
        r#"
[sources.log]
plugin = "demo"
seconds = 1
[stages.pose]
plugin = "filter"
from = "log"
channels = ["POSE"]
[stages.typed]
plugin = "decode"
from = "pose"
types = ["mit-dgc"]
[sinks.prog]
plugin = "exec"
from = "typed"
folder = "${{DIR}}"
command = [{python:?}, "sink.py"]
path = "${{DIR}}/out.txt"
fields = true
"#
    );
    let report = allowed(&text, &folder, 2).unwrap();
    let out = String::from_utf8(folder.read("out.txt")).unwrap();
    assert_eq!(out.lines().count() as u64, report.sinks["prog"].events);
    assert!(
        out.lines().count() > 10 && out.lines().all(|line| line.parse::<i64>().is_ok()),
        "{out}"
    );
}
