//! Inputs that are not logs, which get a helpful error, and logs that are hard to recognise, which
//! are read.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use rustix::io::ioctl_fionread;

use crate::kit::{
    BEGIN, Folder, LcmEvent, ProgramOutput, drive, log, report_skip, run_sluice, sluice,
};
use crate::live::{PATIENCE, until};

/// The first bytes of files in these formats, and the advice in the error.
fn foreign() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let padded = |head: &[u8]| [head, &[7; 600]].concat();
    vec![
        ("drive.log.gz", padded(b"\x1f\x8b\x08\0\0\0\0\0\0\x03"), "gzip -dc drive.log.gz | sluice"),
        ("drive.log.bz2", padded(b"BZh91AY&SY"), "bzip2 -dc drive.log.bz2 | sluice"),
        ("drive.log.xz", padded(b"\xfd7zXZ\0\0\x04"), "xz -dc drive.log.xz | sluice"),
        ("drive.tar.gz", padded(b"\x1f\x8b\x08\0\0\0\0\0\0\x03"), "tar -xf drive.tar.gz"),
        ("drive.zip", padded(b"PK\x03\x04"), "unzip -p drive.zip | sluice"),
        (
            "drive.pcap",
            padded(b"\xd4\xc3\xb2\xa1\x02\0\x04\0"),
            "tcpreplay -i INTERFACE drive.pcap",
        ),
        ("drive.pcapng", padded(b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a"), "tcpreplay"),
    ]
}

#[test]
fn a_live_address_is_not_taken_for_a_file() {
    let run = run_sluice(&Folder::new(), &["info", "udpm://239.255.76.67:7667"]).expect(2);
    run.expect_stderr("is live, and not a file: `sluice spy` shows what is sent there");
}

#[test]
fn files_of_other_formats_are_reported_with_advice() {
    let folder = Folder::new();
    for (name, bytes, advice) in foreign() {
        // The same bytes under a name that would select a source.
        for name in [name, "named.log"] {
            folder.write(name, &bytes);
            let advice = advice
                .replace(advice.split(' ').find(|w| w.starts_with("drive.")).unwrap_or(name), name);
            // A gzipped tar archive is only recognised by its name.
            let advice =
                if name == "named.log" && advice.starts_with("tar") { "gzip -dc" } else { &advice };
            run_sluice(&folder, &["info", name]).expect(2).expect_stderr(advice);
            run_sluice(&folder, &["cat", name]).expect(2).expect_stderr(advice);
            run_sluice(&folder, &["convert", name, "--to", "out.lcm"])
                .expect(2)
                .expect_stderr(advice);
            run_sluice(&folder, &["play", name, "--to", "udpm://239.255.76.67:7667"])
                .expect(2)
                .expect_stderr(advice);
            let pipeline = format!(
                "[sources.log]\nplugin = \"lcm-log\"\npath = \"{name}\"\n\
                 [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"out.lcm\"\n"
            );
            folder.write("copy.toml", pipeline);
            run_sluice(&folder, &["run", "copy.toml"]).expect(1).expect_stderr(advice);
            run_sluice(&folder, &["convert", name, "--from", "vel", "--to", "out.lcm"])
                .expect(1)
                .expect_stderr(advice);
            assert!(!folder.at("out.lcm").exists());
        }
    }
}

#[test]
fn a_sqlite_file_that_is_no_bag_is_reported() {
    let folder = Folder::new();
    folder.write("drive.db3", [&b"SQLite format 3\0"[..], &[7; 600]].concat());
    run_sluice(&folder, &["info", "drive.db3"]).expect(2).expect_stderr("--from ros2-db3");
    let args = ["convert", "drive.db3", "--from", "vel", "--to", "out.lcm"];
    run_sluice(&folder, &args).expect(1).expect_stderr("--from ros2-db3");
    let args = ["info", "drive.db3", "--from", "ros2-db3"];
    run_sluice(&folder, &args).expect(1).expect_stderr("drive.db3: at byte 16: ");
}

#[test]
fn standard_input_of_another_format_is_reported() {
    let folder = Folder::new();
    for (name, bytes, _) in foreign() {
        folder.write(name, &bytes);
        let input = fs::File::open(folder.at(name)).unwrap();
        let mut command = sluice(&folder);
        command
            .args(["convert", "-", "--from", "lcm-log", "--to", "out.lcm"])
            .stdin(Stdio::from(input));
        let ran = ProgramOutput::from_output(command.output().unwrap())
            .expect(1)
            .expect_stderr("standard input is ");
        assert!(ran.stderr.contains("which cannot be read directly; "), "{}", ran.stderr);
        assert!(!folder.at("out.lcm").exists());
    }
}

/// Converts these bytes from a named pipe; `None`, with a message, if there are no pipes.
fn through_a_pipe(folder: &Folder, from: &str, bytes: &[u8]) -> Option<ProgramOutput> {
    let pipe = folder.at("pipe");
    if !pipe.exists() {
        let made = Command::new("mkfifo").arg(&pipe).status();
        if !made.is_ok_and(|made| made.success()) {
            report_skip("a named pipe: there is no mkfifo");
            return None;
        }
    }
    let convert = ["convert", "pipe", "--from", from, "--to", "out.lcm", "--overwrite"];
    let running = sluice(folder).args(convert).stderr(Stdio::piped()).spawn().unwrap();
    let mut writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    // A refused input need not be read to its end.
    let written = writer.write_all(bytes);
    drop(writer);
    let ran = ProgramOutput::from_output(running.wait_with_output().unwrap());
    assert!(written.is_ok() || ran.code != Some(0), "{}", ran.stderr);
    Some(ran)
}

#[test]
fn a_stream_that_is_an_input_twice_is_refused() {
    let folder = Folder::new();
    folder.write("in", log(&drive(3, 200)));
    let convert = |inputs: [&str; 2], code: i32, says: &str| {
        let mut command = sluice(&folder);
        let input = fs::File::open(folder.at("in")).unwrap();
        command.arg("convert").args(inputs).args(["--from", "lcm-log", "--to", "out.lcm"]);
        let output = command.stdin(Stdio::from(input)).output().unwrap();
        ProgramOutput::from_output(output).expect(code).expect_stderr(says);
        assert!(!folder.at("out.lcm").exists());
    };
    convert(["-", "-"], 2, "`log` reads standard input twice");
    let unnamed = ["convert", "-", "--from", "lcm-log", "--to", "{stem}.jsonl"];
    run_sluice(&folder, &unnamed).expect(2).expect_stderr("standard input has no `{stem}`");
    let made = Command::new("mkfifo").arg(folder.at("pipe")).status();
    if made.is_ok_and(|made| made.success()) {
        convert(["pipe", "./pipe"], 1, "is an input twice");
    } else {
        report_skip("a named pipe: there is no mkfifo");
    }
    let two = "[sources.a]\nplugin = \"lcm-log\"\npath = \"-\"\n\
        [sources.b]\nplugin = \"lcm-log\"\npath = \"-\"\n\
        [sinks.out]\nplugin = \"lcm-log\"\nfrom = [\"a\", \"b\"]\npath = \"out.lcm\"\n";
    folder.write("two.toml", two);
    run_sluice(&folder, &["run", "two.toml"]).expect(2).expect_stderr("read standard input");
}

#[test]
fn a_plan_tells_that_an_output_is_an_input() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(3, 20)));
    folder.write("other.lcm", "");
    for (output, note) in [
        ("./in.lcm", " in.lcm  is also an input, which a run does not replace\n"),
        ("other.lcm", "other.lcm  exists; --overwrite replaces it\n"),
        ("new.lcm", "new.lcm\n"),
    ] {
        let text = format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
             [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"{output}\"\n"
        );
        folder.write("p.toml", text);
        let plan = run_sluice(&folder, &["plan", "p.toml"]).expect(0).text();
        assert!(plan.ends_with(note), "{plan}");
    }
    folder.write("in.jsonl", "");
    for to in ["other.lcm", "{stem}.jsonl"] {
        let dry = ["convert", "in.lcm", "--to", to, "--dry-run", "--overwrite"];
        let plan = run_sluice(&folder, &dry).expect(0).text();
        assert!(plan.contains("  exists, and is replaced\n"), "{plan}");
    }
}

