//! Counter-based pseudo-random numbers: each follows from seed, stream and index, without state.
//!
//! Neither cryptographic nor of statistical quality; it only has to look like sensor noise.

/// The sequence of random numbers of one event.
#[derive(Debug, Clone)]
pub(super) struct Noise(u64);

impl Noise {
    /// The sequence for `index` on `stream`.
    pub(super) fn new(seed: u64, stream: u64, index: u64) -> Self {
        Self(mix(mix(seed ^ STEP.wrapping_mul(stream + 1)) ^ index))
    }

    /// 64 fresh bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`, which must not be 0 and should be small.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() >> 32) * bound) >> 32
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of the generator SplitMix64.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
