//! Our MCAP files read by the Python package `mcap`, and its files by us.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::kit::{Folder, ProgramOutput, drive, log, python_with, root, run, run_sluice, sluice};

/// Runs the peer; `None`, with a message, if it is not there.
fn peer(arguments: &[&str]) -> Option<Vec<Value>> {
    let python = python_with("mcap")?;
    let script = root().join("tests/suite/peers_py/mcap_files.py");
    let output = Command::new(python).arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Time, number, channel and payload of each event of a file.
fn events(folder: &Folder, name: &str) -> Vec<Value> {
    let text = format!(
        "[sources.log]\nplugin = \"mcap\"\npath = \"${{DIR}}/{name}\"\n\
         [sinks.out]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"${{DIR}}/{name}.jsonl\"\n\
         payload = true\n"
    );
    run(&text, folder.path(), 2).unwrap();
    let lines = String::from_utf8(folder.read(&format!("{name}.jsonl"))).unwrap();
    let plain = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        json!([event["timestamp_ns"], event["sequence"], event["channel"], event["payload"]])
    };
    lines.lines().map(plain).collect()
}

#[test]
fn every_reader_of_the_peer_finds_our_events() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 300)));
    for (compression, chunk) in
        [("zstd", "1MiB"), ("zstd", "1KiB"), ("lz4", "4KiB"), ("none", "1B")]
    {
        let name = format!("{compression}-{chunk}.mcap");
        let text = format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"${{DIR}}/in.lcm\"\n\
             [sinks.out]\nplugin = \"mcap\"\nfrom = \"log\"\npath = \"${{DIR}}/{name}\"\n\
             compression = \"{compression}\"\nchunk = \"{chunk}\"\n"
        );
        run(&text, folder.path(), 2).unwrap();
        let path = folder.at(&name);
        let Some(found) = peer(&["read", path.to_str().unwrap()]) else { return };
        assert_eq!(found.len(), 300);
        assert_eq!(found, events(&folder, &name), "{name}");
    }
}

#[test]
fn what_the_peer_writes_is_read_whole() {
    let folder = Folder::new();
    let path = folder.at("in.mcap");
    for compression in ["zstd", "lz4", "none"] {
        let variants = if compression == "zstd" { 32 } else { 4 };
        for bits in 0..variants {
            let has = |bit: u32| bits >> bit & 1 == 1;
            let options = json!({
                "compression": compression,
                "chunk_size": if has(0) { 1_000 } else { 1 << 20 },
                "use_chunking": has(1),
                "indexes": has(2),
                "repeat_channels": has(3),
                "repeat_schemas": has(3),
                "use_statistics": has(4),
                "use_summary_offsets": has(4),
                "enable_crcs": has(3),
                "enable_data_crcs": has(4),
            });
            let arguments = ["write", path.to_str().unwrap(), &options.to_string()];
            let Some(written) = peer(&arguments) else { return };
            assert_eq!(events(&folder, "in.mcap"), written, "{options}");
            run_sluice(&folder, &["verify", "in.mcap"]).expect(0);
        }
    }
}

#[test]
fn a_file_of_the_peer_that_is_cut_anywhere_yields_its_first_events() {
    let folder = Folder::new();
    let path = folder.at("in.mcap");
    for compression in ["zstd", "lz4", "none"] {
        let options = json!({ "compression": compression, "chunk_size": 6_000, "indexes": true });
        let arguments = ["write", path.to_str().unwrap(), &options.to_string()];
        let Some(written) = peer(&arguments) else { return };
        let whole = folder.read("in.mcap");
        let mut counts = Vec::new();
        for cut in (200..whole.len()).step_by(whole.len() / 40) {
            folder.write("cut.mcap", &whole[..cut]);
            let found = events(&folder, "cut.mcap");
            assert_eq!(found, written[..found.len()], "{compression}, cut at byte {cut}");
            counts.push(found.len());
        }
        assert!(counts.is_sorted(), "{compression}: {counts:?}");
        // More often than chunks end, where they are not compressed.
        let different = counts.chunk_by(|a, b| a == b).count();
        assert!(different > if compression == "none" { 30 } else { 4 }, "{counts:?}");
    }
}

