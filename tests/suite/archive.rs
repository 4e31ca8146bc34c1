//! Archives end to end, and as read by programs for zstd and Arrow.

use std::fs::File;
use std::process::Command;

use serde_json::Value;
use sluice_model::options::ByteSize;

use crate::kit::{
    BEGIN, Folder, ProgramOutput, decompressed, drive, events, log, python_with, report_skip,
    run_sluice, run_with, sluice,
};

/// A folder with `in.lcm`: 4000 events, a millisecond apart, about 1.5 MB.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 4_000)));
    folder
}

/// Small frames, so that a small log has many.
const SMALL: [&str; 2] = ["--sink-option", "frame=32KiB"];

/// Writes `in.lcm` as an archive, in frames of 32 KiB.
fn write_archive(folder: &Folder, name: &str) {
    run_sluice(folder, &[&["convert", "in.lcm", "--to", name][..], &SMALL].concat()).expect(0);
}

fn report(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("report.json")).unwrap()
}

#[test]
fn a_log_comes_back_from_an_archive_as_it_was() {
    let folder = folder();
    for name in ["drive.lcm.zst", "drive.arrow.zst"] {
        write_archive(&folder, name);
        run_sluice(&folder, &["convert", name, "--to", "back.lcm", "--overwrite"]).expect(0);
        assert!(folder.read("back.lcm") == folder.read("in.lcm"), "{name}");
        run_sluice(&folder, &["info", name]).expect(0);
    }
    assert!(decompressed(&folder.read("drive.lcm.zst")) == folder.read("in.lcm"));
}

#[test]
fn an_archive_whose_name_says_another_format_is_told() {
    let folder = folder();
    let convert = |to: &str| run_sluice(&folder, &["convert", "in.lcm", "--to", to]).expect(0);
    convert("x.json.zst").expect_stderr("`.json` is none that archives hold");
    for to in ["x.zst", "lcmlog-2007-11-03.00.zst", "x.arrow.zst", "x.lcm.zst"] {
        let ran = convert(to);
        assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
    }
}

#[test]
fn threads_and_memory_change_no_byte_of_an_archive() {
    let folder = folder();
    let text = |format: &str| {
        format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"${{DIR}}/in.lcm\"\n\
             [sinks.out]\nplugin = \"archive\"\nfrom = \"log\"\npath = \"${{DIR}}/out.zst\"\n\
             frame = \"32KiB\"\nformat = \"{format}\"\n\
             [stages.some]\nplugin = \"filter\"\nfrom = \"log\"\nchannels = \"B\"\n\
             [sinks.some_out]\nplugin = \"archive\"\nfrom = \"some\"\n\
             path = \"${{DIR}}/some.zst\"\n\
             format = \"{format}\"\nlevel = 19\n"
        )
    };
    for format in ["lcm-log", "arrow"] {
        let written = |(jobs, memory)| {
            let report = run_with(&text(format), folder.path(), jobs, ByteSize(memory)).unwrap();
            assert_eq!(report.exit(), 0);
            [folder.read("out.zst"), folder.read("some.zst")]
        };
        let first = written((1, 512 << 20));
        for limits in [(2, 512 << 20), (8, 512 << 20), (1, 16 << 20), (8, 16 << 20)] {
            assert!(written(limits) == first, "{format}, {limits:?}");
        }
    }
}

#[test]
fn threads_and_memory_do_not_change_what_is_read_from_an_archive() {
    let folder = folder();
    let text = "[sources.log]\nplugin = \"archive\"\npath = \"${DIR}/drive.lcm.zst\"\n\
         [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"${DIR}/out.lcm\"\n";
    write_archive(&folder, "drive.lcm.zst");
    for (jobs, memory) in [(1, 512 << 20), (8, 512 << 20), (2, 16 << 20)] {
        run_with(text, folder.path(), jobs, ByteSize(memory)).unwrap();
        assert!(folder.read("out.lcm") == folder.read("in.lcm"), "{jobs} jobs");
    }
}

