//! Streams: reading again, waiting and stopping.

use std::os::fd::AsRawFd;
use std::time::Duration;

use super::*;

#[test]
fn a_stream_can_be_read_again_until_it_is_forgotten() {
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
    let mut log =
        LogFile::stream(Path::new("-"), Box::new(io::Cursor::new(bytes.clone()))).unwrap();
    let mut buffer = vec![0; 1000];
    for position in [900_000, 0, 999_500] {
        let read = log.read_at(position, &mut buffer).unwrap();
        assert_eq!(buffer[..read], bytes[position as usize..][..read]);
        assert_eq!(read, 1000.min(1_000_000 - position as usize));
    }
    log.forget(900_000);
    assert!(log.read_at(0, &mut buffer).is_err());
    assert_eq!(log.read_at(900_000, &mut buffer).unwrap(), 1000);
}

#[test]
fn compressed_logs_read_as_what_they_hold() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let plain = b"events, events, events".repeat(1000);
    let packed = zstd::encode_all(&plain[..], 3).unwrap();
    file.write_all(&packed).unwrap();
    for mut log in [
        LogFile::open(file.path()).unwrap(),
        LogFile::stream(Path::new("-"), Box::new(io::Cursor::new(packed.clone()))).unwrap(),
    ] {
        let mut buffer = vec![0; plain.len() + 1];
        assert_eq!(log.read_at(0, &mut buffer).unwrap(), plain.len());
        assert!(buffer.starts_with(&plain));
    }
    assert_eq!(head(file.path(), 6).unwrap(), b"events");
}

#[test]
fn a_compressed_log_that_is_cut_off_gives_what_is_left_and_says_so() {
    let plain: Vec<u8> =
        (0..400_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut packed = zstd::encode_all(&plain[..], 1).unwrap();
    packed.truncate(packed.len() / 2);
    let mut log = LogFile::stream(Path::new("-"), Box::new(io::Cursor::new(packed))).unwrap();
    let mut buffer = vec![0; plain.len()];
    let read = log.read_at(0, &mut buffer).unwrap();
    assert!(read > 0 && plain.starts_with(&buffer[..read]));
    assert!(log.decompression_error().unwrap().contains("cut off"));
}

#[test]
fn a_stream_gives_what_has_come_to_who_does_not_want_to_wait() {
    let pieces = [Some(&b"abcd"[..]), None, Some(b"ef"), None, None, Some(b"g")];
    let (mut log, mut buffer) = (arriving(&pieces), [0; 9]);
    assert_eq!(log.read_arrived(0, &mut buffer, 1).unwrap(), 4);
    assert!(log.awaits_more(4));
    assert_eq!(log.read_arrived(4, &mut buffer, 1).unwrap(), 2);
    assert_eq!(log.read_arrived(4, &mut buffer, 3).unwrap(), 3);
    assert!(buffer.starts_with(b"efg") && !log.awaits_more(7));
    assert_eq!(arriving(&pieces).read_at(0, &mut buffer).unwrap(), 7);
    assert_eq!(&buffer[..7], b"abcdefg");
}

#[test]
fn a_stopped_stream_ends_behind_what_has_come() {
    let pieces = [Some(&b"abcd"[..]), None, Some(b"ef"), None, Some(b"g")];
    let (mut log, mut buffer) = (arriving(&pieces), [0; 9]);
    log.stop_when(|| true);
    assert_eq!(log.read_at(0, &mut buffer).unwrap(), 4);
    assert!(log.was_stopped() && !log.awaits_more(4) && !log.is_cancelled());
    // One that ends by itself was not stopped.
    let mut log = arriving(&pieces[..1]);
    log.stop_when(|| true);
    assert_eq!(log.read_at(0, &mut buffer).unwrap(), 4);
    assert!(!log.was_stopped());
}

#[test]
fn a_stopped_stream_that_never_pauses_ends_all_the_same() {
    let mut log = LogFile::stream(Path::new("-"), Box::new(io::repeat(1))).unwrap();
    log.stop_when(|| true);
    let mut buffer = vec![0; 4 << 20];
    let read = log.read_at(0, &mut buffer).unwrap();
    assert!((1 << 20..4 << 20).contains(&read) && log.was_stopped(), "{read}");
}

#[test]
fn pauses_in_compressed_streams_change_nothing() {
    let plain: Vec<u8> = (0..90_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
    let packed = zstd::encode_all(&plain[..], 1).unwrap();
    let mut pieces: Vec<_> = packed.chunks(1000).flat_map(|piece| [Some(piece), None]).collect();
    let mut buffer = vec![0; plain.len() + 1];
    assert_eq!(arriving(&pieces).read_at(0, &mut buffer).unwrap(), plain.len());
    assert!(buffer.starts_with(&plain));
    pieces.truncate(pieces.len() / 2);
    pieces.push(None);
    let mut log = arriving(&pieces);
    log.stop_when(|| true);
    let read = log.read_at(0, &mut buffer).unwrap();
    assert!(plain.starts_with(&buffer[..read]) && log.was_stopped());
    assert_eq!(log.decompression_error(), None);
}

/// How much a steady trickle brings in many seconds.
const LONG: usize = 16 << 10;

#[test]
fn a_stream_that_trickles_is_passed_on_as_well() {
    struct Trickle;
    impl io::Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(1));
            buffer[0] = 1;
            Ok(1)
        }
    }
    let mut log = LogFile::stream(Path::new("-"), Box::new(Trickle)).unwrap();
    let read = log.read_arrived(0, &mut [0; LONG], 1).unwrap();
    assert!((1..LONG).contains(&read), "{read}");
}

#[test]
fn a_pipe_that_trickles_ends_when_it_is_stopped() {
    let (from, mut to) = io::pipe().unwrap();
    let path = PathBuf::from(format!("/dev/fd/{}", from.as_raw_fd()));
    to.write_all(b"abcdef").unwrap();
    let mut log = LogFile::open(&path).unwrap();
    log.stop_when(|| true);
    std::thread::scope(|scope| {
        // Ends when nobody reads any more.
        scope.spawn(move || {
            while to.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut buffer = [0; LONG];
        let read = log.read_at(0, &mut buffer).unwrap();
        assert!(buffer.starts_with(b"abcdef") && (6..LONG).contains(&read), "{read}");
        assert!(log.was_stopped());
        drop((from, log));
    });
}
