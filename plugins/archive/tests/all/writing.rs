//! What the sink writes.

use proptest::prelude::*;
use serde_json::json;
use sluice_io::tasks::TaskPool;
use sluice_model::{Registry, SinkContext, Source};

use crate::kit::{
    ArchiveBuilder, FORMATS, Folder, TestEvent, batch, log, read, sink, source, spans, unpacked,
};

/// The plain log, as the format's own sink would write it.
fn plain_log(format: &str, events: &[TestEvent]) -> Vec<u8> {
    let channels = sluice_model::Channels::default();
    let mut log = Vec::new();
    let format = Registry::linked().byte_format(format).unwrap();
    format.encode(&[batch(events, 0, &channels)], &channels, &mut log).unwrap();
    log
}

#[test]
fn any_decompressor_restores_the_plain_log() {
    let events = log(50);
    assert_eq!(unpacked(&ArchiveBuilder::new("toy").archive(&events)), plain_log("toy", &events));
}

#[test]
fn frames_hold_whole_events_up_to_the_requested_length() {
    let (events, folder) = (log(50), Folder::new());
    let bytes = ArchiveBuilder::new("toy").archive(&events);
    let spans = spans(&folder, &bytes);
    assert!(spans.len() > 5);
    let longest = 22 + 1 + 40;
    for (n, span) in spans.iter().enumerate() {
        let most = 200 + longest;
        assert!(
            span.content_len < most && (span.content_len >= 200 || n == spans.len() - 1),
            "{span:?}"
        );
        let frame = unpacked(&bytes[span.start as usize..span.end() as usize]);
        let head = frame.first().copied();
        assert_eq!((frame.len(), head), (span.content_len as usize, Some(b'E')));
    }
}

#[test]
fn an_archive_of_no_event_is_a_compressed_file_and_an_archive() {
    let folder = Folder::new();
    for format in FORMATS {
        let bytes = ArchiveBuilder::new(format).archive(&[]);
        assert!(format == "arrow" || unpacked(&bytes).is_empty());
        let all = read(&folder, &bytes);
        assert_eq!((all.events.len(), all.damage.len()), (0, 0), "{format}");
        assert_eq!(source(&folder.at("in.zst")).events_in(&folder.at("in.zst")).unwrap(), Some(0));
    }
}

#[test]
fn a_long_event_has_a_frame_or_ends_one() {
    let mut events = log(6);
    events[1].2 = vec![1; 500];
    events[3].2 = vec![2; 500];
    let folder = Folder::new();
    let bytes = ArchiveBuilder { frame: 100, ..ArchiveBuilder::new("toy") }.archive(&events);
    let held: Vec<usize> = spans(&folder, &bytes)
        .iter()
        .map(|span| unpacked(&bytes[span.start as usize..span.end() as usize]).len())
        .collect();
    assert!(held.iter().filter(|len| **len > 500).count() == 2, "{held:?}");
    assert_eq!(read(&folder, &bytes).events.len(), 6);
}

#[test]
fn refused_events_are_not_in_the_archive() {
    let (mut events, folder) = (log(20), Folder::new());
    events[3].1 = "REFUSED".into();
    events[19].1 = "REFUSED".into();
    let mut refused = Vec::new();
    let bytes = ArchiveBuilder::new("toy").try_archive(&events, &mut refused).unwrap();
    assert_eq!(refused, ["this name is refused"; 2]);
    let all = read(&folder, &bytes);
    assert_eq!((all.events.len(), all.damage.len()), (18, 0));
    assert!(all.events.iter().all(|event| event.channel != "REFUSED"));
}

#[test]
fn option_mistakes_are_reported_before_anything_is_opened() {
    for (key, value, says) in [
        ("level", json!(0), "a zstd level from 1 to 22, found 0"),
        ("level", json!(23), "found 23"),
        ("level", json!(5_000_000_000i64), "a zstd level from 1 to 22"),
        ("frame", json!(0), "at least 1 byte"),
        ("frame", json!("129MiB"), "at most 128MiB"),
        ("format", json!("vle"), "no archive format `vle`; available formats: arrow, toy"),
    ] {
        let mut options = json!({ "path": "out" });
        options[key] = value;
        let error = sink(options).err().unwrap();
        assert_eq!(error.path, [key]);
        assert!(error.message.contains(says), "{error}");
    }
}

#[test]
fn a_missing_default_format_is_reported_when_the_run_starts() {
    let folder = Folder::new();
    let sink = sink(json!({ "path": folder.at("out") })).unwrap();
    let error = sink.open(&SinkContext::standalone(), &TaskPool::default()).err().unwrap();
    assert!(error.to_string().contains("`lcm-log`"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn no_byte_depends_on_batches_or_threads(
        count in 0i64..200, frame in 1u64..3000, cuts in proptest::array::uniform2(1usize..250))
    {
        let events = log(count);
        for format in FORMATS {
            let making = |batch, tasks| ArchiveBuilder { format, frame, batch, tasks };
            let one = making(cuts[0], TaskPool::default()).archive(&events);
            let many = making(cuts[1], TaskPool::thread_per_task(3)).archive(&events);
            prop_assert!(one == many, "{}", format);
        }
    }
}

#[test]
fn levels_are_chosen_by_samples_and_not_by_threads() {
    // Frames of a megabyte: noise for 32 MiB, which is one sample, and then what repeats.
    let noise: Vec<u8> = log(60_000).into_iter().flat_map(|(_, _, payload)| payload).collect();
    let payload = |n: i64| if n < 32 { noise.clone() } else { noise[..8 << 10].repeat(128) };
    let events: Vec<_> = (0..34).map(|n| (n * 1_000, "A".to_owned(), payload(n))).collect();
    assert!(noise.len() > 1 << 20);
    let making = |batch, tasks| ArchiveBuilder { format: "toy", frame: 1 << 20, batch, tasks };
    let one = making(34, TaskPool::default()).archive(&events);
    assert!(one == making(5, TaskPool::thread_per_task(3)).archive(&events));
    let folder = Folder::new();
    assert_eq!(read(&folder, &one).events.len(), events.len());
}
