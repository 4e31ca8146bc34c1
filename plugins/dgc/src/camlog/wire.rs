//! What camera logs consist of: fields one behind another, which make frames. Reads no files, and
//! looks into no image.
//!
//! All numbers are big-endian. A field is the mark, its kind, the length of what follows, and that.
//! A frame is what is said of it, and then its image:
//!
//! | form | fields |
//! |---|---|
//! | frame info | 7, 1 |
//! | legacy | 2, 3, perhaps 6, 1 |
//! | later frame info | 2, 8, 1 |
//!
//! Fields of other kinds may stand before and between these; they belong to the frame that follows.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

/// What every field begins with: its mark, and the first byte of its kind, which is always the
/// same.
pub(super) const MARK: [u8; 3] = [0xed, 0xed, 0x00];

/// The mark, the kind and the length.
const FIELD_HEAD: usize = 8;
/// Longer images are not believed. Damage can claim any length.
const LONGEST_IMAGE: usize = 32 << 20;
/// The most bytes that stand before an image: fields of other kinds, and what is said of the frame.
const LONGEST_FRONT: usize = 64 << 10;
/// The most bytes of a frame.
pub(super) const LONGEST: usize = LONGEST_FRONT + LONGEST_IMAGE;

const IMAGE: u16 = 1;
const FORMAT: u16 = 2;
const TIMESTAMP: u16 = 3;
const SOURCE_UID: u16 = 6;
const FRAME_INFO: u16 = 7;
const LATER_FRAME_INFO: u16 = 8;
/// Comments (4) and metadata (5 and 9): nothing that an image needs.
const OTHERS: [u16; 3] = [4, 5, 9];

const NO_FIELD: &str = "no field of a camera log begins here";
const NO_KIND: &str = "a field of a kind that camera logs do not have";
const WRONG_LEN: &str = "a field whose length is wrong for its kind";
const NO_IMAGE: &str = "a frame without an image: another frame begins in it";
const NO_FRONT: &str = "a part of a frame that does not say its format and time";
const LONG_IMAGE: &str = "an image that is longer than 32 MiB";
const LONG_FRONT: &str = "more than 64 KiB of fields without an image";

/// A frame, and where in its bytes the rest of it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    /// In pixels.
    pub(super) width: u16,
    /// In pixels.
    pub(super) height: u16,
    /// Bytes of a row.
    pub(super) stride: u16,
    /// A FourCC.
    pub(super) pixelformat: u32,
    /// When it was taken, in microseconds since 1970.
    pub(super) micros: u64,
    /// When it was taken by the clock of the bus that the camera is on; 0 if the frame does not
    /// say.
    pub(super) bus_time: u32,
    /// Where the number of its camera is; nothing if the frame does not say.
    pub(super) uid: Range<usize>,
    /// Its own number.
    pub(super) number: Option<u64>,
    /// How many fields there are of kinds that an image does not need.
    pub(super) others: u64,
    /// Where its image is. May go on behind the bytes that were looked at.
    pub(super) image: Range<usize>,
}

/// What some bytes begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ParsedFrame {
    /// A frame, as far as the first byte of its image.
    Frame(Frame),
    /// More bytes are needed to tell.
    More,
    /// No frame, and why.
    Not(&'static str),
}

