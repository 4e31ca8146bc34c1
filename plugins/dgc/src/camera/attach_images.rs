//! The fold of `camera`: attaches to each event of points the images it can be seen on. Decodes and
//! projects nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::BinaryViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, FixedSizeListArray, Float64Array, Int32Array};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType, Field};
use sluice_model::{
    Batch, ChannelId, ChannelQuery, Error, Fold, FoldQuery, OptionsError, Pattern, Patterns,
    Registry, Rows, StageContext,
};

use super::image::CameraImage;
use super::options::{CameraChannel, CameraOptions, image_column, view_column};
use crate::geometry::{Quaternion, Transform};
use crate::points::{PointFrame, Points};
use crate::poses::{ChannelReader, Pose, PoseHistory};

/// Maximum distance in time between an image and the nearest pose, in nanoseconds.
const MAX_POSE_AGE: i64 = 1_000_000_000;
/// Maximum delay between a message's own time and its event in the log, in nanoseconds.
const MAX_LOG_DELAY: i64 = 1_000_000_000;
/// Numbers per view: width, height, position, orientation.
const VIEW_WIDTH: usize = 9;

/// What a row needs of an image besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ImageView {
    /// Size from the file, or else from the message.
    pub(super) size: [u32; 2],
    /// From the body to the local frame at the time of the image. Only meaningful for points in the
    /// local frame.
    pub(super) to_local: Transform,
}

impl ImageView {
    fn numbers(image: &CameraImage, pose: Option<&Pose>) -> [f64; VIEW_WIDTH] {
        let (position, turned) =
            pose.map_or(([0.0; 3], Quaternion::IDENTITY), |pose| (pose.position, pose.orientation));
        let [x, y, z] = position;
        let Quaternion { w, x: qx, y: qy, z: qz } = turned;
        let [width, height] = image.size().map(f64::from);
        [width, height, x, y, z, w, qx, qy, qz]
    }

    /// Parses the numbers of a view. `None` if their count is wrong.
    pub(super) fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let [width, height, px, py, pz, w, x, y, z] = *numbers else { return None };
        let to_local = Transform::new([px, py, pz], &Quaternion { w, x, y, z });
        Some(Self { size: [width as u32, height as u32], to_local })
    }
}

/// The views of one camera attached to some rows.
pub(super) struct ImageViews<'r> {
    numbers: Option<&'r FixedSizeListArray>,
    images: Option<&'r DictionaryArray<Int32Type>>,
}

impl<'r> ImageViews<'r> {
    /// The views that the fold attached to the points.
    pub(super) fn from_points(points: &'r Points, camera: usize) -> Self {
        let numbers = points.column(&view_column(camera));
        let numbers = numbers.and_then(|numbers| numbers.as_fixed_size_list_opt());
        let images = points.column(&image_column(camera));
        let images = images.and_then(|images| images.as_dictionary_opt::<Int32Type>());
        Self { numbers: numbers.filter(|n| n.value_length() == VIEW_WIDTH as i32), images }
    }

    /// The numbers of a row's view. Rows with equal numbers and the same image share a view.
    pub(super) fn numbers(&self, row: usize) -> Option<&'r [f64]> {
        let lists = self.numbers.filter(|lists| lists.is_valid(row))?;
        let values = lists.values().as_primitive_opt::<Float64Type>()?;
        values.values().get(row * VIEW_WIDTH..(row + 1) * VIEW_WIDTH)
    }

    /// The index of a row's image among the images of these rows.
    pub(super) fn key(&self, row: usize) -> Option<usize> {
        self.images?.key(row)
    }

    /// The file of a row's image. Rows and batches that see the same image share one buffer.
    pub(super) fn image(&self, row: usize) -> Option<&'r Buffer> {
        self.images?.values().as_binary_view_opt()?.data_buffers().get(self.key(row)?)
    }
}

