//! Wrong footers of intact frames: whatever the footer says, no wrong event is emitted.

use serde_json::{Value, json};
use sluice_io::frames;
use sluice_io::seek_table::{self, SeekTableBuilder};
use sluice_kit::contract::{gather, gather_with};
use sluice_model::{PluginKind, Query, ReadContext, Registry, SniffResult};

use crate::kit::{ArchiveBuilder, Folder, are_among, log, plain, read, source, spans, unpacked};

/// An archive of 60 events in frames of `toy` without its footer, and the positions of its frames.
fn frames_only(folder: &Folder) -> (Vec<u8>, Vec<seek_table::FrameSpan>) {
    let mut bytes = ArchiveBuilder::new("toy").archive(&log(60));
    let spans = spans(folder, &bytes);
    bytes.truncate(spans.last().unwrap().end() as usize);
    (bytes, spans)
}

fn index(text: &[u8]) -> Vec<u8> {
    let mut packed = zstd::bulk::compress(text, 3).unwrap();
    packed.extend((packed.len() as u32).to_le_bytes());
    packed.extend(b"sluiceix");
    frames::skippable(&packed).unwrap()
}

fn table_of(frames: &[(u32, u32)]) -> Vec<u8> {
    let mut table = SeekTableBuilder::default();
    frames.iter().for_each(|(packed, plain)| {
        table.push(*packed as usize, *plain as usize).unwrap();
    });
    table.finish()
}

/// Where the seek table of an archive starts.
fn table_start(archive: &[u8], spans: &[seek_table::FrameSpan]) -> usize {
    archive.len() - (8 + spans.len() * 8 + 9)
}

fn sizes(spans: &[seek_table::FrameSpan]) -> Vec<(u32, u32)> {
    spans.iter().map(|span| (span.compressed_len, span.content_len)).collect()
}

/// The content of an index, for tests to change.
fn honest(frames: usize) -> Value {
    let note = json!([0, 60_000_000, 7, [0, 7]]);
    json!({ "version": 1, "format": "toy", "frames": vec![note; frames], "channels": [["A"]],
            "events": 60 })
}

#[test]
fn an_index_does_not_replace_the_events() {
    let folder = Folder::new();
    let (bytes, spans) = frames_only(&folder);
    let seek = table_of(&sizes(&spans));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut lie = honest(spans.len());
        change(&mut lie);
        let path = folder.write(&[&bytes[..], &index(lie.to_string().as_bytes()), &seek].concat());
        gather(&source(&path), 300)
    };
    let note = |note: Value| {
        move |lie: &mut Value| {
            lie["frames"].as_array_mut().unwrap().iter_mut().for_each(|old| *old = note.clone());
        }
    };
    let all = plain(&log(60));
    // Other counts, times and channels; fewer frames; unknown keys.
    for change in [
        &note(json!([5, -5, 0, []])) as &dyn Fn(&mut Value),
        &note(json!([0, 0, 1_000_000, [77, 1]])),
        &note(json!([0, 0, 1, null])),
        &note(json!([0, 0, 1, [1]])),
        &note(json!([0, 0, -1, []])),
        &|lie| lie["events"] = json!(3),
        &|lie| lie["channels"] = json!([]),
        &|lie| lie["channels"] = json!([[]]),
        &|lie| lie["version"] = json!(2),
        &|lie| lie["frames"] = json!([]),
        &|lie| lie["frames"] = json!("none"),
        &|lie| lie["more"] = json!({ "than": "is known" }),
    ] {
        let read = with(change).unwrap();
        assert_eq!(read.events, all);
    }
    // Another format, which would have two more frames.
    assert_eq!(with(&|lie| lie["format"] = json!("arrow")).unwrap().events, all);
    let error = with(&|lie| lie["format"] = json!("lcm")).unwrap_err();
    assert!(error.to_string().contains("no archive format `lcm`"), "{error}");
}

/// Changes the lengths that a seek table has, compressed and not.
type Change = dyn Fn(&mut Vec<(u32, u32)>);

