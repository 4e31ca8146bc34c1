//! Programs in other languages in pipelines, through the whole program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use sluice_model::{Error, ErrorKind, Overwrite};
use sluice_pipeline::Report;
use sluice_pipeline::run::{self, Options, Progress, Snapshot};

use crate::kit::*;

mod life;
mod python;

/// Runs a pipeline that may run programs.
fn allowed(text: &str, folder: &Folder, jobs: usize) -> Result<Report, Error> {
    allowed_with(text, folder, Options { jobs: Some(jobs), ..Options::default() })
}

fn allowed_with(text: &str, folder: &Folder, options: Options) -> Result<Report, Error> {
    let overwrite = Overwrite::Replace;
    let options = Options { allow_exec: true, memory: Some(SMALL_MEMORY), overwrite, ..options };
    run::run(pipeline(text, folder.path()), &options)
}

/// A pipeline that passes a log through this command.
fn stage_pipeline(command: &str) -> String {
    format!(
        r#"
[sources.log]
plugin = "lcm-log"
path = "${{DIR}}/in.lcm"
[stages.prog]
plugin = "exec"
from = "log"
folder = "${{DIR}}"
command = {command}
[sinks.out]
plugin = "lcm-log"
from = "prog"
path = "${{DIR}}/out.lcm"
"#
    )
}

/// A pipeline that writes a log to this command.
fn sink_pipeline(command: &str, more: &str) -> String {
    format!(
        r#"
[sources.log]
plugin = "lcm-log"
path = "${{DIR}}/in.lcm"
[sinks.prog]
plugin = "exec"
from = "log"
folder = "${{DIR}}"
command = {command}
{more}
"#
    )
}

/// A pipeline that reads a log from this command.
fn source_pipeline(command: &str, more: &str) -> String {
    format!(
        r#"
[sources.prog]
plugin = "exec"
folder = "${{DIR}}"
command = {command}
{more}
[sinks.out]
plugin = "lcm-log"
from = "prog"
path = "${{DIR}}/out.lcm"
"#
    )
}

/// A folder with a log of this many events, also as an Arrow stream.
fn with_log(count: i64) -> Folder {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, count)));
    folder
}

