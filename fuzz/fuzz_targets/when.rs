//! No text makes reading a time panic, and every time that was read can be written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_core::options::ByteSize;
use sluice_core::time::{self, Length, When};

fuzz_target!(|text: &str| {
    if let Ok(when) = When::parse(text) {
        let (moment, again) = match when {
            When::At(nanos) => (nanos, format!("{nanos}ns")),
            When::After(nanos) => (nanos, format!("+{nanos}ns")),
        };
        assert_eq!(When::parse(&again), Ok(when), "{again}");
        when.resolve(i64::MAX);
        when.resolve(i64::MIN);
        assert!(!time::format(moment).is_empty());
    }
    if let Ok(length) = Length::parse(text) {
        assert_eq!(Length::parse(&format!("{}ns", length.0)), Ok(length));
    }
    if let Ok(size) = ByteSize::parse(text) {
        assert!(!size.to_string().is_empty());
    }
});
