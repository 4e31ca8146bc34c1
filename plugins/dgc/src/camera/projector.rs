//! The map of `camera`: decodes images and projects points onto them. Independent of the order of
//! events.

mod pixel_columns;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::Buffer;
use sluice_model::{Batch, ChannelId, Error, Map, MapQuery, PerChannel, Rows, StageContext};

use self::pixel_columns::{PixelColumns, with_members};
use super::attach_images::{ImageView, ImageViews};
use super::options::{
    CameraChannel, CameraOptions, PixelOf, UnseenPoints, image_column, view_column,
};
use super::picture::Picture;
use super::picture_cache::PictureCache;
use crate::camera_model::CameraModel;
use crate::geometry::Transform;
use crate::points::{PointFrame, Points};
use crate::to_frame::mounts::SensorMounts;

/// Projects points onto the attached images.
pub(super) struct ProjectPoints {
    mounts: SensorMounts,
    lenses: Arc<[CameraChannel]>,
    has_colour: bool,
    pixel: PixelOf,
    unseen: UnseenPoints,
    /// From the sensor of each channel to the body, if the calibration has it.
    to_body: PerChannel<Option<Transform>>,
    pictures: PictureCache,
}

impl ProjectPoints {
    pub(super) fn new(
        mounts: SensorMounts,
        lenses: Arc<[CameraChannel]>,
        options: &CameraOptions,
    ) -> Self {
        let CameraOptions { colour: has_colour, pixel, unseen, .. } = *options;
        let (to_body, pictures) = (PerChannel::default(), PictureCache::default());
        Self { mounts, lenses, has_colour, pixel, unseen, to_body, pictures }
    }

    /// The rows with the pixels and colours of their points.
    fn project_rows(&self, rows: &Rows, work: &mut BatchProjection<'_>) -> Rows {
        let Some(mut points) = Points::from_rows(rows) else { return rows.clone() };
        work.note_mounts(&points);
        let mut pixels = PixelColumns::new(points.len(), self.has_colour);
        for camera in 0..self.lenses.len() {
            self.project_camera(camera, &points, &mut pixels, work);
        }
        for camera in 0..self.lenses.len() {
            points = points.without_column(&view_column(camera));
            points = points.without_column(&image_column(camera));
        }
        let names: Vec<&str> = self.lenses.iter().map(|lens| lens.camera.name.as_str()).collect();
        let keep = (self.unseen == UnseenPoints::Drop).then(|| pixels.visible());
        with_members(points, pixels.members(&names), keep.as_ref())
    }

    /// Projects the points onto the images of one camera, run by run.
    fn project_camera(
        &self,
        camera: usize,
        points: &Points,
        pixels: &mut PixelColumns,
        work: &mut BatchProjection<'_>,
    ) {
        let views = ImageViews::from_points(points, camera);
        for ViewRun { rows, channel } in runs(points, &views, work.batch) {
            let Some(view) = views.numbers(rows.start).and_then(ImageView::from_numbers) else {
                continue;
            };
            let Some(to_body) = work.to_body(points.frame(), channel, &view) else { continue };
            let eye = self.prepare_camera(camera, &view, views.image(rows.start));
            let fault = eye.as_ref().map_or_else(|fault| Some(*fault), |eye| eye.fault);
            if let Some(fault) = fault {
                *work.faults.entry((camera, fault)).or_default() += rows.len() as u64;
            }
            let Ok(PreparedCamera { model, picture, .. }) = eye else { continue };
            let range = points.range(rows.start).start..points.range(rows.end - 1).end;
            let seen = to_body
                .then(model.from_body())
                .apply_all(points.xyz().map(|axis| &axis[range.clone()]));
            pixels.project(range.start, &seen, (&model, self.pixel), (camera, picture.as_deref()));
        }
    }

