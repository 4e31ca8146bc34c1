//! Standard input and output as pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::{fs, thread};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::kit::{Folder, ProgramOutput, drive, log, report_skip, run_sluice, sluice};

/// Runs the program with these bytes on standard input.
fn run_with_stdin(folder: &Folder, arguments: &[&str], input: &[u8]) -> ProgramOutput {
    let mut command = sluice(folder);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // The program may stop reading early; only its output matters.
        scope.spawn(move || drop(stdin.write_all(input)));
        ProgramOutput::from_output(child.wait_with_output().unwrap())
    })
}

#[test]
fn a_log_goes_in_by_standard_input_and_out_by_standard_output() {
    let (folder, bytes) = (Folder::new(), log(&drive(1, 1_000)));
    let through = ["convert", "-", "--from", "lcm-log", "--to", "-", "--as", "lcm-log"];
    assert!(run_with_stdin(&folder, &through, &bytes).expect(0).stdout == bytes);
    let packed = zstd::encode_all(&bytes[..], 1).unwrap();
    assert!(run_with_stdin(&folder, &through, &packed).expect(0).stdout == bytes);
    let damaged = [b"stray", &bytes[..]].concat();
    assert!(run_with_stdin(&folder, &through, &damaged).expect(3).stdout == bytes);
    assert!(run_with_stdin(&folder, &through, b"").expect(0).stdout.is_empty());
}

#[test]
fn formats_are_detected_in_any_stream_also_compressed() {
    let folder = Folder::new();
    let bytes = log(&drive(1, 5_000));
    folder.write("log.lcm", &bytes);
    folder.write("table.csv", "time,x\n1.5,2\n2.5,3\n");
    let shown = |name: &str| {
        let shown = run_sluice(&folder, &["cat", name, "--json"]).expect(0);
        shown.stdout
    };
    run_sluice(&folder, &["convert", "log.lcm", "--to", "log.mcap"]).expect(0);
    let names = ["log.lcm", "log.mcap"];
    let fifo = folder.at("pipe");
    let made = Command::new("mkfifo").arg(&fifo).status().is_ok_and(|made| made.success());
    if !made {
        report_skip("a named pipe: there is no mkfifo");
    }
    for (name, level) in names.into_iter().flat_map(|name| [(name, None), (name, Some(1))]) {
        let plain = folder.read(name);
        let sent =
            level.map_or(plain.clone(), |level| zstd::encode_all(&plain[..], level).unwrap());
        for input in ["-", "/dev/stdin"] {
            let ran = run_with_stdin(&folder, &["cat", input, "--json"], &sent).expect(0);
            assert!(ran.stdout == shown(name), "{name} {level:?} {input}");
        }
        if !made {
            continue;
        }
        // A pipe is opened once, and what was looked at is read.
        let ran = thread::scope(|scope| {
            scope.spawn(|| fs::write(&fifo, &sent));
            run_sluice(&folder, &["cat", "pipe", "--json"]).expect(0)
        });
        assert!(ran.stdout == shown(name), "{name} {level:?}");
    }
    assert!(shown("table.csv").starts_with(b"{\"timestamp_ns\":1500000000,"));
}

#[test]
fn what_is_written_first_is_enough_to_detect_a_format() {
    let folder = Folder::new();
    let bytes = log(&drive(1, 100));
    let (first, rest) = bytes.split_at(40);
    let mut command = sluice(&folder);
    command.args(["convert", "-", "--to", "out.lcm", "-v"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(first).unwrap();
    // The rest comes only after the program has begun to read the log.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("1 input")));
    stdin.write_all(rest).unwrap();
    drop(stdin);
    assert!(lines.all(|line| line.is_ok()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(folder.read("out.lcm") == bytes);
}

#[test]
fn events_of_standard_input_are_shown() {
    let folder = Folder::new();
    let shown = ["cat", "-", "--from", "lcm-log", "--json", "--limit", "3"];
    let ran = run_with_stdin(&folder, &shown, &log(&drive(1, 2_000))).expect(0);
    assert_eq!(ran.text().lines().count(), 3);
    let output = run_with_stdin(
        &folder,
        &["info", "-", "--from", "lcm-log", "--json"],
        &log(&drive(1, 100)),
    );
    let output: serde_json::Value = serde_json::from_str(&output.expect(0).text()).unwrap();
    assert_eq!(output["events"], 100);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 5_000)));
    for arguments in [
        &["cat", "in.lcm"][..],
        &["cat", "in.lcm", "--json", "--payload"],
        &["convert", "in.lcm", "--to", "-", "--as", "jsonl"],
        &["convert", "in.lcm", "--to", "/dev/stdout", "--as", "jsonl"],
    ] {
        let mut command = sluice(&folder);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        let ended = ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(0);
        assert_eq!(ended.stderr, "");
    }
}

#[test]
fn a_file_is_not_published_if_the_output_beside_it_was_cut_short() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 5_000)));
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
        [sinks.file]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"out.lcm\"\n\
        [sinks.show]\nplugin = \"text\"\nfrom = \"log\"\n";
    folder.write("both.toml", text);
    let mut command = sluice(&folder);
    let run = ["run", "both.toml", "--report", "report.json"];
    command.args(run).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut some = [0; 10];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut some).unwrap();
    drop(stdout);
    ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(1);
    assert_eq!(folder.names(), ["both.toml", "in.lcm", "report.json"]);
    let report: serde_json::Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    assert_eq!(report["exit"], 1);
}

