//! Misspelled channels, fields, types, plugins and times.

use serde_json::{Value, json};

use crate::kit::{Folder, drive, log, run_sluice};

/// A folder with `drive.lcm`, a few seconds of the demo drive, whose types are built in as
/// `mit-dgc`.
fn demo() -> Folder {
    let folder = Folder::new();
    let text = "[sources.demo]\nplugin = \"demo\"\nseconds = 1\n\
                [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"demo\"\npath = \"drive.lcm\"\n";
    folder.write("demo.toml", text);
    run_sluice(&folder, &["run", "demo.toml"]).expect(0);
    std::fs::remove_file(folder.at("demo.toml")).unwrap();
    folder
}

fn report(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("report.json")).unwrap()
}

#[test]
fn a_channel_that_is_nowhere_is_a_warning_with_the_nearest_name() {
    let folder = demo();
    let arguments = ["convert", "drive.lcm", "--to", "out.lcm", "-c", "POES", "-c", "POSE"];
    let more = ["-x", "CAMM*", "--report", "report.json"];
    let done = run_sluice(&folder, &[&arguments[..], &more].concat()).expect(0);
    let done =
        done.expect_stderr("warning: --channel: no channel matches `POES`; did you mean `POSE`?");
    let done = done.expect_stderr("warning: --exclude: no channel matches `CAMM*`");
    assert!(!done.stderr.contains("`POSE`: "), "{}", done.stderr);
    let unmatched = &report(&folder)["unmatched"];
    assert_eq!(unmatched.as_array().unwrap().len(), 2);
    let first = json!({ "node": "keep", "option": "channels", "kind": "channel", "name": "POES",
        "found": "nothing", "nearest": ["POSE"] });
    assert_eq!(unmatched[0], first);
}

#[test]
fn strict_publishes_nothing_where_a_name_matches_nothing() {
    let folder = demo();
    let arguments = ["convert", "drive.lcm", "--to", "out.lcm", "-c", "POES", "-c", "POSE"];
    let strict = ["--strict", "--report", "report.json"];
    run_sluice(&folder, &[&arguments[..], &strict[..]].concat())
        .expect(2)
        .expect_stderr("error: --channel: no channel matches `POES`; did you mean `POSE`?")
        .expect_stderr("error: nothing was published: a name matched nothing");
    assert_eq!(folder.names(), ["drive.lcm", "report.json"]);
    let report = report(&folder);
    assert_eq!((&report["exit"], &report["files"]), (&2.into(), &json!([])));
    assert_eq!(report["unmatched"][0]["name"], "POES");
    let error = report["error"].as_str().unwrap();
    assert!(error.starts_with("nothing was published: a name matched nothing"), "{error}");
    let verified = run_sluice(&folder, &["verify", "report.json"]).expect(1).text();
    assert!(verified.contains("the run failed: nothing was published"), "{verified}");
    run_sluice(&folder, &["cat", "drive.lcm", "-c", "POES", "--strict"])
        .expect(2)
        .expect_stderr("`POSE`?");
    run_sluice(&folder, &["cat", "drive.lcm", "-c", "POES", "--strict", "-q"])
        .expect(2)
        .expect_stderr("error: --channel: no channel matches `POES`");
    run_sluice(&folder, &["cat", "drive.lcm", "-c", "POSE", "--strict"]).expect(0);
    // A run that ends early has not seen all channels.
    run_sluice(&folder, &["cat", "drive.lcm", "-c", "POSE", "-c", "POES", "-n", "1", "--strict"])
        .expect(0);
}

