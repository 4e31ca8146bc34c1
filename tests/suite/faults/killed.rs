//! Single runs that are killed at any moment: what has its final name is whole, and running again gives what an
//! uninterrupted run gives.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::kit::{Dice, Folder, drive, log, ran, sluice};

/// How often each kind of run is killed, unless `SLUICE_KILLS` says otherwise.
const KILLS: u64 = 12;

fn kills() -> u64 {
    let kills = std::env::var("SLUICE_KILLS").ok().and_then(|kills| kills.parse().ok());
    kills.unwrap_or(KILLS)
}

/// A folder with two logs and, for each, a pipeline that writes every kind of output of it.
fn folder() -> Folder {
    let folder = Folder::new();
    for n in [1, 2] {
        folder.write(&format!("{n}.lcm"), log(&drive(n, 1_500)));
        let sinks = [
            ("lcm-log", "log.lcm"),
            ("lcm-log", "log.lcm.zst"),
            ("archive", "archive.lcm.zst"),
            ("parquet", "table.parquet"),
            ("parquet", "tables/"),
            ("files", "files/"),
            ("csv", "table.csv"),
        ];
        let mut text = format!("[sources.log]\nplugin = \"lcm-log\"\npath = \"{n}.lcm\"\n");
        for (at, (plugin, path)) in sinks.iter().enumerate() {
            text += &format!(
                "[sinks.s{at}]\nplugin = \"{plugin}\"\nfrom = \"log\"\npath = \"out/{path}\"\n"
            );
        }
        folder.write(&format!("{n}.toml"), text);
    }
    folder
}

/// Starts a run and kills it somewhere within the time that it takes, mostly late: outputs are published then.
fn kill(folder: &Folder, arguments: &[&str], took: Duration, dice: &mut Dice) {
    let mut command = sluice(folder);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    let part = 0.2 + dice.below(1_000) as f64 / 1_000.0;
    std::thread::sleep(took.mul_f64(part));
    running.kill().unwrap();
    running.wait().unwrap();
}

/// How long a run takes that nobody kills.
fn time(folder: &Folder, arguments: &[&str]) -> Duration {
    let began = Instant::now();
    ran(folder, arguments).expect(0);
    began.elapsed().max(Duration::from_millis(10))
}

#[test]
fn a_single_run_that_is_killed_leaves_whole_files_and_nothing_in_the_way_of_the_next() {
    let whole = folder();
    let took = time(&whole, &["run", "1.toml"]);
    let expected = super::tree(&whole.at("out"));
    let (mut dice, folder) = (Dice(3), folder());
    for n in 0..kills() {
        kill(&folder, &["run", "1.toml"], took, &mut dice);
        for (name, bytes) in super::tree(&folder.at("out")) {
            let is_litter = name.to_string_lossy().contains(".sluice-tmp");
            let is_whole = expected.get(&name) == Some(&bytes);
            assert!(is_litter || is_whole, "kill {n}: {} is not whole", name.display());
        }
        ran(&folder, &["run", "1.toml", "--overwrite"]).expect(0);
        let found = super::tree(&folder.at("out"));
        assert!(found == expected, "kill {n}: {:?}", found.keys().collect::<Vec<_>>());
        fs::remove_dir_all(folder.at("out")).unwrap();
    }
}

#[test]
fn a_run_over_older_outputs_that_is_killed_leaves_each_file_old_or_new() {
    let folders = [1, 2].map(|_| folder());
    let mut trees = Vec::new();
    for (n, folder) in folders.iter().enumerate() {
        ran(folder, &["run", &format!("{}.toml", n + 1)]).expect(0);
        trees.push(super::tree(&folder.at("out")));
    }
    let [old, new] = &trees[..] else { panic!("two trees") };
    let folder = &folders[0];
    let over = ["run", "2.toml", "--overwrite"];
    let took = time(&folders[1], &over);
    let mut dice = Dice(5);
    for n in 0..kills() {
        kill(folder, &over, took, &mut dice);
        let found = super::tree(&folder.at("out"));
        for (name, bytes) in &found {
            let is_litter = name.to_string_lossy().contains(".sluice-tmp");
            let is_whole = old.get(name) == Some(bytes) || new.get(name) == Some(bytes);
            assert!(is_litter || is_whole, "kill {n}: {} is not whole", name.display());
        }
        // A folder that says what is in it tells the truth.
        for name in ["tables", "files"] {
            let manifest = std::path::Path::new(name).join("_manifest.json");
            if found.contains_key(&manifest) {
                let verified = ran(folder, &["verify", &format!("out/{name}")]);
                // Killed before the older run's files are removed, they stay; that is told.
                let only_older = verified.text().contains("is not in _manifest.json");
                assert!(verified.code == Some(0) || only_older, "{}", verified.text());
            }
        }
        ran(folder, &over).expect(0);
        let found = super::tree(&folder.at("out"));
        let is_there = new.iter().all(|(name, bytes)| found.get(name) == Some(bytes));
        let rest = found.iter().filter(|(name, _)| !new.contains_key(*name));
        // What no manifest names any more, no run removes.
        let is_older = rest.into_iter().all(|(name, bytes)| old.get(name) == Some(bytes));
        assert!(is_there && is_older, "kill {n}");
        fs::remove_dir_all(folder.at("out")).unwrap();
        ran(folder, &["run", "1.toml"]).expect(0);
    }
}
