//! The kit finds the defect of sinks that each have one, and finds nothing in a valid sink.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_conformance::{EventOrder, FormatFidelity, Promise, SinkTrial, TimeRounding, sink};
use sluice_model::options::OutPath;
use sluice_model::registry::{make_source, schema_of};
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, DynSink, Encoding, Error, Event, Input, Name,
    OptionsError, OutputFile, Plugin, PluginFactory, PrepareContext, ReadContext, Reader, Sink,
    SinkContext, SinkTraits, Source, Split, SplitStart, Written, options,
};

use crate::found::expect_findings;

/// The defect of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinkDefect {
    Nothing,
    /// Writes to its path directly.
    Directly,
    /// Leaves another file next to it.
    Litters,
    /// Ignores a failed write.
    IgnoresErrors,
    /// Removes an existing output.
    Replaces,
    /// Announces another file.
    OtherTargets,
    /// Writes the batch boundaries.
    MarksBatches,
    /// Writes the channel ids.
    WritesIds,
    /// Never writes the last block.
    LosesLast,
    /// Reports one event too many.
    Miscounts,
    /// Completes its file with one row too many.
    MiscountsRows,
    /// Drops the last byte of each payload.
    CutsPayloads,
    Panics,
    /// Drops every third event.
    SkipsSome,
    /// Numbers events as they are encoded.
    Counts,
    /// Writes a file one folder up.
    WritesAbove,
    /// Ends the process.
    Aborts,
    /// Uses channel names as file names.
    BelievesNames,
    PanicsBefore1970,
}

/// Writes the logs of these tests.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct ToySinkOptions {
    /// The log.
    path: OutPath,
}

struct ToySink {
    path: PathBuf,
    wrong: SinkDefect,
    encoded: AtomicU64,
}

fn make(value: Value, wrong: SinkDefect) -> Result<DynSink, OptionsError> {
    let ToySinkOptions { path } = options::read(value)?;
    Ok(DynSink::new(ToySink { path: path.0, wrong, encoded: AtomicU64::new(0) }))
}

macro_rules! toy {
    ($($name:literal: $wrong:ident),* $(,)?) => {
        $(sluice_model::inventory::submit! {
            Plugin {
                about: "writes the logs of these tests",
                sample: concat!(
                    "[sinks.out]\nplugin = \"", $name, "\"\nfrom = \"log\"\npath = \"a\""
                ),
                extensions: &[$name],
                ..Plugin::new(
                    $name,
                    PluginFactory::Sink(|value, _| make(value, SinkDefect::$wrong)),
                    schema_of::<ToySinkOptions>,
                )
            }
        })*
    };
}

toy! {
    "toy": Nothing,
    "directly": Directly,
    "litters": Litters,
    "ignores-errors": IgnoresErrors,
    "replaces": Replaces,
    "other-targets": OtherTargets,
    "marks-batches": MarksBatches,
    "writes-ids": WritesIds,
    "loses-last": LosesLast,
    "miscounts": Miscounts,
    "miscounts-rows": MiscountsRows,
    "cuts-payloads": CutsPayloads,
    "panics": Panics,
    "skips-some": SkipsSome,
    "counts": Counts,
    "writes-above": WritesAbove,
    "aborts": Aborts,
    "believes-names": BelievesNames,
    "panics-before-1970": PanicsBefore1970,
}

/// Writes to a file that `path` does not name.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct FileSinkOptions {
    /// The log.
    file: OutPath,
}

/// As [`ToySink`], under another option.
macro_rules! filed {
    ($($name:literal: $wrong:ident),* $(,)?) => {
        $(sluice_model::inventory::submit! {
            Plugin {
                about: "writes the logs of these tests",
                sample: concat!(
                    "[sinks.out]\nplugin = \"", $name, "\"\nfrom = \"log\"\nfile = \"a\""
                ),
                ..Plugin::new(
                    $name,
                    PluginFactory::Sink(|value, _| {
                        let FileSinkOptions { file } = options::read(value)?;
                        make(json!({ "path": file.0 }), SinkDefect::$wrong)
                    }),
                    schema_of::<FileSinkOptions>,
                )
            }
        })*
    };
}

filed! { "filed": Nothing, "filed-directly": Directly }

