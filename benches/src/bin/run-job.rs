//! Runs one pipeline in the engine, and prints the events that reached its sink by channel.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{anyhow, ensure};
use clap::{Parser, Subcommand};
use sluice_lcm as _;
use sluice_model::options::ByteSize;
use sluice_model::{Overwrite, Registry};
use sluice_orca as _;
use sluice_pipeline::run::Options;
use sluice_pipeline::{Document, Pipeline, Report, Variables};
use sluice_stages as _;
use sluice_vel as _;

#[derive(Parser)]
#[command(about)]
struct RunJobArgs {
    #[command(subcommand)]
    job: Job,
    /// Threads; nothing means one a core
    #[arg(long, global = true)]
    jobs: Option<usize>,
    /// Cap on memory, in MiB
    #[arg(long, global = true)]
    memory: Option<u64>,
}

#[derive(Subcommand)]
enum Job {
    /// Reads every event and drops it
    Null {
        /// The log to read
        log: PathBuf,
        /// The plugin that reads it
        #[arg(long, default_value = "lcm-log")]
        plugin: String,
        /// How many stages that let everything through stand between
        #[arg(long, default_value_t = 0)]
        stages: usize,
    },
    /// Copies a log, or some channels of it
    Copy {
        /// The log to read
        log: PathBuf,
        /// The log to write
        out: PathBuf,
        /// Only channels that match
        #[arg(long)]
        keep: Option<String>,
        /// No channels that match
        #[arg(long)]
        drop: Option<String>,
        /// Numbers events from 0
        #[arg(long)]
        renumber: bool,
    },
}

fn main() -> anyhow::Result<()> {
    let RunJobArgs { job, jobs, memory } = RunJobArgs::parse();
    let document = Document::generated("benchmark", pipeline(&job));
    let pipeline = Pipeline::read(&document, &Variables::default(), &Registry::linked())
        .map_err(|mistakes| anyhow!("the benchmark's pipeline is wrong: {mistakes:?}"))?;
    let memory = memory.map(|mib| ByteSize(mib << 20));
    let options = Options { jobs, memory, overwrite: Overwrite::Replace, ..Options::default() };
    let report = sluice_pipeline::run::run(pipeline, &options)?;
    ensure!(report.is_complete(), "the log is damaged: nothing was measured");
    Ok(io::stdout().write_all(table(&report).as_bytes())?)
}

/// The job as a pipeline file.
fn pipeline(job: &Job) -> String {
    let source = |plugin: &str, log: &PathBuf| {
        format!("[sources.log]\nplugin = \"{plugin}\"\npath = {log:?}\n")
    };
    match job {
        Job::Null { log, plugin, stages } => {
            let mut text = source(plugin, log);
            let mut last = "log".to_owned();
            for n in 0..*stages {
                text += &format!(
                    "[stages.s{n}]\nplugin = \"filter\"\nfrom = \"{last}\"\nchannels = \"*\"\n"
                );
                last = format!("s{n}");
            }
            text + &format!("[sinks.out]\nplugin = \"null\"\nfrom = \"{last}\"\n")
        }
        Job::Copy { log, out, keep, drop, renumber } => {
            let mut text = source("lcm-log", log);
            let filtered = keep.is_some() || drop.is_some();
            if filtered {
                text += "[stages.some]\nplugin = \"filter\"\nfrom = \"log\"\n";
                text += &keep
                    .as_ref()
                    .map_or_else(String::new, |keep| format!("channels = {keep:?}\n"));
                text +=
                    &drop.as_ref().map_or_else(String::new, |drop| format!("exclude = {drop:?}\n"));
            }
            let from = if filtered { "some" } else { "log" };
            text + &format!(
                "[sinks.out]\nplugin = \"lcm-log\"\nfrom = \"{from}\"\npath = {out:?}\n\
                 renumber = {renumber}\n"
            )
        }
    }
}

/// Channel, events read, events written; sorted by channel.
fn table(report: &Report) -> String {
    let mut rows: Vec<_> = report.channels.iter().map(|c| (&c.channel, c.entered, c.out)).collect();
    rows.sort();
    rows.iter().map(|(channel, entered, out)| format!("{channel}\t{entered}\t{out}\n")).collect()
}
