//! Runs with faulty disks, inputs, names, numbers and pipelines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::kit::{Folder, ProgramOutput};

mod changed;
mod disks;
mod graphs;
mod inputs;
mod killed;
mod limits;
mod names;
mod recordings;

/// The program in this folder, after a line of shell such as `ulimit -n 64`.
fn after_shell_line(folder: &Folder, line: &str, arguments: &[&str]) -> Command {
    let program = crate::PROGRAM;
    let mut command = Command::new("sh");
    command.current_dir(folder.path()).stdin(Stdio::null());
    command.args(["-c", &format!("{line} && exec \"$0\" \"$@\""), program]).args(arguments);
    command
}

/// Runs it and returns the output.
fn run_after_shell_line(folder: &Folder, line: &str, arguments: &[&str]) -> ProgramOutput {
    ProgramOutput::from_output(after_shell_line(folder, line, arguments).output().unwrap())
}

/// Every file below a folder, by its path there.
fn tree(folder: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let name = |path: &Path| path.strip_prefix(folder).unwrap().to_owned();
    files(folder).iter().map(|path| (name(path), fs::read(path).unwrap())).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Checks that a run left nothing unfinished in a folder.
#[track_caller]
fn no_litter(folder: &Path) {
    let is_litter = |path: &PathBuf| {
        path.components().any(|part| {
            let name = part.as_os_str().to_string_lossy();
            name.starts_with('.') && name.ends_with(".sluice-tmp")
        })
    };
    let litter: Vec<PathBuf> = files(folder).into_iter().filter(is_litter).collect();
    assert!(litter.is_empty(), "{litter:?}");
}
