//! Reads numbers from wire format into slots: arrays, and column by column from records of fixed
//! size. Checks nothing.

use super::arrays::SlotBuilder;
use super::plan::{
    Leaf, NumberArray, ValueType, sign_extended, u24_from_be_bytes, u24_from_le_bytes,
};
use super::{Endian, NumberType};

/// Appends the numbers of an array.
#[inline]
pub(super) fn extend_slot(slot: &mut SlotBuilder, leaf: &NumberArray, bytes: &[u8]) {
    match (slot, leaf.endian) {
        (SlotBuilder::W1(values), _) => values.extend_from_slice(bytes),
        (SlotBuilder::W4(values), endian) if leaf.of.width() == 3 => {
            values.extend(words(bytes, read_24(leaf.of, endian)));
        }
        (SlotBuilder::W2(values), Endian::Big) => extend(values, bytes, u16::from_be_bytes),
        (SlotBuilder::W4(values), Endian::Big) => extend(values, bytes, u32::from_be_bytes),
        (SlotBuilder::W8(values), Endian::Big) => extend(values, bytes, u64::from_be_bytes),
        (SlotBuilder::W2(values), Endian::Little) => extend(values, bytes, u16::from_le_bytes),
        (SlotBuilder::W4(values), Endian::Little) => extend(values, bytes, u32::from_le_bytes),
        (SlotBuilder::W8(values), Endian::Little) => extend(values, bytes, u64::from_le_bytes),
        (SlotBuilder::Offsets(_) | SlotBuilder::Bytes { .. }, _) => {}
    }
}

/// Splits bytes into words of `N` bytes.
fn words<const N: usize, T>(
    bytes: &[u8],
    read: impl Fn([u8; N]) -> T,
) -> impl ExactSizeIterator<Item = T> {
    bytes.as_chunks().0.iter().map(move |word| read(*word))
}

/// Reads numbers of 24 bits.
fn read_24(of: ValueType, endian: Endian) -> impl Fn([u8; 3]) -> u32 + Copy {
    let is_signed = of == ValueType::Number(NumberType::I24);
    move |bytes| {
        let word = match endian {
            Endian::Little => u24_from_le_bytes(bytes),
            Endian::Big => u24_from_be_bytes(bytes),
        };
        if is_signed { sign_extended(word) } else { word }
    }
}

#[inline]
fn extend<const N: usize, T>(values: &mut Vec<T>, bytes: &[u8], read: impl Fn([u8; N]) -> T) {
    values.extend(words(bytes, read));
}

/// Appends one leaf of each record.
pub(super) fn gather<'r>(
    slot: &mut SlotBuilder,
    leaf: &Leaf,
    records: impl Iterator<Item = &'r [u8]>,
) {
    match (slot, leaf.endian) {
        (SlotBuilder::W4(to), endian) if leaf.of.width() == 3 => {
            gather_words(to, leaf, records, read_24(leaf.of, endian));
        }
        (SlotBuilder::W1(to), _) => gather_words(to, leaf, records, u8::from_be_bytes),
        (SlotBuilder::W2(to), Endian::Big) => gather_words(to, leaf, records, u16::from_be_bytes),
        (SlotBuilder::W4(to), Endian::Big) => gather_words(to, leaf, records, u32::from_be_bytes),
        (SlotBuilder::W8(to), Endian::Big) => gather_words(to, leaf, records, u64::from_be_bytes),
        (SlotBuilder::W2(to), Endian::Little) => {
            gather_words(to, leaf, records, u16::from_le_bytes);
        }
        (SlotBuilder::W4(to), Endian::Little) => {
            gather_words(to, leaf, records, u32::from_le_bytes);
        }
        (SlotBuilder::W8(to), Endian::Little) => {
            gather_words(to, leaf, records, u64::from_le_bytes);
        }
        (SlotBuilder::Offsets(_) | SlotBuilder::Bytes { .. }, _) => {}
    }
}

fn gather_words<'r, const N: usize, T: Copy + Default>(
    values: &mut Vec<T>,
    leaf: &Leaf,
    records: impl Iterator<Item = &'r [u8]>,
    read: impl Fn([u8; N]) -> T + Copy,
) {
    let [place] = leaf.offsets.as_slice() else {
        for record in records {
            for place in &leaf.offsets {
                let bytes = record.get(*place..*place + leaf.run * N).unwrap_or_default();
                values.extend(words(bytes, read));
            }
        }
        return;
    };
    let place = *place;
    // With a run length known at compile time these become plain moves.
    match leaf.run {
        1 => values.extend(records.map(|record| run::<1, N, T>(record, place, read)[0])),
        2 => gather_runs::<2, N, T>(values, records, place, read),
        3 => gather_runs::<3, N, T>(values, records, place, read),
        4 => gather_runs::<4, N, T>(values, records, place, read),
        6 => gather_runs::<6, N, T>(values, records, place, read),
        9 => gather_runs::<9, N, T>(values, records, place, read),
        length => {
            for record in records {
                let bytes = record.get(place..place + length * N).unwrap_or_default();
                values.extend(words(bytes, read));
            }
        }
    }
}

#[inline]
fn gather_runs<'r, const RUN: usize, const N: usize, T: Copy + Default>(
    values: &mut Vec<T>,
    records: impl Iterator<Item = &'r [u8]>,
    place: usize,
    read: impl Fn([u8; N]) -> T + Copy,
) {
    for record in records {
        values.extend_from_slice(&run::<RUN, N, T>(record, place, read));
    }
}

#[inline]
fn run<const RUN: usize, const N: usize, T: Copy + Default>(
    record: &[u8],
    place: usize,
    read: impl Fn([u8; N]) -> T,
) -> [T; RUN] {
    let bytes = record.get(place..place + RUN * N).unwrap_or_default();
    let words = bytes.as_chunks().0.first_chunk::<RUN>();
    words.map_or([T::default(); RUN], |words| words.map(read))
}
