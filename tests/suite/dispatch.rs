//! Units run by remote workers: whatever happens on the way, outputs and records equal those of a
//! local run, byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use sluice_io::output::{faults::FaultInjector, faults::StepFault};
use sluice_model::{ErrorKind, Overwrite, Registry};
use sluice_pipeline::batch::{Batch, BatchReport, FailurePolicy, Status};
use sluice_pipeline::dispatch::{self, Carrier, OrderOutcome};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Document, Pipeline, Report, Variables};

use crate::kit::{Folder, SMALL_MEMORY, drive, log, run_sluice};

mod carriers;
mod failures;
mod interrupted;

use carriers::{FailingCarrier, IdleCarrier, InterruptingCarrier, ThreadCarrier, UnitFate};

/// Every kind of output for each of several logs, one of them damaged.
const KINDS: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "${DIR}/in/*.lcm"
on_damage = "quarantine"
quarantine = "${DIR}/out/bad/{stem}.bytes"
[sinks.packed]
plugin = "lcm-log"
from = "log"
path = "${DIR}/out/{stem}.lcm.zst"
[sinks.pieces]
plugin = "lcm-log"
from = "log"
path = "${DIR}/out/pieces/{stem}.lcm"
split_mb = 0.004
[sinks.parts]
plugin = "lcm-log"
from = "log"
path = "${DIR}/out/parts/{stem}/"
[sinks.tables]
plugin = "parquet"
from = "log"
path = "${DIR}/out/tables/{stem}/"
[sinks.table]
plugin = "parquet"
from = "log"
layout = "single"
path = "${DIR}/out/{stem}.parquet"
[sinks.images]
plugin = "files"
from = "log"
path = "${DIR}/out/files/{stem}/"
[sinks.orca]
plugin = "orca"
from = "log"
path = "${DIR}/out/orca/{stem}_master.log"
"#;

/// The number of logs.
const UNITS: usize = 5;

fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for n in 0..UNITS {
        let whole = log(&drive(n as u64 + 1, 24 + 16 * (n as i64 % 3)));
        let damaged = [&whole[..], b"stray bytes", &whole].concat();
        folder.write(&format!("in/{n}.lcm"), if n == 3 { damaged } else { whole });
    }
    folder
}

fn read(document: &Document, set: &[(&str, &str)], folder: &Folder) -> Pipeline {
    let dir = folder.path().display().to_string();
    let given = set.iter().map(|(name, value)| (*name, value.replace("${DIR}", &dir)));
    let all = given.chain([("DIR", dir.clone())]);
    let set = all.map(|(name, value)| (name.to_owned(), value)).collect();
    let variables = Variables { set, environment: false };
    Pipeline::read(document, &variables, &Registry::linked()).unwrap_or_else(|m| panic!("{m}"))
}

fn batch(text: &str, folder: &Folder) -> Batch {
    let pipeline = read(&Document::generated("batch.toml", text), &[], folder);
    Batch::new(&pipeline, &Registry::linked(), FailurePolicy::Continue).unwrap()
}

fn options(overwrite: Overwrite) -> Options {
    let (jobs, memory) = (Some(2), Some(SMALL_MEMORY));
    Options { jobs, memory, overwrite, hash: true, ..Options::default() }
}

type DispatchTree = BTreeMap<String, Vec<u8>>;

/// Every file below a folder, by its path there.
fn tree(folder: &Path) -> DispatchTree {
    let mut files = DispatchTree::new();
    // Files may disappear while a driver runs.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            files.extend(
                tree(&path).into_iter().map(|(below, text)| (format!("{name}/{below}"), text)),
            );
        } else {
            files.extend(fs::read(path).ok().map(|bytes| (name, bytes)));
        }
    }
    files
}

#[track_caller]
fn assert_same_files(expected: &DispatchTree, found: &DispatchTree, when: &str) {
    let only = |one: &DispatchTree, other: &DispatchTree| {
        one.keys().filter(|name| !other.contains_key(*name)).cloned().collect::<Vec<_>>()
    };
    let none = Vec::<String>::new();
    assert_eq!((only(expected, found), only(found, expected)), (none.clone(), none), "{when}");
    for (name, bytes) in expected {
        assert!(found[name] == *bytes, "{when}: {name} differs");
    }
}

/// A report without what depends on the clock.
fn without_seconds(mut report: serde_json::Value) -> serde_json::Value {
    report["seconds"] = 0.into();
    report
}

fn local(text: &str, folder: &Folder, overwrite: Overwrite) -> BatchReport {
    let batch = batch(text, folder);
    batch.run(&Registry::linked(), &options(overwrite)).unwrap()
}

