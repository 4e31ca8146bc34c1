//! Data packets of the Velodyne sensors, and the messages that hold them, byte by byte. Knows no geometry.
//!
//! All models send 1206 bytes, little-endian: 12 blocks of 100 bytes, then 6 bytes of status. A block is an
//! id, an azimuth in hundredths of a degree, and 32 returns: two bytes of range and one of intensity.

#![warn(clippy::indexing_slicing)]

/// The length of every packet.
pub(super) const PACKET: usize = 1206;
/// Blocks of a packet.
pub(super) const BLOCKS: usize = 12;
/// Returns of a block.
pub(super) const LANES: usize = 32;
/// Hundredths of a degree in a turn.
pub(super) const TURN: u16 = 36_000;

const BLOCK: usize = 100;
/// Ids of blocks, as they are read.
const UPPER: u16 = 0xEEFF;
const LOWER: u16 = 0xDDFF;

/// What `velodyne_t` messages begin with.
const FINGERPRINT: [u8; 8] = 0x6d7d_fc11_eda8_2da7_u64.to_be_bytes();

/// A packet.
pub(super) type Packet = [u8; PACKET];

/// A packet, and the time that its message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found<'b> {
    pub(super) packet: &'b Packet,
    /// Microseconds.
    pub(super) utime: Option<i64>,
}

/// The half of a 64-laser head that a block is of. Others have one kind of block only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Upper,
    Lower,
}

/// A block of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'b> {
    /// Its place in the packet.
    pub(super) number: usize,
    pub(super) half: Half,
    /// Hundredths of a degree, below a turn.
    pub(super) azimuth: u16,
    pub(super) returns: &'b [[u8; 3]; LANES],
}

/// The blocks of a packet, up to the first that is of no known kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks<'b> {
    known: &'b [[u8; BLOCK]],
    /// Whether there are blocks of a lower half.
    halves: bool,
}

/// What the last two bytes of a packet say, if they are what newer sensors put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Factory {
    /// Whether pairs of blocks are two returns of the same light.
    pub(super) is_dual: bool,
    /// The sensor's number.
    pub(super) product: u8,
}

/// Why a payload has no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NoPacket {
    /// It is a packet of another length.
    Length(usize),
    /// It is no message that could hold one.
    Unknown,
    /// It is a message that is longer or shorter than it says.
    Message,
}

/// The packet that a payload is, or that a message in it holds.
///
/// Known are `velodyne_t`, packets as they are, and messages of any other type that has nothing but a
/// counted list of bytes.
pub(super) fn find(payload: &[u8]) -> Result<Found<'_>, NoPacket> {
    if let Ok(packet) = payload.try_into() {
        return Ok(Found { packet, utime: None });
    }
    let (head, rest) = payload.split_first_chunk::<8>().ok_or(NoPacket::Unknown)?;
    if *head == FINGERPRINT {
        let (utime, rest) = rest.split_first_chunk::<8>().ok_or(NoPacket::Message)?;
        let packet = counted(rest).ok_or(NoPacket::Message)?;
        return Ok(Found { packet: exact(packet)?, utime: Some(i64::from_be_bytes(*utime)) });
    }
    match counted(rest) {
        Some(packet) => Ok(Found { packet: exact(packet)?, utime: None }),
        None => Err(NoPacket::Unknown),
    }
}

/// The bytes that their number stands in front of.
fn counted(bytes: &[u8]) -> Option<&[u8]> {
    let (count, bytes) = bytes.split_first_chunk::<4>()?;
    (usize::try_from(i32::from_be_bytes(*count)) == Ok(bytes.len())).then_some(bytes)
}

/// The packet that these bytes are.
pub(super) fn exact(bytes: &[u8]) -> Result<&Packet, NoPacket> {
    bytes.try_into().map_err(|_| NoPacket::Length(bytes.len()))
}

impl<'b> Blocks<'b> {
    /// The blocks of a packet. `halves` says whether there may be lower ones.
    pub(super) fn of(packet: &'b Packet, halves: bool) -> Self {
        let all = packet.as_chunks().0;
        let end = all.iter().position(|block| half(block, halves).is_none());
        Self { known: all.get(..end.unwrap_or(BLOCKS)).unwrap_or(all), halves }
    }

    /// Whether the packet ends at a block of no known kind.
    pub(super) fn is_cut(&self) -> bool {
        self.known.len() < BLOCKS
    }

    /// How many of them have an azimuth that is no direction.
    pub(super) fn astray(&self) -> u64 {
        self.known.iter().filter(|block| azimuth(block) >= TURN).count() as u64
    }

    /// Block `number`, if it looks somewhere.
    #[inline]
    pub(super) fn at(&self, number: usize) -> Option<Block<'b>> {
        let block = self.known.get(number)?;
        let [_, _, _, _, returns @ ..] = block;
        let (half, azimuth) = (half(block, self.halves)?, azimuth(block));
        let returns = returns.as_chunks().0.try_into().ok()?;
        (azimuth < TURN).then_some(Block { number, half, azimuth, returns })
    }

    /// All that look somewhere, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Block<'b>> {
        (0..self.known.len()).filter_map(|number| self.at(number))
    }
}

/// The half that a block is of; nothing if it is of no known kind.
#[inline]
fn half([low, high, ..]: &[u8; BLOCK], halves: bool) -> Option<Half> {
    match u16::from_le_bytes([*low, *high]) {
        UPPER => Some(Half::Upper),
        LOWER if halves => Some(Half::Lower),
        _ => None,
    }
}

#[inline]
fn azimuth([_, _, low, high, ..]: &[u8; BLOCK]) -> u16 {
    u16::from_le_bytes([*low, *high])
}

impl Factory {
    /// What a packet says.
    pub(super) fn of(packet: &Packet) -> Option<Self> {
        let [.., mode, product] = *packet;
        (0x37..=0x39).contains(&mode).then_some(Self { is_dual: mode == 0x39, product })
    }
}