/// Attaches images and poses to events of points.
pub(super) struct AttachImages {
    cameras: Vec<CameraState>,
    poses: ChannelReader,
    history: PoseHistory,
    max_age: u64,
    max_gap: i64,
    has_colour: bool,
    query: FoldQuery,
}

/// A camera and its last image in the log.
struct CameraState {
    reader: ChannelReader,
    last: Option<CameraImage>,
}

/// A row of points.
struct PointsRow {
    event: u32,
    rows: usize,
    time: i64,
    frame: PointFrame,
}

/// An image or pose decoded from an event.
enum Observation {
    Image(usize, CameraImage),
    Pose(Pose),
}

impl AttachImages {
    pub(super) fn new(
        lenses: Arc<[CameraChannel]>,
        options: &CameraOptions,
        registry: &Registry,
    ) -> Result<Self, OptionsError> {
        let mut channels = vec![options.pose.clone()];
        let mut cameras = Vec::with_capacity(lenses.len());
        for lens in lenses.iter() {
            let channel = Pattern::parse(&lens.channel);
            let channel = channel.map_err(|message| OptionsError::at("calibration", message))?;
            channels.push(channel.clone());
            cameras
                .push(CameraState { reader: ChannelReader::new(channel, registry)?, last: None });
        }
        let none = Patterns::default();
        Ok(Self {
            cameras,
            poses: ChannelReader::new(options.pose.clone(), registry)?,
            history: PoseHistory::default(),
            max_age: options.max_age.0,
            max_gap: options.max_gap.nanos(),
            has_colour: options.colour,
            query: FoldQuery {
                keeps_times: true,
                keeps_channels: true,
                also: Some(ChannelQuery::from_patterns(&Patterns(channels), &none, &none)),
                reach: query_reach(options),
            },
        })
    }

    /// The images and poses in the batch, in event order.
    fn observations(
        &self,
        batch: &Batch,
        context: &mut StageContext<'_>,
    ) -> Result<Vec<(u32, Observation)>, Error> {
        let poses = self.poses.read(batch, context)?;
        let mut observations: Vec<(u32, Observation)> =
            poses.into_iter().map(|(event, pose)| (event, Observation::Pose(pose))).collect();
        for (camera, seen) in self.cameras.iter().enumerate() {
            let images: Vec<(u32, CameraImage)> = seen.reader.read(batch, context)?;
            note_size_mismatches(batch, &images, context);
            observations.extend(
                images.into_iter().map(|(e, image)| (e, Observation::Image(camera, image))),
            );
        }
        observations.sort_by_key(|(event, _)| *event);
        Ok(observations)
    }

    fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Image(camera, image) => self.cameras[camera].last = Some(image),
            Observation::Pose(pose) => self.history.add(pose),
        }
    }

    /// The image of a camera on which points of this time are seen, with its view.
    fn view(
        &self,
        camera: usize,
        row: &PointsRow,
    ) -> Result<(&CameraImage, [f64; VIEW_WIDTH]), MissingInput> {
        let young = |image: &&CameraImage| image.time.abs_diff(row.time) <= self.max_age;
        let image = self.cameras[camera].last.as_ref().filter(young).ok_or(MissingInput::Image)?;
        let pose = match row.frame {
            PointFrame::Local => Some(self.pose(image.time).ok_or(MissingInput::Pose)?),
            PointFrame::Sensor | PointFrame::Body => None,
        };
        Ok((image, ImageView::numbers(image, pose.as_ref())))
    }

    /// The interpolated pose at a time, or the nearest one.
    fn pose(&self, time: i64) -> Option<Pose> {
        if let Ok(between) = self.history.interpolate(time, self.max_gap) {
            return Some(between);
        }
        let age = |pose: &&Pose| pose.time.abs_diff(time);
        let (before, after) = self.history.around(time);
        let nearest = before.into_iter().chain(after).min_by_key(age);
        nearest.filter(|pose| age(pose) <= MAX_POSE_AGE.unsigned_abs()).copied()
    }
}

