//! Stage `laser`: turns planar scans into points in the scanner's frame, in the plane z = 0. To
//! move points, use `to-frame`.
//!
//! `scan` finds scans among decoded rows; `angles` computes the directions of their samples.

mod angles;
mod scan;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::options::CHANNELS_FORMAT;
use sluice_model::{
    Batch, Channel, Error, Map, MapQuery, OptionsError, Pattern, Patterns, PerChannel,
    PluginFactory, Registry, Rows, Stage, StageContext,
};

use crate::calibration::CalibrationPath;
use crate::dataset_decoder::DatasetDecoder;
use crate::event_report::EventReport;
use crate::points::{CloudBuilder, CloudTime, IMPOSSIBLE_TIME, PointFrame};
use crate::ranges;
use crate::to_frame::mounts::SensorMounts;
use angles::{AngleTables, SampleAngles};
use scan::ScanColumns;
use sluice_model::UndecodedPolicy;

/// Options of `laser`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LaserOptions {
    /// Channels with scans. All others pass unchanged.
    pub(crate) channels: Patterns,
    /// Minimum range of points, in metres. A range of 0 never yields a point.
    pub(crate) min_range: f64,
    /// Maximum range of points, in metres. Scanners report 81.91 without a return.
    pub(crate) max_range: f64,
    /// Drops samples at angles where the scanner sees its own vehicle, according to the
    /// calibration.
    pub(crate) masks: bool,
    /// The calibration with the masks: a `.toml` or `.cfg` file, or the name of a built-in
    /// calibration. Only read for `masks`.
    pub(crate) calibration: CalibrationPath,
    /// Names of scanners in the calibration, by channel or pattern; other scanners have the name of
    /// their channel.
    #[schemars(extend("propertyNames" = { "type": "string", "format": CHANNELS_FORMAT }))]
    pub(crate) mounts: BTreeMap<String, String>,
    /// What happens to events that cannot be decoded.
    pub(crate) undecoded: UndecodedPolicy,
}

impl Default for LaserOptions {
    fn default() -> Self {
        let channels = ["BROOM_*", "SKIRT_*"].into_iter().flat_map(Pattern::parse);
        Self {
            channels: Patterns(channels.collect()),
            min_range: 0.0,
            max_range: 79.0,
            masks: true,
            calibration: CalibrationPath::default(),
            mounts: BTreeMap::new(),
            undecoded: UndecodedPolicy::default(),
        }
    }
}

sluice_model::register! {
    stage "laser": LaserOptions,
    make: PluginFactory::Stage(|options, registry| {
        stage(sluice_model::options::read(options)?, registry)
    }),
    about: "turns planar laser scans into points",
    sample: include_str!("../../samples/laser.toml"),
}

struct LaserStage {
    channels: Patterns,
    plans: PerChannel<Option<ScannerPlan>>,
    decoder: DatasetDecoder,
    limits: [f64; 2],
    /// Source of the masks, if the option `masks` is set.
    mounts: Option<SensorMounts>,
    undecoded: UndecodedPolicy,
}

/// How the scans of a channel are processed.
#[derive(Clone, Copy, Debug)]
struct ScannerPlan {
    /// The range of angles in which the scanner sees its vehicle, in radians.
    mask: Option<[f64; 2]>,
    /// Whether the calibration lacks both mask and mount of this scanner.
    lacks_mask: bool,
}

fn stage(options: LaserOptions, registry: &Registry) -> Result<Stage, OptionsError> {
    let LaserOptions { min_range, max_range, .. } = options;
    let limits = ranges::range_limits(min_range, max_range, 0.0);
    let limits = limits.map_err(|(key, message)| OptionsError::at(key, message))?;
    let calibration = options.masks.then(|| options.calibration.load()).transpose();
    let calibration = calibration.map_err(|mistakes| OptionsError::at("calibration", mistakes))?;
    let mounts =
        calibration.map(|known| SensorMounts::for_masks(known, options.mounts)).transpose()?;
    Ok(Stage::Map(Box::new(LaserStage {
        channels: options.channels,
        plans: PerChannel::default(),
        decoder: DatasetDecoder::new(registry)?,
        limits,
        mounts,
        undecoded: options.undecoded,
    })))
}

/// Notes about scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ScanIssue {
    Undecoded(&'static str),
    NoScan,
    NoRanges,
    NoBearings,
    TooLong,
    Intensities,
    Dropped,
    ImpossibleTime,
    NoMask,
}