fn run_carried(
    text: &str,
    folder: &Folder,
    overwrite: Overwrite,
    carrier: &dyn Carrier,
) -> BatchReport {
    batch(text, folder).run_by(carrier, &Registry::linked(), &options(overwrite)).unwrap()
}

/// The outputs and the report of a local run; the outputs are removed again.
fn expected(text: &str, folder: &Folder) -> (DispatchTree, serde_json::Value) {
    let report = without_seconds(local(text, folder, Overwrite::Refuse).to_json());
    let expected = tree(&folder.at("out"));
    fs::remove_dir_all(folder.at("out")).unwrap();
    (expected, report)
}

#[test]
fn workers_write_the_same_outputs_as_a_local_run() {
    let folder = folder();
    let (expected, report) = expected(KINDS, &folder);
    assert!(expected.len() > 60 && expected.contains_key("bad/3.bytes"), "{:?}", expected.keys());
    let carried = run_carried(KINDS, &folder, Overwrite::Refuse, &ThreadCarrier::reliable());
    assert_eq!(carried.exit(), 3);
    assert_eq!(without_seconds(carried.to_json()), report);
    assert_same_files(&expected, &tree(&folder.at("out")), "carried");
}

#[test]
fn existing_outputs_are_replaced_as_in_a_local_run() {
    let one = folder();
    // Another pipeline with the same names leaves other files in the same folders.
    let before = KINDS.replace("split_mb = 0.004", "split_mb = 0.002");
    local(&before, &one, Overwrite::Refuse);
    one.write("in/1.lcm", log(&drive(77, 30)));
    one.write("out/tables/1/mine", "stays");
    let kept = tree(&one.at("out"));
    local(KINDS, &one, Overwrite::Replace);
    let expected = tree(&one.at("out"));
    for carrier in [
        ThreadCarrier::reliable(),
        ThreadCarrier::random(3),
        ThreadCarrier::with_fates(&[(1, &[UnitFate::Twice])]),
    ] {
        fs::remove_dir_all(one.at("out")).unwrap();
        for (name, bytes) in &kept {
            let path = one.at("out").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        run_carried(KINDS, &one, Overwrite::Replace, &carrier);
        assert_same_files(&expected, &tree(&one.at("out")), "replaced");
    }
}

/// Damage in `in/2.lcm` is an error.
const STRICT: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "${DIR}/in/*.lcm"
on_damage = "stop"
[sinks.lines]
plugin = "jsonl"
from = "log"
path = "${DIR}/out/{stem}.jsonl"
"#;

#[test]
fn a_carrier_without_workers_does_nothing() {
    let folder = folder();
    let batch = batch(STRICT, &folder);
    let run = || batch.run_by(&IdleCarrier, &Registry::linked(), &options(Overwrite::Refuse));
    assert!(run().unwrap_err().to_string().contains("cannot reach anybody"));
    assert!(!folder.at("out").exists());
}

#[test]
fn programs_run_only_where_the_worker_allows_it_too() {
    let folder = folder();
    let counts = "[sources.log]\nplugin = \"lcm-log\"\npath = \"${DIR}/in/*.lcm\"\n\
        [sinks.counts]\nplugin = \"exec\"\n\
                  from = \"log\"\ncommand = [\"wc\", \"-l\"]\npath = \"${DIR}/out/{stem}.txt\"\n";
    let run = |driver: bool, worker: bool| {
        let mut threads = ThreadCarrier::reliable();
        threads.options.allow_exec = worker;
        let options = Options { allow_exec: driver, ..options(Overwrite::Refuse) };
        batch(counts, &folder).run_by(&threads, &Registry::linked(), &options)
    };
    let refused = run(false, true).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::NotAllowed(_)), "{refused}");
    let failed = run(true, false).unwrap();
    assert_eq!(failed.count(Status::Failed), UNITS);
    let why = failed.units[0].error.as_deref().unwrap();
    assert!(why.contains("start executors with --allow-exec"), "{why}");
    assert!(!folder.at("out").exists());
    assert_eq!(run(true, true).unwrap().exit(), 3);
    assert_eq!(tree(&folder.at("out")).len(), UNITS + 1);
}

