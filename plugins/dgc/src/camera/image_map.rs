//! Maps that replace camera images by rows: finds the images, and notes those that stay unchanged.
//! What an image becomes is up to [`ImageTransform`].

use std::collections::BTreeMap;

use sluice_model::{
    Batch, ChannelId, Error, Map, MapQuery, OptionsError, PerChannel, Registry, Rows, StageContext,
};

use super::image::CameraImage;
use super::options::{CameraChannel, camera_channels};
use crate::calibration::{CalibrationPath, Camera};
use crate::dataset_decoder::DatasetDecoder;
use crate::poses::ReadFromRows;
use crate::poses::rows::replace_rows;

/// Why an image is kept unchanged.
pub(super) type KeepReason = &'static str;
/// What is noted about an image that is replaced.
pub(super) type ImageNote = &'static str;

pub(super) const NOT_AN_IMAGE: KeepReason = "events that are not images as sent; kept unchanged";
pub(super) const UNDECODABLE: KeepReason =
    "images that are not JPEG files, truncated or too large; kept unchanged";
pub(super) const WRONG_SHAPE: KeepReason =
    "images whose aspect ratio differs from the calibration; kept unchanged";

/// Turns images into rows, one image at a time.
pub(super) trait ImageTransform: Send + Sync {
    /// The results of a batch so far.
    type Output: Default;

    /// Adds the result for the image of an event, and returns what to note about it. `Err` adds
    /// nothing and says why the image is kept.
    fn transform(
        &self,
        event: u32,
        image: &CameraImage,
        camera: &Camera,
        output: &mut Self::Output,
    ) -> Result<Option<ImageNote>, KeepReason>;

    /// The rows of all results, in order. They replace the payloads of their events.
    fn build_rows(&self, output: Self::Output) -> Result<Rows, Error>;
}

/// The images of a batch that were replaced.
struct ReplacedImages<M> {
    /// Their events, ascending.
    events: Vec<u32>,
    output: M,
    /// Events with what is noted about their images, such as why they are kept.
    notes: Vec<(u32, &'static str)>,
}

/// A map that replaces images by the results of an [`ImageTransform`].
pub(super) struct ImageMap<P> {
    image_transform: P,
    lenses: Vec<CameraChannel>,
    fingerprint: String,
    /// The index of the camera of each channel.
    camera_of: PerChannel<Option<usize>>,
    decoder: DatasetDecoder,
}

impl<P: ImageTransform> ImageMap<P> {
    /// A map for the images of these cameras, or of all cameras of the calibration if `cameras` is
    /// empty.
    pub(super) fn new(
        image_transform: P,
        calibration: &CalibrationPath,
        cameras: &[String],
        registry: &Registry,
    ) -> Result<Self, OptionsError> {
        let load = calibration.load();
        let calibration = load.map_err(|message| OptionsError::at("calibration", message))?;
        Ok(Self {
            image_transform,
            lenses: camera_channels(&calibration, cameras)?,
            fingerprint: calibration.fingerprint().to_owned(),
            camera_of: PerChannel::default(),
            decoder: DatasetDecoder::new(registry)?,
        })
    }

    /// Transforms the images of these events.
    fn transform_images(
        &self,
        batch: &Batch,
        events: &[u32],
        camera_of: impl Fn(u32) -> Option<usize>,
        context: &StageContext<'_>,
    ) -> Result<ReplacedImages<P::Output>, Error> {
        let decoded = self.decoder.decode_rows(batch, events, context.channels)?;
        let (mut images, mut notes) = (Vec::new(), decoded.failed);
        for rows in &decoded.rows {
            let decoded_images = CameraImage::read_rows(rows, batch.timestamps());
            let wrong = if decoded_images.is_some() { CameraImage::INVALID } else { NOT_AN_IMAGE };
            let decoded_images = decoded_images.unwrap_or_else(|| vec![None; rows.events.len()]);
            let decoded_images = rows.events.iter().zip(decoded_images);
            images.extend(decoded_images.map(|(event, image)| (*event, image.ok_or(wrong))));
        }
        images.sort_by_key(|(event, _)| *event);
        let (mut output, mut replaced) = (P::Output::default(), Vec::new());
        for (event, image) in images {
            let lens = camera_of(event).and_then(|lens| self.lenses.get(lens)).ok_or(NOT_AN_IMAGE);
            let added = lens.and_then(|lens| {
                self.image_transform.transform(event, &image?, &lens.camera, &mut output)
            });
            match added {
                Ok(note) => {
                    replaced.push(event);
                    notes.extend(note.map(|note| (event, note)));
                }
                Err(reason) => notes.push((event, reason)),
            }
        }
        Ok(ReplacedImages { events: replaced, output, notes })
    }
}

/// Counts what is noted about images by channel.
fn note_images(batch: &Batch, notes: Vec<(u32, &'static str)>, context: &mut StageContext<'_>) {
    let mut counts: BTreeMap<(u32, &'static str), u64> = BTreeMap::new();
    for (event, note) in notes {
        *counts.entry((batch.channels()[event as usize], note)).or_default() += 1;
    }
    for ((channel, note), count) in counts {
        let channel = context.channels.get(ChannelId(channel));
        context.note(format!("{}: {note}", channel.name.text()), count);
    }
}

impl<P: ImageTransform> Map for ImageMap<P> {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let camera_of = self.camera_of.table(context.channels, |channel| {
            Ok(self.lenses.iter().position(|lens| lens.channel == channel.name.text()))
        })?;
        let events = (0u32..).zip(batch.channels());
        let events = events.filter(|(_, channel)| camera_of[**channel as usize].is_some());
        let events: Vec<u32> = events.map(|(event, _)| event).collect();
        if events.is_empty() {
            return Ok(batch);
        }
        let camera_of = |event: u32| camera_of[batch.channels()[event as usize] as usize];
        let replaced = self.transform_images(&batch, &events, camera_of, context)?;
        note_images(&batch, replaced.notes, context);
        if replaced.events.is_empty() {
            return Ok(batch);
        }
        let new = self.image_transform.build_rows(replaced.output)?;
        let is_other = |event: u32| replaced.events.binary_search(&event).is_err();
        let old = batch.rows().iter().filter_map(|rows| rows.pick_events(is_other));
        let all = old.chain([new]).collect();
        Ok(replace_rows(batch, all))
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        Some(self.fingerprint.clone())
    }
}
