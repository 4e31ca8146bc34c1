//! Decodes messages of one type into Arrow columns, on one thread, with events in memory: with
//! Sluice's codec, and with hand-written decoders. Prints a JSON line with the best of several
//! rounds.

use std::hint::black_box;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, StringBuilder,
};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use clap::{Parser, Subcommand, ValueEnum};
use sluice_benches::counts::CountTable;
use sluice_benches::robots;
use sluice_ice as _;
use sluice_kit::{CodecOptions, Codecs, TypeFile, TypePaths};
use sluice_lcm::LcmCodec;
use sluice_model::{Batch, BatchBuilder, ChannelId, PayloadType, Registry};
use sluice_orca as _;
use sluice_vel as _;

#[derive(Parser)]
#[command(about)]
struct DecoderArgs {
    #[command(subcommand)]
    task: DecoderTask,
}

#[derive(Subcommand)]
enum DecoderTask {
    /// Writes a log with messages of one type, and prints how many events and bytes of payload it
    /// has
    Make { of: Type, events: usize, log: PathBuf },
    /// Decodes such a log in several rounds
    Decode {
        of: Type,
        log: PathBuf,
        who: Decoder,
        #[arg(default_value = "7")]
        rounds: usize,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Type {
    Pose,
    Imu,
    Laser,
    Status,
    /// A scan of a VEL DataLog.
    Vel,
    /// A scan of an Orca log, in Ice encoding.
    Orca,
}

#[derive(Clone, Copy, ValueEnum)]
enum Decoder {
    Sluice,
    Hand,
    /// None: copies payloads at memory speed.
    Copy,
    /// Sluice's encoder: columns into payloads.
    Encode,
}

const TYPES: &str = include_str!("../../types/bench.lcm");
/// The maximum events and bytes of a batch, like a block of a log.
const BATCH: (usize, usize) = (8192, 2 << 20);

/// Longer than any column of a batch.
const LONG_BLOCK: usize = 24 << 20;

fn main() -> anyhow::Result<()> {
    match DecoderArgs::parse().task {
        DecoderTask::Make { of, events, log } => make(of, events, &log),
        DecoderTask::Decode { of, log, who, rounds } => decode(of, &log, who, rounds),
    }
}

impl Type {
    fn form(self) -> anyhow::Result<PayloadType> {
        let name = match self {
            Self::Pose => "bench.pose_t",
            Self::Imu => "bench.imu_t",
            Self::Laser => "bench.laser_t",
            Self::Status => "bench.status_t",
            Self::Vel => return self.built_in("vel", "LaserRange2DDataM.v102"),
            Self::Orca => return self.built_in("orca", "orca.LaserScanner2dData"),
        };
        let file = TypeFile { path: "bench.lcm".into(), text: TYPES.to_owned() };
        let codec = LcmCodec::from_files(vec![file], 1);
        let types = sluice_model::Codec::types(&codec).iter();
        let known = types.into_iter().find(|known| &*known.message_type.name == name);
        known.and_then(|known| known.payload_type.clone().ok()).context("the type is declared")
    }

    /// A type of a built-in set: of those with that name, the first that decodes our payloads.
    fn built_in(self, set: &str, name: &str) -> anyhow::Result<PayloadType> {
        let types = TypePaths(vec![set.into()]);
        let codecs = Codecs::from_paths(&Registry::linked(), &types, &CodecOptions::default());
        let codecs = codecs.map_err(|e| anyhow::anyhow!("{e}"))?;
        let (mut payload, mut one) = (Vec::new(), BatchBuilder::default());
        self.payload(0, &mut payload);
        one.push_copy(0, 0, ChannelId(0), &payload);
        let one = one.finish();
        let named = codecs.types().filter(|known| &*known.message_type.name == name);
        let mut forms = named.filter_map(|known| known.payload_type.clone().ok());
        forms.find(|form| by_plan(form, &one).is_ok()).context("the type is built in")
    }

    fn payload(self, n: usize, out: &mut Vec<u8>) {
        match self {
            Self::Vel => return robots::vel_scan_payload(n as u32, out),
            Self::Orca => return robots::ice_scan(n as u32, out),
            _ => {}
        }
        let value = |k: usize| ((n * 31 + k * 7) % 1000) as f64 * 0.25 - 100.0;
        out.extend_from_slice(&(1_194_098_400_000_000 + n as i64 * 5000).to_be_bytes());
        let doubles = |out: &mut Vec<u8>, count| {
            (0..count).for_each(|k| out.extend_from_slice(&value(k).to_be_bytes()));
        };
        let floats = |out: &mut Vec<u8>, count| {
            (0..count).for_each(|k| out.extend_from_slice(&(value(k) as f32).to_be_bytes()));
        };
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend_from_slice(&(text.len() as i32 + 1).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        };
        match self {
            Self::Pose => doubles(out, 16),
            Self::Imu => {
                doubles(out, 6);
                floats(out, 5);
            }
            Self::Laser => {
                out.extend_from_slice(&180_i32.to_be_bytes());
                floats(out, 180);
                out.extend_from_slice(&0_i32.to_be_bytes());
                floats(out, 2);
            }
            Self::Status => {
                text(out, ["planner", "controller", "perception"][n % 3]);
                out.extend_from_slice(&(n as i32 % 5).to_be_bytes());
                let items = n % 5 + 1;
                out.extend_from_slice(&(items as i32).to_be_bytes());
                for k in 0..items {
                    text(out, ["cpu", "memory", "temperature", "queue", "lag"][k % 5]);
                    out.extend_from_slice(&value(k).to_be_bytes());
                    out.push((n + k) as u8 % 2);
                }
                text(out, if n.is_multiple_of(4) { "" } else { "all is well, going on" });
            }
            Self::Vel | Self::Orca => {}
        }
    }
}

fn make(of: Type, events: usize, log: &PathBuf) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(log)?);
    let key = of.form()?.message_type().key.0;
    let (mut payload, mut bytes) = (Vec::new(), 0);
    for n in 0..events {
        payload.clear();
        if !matches!(of, Type::Vel | Type::Orca) {
            payload.extend_from_slice(&key.to_be_bytes());
        }
        of.payload(n, &mut payload);
        out.write_all(&0xeda1_da01_u32.to_be_bytes())?;
        out.write_all(&(n as i64).to_be_bytes())?;
        out.write_all(&(1_194_098_400_000_000 + n as i64 * 5000).to_be_bytes())?;
        out.write_all(&5_i32.to_be_bytes())?;
        out.write_all(&(payload.len() as i32).to_be_bytes())?;
        out.write_all(b"BENCH")?;
        out.write_all(&payload)?;
        bytes += payload.len() as u64;
    }
    out.flush()?;
    let mut counts = CountTable::default();
    counts.add("BENCH", events as u64, bytes);
    Ok(write!(std::io::stdout(), "{counts}")?)
}