#[test]
fn pipelines_that_need_a_local_run_are_refused_before_anything_is_sent() {
    let folder = folder();
    let refused = |text: &str| {
        let pipeline = read(&Document::generated("refused.toml", text), &[], &folder);
        let options = options(Overwrite::Replace);
        let registry = Registry::linked();
        let refused = match pipeline.templates.is_empty() {
            true => dispatch::run_by(pipeline, &IdleCarrier, &registry, &options).map(drop),
            false => Batch::new(&pipeline, &registry, FailurePolicy::Stop)
                .and_then(|batch| batch.run_by(&IdleCarrier, &registry, &options))
                .map(drop),
        };
        let refused = refused.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::NotAllowed(_)), "{refused}");
        refused.to_string()
    };
    let source = "[sources.log]\nplugin = \"lcm-log\"\npath = \"${DIR}/in/*.lcm\"\n";
    let sink = |plugin: &str, rest: &str| {
        format!("{source}[sinks.out]\nplugin = \"{plugin}\"\nfrom = \"log\"\n{rest}\n")
    };
    let live = "[sources.live]\nplugin = \"lcm-udp\"\n[sinks.out]\nplugin = \"lcm-log\"\n\
        from = \"live\"\n\
                path = \"${DIR}/out.lcm\"\n";
    assert!(refused(live).contains("is a live source"));
    assert!(refused(&sink("lcm-udp", "")).contains("writes no files"));
    assert!(refused(&sink("jsonl", "path = \"-\"")).contains("standard output"));
    assert!(refused(&sink("jsonl", "path = \"/dev/null\"")).contains("/dev/null"));
    folder.write("more.lcm", log(&drive(1, 3)));
    let more = sink("lcm-log", "path = \"${DIR}/more.lcm\"\nappend = true");
    assert!(refused(&more).contains("appends to"));
    let piped = sink("jsonl", "path = \"${DIR}/out.jsonl\"").replace("${DIR}/in/*.lcm", "-");
    assert!(refused(&piped).contains("standard input"));
    let both = sink("jsonl", "path = \"${DIR}/out/{stem}.jsonl\"");
    let both = format!("{both}[sinks.more]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"-\"\n");
    assert!(refused(&both).contains("standard output"));
    assert!(!folder.at("out").exists());
}

/// Runs a pipeline of the library locally and by workers; compares outputs and reports.
fn compare(name: &str, set: &[(&str, &str)], folder: &Folder) {
    let document = || Document::open(name).unwrap();
    let registry = Registry::linked();
    let both = |carrier: Option<&ThreadCarrier>| {
        let (pipeline, options) = (read(&document(), set, folder), options(Overwrite::Refuse));
        let report = match (pipeline.templates.is_empty(), carrier) {
            (true, None) => run::run(pipeline, &options).map(|report: Report| report.to_json()),
            (true, Some(carrier)) => dispatch::run_by(pipeline, carrier, &registry, &options)
                .map(|report: Report| report.to_json()),
            (false, carrier) => {
                let batch = Batch::new(&pipeline, &registry, FailurePolicy::Continue).unwrap();
                let report = match carrier {
                    None => batch.run(&registry, &options),
                    Some(carrier) => batch.run_by(carrier, &registry, &options),
                };
                report.map(|report| report.to_json())
            }
        };
        let (report, found) = (without_seconds(report.unwrap()), tree(&folder.at("out")));
        fs::remove_dir_all(folder.at("out")).unwrap();
        (report, found)
    };
    let (expected, there) = both(None);
    assert!(!there.is_empty(), "{name}");
    for threads in [
        ThreadCarrier::reliable(),
        ThreadCarrier::random(5),
        ThreadCarrier::with_fates(&[(0, &[UnitFate::Late, UnitFate::Twice])]),
    ] {
        let (report, found) = both(Some(&threads));
        assert_same_files(&there, &found, name);
        assert_eq!(report, expected, "{name}");
    }
}

#[test]
fn built_in_pipelines_give_the_same_outputs_by_workers() {
    let folder = folder();
    crate::robots::orca(&folder);
    let logs = ("INPUT", "${DIR}/in/*.lcm");
    compare("batch", &[logs, ("OUT", "${DIR}/out")], &folder);
    compare("log-to-tables", &[logs, ("OUT", "${DIR}/out/{stem}/")], &folder);
    compare("log-to-tables", &[logs, ("OUT", "${DIR}/out/all/")], &folder);
    compare("quickstart", &[("SECONDS", "1"), ("OUT", "${DIR}/out")], &folder);
    let master = ("INPUT", "${DIR}/orca/master.log");
    compare("orca-to-log", &[master, ("OUT", "${DIR}/out/drive.lcm")], &folder);
    compare("orca-to-log", &[master, ("OUT", "${DIR}/out/{stem}.lcm")], &folder);
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=1", "--set", "OUT=demo"])
        .expect(0);
    let demo = ("INPUT", "${DIR}/demo/drive.lcm");
    compare("dgc-poses", &[demo, ("OUT", "${DIR}/out/{stem}")], &folder);
    compare("dgc-poses", &[demo, ("OUT", "${DIR}/out/poses"), ("FORMAT", "text")], &folder);
}
