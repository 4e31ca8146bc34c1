//! Options known from other programs, and verbs that a build lacks.

use crate::kit::{Folder, drive, log, run_sluice};

fn folder_with_log() -> Folder {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 20)));
    folder
}

#[test]
fn the_output_is_also_named_as_other_programs_do() {
    let folder = folder_with_log();
    for output in [&["-o", "a.lcm"][..], &["--output", "b.lcm"], &["-oc.lcm"]] {
        run_sluice(&folder, &[&["convert", "in.lcm"], output].concat()).expect(0);
    }
    for copy in ["a.lcm", "b.lcm", "c.lcm"] {
        assert!(folder.read(copy) == folder.read("in.lcm"), "{copy}");
    }
    // An output can be named only once.
    run_sluice(&folder, &["convert", "in.lcm", "-o", "x.lcm", "--to", "y.lcm"]).expect(2);
    assert_eq!(folder.names(), ["a.lcm", "b.lcm", "c.lcm", "in.lcm"]);
}

#[test]
fn no_verb_runs_with_a_memory_of_nothing() {
    let folder = folder_with_log();
    folder.write("run.toml", "memory = 0\n");
    for arguments in [
        &["convert", "in.lcm", "--to", "out.lcm", "--memory", "0"][..],
        &["check-log", "in.lcm", "--expect", "x.toml", "--memory", "0KiB"],
        &["play", "in.lcm", "--max-bandwidth", "0"],
        &["check", "run.toml"],
    ] {
        run_sluice(&folder, arguments).expect(2).expect_stderr("expected a size above 0");
    }
}

#[test]
fn a_mistake_in_a_channel_pattern_is_one_line() {
    let refused = run_sluice(&folder_with_log(), &["cat", "in.lcm", "--channel", "re:(?!A).*"]);
    refused.expect(2).expect_stderr(
        "'--channel <GLOB>': `(?!A).*` is not a regular expression: look-around, including \
         look-ahead and look-behind, is not supported, at character 1\n\n",
    );
}

#[test]
fn rows_may_tolerate_no_distance() {
    let folder = Folder::new();
    let events = ["0,A,0", "100000000,A,1", "250000000,A,2", "300000000,A,3"];
    folder.write("in.csv", format!("timestamp_ns,channel,v\n{}\n", events.join("\n")));
    let align = |tolerance: &str| {
        let convert = ["convert", "in.csv", "--align", "10Hz", "-f", "A.v", "--to", "out.jsonl"];
        let tolerance = ["--overwrite", "--tolerance", tolerance];
        run_sluice(&folder, &[&convert[..], &tolerance].concat())
    };
    align("0").expect(0);
    let rows = String::from_utf8(folder.read("out.jsonl")).unwrap();
    assert_eq!(rows.lines().count(), 3, "{rows}");
    for (tolerance, expected) in
        [("2h", "expected a duration from 0 to 1h"), ("soon", "`soon` is not a duration")]
    {
        align(tolerance).expect(2).expect_stderr("--tolerance: ").expect_stderr(expected);
    }
}

#[test]
fn force_replaces_outputs_as_overwrite_does() {
    let folder = folder_with_log();
    folder.write("out.lcm", "of yesterday");
    run_sluice(&folder, &["convert", "in.lcm", "--to", "out.lcm"])
        .expect(1)
        .expect_stderr("--overwrite");
    assert_eq!(folder.read("out.lcm"), b"of yesterday");
    run_sluice(&folder, &["convert", "in.lcm", "--to", "out.lcm", "--force"]).expect(0);
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
    let both = ["convert", "in.lcm", "--to", "out.lcm", "--force", "--resume"];
    run_sluice(&folder, &both).expect(2).expect_stderr("cannot be used with");
}

