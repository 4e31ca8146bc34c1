//! Compressed frames that are whole, and need what this program does not have.

use super::*;

/// A frame without a content size: its sixth byte describes the window.
fn frame(plain: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn with_window(log: u8, plain: &[u8]) -> Vec<u8> {
    let mut frame = frame(plain);
    frame[5] = (log - 10) << 3;
    frame
}

/// The same frame, as if it were compressed with a dictionary.
fn with_dictionary(plain: &[u8]) -> Vec<u8> {
    let mut frame = frame(plain);
    frame[4] |= 3;
    frame.splice(6..6, 77u32.to_le_bytes());
    frame
}

fn content() -> Vec<u8> {
    (0..400_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn refusal(packed: &[u8]) -> String {
    let error = arriving(&[Some(packed)]).read_at(0, &mut vec![0; 1 << 20]).unwrap_err();
    assert!(matches!(error.kind(), crate::ErrorKind::Io { .. }), "{error:?}");
    error.to_string()
}

/// The same bytes as a slow pipe gives them.
fn slowly(packed: &[u8]) -> Vec<Option<&[u8]>> {
    let (start, rest) = packed.split_at(packed.len().min(180));
    start.chunks(9).chain(rest.chunks(9_999)).flat_map(|piece| [Some(piece), None]).collect()
}

#[test]
fn frames_that_need_a_dictionary_or_a_large_window_are_refused_with_advice() {
    for plain in [&b"short"[..], &content()] {
        let refused = refusal(&with_dictionary(plain));
        assert!(refused.contains("a dictionary (id 77)"), "{refused}");
        assert!(refused.contains("zstd -d -D DICTIONARY FILE"), "{refused}");
        let refused = refusal(&with_window(31, plain));
        assert!(refused.contains("a window of 2048 MiB"), "{refused}");
        assert!(refused.contains("at most 512 MiB"), "{refused}");
        assert!(refused.contains("zstd -dc --long=31 FILE | sluice"), "{refused}");
    }
    // So they are by who looks at the first bytes.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&with_window(31, &content())).unwrap();
    assert!(head(file.path(), 6).unwrap_err().to_string().contains("2048 MiB"));
    // Behind another frame, and in the pieces of a slow pipe.
    let packed = [frame(b"first"), with_dictionary(&content())].concat();
    let mut log = arriving(&slowly(&packed));
    assert_eq!(log.read_arrived(0, &mut [0; 9], 1).unwrap(), 5);
    assert!(log.read_at(5, &mut [0; 9]).unwrap_err().to_string().contains("id 77"));
}

#[test]
fn a_first_block_that_refers_to_a_dictionary_without_an_id_is_told_with_advice() {
    let plain = &content()[..20_000];
    let mut encoder = zstd::Encoder::with_dictionary(Vec::new(), 1, plain).unwrap();
    encoder.write_all(plain).unwrap();
    let packed = encoder.finish().unwrap();
    let damage = |packed: &[u8]| {
        let mut log = arriving(&[Some(packed)]);
        assert_eq!(log.read_at(0, &mut [0; 9]).unwrap(), 0);
        log.decompression_error().unwrap().to_owned()
    };
    let told = damage(&packed);
    assert!(told.contains("zstd -d -D DICTIONARY FILE"), "{told}");
    // Behind a block that was decompressed, it is damage.
    let mut log = arriving(&[Some(&[frame(b"first"), packed].concat())]);
    assert_eq!(log.read_at(0, &mut [0; 9]).unwrap(), 5);
    let told = log.decompression_error().unwrap();
    assert!(!told.contains("DICTIONARY"), "{told}");
}

#[test]
fn windows_of_up_to_512_mib_are_read() {
    let plain = content();
    for log in [28, 29] {
        let mut buffer = vec![0; plain.len() + 1];
        let packed = with_window(log, &plain);
        assert_eq!(arriving(&[Some(&packed)]).read_at(0, &mut buffer).unwrap(), plain.len());
        assert!(buffer.starts_with(&plain), "{log}");
    }
}

#[test]
fn a_damaged_header_is_no_dictionary_and_no_window() {
    let plain = content();
    let damaged = |at: usize, change: u8| {
        let mut frame = frame(&plain);
        frame[at] ^= change;
        [frame, self::frame(b"second")].concat()
    };
    // The flags say that there is the id of a dictionary, or the window is larger than any.
    for packed in [damaged(4, 1), damaged(4, 2), damaged(4, 3), damaged(5, 0x80)] {
        let (mut log, mut buffer) = (arriving(&[Some(&packed)]), vec![0; 1 << 20]);
        log.read_at(0, &mut buffer).unwrap();
        assert!(log.decompression_error().is_some());
        let next = log.resume().unwrap().unwrap();
        assert_eq!(log.read_at(next, &mut buffer).unwrap(), 6);
        assert!(buffer.starts_with(b"second"));
    }
}

#[test]
fn the_same_bytes_are_refused_or_damaged_however_they_arrive() {
    let mut damaged = with_dictionary(&content());
    // The length of the first block.
    damaged[10..13].copy_from_slice(&[0xf0, 0xff, 0xff]);
    let short = with_dictionary(b"short");
    for packed in [
        with_dictionary(&content()),
        damaged.clone(),
        [damaged, frame(b"second")].concat(),
        // Behind the last block: the end, a frame, the start of one, other bytes.
        short.clone(),
        [&short[..], &frame(b"second")].concat(),
        [&short[..], b"\x28\xb5"].concat(),
        [&short[..], b"\x28\xb5--"].concat(),
        short[..short.len() - 1].to_vec(),
        short[..12].to_vec(),
        with_window(31, &content())[..1000].to_vec(),
    ] {
        let outcome = |pieces: &[Option<&[u8]>]| {
            let (mut log, mut buffer) = (arriving(pieces), vec![0; 1 << 20]);
            let read = log.read_at(0, &mut buffer).map_err(|error| error.to_string());
            (read, log.decompression_error().map(str::to_owned), buffer)
        };
        assert!(outcome(&[Some(&packed)]) == outcome(&slowly(&packed)), "{:x?}", &packed[..12]);
    }
}

#[test]
fn a_failure_to_read_is_no_dictionary() {
    struct Failing(io::Cursor<Vec<u8>>);
    impl io::Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(rustix::io::Errno::CONNRESET.into()),
                len => Ok(len),
            }
        }
    }
    let packed = with_dictionary(&content())[..1000].to_vec();
    let from = Box::new(Failing(io::Cursor::new(packed)));
    let read =
        LogFile::stream(Path::new("-"), from).and_then(|mut log| log.read_at(0, &mut [0; 9]));
    let error = read.unwrap_err().to_string();
    assert!(error.contains("reset by peer"), "{error}");
}
