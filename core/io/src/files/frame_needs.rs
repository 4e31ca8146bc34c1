//! What the header of a compressed frame asks of its reader, and whether that is more than is
//! there. Decompresses nothing.

use zstd::zstd_safe::{get_dict_id_from_frame, get_frame_content_size};

use crate::frames::MAGIC;

/// The largest window of a frame, as a power of two: the default memory of a run. The decoder keeps
/// as much of what it has decompressed.
pub(super) const MAX_WINDOW_LOG: u32 = 29;
/// The largest one that zstd writes. A larger one is damage.
const MAX_WRITTEN_LOG: u32 = 31;

/// The header of a frame that cannot be decompressed here, although it is not damaged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FrameNeeds {
    /// The length of the header.
    pub(super) header_len: usize,
    /// Whether a checksum follows the last block.
    pub(super) has_checksum: bool,
    /// What the frame needs, and what to do.
    pub(super) advice: String,
}

impl FrameNeeds {
    /// Reads the header at the start of these bytes. `None` if it asks for nothing that is missing,
    /// or is not the header of a frame.
    pub(super) fn from_start(start: &[u8]) -> Option<Self> {
        let (&flags, rest) = start.strip_prefix(&MAGIC)?.split_first()?;
        let is_single = flags & 1 << 5 != 0;
        let content_size_len = match flags >> 6 {
            0 => usize::from(is_single),
            log => 1 << log,
        };
        let dictionary_len = [0, 1, 2, 4].get(usize::from(flags & 3))?;
        let window_len = usize::from(!is_single);
        let header_len = MAGIC.len() + 1 + window_len + dictionary_len + content_size_len;
        let window = match is_single {
            true => get_frame_content_size(start).ok()??,
            false => window_size(*rest.first()?),
        };
        let advice = match get_dict_id_from_frame(start) {
            Some(id) => dictionary_advice(id.get()),
            None if window > 1 << MAX_WINDOW_LOG => window_advice(window),
            None => return None,
        };
        let is_written = window <= 1 << MAX_WRITTEN_LOG;
        is_written.then_some(Self { header_len, has_checksum: flags & 1 << 2 != 0, advice })
    }
}

/// The window of a frame, by its descriptor.
fn window_size(descriptor: u8) -> u64 {
    let base = 1 << (10 + u32::from(descriptor >> 3));
    base + base / 8 * u64::from(descriptor & 7)
}

fn dictionary_advice(id: u32) -> String {
    format!(
        "it was compressed with a dictionary (id {id}), which Sluice cannot read; decompress it \
         first with that dictionary: zstd -d -D DICTIONARY FILE"
    )
}

fn window_advice(window: u64) -> String {
    format!(
        "it was compressed with a window of {} MiB (zstd --long), and Sluice reads windows of at \
         most {} MiB; decompress it in a pipe: zstd -dc --long={MAX_WRITTEN_LOG} FILE | sluice …, \
         with `-` as input",
        window >> 20,
        1 << (MAX_WINDOW_LOG - 20)
    )
}
