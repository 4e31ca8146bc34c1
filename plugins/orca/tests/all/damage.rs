//! Damaged and unfinished logs.

use std::fs;

use proptest::prelude::*;
use sluice_kit::contract::{any_splitting_is_the_same, gather, gather_with};
use sluice_model::{BlockPool, PluginKind, Query, ReadContext, Registry};

use crate::kit::{case, source};

/// A log of a killed logger: a description of 3 bytes if `described`, `records` objects of 9 bytes
/// with their index, and a master of `lines` lines. Returns the first bytes of the objects by the
/// position of their lines, and the notes.
fn killed(
    interface: &str,
    described: bool,
    records: u8,
    lines: u8,
) -> (Vec<(i64, u8)>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.log");
    let line = |n: u8| format!("{n} 0 0 {n}\n");
    let lines: String = (0..lines).map(line).collect();
    fs::write(&path, format!("s.log {interface} ice 1\n#data\n{lines}")).unwrap();
    let mut subfile = if described { vec![0, 3, 0, 0, 0, 99, 99, 0] } else { Vec::new() };
    for n in 0..records {
        subfile.extend([0, 9, 0, 0, 0, n, 1, 2, 3, 4, 5, 6, 7, 0]);
    }
    fs::write(folder.path().join("s.log"), subfile).unwrap();
    let context = ReadContext::standalone("test");
    let all = gather_with(&*source(&path), 1, &context).unwrap();
    let data = all.events.iter().filter(|event| !event.channel.ends_with(".config"));
    let data = data.map(|event| (event.sequence, event.payload[0])).collect();
    (data, context.losses.take_notes().into_iter().map(|(what, _)| what).collect())
}

#[test]
fn a_subfile_whose_name_differs_in_case_is_named_where_it_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.log");
    fs::write(&path, "s_laser1.log Laser ice 1\nother.log Laser ice 1\n#data\n1 0 0 0\n1 0 1 0\n")
        .unwrap();
    fs::write(folder.path().join("s_LASER1.LOG"), [0, 1, 0, 0, 0, 1]).unwrap();
    let found = gather(&*source(&path), 1).unwrap().damage;
    let reasons: Vec<String> = found.into_iter().map(|(_, _, reason)| reason).collect();
    let has = |what: &str| reasons.iter().any(|reason| reason.contains(what));
    assert!(has("the name of s_LASER1.LOG differs in case: rename it"), "{reasons:?}");
    assert!(has("other.log") && reasons.len() == 2, "{reasons:?}");
}

#[test]
fn the_master_of_a_subfile_is_found() {
    let index_of = Registry::linked().get(PluginKind::Source, "orca").unwrap().index_of;
    for name in ["dialect_a", "dialect_b", "dialect_c"] {
        let master = case(name);
        let folder = master.parent().unwrap();
        let mut subfiles = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_subfile = path != master && path.extension().is_some_and(|e| e == "log");
            assert_eq!(index_of(&path), is_subfile.then(|| master.clone()), "{}", path.display());
            subfiles += u32::from(is_subfile);
        }
        assert!(subfiles > 0, "{name}");
        assert_eq!(index_of(folder), Some(master.clone()));
    }
    let folder = tempfile::tempdir().unwrap();
    fs::copy(case("dialect_a"), folder.path().join("master.log")).unwrap();
    for other in ["other.log", "060804_153321_LASER0.log"] {
        fs::write(folder.path().join(other), "x").unwrap();
    }
    assert_eq!(index_of(&folder.path().join("other.log")), None);
    let near = index_of(&folder.path().join("060804_153321_LASER0.log"));
    assert_eq!(near, Some(folder.path().join("master.log")));
    assert_eq!(index_of(&folder.path().join("none.log")), None);
}