fn decode(of: Type, log: &PathBuf, who: Decoder, rounds: usize) -> anyhow::Result<()> {
    // As the program does at start: from then on glibc keeps long blocks instead of returning each.
    drop(black_box(Vec::<u8>::with_capacity(LONG_BLOCK)));
    let (batches, form) = (batches(log)?, of.form()?);
    let rows: usize = batches.iter().map(Batch::len).sum();
    let mut best = f64::MAX;
    let decoded: Vec<RecordBatch> = match who {
        Decoder::Encode => {
            batches.iter().map(|batch| by_plan(&form, batch)).collect::<Result<_, _>>()?
        }
        Decoder::Sluice | Decoder::Hand | Decoder::Copy => Vec::new(),
    };
    for _ in 0..rounds {
        let start = Instant::now();
        let mut seen = 0;
        for (at, batch) in batches.iter().enumerate() {
            seen += match who {
                Decoder::Sluice => black_box(by_plan(&form, batch)?).num_rows(),
                Decoder::Hand => black_box(by_hand(of, batch)?).num_rows(),
                Decoder::Copy => {
                    let mut copy = Vec::with_capacity(batch.payload_bytes() as usize);
                    batch.iter().for_each(|event| copy.extend_from_slice(event.payload));
                    black_box(copy);
                    batch.len()
                }
                Decoder::Encode => {
                    let encoded = form.encode(&decoded[at], &mut Vec::new());
                    black_box(arrow_array::Array::len(&encoded.map_err(anyhow::Error::msg)?))
                }
            };
        }
        best = best.min(start.elapsed().as_secs_f64());
        if seen != rows {
            bail!("{seen} rows of {rows}");
        }
    }
    if let (Decoder::Hand, Some(batch)) = (who, batches.first()) {
        let (ours, theirs) = (by_plan(&form, batch)?, by_hand(of, batch)?);
        if ours.columns() != theirs.columns() {
            bail!("the decoders disagree");
        }
    }
    let rate = rows as f64 / best;
    let line = format!("{{\"rows\":{rows},\"seconds\":{best},\"rows_per_second\":{rate}}}\n");
    Ok(std::io::stdout().write_all(line.as_bytes())?)
}