#[test]
fn a_cut_file_becomes_a_whole_one_for_every_reader_of_the_peer() {
    let folder = Folder::new();
    let (path, repaired) = (folder.at("in.mcap"), folder.at("repaired.mcap"));
    for compression in ["zstd", "lz4", "none"] {
        let options = json!({ "compression": compression, "chunk_size": 6_000, "indexes": true });
        let arguments = ["write", path.to_str().unwrap(), &options.to_string()];
        let Some(written) = peer(&arguments) else { return };
        let whole = folder.read("in.mcap");
        for eighths in 1..8 {
            folder.write("cut.mcap", &whole[..whole.len() * eighths / 8]);
            let convert = ["convert", "cut.mcap", "--to", "repaired.mcap", "--overwrite"];
            // Damage was reported.
            run_sluice(&folder, &convert).expect(3);
            let Some(found) = peer(&["read", repaired.to_str().unwrap()]) else { return };
            // Some are of the chunk that is cut: a plain one is read to its last whole message.
            assert!(found.len() > 40 * eighths, "{compression}: {} events", found.len());
            assert_eq!(found, written[..found.len()], "{compression}, {eighths} of 8 parts");
            assert_eq!(found, events(&folder, "cut.mcap"));
            run_sluice(&folder, &["verify", "repaired.mcap"]).expect(0);
        }
    }
}

#[test]
fn an_archive_gives_the_same_bytes_back() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 300)));
    for steps in [
        ["convert", "in.lcm", "--to", "in.mcap"],
        ["convert", "in.mcap", "--to", "in.arrow.zst"],
        ["convert", "in.arrow.zst", "--to", "back.mcap"],
    ] {
        run_sluice(&folder, &steps).expect(0);
    }
    assert!(folder.read("back.mcap") == folder.read("in.mcap"));
}

/// Three attachments and 300 events, with every checksum, in one chunk or none.
const CHECKSUMS: &str = r#"
import sys
from mcap.writer import Writer
for name, chunked in [("chunked.mcap", True), ("plain.mcap", False)]:
    with open(name, "wb") as out:
        writer = Writer(out, use_chunking=chunked, enable_crcs=True, enable_data_crcs=True)
        writer.start()
        channel = writer.register_channel(topic="/a", message_encoding="json", schema_id=0)
        for n in range(300):
            writer.add_message(channel, log_time=n, publish_time=n, sequence=n, data=b'{"n":1}')
        for n in range(3):
            writer.add_attachment(n, n, f"note{n}", "text/plain", b"hello" * 10)
        writer.finish()
"#;

#[test]
fn every_checksum_is_verified() {
    let folder = Folder::new();
    let Some(python) = python_with("mcap") else { return };
    let made = Command::new(python).args(["-c", CHECKSUMS]).current_dir(folder.path()).status();
    assert!(made.unwrap().success());
    let flip = |name: &str, part: &[u8]| {
        let mut bytes = folder.read(name);
        let at = bytes.windows(part.len()).position(|window| window == part).unwrap();
        bytes[at] ^= 4;
        folder.write("wrong.mcap", bytes);
    };
    for name in ["chunked.mcap", "plain.mcap"] {
        run_sluice(&folder, &["verify", name]).expect(0);
        run_sluice(&folder, &["convert", name, "--to", "copy.mcap", "--overwrite"]).expect(0);
        run_sluice(&folder, &["verify", "copy.mcap"]).expect(0);
        for copied in [name, "copy.mcap"] {
            flip(copied, b"hellohello");
            let said = run_sluice(&folder, &["verify", "wrong.mcap"]).expect(3).text();
            assert!(said.contains("attachment `note0`: expected the checksum"), "{said}");
            let said = run_sluice(&folder, &["convert", "wrong.mcap", "--to", "-", "--as", "mcap"]);
            said.expect_stderr("attachment `note0` is copied as it is");
        }
    }
    flip("plain.mcap", b"{\"n\":1}");
    let said = run_sluice(&folder, &["verify", "wrong.mcap"]).expect(3).text();
    assert!(said.contains("the data section: expected the checksum"), "{said}");
}