#[test]
fn a_logger_that_was_killed_does_not_move_objects_to_the_times_of_others() {
    for interface in ["Localise2d", "Imu", "Sonar"] {
        for described in [false, true] {
            for (records, lines) in [(10, 10), (9, 10), (10, 9), (8, 10), (10, 8)] {
                let (data, notes) = killed(interface, described, records, lines);
                let shown = format!("{interface} {described} {records} {lines}: {notes:?}");
                assert!(data.iter().all(|(index, first)| *index == i64::from(*first)), "{shown}");
                assert_eq!(data.len(), usize::from(records.min(lines)), "{shown}");
                let is_said = notes.iter().any(|note| note.contains("config_records"));
                assert_eq!(is_said, records != lines, "{shown}");
            }
        }
    }
}

#[test]
fn lines_of_subfiles_beyond_the_header_limit_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.log");
    let header: String = (0..10_001).map(|n| format!("{n}.log Power ice 1\n")).collect();
    fs::write(&path, format!("{header}#data\n1 0 10000 0\n")).unwrap();
    let all = gather(&*source(&path), 1).unwrap();
    let is_said = |(_, _, why): &(_, _, String)| why.contains("only the first 10000 lines");
    assert_eq!(all.damage.iter().filter(|damage| is_said(damage)).count(), 2, "{:?}", all.damage);
}

/// A log of this many lines, and its subfiles.
fn made(lines: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut master = b"# sensors@alpha/x\nlaser0.log LaserScanner2d ice 1\npower0.log Power ice \
        1\ntext0.log Power ascii 1\n#data\n"
        .to_vec();
    let (mut laser, mut power, mut text) = (vec![0, 2, 0, 0, 0, 9, 0], Vec::new(), Vec::new());
    for n in 0..lines {
        let object = vec![7; n * 13 % 90].into_iter().chain([0]).collect::<Vec<u8>>();
        let to = if n % 2 == 0 { &mut laser } else { &mut power };
        to.push(0);
        to.extend((object.len() as u32).to_le_bytes());
        to.extend(object);
        master.extend(format!("{} {} {} {}\n", 100 + n, n, n % 2, n / 2).bytes());
        if n % 5 == 0 {
            text.extend(format!("line {n}\n").bytes());
            master.extend(format!("{} {} 2 {}\n", 100 + n, n, n / 5).bytes());
        }
    }
    vec![("m.log", master), ("laser0.log", laser), ("power0.log", power), ("text0.log", text)]
}

fn damaged(mut bytes: Vec<u8>, kind: u8, at: usize, len: usize) -> Vec<u8> {
    let at = at % bytes.len().max(1);
    let end = (at + len).min(bytes.len());
    match kind {
        0 if at < bytes.len() => bytes[at] ^= 1 << (len % 8),
        1 => drop(bytes.drain(at..end)),
        2 => drop(bytes.splice(at..at, std::iter::repeat_n(b'0', len))),
        3 => bytes[at..end].fill(0),
        4 => bytes[at..end].fill(b'\n'),
        _ => bytes.truncate(at),
    }
    bytes
}

#[test]
fn a_long_log_is_the_same_however_it_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in made(3000) {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let log = source(&folder.path().join("m.log"));
    let all = any_splitting_is_the_same(&*log, &[500, 5_000, 50_000]);
    assert_eq!((all.events.len(), all.damage.len()), (3601, 0));
    assert!(log.splits(5_000, &Query::default()).unwrap().len() > 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn damaged_logs_are_the_same_however_they_are_cut_and_blocked(
        mutations in proptest::collection::vec(
            (0usize..4, 0u8..6, any::<usize>(), 1usize..60),
            1..5,
        ),
        target in 1u64..3000, block in 1usize..2000)
    {
        let folder = tempfile::tempdir().unwrap();
        let mut files = made(60);
        for (file, kind, at, len) in mutations {
            let bytes = std::mem::take(&mut files[file].1);
            files[file].1 = damaged(bytes, kind, at, len);
        }
        for (name, bytes) in &files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let path = folder.path().join("m.log");
        let all = any_splitting_is_the_same(&*source(&path), &[target, 64]);
        let mut context = ReadContext::standalone("test");
        context.blocks = BlockPool::new(block, 2);
        prop_assert_eq!(&gather_with(&*source(&path), target, &context).unwrap(), &all);
    }
}
