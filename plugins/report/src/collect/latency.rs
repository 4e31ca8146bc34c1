//! Receive time less message time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bins::Bins;
use crate::LatencyFigures;

/// Larger differences mean that two clocks have nothing to do with each other.
const PLAUSIBLE: u64 = 24 * 3600 * 1_000_000_000;

/// The latencies of a channel, by the field with the message's own time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Latencies(BTreeMap<Arc<str>, LatencyPart>);

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
    pub(super) fn from_times(field: Arc<str>, times: &[(i64, i64)]) -> Self {
        let latency = |(received, made): &(i64, i64)| {
            let is_plausible = received.abs_diff(*made) <= PLAUSIBLE;
            is_plausible.then(|| received.wrapping_sub(*made))
        };
        let mut later = Vec::new();
        let mut earlier = Vec::new();
        let mut range: Option<(i64, i64)> = None;
        for latency in times.iter().filter_map(latency) {
            let (least, greatest) = range.unwrap_or((latency, latency));
            range = Some((least.min(latency), greatest.max(latency)));
            let side = if latency < 0 { &mut earlier } else { &mut later };
            side.push(latency.unsigned_abs());
        }
        let part = LatencyPart {
            later: Bins::from_values(&mut later),
            earlier: Bins::from_values(&mut earlier),
            range,
        };
        Self(range.map(|_| (field, part)).into_iter().collect())
    }

    pub(super) fn append(&mut self, next: Self) {
        for (field, part) in next.0 {
            let ours = self.0.entry(field).or_default();
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
            self.0.iter().max_by_key(|(field, part)| (count(part), std::cmp::Reverse(*field)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_may_be_negative() {
        let times = [(100, 70), (100, 110), (100, 120), (100, 100), (100, i64::MAX)];
        let latencies = Latencies::from_times("utime".into(), &times);
        let figures = latencies.figures().unwrap();
        assert_eq!((figures.least, figures.median, figures.greatest), (-20, -10, 30));
        assert_eq!((figures.negative, figures.histogram.bins.len()), (2, 2));
        assert_eq!(Latencies::from_times("utime".into(), &times[4..]).figures(), None);
    }
}
