//! Unnesting: one row per element of a list.
//!
//! An event stays one event as long as possible: a scan is one row with a list of points. Tables
//! need one row per point, so sinks unnest lists when they write, and still count events. An event
//! may become more rows than fit into memory: [`UnnestPieces`] returns them in pieces.

use std::ops::Range;

use serde::{Deserialize, Deserializer};
use sluice_model::{Batch, DeclaredColumns, Error, FieldPath, Rows};

use crate::lists::ListColumn;

mod pieces;
mod rows;
#[cfg(test)]
mod tests;

pub use pieces::{UnnestPiece, UnnestPieces};
pub use rows::unnested_type;

use rows::{RowMap, expanded, lists_at, unnest_rows};

/// A batch with one row per element of a list.
#[derive(Clone, Debug)]
pub struct UnnestedBatch {
    /// The rows, in the order of the events and of the elements in them.
    pub batch: Batch,
    /// The number of rows of each event of the original batch.
    pub counts: Vec<u32>,
    /// Whether any event had such a list.
    pub has_lists: bool,
}

/// Deserializes the option that names the list to unnest: a path without an index.
pub fn list_path<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<FieldPath>, D::Error> {
    let path = FieldPath::deserialize(deserializer)?;
    if path.members().is_some() {
        return Ok(Some(path));
    }
    let message = format!("`{path}` is one element; expected a whole list, such as `points`");
    Err(serde::de::Error::custom(message))
}

/// The columns of these types with the list at `path` unnested. A type without one is unchanged.
pub fn unnested_columns(columns: &DeclaredColumns, path: &FieldPath) -> DeclaredColumns {
    columns.map(|schema| rows::unnested_schema(schema, path).unwrap_or_else(|| schema.clone()))
}

/// The most rows of an unnested batch: their times, sequence numbers and channels take about a
/// gigabyte.
const MAX_ROWS: usize = 32 << 20;

/// The most bytes of other fields, repeated for each element.
const MAX_REPEATED: usize = 1 << 30;

/// The number of rows each event becomes if the lists at `path` are unnested: 1 without a list.
/// `None` if no event has a list there.
///
/// A null list counts as empty. `Err` if a list has more elements than 32 bits can count.
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
                "a list `{path}` has {} elements, more than the {} that can be unnested; write it \
                 without `unnest`",
                range.len(),
                u32::MAX
            ))
        })?;
    }
    Ok(())
}

/// Unnests the lists at `path`: each element becomes a row.
///
/// The other fields of the message are repeated in each row. The list is replaced by the members of
/// its elements, or by one field with the name of the list if they have none. A member whose name
/// is taken is prefixed with the list's name and `_`. Rows of other types do not change; an event
/// whose list is empty or null has no rows. Events with a list lose their payload, and get another
/// type, which cannot be encoded.
///
/// `path` must not contain an index. Elements that are contiguous are not copied. `Err` if there
/// would be too many rows, or too many bytes would have to be repeated.
pub fn unnest(batch: &Batch, path: &FieldPath) -> Result<UnnestedBatch, Error> {
    unnest_within(batch, path, None)
}

/// Like [`unnest`], for elements with these indices only.
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
    if total <= MAX_ROWS {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the lists `{path}` of {} events have {total} elements, more than the {MAX_ROWS} rows a \
         batch can have; write them without `unnest`",
        counts.len()
    )))
}
