//! What the `vel` plugins promise, whatever the log looks like.

use proptest::prelude::*;
use serde_json::json;
use sluice_kit::contract::{
    any_splitting_is_the_same, gather, gather_with, overwrite, splits_cover_the_inputs,
};
use sluice_kit::{CodecOptions, Codecs, TypePaths};
use sluice_model::{Clock, PluginKind, ReadContext, Registry, SniffResult, Source};

use crate::kit::{
    body, gathered_with_blocks, log, log_of, message, plugin_source, source, taken, written,
};

#[test]
fn a_clean_log_gives_every_event_however_it_is_cut() {
    let bytes = log(300);
    let (_folder, path) = written(&bytes);
    let all = any_splitting_is_the_same(&*source(&path), &[1, 7, 100, 1000, 10_000]);
    assert_eq!((all.events.len(), all.damage.len()), (300, 0), "{:?}", all.damage);
    assert_eq!(taken(&all) + body(&bytes), bytes.len() as u64);
    for (n, event) in all.events.iter().enumerate() {
        let (_, _, payload) = message(n);
        assert_eq!((event.timestamp, &event.payload), (n as i64 * 100_000_000, &payload));
        assert!(bytes[event.sequence as usize + 21..].starts_with(&payload));
    }
    splits_cover_the_inputs(&*source(&path), 10);
}

#[test]
fn a_channel_says_its_type_version_and_clock() {
    let (_folder, path) = written(&log(6));
    for (options, clock) in [
        (json!({ "path": path }), Clock::Relative),
        (json!({ "path": path, "epoch": "2007-11-03" }), Clock::Utc),
    ] {
        let context = ReadContext::standalone("test");
        gather_with(&*plugin_source(options), u64::MAX, &context).unwrap();
        let channel = context.channels.get(sluice_model::ChannelId(5));
        assert_eq!((channel.type_name.as_deref(), channel.clock), (Some("0x12345678.v7"), clock));
        let metadata: Vec<_> = channel.metadata.iter().map(|(k, v)| (&k[..], &v[..])).collect();
        assert_eq!(metadata, [("vel.type", "0x12345678"), ("vel.version", "7")]);
    }
}

#[test]
fn the_first_message_is_looked_for_once() {
    let (_folder, path) = written(&log_of((0..3).map(|n| (5_000.0, message(n)))));
    let log = plugin_source(json!({ "path": path, "first": "2007-11-03" }));
    let first = |log: &dyn Source| gather(log, u64::MAX).unwrap().events[0].timestamp;
    assert_eq!(first(&*log), 1_194_048_000_000_000_000);
    // If it were looked for again, it would be found elsewhere.
    std::fs::write(&path, log_of((0..3).map(|n| (6_000.0, message(n))))).unwrap();
    assert_eq!(first(&*log), 1_194_048_001_000_000_000);
}

