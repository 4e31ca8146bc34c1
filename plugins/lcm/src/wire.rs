//! The bytes of one event: sync word, number, time, two lengths, channel, data.
//!
//! It does not decide whether an event is plausible; [`scan`](crate::scan) does.

#![warn(clippy::indexing_slicing)]

/// The four bytes at the start of every event.
pub const SYNC: [u8; 4] = [0xED, 0xA1, 0xDA, 0x01];

/// Bytes of an event before its channel, including the sync word.
pub const HEADER_LEN: usize = 28;

/// The header of an event as it is in the log. Only the sync word is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LcmHeader {
    /// The writer's counter; starts at 0 again in an appended log.
    pub number: i64,
    /// Time in microseconds since 1970.
    pub utime: i64,
    /// Bytes of the channel name; negative only if damaged.
    pub channel_len: i32,
    /// Bytes of the payload; negative only if damaged.
    pub data_len: i32,
}

/// A channel name or payload too long for the 32-bit length of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} of {len} bytes is longer than the {} an lcm event log can hold", i32::MAX)]
pub struct TooLong {
    /// Which part it is, for the user: `channel name` or `payload`.
    pub part: &'static str,
    /// Its length in bytes.
    pub len: usize,
}

impl LcmHeader {
    /// Parses a header; `None` without the sync word.
    #[inline]
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let rest = bytes.strip_prefix(&SYNC)?;
        let (number, rest) = rest.split_first_chunk()?;
        let (utime, rest) = rest.split_first_chunk()?;
        let (channel_len, rest) = rest.split_first_chunk()?;
        let (data_len, _) = rest.split_first_chunk()?;
        Some(Self {
            number: i64::from_be_bytes(*number),
            utime: i64::from_be_bytes(*utime),
            channel_len: i32::from_be_bytes(*channel_len),
            data_len: i32::from_be_bytes(*data_len),
        })
    }

    /// Bytes of the whole event, header included; `None` if a length is negative.
    #[inline]
    pub fn record_len(&self) -> Option<u64> {
        let channel = u64::try_from(self.channel_len).ok()?;
        let data = u64::try_from(self.data_len).ok()?;
        Some(HEADER_LEN as u64 + channel + data)
    }

    /// The bytes of the header, sync word first.
    #[inline]
    pub fn write(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let rest = put(&mut bytes, SYNC);
        let rest = put(rest, self.number.to_be_bytes());
        let rest = put(rest, self.utime.to_be_bytes());
        let rest = put(rest, self.channel_len.to_be_bytes());
        put(rest, self.data_len.to_be_bytes());
        bytes
    }
}

/// Appends one event to `out`.
///
/// `Err` if a length does not fit the format; `out` is then unchanged.
pub fn append_event(
    out: &mut Vec<u8>,
    number: i64,
    utime: i64,
    channel: &[u8],
    data: &[u8],
) -> Result<(), TooLong> {
    let channel_len = length("channel name", channel)?;
    let data_len = length("payload", data)?;
    out.reserve(HEADER_LEN + channel.len() + data.len());
    out.extend_from_slice(&LcmHeader { number, utime, channel_len, data_len }.write());
    out.extend_from_slice(channel);
    out.extend_from_slice(data);
    Ok(())
}

/// Bytes of the event that [`append_event`] would append.
pub(crate) fn record_len(channel: &[u8], data: &[u8]) -> Result<u64, TooLong> {
    let (channel, data) = (length("channel name", channel)?, length("payload", data)?);
    Ok(HEADER_LEN as u64 + u64::from(channel.unsigned_abs()) + u64::from(data.unsigned_abs()))
}

fn length(part: &'static str, bytes: &[u8]) -> Result<i32, TooLong> {
    i32::try_from(bytes.len()).map_err(|_| TooLong { part, len: bytes.len() })
}

/// Writes `bytes` to the front of `to` and returns the rest. Writes nothing if `to` is too short.
#[inline]
fn put<const N: usize>(to: &mut [u8], bytes: [u8; N]) -> &mut [u8] {
    let Some((front, rest)) = to.split_first_chunk_mut() else { return &mut [] };
    *front = bytes;
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_event_is_laid_out_as_the_format_says() {
        let mut log = Vec::new();
        append_event(&mut log, 1, -2, b"AB", &[7, 8, 9]).unwrap();
        let expected = [
            &[0xED, 0xA1, 0xDA, 0x01][..],
            &[0, 0, 0, 0, 0, 0, 0, 1],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE],
            &[0, 0, 0, 2],
            &[0, 0, 0, 3],
            b"AB",
            &[7, 8, 9],
        ];
        assert_eq!(log, expected.concat());
    }

    #[test]
    fn a_header_needs_every_byte_of_its_sync_word() {
        let good = LcmHeader { number: 1, utime: 2, channel_len: 3, data_len: 4 }.write();
        for wrong in 0..SYNC.len() {
            let mut bad = good;
            bad.iter_mut().skip(wrong).take(1).for_each(|byte| *byte ^= 1);
            assert_eq!(LcmHeader::parse(&bad), None);
        }
    }

    #[test]
    fn a_negative_length_is_no_length() {
        let header = LcmHeader { number: 0, utime: 0, channel_len: 0, data_len: 0 };
        assert_eq!(header.record_len(), Some(28));
        assert_eq!(LcmHeader { channel_len: -1, ..header }.record_len(), None);
        assert_eq!(LcmHeader { data_len: i32::MIN, ..header }.record_len(), None);
    }

    #[test]
    fn the_longest_lengths_do_not_overflow() {
        let header = LcmHeader { number: 0, utime: 0, channel_len: i32::MAX, data_len: i32::MAX };
        assert_eq!(header.record_len(), Some(28 + 2 * 0x7fff_ffff));
    }

    #[test]
    fn too_long_says_what_is_too_long() {
        let error = TooLong { part: "payload", len: 3_000_000_000 };
        assert_eq!(
            error.to_string(),
            "payload of 3000000000 bytes is longer than the 2147483647 an lcm event log can hold"
        );
    }

    proptest! {
        #[test]
        fn a_header_survives_writing_and_parsing(
            number: i64, utime: i64, channel_len: i32, data_len: i32,
        ) {
            let header = LcmHeader { number, utime, channel_len, data_len };
            prop_assert_eq!(LcmHeader::parse(&header.write()), Some(header));
        }
    }
}
