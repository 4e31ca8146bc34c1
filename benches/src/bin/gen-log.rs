//! Generates a log, and prints its events and payload bytes by channel.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};
use sluice_benches::{mix, robots};

#[derive(Parser)]
#[command(about)]
struct GenLogArgs {
    #[command(subcommand)]
    kind: LogKind,
}

#[derive(Subcommand)]
enum LogKind {
    /// What a robot car records: laser packets, pictures, scans, and many small events
    Dgc {
        /// Length in millions of bytes
        #[arg(long, default_value_t = 1000)]
        mb: u64,
        /// The log to write
        out: PathBuf,
    },
    /// Scans on many channels with about as many bytes each
    Many {
        /// How many channels
        #[arg(long, default_value_t = 200)]
        channels: u64,
        /// Length in millions of bytes
        #[arg(long, default_value_t = 1000)]
        mb: u64,
        /// The log to write
        out: PathBuf,
    },
    /// A VEL DataLog: scans, images and inertial states
    Vel {
        /// Length in millions of bytes
        #[arg(long, default_value_t = 1000)]
        mb: u64,
        /// The log to write
        out: PathBuf,
    },
    /// An Orca log: scans and odometry
    Orca {
        /// Length in millions of bytes
        #[arg(long, default_value_t = 1000)]
        mb: u64,
        /// The master file to write; the others go beside it
        out: PathBuf,
    },
    /// Nothing but small events
    Small {
        /// How many
        #[arg(long, default_value_t = 10_000_000)]
        events: u64,
        /// The log to write
        out: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let create =
        |path: &PathBuf| File::create(path).with_context(|| format!("create {}", path.display()));
    let counts = match GenLogArgs::parse().kind {
        LogKind::Dgc { mb, out } => mix::drive(mb * 1_000_000, create(&out)?)?,
        LogKind::Many { channels, mb, out } => mix::many(channels, mb * 1_000_000, create(&out)?)?,
        LogKind::Vel { mb, out } => robots::vel(mb * 1_000_000, create(&out)?)?,
        LogKind::Orca { mb, out } => robots::orca(mb * 1_000_000, &out)
            .with_context(|| format!("write {}", out.display()))?,
        LogKind::Small { events, out } => mix::small(events, create(&out)?)?,
    };
    write!(io::stdout(), "{counts}")?;
    Ok(())
}
