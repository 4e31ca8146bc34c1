//! What the source reads.

use proptest::prelude::*;
use serde_json::json;
use sluice_archive::fuzzing::Archive;
use sluice_kit::contract::{
    any_splitting_is_the_same, gather, gather_splits, splits_cover_the_inputs,
};
use sluice_model::{
    ChannelQuery, Pattern, Patterns, PluginKind, Query, ReadContext, Registry, SniffResult, Source,
};

use crate::kit::{
    ArchiveBuilder, FORMATS, Folder, TestEvent, log, plain, read, source, spans, unpacked,
};

/// The events of an archive for a query, and the number of frames read.
fn asked(source: &Archive, query: &Query, name: &str) -> (usize, u64) {
    let splits = source.splits(300, query).unwrap();
    let context = ReadContext { query: query.clone(), ..ReadContext::standalone(name) };
    let all = gather_splits(source, splits, &context).unwrap();
    (all.events.len(), source.frames_read())
}

fn channels(channel: &str, source: &str) -> Query {
    let patterns = |text| Patterns(vec![Pattern::parse(text).unwrap()]);
    let channels =
        ChannelQuery::from_patterns(&patterns(channel), &Patterns::default(), &patterns(source));
    Query { channels, ..Query::default() }
}

/// Half an hour of `A`, with some `RARE` in the middle.
fn long_log() -> Vec<TestEvent> {
    let event = |n: i64| {
        let name = if (500..510).contains(&n) { "RARE" } else { "A" };
        (n * 1_000_000, name.to_owned(), vec![n as u8; 30])
    };
    (0..1800).map(event).collect()
}

#[test]
fn any_splits_have_all_events() {
    let (folder, events) = (Folder::new(), log(100));
    for format in FORMATS {
        let path = folder.write(&ArchiveBuilder::new(format).archive(&events));
        let all = any_splitting_is_the_same(&source(&path), &[1, 200, 500, 2000]);
        assert_eq!((all.events, all.damage.len()), (plain(&events), 0), "{format}");
        for target in [1, 500, u64::MAX] {
            splits_cover_the_inputs(&source(&path), target);
        }
    }
}

#[test]
fn a_time_window_reads_the_frames_that_have_it() {
    let folder = Folder::new();
    for format in FORMATS {
        let path = folder.write(
            &ArchiveBuilder { frame: 1000, ..ArchiveBuilder::new(format) }.archive(&long_log()),
        );
        let frames = spans(&folder, &std::fs::read(&path).unwrap()).len() as u64;
        let query =
            Query { start: Some(900e9 as i64), end: Some(910e9 as i64), ..Query::default() };
        let (events, read) = asked(&source(&path), &query, "log");
        assert!((10..100).contains(&events) && read < 5 && frames > 40, "{format}: {read}");
        let nothing = Query { start: Some(i64::MAX), ..Query::default() };
        assert_eq!(asked(&source(&path), &nothing, "log"), (0, 0));
    }
}

#[test]
fn the_ends_of_a_window_are_found_though_times_were_cut_off() {
    let (folder, events) = (Folder::new(), vec![(5i64, "A".to_owned(), Vec::new())]);
    let path = folder.write(&ArchiveBuilder::new("toy").archive(&events));
    let window = |start, end| Query { start: Some(start), end: Some(end), ..Query::default() };
    for (start, end, count) in [(5000, 5001, 1), (0, 5000, 0), (5001, 9000, 0)] {
        assert_eq!(asked(&source(&path), &window(start, end), "log").0, count, "{start}..{end}");
    }
}

#[test]
fn a_channel_reads_the_frames_that_have_it() {
    let folder = Folder::new();
    for format in FORMATS {
        let path = folder.write(
            &ArchiveBuilder { frame: 1000, ..ArchiveBuilder::new(format) }.archive(&long_log()),
        );
        let (events, read) = asked(&source(&path), &channels("RARE", "*"), "log");
        assert!((10..100).contains(&events) && read < 5, "{format}: {read}");
        assert_eq!(asked(&source(&path), &channels("NONE", "*"), "log"), (0, 0));
    }
}

#[test]
fn a_source_is_asked_for_where_it_is_known() {
    let folder = Folder::new();
    // The format keeps no sources: events get that of the reader.
    let path = folder.write(&ArchiveBuilder::new("toy").archive(&log(20)));
    assert_eq!(asked(&source(&path), &channels("*", "log"), "log").0, 20);
    assert_eq!(asked(&source(&path), &channels("*", "log"), "other"), (0, 0));
    // The format keeps sources: it is `test` for any reader.
    let path = folder.write(&ArchiveBuilder::new("arrow").archive(&log(20)));
    assert_eq!(asked(&source(&path), &channels("*", "test"), "log").0, 20);
    assert_eq!(asked(&source(&path), &channels("*", "log"), "log"), (0, 0));
}

#[test]
fn all_that_is_read_of_a_file_is_counted() {
    let folder = Folder::new();
    let bytes = ArchiveBuilder::new("toy").archive(&log(100));
    let packed: u64 =
        spans(&folder, &bytes).iter().map(|span| u64::from(span.compressed_len)).sum();
    let context = ReadContext::standalone("test");
    let source = source(&folder.at("in.zst"));
    let splits = source.splits(300, &Query::default()).unwrap();
    gather_splits(&source, splits, &context).unwrap();
    assert_eq!(context.run.bytes_read(), packed);
}

