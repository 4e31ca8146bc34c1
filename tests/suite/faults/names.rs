//! Channels with odd names: they are preserved, and cannot be used to escape a folder.

use crate::kit::{BEGIN, Folder, LcmEvent, log, run_sluice};

fn events_on_channels(names: &[Vec<u8>]) -> Vec<LcmEvent> {
    let event = |(n, name): (usize, &Vec<u8>)| {
        let payload = format!("payload {n}").into_bytes();
        LcmEvent { number: n as i64, utime: BEGIN + n as i64, channel: name.clone(), payload }
    };
    names.iter().chain(names).enumerate().map(event).collect()
}

/// Names with a meaning for file systems, terminals or table readers.
fn odd_channels() -> Vec<LcmEvent> {
    let plain: [&[u8]; 25] = [
        b"",
        b".",
        b"..",
        b"...",
        b"/",
        b"/etc/passwd",
        b"../../x",
        b"a/b",
        b"a\0b",
        b"a\nb",
        b"\x1b[31mred\x07",
        b"\xff\xfe",
        "\u{e9}\u{202e}gpj".as_bytes(),
        b"Pose",
        b"POSE",
        b"pose",
        b"%2F",
        b" ",
        b"-rf",
        b".hidden",
        b"_manifest.json",
        b".out.1-0.sluice-tmp",
        b"__HIVE_DEFAULT_PARTITION__",
        b"%5F_HIVE_DEFAULT_PARTITION__",
        b"{stem}",
    ];
    let mut names: Vec<Vec<u8>> = plain.iter().map(|name| name.to_vec()).collect();
    names.extend([b"x".repeat(255), b"x".repeat(300), b"/".repeat(300), b"\xff".repeat(300)]);
    events_on_channels(&names)
}

#[test]
fn names_that_mean_something_elsewhere_come_back_from_every_kind_of_output() {
    let (folder, whole) = (Folder::new(), log(&odd_channels()));
    folder.write("in.lcm", &whole);
    for to in ["out/", "out.parquet", "out.lcm.zst", "out.jsonl"] {
        let options: &[&str] =
            if to == "out.jsonl" { &["--sink-option", "payload=true"] } else { &[] };
        let convert = [&["convert", "in.lcm", "--to", to], options].concat();
        run_sluice(&folder, &convert).expect(0);
        let from = if to == "out/" { "out/*/*.parquet" } else { to };
        run_sluice(&folder, &["convert", from, "--to", "back.lcm", "--overwrite"]).expect(0);
        assert!(folder.read("back.lcm") == whole, "{to}");
    }
    let names = folder.names();
    assert_eq!(names, ["back.lcm", "in.lcm", "out", "out.jsonl", "out.lcm.zst", "out.parquet"]);
    super::no_litter(folder.path());
}

#[test]
fn no_name_leads_out_of_the_folder_it_is_given() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&odd_channels()));
    std::fs::create_dir(folder.at("deep")).unwrap();
    for (plugin, path) in [("files", "deep/files/"), ("parquet", "deep/tables/")] {
        let text = format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
             [sinks.out]\nplugin = \"{plugin}\"\nfrom = \"log\"\npath = \"{path}\"\n"
        );
        folder.write("run.toml", text);
        run_sluice(&folder, &["run", "run.toml"]).expect(0);
    }
    assert_eq!(folder.names(), ["deep", "in.lcm", "run.toml"]);
    let below: Vec<_> = std::fs::read_dir(folder.at("deep")).unwrap().collect();
    assert_eq!(below.len(), 2);
    run_sluice(&folder, &["verify", "deep/files", "deep/tables"]).expect(0);
}

#[test]
fn nothing_that_a_log_says_steers_a_terminal() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&odd_channels()));
    for verb in [&["info", "in.lcm"][..], &["cat", "in.lcm"], &["verify", "in.lcm"]] {
        let shown = run_sluice(&folder, verb).expect(0);
        let all = shown.text() + &shown.stderr;
        let steers = |c: char| c.is_control() && c != '\n';
        assert!(!all.contains(steers), "{verb:?}: {all:?}");
    }
}

#[test]
fn long_names_are_carried_and_shown_cut() {
    for len in [64 << 10, 1_000_000] {
        let folder = Folder::new();
        let whole = log(&events_on_channels(&[b"A".to_vec(), b"y".repeat(len), b"z".repeat(len)]));
        folder.write("in.lcm", &whole);
        for (to, from) in [("out.lcm", "out.lcm"), ("out/", "out/*/*.parquet")] {
            run_sluice(&folder, &["convert", "in.lcm", "--to", to]).expect(0);
            run_sluice(&folder, &["convert", from, "--to", "back.lcm", "--overwrite"]).expect(0);
            assert!(folder.read("back.lcm") == whole, "{to}");
        }
        let shown = run_sluice(&folder, &["info", "in.lcm"]).expect(0).text();
        assert!(shown.len() < 4_000, "{} bytes", shown.len());
        assert!(
            run_sluice(&folder, &["info", "in.lcm", "--json"]).expect(0).text().len() > 2 * len
        );
    }
}

#[test]
fn a_name_of_a_hundred_megabytes_is_damage() {
    let folder = Folder::new();
    let events = events_on_channels(&[b"A".to_vec(), b"y".repeat(100 << 20)]);
    folder.write("in.lcm", log(&events));
    let limit = "ulimit -v 1500000";
    super::run_after_shell_line(&folder, limit, &["convert", "in.lcm", "--to", "out.lcm"])
        .expect(3);
    assert_eq!(crate::kit::numbers(&folder.read("out.lcm")), [0, 2]);
}

#[test]
fn types_with_long_names_are_listed() {
    let folder = Folder::new();
    let name = "t".repeat(100_000);
    folder.write("long.lcm", format!("struct {name} {{ int8_t x; }}\nstruct s {{ int8_t x; }}\n"));
    let listed = run_sluice(&folder, &["types", "long.lcm"]);
    assert!(matches!(listed.code, Some(0 | 2)), "{:?} {:.300}", listed.code, listed.stderr);
}
