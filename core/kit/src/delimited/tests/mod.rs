//! The guarantees of the adaptors, for a format with marker and checksum, one without either, and
//! text.

use std::io::Write;

use sluice_model::time::TimePoint;
use sluice_model::{BlockPool, Clock};

use super::events::len_of;
use super::*;
use crate::contract::{SourceContents, gather, gather_with, splits_cover_the_inputs};

mod pretenders;
mod random_logs;

/// `#!`, the payload length, a time, the payload, and the sum of all bytes before.
struct MarkedFormat {
    path: InPaths,
    is_unmistakable: bool,
}

const MARK: &[u8] = b"#!";
const HEAD: &[u8] = b"a log\n";

impl Delimited for MarkedFormat {
    fn paths(&self) -> &InPaths {
        &self.path
    }

    fn mark(&self) -> EventMarker<'_> {
        EventMarker::Begins(MARK)
    }

    fn is_unmistakable(&self) -> bool {
        self.is_unmistakable
    }

    fn longest(&self) -> usize {
        200
    }

    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        if bytes.starts_with(HEAD) {
            return ParseOutcome::Skip { len: HEAD.len() };
        }
        let Some([_, _, len, time]) = bytes.first_chunk() else { return ParseOutcome::More };
        let end = 4 + usize::from(*len);
        let Some((sum, event)) = bytes.get(..=end).and_then(<[u8]>::split_last) else {
            return ParseOutcome::event(end + 1, 0, b"", 0..0);
        };
        if *sum != sum_of(event) {
            return ParseOutcome::Damaged { len: end + 1, reason: "wrong sum" };
        }
        ParseOutcome::event(end + 1, i64::from(*time), &bytes[3..4], 0..end + 1)
    }
}

fn sum_of(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

fn marked(time: u8, payload: &[u8]) -> Vec<u8> {
    let mut event = MARK.to_vec();
    event.extend([payload.len() as u8, time]);
    event.extend(payload);
    event.push(sum_of(&event));
    event
}

/// The number of bytes that follow, a byte `7`, and these bytes.
struct UnmarkedFormat(InPaths);

impl Delimited for UnmarkedFormat {
    fn paths(&self) -> &InPaths {
        &self.0
    }

    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        match bytes.first_chunk() {
            None => ParseOutcome::More,
            Some([len, 7]) => {
                ParseOutcome::untimed(2 + usize::from(*len), b"BARE", 0..2 + usize::from(*len))
            }
            Some(_) => ParseOutcome::NotAnEvent("no seven"),
        }
    }
}

fn bare(payload: &[u8]) -> Vec<u8> {
    [&[payload.len() as u8, 7], payload].concat()
}

/// `SECONDS TEXT`, and comments after `#`.
struct Notes(InPaths);

impl TextLines for Notes {
    fn paths(&self) -> &InPaths {
        &self.0
    }

    fn longest(&self) -> usize {
        40
    }

    fn line<'b>(&self, line: &'b [u8]) -> LineContent<'b> {
        if line.is_empty() || line.starts_with(b"#") {
            return LineContent::Skip;
        }
        let words = str::from_utf8(line).ok().and_then(|line| line.split_once(' '));
        match words.and_then(|(time, _)| TimePoint::parse(time).ok()) {
            Some(TimePoint::At(time)) => LineContent::event(time, b"NOTE", 0..line.len()),
            _ => LineContent::Damaged("no time"),
        }
    }

    fn channel(&self, name: Name, source: Arc<str>) -> Channel {
        Channel { clock: Clock::Relative, ..Channel::new(name, source, Encoding::Text) }
    }
}

/// A file that different formats read.
struct SampleLog {
    path: InPaths,
    _file: tempfile::NamedTempFile,
}

fn log(bytes: &[u8]) -> SampleLog {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    SampleLog { path: InPaths(vec![file.path().to_owned()]), _file: file }
}

