//! Stage `velodyne`: turns packets of Velodyne sensors into points in the sensor's frame. To move
//! points, use `to-frame`.
//!
//! `wire` finds packets and their blocks, `lasers` reads laser tables, `model` describes the
//! sensors, `decoder` computes points.

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
use sluice_model::{
    Batch, Channel, Channels, Error, Map, MapQuery, OptionsError, Pattern, Patterns, Payloads,
    PerChannel, Rows, Stage, StageContext,
};

use crate::event_report::EventReport;
use crate::points::{CloudBuilder, CloudTime, IMPOSSIBLE_TIME, PointFrame, UTIME};
use decoder::{PacketDecoder, RangeLimits};
use model::{Model, product_name};
use sluice_model::UndecodedPolicy;
use wire::{BLOCKS, DataBlock, DataBlocks, FactoryBytes, LANES, NoPacket, TimedPacket};

/// Options of `velodyne`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VelodyneOptions {
    /// Channels with packets. All others pass unchanged.
    pub(crate) channels: Patterns,
    /// The sensor model.
    pub(crate) model: Model,
    /// Laser table of the sensor, as CSV. Default: the built-in table of the model.
    #[schemars(extend("format" = sluice_model::options::PATH_FORMAT))]
    pub(crate) lasers: Option<PathBuf>,
    /// Drops empty returns. For an HDL-64E they become points within 0.6 m otherwise.
    pub(crate) drop_zero_returns: bool,
    /// Minimum range of points, in metres.
    pub(crate) min_range: Option<f64>,
    /// Maximum range of points, in metres.
    pub(crate) max_range: Option<f64>,
    /// What happens to events that cannot be decoded.
    pub(crate) undecoded: UndecodedPolicy,
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

sluice_model::register! {
    stage "velodyne": VelodyneOptions,
    about: "turns packets of Velodyne sensors into points",
    sample: include_str!("../../samples/velodyne.toml"),
}

struct VelodyneStage {
    channels: Patterns,
    is_selected: PerChannel<bool>,
    model: Model,
    decoder: PacketDecoder,
    undecoded: UndecodedPolicy,
    /// Identifies the laser table, if the option `lasers` is set.
    lasers_fingerprint: Option<String>,
}

impl TryFrom<VelodyneOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: VelodyneOptions) -> Result<Self, OptionsError> {
        let VelodyneOptions { model, min_range, max_range, drop_zero_returns, .. } = options;
        let limits = RangeLimits::new(drop_zero_returns, min_range, max_range)
            .map_err(|(key, message)| OptionsError::at(key, message))?;
        let table = options.lasers.as_deref().map(lasers::read).transpose();
        let table = table.map_err(|e| OptionsError::at("lasers", e.to_string()))?;
        let lasers = lasers::parse(table.as_deref().unwrap_or(model.table()), model)
            .map_err(|mistake| OptionsError::at("lasers", mistake))?;
        let hash = |text: String| format!("lasers, blake3 {}", blake3::hash(text.as_bytes()));
        Ok(Self::Map(Box::new(VelodyneStage {
            channels: options.channels,
            is_selected: PerChannel::default(),
            model,
            decoder: PacketDecoder::new(model, &lasers, limits),
            undecoded: options.undecoded,
            lasers_fingerprint: table.map(hash),
        })))
    }
}

/// Notes about packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PacketIssue {
    NoPacket(NoPacket),
    /// The event only has decoded rows, and none contains the packet.
    NoData,
    NoBlock,
    CutShort,
    InvalidAzimuth,
    OutOfRange,
    ImpossibleTime,
    Product(Model, u8),
}

/// Longer packets share one note, which bounds the number of notes.
const MAX_REPORTED_LEN: usize = 2_000;

