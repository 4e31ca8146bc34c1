//! Recordings on a disk that is full from some step on, or once: what was written before is whole,
//! readable and listed in the report, whatever the step.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use sluice_io::output::MANIFEST;
use sluice_io::output::faults::{FaultInjector, OutputStep, StepFault};
use sluice_kit::contract::sample_positions;
use sluice_model::Error;
use sluice_pipeline::Report;
use sluice_pipeline::run::{
    self, Milestone, Options, PiecePolicy, PieceProgress, Progress, Recording, Snapshot,
};

use crate::kit::{Folder, SeededRng, drive, log, pipeline};

/// Sinks whose files are readable while they grow.
const GROWING: [(&str, &str, &str); 10] = [
    ("mcap", "out.mcap", "chunk = \"4KiB\""),
    ("mcap", "out.mcap.zst", "chunk = \"4KiB\""),
    ("archive", "out.arrow.zst", "format = \"arrow\"\nframe = \"4KiB\""),
    ("archive", "out.lcm.zst", "frame = \"4KiB\""),
    ("lcm-log", "out.lcm", ""),
    ("lcm-log", "out.lcm", "renumber = true"),
    ("lcm-log", "out.lcm.zst", ""),
    ("vel", "out.vel", ""),
    ("jsonl", "out.jsonl.zst", "payload = true"),
    ("text", "out.txt", ""),
];

/// One file for the whole recording.
struct OnePiece;

impl PiecePolicy for OnePiece {
    fn is_complete(&self, _: &PieceProgress) -> bool {
        false
    }

    fn name(&self, target: &Path) -> Result<PathBuf, Error> {
        Ok(target.to_owned())
    }
}

/// A folder per step of the run.
#[derive(Default)]
struct ManyPieces(AtomicU32);

impl PiecePolicy for ManyPieces {
    fn is_complete(&self, piece: &PieceProgress) -> bool {
        piece.events > 0
    }

    fn name(&self, target: &Path) -> Result<PathBuf, Error> {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        Ok(target.join(format!("{number}/")))
    }
}

/// A folder with a log that is read in four steps, and with a disk.
fn folder() -> Folder {
    let (folder, events) = (Folder::new(), drive(1, 120));
    for (number, part) in events.chunks(30).enumerate() {
        folder.write(&format!("in{number}.lcm"), log(part));
    }
    fs::create_dir(folder.at("disk")).unwrap();
    folder
}

fn text((sink, path, options): (&str, &str, &str)) -> String {
    format!(
        "[sources.log]\nplugin = \"lcm-log\"\npath = \"${{DIR}}/in*.lcm\"\n\
         [sinks.out]\nplugin = \"{sink}\"\nfrom = \"log\"\npath = \"${{DIR}}/disk/{path}\"\n\
         {options}\n"
    )
}

/// Records into an empty disk with these faults, writing after each step of the run.
fn record(
    folder: &Folder,
    text: &str,
    pieces: Arc<dyn PiecePolicy>,
    faults: &Arc<FaultInjector>,
) -> Result<Report, Error> {
    let options = Options {
        jobs: Some(1),
        recording: Some(Recording { flush: Duration::ZERO, pieces }),
        faults: Some(Arc::clone(faults)),
        ..Options::default()
    };
    record_with(folder, text, &options)
}

fn record_with(folder: &Folder, text: &str, options: &Options) -> Result<Report, Error> {
    fs::remove_dir_all(folder.at("disk")).unwrap();
    fs::create_dir(folder.at("disk")).unwrap();
    run::run(pipeline(text, folder.path()), options)
}

/// The numbers of events that were read, written and lost.
fn totals(report: &Report) -> [u64; 3] {
    let sum = |count: fn(&sluice_pipeline::report::ChannelReport) -> u64| {
        report.channels.iter().map(count).sum()
    };
    [sum(|row| row.entered), sum(|row| row.out), sum(|row| row.damaged)]
}

/// How many events a file has, and how many damaged ranges.
fn read_back(folder: &Folder, (sink, path, _): (&str, &str, &str)) -> (u64, u64) {
    if !folder.at(&format!("disk/{path}")).exists() {
        return (0, 0);
    }
    if sink == "text" {
        let lines = folder.read(&format!("disk/{path}"));
        assert!(lines.is_empty() || lines.ends_with(b"\n"));
        return (lines.iter().filter(|byte| **byte == b'\n').count() as u64, 0);
    }
    let text = format!(
        "[sources.log]\nplugin = \"{sink}\"\npath = \"${{DIR}}/disk/{path}\"\n\
         [sinks.out]\nplugin = \"null\"\nfrom = \"log\"\n"
    );
    let report = run::run(pipeline(&text, folder.path()), &Options::default()).unwrap();
    (report.sources["log"].events, report.damaged_ranges)
}

