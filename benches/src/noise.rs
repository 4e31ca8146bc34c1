//! Cheap deterministic noise. Not for secrets.

/// A xorshift generator.
#[derive(Debug)]
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        // Zero would stay zero for ever.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    #[inline]
    pub(crate) fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`, which is small.
    #[inline]
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((self.word() >> 32) * limit) >> 32
    }
}
