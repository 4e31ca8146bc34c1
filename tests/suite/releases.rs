//! What `.ci/release` makes: crates to publish, and the files of a program. The program that is
//! packed here is a script that starts the program under test, since that is large.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::kit::{Folder, ProgramOutput, report_skip, root, sluice};

/// Runs a script of `.ci/release`; `None`, with a message, without Python.
fn run_script(name: &str, arguments: &[&str]) -> Option<ProgramOutput> {
    let script = root().join(".ci/release").join(name);
    let mut command = Command::new("python3");
    command.arg(script).args(arguments).env("CARGO_NET_OFFLINE", "true");
    let Ok(output) = command.output() else {
        report_skip("there is no python3 to make a release with");
        return None;
    };
    Some(ProgramOutput::from_output(output))
}

/// Runs a command that has to succeed; returns what it prints.
fn run_command(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Packs a program into `to` of the folder; `None` without Python.
fn pack(folder: &Folder, to: &str) -> Option<ProgramOutput> {
    let program = sluice(folder).get_program().to_string_lossy().into_owned();
    let script = folder.write("stand-in", format!("#!/bin/sh\nexec '{program}' \"$@\"\n"));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let (script, to) = (script.display().to_string(), folder.at(to).display().to_string());
    run_script("pack.py", &[&script, &to, "x86_64-unknown-linux-gnu", "manylinux_2_17"])
}

#[test]
fn every_crate_that_is_to_be_published_can_be_packaged() {
    let folder = Folder::new();
    let to = folder.at("release").display().to_string();
    let Some(packaged) = run_script("build", &["--only-crates", "--allow-dirty", &to]) else {
        return;
    };
    packaged.expect(0);
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let metadata: Value =
        serde_json::from_str(&run_command(env!("CARGO"), &arguments, &root())).unwrap();
    let published = metadata["packages"].as_array().unwrap().iter();
    let mut expected: Vec<String> = published
        .filter(|package| package["publish"].is_null())
        .map(|package| {
            assert!(package["description"].is_string(), "{} has no description", package["name"]);
            format!("{}-0.1.0.crate", package["name"].as_str().unwrap())
        })
        .collect();
    expected.sort();
    assert!(expected.contains(&"sluice-logs-0.1.0.crate".to_owned()), "{expected:?}");
    let mut names: Vec<String> = fs::read_dir(folder.at("release/crates"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, expected);
}

#[test]
fn the_archive_has_the_program_its_manual_and_its_completions() {
    let folder = Folder::new();
    let Some(packed) = pack(&folder, "a") else { return };
    packed.expect(0);
    pack(&folder, "b").unwrap().expect(0);
    run_command("sha256sum", &["--check", "SHA256SUMS"], &folder.at("a"));
    let sums = |name: &str| folder.read(&format!("{name}/SHA256SUMS"));
    assert_eq!(sums("a"), sums("b"), "the same program gives the same files");

    let name = "sluice-0.1.0-x86_64-unknown-linux-gnu";
    run_command("tar", &["xzf", &format!("a/{name}.tar.gz")], folder.path());
    let said = run_command(folder.at(name).join("sluice"), &["--version"], folder.path());
    assert_eq!(said, "sluice 0.1.0\n");
    for file in ["LICENSE", "README.md", "man/sluice-convert.1", "completions/_sluice"] {
        assert!(folder.at(name).join(file).is_file(), "{file}");
    }
}

#[test]
fn the_debian_package_has_its_files_where_debian_looks() {
    let folder = Folder::new();
    let Some(packed) = pack(&folder, "a") else { return };
    packed.expect(0);
    let package = folder.at("a/sluice-logs_0.1.0_amd64.deb");
    if !package.exists() {
        report_skip("there is no dpkg-deb to make a package with");
        return;
    }
    let package = package.display().to_string();
    run_command("dpkg-deb", &["--extract", &package, "root"], folder.path());
    let said = run_command(folder.at("root/usr/bin/sluice"), &["--version"], folder.path());
    assert_eq!(said, "sluice 0.1.0\n");
    for file in [
        "share/man/man1/sluice-run.1.gz",
        "share/bash-completion/completions/sluice",
        "share/zsh/vendor-completions/_sluice",
        "share/doc/sluice-logs/copyright",
    ] {
        assert!(folder.at("root/usr").join(file).is_file(), "{file}");
    }
}

#[test]
fn the_wheel_installs_the_program_without_a_network() {
    let folder = Folder::new();
    let Some(packed) = pack(&folder, "a") else { return };
    packed.expect(0);
    let made = Command::new("python3").args(["-m", "venv"]).arg(folder.at("venv")).output();
    if !made.is_ok_and(|made| made.status.success()) {
        report_skip("this python3 cannot make environments to install the wheel in");
        return;
    }
    let wheel = "a/sluice_logs_cli-0.1.0-py3-none-manylinux_2_17_x86_64.whl";
    let install = ["install", "--no-index", "--disable-pip-version-check", wheel];
    run_command(folder.at("venv/bin/pip"), &install, folder.path());
    let said = run_command(folder.at("venv/bin/sluice"), &["--version"], folder.path());
    assert_eq!(said, "sluice 0.1.0\n");
}