impl fmt::Display for PacketIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPacket(NoPacket::Length(len)) if *len > MAX_REPORTED_LEN => {
                write!(f, "packet of more than {MAX_REPORTED_LEN} bytes, expected {}", wire::PACKET)
            }
            Self::NoPacket(NoPacket::Length(len)) => {
                write!(f, "packet of {len} bytes, expected {}", wire::PACKET)
            }
            Self::NoPacket(NoPacket::Unknown) => f.write_str(
                "neither a packet nor a message with only a packet; if its type has a field \
                 `data`, decode it with a stage `decode` before",
            ),
            Self::NoPacket(NoPacket::Message) => f.write_str("`velodyne_t` with a wrong length"),
            Self::NoData => f.write_str("decoded without a binary column `data`"),
            Self::NoBlock => f.write_str("packet without a valid block"),
            Self::CutShort => {
                f.write_str("packets with a block of unknown kind; the blocks before it are used")
            }
            Self::InvalidAzimuth => {
                f.write_str("blocks whose azimuth is 360 degrees or more; dropped")
            }
            Self::OutOfRange => f.write_str("returns out of range; dropped"),
            Self::ImpossibleTime => f.write_str(IMPOSSIBLE_TIME),
            Self::Product(model, product) => {
                let (name, model) = (product_name(*product), model.name());
                write!(f, "packets of {name}, according to their last byte, decoded as `{model}`")
            }
        }
    }
}

/// What decoding found in a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PacketCounts {
    /// Blocks of known kind before the first of unknown kind.
    blocks: usize,
    /// Those with an invalid azimuth, which have no points.
    invalid_azimuths: usize,
    /// Non-empty returns out of range.
    left_out: u64,
}

/// Where the packet of an event is.
#[derive(Clone, Copy)]
enum PacketLocation {
    Payload,
    /// Index of the decoded rows, and row.
    Row(usize, usize),
    Nowhere,
}

impl VelodyneStage {
    /// The selected events and the locations of their packets.
    fn locate_packets(
        &self,
        batch: &Batch,
        channels: &Channels,
    ) -> Result<Vec<(u32, PacketLocation)>, Error> {
        let selected = |channel: &Channel| Ok(self.channels.matches(channel.name.text()));
        let is_selected = self.is_selected.table(channels, selected)?;
        let events = (0u32..).zip(batch.channels());
        let selected = events.filter(|(_, channel)| is_selected[**channel as usize]);
        let mut locations: Vec<(u32, PacketLocation)> =
            selected.map(|(event, _)| (event, PacketLocation::Payload)).collect();
        for (at, rows) in batch.rows().iter().enumerate() {
            let has_data = data_column(rows).is_some();
            for (row, event) in rows.events.iter().enumerate() {
                let Ok(index) = locations.binary_search_by_key(event, |(event, _)| *event) else {
                    continue;
                };
                let location = &mut locations[index].1;
                match (has_data, rows.payloads) {
                    (true, _) => *location = PacketLocation::Row(at, row),
                    (false, Payloads::Gone) if !matches!(location, PacketLocation::Row(..)) => {
                        *location = PacketLocation::Nowhere;
                    }
                    _ => {}
                }
            }
        }
        Ok(locations)
    }