#[test]
fn a_time_window_and_a_channel_read_a_part_of_an_archive() {
    let folder = Folder::new();
    let mut all = drive(7, 4_000);
    // A channel that is in a few frames only.
    all[2_000..2_010].iter_mut().for_each(|event| event.channel = b"RARE".to_vec());
    folder.write("in.lcm", log(&all));
    write_archive(&folder, "drive.lcm.zst");
    let whole = folder.read("drive.lcm.zst").len() as u64;
    let start = format!("{}us", BEGIN + 1_000_000);
    let end = format!("{}us", BEGIN + 1_100_000);
    for (chosen, count) in
        [(vec!["--start", &start, "--end", &end], 100), (vec!["--channel", "RARE"], 10)]
    {
        let convert = ["convert", "drive.lcm.zst", "--to", "part.lcm", "--overwrite"];
        let report_to = ["--report", "report.json"];
        run_sluice(&folder, &[&convert[..], &chosen, &report_to].concat()).expect(0);
        let found = events(&folder.read("part.lcm")).len();
        assert!(found.abs_diff(count) <= 1, "{chosen:?}: {found}");
        let read = report(&folder)["bytes_read"].as_u64().unwrap();
        assert!(read > 0 && read < whole / 5, "{chosen:?}: {read} of {whole}");
    }
}

#[test]
fn a_damaged_frame_is_reported_and_costs_only_its_events() {
    let folder = folder();
    write_archive(&folder, "drive.lcm.zst");
    let mut bytes = folder.read("drive.lcm.zst");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    folder.write("drive.lcm.zst", bytes);
    let convert = ["convert", "drive.lcm.zst", "--to", "back.lcm", "--report", "report.json"];
    run_sluice(&folder, &convert).expect(3).expect_stderr("frame ");
    let (all, back) = (events(&folder.read("in.lcm")), events(&folder.read("back.lcm")));
    assert!(back.iter().all(|event| all.contains(event)));
    let lost = all.len() - back.len();
    assert!((1..200).contains(&lost), "{lost}");
    let report = report(&folder);
    let [damage] = &report["damage"].as_array().unwrap()[..] else { panic!("{report}") };
    let reason = damage["reason"].as_str().unwrap();
    assert!(reason.contains(&format!("with {lost} events from 2007-11-03T14:00:0")), "{reason}");
}

#[test]
fn an_archive_of_arrow_in_a_pipe_is_refused_and_others_are_read() {
    let folder = folder();
    run_sluice(&folder, &["convert", "in.lcm", "--to", "in.arrow.zst"]).expect(0);
    run_sluice(&folder, &["convert", "in.lcm", "--to", "in.lcm.zst"]).expect(0);
    let piped = |name: &str, arguments: &[&str]| {
        let input = File::open(folder.at(name)).unwrap();
        ProgramOutput::from_output(sluice(&folder).args(arguments).stdin(input).output().unwrap())
    };
    for arguments in [
        &["info", "-"][..],
        &["convert", "-", "--to", "out.lcm"],
        &["convert", "-", "--from", "archive", "--to", "out.lcm"],
    ] {
        let refused = piped("in.arrow.zst", arguments).expect(1);
        refused
            .expect_stderr("an archive of `arrow` cannot be read from a pipe: save it compressed");
        assert!(!folder.at("out.lcm").exists());
    }
    piped("in.lcm.zst", &["convert", "-", "--from", "archive", "--to", "out.lcm"]).expect(0);
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
}

#[test]
fn a_truncated_archive_gives_its_complete_frames() {
    let folder = folder();
    for name in ["drive.lcm.zst", "drive.arrow.zst"] {
        write_archive(&folder, name);
        let bytes = folder.read(name);
        folder.write("cut.zst", &bytes[..bytes.len() / 2]);
        for from in [&[][..], &["--from", "archive"]] {
            let convert = ["convert", "cut.zst", "--to", "back.lcm", "--overwrite"];
            run_sluice(&folder, &[&convert[..], from].concat()).expect(3);
            let (all, back) = (events(&folder.read("in.lcm")), events(&folder.read("back.lcm")));
            assert!(all.starts_with(&back) && back.len() > all.len() / 3, "{name}: {}", back.len());
        }
    }
}

