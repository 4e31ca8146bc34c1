//! Finds the times of the first and the last event of a log by reading only its start and its end.

use sluice_model::time::TimePoint;
use sluice_model::{Error, Query, ReadContext, Source, Split, SplitStart};
use sluice_pipeline::{Pipeline, PipelineNode};

use crate::args::SelectionArgs;

/// The length of the split that is read.
const SPLIT_LEN: u64 = 2 << 20;

/// A split longer than this is not read, as the user is waiting.
const MAX_SPLIT_LEN: u64 = 32 << 20;

/// The approximate time of the first event to be played, if reading the start of the log tells.
pub(super) fn first_timestamp(pipeline: &Pipeline, selection: &SelectionArgs) -> Option<i64> {
    let (source, splits) = only_source(pipeline)?;
    let first = *times(source, &splits, 0).ok()?.first()?;
    let start = selection.start.as_deref().and_then(|start| TimePoint::parse(start).ok());
    Some(start.map_or(first, |start| first.max(start.resolve(first))))
}

/// The approximate time of the last event to be played; `None` if only reading the whole log would
/// tell.
pub(super) fn last_timestamp(pipeline: &Pipeline, selection: &SelectionArgs) -> Option<i64> {
    let (source, splits) = only_source(pipeline)?;
    let last = times(source, &splits, splits.len().checked_sub(1)?).ok()?.into_iter().max()?;
    let end = selection.end.as_deref().and_then(|end| TimePoint::parse(end).ok());
    let Some(end) = end else { return Some(last) };
    let origin = match end.is_relative() {
        true => *times(source, &splits, 0).ok()?.first()?,
        false => 0,
    };
    Some(last.min(end.resolve(origin).saturating_sub(1)))
}

/// The source, if there is only one, and its splits. Errors are reported by the run.
fn only_source(pipeline: &Pipeline) -> Option<(&dyn Source, Vec<Split>)> {
    let mut sources = pipeline.nodes.iter().filter_map(PipelineNode::source);
    let (source, None) = (sources.next()?, sources.next()) else { return None };
    Some((source, source.splits(SPLIT_LEN, &Query::default()).ok()?))
}

/// The times of the events in split `at`; none if it is live or too long.
fn times(source: &dyn Source, splits: &[Split], at: usize) -> Result<Vec<i64>, Error> {
    let Some(split) = splits.get(at) else { return Ok(Vec::new()) };
    if split.live || split.bytes.is_none_or(|bytes| bytes > MAX_SPLIT_LEN) {
        return Ok(Vec::new());
    }
    let before = at.checked_sub(1).and_then(|before| splits.get(before));
    let entry = match before.is_some_and(|before| before.is_followed_by(split)) {
        true => SplitStart::Search,
        false => SplitStart::At(split.start),
    };
    let context = ReadContext::standalone("span");
    let (mut reader, mut times) = (source.read(split, entry, &context)?, Vec::new());
    while let Some(batch) = reader.next_batch()? {
        times.extend_from_slice(batch.timestamps());
    }
    Ok(times)
}
