//! Outputs do not depend on the number of threads.

use serde_json::Value;

use crate::kit::{BEGIN, Folder, LcmEvent, SeededRng, drive, log, numbers, run};
use crate::report_shape::ReportShape;

const JOBS: [usize; 3] = [1, 2, 8];

/// About 900 KiB: at 64 KiB a piece, fifteen splits.
fn clean() -> Vec<u8> {
    log(&drive(1, 2_200))
}

/// The same with sixty places where bytes are missing, flipped, zeroed or inserted, and a truncated
/// end.
fn damaged() -> Vec<u8> {
    let (mut log, mut rng) = (clean(), SeededRng(9));
    for kind in 0..60 {
        let at = rng.below(log.len() as u64 - 2_000) as usize;
        let end = at + 1 + rng.below(1_500) as usize;
        match kind % 4 {
            0 => log[at] ^= 0x40,
            1 => drop(log.drain(at..end)),
            2 => drop(log.splice(at..at, vec![0xED; end - at])),
            _ => log[at..end].fill(0),
        }
    }
    log.truncate(log.len() - 100);
    log
}

/// A log with steps back in time, as a vehicle's computers send, so that sorting has an effect.
fn unordered() -> Vec<u8> {
    let mut rng = SeededRng(3);
    let mut events = drive(3, 2_000);
    for event in &mut events {
        event.utime -= rng.below(40_000) as i64;
    }
    log(&events)
}

/// Runs a pipeline with each number of threads. All outputs must be equal.
fn same_for_any_number_of_threads(text: &str, folder: &Folder, outputs: &[&str]) {
    let mut first: Option<(Vec<Vec<u8>>, Value)> = None;
    for jobs in JOBS {
        let report = run(text, folder.path(), jobs).unwrap_or_else(|e| panic!("{jobs} jobs: {e}"));
        ReportShape::from_report(&report).check();
        let written: Vec<Vec<u8>> = outputs.iter().map(|name| folder.read(name)).collect();
        let report = ReportShape::from_report(&report).without_timing();
        let (bytes, before) = first.get_or_insert_with(|| (written.clone(), report.clone()));
        for (name, (now, then)) in outputs.iter().zip(written.iter().zip(&*bytes)) {
            assert!(!now.is_empty(), "{name} is empty");
            assert!(now == then, "{name} differs with {jobs} jobs");
        }
        assert_eq!(&report, before, "the report with {jobs} jobs");
    }
}

/// Runs it on a clean and a damaged log, plain and compressed.
fn on_any_log(text: &str, outputs: &[&str]) {
    let folder = Folder::new();
    for (name, bytes) in [("b.lcm", log(&drive(2, 900))), ("c.lcm", log(&drive(5, 1_500)))] {
        folder.write(name, bytes);
    }
    for bytes in [clean(), damaged()] {
        folder.write("a.lcm", &bytes);
        same_for_any_number_of_threads(text, &folder, outputs);
        let plain: Vec<Vec<u8>> = outputs.iter().map(|name| folder.read(name)).collect();
        folder.write("a.lcm.zst", zstd::encode_all(&bytes[..], 1).unwrap());
        let packed = text.replace("a.lcm", "a.lcm.zst");
        same_for_any_number_of_threads(&packed, &folder, outputs);
        for (name, plain) in outputs.iter().zip(plain) {
            assert!(folder.read(name) == plain, "{name} differs where the log is compressed");
        }
    }
}

const A: &str = "[sources.a]\nplugin = \"lcm-log\"\npath = \"${DIR}/a.lcm\"\n";
const B: &str = "[sources.b]\nplugin = \"lcm-log\"\npath = \"${DIR}/b.lcm\"\n";
const C: &str = "[sources.c]\nplugin = \"lcm-log\"\npath = \"${DIR}/c.lcm\"\n";

fn sink(from: &str) -> String {
    format!("[sinks.out]\nplugin = \"lcm-log\"\nfrom = {from}\npath = \"${{DIR}}/out.lcm\"\n")
}

#[test]
fn copying() {
    on_any_log(&format!("{A}{}", sink("\"a\"")), &["out.lcm"]);
}

#[test]
fn a_copy_of_a_clean_log_is_the_log() {
    let folder = Folder::new();
    folder.write("a.lcm", clean());
    run(&format!("{A}{}", sink("\"a\"")), folder.path(), 8).unwrap();
    assert!(folder.read("out.lcm") == clean());
}

#[test]
fn damage_costs_few_events() {
    let folder = Folder::new();
    folder.write("a.lcm", damaged());
    let report = run(&format!("{A}{}", sink("\"a\"")), folder.path(), 2).unwrap();
    let written = numbers(&folder.read("out.lcm"));
    // Each of the sixty places costs only the events it touches.
    assert!(written.len() > 1_800, "{}", written.len());
    assert!(report.damage.len() > 30 && report.exit() == 3, "{}", report.damage.len());
    let lost: u64 = report.damage.iter().map(|d| d.length).sum();
    assert_eq!(lost + folder.read("out.lcm").len() as u64, damaged().len() as u64);
}

