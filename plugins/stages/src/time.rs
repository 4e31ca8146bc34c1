//! Stage `time`: shifts timestamps, clips to a window, and sorts events by time.

use serde::Deserialize;
use sluice_model::options::ByteSize;
use sluice_model::schemars::JsonSchema;
use sluice_model::time::{TimeLength, TimePoint, TimeSpan};
use sluice_model::{
    Batch, Error, Fold, Map, OptionsError, RowsEffect, Stage, StageContext, plugin,
};

use crate::sort::{LatePolicy, SortLimits, Sorter};
use crate::window::{Bounds, ClipWindow, bound};

const SORT_EVENTS: u64 = 1_000_000;
const SORT_BYTES: ByteSize = ByteSize(128 << 20);

/// Options of `time`, applied in this order: `shift`, `clip_start` and `clip_end`, `sort`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct TimeOptions {
    /// Added to every timestamp; may be negative. Events that would leave the range of times are
    /// dropped.
    pub(crate) shift: TimeLength,
    /// Events before this time, after `shift`, are dropped. `none` is no limit, as without the
    /// option.
    #[serde(deserialize_with = "bound")]
    pub(crate) clip_start: Option<TimePoint>,
    /// Events at or after this time, after `shift`, are dropped. `none` is no limit.
    #[serde(deserialize_with = "bound")]
    pub(crate) clip_end: Option<TimePoint>,
    /// Sort events that arrive at most this much later than one with a later time.
    pub(crate) sort: Option<TimeSpan>,
    /// What happens to events that arrive even later. Default: `keep`.
    pub(crate) late: Option<LatePolicy>,
    /// How many events `sort` may hold back. Default: 1000000.
    pub(crate) sort_events: Option<u64>,
    /// How many bytes of payloads and decoded rows `sort` may hold back. Default: `128MiB`.
    pub(crate) sort_bytes: Option<ByteSize>,
}

impl TryFrom<TimeOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: TimeOptions) -> Result<Self, OptionsError> {
        let keys = ["clip_start", "clip_end"];
        let clip = ClipWindow::new(keys, options.clip_start, options.clip_end)?;
        let adjust = Adjust { shift: options.shift.0, clip };
        Ok(match sorter(&options)? {
            None => Self::Map(Box::new(adjust)),
            Some(sorter) => Self::Fold(Box::new(Sort { adjust, sorter })),
        })
    }
}

sluice_model::register! {
    stage "time": TimeOptions,
    about: "shifts timestamps, clips them to a window and sorts events by time",
    sample: include_str!("../samples/time.toml"),
}

fn sorter(options: &TimeOptions) -> Result<Option<Sorter>, OptionsError> {
    let TimeOptions { sort, late, sort_events, sort_bytes, .. } = options;
    let Some(window) = sort.map(TimeSpan::nanos) else {
        let given = [
            ("late", late.is_some()),
            ("sort_events", sort_events.is_some()),
            ("sort_bytes", sort_bytes.is_some()),
        ];
        return match given.into_iter().find(|(_, given)| *given) {
            None => Ok(None),
            Some((key, _)) => Err(OptionsError::needs(key, "sort")),
        };
    };
    let limits = SortLimits {
        events: sort_events.unwrap_or(SORT_EVENTS),
        bytes: sort_bytes.unwrap_or(SORT_BYTES).0,
    };
    Ok(Some(Sorter::new(window, late.unwrap_or_default(), limits)))
}

/// `shift` and the clip window, which need no state.
#[derive(Debug)]
struct Adjust {
    shift: i64,
    clip: ClipWindow,
}

impl Map for Adjust {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        if batch.is_empty() {
            // The window's origin may be unknown, and no event needs it.
            return Ok(batch);
        }
        let (shiftable, inside) =
            (Bounds::shiftable(self.shift), self.clip.bounds(context.origin, self.shift)?);
        let mut lost = 0;
        let times = batch.timestamps();
        let kept = crate::keep(&batch, context, |row| {
            // A time that is already out of range may stay there, or come back.
            let fits = shiftable.contains(times[row]) || batch.wide_time(row).is_some();
            lost += u64::from(!fits);
            fits & inside.contains(times[row])
        });
        if lost > 0 {
            context.note("timestamp out of range after shift; event dropped", lost);
        }
        if self.shift == 0 {
            return Ok(kept);
        }
        if let Some(times) = kept.wide_times() {
            let shifted = times.iter().map(|time| time.saturating_add(self.shift.into())).collect();
            return Ok(kept.with_wide_times(shifted));
        }
        let shifted = kept.timestamps().iter().map(|time| time + self.shift).collect();
        Ok(kept.with_timestamps(shifted))
    }

    fn query(&self) -> plugin::MapQuery {
        let before_shift = |when| match when {
            TimePoint::At(nanos) => nanos.checked_sub(self.shift).map(TimePoint::At),
            // The first event is shifted like all others, so relative times stay.
            after => Some(after),
        };
        plugin::MapQuery {
            start: self.clip.start.and_then(before_shift),
            end: self.clip.end.and_then(before_shift),
            keeps_times: self.shift == 0,
            keeps_channels: true,
            ..plugin::MapQuery::default()
        }
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Same
    }

    fn needs_origin(&self) -> bool {
        self.clip.is_relative()
    }

    fn shift(&self) -> TimeLength {
        TimeLength(self.shift)
    }
}