#[test]
fn a_seek_table_that_cannot_be_is_not_believed() {
    let folder = Folder::new();
    let (bytes, spans) = frames_only(&folder);
    let (index, good) = (index(honest(spans.len()).to_string().as_bytes()), sizes(&spans));
    let changed = |change: &Change| {
        let mut sizes = good.clone();
        change(&mut sizes);
        read(&folder, &[&bytes[..], &index, &table_of(&sizes)].concat())
    };
    let all = plain(&log(60));
    assert_eq!(changed(&|_| ()).events, all);
    assert!(changed(&|_| ()).damage.is_empty());
    for change in [
        &(|sizes: &mut Vec<(u32, u32)>| sizes[3].0 += 1) as &Change,
        &|sizes| sizes[3].0 -= 1,
        &|sizes| sizes[3].0 = u32::MAX,
        &|sizes| sizes[3].1 = u32::MAX,
        &|sizes| sizes[3].1 = 0,
        &|sizes| sizes.swap(2, 3),
        &|sizes| sizes.clear(),
        &|sizes| sizes.truncate(sizes.len() - 1),
        &|sizes| sizes.extend([(0, 0); 10_000]),
        &|sizes| (sizes[2].0, sizes[3].0) = (sizes[2].0 + 5, sizes[3].0 - 5),
    ] {
        let read = changed(change);
        assert!(are_among(&read.events, &all));
        assert!(read.events.len() == 60 || !read.damage.is_empty());
    }
}

#[test]
fn a_wrong_length_in_the_seek_table_loses_no_event() {
    let folder = Folder::new();
    let (bytes, spans) = frames_only(&folder);
    for wrong in [0, 1, 7, u32::MAX] {
        for frame in 0..spans.len() {
            let mut sizes = sizes(&spans);
            sizes[frame].1 = sizes[frame].1.wrapping_add(wrong);
            let honest = index(honest(spans.len()).to_string().as_bytes());
            let path = folder.write(&[&bytes[..], &honest, &table_of(&sizes)].concat());
            let read = gather(&source(&path), 300).unwrap();
            assert_eq!(read.events, plain(&log(60)), "{frame} {wrong}");
            assert_eq!(read.damage.len(), usize::from(wrong > 0), "{frame} {wrong}");
            for (offset, length, reason) in read.damage {
                let (number, len) = (frame + 1, spans[frame].content_len);
                assert_eq!(offset + length, std::fs::metadata(&path).unwrap().len());
                assert!(reason.contains(&format!("damaged: frame {number}, at byte")), "{reason}");
                assert!(reason.contains(&format!("long, {len} uncompressed, is at")), "{reason}");
            }
        }
    }
}

#[test]
fn any_byte_of_a_seek_table_may_be_wrong_and_is_damage() {
    let folder = Folder::new();
    let named =
        |name: &'static str| log(60).into_iter().map(move |(time, _, p)| (time, name.into(), p));
    let sniff = Registry::linked().get(PluginKind::Source, "archive").unwrap().sniff_path;
    // Numbers as they are written, and positions.
    for name in ["A", "AT"] {
        let good = ArchiveBuilder::new("toy").archive(&named(name).collect::<Vec<_>>());
        let (whole, spans) = (read(&folder, &good), spans(&folder, &good));
        assert!(whole.damage.is_empty());
        let table = table_start(&good, &spans);
        for at in table..good.len() {
            for flip in [0x04, 0x10, 0x80] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                let all = read(&folder, &bad);
                assert_eq!(all.events, whole.events, "byte {at} ^ {flip:#x}");
                assert!(!all.damage.is_empty(), "byte {at} ^ {flip:#x}");
                assert_eq!(sniff(&folder.at("in.zst")).unwrap(), SniffResult::Yes, "{at}");
            }
        }
        for end in [table, table + 1, table + 8, good.len() - 1] {
            let all = read(&folder, &good[..end]);
            assert_eq!((all.events, all.damage.len()), (whole.events.clone(), 1), "cut at {end}");
            assert_eq!(sniff(&folder.at("in.zst")).unwrap(), SniffResult::Yes, "cut at {end}");
        }
        // Compensating lengths, and a frame too many.
        let lengths = sizes(&spans);
        for change in [
            &(|sizes: &mut Vec<(u32, u32)>| sizes[2].1 += sizes[2].0) as &Change,
            &|sizes| (sizes[2].1, sizes[3].1) = (sizes[2].1 + 5, sizes[3].1 - 5),
            &|sizes| sizes.push((0, 0)),
            &|sizes| sizes.truncate(3),
            &|sizes| (sizes[2].0, sizes[9].0) = (sizes[2].0 + 1, sizes[9].0 - 1),
            &|sizes| (sizes[2].0, sizes[9].0) = (sizes[2].0 - 1, sizes[9].0 + 1),
            &|sizes| (sizes[0].0, sizes[1].0) = (sizes[0].0 + sizes[1].0, 0),
            &|sizes| sizes.swap(2, 3),
        ] {
            let mut sizes = lengths.clone();
            change(&mut sizes);
            let all = read(&folder, &[&good[..table], &table_of(&sizes)].concat());
            assert_eq!(all.events.len(), whole.events.len());
            let wrong = all.events.iter().filter(|event| !whole.events.contains(event)).count();
            assert!(wrong == 0 || all.damage[0].2.contains("may be wrong"), "{:?}", all.damage);
            assert!(!all.damage.is_empty());
        }
    }
}

