//! Data packets of Velodyne sensors, and the messages that contain them. Knows no geometry.
//!
//! All models send 1206 bytes, little-endian: 12 blocks of 100 bytes, then 6 status bytes. A block
//! is an id, an azimuth in hundredths of a degree, and 32 returns: two bytes of range and one of
//! intensity.

#![warn(clippy::indexing_slicing)]

/// Length of a packet.
pub(super) const PACKET: usize = 1206;
/// Blocks per packet.
pub(super) const BLOCKS: usize = 12;
/// Returns per block.
pub(super) const LANES: usize = 32;
/// A full turn in hundredths of a degree.
pub(super) const TURN: u16 = 36_000;

const BLOCK: usize = 100;
/// Block ids, read as little-endian.
const UPPER: u16 = 0xEEFF;
const LOWER: u16 = 0xDDFF;

/// The fingerprint of `velodyne_t`.
const FINGERPRINT: [u8; 8] = 0x6d7d_fc11_eda8_2da7_u64.to_be_bytes();

/// A packet.
pub(super) type Packet = [u8; PACKET];

/// A packet, and the time of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimedPacket<'b> {
    pub(super) packet: &'b Packet,
    /// Microseconds.
    pub(super) utime: Option<i64>,
}

/// The half of a 64-laser head that fired a block. Other sensors only have upper blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadHalf {
    Upper,
    Lower,
}

/// A block of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataBlock<'b> {
    /// Index in the packet.
    pub(super) number: usize,
    pub(super) half: HeadHalf,
    /// Hundredths of a degree. Invalid from a full turn on.
    pub(super) azimuth: u16,
    pub(super) returns: &'b [[u8; 3]; LANES],
}

/// The blocks of a packet, up to the first of unknown kind. Nothing is read before it is asked for:
/// looking at all blocks first would wait for the memory of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataBlocks<'b> {
    all: &'b [[u8; BLOCK]],
    /// Whether lower blocks are valid.
    halves: bool,
}

/// The factory bytes: the last two bytes of a packet, if they are what newer sensors store there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FactoryBytes {
    /// Whether pairs of blocks are dual returns of the same pulse.
    pub(super) is_dual: bool,
    /// The product number of the sensor.
    pub(super) product: u8,
}

/// Why a payload contains no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NoPacket {
    /// A packet of another length.
    Length(usize),
    /// Not a message that could contain a packet.
    Unknown,
    /// A message whose length is wrong.
    Message,
}

/// Finds the packet in a payload.
///
/// Supports `velodyne_t`, bare packets, and messages of any other type that only consists of a
/// length-prefixed byte array.
pub(super) fn find_packet(payload: &[u8]) -> Result<TimedPacket<'_>, NoPacket> {
    if let Ok(packet) = payload.try_into() {
        return Ok(TimedPacket { packet, utime: None });
    }
    let (head, rest) = payload.split_first_chunk::<8>().ok_or(NoPacket::Unknown)?;
    if *head == FINGERPRINT {
        let (utime, rest) = rest.split_first_chunk::<8>().ok_or(NoPacket::Message)?;
        let packet = length_prefixed(rest).ok_or(NoPacket::Message)?;
        return Ok(TimedPacket {
            packet: as_packet(packet)?,
            utime: Some(i64::from_be_bytes(*utime)),
        });
    }
    match length_prefixed(rest) {
        Some(packet) => Ok(TimedPacket { packet: as_packet(packet)?, utime: None }),
        None => Err(NoPacket::Unknown),
    }
}

/// A length-prefixed byte array that fills `bytes`.
fn length_prefixed(bytes: &[u8]) -> Option<&[u8]> {
    let (count, bytes) = bytes.split_first_chunk::<4>()?;
    (usize::try_from(i32::from_be_bytes(*count)) == Ok(bytes.len())).then_some(bytes)
}

/// The bytes as a packet.
pub(super) fn as_packet(bytes: &[u8]) -> Result<&Packet, NoPacket> {
    bytes.try_into().map_err(|_| NoPacket::Length(bytes.len()))
}

impl<'b> DataBlocks<'b> {
    /// The blocks of a packet. `halves` allows lower blocks.
    pub(super) fn from_packet(packet: &'b Packet, halves: bool) -> Self {
        Self { all: packet.as_chunks().0, halves }
    }

    /// The blocks in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = DataBlock<'b>> {
        self.iter_from(0)
    }

    /// The blocks from `first` on, if the one before it is of known kind.
    #[inline]
    pub(super) fn iter_from(&self, first: usize) -> impl Iterator<Item = DataBlock<'b>> {
        let halves = self.halves;
        let numbered = (first..).zip(self.all.get(first..).unwrap_or_default());
        numbered.map_while(move |(number, block)| {
            let [_, _, low, high, returns @ ..] = block;
            Some(DataBlock {
                number,
                half: half(block, halves)?,
                azimuth: u16::from_le_bytes([*low, *high]),
                returns: returns.as_chunks().0.try_into().ok()?,
            })
        })
    }
}

impl DataBlock<'_> {
    /// Whether its azimuth is less than a full turn.
    #[inline]
    pub(super) fn is_valid(&self) -> bool {
        self.azimuth < TURN
    }
}

/// The half of a block. `None` if its kind is unknown.
#[inline]
fn half([low, high, ..]: &[u8; BLOCK], halves: bool) -> Option<HeadHalf> {
    match u16::from_le_bytes([*low, *high]) {
        UPPER => Some(HeadHalf::Upper),
        LOWER if halves => Some(HeadHalf::Lower),
        _ => None,
    }
}

impl FactoryBytes {
    /// The factory bytes of a packet, if it has any.
    pub(super) fn from_packet(packet: &Packet) -> Option<Self> {
        let [.., mode, product] = *packet;
        (0x37..=0x39).contains(&mode).then_some(Self { is_dual: mode == 0x39, product })
    }
}
