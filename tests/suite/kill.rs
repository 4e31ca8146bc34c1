//! Batches killed at any moment or out of disk space: existing files are complete, and resuming
//! gives the result of an uninterrupted batch.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sluice_kit::contract::trials;
use sluice_model::{PluginKind, Registry};

use crate::kit::{Folder, ProgramOutput, SeededRng, drive, log, report_skip, run_sluice, sluice};

/// A folder with logs, and a pipeline that writes every kind of output for each.
fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for n in 0..6 {
        folder.write(&format!("in/{n}.lcm"), log(&drive(n, 1_500)));
    }
    let registry = Registry::linked();
    let has = |name: &str| registry.get(PluginKind::Sink, name).is_some();
    let sink = |name: &str, plugin: &str, path: &str| {
        format!("[sinks.{name}]\nplugin = \"{plugin}\"\nfrom = \"log\"\npath = \"out/{path}\"\n")
    };
    let mut text =
        "memory = \"32MiB\"\n[sources.log]\nplugin = \"lcm-log\"\npath = \"in/*.lcm\"\n".to_owned();
    text += &sink("packed", "lcm-log", "{stem}.lcm.zst");
    text += &sink("lines", "jsonl", "lines/{stem}.jsonl");
    text += &sink("parts", "lcm-log", "parts/{stem}/");
    if has("parquet") {
        text += &sink("tables", "parquet", "tables/{stem}/");
        text += &(sink("table", "parquet", "{stem}.parquet") + "layout = \"single\"\n");
    }
    if has("archive") {
        text += &sink("archive", "archive", "archive/{stem}.lcm.zst");
    }
    folder.write("batch.toml", text);
    folder
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn tree(folder: &Folder) -> BTreeMap<PathBuf, Vec<u8>> {
    let out = folder.at("out");
    let name = |path: &Path| path.strip_prefix(&out).unwrap().to_owned();
    files(&out).iter().map(|path| (name(path), fs::read(path).unwrap())).collect()
}

/// Verifies every file that has its final name.
fn verify_each(folder: &Folder, when: &str) {
    let is_output = |path: &&PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        !name.ends_with(".sluice-tmp") && !matches!(name, "_manifest.json" | "_units.jsonl")
    };
    let out = files(&folder.at("out"));
    let names: Vec<&str> =
        out.iter().filter(is_output).map(|path| path.to_str().unwrap()).collect();
    if !names.is_empty() {
        let verified = run_sluice(folder, &[&["verify"], &names[..]].concat());
        assert_eq!(verified.code, Some(0), "{when}: {}{}", verified.text(), verified.stderr);
    }
}

#[test]
fn a_batch_that_is_killed_at_any_moment_is_completed_by_resuming() {
    let whole = folder();
    let began = Instant::now();
    run_sluice(&whole, &["run", "batch.toml", "--jobs", "2"]).expect(0);
    let took = began.elapsed().max(Duration::from_millis(10));
    let expected = tree(&whole);
    let (mut rng, mut folder) = (SeededRng(7), folder());
    let resume = ["run", "batch.toml", "--jobs", "2", "--resume"];
    for kill in 0..trials(10, 200) {
        let mut child = sluice(&folder)
            .args(resume)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Finished inputs are skipped. Killed early, most of the work is left for the next time.
        let moment = took.mul_f64(rng.below(1_000) as f64 / 1_000.0);
        std::thread::sleep(moment);
        child.kill().unwrap();
        child.wait().unwrap();
        verify_each(&folder, &format!("kill {kill} after {moment:?}"));
        // Sometimes to the end, then again from the start.
        if kill % 5 == 4 {
            finish(&folder, &resume, &expected);
            folder = self::folder();
        }
    }
    finish(&folder, &resume, &expected);
}

#[track_caller]
fn finish(folder: &Folder, resume: &[&str], expected: &BTreeMap<PathBuf, Vec<u8>>) {
    run_sluice(folder, resume).expect(0);
    let found = tree(folder);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, bytes) in expected {
        assert!(&found[name] == bytes, "{} differs", name.display());
    }
    run_sluice(folder, &["verify", "out"]).expect(0);
}

/// Runs the batch with too little disk space: only complete outputs may remain.
#[track_caller]
fn runs_out_of_space(folder: &Folder, mut command: Command, reasons: [&str; 2]) {
    let ended = ProgramOutput::from_output(command.output().unwrap()).expect(1);
    let is_reported = reasons.iter().any(|reason| ended.stderr.contains(reason));
    assert!(is_reported, "no reason in:\n{}", ended.stderr);
    for path in files(&folder.at("out")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(!name.ends_with(".sluice-tmp"), "{name}");
    }
    verify_each(folder, "out of space");
}

/// A small disk mounted at `out`, until dropped.
struct OutputDisk<'f>(&'f Folder);

impl<'f> OutputDisk<'f> {
    fn mount(folder: &'f Folder) -> Option<Self> {
        fs::create_dir(folder.at("out")).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
            .arg(folder.at("out"))
            .output();
        mount.is_ok_and(|mount| mount.status.success()).then_some(Self(folder))
    }
}

impl Drop for OutputDisk<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0.at("out")).status().unwrap();
    }
}

#[test]
fn a_batch_on_a_full_disk_fails_and_leaves_nothing_half_done() {
    let folder = folder();
    let Some(disk) = OutputDisk::mount(&folder) else {
        return report_skip("a batch on a disk that fills up: this user may not mount one");
    };
    let mut command = sluice(&folder);
    command.args(["run", "batch.toml"]);
    runs_out_of_space(&folder, command, ["no space left", "no space left"]);
    assert!(tree(&folder).is_empty(), "{:?}", tree(&folder).keys());
    drop(disk);
}

#[test]
fn a_batch_whose_files_may_not_grow_fails_with_the_reason() {
    let folder = folder();
    let program = crate::PROGRAM;
    let limited = |blocks: &str, folder: &Folder| {
        let mut command = Command::new("sh");
        command.current_dir(folder.path()).stdin(Stdio::null());
        command.args(["-c", &format!("ulimit -f {blocks} && exec \"$0\" \"$@\""), program]);
        command.args(["run", "batch.toml", "--resume"]);
        command
    };
    let allowed = Command::new("sh").args(["-c", "ulimit -f 128"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return report_skip("a batch whose files may not grow: this shell sets no such limit");
    }
    let reason = "larger than the system allows";
    runs_out_of_space(&folder, limited("128", &folder), [reason, reason]);
    assert!(tree(&folder).is_empty(), "{:?}", tree(&folder).keys());
    // With enough space it continues.
    run_sluice(&folder, &["run", "batch.toml", "--resume"]).expect(0);
}