/// The report of a recording with each of up to forty steps of its outputs failing in turn, and the
/// step.
fn with_each_fault(
    run: impl Fn(&Arc<FaultInjector>) -> Result<Report, Error>,
    fault: impl Fn(u64) -> FaultInjector,
) -> Vec<(Option<OutputStep>, Report)> {
    let all = Arc::new(FaultInjector::none());
    assert_eq!(run(&all).unwrap().exit(), 0);
    let steps = sample_positions(all.steps() as usize, 40);
    let each = steps.into_iter().filter_map(|step| {
        let faults = Arc::new(fault(step as u64));
        match run(&faults) {
            Ok(report) => Some((faults.failed_step(), report)),
            Err(error) => {
                // Nothing has been recorded yet.
                assert!(step < 4 && error.to_string().contains("no space left"), "{step}: {error}");
                None
            }
        }
    });
    each.collect()
}

/// Checks that every event is accounted for, and that a file has at least the written ones. Returns
/// how many it has, and how many damaged ranges.
#[track_caller]
fn check(report: &Report, folder: &Folder, sink: (&str, &str, &str)) -> (u64, u64) {
    let [came, written, lost] = totals(report);
    assert_eq!(came, written + lost);
    let (back, damage) = read_back(folder, sink);
    assert!(back >= written, "{back} of {written}");
    (back, damage)
}

#[test]
fn a_file_that_grows_is_whole_and_listed_when_the_disk_was_full_once() {
    let folder = folder();
    for sink in GROWING {
        // The files are checked before the next run replaces them.
        let run = |faults: &Arc<FaultInjector>| {
            let report = record(&folder, &text(sink), Arc::new(OnePiece), faults)?;
            let (back, damage) = check(&report, &folder, sink);
            assert_eq!(damage, 0, "{sink:?} {faults:?}");
            // What could not be synced may not be on the disk.
            if faults.failed_step() != Some(OutputStep::Sync) {
                let rows: Vec<u64> = report.files.iter().map(|file| file.rows).collect();
                assert!(rows == [back] || rows.is_empty() && back == 0, "{sink:?} {faults:?}");
            }
            Ok(report)
        };
        let mut failed_writes = 0;
        for (step, report) in with_each_fault(run, |step| FaultInjector::at(step, StepFault::Short))
        {
            let has_note = |end: &str| report.notes.iter().any(|note| note.what.ends_with(end));
            if report.files.is_empty() && totals(&report)[0] > 0 {
                assert!(has_note("those before it are kept"), "{sink:?}: {:?}", report.notes);
            } else {
                let kept = has_note("everything recorded before is kept");
                assert!(kept, "{sink:?}: {:?}", report.notes);
            }
            // Nobody asked for the end, even if nothing is lost.
            assert_eq!((report.disk_full, report.exit()), (true, 3), "{sink:?}: {step:?}");
            failed_writes += u32::from(step == Some(OutputStep::Write));
        }
        assert!(failed_writes > 3, "{sink:?}: {failed_writes}");
    }
}

#[test]
fn events_in_the_frames_of_a_file_are_not_counted_as_lost() {
    let folder = folder();
    let events = drive(2, 3000);
    for (number, part) in events.chunks(300).enumerate() {
        folder.write(&format!("in{number:02}.lcm"), log(part));
    }
    for sink in GROWING.into_iter().filter(|(_, path, _)| path.ends_with(".zst")) {
        let run = |faults: &Arc<FaultInjector>| {
            let options = Options {
                jobs: Some(1),
                // No flush says what is written.
                recording: Some(Recording {
                    flush: Duration::from_secs(3600),
                    pieces: Arc::new(OnePiece),
                }),
                faults: Some(Arc::clone(faults)),
                ..Options::default()
            };
            let report = record_with(&folder, &text(sink), &options)?;
            let (back, _) = check(&report, &folder, sink);
            let written = totals(&report)[1];
            // What could not be synced may not be on the disk; of batches that are cut into chunks
            // or frames of their own, the last one may be there in part.
            let is_exact = matches!(sink.0, "jsonl" | "lcm-log");
            if is_exact && faults.failed_step() != Some(OutputStep::Sync) {
                assert_eq!(back, written, "{sink:?} {faults:?}");
            }
            Ok(report)
        };
        for (_, report) in with_each_fault(run, |step| FaultInjector::at(step, StepFault::Short)) {
            assert!(report.disk_full, "{sink:?}");
        }
    }
}

#[test]
fn a_file_that_grows_is_readable_on_a_disk_that_stays_full() {
    let folder = folder();
    for sink in GROWING {
        let run = |faults: &Arc<FaultInjector>| {
            let report = record(&folder, &text(sink), Arc::new(OnePiece), faults)?;
            let (_, damage) = check(&report, &folder, sink);
            // An archive tells that its seek table is missing.
            assert!(damage <= u64::from(sink.0 == "archive"), "{sink:?} {faults:?}: {damage}");
            Ok(report)
        };
        with_each_fault(run, |step| FaultInjector::since(step, StepFault::Full));
    }
}

