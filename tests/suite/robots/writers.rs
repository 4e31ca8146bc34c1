//! Our readers compared with writers in Python, written from descriptions of the formats: we find
//! every field they report. Reports if there is no Python.

use crate::kit::{Folder, python_script, run_sluice};
use crate::tables::asks;

/// The number of decoded events, and of all events.
fn decoded_counts(output: &str) -> (usize, usize) {
    let numbers: Vec<usize> =
        output.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    (numbers[0], numbers[1])
}

const VEL: &[(&[&str], i32)] = &[
    (&[], 0),
    (&["--index", "none", "--laser-versions", "100,101,102"], 0),
    (&["--unknown", "--newer", "--older"], 0),
    (&["--deleted", "--odd"], 3),
    (&["--odd-times", "--backwards", "--end-mark", "--tail", "garbage"], 3),
    (&["--tail", "cut"], 3),
    (&["--tail", "zeros", "--index", "wrong"], 3),
];

#[test]
fn vel_logs_of_another_writer_are_read_to_the_last_field() {
    for (seed, (options, code)) in VEL.iter().enumerate() {
        let (folder, seed) = (Folder::new(), seed.to_string());
        let write = ["log.vel", "said.json", "--messages", "150", "--seed", &seed, "--self-check"];
        let Some(_) = python_script(&folder, "vel_writer.py", &[&write[..], options].concat())
        else {
            return;
        };
        let found =
            run_sluice(&folder, &["cat", "log.vel", "--json", "--payload"]).expect(*code).text();
        folder.write("found", found);
        let compared =
            python_script(&folder, "compare.py", &["vel", "said.json", "found", "log"]).unwrap();
        let (decoded, all) = decoded_counts(&compared);
        assert!(decoded > all / 2 && all > 50, "{options:?}: {compared}");
    }
}

#[test]
fn the_smallest_vel_log_is_97_bytes_and_comes_back_as_it_is() {
    let folder = Folder::new();
    let Some(_) = python_script(&folder, "vel_writer.py", &["log.vel", "said.json", "--example"])
    else {
        return;
    };
    run_sluice(&folder, &["convert", "log.vel", "--to", "back.vel"]).expect(0);
    assert_eq!(folder.read("log.vel").len(), 97);
    assert!(folder.read("log.vel") == folder.read("back.vel"));
    let info = run_sluice(&folder, &["info", "log.vel"]).expect(0).text();
    assert!(info.contains("IMUStateM") && info.contains("index: 2 entries"), "{info}");
}

#[test]
fn an_index_that_is_wrong_or_missing_is_made_anew_and_messages_stay() {
    let folder = Folder::new();
    let write = |name: &str, index: &str| {
        let options = ["--messages", "200", "--seed", "8", "--index", index];
        python_script(&folder, "vel_writer.py", &[&[name, "said.json"], &options[..]].concat())
    };
    let Some(_) = write("right.vel", "right") else { return };
    let info_text = |name: &str| run_sluice(&folder, &["info", name]).expect(0).text();
    assert!(info_text("right.vel").contains(" 0 wrong"));
    for index in ["wrong", "none", "unpatched", "short", "reserved"] {
        write("broken.vel", index).unwrap();
        run_sluice(&folder, &["run", "vel-repair", "--overwrite", "--set", "INPUT=broken.vel"])
            .expect(0);
        let fixed = info_text("fixed.vel");
        assert!(fixed.contains(" 0 wrong"), "{index}: {fixed}");
        let messages = |name: &str| {
            let all = super::events(&folder, name).into_iter();
            all.map(|[time, source, channel, _, payload]| (time, source, channel, payload))
        };
        // Messages without a sensor have their file as source.
        let sensor = |source: String| source.replace("broken", "fixed");
        let broken =
            messages("broken.vel").map(|(time, source, c, p)| (time, sensor(source), c, p));
        assert!(messages("fixed.vel").eq(broken), "{index}");
    }
    write("broken.vel", "wrong").unwrap();
    assert!(!info_text("broken.vel").contains(" 0 wrong"));
}

