//! Sink `las`: options, the assignment of events to files, and notes about what cannot be written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use sluice_io::escape::{file_name, portable, printable};
use sluice_model::options::OutPath;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, Channel, Clock, Error, FieldPath, Job, PerChannel, PrepareContext, Sink, SinkContext,
    SinkInput, SinkTraits, Written,
};

use crate::cloud::{
    Absence, AbsenceCounts, ColourLosses, FilePoints, LossCounts, PointFields, PointLists,
    rows_of_events,
};
use crate::file::PointFile;
use crate::options::{
    ColourPolicy, OneOrThree, factor, full_range, millimetre, offset, path, points, scale, xyz,
};
use crate::pack::{
    self, CHUNK, CoordinateTransform, LasCompression, LasVersion, PackedChunk, RecordFormat,
};
use crate::points::PointColumns;

/// Options of `las`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub struct LasSink {
    /// The file to write; or, with a trailing slash, a folder with one file per channel.
    #[serde(deserialize_with = "path")]
    path: OutPath,
    /// The field with an event's list of points.
    #[serde(default = "points")]
    points: FieldPath,
    /// The members of a point that are its coordinates.
    #[serde(default = "xyz")]
    coordinates: [String; 3],
    /// Resolution of the coordinates, in their unit: a number, or one per coordinate.
    #[serde(default = "millimetre", deserialize_with = "scale")]
    #[schemars(with = "OneOrThree")]
    scale: [f64; 3],
    /// Origin of the coordinates: three numbers. Default: the first point, rounded.
    #[serde(default, deserialize_with = "offset")]
    offset: Option<[f64; 3]>,
    /// Format version: `1.4`, or `1.2` for old viewers.
    #[serde(default)]
    version: LasVersion,
    /// Compression: `none` or `laz`. Default: from the extension of the path.
    #[serde(default)]
    compression: Option<LasCompression>,
    /// Colours: `auto` if the first points have some, `keep` always, `drop` never.
    #[serde(default)]
    colour: ColourPolicy,
    /// Factor for intensities that are not integers; files hold integers up to 65535.
    #[serde(default = "full_range", deserialize_with = "factor")]
    intensity_scale: f64,
    #[serde(skip)]
    names: PerChannel<ChannelFile>,
}

sluice_model::register! {
    sink "las": LasSink,
    about: "writes points of decoded events as LAS or LAZ files, for point cloud viewers",
    sample: include_str!("../samples/las.toml"),
    extensions: &["las", "laz"],
}

/// A default offset is a multiple of this many steps: 100 m if a step is a millimetre.
const OFFSET_STEPS: f64 = 1e5;
/// Maximum distance of points from 0 before the offset is chosen, in multiples of the 32-bit range.
/// Farther points are damage rather than a position on Earth in metres.
const MAX_REACH: f64 = 8.0;
/// Maximum number of files in a folder, if memory allows: each is kept open.
const MAX_FILES: usize = 500;
/// Maximum number of channels that are noted by name.
const MAX_NAMED_CHANNELS: usize = 20;

const TOO_FAR: &str = "points farther from `offset` than 32 bits reach at this scale; use another \
                       `offset`, or a larger `scale`";
const TOO_FAR_OUT: &str = "points too far out for this scale; drop such events with `filter`, \
                      or use a larger `scale`";
const OTHER_MEMBERS: &str = "members of points other than coordinates, intensity, laser, time and \
                             colour are not written, nor are these if their type does not fit \
                             (laser and colours need integers, time a timestamp)";
const RELATIVE_TIMES: &str =
    "times relative to the start of a log are written as if they started in 1970";

/// The points of a batch, by file.
#[derive(Debug, Default)]
pub struct PointBatch {
    parts: BTreeMap<Arc<str>, FilePoints>,
    events: u64,
    /// The original channels of events without points.
    without: Vec<u32>,
    losses: PointLosses,
}

/// The name of a channel, for notes and for its file.
#[derive(Clone, Debug)]
struct ChannelFile {
    channel: Arc<str>,
    /// Without the extension.
    file: Arc<str>,
}

impl ChannelFile {
    fn new(channel: &Channel) -> Self {
        let name = channel.name.text();
        Self { channel: printable(name).into(), file: file_name(name).into() }
    }
}

/// Values and events that could not be written, noted at the end.
#[derive(Debug, Default)]
struct PointLosses {
    without: AbsenceCounts,
    counts: LossCounts,
}

