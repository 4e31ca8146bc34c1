//! Varies an encoded picture without encoding it again.
//!
//! In a baseline JPEG each coefficient is a Huffman code for its size followed by plain bits for
//! its value. Other plain bits give another valid picture of the same length. Changing only the
//! lowest bit of each value looks like sensor noise, costs next to nothing, and leaves a compressor
//! little redundancy between two frames. This module only reads what the encoder of this crate
//! writes: one interleaved baseline scan without restart markers.

use super::noise::Noise;

/// An encoded picture and a mask of the bits that may be changed.
#[derive(Debug)]
pub(super) struct JpegTemplate {
    bytes: Vec<u8>,
    /// A set bit marks a bit of `bytes` that may have either value.
    free_bits: Vec<u8>,
}

impl JpegTemplate {
    /// Finds the free bits of the baseline JPEG `bytes`.
    ///
    /// A picture with an unexpected structure gets fewer or no free bits.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let mut free_bits = vec![0; bytes.len()];
        if let Some(header) = JpegHeader::read(&bytes) {
            let mut scan = BitReader { bytes: &bytes, at: header.scan * 8 };
            // The walk ends with `None` after the last block.
            while header.mark_free_bits(&mut scan, &mut free_bits).is_some() {}
        }
        for (byte, free_bits) in bytes.iter().zip(&mut free_bits) {
            protect_markers(*byte, free_bits);
        }
        Self { bytes, free_bits }
    }

    /// Length of every variant.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the variant selected by `noise`.
    pub(super) fn append_varied(&self, mut noise: Noise, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        for (bytes, free_bits) in out[start..].chunks_mut(8).zip(self.free_bits.chunks(8)) {
            let bits = noise.bits().to_le_bytes();
            for ((byte, free_bits), bits) in bytes.iter_mut().zip(free_bits).zip(bits) {
                *byte ^= free_bits & bits;
            }
        }
    }
}

/// Keeps a byte from becoming 0xFF, which would start a marker, and keeps 0xFF unchanged.
fn protect_markers(byte: u8, free_bits: &mut u8) {
    if byte == 0xff {
        *free_bits = 0;
    } else if byte | *free_bits == 0xff {
        // Pinning one 0 bit is enough.
        let zero = !byte;
        *free_bits &= !(zero & zero.wrapping_neg());
    }
}

/// The headers needed to walk the scan.
struct JpegHeader {
    /// DC and AC tables, each by number.
    tables: [[HuffmanTable; 2]; 2],
    /// Blocks of the first component in each MCU; the other two components have one each.
    luma_blocks: usize,
    /// Index of the first byte of entropy-coded data.
    scan: usize,
}

impl JpegHeader {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut header = Self { tables: Default::default(), luma_blocks: 1, scan: 2 };
        loop {
            let [0xff, marker, high, low] = *bytes.get(header.scan..)?.first_chunk()? else {
                return None;
            };
            let body = header.scan + 4;
            header.scan += 2 + usize::from(u16::from_be_bytes([high, low]));
            let segment = bytes.get(body..header.scan)?;
            match marker {
                0xc0 => header.luma_blocks = luma_blocks(segment)?,
                0xc4 => header.read_table(segment)?,
                0xda => return Some(header),
                _ => {}
            }
        }
    }

    fn read_table(&mut self, segment: &[u8]) -> Option<()> {
        let (&[id], rest) = segment.split_first_chunk()?;
        let (counts, values) = rest.split_first_chunk()?;
        let table = self.tables.get_mut(usize::from(id >> 4))?.get_mut(usize::from(id & 15))?;
        *table = HuffmanTable::new(counts, values);
        Some(())
    }

    /// Walks one MCU and marks its free bits. `None` at the end of the picture.
    fn mark_free_bits(&self, scan: &mut BitReader<'_>, free_bits: &mut [u8]) -> Option<()> {
        for block in 0..self.luma_blocks + 2 {
            let table = usize::from(block >= self.luma_blocks);
            let size = self.tables[0][table].decode(scan)?;
            scan.skip(size)?;
            mark_block(&self.tables[1][table], scan, free_bits)?;
        }
        Some(())
    }
}

/// Walks the AC coefficients of one block.
fn mark_block(table: &HuffmanTable, scan: &mut BitReader<'_>, free_bits: &mut [u8]) -> Option<()> {
    let mut coefficient = 1;
    while coefficient < 64 {
        let symbol = table.decode(scan)?;
        let (zeros, size) = (symbol >> 4, symbol & 15);
        if size == 0 && zeros < 15 {
            break;
        }
        coefficient += zeros + 1;
        if size > 0 {
            scan.skip(size - 1)?;
            let lowest = scan.next()?;
            free_bits[lowest / 8] |= 0x80 >> (lowest % 8);
        }
    }
    Some(())
}

fn luma_blocks(frame: &[u8]) -> Option<usize> {
    let sampling = *frame.get(7)?;
    Some(usize::from(sampling >> 4) * usize::from(sampling & 15))
}

/// A canonical Huffman code.
#[derive(Debug, Default)]
struct HuffmanTable {
    /// By code length minus one: the first code of that length, the number of codes, and where
    /// their values start.
    lengths: Vec<(u32, u32, u32)>,
    values: Vec<u8>,
}

impl HuffmanTable {
    fn new(counts: &[u8; 16], values: &[u8]) -> Self {
        let (mut code, mut start) = (0, 0);
        let lengths = counts.iter().map(|&count| {
            let length = (code, u32::from(count), start);
            code = (code + u32::from(count)) << 1;
            start += u32::from(count);
            length
        });
        Self { lengths: lengths.collect(), values: values.to_vec() }
    }

    fn decode(&self, scan: &mut BitReader<'_>) -> Option<u8> {
        let mut code = 0;
        for &(first, count, start) in &self.lengths {
            code = code << 1 | scan.bit()?;
            if let Some(place) = code.checked_sub(first).filter(|place| *place < count) {
                return self.values.get((start + place) as usize).copied();
            }
        }
        None
    }
}

/// Reads bits of entropy-coded data. `at` counts bits from the start of the file.
struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    /// Steps over the next data bit and returns its position. `None` at a marker.
    fn next(&mut self) -> Option<usize> {
        let byte = *self.bytes.get(self.at / 8)?;
        let behind = self.bytes.get(self.at / 8 + 1).copied().unwrap_or_default();
        if byte == 0xff && behind != 0 {
            return None;
        }
        let at = self.at;
        self.at += 1;
        // The zero byte stuffed after 0xFF is not data.
        if byte == 0xff && self.at.is_multiple_of(8) {
            self.at += 8;
        }
        Some(at)
    }

    fn bit(&mut self) -> Option<u32> {
        let at = self.next()?;
        Some(u32::from(self.bytes[at / 8] >> (7 - at % 8) & 1))
    }

    fn skip(&mut self, count: u8) -> Option<()> {
        (0..count).try_for_each(|_| self.next().map(drop))
    }
}
