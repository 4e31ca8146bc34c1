//! Tests of seek tables.

use super::*;
use crate::frames::{compress, decompress, frame_len, skippable};

#[test]
fn frames_and_table_are_one_ordinary_compressed_file() {
    let (mut file, mut table) = (Vec::new(), SeekTableBuilder::default());
    for n in 0..5u8 {
        let plain = vec![n; 1000 * usize::from(n)];
        let frame = compress(&plain, 3 + i32::from(n % 2)).unwrap();
        table.push(frame.len(), plain.len()).unwrap();
        file.extend(frame);
    }
    file.extend(skippable(b"index").unwrap());
    file.extend(table.finish());
    let mut plain = Vec::new();
    zstd::stream::copy_decode(&file[..], &mut plain).unwrap();
    let expected: Vec<u8> = (0..5u8).flat_map(|n| vec![n; 1000 * usize::from(n)]).collect();
    assert_eq!(plain, expected);
    let (spans, _) = read_table(&file).unwrap();
    assert_eq!((spans.len(), spans.iter().map(|span| span.content_len).sum()), (5, 10_000));
}

#[test]
fn a_seek_table_is_laid_out_as_zstd_has_it() {
    let mut table = SeekTableBuilder::default();
    table.push(0x0102, 0x03_0405).unwrap();
    table.push(0x0607, 0).unwrap();
    assert!(table.push(1 << 32, 0).is_err());
    assert_eq!(table.content_len(), 0x03_0405);
    let expected = [
        &[0x5e, 0x2a, 0x4d, 0x18, 25, 0, 0, 0][..],
        &[0x02, 0x01, 0, 0, 0x05, 0x04, 0x03, 0],
        &[0x07, 0x06, 0, 0, 0, 0, 0, 0],
        &[2, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8f],
    ];
    assert_eq!(table.finish(), expected.concat());
}

fn seekable(frames: u8) -> Vec<u8> {
    let (mut file, mut table) = (Vec::new(), SeekTableBuilder::default());
    for n in 0..frames {
        let frame = compress(&[n; 100], 3).unwrap();
        table.push(frame.len(), 100).unwrap();
        file.extend(frame);
    }
    file.extend(table.finish());
    file
}

fn read_table(bytes: &[u8]) -> Option<(Vec<FrameSpan>, u64)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    super::read(&mut LogFile::open_plain(file.path()).unwrap()).unwrap()
}

#[test]
fn a_seek_table_tells_where_frames_lie() {
    for frames in [0, 1, 5] {
        let file = seekable(frames);
        let (spans, start) = read_table(&file).unwrap();
        assert_eq!(spans.len(), usize::from(frames));
        for (n, span) in spans.iter().enumerate() {
            let frame = &file[span.start as usize..span.end() as usize];
            let mut plain = vec![0; span.content_len as usize];
            decompress(frame, &mut plain).unwrap();
            assert_eq!((plain, frame_len(frame)), (vec![n as u8; 100], Some(frame.len())));
            assert_eq!(span.content_start, n as u64 * 100);
        }
        assert_eq!(spans.last().map_or(0, FrameSpan::end), start);
    }
}

#[test]
fn an_invalid_seek_table_is_none() {
    let good = seekable(3);
    let len = good.len();
    let patched = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        read_table(&file)
    };
    assert!(patched(0, &[0]).is_some(), "frames are not looked at");
    // The number of frames, the flags, the magic, the length, and a frame as long as can be.
    for (at, bytes) in [
        (len - 9, &[0xff; 4][..]),
        (len - 9, &[2, 0, 0, 0]),
        (len - 5, &[0x80]),
        (len - 5, &[0x04]),
        (len - 1, &[0]),
        (len - 37, &[1]),
        (len - 33, &[0xff; 4]),
    ] {
        assert_eq!(patched(at, bytes), None, "{at}");
    }
    for cut in 0..len {
        assert_eq!(read_table(&good[..cut]), None, "{cut}");
    }
}

fn fault(bytes: &[u8]) -> Option<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    super::fault(&mut LogFile::open_plain(file.path()).unwrap()).unwrap()
}

#[test]
fn any_wrong_byte_of_a_seek_table_contradicts_the_frames() {
    let good = seekable(3);
    let (_, table) = read_table(&good).unwrap();
    // Behind another file, too.
    for front in [vec![], seekable(2)] {
        for at in table as usize..good.len() - FOOTER_MAGIC.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let fault = fault(&[&front[..], &bad].concat());
            // This is not a reserved flag.
            assert_eq!(fault.is_none(), at == good.len() - 5, "{at}: {fault:?}");
        }
    }
    // Sound, without a table, and with a frame that is missing.
    assert_eq!((fault(&good), fault(&good[..table as usize])), (None, None));
    let frame = frame_len(&good).unwrap();
    assert!(fault(&good[frame..]).unwrap().contains("its frames have"));
}

#[test]
fn frames_of_other_programs_may_precede_those_of_a_seek_table() {
    let good = seekable(3);
    let other = zstd::stream::encode_all(&[7; 1000][..], 3).unwrap();
    for front in [compress(&[7; 100], 3).unwrap(), skippable(b"index").unwrap(), other] {
        assert_eq!(fault(&[&front[..], &good].concat()), None);
    }
}

#[test]
fn a_seek_table_of_any_length_is_compared() {
    // More entries than are read at a time.
    let (frame, mut table) = (compress(&[7; 100], 3).unwrap(), SeekTableBuilder::default());
    (0..9000).for_each(|_| table.push(frame.len(), 100).unwrap());
    let mut file = [frame.repeat(9000), table.finish()].concat();
    assert_eq!(fault(&file), None);
    file[8999 * frame.len()] ^= 1;
    assert!(fault(&file).unwrap().starts_with("frame 9000,"));
}

#[test]
fn entries_of_a_seek_table_without_a_length_are_wrong() {
    let frame = compress(&[], 3).unwrap();
    let mut table = SeekTableBuilder::default();
    table.push(0, 0).unwrap();
    table.push(frame.len(), 0).unwrap();
    assert!(fault(&[frame, table.finish()].concat()).unwrap().starts_with("frame 1,"));
}

#[test]
fn a_seek_table_may_have_skippable_frames() {
    let (frame, skipped) = (compress(&[7; 100], 3).unwrap(), skippable(b"index").unwrap());
    for (content_len, is_right) in [(0, true), (5, false)] {
        let mut table = SeekTableBuilder::default();
        table.push(skipped.len(), content_len).unwrap();
        table.push(frame.len(), 100).unwrap();
        let fault = fault(&[&skipped[..], &frame, &table.finish()].concat());
        assert_eq!(fault.is_none(), is_right, "{fault:?}");
    }
}