#[test]
fn named_pipes_of_another_format_are_reported() {
    let folder = Folder::new();
    for source in ["lcm-log", "vel", "jsonl", "csv", "camlog"] {
        for (name, bytes, _) in foreign() {
            let Some(ran) = through_a_pipe(&folder, source, &bytes) else { return };
            let ran = ran
                .expect(1)
                .expect_stderr("pipe is ")
                .expect_stderr("which cannot be read directly; ");
            assert!(!folder.at("out.lcm").exists(), "{source}, {name}: {}", ran.stderr);
        }
    }
}

#[test]
fn nothing_of_a_named_pipe_is_lost_by_looking_at_its_first_bytes() {
    let folder = Folder::new();
    let whole = log(&drive(3, 200));
    for len in [0, 1, 40, 511, 512, 513, whole.len()] {
        let bytes = &whole[..len];
        let Some(ran) = through_a_pipe(&folder, "lcm-log", bytes) else { return };
        let of_file = {
            folder.write("file.lcm", bytes);
            let convert = ["convert", "file.lcm", "--from", "lcm-log", "--to", "of-file.lcm"];
            crate::kit::run_sluice(&folder, &[&convert[..], &["--overwrite"]].concat())
        };
        assert_eq!(ran.code, of_file.code, "{len} bytes: {}", ran.stderr);
        assert!(folder.read("out.lcm") == folder.read("of-file.lcm"), "{len} bytes");
    }
}

