//! Files of expectations.

use sluice_report::expect::{Expectations, compare, from_figures};
use sluice_report::{ChannelFigures, Figures, GapFigures, RateFigures};

use crate::inputs;

/// No text makes parsing expectations panic; parsed ones are compared with any log, and a log whose
/// channel has this text as its name meets the expectations made from it.
pub fn expectations(bytes: &[u8]) {
    let text = inputs::text(bytes);
    let log = log(text);
    match Expectations::parse("expect.toml", text) {
        Ok(expectations) => {
            compare(&expectations, &Figures::default());
            compare(&expectations, &log);
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            for mistake in mistakes {
                assert!(mistake.span.start <= text.len(), "{mistake:?}");
                mistake.render("expect.toml", text, false);
            }
        }
    }
    let made = from_figures(&log);
    let expectations = Expectations::parse("made.toml", &made);
    let expectations = expectations.unwrap_or_else(|mistakes| panic!("{mistakes:?} in:\n{made}"));
    assert_eq!(compare(&expectations, &log).unmet, [], "{made}");
}

/// The figures of a log with one channel of this name.
fn log(name: &str) -> Figures {
    let channel = ChannelFigures {
        name: name.to_owned(),
        events: 100,
        last: 9_900_000_000,
        rate: Some(RateFigures { median: 10.0, p1: 10.0, p99: 10.0, mean: 10.0 }),
        longest_gap: Some(GapFigures { start: 0, length: 100_000_000 }),
        ..ChannelFigures::default()
    };
    let (start, end, channels) = (Some(0), Some(9_900_000_000), vec![channel]);
    Figures { events: 100, start, end, channels, ..Figures::default() }
}