#[derive(Debug)]
struct Sort {
    adjust: Adjust,
    sorter: Sorter,
}

impl Fold for Sort {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let batch = self.adjust.apply(batch, context)?;
        Ok(self.sorter.push(batch, context))
    }

    fn finish(&mut self, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        Ok(self.sorter.finish())
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Same
    }

    fn needs_origin(&self) -> bool {
        self.adjust.needs_origin()
    }

    fn shift(&self) -> TimeLength {
        self.adjust.shift()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{StageRunner, times};
    use serde_json::{Value, json};

    fn run(options: Value, given: &[i64]) -> (Vec<i64>, StageRunner) {
        let mut run = StageRunner::new("time", options);
        run.origin = given.first().copied();
        let events: Vec<(&str, i64)> = given.iter().map(|time| ("A", *time)).collect();
        let batch = run.batch(&events);
        let out = run.all([batch]).unwrap();
        assert_eq!(out.len() + run.filtered as usize, given.len());
        (times(&out), run)
    }

    #[test]
    fn timestamps_are_shifted() {
        assert_eq!(run(json!({ "shift": "5ns" }), &[1, 2]).0, [6, 7]);
        assert_eq!(run(json!({ "shift": "-5ns" }), &[1, 2]).0, [-4, -3]);
        assert_eq!(run(json!({}), &[3, 1]).0, [3, 1]);
    }

    #[test]
    fn events_that_would_leave_the_range_of_times_are_dropped_and_noted() {
        let (times, run) = run(json!({ "shift": "1ns" }), &[0, i64::MAX, i64::MAX - 1]);
        assert_eq!(times, [1, i64::MAX]);
        assert_eq!(
            run.notes,
            [("timestamp out of range after shift; event dropped".to_owned(), 1)]
        );
    }

    #[test]
    fn clipping_sees_shifted_times() {
        let options = json!({ "shift": "10ns", "clip_start": "12ns", "clip_end": "14ns" });
        assert_eq!(run(options, &[1, 2, 3, 4]).0, [12, 13]);
    }

    #[test]
    fn relative_clips_count_from_the_first_event_wherever_it_is_shifted() {
        let options = json!({ "shift": "10ns", "clip_start": "+1ns", "clip_end": "+3ns" });
        assert_eq!(run(options, &[1, 2, 3, 4]).0, [12, 13]);
    }

    #[test]
    fn the_clip_before_the_shift_is_pushed_down_to_the_source() {
        let options = |shift| TimeOptions {
            shift: TimeLength(shift),
            clip_start: Some(TimePoint::At(5)),
            clip_end: Some(TimePoint::After(9)),
            ..TimeOptions::default()
        };
        let query = |shift| match Stage::try_from(options(shift)).unwrap() {
            Stage::Map(map) => map.query(),
            _ => panic!("no map"),
        };
        let shifted = query(2);
        assert_eq!(
            (shifted.start, shifted.end),
            (Some(TimePoint::At(3)), Some(TimePoint::After(9)))
        );
        assert!(!shifted.keeps_times && query(0).keeps_times);
        assert_eq!(query(i64::MIN).start, None);
    }

    #[test]
    fn sorting_comes_after_shift_and_clip() {
        let options = json!({ "shift": "10ns", "clip_end": "14ns", "sort": "5ns" });
        assert_eq!(run(options, &[3, 1, 4, 2]).0, [11, 12, 13]);
    }

    #[test]
    fn the_first_event_is_asked_for_only_where_a_clip_counts_from_it() {
        for sort in ["", "1s"] {
            let options = |clip: &str| match sort {
                "" => json!({ "clip_end": clip }),
                sort => json!({ "clip_end": clip, "sort": sort }),
            };
            assert!(StageRunner::new("time", options("+1s")).needs_origin());
            assert!(!StageRunner::new("time", options("1970-01-01T00:00:01Z")).needs_origin());
        }
    }

    #[test]
    fn options_of_sort_need_sort() {
        for key in ["late", "sort_events", "sort_bytes"] {
            let value = if key == "late" { json!("drop") } else { json!(5) };
            assert_eq!(StageRunner::refusal("time", json!({ key: value })).path, [key]);
        }
        assert_eq!(StageRunner::refusal("time", json!({ "sort": "-1s" })).path, ["sort"]);
    }
}