struct Output {
    file: Option<OutputFile>,
    bytes: Vec<u8>,
    held: Vec<u8>,
    events: u64,
}

fn put_field(bytes: &mut Vec<u8>, field: &[u8]) {
    bytes.extend((field.len() as u32).to_le_bytes());
    bytes.extend(field);
}

/// Appends an event as the source `written` reads it.
pub(crate) fn put(bytes: &mut Vec<u8>, event: &Event<'_>, channels: &Channels) {
    let channel = channels.get(event.channel);
    bytes.push(b'E');
    bytes.extend(event.timestamp.to_le_bytes());
    bytes.extend(event.sequence.to_le_bytes());
    put_field(bytes, channel.name.as_bytes());
    put_field(bytes, channel.source.as_bytes());
    put_field(bytes, event.payload);
}

impl ToySink {
    fn write(&self, output: &mut Output, bytes: &[u8]) -> Result<(), Error> {
        match (&mut output.file, self.wrong) {
            (Some(file), SinkDefect::IgnoresErrors) => drop(file.write(bytes)),
            (Some(file), _) => file.write(bytes)?,
            (None, _) => output.bytes.extend(bytes),
        }
        Ok(())
    }
}

impl Sink for ToySink {
    type Block = (Vec<u8>, u64);
    type Unit = (Vec<u8>, u64);
    type Output = Output;

    fn traits(&self) -> SinkTraits {
        SinkTraits::writing(match self.wrong {
            SinkDefect::OtherTargets => self.path.with_file_name("elsewhere.toy"),
            _ => self.path.clone(),
        })
    }

    fn open(&self, context: &SinkContext) -> Result<Output, Error> {
        if self.wrong == SinkDefect::Litters {
            fs::create_dir_all(self.path.parent().unwrap()).unwrap();
            fs::write(self.path.with_extension("lock"), "mine").unwrap();
        }
        if self.wrong == SinkDefect::WritesAbove {
            fs::write(self.path.parent().unwrap().with_file_name("stray"), "mine").unwrap();
        }
        if self.wrong == SinkDefect::Aborts {
            std::process::abort();
        }
        if self.wrong == SinkDefect::Replaces {
            drop(fs::remove_file(&self.path));
        }
        let file = match self.wrong {
            SinkDefect::Directly => None,
            _ => Some(context.outputs.create(&self.path)?),
        };
        Ok(Output { file, bytes: Vec::new(), held: Vec::new(), events: 0 })
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<Self::Block, Error> {
        let mut bytes = Vec::new();
        if self.wrong == SinkDefect::MarksBatches {
            bytes.push(b'#');
        }
        for event in batch.iter() {
            let channel = context.channels.get(event.channel);
            if self.wrong == SinkDefect::Panics {
                assert!(!event.payload.is_empty(), "no payload is empty");
            }
            if self.wrong == SinkDefect::PanicsBefore1970 {
                assert!(event.timestamp >= 0, "nothing is so old");
            }
            if self.wrong == SinkDefect::SkipsSome && event.sequence % 3 == 1 {
                continue;
            }
            if self.wrong == SinkDefect::Counts {
                bytes.extend(self.encoded.fetch_add(1, Ordering::Relaxed).to_le_bytes());
            }
            if self.wrong == SinkDefect::BelievesNames {
                let beside = self.path.with_file_name(channel.name.text());
                fs::write(beside, event.payload).map_err(|e| Error::io("write", &self.path, e))?;
            }
            let (start, cut) = (bytes.len(), usize::from(self.wrong == SinkDefect::CutsPayloads));
            let payload = &event.payload[..event.payload.len().saturating_sub(cut)];
            put(&mut bytes, &Event { payload, ..event }, context.channels);
            if self.wrong == SinkDefect::WritesIds {
                bytes[start] = event.channel.0 as u8;
            }
        }
        Ok((bytes, batch.len() as u64))
    }

    fn write(&self, output: &mut Output, (bytes, events): Self::Unit) -> Result<Written, Error> {
        let now = match self.wrong {
            SinkDefect::LosesLast => std::mem::replace(&mut output.held, bytes),
            _ => bytes,
        };
        self.write(output, &now)?;
        output.events += events;
        Ok(Written::events(events))
    }

    fn finish(&self, output: Output) -> Result<Written, Error> {
        match (output.file, self.wrong) {
            (Some(file), SinkDefect::IgnoresErrors) => drop(file.finish(output.events)),
            (Some(file), SinkDefect::MiscountsRows) => file.finish(output.events + 1)?,
            (Some(file), _) => file.finish(output.events)?,
            (None, _) => {
                fs::create_dir_all(self.path.parent().unwrap()).unwrap();
                fs::write(&self.path, output.bytes).unwrap();
            }
        }
        Ok(Written::events(u64::from(self.wrong == SinkDefect::Miscounts)))
    }
}

/// Reads the logs of these tests.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct ToySource {
    /// The log.
    path: PathBuf,
}

