//! The built-in pipelines.

use sluice_pipeline::library;

use crate::kit::{Folder, LcmEvent, decompressed, drive, events, log, root, run_sluice};

#[test]
fn every_file_of_the_library_is_carried() {
    let files = std::fs::read_dir(root().join("pipelines/library")).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned()))
        .collect();
    names.sort();
    assert_eq!(library::names().collect::<Vec<_>>(), names);
    // Each has a test below; those of the Urban Challenge dataset in `dgc`, of datasets for
    // learning in `datasets`.
    let tested = [
        "archive-to-log",
        "batch",
        "demo-to-lerobot",
        "dgc-all",
        "dgc-gps",
        "dgc-images",
        "dgc-poses",
        "dgc-sick",
        "dgc-velodyne",
        "dgc-view",
        "fields-to-csv",
        "filter-by-field",
        "lcm-to-lerobot",
        "log-to-archive",
        "log-to-tables",
        "orca-to-log",
        "orca-to-tables",
        "quickstart",
        "ros2-to-lerobot",
        "typed-tables",
        "vel-repair",
        "vel-to-tables",
    ];
    assert_eq!(names, tested);
}

/// The number of events, according to `verify` and the table's source.
fn events_in(folder: &Folder, path: &str) -> usize {
    let output = run_sluice(folder, &["info", path, "--json"]).expect(0);
    let output: serde_json::Value = serde_json::from_str(output.text().trim()).unwrap();
    usize::try_from(output["events"].as_u64().unwrap()).unwrap()
}

#[test]
fn the_quick_start_writes_the_same_events_three_times() {
    let folder = Folder::new();
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=2"]).expect(0);
    assert_eq!(folder.names(), ["quickstart-out"]);
    let log = folder.read("quickstart-out/drive.lcm");
    assert!(events(&log).len() > 100, "{}", events(&log).len());
    assert!(decompressed(&folder.read("quickstart-out/drive.lcm.zst")) == log);
    run_sluice(&folder, &["convert", "quickstart-out/tables", "--to", "back.lcm"]).expect(0);
    assert!(folder.read("back.lcm") == log);
    run_sluice(&folder, &["verify", "quickstart-out/tables"]).expect(0);
}

#[test]
fn the_quick_start_is_the_same_every_time() {
    let (one, two) = (Folder::new(), Folder::new());
    for folder in [&one, &two] {
        run_sluice(folder, &["run", "quickstart", "--set", "SECONDS=1"]).expect(0);
    }
    for file in [
        "drive.lcm",
        "drive.lcm.zst",
        "tables/channel=POSE/part-00000.parquet",
        "tables/_manifest.json",
    ] {
        let file = format!("quickstart-out/{file}");
        assert!(one.read(&file) == two.read(&file), "{file}");
    }
}

/// A folder with two logs, of different lengths.
fn two_logs() -> Folder {
    let folder = Folder::new();
    folder.write("one.lcm", log(&drive(1, 700)));
    folder.write("two.lcm", log(&drive(2, 300)));
    folder
}

#[test]
fn logs_become_tables() {
    let folder = two_logs();
    for (out, to) in [("OUT=tables/", "tables"), ("OUT=others", "others")] {
        let set = ["--set", "INPUT=*.lcm", "--set", out];
        run_sluice(&folder, &[&["run", "log-to-tables"][..], &set].concat()).expect(0);
        assert_eq!(events_in(&folder, to), 1_000);
        assert!(folder.at(to).is_dir());
    }
}

#[test]
fn a_log_becomes_an_archive_and_a_log_again_or_a_part_of_it() {
    let folder = two_logs();
    run_sluice(&folder, &["run", "log-to-archive", "--set", "INPUT=one.lcm", "--set", "OUT=a.zst"])
        .expect(0);
    run_sluice(
        &folder,
        &["run", "archive-to-log", "--set", "INPUT=a.zst", "--set", "OUT=back.lcm"],
    )
    .expect(0);
    assert!(folder.read("back.lcm") == folder.read("one.lcm"));
    // Nanoseconds that were stored as microseconds are beyond the range of times.
    let event = |number| LcmEvent::new(number, 1_194_098_400_000_000_000 + number, "A", b"");
    folder.write("wide.lcm", log(&(0..9).map(event).collect::<Vec<_>>()));
    for (pipeline, from, to) in
        [("log-to-archive", "wide.lcm", "wide.zst"), ("archive-to-log", "wide.zst", "again.lcm")]
    {
        let set = ["--set", &format!("INPUT={from}"), "--set", &format!("OUT={to}")];
        run_sluice(&folder, &[&["run", pipeline][..], &set].concat()).expect(0);
    }
    assert!(folder.read("again.lcm") == folder.read("wide.lcm"));
    let window = [
        "--set",
        "INPUT=a.zst",
        "--set",
        "OUT=cut.lcm",
        "--set",
        "START=+0.1",
        "--set",
        "END=+0.2",
    ];
    run_sluice(&folder, &[&["run", "archive-to-log"][..], &window].concat()).expect(0);
    let cut = events(&folder.read("cut.lcm"));
    assert!((90..=110).contains(&cut.len()), "{}", cut.len());
}

#[test]
fn a_batch_makes_a_table_and_an_archive_of_each_log() {
    let folder = two_logs();
    run_sluice(&folder, &["run", "batch", "--set", "INPUT=*.lcm"]).expect(0);
    assert!(decompressed(&folder.read("done/two.lcm.zst")) == folder.read("two.lcm"));
    assert_eq!(events_in(&folder, "done/one.parquet"), 700);
    run_sluice(&folder, &["verify", "done"]).expect(0);
}

