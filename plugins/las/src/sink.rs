//! Sink `las`: options, which events go to which file, and what is told of those that cannot.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use sluice_core::name::{file_name, portable, printable};
use sluice_core::options::OutPath;
use sluice_core::schemars::JsonSchema;
use sluice_core::{
    Batch, Channel, Clock, EncodeContext, Error, FieldPath, OrderedTasks, PerChannel, Sink,
    SinkContext,
};

use crate::cloud::{Absence, ByChannel, Part, PointLists, Taken, Wanted, rows_of_events};
use crate::file::PointFile;
use crate::pack::{self, CHUNK, Compression, Form, Packed, Transform, Version};
use crate::points::Points;

/// Options of `las`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_core::schemars")]
pub struct Las {
    /// The file to write; or, with a slash at its end, the folder for a file a channel.
    #[serde(deserialize_with = "path")]
    path: OutPath,
    /// The field that is the list of an event's points.
    #[serde(default = "points")]
    points: FieldPath,
    /// The members of a point that are its coordinates.
    #[serde(default = "xyz")]
    coordinates: [String; 3],
    /// How fine coordinates are written, as they are measured: a number, or one for each of the three.
    #[serde(default = "millimetre", deserialize_with = "scale")]
    #[schemars(with = "OneOrThree")]
    scale: [f64; 3],
    /// What coordinates are written relative to, three numbers. Without it, the first point rounded.
    #[serde(default, deserialize_with = "offset")]
    offset: Option<[f64; 3]>,
    /// The version of the format: `1.4`, or `1.2` for old viewers.
    #[serde(default)]
    version: Version,
    /// Whether points are compressed: `none` or `laz`. Told from the path if left out.
    #[serde(default)]
    compression: Option<Compression>,
    /// Whether points have colours: `auto` where the first ones have, `keep` always, `drop` never.
    #[serde(default)]
    colour: Colour,
    /// What intensities that are no whole numbers are multiplied by; files hold whole numbers to 65535.
    #[serde(default = "full_range", deserialize_with = "factor")]
    intensity_scale: f64,
    #[serde(skip)]
    names: PerChannel<Named>,
}

/// A channel, as it is told and as a file is called.
#[derive(Clone, Debug)]
struct Named {
    channel: Arc<str>,
    /// Without its ending.
    file: Arc<str>,
}

impl Named {
    fn of(channel: &Channel) -> Self {
        let name = channel.name.text();
        Self { channel: printable(name).into(), file: file_name(name).into() }
    }
}

/// Which files have colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_core::schemars")]
enum Colour {
    #[default]
    Auto,
    Keep,
    Drop,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number above 0, or three of them")]
#[schemars(crate = "sluice_core::schemars")]
enum OneOrThree {
    One(f64),
    Three([f64; 3]),
}

sluice_core::register! {
    sink "las": Las,
    about: "writes points of decoded events as LAS or LAZ files, for viewers of point clouds",
    sample: include_str!("../samples/las.toml"),
    extensions: &["las", "laz"],
}

fn points() -> FieldPath {
    FieldPath::column("points")
}

fn xyz() -> [String; 3] {
    ["x", "y", "z"].map(str::to_owned)
}

fn millimetre() -> [f64; 3] {
    [0.001; 3]
}

fn full_range() -> f64 {
    f64::from(u16::MAX)
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutPath, D::Error> {
    let path = OutPath::deserialize(deserializer)?;
    let is_packed = path.0.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("zst"));
    if !path.is_stdout() && (path.is_folder() || !is_packed) {
        return Ok(path);
    }
    Err(serde::de::Error::custom(
        "the head of a LAS file is written last, which needs a file that is neither standard output nor \
         compressed by `.zst`; a path that ends in `.laz` compresses points",
    ))
}

fn scale<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 3], D::Error> {
    let scale = match OneOrThree::deserialize(deserializer)? {
        OneOrThree::One(scale) => [scale; 3],
        OneOrThree::Three(scales) => scales,
    };
    if scale.iter().all(|scale| (1e-12..=1e12).contains(scale)) {
        return Ok(scale);
    }
    Err(serde::de::Error::custom("expected a number from 1e-12 to 1e12, or three of them"))
}