sluice_model::inventory::submit! {
    Plugin::new("written", PluginFactory::Source(make_source::<ToySource>), schema_of::<ToySource>)
}

fn field<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (field, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *bytes = rest;
    Some(field)
}

fn number(bytes: &mut &[u8]) -> Option<i64> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(i64::from_le_bytes(*number))
}

impl Source for ToySource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        let bytes = fs::metadata(&self.path).ok().map(|meta| meta.len());
        Ok(vec![Input { path: self.path.clone(), bytes }])
    }

    fn read<'s>(
        &'s self,
        _: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let bytes = fs::read(&self.path).map_err(|e| Error::io("read", &self.path, e))?;
        let (mut left, mut batch) = (&bytes[..], BatchBuilder::default());
        while let Some((mark, rest)) = left.split_first() {
            left = rest;
            if *mark == b'#' {
                continue;
            }
            let mut next = || {
                let (time, sequence) = (number(&mut left)?, number(&mut left)?);
                Some((time, sequence, field(&mut left)?, field(&mut left)?, field(&mut left)?))
            };
            let (time, sequence, name, source, payload) = next().unwrap();
            let source = std::str::from_utf8(source).unwrap();
            let channel = Channel::new(Name::from_bytes(name), source, Encoding::Unknown);
            batch.push_copy(time, sequence, context.channels.intern(channel)?, payload);
        }
        Ok(Box::new(std::iter::once(Ok(batch.finish()))))
    }
}

/// What the log holds.
const TOY: FormatFidelity = FormatFidelity {
    time_step: 1,
    rounding: TimeRounding::Down,
    sequences: true,
    sources: true,
    channels: true,
    encodings: false,
    rows: false,
    order: EventOrder::All,
};

pub(crate) fn trial(plugin: &str) -> SinkTrial {
    sink(plugin).read_by("written").keeps(TOY)
}

#[test]
fn a_sound_sink_has_no_findings() {
    trial("toy").check();
    trial("toy")
        .path("log.toy.other")
        .keeps(FormatFidelity { order: EventOrder::OfChannel, ..TOY })
        .check();
}

#[test]
fn a_sink_that_is_not_linked_is_reported() {
    expect_findings(&sink("nobody").findings(), &[Promise::Options], &["no sink is registered"]);
}

#[test]
fn a_trial_without_events_is_reported() {
    let feed = "[sources.events]\nplugin = \"conformance-nothing\"\n";
    expect_findings(&sink("toy").fed_by(feed).findings(), &[Promise::Readable], &["no events"]);
}

#[test]
fn writing_beside_the_outputs() {
    let findings = trial("directly").findings();
    expect_findings(
        &findings,
        &[Promise::Atomic, Promise::Refusal],
        &["nothing can be rolled back"],
    );
}

#[test]
fn outputs_that_another_option_names() {
    let file = json!({ "file": "${DIR}/written.toy" });
    sink("filed").options(file.clone()).check();
    let findings = sink("filed-directly").options(file).findings();
    expect_findings(
        &findings,
        &[Promise::Atomic, Promise::Refusal],
        &["nothing can be rolled back"],
    );
}

#[test]
fn outputs_that_cannot_be_found_are_reported() {
    let elsewhere = tempfile::tempdir().unwrap();
    let options = json!({ "file": elsewhere.path().join("written.toy") });
    let findings = sink("filed-directly").options(options).findings();
    expect_findings(
        &findings,
        &[Promise::Targets],
        &["no file appears in its folder", "writes_nothing"],
    );
}

