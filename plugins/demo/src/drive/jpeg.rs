//! Varies an encoded picture without encoding it again.
//!
//! In a baseline JPEG each coefficient is a Huffman code for its size followed by plain bits for its
//! value. Other plain bits give another valid picture of the same length. Changing only the lowest of
//! each looks like sensor noise, costs next to nothing, and leaves a compressor little to find
//! between two frames. It reads only what the encoder beside it writes: one
//! interleaved baseline scan without restarts.

use super::noise::Noise;

/// An encoded picture and which of its bits may be changed.
#[derive(Debug)]
pub(super) struct Template {
    bytes: Vec<u8>,
    /// A set bit marks a bit of `bytes` that may have either value.
    free: Vec<u8>,
}

impl Template {
    /// Finds the free bits of the baseline JPEG `bytes`.
    ///
    /// A picture of an unexpected structure is kept as it is, with fewer or no free bits.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let mut free = vec![0; bytes.len()];
        if let Some(header) = Header::read(&bytes) {
            let mut scan = Scan { bytes: &bytes, at: header.scan * 8 };
            // The walk ends with `None` behind the last block.
            while header.mark_free_bits(&mut scan, &mut free).is_some() {}
        }
        for (byte, free) in bytes.iter().zip(&mut free) {
            forbid_markers(*byte, free);
        }
        Self { bytes, free }
    }

    /// Length of every variant.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the variant that `noise` chooses.
    pub(super) fn append_varied(&self, mut noise: Noise, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        for (bytes, free) in out[start..].chunks_mut(8).zip(self.free.chunks(8)) {
            let bits = noise.bits().to_le_bytes();
            for ((byte, free), bits) in bytes.iter_mut().zip(free).zip(bits) {
                *byte ^= free & bits;
            }
        }
    }
}

/// Keeps a byte from becoming 0xFF, which would begin a marker, and 0xFF from ceasing to be one.
fn forbid_markers(byte: u8, free: &mut u8) {
    if byte == 0xff {
        *free = 0;
    } else if byte | *free == 0xff {
        // Pinning one 0 bit is enough.
        let zero = !byte;
        *free &= !(zero & zero.wrapping_neg());
    }
}

/// What the scan cannot be walked without.
struct Header {
    /// Direct-current and alternating-current tables, each by number.
    tables: [[Huffman; 2]; 2],
    /// Blocks of the first component in each unit; the other two have one each.
    luma_blocks: usize,
    /// Index of the first byte of entropy-coded data.
    scan: usize,
}

impl Header {
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
        *table = Huffman::new(counts, values);
        Some(())
    }

    /// Walks one unit and marks its free bits; `None` at the end of the picture.
    fn mark_free_bits(&self, scan: &mut Scan<'_>, free: &mut [u8]) -> Option<()> {
        for block in 0..self.luma_blocks + 2 {
            let table = usize::from(block >= self.luma_blocks);
            let size = self.tables[0][table].decode(scan)?;
            scan.skip(size)?;
            mark_block(&self.tables[1][table], scan, free)?;
        }
        Some(())
    }
}

/// Walks the coefficients of one block behind its first.
fn mark_block(table: &Huffman, scan: &mut Scan<'_>, free: &mut [u8]) -> Option<()> {
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
            free[lowest / 8] |= 0x80 >> (lowest % 8);
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
struct Huffman {
    /// By length less one: the first code of that length, how many there are, and where their
    /// values begin.
    lengths: Vec<(u32, u32, u32)>,
    values: Vec<u8>,
}

impl Huffman {
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

    fn decode(&self, scan: &mut Scan<'_>) -> Option<u8> {
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

/// A position in entropy-coded data, in bits from the start of the file.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    /// The place of the next data bit, which is stepped over; `None` at a marker.
    fn next(&mut self) -> Option<usize> {
        let byte = *self.bytes.get(self.at / 8)?;
        let behind = self.bytes.get(self.at / 8 + 1).copied().unwrap_or_default();
        if byte == 0xff && behind != 0 {
            return None;
        }
        let at = self.at;
        self.at += 1;
        // The zero byte behind 0xFF in the data is not data.
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