fn offset<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[f64; 3]>, D::Error> {
    let offset = <[f64; 3]>::deserialize(deserializer)?;
    if offset.iter().all(|value| value.abs() <= 1e15) {
        return Ok(Some(offset));
    }
    Err(serde::de::Error::custom("expected three numbers from -1e15 to 1e15"))
}

fn factor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let factor = f64::deserialize(deserializer)?;
    if (0.0..=1e12).contains(&factor) {
        return Ok(factor);
    }
    Err(serde::de::Error::custom("expected a number from 0 to 1e12"))
}

/// An offset chosen from the first point is a multiple of so many steps: 100 m where these are
/// millimetres.
const OFFSET_STEPS: f64 = 1e5;
/// How many of the ranges that 32 bits have points may lie from 0 while the offset is not chosen yet. More
/// is damage, and not a place on Earth in metres.
const REACH: f64 = 8.0;
/// How many files a folder may get, if memory allows them: each is held open.
const MOST_FILES: usize = 500;
/// Of so many channels is told by name what was left out.
const MOST_TOLD: usize = 20;

const TOO_FAR: &str = "points lie further from `offset` than 32 bits reach at this scale; choose another \
                       `offset`, or a larger `scale`";
const ABSURD: &str = "points lie too far out to be written at this scale; `filter` leaves such points out, \
                      and a larger `scale` reaches further";
const MORE_MEMBERS: &str = "of points only coordinates, intensity, laser, time and colour are written, and these only where they are \
     numbers (laser and colours whole ones, time a time)";
const RELATIVE: &str =
    "times that count from the start of a log are written as if they were of 1970";

/// The points of a batch, by the file they go to.
#[derive(Debug, Default)]
pub struct Cloud {
    parts: BTreeMap<Arc<str>, Part>,
    events: u64,
    /// The channels, as they were read, of events without points.
    without: Vec<u32>,
    told: Told,
}

/// What is told once.
#[derive(Debug, Default)]
struct Told {
    without: ByChannel,
    taken: Taken,
}

impl Told {
    fn add(&mut self, other: Self) {
        for (channel, count) in other.without {
            *self.without.entry(channel).or_default() += count;
        }
        self.taken.add(other.taken);
    }
}

/// The files in the making.
pub struct Files {
    context: SinkContext,
    /// In order of first appearance.
    files: Vec<(Arc<str>, PointFile)>,
    places: BTreeMap<Arc<str>, usize>,
    packed: OrderedTasks<(usize, Packed)>,
    most: usize,
    /// Channels of events that had no points, not yet told to the engine.
    left_out: Vec<u32>,
    told: Told,
    /// Points whose colours found no place.
    faded: u64,
}