#[test]
fn events_that_are_left_out_in_between() {
    let words = ["the output is the same without event"];
    expect_findings(&sink("skips-some").findings(), &[Promise::Accounting], &words);
}

#[test]
fn events_that_are_numbered_as_they_are_encoded() {
    // Encoding backwards finds it every time; by chance it shows with several threads before that.
    expect_findings(&sink("counts").findings(), &[Promise::Threads], &["the output differs: with"]);
}

#[test]
fn files_beside_the_folder() {
    let words = ["outside of the folder it is to write into", "stray"];
    expect_findings(&trial("writes-above").findings(), &[Promise::Targets], &words);
}

#[test]
fn ends_of_the_process() {
    expect_findings(&trial("aborts").findings(), &[Promise::NoPanic], &["the process ended"]);
}

#[test]
fn names_that_are_believed() {
    let findings = trial("believes-names").findings();
    assert!(!findings.is_empty());
}

#[test]
fn panics_on_times_before_1970() {
    let findings = trial("panics-before-1970").findings();
    expect_findings(&findings, &[Promise::NoPanic], &["a task panicked"]);
}

#[test]
fn what_is_said_of_channels_and_lost() {
    let findings = sink("toy").read_by("written").findings();
    expect_findings(&findings, &[Promise::Readable], &["its channel is", "instead of"]);
}

#[test]
fn files_that_stay_when_a_run_fails() {
    let words = ["step 0 (Create)", "`written.lock` is there"];
    expect_findings(&trial("litters").findings(), &[Promise::Atomic], &words);
}

#[test]
fn errors_of_writing_that_are_ignored() {
    let words = ["the run succeeds although a step of it failed", "(Write)", "more cases"];
    expect_findings(&trial("ignores-errors").findings(), &[Promise::Atomic], &words);
}

#[test]
fn files_that_are_removed_unasked() {
    let findings = trial("replaces").findings();
    expect_findings(&findings, &[Promise::Atomic, Promise::Refusal], &["although nobody asked"]);
}

#[test]
fn targets_that_are_not_what_is_written() {
    let words = ["a file appears", "written.other-targets", "does not appear", "elsewhere.toy"];
    expect_findings(&trial("other-targets").findings(), &[Promise::Targets], &words);
}

#[test]
fn output_that_tells_batches() {
    let words = ["1 threads and batches of 1 events", "from byte"];
    expect_findings(&trial("marks-batches").findings(), &[Promise::Batches], &words);
}

#[test]
fn output_that_tells_numbers_of_channels() {
    let findings = trial("writes-ids").findings();
    expect_findings(&findings, &[Promise::Threads, Promise::Batches], &["2 threads", "from byte"]);
}

#[test]
fn events_that_are_held_back_for_ever() {
    let promises = [Promise::Accounting, Promise::Batches, Promise::Readable];
    expect_findings(
        &trial("loses-last").findings(),
        &promises,
        &["without the last event", "instead of 240"],
    );
}

#[test]
fn events_that_are_counted_wrong() {
    expect_findings(
        &trial("miscounts").findings(),
        &[Promise::Accounting],
        &["a sink was handed 240 events"],
    );
}

#[test]
fn rows_that_are_counted_wrong() {
    let words = ["`written.miscounts-rows` has 1 rows instead of 0"];
    expect_findings(&sink("miscounts-rows").findings(), &[Promise::Accounting], &words);
}

#[test]
fn rows_that_are_counted_wrong_in_a_file_that_is_read_back() {
    let words = ["`written.miscounts-rows` has 241 rows instead of 240", "one more case"];
    expect_findings(&trial("miscounts-rows").findings(), &[Promise::Accounting], &words);
}

#[test]
fn payloads_that_are_not_what_they_were() {
    let words = ["what `written` reads of it", "was not written"];
    expect_findings(&trial("cuts-payloads").findings(), &[Promise::Readable], &words);
}

#[test]
fn panics_of_tasks() {
    expect_findings(&trial("panics").findings(), &[Promise::NoPanic], &["a task panicked"]);
}

#[test]
fn a_reader_that_reads_nothing_is_reported() {
    let findings = sink("toy").read_with("written", json!({ "path": "nowhere.toy" })).findings();
    expect_findings(&findings, &[Promise::Readable], &["cannot be read", "nowhere.toy"]);
}
