//! Subfiles that are cut off, or have a changed length: nothing wrong is passed on as right.

use std::fs;
use std::path::Path;

use serde_json::json;
use sluice_kit::contract::{
    PlainEvent, SourceContents, gather, gather_with, overwrite, sample_positions,
};
use sluice_model::{Channel, Encoding, ReadContext};

use crate::kit::{TestEvent, lcm, source, write};

/// An object of a class, in Ice's encoding: a slice with these members, and that of the root.
fn class_object(class: &str, members: &[u8]) -> Vec<u8> {
    let mut object = b"\xff\xff\xff\xff\x01\x01\0\0\0".to_vec();
    for (name, body) in [(class, members), ("::Ice::Object", &[0])] {
        object.extend([0, name.len() as u8]);
        object.extend(name.bytes());
        object.extend((body.len() as u32 + 4).to_le_bytes());
        object.extend(body);
    }
    object.push(0);
    object
}

/// An object that is a struct of whole numbers.
fn struct_object(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).chain([0]).collect()
}

/// An object that is a struct with a time and floating-point numbers.
fn doubles(time: u32, count: usize) -> Vec<u8> {
    let members = (0..count).flat_map(|n| (n as f64).to_le_bytes());
    [1_194_098_400, time]
        .iter()
        .flat_map(|n: &u32| n.to_le_bytes())
        .chain(members)
        .chain([0])
        .collect()
}

/// A log with one subfile: a header line, configuration, objects.
struct SmallLog {
    header: &'static str,
    first_index: usize,
    /// The prefixes of its records: whether there is an id, and the bytes of a length.
    prefixes: &'static [(bool, usize)],
    config: Vec<Vec<u8>>,
    objects: Vec<Vec<u8>>,
}

const WITHOUT_ID: &[(bool, usize)] = &[(false, 4), (false, 8)];
const ANY_PREFIX: &[(bool, usize)] = &[(true, 4), (true, 8), (false, 4), (false, 8)];

fn small_logs() -> Vec<SmallLog> {
    let class = |name: &str, len: usize| class_object(&format!("::orca::{name}"), &vec![0; len]);
    let objects = |make: &dyn Fn(u32) -> Vec<u8>| (1..6).map(make).collect::<Vec<_>>();
    let numbered = |name: &str, n: u32, fill: usize| {
        let members = [&n.to_le_bytes()[..], &vec![0; fill]].concat();
        class_object(&format!("::orca::{name}"), &members)
    };
    vec![
        SmallLog {
            header: "::orca::Laser ice s.log",
            first_index: 1,
            prefixes: WITHOUT_ID,
            config: vec![class("RangeScannerConfig", 9), class("RangeScannerGeometry", 12)],
            objects: objects(&|n| numbered("LaserData", n, n as usize % 3 * 4)),
        },
        SmallLog {
            header: "::orca::Power ice s.log",
            first_index: 1,
            prefixes: WITHOUT_ID,
            config: Vec::new(),
            objects: objects(&|n| numbered("PowerData", n, 0)),
        },
        SmallLog {
            header: "s.log Cpu ice",
            first_index: 0,
            prefixes: ANY_PREFIX,
            config: Vec::new(),
            objects: objects(&|n| struct_object(&[n, 2, 3, 40f32.to_bits()])),
        },
        SmallLog {
            header: "s.log LaserScanner2d ice 1",
            first_index: 0,
            prefixes: ANY_PREFIX,
            config: vec![[vec![0; 8], doubles(0, 9)].concat()],
            objects: objects(&|n| numbered("LaserScanner2dData", n, n as usize % 2 * 4)),
        },
        SmallLog {
            header: "s.log Odometry2d ice 1",
            first_index: 0,
            prefixes: ANY_PREFIX,
            config: vec![doubles(0, 5)],
            objects: objects(&|n| doubles(n, 6)),
        },
        SmallLog {
            header: "s.log Imu ice 1",
            first_index: 0,
            prefixes: ANY_PREFIX,
            config: Vec::new(),
            objects: objects(&|n| doubles(n, 6)),
        },
    ]
}

impl SmallLog {
    /// The subfile, and the offset of each record's length.
    fn subfile(&self, (has_id, width): (bool, usize)) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut lengths) = (Vec::new(), Vec::new());
        for record in self.config.iter().chain(&self.objects) {
            bytes.extend(has_id.then_some(0));
            lengths.push(bytes.len());
            bytes.extend(&(record.len() as u64).to_le_bytes()[..width]);
            bytes.extend(record);
        }
        (bytes, lengths)
    }

    /// Whether the first record may be a description, or an object.
    fn is_described(&self) -> bool {
        self.header.contains("Imu")
    }

    /// Writes a master with lines for so many objects.
    fn write_master(&self, folder: &Path, lines: usize) {
        let line = |n: usize| format!("10 {n} 0 {}\n", n + self.first_index);
        let lines: String = (0..lines).map(line).collect();
        fs::write(folder.join("m.log"), format!("{}\n#data\n{lines}", self.header)).unwrap();
    }

    /// The positions in the subfile of the events that are not those of the whole log.
    fn wrong_events(&self, found: &SourceContents) -> Vec<usize> {
        let records: Vec<&Vec<u8>> = self.config.iter().chain(&self.objects).collect();
        let position = |event: &PlainEvent| {
            let number = event.sequence as usize;
            let is_config = event.channel.ends_with(".config");
            if is_config { number } else { number + self.config.len() - self.first_index }
        };
        let is_wrong = |event: &&PlainEvent| {
            let is_config = position(event) < self.config.len();
            is_config != event.channel.ends_with(".config")
                || records.get(position(event)) != Some(&&event.payload)
        };
        found.events.iter().filter(is_wrong).map(position).collect()
    }
}

