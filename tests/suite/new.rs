//! Plugin crates that `sluice new` makes: they build, conform and run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::kit::{Folder, ProgramOutput, root, sluice};

/// The target folder for crates outside the workspace: that of the workspace, so that dependencies
/// are not compiled again. Crates of this repository are compiled once for all tests, as cargo
/// distinguishes them by their location relative to the workspace.
pub(crate) fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// Offline cargo in the folder of a new crate.
pub(crate) fn cargo(folder: &Path) -> Command {
    // The versions in the lock file of the workspace are available.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(folder).env("CARGO_TARGET_DIR", target()).env("CARGO_INCREMENTAL", "0");
    cargo
}

/// Creates a crate and returns the output.
fn new(folder: &Folder, kind: &str, name: &str) -> ProgramOutput {
    let mut new = sluice(folder);
    new.args(["new", kind, name, "--sluice"]).arg(root());
    ProgramOutput::from_output(new.output().unwrap())
}

/// Creates a crate, runs its tests, and returns its program.
fn build_new(folder: &Folder, kind: &str, name: &str) -> PathBuf {
    new(folder, kind, name).expect(0).expect_stderr("cargo test");
    let tested = cargo(&folder.at(name)).args(["test", "--offline", "--quiet"]).output().unwrap();
    assert!(
        tested.status.success(),
        "{kind}:\n{}{}",
        String::from_utf8_lossy(&tested.stdout),
        String::from_utf8_lossy(&tested.stderr)
    );
    target().join("debug").join(name)
}

/// Runs the program of a new crate in its folder.
fn run_new_program(
    folder: &Folder,
    name: &str,
    program: &Path,
    arguments: &[&str],
) -> ProgramOutput {
    let ran = Command::new(program).args(arguments).current_dir(folder.at(name)).output();
    ProgramOutput::from_output(ran.unwrap())
}

/// The crate builds, passes its tests, is listed, and its pipeline writes `out`.
fn check_new(kind: &str, name: &str, out: &str) -> String {
    let folder = Folder::new();
    let program = build_new(&folder, kind, name);
    works_in(&folder, &program, (kind, name), out)
}

fn works_in(folder: &Folder, program: &Path, (kind, name): (&str, &str), out: &str) -> String {
    let listed =
        run_new_program(folder, name, program, &["plugins", name, "--json"]).expect(0).text();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["kind"], &listed[0]["name"]), (&kind.into(), &name.into()));
    run_new_program(folder, name, program, &["check", "pipeline.toml"]).expect(0);
    run_new_program(folder, name, program, &["run", "pipeline.toml"]).expect(0);
    fs::read_to_string(folder.at(name).join(out)).unwrap()
}

#[test]
fn a_new_source_reads_its_log() {
    let (folder, name) = (Folder::new(), "new-source");
    let program = build_new(&folder, "source", name);
    let text = works_in(&folder, &program, ("source", name), "out.jsonl");
    assert_eq!(text.lines().count(), 12);
    assert!(text.starts_with("{\"timestamp_ns\":1194098400000000000,"), "{text}");
    // A log with a damaged first event is still recognised.
    let log = folder.read("new-source/testdata/drive.bin");
    for at in 0..23 {
        let mut damaged = log.clone();
        damaged[at] ^= 0x80;
        folder.write("new-source/damaged", damaged);
        let info = run_new_program(&folder, name, &program, &["info", "damaged", "--json"]);
        let info: Value = serde_json::from_str(&info.text()).unwrap();
        assert_eq!(info["format"], name, "byte {at}");
    }
}

#[test]
fn a_new_sink_writes_lines() {
    let text = check_new("sink", "new-sink", "out.new-sink");
    assert!(text.lines().all(|line| line.split(' ').count() == 4), "{text:.500}");
}

#[test]
fn a_new_stage_lets_long_events_pass() {
    let text = check_new("stage", "new-stage", "out.jsonl");
    assert!(text.lines().count() > 10);
}

#[test]
fn a_new_codec_gives_fields() {
    let text = check_new("codec", "new-codec", "out.jsonl");
    assert!(text.contains("\"fields\":{\"count\":7,\"acceleration\":[0.0,0.5,9.75]"), "{text}");
}

/// Every file below a folder, by its path there, sorted.
fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match path.is_dir() {
            true => {
                found.extend(files_below(&path).into_iter().map(|below| format!("{name}/{below}")))
            }
            false => found.push(name),
        }
    }
    found.sort();
    found
}

