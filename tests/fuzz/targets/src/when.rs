//! Times, durations and sizes as people write them.

use sluice_model::options::ByteSize;
use sluice_model::time::{self, TimeLength, TimePoint};

use crate::inputs;

/// No text makes parsing a time panic, and every parsed time round-trips.
pub fn when(bytes: &[u8]) {
    let text = inputs::text(bytes);
    if let Ok(when) = TimePoint::parse(text) {
        let (moment, again) = match when {
            TimePoint::At(nanos) => (nanos, format!("{nanos}ns")),
            TimePoint::After(nanos) => (nanos, format!("+{nanos}ns")),
        };
        assert_eq!(TimePoint::parse(&again), Ok(when), "{again}");
        when.resolve(i64::MAX);
        when.resolve(i64::MIN);
        assert!(!time::format(moment).is_empty());
    }
    if let Ok(length) = TimeLength::parse(text) {
        assert_eq!(TimeLength::parse(&format!("{}ns", length.0)), Ok(length));
    }
    if let Ok(size) = ByteSize::parse(text) {
        assert!(!size.to_string().is_empty());
    }
}