/// What is read of a log with this subfile, and its notes.
fn read(folder: &Path, subfile: &[u8]) -> (SourceContents, Vec<(String, u64)>) {
    overwrite(&folder.join("s.log"), subfile).unwrap();
    let context = ReadContext::standalone("test");
    let found = gather_with(&*source(&folder.join("m.log")), u64::MAX, &context).unwrap();
    (found, context.losses.take_notes())
}

#[test]
fn what_is_read_of_a_subfile_that_is_cut_off_is_right() {
    for log in small_logs() {
        let folder = tempfile::tempdir().unwrap();
        for (prefix, lines) in log.prefixes.iter().flat_map(|prefix| [(prefix, 5), (prefix, 0)]) {
            log.write_master(folder.path(), lines);
            let (bytes, _) = log.subfile(*prefix);
            for cut in sample_positions(bytes.len(), 40) {
                let (found, notes) = read(folder.path(), &bytes[..cut]);
                let shown = format!("{} {prefix:?} {cut} {lines}: {found:?} {notes:?}", log.header);
                assert!(!found.damage.is_empty() || lines == 0, "{shown}");
                // One record alone shows neither its framing nor whether it is a description.
                let is_reported = !found.damage.is_empty() || !notes.is_empty();
                let is_alone = found.events.len() == 1 && (is_reported || log.is_described());
                assert!(log.wrong_events(&found).is_empty() || is_alone, "{shown}");
            }
        }
    }
}

#[test]
fn a_changed_bit_in_a_length_is_damage() {
    for log in small_logs() {
        let folder = tempfile::tempdir().unwrap();
        for (prefix, lines) in log.prefixes.iter().flat_map(|prefix| [(prefix, 5), (prefix, 4)]) {
            log.write_master(folder.path(), lines);
            let (bytes, lengths) = log.subfile(*prefix);
            let bits = 8 * prefix.1;
            for place in sample_positions(lengths.len() * bits, 40) {
                let mut bytes = bytes.clone();
                bytes[lengths[place / bits] + place % bits / 8] ^= 1 << (place % 8);
                let (found, notes) = read(folder.path(), &bytes);
                let shown = format!("{} {prefix:?} {place}: {found:?} {notes:?}", log.header);
                assert!(!found.damage.is_empty(), "{shown}");
                let is_before = |at: &usize| *at < place / bits;
                let is_alone = found.events.len() == 1 || log.is_described();
                assert!(is_alone || !log.wrong_events(&found).iter().any(is_before), "{shown}");
            }
        }
    }
}

#[test]
fn an_empty_record_is_damage_where_no_sink_of_ours_wrote_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.orca");
    let payload = vec![1, 0, 0, 0, 0];
    for (encoding, damaged) in [(Encoding::Ice, 1), (Encoding::Lcm, 0)] {
        let channel = Channel { encoding, ..lcm(b"A", "x") };
        let events: Vec<TestEvent> =
            (0..4).map(|n| (n * 1_000, channel.clone(), payload.clone())).collect();
        write(json!({ "path": path }), &events, 9);
        let subfile = folder.path().join("x_a0.log");
        let mut bytes = fs::read(&subfile).unwrap();
        // Of the second record, which is then followed by a length of 0.
        bytes[9] = 1;
        fs::write(&subfile, bytes).unwrap();
        let found = gather(&*source(&path), 100).unwrap();
        let has_empty = found.events.iter().any(|event| event.payload.is_empty());
        assert_eq!(has_empty, damaged == 0);
        assert!(!found.damage.is_empty());
        fs::remove_file(&path).unwrap();
        fs::remove_file(&subfile).unwrap();
    }
}

#[test]
fn a_damaged_class_name_does_not_move_objects() {
    for log in small_logs().into_iter().filter(|log| log.config.len() == 2) {
        let folder = tempfile::tempdir().unwrap();
        log.write_master(folder.path(), 5);
        let (bytes, _) = log.subfile((false, 4));
        for class in [&b"Config"[..], b"Geometry", b"LaserData"] {
            let mut bytes = bytes.clone();
            let at = memchr::memmem::find(&bytes, class).unwrap();
            bytes[at] ^= 1;
            let (found, notes) = read(folder.path(), &bytes);
            assert_eq!(log.wrong_events(&found).len(), 1, "{found:?} {notes:?}");
            assert_eq!((found.events.len(), found.damage, notes), (7, vec![], vec![]));
        }
    }
}
