//! The supported sensors: when their lasers fire, and the built-in laser tables. Reads no packets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire::LANES;

/// A sensor model.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub(crate) enum Model {
    /// HDL-64E: two halves of 32 lasers.
    #[default]
    #[serde(rename = "hdl-64e")]
    Hdl64e,
    /// HDL-32E: 32 lasers.
    #[serde(rename = "hdl-32e")]
    Hdl32e,
    /// VLP-16: 16 lasers that fire twice per block.
    #[serde(rename = "vlp-16")]
    Vlp16,
}

/// When the lasers of a block fire.
///
/// The blocks of a packet occupy consecutive *slots* of equal length. Times are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct FiringTimes {
    /// Duration of a slot.
    pub(super) slot: i64,
    /// Offset of each lane from the start of its slot.
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

    /// The number of lasers.
    pub(super) fn lasers(self) -> usize {
        match self {
            Self::Hdl64e => 64,
            Self::Hdl32e => 32,
            Self::Vlp16 => 16,
        }
    }

    /// Whether packets have separate blocks for the upper and lower half.
    pub(super) fn has_halves(self) -> bool {
        self == Self::Hdl64e
    }

    /// Whether the azimuth of a block only applies to its first laser, and is interpolated for the
    /// others. That of the HDL-64E applies to all, as in the corrections of its laser table.
    pub(super) fn is_interpolated(self) -> bool {
        self != Self::Hdl64e
    }

    /// The product number in the last byte of its packets.
    pub(super) fn product(self) -> Option<u8> {
        match self {
            Self::Hdl64e => None,
            Self::Hdl32e => Some(0x21),
            Self::Vlp16 => Some(0x22),
        }
    }

    /// The number of blocks per slot: 2 if two halves fire at once, or for dual returns.
    pub(super) fn blocks_per_slot(self, is_dual: bool) -> usize {
        if self.has_halves() || is_dual { 2 } else { 1 }
    }

    /// The firing times. Those of the VLP-16 and HDL-32E are from their manuals. The HDL-64E
    /// measures about a million points per second, so two halves of 32 take 64 µs.
    pub(super) fn firing_times(self) -> FiringTimes {
        let (slot, lane): (i64, fn(i64) -> i64) = match self {
            Self::Hdl64e => (64_000, |lane| lane * 2_000),
            Self::Hdl32e => (46_080, |lane| lane * 1_152),
            Self::Vlp16 => (2 * 55_296, |lane| lane / 16 * 55_296 + lane % 16 * 2_304),
        };
        FiringTimes { slot, lanes: std::array::from_fn(|at| lane(at as i64)) }
    }

    /// The built-in laser table.
    pub(super) fn table(self) -> &'static str {
        match self {
            Self::Hdl64e => include_str!("../../data/hdl-64e.csv"),
            Self::Hdl32e => include_str!("../../data/hdl-32e.csv"),
            Self::Vlp16 => include_str!("../../data/vlp-16.csv"),
        }
    }
}

/// The sensor with this product number.
pub(super) fn product_name(product: u8) -> &'static str {
    match product {
        0x21 => "an HDL-32E",
        0x22 => "a VLP-16",
        0x24 => "a Puck Hi-Res",
        0x28 => "a VLP-32C",
        0x63 | 0xA1 => "a VLS-128",
        _ => "an unknown sensor",
    }
}
