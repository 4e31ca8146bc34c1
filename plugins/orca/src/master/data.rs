//! Data lines: when an event happened, and where it is.

#![warn(clippy::indexing_slicing)]

use super::next_word;

/// A data line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataLine {
    /// Nanoseconds since 1970, even if 64 bits cannot hold them.
    pub(crate) time: i128,
    /// The subfile's number.
    pub(crate) subfile: u64,
    /// The index of the object in the subfile.
    pub(crate) index: i64,
}

const SECOND: i64 = 1_000_000_000;
const MICRO: i64 = 1_000;

impl DataLine {
    /// Parses a line; `None` if it is blank or a comment. `Err` is the reason it is invalid.
    pub(crate) fn parse(text: &[u8]) -> Result<Option<Self>, &'static str> {
        Ok(Self::parse_prefix(text)?.map(|(line, _)| line))
    }

    /// Parses a line, and returns the rest of it, too.
    pub(super) fn parse_prefix(mut text: &[u8]) -> Result<Option<(Self, &[u8])>, &'static str> {
        if let Some((plain, rest)) = decimal_numbers(text) {
            return Ok(Some((Self::from_numbers(plain)?, rest)));
        }
        let first = match next_word(&mut text) {
            None => return Ok(None),
            Some(first) if first.starts_with(b"#") => return Ok(None),
            Some(first) => first,
        };
        let few = "a data line has four numbers: seconds, microseconds, subfile, index";
        let mut next = || next_word(&mut text).ok_or(few);
        let (second, subfile, index) = (next()?, next()?, next()?);
        let seconds = number(first).ok_or("the seconds are not a whole number of 64 bits")?;
        let micros = number(second).ok_or(NO_MICROS)?;
        let subfile = number(subfile).ok_or(NO_SUBFILE)?;
        let index = number(index).ok_or("the index is not a whole number of 64 bits")?;
        Ok(Some((Self::from_numbers([seconds, micros, subfile, index])?, text)))
    }

    /// The data line that a text starts with, and its length with its line feed, if it consists of
    /// digits, and of single blanks between the numbers. `None` for all other lines, which
    /// [`parse_prefix`](Self::parse_prefix) may accept.
    pub(super) fn parse_plain(text: &[u8]) -> Option<(Self, usize)> {
        let text: &[u8; PLAIN_LINE] = text.first_chunk()?;
        let (mut numbers, mut at) = ([0_i64; 4], 0);
        for (number, end) in numbers.iter_mut().zip(*b"   \n") {
            let start = at;
            while let digit @ 0..=9 = text.get(at)?.wrapping_sub(b'0') {
                *number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
                at += 1;
            }
            let is_number = (1..=MAX_DIGITS).contains(&(at - start));
            if !is_number || text.get(at) != Some(&end) {
                return None;
            }
            at += 1;
        }
        Some((Self::from_numbers(numbers).ok()?, at))
    }

    fn from_numbers([seconds, micros, subfile, index]: [i64; 4]) -> Result<Self, &'static str> {
        if !(0..1_000_000).contains(&micros) {
            return Err(NO_MICROS);
        }
        let subfile = u64::try_from(subfile).map_err(|_| NO_SUBFILE)?;
        let time = i128::from(seconds) * i128::from(SECOND) + i128::from(micros * MICRO);
        Ok(Self { time, subfile, index })
    }

    /// The time, or the nearest one that 64 bits can hold.
    pub(crate) fn timestamp(&self) -> i64 {
        let nearest = if self.time < 0 { i64::MIN } else { i64::MAX };
        i64::try_from(self.time).unwrap_or(nearest)
    }
}

const NO_MICROS: &str = "the microseconds are not a whole number from 0 to 999999";
const NO_SUBFILE: &str = "the subfile is not the number of a header line";

/// The four numbers of a data line as loggers write them, with digits and spaces only, and the rest
/// of the line. `None` if the line needs the slower, general parser.
pub(super) fn decimal_numbers(mut text: &[u8]) -> Option<([i64; 4], &[u8])> {
    let mut numbers = [0; 4];
    for number in &mut numbers {
        while let [b' ', rest @ ..] = text {
            text = rest;
        }
        let (mut value, mut digits) = (0, 0);
        while let [digit @ b'0'..=b'9', rest @ ..] = text {
            value = value * 10 + i64::from(digit - b'0');
            digits += 1;
            text = rest;
            if digits > MAX_DIGITS {
                return None;
            }
        }
        if digits == 0 || !matches!(text, [] | [b' ', ..]) {
            return None;
        }
        *number = value;
    }
    Some((numbers, text))
}

/// The longest line that [`DataLine::parse_plain`] accepts.
const PLAIN_LINE: usize = 4 * (MAX_DIGITS + 1);

/// A number with at most this many digits fits into 64 bits.
const MAX_DIGITS: usize = 17;

/// A whole number in decimal digits.
pub(super) fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}
