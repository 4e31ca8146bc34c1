//! Checksum algorithms by name. Which bytes they cover is part of the format.

use crc::{
    Algorithm as Catalogued, CRC_8_SMBUS, CRC_16_ARC, CRC_16_IBM_3740, CRC_16_IBM_SDLC,
    CRC_16_KERMIT, CRC_16_MCRF4XX, CRC_16_MODBUS, CRC_16_XMODEM, CRC_24_OPENPGP, CRC_32_BZIP2,
    CRC_32_ISCSI, CRC_32_ISO_HDLC, CRC_32_JAMCRC, CRC_32_MPEG_2, CRC_64_XZ, Crc, Table,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// A checksum algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// The sum of all bytes, 8 bits of it.
    Sum8,
    /// The sum of all bytes, 16 bits of it.
    Sum16,
    /// The sum of all bytes, 32 bits of it.
    Sum32,
    /// The exclusive or of all bytes.
    Xor8,
    /// Fletcher, modulo 255; the plain sum is the low byte.
    Fletcher16,
    /// Fletcher, modulo 256, as in u-blox UBX; the plain sum is the low byte.
    Ubx,
    /// CRC-8/SMBUS.
    Crc8,
    /// CRC-16/IBM-3740, often called CCITT-FALSE.
    Crc16Ccitt,
    /// CRC-16/XMODEM.
    Crc16Xmodem,
    /// CRC-16/KERMIT.
    Crc16Kermit,
    /// CRC-16/MODBUS.
    Crc16Modbus,
    /// CRC-16/ARC.
    Crc16Arc,
    /// CRC-16/IBM-SDLC, also called X-25.
    Crc16X25,
    /// CRC-16/MCRF4XX, as in MAVLink.
    Crc16Mcrf4xx,
    /// CRC-24/OPENPGP.
    Crc24,
    /// CRC-32 as in zip, PNG and Ethernet.
    Crc32,
    /// CRC-32C.
    Crc32c,
    /// CRC-32/MPEG-2.
    Crc32Mpeg2,
    /// CRC-32/BZIP2.
    Crc32Bzip2,
    /// CRC-32/JAMCRC.
    Crc32Jamcrc,
    /// CRC-32 with initial value 0 and without inversion, as in NovAtel logs.
    Crc32Novatel,
    /// CRC-64/XZ.
    Crc64,
}

/// From NovAtel's manuals; CRC catalogues do not list it.
const CRC_32_NOVATEL: Catalogued<u32> = Catalogued {
    width: 32,
    poly: 0x04c1_1db7,
    init: 0,
    refin: true,
    refout: true,
    xorout: 0,
    check: 0x2dfd_2d88,
    residue: 0,
};

macro_rules! table {
    ($name:ident, $width:ty, $algorithm:expr) => {
        static $name: Crc<$width, Table<16>> = Crc::<$width, Table<16>>::new(&$algorithm);
    };
}

table!(CRC8, u8, CRC_8_SMBUS);
table!(CCITT, u16, CRC_16_IBM_3740);
table!(XMODEM, u16, CRC_16_XMODEM);
table!(KERMIT, u16, CRC_16_KERMIT);
table!(MODBUS, u16, CRC_16_MODBUS);
table!(ARC, u16, CRC_16_ARC);
table!(X25, u16, CRC_16_IBM_SDLC);
table!(MCRF4XX, u16, CRC_16_MCRF4XX);
table!(CRC24, u32, CRC_24_OPENPGP);
table!(CRC32, u32, CRC_32_ISO_HDLC);
table!(CRC32C, u32, CRC_32_ISCSI);
table!(MPEG2, u32, CRC_32_MPEG_2);
table!(BZIP2, u32, CRC_32_BZIP2);
table!(JAMCRC, u32, CRC_32_JAMCRC);
table!(NOVATEL, u32, CRC_32_NOVATEL);
table!(CRC64, u64, CRC_64_XZ);

impl Algorithm {
    /// Its width in bits.
    pub(crate) fn bits(self) -> usize {
        match self {
            Self::Sum8 | Self::Xor8 | Self::Crc8 => 8,
            Self::Crc24 => 24,
            Self::Sum32
            | Self::Crc32
            | Self::Crc32c
            | Self::Crc32Mpeg2
            | Self::Crc32Bzip2
            | Self::Crc32Jamcrc
            | Self::Crc32Novatel => 32,
            Self::Crc64 => 64,
            _ => 16,
        }
    }