fn batches(log: &PathBuf) -> anyhow::Result<Vec<Batch>> {
    let (mut batches, mut builder) = (Vec::new(), BatchBuilder::default());
    let mut waiting = (0, 0);
    sluice_benches::bare::for_each_event(std::fs::File::open(log)?, |_, payload, _| {
        builder.push_copy(0, 0, ChannelId(0), payload);
        waiting = (waiting.0 + 1, waiting.1 + payload.len());
        if waiting.0 >= BATCH.0 || waiting.1 >= BATCH.1 {
            batches.push(std::mem::take(&mut builder).finish());
            waiting = (0, 0);
        }
        Ok(())
    })?;
    batches.push(builder.finish());
    Ok(batches)
}

fn by_plan(form: &PayloadType, batch: &Batch) -> anyhow::Result<RecordBatch> {
    let events: Vec<u32> = (0..batch.len() as u32).collect();
    let mut bad = Vec::new();
    let rows = form.decode(batch, &events, &mut bad)?;
    if let Some((_, reason)) = bad.first() {
        bail!("{reason}");
    }
    Ok(rows.columns)
}

/// The rest of a payload, for the hand-written decoders.
struct PayloadCursor<'b>(&'b [u8]);

impl<'b> PayloadCursor<'b> {
    fn take<const N: usize>(&mut self) -> anyhow::Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().context("too short")?;
        self.0 = rest;
        Ok(*taken)
    }

    fn bytes(&mut self, len: usize) -> anyhow::Result<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).context("too short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn int32(&mut self) -> anyhow::Result<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn text(&mut self) -> anyhow::Result<&'b str> {
        let len = usize::try_from(self.int32()?)?;
        let text = self.bytes(len)?.strip_suffix(&[0]).context("no zero")?;
        Ok(std::str::from_utf8(text)?)
    }

    fn doubles<const N: usize>(&mut self, out: &mut Vec<f64>) -> anyhow::Result<()> {
        for _ in 0..N {
            out.push(f64::from_be_bytes(self.take()?));
        }
        Ok(())
    }

    fn floats(&mut self, count: usize, out: &mut Vec<f32>) -> anyhow::Result<()> {
        let bytes = self.bytes(count * 4)?;
        out.extend(bytes.as_chunks::<4>().0.iter().map(|word| f32::from_be_bytes(*word)));
        Ok(())
    }

    fn end(&self) -> anyhow::Result<()> {
        if self.0.is_empty() { Ok(()) } else { bail!("bytes are left") }
    }
}

fn by_hand(of: Type, batch: &Batch) -> anyhow::Result<RecordBatch> {
    match of {
        Type::Pose => pose(batch),
        Type::Imu => imu(batch),
        Type::Laser => laser(batch),
        Type::Status => status(batch),
        Type::Vel | Type::Orca => bail!("nobody has written a decoder for it by hand"),
    }
}

fn payloads(batch: &Batch) -> impl Iterator<Item = PayloadCursor<'_>> {
    (0..batch.len()).map(|row| PayloadCursor(batch.payload(row).get(8..).unwrap_or_default()))
}

fn fixed(size: i32, values: ArrayRef) -> ArrayRef {
    let field = Arc::new(Field::new("item", values.data_type().clone(), false));
    Arc::new(FixedSizeListArray::new(field, size, values, None))
}

fn table(columns: Vec<(&str, ArrayRef)>) -> anyhow::Result<RecordBatch> {
    let nullable = columns.into_iter().map(|(name, column)| (name, column, false));
    Ok(RecordBatch::try_from_iter_with_nullable(nullable)?)
}

fn pose(batch: &Batch) -> anyhow::Result<RecordBatch> {
    let len = batch.len();
    let mut utime = Vec::with_capacity(len);
    let [mut pos, mut vel, mut rate, mut accel] = [(); 4].map(|()| Vec::with_capacity(len * 3));
    let mut orientation = Vec::with_capacity(len * 4);
    for mut rest in payloads(batch) {
        utime.push(i64::from_be_bytes(rest.take()?));
        rest.doubles::<3>(&mut pos)?;
        rest.doubles::<3>(&mut vel)?;
        rest.doubles::<4>(&mut orientation)?;
        rest.doubles::<3>(&mut rate)?;
        rest.doubles::<3>(&mut accel)?;
        rest.end()?;
    }
    let list = |size, values: Vec<f64>| fixed(size, Arc::new(Float64Array::from(values)));
    table(vec![
        ("utime", Arc::new(Int64Array::from(utime))),
        ("pos", list(3, pos)),
        ("vel", list(3, vel)),
        ("orientation", list(4, orientation)),
        ("rotation_rate", list(3, rate)),
        ("accel", list(3, accel)),
    ])
}