#[test]
fn options_of_other_programs_are_answered_with_ours() {
    let folder = folder_with_log();
    for (arguments, advice) in [
        (&["run", "quickstart", "-o", "x"][..], "--set OUT=PATH"),
        (&["run", "quickstart", "-f"], "--overwrite"),
        (&["cat", "in.lcm", "-o", "x"], "> FILE"),
        (&["info", "in.lcm", "--output=x"], "> FILE"),
        (&["play", "in.lcm", "-o", "x"], "--to"),
        (&["convert", "-i", "in.lcm", "--to", "x"], "without an option"),
        (&["convert", "in.lcm", "--to", "x.lcm", "--topic", "A"], "'--channel'"),
        (&["convert", "in.lcm", "--to", "x", "--format", "csv"], "'--as'"),
        (&["cat", "in.lcm", "--format", "vel"], "'--from'"),
        (&["convert", "in.lcm", "--to", "x.lcm", "--threads", "2"], "'--jobs'"),
        (&["convert", "in.lcm", "--to", "x.lcm", "--set", "A=b"], "'--sink-option'"),
    ] {
        let refused = run_sluice(&folder, arguments).expect(2).expect_stderr(advice);
        assert!(!refused.stderr.contains("similar argument"), "{}", refused.stderr);
        let as_json = [arguments, &["--log-format", "json"]].concat();
        let object = run_sluice(&folder, &as_json).expect(2).stderr;
        let object: serde_json::Value = serde_json::from_str(&object).unwrap();
        assert!(object["hint"].as_str().is_some_and(|hint| hint.contains(advice)), "{object}");
    }
    // Misspelled options still get a similar one suggested.
    run_sluice(&folder, &["cat", "in.lcm", "--chanel", "A"]).expect(2).expect_stderr("'--channel'");
    assert_eq!(folder.names(), ["in.lcm"]);
}

#[test]
fn a_conversion_without_an_output_says_how_to_give_it() {
    let folder = folder_with_log();
    for (arguments, example) in [
        (&["in.lcm", "out.csv"][..], "sluice convert in.lcm --to out.csv"),
        (&["in.lcm", "in.lcm", "out/"], "sluice convert in.lcm ... --to out/"),
        (&["in.lcm", "in.lcm"], "sluice convert IN --to OUT"),
        (&["in.lcm", "a b.csv"], "sluice convert IN --to OUT"),
        (&["in.lcm", "--overwrite"], "sluice convert IN --to OUT"),
    ] {
        let arguments = [&["convert"], arguments].concat();
        let tip = format!("the output is given with --to: {example}\n");
        run_sluice(&folder, &arguments).expect(2).expect_stderr("  --to <OUT>").expect_stderr(&tip);
    }
    let other = run_sluice(&folder, &["convert", "--to", "x.csv"]).expect(2);
    assert!(!other.stderr.contains("is given with"), "{}", other.stderr);
}

#[test]
fn an_unknown_option_of_a_packed_log_is_one_of_the_archive() {
    let folder = folder_with_log();
    let convert = ["convert", "in.lcm", "--to", "out.lcm.zst", "--sink-option"];
    let refused = run_sluice(&folder, &[&convert[..], &["foo=1"]].concat()).expect(2);
    refused.expect_stderr("--sink-option foo: `archive` has no option `foo`");
    run_sluice(&folder, &[&convert[..], &["frame=8MiB"]].concat()).expect(0);
    run_sluice(&folder, &[&convert[..], &["append=true"]].concat()).expect(0);
}

