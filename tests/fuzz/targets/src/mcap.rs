//! MCAP files, as the source `mcap` reads them.

use serde_json::json;
use sluice_io::frames::MAGIC;

use crate::{inputs, memory, pieces};

/// The first bytes of a file, and a header.
const FRONT: &[u8] = b"\x89MCAP0\r\n\x01\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// A record with this content.
fn record(opcode: u8, content: &[u8]) -> Vec<u8> {
    [&[opcode][..], &(content.len() as u64).to_le_bytes(), content].concat()
}

/// A chunk of these records, not compressed, and without a checksum.
fn chunk(records: &[u8]) -> Vec<u8> {
    let len = (records.len() as u64).to_le_bytes();
    let head = [&[0; 16][..], &len, &[0; 4], &[0; 4], &len].concat();
    record(6, &[&head[..], records].concat())
}

/// Any bytes are a file, the records of one, or the contents of a chunk: splits yield the same as
/// the whole, damage lies in the file, and what files say of themselves is read.
pub fn mcap(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    let file = match kind % 4 {
        0 => bytes.to_vec(),
        1 => [FRONT, bytes].concat(),
        2 => [FRONT, &chunk(bytes)].concat(),
        _ => {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            [FRONT, &chunk(first), &chunk(second), b"\x0f\x04\0\0\0\0\0\0\0\0\0\0\0"].concat()
        }
    };
    let len = file.len();
    // A message in CDR that begins like a zstd frame is refused. In a chunk of LZ4, it is hidden.
    let has = |word: &[u8]| file.windows(word.len()).any(|found| found == word);
    let may_be_refused = kind % 4 == 0 || has(&MAGIC) || has(b"lz4");
    // A file on disk, or an object: of that, a summary is believed as far as it can be.
    let path = match kind / 4 % 2 {
        0 => inputs::file("log.mcap", &file),
        _ => memory::object("log.mcap", file),
    };
    // Small, so that the fuzzer meets the limit.
    let source = inputs::source("mcap", json!({ "path": path, "max_chunk": 65_536 }));
    let read = pieces::read(&*source, len);
    assert!(read.is_some() || may_be_refused, "no file is refused");
    let findings = source.findings(&path).expect("it was read before");
    assert!(findings.iter().all(|finding| !finding.chars().any(char::is_control)));
    // They are found by reading it again.
    assert!(source.faults(&path).is_ok() || read.is_none(), "it was read before");
    source.events_in(&path).expect("it was read before");
}