fn imu(batch: &Batch) -> anyhow::Result<RecordBatch> {
    let len = batch.len();
    let mut utime = Vec::with_capacity(len);
    let [mut accel, mut gyro] = [(); 2].map(|()| Vec::with_capacity(len * 3));
    let [mut mag, mut temperature, mut pressure] = [3, 1, 1].map(|n| Vec::with_capacity(len * n));
    for mut rest in payloads(batch) {
        utime.push(i64::from_be_bytes(rest.take()?));
        rest.doubles::<3>(&mut accel)?;
        rest.doubles::<3>(&mut gyro)?;
        rest.floats(3, &mut mag)?;
        temperature.push(f32::from_be_bytes(rest.take()?));
        pressure.push(f32::from_be_bytes(rest.take()?));
        rest.end()?;
    }
    let list = |values: Vec<f64>| fixed(3, Arc::new(Float64Array::from(values)));
    table(vec![
        ("utime", Arc::new(Int64Array::from(utime))),
        ("accel", list(accel)),
        ("gyro", list(gyro)),
        ("mag", fixed(3, Arc::new(Float32Array::from(mag)))),
        ("temperature", Arc::new(Float32Array::from(temperature))),
        ("pressure", Arc::new(Float32Array::from(pressure))),
    ])
}

fn list(ends: Vec<i32>, values: ArrayRef) -> ArrayRef {
    let field = Arc::new(Field::new("item", values.data_type().clone(), false));
    Arc::new(ListArray::new(field, OffsetBuffer::new(ends.into()), values, None))
}

fn laser(batch: &Batch) -> anyhow::Result<RecordBatch> {
    let len = batch.len();
    let [mut nranges, mut nintensities] = [(); 2].map(|()| Vec::with_capacity(len));
    let [mut rad0, mut radstep] = [(); 2].map(|()| Vec::with_capacity(len));
    let (mut utime, mut ranges, mut intensities) = (Vec::with_capacity(len), vec![], vec![]);
    let (mut range_ends, mut intensity_ends) = (vec![0], vec![0]);
    for mut rest in payloads(batch) {
        utime.push(i64::from_be_bytes(rest.take()?));
        let count = rest.int32()?;
        nranges.push(count);
        rest.floats(usize::try_from(count)?, &mut ranges)?;
        range_ends.push(i32::try_from(ranges.len())?);
        let count = rest.int32()?;
        nintensities.push(count);
        rest.floats(usize::try_from(count)?, &mut intensities)?;
        intensity_ends.push(i32::try_from(intensities.len())?);
        rad0.push(f32::from_be_bytes(rest.take()?));
        radstep.push(f32::from_be_bytes(rest.take()?));
        rest.end()?;
    }
    table(vec![
        ("utime", Arc::new(Int64Array::from(utime))),
        ("nranges", Arc::new(Int32Array::from(nranges))),
        ("ranges", list(range_ends, Arc::new(Float32Array::from(ranges)))),
        ("nintensities", Arc::new(Int32Array::from(nintensities))),
        ("intensities", list(intensity_ends, Arc::new(Float32Array::from(intensities)))),
        ("rad0", Arc::new(Float32Array::from(rad0))),
        ("radstep", Arc::new(Float32Array::from(radstep))),
    ])
}

fn status(batch: &Batch) -> anyhow::Result<RecordBatch> {
    let (mut utime, mut mode, mut n) =
        (Int64Builder::new(), Int32Builder::new(), Int32Builder::new());
    let [mut name, mut message, mut key] = [(); 3].map(|()| StringBuilder::new());
    let (mut value, mut ok) = (Float64Builder::new(), BooleanBuilder::new());
    let (mut ends, mut end) = (vec![0], 0);
    for mut rest in payloads(batch) {
        utime.append_value(i64::from_be_bytes(rest.take()?));
        name.append_value(rest.text()?);
        mode.append_value(rest.int32()?);
        let count = rest.int32()?;
        n.append_value(count);
        for _ in 0..count {
            key.append_value(rest.text()?);
            value.append_value(f64::from_be_bytes(rest.take()?));
            ok.append_value(rest.take::<1>()?[0] != 0);
        }
        end += count;
        ends.push(end);
        message.append_value(rest.text()?);
        rest.end()?;
    }
    let items: Vec<(Field, ArrayRef)> = vec![
        (Field::new("key", DataType::Utf8, false), Arc::new(key.finish())),
        (Field::new("value", DataType::Float64, false), Arc::new(value.finish())),
        (Field::new("ok", DataType::Boolean, false), Arc::new(ok.finish())),
    ];
    let items = items.into_iter().map(|(field, column)| (Arc::new(field), column));
    let items = StructArray::from(items.collect::<Vec<_>>());
    table(vec![
        ("utime", Arc::new(utime.finish())),
        ("name", Arc::new(name.finish())),
        ("mode", Arc::new(mode.finish())),
        ("n", Arc::new(n.finish())),
        ("items", list(ends, Arc::new(items))),
        ("message", Arc::new(message.finish())),
    ])
}
