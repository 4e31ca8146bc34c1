//! The fold: puts beside each event of points the images it can be seen on. Decodes and projects nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::BinaryViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, FixedSizeListArray, Float64Array, Int32Array};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType, Field};
use sluice_core::{
    Batch, ChannelId, ChannelQuery, Error, Fold, FoldQuery, OptionsError, Pattern, Patterns, Rows,
    StageContext,
};

use super::image::Image;
use super::{CameraOptions, Lens, image_column, view_column};
use crate::geometry::{Quaternion, Transform};
use crate::points::{Frame, Points};
use crate::poses::{Pose, Poses, Reader};

/// A pose farther from an image's moment says nothing of it.
const POSE_REACH: i64 = 1_000_000_000;
/// How much later than its message an event may be in the log.
const LATE: i64 = 1_000_000_000;
/// How many numbers a view is: width, height, position, orientation.
const WIDTH: usize = 9;

/// What is known of an image beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct View {
    /// Its size: that of the file, or else what the message says.
    pub(super) size: [u32; 2],
    /// From the body to the local frame at the image's moment; only for points in the local frame.
    pub(super) to_local: Transform,
}

impl View {
    fn numbers(image: &Image, pose: Option<&Pose>) -> [f64; WIDTH] {
        let (position, turned) =
            pose.map_or(([0.0; 3], Quaternion::IDENTITY), |pose| (pose.position, pose.orientation));
        let [x, y, z] = position;
        let Quaternion { w, x: qx, y: qy, z: qz } = turned;
        let [width, height] = image.size().map(f64::from);
        [width, height, x, y, z, w, qx, qy, qz]
    }

    /// The view that these numbers are; nothing if they are no view's.
    pub(super) fn of(numbers: &[f64]) -> Option<Self> {
        let [width, height, px, py, pz, w, x, y, z] = *numbers else { return None };
        let to_local = Transform::new([px, py, pz], &Quaternion { w, x, y, z });
        Some(Self { size: [width as u32, height as u32], to_local })
    }
}

/// The views that rows have of a camera's images.
pub(super) struct Views<'r> {
    numbers: Option<&'r FixedSizeListArray>,
    images: Option<&'r DictionaryArray<Int32Type>>,
}

impl<'r> Views<'r> {
    /// Those that the fold has put beside the points.
    pub(super) fn of(points: &'r Points, camera: usize) -> Self {
        let numbers = points.column(&view_column(camera));
        let numbers = numbers.and_then(|numbers| numbers.as_fixed_size_list_opt());
        let images = points.column(&image_column(camera));
        let images = images.and_then(|images| images.as_dictionary_opt::<Int32Type>());
        Self { numbers: numbers.filter(|n| n.value_length() == WIDTH as i32), images }
    }

    /// The numbers of a row's view: equal ones are one view, if the images are, too.
    pub(super) fn numbers(&self, row: usize) -> Option<&'r [f64]> {
        let lists = self.numbers.filter(|lists| lists.is_valid(row))?;
        let values = lists.values().as_primitive_opt::<Float64Type>()?;
        values.values().get(row * WIDTH..(row + 1) * WIDTH)
    }

    /// The number of a row's image among those of these rows.
    pub(super) fn key(&self, row: usize) -> Option<usize> {
        self.images?.key(row)
    }

    /// The file of a row's image, which all rows that see it share, in other batches too.
    pub(super) fn image(&self, row: usize) -> Option<&'r Buffer> {
        self.images?.values().as_binary_view_opt()?.data_buffers().get(self.key(row)?)
    }
}

/// The fold.
pub(super) struct Carry {
    cameras: Vec<Seen>,
    poses: Reader,
    history: Poses,
    max_age: u64,
    max_gap: i64,
    has_colour: bool,
    query: FoldQuery,
}

/// A camera, and the last image of it in the log.
struct Seen {
    reader: Reader,
    last: Option<Image>,
}

/// A row of points.
struct Ask {
    event: u32,
    rows: usize,
    time: i64,
    frame: Frame,
}

/// What an event of a batch says.
enum News {
    Image(usize, Image),
    Pose(Pose),
}

