//! A program outside the workspace, with its own plugin, builds and works.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

use crate::kit::{Folder, ProgramOutput, events, root};
use crate::new::{cargo, target};

/// The program, built offline.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = root().join("tests/outsider");
    let cargo = cargo(&folder).args(["build", "--offline", "--quiet"]).output().unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    target().join("debug/outsider")
});

fn run_outsider(folder: &Folder, arguments: &[&str]) -> ProgramOutput {
    run(&mut Command::new(&*PROGRAM), folder, arguments)
}

fn run(program: &mut Command, folder: &Folder, arguments: &[&str]) -> ProgramOutput {
    let output = program.args(arguments).current_dir(folder.path()).output();
    ProgramOutput::from_output(output.unwrap())
}

#[test]
fn the_plugin_is_listed_beside_those_of_the_families_named() {
    let listed = run_outsider(&Folder::new(), &["plugins", "--json"]).expect(0).text();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|plugin| plugin["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["lcm", "lcm-log", "lcm-log", "ticks"]);
}

#[test]
fn the_plugin_runs_in_a_pipeline() {
    let folder = Folder::new();
    folder.write(
        "ticks.toml",
        "[sources.clock]\nplugin = \"ticks\"\ncount = 3\n\
         [sinks.log]\nplugin = \"lcm-log\"\nfrom = \"clock\"\npath = \"ticks.lcm\"\n",
    );
    run_outsider(&folder, &["run", "ticks.toml"]).expect(0);
    let events = events(&folder.read("ticks.lcm"));
    let plain: Vec<_> = events.iter().map(|e| (e.number, e.utime, &e.channel[..])).collect();
    assert_eq!(plain, [(0, 0, &b"TICK"[..]), (1, 1_000_000, b"TICK"), (2, 2_000_000, b"TICK")]);
}

#[test]
fn mistakes_in_its_options_are_shown_like_any_other() {
    let folder = Folder::new();
    folder.write(
        "ticks.toml",
        "[sources.clock]\nplugin = \"ticks\"\ncuont = 3\n\
         [sinks.log]\nplugin = \"lcm-log\"\nfrom = \"clock\"\npath = \"ticks.lcm\"\n",
    );
    run_outsider(&folder, &["check", "ticks.toml"])
        .expect(2)
        .expect_stderr("ticks.toml:3:1")
        .expect_stderr("`count`");
}

#[test]
fn two_plugins_of_one_name_are_an_error_that_says_where_they_are() {
    let duplicate = || Command::new(PROGRAM.with_file_name("duplicate"));
    let what = "two sources are registered as `ticks`, in the modules `duplicate` and `outsider`: \
                give one of them another name in `register!`";
    let folder = Folder::new();
    let text = run(&mut duplicate(), &folder, &["plugins"]).expect(1);
    assert_eq!(text.stderr, format!("error: {what}\n"));
    let line = run(&mut duplicate(), &folder, &["run", "x.toml", "--log-format", "json"]).expect(1);
    let line: Value = serde_json::from_str(&line.stderr).unwrap();
    assert_eq!((&line["level"], &line["message"]), (&"error".into(), &what.into()));
}

#[test]
fn the_plugin_and_the_program_are_short() {
    let lines = |name: &str| {
        fs::read_to_string(root().join("tests/outsider/src").join(name)).unwrap().lines().count()
    };
    assert!(lines("lib.rs") <= 60 && lines("main.rs") <= 6);
}