#[test]
fn channels_in_pipeline_files_are_reported_with_their_node() {
    let folder = demo();
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
        [stages.renamed]\nplugin = \"rename\"\nfrom = \"log\"\n\
        channels = [{ from = \"PSE\", to = \"X\" }]\n\
        [stages.thin]\nplugin = \"sample\"\nfrom = \"renamed\"\nevery = 2\nchannels = \"IMAGE_*\"\n\
        [stages.keep]\nplugin = \"filter\"\nfrom = \"thin\"\nsource = \"lgo\"\n\
        [sinks.out]\nplugin = \"null\"\nfrom = \"keep\"\n";
    folder.write("p.toml", text);
    run_sluice(&folder, &["run", "p.toml"])
        .expect(0)
        .expect_stderr(
            "warning: renamed: `channels`: no channel matches `PSE`; did you mean `POSE`?",
        )
        .expect_stderr("warning: thin: `channels`: no channel matches `IMAGE_*`")
        .expect_stderr("warning: keep: `source`: no source matches `lgo`; did you mean `log`?");
    run_sluice(&folder, &["run", "p.toml", "--strict"]).expect(2);
}

#[test]
fn a_channel_is_looked_for_in_all_inputs_of_a_batch() {
    let folder = Folder::new();
    for (name, from) in [("a", "A"), ("b", "B")] {
        let mut events = drive(1, 60);
        events.iter_mut().for_each(|event| event.channel = from.into());
        folder.write(&format!("{name}.lcm"), log(&events));
    }
    let batch = |channels: &[&str], more: &[&str]| {
        let inputs = ["convert", "a.lcm", "b.lcm", "--to", "{stem}.out.lcm"];
        let channels: Vec<&str> = channels.iter().flat_map(|channel| ["-c", channel]).collect();
        run_sluice(&folder, &[&inputs[..], &channels, more].concat())
    };
    let done = batch(&["A", "B"], &["--strict", "--overwrite"]).expect(0);
    assert!(!done.stderr.contains("no channel"), "{}", done.stderr);
    // What an earlier run has done counts as if it had been done again.
    for left in ["b", "a"] {
        std::fs::remove_file(folder.at(&format!("{left}.out.lcm"))).unwrap();
        let done = batch(&["A", "B"], &["--strict", "--resume"]).expect(0);
        assert!(!done.stderr.contains("no channel"), "{}", done.stderr);
    }
    let missed = batch(&["A", "B", "CC"], &["--strict", "--overwrite"]).expect(2);
    for left in [&["a"][..], &["b"], &["a", "b"], &[]] {
        for left in left {
            std::fs::remove_file(folder.at(&format!("{left}.out.lcm"))).unwrap();
        }
        batch(&["A", "B", "CC"], &["--strict", "--resume"]).expect(2).expect_stderr("matches `CC`");
    }
    let missed = missed
        .expect_stderr("error: --channel: no channel matches `CC`")
        .expect_stderr("error: a name matched nothing, and --strict was given");
    assert_eq!(missed.stderr.matches("no channel").count(), 1, "{}", missed.stderr);
}

#[test]
fn channels_that_archives_and_tables_skip_are_known() {
    let folder = demo();
    run_sluice(&folder, &["convert", "drive.lcm", "--to", "drive.lcm.zst"]).expect(0);
    run_sluice(&folder, &["convert", "drive.lcm", "--to", "tables/"]).expect(0);
    for input in ["drive.lcm.zst", "tables/"] {
        let convert = ["convert", input, "--to", "out.lcm", "--overwrite", "-c", "POES"];
        let done = run_sluice(&folder, &[&convert[..], &["-x", "GPS*"]].concat()).expect(0);
        let done = done.expect_stderr("no channel matches `POES`; did you mean `POSE`?");
        assert!(!done.stderr.contains("--exclude"), "{input}: {}", done.stderr);
    }
}

#[test]
fn a_channel_without_events_in_the_window_is_not_misspelled() {
    let folder = Folder::new();
    let mut events = drive(1, 200);
    for (number, event) in events.iter_mut().enumerate() {
        event.channel = if number < 100 { "EARLY".into() } else { "LATE".into() };
    }
    let (first, cut) = (events[0].utime, events[150].utime);
    assert!(cut > first);
    folder.write("in.lcm", log(&events));
    let start = format!("{cut}us");
    let window = ["convert", "in.lcm", "--to", "out.lcm", "--strict", "--start", &start];
    let done = run_sluice(&folder, &[&window[..], &["-c", "EARLY"]].concat()).expect(0);
    assert!(!done.stderr.contains("no channel"), "{}", done.stderr);
    run_sluice(&folder, &[&window[..], &["--overwrite", "-c", "EALRY"]].concat())
        .expect(2)
        .expect_stderr("no channel in the time window matches `EALRY`; did you mean `EARLY`?");
}

