//! Converts the frames of camera logs to `image_t` messages. Copies each image once and does not
//! decode it.

use std::sync::Arc;

use arrow_array::BinaryArray;
use arrow_buffer::{Buffer, OffsetBuffer};
use sluice_model::{Batch, Error, LossLog, ReadContext, Reader, Seam};

use super::wire::{CameraFrame, ParsedFrame};

/// Bytes before the image in a message.
const MESSAGE_HEAD_LEN: usize = 30;
/// The fingerprint of `image_t`.
const FINGERPRINT: u64 = 0xcc27_dfe2_9341_1b79;

/// Reads frames and converts them to messages.
pub(super) struct ImageReader<'s> {
    frames: Box<dyn Reader + 's>,
    losses: Arc<LossLog>,
    /// Whether the option `channel` is set.
    has_channel_option: bool,
    dropped: DroppedFields,
}

/// Counts of frames and fields that `image_t` cannot hold as they are.
#[derive(Debug, Default, PartialEq, Eq)]
struct DroppedFields {
    bus_times: u64,
    ignored: u64,
    without_camera: u64,
    negative_sizes: u64,
    negative_times: u64,
}

impl<'s> ImageReader<'s> {
    pub(super) fn new(
        frames: Box<dyn Reader + 's>,
        has_channel_option: bool,
        context: &ReadContext,
    ) -> Self {
        let losses = Arc::clone(&context.losses);
        Self { frames, losses, has_channel_option, dropped: DroppedFields::default() }
    }

    /// Notes what was dropped or changed so far, once.
    fn note(&mut self) {
        let DroppedFields { bus_times, ignored, without_camera, negative_sizes, negative_times } =
            std::mem::take(&mut self.dropped);
        let notes = [
            (bus_times, "frames with a camera bus time, which `image_t` cannot hold; dropped"),
            (ignored, "comment and metadata fields, which `image_t` cannot hold; dropped"),
            (without_camera, WITHOUT_CAMERA),
            (negative_sizes, NEGATIVE_SIZE),
            (negative_times, NEGATIVE_TIME),
        ];
        for (count, what) in notes {
            if count > 0 {
                self.losses.note(what, count);
            }
        }
    }
}

const NEGATIVE_SIZE: &str = "frames with a width, height or stride above 32767, which `image_t` \
                             stores as a negative number: add 65536 to it";
const NEGATIVE_TIME: &str = "frames with a capture time of 2^63 µs or more, which `image_t` \
                             stores as a negative `utime`: add 2^64 to it";
const WITHOUT_CAMERA: &str =
    "frames that do not say of which camera they are; name their channel with `channel`";

impl Reader for ImageReader<'_> {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        let Some(batch) = self.frames.next_batch()? else {
            self.note();
            return Ok(None);
        };
        messages(batch, self.has_channel_option, &mut self.dropped).map(Some)
    }

    fn seam(&self) -> Seam {
        self.frames.seam()
    }
}

/// A time in nanoseconds.
pub(super) fn nanos(micros: u64) -> i128 {
    i128::from(micros) * 1_000
}

/// Replaces the frames of a batch by messages.
fn messages(
    batch: Batch,
    has_channel_option: bool,
    dropped: &mut DroppedFields,
) -> Result<Batch, Error> {
    if batch.is_empty() {
        return Ok(batch);
    }
    let mut bytes = Vec::with_capacity(batch.payload_bytes() as usize);
    let (mut ends, mut times) = (vec![0], Vec::with_capacity(batch.len()));
    for row in 0..batch.len() {
        let payload = batch.payload(row);
        let ParsedFrame::Frame(frame) = CameraFrame::parse(payload) else {
            return Err(Error::internal("a camera frame that no longer parses"));
        };
        let image = payload.get(frame.image.clone()).unwrap_or_default();
        write_message(&mut bytes, &frame, image);
        let end = i32::try_from(bytes.len());
        ends.push(end.map_err(|_| Error::invalid("more than 2 GiB of images in one batch"))?);
        times.push(nanos(frame.micros));
        dropped.bus_times += u64::from(frame.bus_time != 0);
        dropped.ignored += frame.ignored_fields;
        let sizes = [frame.width, frame.height, frame.stride];
        let is_negative = sizes.into_iter().any(|size| i16::try_from(size).is_err());
        dropped.negative_sizes += u64::from(is_negative);
        dropped.negative_times += u64::from(i64::try_from(frame.micros).is_err());
        dropped.without_camera += u64::from(!has_channel_option && frame.uid(payload) == 0);
    }
    let is_wide = times.iter().any(|time| i64::try_from(*time).is_err());
    let payloads =
        BinaryArray::try_new(OffsetBuffer::new(ends.into()), Buffer::from_vec(bytes), None);
    let payloads =
        payloads.map_err(|_| Error::internal("messages that do not fit their column"))?;
    let all: Vec<u32> = (0u32..).take(batch.len()).collect();
    // Returns the blocks to the pool before the messages are passed on.
    let batch = batch.without_payloads().with_payloads(&all, &payloads);
    Ok(if is_wide { batch.with_wide_times(times) } else { batch })
}

/// Appends the message of a frame. Numbers are copied bit by bit.
fn write_message(bytes: &mut Vec<u8>, frame: &CameraFrame, image: &[u8]) {
    bytes.reserve(MESSAGE_HEAD_LEN + image.len());
    bytes.extend(FINGERPRINT.to_be_bytes());
    bytes.extend(frame.micros.to_be_bytes());
    for number in [frame.width, frame.height, frame.stride] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(frame.pixelformat.to_be_bytes());
    // `wire` bounds the length of images.
    bytes.extend((image.len() as u32).to_be_bytes());
    bytes.extend(image);
}
