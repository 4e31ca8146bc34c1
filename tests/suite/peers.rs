//! Our logs read by the real LCM tools, and theirs by us. Needs the tools of the Python package
//! `lcm`, which `.ci/run` installs to `.cache/peers-venv`; reports if they are missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::kit::{
    BEGIN, Folder, LcmEvent, SeededRng, events, log, peer_tool, report_skip, run_sluice,
};

/// A tool of the LCM package; `None`, with a message, if it is not installed.
fn tool(name: &str) -> Option<PathBuf> {
    let path = peer_tool(name);
    if path.exists() {
        return Some(path);
    }
    report_skip(&format!("`{name}` of LCM is not there; .ci/run installs it"));
    None
}

/// The Python of the LCM package; `None`, with a message, if it is not installed.
pub(crate) fn python() -> Option<PathBuf> {
    let python = tool("python3")?;
    let works = Command::new(&python).args(["-c", "import lcm"]).output().unwrap();
    if !works.status.success() {
        report_skip("this Python has no LCM; .ci/run installs it");
        return None;
    }
    Some(python)
}

#[track_caller]
fn done(output: Output) -> String {
    let Output { status, stdout, stderr } = output;
    assert!(status.success(), "{status}:\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// What LCM's own reader finds: one line per event.
const READ: &str = r#"
import json, lcm, sys
for e in lcm.EventLog(sys.argv[1], "r"):
    print(json.dumps([e.eventnum, e.timestamp, e.channel, e.data.hex()]))
"#;

/// Writes such events with LCM's own writer, which numbers them from 0.
const WRITE: &str = r#"
import json, lcm, sys
log = lcm.EventLog(sys.argv[2], "w", overwrite=True)
for line in open(sys.argv[1]):
    number, time, channel, data = json.loads(line)
    log.write_event(time, channel, bytes.fromhex(data))
log.close()
"#;

fn line(event: &LcmEvent) -> Value {
    let hex: String = event.payload.iter().map(|byte| format!("{byte:02x}")).collect();
    let channel = str::from_utf8(&event.channel).unwrap();
    serde_json::json!([event.number, event.utime, channel, hex])
}

fn read_by_peer(python: &Path, log: &Path) -> Vec<Value> {
    let read = Command::new(python).args(["-c", READ]).arg(log).output().unwrap();
    done(read).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Events that both can hold: their reader requires channels of 1 to 999 bytes of UTF-8.
fn any_events(seed: u64) -> Vec<LcmEvent> {
    let mut rng = SeededRng(seed);
    let mut time = BEGIN;
    let each = (0..rng.below(200)).map(|n| {
        time += rng.below(30_000) as i64 - 5_000;
        let channel = match rng.below(8) {
            0 => "ünï/ço∂é ☃".to_owned(),
            1 => "c".repeat(1 + rng.below(999) as usize),
            other => format!("CHANNEL_{other}"),
        };
        let len = match rng.below(6) {
            0 => 0,
            1 => rng.below(100_000),
            _ => rng.below(300),
        };
        let mut payload: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
        if rng.below(5) == 0 {
            // A payload that looks like an event.
            payload.extend(LcmEvent::new(1, 2, "INNER", b"not an event of this log").bytes());
        }
        LcmEvent::new(n as i64, time, &channel, &payload)
    });
    each.collect()
}

const SEEDS: std::ops::Range<u64> = 1..9;

#[test]
fn the_python_reader_finds_the_events_of_our_logs() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    for seed in SEEDS {
        let events = any_events(seed);
        folder.write("in.lcm", log(&events));
        run_sluice(&folder, &["convert", "in.lcm", "--to", "out.lcm.zst", "--overwrite"]).expect(0);
        run_sluice(&folder, &["convert", "out.lcm.zst", "--to", "out.lcm", "--overwrite"])
            .expect(0);
        let expected: Vec<Value> = events.iter().map(line).collect();
        assert_eq!(read_by_peer(&python, &folder.at("out.lcm")), expected, "seed {seed}");
    }
}

#[test]
fn we_find_the_events_of_logs_by_the_python_writer() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    for seed in SEEDS {
        let events = any_events(seed + 100);
        let lines: String = events.iter().map(|event| format!("{}\n", line(event))).collect();
        folder.write("lines", lines);
        let write = ["-c", WRITE, "lines", "theirs.lcm"];
        done(Command::new(&python).args(write).current_dir(folder.path()).output().unwrap());
        run_sluice(&folder, &["convert", "theirs.lcm", "--to", "out.lcm", "--overwrite"]).expect(0);
        assert!(folder.read("out.lcm") == folder.read("theirs.lcm"), "seed {seed}");
        assert_eq!(crate::kit::events(&folder.read("out.lcm")), events, "seed {seed}");
    }
}

#[test]
fn damage_that_stops_the_peer_does_not_stop_us_and_it_reads_our_copy() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    let events = any_events(7);
    let (front, back) = events.split_at(events.len() / 2);
    folder.write("bad.lcm", [&log(front)[..], b"stray bytes", &log(back)].concat());
    assert!(read_by_peer(&python, &folder.at("bad.lcm")).len() < events.len());
    run_sluice(&folder, &["convert", "bad.lcm", "--to", "good.lcm"]).expect(3);
    assert_eq!(read_by_peer(&python, &folder.at("good.lcm")).len(), events.len());
}