#[test]
fn pieces_of_tables_before_a_full_disk_are_kept_and_the_run_says_what_is_lost() {
    let folder = folder();
    let text = text(("parquet", "tables/", ""));
    let run = |faults: &Arc<FaultInjector>| {
        let report = record(&folder, &text, Arc::new(ManyPieces::default()), faults)?;
        let [came, written, lost] = totals(&report);
        assert_eq!(came, written + lost, "{faults:?}");
        assert!(lost == 0 || report.exit() == 3, "{faults:?}");
        let rows: u64 = report.files.iter().map(|file| file.rows).sum();
        assert_eq!(rows, written, "{faults:?}: {:?}", report.files);
        let listed: BTreeSet<PathBuf> = report.files.iter().map(|file| file.path.clone()).collect();
        let (manifests, left): (BTreeSet<PathBuf>, BTreeSet<PathBuf>) =
            super::files(&folder.at("disk")).into_iter().partition(|path| path.ends_with(MANIFEST));
        assert_eq!(left, listed, "{faults:?}");
        let mut pieces = left.iter().filter_map(|path| path.ancestors().nth(2));
        assert!(pieces.all(|piece| manifests.contains(&piece.join(MANIFEST))), "{faults:?}");
        Ok(report)
    };
    for fault in [StepFault::Full, StepFault::Short] {
        let ended = with_each_fault(run, |step| FaultInjector::since(step, fault));
        assert!(ended.iter().any(|(_, report)| report.exit() == 3));
    }
}

/// A record of an MCAP file.
fn record_of(opcode: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    [&[opcode][..], &(content.len() as u64).to_le_bytes(), &content].concat()
}

/// An MCAP file with a message, and an attachment that is longer than what is copied at once.
fn mcap_with_attachment() -> Vec<u8> {
    const MAGIC: &[u8] = b"\x89MCAP0\r\n";
    let text = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let mut rng = SeededRng(7);
    let data: Vec<u8> = (0..3 << 20).map(|_| rng.below(256) as u8).collect();
    let (name, len) = (text("name"), (data.len() as u64).to_le_bytes());
    [
        MAGIC,
        &record_of(1, &[&text(""), &text("")]),
        &record_of(4, &[&[1, 0, 0, 0], &text("/a"), &text("json"), &[0; 4]]),
        &record_of(5, &[&[1, 0], &[0; 4], &[0; 8], &[0; 8], b"{}"]),
        &record_of(9, &[&[0; 16], &name, &name, &len, &data, &[0; 4]]),
        &record_of(15, &[&[0; 4]]),
        &record_of(2, &[&[0; 20]]),
        MAGIC,
    ]
    .concat()
}

#[test]
fn an_attachment_is_copied_whole_or_not_at_all_when_the_disk_is_full() {
    let folder = Folder::new();
    folder.write("in.mcap", mcap_with_attachment());
    fs::create_dir(folder.at("disk")).unwrap();
    for path in ["out.mcap", "out.mcap.zst"] {
        let text = text(("mcap", path, "")).replace(
            "plugin = \"lcm-log\"\npath = \"${DIR}/in*.lcm\"",
            "plugin = \"mcap\"\npath = \"${DIR}/in.mcap\"",
        );
        let run = |faults: &Arc<FaultInjector>| {
            let report = record(&folder, &text, Arc::new(OnePiece), faults)?;
            let (back, damage) = check(&report, &folder, ("mcap", path, ""));
            assert_eq!((back, damage), (totals(&report)[1], 0), "{path} {faults:?}");
            Ok(report)
        };
        let once = |step| FaultInjector::at(step, StepFault::Short);
        assert!(with_each_fault(run, once).iter().any(|(_, report)| report.disk_full), "{path}");
        with_each_fault(run, |step| FaultInjector::since(step, StepFault::Full));
    }
}

/// Waits at a barrier when everything has been read.
struct EndOfInput(Arc<Barrier>);

impl Progress for EndOfInput {
    fn update(&self, _: &Snapshot) {}

    fn milestone(&self, milestone: &Milestone<'_>) {
        if matches!(milestone, Milestone::Finishing) {
            self.0.wait();
        }
    }
}

#[test]
fn a_sync_that_fails_after_the_last_event_is_not_lost() {
    let folder = folder();
    let record = |fault: StepFault| {
        let barrier = Arc::new(Barrier::new(2));
        let pieces = Arc::new(OnePiece);
        let options = Options {
            jobs: Some(1),
            recording: Some(Recording { flush: Duration::ZERO, pieces }),
            faults: Some(Arc::new(FaultInjector::in_background(fault, Arc::clone(&barrier)))),
            progress: Some(Arc::new(EndOfInput(barrier))),
            ..Options::default()
        };
        record_with(&folder, &text(("lcm-log", "out.lcm", "")), &options)
    };
    let report = record(StepFault::Full).unwrap();
    assert_eq!((totals(&report), report.exit()), ([120, 0, 120], 3));
    let error = record(StepFault::Broken).unwrap_err().to_string();
    assert!(error.contains("out.lcm"), "{error}");
}