#[test]
fn a_new_crate_is_described_as_json_and_is_formatted() {
    for kind in ["source", "sink", "stage", "codec"] {
        let folder = Folder::new();
        let mut new = sluice(&folder);
        new.args(["new", kind, "my-gyro_2", "--to", "here", "--json", "--quiet", "--sluice"]);
        let ran = ProgramOutput::from_output(new.arg(root()).output().unwrap()).expect(0);
        assert_eq!(ran.stderr, "");
        let output: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!((&output["kind"], &output["name"]), (&kind.into(), &"my-gyro_2".into()));
        assert_eq!(output["folder"], "here");
        let files = output["files"].as_array().unwrap().iter();
        let mut files: Vec<String> = files.map(|file| file.as_str().unwrap().to_owned()).collect();
        files.sort();
        assert_eq!(files, files_below(&folder.at("here")), "{kind}");
        let rust = ["src/lib.rs", "src/main.rs", "tests/contract.rs"];
        let rust = rust.map(|file| folder.at("here").join(file));
        let mut rustfmt = Command::new("rustfmt");
        rustfmt.args(["--edition", "2024", "--check"]).args(rust).current_dir(folder.path());
        let formatted = rustfmt.output().unwrap();
        let output = String::from_utf8_lossy(&formatted.stdout).into_owned();
        assert!(formatted.status.success(), "{kind}: {output}");
    }
}

#[test]
fn a_program_that_was_installed_takes_sluice_from_the_checkout_it_was_built_from() {
    let folder = Folder::new();
    let installed = folder.at("sluice");
    let built = crate::PROGRAM;
    fs::hard_link(built, &installed).or_else(|_| fs::copy(built, &installed).map(drop)).unwrap();
    let mut new = Command::new(installed);
    new.args(["new", "stage", "gyro"]).current_dir(folder.path());
    let root = root().canonicalize().unwrap();
    let from = format!("it depends on Sluice in {}", root.display());
    ProgramOutput::from_output(new.output().unwrap()).expect(0).expect_stderr(&from);
    let manifest: toml::Table =
        String::from_utf8(folder.read("gyro/Cargo.toml")).unwrap().parse().unwrap();
    for (name, at) in [("sluice-model", "core/model"), ("sluice-logs", "cli")] {
        let path = manifest["dependencies"][name]["path"].as_str();
        assert_eq!(path, root.join(at).to_str());
    }
}

#[test]
fn names_that_cannot_be_had_are_refused_and_nothing_is_made() {
    let folder = Folder::new();
    for (kind, name, why) in [
        ("source", "Gyro", "lower-case letters"),
        ("source", "../gyro", "lower-case letters"),
        ("source", "gyro-", "between letters"),
        ("source", "my--gyro", "between letters"),
        ("sink", "fn", "choose another name"),
        ("source", "lcm-log", "already has a source `lcm-log`"),
        ("codec", "vel", "already has a codec `vel`"),
    ] {
        new(&folder, kind, name).expect(2).expect_stderr(why);
    }
    ProgramOutput::from_output(sluice(&folder).args(["new", "service", "gyro"]).output().unwrap())
        .expect(2);
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

#[test]
fn folders_in_use_and_invalid_checkouts_are_refused() {
    let folder = Folder::new();
    folder.write("mine", "");
    let refused = |arguments: &[&str], why: &str| {
        let mut new = sluice(&folder);
        new.args(["new", "source", "gyro"]).args(arguments);
        ProgramOutput::from_output(new.output().unwrap()).expect(2).expect_stderr(why);
    };
    refused(&["--to", "."], "not empty");
    refused(&["--to", "mine"], "found a file");
    std::os::unix::fs::symlink("nowhere", folder.at("link")).unwrap();
    refused(&["--to", "link"], "a dangling link");
    fs::remove_file(folder.at("link")).unwrap();
    refused(&["--to", "no/such"], "does not exist");
    refused(&["--sluice", "."], "expected a checkout of Sluice");
    refused(&["--sluice", "no-such"], "expected a checkout of Sluice");
    assert_eq!(folder.names(), ["mine"]);
}

#[test]
fn the_examples_of_the_help_can_be_run() {
    let folder = Folder::new();
    fs::create_dir(folder.at("crates")).unwrap();
    let help = sluice(&folder).args(["new", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let examples = help.lines().filter_map(|line| line.trim().strip_prefix("sluice "));
    let examples: Vec<&str> = examples.collect();
    assert_eq!(examples.len(), 3, "{help}");
    for example in examples {
        let arguments = example.split(" --sluice").next().unwrap().split(' ');
        let mut new = sluice(&folder);
        // One of them writes beside the current folder.
        new.current_dir(folder.at("crates")).args(arguments).arg("--sluice").arg(root());
        ProgramOutput::from_output(new.output().unwrap()).expect(0);
    }
}
