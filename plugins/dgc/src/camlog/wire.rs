//! Parses camera logs: consecutive fields, which make up frames. Reads no files and decodes no
//! images.
//!
//! All numbers are big-endian. A field is its mark, its kind, the length of its content, and the
//! content. A frame is its description followed by its image:
//!
//! | form | fields |
//! |---|---|
//! | frame info | 7, 1 |
//! | legacy | 2, 3, optionally 6, 1 |
//! | later frame info | 2, 8, 1 |
//!
//! Fields of other kinds may occur before and between these; they belong to the frame that follows.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

/// The start of every field: its mark, and the first byte of its kind, which is always the same.
pub(super) const MARK: [u8; 3] = [0xed, 0xed, 0x00];

/// The mark, the kind and the length.
const FIELD_HEAD: usize = 8;
/// Maximum length of an image. Damage can claim any length.
const MAX_IMAGE_LEN: usize = 32 << 20;
/// Maximum length of everything in a frame before its image.
const MAX_FRONT_LEN: usize = 64 << 10;
/// Maximum length of a frame.
pub(super) const MAX_FRAME_LEN: usize = MAX_FRONT_LEN + MAX_IMAGE_LEN;

const IMAGE: u16 = 1;
const FORMAT: u16 = 2;
const TIMESTAMP: u16 = 3;
const SOURCE_UID: u16 = 6;
const FRAME_INFO: u16 = 7;
const LATER_FRAME_INFO: u16 = 8;
/// Comments (4) and metadata (5 and 9), which images do not need.
const IGNORED_KINDS: [u16; 3] = [4, 5, 9];

const NO_FIELD: &str = "no field of a camera log starts here";
const NO_KIND: &str = "a field of unknown kind";
const WRONG_LEN: &str = "a field whose length is wrong for its kind";
const NO_IMAGE: &str = "a frame without an image: another frame starts in it";
const NO_FRONT: &str = "a frame without its format and time";
const LONG_IMAGE: &str = "an image longer than 32 MiB";
const LONG_FRONT: &str = "more than 64 KiB of fields without an image";

/// The header of a frame, and the position of its image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CameraFrame {
    /// In pixels.
    pub(super) width: u16,
    /// In pixels.
    pub(super) height: u16,
    /// Bytes per row.
    pub(super) stride: u16,
    /// A FourCC.
    pub(super) pixelformat: u32,
    /// Capture time in microseconds since 1970.
    pub(super) micros: u64,
    /// Capture time by the clock of the camera bus; 0 if missing.
    pub(super) bus_time: u32,
    /// Byte range of the camera's `uid`; empty if missing.
    pub(super) uid: Range<usize>,
    /// Frame number.
    pub(super) number: Option<u64>,
    /// Number of comment and metadata fields.
    pub(super) ignored_fields: u64,
    /// Byte range of the image. May extend beyond the parsed bytes.
    pub(super) image: Range<usize>,
}

/// The result of parsing the start of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ParsedFrame {
    /// A frame, parsed up to the first byte of its image.
    Frame(CameraFrame),
    /// More bytes are needed.
    More,
    /// Not a frame, and why.
    Not(&'static str),
}

impl CameraFrame {
    /// Length of the whole frame, in bytes.
    pub(super) fn len(&self) -> usize {
        self.image.end
    }

    /// The `uid` of its camera; 0 if missing.
    pub(super) fn uid(&self, bytes: &[u8]) -> u64 {
        parse_uid(bytes.get(self.uid.clone()).unwrap_or_default())
    }

    /// Parses the frame at the start of `bytes`, without its image.
    pub(super) fn parse(bytes: &[u8]) -> ParsedFrame {
        let (mut frame, mut front) = (Self::default(), FrameProgress::default());
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
            if let Err(why) = front.check_field(kind, len) {
                return ParsedFrame::Not(why);
            }
            if kind == IMAGE {
                frame.image = body..body + len;
                return ParsedFrame::Frame(frame);
            }
            at = body + len;
            if at > MAX_FRONT_LEN {
                return ParsedFrame::Not(LONG_FRONT);
            }
            let Some(field) = rest.get(..len) else { return ParsedFrame::More };
            match IGNORED_KINDS.contains(&kind) {
                true => frame.ignored_fields += 1,
                false => frame.read_field(kind, field, body),
            }
        }
    }

    /// Reads a field whose body starts at `body`.
    fn read_field(&mut self, kind: u16, field: &[u8], body: usize) {
        let mut numbers = BigEndianReader(field);
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

/// Parses the `uid` of a camera.
pub(super) fn parse_uid(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The parts of a frame header found so far.
#[derive(Default)]
struct FrameProgress {
    format: bool,
    time: bool,
    uid: bool,
}

impl FrameProgress {
    /// Checks that a field of this kind and length may follow.
    fn check_field(&mut self, kind: u16, len: usize) -> Result<(), &'static str> {
        let expected = match kind {
            FORMAT => 10,
            TIMESTAMP => 12,
            SOURCE_UID => 8,
            FRAME_INFO => 42,
            LATER_FRAME_INFO => 24,
            IMAGE if len > MAX_IMAGE_LEN => return Err(LONG_IMAGE),
            IMAGE => len,
            _ if IGNORED_KINDS.contains(&kind) => return Ok(()),
            _ => return Err(NO_KIND),
        };
        if len != expected {
            return Err(WRONG_LEN);
        }
        let is_repeated = match kind {
            FORMAT | FRAME_INFO => self.format,
            TIMESTAMP | LATER_FRAME_INFO => self.time,
            SOURCE_UID => self.uid,
            _ => false,
        };
        if is_repeated {
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

/// Reads consecutive big-endian numbers; 0 past the end.
struct BigEndianReader<'b>(&'b [u8]);

impl BigEndianReader<'_> {
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

/// Whether a file that starts like this is a camera log: `Some(true)` for a frame field,
/// `Some(false)` for a comment or metadata field.
pub(super) fn starts_camera_log(head: &[u8]) -> Option<bool> {
    let (field, _) = head.split_first_chunk::<FIELD_HEAD>()?;
    let [0xed, 0xed, k0, k1, length @ ..] = *field else { return None };
    match (u16::from_be_bytes([k0, k1]), u32::from_be_bytes(length)) {
        (FRAME_INFO, 42) | (FORMAT, 10) => Some(true),
        (kind, _) if IGNORED_KINDS.contains(&kind) => Some(false),
        _ => None,
    }
}