#[test]
fn a_stream_that_begins_with_few_bytes_is_detected_all_the_same() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(3, 200)));
    for to in ["log.jsonl", "log.mcap"] {
        let convert = ["convert", "in.lcm", "--to", to, "--sink-option"];
        let option = if to == "log.jsonl" { "payload=true" } else { "level=1" };
        run_sluice(&folder, &[&convert[..], &[option]].concat()).expect(0);
    }
    for name in ["in.lcm", "log.jsonl", "log.mcap"] {
        let bytes = folder.read(name);
        let mut command = sluice(&folder);
        command.args(["convert", "-", "--to", "out.lcm", "--overwrite"]).stdin(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        for piece in [&bytes[..2], &bytes[2..7], &bytes[7..]] {
            pipe.write_all(piece).unwrap();
            let is_read = || ioctl_fionread(&pipe).unwrap() == 0;
            assert!(until(PATIENCE, is_read), "{name} is not read");
        }
        drop(pipe);
        ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(0);
        assert!(folder.read("out.lcm") == folder.read("in.lcm"), "{name}");
    }
}

/// Runs this with the bytes on standard input.
fn with_input(folder: &Folder, arguments: &[&str], bytes: &[u8]) -> ProgramOutput {
    folder.write("input", bytes);
    let mut cat = Command::new("cat").arg(folder.at("input")).stdout(Stdio::piped()).spawn();
    let pipe = cat.as_mut().unwrap().stdout.take().unwrap();
    let output = sluice(folder).args(arguments).stdin(Stdio::from(pipe)).output();
    cat.unwrap().wait().unwrap();
    ProgramOutput::from_output(output.unwrap())
}

fn report(folder: &Folder) -> serde_json::Value {
    serde_json::from_slice(&folder.read("report.json")).unwrap()
}

#[test]
fn a_cut_mcap_file_is_read_in_a_pipe_as_it_is_in_a_file() {
    let folder = Folder::new();
    // A chunk far longer than what is read at a time.
    let events: Vec<LcmEvent> =
        (0..3000).map(|n| LcmEvent::new(n, BEGIN + n, "POSE", &[n as u8; 300])).collect();
    folder.write("in.lcm", log(&events));
    for compression in ["none", "zstd"] {
        let option = format!("compression={compression}");
        let whole = ["convert", "in.lcm", "--to", "whole.mcap", "--sink-option", &option];
        run_sluice(&folder, &[&whole[..], &["--overwrite"]].concat()).expect(0);
        let whole = folder.read("whole.mcap");
        for end in [whole.len() / 3, whole.len() / 2, whole.len() * 9 / 10] {
            folder.write("cut.mcap", &whole[..end]);
            let rest = ["--to", "out.lcm", "--overwrite", "--report", "report.json"];
            let convert = |input| [&["convert", input, "--from", "mcap"][..], &rest[..]].concat();
            run_sluice(&folder, &convert("cut.mcap")).expect(3);
            let (of_file, found) = (report(&folder), folder.read("out.lcm"));
            with_input(&folder, &convert("-"), &whole[..end]).expect(3);
            let of_pipe = report(&folder);
            assert!(folder.read("out.lcm") == found, "{compression}, {end} bytes");
            for (pipe, file) in std::iter::zip(
                of_pipe["damage"].as_array().unwrap(),
                of_file["damage"].as_array().unwrap(),
            ) {
                let range = |damage: &serde_json::Value| {
                    [damage["offset"].clone(), damage["length"].clone()]
                };
                assert_eq!(range(pipe), range(file), "{compression}, {end} bytes");
            }
        }
    }
}

