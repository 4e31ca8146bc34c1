//! Pipelines printed in one folder, saved in another, and run from anywhere.

use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, drive, log, run_sluice, sluice};

/// A folder name with every special character of paths and globs.
const ODD: &str = "a b [c] {d} $e";

fn in_folder(folder: &Folder, below: &str, arguments: &[&str]) -> ProgramOutput {
    let mut sluice = sluice(folder);
    ProgramOutput::from_output(
        sluice.current_dir(folder.at(below)).args(arguments).output().unwrap(),
    )
}

/// A folder with the odd folder, which has a log and its types, and two more.
fn folder() -> Folder {
    let folder = Folder::new();
    for name in [ODD, "saved", "far", &format!("{ODD}/types"), &format!("{ODD}/logs")] {
        std::fs::create_dir(folder.at(name)).unwrap();
    }
    folder.write(&format!("{ODD}/logs/in.lcm"), log(&drive(1, 60)));
    folder.write(&format!("{ODD}/logs/more.lcm"), log(&drive(2, 30)));
    folder.write(&format!("{ODD}/types/point.lcm"), "struct point_t { double x; }\n");
    folder
}

#[test]
fn a_printed_pipeline_reads_and_writes_the_same_files_from_anywhere() {
    for (arguments, output) in [
        (&["logs/in.lcm", "--to", "out.lcm"][..], "out.lcm"),
        (&["./logs/in.lcm", "--to", "deep/../out.jsonl", "--types", "types/"], "out.jsonl"),
        (&["logs/*.lcm", "--to", "{stem}.jsonl", "--types", "types/*.lcm"], "more.jsonl"),
        (
            &["logs/in.lcm", "logs/more.lcm", "--to", "out.lcm.zst", "--types", "mit-dgc"],
            "out.lcm.zst",
        ),
    ] {
        let folder = folder();
        std::fs::create_dir(folder.at(&format!("{ODD}/deep"))).unwrap();
        let convert = [&["convert"], arguments].concat();
        let printed = in_folder(&folder, ODD, &[&convert[..], &["--print-pipeline"]].concat());
        folder.write("saved/x.toml", printed.expect(0).text());
        in_folder(&folder, ODD, &convert).expect(0);
        let output = format!("{ODD}/{output}");
        let here = folder.read(&output);
        std::fs::remove_file(folder.at(&output)).unwrap();
        in_folder(&folder, "far", &["run", "../saved/x.toml", "--overwrite"]).expect(0);
        assert!(!here.is_empty() && folder.read(&output) == here, "{arguments:?}");
        for empty in ["far", "saved"] {
            let names = std::fs::read_dir(folder.at(empty)).unwrap().count();
            assert_eq!(names, usize::from(empty == "saved"), "{empty}: {arguments:?}");
        }
    }
}

#[test]
fn values_that_are_not_paths_are_unchanged() {
    let folder = folder();
    let printed = |arguments: &[&str]| {
        in_folder(&folder, ODD, &[arguments, &["--print-pipeline"]].concat()).expect(0).text()
    };
    let piped = printed(&["convert", "-", "--from", "lcm-log", "--to", "-", "--as", "jsonl"]);
    assert_eq!(piped.matches("path = \"-\"").count(), 2, "{piped}");
    let typed = printed(&["convert", "logs/in.lcm", "--to", "x.csv", "--types", "mit-dgc"]);
    assert!(typed.contains("types = \"mit-dgc\""), "{typed}");
    // A program runs in the folder of the pipeline file by default.
    let command = "command=[\"./w.sh\"]";
    let program = ["convert", "logs/in.lcm", "--to", "x", "--as", "exec", "--sink-option", command];
    let program = printed(&program);
    assert!(program.contains(&format!("{ODD}\"\n")) && program.contains("folder = "), "{program}");
    assert!(program.contains("command = [\"./w.sh\"]"), "{program}");
    let live = printed(&["record", "udpm://239.255.76.67:7667", "--to", "x.lcm"]);
    assert!(live.contains("url = \"udpm://239.255.76.67:7667\""), "{live}");
    assert!(live.contains("$e/x.lcm"), "{live}");
}