#[test]
fn lengths_that_compensate_each_other_lose_no_event_where_frames_are_skipped() {
    let folder = Folder::new();
    let events: Vec<_> = log(60).into_iter().map(|(time, _, p)| (time, "AT".into(), p)).collect();
    let good = ArchiveBuilder::new("toy").archive(&events);
    let (whole, spans) = (read(&folder, &good), spans(&folder, &good));
    let table = table_start(&good, &spans);
    for by in [1, u32::MAX] {
        let mut sizes = sizes(&spans);
        sizes[2].0 = sizes[2].0.wrapping_add(by);
        sizes[9].0 = sizes[9].0.wrapping_sub(by);
        let path = folder.write(&[&good[..table], &table_of(&sizes)].concat());
        for event in &whole.events {
            let mut context = ReadContext::standalone("test");
            let (start, end) = (Some(event.timestamp), Some(event.timestamp + 1));
            context.query = Query { start, end, ..Query::default() };
            let found = gather_with(&source(&path), 300, &context).unwrap();
            assert!(found.events.contains(event), "{by} {event:?}: {:?}", found.damage);
            assert!(are_among(&found.events, &whole.events));
        }
        let splits = gather(&source(&path), 1).unwrap();
        assert_eq!((splits.events, splits.damage.len()), (whole.events.clone(), 2));
    }
}

#[test]
fn an_archive_is_recognised_by_its_index_before_a_long_damaged_table() {
    let folder = Folder::new();
    let (bytes, spans) = frames_only(&folder);
    let index = index(honest(spans.len()).to_string().as_bytes());
    let sniff = Registry::linked().get(PluginKind::Source, "archive").unwrap().sniff_path;
    for entries in [8_187, 8_188, 8_189, 8_190, 8_191, 8_192, 8_193, 100_000] {
        let mut table = table_of(&vec![(300_000, 1_000_000); entries]);
        for _ in 0..9 {
            table.pop();
            let path = folder.write(&[&bytes[..], &index, &table].concat());
            assert_eq!(sniff(&path).unwrap(), SniffResult::Yes, "{entries}: {}", table.len());
        }
        // A frame follows.
        let path = folder.write(&[&bytes[..], &index, &table, &bytes].concat());
        assert_eq!(sniff(&path).unwrap(), SniffResult::No, "{entries}");
    }
}

#[test]
fn a_table_that_the_index_contradicts_does_not_determine_numbers_behind_damage() {
    let folder = Folder::new();
    let events: Vec<_> = log(60).into_iter().map(|(time, _, p)| (time, "AT".into(), p)).collect();
    let good = ArchiveBuilder::new("toy").archive(&events);
    let spans = spans(&folder, &good);
    let mut bad = good.clone();
    // The content of a frame, and the uncompressed length that the table has for it.
    bad[spans[4].start as usize + 20] ^= 1;
    bad[good.len() - 9 - (spans.len() - 4) * 8 + 4] ^= 4;
    let all = read(&folder, &bad);
    let [(_, _, frame), (start, length, table)] = &all.damage[..] else {
        panic!("{:?}", all.damage)
    };
    assert!(frame.contains("may be wrong"), "{frame}");
    assert_eq!(start + length, good.len() as u64);
    assert!(table.contains("in the index"), "{table}");
}

#[test]
fn a_wrong_seek_table_leaves_numbers_right_where_frames_are_skipped() {
    let folder = Folder::new();
    let events: Vec<_> = log(60).into_iter().map(|(time, _, p)| (time, "AT".into(), p)).collect();
    let good = ArchiveBuilder::new("toy").archive(&events);
    let (whole, spans) = (read(&folder, &good), spans(&folder, &good));
    let mut bad = good.clone();
    bad[good.len() - 9 - spans.len() * 8 + 5] ^= 16;
    let path = folder.write(&bad);
    let mut context = ReadContext::standalone("test");
    context.query = Query { start: Some(50_000_000), ..Query::default() };
    let late = gather_with(&source(&path), 300, &context).unwrap();
    assert!(late.events.len() >= 10 && are_among(&late.events, &whole.events));
    assert_eq!(late.damage.len(), 1, "{:?}", late.damage);
}

