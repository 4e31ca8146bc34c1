//! Every format converted to every other and back: what README.md lists as kept is kept, and what
//! it lists as lost is reported by the run that loses it.

use crate::kit::{Folder, root, run_sluice};

use super::{convert, events, orca, vel};

/// A log, and its name in README.md.
struct SampleLog {
    name: &'static str,
    path: &'static str,
    /// The path of the restored log.
    back: &'static str,
}

const LOGS: [SampleLog; 3] = [
    SampleLog { name: "LCM log", path: "drive.lcm", back: "back.lcm" },
    SampleLog { name: "VEL", path: "drive.vel", back: "back.vel" },
    SampleLog { name: "Orca", path: "orca/master.log", back: "back/back.orca" },
];

/// The output for a format named in README.md. Archives use the log's own format, if they can.
fn output_for(name: &str, log: &SampleLog) -> (String, Vec<&'static str>) {
    let by = match name {
        "LCM log" => "by/log.lcm",
        "VEL" => "by/log.vel",
        "Orca" => "by/log.orca",
        "MCAP" => "by/log.mcap",
        "tables" => "by/tables/",
        "one table" => "by/all.parquet",
        "JSON lines" => return ("by/log.jsonl".into(), vec!["--sink-option", "payload=true"]),
        "archive" => match log.name {
            "LCM log" => "by/log.lcm.zst",
            "VEL" => "by/log.vel.zst",
            _ => "by/log.arrow.zst",
        },
        other => panic!("README.md has a format `{other}` that no test knows"),
    };
    (by.into(), Vec::new())
}

/// The table in README.md under `## From format to format`: its columns, and its rows by their
/// first cell.
fn table() -> (Vec<String>, Vec<Vec<String>>) {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, text) = text.split_once("## From format to format").unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut rows: Vec<Vec<String>> =
        lines.take_while(|line| line.starts_with('|')).map(cells).collect();
    let heads = rows.remove(0);
    rows.remove(0);
    (heads, rows)
}

/// The columns of `events`, as README.md names them.
const KEPT: [&str; 5] = ["times", "sources", "names", "numbers", "payloads"];

fn column_values(events: &[[String; 5]], place: usize) -> Vec<String> {
    events.iter().map(|event| event[place].clone()).collect()
}

pub(super) fn create_logs(folder: &Folder) {
    vel(folder);
    orca(folder);
    run_sluice(folder, &["run", "quickstart", "--set", "SECONDS=1", "--set", "OUT=quick"])
        .expect(0);
    std::fs::rename(folder.at("quick/drive.lcm"), folder.at("drive.lcm")).unwrap();
}

#[test]
fn conversions_keep_what_the_readme_lists_and_report_losses() {
    let (heads, rows) = table();
    assert_eq!(rows.len(), LOGS.len());
    let folder = Folder::new();
    create_logs(&folder);
    for (log, row) in LOGS.iter().zip(&rows) {
        assert_eq!(row[0], log.name);
        for (name, claim) in heads.iter().zip(row).skip(1) {
            check_round_trip(&folder, log, name, claim);
        }
    }
}

/// Converts a log and back, and checks a cell of the table.
fn check_round_trip(folder: &Folder, log: &SampleLog, name: &str, claim: &str) {
    let (by, mut options) = output_for(name, log);
    options.push("--overwrite");
    let there = convert(folder, log.path, &by, &options).expect(0).stderr;
    let back = convert(folder, &by, log.back, &["--overwrite"]).expect(0).stderr;
    let case = format!("{} by way of {name}: {claim}\n{there}{back}", log.name);
    let (before, after) = (events(folder, log.path), events(folder, log.back));
    let lost: Vec<&str> = match claim {
        "bytes" => return assert!(folder.read(log.path) == folder.read(log.back), "{case}"),
        "events" => return assert!(before == after, "{case}"),
        claim => claim.trim_start_matches("all but ").split(", ").collect(),
    };
    // Losses are reported, and nothing else is lost.
    assert!(there.contains("note:") || back.contains("note:"), "nothing was reported: {case}");
    for (place, word) in KEPT.iter().enumerate() {
        let [mut before, mut after] = [&before, &after].map(|all| column_values(all, place));
        if lost.contains(&"order") {
            before.sort();
            after.sort();
        }
        assert!((before != after) == lost.contains(word), "`{word}`: {case}");
    }
    let is_unknown = |word: &&&str| !KEPT.contains(word) && !["order", "types"].contains(word);
    assert_eq!(lost.iter().find(is_unknown), None, "{case}");
}

/// Every readable format, as written here.
const FORMATS: [(&str, &str); 8] = [
    ("lcm", "in/log.lcm"),
    ("vel", "in/log.vel"),
    ("orca", "in/orca/log.orca"),
    ("mcap", "in/log.mcap"),
    ("tables", "in/tables/"),
    ("table", "in/all.parquet"),
    ("archive", "in/log.arrow.zst"),
    ("lines", "in/log.jsonl"),
];

#[test]
fn every_format_is_converted_to_every_other_one() {
    let folder = Folder::new();
    create_logs(&folder);
    let options = |name: &str| -> &[&str] {
        if name == "lines" { &["--sink-option", "payload=true"] } else { &[] }
    };
    for from in ["drive.vel", "orca/master.log"] {
        let count = events(&folder, from).len();
        for (name, path) in FORMATS {
            convert(&folder, from, path, &[options(name), &["--overwrite"]].concat()).expect(0);
        }
        for (_, path) in FORMATS {
            for (name, to) in FORMATS {
                let to = to.replacen("in/", "out/", 1);
                convert(&folder, path, &to, &[options(name), &["--overwrite"]].concat()).expect(0);
                assert_eq!(events(&folder, &to).len(), count, "{from}: {path} to {to}");
            }
        }
    }
}

#[test]
fn verify_reports_every_wrong_entry_of_an_index() {
    let folder = Folder::new();
    let mut log = vel(&folder);
    run_sluice(&folder, &["verify", "drive.vel"]).expect(0);
    // A second index entry that points nowhere is allowed; one that points elsewhere is not.
    const HEAD: usize = 12;
    const ENTRY: usize = 8;
    for entry in 1..6 {
        log[HEAD + entry * ENTRY] ^= 1;
    }
    folder.write("wrong.vel", &log);
    let text = run_sluice(&folder, &["verify", "wrong.vel"]).expect(3).text();
    for entry in 1..6 {
        assert!(text.contains(&format!("entry {entry} points to byte")), "{text}");
    }
    log[HEAD..HEAD + 6 * ENTRY].fill(0xff);
    folder.write("unused.vel", &log);
    run_sluice(&folder, &["verify", "unused.vel"]).expect(0);
}
