//! Receive time less message time.

use std::sync::{Arc, LazyLock};

use arrow_array::RecordBatch;
use sluice_model::FieldPath;
use sluice_views::Times;
use smallvec::SmallVec;

use super::bins::{BinCounter, Bins};
use crate::LatencyFigures;

/// Larger differences mean that two clocks have nothing to do with each other.
const PLAUSIBLE: u64 = 24 * 3600 * 1_000_000_000;

/// The latencies of a channel, by the field with the message's own time: mostly one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Latencies(SmallVec<[(Arc<str>, LatencyPart); 1]>);

#[derive(Clone, Debug, Default, PartialEq)]
struct LatencyPart {
    /// Of events that were received after their message's time, or at it.
    later: Bins,
    /// How much the others were received before it.
    earlier: Bins,
    range: Option<(i64, i64)>,
}

impl Latencies {
    /// The latencies by this field: receive times and message times.
    pub(super) fn from_times(
        field: Arc<str>,
        times: impl Iterator<Item = (i64, i64)>,
        bins: &mut BinCounter,
    ) -> Self {
        let (mut later, mut earlier) =
            (Vec::with_capacity(times.size_hint().1.unwrap_or(0)), Vec::new());
        let mut range: Option<(i64, i64)> = None;
        for (received, made) in times {
            if received.abs_diff(made) > PLAUSIBLE {
                continue;
            }
            let latency = received.wrapping_sub(made);
            let (least, greatest) = range.unwrap_or((latency, latency));
            range = Some((least.min(latency), greatest.max(latency)));
            let side = if latency < 0 { &mut earlier } else { &mut later };
            side.push(latency.unsigned_abs());
        }
        let part = LatencyPart { later: bins.bins(later), earlier: bins.bins(earlier), range };
        Self(range.map(|_| (field, part)).into_iter().collect())
    }

    pub(super) fn append(&mut self, next: &mut Self) {
        for (field, part) in &mut next.0 {
            let Some((_, ours)) = self.0.iter_mut().find(|(known, _)| known == field) else {
                self.0.push((Arc::clone(field), std::mem::take(part)));
                continue;
            };
            ours.later.append(&part.later);
            ours.earlier.append(&part.earlier);
            ours.range = match (ours.range, part.range) {
                (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
                (a, b) => a.or(b),
            };
        }
    }

    /// The figures of the field that most events have.
    pub(super) fn figures(&self) -> Option<LatencyFigures> {
        let count = |part: &LatencyPart| part.later.count() + part.earlier.count();
        let most =
            self.0.iter().max_by_key(|(field, part)| (count(part), std::cmp::Reverse(field)));
        let (field, part) = most?;
        let (least, greatest) = part.range?;
        Some(LatencyFigures {
            field: field.to_string(),
            histogram: part.later.histogram(),
            negative: part.earlier.count(),
            least,
            median: part.median(),
            greatest,
        })
    }
}

impl LatencyPart {
    fn median(&self) -> i64 {
        let (earlier, later) = (self.earlier.count(), self.later.count());
        let rank = (earlier + later).div_ceil(2).max(1);
        let nanos = match rank <= earlier {
            // The largest step before comes first.
            true => self.earlier.at_rank(earlier - rank + 1).map(|nanos| -(nanos as i64)),
            false => self.later.at_rank(rank - earlier).map(|nanos| nanos as i64),
        };
        nanos.unwrap_or(0)
    }
}

/// The usual fields with a message's own time, which is in microseconds if it is a plain number.
static USUAL: LazyLock<Vec<FieldPath>> = LazyLock::new(|| {
    let paths = ["utime", "header.stamp", "timestamp"].into_iter();
    paths.filter_map(|path| FieldPath::parse(path).ok()).collect()
});
const MICROSECONDS: i64 = 1_000;

/// When messages were made, by their own times.
#[derive(Debug)]
pub(super) struct MessageTimes {
    field: Arc<str>,
    times: Times,
}

impl MessageTimes {
    /// The times in the field that a map names, with its unit in nanoseconds, or else in one of the
    /// usual fields. `None` if there is none.
    pub(super) fn resolve(
        mapped: Option<(&FieldPath, i64)>,
        columns: &RecordBatch,
    ) -> Option<Self> {
        let usual = USUAL.iter().map(|path| (path, MICROSECONDS));
        mapped.into_iter().chain(usual).find_map(|(path, unit)| {
            let times = Times::resolve(path, unit, columns)?;
            Some(Self { field: path.to_string().into(), times })
        })
    }

    /// The latencies of rows with these receive times.
    pub(super) fn latencies(
        &self,
        events: impl Iterator<Item = (usize, i64)>,
        bins: &mut BinCounter,
    ) -> Latencies {
        // Zero stands for no time.
        let made = |row| self.times.at(row).filter(|time| *time != 0);
        let times = events.filter_map(|(row, time)| Some((time, made(row)?)));
        Latencies::from_times(Arc::clone(&self.field), times, bins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(times: &[(i64, i64)]) -> Latencies {
        Latencies::from_times("utime".into(), times.iter().copied(), &mut BinCounter::default())
    }

    #[test]
    fn latencies_may_be_negative() {
        let times = [(100, 70), (100, 110), (100, 120), (100, 100), (100, i64::MAX)];
        let figures = latencies(&times).figures().unwrap();
        assert_eq!((figures.least, figures.median, figures.greatest), (-20, -10, 30));
        assert_eq!((figures.negative, figures.histogram.bins.len()), (2, 2));
        assert_eq!(latencies(&times[4..]).figures(), None);
    }
}
