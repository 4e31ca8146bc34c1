//! Our datasets as others see them: a checker that mirrors what LeRobot's reader needs, with
//! pyarrow and Pillow of `.cache/peers-venv`, which `.ci/run` installs; and LeRobot itself, in the
//! Python that `SLUICE_LEROBOT` names. Prints what is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use jpeg_encoder::{ColorType, Encoder};
use serde_json::json;

use crate::kit::{TestRows, doubles, files, ints, texts, vectors, write};

/// Checks a dataset, folder by argument, by the rules of the reader.
const CHECKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check_dataset.py");
/// Loads a dataset with LeRobot, iterates all frames, and compares its statistics with ours.
const LOADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/load_dataset.py");

/// The Python that has pyarrow and Pillow, or `None` with a message.
fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("SLUICE_PEERS").map(PathBuf::from);
    let python = folder.unwrap_or_else(|| root.join(".cache/peers-venv")).join("bin/python3");
    let asked = Command::new(&python).args(["-c", "import pyarrow, pandas, PIL"]).output();
    if asked.is_ok_and(|asked| asked.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: there is no Python with pyarrow, pandas and Pillow; .ci/run installs them");
    None
}

/// The Python that has LeRobot, or `None` with a message.
fn lerobot() -> Option<PathBuf> {
    let python = std::env::var_os("SLUICE_LEROBOT").map(PathBuf::from);
    if python.is_none() {
        eprintln!("skipped: SLUICE_LEROBOT names no Python that has LeRobot");
    }
    python
}

#[track_caller]
fn run(python: &Path, script: &str, folder: &Path) -> String {
    let ran = Command::new(python).arg(script).arg(folder).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}{said}", String::from_utf8_lossy(&ran.stdout));
    String::from_utf8(ran.stdout).unwrap()
}

/// An image of noise, so that statistics are no round numbers.
fn noise(width: u16, height: u16, seed: u64, color: ColorType) -> Vec<u8> {
    let channels = if color == ColorType::Luma { 1 } else { 3 };
    let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let pixels: Vec<u8> = (0..usize::from(width) * usize::from(height) * channels)
        .map(|n| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (n % 190) as u8 + (dice >> 58) as u8
        })
        .collect();
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes, 95).encode(&pixels, width, height, color).unwrap();
    bytes
}

/// A dataset of three episodes with every kind of feature.
fn dataset(folder: &Path) {
    let count = 30;
    let front = (0..count).map(|n| noise(40, 24, n, ColorType::Rgb)).collect();
    let rear = (0..count).map(|n| noise(320, 200, n, ColorType::Luma)).collect();
    let count = count as usize;
    let task: Vec<&str> = (0..count).map(|n| ["drive on", "turn left — slowly"][n / 20]).collect();
    let rows = TestRows::on_grid(
        count,
        vec![
            ("observation.state", vectors(count, 3)),
            ("observation.images.front", files(front)),
            ("observation.images.rear", files(rear)),
            ("action", vectors(count, 2)),
            ("speed", doubles((0..count).map(|n| (n as f64).sin()))),
            ("count", ints((0..count as i64).map(|n| n * n))),
            ("note", texts(&vec!["a note"; count])),
            ("episode", ints((0..count as i64).map(|n| n / 11))),
            ("task", texts(&task)),
        ],
    );
    write(folder, &[rows], json!({ "robot_type": "car" })).unwrap();
}

#[test]
fn a_dataset_passes_the_checks_of_the_reader() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    dataset(folder.path());
    assert_eq!(run(&python, CHECKER, folder.path()), "3 episodes, 30 frames, 2 tasks: ok\n");
}

#[test]
fn an_appended_dataset_passes_them_too() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let rows = TestRows::on_grid(9, vec![("x", vectors(9, 2)), ("y", doubles([0.5; 9]))]);
        write(folder.path(), &[rows], json!({ "append": true, "task": "go" })).unwrap();
    }
    assert_eq!(run(&python, CHECKER, folder.path()), "3 episodes, 27 frames, 1 tasks: ok\n");
}

#[test]
fn lerobot_loads_every_frame_and_computes_the_same_statistics() {
    let Some(python) = lerobot() else { return };
    let folder = tempfile::tempdir().unwrap();
    dataset(folder.path());
    let said = run(&python, LOADER, folder.path());
    assert!(said.ends_with("3 episodes, 30 frames: ok\n"), "{said}");
}

#[test]
fn the_training_loop_of_the_readme_runs() {
    let Some(python) = lerobot() else { return };
    let folder = tempfile::tempdir().unwrap();
    dataset(&folder.path().join("dataset"));
    let readme = include_str!("../../README.md");
    let (_, code) = readme.split_once("```python\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    let mut command = Command::new(python);
    command.env("HF_HUB_OFFLINE", "1").env("HF_HOME", folder.path().join("cache"));
    let ran = command.args(["-c", code]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let loss = said.lines().find_map(|line| line.strip_prefix("loss "));
    assert!(loss.unwrap().parse::<f64>().unwrap().is_finite(), "{said}");
}
