//! The map: decodes images, and gives points their pixels and colours. Knows no order of events.

mod canvas;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::Buffer;
use sluice_core::{Batch, ChannelId, Error, Map, MapQuery, PerChannel, Rows, StageContext};

use self::canvas::{Canvas, with_members};
use super::carry::{View, Views};
use super::picture::Picture;
use super::pictures::Pictures;
use super::{CameraOptions, Lens, PixelOf, Unseen, image_column, view_column};
use crate::camera_model::CameraModel;
use crate::geometry::Transform;
use crate::points::{Frame, Points};
use crate::to_frame::mounts::Mounts;

/// The map.
pub(super) struct Paint {
    mounts: Mounts,
    lenses: Arc<[Lens]>,
    has_colour: bool,
    pixel: PixelOf,
    unseen: Unseen,
    /// From the sensor of each channel to the body, where the calibration has it.
    to_body: PerChannel<Option<Transform>>,
    pictures: Pictures,
}

impl Paint {
    pub(super) fn new(mounts: Mounts, lenses: Arc<[Lens]>, options: &CameraOptions) -> Self {
        let CameraOptions { colour: has_colour, pixel, unseen, .. } = *options;
        let (to_body, pictures) = (PerChannel::default(), Pictures::default());
        Self { mounts, lenses, has_colour, pixel, unseen, to_body, pictures }
    }

    /// The rows with what cameras see of their points.
    fn painted(&self, rows: &Rows, work: &mut Work<'_>) -> Rows {
        let Some(mut points) = Points::of(rows) else { return rows.clone() };
        work.note_mounts(&points);
        let mut canvas = Canvas::new(points.len(), self.has_colour);
        for camera in 0..self.lenses.len() {
            self.look(camera, &points, &mut canvas, work);
        }
        for camera in 0..self.lenses.len() {
            points = points.without_column(&view_column(camera));
            points = points.without_column(&image_column(camera));
        }
        let names: Vec<&str> = self.lenses.iter().map(|lens| lens.camera.name.as_str()).collect();
        let keep = (self.unseen == Unseen::Drop).then(|| canvas.seen());
        with_members(points, canvas.members(&names), keep.as_ref())
    }

    /// Lets a camera look at the points, run by run.
    fn look(&self, camera: usize, points: &Points, canvas: &mut Canvas, work: &mut Work<'_>) {
        let views = Views::of(points, camera);
        for Run { rows, channel } in runs(points, &views, work.batch) {
            let Some(view) = views.numbers(rows.start).and_then(View::of) else { continue };
            let Some(to_body) = work.to_body(points.frame(), channel, &view) else { continue };
            let eye = self.eye(camera, &view, views.image(rows.start));
            let lack = eye.as_ref().map_or_else(|lack| Some(*lack), |eye| eye.lack);
            if let Some(lack) = lack {
                *work.lacks.entry((camera, lack)).or_default() += rows.len() as u64;
            }
            let Ok(Eye { model, picture, .. }) = eye else { continue };
            let range = points.range(rows.start).start..points.range(rows.end - 1).end;
            let seen = to_body
                .then(model.from_body())
                .apply_all(points.xyz().map(|axis| &axis[range.clone()]));
            canvas.look(range.start, &seen, (&model, self.pixel), (camera, picture.as_deref()));
        }
    }

    /// How a camera looks through an image, which is decoded only if it has the camera's shape.
    fn eye(&self, camera: usize, view: &View, image: Option<&Buffer>) -> Result<Eye, Lack> {
        let [width, height] = view.size;
        let model = CameraModel::new(&self.lenses[camera].camera, width, height);
        let model = model.ok_or(Lack::Shape)?;
        let picture = image.and_then(|image| self.pictures.of(image));
        let picture = picture.filter(|picture| [picture.width, picture.height] == view.size);
        let lack = (self.has_colour && picture.is_none()).then_some(Lack::Picture);
        Ok(Eye { model, picture, lack })
    }
}

/// What a camera looks with.
struct Eye {
    model: CameraModel,
    /// Nothing if there are no colours to be had.
    picture: Option<Arc<Picture>>,
    lack: Option<Lack>,
}

/// Why points are not seen, or only without colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    Picture,
    Shape,
}

impl Lack {
    fn words(self, lens: &Lens) -> String {
        let Lens { camera, channel } = lens;
        match self {
            Self::Picture => {
                format!(
                    "{channel}: events whose image is no JPEG, cut off or too large have no colour of it"
                )
            }
            Self::Shape => format!(
                "{channel}: events whose image has not the shape of {} ({} x {}): nothing is seen on it",
                camera.name, camera.width, camera.height,
            ),
        }
    }
}

/// Rows behind one another that a camera looks at alike.
struct Run {
    rows: Range<usize>,
    channel: u32,
}

fn runs(points: &Points, views: &Views<'_>, batch: &Batch) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut last = None;
    for (row, event) in points.events().iter().enumerate() {
        let channel = batch.channels()[*event as usize];
        let key = views.key(row);
        let view = views.numbers(row).map(|numbers| (channel, numbers, key));
        match runs.last_mut() {
            Some(run) if view.is_some() && last == view => run.rows.end = row + 1,
            _ if view.is_some() => runs.push(Run { rows: row..row + 1, channel }),
            _ => {}
        }
        last = view;
    }
    runs
}

/// What is gathered over the rows of a batch.
struct Work<'b> {
    batch: &'b Batch,
    mounts: Arc<Vec<Option<Transform>>>,
    /// Events by what they lack.
    lacks: BTreeMap<(usize, Lack), u64>,
    /// Events by channels whose sensor is not known.
    unknown: BTreeMap<u32, u64>,
}

impl Work<'_> {
    fn to_body(&self, frame: Frame, channel: u32, view: &View) -> Option<Transform> {
        match frame {
            Frame::Body => Some(Transform::IDENTITY),
            Frame::Local => Some(view.to_local.inverse()),
            Frame::Sensor => self.mounts[channel as usize],
        }
    }

    fn note_mounts(&mut self, points: &Points) {
        if points.frame() != Frame::Sensor {
            return;
        }
        for event in points.events() {
            let channel = self.batch.channels()[*event as usize];
            if self.mounts[channel as usize].is_none() {
                *self.unknown.entry(channel).or_default() += 1;
            }
        }
    }

    fn tell(self, lenses: &[Lens], context: &mut StageContext<'_>) {
        for ((camera, lack), count) in self.lacks {
            context.note(lack.words(&lenses[camera]), count);
        }
        for (channel, count) in self.unknown {
            let channel = context.channels.get(ChannelId(channel));
            let what = "the calibration has no sensor of this name, so that no camera sees its points; \
                        say in `mounts` which of its sensors it is";
            context.note(format!("{}: {what}", channel.name.text()), count);
        }
    }
}

impl Map for Paint {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let mounts = self.to_body.table(context.channels, |channel| {
            Ok(self.mounts.of_channel(channel.name.text()).map(|mount| mount.to_body()))
        })?;
        let (lacks, unknown) = (BTreeMap::new(), BTreeMap::new());
        let mut work = Work { batch: &batch, mounts, lacks, unknown };
        let rows = batch.rows().iter().map(|rows| self.painted(rows, &mut work)).collect();
        work.tell(&self.lenses, context);
        Ok(batch.with_rows(rows))
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        Some(self.mounts.made_from().to_owned())
    }
}
