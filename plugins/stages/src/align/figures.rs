//! What became of rows and values, for the report. Decides nothing.

use sluice_model::{StageContext, time, units};

use super::options::Method;
use super::plan::{AlignPlan, TrackPlan};
use super::rows::RowTime;
use super::track::{Absence, Pick, Place};

/// Figures of the rows.
#[derive(Debug, Default)]
pub(super) struct RowFigures {
    /// Rows for which some field had a value.
    pub(super) due: u64,
    /// Those that came out.
    pub(super) made: u64,
    holes: u64,
    /// The length of the longest hole, and the time before it.
    longest_hole: Option<(u64, i64)>,
    last: Option<RowTime>,
    pub(super) restarts: u64,
    /// Events of the clock that make no row.
    pub(super) idle_ticks: u64,
    /// Events without a time of their own.
    pub(super) untimed: u64,
    pub(super) disbelieved: u64,
    tracks: Vec<TrackFigures>,
}

/// Figures of a field.
#[derive(Clone, Debug, Default)]
struct TrackFigures {
    not_yet: u64,
    old: u64,
    no_next: u64,
    farthest: Option<u64>,
    /// Rows with the same value as the row before.
    repeated: u64,
    last: Option<Place>,
    late: u64,
    /// Lists that do not fit into the vector.
    unfit: u64,
    /// Whether no value came at all.
    is_absent: bool,
}

impl RowFigures {
    pub(super) fn new(tracks: usize) -> Self {
        Self { tracks: vec![TrackFigures::default(); tracks], ..Self::default() }
    }

    /// Counts what a row lacks.
    pub(super) fn count_missing(&mut self, picks: &[Pick]) {
        for (figures, pick) in self.tracks.iter_mut().zip(picks) {
            match pick {
                Pick::Missing(Absence::NotYet) => figures.not_yet += 1,
                Pick::Missing(Absence::Old(_)) => figures.old += 1,
                Pick::Missing(Absence::NoNext(_)) => figures.no_next += 1,
                Pick::One(..) | Pick::Between(..) => {}
            }
        }
    }

    /// Counts a row that comes out.
    pub(super) fn count_made(&mut self, row: RowTime, picks: &[Pick]) {
        self.made += 1;
        for (figures, pick) in self.tracks.iter_mut().zip(picks) {
            figures.farthest = figures.farthest.max(pick.distance());
            let place = match pick {
                Pick::One(place, _) => Some(*place),
                Pick::Missing(_) | Pick::Between(..) => None,
            };
            figures.repeated += u64::from(place.is_some() && place == figures.last);
            figures.last = place;
        }
        if let Some(last) = self.last.replace(row) {
            let length = row.time.abs_diff(last.time);
            if last.step.wrapping_add(1) != row.step && row.time > last.time {
                self.holes += 1;
                if self.longest_hole.is_none_or(|(longest, _)| length > longest) {
                    self.longest_hole = Some((length, last.time));
                }
            }
        }
    }

    /// Counts a value that came after the row of its time.
    pub(super) fn count_late(&mut self, track: usize) {
        self.tracks.iter_mut().skip(track).take(1).for_each(|figures| figures.late += 1);
    }

    /// Counts a list that has another length than the first one, in a vector.
    pub(super) fn count_unfit(&mut self, track: usize) {
        self.tracks.iter_mut().skip(track).take(1).for_each(|figures| figures.unfit += 1);
    }

    /// Says that no value of a field came.
    pub(super) fn mark_absent(&mut self, track: usize) {
        self.tracks.iter_mut().skip(track).take(1).for_each(|figures| figures.is_absent = true);
    }

    /// Notes everything.
    pub(super) fn report(&self, plan: &AlignPlan, context: &mut StageContext<'_>) {
        // Notes do not show a count of 0.
        let due = if self.due == 0 { "no rows on the grid" } else { "rows on the grid" };
        context.note(due, self.due);
        if self.due > self.made {
            context
                .note("rows left out, because a field has no value for them", self.due - self.made);
        }
        for (track, figures) in plan.tracks.iter().zip(&self.tracks) {
            figures.report(track, self.made, context);
        }
        let mut note = |count: u64, what: &str| {
            if count > 0 {
                context.note(what, count);
            }
        };
        note(self.holes, "holes between rows");
        note(self.restarts, "the clock was set back, or another log starts: rows start anew");
        note(self.idle_ticks, "events of the clock at the time of another one, or too late");
        note(self.untimed, "events without a time of their own are left out");
        note(self.disbelieved, "events are left out whose time is far from that of all others");
        if let Some((length, after)) = self.longest_hole {
            let (length, after) = (units::duration(length), time::format(after));
            context.note(format!("the longest hole is {length}, after {after}"), 0);
        }
    }
}

impl TrackFigures {
    fn report(&self, plan: &TrackPlan, rows: u64, context: &mut StageContext<'_>) {
        let label = &plan.label;
        let tolerance = units::duration(plan.tolerance.unsigned_abs());
        let mut note = |count: u64, what: String| {
            if count > 0 {
                context.note(format!("`{label}`: {what}"), count);
            }
        };
        note(self.not_yet, "rows before its first value".to_owned());
        note(self.old, format!("rows whose last value is older than {tolerance}"));
        let why = match plan.method {
            Method::None => "rows since whose predecessor no value came".to_owned(),
            _ => format!("rows without a fitting value in the {tolerance} behind them"),
        };
        note(self.no_next, why);
        note(self.late, "values that came after the row of their time was finished".to_owned());
        let unfit = "lists of another length than the first one, which are not used in a vector";
        note(self.unfit, unfit.to_owned());
        if self.repeated * 2 > rows {
            note(
                self.repeated,
                "rows with the same value as the row before: its rate is lower \
                                 than that of the rows"
                    .to_owned(),
            );
        }
        if self.is_absent {
            let what = "no value came: a stage before may leave its channel out";
            context.note(format!("`{label}`: {what}"), 0);
        }
        if let Some(farthest) = self.farthest {
            let far = units::duration(farthest);
            context.note(format!("`{label}`: the farthest value is {far} away from its row"), 0);
        }
    }
}