/// Reads a log in several ways, and checks that the results are equal.
fn read(make: fn(InPaths) -> Box<dyn Source>, bytes: &[u8]) -> SourceContents {
    let (plain, packed) = (log(bytes), log(&zstd::encode_all(bytes, 1).unwrap()));
    let source = make(plain.path.clone());
    let whole = gather(&*source, u64::MAX).unwrap();
    for target in [1, 7, 40, 300] {
        splits_cover_the_inputs(&*source, target);
        let pieces = gather(&*source, target).unwrap();
        assert_eq!(pieces, whole, "pieces of {target} bytes");
    }
    for block in [65, 100, 200, 1000] {
        let blocks = BlockPool::new(block, 2);
        let context = ReadContext { blocks, ..ReadContext::standalone("test") };
        for target in [50, u64::MAX] {
            let other = gather_with(&*source, target, &context).unwrap();
            assert_eq!(other, whole, "blocks of {block} bytes, pieces of {target}");
        }
        let stream = make(packed.path.clone());
        let other = gather_with(&*stream, u64::MAX, &context).unwrap();
        assert_eq!(other, whole, "a stream in blocks of {block} bytes");
    }
    whole
}

fn read_marked(bytes: &[u8]) -> SourceContents {
    read(|path| Box::new(DelimitedSource(MarkedFormat { path, is_unmistakable: false })), bytes)
}

fn read_unmistakable(bytes: &[u8]) -> SourceContents {
    read(|path| Box::new(DelimitedSource(MarkedFormat { path, is_unmistakable: true })), bytes)
}

fn read_bare(bytes: &[u8]) -> SourceContents {
    read(|path| Box::new(DelimitedSource(UnmarkedFormat(path))), bytes)
}

fn read_notes(bytes: &[u8]) -> SourceContents {
    read(|path| Box::new(DelimitedSource(Notes(path))), bytes)
}

fn payloads(gathered: &SourceContents) -> Vec<Vec<u8>> {
    gathered.events.iter().map(|event| event.payload.clone()).collect()
}

fn damage(gathered: &SourceContents) -> Vec<(u64, u64, &str)> {
    gathered.damage.iter().map(|(at, len, why)| (*at, *len, why.as_str())).collect()
}

#[test]
fn events_come_with_time_channel_and_place_and_heads_are_passed_over() {
    let bytes = [HEAD, &marked(9, b"one"), HEAD, &marked(8, b"")].concat();
    let all = read_marked(&bytes);
    let plain: Vec<_> =
        all.events.iter().map(|e| (e.timestamp, e.sequence, e.channel.as_bytes())).collect();
    assert_eq!(plain, [(9, 6, &b"\x09"[..]), (8, 20, b"\x08")]);
    assert_eq!((payloads(&all), all.damage.len()), (vec![marked(9, b"one"), marked(8, b"")], 0));
}

#[test]
fn an_event_with_a_wrong_sum_is_damage_and_its_neighbours_are_not() {
    let mut wrong = marked(2, b"wrong");
    wrong[5] ^= 1;
    let all = read_marked(&[marked(1, b"a"), wrong, marked(3, b"c")].concat());
    assert_eq!(payloads(&all), [marked(1, b"a"), marked(3, b"c")]);
    assert_eq!(damage(&all), [(6, 10, "wrong sum")]);
}

#[test]
fn a_wrong_length_does_not_swallow_the_events_behind_it() {
    let mut long = marked(2, b"long");
    long[2] = 20;
    let bytes = [marked(1, b"a"), long, marked(3, b"c"), marked(4, b"d")].concat();
    let all = read_marked(&bytes);
    assert_eq!(payloads(&all), [marked(1, b"a"), marked(3, b"c"), marked(4, b"d")]);
    assert_eq!(damage(&all).len(), 1);
}

#[test]
fn whole_events_in_a_payload_do_not_split_it() {
    let inner = [marked(5, b"in"), marked(6, b"side")].concat();
    for behind in [&b""[..], b"garbage", &marked(7, b"next")] {
        let all = read_marked(&[&marked(1, &inner), behind].concat());
        assert_eq!(payloads(&all)[0], marked(1, &inner), "{behind:?}");
    }
}

#[test]
fn an_unmistakable_event_between_damaged_ones_is_found() {
    let without_mark = |time| [b"x", &marked(time, b"damaged")[1..]].concat();
    let (alone, last) = (marked(2, b"alone"), marked(4, b"last"));
    let bytes = [without_mark(1), alone.clone(), without_mark(3), last.clone()].concat();
    assert_eq!(payloads(&read_marked(&bytes)), [&last[..]]);
    let all = read_unmistakable(&bytes);
    assert_eq!(payloads(&all), [&alone[..], &last]);
    assert_eq!(
        damage(&all),
        [
            (0, 12, "the marker of an event is missing"),
            (22, 12, "the marker of an event is missing")
        ]
    );
}

