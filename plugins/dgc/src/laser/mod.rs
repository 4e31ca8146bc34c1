//! `laser`: planar scans become points in the scanner's own frame, in the plane z = 0. Moves no point: that is
//! for `to-frame`.
//!
//! `scan` finds scans among decoded rows, `angles` knows where their samples lie.

mod angles;
mod scan;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{
    Batch, Channel, Error, Map, MapQuery, OptionsError, Pattern, Patterns, PerChannel, Rows, Stage,
    StageContext,
};

use crate::calibration::CalibrationPath;
use crate::messages::Messages;
use crate::points::{Cloud, Frame};
use crate::ranges;
use crate::taken::Told;
use crate::to_frame::mounts::Mounts;
use angles::{Angles, Tables};
use scan::Scans;
use sluice_core::UndecodedPolicy;

/// Options of `laser`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LaserOptions {
    /// Channels that have scans. All others pass as they are.
    pub channels: Patterns,
    /// Metres below which there are no points. A range of 0 is none in any case.
    pub min_range: f64,
    /// Metres beyond which there are no points: scanners say 81.91 where they see nothing.
    pub max_range: f64,
    /// Leaves out the angles at which a scanner sees the vehicle that carries it, as the calibration has them
    /// by channel.
    pub masks: bool,
    /// Where `masks` come from: a `.toml` or `.cfg` file, or the name of a built-in calibration. Read for
    /// them only.
    pub calibration: CalibrationPath,
    /// What the calibration calls the scanner of a channel, by the channel or a pattern; all others are
    /// called what their channels are.
    pub mounts: BTreeMap<String, String>,
    /// What becomes of events that cannot be decoded.
    pub undecoded: UndecodedPolicy,
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

sluice_core::register! {
    stage "laser": LaserOptions,
    about: "turns planar laser scans into points",
    sample: include_str!("../../samples/laser.toml"),
}

struct Laser {
    channels: Patterns,
    plans: PerChannel<Option<Plan>>,
    messages: Messages,
    limits: [f64; 2],
    /// Where masks come from, if they are wanted.
    mounts: Option<Mounts>,
    undecoded: UndecodedPolicy,
}

/// How the scans of a channel are treated.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// The angles at which the scanner sees what carries it, from and to, in radians.
    mask: Option<[f64; 2]>,
    /// Whether it may well see it, and nobody knows where.
    lacks_mask: bool,
}

impl TryFrom<LaserOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: LaserOptions) -> Result<Self, OptionsError> {
        let LaserOptions { min_range, max_range, .. } = options;
        let wrong = |key: &str, message| OptionsError { path: vec![key.into()], message };
        let limits = ranges::limits(min_range, max_range, 0.0);
        let limits = limits.map_err(|(key, message)| wrong(key, message))?;
        let calibration = options.masks.then(|| options.calibration.load()).transpose();
        let calibration = calibration.map_err(|mistakes| wrong("calibration", mistakes))?;
        let mounts =
            calibration.map(|known| Mounts::of_masks(known, options.mounts)).transpose()?;
        Ok(Self::Map(Box::new(Laser {
            channels: options.channels,
            plans: PerChannel::default(),
            messages: Messages::of_dataset()?,
            limits,
            mounts,
            undecoded: options.undecoded,
        })))
    }
}

/// What is told of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Undecoded(&'static str),
    NoScan,
    NoRanges,
    NoBearings,
    TooLong,
    Intensities,
    LeftOut,
    NoMask,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undecoded(why) => why,
            Self::NoScan => {
                "an event of a type without what a scan has: lists of floats `ranges`, and floats `rad0` and \
                 `radstep`"
            }
            Self::NoRanges => "a scan whose `ranges` are null",
            Self::NoBearings => "a scan whose `rad0` or `radstep` is no number",
            Self::TooLong => "a scan of more than 65536 samples",
            Self::Intensities => {
                "a scan whose intensities are not as many as its ranges; its points have none"
            }
            Self::LeftOut => {
                "samples that give no point: out of range, masked, or no number"
            }
            Self::NoMask => {
                "the calibration has neither a mask nor a sensor of this name, so that what the scanner sees \
                 of its vehicle is not left out; `mounts` says which of its sensors a channel is"
            }
        })
    }
}