impl PointLosses {
    fn add(&mut self, other: Self) {
        for (channel, count) in other.without {
            *self.without.entry(channel).or_default() += count;
        }
        self.counts.add(other.counts);
    }
}

/// The open files.
pub struct OpenFiles {
    context: SinkContext,
    /// In order of first appearance.
    open: Vec<(Arc<str>, PointFile)>,
    index_by_name: BTreeMap<Arc<str>, usize>,
    max_files: usize,
    /// What became of events and is not yet reported to the engine.
    unreported: Written,
    losses: PointLosses,
    /// What was lost of the colours in files that have them.
    colour_losses: ColourLosses,
    /// Number of points whose colours were dropped.
    dropped_colours: u64,
}

impl LasSink {
    fn point_fields(&self) -> PointFields<'_> {
        PointFields {
            points: &self.points,
            coordinates: &self.coordinates,
            intensity_scale: self.intensity_scale,
        }
    }

    fn compression(&self) -> LasCompression {
        let is_laz = self.path.0.extension().is_some_and(|e| e.eq_ignore_ascii_case("laz"));
        let from_path = if is_laz && !self.path.is_folder() {
            LasCompression::Laz
        } else {
            LasCompression::None
        };
        self.compression.unwrap_or(from_path)
    }

    /// Why the points from `from` on cannot be written, if they cannot.
    fn unwritable_reason(&self, points: &PointColumns, from: usize) -> Option<&'static str> {
        let positions = points.position.get(from..).unwrap_or_default();
        if let Some(offset) = self.offset {
            let transform = CoordinateTransform { scale: self.scale, offset };
            let fits = positions.iter().all(|position| transform.steps(*position).is_some());
            return (!fits).then_some(TOO_FAR);
        }
        let reach = self.scale.map(|scale| scale * f64::from(i32::MAX) * MAX_REACH);
        let fits = |position: &[f64; 3]| {
            position.iter().zip(reach).all(|(value, reach)| value.abs() <= reach)
        };
        (!positions.iter().all(fits)).then_some(TOO_FAR_OUT)
    }

    /// The coordinate transform of a file with this first point.
    fn transform(&self, first: Option<&[f64; 3]>) -> CoordinateTransform {
        let near = |axis: usize| {
            let step = self.scale[axis] * OFFSET_STEPS;
            let first = first.map_or(0.0, |first| first[axis]);
            // Adding 0 turns -0 into 0.
            (first / step).round() * step + 0.0
        };
        let offset = self.offset.unwrap_or_else(|| [0, 1, 2].map(near));
        CoordinateTransform { scale: self.scale, offset }
    }

    fn form(&self, first_has_colour: bool) -> RecordFormat {
        let has_colour = match self.colour {
            ColourPolicy::Auto => first_has_colour,
            ColourPolicy::Keep => true,
            ColourPolicy::Drop => false,
        };
        RecordFormat { version: self.version, compression: self.compression(), has_colour }
    }

    /// Opens the file whose first points these are.
    fn open_file(
        &self,
        files: &mut OpenFiles,
        name: &Arc<str>,
        part: &FilePoints,
    ) -> Result<usize, Error> {
        if files.open.len() >= files.max_files {
            return Err(Error::invalid(format!(
                "more than {} channels have points, and each open file takes memory; filter by \
                 channel, write a single file, or give more `--memory`: {}",
                files.max_files,
                self.path.0.display()
            )));
        }
        let outputs = &files.context.outputs;
        let file = match self.path.is_folder() {
            true => outputs.create_below(&self.path.0)?,
            false => outputs.create_as_is(&self.path.0)?,
        };
        let transform = self.transform(part.points.position.first());
        let file = PointFile::new(file, self.form(part.first_has_colour), transform)?;
        files.open.push((Arc::clone(name), file));
        files.index_by_name.insert(Arc::clone(name), files.open.len() - 1);
        Ok(files.open.len() - 1)
    }

    fn gather_points(
        &self,
        files: &mut OpenFiles,
        name: &Arc<str>,
        part: &FilePoints,
        chunks: &mut Vec<Job<(usize, PackedChunk)>>,
    ) -> Result<(), Error> {
        let index = match files.index_by_name.get(name) {
            Some(index) => *index,
            None => self.open_file(files, name, part)?,
        };
        let mut from = 0;
        while from < part.points.len() {
            let (added, full) = files.open[index].1.fill_chunk(&part.points, from);
            from += added;
            if let Some(points) = full {
                chunks.push(files.pack(index, points));
            }
        }
        if files.open[index].1.form().0.has_colour {
            files.colour_losses.add(part.colour_losses);
        } else if self.colour != ColourPolicy::Drop {
            files.dropped_colours += part.coloured;
        }
        Ok(())
    }

    /// Notes about the whole output.
    fn notes(&self, files: &OpenFiles) -> Vec<(String, u64)> {
        let (counts, colours) = (files.losses.counts, files.colour_losses);
        // A list without the right members says more than a channel without points.
        let mut absences: Vec<_> = files.losses.without.iter().collect();
        absences.sort_by_key(|((_, reason), _)| *reason == Absence::NoField);
        let note = |((channel, reason), count): &(&(Arc<str>, Absence), &u64)| {
            (format!("{channel}: left out, {}", reason.text(&self.points)), **count)
        };
        let (named, others) = absences.split_at(absences.len().min(MAX_NAMED_CHANNELS));
        let mut notes: Vec<(String, u64)> = named.iter().map(note).collect();
        let others: u64 = others.iter().map(|(_, count)| **count).sum();
        let more = [
            ("left out, no points on further channels", others),
            (
                "points with a coordinate that is not a finite number; left out",
                counts.without_position,
            ),
            ("intensities above 65535, written as 65535; see `intensity_scale`", counts.too_bright),
            ("intensities below 0 or not a number, written as 0", counts.too_dark),
            ("values of `laser` outside 0 to 65535, written as 0", counts.lasers),
            (
                "values of `time` before 1677 or after 2262, replaced by the time of their event",
                counts.times,
            ),
            ("colours outside 0 to 65535, written as black", colours.unfit),
            ("colours of which a component is null, written as black", colours.partial),
            ("intensities that are null, written as 0", counts.null_intensities),
            ("values of `laser` that are null, written as 0", counts.null_lasers),
            (
                "values of `time` that are null, replaced by the time of their event",
                counts.null_times,
            ),
            ("colours that are null, written as black", colours.null),
            (
                "colours of points, not written since the first points have none; see `colour`",
                files.dropped_colours,
            ),
        ];
        notes
            .extend(more.into_iter().filter(|(_, n)| *n > 0).map(|(what, n)| (what.to_owned(), n)));
        notes
    }

    fn target(&self, name: &str) -> Option<PathBuf> {
        let ending = match self.compression() {
            LasCompression::None => "las",
            LasCompression::Laz => "laz",
        };
        self.path.is_folder().then(|| self.path.0.join(format!("{name}.{ending}")))
    }

    /// The points of a batch. Events whose points cannot be written are refused.
    fn point_batch(
        &self,
        batch: &Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<PointBatch, Error> {
        let fields = self.point_fields();
        let lists: Vec<Result<PointLists, Absence>> =
            batch.rows().iter().map(|rows| PointLists::from_rows(rows, &fields)).collect();
        let names = self.names.table(context.channels, |c| Ok(ChannelFile::new(c)))?;
        let (one, rows) = (Arc::<str>::from(""), rows_of_events(batch, &lists));
        let mut cloud = PointBatch::default();
        for (event, found) in rows.into_iter().enumerate() {
            let channel = batch.channels()[event];
            let found = found.and_then(|(kind, row)| match &lists[kind] {
                Ok(list) => Ok((list, row)),
                Err(reason) => Err(reason.clone()),
            });
            let (list, row) = match found {
                Ok(found) => found,
                Err(reason) => {
                    cloud.without.push(batch.origins()[event]);
                    let name = Arc::clone(&names[channel as usize].channel);
                    *cloud.losses.without.entry((name, reason)).or_default() += 1;
                    continue;
                }
            };
            let file = if self.path.is_folder() { &names[channel as usize].file } else { &one };
            if !cloud.parts.contains_key(file) {
                cloud.parts.insert(Arc::clone(file), FilePoints::default());
            }
            let Some(part) = cloud.parts.get_mut(file) else { continue };
            let from = part.points.len();
            let (counts, colours) =
                list.append_row(row, batch.timestamps()[event], &mut part.points);
            if let Some(reason) = self.unwritable_reason(&part.points, from) {
                part.points.truncate(from);
                context.report.refused.push((event as u32, reason.to_owned()));
                continue;
            }
            part.note_colour(from, list.has_colour(), colours);
            cloud.losses.counts.add(counts);
            cloud.events += 1;
        }
        if lists.iter().flatten().any(|list| list.has_other_members) {
            context.report.losses.insert(OTHER_MEMBERS);
        }
        Ok(cloud)
    }
}