/// The lines that `cat` prints of a log, which have all that an event has.
fn lines(folder: &Folder, name: &str, status: i32) -> Vec<u8> {
    run_sluice(folder, &["cat", name, "--json", "--payload"]).expect(status).stdout
}

#[test]
fn a_wrong_byte_in_a_seek_table_is_damage_and_costs_no_event() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 40)));
    for name in ["drive.lcm.zst", "drive.vel.zst", "drive.arrow.zst"] {
        let convert = ["convert", "in.lcm", "--to", name, "--sink-option", "frame=1KiB"];
        run_sluice(&folder, &convert).expect(0);
        run_sluice(&folder, &["verify", name]).expect(0);
        let (good, whole) = (folder.read(name), lines(&folder, name, 0));
        let count = u32::from_le_bytes(*good[good.len() - 9..].first_chunk().unwrap()) as usize;
        let (end, table) = (good.len(), good.len() - 17 - count * 8);
        // The header, lengths of the first and the last frame, the count, the flags, the magic.
        for at in [table, table + 4, table + 8, table + 13, end - 13, end - 9, end - 5, end - 1] {
            let mut bad = good.clone();
            bad[at] ^= 16;
            folder.write(name, bad);
            let what = format!("byte {at} of {name}");
            let verified = run_sluice(&folder, &["verify", name]).expect(3).text();
            let is_told = ["seek table", "expected a frame"].iter().any(|w| verified.contains(w));
            assert!(is_told, "{what}: {verified}");
            assert!(lines(&folder, name, 3) == whole, "{what}");
        }
        folder.write(name, &good[..table]);
        let verified = run_sluice(&folder, &["verify", name]).expect(3).text();
        assert!(verified.contains("seek table is missing"), "{name}: {verified}");
    }
    // Another program makes none.
    folder.write("other.lcm.zst", zstd::bulk::compress(&folder.read("in.lcm"), 3).unwrap());
    run_sluice(&folder, &["verify", "other.lcm.zst"]).expect(0);
}

#[test]
fn a_wrong_byte_in_the_seek_table_of_compressed_text_is_damage_and_costs_no_event() {
    let folder = folder();
    for (name, payload) in [("out.jsonl.zst", "payload=true"), ("out.csv.zst", "payload=hex")] {
        let convert = ["convert", "in.lcm", "--to", name, "--sink-option", payload];
        run_sluice(&folder, &convert).expect(0);
        run_sluice(&folder, &["verify", name]).expect(0);
        let (good, whole) = (folder.read(name), lines(&folder, name, 0));
        let count = u32::from_le_bytes(*good[good.len() - 9..].first_chunk().unwrap()) as usize;
        let table = good.len() - 17 - count * 8;
        // The lengths of the first frame, and the count.
        for at in [table + 8, table + 13, good.len() - 9] {
            let mut bad = good.clone();
            bad[at] ^= 16;
            folder.write(name, bad);
            let verified = run_sluice(&folder, &["verify", name]).expect(3).text();
            assert!(verified.contains("the seek table"), "byte {at} of {name}: {verified}");
        }
        assert!(lines(&folder, name, 3) == whole, "{name}");
        // Other programs make none.
        folder.write(name, &good[..table]);
        run_sluice(&folder, &["verify", name]).expect(0);
        // As of `cat`, behind a file with a table or without one. A CSV has a header.
        for front in [&good[..], &good[..table]].into_iter().filter(|_| name == "out.jsonl.zst") {
            folder.write(name, [front, &good].concat());
            run_sluice(&folder, &["verify", name]).expect(0);
        }
    }
}