impl Carry {
    pub(super) fn new(lenses: Arc<[Lens]>, options: &CameraOptions) -> Result<Self, OptionsError> {
        let mut channels = vec![options.pose.clone()];
        let mut cameras = Vec::with_capacity(lenses.len());
        for lens in lenses.iter() {
            let channel = Pattern::parse(&lens.channel);
            let channel = channel.map_err(|message| OptionsError::at("calibration", message))?;
            channels.push(channel.clone());
            cameras.push(Seen { reader: Reader::new(channel)?, last: None });
        }
        let none = Patterns::default();
        Ok(Self {
            cameras,
            poses: Reader::new(options.pose.clone())?,
            history: Poses::default(),
            max_age: options.max_age.0.unsigned_abs(),
            max_gap: options.max_gap.0,
            has_colour: options.colour,
            query: FoldQuery {
                keeps_times: true,
                keeps_channels: true,
                also: Some(ChannelQuery::from_patterns(&Patterns(channels), &none, &none)),
                reach: reach(options),
            },
        })
    }

    /// What the batch's events say of images and poses, in order.
    fn news(
        &self,
        batch: &Batch,
        context: &mut StageContext<'_>,
    ) -> Result<Vec<(u32, News)>, Error> {
        let poses = self.poses.read(batch, context)?;
        let mut news: Vec<(u32, News)> =
            poses.into_iter().map(|(event, pose)| (event, News::Pose(pose))).collect();
        for (camera, seen) in self.cameras.iter().enumerate() {
            let images: Vec<(u32, Image)> = seen.reader.read(batch, context)?;
            note_sizes(batch, &images, context);
            news.extend(images.into_iter().map(|(e, image)| (e, News::Image(camera, image))));
        }
        news.sort_by_key(|(event, _)| *event);
        Ok(news)
    }

    fn learn(&mut self, news: News) {
        match news {
            News::Image(camera, image) => self.cameras[camera].last = Some(image),
            News::Pose(pose) => self.history.note(pose),
        }
    }

    /// The image of a camera that points of that moment are seen on, with its view.
    fn view(&self, camera: usize, ask: &Ask) -> Result<(&Image, [f64; WIDTH]), Lack> {
        let young = |image: &&Image| image.time.abs_diff(ask.time) <= self.max_age;
        let image = self.cameras[camera].last.as_ref().filter(young).ok_or(Lack::Image)?;
        let pose = match ask.frame {
            Frame::Local => Some(self.pose(image.time).ok_or(Lack::Pose)?),
            Frame::Sensor | Frame::Body => None,
        };
        Ok((image, View::numbers(image, pose.as_ref())))
    }

    /// The pose between those around a moment, or the nearest one.
    fn pose(&self, time: i64) -> Option<Pose> {
        if let Ok(between) = self.history.interpolate(time, self.max_gap) {
            return Some(between);
        }
        let age = |pose: &&Pose| pose.time.abs_diff(time);
        let (before, after) = self.history.around(time);
        let nearest = before.into_iter().chain(after).min_by_key(age);
        nearest.filter(|pose| age(pose) <= POSE_REACH.unsigned_abs()).copied()
    }
}

/// How far before an event that can be which says something of it.
fn reach(options: &CameraOptions) -> i64 {
    let poses = POSE_REACH.max(options.max_gap.0);
    options.max_age.0.saturating_add(poses).saturating_add(2 * LATE)
}

/// Tells of images whose message says that they are larger or smaller than they are.
fn note_sizes(batch: &Batch, images: &[(u32, Image)], context: &mut StageContext<'_>) {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for (event, _) in images.iter().filter(|(_, image)| image.has_another_size()) {
        *counts.entry(batch.channels()[*event as usize]).or_default() += 1;
    }
    for (channel, count) in counts {
        let channel = context.channels.get(ChannelId(channel));
        let what = "images of another size than their messages say; that of the file counts";
        context.note(format!("{}: {what}", channel.name.text()), count);
    }
}

/// What events of points lack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    Image,
    Pose,
}

impl Lack {
    fn words(self) -> &'static str {
        match self {
            Self::Image => "no camera has an image of the moment of these events",
            Self::Pose => "no pose is known for the moment of the images",
        }
    }
}

/// What is found for the events of a batch.
struct Gathered {
    /// By rows, then by camera; nothing for rows that are no points.
    columns: Vec<Vec<Carried>>,
    images: Vec<Images>,
    /// Events that no camera can see, by channel and reason.
    lacking: BTreeMap<(u32, Lack), u64>,
}

