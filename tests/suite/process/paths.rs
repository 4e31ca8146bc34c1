//! What the program makes of paths in arguments and pipeline files: URLs, names that are not UTF-8,
//! links to nothing, and `-` where a file is expected.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use crate::kit::{Folder, ProgramOutput, drive, events, log, root, run_sluice, sluice};

fn folder_with_log() -> Folder {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 300)));
    folder
}

#[test]
fn a_file_url_is_read_and_written_as_its_path_is() {
    let folder = folder_with_log();
    let url = |name: &str| format!("file://{}/{name}", folder.path().display());
    run_sluice(&folder, &["convert", &url("in.lcm"), "--to", &url("a%20b.csv")]).expect(0);
    run_sluice(&folder, &["convert", "in.lcm", "--to", "plain.csv"]).expect(0);
    assert!(folder.read("a b.csv") == folder.read("plain.csv"));
    run_sluice(&folder, &["convert", &url("in.lcm"), "--to", &url("out.lcm.zst")]).expect(0);
    run_sluice(&folder, &["convert", &url("out%2elcm%2Ezst"), "--to", &url("back")]).expect(0);
    assert_eq!(events(&folder.read("back")).len(), 300);
    run_sluice(&folder, &["convert", "in.lcm", "--to", &url("tables/")]).expect(0);
    assert!(folder.at("tables/_manifest.json").exists());
    run_sluice(&folder, &["convert", "in.lcm", "--to", &url("out.bag")])
        .expect(2)
        .expect_stderr("is not that of a format that this program writes");
    assert!(!folder.names().iter().any(|name| name.contains(':')), "{:?}", folder.names());
}

#[test]
fn verify_takes_the_url_of_a_file() {
    let folder = folder_with_log();
    let url = format!("file://{}?mode=r", folder.at("in.lcm").display());
    let verified = run_sluice(&folder, &["verify", &url]).expect(0);
    let text = String::from_utf8(verified.stdout).unwrap();
    assert!(text.contains("in.lcm: ok (1 file, "), "{text}");
}

#[test]
fn a_url_in_a_pipeline_file_is_refused_with_advice() {
    let folder = folder_with_log();
    let run = |input: &str, output: &str| {
        let text = format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"{input}\"\n\
             [sinks.out]\nplugin = \"csv\"\nfrom = \"log\"\npath = \"{output}\"\n"
        );
        folder.write("pipeline.toml", text);
        run_sluice(&folder, &["run", "pipeline.toml"]).expect(2)
    };
    for (url, advice) in [
        ("file:///tmp/x.csv", "expected a path, found a URL; leave out `file://`"),
        ("gs://bucket/x.csv", "gs:// is not supported"),
        ("s3://bucket/x.csv", "built without object stores"),
    ] {
        run(url, "out.csv").expect_stderr(advice);
        run("in.lcm", url).expect_stderr(advice);
    }
    run("file:///tmp/in.lcm", "out.csv").expect_stderr("pipeline.toml:3:8");
    // What no program reads is a mistake of the file.
    run("gs://bucket/in.lcm", "out.csv");
    run_sluice(&folder, &["check", "pipeline.toml"])
        .expect(2)
        .expect_stderr("gs:// is not supported")
        .expect_stderr("pipeline.toml:3:8");
    let report = ["convert", "in.lcm", "--to", "out.csv", "--report", "file:///tmp/x.json"];
    run_sluice(&folder, &report).expect(2).expect_stderr("leave out `file://`");
    assert_eq!(folder.names(), ["in.lcm", "pipeline.toml"]);
}

#[test]
fn urls_that_no_program_reads_are_not_missing_files() {
    let folder = folder_with_log();
    for url in ["gs://bucket/x.lcm", "https://host/x.lcm", "abfss://c@host/x.lcm"] {
        for arguments in [
            &["info", url][..],
            &["cat", url],
            &["convert", url, "--to", "out.lcm"],
            &["convert", "in.lcm", "--to", url],
            &["report", url],
        ] {
            let refused = run_sluice(&folder, arguments).expect(2);
            let scheme = url.split_once(':').unwrap().0;
            let says = format!("{scheme}:// is not supported; use the path of a local copy, or an");
            refused.expect_stderr(&says).expect_stderr("s3://").expect_stderr("full program");
        }
    }
    // Whatever they are to be.
    for (url, says) in [
        ("gs://bucket/x", "gs:// is not supported"),
        ("az://bucket/x.odd", "az:// is not supported"),
        ("s3://bucket/x", "built without object stores"),
    ] {
        run_sluice(&folder, &["convert", "in.lcm", "--to", url]).expect(2).expect_stderr(says);
    }
    // A file may have any other name.
    let missing = |verb| run_sluice(&folder, &[verb, "foo://host/x.lcm"]);
    missing("cat").expect(2).expect_stderr("has no source for foo://");
    missing("info").expect(1).expect_stderr("files are not read from foo://: use the path of");
    fs::create_dir_all(folder.at("foo:/host")).unwrap();
    fs::copy(folder.at("in.lcm"), folder.at("foo:/host/x.lcm")).unwrap();
    run_sluice(&folder, &["info", "foo://host/x.lcm"]).expect(0);
    fs::remove_dir_all(folder.at("foo:")).unwrap();
    assert_eq!(folder.names(), ["in.lcm"]);
}

