//! Pipeline files with mistakes: all are reported, and nothing is opened.

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::kit::{Folder, drive, log, run_sluice};

const MANY: &str = r#"name = "many"
memory = "512 MoB"
colour = "blue"

[sources.log]
plugin = "lmc-log"
path = "pipe.lcm"

[stages.keep]
plugin = "filter"
from = "lgo"
chanels = ["POSE"]

[sinks.out]
plugin = "jsonl"
from = "keep"
path = "${NOWHERE}"
"#;

#[test]
fn every_mistake_is_shown_with_its_place() {
    let folder = Folder::new();
    folder.write("many.toml", MANY);
    let checked = run_sluice(&folder, &["check", "many.toml"]).expect(2);
    let places = ["2:10", "3:1", "6:10", "11:8", "12:1", "17:8"];
    for place in places {
        let place = format!("many.toml:{place}");
        assert!(checked.stderr.contains(&place), "no {place} in:\n{}", checked.stderr);
    }
    let suggested = ["`lcm-log`", "`log`", "`channels`", "--set NOWHERE="];
    let checked = suggested.into_iter().fold(checked, |checked, word| checked.expect_stderr(word));
    let checked = checked.expect_stderr("6 mistakes in many.toml").expect_stderr("^^^^");
    assert_eq!(checked.text(), "");
    // Running an invalid file prints the same and does nothing.
    assert_eq!(run_sluice(&folder, &["run", "many.toml"]).expect(2).stderr, checked.stderr);
    assert_eq!(folder.names(), ["many.toml"]);
}

#[test]
fn a_mistake_in_one_table_of_a_list_hides_none_in_another() {
    let folder = Folder::new();
    let rename = "[stages.names]\nplugin = \"rename\"\nfrom = \"demo\"\n\
                  channels = [{ from = \"A\", to = \"B\", xx = 1 }, \"x\"]\n";
    let ends = "[sources.demo]\nplugin = \"demo\"\n[sinks.out]\nplugin = \"jsonl\"\n\
                from = \"names\"\npath = \"out.jsonl\"\n";
    folder.write("list.toml", format!("{rename}{ends}"));
    let checked = run_sluice(&folder, &["check", "list.toml"]).expect(2);
    let checked = checked.expect_stderr("list.toml:4:37").expect_stderr("list.toml:4:47");
    drop(checked.expect_stderr("2 mistakes in list.toml"));
}

#[test]
fn every_file_named_is_checked() {
    let folder = Folder::new();
    folder.write("many.toml", MANY);
    folder.write("broken.toml", "[sources");
    let checked =
        run_sluice(&folder, &["check", "many.toml", "broken.toml", "quickstart"]).expect(2);
    let checked = checked.expect_stderr("many.toml:2:10").expect_stderr("broken.toml:1:");
    assert!(checked.text().contains("quickstart"), "{}", checked.text());
}