impl OpenFiles {
    /// The job of encoding a chunk.
    fn pack(&self, index: usize, points: PointColumns) -> Job<(usize, PackedChunk)> {
        let (form, transform) = self.open[index].1.form();
        let pack = move || Ok((index, pack::pack(&points, form, &transform)?));
        Job::new(CHUNK * PointColumns::BYTES, pack)
    }
}

impl Sink for LasSink {
    type Block = PointBatch;
    type Unit = (usize, PackedChunk);
    type Output = OpenFiles;

    fn traits(&self) -> SinkTraits {
        SinkTraits { buffers_events: true, ..SinkTraits::writing(&self.path.0).with_rows(true) }
    }

    fn open(&self, context: &SinkContext) -> Result<OpenFiles, Error> {
        if self.path.is_folder() {
            context.outputs.folder(&self.path.0)?;
        } else {
            context.outputs.check_target(&context.outputs.actual_path(&self.path.0))?;
        }
        let chunk = CHUNK * PointColumns::BYTES;
        Ok(OpenFiles {
            context: context.clone(),
            open: Vec::new(),
            index_by_name: BTreeMap::new(),
            max_files: (context.memory / 2 / chunk).clamp(1, MAX_FILES),
            unreported: Written::default(),
            losses: PointLosses::default(),
            colour_losses: ColourLosses::default(),
            dropped_colours: 0,
        })
    }