/// An archive as earlier versions wrote it: its index has no uncompressed length.
fn without_content_len(archive: &[u8], spans: &[seek_table::FrameSpan]) -> Vec<u8> {
    let (end, table) = (spans.last().unwrap().end() as usize, table_start(archive, spans));
    let packed = frames::skippable_content(&archive[end..table]).unwrap();
    let text = unpacked(&packed[..packed.len() - 12]);
    let mut text: Value = serde_json::from_slice(&text).unwrap();
    text.as_object_mut().unwrap().remove("content_len").unwrap();
    [&archive[..end], &index(text.to_string().as_bytes()), &archive[table..]].concat()
}

#[test]
fn a_wrong_seek_table_of_an_earlier_version_leaves_numbers_right_where_frames_are_skipped() {
    let folder = Folder::new();
    let events: Vec<_> = log(60).into_iter().map(|(time, _, p)| (time, "AT".into(), p)).collect();
    let good = ArchiveBuilder::new("toy").archive(&events);
    let (whole, spans) = (read(&folder, &good), spans(&folder, &good));
    let mut old = without_content_len(&good, &spans);
    let late = |archive: &[u8]| {
        let path = folder.write(archive);
        let mut context = ReadContext::standalone("test");
        context.query = Query { start: Some(50_000_000), ..Query::default() };
        let source = source(&path);
        let late = gather_with(&source, 300, &context).unwrap();
        assert!(late.events.len() >= 10);
        assert!(are_among(&late.events, &whole.events), "{:?}", late.damage);
        (late.damage, source.frames_read())
    };
    let (damage, unpacked) = late(&old);
    assert!(damage.is_empty() && unpacked < spans.len() as u64, "{unpacked}: {damage:?}");
    // The length of the content of the first frame.
    let at = old.len() - 9 - spans.len() * 8 + 5;
    old[at] ^= 16;
    let (damage, _) = late(&old);
    assert!(damage.len() == 1 && damage[0].2.contains("the seek table"), "{damage:?}");
}

#[test]
fn footers_that_claim_too_much_take_no_memory() {
    let folder = Folder::new();
    let (bytes, spans) = frames_only(&folder);
    let good =
        [&bytes[..], &index(honest(spans.len()).to_string().as_bytes()), &table_of(&sizes(&spans))]
            .concat();
    let len = good.len();
    // The number of frames, and the flag for checksums.
    for (at, with) in
        [(len - 9, &[0xff, 0xff, 0xff, 0x07][..]), (len - 9, &[0xff; 4]), (len - 5, &[0x80])]
    {
        let mut bad = good.clone();
        bad[at..at + with.len()].copy_from_slice(with);
        assert_eq!(read(&folder, &bad).events, plain(&log(60)));
    }
}

#[test]
fn an_index_that_cannot_be_read_is_damage_and_costs_no_event() {
    let folder = Folder::new();
    let (bytes, spans) = frames_only(&folder);
    let mut bad = index(honest(spans.len()).to_string().as_bytes());
    let len = bad.len() as u64;
    bad[30] ^= 1;
    let all = read(&folder, &[&bytes[..], &bad, &table_of(&sizes(&spans))].concat());
    assert_eq!(all.events, plain(&log(60)));
    let [(offset, length, reason)] = &all.damage[..] else { panic!("{:?}", all.damage) };
    assert_eq!((*offset, *length), (bytes.len() as u64, len));
    assert!(reason.contains("index"), "{reason}");
}

#[test]
fn an_index_without_its_mark_is_damage_and_costs_no_event() {
    let folder = Folder::new();
    let sniff = Registry::linked().get(PluginKind::Source, "archive").unwrap().sniff_path;
    let good = ArchiveBuilder::new("toy").archive(&log(60));
    let spans = spans(&folder, &good);
    let (index, table) = (spans.last().unwrap().end() as usize, table_start(&good, &spans));
    // Bytes of the mark and of the length before it, and all of them.
    let ranges =
        (table - 12..table).map(|at| at..at + 1).chain([table - 8..table, table - 12..table]);
    for range in ranges {
        let mut bad = good.clone();
        bad[range.clone()].iter_mut().for_each(|byte| *byte ^= 0x10);
        let all = read(&folder, &bad);
        assert_eq!(all.events, plain(&log(60)));
        let [(offset, length, reason)] = &all.damage[..] else { panic!("{:?}", all.damage) };
        assert_eq!((*offset, *length), (index as u64, (table - index) as u64), "{range:?}");
        assert!(reason.contains("index"), "{reason}");
        assert_eq!(sniff(&folder.at("in.zst")).unwrap(), SniffResult::Yes, "{range:?}");
    }
    // What another program wrote there.
    let other = [&good[..index], &frames::skippable(b"other").unwrap(), &good[table..]].concat();
    assert_eq!(read(&folder, &other).damage, []);
    assert_eq!(sniff(&folder.at("in.zst")).unwrap(), SniffResult::No);
}