#[test]
fn a_field_that_no_type_declares_is_refused_before_anything_is_read() {
    let folder = demo();
    let convert = ["convert", "drive.lcm", "--types", "mit-dgc", "-c", "POSE", "--to", "out.csv"];
    let refused = |more: &[&str]| run_sluice(&folder, &[&convert[..], more].concat()).expect(2);
    refused(&["--field", "poss[0]"])
        .expect_stderr("--field: no declared type has a field `poss[0]`; did you mean `pos[0]`")
        .expect_stderr("pos[0]");
    refused(&["--where", "vell[0] > 3"])
        .expect_stderr("--where: no declared type has a field `vell[0]`");
    run_sluice(&folder, &["convert", "drive.lcm", "--to", "out.jsonl", "--field", "pos"])
        .expect(2)
        .expect_stderr("--types");
    assert_eq!(folder.names(), ["drive.lcm"]);
    run_sluice(
        &folder,
        &[&convert[..], &["--field", "pos[0]", "--where", "vel[0] > -1e9"]].concat(),
    )
    .expect(0);
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
        [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"mit-dgc\"\n\
        [sinks.out]\nplugin = \"jsonl\"\nfrom = \"typed\"\npath = \"out.jsonl\"\n\
        fields = [\"uptime\"]\n";
    folder.write("p.toml", text);
    run_sluice(&folder, &["check", "p.toml"])
        .expect(2)
        .expect_stderr("p.toml:12:10")
        .expect_stderr("did you mean `utime`");
}

#[test]
fn a_field_that_no_type_declares_is_a_mistake_like_any_other() {
    let folder = demo();
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
        [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"mit-dgc\"\n\
        [stages.fast]\nplugin = \"filter\"\nfrom = \"typed\"\nwhere = \"vell[0] > 3\"\n\
        [sinks.out]\nplugin = \"jsonl\"\nfrom = \"fast\"\npath = \"${OUT}\"\n\
        [sinks.no]\nplugin = \"csv\"\nfrom = \"typed\"\nwhen = { NO = \"1\" }\n\
        path = \"no.csv\"\nfields = [\"nope\"]\n";
    folder.write("p.toml", text);
    folder.write("q.toml", text.replace("path = \"${OUT}\"", "path = \"x.jsonl\"\npayload = 1"));
    let mistake = "no declared type has a field `vell[0]`";
    for verb in ["check", "plan", "graph", "run"] {
        for arguments in [&[verb, "p.toml", "--set", "OUT=x.jsonl"], &[verb, "p.toml"][..]] {
            run_sluice(&folder, arguments).expect(2).expect_stderr(mistake);
        }
        let all = run_sluice(&folder, &[verb, "q.toml"]).expect(2);
        all.expect_stderr(mistake).expect_stderr("2 mistakes");
    }
}

#[test]
fn fields_of_nodes_that_are_left_out_may_be_those_of_other_variables() {
    let folder = demo();
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
        [stages.own]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"t.lcm\"\n\
        when = { OWN = \"1\" }\n\
        [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"${TYPES}\"\n\
        [stages.fast]\nplugin = \"filter\"\nfrom = [\"own\", \"typed\"]\n\
        [sinks.all]\nplugin = \"jsonl\"\nfrom = \"fast\"\npath = \"x.jsonl\"\n\
        [sinks.own_fields]\nplugin = \"csv\"\nfrom = \"fast\"\npath = \"own.csv\"\n\
        fields = [\"only_here\"]\nwhen = { OWN = \"1\" }\n\
        [sinks.other_fields]\nplugin = \"csv\"\nfrom = \"typed\"\npath = \"other.csv\"\n\
        fields = [\"other\"]\nwhen = { TYPES = \"other.lcm\" }\n";
    folder.write("t.lcm", "struct t { int32_t only_here; }\n");
    folder.write("other.lcm", "struct other_t { int32_t other; }\n");
    folder.write("p.toml", text);
    for types in ["mit-dgc", "other.lcm"] {
        for own in ["OWN=0", "OWN=1"] {
            let types = format!("TYPES={types}");
            run_sluice(&folder, &["check", "p.toml", "--set", own, "--set", &types]).expect(0);
        }
    }
}

#[test]
fn fields_are_those_of_the_inputs_that_are_left() {
    let folder = demo();
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
        [stages.own]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"t.lcm\"\n\
        when = { OWN = \"1\" }\n\
        [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"mit-dgc\"\n\
        [sinks.out]\nplugin = \"jsonl\"\nfrom = [\"own\", \"typed\"]\npath = \"x.jsonl\"\n\
        fields = [\"only_here\"]\n";
    folder.write("t.lcm", "struct t { int32_t only_here; }\n");
    folder.write("p.toml", text);
    run_sluice(&folder, &["check", "p.toml", "--set", "OWN=1"]).expect(0);
    run_sluice(&folder, &["check", "p.toml", "--set", "OWN=0"])
        .expect(2)
        .expect_stderr("no declared type has a field `only_here`");
}

#[test]
fn a_variable_that_no_file_uses_is_a_warning_of_check() {
    let folder = demo();
    let text = |input: &str| {
        format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"{input}\"\n\
             [sinks.out]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"x.jsonl\"\n"
        )
    };
    folder.write("p.toml", text("drive.lcm"));
    folder.write("q.toml", text("${IN}"));
    run_sluice(&folder, &["check", "p.toml", "--set", "FOO=1"])
        .expect(0)
        .expect_stderr("the variable `FOO` is not used in p.toml");
    let both = ["check", "p.toml", "q.toml", "--set", "IN=x", "--set", "FOO=1"];
    let said = run_sluice(&folder, &both).expect(0).stderr;
    assert!(said.contains("the variable `FOO` is not used in p.toml or q.toml"), "{said}");
    assert!(!said.contains("`IN`"), "{said}");
}

#[test]
fn episodes_without_the_channel_that_they_cut_are_a_warning() {
    let folder = demo();
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
        [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"mit-dgc\"\n\
        [stages.cut]\nplugin = \"episodes\"\nfrom = \"typed\"\n\
        [sinks.out]\nplugin = \"jsonl\"\nfrom = \"cut\"\npath = \"x.jsonl\"\n";
    folder.write("p.toml", text);
    let said = run_sluice(&folder, &["run", "p.toml", "--strict"]).expect(2).stderr;
    assert!(said.contains("no channel matches `aligned`"), "{said}");
    let said = run_sluice(&folder, &["run", "p.toml"]).expect(0).stderr;
    assert!(said.contains("cut: no episodes\n"), "{said}");
    folder.write("q.toml", text.replace("[sinks", "channel = \"aligned\"\n[sinks"));
    let said = run_sluice(&folder, &["run", "q.toml", "--overwrite"]).expect(0).stderr;
    assert_eq!(said.matches("no channel matches `aligned`").count(), 1, "{said}");
}

#[test]
fn every_format_reports_a_channel_without_events_in_the_window() {
    let folder = demo();
    run_sluice(&folder, &["convert", "drive.lcm", "--to", "drive.lcm.zst"]).expect(0);
    run_sluice(&folder, &["convert", "drive.lcm", "--to", "drive.parquet"]).expect(0);
    run_sluice(&folder, &["convert", "drive.lcm", "--to", "tables/"]).expect(0);
    for input in ["drive.lcm", "drive.lcm.zst", "drive.parquet", "tables/"] {
        let window = ["convert", input, "--to", "out.jsonl", "--overwrite", "--start", "+0.5"];
        // Only at the start were there events.
        let channels = ["-c", "LCM_SELF_TEST", "-c", "POSE", "--strict"];
        let done = run_sluice(&folder, &[&window[..], &channels].concat()).expect(0);
        let done = done.expect_stderr(
            "note: --channel: `LCM_SELF_TEST`: the channel has no event in the time window",
        );
        assert!(!done.stderr.contains("`POSE`"), "{input}: {}", done.stderr);
    }
}

#[test]
fn a_renamed_channel_is_reported_with_its_new_name() {
    let folder = demo();
    let pipeline = |channels: &str| {
        format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
             [stages.renamed]\nplugin = \"rename\"\nfrom = \"log\"\nmap = {{ POSE = \"EGO\" }}\n\
             [stages.few]\nplugin = \"limit\"\nfrom = \"renamed\"\nevents = 1000\n\
             [stages.keep]\nplugin = \"filter\"\nfrom = \"few\"\nchannels = [{channels}]\n\
             [sinks.out]\nplugin = \"null\"\nfrom = \"keep\"\n"
        )
    };
    folder.write("old.toml", pipeline("\"POSE\", \"BROOM_L\""));
    let old = run_sluice(&folder, &["run", "old.toml", "--report", "report.json"]).expect(0);
    old.expect_stderr(
        "keep: `channels`: no channel is called `POSE` there: an earlier stage \
        renamed it to `EGO`",
    );
    assert_eq!(report(&folder)["unmatched"][0]["found"], "renamed");
    run_sluice(&folder, &["run", "old.toml", "--strict"]).expect(2);
    folder.write("new.toml", pipeline("\"EGO\", \"BROOM_L\""));
    run_sluice(&folder, &["run", "new.toml", "--strict"]).expect(0);
}

#[test]
fn names_in_templates_and_in_keys_of_tables_are_names_too() {
    let folder = demo();
    let run = |stages: &str, sink: &str| {
        let log = "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n";
        folder.write("p.toml", format!("{log}{stages}[sinks.out]\nfrom = \"s\"\n{sink}\n"));
        run_sluice(&folder, &["run", "p.toml", "--strict"]).expect(2)
    };
    let decode = "[stages.s]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"mit-dgc\"\n";
    let raw = "[stages.s]\nplugin = \"filter\"\nfrom = \"log\"\n";
    let text = "plugin = \"text\"\npath = \"o.txt\"\n";
    for (stages, sink, message) in [
        (decode, r#"line = "{utme}""#, "no declared type has a field `utme`"),
        (raw, r#"line = "{channel} {utime}""#, "`line`: no event has a field `utime`"),
        (decode, r#"line = { POES = "{utime}" }"#, "`line`: no channel matches `POES`"),
    ] {
        run(stages, &format!("{text}{sink}")).expect_stderr(message);
    }
    let files = "plugin = \"files\"\npath = \"o/\"\nname = \"{utme}\"";
    run(decode, files).expect_stderr("no declared type has a field `utme`");
    for (plugin, option) in [
        ("laser", r#"mounts = { POES = "BROOM_C" }"#),
        ("to-frame", r#"mounts = { POES = "BROOM_C" }"#),
        ("gaps", "rates = { POES = 3 }"),
    ] {
        let stage = format!("[stages.s]\nplugin = \"{plugin}\"\nfrom = \"log\"\n{option}\n");
        run(&stage, "plugin = \"null\"").expect_stderr("no channel matches `POES`");
    }
    assert_eq!(folder.names(), ["drive.lcm", "p.toml"]);
}

#[test]
fn fields_are_suggested_where_the_source_itself_has_decoded_them() {
    let folder = demo();
    run_sluice(&folder, &["convert", "drive.lcm", "--types", "mit-dgc", "--to", "tables/"])
        .expect(0);
    let convert = |more: &[&str]| {
        let tables = ["convert", "tables/", "-c", "POSE", "--overwrite", "--to"];
        run_sluice(&folder, &[&tables[..], more].concat())
    };
    convert(&["out.csv", "--field", "utme"])
        .expect(0)
        .expect_stderr("--field: no event has a field `utme`; did you mean `utime`?");
    convert(&["out.jsonl", "--field", "poss[0]"])
        .expect(0)
        .expect_stderr("no event has a field `poss[0]`; did you mean `pos[0]` or `pos[1]`");
    let condition = ["out.jsonl", "--where", "vell[0] > 0"];
    convert(&condition).expect(0).expect_stderr(
        "--where: no event has a field `vell[0]`; did you mean `vel[0]` or `vel[1]`",
    );
    convert(&[&condition[..], &["--strict"]].concat())
        .expect(2)
        .expect_stderr("nothing was published");
    convert(&["out.jsonl", "--where", "vel[0] > -1e9", "--field", "pos[0]", "--strict"]).expect(0);
}

#[test]
fn a_channel_that_is_not_to_be_played_exists_all_the_same() {
    let folder = Folder::new();
    let log = crate::kit::root().join("plugins/orca/testdata/disabled_skipped/master.log");
    let log = log.to_str().unwrap();
    let convert = |channel: &str| {
        let convert = ["convert", log, "--to", "out.jsonl", "--overwrite", "--strict"];
        let disabled = ["--source-option", "disabled=skip", "-c", channel];
        run_sluice(&folder, &[&convert[..], &disabled].concat())
    };
    convert("orca.Power").expect(0);
    convert("orca.Powr").expect(2).expect_stderr("did you mean `orca.Power`?");
}

#[test]
fn types_plugins_and_sets_of_types_are_suggested() {
    let folder = demo();
    let convert = ["convert", "drive.lcm", "--to", "out.jsonl", "--types"];
    let with = |more: &[&str]| run_sluice(&folder, &[&convert[..], more].concat()).expect(2);
    with(&["mit-dgc", "--type", "POSE=pose_t"])
        .expect_stderr("--type: no type `pose_t` is declared; did you mean");
    with(&["mit-dcg"]).expect_stderr("did you mean the built-in types `mit-dgc`?");
    run_sluice(&folder, &["convert", "drive.lcm", "--to", "a.lcm", "--type", "POSE=a.pose_t"])
        .expect(2)
        .expect_stderr("--types: no types are declared: name files");
    let align = ["--align", "10Hz", "-f", "POSE.pos", "--type", "POSE=lcmtypes.pose_t"];
    run_sluice(&folder, &[&convert[..3], &["rows.csv"], &align].concat()).expect(0);
    run_sluice(&folder, &["plugins", "parqet"]).expect(2).expect_stderr("did you mean `parquet`?");
    run_sluice(&folder, &["plugins", "mit-dgc"]).expect(2).expect_stderr("`sluice types mit-dgc`");
    run_sluice(&folder, &["types", "embedded"]).expect(0).expect_stderr("each log declares itself");
    run_sluice(&folder, &["types", "mit-dcg"])
        .expect(2)
        .expect_stderr("did you mean the built-in types `mit-dgc`?");
    let to = ["convert", "drive.lcm", "--to", "-", "--as", "jsonll"];
    run_sluice(&folder, &to).expect(2).expect_stderr("no sink `jsonll`; did you mean `jsonl`?");
}

#[test]
fn a_time_without_its_plus_is_never_1970() {
    let folder = demo();
    for time in ["2s", "2", "1m", "0.5"] {
        let cat = run_sluice(&folder, &["cat", "drive.lcm", "--start", time]).expect(2);
        cat.expect_stderr(&format!("write `+{time}`"));
    }
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
        [stages.cut]\nplugin = \"time\"\nfrom = \"log\"\nclip_start = \"2s\"\n\
        [sinks.out]\nplugin = \"null\"\nfrom = \"cut\"\n";
    folder.write("p.toml", text);
    run_sluice(&folder, &["check", "p.toml"])
        .expect(2)
        .expect_stderr("p.toml:7:14")
        .expect_stderr("write `+2s`");
    for time in ["1194098400", "2000000000ns", "1970-01-01T00:00:02Z", "0"] {
        run_sluice(&folder, &["cat", "drive.lcm", "--start", time, "-n", "1"]).expect(0);
    }
}

#[test]
fn mistakes_in_a_command_line_name_its_flags() {
    let folder = demo();
    let refused = |more: &[&str]| {
        let failed = run_sluice(&folder, &[&["convert", "drive.lcm"], more].concat()).expect(2);
        assert!(!failed.stderr.contains("the pipeline made for it"), "{}", failed.stderr);
        failed
    };
    refused(&["--to", "out.jsonl", "--sink-option", "levle=3"])
        .expect_stderr("--sink-option levle: `jsonl` has no option `levle`");
    refused(&["--to", "o.jsonl", "--types", "nowhere.lcm"]).expect_stderr("--types: ");
    refused(&["--to", "out.lcm", "--start", "+5", "--end", "+3"]).expect_stderr("--end: ");
    refused(&["--to", "out.csv", "--types", "mit-dgc", "--where", "vel[0] >> 3"])
        .expect_stderr("--where: at column");
}

#[test]
fn a_strict_batch_reports_its_exit_code() {
    let folder = Folder::new();
    let bytes = log(&drive(1, 60));
    folder.write("a.lcm", &bytes);
    folder.write("b.lcm", [&bytes[..], b"stray", &bytes].concat());
    let batch = ["convert", "a.lcm", "b.lcm", "--to", "o/{stem}.lcm", "-c", "PSOE", "--strict"];
    let more = ["--report", "report.json", "--log-format", "json"];
    let ran = run_sluice(&folder, &[&batch[..], &more].concat()).expect(2);
    assert_eq!(report(&folder)["exit"], 2);
    let lines = ran.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let summary = lines.iter().find(|line| line["kind"] == "summary").unwrap();
    assert_eq!(summary["exit"], 2);
    assert!(lines.iter().any(|line| line["level"] == "error"), "{lines:#?}");
}

#[test]
fn the_channel_of_a_time_base_is_reported_with_its_flag() {
    let folder = demo();
    for output in ["out.jsonl", "out/{stem}.jsonl"] {
        let convert = ["convert", "drive.lcm", "--to", output, "-f", "POSE.vel", "--align", "PSOE"];
        let done = run_sluice(&folder, &convert).expect(0);
        done.expect_stderr("--align: no channel matches `PSOE`; did you mean `POSE`?");
    }
}

#[test]
fn a_regular_expression_is_reported_with_its_flag() {
    let folder = demo();
    let record = ["record", "file://drive.lcm", "--force", "--to", "out.lcm", "--regex", "PO.E|P"];
    let done = run_sluice(&folder, &record).expect(0);
    assert!(!done.stderr.contains("no channel"), "{}", done.stderr);
    for more in [&["--regex", "PSOE.*"][..], &["--regex", "PSOE.*", "-v"]] {
        run_sluice(&folder, &[&record[..5], more].concat())
            .expect(0)
            .expect_stderr("--regex: no channel matches `PSOE.*`");
    }
}

#[test]
fn names_that_an_earlier_run_did_not_find_are_told_again() {
    let folder = demo();
    let convert = ["convert", "drive.lcm", "--to", "tables/", "-c", "POSE", "-c", "POES"];
    run_sluice(&folder, &convert).expect(0).expect_stderr("no channel matches `POES`");
    let resume = [&convert[..], &["--resume"]].concat();
    run_sluice(&folder, &resume)
        .expect(0)
        .expect_stderr("already done")
        .expect_stderr("warning: --channel: no channel matches `POES`");
    run_sluice(&folder, &[&resume[..], &["--strict"]].concat()).expect(2);
}
