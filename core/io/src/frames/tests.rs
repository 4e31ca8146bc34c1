//! Tests of frames.

use super::*;

#[test]
fn a_flipped_bit_in_a_frame_is_noticed() {
    let plain: Vec<u8> = (0..5000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
    let mut frame = compress(&plain, 3).unwrap();
    for at in 10..frame.len() {
        frame[at] ^= 4;
        let mut found = vec![0; plain.len()];
        let read = decompress(&frame, &mut found);
        // Some bits of a frame have no effect.
        assert!(read.is_err() || found == plain, "byte {at}");
        frame[at] ^= 4;
    }
}

#[test]
fn a_frame_never_decompresses_to_another_length() {
    let frame = compress(&[7; 1000], 3).unwrap();
    for due in [0, 999, 1001] {
        assert!(decompress(&frame, &mut vec![0; due]).unwrap_err().contains("1000 bytes"));
    }
    let twice = [frame.clone(), frame].concat();
    assert!(decompress(&twice, &mut [0; 1000]).is_err());
    assert!(decompress(b"no frame", &mut []).unwrap_err().contains("no length"));
}

#[test]
fn what_was_skipped_comes_back() {
    let frame = [skippable(b"index").unwrap(), b"more".to_vec()].concat();
    assert_eq!(skippable_content(&frame), Some(&b"index"[..]));
    assert_eq!(skippable_content(&frame[..10]), None);
    assert_eq!(skippable_content(b"PAR1"), None);
    assert_eq!((skippable_len(&frame), skippable_len(b"PAR1....")), (Some(13), None));
}
