//! The figures of a log: everything that the page shows, that its JSON holds, and that
//! expectations are compared with.
//!
//! Holds no events, and nothing about the machine or the run: the same log gives the same figures,
//! whatever the number of threads.

use std::collections::BTreeMap;

use serde::Serialize;
use sluice_io::escape::json_escaped;
use sluice_model::Error;

/// The figures of all events that reached a sink or stage. Times are nanoseconds since 1970, or
/// since the start of the log where its clock is relative.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The inputs, in reading order.
    pub inputs: Vec<InputFigures>,
    /// The number of events.
    pub events: u64,
    /// Bytes of payload; `None` if some events are decoded and have none.
    pub bytes: Option<u64>,
    /// The time of the earliest event; `None` without events.
    pub start: Option<i64>,
    /// The time of the latest event.
    pub end: Option<i64>,
    /// Where the axis of time starts: at the earliest event that is not far from all others.
    pub axis_start: Option<i64>,
    /// Where it ends.
    pub axis_end: Option<i64>,
    /// Events that are so far from all others that they are not on it.
    pub off_axis: u64,
    /// Whether times are relative to the start of the log.
    pub is_relative: bool,
    /// Events whose time is earlier than that of the event before them.
    pub steps_back: u64,
    /// Events whose number does not follow that of the event before them: lost, or left out. `None`
    /// if no number follows the one before, so that the numbers are no sequence.
    pub sequence_jumps: Option<u64>,
    /// Events whose time does not fit into 64 bits.
    pub wide_times: u64,
    /// The buckets of time that all counts and series below share.
    pub grid: TimeGrid,
    /// By bytes, most first.
    pub channels: Vec<ChannelFigures>,
    /// Ways in metres, by channel.
    pub tracks: Vec<TrackFigures>,
    /// Positions on the globe, by channel.
    pub fixes: Vec<FixFigures>,
    /// Pictures, by channel.
    pub pictures: Vec<PictureFigures>,
    /// One revolution or scan of each laser, seen from above.
    pub clouds: Vec<CloudFigures>,
    /// What a reader should know first, worst first.
    pub findings: Vec<Finding>,
    /// What was left out to keep the report small, by subject.
    pub thinned: Vec<Thinned>,
    /// How the report was made.
    pub provenance: Provenance,
}

impl Figures {
    /// All figures as JSON, in one line without characters that control a terminal.
    pub fn to_json(&self) -> Result<String, Error> {
        let json = serde_json::to_string(self)
            .map_err(|e| Error::internal(format!("the figures are no JSON: {e}")))?;
        Ok(json_escaped(&json).into_owned())
    }
}

/// An input.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InputFigures {
    /// Its file name, without folders.
    pub name: String,
    /// Its length in bytes, if it has one.
    pub bytes: Option<u64>,
    /// The BLAKE3 hash of its bytes, if it could be read twice.
    pub blake3: Option<String>,
    /// The number of damaged ranges.
    pub damaged_ranges: u64,
    /// Their bytes.
    pub damaged_bytes: u64,
    /// The first of them by offset.
    pub damage: Vec<DamagedRange>,
    /// Damaged bytes in each of a thousand equal parts of the input; empty if nothing is damaged
    /// or its length is unknown.
    pub damage_by_part: Vec<u64>,
}

/// A range of an input that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DamagedRange {
    /// Its start, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// What is wrong.
    pub reason: String,
}

/// Equal buckets of time. Their width is a power of two in nanoseconds, and each starts at a
/// multiple of it, so that partial results can be added exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimeGrid {
    /// The start of the first bucket.
    pub start: i64,
    /// The width of a bucket, in nanoseconds; 0 without events.
    pub width: u64,
    /// The number of buckets, at most 1,000.
    pub buckets: usize,
}

/// The figures of a channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChannelFigures {
    /// Its name.
    pub name: String,
    /// Its source.
    pub source: String,
    /// How its payloads are encoded.
    pub encoding: String,
    /// The most common types of its payloads.
    pub types: Vec<NamedType>,
    /// The number of events.
    pub events: u64,
    /// Bytes of payload; `None` if some events are decoded and have none.
    pub bytes: Option<u64>,
    /// Events without decoded fields: all of them if nothing decodes.
    pub undecoded: u64,
    /// The time of the first of them in the order of the log.
    pub first_undecoded: Option<i64>,
    /// The time of its earliest event.
    pub first: i64,
    /// The time of its latest event.
    pub last: i64,
    /// Events that are earlier than the one before them on this channel.
    pub steps_back: u64,
    /// The largest such step, in nanoseconds.
    pub largest_step_back: u64,
    /// Events per second, from the intervals; `None` for fewer than two events.
    pub rate: Option<RateFigures>,
    /// The longest interval; `None` for fewer than two events.
    pub longest_gap: Option<GapFigures>,
    /// Intervals longer than five times the median and twice the 95th percentile, in order of time;
    /// the 64 longest if there are more.
    pub gaps: Vec<GapFigures>,
    /// The number of such intervals.
    pub gap_count: u64,
    /// Nanoseconds between consecutive events.
    pub intervals: Histogram,
    /// Receive time less message time.
    pub latency: Option<LatencyFigures>,
    /// The number of events in each bucket of time.
    pub timeline: Vec<u64>,
    /// Its numeric fields.
    pub fields: Vec<FieldFigures>,
}

/// A type, and how many events have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamedType {
    /// Its name, or its fingerprint if it has no name.
    pub name: String,
    /// The number of events.
    pub events: u64,
}

/// Rates in events per second: the reciprocals of percentiles of the intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RateFigures {
    /// From the median interval.
    pub median: f64,
    /// One interval in a hundred is longer than this rate says.
    pub p1: f64,
    /// One interval in a hundred is shorter.
    pub p99: f64,
    /// Events by the time from the first to the last.
    pub mean: f64,
}

