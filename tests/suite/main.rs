//! Tests that need more than one crate of Sluice, its program, or the tools of others.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod archive;
mod batch;
mod camlog;
mod carried_types;
mod changing;
mod circles;
mod conformance;
mod damage;
mod datasets;
mod determinism;
mod dgc;
mod dispatch;
mod documents;
mod embedding;
mod examples;
mod exec;
mod expectations;
mod faults;
mod folders;
mod frames;
mod guide;
mod inputs;
mod kill;
mod kit;
mod lcmtypes;
mod library;
mod linking;
mod live;
mod log_format;
mod mcap;
mod merge;
#[expect(dead_code, reason = "the other suite uses the rest")]
mod namespaces;
mod new;
mod outsider;
mod pages;
mod peers;
mod playing;
mod portable;
mod process;
mod progress;
mod quarantine;
mod readmes;
mod record;
mod recorder;
mod records;
mod registry;
mod releases;
mod report_shape;
mod reports;
mod robots;
mod ros;
mod samples;
mod scaling;
mod schema;
mod shards;
mod shared_folders;
mod source_names;
mod spying;
mod stopping;
mod tables;
mod typed;
mod unusable_types;
mod views;
mod wide_times;
mod windows;
mod workspaces;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_sluice-under-test");
