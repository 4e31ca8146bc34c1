//! Scripted drives, and stages run on them. Creates stages as a pipeline does: by name, from
//! options.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use serde_json::Value;
use sluice_dgc::fuzzing::{CloudBuilder, PointFrame, Points, Quaternion};
use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelId, Channels, Encoding, Error, MessageType, Name,
    OptionsError, Payloads, Registry, Rows, Stage, StageContext, TypeKey,
};

/// The content of a scripted event.
#[derive(Clone, Debug)]
pub(crate) enum ScriptedContent {
    /// Position and yaw in degrees.
    Pose([f64; 3], f64),
    /// A pose whose orientation has no direction.
    NoPose,
    /// `local`, and `lat_lon_el_theta`.
    GpsReference([f64; 3], [f64; 4]),
    /// Points on a channel.
    Points(&'static str, PointFrame, Vec<[f64; 3]>),
    /// Something else.
    Other,
}

#[derive(Clone, Debug)]
pub(crate) struct ScriptedEvent {
    pub(crate) ms: i64,
    pub(crate) content: ScriptedContent,
    pub(crate) source: &'static str,
}

pub(crate) fn at(ms: i64, content: ScriptedContent) -> ScriptedEvent {
    ScriptedEvent { ms, content, source: "log" }
}

/// The same event in another log.
pub(crate) fn in_source(source: &'static str, happening: ScriptedEvent) -> ScriptedEvent {
    ScriptedEvent { source, ..happening }
}

pub(crate) fn pose(ms: i64, x: f64) -> ScriptedEvent {
    at(ms, ScriptedContent::Pose([x, 0.0, 0.0], 0.0))
}

/// One point at the origin of the body.
pub(crate) fn origin(ms: i64) -> ScriptedEvent {
    at(ms, ScriptedContent::Points("VELODYNE", PointFrame::Body, vec![[0.0; 3]]))
}

/// Whether poses and GPS references are decoded, or payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadForm {
    Decoded,
    Raw,
}

pub(crate) const POSE_KEY: u64 = 0x2e16_efb0_52b0_105e;
pub(crate) const GPS_TO_LOCAL_KEY: u64 = 0x4d0c_279a_87b8_ec9d;

/// Delay between a message's own time and its event.
const LAG: i64 = 2_000_000;

pub(crate) struct FrameRun {
    parts: Vec<Stage>,
    pub(crate) channels: Channels,
    pub(crate) filtered: u64,
    pub(crate) notes: BTreeMap<String, u64>,
}

/// The stage of that name.
pub(crate) fn make(name: &str, options: Value) -> Result<Stage, OptionsError> {
    Registry::linked().stage(name, options)
}

impl FrameRun {
    pub(crate) fn new(name: &str, options: Value) -> Self {
        let parts = make(name, options).unwrap().into_parts();
        let (channels, notes) = (Channels::default(), BTreeMap::new());
        Self { parts, channels, filtered: 0, notes }
    }

    pub(crate) fn batch(&self, happenings: &[ScriptedEvent], form: PayloadForm) -> Batch {
        let mut builder = BatchBuilder::default();
        let (mut rows, mut clouds) = (Vec::new(), Vec::new());
        for (event, happening) in (0u32..).zip(happenings) {
            let utime = happening.ms * 1_000;
            let (channel, payload) = match &happening.content {
                ScriptedContent::Pose(..) | ScriptedContent::NoPose => ("POSE", payload(happening)),
                ScriptedContent::GpsReference(..) => ("GPS_TO_LOCAL", payload(happening)),
                ScriptedContent::Points(channel, frame, points) => {
                    clouds.push(cloud(event, utime, *frame, points));
                    (*channel, Vec::new())
                }
                ScriptedContent::Other => ("OTHER", b"something else altogether".to_vec()),
            };
            if form == PayloadForm::Decoded && !payload.is_empty() && channel != "OTHER" {
                rows.push(decoded(event, &payload));
            }
            let channel = Channel::new(Name::from_text(channel), happening.source, Encoding::Lcm);
            let id = self.channels.intern(channel).unwrap();
            builder.push_copy(utime * 1_000 + LAG, i64::from(event), id, &payload);
        }
        rows.extend(clouds);
        builder.finish().with_rows(rows)
    }

