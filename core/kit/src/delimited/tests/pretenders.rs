//! Bytes that look like long events, which are searched in bounded time.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_model::RunHandle;

use super::*;

/// `#!`, the payload length, the payload, and the sum of all bytes before. Counts the bytes it is
/// passed.
struct LongEventFormat {
    path: InPaths,
    is_unmistakable: bool,
    shown: Arc<AtomicU64>,
    /// Set after this many bytes.
    cancelled: (u64, RunHandle),
}

const LONGEST: u64 = 64 << 10;

impl Delimited for LongEventFormat {
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
        LONGEST as usize
    }

    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        let (most, cancelled) = &self.cancelled;
        if self.shown.fetch_add(bytes.len() as u64, Ordering::Relaxed) > *most {
            cancelled.cancel();
        }
        let Some([_, _, len @ ..]) = bytes.first_chunk::<6>() else { return ParseOutcome::More };
        let end = 6 + u32::from_le_bytes(*len) as usize;
        if end >= self.longest() {
            return ParseOutcome::NotAnEvent("too long");
        }
        match bytes.get(..=end).and_then(<[u8]>::split_last) {
            None => ParseOutcome::More,
            Some((sum, event)) if *sum == sum_of(event) => {
                ParseOutcome::event(end + 1, 0, b"A", 6..end)
            }
            Some(_) => ParseOutcome::Damaged { len: end + 1, reason: "wrong sum" },
        }
    }
}

fn long(payload: &[u8]) -> Vec<u8> {
    let mut event = [MARK, &(payload.len() as u32).to_le_bytes(), payload].concat();
    event.push(sum_of(&event));
    event
}

/// Consecutive headers of events of almost the maximum length.
fn pretenders(count: usize) -> Vec<u8> {
    [MARK, &(LONGEST as u32 - 100).to_le_bytes(), b"...1"].concat().repeat(count)
}

/// Reads a log in several ways; returns the result, and the most bytes passed to `parse`.
fn read_long(bytes: &[u8]) -> (SourceContents, u64) {
    let file = log(bytes);
    let mut all: Option<(SourceContents, u64)> = None;
    let blocks = [1 << 20, 1 << 12, 300].into_iter();
    for (block, is_unmistakable) in blocks.flat_map(|block| [(block, false), (block, true)]) {
        let shown = Arc::default();
        let never = (u64::MAX, RunHandle::default());
        let path = file.path.clone();
        let shown_here = Arc::clone(&shown);
        let source = LongEventFormat { path, is_unmistakable, shown: shown_here, cancelled: never };
        let blocks = BlockPool::new(block, 2);
        let context = ReadContext { blocks, ..ReadContext::standalone("test") };
        let read = gather_with(&DelimitedSource(source), u64::MAX, &context).unwrap();
        let shown = shown.load(Ordering::Relaxed);
        all = match all {
            None => Some((read, shown)),
            Some((first, _)) if first != read => panic!("blocks of {block} bytes"),
            Some((first, most)) => Some((first, most.max(shown))),
        };
    }
    all.unwrap()
}

#[test]
fn damage_that_pretends_to_be_long_events_everywhere_is_searched_in_bounded_time() {
    let bytes = [pretenders(4000), vec![0; LONGEST as usize]].concat();
    let (all, shown) = read_long(&bytes);
    assert_eq!((all.events.len(), damage(&all).len()), (0, 1));
    assert!(shown < bytes.len() as u64 * 300, "{shown} of {} bytes", bytes.len());
}

#[test]
fn short_events_among_pretenders_are_found_and_long_ones_behind_them() {
    let (short, large) = (long(b"short"), long(&[7; 50_000]));
    let zeros = vec![0; LONGEST as usize];
    let among = [&pretenders(1500)[..], &short, &pretenders(1500)].concat();
    let all = read_long(&[&among[..], &zeros, &large, &large].concat()).0;
    assert_eq!(payloads(&all), [&b"short"[..], &[7; 50_000], &[7; 50_000]]);
    assert_eq!(damage(&all).len(), 2);
}

#[test]
fn pretenders_inside_of_an_event_are_looked_at_in_bounded_time() {
    let event = long(&pretenders(3000));
    let bytes = [event.clone(), vec![1; LONGEST as usize]].concat();
    let (all, shown) = read_long(&bytes);
    assert_eq!(payloads(&all), [pretenders(3000)]);
    assert!(shown < bytes.len() as u64 * 300, "{shown} of {} bytes", bytes.len());
}

#[test]
fn a_search_ends_when_the_run_does() {
    let file = log(&[pretenders(4000), vec![0; LONGEST as usize]].concat());
    for target in [u64::MAX, 150_000] {
        let context = ReadContext::standalone("test");
        let (shown, most) = (Arc::new(AtomicU64::new(0)), 300_000);
        let cancelled = (most, context.run.clone());
        let source = LongEventFormat {
            path: file.path.clone(),
            is_unmistakable: true,
            shown: Arc::clone(&shown),
            cancelled,
        };
        let read = gather_with(&DelimitedSource(source), target, &context).unwrap();
        assert_eq!((read.events.len(), read.damage.len()), (0, 0), "nothing was found out");
        let shown = shown.load(Ordering::Relaxed);
        assert!(shown < 2 * most, "{shown}");
    }
}