/// Opening the pipe would block forever.
#[test]
fn checking_opens_no_input() {
    let folder = Folder::new();
    mknodat(CWD, folder.at("pipe.lcm"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = [\"pipe.lcm\", \"nowhere.lcm\"]\n\
        [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"nowhere/out.lcm\"\n";
    folder.write("pipe.toml", text);
    run_sluice(&folder, &["check", "pipe.toml"]).expect(0);
    run_sluice(&folder, &["graph", "pipe.toml"]).expect(0);
    assert_eq!(folder.names(), ["pipe.lcm", "pipe.toml"]);
}

#[test]
fn the_pipeline_of_convert_can_be_saved_and_run() {
    let folder = Folder::new();
    folder.write("in.lcm", crate::kit::log(&crate::kit::drive(1, 200)));
    let convert = [
        "convert", "in.lcm", "--to", "out.lcm", "-c", "[A-C]", "-x", "B", "--start", "+0.01",
        "--end", "+0.15",
    ];
    let printed = run_sluice(&folder, &[&convert[..], &["--print-pipeline"]].concat()).expect(0);
    assert_eq!(folder.names(), ["in.lcm"]);
    folder.write("saved.toml", printed.text());
    run_sluice(&folder, &convert).expect(0);
    let converted = folder.read("out.lcm");
    run_sluice(&folder, &["run", "saved.toml", "--overwrite"]).expect(0);
    assert!(!converted.is_empty() && folder.read("out.lcm") == converted);
    let names = "odd \"name\" \\ ${HOME} $$.lcm";
    folder.write(names, folder.read("in.lcm"));
    let odd =
        run_sluice(&folder, &["convert", names, "--to", "odd.lcm", "--print-pipeline"]).expect(0);
    folder.write("odd.toml", odd.text());
    run_sluice(&folder, &["run", "odd.toml"]).expect(0);
    assert!(folder.read("odd.lcm") == folder.read("in.lcm"));
}

#[test]
fn a_dry_run_does_nothing() {
    let folder = Folder::new();
    folder.write("in.lcm", crate::kit::log(&crate::kit::drive(1, 20)));
    let dry = run_sluice(&folder, &["convert", "in.lcm", "--to", "out.lcm", "--dry-run"]).expect(0);
    assert!(dry.text().contains("in.lcm") && dry.text().contains("out.lcm"), "{}", dry.text());
    assert_eq!(folder.names(), ["in.lcm"]);
    folder.write("two.lcm", folder.read("in.lcm"));
    let to = ["convert", "*.lcm", "--to", "out/{stem}.jsonl", "--dry-run", "--shard", "2/2"];
    let dry = run_sluice(&folder, &to).expect(0);
    assert!(dry.text().contains("two.lcm") && !dry.text().contains("in.lcm"), "{}", dry.text());
    run_sluice(&folder, &["convert", "in.lcm", "--to", "out.lcm", "--dry-run", "--shard", "2/2"])
        .expect(2)
        .expect_stderr("named after inputs");
}

#[test]
fn a_condition_in_its_former_form_is_noted_by_check_and_run_whether_it_holds_or_not() {
    let folder = Folder::new();
    folder.write("one.lcm", log(&drive(1, 3)));
    let pipeline = |when: &str| {
        format!(
            "[sources.s]\nplugin = \"lcm-log\"\npath = \"one.lcm\"\n\
             [sinks.all]\nplugin = \"null\"\nfrom = \"s\"\n\
             [sinks.k]\nplugin = \"jsonl\"\nfrom = \"s\"\npath = \"o.jsonl\"\nwhen = {when}\n"
        )
    };
    folder.write("former.toml", pipeline("\"${W:-} == yes\""));
    let note = "k: `when` as a string is outdated: write `when = { W = \"yes\" }`";
    for value in ["W=yes", "W=no"] {
        let given = ["former.toml", "--set", value];
        let checked = run_sluice(&folder, &[&["check"], &given[..]].concat()).expect(0).text();
        assert!(checked.contains(note), "{checked}");
        run_sluice(&folder, &[&["run"], &given[..]].concat()).expect(0).expect_stderr(note);
    }
    // A word is no variable: the output would always be left out.
    folder.write("words.toml", pipeline("\"W == yes\""));
    for verb in ["check", "run"] {
        run_sluice(&folder, &[verb, "words.toml", "--set", "W=yes"])
            .expect(2)
            .expect_stderr("found two words")
            .expect_stderr("write `when = { W = \"yes\" }`");
    }
}

#[test]
fn outputs_that_a_sink_cannot_write_are_mistakes_of_the_file() {
    let folder = Folder::new();
    folder.write("a.lcm", log(&drive(3, 10)));
    let no_folder = "expected a file, found a folder: x/";
    let cases = [
        ("jsonl", "path = \"x/\"", no_folder),
        ("csv", "path = \"x/\"", no_folder),
        ("text", "line = \"{channel}\"\npath = \"x/\"", no_folder),
        ("archive", "path = \"x/\"", no_folder),
        ("expectations", "path = \"x/\"", no_folder),
        ("mcap", "path = \"x/\"", no_folder),
        ("vel", "path = \"x/\"", no_folder),
        ("csv", "path = \"x.csv\"\nevent_columns = []\nfields = []", "would have no column"),
        ("lcm-log", "path = \"-\"\nsplit_mb = 1", "standard output is one"),
        ("lcm-log", "path = \"-\"\nappend = true", "continues a single file"),
        ("lcm-log", "path = \"x/\"\nappend = true", "continues a single file"),
        ("lcm-log", "path = \"x.lcm\"\nappend = true\nsplit_mb = 1", "continues a single file"),
    ];
    for (sink, options, message) in cases {
        let source = "[sources.log]\nplugin = \"lcm-log\"\npath = \"a.lcm\"\n";
        let sink = format!("[sinks.out]\nplugin = \"{sink}\"\nfrom = \"log\"\n{options}\n");
        folder.write("p.toml", format!("{source}{sink}"));
        for verb in ["check", "run"] {
            let refused = run_sluice(&folder, &[verb, "p.toml"]).expect(2);
            refused.expect_stderr(message).expect_stderr("--> p.toml:");
        }
    }
    assert_eq!(folder.names(), ["a.lcm", "p.toml"]);
}

#[test]
fn values_of_no_accepted_form_are_told_what_is_accepted() {
    let folder = Folder::new();
    folder.write(
        "forms.toml",
        "[sources.log]\nplugin = \"records\"\npath = \"a.log\"\n\
         head = [{ name = \"a\", type = \"u8\", bits = { x = true } }]\n\
         [stages.views]\nplugin = \"foxglove\"\nfrom = \"log\"\n\
         map = [{ image = { data = \"image\", width = true } }]\n\
         [sinks.none]\nplugin = \"null\"\nfrom = \"views\"\n",
    );
    run_sluice(&folder, &["check", "forms.toml"])
        .expect(2)
        .expect_stderr("expected a bit such as 3, or a range such as \"4-6\", found a boolean")
        .expect_stderr("expected a number, or a field, found a boolean")
        .expect_stderr("2 mistakes in forms.toml");
}

#[test]
fn a_codec_in_a_stage_and_a_file_in_another_encoding_are_said_how_to_mend() {
    let folder = Folder::new();
    let text = "[sources.demo]\nplugin = \"demo\"\n[stages.typed]\nplugin = \"lcm\"\n\
                from = \"demo\"\n[sinks.out]\nplugin = \"null\"\nfrom = \"typed\"\n";
    folder.write("codec.toml", text);
    run_sluice(&folder, &["check", "codec.toml"])
        .expect(2)
        .expect_stderr("stages such as `decode` find codecs by themselves");
    folder.write("latin.toml", b"# a\n# \xfc\n".as_slice());
    run_sluice(&folder, &["check", "latin.toml"])
        .expect(2)
        .expect_stderr("line 2 is not UTF-8: save a pipeline file as UTF-8");
}