#[test]
fn a_compressed_table_that_is_cut_in_its_first_bytes_is_damaged() {
    let folder = Folder::new();
    let rows: String = (0..9000).map(|n| format!("{n},{}\n", n * 7919 % 1000)).collect();
    let packed = zstd::encode_all(format!("t,x\n{rows}").as_bytes(), 3).unwrap();
    folder.write("cut.csv.zst", &packed[..packed.len() / 2]);
    let convert = ["convert", "cut.csv.zst", "--to", "out.jsonl"];
    run_sluice(&folder, &convert).expect(3).expect_stderr("damaged or cut off");
}

#[test]
fn the_quarantine_of_a_pipe_is_that_of_its_file() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(3, 300)));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "log.mcap"]).expect(0);
    let mut broken = folder.read("log.mcap");
    let middle = broken.len() / 2;
    broken[middle..middle + 9].fill(0xee);
    folder.write("log.mcap", &broken);
    for (name, plugin) in [("log.mcap", "mcap"), ("log.bag", "ros1-bag")] {
        if plugin == "ros1-bag" {
            let bag = "../plugins/ros/testdata/bag-wrong-byte-in-a-compressed-chunk/log.bag";
            fs::copy(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(bag), folder.at(name))
                .unwrap();
        }
        let text = |path: &str| {
            format!(
                "[sources.log]\nplugin = \"{plugin}\"\npath = \"{path}\"\n\
                 on_damage = \"quarantine\"\nquarantine = \"bad.bin\"\n\
                 [sinks.none]\nplugin = \"null\"\nfrom = \"log\"\n"
            )
        };
        folder.write("keep.toml", text(name));
        run_sluice(&folder, &["run", "keep.toml", "--overwrite"]).expect(3);
        let kept = folder.read("bad.bin");
        folder.write("keep.toml", text("-"));
        let run = ["run", "keep.toml", "--overwrite"];
        with_input(&folder, &run, &folder.read(name)).expect(3);
        assert!(!kept.is_empty() && folder.read("bad.bin") == kept, "{plugin}");
    }
}

#[test]
fn other_formats_inside_compressed_files_are_reported() {
    let folder = Folder::new();
    for (_, bytes, _) in foreign() {
        folder.write("in.zst", zstd::encode_all(&bytes[..], 1).unwrap());
        let convert = ["convert", "in.zst", "--from", "lcm-log", "--to", "out.lcm"];
        run_sluice(&folder, &convert).expect(1).expect_stderr("which cannot be read directly; ");
    }
}

#[test]
fn a_damaged_start_that_hides_the_format_is_told() {
    let folder = Folder::new();
    let whole = log(&drive(3, 2_000));
    let (first, rest) = whole.split_at(whole.len() / 2);
    let mut packed = zstd::encode_all(first, 1).unwrap();
    // The header of the first block.
    packed[8] ^= 0x80;
    packed.extend(zstd::encode_all(rest, 1).unwrap());
    folder.write("odd.zst", &packed);
    let told = "its zstd data is damaged near the start; name the format with --from";
    let convert = |input| ["convert", input, "--to", "out.lcm", "--overwrite"];
    run_sluice(&folder, &convert("odd.zst")).expect(2).expect_stderr(told);
    with_input(&folder, &convert("-"), &packed).expect(2).expect_stderr(told);
    let named = [&convert("-")[..], &["--from", "lcm-log"]].concat();
    with_input(&folder, &named, &packed).expect(3);
    assert!(!folder.read("out.lcm").is_empty());
}