#[test]
fn filtering() {
    let keep = "[stages.keep]\nplugin = \"filter\"\nfrom = \"a\"\nchannels = [\"A\", \"D\"]\n\
        start = \"+0.3\"\n";
    // A time after the first event needs a log that can be read twice.
    let folder = Folder::new();
    for bytes in [clean(), damaged()] {
        folder.write("a.lcm", bytes);
        same_for_any_number_of_threads(
            &format!("{A}{keep}{}", sink("\"keep\"")),
            &folder,
            &["out.lcm"],
        );
    }
    on_any_log(
        &format!("{A}{}{}", keep.replace("start = \"+0.3\"", ""), sink("\"keep\"")),
        &["out.lcm"],
    );
}

#[test]
fn sorting() {
    let sort = "[stages.sorted]\nplugin = \"time\"\nfrom = \"a\"\nsort = \"50ms\"\n";
    let text = format!("{A}{sort}{}", sink("\"sorted\""));
    on_any_log(&text, &["out.lcm"]);
    let folder = Folder::new();
    folder.write("a.lcm", unordered());
    same_for_any_number_of_threads(&text, &folder, &["out.lcm"]);
    let mut expected = crate::kit::events(&unordered());
    expected.sort_by_key(|event| event.utime);
    assert!(folder.read("out.lcm") == log(&expected));
}

#[test]
fn thinning_out_and_limiting() {
    let stages = "[stages.few]\nplugin = \"sample\"\nfrom = \"a\"\nevery = 3\n\
                  [stages.first]\nplugin = \"limit\"\nfrom = \"few\"\nevents = 321\n";
    on_any_log(&format!("{A}{stages}{}", sink("\"first\"")), &["out.lcm"]);
}

#[test]
fn merging_two_sources() {
    on_any_log(&format!("{A}{B}{}", sink("[\"a\", \"b\"]")), &["out.lcm"]);
}

#[test]
fn merging_three_sources_of_which_one_is_sorted() {
    let sort = "[stages.sorted]\nplugin = \"time\"\nfrom = \"c\"\nsort = \"5ms\"\n";
    on_any_log(&format!("{A}{B}{C}{sort}{}", sink("[\"sorted\", \"a\", \"b\"]")), &["out.lcm"]);
}

#[test]
fn several_sinks() {
    let others = "[stages.few]\nplugin = \"filter\"\nfrom = \"a\"\nchannels = \"B\"\n\
        [sinks.lines]\nplugin = \"jsonl\"\nfrom = \"a\"\npath = \"${DIR}/out.jsonl\"\n\
        payload = true\n\
        [sinks.table]\nplugin = \"csv\"\nfrom = \"few\"\npath = \"${DIR}/out.csv\"\n\
        [sinks.text]\nplugin = \"text\"\nfrom = \"few\"\npath = \"${DIR}/out.txt\"\n\
        [sinks.packed]\nplugin = \"lcm-log\"\nfrom = \"a\"\npath = \"${DIR}/out.lcm.zst\"\n";
    let outputs = ["out.lcm", "out.jsonl", "out.csv", "out.txt", "out.lcm.zst"];
    on_any_log(&format!("{A}{others}{}", sink("\"a\"")), &outputs);
}

#[test]
fn taking_a_source_apart_and_putting_it_together_again() {
    let stages = "[stages.left]\nplugin = \"filter\"\nfrom = \"a\"\nchannels = [\"A\", \"B\"]\n\
        [stages.right]\nplugin = \"filter\"\nfrom = \"a\"\nexclude = [\"A\", \"B\"]\n\
        [stages.named]\nplugin = \"rename\"\nfrom = \"right\"\nprefix = \"r/\"\n";
    on_any_log(&format!("{A}{stages}{}", sink("[\"left\", \"named\"]")), &["out.lcm"]);
}

#[test]
fn a_diamond_beside_another_source() {
    let stages = "[stages.left]\nplugin = \"filter\"\nfrom = \"a\"\nchannels = [\"A\", \"B\"]\n\
        [stages.right]\nplugin = \"sample\"\nfrom = \"a\"\nevery = 2\nchannels = \"*\"\n";
    on_any_log(&format!("{A}{B}{stages}{}", sink("[\"left\", \"b\", \"right\"]")), &["out.lcm"]);
}

#[test]
fn splitting_numbering_and_continuing_a_log() {
    let folder = Folder::new();
    folder.write("a.lcm", damaged());
    let split = sink("\"a\"") + "split_mb = 0.2\nrenumber = true\n";
    let files = ["out-00000.lcm", "out-00001.lcm", "out-00002.lcm"];
    same_for_any_number_of_threads(&format!("{A}{split}"), &folder, &files);
}

#[test]
fn events_longer_than_a_piece() {
    let folder = Folder::new();
    let mut rng = SeededRng(4);
    let events: Vec<LcmEvent> = (0..40)
        .map(|n| LcmEvent::new(n, BEGIN + n, "IMAGE", &vec![n as u8; rng.below(200_000) as usize]))
        .collect();
    let mut bytes = log(&events);
    same_bytes(&folder, &bytes, &bytes);
    let hole = 60_000..61_000;
    bytes[hole].fill(0xED);
    folder.write("a.lcm", &bytes);
    same_for_any_number_of_threads(&format!("{A}{}", sink("\"a\"")), &folder, &["out.lcm"]);
}

fn same_bytes(folder: &Folder, input: &[u8], output: &[u8]) {
    folder.write("a.lcm", input);
    same_for_any_number_of_threads(&format!("{A}{}", sink("\"a\"")), folder, &["out.lcm"]);
    assert!(folder.read("out.lcm") == output);
}