    /// Prepares a camera for one image. The image is only decoded if its aspect ratio matches.
    fn prepare_camera(
        &self,
        camera: usize,
        view: &ImageView,
        image: Option<&Buffer>,
    ) -> Result<PreparedCamera, ImageFault> {
        let [width, height] = view.size;
        let model = CameraModel::new(&self.lenses[camera].camera, width, height);
        let model = model.ok_or(ImageFault::Shape)?;
        let picture = image.and_then(|image| self.pictures.get_or_decode(image));
        let picture = picture.filter(|picture| [picture.width, picture.height] == view.size);
        let fault = (self.has_colour && picture.is_none()).then_some(ImageFault::Picture);
        Ok(PreparedCamera { model, picture, fault })
    }
}

/// A camera and one of its images, ready for projection.
struct PreparedCamera {
    model: CameraModel,
    /// `None` if there are no colours.
    picture: Option<Arc<Picture>>,
    fault: Option<ImageFault>,
}

/// Why points are not seen on an image, or have no colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ImageFault {
    Picture,
    Shape,
}

impl ImageFault {
    fn text(self, lens: &CameraChannel) -> String {
        let CameraChannel { camera, channel } = lens;
        match self {
            Self::Picture => {
                format!("{channel}: events without colour: image truncated, too large or not JPEG")
            }
            Self::Shape => format!(
                "{channel}: events whose image has another aspect ratio than {} ({} x {})",
                camera.name, camera.width, camera.height,
            ),
        }
    }
}

/// Consecutive rows with the same channel and view.
struct ViewRun {
    rows: Range<usize>,
    channel: u32,
}

fn runs(points: &Points, views: &ImageViews<'_>, batch: &Batch) -> Vec<ViewRun> {
    let mut runs: Vec<ViewRun> = Vec::new();
    let mut last = None;
    for (row, event) in points.events().iter().enumerate() {
        let channel = batch.channels()[*event as usize];
        let key = views.key(row);
        let view = views.numbers(row).map(|numbers| (channel, numbers, key));
        match runs.last_mut() {
            Some(run) if view.is_some() && last == view => run.rows.end = row + 1,
            _ if view.is_some() => runs.push(ViewRun { rows: row..row + 1, channel }),
            _ => {}
        }
        last = view;
    }
    runs
}

/// State shared by the rows of a batch.
struct BatchProjection<'b> {
    batch: &'b Batch,
    mounts: Arc<Vec<Option<Transform>>>,
    /// Events by camera and fault.
    faults: BTreeMap<(usize, ImageFault), u64>,
    /// Events by channel whose sensor has no mount.
    unmounted: BTreeMap<u32, u64>,
}

impl BatchProjection<'_> {
    fn to_body(&self, frame: PointFrame, channel: u32, view: &ImageView) -> Option<Transform> {
        match frame {
            PointFrame::Body => Some(Transform::IDENTITY),
            PointFrame::Local => Some(view.to_local.inverse()),
            PointFrame::Sensor => self.mounts[channel as usize],
        }
    }

    fn note_mounts(&mut self, points: &Points) {
        if points.frame() != PointFrame::Sensor {
            return;
        }
        for event in points.events() {
            let channel = self.batch.channels()[*event as usize];
            if self.mounts[channel as usize].is_none() {
                *self.unmounted.entry(channel).or_default() += 1;
            }
        }
    }

    fn report(self, lenses: &[CameraChannel], context: &mut StageContext<'_>) {
        for ((camera, fault), count) in self.faults {
            context.note(fault.text(&lenses[camera]), count);
        }
        for (channel, count) in self.unmounted {
            let channel = context.channels.get(ChannelId(channel));
            let what = "the calibration has no sensor of this name, so no camera sees its points; \
                        name its sensor in `mounts`";
            context.note(format!("{}: {what}", channel.name.text()), count);
        }
    }
}

impl Map for ProjectPoints {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let mounts = self.to_body.table(context.channels, |channel| {
            Ok(self.mounts.mount_of(channel.name.text()).map(|mount| mount.to_body()))
        })?;
        let (faults, unmounted) = (BTreeMap::new(), BTreeMap::new());
        let mut work = BatchProjection { batch: &batch, mounts, faults, unmounted };
        let rows = batch.rows().iter().map(|rows| self.project_rows(rows, &mut work)).collect();
        work.report(&self.lenses, context);
        Ok(batch.with_rows(rows))
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        Some(self.mounts.fingerprint().to_owned())
    }
}