/// How far before an event its images and poses can be in the log.
fn query_reach(options: &CameraOptions) -> i64 {
    let poses = MAX_POSE_AGE.max(options.max_gap.nanos());
    options.max_age.nanos().saturating_add(poses).saturating_add(2 * MAX_LOG_DELAY)
}

/// Notes images whose size differs from what their message says.
fn note_size_mismatches(
    batch: &Batch,
    images: &[(u32, CameraImage)],
    context: &mut StageContext<'_>,
) {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for (event, _) in images.iter().filter(|(_, image)| image.has_size_mismatch()) {
        *counts.entry(batch.channels()[*event as usize]).or_default() += 1;
    }
    for (channel, count) in counts {
        let channel = context.channels.get(ChannelId(channel));
        let what = "images whose size differs from their message; the size in the file is used";
        context.note(format!("{}: {what}", channel.name.text()), count);
    }
}

/// Why no camera sees an event of points.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MissingInput {
    Image,
    Pose,
}

impl MissingInput {
    fn as_str(self) -> &'static str {
        match self {
            Self::Image => "events without an image of any camera within `max_age`",
            Self::Pose => "events without a pose for the time of the images",
        }
    }
}

/// The views of a batch.
struct BatchViews {
    /// By rows, then by camera. Empty for rows that are not points.
    columns: Vec<Vec<ViewColumn>>,
    images: Vec<BatchImages>,
    /// Events that no camera sees, by channel and reason.
    missing: BTreeMap<(u32, MissingInput), u64>,
}

impl AttachImages {
    fn collect_views(
        &mut self,
        batch: &Batch,
        observations: Vec<(u32, Observation)>,
    ) -> Result<BatchViews, Error> {
        let mut observations = observations.into_iter().peekable();
        let mut gathered = BatchViews {
            columns: batch.rows().iter().map(|_| Vec::new()).collect(),
            images: self.cameras.iter().map(|_| BatchImages::default()).collect(),
            missing: BTreeMap::new(),
        };
        for row in points_rows(batch) {
            while let Some((_, observation)) = observations.next_if(|(event, _)| *event < row.event)
            {
                self.observe(observation);
            }
            if let Some(reason) = self.add_views(&row, &mut gathered)? {
                let channel = batch.channels()[row.event as usize];
                *gathered.missing.entry((channel, reason)).or_default() += 1;
            }
        }
        observations.for_each(|(_, observation)| self.observe(observation));
        Ok(gathered)
    }

    /// Adds the views of a row. Returns the reason if no camera sees it.
    fn add_views(
        &self,
        row: &PointsRow,
        gathered: &mut BatchViews,
    ) -> Result<Option<MissingInput>, Error> {
        let BatchViews { columns, images, .. } = gathered;
        let columns = &mut columns[row.rows];
        columns.resize_with(self.cameras.len(), ViewColumn::default);
        let mut reason = Some(MissingInput::Image);
        for (camera, column) in columns.iter_mut().enumerate() {
            match self.view(camera, row) {
                Ok((image, numbers)) => {
                    column.push(Some((images[camera].key(image)?, numbers)));
                    reason = None;
                }
                Err(why) => {
                    column.push(None);
                    reason = reason.map(|reason| reason.max(why));
                }
            }
        }
        Ok(reason)
    }
}

impl Fold for AttachImages {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let observations = self.observations(&batch, context)?;
        let BatchViews { columns, images, missing } = self.collect_views(&batch, observations)?;
        for ((channel, reason), count) in missing {
            let channel = context.channels.get(ChannelId(channel));
            context.note(format!("{}: {}", channel.name.text(), reason.as_str()), count);
        }
        let images =
            images.iter().map(|images| self.has_colour.then(|| images.array()).transpose());
        let images: Vec<Option<ArrayRef>> = images.collect::<Result<_, Error>>()?;
        let rows = batch.rows().iter().zip(columns).map(|(rows, columns)| {
            if columns.is_empty() { Ok(rows.clone()) } else { with_views(rows, &columns, &images) }
        });
        let rows = rows.collect::<Result<_, _>>()?;
        Ok(vec![batch.with_rows(rows)])
    }

    fn query(&self) -> FoldQuery {
        self.query.clone()
    }

    fn delays_events(&self) -> bool {
        false
    }
}

