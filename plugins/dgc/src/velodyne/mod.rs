//! `velodyne`: packets of Velodyne sensors become points in the sensor's own frame. Moves no point: that is
//! for `to-frame`.
//!
//! `wire` finds packets and their blocks, `lasers` reads laser tables, `model` knows what sensors
//! differ in, `decoder` makes points.

mod decoder;
mod lasers;
mod model;
mod wire;

use std::fmt;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{
    Batch, Channel, Channels, Error, Map, MapQuery, OptionsError, Pattern, Patterns, Payloads,
    PerChannel, Rows, Stage, StageContext,
};

use crate::points::{Cloud, Frame, UTIME};
use crate::taken::Told;
use decoder::{Decoder, Limits};
pub use model::Model;
use model::product_name;
use sluice_core::UndecodedPolicy;
use wire::{BLOCKS, Blocks, Factory, Found, LANES, NoPacket};

/// Options of `velodyne`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VelodyneOptions {
    /// Channels that have packets. All others pass as they are.
    pub channels: Patterns,
    /// The sensor that sent them.
    pub model: Model,
    /// A table of the sensor's lasers, as CSV. None given: that of the model.
    #[schemars(extend("format" = sluice_core::options::PATH_FORMAT))]
    pub lasers: Option<PathBuf>,
    /// Leaves out what the sensor saw no return of. Of an HDL-64E these are points within 0.6 m otherwise.
    pub drop_zero_returns: bool,
    /// Metres below which there are no points.
    pub min_range: Option<f64>,
    /// Metres beyond which there are no points.
    pub max_range: Option<f64>,
    /// What becomes of events that cannot be decoded.
    pub undecoded: UndecodedPolicy,
}

impl Default for VelodyneOptions {
    fn default() -> Self {
        Self {
            channels: Patterns(Pattern::parse("VELODYNE*").into_iter().collect()),
            model: Model::default(),
            lasers: None,
            drop_zero_returns: false,
            min_range: None,
            max_range: None,
            undecoded: UndecodedPolicy::default(),
        }
    }
}

sluice_core::register! {
    stage "velodyne": VelodyneOptions,
    about: "turns packets of Velodyne sensors into points",
    sample: include_str!("../../samples/velodyne.toml"),
}

struct Velodyne {
    channels: Patterns,
    is_asked: PerChannel<bool>,
    model: Model,
    decoder: Decoder,
    undecoded: UndecodedPolicy,
    /// What the table is, if it was given.
    made_from: Option<String>,
}

impl TryFrom<VelodyneOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: VelodyneOptions) -> Result<Self, OptionsError> {
        let VelodyneOptions { model, min_range, max_range, drop_zero_returns, .. } = options;
        let wrong = |key: &str, message: String| OptionsError { path: vec![key.into()], message };
        let limits = Limits::new(drop_zero_returns, min_range, max_range)
            .map_err(|(key, message)| wrong(key, message))?;
        let given = options.lasers.as_deref().map(lasers::read).transpose();
        let given = given.map_err(|e| wrong("lasers", e.to_string()))?;
        let lasers = lasers::parse(given.as_deref().unwrap_or(model.table()), model)
            .map_err(|mistake| wrong("lasers", mistake))?;
        let hash = |text: String| format!("lasers, blake3 {}", blake3::hash(text.as_bytes()));
        Ok(Self::Map(Box::new(Velodyne {
            channels: options.channels,
            is_asked: PerChannel::default(),
            model,
            decoder: Decoder::new(model, &lasers, limits),
            undecoded: options.undecoded,
            made_from: given.map(hash),
        })))
    }
}

/// What is told of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    NoPacket(NoPacket),
    /// Only decoded rows are left of the event, and none has the bytes.
    NoData,
    NoBlock,
    Cut,
    Astray,
    OutOfRange,
    Product(Model, u8),
}