#[test]
fn an_unmistakable_event_that_swallows_others_is_not_accepted() {
    // It ends in the middle of the second event behind it; its time makes the sum right.
    let (inner, cut, last) = (marked(2, b"inner"), marked(3, b"cut"), marked(4, b"last"));
    let (begun, rest) = cut.split_at(4);
    let mut wrong = [MARK, &[inner.len() as u8 + 3, 0], &inner, begun].concat();
    let before_sum = &wrong[..wrong.len() - 1];
    wrong[3] = wrong[wrong.len() - 1].wrapping_sub(sum_of(before_sum));
    let bytes = [b"xxx", &wrong[..], rest, &last].concat();
    let found = payloads(&read_unmistakable(&bytes));
    assert_eq!(found, [inner, cut, last]);
}

#[test]
fn events_longer_than_the_longest_are_damage() {
    let all = read_marked(&[marked(1, &[0; 196]), marked(2, b"b")].concat());
    assert_eq!(payloads(&all), [marked(2, b"b")]);
    assert_eq!(damage(&all), [(0, 201, TOO_LONG_WORDS)]);
}

const TOO_LONG_WORDS: &str = "it is longer than the longest event of this format";

#[test]
fn an_event_that_is_cut_off_is_damage_to_the_end() {
    let whole = [marked(1, b"a"), marked(2, b"cut off")].concat();
    for len in 7..whole.len() {
        let all = read_marked(&whole[..len]);
        assert_eq!(payloads(&all), [marked(1, b"a")], "{len}");
        assert_eq!(damage(&all), [(6, len as u64 - 6, "cut off by the end of the log")], "{len}");
    }
}

/// As [`MarkedFormat`], but asks for all bytes of an event.
struct WholeEventsFormat {
    format: MarkedFormat,
    /// Whether any last bytes of a log are an event.
    takes_any_last: bool,
}

impl Delimited for WholeEventsFormat {
    fn paths(&self) -> &InPaths {
        self.format.paths()
    }

    fn mark(&self) -> EventMarker<'_> {
        self.format.mark()
    }

    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        let outcome = self.format.parse(bytes);
        match len_of(&outcome) {
            Some(len) if len > bytes.len() => ParseOutcome::More,
            _ => outcome,
        }
    }

    fn last<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        match self.takes_any_last {
            true => ParseOutcome::event(bytes.len(), 0, b"LAST", 0..bytes.len()),
            false => ParseOutcome::More,
        }
    }
}

fn whole_events(path: InPaths, takes_any_last: bool) -> Box<dyn Source> {
    let format = MarkedFormat { path, is_unmistakable: false };
    Box::new(DelimitedSource(WholeEventsFormat { format, takes_any_last }))
}

#[test]
fn an_event_without_its_marker_is_not_reported_as_cut_off() {
    // The length that its bytes claim is beyond the end of the log.
    let broken = &marked(90, b"broken")[1..];
    let [first, last] = [marked(1, b"a"), marked(3, b"c")];
    for rest in [&last[..], b""] {
        let all = read(|path| whole_events(path, false), &[&first, broken, rest].concat());
        assert_eq!(payloads(&all).len(), if rest.is_empty() { 1 } else { 2 });
        assert_eq!(damage(&all), [(6, 10, "the marker of an event is missing")]);
    }
}

#[test]
fn a_length_beyond_the_end_of_the_log_does_not_mean_that_the_log_is_cut_off() {
    let mut long = marked(2, b"long");
    long[2] = 90;
    let bytes = [marked(1, b"a"), long, marked(3, b"c")].concat();
    for all in [read_marked(&bytes), read(|path| whole_events(path, false), &bytes)] {
        assert_eq!(payloads(&all), [marked(1, b"a"), marked(3, b"c")]);
        assert_eq!(damage(&all), [(6, 9, "it would extend beyond the end of the log")]);
    }
}

