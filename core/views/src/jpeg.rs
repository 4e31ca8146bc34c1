//! Checks by its markers whether a JPEG file is complete. Decodes no picture, so the picture in a
//! complete file may still be damaged.
//!
//! | in order | |
//! |---|---|
//! | `FF D8` | start of image |
//! | segments: `FF`, a code, a two-byte length that includes itself | among them a frame header (`C0` to `CF` except `C4`, `C8`, `CC`) before the first scan |
//! | a scan: the segment `DA`, then data in which `FF 00` is an `FF`, and `FF D0` to `FF D7` are restart markers | at least one |
//! | `FF D9` | end of image; zeros or `FF` after it are padding |
//!
//! Every proper prefix of a complete file is incomplete, except for the padding: scan data contains
//! no end marker.

#![warn(clippy::indexing_slicing)]

/// Why a JPEG file is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JpegFault {
    /// The file is empty.
    Empty,
    /// It does not start with a start marker.
    NoStart,
    /// It ends within a segment.
    CutSegment,
    /// It ends within a scan.
    CutScan,
    /// It ends between segments.
    NoEnd,
    /// Expected a marker, found something else.
    NoMarker,
    /// A segment has an impossible length.
    BadSegment,
    /// A scan comes before the frame header, or the size is zero.
    NoSize,
    /// The end comes before any scan.
    NoScan,
    /// There is data other than padding after the end.
    TrailingData,
}

impl JpegFault {
    /// Describes the fault.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty image",
            Self::NoStart => "not a JPEG file: no FF D8 at its start",
            Self::CutSegment => "truncated JPEG file: it ends in a header",
            Self::CutScan => "truncated JPEG file: it ends in the picture",
            Self::NoEnd => "truncated JPEG file: the end marker is missing",
            Self::NoMarker => "damaged JPEG file: expected a marker",
            Self::BadSegment => "damaged JPEG file: a header has a wrong length",
            Self::NoSize => "damaged JPEG file: the picture has no size",
            Self::NoScan => "damaged JPEG file: it has no picture",
            Self::TrailingData => "damaged JPEG file: data after its end",
        }
    }
}

const START: u8 = 0xD8;
const END: u8 = 0xD9;
const SCAN: u8 = 0xDA;
const RESTARTS: std::ops::RangeInclusive<u8> = 0xD0..=0xD7;
const PRIVATE: u8 = 0x01;

/// The size of a picture in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JpegSize {
    /// Pixels of a row.
    pub width: u16,
    /// Rows.
    pub height: u16,
    /// Colour components: 1 for grey.
    pub components: u8,
}

/// The size of a complete file. Walks over the markers, in linear time. `Err` has the first fault.
pub fn check_jpeg(bytes: &[u8]) -> Result<JpegSize, JpegFault> {
    if bytes.is_empty() {
        return Err(JpegFault::Empty);
    }
    let Some(mut rest) = bytes.strip_prefix(&[0xFF, START]) else { return Err(JpegFault::NoStart) };
    let (mut size, mut has_scan) = (None, false);
    loop {
        let (code, behind) = marker(rest)?;
        match code {
            END => {
                let size = size.filter(|_| has_scan).ok_or(JpegFault::NoScan)?;
                return padding(behind).map(|()| size);
            }
            PRIVATE => rest = behind,
            START | 0x00 => return Err(JpegFault::NoMarker),
            code if RESTARTS.contains(&code) => return Err(JpegFault::NoMarker),
            SCAN if size.is_none() => return Err(JpegFault::NoSize),
            SCAN => {
                let (head, behind) = segment(behind)?;
                check_scan(head)?;
                has_scan = true;
                rest = skip_scan(behind)?;
            }
            code => {
                let (body, behind) = segment(behind)?;
                if is_frame(code) {
                    size = Some(check_frame(body)?);
                }
                rest = behind;
            }
        }
    }
}

/// The code of the marker at the start, and the rest. Any number of `FF` may precede a code.
fn marker(bytes: &[u8]) -> Result<(u8, &[u8]), JpegFault> {
    let Some(mut rest) = bytes.strip_prefix(&[0xFF]) else {
        return Err(if bytes.is_empty() { JpegFault::NoEnd } else { JpegFault::NoMarker });
    };
    loop {
        match rest.split_first() {
            None => return Err(JpegFault::NoEnd),
            Some((0xFF, behind)) => rest = behind,
            Some((code, behind)) => return Ok((*code, behind)),
        }
    }
}