impl Frame {
    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.image.end
    }

    /// The number of its camera; 0 if it does not say.
    pub(super) fn uid(&self, bytes: &[u8]) -> u64 {
        uid_of(bytes.get(self.uid.clone()).unwrap_or_default())
    }

    /// The frame that `bytes` begin with. Decided before the first byte of the image.
    pub(super) fn parse(bytes: &[u8]) -> ParsedFrame {
        let (mut frame, mut front) = (Self::default(), Front::default());
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let Some((head, rest)) = rest.split_first_chunk::<FIELD_HEAD>() else {
                let is_mark = rest.iter().zip(&MARK).all(|(byte, mark)| byte == mark);
                return if is_mark { ParsedFrame::More } else { ParsedFrame::Not(NO_FIELD) };
            };
            if !head.starts_with(&MARK) {
                return ParsedFrame::Not(NO_FIELD);
            }
            let [_, _, k0, k1, l0, l1, l2, l3] = *head;
            let kind = u16::from_be_bytes([k0, k1]);
            let len = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
            let body = at + FIELD_HEAD;
            if let Err(why) = front.admit(kind, len) {
                return ParsedFrame::Not(why);
            }
            if kind == IMAGE {
                frame.image = body..body + len;
                return ParsedFrame::Frame(frame);
            }
            at = body + len;
            if at > LONGEST_FRONT {
                return ParsedFrame::Not(LONG_FRONT);
            }
            let Some(field) = rest.get(..len) else { return ParsedFrame::More };
            match OTHERS.contains(&kind) {
                true => frame.others += 1,
                false => frame.tell(kind, field, body),
            }
        }
    }

    /// Takes over what a field says, which begins at `body`.
    fn tell(&mut self, kind: u16, field: &[u8], body: usize) {
        let mut numbers = Numbers(field);
        if matches!(kind, FORMAT | FRAME_INFO) {
            [self.width, self.height, self.stride] = [(); 3].map(|()| numbers.u16());
            self.pixelformat = numbers.u32();
        }
        match kind {
            FRAME_INFO => {
                self.micros = numbers.u64();
                self.bus_time = numbers.u32();
                let uid = body + (field.len() - numbers.0.len());
                self.uid = uid..uid + size_of::<u64>();
                numbers.u64();
                self.number = Some(numbers.u32().into());
            }
            TIMESTAMP => {
                let seconds = u64::from(numbers.u32());
                self.micros = seconds * 1_000_000 + u64::from(numbers.u32());
                self.bus_time = numbers.u32();
            }
            LATER_FRAME_INFO => {
                self.micros = numbers.u64();
                self.number = Some(numbers.u64());
            }
            SOURCE_UID => self.uid = body..body + field.len(),
            _ => {}
        }
    }
}

/// The number of a camera from its bytes.
pub(super) fn uid_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// What has been said of a frame so far.
#[derive(Default)]
struct Front {
    format: bool,
    time: bool,
    uid: bool,
}

impl Front {
    /// Whether a field of this kind and length may follow; `Err` says why not.
    fn admit(&mut self, kind: u16, len: usize) -> Result<(), &'static str> {
        let expected = match kind {
            FORMAT => 10,
            TIMESTAMP => 12,
            SOURCE_UID => 8,
            FRAME_INFO => 42,
            LATER_FRAME_INFO => 24,
            IMAGE if len > LONGEST_IMAGE => return Err(LONG_IMAGE),
            IMAGE => len,
            _ if OTHERS.contains(&kind) => return Ok(()),
            _ => return Err(NO_KIND),
        };
        if len != expected {
            return Err(WRONG_LEN);
        }
        let is_said = match kind {
            FORMAT | FRAME_INFO => self.format,
            TIMESTAMP | LATER_FRAME_INFO => self.time,
            SOURCE_UID => self.uid,
            _ => false,
        };
        if is_said {
            return Err(NO_IMAGE);
        }
        let has_front = match kind {
            FORMAT | FRAME_INFO => true,
            IMAGE => self.format && self.time,
            _ => self.format,
        };
        if !has_front {
            return Err(NO_FRONT);
        }
        self.format |= matches!(kind, FORMAT | FRAME_INFO);
        self.time |= matches!(kind, TIMESTAMP | LATER_FRAME_INFO | FRAME_INFO);
        self.uid |= matches!(kind, SOURCE_UID | FRAME_INFO);
        Ok(())
    }
}

/// Big-endian numbers one behind another; 0 behind the last.
struct Numbers<'b>(&'b [u8]);

impl Numbers<'_> {
    fn next<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self.0.split_first_chunk().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.next())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.next())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.next())
    }
}

/// Whether a file that begins so is a camera log: with the first field of a frame, or with another
/// one.
pub(super) fn begins(head: &[u8]) -> Option<bool> {
    let (field, _) = head.split_first_chunk::<FIELD_HEAD>()?;
    let [0xed, 0xed, k0, k1, length @ ..] = *field else { return None };
    match (u16::from_be_bytes([k0, k1]), u32::from_be_bytes(length)) {
        (FRAME_INFO, 42) | (FORMAT, 10) => Some(true),
        (kind, _) if OTHERS.contains(&kind) => Some(false),
        _ => None,
    }
}
