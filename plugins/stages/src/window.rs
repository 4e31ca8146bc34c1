//! Windows of time as options give them, and the bounds they come to in a run. Drops nothing itself.

use sluice_core::time::TimePoint;
use sluice_core::{Error, OptionsError};

/// From `start` on and before `end`, either of which may be open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClipWindow {
    pub(crate) start: Option<TimePoint>,
    pub(crate) end: Option<TimePoint>,
    /// What the options call the two.
    keys: [&'static str; 2],
}

impl ClipWindow {
    /// The window that the options called `keys` give.
    ///
    /// `Err` if it can be told already that no time lies in it.
    pub(crate) fn new(
        keys: [&'static str; 2],
        start: Option<TimePoint>,
        end: Option<TimePoint>,
    ) -> Result<Self, OptionsError> {
        let is_void = match (start, end) {
            (Some(TimePoint::At(start)), Some(TimePoint::At(end)))
            | (Some(TimePoint::After(start)), Some(TimePoint::After(end))) => start >= end,
            _ => false,
        };
        if is_void {
            let [start, end] = keys;
            let message =
                format!("`{end}` must be later than `{start}`: no event lies between them");
            return Err(OptionsError::at(end, message));
        }
        Ok(Self { start, end, keys })
    }

    /// Whether it has to be known when the first event happened.
    pub(crate) fn is_relative(&self) -> bool {
        [self.start, self.end].into_iter().flatten().any(TimePoint::is_relative)
    }

    /// The bounds of the timestamps that lie in the window once `shift` has been added to them, where
    /// the first event happened at `origin`, shift not yet added.
    ///
    /// `Err` if that needs to be known and is not.
    pub(crate) fn bounds(&self, origin: Option<i64>, shift: i64) -> Result<Bounds, Error> {
        let moment = |when: TimePoint, key: &str| match (when, origin) {
            (TimePoint::At(nanos), _) => Ok(i128::from(nanos) - i128::from(shift)),
            // The first event is moved like all others, so its distance to them stays.
            (TimePoint::After(nanos), Some(origin)) => Ok(i128::from(origin) + i128::from(nanos)),
            (TimePoint::After(_), None) => Err(Error::invalid(format!(
                "`{key}` counts from the first event, and it is not known when that happened; give \
                 an absolute time"
            ))),
        };
        let start = self.start.map(|when| moment(when, self.keys[0])).transpose()?;
        let end = self.end.map(|when| moment(when, self.keys[1])).transpose()?;
        let last = end.map_or(i128::MAX, |end| end - 1);
        Ok(Bounds::clamped(start.unwrap_or(i128::MIN), last))
    }
}

/// The timestamps from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    first: i64,
    last: i64,
}

impl Bounds {
    const VOID: Self = Self { first: i64::MAX, last: i64::MIN };

    /// The timestamps that stay in the range of times when `shift` is added.
    pub(crate) fn shiftable(shift: i64) -> Self {
        let (lowest, highest) = (i128::from(i64::MIN), i128::from(i64::MAX));
        Self::clamped(lowest - i128::from(shift), highest - i128::from(shift))
    }

    /// Whether `nanos` lies within.
    #[inline]
    pub(crate) fn contains(self, nanos: i64) -> bool {
        // `&`, not `&&`: two comparisons cost less than a branch that is guessed wrong.
        (self.first <= nanos) & (nanos <= self.last)
    }

    fn clamped(first: i128, last: i128) -> Self {
        let (lowest, highest) = (i128::from(i64::MIN), i128::from(i64::MAX));
        let (first, last) = (first.max(lowest), last.min(highest));
        match (i64::try_from(first), i64::try_from(last)) {
            (Ok(first), Ok(last)) => Self { first, last },
            _ => Self::VOID,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start: Option<TimePoint>, end: Option<TimePoint>) -> ClipWindow {
        ClipWindow::new(["start", "end"], start, end).unwrap()
    }

    #[test]
    fn the_start_is_inside_and_the_end_is_not() {
        let bounds =
            window(Some(TimePoint::At(10)), Some(TimePoint::At(20))).bounds(None, 0).unwrap();
        let inside = [9, 10, 19, 20].map(|nanos| bounds.contains(nanos));
        assert_eq!(inside, [false, true, true, false]);
    }

    #[test]
    fn an_open_window_holds_every_time() {
        let bounds = ClipWindow::default().bounds(None, 0).unwrap();
        assert!(bounds.contains(i64::MIN) && bounds.contains(i64::MAX));
    }

    #[test]
    fn absolute_times_are_judged_after_the_shift_and_relative_ones_move_along() {
        let absolute = window(Some(TimePoint::At(10)), None).bounds(Some(0), 5).unwrap();
        assert!(absolute.contains(5) && !absolute.contains(4));
        let relative = window(Some(TimePoint::After(10)), None).bounds(Some(100), 5).unwrap();
        assert!(relative.contains(110) && !relative.contains(109));
    }

    #[test]
    fn bounds_beyond_all_times_hold_none_or_all() {
        let late = window(Some(TimePoint::At(i64::MAX)), None).bounds(None, -1).unwrap();
        assert!(!late.contains(i64::MAX));
        let none = window(None, Some(TimePoint::At(i64::MIN))).bounds(None, 0).unwrap();
        assert!(!none.contains(i64::MIN));
        let after = window(Some(TimePoint::After(i64::MAX)), None).bounds(Some(1), 0).unwrap();
        assert!(!after.contains(i64::MAX));
    }

    #[test]
    fn a_window_that_ends_before_it_starts_is_refused() {
        for (start, end) in
            [(TimePoint::At(5), TimePoint::At(5)), (TimePoint::After(6), TimePoint::After(5))]
        {
            let error = ClipWindow::new(["a", "b"], Some(start), Some(end)).unwrap_err();
            assert_eq!(error.path, ["b"]);
        }
    }

    #[test]
    fn relative_times_need_an_origin() {
        let error = window(None, Some(TimePoint::After(5))).bounds(None, 0).unwrap_err();
        assert!(error.to_string().contains("`end` counts from the first event"), "{error}");
    }
}
