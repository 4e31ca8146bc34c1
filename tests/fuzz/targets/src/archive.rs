//! Archives, their frames, and their indexes.

use std::path::Path;
use std::sync::LazyLock;

use serde_json::json;
use sluice_archive::fuzzing::Arrow;
use sluice_io::files::LogFile;
use sluice_io::frames;
use sluice_io::seek_table::{self, SeekTableBuilder};
use sluice_io::tasks::TaskPool;
use sluice_kit::contract::{PlainEvent, SourceContents, gather};
use sluice_model::{
    BatchBuilder, BlockPool, ByteFormat, Channel, Encoding, Error, Name, PrepareContext,
    ReadContext, SinkContext,
};

use crate::inputs;

const MAX_FRAME: u64 = 1 << 20;

/// The names of archives in their folder.
const FILE: &str = "archive";

/// The first bytes of a zstd frame, and the bit of the next one that says that it has a checksum.
const FRAME_START: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const CHECKSUM_FLAG: u8 = 4;

/// Valid archives, with their events.
static SOUND: LazyLock<[(Vec<u8>, Vec<PlainEvent>); 2]> = LazyLock::new(|| {
    ["lcm-log", "arrow"].map(|format| {
        let bytes = sound(format);
        let events = read(&bytes).expect("a sound archive can be read").events;
        assert_eq!(events.len(), 30);
        (bytes, events)
    })
});

fn sound(format: &str) -> Vec<u8> {
    let path = inputs::empty_folder("sound").join(FILE);
    let sink = inputs::registry()
        .sink("archive", json!({ "path": path, "format": format, "frame": 200 }))
        .expect("good options");
    let (context, buffers) = (SinkContext::standalone(), BlockPool::new(1 << 10, 4));
    let mut batch = BatchBuilder::default();
    for n in 0..30u8 {
        let name = Name::from_bytes(&[b'A' + n % 3]);
        let channel = Channel::new(name, "test", Encoding::Lcm);
        let id = context.channels.intern(channel).expect("few channels");
        batch.push_copy(i64::from(n) * 1_000, n.into(), id, &vec![n; usize::from(n)]);
    }
    let mut output = sink.open(&context, &TaskPool::default()).expect("it opens");
    let mut encoding = PrepareContext::new(&context.channels, &buffers);
    let block = sink.prepare(batch.finish(), &mut encoding).expect("it is prepared");
    output.push(block).expect("it is written");
    output.finish().expect("it finishes");
    context.outputs.publish(|_, _| Ok(String::new())).expect("it is published");
    std::fs::read(path).expect("it is there")
}

fn read(bytes: &[u8]) -> Result<SourceContents, Error> {
    let options = json!({ "path": inputs::file(FILE, bytes), "max_frame": MAX_FRAME });
    gather(&*inputs::source("archive", options), 400)
}

/// An archive of one frame, with this index.
fn archive_with_index(index: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut file = frames::compress(plain, 1).expect("it compresses");
    let mut table = SeekTableBuilder::default();
    table.push(file.len(), plain.len()).expect("it is short");
    let mut packed = frames::compress(index, 1).expect("it compresses");
    packed.extend((packed.len() as u32).to_le_bytes());
    packed.extend(b"sluiceix");
    file.extend(frames::skippable(&packed).expect("it is short"));
    file.extend(table.finish());
    file
}

/// A valid archive with some bytes changed, removed or inserted.
fn changed(sound: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for change in changes.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len().max(1);
        let with = change[3];
        match change[2] % 4 {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= with),
            1 => drop(bytes.drain(at..(at + usize::from(with)).min(bytes.len()))),
            2 => drop(bytes.splice(at..at, std::iter::repeat_n(with, usize::from(with)))),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Whether these bytes look like a compressed log of another program, which is read as far as it
/// decompresses: there is no footer, and the first frame is the whole file, truncated, or of
/// unknown length, or a frame has no checksum, without which altered bytes may decompress.
fn is_left_to_others(bytes: &[u8]) -> bool {
    let mut log = LogFile::open_plain(&inputs::path(FILE)).expect("it was written");
    let has_table = seek_table::read(&mut log).expect("it can be read").is_some();
    let is_short = frames::content_size(bytes).is_some_and(|plain| plain <= MAX_FRAME);
    let is_first = frames::frame_len(bytes).is_some_and(|len| len < bytes.len());
    let mut starts = bytes.windows(5).filter(|start| start[..4] == FRAME_START);
    let has_checksums = starts.all(|start| start[4] & CHECKSUM_FLAG != 0);
    !(has_table || is_short && is_first && has_checksums)
}

fn check_events(events: &[PlainEvent], bytes: &[u8]) {
    // What has no frame left is refused: it could be anything.
    let Ok(read) = read(bytes) else { return };
    if is_left_to_others(bytes) {
        return;
    }
    let mut rest = events.iter();
    assert!(read.events.iter().all(|event| rest.any(|other| other == event)), "a wrong event");
    let missing = events.len() - read.events.len();
    assert!(missing == 0 || !read.damage.is_empty(), "{missing} missing in silence");
}

/// Any bytes are an archive: nothing panics, and a changed archive yields no wrong event.
pub fn archive(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 5 {
        0 => drop(read(bytes)),
        1 => {
            let context = ReadContext::standalone("test");
            let piece = bytes::Bytes::copy_from_slice(bytes);
            drop(Arrow.decode(piece, 0, Path::new("x"), &context));
        }
        2 => {
            let (index, plain) = inputs::cut_at(bytes, 0);
            drop(read(&archive_with_index(index, plain)));
        }
        kind => {
            let (sound, events) = &SOUND[usize::from(kind - 3)];
            check_events(events, &changed(sound, bytes));
        }
    }
}
