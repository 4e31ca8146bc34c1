//! LCM's wire format, as far as the five types of the drive need it.
//!
//! It only encodes. The decoders of other crates are tested against it, not built on it.

pub(super) const POSE: u64 = 0x2e16_efb0_52b0_105e;
pub(super) const IMAGE: u64 = 0xcc27_dfe2_9341_1b79;
pub(super) const LASER: u64 = 0xe3d1_7423_180b_5e8d;
pub(super) const VELODYNE: u64 = 0x6d7d_fc11_eda8_2da7;
pub(super) const GPS_TO_LOCAL: u64 = 0x4d0c_279a_87b8_ec9d;

/// Appends a payload to the caller's buffer.
pub(super) struct PayloadEncoder<'a>(pub(super) &'a mut Vec<u8>);

impl<'a> PayloadEncoder<'a> {
    /// Starts a value of the type with this fingerprint. All five types start with their time.
    pub(super) fn new(out: &'a mut Vec<u8>, fingerprint: u64, utime: i64) -> Self {
        out.extend_from_slice(&fingerprint.to_be_bytes());
        out.extend_from_slice(&utime.to_be_bytes());
        Self(out)
    }

    pub(super) fn int16(&mut self, value: i16) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn int32(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends the length of the array that follows.
    pub(super) fn count(&mut self, count: usize) {
        self.int32(i32::try_from(count).expect("no array of the drive is that long"));
    }

    pub(super) fn floats(&mut self, values: &[f32]) {
        self.0.extend(values.iter().flat_map(|value| value.to_be_bytes()));
    }

    pub(super) fn doubles(&mut self, values: &[f64]) {
        self.0.extend(values.iter().flat_map(|value| value.to_be_bytes()));
    }
}
