//! How long a channel may be silent: by its expected rate, or by the distribution of its intervals.

use std::collections::BTreeMap;

use sluice_model::{OptionsError, Pattern};

use crate::histogram::Histogram;

/// The minimum number of intervals that show what is typical for a channel.
const MIN_INTERVALS: u64 = 10;

/// If the ninth decile of intervals exceeds the median by this factor, events come in bursts.
const BURST_RATIO: i64 = 10;

/// An event is missing after this many tenths of an interval.
const MISSING_TENTHS: i64 = 18;

/// The tolerance beyond that, in multiples of the difference between ninth decile and median. For
/// random (Poisson) events, less than one interval in a million is longer.
const SPREADS: i64 = 8;

/// Expected rates, by channel.
#[derive(Debug, Default)]
pub(super) struct Rates(Vec<Rate>);

#[derive(Debug)]
struct Rate {
    /// The pattern as written.
    channels: String,
    pattern: Pattern,
    /// Nanoseconds between events.
    interval: i64,
}

impl Rates {
    /// Parses events per second, by channel or pattern of channels. Names take precedence over
    /// patterns; of several patterns, the first in alphabetical order counts.
    pub(super) fn parse(rates: &BTreeMap<String, f64>) -> Result<Self, OptionsError> {
        let mut parsed = Vec::new();
        for (channels, rate) in rates {
            let wrong = |message: String| OptionsError::in_entry("rates", channels, message);
            let pattern = Pattern::parse(channels).map_err(wrong)?;
            if !(1e-9..=1e9).contains(rate) {
                return Err(wrong("expected a number of events per second, such as 10".to_owned()));
            }
            let (channels, interval) = (channels.clone(), (1e9 / rate) as i64);
            parsed.push(Rate { channels, pattern, interval });
        }
        parsed.sort_by_key(|rate| rate.pattern.as_name().is_none());
        Ok(Self(parsed))
    }

    /// The expected interval of a channel, if given.
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

/// How long a channel with this expected interval may be silent.
pub(super) fn allowed_for(interval: i64) -> i64 {
    (interval / 10).saturating_mul(MISSING_TENTHS)
}

/// The typical intervals of a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct TypicalInterval {
    median: i64,
    /// Nine of ten intervals are not longer.
    ninth_decile: i64,
}

/// The typical interval of two histograms, of which the second has the longer intervals; `None` if
/// there are too few.
pub(super) fn typical(short: &Histogram, long: &Histogram) -> Option<TypicalInterval> {
    let enough = short.count() + long.count() >= MIN_INTERVALS;
    let percentile = |percent| Histogram::percentile(short, long, percent);
    let (median, ninth_decile) = (percentile(50)?, percentile(90)?);
    enough.then_some(TypicalInterval { median, ninth_decile })
}

impl TypicalInterval {
    /// How long the channel may be silent: nearly two intervals, and more if its events are
    /// irregular.
    pub(super) fn allowed(self) -> i64 {
        let spread = self.ninth_decile.saturating_sub(self.median).max(0);
        allowed_for(self.median).saturating_add(spread.saturating_mul(SPREADS))
    }

    /// `factor` times the median interval; `None` if events come in bursts.
    pub(super) fn allowed_by_factor(self, factor: f64, longer_than: i64) -> Option<i64> {
        // Pauses that are short compared with `longer_than` never count as bursts.
        let is_pause = self.ninth_decile > longer_than / 4;
        if is_pause && self.ninth_decile > self.median.saturating_mul(BURST_RATIO) {
            return None;
        }
        // The cast saturates.
        Some((self.median as f64 * factor) as i64)
    }
}