impl Carry {
    fn gather(&mut self, batch: &Batch, news: Vec<(u32, News)>) -> Result<Gathered, Error> {
        let mut news = news.into_iter().peekable();
        let mut gathered = Gathered {
            columns: batch.rows().iter().map(|_| Vec::new()).collect(),
            images: self.cameras.iter().map(|_| Images::default()).collect(),
            lacking: BTreeMap::new(),
        };
        for ask in asks(batch) {
            while let Some((_, news)) = news.next_if(|(event, _)| *event < ask.event) {
                self.learn(news);
            }
            if let Some(lack) = self.answer(&ask, &mut gathered)? {
                let channel = batch.channels()[ask.event as usize];
                *gathered.lacking.entry((channel, lack)).or_default() += 1;
            }
        }
        news.for_each(|(_, news)| self.learn(news));
        Ok(gathered)
    }

    /// Adds what a row sees. What it lacks, if no camera sees it.
    fn answer(&self, ask: &Ask, gathered: &mut Gathered) -> Result<Option<Lack>, Error> {
        let Gathered { columns, images, .. } = gathered;
        let columns = &mut columns[ask.rows];
        columns.resize_with(self.cameras.len(), Carried::default);
        let mut lack = Some(Lack::Image);
        for (camera, column) in columns.iter_mut().enumerate() {
            match self.view(camera, ask) {
                Ok((image, numbers)) => {
                    column.push(Some((images[camera].key(image)?, numbers)));
                    lack = None;
                }
                Err(why) => {
                    column.push(None);
                    lack = lack.map(|lack| lack.max(why));
                }
            }
        }
        Ok(lack)
    }
}

impl Fold for Carry {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let news = self.news(&batch, context)?;
        let Gathered { columns, images, lacking } = self.gather(&batch, news)?;
        for ((channel, lack), count) in lacking {
            let channel = context.channels.get(ChannelId(channel));
            context.note(format!("{}: {}", channel.name.text(), lack.words()), count);
        }
        let images =
            images.iter().map(|images| self.has_colour.then(|| images.array()).transpose());
        let images: Vec<Option<ArrayRef>> = images.collect::<Result<_, Error>>()?;
        let rows = batch.rows().iter().zip(columns).map(|(rows, columns)| {
            if columns.is_empty() { Ok(rows.clone()) } else { attached(rows, &columns, &images) }
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

/// All rows of points of a batch, by event; those of a type in their order.
fn asks(batch: &Batch) -> Vec<Ask> {
    let mut asks = Vec::new();
    for (rows, one) in batch.rows().iter().enumerate() {
        let Some(points) = Points::of(one) else { continue };
        let (times, frame) = (points.times(batch.timestamps()), points.frame());
        for (event, time) in points.events().iter().zip(times) {
            asks.push(Ask { event: *event, rows, time, frame });
        }
    }
    asks.sort_by_key(|ask| ask.event);
    asks
}

/// The images of a camera that the events of a batch see.
#[derive(Default)]
struct Images(Vec<Buffer>);

impl Images {
    /// The number of an image. They come in the order of the log: it is the last one, or new.
    fn key(&mut self, image: &Image) -> Result<i32, Error> {
        let is_known = self.0.last().is_some_and(|last| last.ptr_eq(&image.bytes));
        if !is_known {
            self.0.push(image.bytes.clone());
        }
        i32::try_from(self.0.len() - 1).map_err(|_| Error::invalid("too many images in one batch"))
    }

    /// The files as they are, none copied: buffer by buffer.
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

/// What the rows of a type see of one camera, in the order of the rows.
#[derive(Default)]
struct Carried {
    keys: Vec<Option<i32>>,
    numbers: Vec<f64>,
}

impl Carried {
    /// Adds the next row.
    fn push(&mut self, view: Option<(i32, [f64; WIDTH])>) {
        self.keys.push(view.map(|(key, _)| key));
        self.numbers.extend(view.map_or([0.0; WIDTH], |(_, numbers)| numbers));
    }

    fn views(&self) -> ArrayRef {
        let element = Arc::new(Field::new_list_field(DataType::Float64, false));
        let numbers = Arc::new(Float64Array::from(self.numbers.clone()));
        let nulls = NullBuffer::from_iter(self.keys.iter().map(Option::is_some));
        Arc::new(FixedSizeListArray::new(element, WIDTH as i32, numbers, Some(nulls)))
    }
}

/// The rows with what they see beside them.
fn attached(rows: &Rows, columns: &[Carried], images: &[Option<ArrayRef>]) -> Result<Rows, Error> {
    let Some(mut points) = Points::of(rows) else { return Ok(rows.clone()) };
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