#[test]
fn standard_input_is_known_by_its_first_bytes() {
    let folder = Folder::new();
    let whole = log(&drive(3, 200));
    folder.write("in", &whole);
    let convert = |to: &str| {
        let mut command = sluice(&folder);
        let input = fs::File::open(folder.at("in")).unwrap();
        command.args(["convert", "-", "--to", to, "--overwrite"]).stdin(Stdio::from(input));
        ProgramOutput::from_output(command.output().unwrap())
    };
    convert("out.lcm").expect(0);
    assert!(folder.read("out.lcm") == whole);
    for (_, bytes, _) in foreign() {
        folder.write("in", bytes);
        convert("other.lcm")
            .expect(2)
            .expect_stderr("standard input is ")
            .expect_stderr("which cannot be read directly");
    }
    // Unknown formats still need --from.
    folder.write("in", [3; 2000]);
    convert("other.lcm")
        .expect(2)
        .expect_stderr("cannot detect the format of standard input; name it with --from");
    folder.write("in", "");
    convert("other.lcm")
        .expect(2)
        .expect_stderr("cannot detect the format of standard input: it is empty (0 bytes)");
}

#[test]
fn logs_that_only_hold_bytes_of_other_formats_are_read() {
    let folder = Folder::new();
    let payloads = foreign().into_iter().map(|(_, bytes, _)| bytes);
    let events: Vec<LcmEvent> =
        (0..).zip(payloads).map(|(n, bytes)| LcmEvent::new(n, BEGIN + n, "FILE", &bytes)).collect();
    folder.write("in.lcm", log(&events));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "out.lcm"]).expect(0);
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
    // Garbage before events is damage, whatever the extension.
    folder.write("front.bin", [&[0xff, 0, 3, 9][..], &log(&events)].concat());
    run_sluice(&folder, &["convert", "front.bin", "--to", "back.lcm"]).expect(3);
    assert!(folder.read("back.lcm") == folder.read("in.lcm"));
}

#[test]
fn files_that_declare_types_are_no_logs() {
    let folder = Folder::new();
    folder.write("in.log", log(&drive(1, 20)));
    fs::create_dir(folder.at("types")).unwrap();
    folder.write("types/a.lcm", "package p; struct a_t { int32_t x; }");
    folder.write("types/b.lcm", "package p; struct b_t { absent.thing_t x; }");
    folder.write("types/c.ice", "module m { struct CData { int i; }; };");
    folder.write("types/d.veltypes", "[[messages]]\nname = \"AM\"\nversion = 1\nfields = []\n");
    // `--types types/*` as expanded by a shell.
    let unquoted = ["types/a.lcm", "types/b.lcm", "types/c.ice", "types/d.veltypes"];
    let arguments = [&["convert", "in.log", "--types"][..], &unquoted, &["--to", "out/"]].concat();
    run_sluice(&folder, &arguments)
        .expect(2)
        .expect_stderr("types/b.lcm declares types")
        .expect_stderr("--types types");
    for file in unquoted {
        for arguments in [&["cat", file][..], &["info", file], &["convert", file, "--to", "out/"]] {
            run_sluice(&folder, arguments)
                .expect(2)
                .expect_stderr(&format!("{file} declares types"));
        }
    }
    let pipeline = "[sources.log]\nplugin = \"lcm-log\"\npath = \"types/a.lcm\"\n\
                    [sinks.out]\nplugin = \"null\"\nfrom = \"log\"\n";
    folder.write("types.toml", pipeline);
    run_sluice(&folder, &["run", "types.toml"])
        .expect(1)
        .expect_stderr("types/a.lcm is text")
        .expect_stderr("`types`");
    assert!(!folder.at("out").exists());
}

#[test]
fn a_text_is_no_log_without_events() {
    let folder = Folder::new();
    let text = "12:00:01 started\n12:00:02 \u{fc}ber\n".repeat(40_000);
    folder.write("program.log", &text);
    folder.write("short.log", "a\n");
    for name in ["program.log", "short.log"] {
        for arguments in [
            &["info", name][..],
            &["cat", name],
            &["convert", name, "--to", "out.lcm"],
            &["convert", name, "--from", "lcm-log", "--to", "out.lcm"],
        ] {
            run_sluice(&folder, arguments).expect(1).expect_stderr(&format!("{name} is text"));
        }
    }
    assert!(!folder.at("out.lcm").exists());
    // A file with binary bytes may be a damaged log: its damage is reported.
    folder.write("garbage.log", [text.as_bytes(), &[0, 1, 2]].concat());
    run_sluice(&folder, &["info", "garbage.log"]).expect(3);
    // An event after a long text is found.
    let late = log(&drive(2, 3));
    folder.write("late.log", [text.as_bytes(), &late].concat());
    run_sluice(&folder, &["convert", "late.log", "--to", "late.lcm"]).expect(3);
    assert!(folder.read("late.lcm") == late);
    folder.write("empty.log", "");
    run_sluice(&folder, &["info", "empty.log"]).expect(0);
}