#[test]
fn compressed_files_and_pipes_are_verified_like_files() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 300)));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "whole.mcap"]).expect(0);
    let whole = folder.read("whole.mcap");
    let mut flipped = whole.clone();
    flipped[whole.len() - 12] ^= 1;
    let without_footer = whole[..whole.len() - 37].to_vec();
    for (bytes, exit, says) in [
        (whole, 0, ": ok (1 file, "),
        (without_footer, 3, ": damaged: no footer"),
        (flipped, 3, ": damaged: the summary cannot be used: expected the checksum "),
    ] {
        folder.write("log.mcap", &bytes);
        folder.write("log.mcap.zst", zstd::encode_all(&bytes[..], 1).unwrap());
        let said = ["log.mcap", "log.mcap.zst"].map(|name| {
            let said = run_sluice(&folder, &["verify", name]).expect(exit).text();
            said.strip_prefix(name).unwrap().to_owned()
        });
        for piped in ["log.mcap", "log.mcap.zst"] {
            let cat = Command::new("cat").arg(folder.at(piped)).stdout(Stdio::piped()).spawn();
            let pipe = cat.unwrap().stdout.unwrap();
            let verified = sluice(&folder).args(["verify", "-"]).stdin(pipe).output().unwrap();
            let verified = ProgramOutput::from_output(verified).expect(exit).text();
            assert!(verified.starts_with(&format!("-{says}")), "{piped}: {verified}");
            assert!(!verified.contains(" 0 B"), "{verified}");
        }
        assert!(said.iter().all(|said| said.starts_with(says)), "{said:?}");
    }
}

#[test]
fn a_file_that_ends_after_a_whole_record_is_not_taken_for_complete() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 300)));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "whole.mcap"]).expect(0);
    let whole = folder.read("whole.mcap");
    let footer = whole.len() - 8 - 20;
    let summary = u64::from_le_bytes(whole[footer..footer + 8].try_into().unwrap()) as usize;
    // Before the record DataEnd.
    folder.write("cut.mcap", &whole[..summary - 13]);
    let convert =
        |name: &str| run_sluice(&folder, &["convert", name, "--to", "out/", "--overwrite"]);
    assert!(!convert("whole.mcap").expect(0).stderr.contains("no footer"));
    convert("cut.mcap").expect(0).expect_stderr("cut.mcap: no footer: the file is unfinished");
    let said = run_sluice(&folder, &["verify", "cut.mcap"]).expect(3).text();
    assert!(said.contains("no footer"), "{said}");
    run_sluice(&folder, &["verify", "whole.mcap"]).expect(0);
}

#[test]
fn formats_without_schemas_say_that_they_lose_them() {
    let folder = Folder::new();
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=0.3"]).expect(0);
    let drive = "quickstart-out/drive.lcm";
    run_sluice(&folder, &["convert", drive, "--types", "mit-dgc", "--to", "drive.mcap"]).expect(0);
    let lost = "the schemas of channels are not written";
    // Without `from-protobuf`, which restores channels that had no schema.
    for (sink, path, is_lost) in [
        ("\"orca\"", "out.orca", true),
        ("\"lcm-log\"", "out.lcm", true),
        ("\"jsonl\"\npayload = true", "out.jsonl", true),
        ("\"archive\"\nformat = \"arrow\"", "out.arrow.zst", false),
        ("\"mcap\"", "copy.mcap", false),
    ] {
        let text = format!(
            "[sources.log]\nplugin = \"mcap\"\npath = \"drive.mcap\"\n\
             [sinks.out]\nplugin = {sink}\nfrom = \"log\"\npath = \"{path}\"\n"
        );
        folder.write("run.toml", text);
        let said = run_sluice(&folder, &["run", "run.toml"]);
        assert_eq!(said.stderr.contains(lost), is_lost, "{path}: {}", said.stderr);
    }
}