/// The content of a segment, and the rest.
fn segment(bytes: &[u8]) -> Result<(&[u8], &[u8]), JpegFault> {
    let (len, rest) = bytes.split_first_chunk().ok_or(JpegFault::CutSegment)?;
    let len = usize::from(u16::from_be_bytes(*len)).checked_sub(2).ok_or(JpegFault::BadSegment)?;
    rest.split_at_checked(len).ok_or(JpegFault::CutSegment)
}

fn is_frame(code: u8) -> bool {
    matches!(code, 0xC0..=0xCF) && !matches!(code, 0xC4 | 0xC8 | 0xCC)
}

/// Checks a frame header: precision, height, width, number of components, and three bytes per
/// component.
fn check_frame(body: &[u8]) -> Result<JpegSize, JpegFault> {
    let (head, components) = body.split_first_chunk::<6>().ok_or(JpegFault::BadSegment)?;
    let [_precision, height_high, height_low, width_high, width_low, count] = *head;
    if count == 0 || components.len() != 3 * usize::from(count) {
        return Err(JpegFault::BadSegment);
    }
    let width = u16::from_be_bytes([width_high, width_low]);
    let height = u16::from_be_bytes([height_high, height_low]);
    if width == 0 || height == 0 {
        return Err(JpegFault::NoSize);
    }
    Ok(JpegSize { width, height, components: count })
}

/// Checks a scan header: number of components, two bytes per component, and three more bytes.
fn check_scan(head: &[u8]) -> Result<(), JpegFault> {
    let (count, rest) = head.split_first().ok_or(JpegFault::BadSegment)?;
    let fits = (1..=4).contains(count) && rest.len() == 2 * usize::from(*count) + 3;
    if fits { Ok(()) } else { Err(JpegFault::BadSegment) }
}

/// Skips the data of a scan, up to the next marker other than its own.
fn skip_scan(mut bytes: &[u8]) -> Result<&[u8], JpegFault> {
    loop {
        let at = memchr::memchr(0xFF, bytes).ok_or(JpegFault::CutScan)?;
        let candidate = bytes.get(at..).unwrap_or_default();
        match candidate.get(1) {
            None => return Err(JpegFault::CutScan),
            Some(code) if *code == 0 || RESTARTS.contains(code) => {
                bytes = candidate.get(2..).unwrap_or_default();
            }
            // A fill byte before a code.
            Some(0xFF) => bytes = candidate.get(1..).unwrap_or_default(),
            Some(_) => return Ok(candidate),
        }
    }
}

