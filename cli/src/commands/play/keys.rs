//! Maps keys to player commands. Executes none.

use crate::terminal::KeyPress;

/// A command given by a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PlayerCommand {
    /// Pause or resume.
    Pause,
    /// Play one event, then pause.
    Step,
    /// Play at this multiple of the initial speed.
    Factor(f64),
    /// Continue with the first event at or after this time.
    Seek(i64),
    /// Quit.
    Quit,
    /// List the keys.
    Help,
}

/// The position and speed of playback.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PlaybackPosition {
    /// The time of the last event played; in a long gap, the time reached.
    pub(super) position: Option<i64>,
    /// The time of the last event played.
    pub(super) played: Option<i64>,
    /// The time of the first event played.
    pub(super) first: Option<i64>,
    /// The time of the last event in the log, if known.
    pub(super) last: Option<i64>,
    /// The initial speed; 0 is as fast as possible.
    pub(super) speed: f64,
    /// The current multiple of the initial speed.
    pub(super) factor: f64,
}

/// The list of keys.
pub(super) const HELP: [&str; 2] = [
    "space pause  . one event  + - speed  left right 10 s  [ ] 60 s",
    "0 back to the start  q quit  ? these keys",
];

/// The range of speeds that keys can set.
const SPEEDS: std::ops::RangeInclusive<f64> = 1.0 / 1024.0..=1024.0;

const SECOND: i64 = 1_000_000_000;

/// The command of a key, if it applies now.
pub(super) fn command_for(key: KeyPress, place: &PlaybackPosition) -> Option<PlayerCommand> {
    match key {
        KeyPress::Char(' ') => Some(PlayerCommand::Pause),
        KeyPress::Char('.' | 'n' | 's') => Some(PlayerCommand::Step),
        KeyPress::Char('+' | '=') | KeyPress::Up => faster(2.0, place),
        KeyPress::Char('-' | '_') | KeyPress::Down => faster(0.5, place),
        KeyPress::Left => seek(-10, place),
        KeyPress::Right => seek(10, place),
        KeyPress::Char('[') => seek(-60, place),
        KeyPress::Char(']') => seek(60, place),
        KeyPress::Char('0') | KeyPress::Home => place.first.map(PlayerCommand::Seek),
        KeyPress::Char('q' | 'Q') => Some(PlayerCommand::Quit),
        KeyPress::Char('?' | 'h') => Some(PlayerCommand::Help),
        _ => None,
    }
}

/// Changes the speed, unless it is as fast as possible.
fn faster(times: f64, place: &PlaybackPosition) -> Option<PlayerCommand> {
    let factor = place.factor * times;
    SPEEDS.contains(&(place.speed * factor)).then_some(PlayerCommand::Factor(factor))
}

/// Seeks, but not before the first event, and not past the last, which would end playback.
fn seek(seconds: i64, place: &PlaybackPosition) -> Option<PlayerCommand> {
    // Back from within a long gap means what was played before it.
    let from = if seconds < 0 { place.played.or(place.position) } else { place.position };
    let time = from?.saturating_add(seconds * SECOND);
    let time = time.min(place.last.unwrap_or(i64::MAX));
    Some(PlayerCommand::Seek(time.max(place.first.unwrap_or(i64::MIN))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: PlaybackPosition = PlaybackPosition {
        played: Some(100 * SECOND),
        position: Some(100 * SECOND),
        first: Some(50 * SECOND),
        last: Some(130 * SECOND),
        speed: 1.0,
        factor: 1.0,
    };

    fn seconds(key: KeyPress) -> Option<i64> {
        match command_for(key, &PLACE) {
            Some(PlayerCommand::Seek(time)) => Some(time / SECOND),
            _ => None,
        }
    }

    #[test]
    fn keys_pause_step_end_and_help() {
        let orders = |keys: &str| -> Vec<Option<PlayerCommand>> {
            keys.chars().map(|key| command_for(KeyPress::Char(key), &PLACE)).collect()
        };
        use PlayerCommand::{Help, Pause, Quit, Step};
        assert_eq!(orders(" .nsq?h"), [Pause, Step, Step, Step, Quit, Help, Help].map(Some));
        assert_eq!(orders("xyz"), [None, None, None]);
        assert_eq!(command_for(KeyPress::PageUp, &PLACE), None);
    }

    #[test]
    fn seeking_stays_between_the_first_and_the_last_event() {
        assert_eq!([KeyPress::Left, KeyPress::Right].map(seconds), [Some(90), Some(110)]);
        assert_eq!([KeyPress::Char('['), KeyPress::Char(']')].map(seconds), [Some(50), Some(130)]);
        assert_eq!([KeyPress::Home, KeyPress::Char('0')].map(seconds), [Some(50), Some(50)]);
    }

    #[test]
    fn seeking_back_in_a_long_gap_starts_before_the_gap() {
        let place = PlaybackPosition { played: Some(70 * SECOND), ..PLACE };
        let seek = |key| command_for(key, &place);
        assert_eq!(seek(KeyPress::Left), Some(PlayerCommand::Seek(60 * SECOND)));
        assert_eq!(seek(KeyPress::Right), Some(PlayerCommand::Seek(110 * SECOND)));
    }

    #[test]
    fn before_the_first_event_there_is_nowhere_to_go() {
        let nowhere = PlaybackPosition { speed: 1.0, factor: 1.0, ..PlaybackPosition::default() };
        for key in [KeyPress::Left, KeyPress::Right, KeyPress::Home, KeyPress::Char('[')] {
            assert_eq!(command_for(key, &nowhere), None, "{key:?}");
        }
    }

    #[test]
    fn speed_is_doubled_and_halved_within_bounds() {
        for (key, factor) in [
            (KeyPress::Char('+'), 2.0),
            (KeyPress::Up, 2.0),
            (KeyPress::Char('-'), 0.5),
            (KeyPress::Down, 0.5),
        ] {
            assert_eq!(command_for(key, &PLACE), Some(PlayerCommand::Factor(factor)));
        }
        let fast = PlaybackPosition { speed: 2.0, factor: 512.0, ..PLACE };
        assert_eq!(command_for(KeyPress::Up, &fast), None);
        assert_eq!(command_for(KeyPress::Down, &fast), Some(PlayerCommand::Factor(256.0)));
        let flat_out = PlaybackPosition { speed: 0.0, ..PLACE };
        assert_eq!(command_for(KeyPress::Up, &flat_out), None);
    }
}