#[test]
fn addresses_without_one_of_their_slashes_are_no_files() {
    let folder = folder_with_log();
    for url in ["s3:/bucket/x.lcm", "s3:bucket/x.lcm"] {
        for arguments in [
            &["info", url][..],
            &["cat", url],
            &["convert", url, "--to", "out.lcm"],
            &["convert", "in.lcm", "--to", url],
            &["convert", "in.lcm", "--to", url, "--as", "lcm-log"],
            &["convert", "in.lcm", "--to", "out.lcm", "--report", url],
        ] {
            let refused = run_sluice(&folder, arguments).expect(2).expect_stderr(url);
            refused.expect_stderr("write s3://BUCKET/KEY; or put ./ before it");
        }
    }
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
                [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"s3:/b/x.lcm\"\n";
    folder.write("pipeline.toml", text);
    let refused = run_sluice(&folder, &["check", "pipeline.toml"]).expect(2);
    refused.expect_stderr("write s3://BUCKET/KEY").expect_stderr("pipeline.toml:7:8");
    fs::remove_file(folder.at("pipeline.toml")).unwrap();
    assert_eq!(folder.names(), ["in.lcm"]);
    fs::create_dir(folder.at("s3:")).unwrap();
    run_sluice(&folder, &["convert", "in.lcm", "--to", "./s3:/x.lcm"]).expect(0);
    run_sluice(&folder, &["convert", "./s3:/x.lcm", "--to", "back.lcm"]).expect(0);
    assert!(folder.read("back.lcm") == folder.read("in.lcm"));
}

/// A name with a byte that is not UTF-8.
const ODD: &[u8] = b"odd\xff.lcm";

fn run_with_odd(folder: &Folder, arguments: &[&str]) -> ProgramOutput {
    let mut command = sluice(folder);
    command.args(arguments).arg(OsStr::from_bytes(ODD));
    ProgramOutput::from_output(command.output().unwrap())
}

#[test]
fn an_argument_that_is_not_utf_8_is_named_with_advice() {
    let folder = folder_with_log();
    let says =
        r"the argument `odd\xff.lcm` is not UTF-8, and options are text: rename the file, or";
    for arguments in [&["info"][..], &["convert", "in.lcm", "--to"], &["cat", "in.lcm"]] {
        run_with_odd(&folder, arguments).expect(2).expect_stderr(says);
    }
    let mut command = sluice(&folder);
    command.args(["convert", "in.lcm", "--to", "out.csv"]);
    command.arg("--report").arg(OsStr::from_bytes(b"report\xff.json"));
    command.arg("--channel").arg(OsStr::from_bytes(b"\xfe"));
    ProgramOutput::from_output(command.output().unwrap())
        .expect(2)
        .expect_stderr(r"each of the arguments `report\xff.json`, `\xfe` is not UTF-8, and");
    let refused = run_with_odd(&folder, &["--log-format", "json", "info"]).expect(2);
    assert!(refused.stderr.starts_with('{'), "{}", refused.stderr);
}

#[test]
fn a_variable_of_the_environment_that_is_not_utf_8_is_named_and_has_no_default() {
    let folder = folder_with_log();
    let pipeline = |input: &str, output: &str, when: &str| {
        format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"{input}\"\n[sinks.out]\n\
             plugin = \"csv\"\nfrom = \"log\"\npath = \"{output}\"\n{when}"
        )
    };
    for text in [
        pipeline("${ODD:-in.lcm}", "out.csv", ""),
        pipeline("in.lcm", "${ODD:-out.csv}", ""),
        pipeline("in.lcm", "out.csv", "when = \"${ODD} == 'x'\"\n"),
        pipeline("in.lcm", "out.csv", "when = { ODD = { not = \"x\" } }\n"),
    ] {
        folder.write("p.toml", text);
        for verb in ["run", "check", "plan"] {
            let mut command = sluice(&folder);
            command.args([verb, "p.toml"]).env("ODD", OsStr::from_bytes(ODD));
            ProgramOutput::from_output(command.output().unwrap())
                .expect(2)
                .expect_stderr(r"the environment variable `ODD` is not UTF-8: `odd\xff.lcm`");
        }
        assert_eq!(folder.names(), ["in.lcm", "p.toml"]);
    }
    for (arguments, code) in [
        (&["record", "--to", "x.lcm"][..], 2),
        (&["spy", "--interface", "lo"], 2),
        (&["play", "in.lcm"], 1),
    ] {
        let mut command = sluice(&folder);
        let url = OsStr::from_bytes(b"file://in.lcm?\xff");
        let ran = command.args(arguments).env("LCM_DEFAULT_URL", url).output().unwrap();
        ProgramOutput::from_output(ran)
            .expect(code)
            .expect_stderr("the environment variable `LCM_DEFAULT_URL` is not UTF-8");
    }
}

