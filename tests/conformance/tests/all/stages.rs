//! The kit finds the defect of stages that each have one, and finds nothing in a valid stage.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use serde::Deserialize;
use serde_json::Value;
use sluice_conformance::{Promise, stage};
use sluice_model::registry::schema_of;
use sluice_model::schemars::JsonSchema;
use sluice_model::time::TimePoint;
use sluice_model::{
    Batch, Error, Fold, FoldQuery, Map, MapQuery, MessageType, OptionsError, Payloads, Plugin,
    PluginFactory, Rows, Stage, StageContext, TypeKey, options,
};

use crate::found::expect_findings;

/// The defect of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StageDefect {
    Nothing,
    /// Delays the last events until the end.
    Holds,
    /// Counts events across batches, as if batches came in order.
    Remembers,
    /// Drops events without reporting them.
    Loses,
    /// Returns events twice.
    MakesUp,
    /// Delays events and never returns them.
    Forgets,
    /// Notes each batch.
    CountsBatches,
    /// Drops the first event of each batch.
    LeavesOutFirst,
    /// Adds rows for missing events.
    MisplacesRows,
    /// Panics on an impossible length.
    Panics,
    /// Allocates memory according to a length.
    BelievesLengths,
    /// Fills memory according to the first bytes, which of valid events are text.
    FillsLengths,
    /// Panics on times before 1970.
    PanicsBefore1970,
    /// Returns its events piece by piece, which is valid.
    GivesPieces,
    /// Declares that nothing passes after 1970, but lets everything pass.
    PassesMore,
    /// Declares that it needs nothing from before a window, but counts from the start.
    NeedsMore,
    /// Declares that it delays nothing, but does.
    HoldsUnsaid,
}

/// There are no options.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct ToyStageOptions {}

macro_rules! toy {
    ($($name:literal: $wrong:ident),* $(,)?) => {
        $(sluice_model::inventory::submit! {
            Plugin {
                about: "does nothing to events but what these tests are about",
                sample: concat!("[stages.toy]\nplugin = \"", $name, "\"\nfrom = \"log\""),
                ..Plugin::new(
                    $name,
                    PluginFactory::Stage(|value, _| make(value, StageDefect::$wrong)),
                    schema_of::<ToyStageOptions>,
                )
            }
        })*
    };
}

toy! {
    "toy": Nothing,
    "holds": Holds,
    "remembers": Remembers,
    "loses": Loses,
    "makes-up": MakesUp,
    "forgets": Forgets,
    "counts-batches": CountsBatches,
    "leaves-out-first": LeavesOutFirst,
    "misplaces-rows": MisplacesRows,
    "panics": Panics,
    "believes-lengths": BelievesLengths,
    "fills-lengths": FillsLengths,
    "panics-before-1970": PanicsBefore1970,
    "gives-pieces": GivesPieces,
    "passes-more": PassesMore,
    "needs-more": NeedsMore,
    "holds-unsaid": HoldsUnsaid,
}

fn make(value: Value, wrong: StageDefect) -> Result<Stage, OptionsError> {
    let ToyStageOptions {} = options::read(value)?;
    Ok(match wrong {
        StageDefect::Holds | StageDefect::Forgets | StageDefect::HoldsUnsaid => {
            Stage::Fold(Box::new(HoldingFold { wrong, held: None }))
        }
        StageDefect::GivesPieces => Stage::Fold(Box::new(PiecewiseFold::default())),
        StageDefect::NeedsMore => Stage::Fold(Box::new(OneInThree(0))),
        _ => Stage::Map(Box::new(ToyStage { wrong, seen: AtomicU64::new(0) })),
    })
}

struct ToyStage {
    wrong: StageDefect,
    seen: AtomicU64,
}

/// Rows with the payload lengths.
fn lengths(batch: &Batch, beyond: u32) -> Rows {
    let column = (0..batch.len()).map(|row| batch.payload_len(row) as i64);
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(column));
    Rows {
        message: MessageType::named("length", TypeKey(1)).into(),
        payloads: Payloads::Kept,
        events: (0..batch.len() as u32).map(|event| event + beyond).collect(),
        columns: RecordBatch::try_from_iter([("length", column)]).unwrap(),
    }
}

