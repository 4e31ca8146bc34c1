//! Logs of sound events and garbage.

use std::ops::Range;

use proptest::prelude::*;

use super::*;

/// Whether every byte of a log of this length is in exactly one event or damage, for formats whose
/// payloads are whole events.
fn is_tiled(gathered: &SourceContents, len: usize) -> bool {
    let events = gathered.events.iter().map(|event| {
        let start = event.sequence as u64;
        start..start + event.payload.len() as u64
    });
    let damage = gathered.damage.iter().map(|(offset, length, _)| *offset..offset + length);
    let mut tiles: Vec<Range<u64>> = events.chain(damage).collect();
    tiles.sort_by_key(|tile| tile.start);
    let end = tiles.iter().try_fold(0, |at, tile| (tile.start == at).then_some(tile.end));
    end == Some(len as u64)
}

/// A log of valid events with garbage in between, which may look like events.
fn mixed(event: fn(u8, &[u8]) -> Vec<u8>) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..60);
    let sound = (any::<u8>(), payload).prop_map(move |(time, payload)| event(time, &payload));
    let word = prop_oneof![Just(b'#'), Just(b'!'), Just(7), Just(b'\n'), Just(b'1'), any::<u8>()];
    let garbage = proptest::collection::vec(word, 0..90);
    let part = prop_oneof![5 => sound, 1 => garbage];
    proptest::collection::vec(part, 0..25)
}

fn note(time: u8, payload: &[u8]) -> Vec<u8> {
    let text: String = payload.iter().take(20).map(|byte| char::from(b'a' + byte % 26)).collect();
    format!("{time} {text}\n").into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn marked_logs_are_tiled_by_events_and_damage(parts in mixed(marked)) {
        let bytes = parts.concat();
        for all in [read_marked(&bytes), read_unmistakable(&bytes)] {
            prop_assert!(is_tiled(&all, bytes.len()), "{:?}", all);
        }
    }

    #[test]
    fn bare_logs_are_tiled_by_events_and_damage(parts in mixed(|_, payload| bare(payload))) {
        let all = read_bare(&parts.concat());
        prop_assert!(is_tiled(&all, parts.concat().len()), "{:?}", all);
    }

    #[test]
    fn sound_logs_give_every_event(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..30))
    {
        let events: Vec<Vec<u8>> = payloads.iter().map(|payload| marked(1, payload)).collect();
        let all = read_marked(&events.concat());
        prop_assert_eq!(self::payloads(&all), events);
        prop_assert!(all.damage.is_empty());
        let events: Vec<Vec<u8>> = payloads.iter().map(|payload| bare(payload)).collect();
        let all = read_bare(&events.concat());
        prop_assert_eq!(self::payloads(&all), events);
        prop_assert!(all.damage.is_empty());
    }

    #[test]
    fn text_is_its_lines_however_it_is_read(parts in mixed(note)) {
        let bytes = parts.concat();
        let all = read_notes(&bytes);
        let ended = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let lines = ended.split(|byte| *byte == b'\n').filter(|line| line.len() < 39);
        let notes = Notes(InPaths::default());
        let is_event = |line: &&[u8]| matches!(notes.line(line), LineContent::Event(_));
        let plain = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let wanted: Vec<&[u8]> = plain.filter(is_event).collect();
        let got = payloads(&all);
        let short_lines = got.iter().filter(|line| line.len() < 38);
        prop_assert!(short_lines.eq(wanted.iter().filter(|line| line.len() < 38)));
    }
}