impl Las {
    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            points: &self.points,
            coordinates: &self.coordinates,
            intensity_scale: self.intensity_scale,
        }
    }

    fn compression(&self) -> Compression {
        let is_laz = self.path.0.extension().is_some_and(|e| e.eq_ignore_ascii_case("laz"));
        let told =
            if is_laz && !self.path.is_folder() { Compression::Laz } else { Compression::None };
        self.compression.unwrap_or(told)
    }

    /// Why points from `from` on cannot be written, if that is so.
    fn unfit(&self, points: &Points, from: usize) -> Option<&'static str> {
        let places = points.place.get(from..).unwrap_or_default();
        if let Some(offset) = self.offset {
            let transform = Transform { scale: self.scale, offset };
            let fits = places.iter().all(|place| transform.steps(*place).is_some());
            return (!fits).then_some(TOO_FAR);
        }
        let reach = self.scale.map(|scale| scale * f64::from(i32::MAX) * REACH);
        let fits =
            |place: &[f64; 3]| place.iter().zip(reach).all(|(value, reach)| value.abs() <= reach);
        (!places.iter().all(fits)).then_some(ABSURD)
    }

    /// How coordinates of a file are written whose first point is there.
    fn transform(&self, first: Option<&[f64; 3]>) -> Transform {
        let near = |axis: usize| {
            let step = self.scale[axis] * OFFSET_STEPS;
            let first = first.map_or(0.0, |first| first[axis]);
            // Not minus zero.
            (first / step).round() * step + 0.0
        };
        let offset = self.offset.unwrap_or_else(|| [0, 1, 2].map(near));
        Transform { scale: self.scale, offset }
    }

    fn form(&self, first_has_colour: bool) -> Form {
        let has_colour = match self.colour {
            Colour::Auto => first_has_colour,
            Colour::Keep => true,
            Colour::Drop => false,
        };
        Form { version: self.version, compression: self.compression(), has_colour }
    }

    /// Begins the file of these points, which are its first.
    fn begin(&self, files: &mut Files, name: &Arc<str>, part: &Part) -> Result<usize, Error> {
        if files.files.len() >= files.most {
            return Err(Error::invalid(format!(
                "more than {} channels have points, and each file takes memory until the end; filter by \
                 channel, write one file, or give more `--memory`: {}",
                files.most,
                self.path.0.display()
            )));
        }
        let outputs = &files.context.outputs;
        let file = match self.path.is_folder() {
            true => outputs.create_below(&self.path.0)?,
            false => outputs.create_as_is(&self.path.0)?,
        };
        let transform = self.transform(part.points.place.first());
        let file = PointFile::new(file, self.form(part.first_has_colour), transform)?;
        files.files.push((Arc::clone(name), file));
        files.places.insert(Arc::clone(name), files.files.len() - 1);
        Ok(files.files.len() - 1)
    }

    fn add(&self, files: &mut Files, name: &Arc<str>, part: &Part) -> Result<(), Error> {
        let place = match files.places.get(name) {
            Some(place) => *place,
            None => self.begin(files, name, part)?,
        };
        let mut from = 0;
        while from < part.points.len() {
            let (taken, full) = files.files[place].1.take(&part.points, from);
            from += taken;
            if let Some(points) = full {
                files.pack(place, points)?;
            }
        }
        if self.colour != Colour::Drop && !files.files[place].1.form().0.has_colour {
            files.faded += part.coloured;
        }
        Ok(())
    }

    fn target(&self, name: &str) -> Option<PathBuf> {
        let ending = match self.compression() {
            Compression::None => "las",
            Compression::Laz => "laz",
        };
        self.path.is_folder().then(|| self.path.0.join(format!("{name}.{ending}")))
    }

    /// The points of a batch. An event whose points cannot be written is refused.
    fn cloud(&self, batch: &Batch, context: &mut EncodeContext<'_>) -> Result<Cloud, Error> {
        let wanted = self.wanted();
        let lists: Vec<Result<PointLists, Absence>> =
            batch.rows().iter().map(|rows| PointLists::of(rows, &wanted)).collect();
        let names = self.names.table(context.channels, |c| Ok(Named::of(c)))?;
        let (one, rows) = (Arc::<str>::from(""), rows_of_events(batch, &lists));
        let mut cloud = Cloud::default();
        for (event, found) in rows.into_iter().enumerate() {
            let channel = batch.channels()[event];
            let found = found.and_then(|(kind, row)| match &lists[kind] {
                Ok(list) => Ok((list, row)),
                Err(why) => Err(why.clone()),
            });
            let (list, row) = match found {
                Ok(found) => found,
                Err(why) => {
                    cloud.without.push(batch.origins()[event]);
                    let name = Arc::clone(&names[channel as usize].channel);
                    *cloud.told.without.entry((name, why)).or_default() += 1;
                    continue;
                }
            };
            let file = if self.path.is_folder() { &names[channel as usize].file } else { &one };
            if !cloud.parts.contains_key(file) {
                cloud.parts.insert(Arc::clone(file), Part::default());
            }
            let Some(part) = cloud.parts.get_mut(file) else { continue };
            let from = part.points.len();
            let taken = list.take(row, batch.timestamps()[event], &mut part.points);
            if let Some(why) = self.unfit(&part.points, from) {
                part.points.truncate(from);
                context.refused.push((event as u32, why.to_owned()));
                continue;
            }
            part.note_colour(from, list.has_colour());
            cloud.told.taken.add(taken);
            cloud.events += 1;
        }
        if lists.iter().flatten().any(|list| list.has_more) {
            context.losses.insert(MORE_MEMBERS);
        }
        Ok(cloud)
    }
}

impl Files {
    /// Has points packed beside everything else; writes what is ready and in turn.
    fn pack(&mut self, place: usize, points: Points) -> Result<(), Error> {
        let (form, transform) = self.files[place].1.form();
        let pack = move || Ok((place, pack::pack(&points, form, &transform)?));
        match self.packed.push(pack)? {
            Some((place, packed)) => self.files[place].1.write(&packed),
            None => Ok(()),
        }
    }
}

