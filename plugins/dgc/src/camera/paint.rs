//! The map: decodes images, and gives points their pixels and colours. Knows no order of events.

mod canvas;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use sluice_core::{Batch, ChannelId, Error, Map, MapQuery, PerChannel, Rows, StageContext};

use self::canvas::{Canvas, with_members};
use super::carry::{View, Views};
use super::picture::Picture;
use super::{CameraOptions, Lens, PixelOf, Unseen, image_column, view_column};
use crate::calibration::Calibration;
use crate::camera_model::CameraModel;
use crate::geometry::Transform;
use crate::points::{Frame, Points};

/// How many bytes of decoded images are kept for a batch.
const MOST_DECODED: usize = 64 << 20;

/// The map.
pub(super) struct Paint {
    calibration: Calibration,
    lenses: Arc<[Lens]>,
    has_colour: bool,
    pixel: PixelOf,
    unseen: Unseen,
    /// From the sensor of each channel to the body, where the calibration has it.
    mounts: PerChannel<Option<Transform>>,
}

impl Paint {
    pub(super) fn new(
        calibration: Calibration,
        lenses: Arc<[Lens]>,
        options: &CameraOptions,
    ) -> Self {
        let CameraOptions { colour, pixel, unseen, .. } = *options;
        let mounts = PerChannel::default();
        Self { calibration, lenses, has_colour: colour, pixel, unseen, mounts }
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
            let bytes = views.image(rows.start).map(|(_, bytes)| bytes);
            let eye = self.eye(camera, &view, bytes, work);
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

    /// How a camera looks through an image.
    fn eye(
        &self,
        camera: usize,
        view: &View,
        bytes: Option<&[u8]>,
        work: &mut Work<'_>,
    ) -> Result<Eye, Lack> {
        let camera = &self.lenses[camera].camera;
        let picture = bytes.and_then(|bytes| work.picture(bytes));
        let lack = (self.has_colour && picture.is_none()).then_some(Lack::Picture);
        let [width, height] = picture.as_ref().map_or(view.size, |p| [p.width, p.height]);
        match CameraModel::new(camera, width, height) {
            Some(model) => Ok(Eye { model, picture, lack }),
            None => Err(lack.unwrap_or(Lack::Shape)),
        }
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
        let key = views.image(row).map(|(key, _)| key);
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
    /// Images that were decoded, by where their bytes are: the batch keeps them there.
    pictures: HashMap<(usize, usize), Option<Arc<Picture>>>,
    decoded: usize,
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

    fn picture(&mut self, bytes: &[u8]) -> Option<Arc<Picture>> {
        let place = (bytes.as_ptr() as usize, bytes.len());
        if let Some(known) = self.pictures.get(&place) {
            return known.clone();
        }
        let picture = Picture::of_jpeg(bytes).map(Arc::new);
        self.decoded += picture.as_ref().map_or(0, |picture| picture.memory());
        if self.decoded > MOST_DECODED {
            self.pictures.clear();
            self.decoded = 0;
        }
        self.pictures.insert(place, picture.clone());
        picture
    }

    fn tell(self, lenses: &[Lens], context: &mut StageContext<'_>) {
        for ((camera, lack), count) in self.lacks {
            context.note(lack.words(&lenses[camera]), count);
        }
        for (channel, count) in self.unknown {
            let channel = context.channels.get(ChannelId(channel));
            let what = "the calibration has no sensor of this name, so that no camera sees its points; \
                        the stage `to-frame` before this one can say which sensor it is";
            context.note(format!("{}: {what}", channel.name.text()), count);
        }
    }
}

impl Map for Paint {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let mounts = self.mounts.table(context.channels, |channel| {
            Ok(self.calibration.mount(channel.name.text()).map(|mount| mount.to_body()))
        })?;
        let mut work = Work {
            batch: &batch,
            mounts,
            pictures: HashMap::new(),
            decoded: 0,
            lacks: BTreeMap::new(),
            unknown: BTreeMap::new(),
        };
        let rows = batch.rows().iter().map(|rows| self.painted(rows, &mut work)).collect();
        work.tell(&self.lenses, context);
        Ok(batch.with_rows(rows))
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn beside_options(&self) -> Option<String> {
        Some(self.calibration.made_from().to_owned())
    }
}