#[test]
fn the_first_message_of_a_compressed_log_is_found() {
    let (folder, path) = written(&log_of((0..3).map(|n| (5_000.0, message(n)))));
    let packed = folder.path().join("log.vel.zst");
    let frame = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    std::fs::write(&packed, frame(&std::fs::read(&path).unwrap())).unwrap();
    let read = || gather(&*plugin_source(json!({ "path": packed, "first": "2007-11-03" })), 1);
    let all = read().unwrap();
    assert_eq!((all.events.len(), all.events[0].timestamp), (3, 1_194_048_000_000_000_000));
    // What is behind damage is not the first message.
    std::fs::write(&packed, [&frame(&std::fs::read(&path).unwrap())[..20], &[7; 99]].concat())
        .unwrap();
    let reason = read().unwrap_err().to_string();
    assert!(reason.contains("before damage") && reason.contains("set `epoch`"), "{reason}");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let registry = Registry::linked();
    for (options, says) in [
        (json!({ "path": "x", "epoch": "2007-11-03", "first": "2007-11-04" }), "one of them"),
        (json!({ "path": "x", "epoch": "+1" }), "is not a point in time"),
        (json!({ "path": "x", "first": 5 }), "`5` is 1970-01-01T00:00:05"),
        (json!({ "path": "x", "message_names": ["bab", "aca"] }), "`bab` and `aca`"),
        (json!({ "path": "x", "color": "red" }), "color"),
    ] {
        let error = registry.source("vel", options).err().unwrap().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn the_size_of_blocks_does_not_matter() {
    let (_folder, path) = written(&log(200));
    let all = gather(&*source(&path), u64::MAX).unwrap();
    for block in [1, 29, 64, 500, 4096] {
        assert_eq!(gathered_with_blocks(&path, block), all, "blocks of {block}");
    }
}

#[test]
fn a_stream_reads_as_a_file_does() {
    let mut bytes = log(100);
    bytes.splice(3000..3003, []);
    let (folder, path) = written(&bytes);
    let packed = folder.path().join("log.vel.zst");
    std::fs::write(&packed, zstd::encode_all(&bytes[..], 1).unwrap()).unwrap();
    let all = gather(&*source(&path), u64::MAX).unwrap();
    assert_eq!(gather(&*source(&packed), u64::MAX).unwrap(), all);
    assert!(!all.damage.is_empty());
}

#[test]
fn a_log_cut_off_anywhere_gives_every_whole_message_and_says_what_is_missing() {
    let bytes = log(14);
    let body = body(&bytes);
    let (_folder, path) = written(&bytes);
    let whole = gather(&*source(&path), u64::MAX).unwrap();
    for len in 0..bytes.len() {
        overwrite(&path, &bytes[..len]).unwrap();
        let all = any_splitting_is_the_same(&*source(&path), &[170]);
        let kept =
            whole.events.iter().filter(|e| e.sequence as usize + 21 + e.payload.len() <= len);
        assert!(all.events.iter().eq(kept), "cut at {len}");
        let head = if len as u64 >= body { body } else { 0 };
        assert_eq!(taken(&all) + head, len as u64, "cut at {len}: {:?}", all.damage);
    }
}

#[test]
fn a_wrong_size_costs_its_own_message_only() {
    let bytes = log(60);
    let (_folder, path) = written(&bytes);
    let whole = gather(&*source(&path), u64::MAX).unwrap();
    for n in [0, 1, 3, 6, 12, 13, 31] {
        for flip in [0x10u8, 0x80] {
            for byte in 0..4 {
                let mut bad = bytes.clone();
                bad[whole.events[n].sequence as usize + byte] ^= flip;
                overwrite(&path, &bad).unwrap();
                let all = any_splitting_is_the_same(&*source(&path), &[100, 1000]);
                let others = whole.events.iter().enumerate().filter(|(m, _)| *m != n);
                // A size that was cut short may leave a message with less in it, which its payload
                // tells.
                let lost: Vec<_> =
                    others.filter(|(_, e)| !all.events.contains(e)).map(|(m, _)| m).collect();
                assert_eq!(lost, [0usize; 0], "message {n}, byte {byte} ^ {flip:#x}");
                assert!(!all.events.contains(&whole.events[n]));
            }
        }
    }
}

/// A log, and where its messages start and end.
fn log_with_bounds(count: usize) -> (Vec<u8>, Vec<usize>) {
    let bytes = log(count);
    let (_folder, path) = written(&bytes);
    let all = gather(&*source(&path), u64::MAX).unwrap();
    let starts = all.events.iter().map(|event| event.sequence as usize);
    (bytes.clone(), starts.chain([bytes.len()]).collect())
}

#[test]
fn an_erased_block_costs_only_the_messages_in_it() {
    let (bytes, bounds) = log_with_bounds(120);
    let (_folder, path) = written(&bytes);
    let whole = gather(&*source(&path), u64::MAX).unwrap();
    // At the start of a message, in its size, in its header and in its payload.
    for at in [bounds[0], bounds[30], bounds[31] + 2, bounds[32] + 4, bounds[33] + 30] {
        for len in [256, 512, 4096] {
            // What is left of the block behind the message in which it begins is erased as well.
            let torn = bounds.iter().find(|bound| **bound > at).unwrap();
            let end = at + len;
            let end = if (*torn..torn + 64).contains(&end) { torn + 64 } else { end };
            let mut bad = bytes.clone();
            bad[at..end].fill(0xff);
            overwrite(&path, &bad).unwrap();
            let all = any_splitting_is_the_same(&*source(&path), &[100, 1000]);
            for (event, span) in whole.events.iter().zip(bounds.windows(2)) {
                let is_outside = span[1] <= at || span[0] >= end;
                assert!(!is_outside || all.events.contains(event), "{at}+{len}: {}", span[0]);
            }
            assert!(!all.damage.is_empty(), "{at}+{len}");
        }
    }
}

#[test]
fn nothing_after_an_end_mark_is_read_unless_it_is_an_erased_block() {
    let (bytes, bounds) = log_with_bounds(60);
    let (_folder, path) = written(&bytes);
    let whole = gather(&*source(&path), u64::MAX).unwrap();
    let index: Vec<u8> = bounds.iter().flat_map(|at| (*at as u64).to_le_bytes()).collect();
    let cut = &bytes[bounds[50] + 10..bounds[51] - 1];
    let short = [&[0xff; 59][..], &bytes[bounds[0]..bounds[5]]].concat();
    for rest in [
        &[][..],
        &[0; 5_000],
        &[0xff; 5_000],
        &[0x31; 5_000],
        &index,
        cut,
        b"leftover text",
        &bytes[bounds[0]..bounds[5]],
        &short,
    ] {
        let marked = [&bytes[..], &[0xff; 4], rest].concat();
        overwrite(&path, &marked).unwrap();
        let all = any_splitting_is_the_same(&*source(&path), &[100, 1000, 100_000]);
        assert_eq!((&all.events, all.damage.len()), (&whole.events, 0), "{rest:?}");
        let context = ReadContext::standalone("test");
        gather_with(&*source(&path), u64::MAX, &context).unwrap();
        let notes = context.losses.take_notes();
        assert_eq!(notes.len(), usize::from(!rest.is_empty()), "{notes:?}");
    }
    let (mark, next) = (bounds[20], bounds[22]);
    let marked = [&bytes[..mark], &[0xff; 64], &bytes[next..]].concat();
    overwrite(&path, &marked).unwrap();
    let all = any_splitting_is_the_same(&*source(&path), &[100, 1000]);
    let [(offset, length, reason)] = &all.damage[..] else { panic!("{:?}", all.damage) };
    assert_eq!((*offset as usize, *length, all.events.len()), (mark, 64, 58));
    assert!(reason.contains("an erased block"), "{reason}");
    let stopping = plugin_source(json!({ "path": path, "after_damage": "stop" }));
    let all = any_splitting_is_the_same(&*stopping, &[100, 1000]);
    assert_eq!((all.events.len(), all.damage.len()), (20, 0), "{:?}", all.damage);
}

#[test]
fn sniffing_tells_logs_from_other_files() {
    let registry = Registry::linked();
    let sniff = registry.get(PluginKind::Source, "vel").unwrap().sniff;
    assert_eq!(sniff(&log(1)), SniffResult::Yes);
    assert_eq!(
        (sniff(b"PAR1"), sniff(b"\xa4VE"), sniff(b"")),
        (SniffResult::No, SniffResult::No, SniffResult::No)
    );
}

fn mutation() -> impl Strategy<Value = (u8, usize, usize)> {
    (0u8..6, any::<usize>(), 1usize..400)
}

fn damaged(mut log: Vec<u8>, mutations: &[(u8, usize, usize)]) -> Vec<u8> {
    for (kind, at, len) in mutations {
        // The head of a file is damaged elsewhere: most of what could be done to it refuses the
        // file.
        let at = 12 + at % log.len().saturating_sub(12).max(1);
        let end = (at + len).min(log.len());
        match kind {
            0 if at < log.len() => log[at] ^= 1 << (len % 8),
            1 if at < log.len() => drop(log.drain(at..end)),
            2 if at < log.len() => drop(log.splice(at..at, std::iter::repeat_n(0x31, *len))),
            3 if at < log.len() => log[at..end].fill(0),
            4 if at < log.len() => log[at..end].fill(0x31),
            _ => log.truncate(at),
        }
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn damaged_logs_are_the_same_however_they_are_cut_and_blocked(
        mutations in proptest::collection::vec(mutation(), 1..6),
        target in 1u64..3000, block in 1usize..2000)
    {
        let bytes = damaged(log(60), &mutations);
        let (_folder, path) = written(&bytes);
        let all = any_splitting_is_the_same(&*source(&path), &[target, target * 3, 64]);
        prop_assert_eq!(&gathered_with_blocks(&path, block), &all);
        let events = all.events.iter().map(|e| e.sequence as u64);
        let starts = events.chain(all.damage.iter().map(|d| d.0));
        let first = starts.min().unwrap_or(bytes.len() as u64);
        prop_assert_eq!(taken(&all) + first, bytes.len() as u64);
    }

    #[test]
    fn events_outside_of_the_damage_are_as_they_were(
        at in 100usize..9_000, len in 1usize..300,
        fill in prop_oneof![Just(0u8), Just(0x31), Just(0xfe), any::<u8>()])
    {
        // The last ones are of known types: a single one of another type is not plausible after
        // damage.
        let clean = log(62);
        let (_folder, path) = written(&clean);
        let whole = gather(&*source(&path), u64::MAX).unwrap();
        let mut bytes = clean.clone();
        let at = (at % clean.len()).max(body(&clean) as usize);
        let end = (at + len).min(clean.len());
        // Four such bytes where a size is due would end the log.
        prop_assume!(fill != 0xff);
        bytes[at..end].fill(fill);
        // A size that leads to a later message, or to the end, cannot be told from a right one.
        let starts = whole.events.iter().map(|event| event.sequence as usize);
        let ends: Vec<usize> = starts.clone().chain([clean.len()]).collect();
        let misleads = |start: usize| {
            let size = bytes[start..].first_chunk().copied().map(u32::from_le_bytes);
            let next = size.and_then(|size| (start + 4).checked_add(size as usize));
            start < end && at < start + 4 && next.is_some_and(|next| ends.contains(&next))
        };
        prop_assume!(!starts.clone().any(misleads));
        std::fs::write(&path, &bytes).unwrap();
        let all = gather(&*source(&path), u64::MAX).unwrap();
        for event in &whole.events {
            let span = event.sequence as usize..event.sequence as usize + 21 + event.payload.len();
            if span.end <= at || span.start >= end {
                let is_there = all.events.contains(event);
                prop_assert!(is_there, "event at {} is gone: {:?}", span.start, all.damage);
            }
        }
    }
}

#[test]
fn a_built_in_set_is_parsed_once_in_a_process_unless_there_are_options() {
    let registry = Registry::linked();
    let types = TypePaths(vec!["vel".into()]);
    let codecs = |options: &CodecOptions| Codecs::from_paths(&registry, &types, options).unwrap();
    let place = |codecs: &Codecs| std::ptr::from_ref(codecs.get("vel").unwrap()).cast::<u8>();
    let (first, again) = (codecs(&CodecOptions::default()), codecs(&CodecOptions::default()));
    assert_eq!(place(&first), place(&again));
    let other = codecs(&CodecOptions { depth: Some(2), ..CodecOptions::default() });
    assert_ne!(place(&first), place(&other));
}