#[test]
fn rows_of_csv_are_messages_with_their_fields() {
    let folder = Folder::new();
    folder.write("a.csv", "t,x,name\n1,2.5,left\n2,,right\n");
    run_sluice(&folder, &["convert", "a.csv", "--to", "a.mcap"]).expect(0);
    let found = run_sluice(&folder, &["cat", "a.mcap", "--json"]).expect(0).text();
    let fields = found.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["fields"].clone()
    });
    let expected = [json!({"x": 2.5, "name": "left"}), json!({"x": null, "name": "right"})];
    assert_eq!(fields.collect::<Vec<_>>(), expected);
}

/// A file with a message on `/a`, whose summary lists the channels `/b` and `/c`, too.
fn file_with_silent_channels() -> Vec<u8> {
    const MAGIC: &[u8] = b"\x89MCAP0\r\n";
    let record = |opcode: u8, content: &[u8]| {
        [&[opcode][..], &(content.len() as u64).to_le_bytes(), content].concat()
    };
    let text = |text: &str| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let channel = |id: u16, topic: &str| {
        let front = [id.to_le_bytes(), 0_u16.to_le_bytes()].concat();
        record(4, &[&front[..], &text(topic), &text(""), &[0; 4]].concat())
    };
    let message = [&1_u16.to_le_bytes()[..], &[0; 4], &[1; 16], b"x"].concat();
    let front = [MAGIC, &record(1, &[text(""), text("")].concat()), &channel(1, "/a")].concat();
    let data = [&front[..], &record(5, &message), &record(15, &[0; 4])].concat();
    let counts = [&10_u32.to_le_bytes()[..], &1_u16.to_le_bytes(), &1_u64.to_le_bytes()].concat();
    let numbers = [&1_u64.to_le_bytes()[..], &[0; 2], &3_u32.to_le_bytes(), &[0; 12]].concat();
    let statistics = record(11, &[&numbers[..], &[1; 16], &counts].concat());
    let channels = [channel(1, "/a"), channel(2, "/b"), channel(3, "/c")].concat();
    let footer = [&(data.len() as u64).to_le_bytes()[..], &[0; 12]].concat();
    [&data[..], &channels, &statistics, &record(2, &footer), MAGIC].concat()
}

#[test]
fn silent_channels_are_kept_unless_they_are_left_out_by_name() {
    let folder = Folder::new();
    folder.write("in.mcap", file_with_silent_channels());
    let declared = |options: &[&str]| -> Vec<&str> {
        let convert = ["convert", "in.mcap", "--to", "out.mcap", "--overwrite"];
        let done = run_sluice(&folder, &[&convert[..], options].concat()).expect(0);
        assert!(!done.stderr.contains("no channel matches"), "{}", done.stderr);
        let out = folder.read("out.mcap");
        let is_in = |topic: &str| out.windows(2).any(|bytes| bytes == topic.as_bytes());
        ["/a", "/b", "/c"].into_iter().filter(|topic| is_in(topic)).collect()
    };
    assert_eq!(declared(&[]), ["/a", "/b", "/c"]);
    assert_eq!(declared(&["--exclude", "/b"]), ["/a", "/c"]);
    assert_eq!(declared(&["--channel", "/a", "--channel", "/b"]), ["/a", "/b"]);
    assert_eq!(declared(&["--source-name", "robot", "--exclude", "/c"]), ["/a", "/b"]);
}
