//! Maps that make rows of cameras' images: finds the images, and tells of those that stay as they
//! were. What is made of an image is [`PerImage`]'s.

use std::collections::BTreeMap;

use sluice_core::{
    Batch, ChannelId, Error, Map, MapQuery, OptionsError, PerChannel, Rows, StageContext,
};

use super::image::Image;
use super::{Lens, lenses};
use crate::calibration::{CalibrationPath, Camera};
use crate::messages::Messages;
use crate::poses::Known;
use crate::poses::rows::in_place;

/// Why an image stays as it was.
pub(super) type Why = &'static str;
/// An event whose image stays as it was, and why.
type Left = (u32, Why);

pub(super) const NONE: Why = "events that are no images as they were sent stay as they are";
pub(super) const BROKEN: Why = "images that are no JPEG, cut off or too large stay as they were";
pub(super) const SHAPE: Why = "images of another shape than the camera's stay as they were";

/// What is made of images, one by one.
pub(super) trait PerImage: Send + Sync {
    /// What was made of the images of a batch so far.
    type Made: Default;

    /// Adds what is made of an event's image. `Err` adds nothing, and says why the image stays.
    fn add(
        &self,
        event: u32,
        image: &Image,
        camera: &Camera,
        made: &mut Self::Made,
    ) -> Result<(), Why>;

    /// The rows of all that was added, in its order: all that is left of these events.
    fn rows(&self, made: Self::Made) -> Result<Rows, Error>;
}

/// What images of a batch were replaced by.
struct Replaced<M> {
    /// Their events, ascending.
    events: Vec<u32>,
    made: M,
    /// The events whose images stay.
    left: Vec<Left>,
}

/// A map that replaces images by what is made of them.
pub(super) struct ImageMap<P> {
    per_image: P,
    lenses: Vec<Lens>,
    made_from: String,
    /// The number of the camera whose images a channel has.
    lens_of: PerChannel<Option<usize>>,
    messages: Messages,
}

impl<P: PerImage> ImageMap<P> {
    /// The map for the images of these cameras; of all that the calibration has, if none are named.
    pub(super) fn new(
        per_image: P,
        calibration: &CalibrationPath,
        cameras: &[String],
    ) -> Result<Self, OptionsError> {
        let load = calibration.load();
        let calibration = load.map_err(|message| OptionsError::at("calibration", message))?;
        Ok(Self {
            per_image,
            lenses: lenses(&calibration, cameras)?,
            made_from: calibration.made_from().to_owned(),
            lens_of: PerChannel::default(),
            messages: Messages::of_dataset()?,
        })
    }

    /// What is made of the images of these events, and which stay.
    fn make(
        &self,
        batch: &Batch,
        events: &[u32],
        lens_of: impl Fn(u32) -> Option<usize>,
        context: &StageContext<'_>,
    ) -> Result<Replaced<P::Made>, Error> {
        let messages = self.messages.rows(batch, events, context.channels)?;
        let (mut images, mut left) = (Vec::new(), messages.bad);
        for rows in &messages.rows {
            let known = Image::of(rows, batch.timestamps());
            let wrong = if known.is_some() { Image::WRONG } else { NONE };
            let known = known.unwrap_or_else(|| vec![None; rows.events.len()]);
            let known = rows.events.iter().zip(known);
            images.extend(known.map(|(event, image)| (*event, image.ok_or(wrong))));
        }
        images.sort_by_key(|(event, _)| *event);
        let (mut made, mut replaced) = (P::Made::default(), Vec::new());
        for (event, image) in images {
            let lens = lens_of(event).and_then(|lens| self.lenses.get(lens)).ok_or(NONE);
            let added =
                lens.and_then(|lens| self.per_image.add(event, &image?, &lens.camera, &mut made));
            match added {
                Ok(()) => replaced.push(event),
                Err(why) => left.push((event, why)),
            }
        }
        Ok(Replaced { events: replaced, made, left })
    }
}

/// Tells why events stay as they were.
fn tell(batch: &Batch, left: Vec<Left>, context: &mut StageContext<'_>) {
    let mut counts: BTreeMap<(u32, Why), u64> = BTreeMap::new();
    for (event, why) in left {
        *counts.entry((batch.channels()[event as usize], why)).or_default() += 1;
    }
    for ((channel, why), count) in counts {
        let channel = context.channels.get(ChannelId(channel));
        context.note(format!("{}: {why}", channel.name.text()), count);
    }
}

/// The rows without those of these events, which are ascending.
fn others(rows: &Rows, events: &[u32]) -> Option<Rows> {
    let is_other = |row: &u32| events.binary_search(&rows.events[*row as usize]).is_err();
    let others: Vec<u32> = (0..rows.events.len() as u32).filter(is_other).collect();
    (!others.is_empty()).then(|| rows.pick(&others))
}

impl<P: PerImage> Map for ImageMap<P> {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let lens_of = self.lens_of.table(context.channels, |channel| {
            Ok(self.lenses.iter().position(|lens| lens.channel == channel.name.text()))
        })?;
        let events = (0u32..).zip(batch.channels());
        let events = events.filter(|(_, channel)| lens_of[**channel as usize].is_some());
        let events: Vec<u32> = events.map(|(event, _)| event).collect();
        if events.is_empty() {
            return Ok(batch);
        }
        let lens_of = |event: u32| lens_of[batch.channels()[event as usize] as usize];
        let replaced = self.make(&batch, &events, lens_of, context)?;
        tell(&batch, replaced.left, context);
        if replaced.events.is_empty() {
            return Ok(batch);
        }
        let new = self.per_image.rows(replaced.made)?;
        let old = batch.rows().iter().filter_map(|rows| others(rows, &replaced.events));
        let all = old.chain([new]).collect();
        Ok(in_place(batch, all))
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        Some(self.made_from.clone())
    }
}
