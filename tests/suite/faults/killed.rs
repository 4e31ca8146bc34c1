//! Runs killed at any moment: files under final names are complete, and running again gives the
//! result of an uninterrupted run.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sluice_kit::contract::trials;

use crate::kit::{Folder, SeededRng, drive, log, run_sluice, sluice};

/// How often each kind of run is killed.
fn kills() -> u64 {
    trials(4, 200).into()
}

/// A folder with two logs, and for each a pipeline that writes every kind of output.
fn folder() -> Folder {
    let folder = Folder::new();
    for n in [1, 2] {
        folder.write(&format!("{n}.lcm"), log(&drive(n, 300)));
        let sinks = [
            ("lcm-log", "log.lcm"),
            ("lcm-log", "log.lcm.zst"),
            ("archive", "archive.lcm.zst"),
            ("parquet", "table.parquet"),
            ("parquet", "tables/"),
            ("files", "files/"),
            ("csv", "table.csv"),
            ("orca", "log.orca"),
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

/// Kills runs until enough were killed, and enough of them while writing.
struct Killer {
    /// The maximum time before a run is killed.
    longest: Duration,
    rng: SeededRng,
    tries: u64,
    killed: u64,
    /// How many of these left unfinished files.
    halfway: u64,
}

impl Killer {
    fn new(took: Duration, seed: u64) -> Self {
        Self { longest: took, rng: SeededRng(seed), tries: 0, killed: 0, halfway: 0 }
    }

    fn has_killed_enough(&self) -> bool {
        let Self { longest, tries, killed, halfway, .. } = self;
        let is_enough = *killed >= kills() && *halfway >= kills().div_ceil(4);
        let summary =
            format!("of {tries} runs {killed} were killed, {halfway} half-way; {longest:?}");
        assert!(is_enough || *tries < 5 * kills(), "{summary}");
        is_enough
    }

    /// Starts a run and kills it at a random time, mostly late, when outputs are published.
    fn kill(&mut self, folder: &Folder, arguments: &[&str]) {
        let mut command = sluice(folder);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = command.spawn().unwrap();
        let part = 0.2 + self.rng.below(1_000) as f64 / 1_000.0;
        std::thread::sleep(self.longest.mul_f64(part));
        running.kill().unwrap();
        let has_died = running.wait().unwrap().signal().is_some();
        let left = super::tree(&folder.at("out"));
        let is_halfway = has_died && left.keys().any(|name| is_litter(name));
        self.tries += 1;
        self.killed += u64::from(has_died);
        self.halfway += u64::from(is_halfway);
        // The load of the machine may have changed since the time was measured.
        self.longest = self.longest.mul_f64(match (has_died, is_halfway) {
            (false, _) => 0.85,
            (true, false) => 1.1,
            (true, true) => 1.0,
        });
    }
}

fn is_litter(name: &Path) -> bool {
    name.to_string_lossy().contains(".sluice-tmp")
}

/// The duration of an uninterrupted run.
fn time(folder: &Folder, arguments: &[&str]) -> Duration {
    let began = Instant::now();
    run_sluice(folder, arguments).expect(0);
    began.elapsed().max(Duration::from_millis(10))
}

#[test]
fn a_single_run_that_is_killed_leaves_whole_files_and_nothing_in_the_way_of_the_next() {
    let whole = folder();
    let took = time(&whole, &["run", "1.toml"]);
    let expected = super::tree(&whole.at("out"));
    let (mut killer, folder) = (Killer::new(took, 3), folder());
    while !killer.has_killed_enough() {
        killer.kill(&folder, &["run", "1.toml"]);
        let n = killer.tries;
        for (name, bytes) in super::tree(&folder.at("out")) {
            let is_whole = expected.get(&name) == Some(&bytes);
            assert!(is_litter(&name) || is_whole, "kill {n}: {} is incomplete", name.display());
        }
        run_sluice(&folder, &["run", "1.toml", "--overwrite"]).expect(0);
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
        run_sluice(folder, &["run", &format!("{}.toml", n + 1)]).expect(0);
        trees.push(super::tree(&folder.at("out")));
    }
    let [old, new] = &trees[..] else { panic!("two trees") };
    let folder = &folders[0];
    let over = ["run", "2.toml", "--overwrite"];
    let took = time(&folders[1], &over);
    let mut killer = Killer::new(took, 5);
    while !killer.has_killed_enough() {
        killer.kill(folder, &over);
        let n = killer.tries;
        let found = super::tree(&folder.at("out"));
        for (name, bytes) in &found {
            let is_whole = old.get(name) == Some(bytes) || new.get(name) == Some(bytes);
            assert!(is_litter(name) || is_whole, "kill {n}: {} is incomplete", name.display());
        }
        // A master names files of its own run.
        if let Some(master) = found.get(Path::new("log.orca")) {
            let of =
                [old, new].into_iter().find(|tree| tree.get(Path::new("log.orca")) == Some(master));
            let is_subfile = |name: &Path| name.to_string_lossy().starts_with("log_");
            let mut subfiles = of.unwrap().iter().filter(|(name, _)| is_subfile(name));
            assert!(subfiles.all(|(name, bytes)| found.get(name) == Some(bytes)), "kill {n}");
        }
        // A manifest matches its folder.
        for name in ["tables", "files"] {
            let manifest = Path::new(name).join("_manifest.json");
            if found.contains_key(&manifest) {
                let verified = run_sluice(folder, &["verify", &format!("out/{name}")]);
                // If killed before the files of the older run are removed, they stay, and that is
                // reported.
                let only_older = verified.text().contains("is not in _manifest.json");
                assert!(verified.code == Some(0) || only_older, "{}", verified.text());
            }
        }
        run_sluice(folder, &over).expect(0);
        let found = super::tree(&folder.at("out"));
        let is_there = new.iter().all(|(name, bytes)| found.get(name) == Some(bytes));
        let rest = found.iter().filter(|(name, _)| !new.contains_key(*name));
        // No run removes files that no manifest names.
        let is_older = rest.into_iter().all(|(name, bytes)| old.get(name) == Some(bytes));
        assert!(is_there && is_older, "kill {n}");
        fs::remove_dir_all(folder.at("out")).unwrap();
        run_sluice(folder, &["run", "1.toml"]).expect(0);
    }
}
