//! Unnesting: of rows with a list in them, a row for each element. Chooses no list, and writes nothing.
//!
//! An event stays one event for as long as it can: a scan is a row with a list of points. Tables are to have
//! a row a point, so sinks take lists apart when they write, and go on counting events. As many rows may come of
//! an event that there is no room for them at once: [`UnnestPieces`] gives them one behind another.

use std::ops::Range;

use serde::{Deserialize, Deserializer};

use crate::lists::ListColumn;
use crate::{Batch, Error, FieldPath, Rows};

mod pieces;
mod rows;
#[cfg(test)]
mod tests;

pub use pieces::{UnnestPiece, UnnestPieces};
pub use rows::unnested_type;

use rows::{RowMap, expanded, lists_at, unnest_rows};

/// A batch in which each element of a list is a row of its own.
#[derive(Clone, Debug)]
pub struct UnnestedBatch {
    /// The rows, in the order of the events and of the elements in them.
    pub batch: Batch,
    /// For each event of the batch that was unnested, how many rows it became.
    pub counts: Vec<u32>,
    /// Whether any event had such a list.
    pub has_lists: bool,
}

/// Reads the option that says which list a sink takes apart: a path without an index.
pub fn list_path<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<FieldPath>, D::Error> {
    let path = FieldPath::deserialize(deserializer)?;
    if path.members().is_some() {
        return Ok(Some(path));
    }
    let message = format!("`{path}` is one element; name a whole list, such as `points`");
    Err(serde::de::Error::custom(message))
}

/// Most rows that a batch becomes at once: its times, numbers and channels take more than a gigabyte then.
const MOST_ROWS: usize = 32 << 20;

/// Most bytes of what stands beside a list, repeated for each of its elements.
const MOST_REPEATED: usize = 1 << 30;

/// How many rows each event becomes if the lists at `path` are taken apart: 1 where there is none. Nothing
/// if no event has a list there.
///
/// A list that is null is one without elements. `Err` if a list is longer than 32 bits can count.
pub fn row_counts(batch: &Batch, path: &FieldPath) -> Result<Option<Vec<u32>>, Error> {
    let mut counts = None;
    for rows in batch.rows() {
        let Some(lists) = lists_at(rows, path) else { continue };
        let counts = counts.get_or_insert_with(|| vec![1; batch.len()]);
        count(rows, &lists, path, counts)?;
    }
    Ok(counts)
}

fn count(
    rows: &Rows,
    lists: &ListColumn,
    path: &FieldPath,
    counts: &mut [u32],
) -> Result<(), Error> {
    for (event, range) in rows.events.iter().zip(&lists.ranges) {
        counts[*event as usize] = u32::try_from(range.len()).map_err(|_| {
            Error::invalid(format!(
                "a list `{path}` has {} elements, and {} is the most that is taken apart; write it as it is, \
                 without `unnest`",
                range.len(),
                u32::MAX
            ))
        })?;
    }
    Ok(())
}

/// Takes the lists at `path` apart: in what comes of it each element of a list is a row.
///
/// What every event has, and the other fields of the message, stand in each row again. In place of the list
/// stand the members of its elements, or, if these have none, a field that is called as the list. A member
/// that is called as another field gets the list's name and `_` in front. Rows of other types stay as they
/// are; an event whose list is empty or null gives no row. Of events that had a list no payload is left, and
/// their type is another one, which cannot be encoded.
///
/// `path` leads through members only: for one with an index no event has a list. Elements are not copied
/// where they lie one behind another. `Err` if there would be too many rows, or too much beside the lists
/// would have to be repeated.
pub fn unnest(batch: &Batch, path: &FieldPath) -> Result<UnnestedBatch, Error> {
    unnest_within(batch, path, None)
}

/// The same with those elements alone that have these numbers in their list.
fn unnest_within(
    batch: &Batch,
    path: &FieldPath,
    numbers: Option<&Range<usize>>,
) -> Result<UnnestedBatch, Error> {
    let (mut counts, mut all_lists) = (vec![1; batch.len()], Vec::new());
    for rows in batch.rows() {
        let mut lists = lists_at(rows, path);
        if let Some(lists) = &mut lists {
            numbers.iter().for_each(|numbers| lists.clip(numbers));
            count(rows, lists, path, &mut counts)?;
        }
        all_lists.push(lists);
    }
    if all_lists.iter().all(Option::is_none) {
        return Ok(UnnestedBatch { batch: batch.clone(), counts, has_lists: false });
    }
    check_rows(&counts, path)?;
    let places = RowMap::from_counts(&counts);
    let mut is_expanded = vec![false; batch.len()];
    let mut all = Vec::with_capacity(batch.rows().len());
    for (rows, lists) in batch.rows().iter().zip(&all_lists) {
        all.extend(match lists {
            Some(lists) => {
                rows.events.iter().for_each(|event| is_expanded[*event as usize] = true);
                Some(unnest_rows(lists, rows, path, &places)?)
            }
            None => places.remap(rows),
        });
    }
    let batch = expanded(batch, &places, &is_expanded).with_rows(all);
    Ok(UnnestedBatch { batch, counts, has_lists: true })
}

fn check_rows(counts: &[u32], path: &FieldPath) -> Result<(), Error> {
    let total = counts.iter().map(|count| *count as usize).sum::<usize>();
    if total <= MOST_ROWS {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the lists `{path}` of {} events have {total} elements, and {MOST_ROWS} rows are the most that are \
         made of a batch; write such lists as they are, without `unnest`",
        counts.len()
    )))
}