/// All rows of points in a batch, by event. Rows of one type keep their order.
fn points_rows(batch: &Batch) -> Vec<PointsRow> {
    let mut points_rows = Vec::new();
    for (rows, one) in batch.rows().iter().enumerate() {
        let Some(points) = Points::from_rows(one) else { continue };
        let (times, frame) = (points.times(batch.timestamps()), points.frame());
        for (event, time) in points.events().iter().zip(times) {
            points_rows.push(PointsRow { event: *event, rows, time, frame });
        }
    }
    points_rows.sort_by_key(|row| row.event);
    points_rows
}

/// The images of one camera that a batch refers to.
#[derive(Default)]
struct BatchImages(Vec<Buffer>);

impl BatchImages {
    /// The index of an image. Images arrive in log order, so it is the last one or new.
    fn key(&mut self, image: &CameraImage) -> Result<i32, Error> {
        let is_known = self.0.last().is_some_and(|last| last.ptr_eq(&image.bytes));
        if !is_known {
            self.0.push(image.bytes.clone());
        }
        i32::try_from(self.0.len() - 1).map_err(|_| Error::invalid("too many images in one batch"))
    }

    /// The images as an array that shares their buffers.
    fn array(&self) -> Result<ArrayRef, Error> {
        let mut views = BinaryViewBuilder::new();
        for image in &self.0 {
            let block = views.append_block(image.clone());
            let view = views.try_append_view(block, 0, image.len() as u32);
            view.map_err(|error| Error::internal(format!("images beside rows: {error}")))?;
        }
        Ok(Arc::new(views.finish()))
    }
}

/// The views of one camera for the rows of one type, in row order.
#[derive(Default)]
struct ViewColumn {
    keys: Vec<Option<i32>>,
    numbers: Vec<f64>,
}

impl ViewColumn {
    /// Adds the view of the next row.
    fn push(&mut self, view: Option<(i32, [f64; VIEW_WIDTH])>) {
        self.keys.push(view.map(|(key, _)| key));
        self.numbers.extend(view.map_or([0.0; VIEW_WIDTH], |(_, numbers)| numbers));
    }

    fn views(&self) -> ArrayRef {
        let element = Arc::new(Field::new_list_field(DataType::Float64, false));
        let numbers = Arc::new(Float64Array::from(self.numbers.clone()));
        let nulls = NullBuffer::from_iter(self.keys.iter().map(Option::is_some));
        Arc::new(FixedSizeListArray::new(element, VIEW_WIDTH as i32, numbers, Some(nulls)))
    }
}

/// The rows with their views as additional columns.
fn with_views(
    rows: &Rows,
    columns: &[ViewColumn],
    images: &[Option<ArrayRef>],
) -> Result<Rows, Error> {
    let Some(mut points) = Points::from_rows(rows) else { return Ok(rows.clone()) };
    for (camera, (carried, images)) in columns.iter().zip(images).enumerate() {
        let views = carried.views();
        let field = Field::new(view_column(camera), views.data_type().clone(), true);
        points = points.with_column(field, views);
        if let Some(images) = images {
            let keys = Int32Array::from(carried.keys.clone());
            let images = DictionaryArray::try_new(keys, Arc::clone(images))
                .map_err(|error| Error::internal(format!("images beside rows: {error}")))?;
            let field = Field::new(image_column(camera), images.data_type().clone(), true);
            points = points.with_column(field, Arc::new(images));
        }
    }
    Ok(points.into_rows())
}