#[test]
fn verbs_that_this_program_lacks_are_not_offered_and_say_how_to_get_them() {
    let folder = folder_with_log();
    let help = run_sluice(&folder, &["--help"]).expect(0).text();
    let (verbs, lacking) = help.split_once("Not in this program").unwrap();
    for verb in ["query", "cluster"] {
        assert!(!verbs.lines().any(|line| line.trim_start().starts_with(verb)), "{help}");
        assert!(lacking.contains(&format!("`{verb}`")), "{help}");
    }
    let build = "cargo build --release --manifest-path full/Cargo.toml";
    assert!(lacking.contains(build), "{help}");
    assert!(!run_sluice(&folder, &["run", "--help"]).expect(0).text().contains("ballista"));
    for (arguments, part) in [
        (&["query", "select 1", "in.lcm"][..], "SQL over logs"),
        (&["query", "--frobnicate"], "SQL over logs"),
        (&["query", "--help"], "SQL over logs"),
        (&["cluster"], "runs on a cluster"),
        (&["cluster", "status"], "runs on a cluster"),
        (&["run", "quickstart", "--engine", "ballista"], "runs on a cluster"),
    ] {
        let refused =
            run_sluice(&folder, arguments).expect(2).expect_stderr(part).expect_stderr(build);
        assert!(refused.text().is_empty(), "{}", refused.text());
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
    run_sluice(&folder, &["help", "query"]).expect(2).expect_stderr(build);
}

#[test]
fn an_extension_of_no_format_is_refused_with_those_that_there_are() {
    let folder = folder_with_log();
    for (to, near) in [("x.json", "did you mean `.jsonl`?"), ("x.db3", "`.mcap`")] {
        run_sluice(&folder, &["convert", "in.lcm", "--to", to])
            .expect(2)
            .expect_stderr(near)
            .expect_stderr("`.csv`, ");
    }
}

#[test]
fn a_value_that_is_not_a_name_is_refused_with_the_names() {
    let folder = folder_with_log();
    run_sluice(&folder, &["convert", "in.lcm", "--to", "x.csv", "--sink-option", "payload=true"])
        .expect(2)
        .expect_stderr("--sink-option payload: expected a name, found a boolean; it takes \"none\"")
        .expect_stderr("\"text\"");
}

#[test]
fn options_that_an_error_names_can_be_given_as_it_says() {
    let folder = Folder::new();
    folder.write("odd.csv", "%time;x\n1194098400000000000;2\n");
    let cat = |options: &[&str]| {
        let options = options.iter().flat_map(|option| ["--source-option", option]);
        let all: Vec<&str> = ["cat", "odd.csv"].into_iter().chain(options).collect();
        run_sluice(&folder, &all)
    };
    cat(&[]).expect(1).expect_stderr("`--source-option 'delimiter=;'`");
    let cut = ["delimiter=;", "timestamp=%time", "unit=ns"];
    cat(&cut[..1]).expect(1).expect_stderr("`--source-option timestamp=%time`");
    cat(&cut[..2]).expect(3).expect_stderr("`--source-option unit=ns`");
    assert!(cat(&cut).expect(0).text().starts_with("2007-11-03T14:00:00"));
    folder.write("odd.csv", "1,2\n");
    cat(&["header=false"]).expect(2).expect_stderr("`--source-option columns=t,x,y`");
    cat(&["header=false", "columns=t,x"]).expect(0);
    folder.write("odd.csv", "t\tx\n1\t2\n");
    cat(&[]).expect(1).expect_stderr(r#"`--source-option 'delimiter="\t"'`"#);
    assert!(cat(&[r#"delimiter="\t""#]).expect(0).text().contains(r#"{"x":2.0}"#));
}

#[test]
fn fields_are_named_by_the_option_that_gives_them() {
    let folder = Folder::new();
    let text = "[sources.demo]\nplugin = \"demo\"\nseconds = 1\n\
                [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"demo\"\npath = \"drive.lcm\"\n";
    folder.write("demo.toml", text);
    run_sluice(&folder, &["run", "demo.toml"]).expect(0);
    let convert = |more: &[&str]| {
        let arguments = ["convert", "drive.lcm", "--overwrite", "--to", "out.csv", "-c", "POSE"];
        run_sluice(&folder, &[&arguments[..], more].concat())
    };
    let types = ["--types", "mit-dgc"];
    for (given, flag) in [
        (["--field", "poss[0]"], "--field"),
        (["--sink-option", "fields=poss[0]"], "--sink-option fields"),
        (["--sink-option", "fields=[\"poss[0]\"]"], "--sink-option fields"),
    ] {
        let said = format!("{flag}: no declared type has a field `poss[0]`; did you mean `pos[0]`");
        convert(&[given, types].concat()).expect(2).expect_stderr(&said);
        let said = format!("{flag}: only decoded messages have fields");
        convert(&given).expect(2).expect_stderr(&said);
    }
    for (given, flag) in [("--field", "--field"), ("--sink-option", "--sink-option fields")] {
        let path = if given == "--field" { "ranges" } else { "fields=ranges" };
        let said = format!("{flag}: no event has a field `ranges`");
        convert(&[&[given, path], &types[..]].concat()).expect_stderr(&said);
    }
}
