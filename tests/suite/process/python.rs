//! `run --python`: a Python runs the pipeline in place of the program. The Pythons here are scripts
//! for a shell; the package's own tests have the real one.

use std::fs;
use std::process::Command;

use crate::kit::{Folder, ProgramOutput, sluice};

const PIPELINE: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "in.lcm"
[stages.py]
plugin = "python"
from = "log"
name = "same"
[sinks.out]
plugin = "null"
from = "py"
"#;

/// What `sluice run` says with a pipeline that has a plugin in Python, if `python3` is this script.
fn run(python: Option<&str>, options: &[&str]) -> ProgramOutput {
    let folder = Folder::new();
    folder.write("p.toml", PIPELINE);
    fs::create_dir(folder.at("bin")).unwrap();
    if let Some(script) = python {
        // Written by another process: a program that is open for writing anywhere cannot start, and
        // other tests start processes meanwhile.
        let write = r#"printf '#!/bin/sh\n%s\n' "$1" >bin/python3 && chmod +x bin/python3"#;
        let mut shell = Command::new("sh");
        shell.args(["-c", write, "sh", script]).current_dir(folder.path());
        assert!(shell.status().unwrap().success());
    }
    let mut command = sluice(&folder);
    command.args(["--quiet", "run", "p.toml"]).args(options).env("PATH", folder.at("bin"));
    ProgramOutput::from_output(command.output().unwrap())
}

#[test]
fn a_program_without_python_says_who_runs_plugins_in_python() {
    run(None, &[])
        .expect(2)
        .expect_stderr("`python` is not linked into this program")
        .expect_stderr("sluice run --python plugins.py");
}

#[test]
fn a_python_with_the_package_gets_the_whole_command_line() {
    let script = r#"case $2 in -c) echo 0.1.0 ;; *) echo "$@"; exit 3 ;; esac"#;
    let said = run(Some(script), &["--python", "plugins.py", "--jobs", "2"]).expect(3);
    assert_eq!(
        String::from_utf8_lossy(&said.stdout),
        "-P -m sluice --quiet run p.toml --python plugins.py --jobs 2\n"
    );
}

#[test]
fn without_a_fitting_package_nothing_is_run() {
    let options = ["--python", "plugins.py"];
    let said = run(None, &options).expect(2);
    said.expect_stderr("there is no `python3` beside this program or on PATH");
    let said = run(Some("exit 1"), &options).expect(2);
    said.expect_stderr("bin/python3 has no package `sluice-logs`");
    let said = run(Some("echo 0.0.9"), &options).expect(2);
    said.expect_stderr("has sluice-logs 0.0.9, and this program is 0.1.0")
        .expect_stderr("pip install sluice-logs==0.1.0");
}