/// A time without events on a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GapFigures {
    /// The time of the event before it.
    pub start: i64,
    /// Its length in nanoseconds.
    pub length: u64,
}

/// A histogram with 64 equal bins to a factor of two, so values are known within 1.6 %.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Histogram {
    /// The bins that are not empty, in ascending order.
    pub bins: Vec<HistogramBin>,
}

impl Histogram {
    /// The number of values.
    pub(crate) fn count(&self) -> u64 {
        self.bins.iter().map(|bin| bin.count).sum()
    }

    /// The number of values in bins whose middle is above the limit.
    pub(crate) fn count_above(&self, limit: f64) -> u64 {
        let above = |bin: &&HistogramBin| f64::midpoint(bin.from, bin.to) > limit;
        self.bins.iter().filter(above).map(|bin| bin.count).sum()
    }
}

/// A bin of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HistogramBin {
    /// The least value of the bin.
    pub from: f64,
    /// The least value above the bin.
    pub to: f64,
    /// The number of values.
    pub count: u64,
}

/// How much later events were received than their messages say they were made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencyFigures {
    /// The field with the message's own time.
    pub field: String,
    /// Nanoseconds, of the events whose latency is not negative.
    pub histogram: Histogram,
    /// The number of events that were received before their message's time.
    pub negative: u64,
    /// The least latency in nanoseconds.
    pub least: i64,
    /// The median.
    pub median: i64,
    /// The greatest.
    pub greatest: i64,
}

/// The figures of a numeric field, such as `vel[0]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FieldFigures {
    /// The path to it.
    pub path: String,
    /// Values that are numbers.
    pub count: u64,
    /// Values that are null, or missing in a list.
    pub nulls: u64,
    /// Values that are NaN or infinite; the figures below are of the others.
    pub not_finite: u64,
    /// The least value; `None` without values.
    pub min: Option<f64>,
    /// The earliest time of that value.
    pub min_at: i64,
    /// The greatest value.
    pub max: Option<f64>,
    /// The earliest time of that value.
    pub max_at: i64,
    /// The mean.
    pub mean: Option<f64>,
    /// The least and the greatest value in each bucket of time; empty if the field is not plotted.
    pub series: Vec<Option<[f64; 2]>>,
}

/// A place on a plane at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// Nanoseconds, as all times.
    pub time: i64,
    /// Metres to the east, or along the frame's x.
    pub x: f64,
    /// Metres to the north, or along the frame's y.
    pub y: f64,
}

/// A way in metres.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TrackFigures {
    /// The channel of its poses.
    pub channel: String,
    /// At most one point per bucket of time.
    pub points: Vec<Point>,
    /// Its length in metres.
    pub length: f64,
    /// The greatest speed in metres per second between points.
    pub greatest_speed: f64,
}

/// Positions on the globe.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FixFigures {
    /// Their channel.
    pub channel: String,
    /// Longitude and latitude in degrees, at most one per bucket of time.
    pub positions: Vec<[f64; 2]>,
    /// The same in metres on a plane that touches the globe at the first.
    pub points: Vec<Point>,
}

/// The pictures of a camera.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PictureFigures {
    /// Its channel.
    pub channel: String,
    /// The number of pictures.
    pub count: u64,
    /// Those of a format that is not known here: they may be whole or not.
    pub unchecked: u64,
    /// Those that are cut off, or whose bytes are no picture.
    pub bad: u64,
    /// The time of the first bad one.
    pub first_bad: Option<i64>,
    /// Sizes in pixels, with the number of pictures.
    pub sizes: BTreeMap<String, u64>,
    /// Evenly spaced over the log.
    pub thumbnails: Vec<Thumbnail>,
}

/// A small JPEG of a picture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Thumbnail {
    /// The picture's time.
    pub time: i64,
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
    /// The JPEG's bytes.
    #[serde(skip)]
    pub jpeg: Vec<u8>,
}

/// One revolution or scan of a laser, seen from above.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CloudFigures {
    /// The laser's channel.
    pub channel: String,
    /// The time of its first point.
    pub time: i64,
    /// The number of its points before thinning.
    pub count: u64,
    /// x, y and z in metres, in the sensor's or the vehicle's frame: x ahead, y to the left.
    pub points: Vec<[f32; 3]>,
}

/// What a finding is about, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// An expectation is not met.
    Unmet,
    /// Bytes could not be read.
    Damage,
    /// A channel was silent for long.
    Gap,
    /// Pictures are cut off.
    BadPictures,
    /// Events could not be decoded.
    Undecoded,
    /// Times step back.
    StepsBack,
    /// Events are missing by their numbers.
    Missing,
    /// Numbers are NaN or infinite.
    NotFinite,
}

/// A sentence that a reader should see first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub kind: FindingKind,
    /// The sentence, with number, place and limit.
    pub text: String,
    /// The channel, if it is about one.
    pub channel: Option<String>,
    /// When, if it is about a time.
    pub time: Option<i64>,
}

/// Something that was left out to keep the report small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Thinned {
    /// What, such as `plots of fields`.
    pub what: String,
    /// How many there are.
    pub of: u64,
    /// How many are shown.
    pub shown: u64,
}

impl Thinned {
    /// [`what`](Self::what) for channels without figures.
    pub(crate) const CHANNELS: &str = "channels";
}

/// How a report was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Provenance {
    /// The version of Sluice.
    pub version: String,
    /// The pipeline's name.
    pub name: Option<String>,
    /// The title that was asked for.
    pub title: Option<String>,
    /// The pipeline file with its variables filled in, with file names only.
    pub pipeline: String,
}