#[test]
fn two_sinks_may_not_mix_on_standard_output_unnoticed() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 5)));
    let sink =
        |name: &str| format!("[sinks.{name}]\nplugin = \"text\"\nfrom = \"log\"\npath = \"-\"\n");
    let source = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n";
    folder.write("two.toml", source.to_owned() + &sink("a") + &sink("b"));
    let tried = run_sluice(&folder, &["run", "two.toml"]);
    // Either it is refused, or every line is complete.
    if tried.code == Some(0) {
        assert_eq!(tried.text().lines().count(), 10);
    }
}

#[test]
fn what_a_stream_has_besides_events_is_told() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 10)));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "plain.mcap"]).expect(0);
    // A record of metadata, behind the header: no fields but an empty name.
    let mut bytes = folder.read("plain.mcap");
    let header_len = u64::from_le_bytes(bytes[9..17].try_into().unwrap()) as usize;
    let metadata = [&[0x0c][..], &8u64.to_le_bytes(), &[0; 8]].concat();
    bytes.splice(17 + header_len..17 + header_len, metadata);
    let convert = ["convert", "-", "--from", "mcap", "--to", "out.mcap", "--overwrite"];
    let ran = run_with_stdin(&folder, &convert, &bytes).expect(0);
    assert!(ran.stderr.contains("metadata and attachments of a stream are not copied"));
    let ran = run_with_stdin(&folder, &convert, &folder.read("plain.mcap")).expect(0);
    assert!(!ran.stderr.contains("metadata"), "{}", ran.stderr);
}

#[test]
fn metadata_that_no_sink_copies_is_told() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 10)));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "in.mcap"]).expect(0);
    let mut bytes = folder.read("in.mcap");
    let header_len = u64::from_le_bytes(bytes[9..17].try_into().unwrap()) as usize;
    let metadata = [&[0x0c][..], &8u64.to_le_bytes(), &[0; 8]].concat();
    bytes.splice(17 + header_len..17 + header_len, metadata);
    folder.write("in.mcap", bytes);
    for (to, is_lost) in [("out.lcm", true), ("out.mcap", false)] {
        let ran = run_sluice(&folder, &["convert", "in.mcap", "--to", to]).expect(0);
        let is_told = ran.stderr.contains("metadata records (1) and attachments (0) of 17 bytes");
        assert_eq!(is_told, is_lost, "{to}: {}", ran.stderr);
    }
}

/// Makes named pipes; returns whether that is possible here.
fn make_pipes(folder: &Folder, names: &[&str]) -> bool {
    let made = names.iter().all(|name| {
        let made = Command::new("mkfifo").arg(folder.at(name)).status();
        made.is_ok_and(|made| made.success())
    });
    if !made {
        report_skip("a named pipe: there is no mkfifo");
    }
    made
}

/// A source that reads a log of the same name.
fn source_of(name: &str) -> String {
    format!("[sources.{name}]\nplugin = \"lcm-log\"\npath = \"{name}\"\n")
}

/// Opens a named pipe, which waits for its reader.
fn open_pipe(folder: &Folder, name: &str) -> fs::File {
    fs::OpenOptions::new().write(true).open(folder.at(name)).unwrap()
}

