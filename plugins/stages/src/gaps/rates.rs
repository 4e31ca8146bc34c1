//! How long a channel may be silent: by the rate that is expected of it, or by how its events come. Sees no event.

use std::collections::BTreeMap;

use sluice_core::{OptionsError, Pattern};

use crate::histogram::Histogram;

/// With fewer intervals it is not known what is usual for a channel.
const MIN_INTERVALS: u64 = 10;

/// Where nine of ten intervals may be this many times the usual one, events come in bursts.
const BURST_RATIO: i64 = 10;

/// One event is missing if so many tenths of an interval have passed.
const MISSING_TENTHS: i64 = 18;

/// What is allowed beyond that, in multiples of what nine of ten intervals are at most longer than the median. Of events
/// that come by chance alone, as evenly as raindrops, less than one in a million is later.
const SPREADS: i64 = 8;

/// How often events are expected, by channel.
#[derive(Debug, Default)]
pub(super) struct Rates(Vec<Rate>);

#[derive(Debug)]
struct Rate {
    /// As it was written.
    channels: String,
    pattern: Pattern,
    /// Nanoseconds from one event to the next.
    interval: i64,
}

impl Rates {
    /// Events a second, by channel or pattern of channels. Names go before patterns, and these are in their order.
    pub(super) fn parse(rates: &BTreeMap<String, f64>) -> Result<Self, OptionsError> {
        let mut parsed = Vec::new();
        for (channels, rate) in rates {
            let wrong = |message: String| OptionsError {
                path: vec!["rates".into(), channels.clone()],
                message,
            };
            let pattern = Pattern::parse(channels).map_err(wrong)?;
            if !(1e-9..=1e9).contains(rate) {
                return Err(wrong("expected how many events a second, such as 10".to_owned()));
            }
            let (channels, interval) = (channels.clone(), (1e9 / rate) as i64);
            parsed.push(Rate { channels, pattern, interval });
        }
        parsed.sort_by_key(|rate| rate.pattern.as_name().is_none());
        Ok(Self(parsed))
    }

    /// How long it takes from one event of a channel to the next, where that is said.
    pub(super) fn interval(&self, channel: &str) -> Option<i64> {
        let found = self.0.iter().find(|rate| rate.pattern.matches(channel));
        found.map(|rate| rate.interval)
    }

    /// The patterns that match none of these channels.
    pub(super) fn unmatched(&self, channels: &[&str]) -> impl Iterator<Item = String> {
        let is_unmatched =
            |rate: &&Rate| !channels.iter().any(|channel| rate.pattern.matches(channel));
        self.0.iter().filter(is_unmatched).map(|rate| rate.channels.clone())
    }
}

/// How long a channel may be silent of which an event is expected so often.
pub(super) fn allowed_for(interval: i64) -> i64 {
    (interval / 10).saturating_mul(MISSING_TENTHS)
}

/// What is usual for a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct TypicalInterval {
    median: i64,
    /// Nine of ten intervals are not longer.
    ninth_decile: i64,
}

/// What is usual by these intervals, the second of which are the longer ones; nothing where they are too few.
pub(super) fn typical(short: &Histogram, long: &Histogram) -> Option<TypicalInterval> {
    let enough = short.count() + long.count() >= MIN_INTERVALS;
    let percentile = |percent| Histogram::percentile(short, long, percent);
    let (median, ninth_decile) = (percentile(50)?, percentile(90)?);
    enough.then_some(TypicalInterval { median, ninth_decile })
}

impl TypicalInterval {
    /// How long the channel may be silent: nearly two intervals, and more, the less evenly its events come.
    pub(super) fn allowed(self) -> i64 {
        let spread = self.ninth_decile.saturating_sub(self.median).max(0);
        allowed_for(self.median).saturating_add(spread.saturating_mul(SPREADS))
    }

    /// So many times the usual interval; nothing where events come in bursts.
    pub(super) fn allowed_by_factor(self, factor: f64, longer_than: i64) -> Option<i64> {
        // Pauses that are short beside a silence are never taken for one.
        let is_pause = self.ninth_decile > longer_than / 4;
        if is_pause && self.ninth_decile > self.median.saturating_mul(BURST_RATIO) {
            return None;
        }
        // Beyond the range of times it is the longest that can be.
        Some((self.median as f64 * factor) as i64)
    }
}
