//! Time windows of options, and their bounds in a run.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sluice_model::time::TimePoint;
use sluice_model::{Error, OptionsError};

/// Reads a bound of a window: a time, or `none`, as a pipeline file leaves it open by default.
pub(crate) fn bound<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TimePoint>, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) if text == "none" => Ok(None),
        value => serde_json::from_value(value).map_err(serde::de::Error::custom),
    }
}

/// From `start`, included, to `end`, excluded. Either may be open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClipWindow {
    pub(crate) start: Option<TimePoint>,
    pub(crate) end: Option<TimePoint>,
    /// The option keys of both.
    keys: [&'static str; 2],
}

impl ClipWindow {
    /// A window with these bounds, given by the options `keys`.
    ///
    /// `Err` if it is certainly empty.
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

    /// Whether the time of the first event must be known.
    pub(crate) fn is_relative(&self) -> bool {
        [self.start, self.end].into_iter().flatten().any(TimePoint::is_relative)
    }

    /// The bounds of timestamps that are in the window after `shift` is added. `origin` is the
    /// unshifted time of the first event.
    ///
    /// `Err` if that is needed and unknown.
    pub(crate) fn bounds(&self, origin: Option<i64>, shift: i64) -> Result<Bounds, Error> {
        let moment = |when: TimePoint, key: &str| match (when, origin) {
            (TimePoint::At(nanos), _) => Ok(i128::from(nanos) - i128::from(shift)),
            // The first event is shifted like all others, so relative times stay.
            (TimePoint::After(nanos), Some(origin)) => Ok(i128::from(origin) + i128::from(nanos)),
            (TimePoint::After(_), None) => Err(Error::invalid(format!(
                "`{key}` counts from the first event, whose time is unknown; give an absolute time"
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

    /// The timestamps that stay in range when `shift` is added.
    pub(crate) fn shiftable(shift: i64) -> Self {
        let (lowest, highest) = (i128::from(i64::MIN), i128::from(i64::MAX));
        Self::clamped(lowest - i128::from(shift), highest - i128::from(shift))
    }

    /// Whether `nanos` lies within.
    #[inline]
    pub(crate) fn contains(self, nanos: i64) -> bool {
        // `&`, not `&&`: two comparisons cost less than a mispredicted branch.
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
    fn absolute_bounds_apply_after_the_shift_and_relative_ones_shift_along() {
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