impl fmt::Display for ScanIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undecoded(reason) => reason,
            Self::NoScan => {
                "not a scan, which has lists of floats `ranges`, and floats `rad0` and `radstep`"
            }
            Self::NoRanges => "`ranges` is null",
            Self::NoBearings => "`rad0` or `radstep` is not a finite number",
            Self::TooLong => "scan of more than 65536 samples",
            Self::Intensities => {
                "scans with different numbers of intensities and ranges: points without intensity"
            }
            Self::Dropped => "samples without a point: out of range, masked, or not a number",
            Self::ImpossibleTime => IMPOSSIBLE_TIME,
            Self::NoMask => {
                "the calibration has neither a mask nor a sensor of this name, so points on the \
                 vehicle itself are kept; name its scanner in `mounts`"
            }
        })
    }
}

/// Maximum number of samples of a scan: their numbers have 16 bits.
const MAX_SAMPLES: usize = 1 << 16;

/// Buffers reused from scan to scan.
#[derive(Default)]
struct ScanBuffers {
    tables: AngleTables,
    ranges: Vec<f64>,
    intensities: Vec<f64>,
}

impl LaserStage {
    fn plan(&self, channel: &Channel) -> Option<ScannerPlan> {
        let name = channel.name.text();
        let mask = self.mounts.as_ref().and_then(|mounts| mounts.mask_of(name));
        let lacks_mask = self.mounts.as_ref().is_some_and(|mounts| mounts.lacks_mask_of(name));
        self.channels.matches(name).then_some(ScannerPlan { mask, lacks_mask })
    }

    /// Appends the points of a scan. `Err` if it is not a valid scan.
    fn append(
        &self,
        (scans, row): (&ScanColumns<'_>, usize),
        (plan, time): (ScannerPlan, i64),
        cloud: &mut CloudBuilder,
        buffers: &mut ScanBuffers,
    ) -> Result<AppendedScan, ScanIssue> {
        let ScanBuffers { tables, ranges, intensities } = buffers;
        let bearings = scans.bearings(row).ok_or(ScanIssue::NoBearings)?;
        if !scans.ranges(row, ranges) {
            return Err(ScanIssue::NoRanges);
        }
        if ranges.len() > MAX_SAMPLES {
            return Err(ScanIssue::TooLong);
        }
        scans.intensities(row, intensities);
        let intensities_match = intensities.is_empty() || intensities.len() == ranges.len();
        let has_intensity = intensities_match && !intensities.is_empty();
        if !has_intensity {
            intensities.clear();
            intensities.resize(ranges.len(), 0.0);
        }
        let angles = tables.table(bearings, ranges.len());
        let kept = self.project(ranges, intensities, angles, plan.mask, cloud);
        cloud.time.resize(cloud.len(), time);
        Ok(AppendedScan {
            has_intensity,
            intensities_match,
            left_out: (ranges.len() - kept) as u64,
        })
    }

    /// Appends the points without their times, and returns their number.
    fn project(
        &self,
        ranges: &[f64],
        intensities: &[f64],
        angles: &SampleAngles,
        mask: Option<[f64; 2]>,
        cloud: &mut CloudBuilder,
    ) -> usize {
        let ([nearest, farthest], start) = (self.limits, cloud.len());
        // An empty mask.
        let [from, to] = mask.unwrap_or([f64::INFINITY, f64::NEG_INFINITY]);
        let mut tail = CloudTail::extend(cloud, start, ranges.len());
        for (k, (range, intensity)) in ranges.iter().zip(intensities).enumerate() {
            let angle = angles.angle[k];
            tail.write(
                [range * angles.cosine[k], range * angles.sine[k]],
                *intensity as f32,
                k as u16,
                angles.degrees[k],
            );
            let is_seen = (*range > 0.0) & (*range >= nearest) & (*range <= farthest);
            tail.advance_if(is_seen & !((angle >= from) & (angle <= to)));
        }
        let kept = tail.kept;
        truncate_cloud(cloud, start + kept);
        kept
    }
}

/// The result of appending a scan.
struct AppendedScan {
    has_intensity: bool,
    /// Whether the number of intensities is 0 or that of the ranges.
    intensities_match: bool,
    left_out: u64,
}

/// Preallocated space at the end of a cloud, for points of which some may be dropped.
struct CloudTail<'c> {
    x: &'c mut [f64],
    y: &'c mut [f64],
    intensity: &'c mut [f32],
    laser: &'c mut [u16],
    azimuth: &'c mut [f32],
    kept: usize,
}

impl<'c> CloudTail<'c> {
    fn extend(cloud: &'c mut CloudBuilder, start: usize, len: usize) -> Self {
        cloud.x.resize(start + len, 0.0);
        cloud.y.resize(start + len, 0.0);
        cloud.z.resize(start + len, 0.0);
        cloud.intensity.resize(start + len, 0.0);
        cloud.laser.resize(start + len, 0);
        cloud.azimuth.resize(start + len, 0.0);
        Self {
            x: &mut cloud.x[start..],
            y: &mut cloud.y[start..],
            intensity: &mut cloud.intensity[start..],
            laser: &mut cloud.laser[start..],
            azimuth: &mut cloud.azimuth[start..],
            kept: 0,
        }
    }