/// Lengths of packets are told up to here, so that they cannot be as many as there are packets.
const LONGEST_TOLD: usize = 2_000;

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPacket(NoPacket::Length(len)) if *len > LONGEST_TOLD => {
                write!(f, "a packet of more than {LONGEST_TOLD} bytes, and {} are needed", wire::PACKET)
            }
            Self::NoPacket(NoPacket::Length(len)) => {
                write!(f, "a packet of {len} bytes, and {} are needed", wire::PACKET)
            }
            Self::NoPacket(NoPacket::Unknown) => f.write_str(
                "a payload that is neither a packet nor a message of nothing but one: decode it before, if \
                 its type has a field `data` with one",
            ),
            Self::NoPacket(NoPacket::Message) => {
                f.write_str("a `velodyne_t` that is not as long as it says")
            }
            Self::NoData => f.write_str("an event that was decoded, and has no binary column `data`"),
            Self::NoBlock => f.write_str("a packet without a block that can be used"),
            Self::Cut => {
                f.write_str("a packet that ends at a block of no known kind; what is before it is kept")
            }
            Self::Astray => {
                f.write_str("a block whose azimuth is 360 degrees or more; it is left out")
            }
            Self::OutOfRange => {
                f.write_str("returns that give no point: nearer or farther than points are given")
            }
            Self::Product(model, product) => {
                let (name, model) = (product_name(*product), model.name());
                write!(f, "a packet of {name}, as its last byte says, read as one of `{model}`")
            }
        }
    }
}

/// Where the packet of an event is to be found.
#[derive(Clone, Copy)]
enum Place {
    Payload,
    /// In the decoded rows of that number, and in that row.
    Row(usize, usize),
    Nowhere,
}

impl Velodyne {
    /// The events to look at, and where each has its packet.
    fn places(&self, batch: &Batch, channels: &Channels) -> Result<Vec<(u32, Place)>, Error> {
        let asked = |channel: &Channel| Ok(self.channels.matches(channel.name.text()));
        let is_asked = self.is_asked.table(channels, asked)?;
        let events = (0u32..).zip(batch.channels());
        let asked = events.filter(|(_, channel)| is_asked[**channel as usize]);
        let mut places: Vec<(u32, Place)> =
            asked.map(|(event, _)| (event, Place::Payload)).collect();
        for (at, rows) in batch.rows().iter().enumerate() {
            let has_data = data(rows).is_some();
            for (row, event) in rows.events.iter().enumerate() {
                let Ok(found) = places.binary_search_by_key(event, |(event, _)| *event) else {
                    continue;
                };
                let place = &mut places[found].1;
                match (has_data, rows.payloads) {
                    (true, _) => *place = Place::Row(at, row),
                    (false, Payloads::Gone) if !matches!(place, Place::Row(..)) => {
                        *place = Place::Nowhere;
                    }
                    _ => {}
                }
            }
        }
        Ok(places)
    }