#[test]
fn a_file_that_stands_there_is_taken_instead() {
    let folder = Folder::new();
    let text = library::get("quickstart").unwrap().replace("drive.lcm", "other.lcm");
    folder.write("quickstart", text);
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=0.1", "--set", "OUT=o"]).expect(0);
    assert!(folder.at("o/other.lcm").exists());
}

/// A folder with `drive.lcm`, two seconds of the demo drive.
fn drive_log() -> Folder {
    let folder = Folder::new();
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=2", "--set", "OUT=made"])
        .expect(0);
    folder.write("drive.lcm", folder.read("made/drive.lcm"));
    folder
}

#[test]
fn logs_become_typed_tables_and_these_the_log_again() {
    let folder = drive_log();
    run_sluice(&folder, &["run", "typed-tables", "--set", "INPUT=drive.lcm"]).expect(0);
    let output = run_sluice(&folder, &["info", "tables", "--json"]).expect(0);
    assert!(output.text().contains("\"type\":\"lcmtypes.pose_t\""), "{}", output.text());
    run_sluice(&folder, &["convert", "tables", "--to", "back.lcm"]).expect(0);
    assert!(folder.read("back.lcm") == folder.read("drive.lcm"));
}

#[test]
fn chosen_fields_become_a_table_of_text() {
    let folder = drive_log();
    let fields = "FIELDS=utime, pos[2], vel[-1]";
    run_sluice(&folder, &["run", "fields-to-csv", "--set", "INPUT=drive.lcm", "--set", fields])
        .expect(0);
    let text = String::from_utf8(folder.read("fields.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("timestamp,utime,pos[2],vel[-1]"));
    let numbers = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let last = cells[1..].iter().filter_map(|cell| cell.parse::<f64>().ok()).count();
        cells.len() == 4 && last == 3
    };
    assert!(text.lines().count() > 100 && lines.all(numbers), "{text}");
}

#[test]
fn a_log_is_filtered_by_the_value_of_a_field() {
    let folder = drive_log();
    let condition = "WHERE=nranges > 181 or pos[0] < 299.9";
    run_sluice(
        &folder,
        &["run", "filter-by-field", "--set", "INPUT=drive.lcm", "--set", condition],
    )
    .expect(0);
    let (all, kept) = (events_in(&folder, "drive.lcm"), events_in(&folder, "matching.lcm"));
    assert!(kept > 0 && kept < all, "{kept} of {all}");
    // The remaining events meet the condition, and are unchanged.
    let output =
        run_sluice(&folder, &["cat", "matching.lcm", "--types", "mit-dgc", "--json"]).expect(0);
    for line in output.text().lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let fields = &event["fields"];
        let is_wanted = fields["nranges"].as_i64().is_some_and(|n| n > 181)
            || fields["pos"][0].as_f64().is_some_and(|x| x < 299.9);
        assert!(is_wanted, "{line}");
    }
}

#[test]
fn a_vel_log_becomes_typed_tables() {
    let folder = Folder::new();
    crate::robots::vel(&folder);
    run_sluice(&folder, &["run", "vel-to-tables", "--set", "INPUT=drive.vel"]).expect(0);
    assert_eq!(events_in(&folder, "tables"), 60);
    assert!(folder.at("tables/channel=IMUStateM/part-00000.parquet").exists());
    run_sluice(&folder, &["convert", "tables", "--to", "back.vel"]).expect(0);
    assert!(folder.read("back.vel") == folder.read("drive.vel"));
}

#[test]
fn an_index_is_repaired_and_messages_stay() {
    let folder = Folder::new();
    let mut log = crate::robots::vel(&folder);
    // The third entry of the index.
    log[12 + 16..][..8].copy_from_slice(&77i64.to_le_bytes());
    folder.write("drive.vel", &log);
    run_sluice(&folder, &["run", "vel-repair", "--set", "INPUT=drive.vel"]).expect(0);
    log[12 + 16..][..8].copy_from_slice(&folder.read("fixed.vel")[12 + 16..][..8]);
    assert!(folder.read("fixed.vel") == log && folder.read("drive.vel") != log);
    assert!(run_sluice(&folder, &["info", "drive.vel"]).expect(0).text().contains("1 wrong"));
    assert!(run_sluice(&folder, &["info", "fixed.vel"]).expect(0).text().contains("0 wrong"));
}

#[test]
fn an_orca_log_becomes_typed_tables() {
    let folder = Folder::new();
    crate::robots::orca(&folder);
    run_sluice(&folder, &["run", "orca-to-tables", "--set", "INPUT=orca/master.log"]).expect(0);
    assert_eq!(events_in(&folder, "tables"), 43);
    assert!(folder.at("tables/channel=orca.Laser/part-00000.parquet").exists());
}

#[test]
fn an_orca_log_becomes_one_lcm_log_with_sources_in_names() {
    let folder = Folder::new();
    crate::robots::orca(&folder);
    run_sluice(&folder, &["run", "orca-to-log", "--set", "INPUT=orca/master.log"]).expect(0);
    let events = events(&folder.read("drive.lcm"));
    let names: std::collections::BTreeSet<&[u8]> = events.iter().map(|e| &e.channel[..]).collect();
    let expected = [
        "laser0/orca.Laser",
        "laser0/orca.Laser.config",
        "position2d0/orca.Position2d",
        "position2d0/orca.Position2d.config",
    ];
    assert_eq!(names, expected.map(str::as_bytes).into());
    assert_eq!(events.len(), 43);
}

#[test]
fn the_quick_start_has_no_losses_to_report() {
    let folder = Folder::new();
    let stderr = run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=1"]).expect(0).stderr;
    assert!(!stderr.contains("not written"), "{stderr}");
}