impl Map for ToyStage {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let odd = |batch: &Batch, row: usize| batch.sequences()[row] % 2 == 1;
        match self.wrong {
            StageDefect::Nothing | StageDefect::MisplacesRows => {
                let kept = batch.retain(|row| !odd(&batch, row));
                context.report.filtered += (batch.len() - kept.len()) as u64;
                let beyond = u32::from(self.wrong == StageDefect::MisplacesRows);
                let rows = lengths(&kept, beyond);
                Ok(if kept.is_empty() { kept } else { kept.with_rows(vec![rows]) })
            }
            StageDefect::Remembers => {
                let kept =
                    batch.retain(|_| !self.seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(3));
                context.report.filtered += (batch.len() - kept.len()) as u64;
                Ok(kept)
            }
            StageDefect::Loses => Ok(batch.retain(|row| !odd(&batch, row))),
            StageDefect::MakesUp => {
                Ok(batch.take((0..batch.len() as u32).flat_map(|row| [row, row]).collect()))
            }
            StageDefect::CountsBatches => {
                context.note("a batch was here", 1);
                Ok(batch)
            }
            StageDefect::LeavesOutFirst => {
                context.report.filtered += u64::from(!batch.is_empty());
                Ok(batch.retain(|row| row > 0))
            }
            StageDefect::Panics => {
                let has_length = |payload: &[u8]| payload.windows(4).any(|four| four == [0x7f; 4]);
                assert!(!batch.iter().any(|event| has_length(event.payload)), "no such length");
                Ok(batch)
            }
            StageDefect::BelievesLengths => {
                for event in batch.iter() {
                    let at = event.payload.windows(4).any(|four| four == [0x7f; 4]);
                    let room: Vec<u8> = Vec::with_capacity(if at { 0x7f7f_7f7f } else { 0 });
                    std::hint::black_box(room);
                }
                Ok(batch)
            }
            StageDefect::FillsLengths => {
                for len in batch.iter().filter_map(|event| event.payload.first_chunk::<4>()) {
                    std::hint::black_box(vec![1u8; u32::from_le_bytes(*len) as usize]);
                }
                Ok(batch)
            }
            StageDefect::PanicsBefore1970 => {
                assert!(batch.iter().all(|event| event.timestamp >= 0), "nothing is so old");
                Ok(batch)
            }
            _ => Ok(batch),
        }
    }

    fn query(&self) -> MapQuery {
        let end = (self.wrong == StageDefect::PassesMore).then_some(TimePoint::At(0));
        MapQuery { end, ..MapQuery::default() }
    }
}

/// Returns all its events at the end, batch by batch.
#[derive(Default)]
struct PiecewiseFold {
    held: VecDeque<Batch>,
    is_over: bool,
}

impl Fold for PiecewiseFold {
    fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.held.push_back(batch);
        Ok(Vec::new())
    }

    fn finish(&mut self, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.is_over = true;
        Ok(Vec::new())
    }

    fn more(&mut self, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let next = if self.is_over || self.held.len() > 3 { self.held.pop_front() } else { None };
        Ok(next.into_iter().collect())
    }
}

/// Lets one of three events pass.
struct OneInThree(u64);

impl Fold for OneInThree {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let kept = batch.retain(|_| {
            self.0 += 1;
            self.0.is_multiple_of(3)
        });
        context.report.filtered += (batch.len() - kept.len()) as u64;
        Ok(vec![kept])
    }

    fn query(&self) -> FoldQuery {
        FoldQuery { keeps_times: true, ..FoldQuery::default() }
    }
}

struct HoldingFold {
    wrong: StageDefect,
    held: Option<Batch>,
}

impl Fold for HoldingFold {
    fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        Ok(self.held.replace(batch).into_iter().collect())
    }

    fn finish(&mut self, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let held = self.held.take().filter(|_| self.wrong != StageDefect::Forgets);
        Ok(held.into_iter().collect())
    }

    fn delays_events(&self) -> bool {
        self.wrong != StageDefect::HoldsUnsaid
    }
}

#[test]
fn a_sound_stage_without_memory_has_no_findings() {
    stage("toy").check();
}