    /// Writes a point, overwriting the last one if that was dropped.
    fn write(&mut self, [x, y]: [f64; 2], intensity: f32, laser: u16, azimuth: f32) {
        let at = self.kept;
        self.x[at] = x;
        self.y[at] = y;
        self.intensity[at] = intensity;
        self.laser[at] = laser;
        self.azimuth[at] = azimuth;
    }

    fn advance_if(&mut self, is_kept: bool) {
        self.kept += usize::from(is_kept);
    }
}

fn truncate_cloud(cloud: &mut CloudBuilder, len: usize) {
    cloud.x.truncate(len);
    cloud.y.truncate(len);
    cloud.z.truncate(len);
    cloud.intensity.truncate(len);
    cloud.laser.truncate(len);
    cloud.azimuth.truncate(len);
}

/// The scans of some events in event order: event, index of the rows, and row. Reports rows that
/// are not scans.
fn scans_in_order(
    all: &[Rows],
    scans: &[Option<ScanColumns<'_>>],
    (batch, bad): (&Batch, Vec<(u32, &'static str)>),
    report: &mut EventReport<ScanIssue>,
) -> Vec<(u32, usize, usize)> {
    let mut locations: Vec<(u32, usize, usize)> = Vec::new();
    let mut failed: Vec<(u32, ScanIssue)> =
        bad.into_iter().map(|(event, reason)| (event, ScanIssue::Undecoded(reason))).collect();
    for (at, rows) in all.iter().enumerate() {
        let events = rows.events.iter().enumerate();
        match scans[at] {
            Some(_) => locations.extend(events.map(|(row, event)| (*event, at, row))),
            None => failed.extend(rows.events.iter().map(|event| (*event, ScanIssue::NoScan))),
        }
    }
    locations.sort_unstable();
    locations.dedup_by_key(|(event, ..)| *event);
    // An event with both a scan and other rows is a scan.
    failed
        .retain(|(event, _)| locations.binary_search_by_key(event, |location| location.0).is_err());
    failed.sort_unstable();
    failed.dedup_by_key(|(event, _)| *event);
    for (event, reason) in failed {
        report.skip(event, batch.channels()[event as usize], reason);
    }
    locations
}

impl Map for LaserStage {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let plans = self.plans.table(context.channels, |channel| Ok(self.plan(channel)))?;
        let plan = |event: u32| plans[batch.channels()[event as usize] as usize];
        let selected: Vec<u32> =
            (0..batch.len() as u32).filter(|event| plan(*event).is_some()).collect();
        if selected.is_empty() {
            return Ok(batch);
        }
        let found = self.decoder.decode_rows(&batch, &selected, context.channels)?;
        let scans: Vec<Option<ScanColumns<'_>>> =
            found.rows.iter().map(ScanColumns::from_rows).collect();
        let mut report = EventReport::default();
        let locations = scans_in_order(&found.rows, &scans, (&batch, found.failed), &mut report);
        let samples = scans.iter().flatten().map(ScanColumns::samples).sum();
        let mut cloud = CloudBuilder::with_capacity(samples, locations.len());
        let mut buffers = ScanBuffers::default();
        for (event, at, row) in locations {
            let (Some(scans), Some(plan)) = (&scans[at], plan(event)) else { continue };
            let (timestamp, channel) =
                (batch.timestamps()[event as usize], batch.channels()[event as usize]);
            let (time, is_impossible) = CloudTime::resolve(scans.utime(row), timestamp);
            match self.append((scans, row), (plan, time.nanos), &mut cloud, &mut buffers) {
                Ok(appended) => {
                    cloud.end_event(event, time.micros, appended.has_intensity)?;
                    appended.report(channel, &mut report);
                    if is_impossible {
                        report.note(channel, ScanIssue::ImpossibleTime, 1);
                    }
                    if plan.lacks_mask {
                        report.note(channel, ScanIssue::NoMask, 1);
                    }
                }
                Err(what) => report.skip(event, channel, what),
            }
        }
        let rows = Some(cloud.finish(PointFrame::Sensor)).filter(|rows| !rows.events.is_empty());
        report.finish(batch, rows, self.undecoded, context)
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        self.mounts.as_ref().map(|mounts| mounts.fingerprint().to_owned())
    }
}

impl AppendedScan {
    fn report(&self, channel: u32, report: &mut EventReport<ScanIssue>) {
        if !self.intensities_match {
            report.note(channel, ScanIssue::Intensities, 1);
        }
        if self.left_out > 0 {
            report.note(channel, ScanIssue::Dropped, self.left_out);
        }
    }
}
