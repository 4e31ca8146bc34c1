//! Decodes Velodyne packets into points, on one thread, with events in memory. Prints a JSON line
//! with the best time of several rounds per batch, and the sums of the points.

use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, TimestampNanosecondType, UInt16Type};
use clap::{Parser, Subcommand};
use serde_json::json;
use sluice_benches::{bare, points};
use sluice_dgc::fuzzing::Points;
use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, Encoding, Map, Name, Registry, Stage, StageContext,
};

#[derive(Parser)]
#[command(about)]
struct PointsArgs {
    #[command(subcommand)]
    task: PointsTask,
}

#[derive(Subcommand)]
enum PointsTask {
    /// Writes a log of packets, and prints how many events and bytes of payload it has
    Make { packets: u64, log: PathBuf },
    /// Makes points of such a log, as often as wanted
    Decode {
        log: PathBuf,
        /// Leaves out what has no return
        #[arg(long)]
        drop: bool,
        #[arg(default_value = "7")]
        rounds: usize,
    },
}

/// The payload bytes of a batch, like a block of a log.
const BATCH: usize = 2 << 20;
/// Longer than any column of a batch.
const LONG_BLOCK: usize = 24 << 20;

fn main() -> anyhow::Result<()> {
    match PointsArgs::parse().task {
        PointsTask::Make { packets, log } => {
            let counts = points::packets(packets, std::fs::File::create(log)?)?;
            Ok(write!(std::io::stdout(), "{counts}")?)
        }
        PointsTask::Decode { log, drop, rounds } => decode(&log, drop, rounds),
    }
}

fn decode(log: &Path, drop_empty: bool, rounds: usize) -> anyhow::Result<()> {
    // As the program does at start: from then on glibc keeps long blocks instead of returning each.
    drop(black_box(Vec::<u8>::with_capacity(LONG_BLOCK)));
    let (channels, map) = (Channels::default(), stage(drop_empty)?);
    let batches = batches(log, &channels)?;
    let (mut bests, mut sums) = (vec![f64::MAX; batches.len()], points::Sums::default());
    for round in 0..rounds {
        for (batch, best) in batches.iter().zip(&mut bests) {
            let start = Instant::now();
            let mut context = StageContext::new(&channels, None);
            let made = black_box(map.apply(batch.clone(), &mut context)?);
            let made_in = start.elapsed();
            if round == 0 {
                add(&made, &mut sums)?;
            }
            let start = Instant::now();
            drop(made);
            *best = best.min((made_in + start.elapsed()).as_secs_f64());
        }
    }
    // Other processes may interrupt a round.
    let best: f64 = bests.iter().sum();
    let rows: usize = batches.iter().map(Batch::len).sum();
    let said = json!({ "rows": rows, "seconds": best, "points": sums.points, "sums": sums.columns,
        "points_per_second": sums.points as f64 / best });
    Ok(writeln!(std::io::stdout(), "{said}")?)
}

fn stage(drop_empty: bool) -> anyhow::Result<Box<dyn Map>> {
    let registry = Registry::linked();
    match registry.stage("velodyne", json!({ "drop_zero_returns": drop_empty })) {
        Ok(Stage::Map(map)) => Ok(map),
        Ok(_) => bail!("`velodyne` has a memory"),
        Err(mistake) => bail!("{mistake}"),
    }
}

fn batches(log: &Path, channels: &Channels) -> anyhow::Result<Vec<Batch>> {
    let channel = Channel::new(Name::from_text("VELODYNE"), "log", Encoding::Lcm);
    let id = channels.intern(channel)?;
    let (mut batches, mut builder, mut bytes) = (Vec::new(), BatchBuilder::default(), 0);
    bare::for_each_event(std::fs::File::open(log)?, |_, payload, _| {
        builder.push_copy(0, 0, id, payload);
        bytes += payload.len();
        if bytes >= BATCH {
            batches.push(std::mem::take(&mut builder).finish());
            bytes = 0;
        }
        Ok(())
    })?;
    batches.push(builder.finish());
    Ok(batches)
}

fn add(batch: &Batch, sums: &mut points::Sums) -> anyhow::Result<()> {
    for points in batch.rows().iter().filter_map(Points::from_rows) {
        let member = |name| points.member(name).context("points have it");
        let ([x, y, z], intensity) =
            (points.xyz(), member("intensity")?.as_primitive::<Float32Type>());
        let laser = member("laser")?.as_primitive::<UInt16Type>();
        let azimuth = member("azimuth")?.as_primitive::<Float32Type>();
        let time = member("time")?.as_primitive::<TimestampNanosecondType>();
        for at in 0..points.len() {
            let [intensity, azimuth] = [intensity, azimuth].map(|column| column.value(at));
            sums.add([x[at], y[at], z[at]], intensity, laser.value(at), azimuth, time.value(at));
        }
    }
    Ok(())
}