#[test]
fn a_silent_pipe_does_not_hold_back_other_streams() {
    let folder = Folder::new();
    if !make_pipes(&folder, &["a", "b", "c"]) {
        return;
    }
    // `b` is shown at once, while the merged pipes wait for each other.
    let text = "[sinks.merged]\nplugin = \"lcm-log\"\n\
        from = [\"a\", \"c\"]\npath = \"merged.lcm\"\n\
        [sinks.show]\nplugin = \"jsonl\"\nfrom = \"b\"\npath = \"-\"\n";
    let text = [&source_of("a"), &source_of("b"), &source_of("c"), text].concat();
    folder.write("two.toml", text);
    let events = drive(1, 30);
    let mut command = sluice(&folder);
    command.args(["run", "two.toml"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut b = open_pipe(&folder, "b");
    let mut c = open_pipe(&folder, "c");
    c.write_all(&log(&events[10..20])).unwrap();
    for piece in events.chunks(10) {
        b.write_all(&log(piece)).unwrap();
        // The last event may be a damaged one, until it is followed by another.
        assert_eq!(shown.by_ref().take(9).map(Result::unwrap).count(), 9);
    }
    drop((b, c));
    open_pipe(&folder, "a").write_all(&log(&events[..10])).unwrap();
    assert_eq!(shown.count(), 3);
    ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(0);
    assert!(folder.read("merged.lcm") == log(&events[..20]));
}

#[test]
fn streams_that_are_merged_may_be_written_in_any_order() {
    let folder = Folder::new();
    if !make_pipes(&folder, &["a", "b"]) {
        return;
    }
    let sink =
        "[sinks.merged]\nplugin = \"lcm-log\"\nfrom = [\"a\", \"b\"]\npath = \"merged.lcm\"\n";
    folder.write("merge.toml", [&source_of("a"), &source_of("b"), sink].concat());
    let events = drive(1, 40);
    for names in [["a", "b"], ["b", "a"]] {
        let mut command = sluice(&folder);
        command.args(["run", "merge.toml", "--overwrite"]).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        for (name, half) in names.into_iter().zip(events.chunks(20)) {
            open_pipe(&folder, name).write_all(&log(half)).unwrap();
        }
        ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(0);
        assert!(folder.read("merged.lcm") == log(&events));
    }
}

#[test]
fn small_files_are_read_from_a_pipe_once_or_not_at_all() {
    let folder = Folder::new();
    folder.write("log.lcm", log(&drive(1, 100)));
    let expect = b"[channels.MISSING]\n";
    let gate = "[sources.log]\nplugin = \"lcm-log\"\npath = \"log.lcm\"\n\
                [stages.gate]\nplugin = \"expect\"\nfrom = \"log\"\nfile = \"/dev/stdin\"\n\
                [sinks.out]\nplugin = \"null\"\nfrom = \"gate\"\n";
    folder.write("run.toml", gate);
    run_with_stdin(&folder, &["run", "run.toml"], expect).expect(4);
    let report = ["report", "log.lcm", "--expect", "/dev/stdin", "--to", "log.html"];
    run_with_stdin(&folder, &report, expect).expect(4);
    // Each log is compared with what it says anew.
    let check = ["check-log", "log.lcm", "--expect", "/dev/stdin"];
    run_with_stdin(&folder, &check, expect).expect(2).expect_stderr("save it to a file");
    let lines = "plugin = \"jsonl\"\npath = \"out/{stem}.jsonl\"\n";
    folder.write("batch.toml", gate.replace("plugin = \"null\"\n", lines));
    run_with_stdin(&folder, &["run", "batch.toml"], expect)
        .expect(1)
        .expect_stderr("this pipe is empty, or was read before");
    assert!(!folder.at("out").exists());
    let table = "table=/dev/stdin";
    let cut = ["convert", "log.lcm", "--align", "9Hz", "--field", "A.x", "--episodes", table];
    run_with_stdin(&folder, &[&cut[..], &["--to", "rows.csv"]].concat(), b"start,end\n0s,1s\n")
        .expect(2)
        .expect_stderr("--episodes table: CSV deserialize error: record 1 (line: 2, byte: 10)");
    let described = ["info", "log.lcm", "--describe", "/dev/stdin"];
    run_with_stdin(&folder, &described, b"plugin = \"lcm-log\"\n").expect(0);
}

#[test]
fn text_and_tables_are_not_opened_a_second_time_to_see_what_they_are() {
    let folder = Folder::new();
    if !make_pipes(&folder, &["pipe.csv", "pipe.parquet"]) {
        return;
    }
    let table = "time,x\n1.5,2\n2.5,3\n";
    folder.write("table.csv", table);
    let whole = run_sluice(&folder, &["cat", "table.csv", "--json"]).expect(0).stdout;
    let ran = thread::scope(|scope| {
        scope.spawn(|| fs::write(folder.at("pipe.csv"), table));
        run_sluice(&folder, &["cat", "pipe.csv", "--json"]).expect(0)
    });
    assert!(ran.stdout == whole);
    // Nobody writes to it.
    run_sluice(&folder, &["cat", "pipe.parquet", "--from", "parquet"])
        .expect(1)
        .expect_stderr("has to be a regular file")
        .expect_stderr("copy it to a file first: pipe.parquet");
}

#[test]
fn a_batch_that_names_a_pipe_twice_is_refused_without_waiting_for_a_writer() {
    let folder = Folder::new();
    if !make_pipes(&folder, &["pipe.lcm"]) {
        return;
    }
    folder.write("log.lcm", log(&drive(1, 30)));
    for failing in [&[][..], &["--keep-going"]] {
        let inputs = ["convert", "pipe.lcm", "log.lcm", "./pipe.lcm", "--from", "lcm-log"];
        let inputs = [&inputs[..], &["--to", "out/{index}.jsonl"]].concat();
        run_sluice(&folder, &[&inputs[..], failing].concat())
            .expect(1)
            .expect_stderr("pipe.lcm is an input twice")
            .expect_stderr("save it to a file first");
        assert!(!folder.at("out").exists());
    }
}

#[test]
fn a_pipe_that_is_named_twice_is_refused_by_every_verb_without_waiting_for_a_writer() {
    let folder = Folder::new();
    if !make_pipes(&folder, &["pipe.lcm"]) {
        return;
    }
    folder.write("expect.toml", "[log]\ndamage = 0\n");
    for arguments in [
        &["info"][..],
        &["info", "--from", "lcm-log"],
        &["verify"],
        &["check-log", "--expect", "expect.toml"],
        &["check-log", "--expect", "expect.toml", "--from", "lcm-log"],
        &["cat"],
        &["convert", "--to", "out.csv"],
    ] {
        run_sluice(&folder, &[arguments, &["pipe.lcm", "./pipe.lcm"]].concat())
            .expect(1)
            .expect_stderr("./pipe.lcm is an input twice");
    }
    assert!(!folder.at("out.csv").exists());
}

#[test]
fn an_empty_input_of_no_known_format_is_called_empty() {
    let folder = Folder::new();
    let says = |input: &str| format!("cannot detect the format of {input}: it is empty (0 bytes)");
    for line in [&["convert", "-", "--to", "x.jsonl"][..], &["info", "-"], &["cat", "-"]] {
        run_with_stdin(&folder, line, b"").expect(2).expect_stderr(&says("standard input"));
    }
    for name in ["e.bin", "e.zst"] {
        folder.write(name, "");
        run_sluice(&folder, &["info", name]).expect(2).expect_stderr(&says(name));
    }
    folder.write("e.lcm", "");
    run_sluice(&folder, &["info", "e.lcm"]).expect(0);
    assert_eq!(folder.names(), ["e.bin", "e.lcm", "e.zst"]);
}

#[test]
fn everything_is_written_to_a_pipe_that_does_not_block() {
    let folder = Folder::new();
    let bytes = log(&drive(1, 3_000));
    folder.write("in.lcm", &bytes);
    for line in [
        &["convert", "in.lcm", "--to", "-", "--as", "lcm-log"][..],
        &["cat", "in.lcm"],
        &["plugins", "--json"],
        &["schema"],
        &["man"],
    ] {
        let whole = run_sluice(&folder, line).expect(0).stdout;
        let (from, to) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        fcntl_setfl(&from, OFlags::empty()).unwrap();
        let mut command = sluice(&folder);
        command.args(line).stdout(to).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        drop(command);
        let (mut got, mut few) = (Vec::new(), [0; 100]);
        let mut from = fs::File::from(from);
        // Slower than the program.
        loop {
            let read = from.read(&mut few).unwrap();
            if read == 0 {
                break;
            }
            got.extend_from_slice(&few[..read]);
        }
        ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(0);
        assert!(got == whole, "{line:?}: {} of {} bytes", got.len(), whole.len());
    }
}

#[test]
fn a_report_of_what_a_reader_cut_short_is_that_of_a_failure() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 5_000)));
    let mut command = sluice(&folder);
    let convert = ["convert", "in.lcm", "--to", "-", "--as", "jsonl", "--report", "report.json"];
    command.args(convert).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    ProgramOutput::from_output(child.wait_with_output().unwrap())
        .expect(1)
        .expect_stderr("error: standard output was closed");
    let report: serde_json::Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    assert_eq!(report["exit"], 1);
    assert!(report["error"].as_str().unwrap().starts_with("standard output was closed"));
}

#[test]
fn a_named_pipe_that_its_reader_closes_is_named_with_the_reason() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 5_000)));
    let fifo = folder.at("pipe");
    if !Command::new("mkfifo").arg(&fifo).status().is_ok_and(|made| made.success()) {
        return report_skip("a named pipe: there is no mkfifo");
    }
    thread::scope(|scope| {
        scope.spawn(|| fs::File::open(&fifo).unwrap().read_exact(&mut [0]).unwrap());
        run_sluice(&folder, &["convert", "in.lcm", "--to", "pipe", "--as", "jsonl"])
            .expect(1)
            .expect_stderr("pipe: whoever reads it has closed it before the end");
    });
}