/// The most samples of a scan: their numbers have 16 bits.
const MOST_SAMPLES: usize = 1 << 16;

/// What is used again from scan to scan.
#[derive(Default)]
struct Scratch {
    tables: Tables,
    ranges: Vec<f64>,
    intensities: Vec<f64>,
}

impl Laser {
    fn plan(&self, channel: &Channel) -> Option<Plan> {
        let name = channel.name.text();
        let mask = self.mounts.as_ref().and_then(|mounts| mounts.mask_of(name));
        let lacks_mask = self.mounts.as_ref().is_some_and(|mounts| mounts.lacks_mask_of(name));
        self.channels.matches(name).then_some(Plan { mask, lacks_mask })
    }

    /// Appends the points of a scan. `Err` if it is none.
    fn append(
        &self,
        (scans, row): (&Scans<'_>, usize),
        (plan, time): (Plan, i64),
        cloud: &mut Cloud,
        scratch: &mut Scratch,
    ) -> Result<Appended, What> {
        let Scratch { tables, ranges, intensities } = scratch;
        let bearings = scans.bearings(row).ok_or(What::NoBearings)?;
        if !scans.ranges(row, ranges) {
            return Err(What::NoRanges);
        }
        if ranges.len() > MOST_SAMPLES {
            return Err(What::TooLong);
        }
        scans.intensities(row, intensities);
        let has_as_many = intensities.is_empty() || intensities.len() == ranges.len();
        let has_intensity = has_as_many && !intensities.is_empty();
        if !has_intensity {
            intensities.clear();
            intensities.resize(ranges.len(), 0.0);
        }
        let angles = tables.table(bearings, ranges.len());
        let kept = self.project(ranges, intensities, angles, plan.mask, cloud);
        cloud.time.resize(cloud.len(), time);
        Ok(Appended { has_intensity, has_as_many, left_out: (ranges.len() - kept) as u64 })
    }

    /// Appends all of a point but its time; gives how many points there are.
    fn project(
        &self,
        ranges: &[f64],
        intensities: &[f64],
        angles: &Angles,
        mask: Option<[f64; 2]>,
        cloud: &mut Cloud,
    ) -> usize {
        let ([nearest, farthest], start) = (self.limits, cloud.len());
        // A mask that no angle is in.
        let [from, to] = mask.unwrap_or([f64::INFINITY, f64::NEG_INFINITY]);
        let mut room = Room::after(cloud, start, ranges.len());
        for (k, (range, intensity)) in ranges.iter().zip(intensities).enumerate() {
            let angle = angles.angle[k];
            room.put(
                [range * angles.cosine[k], range * angles.sine[k]],
                *intensity as f32,
                k as u16,
                angles.degrees[k],
            );
            let is_seen = (*range > 0.0) & (*range >= nearest) & (*range <= farthest);
            room.keep_if(is_seen & !((angle >= from) & (angle <= to)));
        }
        let kept = room.kept;
        cut(cloud, start + kept);
        kept
    }
}

/// What became of a scan.
struct Appended {
    has_intensity: bool,
    /// Whether there were no intensities or as many as ranges.
    has_as_many: bool,
    left_out: u64,
}

/// Room at the end of a cloud for points that may not all be kept.
struct Room<'c> {
    x: &'c mut [f64],
    y: &'c mut [f64],
    intensity: &'c mut [f32],
    laser: &'c mut [u16],
    azimuth: &'c mut [f32],
    kept: usize,
}