/// Paths are relative to the folder of the pipeline file, whatever its name.
#[test]
fn paths_in_a_pipeline_file_are_true_in_any_folder() {
    let folder = folder();
    let file = |input: &str| {
        format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"{input}\"\non_damage = \"quarantine\"\n\
             quarantine = \"bad/{{{{stem}}}}\"\n\
             [sinks.out]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"out.jsonl\"\n"
        )
    };
    folder.write(&format!("{ODD}/x.toml"), file("logs/in.lcm"));
    run_sluice(&folder, &["run", &format!("{ODD}/x.toml")]).expect(0);
    assert!(!folder.read(&format!("{ODD}/out.jsonl")).is_empty());
    // URLs are not relocated.
    folder.write(&format!("{ODD}/s3.toml"), file("s3://bucket/in.lcm"));
    let refused = run_sluice(&folder, &["run", &format!("{ODD}/s3.toml"), "--overwrite"]);
    assert!(!refused.stderr.contains(&format!("{ODD}/s3:")), "{}", refused.stderr);
    assert!(refused.stderr.contains("s3://bucket/in.lcm"), "{}", refused.stderr);
}

/// Direction marks and escapes are printed escaped, and parse to the same values.
#[test]
fn nothing_that_is_printed_of_odd_names_steers_a_terminal() {
    let folder = Folder::new();
    let odd = "\u{1b}31m\u{202e}mcl\n";
    let name = |suffix: &str| format!("{odd}{suffix}");
    let event = LcmEvent::new(0, BEGIN, odd, b"payload");
    folder.write(&name(".lcm"), log(&[event]));
    folder.write(&name("types.lcm"), "struct point_t { double x; }\n");
    let pipeline = "[sources.log]\nplugin = \"lcm-log\"\n\
        path = \"\\u001b31m\\u202emcl\\n.lcm\"\n\
        [stages.keep]\nplugin = \"filter\"\nfrom = \"log\"\nchannels = \"\\u001b\\u202e*\"\n\
        [sinks.out]\nplugin = \"jsonl\"\nfrom = \"keep\"\npath = \"\\u202e\\u001b.jsonl\"\n\
        [sinks.other]\nplugin = \"text\"\nwhen = \"${A:-} == '\u{202e}'\"\nfrom = \"log\"\n";
    folder.write("odd.toml", pipeline);
    folder.write(&name(".toml"), pipeline);
    folder.write("open.toml", pipeline.replace(".jsonl", "${OUT}.jsonl"));
    let (log, types, file) = (name(".lcm"), name("types.lcm"), name(".toml"));
    let verbs: [(&[&str], i32); 18] = [
        (&["check", "odd.toml", &file], 0),
        (&["plan", "odd.toml"], 0),
        (&["plan", "odd.toml", "--json"], 0),
        (&["plan", "open.toml"], 0),
        (&["plan", "open.toml", "--json"], 0),
        (&["graph", "open.toml"], 0),
        (&["graph", "odd.toml", "--format", "dot"], 0),
        (&["run", "odd.toml", "--dry-run"], 0),
        (&["verify", &log], 0),
        (&["verify", &log, &types], 1),
        (&["types", &types], 0),
        (&["types", &types, "--json"], 0),
        (&["info", &log], 0),
        (&["info", "--brief", &log], 0),
        (&["info", "--json", &log], 0),
        (&["cat", &log, &log], 0),
        (&["cat", "--json", &log], 0),
        (&["convert", &log, "--to", &name("o.lcm"), "-c", odd, "--print-pipeline"], 0),
    ];
    for (arguments, code) in verbs {
        let shown = run_sluice(&folder, arguments).expect(code);
        let all = shown.text() + &shown.stderr;
        let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!all.contains(steers), "{arguments:?}: {all:?}");
    }
    let json = run_sluice(&folder, &["info", "--json", &log]).expect(0).text();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["channels"][0]["name"], odd);
    // The printed pipeline can be saved and run.
    let printed =
        run_sluice(&folder, &["convert", &log, "--to", "o.lcm", "-c", odd, "--print-pipeline"]);
    folder.write("saved.toml", printed.expect(0).text());
    run_sluice(&folder, &["run", "saved.toml"]).expect(0);
    assert!(folder.read("o.lcm") == folder.read(&log));
    let report = ["run", "saved.toml", "--overwrite", "--report", "-"];
    let report = run_sluice(&folder, &report).expect(0).text();
    assert!(
        !report.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'),
        "{report:?}"
    );
}