fn padding(bytes: &[u8]) -> Result<(), JpegFault> {
    let is_padding = bytes.iter().all(|byte| matches!(byte, 0x00 | 0xFF));
    if is_padding { Ok(()) } else { Err(JpegFault::TrailingData) }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use jpeg_encoder::{ColorType, Encoder};
    use proptest::prelude::*;
    use zune_jpeg::JpegDecoder;
    use zune_jpeg::zune_core::bytestream::ZCursor;

    /// A picture of noise from a third-party encoder.
    fn picture(width: u16, height: u16, seed: u64, progressive: bool, restart: u16) -> Vec<u8> {
        let mut dice = seed | 1;
        let mut byte = || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 56) as u8
        };
        let pixels: Vec<u8> =
            (0..usize::from(width) * usize::from(height) * 3).map(|_| byte()).collect();
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 70);
        encoder.set_progressive(progressive);
        if restart > 0 {
            encoder.set_restart_interval(restart);
        }
        encoder.encode(&pixels, width, height, ColorType::Rgb).unwrap();
        bytes
    }

    fn decodes(bytes: &[u8]) -> bool {
        JpegDecoder::new(ZCursor::new(bytes)).decode().is_ok()
    }

    #[test]
    fn encoded_pictures_are_complete_with_and_without_padding() {
        for (progressive, restart) in [(false, 0), (true, 0), (false, 2)] {
            let mut bytes = picture(40, 24, 7, progressive, restart);
            assert!(check_jpeg(&bytes).is_ok());
            assert!(decodes(&bytes));
            bytes.extend_from_slice(&[0, 0, 0xFF, 0]);
            assert!(check_jpeg(&bytes).is_ok());
        }
    }

    #[test]
    fn faults_are_distinguished() {
        let complete = picture(16, 16, 1, false, 0);
        let cut = |at: usize| check_jpeg(&complete[..at]);
        assert_eq!(check_jpeg(b""), Err(JpegFault::Empty));
        assert_eq!(check_jpeg(b"GIF89a"), Err(JpegFault::NoStart));
        assert_eq!(cut(2), Err(JpegFault::NoEnd));
        assert_eq!(cut(5), Err(JpegFault::CutSegment));
        assert_eq!(cut(complete.len() - 1), Err(JpegFault::CutScan));
        assert_eq!(cut(complete.len() - 2), Err(JpegFault::CutScan));
        assert_eq!(check_jpeg(&[&complete[..], b"more"].concat()), Err(JpegFault::TrailingData));
        assert_eq!(
            check_jpeg(&[&complete[..2], b"xx", &complete[2..]].concat()),
            Err(JpegFault::NoMarker)
        );
        assert_eq!(check_jpeg(&[0xFF, START, 0xFF, END]), Err(JpegFault::NoScan));
        assert_eq!(check_jpeg(&[0xFF, START, 0xFF, 0xE0, 0, 1, 0]), Err(JpegFault::BadSegment));
        assert_eq!(
            check_jpeg(&[0xFF, START, 0xFF, SCAN, 0, 8, 1, 1, 0, 0, 63, 0]),
            Err(JpegFault::NoSize)
        );
        let flat = [0xFF, START, 0xFF, 0xC0, 0, 11, 8, 0, 0, 0, 9, 1, 1, 0x11, 0];
        assert_eq!(check_jpeg(&flat), Err(JpegFault::NoSize));
    }

    #[test]
    fn an_end_marker_in_a_header_is_not_the_end() {
        let complete = picture(16, 16, 1, false, 0);
        let inner = [0xFF, START, 0xFF, END];
        let head = [&[0xFF, 0xE1, 0, 2 + inner.len() as u8][..], &inner].concat();
        let with = [&complete[..2], &head, &complete[2..]].concat();
        assert_eq!(check_jpeg(&with), Ok(JpegSize { width: 16, height: 16, components: 3 }));
        assert_eq!(check_jpeg(&with[..2 + head.len()]), Err(JpegFault::NoEnd));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_picture_is_complete_and_decodes_but_no_prefix_of_it(
            (width, height) in (1u16..40, 1u16..40),
            seed in any::<u64>(),
            progressive in any::<bool>(),
            restart in 0u16..4,
            at in any::<prop::sample::Index>())
        {
            let restart = if progressive { 0 } else { restart };
            let bytes = picture(width, height, seed, progressive, restart);
            prop_assert!(check_jpeg(&bytes).is_ok());
            prop_assert!(decodes(&bytes));
            prop_assert!(check_jpeg(&bytes[..at.index(bytes.len())]).is_err());
        }

        #[test]
        fn a_mutated_picture_has_a_result(
            seed in any::<u64>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8))
        {
            let mut bytes = picture(9, 9, seed, false, 1);
            let len = bytes.len();
            for (at, byte) in changes {
                bytes[at.index(len)] = byte;
            }
            let fault = check_jpeg(&bytes).err().map(JpegFault::as_str);
            prop_assert!(fault != Some(""));
        }

        #[test]
        fn any_bytes_have_a_result(bytes in prop::collection::vec(
            prop_oneof![
                Just(0xFFu8), Just(START), Just(SCAN), Just(END), Just(0u8), Just(2u8), any::<u8>()
            ],
            0..64))
        {
            prop_assert!(bytes.starts_with(&[0xFF, START]) || check_jpeg(&bytes).is_err());
            let begun = [&[0xFF, START], &bytes[..]].concat();
            // A complete file has an end marker, with a scan before it.
            let ends = begun.windows(2).filter(|pair| *pair == [0xFF, END]).count();
            prop_assert!(check_jpeg(&begun).is_err() || ends > 0 && begun.contains(&SCAN));
        }
    }
}
