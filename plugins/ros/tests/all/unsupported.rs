//! What the source `ros1-bag` says of bags that use what it does not support.

use sluice_kit::contract::gather;
use sluice_model::{Registry, SniffResult};

use crate::bags::{bag, bag_chunk, bag_record, connection, message, read, read_noted, source};

/// A bag that was not closed, with these fields in its head, and these chunks.
fn bag_of(fields: &[(&str, &[u8])], chunks: &[Vec<u8>]) -> Vec<u8> {
    let head: [(&str, &[u8]); 4] =
        [("op", &[3]), ("index_pos", &[0; 8]), ("conn_count", &[0; 4]), ("chunk_count", &[0; 4])];
    let head = bag_record(&[&head, fields].concat(), b"");
    [b"#ROSBAG V2.0\n".to_vec(), head, chunks.concat()].concat()
}

#[test]
fn a_bag_of_an_older_version_is_recognized_so_that_its_error_says_what_to_do() {
    let registry = Registry::linked();
    let plugin = registry.iter().find(|plugin| plugin.name == "ros1-bag").unwrap();
    assert_eq!((plugin.sniff)(&bag("bag-older-version")), SniffResult::Yes);
    assert_eq!((plugin.sniff)(&bag("bag-plain")), SniffResult::Yes);
    assert_eq!((plugin.sniff)(b"#ROSBAG"), SniffResult::No);
}

#[test]
fn an_encrypted_bag_is_refused_with_the_name_of_its_encryption() {
    let chunks = [bag_chunk(&[connection(0, b"/a"), message(0, 1)].concat())];
    for (name, is_refused) in
        [("rosbag/AesCbcEncryptor", true), ("rosbag/NoEncryptor", false), ("", false)]
    {
        let bytes = bag_of(&[("encryptor", name.as_bytes())], &chunks);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bag");
        std::fs::write(&path, bytes).unwrap();
        match gather(&*source(&path), u64::MAX) {
            Ok(found) => assert!(!is_refused && found.events.len() == 1, "{name}"),
            Err(error) => {
                let error = error.to_string();
                assert!(is_refused, "{name}: {error}");
                for part in ["a.bag", name, "rosbag decrypt"] {
                    assert!(error.contains(part), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_chunk_with_another_compression_is_damage_that_says_so() {
    let first = bag_chunk(&[connection(0, b"/a"), message(0, 1)].concat());
    // As if compressed in a way that leaves text as it is.
    let packed = message(0, 2);
    let fields: [(&str, &[u8]); 3] =
        [("op", &[5]), ("compression", b"zstd"), ("size", &100_u32.to_le_bytes())];
    let other = bag_record(&fields, &packed);
    let bytes = bag_of(&[], &[first.clone(), other.clone(), bag_chunk(&message(0, 3))]);
    for found in [read(&bytes), read_noted("a.bag.zst", &compressed(&bytes)).0] {
        let seconds: Vec<i64> =
            found.events.iter().map(|event| event.timestamp / 1_000_000_000).collect();
        assert_eq!(seconds, [1, 3]);
        let [(at, len, reason)] = &found.damage[..] else { panic!("{:?}", found.damage) };
        let start = bag_of(&[], std::slice::from_ref(&first)).len();
        assert_eq!((*at as usize, *len as usize), (start, other.len()));
        assert!(reason.contains("compression `zstd` is not supported"), "{reason}");
    }
    // One wrong byte in the name of one that is supported loses no message.
    let wrong = [("op", &[5][..]), ("compression", b"nope"), ("size", &100_u32.to_le_bytes())];
    let found =
        read(&bag_of(&[], &[first, bag_record(&wrong, &packed), bag_chunk(&message(0, 3))]));
    assert_eq!((found.events.len(), found.damage.len()), (3, 1), "{:?}", found.damage);
}

fn compressed(bag: &[u8]) -> Vec<u8> {
    sluice_io::frames::compress(bag, 1).unwrap()
}

#[test]
fn a_bag_whose_first_bytes_are_wrong_is_read_with_damage_there() {
    for case in ["bag-plain", "bag-bz2"] {
        let whole = bag(case);
        let all = read(&whole).events;
        let chunk = memchr::memmem::find(&whole, b"\x04\0\0\0op=\x05").unwrap() - 4;
        let second = memchr::memmem::find(&whole[chunk + 9..], b"\x04\0\0\0op=\x05").unwrap();
        for (wrong, damaged, lost) in [
            (1, 13, 0),
            (13, 13, 0),
            (20, chunk, 0),
            (chunk, chunk, 0),
            (chunk + 9 + second - 4, chunk + 9 + second - 4, 3),
        ] {
            let mut bytes = whole.clone();
            bytes[..wrong].fill(0);
            for found in [read(&bytes), read_noted("a.bag.zst", &compressed(&bytes)).0] {
                let (at, len, why) = &found.damage[0];
                assert_eq!((*at, *len as usize), (0, damaged), "{case}: {wrong}");
                assert!(why.contains("expected `#ROSBAG V2.0`, found `\\x00"), "{why}");
                if lost == 0 {
                    assert_eq!((&found.events, found.damage.len()), (&all, 1), "{case}: {wrong}");
                }
            }
        }
    }
}

#[test]
fn what_has_nothing_of_a_bag_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    for bytes in [&b"time,x\n0.1,2\n"[..], &[0; 200_000], b"#ROSBAG V3.0\n", b"#ROSRECORD V1.1\n"] {
        std::fs::write(&path, bytes).unwrap();
        let error = gather(&*source(&path), u64::MAX).unwrap_err().to_string();
        let advice = if bytes.starts_with(b"#ROS") { "`rosbag migrate`" } else { "--from" };
        assert!(error.contains("a.bag") && error.contains(advice), "{error}");
    }
}