#[test]
fn lcm_logfilter_copies_our_logs() {
    let Some(filter) = tool("lcm-logfilter") else { return };
    let folder = Folder::new();
    for seed in SEEDS {
        // It drops events before the time of the first, and requires channels without line breaks.
        let mut events = any_events(seed);
        events.iter_mut().zip(BEGIN..).for_each(|(event, time)| event.utime = time);
        if events.is_empty() {
            continue;
        }
        folder.write("in.lcm", log(&events));
        run_sluice(&folder, &["convert", "in.lcm", "--to", "ours.lcm", "--overwrite"]).expect(0);
        let copy = ["-c", ".*", "ours.lcm", "theirs.lcm"];
        done(Command::new(&filter).args(copy).current_dir(folder.path()).output().unwrap());
        assert_eq!(crate::kit::events(&folder.read("theirs.lcm")), events, "seed {seed}");
    }
}

#[test]
fn lcm_logplayer_plays_our_logs_to_their_end() {
    let Some(player) = tool("lcm-logplayer") else { return };
    let folder = Folder::new();
    let mut played = any_events(3);
    // It publishes, and channels of messages have at most 63 bytes.
    played.retain(|event| event.channel.len() < 64);
    folder.write("in.lcm", log(&played));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "ours.lcm"]).expect(0);
    // To a file, which needs no network.
    let url = format!("file://{}?mode=w", folder.at("played.lcm").display());
    let play = ["--speed=0", &format!("--lcm-url={url}"), "ours.lcm"];
    done(Command::new(&player).args(play).current_dir(folder.path()).output().unwrap());
    // Its times are those of playback.
    let plain = |events: &[LcmEvent]| -> Vec<(Vec<u8>, Vec<u8>)> {
        events.iter().map(|e| (e.channel.clone(), e.payload.clone())).collect()
    };
    assert!(plain(&events(&folder.read("played.lcm"))) == plain(&played));
}

#[test]
fn the_zstd_program_decompresses_our_files() {
    if Command::new("zstd").arg("--version").output().is_err() {
        return report_skip("the program `zstd` is not there");
    }
    let folder = Folder::new();
    let bytes = log(&any_events(5));
    folder.write("in.lcm", &bytes);
    run_sluice(&folder, &["convert", "in.lcm", "--to", "out.lcm.zst"]).expect(0);
    let zstd = |arguments: &[&str]| {
        let output =
            Command::new("zstd").args(arguments).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    zstd(&["-q", "-t", "out.lcm.zst"]);
    assert!(zstd(&["-q", "-d", "-c", "out.lcm.zst"]) == bytes);
    zstd(&["-q", "-19", "in.lcm", "-o", "theirs.lcm.zst"]);
    run_sluice(&folder, &["convert", "theirs.lcm.zst", "--to", "back.lcm"]).expect(0);
    assert!(folder.read("back.lcm") == bytes);
}