    /// Appends the points of one event. Nothing is appended if there is something wrong with all of it.
    fn append(
        &self,
        event: u32,
        channel: u32,
        (found, timestamp): (Found<'_>, i64),
        cloud: &mut Cloud,
        told: &mut Told<What>,
    ) -> Result<(), Error> {
        let blocks = Blocks::of(found.packet, self.model.has_halves());
        if blocks.iter().next().is_none() {
            told.fail(event, channel, What::NoBlock);
            return Ok(());
        }
        let factory = Factory::of(found.packet);
        for (what, count) in
            [(What::Cut, u64::from(blocks.is_cut())), (What::Astray, blocks.astray())]
        {
            if count > 0 {
                told.note(channel, what, count);
            }
        }
        if let Some(product) = self.other_product(factory, &blocks) {
            told.note(channel, What::Product(self.model, product), 1);
        }
        let ended = found.utime.map_or(timestamp, |utime| utime.saturating_mul(1_000));
        let left_out = self.decoder.append(&blocks, factory, ended, cloud);
        if left_out > 0 {
            told.note(channel, What::OutOfRange, left_out);
        }
        cloud.end_event(event, found.utime.unwrap_or(timestamp.div_euclid(1_000)), true)
    }

    /// The sensor that a packet says it is of, if that is not ours.
    fn other_product(&self, factory: Option<Factory>, blocks: &Blocks<'_>) -> Option<u8> {
        let product = factory?.product;
        let is_other = match self.model.product() {
            Some(ours) => product != ours,
            // Older sensors have other things in that place. One with a lower half is surely no other.
            None => {
                let others = [Model::Hdl32e, Model::Vlp16].map(Model::product);
                let is_upper = blocks.iter().all(|block| block.half == wire::Half::Upper);
                others.contains(&Some(product)) && is_upper
            }
        };
        is_other.then_some(product)
    }
}

/// The column with packets.
fn data(rows: &Rows) -> Option<&ArrayRef> {
    let column = rows.columns.column_by_name("data")?;
    is_binary(column).then_some(column)
}

fn is_binary(column: &ArrayRef) -> bool {
    use arrow_schema::DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary};
    matches!(column.data_type(), Binary | BinaryView | FixedSizeBinary(_) | LargeBinary)
}

/// The bytes of a row of such a column.
fn bytes(column: &ArrayRef, row: usize) -> Option<&[u8]> {
    if column.is_null(row) {
        return None;
    }
    column
        .as_binary_opt::<i32>()
        .map(|column| column.value(row))
        .or_else(|| column.as_fixed_size_binary_opt().map(|column| column.value(row)))
        .or_else(|| column.as_binary_opt::<i64>().map(|column| column.value(row)))
        .or_else(|| column.as_binary_view_opt().map(|column| column.value(row)))
}

/// The packet at a place.
fn find(batch: &Batch, event: u32, place: Place) -> Result<Found<'_>, What> {
    match place {
        Place::Payload => wire::find(batch.payload(event as usize)).map_err(What::NoPacket),
        Place::Row(at, row) => {
            let rows = &batch.rows()[at];
            let bytes = data(rows).and_then(|column| bytes(column, row)).ok_or(What::NoData)?;
            let utimes = rows.columns.column_by_name(UTIME);
            let utimes = utimes.and_then(|column| column.as_primitive_opt::<Int64Type>());
            let utime =
                utimes.filter(|utimes| utimes.is_valid(row)).map(|utimes| utimes.value(row));
            let packet = wire::exact(bytes).map_err(What::NoPacket)?;
            Ok(Found { packet, utime })
        }
        Place::Nowhere => Err(What::NoData),
    }
}

impl Map for Velodyne {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let places = self.places(&batch, context.channels)?;
        if places.is_empty() {
            return Ok(batch);
        }
        let is_long = |(event, place): &&(u32, Place)| {
            matches!(place, Place::Row(..)) || batch.payload_len(*event as usize) >= wire::PACKET
        };
        let packets = places.iter().filter(is_long).count();
        let mut cloud = Cloud::with_capacity(packets * BLOCKS * LANES, packets);
        let mut told = Told::default();
        for (event, place) in places {
            let (at, channel) = (event as usize, batch.channels()[event as usize]);
            match find(&batch, event, place) {
                Ok(found) => {
                    let found = (found, batch.timestamps()[at]);
                    self.append(event, channel, found, &mut cloud, &mut told)?;
                }
                Err(what) => told.fail(event, channel, what.bounded()),
            }
        }
        let rows = Some(cloud.finish(Frame::Sensor)).filter(|rows| !rows.events.is_empty());
        told.end(batch, rows, self.undecoded, context)
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        self.made_from.clone()
    }
}

impl What {
    /// The same, of which there are only so many.
    fn bounded(self) -> Self {
        match self {
            Self::NoPacket(NoPacket::Length(len)) => {
                Self::NoPacket(NoPacket::Length(len.min(LONGEST_TOLD + 1)))
            }
            other => other,
        }
    }
}