#[test]
fn the_last_event_of_a_log_needs_the_marker_too() {
    let [first, marked_rest] = [marked(1, b"a"), b"#!\x20\x05rest".to_vec()];
    let read_any_last = |rest: &[u8]| {
        let bytes = [&first, rest].concat();
        read(|path| whole_events(path, true), &bytes)
    };
    assert_eq!(payloads(&read_any_last(&marked_rest)), [first.clone(), marked_rest]);
    let all = read_any_last(b"!!\x20\x05rest");
    assert_eq!(payloads(&all), [first]);
    assert_eq!(damage(&all), [(6, 8, "the marker of an event is missing")]);
}

#[test]
fn without_a_mark_events_are_found_again_behind_damage() {
    let events: Vec<Vec<u8>> = (0..6u8).map(|n| bare(&[n; 5])).collect();
    let all = read_bare(&[&events[0][..], b"\xff\xff\xff", &events[1..].concat()].concat());
    assert_eq!(payloads(&all), events);
    assert_eq!(damage(&all), [(7, 3, "no seven")]);
    let untimed: Vec<i64> = all.events.iter().map(|event| event.timestamp).collect();
    assert_eq!(untimed, [0, 10, 17, 24, 31, 38]);
}

#[test]
fn lines_come_without_their_ends_and_bad_ones_cost_nobody_else() {
    let all = read_notes(b"0.5 one\r\n\n# a remark\nno note\n2 two\n3 last");
    assert_eq!(payloads(&all), [&b"0.5 one"[..], b"2 two", b"3 last"]);
    let times: Vec<i64> = all.events.iter().map(|event| event.timestamp).collect();
    assert_eq!(times, [500_000_000, 2_000_000_000, 3_000_000_000]);
    assert_eq!(damage(&all), [(21, 8, "no time")]);
}

#[test]
fn a_line_that_is_too_long_is_damage_up_to_the_next() {
    let text = format!("1 one\n2 {}\n3 three\n", "x".repeat(500));
    let all = read_notes(text.as_bytes());
    assert_eq!(payloads(&all), [&b"1 one"[..], b"3 three"]);
    assert_eq!(damage(&all), [(6, 503, TOO_LONG_WORDS)]);
}

#[test]
fn channels_are_made_as_the_format_says() {
    let file = log(b"1 one\n");
    let (source, context) = (Notes(file.path.clone()), ReadContext::standalone("test"));
    assert_eq!(gather_with(&DelimitedSource(source), 10, &context).unwrap().events.len(), 1);
    let channel = &context.channels.since(0)[0];
    assert_eq!((channel.clock, &channel.encoding), (Clock::Relative, &Encoding::Text));
}

#[test]
fn a_format_that_breaks_its_contract_ends_the_run() {
    struct OutsidePayloadFormat(InPaths);
    impl Delimited for OutsidePayloadFormat {
        fn paths(&self) -> &InPaths {
            &self.0
        }
        fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
            if bytes.len() < 4 { ParseOutcome::More } else { ParseOutcome::event(4, 0, b"A", 2..9) }
        }
    }
    struct LookingAhead(InPaths);
    impl Delimited for LookingAhead {
        fn paths(&self) -> &InPaths {
            &self.0
        }
        fn mark(&self) -> EventMarker<'_> {
            EventMarker::Begins(b"a")
        }
        fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
            if bytes.len() < 6 { ParseOutcome::More } else { ParseOutcome::event(4, 0, b"A", 2..3) }
        }
    }
    struct EmptyEventFormat(InPaths);
    impl Delimited for EmptyEventFormat {
        fn paths(&self) -> &InPaths {
            &self.0
        }
        fn parse<'b>(&self, _: &'b [u8]) -> ParseOutcome<'b> {
            ParseOutcome::event(0, 0, b"A", 0..0)
        }
    }
    let error = |source: &dyn Source| gather(source, u64::MAX).unwrap_err().to_string();
    let file = log(b"abcdabcdabcd");
    let outside = error(&DelimitedSource(OutsidePayloadFormat(file.path.clone())));
    assert!(outside.contains("payload at 2..9 for an event of 4 bytes"), "{outside}");
    let file = log(b"abcdefgh");
    let ahead = error(&DelimitedSource(LookingAhead(file.path.clone())));
    assert!(ahead.contains("not when it was passed only these"), "{ahead}");
    let empty = gather(&DelimitedSource(EmptyEventFormat(file.path.clone())), u64::MAX).unwrap();
    assert!(empty.events.is_empty() && empty.damage[0].2.contains("without bytes"));
}