impl<'c> Room<'c> {
    fn after(cloud: &'c mut Cloud, start: usize, len: usize) -> Self {
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

    /// Writes a point, in place of the last one if that was not kept.
    fn put(&mut self, [x, y]: [f64; 2], intensity: f32, laser: u16, azimuth: f32) {
        let at = self.kept;
        self.x[at] = x;
        self.y[at] = y;
        self.intensity[at] = intensity;
        self.laser[at] = laser;
        self.azimuth[at] = azimuth;
    }

    fn keep_if(&mut self, is_kept: bool) {
        self.kept += usize::from(is_kept);
    }
}

fn cut(cloud: &mut Cloud, len: usize) {
    cloud.x.truncate(len);
    cloud.y.truncate(len);
    cloud.z.truncate(len);
    cloud.intensity.truncate(len);
    cloud.laser.truncate(len);
    cloud.azimuth.truncate(len);
}

/// The scans of some events, in their order: event, number of rows, and row. Of rows that are none, `told`
/// is told.
fn in_order(
    all: &[Rows],
    scans: &[Option<Scans<'_>>],
    (batch, bad): (&Batch, Vec<(u32, &'static str)>),
    told: &mut Told<What>,
) -> Vec<(u32, usize, usize)> {
    let mut places: Vec<(u32, usize, usize)> = Vec::new();
    let mut failed: Vec<(u32, What)> =
        bad.into_iter().map(|(event, why)| (event, What::Undecoded(why))).collect();
    for (at, rows) in all.iter().enumerate() {
        let events = rows.events.iter().enumerate();
        match scans[at] {
            Some(_) => places.extend(events.map(|(row, event)| (*event, at, row))),
            None => failed.extend(rows.events.iter().map(|event| (*event, What::NoScan))),
        }
    }
    places.sort_unstable();
    places.dedup_by_key(|(event, ..)| *event);
    // What has a scan beside other rows is a scan.
    failed.retain(|(event, _)| places.binary_search_by_key(event, |place| place.0).is_err());
    failed.sort_unstable();
    failed.dedup_by_key(|(event, _)| *event);
    for (event, why) in failed {
        told.fail(event, batch.channels()[event as usize], why);
    }
    places
}

impl Map for Laser {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let plans = self.plans.table(context.channels, |channel| Ok(self.plan(channel)))?;
        let plan = |event: u32| plans[batch.channels()[event as usize] as usize];
        let asked: Vec<u32> =
            (0..batch.len() as u32).filter(|event| plan(*event).is_some()).collect();
        if asked.is_empty() {
            return Ok(batch);
        }
        let found = self.messages.rows(&batch, &asked, context.channels)?;
        let scans: Vec<Option<Scans<'_>>> = found.rows.iter().map(Scans::of).collect();
        let mut told = Told::default();
        let places = in_order(&found.rows, &scans, (&batch, found.bad), &mut told);
        let samples = scans.iter().flatten().map(Scans::samples).sum();
        let mut cloud = Cloud::with_capacity(samples, places.len());
        let mut scratch = Scratch::default();
        for (event, at, row) in places {
            let (Some(scans), Some(plan)) = (&scans[at], plan(event)) else { continue };
            let (timestamp, channel) =
                (batch.timestamps()[event as usize], batch.channels()[event as usize]);
            let utime = scans.utime(row);
            let time = utime.map_or(timestamp, |utime| utime.saturating_mul(1_000));
            match self.append((scans, row), (plan, time), &mut cloud, &mut scratch) {
                Ok(appended) => {
                    let utime = utime.unwrap_or(timestamp.div_euclid(1_000));
                    cloud.end_event(event, utime, appended.has_intensity)?;
                    appended.tell(channel, &mut told);
                    if plan.lacks_mask {
                        told.note(channel, What::NoMask, 1);
                    }
                }
                Err(what) => told.fail(event, channel, what),
            }
        }
        let rows = Some(cloud.finish(Frame::Sensor)).filter(|rows| !rows.events.is_empty());
        told.end(batch, rows, self.undecoded, context)
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        self.mounts.as_ref().map(|mounts| mounts.made_from().to_owned())
    }
}

impl Appended {
    fn tell(&self, channel: u32, told: &mut Told<What>) {
        if !self.has_as_many {
            told.note(channel, What::Intensities, 1);
        }
        if self.left_out > 0 {
            told.note(channel, What::LeftOut, self.left_out);
        }
    }
}