    /// The output for these batches, including the end.
    pub(crate) fn all(&mut self, batches: Vec<Batch>) -> Result<Vec<Batch>, Error> {
        let mut parts = std::mem::take(&mut self.parts);
        let mut batches = batches;
        for part in &mut parts {
            let mut out = Vec::new();
            for batch in batches {
                out.extend(self.step(|context| match part {
                    Stage::Map(map) => Ok(vec![map.apply(batch, context)?]),
                    Stage::Fold(fold) => fold.push(batch, context),
                    Stage::Chain(_) => panic!("parts are no chains"),
                })?);
            }
            if let Stage::Fold(fold) = part {
                out.extend(self.step(|context| fold.finish(context))?);
            }
            batches = out;
        }
        self.parts = parts;
        Ok(batches)
    }

    fn step(
        &mut self,
        step: impl FnOnce(&mut StageContext<'_>) -> Result<Vec<Batch>, Error>,
    ) -> Result<Vec<Batch>, Error> {
        let mut context = StageContext::new(&self.channels, None);
        let out = step(&mut context)?;
        self.filtered += context.report.filtered;
        for (content, count) in context.report.notes {
            *self.notes.entry(content).or_default() += count;
        }
        Ok(out)
    }

    /// The output for a drive.
    pub(crate) fn drive(&mut self, drive: &[ScriptedEvent]) -> Vec<OutputEvent> {
        let batch = self.batch(drive, PayloadForm::Decoded);
        let out = self.all(vec![batch]).unwrap();
        self.outs(&out)
    }

    /// The events with their decoded rows.
    pub(crate) fn outs(&self, batches: &[Batch]) -> Vec<OutputEvent> {
        let mut all = Vec::new();
        for batch in batches {
            let mut outs: Vec<OutputEvent> =
                (0..batch.len()).map(|row| self.out(batch, row)).collect();
            for rows in batch.rows() {
                for (row, event) in rows.events.iter().enumerate() {
                    outs[*event as usize].add(rows, row);
                }
            }
            all.extend(outs);
        }
        all
    }

    fn out(&self, batch: &Batch, row: usize) -> OutputEvent {
        let event = batch.event(row);
        OutputEvent {
            timestamp: event.timestamp,
            channel: self.channels.get(ChannelId(batch.channels()[row])).name.text().to_owned(),
            payload: event.payload.to_vec(),
            ..OutputEvent::default()
        }
    }

    pub(crate) fn has_note(&self, content: &str) -> bool {
        self.notes.keys().any(|note| note.contains(content))
    }
}

/// An event in the output.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OutputEvent {
    pub(crate) timestamp: i64,
    pub(crate) channel: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) kind: String,
    pub(crate) columns: Vec<String>,
    pub(crate) frame: Option<PointFrame>,
    pub(crate) points: Vec<[f64; 3]>,
    pub(crate) members: BTreeMap<String, Vec<f64>>,
    pub(crate) numbers: BTreeMap<String, Vec<f64>>,
}

impl OutputEvent {
    fn add(&mut self, rows: &Rows, row: usize) {
        self.kind = rows.message.name.to_string();
        let schema = rows.columns.schema();
        self.columns = schema.fields().iter().map(|field| field.name().clone()).collect();
        if let Some(points) = Points::from_rows(rows) {
            let range = points.range(row);
            let [x, y, z] = points.xyz();
            self.points = range.clone().map(|at| [x[at], y[at], z[at]]).collect();
            self.frame = Some(points.frame());
            for name in ["latitude", "longitude", "altitude", "intensity"] {
                let Some(member) = points.member(name) else { continue };
                let Some(values) = member.as_primitive_opt::<Float64Type>() else { continue };
                self.members.insert(name.to_owned(), values.values()[range.clone()].to_vec());
            }
        }
        for (field, column) in schema.fields().iter().zip(rows.columns.columns()) {
            let one = column.slice(row, 1);
            let flat = one.as_fixed_size_list_opt().map_or(one.clone(), |l| Arc::clone(l.values()));
            if let Some(values) = flat.as_primitive_opt::<Float64Type>() {
                self.numbers.insert(field.name().clone(), values.values().to_vec());
            }
        }
    }
}

