//! The record of a batch: no output takes its place, and it says what is left of earlier batches.

use std::fs::{self, OpenOptions};
use std::process::Stdio;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{BATCH, assert_same_files, folder, tree};
use crate::kit::{Folder, drive, log, run_sluice, sluice};

#[test]
fn an_output_with_the_name_of_a_record_is_refused_before_anything_runs() {
    let folder = Folder::new();
    folder.write("a.lcm", log(&drive(1, 30)));
    let cases = [
        ("_manifest", "o/{stem}.json"),
        ("_units", "o/{stem}.jsonl"),
        ("_shard-1-of-2", "o/{stem}.json"),
        ("_shard-1-of-2.units", "o/{stem}.jsonl"),
        ("_manifest", "o/{stem}.json/{index}.jsonl"),
        ("_manifest", "o/{index}/{stem}.json"),
    ];
    for (name, to) in cases {
        let input = format!("{name}.lcm");
        folder.write(&input, folder.read("a.lcm"));
        let convert = ["convert", "a.lcm", &input, "--to", to, "--as", "jsonl"];
        for more in ["--overwrite", "--resume", "--keep-going"] {
            run_sluice(&folder, &[&convert[..], &[more]].concat())
                .expect(1)
                .expect_stderr(&input)
                .expect_stderr("is the name of a record of batches");
        }
        assert!(!folder.at("o").exists(), "{to}");
    }
    let convert = ["convert", "a.lcm", "_manifest.lcm", "--to", "o/{stem}.jsonl"];
    run_sluice(&folder, &convert).expect(0);
    run_sluice(&folder, &["verify", "o"]).expect(0);
}

/// Runs a command that reads its inputs one by one, and kills it when it comes to this one.
pub(crate) fn kill_at(folder: &Folder, input: &str, arguments: &[&str]) {
    let log = folder.read(input);
    fs::remove_file(folder.at(input)).unwrap();
    mknodat(CWD, folder.at(input), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut command = sluice(folder);
    command.args(arguments).args(["--jobs", "1"]).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // Opening blocks until the program reads this input.
    let _pipe = OpenOptions::new().write(true).open(folder.at(input)).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_file(folder.at(input)).unwrap();
    folder.write(input, log);
}

/// Runs another batch into the folder `out`, and checks that so many inputs are still left.
#[track_caller]
fn assert_left_after_another_batch(folder: &Folder, left: &str) {
    let other = ["convert", "other.lcm", "--to", "out/{stem}.lcm.zst", "--overwrite"];
    run_sluice(folder, &other).expect(0);
    let text = run_sluice(folder, &["verify", "out"]).expect(1).text();
    assert!(text.contains(left) && text.contains("--resume continues"), "{text}");
    assert!(!folder.at("out/_units.jsonl").exists());
}

#[test]
fn a_killed_batch_is_unfinished_until_its_inputs_are_done() {
    let folder = folder();
    folder.write("batch.toml", BATCH);
    folder.write("other.lcm", log(&drive(9, 300)));
    let run = ["run", "batch.toml"];
    let resume = ["run", "batch.toml", "--resume"];
    run_sluice(&folder, &run).expect(0);
    run_sluice(&folder, &["convert", "other.lcm", "--to", "out/{stem}.lcm.zst"]).expect(0);
    let whole = tree(&folder.at("out"));
    fs::remove_dir_all(folder.at("out")).unwrap();

    kill_at(&folder, "in/2.lcm", &run);
    run_sluice(&folder, &["verify", "out"]).expect(1);
    assert_left_after_another_batch(&folder, "3 inputs are not done (3 interrupted), of 6 in all");
    kill_at(&folder, "in/3.lcm", &resume);
    assert_left_after_another_batch(&folder, "2 inputs are not done (2 interrupted), of 6 in all");
    // Two are killed before another one ends.
    kill_at(&folder, "in/3.lcm", &resume);
    kill_at(&folder, "in/4.lcm", &resume);
    assert_left_after_another_batch(&folder, "1 input is not done (1 interrupted), of 6 in all");
    run_sluice(&folder, &resume).expect(0).expect_stderr("1 input done, 4 done before");
    run_sluice(&folder, &["verify", "out"]).expect(0);
    assert_same_files(&tree(&folder.at("out")), &whole);

    // What is there is of an earlier run.
    kill_at(&folder, "in/1.lcm", &["run", "batch.toml", "--overwrite"]);
    assert_left_after_another_batch(&folder, "4 inputs are not done (4 interrupted), of 6 in all");
    // An input that is gone cannot be done.
    fs::rename(folder.at("in/4.lcm"), folder.at("4.lcm")).unwrap();
    assert_left_after_another_batch(&folder, "3 inputs are not done (3 interrupted), of 6 in all");
    fs::rename(folder.at("4.lcm"), folder.at("in/4.lcm")).unwrap();
    run_sluice(&folder, &resume).expect(0).expect_stderr("5 done before");
    run_sluice(&folder, &["verify", "out"]).expect(0);
    assert_same_files(&tree(&folder.at("out")), &whole);
}