/// The folder's log as an Arrow stream, as programs get it.
fn stream(folder: &Folder) {
    allowed(&sink_pipeline(r#"["cat"]"#, r#"path = "${DIR}/in.arrows""#), folder, 2).unwrap();
}

/// The error of a run that must fail.
#[track_caller]
fn failure(text: &str, folder: &Folder) -> String {
    let error = allowed(text, folder, 2).expect_err("it cannot have gone through");
    let left: Vec<String> =
        folder.names().into_iter().filter(|name| name.contains("out")).collect();
    assert!(left.is_empty(), "there are {left:?}");
    error.to_string()
}

#[track_caller]
fn assert_contains(message: &str, what: &[&str]) {
    for what in what {
        assert!(message.contains(what), "no `{what}` in: {message}");
    }
}

fn total(report: &Report, of: impl Fn(&sluice_pipeline::report::ChannelReport) -> u64) -> u64 {
    report.channels.iter().map(of).sum()
}

#[test]
fn cat_is_the_stage_that_changes_nothing_with_any_number_of_threads() {
    let folder = with_log(3000);
    for jobs in [1, 2, 7] {
        let report = allowed(&stage_pipeline(r#"["cat"]"#), &folder, jobs).unwrap();
        assert!(folder.read("out.lcm") == folder.read("in.lcm"), "with {jobs} threads");
        let kept = report.channels.iter().all(|row| row.entered == row.out && row.filtered == 0);
        assert!(kept && total(&report, |row| row.out) == 3000);
    }
}

/// A pipeline that passes a CSV with 2000 lines through this command.
fn csv_pipeline(command: &str, folder: &Folder) -> String {
    let rows: String = (0..2000).map(|n| format!("{}.5,{n}\n", 1_700_000_000 + n)).collect();
    folder.write("in.csv", format!("time,a\n{rows}"));
    let text = stage_pipeline(command).replace("lcm-log\"\nfrom", "jsonl\"\nfrom");
    text.replace("lcm-log", "csv").replace("in.lcm", "in.csv").replace("out.lcm", "out.jsonl")
}

#[test]
fn events_that_return_unchanged_keep_their_fields() {
    let folder = Folder::new();
    for command in [r#"["cat"]"#, r#"["sh", "-c", "cat > held && cat held"]"#] {
        for jobs in [1, 3] {
            let report = allowed(&csv_pipeline(command, &folder), &folder, jobs).unwrap();
            let out = String::from_utf8(folder.read("out.jsonl")).unwrap();
            let is_whole = |(n, line): (usize, &str)| {
                let event: serde_json::Value = serde_json::from_str(line).unwrap();
                event["fields"]["a"] == n as f64
            };
            assert!(out.lines().enumerate().all(is_whole), "{out:.1000}");
            assert_eq!(out.lines().count(), 2000);
            assert!(report.notes.is_empty(), "{:?}", report.notes);
        }
    }
}

#[test]
fn a_program_may_read_everything_before_it_writes() {
    let folder = with_log(9000);
    let text = stage_pipeline(r#"["sh", "-c", "cat > held && cat held"]"#);
    allowed(&text, &folder, 2).unwrap();
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
}

#[test]
fn a_program_may_write_much_before_it_reads() {
    let folder = with_log(9000);
    stream(&folder);
    // The stream of a sink has no numbers: all events are new.
    let text = stage_pipeline(
        r#"["sh", "-c", "head -c -8 in.arrows; cat > /dev/null; tail -c 8 in.arrows"]"#,
    );
    let report = allowed(&text, &folder, 2).unwrap();
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
    assert_eq!(total(&report, |row| row.entered), 18_000);
    assert_eq!(total(&report, |row| row.filtered), 9000);
}

#[test]
fn a_program_that_has_had_enough_ends_its_stream() {
    let folder = with_log(9000);
    let few = with_log(50);
    stream(&few);
    fs::copy(few.at("in.arrows"), folder.at("few.arrows")).unwrap();
    let text = stage_pipeline(r#"["cat", "few.arrows"]"#);
    let report = allowed(&text, &folder, 2).unwrap();
    assert_eq!(events(&folder.read("out.lcm")).len(), 50);
    assert_eq!(total(&report, |row| row.out), 50);
    assert_eq!(report.exit(), 0);
}

#[test]
fn a_stream_comes_back_as_the_log_it_was() {
    let folder = with_log(2000);
    stream(&folder);
    let text = source_pipeline(r#"["cat", "{input}"]"#, r#"path = "${DIR}/in.arrows""#);
    let report = allowed(&text, &folder, 2).unwrap();
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
    assert_eq!(report.sources["prog"].events, 2000);
}

#[test]
fn a_program_is_run_for_each_input_and_events_come_in_their_order() {
    let folder = with_log(400);
    stream(&folder);
    for name in ["a", "b", "c", "d", "e"] {
        fs::copy(folder.at("in.arrows"), folder.at(&format!("{name}.part"))).unwrap();
    }
    let text =
        source_pipeline(r#"["sh", "-c", "cat $1", "sh", "{input}"]"#, r#"path = "${DIR}/*.part""#);
    let mut before: Option<Vec<u8>> = None;
    for jobs in [1, 4] {
        allowed(&text, &folder, jobs).unwrap();
        let after = folder.read("out.lcm");
        assert_eq!(events(&after).len(), 2000);
        assert!(before.is_none_or(|before| before == after));
        before = Some(after);
    }
}

#[test]
fn a_source_without_inputs_is_run_once() {
    let folder = with_log(300);
    stream(&folder);
    allowed(&source_pipeline(r#"["cat", "in.arrows"]"#, ""), &folder, 2).unwrap();
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
}

#[test]
fn the_output_of_a_sink_program_becomes_a_file_if_it_succeeds() {
    let folder = with_log(500);
    let text = sink_pipeline(r#"["sh", "-c", "wc -c | tr -d ' '"]"#, r#"path = "${DIR}/out.txt""#);
    let report = allowed(&text, &folder, 2).unwrap();
    let size = String::from_utf8(folder.read("out.txt")).unwrap().trim().parse::<u64>().unwrap();
    stream(&folder);
    assert_eq!(size, folder.read("in.arrows").len() as u64);
    assert_eq!((report.sinks["prog"].events, report.files[0].rows), (500, 500));
}

#[test]
fn a_failed_sink_program_leaves_nothing() {
    let folder = with_log(500);
    let path = r#"path = "${DIR}/out.txt""#;
    let message =
        failure(&sink_pipeline(r#"["sh", "-c", "cat; echo no room >&2; exit 3"]"#, path), &folder);
    assert_contains(
        &message,
        &["`prog`: the program `sh -c", "failed with exit code 3", "its last messages:\n  no room"],
    );
}

#[test]
fn a_sink_program_that_does_not_read_everything_has_failed() {
    let path = r#"path = "${DIR}/out.txt""#;
    // A little fits into the pipe, a lot does not.
    for (count, command) in
        [(3, r#"["true"]"#), (9000, r#"["true"]"#), (9000, r#"["head", "-c", "100000"]"#)]
    {
        let message = failure(&sink_pipeline(command, path), &with_log(count));
        let early = message.contains("before it had read all events");
        assert!(early || message.contains("stopped reading"), "{message}");
    }
}

#[test]
fn a_failed_program_is_reported_with_its_last_output() {
    let folder = with_log(2000);
    for text in [
        stage_pipeline(r#"["sh", "-c", "head -c 30000; echo it broke >&2; exit 7"]"#),
        stage_pipeline(r#"["sh", "-c", "cat > /dev/null; echo it broke >&2; exit 7"]"#),
        stage_pipeline(r#"["sh", "-c", "cat; echo it broke >&2; exit 7"]"#),
        source_pipeline(r#"["sh", "-c", "echo it broke >&2; exit 7"]"#, ""),
    ] {
        assert_contains(
            &failure(&text, &folder),
            &["`prog`: ", "failed with exit code 7", "it broke"],
        );
    }
}

#[test]
fn a_killed_program_is_reported_with_its_signal() {
    let folder = with_log(100);
    let message = failure(&stage_pipeline(r#"["sh", "-c", "kill -9 $$$$"]"#), &folder);
    assert_contains(&message, &["was killed by signal 9 (SIGKILL"]);
}

#[test]
fn text_from_a_program_is_quoted_in_the_error() {
    let folder = with_log(100);
    let message = failure(&stage_pipeline(r#"["sh", "-c", "echo starting; cat"]"#), &folder);
    assert_contains(&message, &["it printed the text \"starting\\n", "to standard error"]);
    let message = failure(&stage_pipeline(r#"["sh", "-c", "cat; echo finished"]"#), &folder);
    assert_contains(
        &message,
        &["it printed the text \"finished\\n\" after the end of its Arrow stream"],
    );
    let message = failure(&stage_pipeline(r#"["sh", "-c", "cat > /dev/null"]"#), &folder);
    assert_contains(&message, &["nothing was written to standard output"]);
}

#[test]
fn a_truncated_stream_is_an_error() {
    let folder = with_log(2000);
    stream(&folder);
    let message = failure(&source_pipeline(r#"["head", "-c", "50000", "in.arrows"]"#, ""), &folder);
    assert_contains(&message, &["cut off at byte 50000"]);
    let message = failure(&source_pipeline(r#"["head", "-c", "-8", "in.arrows"]"#, ""), &folder);
    assert_contains(&message, &["has no end mark"]);
}

#[test]
fn a_program_that_cannot_start_is_reported_with_the_reason() {
    let folder = with_log(10);
    let message = failure(&stage_pipeline(r#"["no-such-program-here"]"#), &folder);
    assert_contains(
        &message,
        &["cannot be started", "the program `no-such-program-here` is not on the PATH"],
    );
    assert_contains(&failure(&stage_pipeline(r#"["/usr"]"#), &folder), &["/usr is a folder"]);
    folder.write("plain.sh", "#!/bin/sh\ncat\n");
    let message = failure(&stage_pipeline(r#"["./plain.sh"]"#), &folder);
    assert_contains(&message, &["`chmod +x` makes it so"]);
    fs::set_permissions(folder.at("plain.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    allowed(&stage_pipeline(r#"["./plain.sh"]"#), &folder, 1).unwrap();
    fs::remove_file(folder.at("out.lcm")).unwrap();
    folder.write("plain.sh", "cat\n");
    assert_contains(&failure(&stage_pipeline(r#"["./plain.sh"]"#), &folder), &["`#!/bin/sh`"]);
    let text =
        stage_pipeline(r#"["cat"]"#).replace("folder = \"${DIR}\"", "folder = \"${DIR}/none\"");
    assert_contains(&failure(&text, &folder), &["none", "no such file or folder"]);
}

#[derive(Default)]
struct ProgramLines(Mutex<Vec<String>>);

impl Progress for ProgramLines {
    fn update(&self, _: &Snapshot) {}

    fn program_output(&self, node: &str, line: &str) {
        self.0.lock().unwrap().push(format!("{node}: {line}"));
    }
}

#[test]
fn output_of_programs_is_prefixed_with_their_nodes() {
    let folder = with_log(10);
    let lines = Arc::new(ProgramLines::default());
    let text = sink_pipeline(
        r#"["sh", "-c", "echo one >&2; printf 'two\\033[1m\n' >&2; cat > /dev/null"]"#,
        "",
    );
    let options = Options { progress: Some(lines.clone()), ..Options::default() };
    allowed_with(&text, &folder, options).unwrap();
    assert_eq!(*lines.0.lock().unwrap(), ["prog: one", "prog: two\\u{1b}[1m"]);
}

#[test]
fn a_pipeline_that_runs_programs_is_refused_unless_that_is_allowed() {
    let folder = with_log(10);
    let text = stage_pipeline(r#"["sh", "-c", "touch ran; cat"]"#);
    let refused = run::run(pipeline(&text, folder.path()), &Options::default()).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::NotAllowed(_)), "{refused}");
    folder.write("p.toml", &text);
    let dir = format!("DIR={}", folder.path().display());
    for arguments in [
        vec!["run", "p.toml", "--set", &dir],
        vec!["run", "p.toml", "--set", &dir, "--report", "r.json"],
    ] {
        let ran = run_sluice(&folder, &arguments).expect(2);
        ran.expect_stderr("stage `prog` runs sh -c 'touch ran; cat'")
            .expect_stderr("--allow-exec")
            .expect_stderr("nothing was done");
    }
    assert_eq!(folder.names(), ["in.lcm", "p.toml"]);

    let checked = run_sluice(&folder, &["check", "p.toml", "--set", &dir]).expect(0).text();
    assert_contains(
        &checked,
        &["prog: runs a program: sh -c 'touch ran; cat'; `run` needs --allow-exec"],
    );
    let planned = run_sluice(&folder, &["plan", "p.toml", "--set", &dir]).expect(0).text();
    assert_contains(&planned, &["runs   prog: sh -c 'touch ran; cat'; needs --allow-exec"]);
    assert_contains(
        &run_sluice(&folder, &["plugins", "exec"]).expect(0).text(),
        &["needs --allow-exec"],
    );
    assert_eq!(folder.names(), ["in.lcm", "p.toml"]);

    run_sluice(&folder, &["run", "p.toml", "--set", &dir, "--allow-exec"]).expect(0);
    assert_eq!(folder.names(), ["in.lcm", "out.lcm", "p.toml", "ran"]);
}

#[test]
fn convert_and_cat_run_no_program_unasked() {
    let folder = with_log(10);
    let sink = ["convert", "in.lcm", "--to", "x.txt", "--as", "exec", "--sink-option"];
    let command = r#"command=["sh", "-c", "touch ran; cat"]"#;
    run_sluice(&folder, &[&sink[..], &[command]].concat()).expect(2).expect_stderr("--allow-exec");
    let cat =
        ["cat", "in.lcm", "--from", "exec", "--source-option", r#"command=["cat", "{input}"]"#];
    run_sluice(&folder, &cat).expect(2).expect_stderr("--allow-exec");
    assert_eq!(folder.names(), ["in.lcm"]);
    run_sluice(&folder, &[&sink[..], &[command, "--allow-exec"]].concat()).expect(0);
    let cat =
        [&cat[..4], &["--source-option", r#"command=["cat", "x.txt", "{input}"]"#, "--allow-exec"]]
            .concat();
    // After its stream follows the log, which is not a stream.
    run_sluice(&folder, &cat).expect(1).expect_stderr("after the end");
}

#[test]
fn logs_that_a_program_reads_are_summarized_and_verified_if_it_is_allowed() {
    let folder = with_log(10);
    folder.write("p.toml", sink_pipeline(r#"["sh", "-c", "cat > in.arrows"]"#, ""));
    let dir = format!("DIR={}", folder.path().display());
    run_sluice(&folder, &["run", "p.toml", "--set", &dir, "--allow-exec"]).expect(0);
    let command = r#"command=["cat", "{input}"]"#;
    let format = ["in.arrows", "--from", "exec", "--source-option", command];
    for verb in ["info", "verify"] {
        let arguments = [&[verb], &format[..]].concat();
        let refused = run_sluice(&folder, &arguments).expect(2);
        assert_eq!(refused.text(), "");
        refused.expect_stderr("this pipeline runs programs, which needs --allow-exec");
        let allowed = [&arguments[..], &["--allow-exec"]].concat();
        let text = run_sluice(&folder, &allowed).expect(0).text();
        assert!(text.contains("in.arrows") && !text.contains("differs"), "{text}");
    }
}

#[test]
fn a_batch_of_programs_is_refused_before_any_unit() {
    let folder = with_log(10);
    let text = sink_pipeline(r#"["cat"]"#, r#"path = "${DIR}/out/{stem}.arrows""#);
    folder.write("p.toml", &text);
    let dir = format!("DIR={}", folder.path().display());
    run_sluice(&folder, &["run", "p.toml", "--set", &dir]).expect(2).expect_stderr("--allow-exec");
    assert_eq!(folder.names(), ["in.lcm", "p.toml"]);
    run_sluice(&folder, &["run", "p.toml", "--set", &dir, "--allow-exec"]).expect(0);
    assert!(folder.at("out/in.arrows").exists());
}

#[test]
fn commands_and_folders_are_seen_from_the_pipeline_file() {
    let folder = with_log(10);
    fs::create_dir(folder.at("sub")).unwrap();
    fs::rename(folder.at("in.lcm"), folder.at("sub/in.lcm")).unwrap();
    folder.write("sub/keep.sh", "#!/bin/sh\ncat\n");
    fs::set_permissions(folder.at("sub/keep.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    let text = stage_pipeline(r#"["./keep.sh"]"#)
        .replace("${DIR}/", "")
        .replace("folder = \"${DIR}\"\n", "");
    folder.write("sub/p.toml", text);
    run_sluice(&folder, &["run", "sub/p.toml", "--allow-exec"]).expect(0);
    assert!(folder.read("sub/out.lcm") == folder.read("sub/in.lcm"));
}

#[test]
fn resuming_replaces_outputs_of_another_program() {
    let folder = with_log(10);
    folder.write("keep.sh", "cat");
    let text = stage_pipeline(r#"["sh", "keep.sh"]"#)
        .replace("out.lcm", "out/")
        .replace("[sinks.out]\nplugin = \"lcm-log\"", "[sinks.out]\nplugin = \"parquet\"");
    folder.write("p.toml", text);
    let dir = format!("DIR={}", folder.path().display());
    let resume = ["run", "p.toml", "--set", &dir, "--allow-exec", "--resume"];
    run_sluice(&folder, &resume).expect(0);
    run_sluice(&folder, &resume).expect(0).expect_stderr("already done");
    folder.write("keep.sh", "cat # the same, and who is to know");
    let again = run_sluice(&folder, &resume).expect(0);
    assert!(!again.stderr.contains("already done"), "{}", again.stderr);
}