fn cloud(event: u32, utime: i64, frame: PointFrame, points: &[[f64; 3]]) -> Rows {
    let mut cloud = CloudBuilder::default();
    for [x, y, z] in points {
        cloud.x.push(*x);
        cloud.y.push(*y);
        cloud.z.push(*z);
        cloud.intensity.push(0.5);
        cloud.laser.push(7);
        cloud.azimuth.push(90.0);
        cloud.time.push(utime * 1_000);
    }
    cloud.end_event(event, utime, true).unwrap();
    cloud.finish(frame)
}

/// The payload of a pose or GPS reference: fingerprint, time, and numbers.
fn payload(happening: &ScriptedEvent) -> Vec<u8> {
    let (key, numbers) = match &happening.content {
        ScriptedContent::Pose(position, yaw) => {
            let Quaternion { w, x, y, z } =
                Quaternion::from_roll_pitch_yaw_degrees([0.0, 0.0, *yaw]);
            let mut numbers = position.to_vec();
            // 5 m/s ahead, 1 rad/s to the left, and no acceleration.
            numbers.extend([5.0, 0.0, 0.0, w, x, y, z, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
            (POSE_KEY, numbers)
        }
        ScriptedContent::NoPose => (POSE_KEY, vec![0.0; 16]),
        ScriptedContent::GpsReference(local, globe) => {
            (GPS_TO_LOCAL_KEY, [&local[..], &globe[..]].concat())
        }
        _ => return Vec::new(),
    };
    let mut payload = key.to_be_bytes().to_vec();
    payload.extend((happening.ms * 1_000).to_be_bytes());
    payload.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    payload
}

const POSE_FIELDS: [(&str, usize); 5] =
    [("pos", 3), ("vel", 3), ("orientation", 4), ("rotation_rate", 3), ("accel", 3)];
const GPS_TO_LOCAL_FIELDS: [(&str, usize); 2] = [("local", 3), ("lat_lon_el_theta", 4)];

fn word(payload: &[u8], at: usize) -> Option<[u8; 8]> {
    payload.get(at * 8..)?.first_chunk().copied()
}

/// The decoded row of a payload of one of the two types, if it is complete.
pub(crate) fn columns(payload: &[u8]) -> Option<(TypeKey, RecordBatch)> {
    let key = u64::from_be_bytes(word(payload, 0)?);
    let fields = if key == POSE_KEY { &POSE_FIELDS[..] } else { &GPS_TO_LOCAL_FIELDS[..] };
    let utime = i64::from_be_bytes(word(payload, 1)?);
    let mut columns: Vec<(Field, ArrayRef)> = vec![(
        Field::new("utime", DataType::Int64, false),
        Arc::new(Int64Array::from(vec![utime])),
    )];
    let mut next = 2;
    for (name, count) in fields {
        let numbers = (next..next + count).map(|at| Some(f64::from_be_bytes(word(payload, at)?)));
        let numbers: Option<Vec<f64>> = numbers.collect();
        let element = Arc::new(Field::new_list_field(DataType::Float64, false));
        let numbers = Arc::new(Float64Array::from(numbers?));
        let list = FixedSizeListArray::new(element, *count as i32, numbers, None);
        columns.push((Field::new(*name, list.data_type().clone(), false), Arc::new(list)));
        next += count;
    }
    let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    Some((TypeKey(key), RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()))
}

fn decoded(event: u32, payload: &[u8]) -> Rows {
    let (key, columns) = columns(payload).unwrap();
    let message = Arc::new(MessageType::named("decoded", key));
    Rows { message, payloads: Payloads::Kept, events: vec![event], columns }
}
