//! The state of playback, as a line of text or as JSON. Draws nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_model::{time, units};

use super::keys::PlaybackPosition;

/// The state of playback.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlaybackStatus {
    pub(super) place: PlaybackPosition,
    pub(super) paused: bool,
    /// The number of events played so far.
    pub(super) events: u64,
    /// The current number of events per second.
    pub(super) rate: f64,
    /// The number of damaged ranges so far.
    pub(super) damage: u64,
    /// Whether keys are read.
    pub(super) keys: bool,
}

impl PlaybackStatus {
    /// The status line. Parts that do not fit into `columns` are omitted from the end.
    pub(super) fn line(&self, columns: usize) -> String {
        let PlaybackPosition { position, factor, speed, .. } = self.place;
        let state = if self.paused { "paused " } else { "playing" };
        let speed = match speed * factor {
            0.0 => "flat out".to_owned(),
            speed => format!("{speed}x"),
        };
        let mut parts = vec![state.to_owned()];
        parts.extend(self.progress_text());
        parts.extend([speed, format!("{} events/s", units::count(self.rate.round() as u64))]);
        parts.extend((self.damage > 0).then(|| "damage".to_owned()));
        parts.extend(position.map(time_text));
        parts.extend(self.keys.then(|| "? keys".to_owned()));
        let mut line = String::new();
        for part in parts {
            let gap = if line.is_empty() { "" } else { "  " };
            if line.chars().count() + gap.len() + part.chars().count() > columns {
                break;
            }
            line += gap;
            line += &part;
        }
        line
    }

    /// The position relative to the first event and the total length.
    fn progress_text(&self) -> Option<String> {
        let far = self.seconds()?;
        let Some(all) = self.all() else { return Some(format!("{far:+.3} s")) };
        Some(format!("{far:+.3} s of {all:.1} s ({:.0} %)", percent(far, all)))
    }

    fn seconds(&self) -> Option<f64> {
        Some(seconds(self.place.first?, self.place.position?))
    }

    fn all(&self) -> Option<f64> {
        let all = seconds(self.place.first?, self.place.last?);
        (all > 0.0).then_some(all)
    }

    /// The state as JSON.
    pub(super) fn json(&self, elapsed: f64, done: bool) -> Value {
        let PlaybackPosition { position, first, speed, factor, .. } = self.place;
        let percent = self.seconds().zip(self.all()).map(|(far, all)| percent(far, all));
        let mut line = json!({
            "timestamp_ns": position,
            "first_timestamp_ns": first,
            "position_seconds": self.seconds(),
            "percent": percent,
            "speed": speed * factor,
            "paused": self.paused,
            "events": self.events,
            "events_per_second": self.rate,
            "damage": self.damage,
            "seconds": elapsed,
        });
        if let Some(fields) = line.as_object_mut().filter(|_| done) {
            fields.insert("done".into(), true.into());
        }
        line
    }
}

fn seconds(from: i64, to: i64) -> f64 {
    (i128::from(to) - i128::from(from)) as f64 / 1e9
}

fn percent(far: f64, all: f64) -> f64 {
    (far / all * 100.0).clamp(0.0, 100.0)
}

/// A time in UTC, to the millisecond.
fn time_text(nanos: i64) -> String {
    let text = time::format(nanos);
    match text.split_once('.') {
        Some((whole, rest)) => format!("{whole}.{}Z", rest.get(..3).unwrap_or(rest)),
        None => text,
    }
}

/// Measures events per second over about the last second.
#[derive(Debug, Default)]
pub(super) struct EventRate(VecDeque<(Instant, u64)>);

impl EventRate {
    /// The rate, given the total number of events at `now`.
    pub(super) fn at(&mut self, now: Instant, events: u64) -> f64 {
        const OVER: Duration = Duration::from_secs(1);
        self.0.push_back((now, events));
        // Keep one sample that is at least a second old.
        while self.0.get(1).is_some_and(|(then, _)| now.duration_since(*then) >= OVER) {
            self.0.pop_front();
        }
        let Some((then, before)) = self.0.front() else { return 0.0 };
        let seconds = now.duration_since(*then).as_secs_f64();
        if seconds > 0.0 { events.saturating_sub(*before) as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const BEGIN: i64 = 1_194_098_400 * SECOND;

    fn status() -> PlaybackStatus {
        let place = PlaybackPosition {
            position: Some(BEGIN + 12_345_678_900),
            played: Some(BEGIN + 12_345_678_900),
            first: Some(BEGIN),
            last: Some(BEGIN + 50 * SECOND),
            speed: 0.5,
            factor: 4.0,
        };
        PlaybackStatus { place, paused: false, events: 99, rate: 1234.4, damage: 0, keys: true }
    }

    #[test]
    fn the_line_says_where_it_is_and_how_fast() {
        let expected = "playing  +12.346 s of 50.0 s (25 %)  2x  1,234 events/s  \
            2007-11-03T14:00:12.345Z  ? keys";
        assert_eq!(status().line(120), expected);
        let mut unknown = PlaybackStatus { paused: true, damage: 1, ..status() };
        (unknown.place.last, unknown.place.speed) = (None, 0.0);
        let expected = "paused   +12.346 s  flat out  1,234 events/s  damage  \
            2007-11-03T14:00:12.345Z  ? keys";
        assert_eq!(unknown.line(120), expected);
        assert_eq!(PlaybackStatus::default().line(120), "playing  flat out  0 events/s");
    }

    #[test]
    fn parts_that_do_not_fit_are_omitted_from_the_end() {
        assert_eq!(status().line(60), "playing  +12.346 s of 50.0 s (25 %)  2x  1,234 events/s");
        assert_eq!(status().line(10), "playing");
        assert_eq!(status().line(3), "");
    }

    #[test]
    fn machines_get_plain_numbers() {
        let json = status().json(1.5, true);
        assert_eq!(json["timestamp_ns"], BEGIN + 12_345_678_900);
        assert_eq!((&json["speed"], &json["done"]), (&2.0.into(), &true.into()));
        assert_eq!(PlaybackStatus::default().json(0.0, false)["position_seconds"], Value::Null);
    }

    #[test]
    fn the_rate_is_of_the_last_second() {
        let (begin, mut rate) = (Instant::now(), EventRate::default());
        let mut at = |ms: u64, events| rate.at(begin + Duration::from_millis(ms), events);
        assert_eq!((at(0, 0), at(500, 50), at(1000, 100)), (0.0, 100.0, 100.0));
        assert_eq!((at(1500, 100), at(2000, 100), at(2500, 100)), (50.0, 0.0, 0.0));
    }
}
