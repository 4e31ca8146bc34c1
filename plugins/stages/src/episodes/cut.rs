//! Where episodes begin and end, row by row. Counts and drops nothing.

use std::sync::Arc;

use sluice_model::{Batch, Error, FieldPath};

use super::keys::{Key, KeyColumn};
use super::table::{EpisodeTable, Interval};

/// A row that is in an episode.
#[derive(Clone, Debug)]
pub(super) struct EpisodeRow {
    /// Whether it is the first one of its episode.
    pub(super) begins: bool,
    /// The task of its episode.
    pub(super) task: Option<Arc<str>>,
}

/// What an event is to the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// No row of the channel.
    Elsewhere,
    /// A row that is in no episode.
    Outside,
    /// A row that may be in one.
    Inside,
}

/// Cuts rows into episodes.
pub(super) struct Cutter {
    /// Nanoseconds.
    gap: Option<i64>,
    change: Option<FieldPath>,
    table: Option<Arc<EpisodeTable>>,
    /// The episodes of the table, once their times are known, and their tasks.
    intervals: Option<Vec<(Interval, Option<Arc<str>>)>>,
    /// The time of the last row, if an episode goes on there.
    last: Option<i64>,
    /// The episode of the table that the last row was in.
    interval: Option<usize>,
    key: Key,
}

impl Cutter {
    pub(super) fn new(
        gap: Option<i64>,
        change: Option<FieldPath>,
        table: Option<Arc<EpisodeTable>>,
    ) -> Self {
        let (intervals, last, interval, key) = (None, None, None, Key::Null);
        Self { gap, change, table, intervals, last, interval, key }
    }

    /// The field whose change ends an episode.
    pub(super) fn change(&self) -> Option<&FieldPath> {
        self.change.as_ref()
    }

    /// For each event, its part in an episode.
    pub(super) fn cut(
        &mut self,
        batch: &Batch,
        standing: &[Standing],
        origin: Option<i64>,
    ) -> Result<Vec<Option<EpisodeRow>>, Error> {
        if let (Some(table), None) = (&self.table, &self.intervals) {
            let with_task = |interval: Interval| {
                let task = interval.task.as_deref().map(Arc::from);
                (interval, task)
            };
            let intervals = table.intervals(origin)?;
            self.intervals = Some(intervals.into_iter().map(with_task).collect());
        }
        let mut keys = Vec::new();
        if let Some(field) = &self.change {
            for rows in batch.rows() {
                keys.push(KeyColumn::resolve(field, &rows.columns)?);
            }
        }
        let mut row_of = vec![None; batch.len()];
        for (at, rows) in batch.rows().iter().enumerate() {
            for (row, event) in rows.events.iter().enumerate() {
                row_of[*event as usize] = Some((at, row));
            }
        }
        let mut cut = Vec::with_capacity(batch.len());
        for (event, time) in batch.timestamps().iter().enumerate() {
            cut.push(match (standing[event], row_of[event]) {
                (Standing::Inside, Some((at, row))) => {
                    let keys: Option<&KeyColumn> = keys.get(at);
                    let is_other = keys.is_some_and(|keys| keys.replace(row, &mut self.key));
                    self.row(*time, is_other)
                }
                (Standing::Outside, _) => {
                    self.last = None;
                    None
                }
                _ => None,
            });
        }
        Ok(cut)
    }

    /// The part of a row in an episode; `None` if the table has none at its time.
    fn row(&mut self, time: i64, is_other: bool) -> Option<EpisodeRow> {
        let (interval, task) = match &self.intervals {
            None => (None, None),
            Some(intervals) => {
                let at = intervals.partition_point(|(interval, _)| interval.end <= time);
                match intervals.get(at).filter(|(interval, _)| interval.start <= time) {
                    Some((_, task)) => (Some(at), task.clone()),
                    None => {
                        self.last = None;
                        return None;
                    }
                }
            }
        };
        let goes_on = self.last.is_some_and(|last| {
            let since = time.saturating_sub(last);
            since >= 0 && self.gap.is_none_or(|gap| since <= gap)
        });
        let begins = !goes_on || is_other || interval != self.interval;
        (self.last, self.interval) = (Some(time), interval);
        Some(EpisodeRow { begins, task })
    }
}