#[test]
fn an_input_whose_name_is_not_utf_8_fails_alone() {
    let folder = folder_with_log();
    fs::copy(folder.at("in.lcm"), folder.path().join(OsStr::from_bytes(ODD))).unwrap();
    folder.write("z.lcm", log(&drive(2, 100)));
    let says = "is not UTF-8, and options are text: rename the file";
    let convert = ["convert", "*.lcm", "--to", "out/{stem}.csv", "--keep-going"];
    run_sluice(&folder, &convert)
        .expect(1)
        .expect_stderr("2 inputs done, 1 failed")
        .expect_stderr(says);
    for name in ["out/in.csv", "out/z.csv"] {
        assert!(folder.at(name).exists(), "{name}");
    }
    let resume = [&convert[..], &["--resume"]].concat();
    run_sluice(&folder, &resume).expect(1).expect_stderr("2 done before, 1 failed");
    run_sluice(&folder, &["info", "*.lcm"]).expect(2).expect_stderr(says);
}

#[test]
fn every_verb_reads_a_log_whose_name_has_several_lines() {
    let folder = folder_with_log();
    for name in ["a\nb.lcm", "a\n\nkey = 1\n.lcm", "\"\"\"\n'.lcm"] {
        fs::copy(folder.at("in.lcm"), folder.at(name)).unwrap();
        for verb in ["info", "verify", "cat"] {
            run_sluice(&folder, &[verb, name]).expect(0);
        }
    }
}

#[test]
fn figures_of_a_path_that_is_not_utf_8_have_it_without_loss() {
    let folder = folder_with_log();
    fs::rename(folder.at("in.lcm"), folder.path().join(OsStr::from_bytes(ODD))).unwrap();
    let line = run_with_odd(&folder, &["verify", "--json"]).expect(1).text();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["path"], r"odd\xff.lcm");
    let line = run_sluice(&folder, &["info", "--json", "*.lcm"]).expect(2).text();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["path"], r"odd\xff.lcm");
    let convert = ["convert", "*.lcm", "--to", "out/{stem}.csv", "--from", "lcm-log"];
    let more = ["--keep-going", "--log-format", "json"];
    run_sluice(&folder, &[&convert[..], &more].concat())
        .expect(1)
        .expect_stderr(r#""input":"odd\\xff.lcm""#);
}

#[test]
fn a_batch_with_a_name_that_is_not_utf_8_is_refused_before_its_first_input() {
    let folder = folder_with_log();
    fs::copy(folder.at("in.lcm"), folder.path().join(OsStr::from_bytes(ODD))).unwrap();
    let files = || fs::read_dir(folder.path()).unwrap().count();
    let convert = ["convert", "*.lcm", "--to", "out/{stem}.csv", "--report", "r.json"];
    let says = r"rename the file, or make a link with another name: odd\xff.lcm";
    run_sluice(&folder, &convert).expect(2).expect_stderr(says);
    for more in [&["--shard", "1/2"][..], &["--dry-run"]] {
        run_sluice(&folder, &[&convert[..], more].concat()).expect(2).expect_stderr(says);
    }
    assert_eq!(files(), 2);
    run_sluice(&folder, &[&convert[..], &["--keep-going"]].concat())
        .expect(1)
        .expect_stderr("1 input done, 1 failed")
        .expect_stderr(says);
    assert!(folder.at("out/in.csv").exists());
    // A run of all inputs names none of them in an option.
    run_sluice(&folder, &["convert", "*.lcm", "--to", "all.csv"]).expect(0);
}

#[test]
fn a_link_to_nothing_and_standard_input_get_advice_where_a_file_is_expected() {
    let folder = folder_with_log();
    symlink("nowhere.csv", folder.at("link.csv")).unwrap();
    run_sluice(&folder, &["convert", "in.lcm", "--to", "link.csv"])
        .expect(1)
        .expect_stderr("it points to nowhere.csv, and Sluice creates no files through links");
    run_sluice(&folder, &["check-log", "in.lcm", "--expect", "-"])
        .expect(2)
        .expect_stderr("expected a file here; save the input to a file, and name that");
}