    fn prepare(&self, batch: Batch, context: &mut PrepareContext<'_>) -> Result<PointBatch, Error> {
        let cloud = self.point_batch(&batch, context)?;
        let mut channels: Vec<u32> = batch.channels().to_vec();
        channels.dedup();
        let is_relative =
            |id: u32| context.channels.get(sluice_model::ChannelId(id)).clock == Clock::Relative;
        if cloud.events > 0 && channels.into_iter().any(is_relative) {
            context.report.losses.insert(RELATIVE_TIMES);
        }
        Ok(cloud)
    }

    fn gather(
        &self,
        files: &mut OpenFiles,
        input: SinkInput<PointBatch>,
    ) -> Result<Vec<Job<Self::Unit>>, Error> {
        let mut chunks = Vec::new();
        match input {
            SinkInput::Block(PointBatch { parts, events, without: skipped, losses }) => {
                files.unreported.add(Written { events, skipped, ..Written::default() });
                files.losses.add(losses);
                for (name, part) in parts.iter().filter(|(_, part)| part.points.len() > 0) {
                    self.gather_points(files, name, part, &mut chunks)?;
                }
            }
            // A short chunk is the last one of its file.
            SinkInput::Flush => {}
            SinkInput::End => {
                // A file without points is still written.
                if !self.path.is_folder() && files.open.is_empty() {
                    self.open_file(files, &Arc::from(""), &FilePoints::default())?;
                }
                for index in 0..files.open.len() {
                    let rest = files.open[index].1.take_rest();
                    chunks.extend(rest.map(|rest| files.pack(index, rest)));
                }
            }
        }
        Ok(chunks)
    }

    fn write(
        &self,
        files: &mut OpenFiles,
        (index, packed): (usize, PackedChunk),
    ) -> Result<Written, Error> {
        files.open[index].1.write(&packed)?;
        Ok(std::mem::take(&mut files.unreported))
    }

    fn finish(&self, mut files: OpenFiles) -> Result<Written, Error> {
        let mut written = std::mem::take(&mut files.unreported);
        written.notes = self.notes(&files);
        // Channels `a` and `A` must not share a file on case-insensitive systems, nor `con` name a
        // device.
        let names = files.open.iter().map(|(name, _)| name.to_string());
        let otherwise = portable(names, ("", ".las"));
        for (name, file) in files.open {
            let target = self.target(otherwise.get(&*name).map_or(&*name, String::as_str));
            file.finish(target.as_deref().map(Path::new))?;
        }
        Ok(written)
    }
}
