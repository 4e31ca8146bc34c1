//! What keys mean to a player. Knows where it is, and does nothing itself.

use crate::terminal::Key;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    /// To pause, or to go on.
    Pause,
    /// To play one event, and pause.
    Step,
    /// To play at this multiple of the speed it began with.
    Factor(f64),
    /// To go on with the first event at or after this time.
    Seek(i64),
    /// To end.
    Quit,
    /// To say what the keys are.
    Help,
}

/// Where a player is, as far as keys need it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Place {
    /// The time of the event that was played last.
    pub(super) position: Option<i64>,
    /// The time of the event that was played first.
    pub(super) first: Option<i64>,
    /// The time of the last event, where that is known.
    pub(super) last: Option<i64>,
    /// The speed it began with; 0 is as fast as possible.
    pub(super) speed: f64,
    /// The multiple of that.
    pub(super) factor: f64,
}

/// What to say when somebody asks for the keys.
pub(super) const HELP: [&str; 2] = [
    "space pause  . one event  + - speed  left right 10 s  [ ] 60 s",
    "0 back to the start  q end  ? these keys",
];

/// How fast and how slow keys make it.
const SPEEDS: std::ops::RangeInclusive<f64> = 1.0 / 1024.0..=1024.0;

const SECOND: i64 = 1_000_000_000;

/// What a key asks for, if it means anything now.
pub(super) fn order(key: Key, place: &Place) -> Option<Order> {
    match key {
        Key::Char(' ') => Some(Order::Pause),
        Key::Char('.' | 'n' | 's') => Some(Order::Step),
        Key::Char('+' | '=') | Key::Up => faster(2.0, place),
        Key::Char('-' | '_') | Key::Down => faster(0.5, place),
        Key::Left => seek(-10, place),
        Key::Right => seek(10, place),
        Key::Char('[') => seek(-60, place),
        Key::Char(']') => seek(60, place),
        Key::Char('0') | Key::Home => place.first.map(Order::Seek),
        Key::Char('q' | 'Q') => Some(Order::Quit),
        Key::Char('?' | 'h') => Some(Order::Help),
        _ => None,
    }
}

/// What is as fast as possible cannot be made faster or slower.
fn faster(times: f64, place: &Place) -> Option<Order> {
    let factor = place.factor * times;
    SPEEDS.contains(&(place.speed * factor)).then_some(Order::Factor(factor))
}

/// Nothing is played before the first event, and going beyond the last one would end it.
fn seek(seconds: i64, place: &Place) -> Option<Order> {
    let time = place.position?.saturating_add(seconds * SECOND);
    let time = time.min(place.last.unwrap_or(i64::MAX));
    Some(Order::Seek(time.max(place.first.unwrap_or(i64::MIN))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place {
        position: Some(100 * SECOND),
        first: Some(50 * SECOND),
        last: Some(130 * SECOND),
        speed: 1.0,
        factor: 1.0,
    };

    fn seconds(key: Key) -> Option<i64> {
        match order(key, &PLACE) {
            Some(Order::Seek(time)) => Some(time / SECOND),
            _ => None,
        }
    }

    #[test]
    fn keys_pause_step_end_and_help() {
        let orders = |keys: &str| -> Vec<Option<Order>> {
            keys.chars().map(|key| order(Key::Char(key), &PLACE)).collect()
        };
        use Order::{Help, Pause, Quit, Step};
        assert_eq!(orders(" .nsq?h"), [Pause, Step, Step, Step, Quit, Help, Help].map(Some));
        assert_eq!(orders("xyz"), [None, None, None]);
        assert_eq!(order(Key::PageUp, &PLACE), None);
    }

    #[test]
    fn seeking_stays_between_the_first_and_the_last_event() {
        assert_eq!([Key::Left, Key::Right].map(seconds), [Some(90), Some(110)]);
        assert_eq!([Key::Char('['), Key::Char(']')].map(seconds), [Some(50), Some(130)]);
        assert_eq!([Key::Home, Key::Char('0')].map(seconds), [Some(50), Some(50)]);
    }

    #[test]
    fn before_the_first_event_there_is_nowhere_to_go() {
        let nowhere = Place { speed: 1.0, factor: 1.0, ..Place::default() };
        for key in [Key::Left, Key::Right, Key::Home, Key::Char('[')] {
            assert_eq!(order(key, &nowhere), None, "{key:?}");
        }
    }

    #[test]
    fn speed_is_doubled_and_halved_within_bounds() {
        for (key, factor) in
            [(Key::Char('+'), 2.0), (Key::Up, 2.0), (Key::Char('-'), 0.5), (Key::Down, 0.5)]
        {
            assert_eq!(order(key, &PLACE), Some(Order::Factor(factor)));
        }
        let fast = Place { speed: 2.0, factor: 512.0, ..PLACE };
        assert_eq!(order(Key::Up, &fast), None);
        assert_eq!(order(Key::Down, &fast), Some(Order::Factor(256.0)));
        let flat_out = Place { speed: 0.0, ..PLACE };
        assert_eq!(order(Key::Up, &flat_out), None);
    }
}