impl Sink for Las {
    type Block = Cloud;
    type Output = Files;

    fn targets(&self) -> Vec<PathBuf> {
        vec![self.path.0.clone()]
    }

    fn buffers_events(&self) -> bool {
        true
    }

    fn accepts_rows(&self) -> bool {
        true
    }

    fn open(&self, context: &SinkContext) -> Result<Files, Error> {
        if self.path.is_folder() {
            context.outputs.folder(&self.path.0)?;
        } else {
            context.outputs.check_target(&context.outputs.actual_path(&self.path.0))?;
        }
        let chunk = CHUNK * Points::BYTES;
        let under_way = (context.memory / 2 / chunk).clamp(1, context.tasks.width() + 2);
        Ok(Files {
            context: context.clone(),
            files: Vec::new(),
            places: BTreeMap::new(),
            packed: OrderedTasks::new(&context.tasks, under_way),
            most: (context.memory / 2 / chunk).clamp(1, MOST_FILES),
            left_out: Vec::new(),
            told: Told::default(),
            faded: 0,
        })
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Cloud, Error> {
        let cloud = self.cloud(&batch, context)?;
        let mut channels: Vec<u32> = batch.channels().to_vec();
        channels.dedup();
        let is_relative =
            |id: u32| context.channels.get(sluice_core::ChannelId(id)).clock == Clock::Relative;
        if cloud.events > 0 && channels.into_iter().any(is_relative) {
            context.losses.insert(RELATIVE);
        }
        Ok(cloud)
    }

    fn append(&self, files: &mut Files, cloud: Cloud) -> Result<u64, Error> {
        let Cloud { parts, events, without, told } = cloud;
        files.left_out.extend(without);
        files.told.add(told);
        for (name, part) in parts.iter().filter(|(_, part)| part.points.len() > 0) {
            self.add(files, name, part)?;
        }
        Ok(events)
    }

    fn take_skipped(&self, files: &mut Files) -> Vec<u32> {
        std::mem::take(&mut files.left_out)
    }

    fn notes(&self, files: &Files) -> Vec<(String, u64)> {
        let (told, taken) = (&files.told, files.told.taken);
        let counts = told.without.iter();
        let note = |((channel, why), count): (&(Arc<str>, Absence), &u64)| {
            (format!("{channel}: left out, {}", why.text(&self.points)), *count)
        };
        let mut notes: Vec<(String, u64)> = counts.clone().take(MOST_TOLD).map(note).collect();
        let others: u64 = counts.skip(MOST_TOLD).map(|(_, count)| count).sum();
        let more = [
            ("left out, there are no points on other channels either", others),
            ("points without a place (a coordinate is no number) are left out", taken.nowhere),
            (
                "intensities above 65535 are written as that; see `intensity_scale`",
                taken.too_bright,
            ),
            ("intensities below 0, or that are no number, are written as 0", taken.too_dark),
            ("values of `laser` that are not from 0 to 65535 are written as 0", taken.lasers),
            (
                "values of `time` before 1677 or after 2262 are left out; their event's is written",
                taken.times,
            ),
            ("colours that are not from 0 to 65535 are written as black", taken.colours),
            (
                "colours of points are not written, as the first points have none; see `colour`",
                files.faded,
            ),
        ];
        notes
            .extend(more.into_iter().filter(|(_, n)| *n > 0).map(|(what, n)| (what.to_owned(), n)));
        notes
    }

    fn finish(&self, mut files: Files) -> Result<u64, Error> {
        // A file without points is still a file.
        if !self.path.is_folder() && files.files.is_empty() {
            self.begin(&mut files, &Arc::from(""), &Part::default())?;
        }
        for place in 0..files.files.len() {
            if let Some(rest) = files.files[place].1.rest() {
                files.pack(place, rest)?;
            }
        }
        while let Some((place, packed)) = files.packed.take_oldest()? {
            files.files[place].1.write(&packed)?;
        }
        // Channels `a` and `A` must not get one file where case is ignored, nor `con` a device.
        let names = files.files.iter().map(|(name, _)| name.to_string());
        let otherwise = portable(names, ("", ".las"));
        for (name, file) in files.files {
            let target = self.target(otherwise.get(&*name).map_or(&*name, String::as_str));
            file.finish(target.as_deref().map(Path::new))?;
        }
        Ok(0)
    }
}