    /// The checksum of the concatenated `runs`.
    #[inline]
    pub fn compute(self, runs: &[&[u8]]) -> u64 {
        match self {
            Self::Sum8 => sum(runs) & 0xff,
            Self::Sum16 => sum(runs) & 0xffff,
            Self::Sum32 => sum(runs) & 0xffff_ffff,
            Self::Xor8 => u64::from(runs.iter().copied().flatten().fold(0, |sum, byte| sum ^ byte)),
            Self::Fletcher16 => fletcher(runs, 255),
            Self::Ubx => fletcher(runs, 256),
            Self::Crc8 => u64::from(crc8(&CRC8, runs)),
            Self::Crc16Ccitt => u64::from(crc16(&CCITT, runs)),
            Self::Crc16Xmodem => u64::from(crc16(&XMODEM, runs)),
            Self::Crc16Kermit => u64::from(crc16(&KERMIT, runs)),
            Self::Crc16Modbus => u64::from(crc16(&MODBUS, runs)),
            Self::Crc16Arc => u64::from(crc16(&ARC, runs)),
            Self::Crc16X25 => u64::from(crc16(&X25, runs)),
            Self::Crc16Mcrf4xx => u64::from(crc16(&MCRF4XX, runs)),
            Self::Crc24 => u64::from(crc32(&CRC24, runs)),
            Self::Crc32 => u64::from(crc32(&CRC32, runs)),
            Self::Crc32c => u64::from(crc32(&CRC32C, runs)),
            Self::Crc32Mpeg2 => u64::from(crc32(&MPEG2, runs)),
            Self::Crc32Bzip2 => u64::from(crc32(&BZIP2, runs)),
            Self::Crc32Jamcrc => u64::from(crc32(&JAMCRC, runs)),
            Self::Crc32Novatel => u64::from(crc32(&NOVATEL, runs)),
            Self::Crc64 => crc64(&CRC64, runs),
        }
    }
}

macro_rules! digest {
    ($name:ident, $width:ty) => {
        fn $name(crc: &'static Crc<$width, Table<16>>, runs: &[&[u8]]) -> $width {
            let mut digest = crc.digest();
            runs.iter().for_each(|run| digest.update(run));
            digest.finalize()
        }
    };
}

digest!(crc8, u8);
digest!(crc16, u16);
digest!(crc32, u32);
digest!(crc64, u64);

fn sum(runs: &[&[u8]]) -> u64 {
    runs.iter().copied().flatten().fold(0, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

/// How many bytes fit into 32-bit sums before a reduction is needed.
const RUN: usize = 4096;

fn fletcher(runs: &[&[u8]], modulus: u32) -> u64 {
    let (mut low, mut high) = (0u32, 0u32);
    for bytes in runs.iter().flat_map(|run| run.chunks(RUN)) {
        for byte in bytes {
            low += u32::from(*byte);
            high += low;
        }
        (low, high) = (low % modulus, high % modulus);
    }
    u64::from(high << 8 | low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sums_of_the_usual_check_text_are_those_of_the_catalogue() {
        use Algorithm::*;
        for (algorithm, check) in [
            (Crc8, 0xf4),
            (Crc16Ccitt, 0x29b1),
            (Crc16Xmodem, 0x31c3),
            (Crc16Kermit, 0x2189),
            (Crc16Modbus, 0x4b37),
            (Crc16Arc, 0xbb3d),
            (Crc16X25, 0x906e),
            (Crc16Mcrf4xx, 0x6f91),
            (Crc24, 0x21cf02),
            (Crc32, 0xcbf4_3926),
            (Crc32c, 0xe306_9283),
            (Crc32Mpeg2, 0x0376_e6e7),
            (Crc32Bzip2, 0xfc89_1918),
            (Crc32Jamcrc, 0x340b_c6d9),
            (Crc32Novatel, 0x2dfd_2d88),
            (Crc64, 0x995d_c9bb_df19_39fa),
            (Sum8, 0xdd),
            (Sum16, 0x1dd),
            (Xor8, 0x31),
        ] {
            assert_eq!(algorithm.compute(&[b"123456789"]), check, "{algorithm:?}");
        }
        assert_eq!(Fletcher16.compute(&[b"abcde"]), 0xc8f0);
        // MON-VER is polled with these bytes.
        assert_eq!(Ubx.compute(&[&[0x0a, 0x04, 0, 0]]), 0x340e);
    }

    proptest! {
        #[test]
        fn how_bytes_lie_in_runs_does_not_matter(bytes: Vec<u8>, cut in 0usize..64) {
            let (front, back) = bytes.split_at(cut.min(bytes.len()));
            for algorithm in [Algorithm::Sum16, Algorithm::Xor8, Algorithm::Fletcher16,
                Algorithm::Ubx, Algorithm::Crc16Modbus, Algorithm::Crc32, Algorithm::Crc64] {
                prop_assert_eq!(algorithm.compute(&[&bytes]), algorithm.compute(&[front, back]));
            }
        }
    }
}