#[test]
fn a_sound_stage_with_memory_has_no_findings() {
    stage("holds").check();
}

#[test]
fn a_sound_stage_may_give_its_events_piece_by_piece() {
    stage("gives-pieces").check();
}

#[test]
fn a_stage_is_fed_by_what_a_pipeline_gives() {
    let feed = "[sources.none]\nplugin = \"conformance-nothing\"\n\
                [stages.events]\nplugin = \"toy\"\nfrom = \"none\"\n";
    let findings = stage("toy").fed_by(feed).findings();
    expect_findings(&findings, &[Promise::Options], &["there are no events"]);
    let findings = stage("toy").fed_by("[sources.event]\nplugin = \"nobody\"").findings();
    expect_findings(&findings, &[Promise::Options], &["could not be made", "nobody"]);
}

#[test]
fn a_stage_that_is_not_linked_is_reported() {
    expect_findings(&stage("nobody").findings(), &[Promise::Options], &["no stage is registered"]);
}

#[test]
fn memory_of_a_stage_that_says_it_has_none() {
    let findings = stage("remembers").findings();
    let text = format!("{findings:?}");
    assert!(text.contains("batches of 7 events that come in another order"), "{text}");
    assert!(findings.iter().any(|finding| finding.promise == Promise::Batches), "{text}");
}

#[test]
fn events_that_are_lost_silently() {
    let words = ["of 240 events 120 come out and 0 are filtered"];
    expect_findings(&stage("loses").findings(), &[Promise::Accounting], &words);
}

#[test]
fn events_that_are_made_up() {
    expect_findings(&stage("makes-up").findings(), &[Promise::Accounting], &["it makes up events"]);
}

#[test]
fn events_that_are_held_back_for_ever() {
    let promises = [Promise::Accounting, Promise::Batches];
    expect_findings(&stage("forgets").findings(), &promises, &["of 240 events 0 come out"]);
}

#[test]
fn notes_that_tell_batches() {
    let words = ["other notes", "batches of 1 events"];
    expect_findings(&stage("counts-batches").findings(), &[Promise::Batches], &words);
}

#[test]
fn events_that_are_chosen_by_batch() {
    let promises = [Promise::Batches, Promise::Threads];
    expect_findings(&stage("leaves-out-first").findings(), &promises, &["other events come out"]);
}

#[test]
fn rows_of_events_that_are_not_there() {
    let findings = stage("misplaces-rows").findings();
    let text = format!("{findings:?}");
    assert!(findings.iter().any(|finding| finding.promise == Promise::WholeRows), "{text}");
    assert!(text.contains("events that are not in the batch"), "{text}");
}

#[test]
fn panics_on_what_payloads_say() {
    let words = ["payloads with lengths that cannot be", "no such length"];
    expect_findings(&stage("panics").findings(), &[Promise::NoPanic], &words);
}

#[test]
fn memory_taken_by_what_payloads_say() {
    let words = ["payloads with lengths that cannot be"];
    expect_findings(&stage("believes-lengths").findings(), &[Promise::Memory], &words);
}

/// Valid events would fill the memory of the test's own process.
#[test]
fn memory_filled_by_what_every_payload_says() {
    let words = ["payloads of random bytes"];
    expect_findings(&stage("fills-lengths").findings(), &[Promise::Memory], &words);
}

#[test]
fn panics_on_times_before_1970() {
    expect_findings(
        &stage("panics-before-1970").findings(),
        &[Promise::NoPanic],
        &["nothing is so old"],
    );
}

#[test]
fn events_that_pass_though_sources_may_skip_them() {
    let words = ["if sources skip what it says it does not need", "all channels from .. to .."];
    expect_findings(&stage("passes-more").findings(), &[Promise::Accounting], &words);
}

#[test]
fn events_that_are_needed_though_sources_may_skip_them() {
    let words = ["if sources skip what it says it does not need"];
    expect_findings(&stage("needs-more").findings(), &[Promise::Accounting], &words);
}

#[test]
fn events_that_are_held_back_by_who_says_otherwise() {
    let words = ["it declares that it delays no event", "events 0 come out"];
    expect_findings(&stage("holds-unsaid").findings(), &[Promise::Accounting], &words);
}