#[test]
fn urls_where_a_file_is_expected_get_advice() {
    let folder = folder_with_log();
    let live = "udpm://239.255.76.67:7667";
    let says =
        "is live, and not a file: `sluice spy` shows what is sent there, and `sluice record`";
    run_sluice(&folder, &["verify", "in.lcm", live]).expect(2).expect_stderr(says);
    run_sluice(&folder, &["info", live]).expect(2).expect_stderr(says);
    let unknown = "for foo://x; it has one for: ";
    run_sluice(&folder, &["cat", "foo://x", "--from", "lcm-log"])
        .expect(2)
        .expect_stderr(&format!("this program has no source {unknown}"));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "foo://x", "--as", "lcm-log"])
        .expect(2)
        .expect_stderr(&format!("this program has no sink {unknown}"));
    run_sluice(&folder, &["cat", live, "--from", "lcm-log"])
        .expect(2)
        .expect_stderr(&format!("{live} is for the source `lcm-udp`, not for `lcm-log`"));
}

#[test]
fn the_default_quarantine_file_is_beside_the_pipeline_file_and_in_the_plan() {
    let folder = folder_with_log();
    fs::create_dir(folder.at("sub")).unwrap();
    folder.write("sub/in.lcm", [&folder.read("in.lcm")[..], b"stray"].concat());
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
                on_damage = \"quarantine\"\n\
                [sinks.out]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"o.jsonl\"\n";
    folder.write("sub/p.toml", text);
    let plan = || run_sluice(&folder, &["plan", "sub/p.toml"]).expect(0).text();
    assert!(plan().contains("damaged bytes to sub/log.quarantine\n"), "{}", plan());
    let json = run_sluice(&folder, &["plan", "sub/p.toml", "--json"]).expect(0).text();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["sources"][0]["quarantine"]["path"], "sub/log.quarantine");
    run_sluice(&folder, &["run", "sub/p.toml"]).expect(3);
    assert_eq!(folder.read("sub/log.quarantine"), b"stray");
    assert!(!folder.at("log.quarantine").exists());
    assert!(plan().contains("sub/log.quarantine  exists; --overwrite replaces it"), "{}", plan());
    // Without a pipeline file it is in the current folder, wherever the pipeline is saved.
    let keep = ["--source-option", "on_damage=quarantine"];
    let convert = [&["convert", "sub/in.lcm", "--to", "o.jsonl"][..], &keep].concat();
    let printed =
        run_sluice(&folder, &[&convert[..], &["--print-pipeline"]].concat()).expect(0).text();
    folder.write("sub/saved.toml", printed);
    run_sluice(&folder, &["run", "sub/saved.toml"]).expect(3);
    assert_eq!(folder.read("log.quarantine"), b"stray");
    run_sluice(&folder, &[&convert[..], &["--overwrite"]].concat()).expect(3);
}

#[test]
fn a_part_of_a_log_is_refused_with_the_file_to_pass() {
    let folder = Folder::new();
    let case = root().join("plugins/orca/testdata/dialect_a");
    fs::create_dir(folder.at("orca")).unwrap();
    let [laser, power] = ["060804_153321_laser0.log", "060804_153321_power0.log"];
    for name in ["master.log", laser, power] {
        folder.write(&format!("orca/{name}"), fs::read(case.join(name)).unwrap());
    }
    let pass = "pass orca/master.log, which names it";
    let is_part = format!("orca/{laser} is a part of a log: {pass}");
    run_sluice(&folder, &["info", &format!("orca/{laser}")]).expect(2).expect_stderr(&is_part);
    let all = ["convert", "orca/*.log", "--to", "tables/"];
    run_sluice(&folder, &all).expect(2).expect_stderr(&is_part);
    let whole = ["convert", "orca/", "--to", "tables/"];
    let refused = run_sluice(&folder, &whole).expect(2);
    drop(refused.expect_stderr("orca/ is the folder of a log: pass orca/master.log"));
    // Whoever names the format, reads what there is.
    let run = run_sluice(&folder, &["info", "--from", "lcm-log", &format!("orca/{power}")]);
    assert!(!run.stderr.contains("is a part of a log"), "{}", run.stderr);
    assert!(!folder.at("tables").exists());
    // What surely is a log is one, whoever names it.
    folder.write("orca/drive.log", log(&drive(1, 5)));
    let master = fs::read_to_string(folder.at("orca/master.log")).unwrap();
    let named = format!("::orca::Wifi        ice     drive.log\n{master}");
    folder.write("orca/master.log", named);
    drop(run_sluice(&folder, &["info", "orca/drive.log"]).expect(0));
}
