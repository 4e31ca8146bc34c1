//! From when to when a log is, found out from its beginning and its end alone.

use sluice_core::time::TimePoint;
use sluice_core::{Error, Query, ReadContext, Source, Split, SplitStart};
use sluice_pipeline::{Part, Pipeline};

use crate::args::SelectionArgs;

/// How long pieces are that are looked at.
const PIECE: u64 = 2 << 20;

/// What cannot be cut into pieces is looked at only up to this length: nobody waits for a player.
const MOST: u64 = 32 << 20;

/// About when the last event is that will be played; nothing where only reading everything would tell.
pub(super) fn last(pipeline: &Pipeline, selection: &SelectionArgs) -> Option<i64> {
    let mut sources = pipeline.nodes.iter().filter_map(|node| match &node.part {
        Part::Source(source) => Some(&**source),
        _ => None,
    });
    let (source, None) = (sources.next()?, sources.next()) else { return None };
    // What cannot be read now, the run will say.
    let splits = source.splits(PIECE, &Query::default()).ok()?;
    let last = times(source, &splits, splits.len().checked_sub(1)?).ok()?.into_iter().max()?;
    let end = selection.end.as_deref().and_then(|end| TimePoint::parse(end).ok());
    let Some(end) = end else { return Some(last) };
    let origin = match end.is_relative() {
        true => *times(source, &splits, 0).ok()?.first()?,
        false => 0,
    };
    Some(last.min(end.resolve(origin).saturating_sub(1)))
}

/// The times of the events in one of these splits; none where that is not looked at.
fn times(source: &dyn Source, splits: &[Split], at: usize) -> Result<Vec<i64>, Error> {
    let Some(split) = splits.get(at) else { return Ok(Vec::new()) };
    if split.live || split.bytes.is_none_or(|bytes| bytes > MOST) {
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