#[test]
fn how_many_events_there_are_is_known_without_reading_them() {
    let folder = Folder::new();
    let path = folder.write(&ArchiveBuilder::new("arrow").archive(&log(77)));
    let archive = source(&path);
    assert_eq!(archive.events_in(&path).unwrap(), Some(77));
    assert_eq!(archive.frames_read(), 0);
    std::fs::write(&path, zstd::bulk::compress(b"E", 1).unwrap()).unwrap();
    assert_eq!(source(&path).events_in(&path).unwrap(), None);
}

#[test]
fn plain_and_otherwise_compressed_logs_are_read_too() {
    let (folder, events) = (Folder::new(), log(30));
    let archive = ArchiveBuilder::new("toy").archive(&events);
    let plain_log = unpacked(&archive);
    std::fs::write(folder.at("a.log"), &plain_log).unwrap();
    std::fs::write(folder.at("b.log"), zstd::bulk::compress(&plain_log, 19).unwrap()).unwrap();
    std::fs::write(folder.at("c.log"), &archive).unwrap();
    let all = gather(&source(&folder.at("*.log")), 300).unwrap();
    let expected = plain(&events);
    assert_eq!(all.events, [&expected[..], &expected, &expected].concat());
    assert_eq!(all.damage, []);
}

#[test]
fn a_log_with_frames_of_another_program_is_read_as_a_whole() {
    let (folder, events) = (Folder::new(), log(30));
    let plain_log = unpacked(&ArchiveBuilder::new("toy").archive(&events));
    let frames = plain_log.chunks(100).map(|piece| zstd::bulk::compress(piece, 1).unwrap());
    let all = read(&folder, &frames.collect::<Vec<_>>().concat());
    assert_eq!((all.events, all.damage.len()), (plain(&events), 0));
}

#[test]
fn unknown_files_are_refused() {
    let folder = Folder::new();
    for bytes in [&b"PAR1"[..], &zstd::bulk::compress(b"PAR1", 1).unwrap()] {
        let error = gather(&source(&folder.write(bytes)), 300).unwrap_err();
        assert!(error.to_string().contains("neither an archive"), "{error}");
    }
}

#[test]
fn archives_are_recognised_by_their_footer() {
    let folder = Folder::new();
    let sniff = Registry::linked().get(PluginKind::Source, "archive").unwrap().sniff_path;
    let archive = ArchiveBuilder::new("toy").archive(&log(30));
    assert_eq!(sniff(&folder.write(&archive)).unwrap(), SniffResult::Yes);
    // Its seek table is damaged, but its index is there.
    assert_eq!(sniff(&folder.write(&archive[..archive.len() - 1])).unwrap(), SniffResult::Yes);
    let log = zstd::bulk::compress(b"E", 1).unwrap();
    for other in [
        &archive[..archive.len() / 2],
        &archive[1..],
        &[&archive[..], &log].concat(),
        &zstd::bulk::compress(b"E", 1).unwrap(),
        b"PAR1",
        b"",
    ] {
        assert_eq!(sniff(&folder.write(other)).unwrap(), SniffResult::No);
    }
    assert_eq!(sniff(&folder.at("missing")).unwrap(), SniffResult::No);
}

#[test]
fn an_archive_that_changes_after_it_was_looked_at_is_damage() {
    let folder = Folder::new();
    let (before, after) = (log(100), log(10));
    let path = folder.write(&ArchiveBuilder::new("toy").archive(&before));
    let archive = source(&path);
    let splits = archive.splits(300, &Query::default()).unwrap();
    for changed in [ArchiveBuilder::new("toy").archive(&after), b"no archive".to_vec(), Vec::new()]
    {
        std::fs::write(&path, changed).unwrap();
        let all = gather_splits(&archive, splits.clone(), &ReadContext::standalone("test"));
        let all = all.unwrap();
        assert!(all.events.len() <= after.len() && !all.damage.is_empty());
        assert!(all.damage[0].2.contains("changed"), "{:?}", all.damage);
    }
}

#[test]
fn a_frame_may_not_hold_more_than_is_allowed() {
    let folder = Folder::new();
    let bytes = ArchiveBuilder::new("toy").archive(&log(30));
    let path = folder.write(&bytes);
    let options = json!({ "path": path, "max_frame": 100 });
    let strict = Archive::new(options, &Registry::linked()).unwrap();
    let all = gather(&strict, 300).unwrap();
    assert!(all.events.is_empty());
    assert_eq!(all.damage.len(), spans(&folder, &bytes).len());
    assert!(all.damage[0].2.contains("`max_frame` (100B); raise"), "{:?}", all.damage[0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn what_was_written_is_read(count in 0i64..150, frame in 1u64..3000, target in 1u64..4000) {
        let (folder, events) = (Folder::new(), log(count));
        for format in FORMATS {
            let builder = ArchiveBuilder { frame, ..ArchiveBuilder::new(format) };
            let path = folder.write(&builder.archive(&events));
            let all = gather(&source(&path), target).unwrap();
            prop_assert_eq!(&all.events, &plain(&events));
            prop_assert!(all.damage.is_empty());
        }
    }
}
