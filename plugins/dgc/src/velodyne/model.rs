//! The sensors whose packets are known: when their lasers fire, and where they look. Reads no packet.

use schemars::JsonSchema;
use serde::Deserialize;

use super::wire::LANES;

/// A sensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
pub enum Model {
    /// HDL-64E: two halves of 32 lasers.
    #[default]
    #[serde(rename = "hdl-64e")]
    Hdl64e,
    /// HDL-32E: 32 lasers.
    #[serde(rename = "hdl-32e")]
    Hdl32e,
    /// VLP-16: 16 lasers that fire twice a block.
    #[serde(rename = "vlp-16")]
    Vlp16,
}

/// When the lasers of a block fire.
///
/// The blocks of a packet lie in *slots* of equal length, one behind another. Times are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rhythm {
    /// From one slot to the next.
    pub(super) slot: i64,
    /// From a slot's beginning until each return of its blocks was fired.
    pub(super) lanes: [i64; LANES],
}

impl Model {
    /// Its name in options.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hdl64e => "hdl-64e",
            Self::Hdl32e => "hdl-32e",
            Self::Vlp16 => "vlp-16",
        }
    }

    /// How many lasers it has.
    pub(super) fn lasers(self) -> usize {
        match self {
            Self::Hdl64e => 64,
            Self::Hdl32e => 32,
            Self::Vlp16 => 16,
        }
    }

    /// Whether there are blocks of a lower half.
    pub(super) fn has_halves(self) -> bool {
        self == Self::Hdl64e
    }

    /// Whether the azimuth of a block holds for its first laser only, and those of the others follow from
    /// the next block's. The HDL-64E's is taken for all, as those do who corrected its lasers' angles.
    pub(super) fn is_interpolated(self) -> bool {
        self != Self::Hdl64e
    }

    /// What the last byte of its packets says.
    pub(super) fn product(self) -> Option<u8> {
        match self {
            Self::Hdl64e => None,
            Self::Hdl32e => Some(0x21),
            Self::Vlp16 => Some(0x22),
        }
    }

    /// How many blocks share a slot: an upper and a lower half fire at once, and pairs of blocks of two
    /// returns were fired once.
    pub(super) fn blocks_a_slot(self, is_dual: bool) -> usize {
        if self.has_halves() || is_dual { 2 } else { 1 }
    }

    /// When its lasers fire. Those of the VLP-16 and HDL-32E are from their manuals; the HDL-64E measures
    /// about a million points a second, so that two halves of 32 take 64 µs.
    pub(super) fn rhythm(self) -> Rhythm {
        let (slot, lane): (i64, fn(i64) -> i64) = match self {
            Self::Hdl64e => (64_000, |lane| lane * 2_000),
            Self::Hdl32e => (46_080, |lane| lane * 1_152),
            Self::Vlp16 => (2 * 55_296, |lane| lane / 16 * 55_296 + lane % 16 * 2_304),
        };
        Rhythm { slot, lanes: std::array::from_fn(|at| lane(at as i64)) }
    }

    /// Its built-in laser table.
    pub(super) fn table(self) -> &'static str {
        match self {
            Self::Hdl64e => include_str!("../../data/hdl-64e.csv"),
            Self::Hdl32e => include_str!("../../data/hdl-32e.csv"),
            Self::Vlp16 => include_str!("../../data/vlp-16.csv"),
        }
    }
}

/// What a sensor's number means.
pub(super) fn product_name(product: u8) -> &'static str {
    match product {
        0x21 => "an HDL-32E",
        0x22 => "a VLP-16",
        0x24 => "a Puck Hi-Res",
        0x28 => "a VLP-32C",
        0x63 | 0xA1 => "a VLS-128",
        _ => "a sensor that is not known",
    }
}