    /// Appends the points of one event. Appends nothing if the whole packet is invalid.
    fn append(
        &self,
        event: u32,
        channel: u32,
        (timed, timestamp): (TimedPacket<'_>, i64),
        cloud: &mut CloudBuilder,
        report: &mut EventReport<PacketIssue>,
    ) -> Result<(), Error> {
        let blocks = DataBlocks::from_packet(timed.packet, self.model.has_halves());
        let factory = FactoryBytes::from_packet(timed.packet);
        let (ended, is_impossible) = CloudTime::resolve(timed.utime, timestamp);
        let counts = self.decoder.append(&blocks, factory, ended.nanos, cloud);
        if counts.blocks == counts.invalid_azimuths {
            report.skip(event, channel, PacketIssue::NoBlock);
            return Ok(());
        }
        for (what, count) in [
            (PacketIssue::CutShort, u64::from(counts.blocks < BLOCKS)),
            (PacketIssue::InvalidAzimuth, counts.invalid_azimuths as u64),
            (PacketIssue::ImpossibleTime, u64::from(is_impossible)),
            (PacketIssue::OutOfRange, counts.left_out),
        ] {
            if count > 0 {
                report.note(channel, what, count);
            }
        }
        if let Some(product) = self.other_product(factory, &blocks) {
            report.note(channel, PacketIssue::Product(self.model, product), 1);
        }
        cloud.end_event(event, ended.micros, true)
    }

    /// The product number in the packet, if it is not that of our model.
    fn other_product(&self, factory: Option<FactoryBytes>, blocks: &DataBlocks<'_>) -> Option<u8> {
        let product = factory?.product;
        let is_other = match self.model.product() {
            Some(ours) => product != ours,
            // Older sensors store something else there. A packet with a lower half is certainly an
            // HDL-64E.
            None => {
                let others = [Model::Hdl32e, Model::Vlp16].map(Model::product);
                let mut blocks = blocks.iter().filter(DataBlock::is_valid);
                let is_upper = blocks.all(|block| block.half == wire::HeadHalf::Upper);
                others.contains(&Some(product)) && is_upper
            }
        };
        is_other.then_some(product)
    }
}

/// The column with packets.
fn data_column(rows: &Rows) -> Option<&ArrayRef> {
    let column = rows.columns.column_by_name("data")?;
    is_binary(column).then_some(column)
}

fn is_binary(column: &ArrayRef) -> bool {
    use arrow_schema::DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary};
    matches!(column.data_type(), Binary | BinaryView | FixedSizeBinary(_) | LargeBinary)
}

/// The bytes in a row of such a column.
fn column_bytes(column: &ArrayRef, row: usize) -> Option<&[u8]> {
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

/// The packet at a location.
fn read_packet(
    batch: &Batch,
    event: u32,
    location: PacketLocation,
) -> Result<TimedPacket<'_>, PacketIssue> {
    match location {
        PacketLocation::Payload => {
            wire::find_packet(batch.payload(event as usize)).map_err(PacketIssue::NoPacket)
        }
        PacketLocation::Row(at, row) => {
            let rows = &batch.rows()[at];
            let bytes = data_column(rows)
                .and_then(|column| column_bytes(column, row))
                .ok_or(PacketIssue::NoData)?;
            let utimes = rows.columns.column_by_name(UTIME);
            let utimes = utimes.and_then(|column| column.as_primitive_opt::<Int64Type>());
            let utime =
                utimes.filter(|utimes| utimes.is_valid(row)).map(|utimes| utimes.value(row));
            let packet = wire::as_packet(bytes).map_err(PacketIssue::NoPacket)?;
            Ok(TimedPacket { packet, utime })
        }
        PacketLocation::Nowhere => Err(PacketIssue::NoData),
    }
}

impl Map for VelodyneStage {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let locations = self.locate_packets(&batch, context.channels)?;
        if locations.is_empty() {
            return Ok(batch);
        }
        let is_long = |(event, location): &&(u32, PacketLocation)| {
            matches!(location, PacketLocation::Row(..))
                || batch.payload_len(*event as usize) >= wire::PACKET
        };
        let packets = locations.iter().filter(is_long).count();
        let mut cloud = CloudBuilder::with_capacity(packets * BLOCKS * LANES, packets);
        let mut report = EventReport::default();
        for (event, location) in locations {
            let (at, channel) = (event as usize, batch.channels()[event as usize]);
            match read_packet(&batch, event, location) {
                Ok(timed) => {
                    let timed = (timed, batch.timestamps()[at]);
                    self.append(event, channel, timed, &mut cloud, &mut report)?;
                }
                Err(what) => report.skip(event, channel, what.bounded()),
            }
        }
        let rows = Some(cloud.finish(PointFrame::Sensor)).filter(|rows| !rows.events.is_empty());
        report.finish(batch, rows, self.undecoded, context)
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        self.lasers_fingerprint.clone()
    }
}

impl PacketIssue {
    /// Bounds the number of distinct values.
    fn bounded(self) -> Self {
        match self {
            Self::NoPacket(NoPacket::Length(len)) => {
                Self::NoPacket(NoPacket::Length(len.min(MAX_REPORTED_LEN + 1)))
            }
            other => other,
        }
    }
}
