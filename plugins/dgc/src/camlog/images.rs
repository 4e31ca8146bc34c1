//! Frames of camera logs as messages `image_t`. Copies each image once, and looks into none.

use std::sync::Arc;

use arrow_array::BinaryArray;
use arrow_buffer::{Buffer, OffsetBuffer};
use sluice_core::{Batch, Error, LossLog, ReadContext, Reader, Seam};

use super::wire::{Frame, ParsedFrame};

/// Bytes of a message before its image.
const HEAD: usize = 30;
/// What tells messages of the type.
const FINGERPRINT: u64 = 0xcc27_dfe2_9341_1b79;

/// Reads frames, and makes messages of them.
pub(super) struct ImageReader<'s> {
    frames: Box<dyn Reader + 's>,
    losses: Arc<LossLog>,
    /// Whether the user named the channel.
    is_named: bool,
    left_out: LeftOut,
}

/// What messages have no place for.
#[derive(Debug, Default, PartialEq, Eq)]
struct LeftOut {
    bus_times: u64,
    others: u64,
    without_camera: u64,
}

impl<'s> ImageReader<'s> {
    pub(super) fn new(frames: Box<dyn Reader + 's>, is_named: bool, context: &ReadContext) -> Self {
        let losses = Arc::clone(&context.losses);
        Self { frames, losses, is_named, left_out: LeftOut::default() }
    }

    /// Says what was left out so far, once.
    fn note(&mut self) {
        let LeftOut { bus_times, others, without_camera } = std::mem::take(&mut self.left_out);
        let notes = [
            (bus_times, "frames of a camera log: their times on the camera's bus are left out"),
            (others, "fields of a camera log that hold comments or metadata are left out"),
            (without_camera, WITHOUT_CAMERA),
        ];
        for (count, what) in notes {
            if count > 0 {
                self.losses.note(what, count);
            }
        }
    }
}

const WITHOUT_CAMERA: &str =
    "frames of a camera log do not say of which camera they are; `channel` names their channel";

impl Reader for ImageReader<'_> {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        let Some(batch) = self.frames.next_batch()? else {
            self.note();
            return Ok(None);
        };
        messages(batch, self.is_named, &mut self.left_out).map(Some)
    }

    fn seam(&self) -> Seam {
        self.frames.seam()
    }
}

/// A time in nanoseconds.
pub(super) fn nanos(micros: u64) -> i128 {
    i128::from(micros) * 1_000
}

/// The batch with messages instead of frames.
fn messages(batch: Batch, is_named: bool, left_out: &mut LeftOut) -> Result<Batch, Error> {
    if batch.is_empty() {
        return Ok(batch);
    }
    let mut bytes = Vec::with_capacity(batch.payload_bytes() as usize);
    let (mut ends, mut times) = (vec![0], Vec::with_capacity(batch.len()));
    for row in 0..batch.len() {
        let payload = batch.payload(row);
        let ParsedFrame::Frame(frame) = Frame::parse(payload) else {
            return Err(Error::internal("a frame of a camera log that is none any more"));
        };
        let image = payload.get(frame.image.clone()).unwrap_or_default();
        write(&mut bytes, &frame, image);
        let end = i32::try_from(bytes.len());
        ends.push(end.map_err(|_| Error::invalid("more than 2 GiB of images in one batch"))?);
        times.push(nanos(frame.micros));
        left_out.bus_times += u64::from(frame.bus_time != 0);
        left_out.others += frame.others;
        left_out.without_camera += u64::from(!is_named && frame.uid(payload) == 0);
    }
    let is_wide = times.iter().any(|time| i64::try_from(*time).is_err());
    let payloads =
        BinaryArray::try_new(OffsetBuffer::new(ends.into()), Buffer::from_vec(bytes), None);
    let payloads =
        payloads.map_err(|_| Error::internal("messages that do not fit their column"))?;
    let all: Vec<u32> = (0u32..).take(batch.len()).collect();
    // Blocks go back to the pool before messages go on.
    let batch = batch.without_payloads().with_payloads(&all, &payloads);
    Ok(if is_wide { batch.with_wide_times(times) } else { batch })
}

/// Appends the message of a frame. Numbers keep their bits.
fn write(bytes: &mut Vec<u8>, frame: &Frame, image: &[u8]) {
    bytes.reserve(HEAD + image.len());
    bytes.extend(FINGERPRINT.to_be_bytes());
    bytes.extend(frame.micros.to_be_bytes());
    for number in [frame.width, frame.height, frame.stride] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(frame.pixelformat.to_be_bytes());
    // Images are bounded: see `wire`.
    bytes.extend((image.len() as u32).to_be_bytes());
    bytes.extend(image);
}
