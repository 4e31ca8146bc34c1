//! Where the first record starts if the log's start is damaged, and where undescribed records end.

use sluice_records::fuzzing::Algorithm;

use crate::reading::{read, toml};

#[test]
fn a_log_that_does_not_start_with_its_magic_is_damage_up_to_the_first_record() {
    let by_constant = (
        r#"fields = [
          { name = "t", type = "u8", role = "time", unit = "s" },
          { type = "u32", value = 0x01020309 },
        ]"#,
        (|n| [n, 9, 3, 2, 1].to_vec()) as fn(u8) -> Vec<u8>,
    );
    let by_sync = (
        r#"sync = "SYNC"
        fields = [{ name = "t", type = "u8", role = "time", unit = "s" }]"#,
        (|n| [b"SYNC", &[n][..]].concat()) as fn(u8) -> Vec<u8>,
    );
    let by_checksum = (
        r#"fields = [
          { name = "t", type = "u8", role = "time", unit = "s" },
          { type = "u32", role = "checksum", algorithm = "crc32" },
        ]"#,
        (|n| {
            let sum = Algorithm::Crc32.compute(&[&[n]]) as u32;
            [&[n][..], &sum.to_le_bytes()].concat()
        }) as fn(u8) -> Vec<u8>,
    );
    for (marks, record) in [by_constant, by_sync, by_checksum] {
        let records: Vec<u8> = (0..20).flat_map(record).collect();
        for (header, start) in [("", &b"RIG0"[..]), ("header = 16", b"RIG0............")] {
            let format = toml(&format!("magic = \"RIG1\"\n{header}\n{marks}"));
            let read = read(&format, &[start, &records].concat());
            assert_eq!(read.events.len(), 20, "{marks} {header}");
            let [(at, len, reason)] = &read.damage[..] else { panic!("{:?}", read.damage) };
            assert_eq!((*at, *len), (0, start.len() as u64), "{marks} {header}: {reason}");
            assert!(reason.contains(r#"expected "RIG1", found "RIG0""#), "{reason}");
        }
    }
}

#[test]
fn undescribed_kinds_that_end_at_the_next_sync_word_cost_no_described_record() {
    let format = |time: &str, others: &str| {
        let (in_head, in_kind) = if time == "head" { ("T, ", "") } else { ("", "T, ") };
        let text = format!(
            r#"sync = "0xb5 62"
            head = [{in_head}{{ type = "u8", role = "kind" }}]
            {others}
            [kinds.1]
            name = "A"
            fields = [{in_kind}{{ name = "x", type = "u16" }}]"#
        );
        toml(&text.replace("T,", r#"{ name = "t", type = "u32", role = "time", unit = "ms" },"#))
    };
    // Fields end records of described kinds, so these may contain the sync word.
    let record = |time: &str, kind: u8, t: u32| {
        let x = if t == 2 { [0xb5, 0x62] } else { [7, 7] };
        let (t, kind) = (t.to_le_bytes(), [kind]);
        let fields = if time == "head" { [&t[..], &kind, &x] } else { [&kind[..], &t, &x] };
        [&[0xb5, 0x62][..], &fields.concat()].concat()
    };
    let (all, described) = (&[0, 9, 18, 27, 36, 45][..], &[0, 9, 27, 45][..]);
    let (none, others_lost) = (&[][..], &[(18, 9), (36, 9)][..]);
    for (time, others, numbers, damage) in [
        ("head", "", all, none),
        ("head", "other_kinds = \"keep\"", all, none),
        ("head", "other_kinds = \"skip\"", described, none),
        ("head", "other_kinds = \"damage\"", described, others_lost),
        ("kind", "", described, others_lost),
        ("kind", "other_kinds = \"skip\"", described, none),
    ] {
        let kinds = [1, 1, 2, 1, 3, 1].into_iter().zip(1..);
        let log: Vec<u8> = kinds.flat_map(|(kind, t)| record(time, kind, t)).collect();
        let read = read(&format(time, others), &log);
        let found: Vec<i64> = read.events.iter().map(|event| event.sequence).collect();
        assert_eq!(found, numbers, "{time} {others}");
        let found: Vec<_> = read.damage.iter().map(|(at, len, _)| (*at, *len)).collect();
        assert_eq!(found, damage, "{time} {others}");
    }
}
