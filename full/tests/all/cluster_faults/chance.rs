//! Kills processes at random moments.

use std::fs;
use std::time::{Duration, Instant};

use sluice_kit::contract::trials;

use super::{GatedBatch, until_idle};
use crate::cluster::processes::{Cluster, ClusterProcess};
use crate::kit::{LcmEvent, SeededRng, log};

/// Small units without a gate.
const TINY: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "in/*.lcm"
[sinks.packed]
plugin = "archive"
from = "log"
path = "out/{stem}.lcm.zst"
"#;

/// The number of units.
const UNITS: u64 = 300;

fn tiny() -> GatedBatch {
    let logs =
        (0..UNITS).map(|n| log(&[LcmEvent::new(0, 1_194_098_400_000_000, "A", &[n as u8; 40])]));
    GatedBatch::with(TINY, "", logs)
}

#[test]
fn random_kills_do_not_change_the_output() {
    let gated = tiny();
    for seed in 0..u64::from(trials(1, 20)) {
        eprintln!("seed {seed}");
        round(&gated, &mut SeededRng(seed));
        fs::remove_dir_all(gated.folder.at("out")).unwrap();
    }
}

/// Runs the batch while executors, schedulers and drivers are killed and replaced.
fn round(gated: &GatedBatch, rng: &mut SeededRng) {
    let mut cluster = gated.cluster(2);
    let mut run = gated.start(&cluster, &[]);
    let mut kills = 4;
    loop {
        let pause = Instant::now() + Duration::from_millis(200 + rng.below(2500));
        while run.is_running() && Instant::now() < pause {
            std::thread::sleep(Duration::from_millis(10));
        }
        if !run.is_running() {
            // Let it continue, whatever stopped it.
            if run.code() == Some(0) {
                break;
            }
            gated.assert_consistent();
            run = gated.start(&cluster, &["--resume"]);
        } else if kills > 0 {
            kills -= 1;
            kill(gated, &mut cluster, &mut run, rng);
        }
    }
    until_idle(gated, &cluster);
    gated.until_quiet();
    gated.assert_complete();
}

fn kill(gated: &GatedBatch, cluster: &mut Cluster, run: &mut ClusterProcess, rng: &mut SeededRng) {
    match rng.below(6) {
        0 => run.kill(),
        1 => {
            cluster.scheduler.kill();
            cluster.scheduler = gated.scheduler(&cluster.address);
        }
        which => {
            let which = (which % 2) as usize;
            cluster.executors[which].kill();
            cluster.executors[which] = gated.executor(&cluster.address);
        }
    }
}