#[test]
fn a_compressed_log_of_which_nothing_is_left_is_cut_off() {
    let folder = Folder::new();
    for name in ["log.lcm.zst", "log.vel.zst", "log.mcap.zst"] {
        for len in 0..4 {
            folder.write(name, &[0x28, 0xb5, 0x2f][..len]);
            for arguments in [
                &["verify", name][..],
                &["info", name],
                &["convert", name, "--to", "out.jsonl", "--overwrite"],
            ] {
                let ran = run_sluice(&folder, arguments);
                let said = format!("{}{}", ran.text(), ran.stderr);
                assert_eq!(ran.code, Some(3), "{arguments:?}, {len} bytes: {said}");
                assert!(said.contains("cut off"), "{arguments:?}, {len} bytes: {said}");
            }
        }
    }
    folder.write("none.lcm", b"");
    run_sluice(&folder, &["verify", "none.lcm"]).expect(0);
    run_sluice(&folder, &["convert", "none.lcm", "--to", "none.lcm.zst"]).expect(0);
    run_sluice(&folder, &["verify", "none.lcm.zst"]).expect(0);
}

#[test]
fn archives_and_plain_logs_are_read_together() {
    let folder = folder();
    write_archive(&folder, "drive.lcm.zst");
    run_sluice(&folder, &["convert", "in.lcm", "drive.lcm.zst", "--to", "twice.lcm"]).expect(0);
    let once = folder.read("in.lcm");
    assert!(folder.read("twice.lcm") == [once.clone(), once].concat());
}

#[test]
fn options_of_the_plain_log_compress_it_as_before() {
    let folder = folder();
    let split = ["--sink-option", "split_mb=1"];
    run_sluice(&folder, &[&["convert", "in.lcm", "--to", "out.lcm.zst"][..], &split].concat())
        .expect(0);
    assert!(folder.names().contains(&"out-00001.lcm.zst".into()), "{:?}", folder.names());
}

#[test]
fn the_zstd_program_tests_and_unpacks_archives() {
    if Command::new("zstd").arg("--version").output().is_err() {
        return report_skip("the program `zstd` is not there");
    }
    let folder = folder();
    folder.write("none.lcm", b"");
    write_archive(&folder, "drive.lcm.zst");
    write_archive(&folder, "drive.arrow.zst");
    run_sluice(&folder, &["convert", "none.lcm", "--to", "none.lcm.zst"]).expect(0);
    let zstd = |arguments: &[&str]| {
        let output = Command::new("zstd").args(arguments).current_dir(folder.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    for (name, plain) in [("drive", Some("in.lcm")), ("none", Some("none.lcm"))] {
        let name = format!("{name}.lcm.zst");
        zstd(&["-q", "-t", &name]);
        assert!(plain.is_some_and(|plain| zstd(&["-q", "-d", "-c", &name]) == folder.read(plain)));
    }
    zstd(&["-q", "-t", "drive.arrow.zst"]);
}

/// What pyarrow finds: one line per event.
const READ: &str = r#"
import json, pyarrow, sys
stream = pyarrow.ipc.open_stream(pyarrow.input_stream(sys.argv[1], compression="zstd"))
batches = 0
for batch in stream:
    batches += 1
    rows = batch.to_pydict()
    for at in range(batch.num_rows):
        time = batch["timestamp"][at].value
        names = ("source", "channel", "sequence", "encoding", "attributes")
        row = [rows[name][at] for name in names]
        print(json.dumps([time] + row + [rows["payload"][at].hex()]))
assert batches > 10, batches
"#;

#[test]
fn pyarrow_reads_an_archive_of_arrow() {
    let Some(python) = python_with("pyarrow") else { return };
    let folder = folder();
    write_archive(&folder, "drive.arrow.zst");
    let mut read = Command::new(python);
    let read = read.args(["-c", READ, "drive.arrow.zst"]).current_dir(folder.path()).output();
    let read = read.unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let text = String::from_utf8(read.stdout).unwrap();
    let found: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected: Vec<Value> = events(&folder.read("in.lcm"))
        .iter()
        .map(|event| {
            let hex: String = event.payload.iter().map(|byte| format!("{byte:02x}")).collect();
            let channel = str::from_utf8(&event.channel).unwrap();
            serde_json::json!([event.utime * 1_000, "log", channel, event.number, "lcm", null, hex])
        })
        .collect();
    assert!(found == expected, "{} events of {}", found.len(), expected.len());
}