const ORCA: &[(&[&str], i32)] = &[
    (&[], 0),
    (&["--repeat", "--quirks"], 3),
    (&["--killed", "--cut"], 3),
    (&["--odd"], 0),
    (&["--missing", "--foreign"], 3),
    (&["--prefix", "u64"], 0),
    (&["--prefix", "id-u64"], 0),
];

#[test]
fn orca_logs_of_another_writer_are_read_to_the_last_field() {
    for dialect in ["A", "B", "C"] {
        for (seed, (options, code)) in ORCA.iter().enumerate() {
            let (folder, seed) = (Folder::new(), seed.to_string());
            let write =
                ["log", "said.json", "--dialect", dialect, "--lines", "80", "--seed", &seed];
            let Some(_) = python_script(&folder, "orca_writer.py", &[&write[..], options].concat())
            else {
                return;
            };
            let master = "log/060804_153321_master.log";
            let found =
                run_sluice(&folder, &["cat", master, "--json", "--payload"]).expect(*code).text();
            folder.write("found", found);
            let compared =
                python_script(&folder, "compare.py", &["orca", "said.json", "found", "-"]).unwrap();
            let (decoded, all) = decoded_counts(&compared);
            assert!(decoded > all / 2 && all > 30, "{dialect} {options:?}: {compared}");
        }
    }
}

#[test]
fn tables_of_both_open_in_duckdb_with_columns_that_add_up() {
    let folder = Folder::new();
    let vel = ["log.vel", "vel.json", "--messages", "300", "--seed", "4"];
    let Some(_) = python_script(&folder, "vel_writer.py", &vel) else { return };
    let orca = ["log", "orca.json", "--dialect", "A", "--lines", "120"];
    python_script(&folder, "orca_writer.py", &orca).unwrap();
    run_sluice(&folder, &["run", "vel-to-tables", "--set", "INPUT=log.vel", "--set", "OUT=vel/"])
        .expect(0);
    let master = "INPUT=log/060804_153321_master.log";
    run_sluice(&folder, &["run", "orca-to-tables", "--set", master, "--set", "OUT=orca/"])
        .expect(0);
    asks("duckdb", &folder, DUCKDB);
}

/// Compares the sums of table columns with those of the writers' reports.
const DUCKDB: &str = r#"
import json, math
import duckdb
one = lambda query: duckdb.sql(query).fetchall()[0]

vel = json.load(open("vel.json"))["messages"]
scans = [m["fields"] for m in vel if m["type"] == "LaserRange2DDataM"]
table = "read_parquet('vel/channel=LaserRange2DDataM/**/*.parquet', union_by_name = true)"
rows, ranges = one(f"select count(*), sum(list_sum(ranges)) from {table}")
assert rows == len(scans), (rows, len(scans))
assert ranges == sum(sum(s["ranges"]) for s in scans), ranges
images = [m["fields"] for m in vel if m["type"] == "ImageM"]
rows, length = one("select count(*), sum(octet_length(image)) from 'vel/channel=ImageM/*.parquet'")
assert (rows, length) == (len(images), sum(len(i["bytes"]) // 2 for i in images)), (rows, length)
states = [m["fields"]["quaternion"]["w"]["value"] for m in vel if m["type"] == "IMUStateM"]
w, = one("select sum(quaternion[1]::double) from 'vel/channel=IMUStateM/*.parquet'")
assert math.isclose(w, sum(states), rel_tol=1e-9, abs_tol=1e-6), w

orca = [l for l in json.load(open("orca.json"))["lines"] if l["outcome"] == "event"]
scans = [l["fields"] for l in orca if l["channel"] == "orca.Laser"]
rows, count, angle = one("""select count(*), sum(len(ranges)), sum(startAngle::double)
    from 'orca/channel=orca.Laser/*.parquet'""")
assert (rows, count) == (len(scans), sum(len(s["ranges"]) for s in scans)), (rows, count)
assert math.isclose(angle, sum(s["startAngle"]["value"] for s in scans), rel_tol=1e-9, abs_tol=1e-6)
poses = [l["fields"]["pose"]["p"]["x"]["value"] for l in orca if l["channel"] == "orca.Position2d"]
x, = one("select sum(pose.p.x) from 'orca/channel=orca.Position2d/*.parquet'")
assert math.isclose(x, sum(poses), rel_tol=1e-9, abs_tol=1e-6), x
"#;