#[test]
fn json_lines_are_detected_however_long_the_first_line_is() {
    let folder = Folder::new();
    let long: Vec<u8> = (0..400_000u32).map(|n| n as u8).collect();
    let events =
        [LcmEvent::new(0, BEGIN, "BIG", &long), LcmEvent::new(1, BEGIN + 1_000, "SMALL", b"x")];
    folder.write("in.lcm", log(&events));
    // Fields precede the payload: here they exceed the bytes that are sniffed.
    let line = run_sluice(&folder, &["cat", "in.lcm", "--json", "--payload"]).expect(0).text();
    let fields = format!("\"fields\":{{\"x\":[{}]}},\"payload\":", "1,".repeat(400_000) + "1");
    folder.write("typed.jsonl", line.replacen("\"payload\":", &fields, 1));
    folder.write("plain.jsonl", line);
    for name in ["plain.jsonl", "typed.jsonl"] {
        run_sluice(&folder, &["convert", name, "--to", "back.lcm", "--overwrite"]).expect(0);
        assert!(folder.read("back.lcm") == folder.read("in.lcm"), "{name}");
    }
}

#[test]
fn tables_of_an_empty_log_are_an_empty_log() {
    let folder = Folder::new();
    folder.write("in.lcm", "");
    run_sluice(&folder, &["convert", "in.lcm", "--to", "tables/"]).expect(0);
    run_sluice(&folder, &["convert", "tables", "--to", "out.lcm"]).expect(0);
    assert!(folder.read("out.lcm").is_empty());
    run_sluice(&folder, &["info", "tables"]).expect(0);
    // A folder without tables is not a dataset.
    folder.write("in.lcm", log(&drive(1, 10)));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "tables/", "--overwrite"]).expect(0);
    for name in fs::read_dir(folder.at("tables")).unwrap() {
        let path = name.unwrap().path();
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        }
    }
    assert!(run_sluice(&folder, &["convert", "tables", "--to", "none.lcm"]).code != Some(0));
    assert!(!folder.at("none.lcm").exists());
}

#[test]
fn logs_that_zstd_made_with_a_dictionary_or_a_large_window_are_not_called_damaged() {
    if Command::new("zstd").arg("--version").output().is_err() {
        return report_skip("the program `zstd` is not there");
    }
    let folder = Folder::new();
    let plain = log(&drive(1, 300));
    folder.write("in.lcm", &plain);
    let script = "for n in $(seq 300); do head -c $((n * 40)) in.lcm | tail -c 200 > s$n; done
        zstd -q --train s* -o dict --maxdict=4096 && rm s*
        zstd -q -D dict in.lcm -o dictionary.lcm.zst
        zstd -q --long=29 -c < in.lcm > read.lcm.zst
        zstd -q --long=31 -c < in.lcm > refused.lcm.zst
        cp refused.lcm.zst refused";
    let made =
        Command::new("sh").args(["-ec", script]).current_dir(folder.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for (name, says) in [
        ("dictionary.lcm.zst", "it was compressed with a dictionary (id "),
        ("refused.lcm.zst", "it was compressed with a window of 2048 MiB (zstd --long)"),
        ("refused", "it was compressed with a window of 2048 MiB (zstd --long)"),
    ] {
        for arguments in [
            &["info", name][..],
            &["convert", name, "--to", "out.lcm"],
            &["convert", name, "--from", "lcm-log", "--to", "out.lcm"],
        ] {
            let refused = run_sluice(&folder, arguments).expect(1).expect_stderr(says);
            assert!(!refused.stderr.contains("damage"), "{}", refused.stderr);
        }
        let piped = ["convert", "-", "--to", "out.lcm"];
        with_input(&folder, &piped, &folder.read(name)).expect(1).expect_stderr(says);
        assert!(!folder.at("out.lcm").exists());
    }
    run_sluice(&folder, &["convert", "read.lcm.zst", "--to", "out.lcm"]).expect(0);
    assert!(folder.read("out.lcm") == plain);
}
