//! Appends numbers, strings and bytes to a text buffer, without allocating.

pub(crate) use sluice_kit::json::{base64, integer, string as json_string};
use sluice_model::time;

const NANOS: i64 = 1_000_000_000;

pub(crate) fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| DIGITS[usize::from(value & 15)];
    out.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]));
}

/// Appends the delimiter of a CSV.
#[inline]
pub(crate) fn delimiter(out: &mut Vec<u8>, delimiter: char) {
    match u8::try_from(delimiter) {
        // Nearly always, and twice as fast.
        Ok(byte) if byte.is_ascii() => out.push(byte),
        _ => out.extend_from_slice(delimiter.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Appends a value of a CSV, quoted if needed.
pub(crate) fn csv_value(out: &mut Vec<u8>, text: &str, delimiter: char) {
    let start = out.len();
    out.extend_from_slice(text.as_bytes());
    quote_csv(out, start, delimiter);
}

/// Like [`csv_value`], for a text that is no null: readers take a cell of blanks for null unless it
/// is quoted.
pub(crate) fn csv_text(out: &mut Vec<u8>, text: &str, delimiter: char) {
    if text.trim_ascii().is_empty() {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        csv_value(out, text, delimiter);
    }
}

/// Quotes what `out` has from `start` on, if a CSV needs it. It is UTF-8.
///
/// Zero bytes need quotes, too: without them, many are taken for damage.
pub(crate) fn quote_csv(out: &mut Vec<u8>, start: usize, delimiter: char) {
    let text = out.get(start..).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    if !text.contains(['"', '\r', '\n', '\0', delimiter]) {
        return;
    }
    let (old, quotes) = (out.len(), text.matches('"').count());
    out.resize(old + quotes + 2, b'"');
    // Backwards, so that nothing is overwritten before it has moved.
    let mut to = out.len() - 1;
    for from in (start..old).rev() {
        to -= 1;
        out[to] = out[from];
        if out[from] == b'"' {
            to -= 1;
            out[to] = b'"';
        }
    }
    out[start] = b'"';
}

/// Removes the quotes of a JSON string at the end of `out`, which needs no escapes.
#[inline]
pub(crate) fn unquote(out: &mut Vec<u8>, start: usize) {
    if out.get(start) == Some(&b'"') {
        out.pop();
        out.remove(start);
    }
}

/// Writes times as in RFC 3339. Caches the last second, which neighbours usually share.
#[derive(Debug, Default)]
pub(crate) struct TimestampWriter {
    /// The last second and its text, up to the fraction.
    last: Option<(i64, String)>,
}

impl TimestampWriter {
    /// The same text as [`time::format`].
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, nanos: i64) {
        let (second, fraction) = (nanos.div_euclid(NANOS), nanos.rem_euclid(NANOS));
        if self.last.as_ref().is_none_or(|last| last.0 != second) {
            let text = time::format(nanos);
            let whole = text.split_once('.').map_or("", |parts| parts.0);
            self.last = Some((second, whole.to_owned()));
        }
        let whole = self.last.as_ref().map_or("", |last| last.1.as_str());
        out.extend_from_slice(whole.as_bytes());
        out.extend_from_slice(b".000000000Z");
        let mut rest = fraction;
        for digit in out.iter_mut().rev().skip(1).take(9) {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hex_has_two_digits_per_byte() {
        let mut out = Vec::new();
        hex(&mut out, &[0x00, 0x2e, 0xff]);
        assert_eq!(out, b"002eff");
    }

    proptest! {
        #[test]
        fn quoted_values_are_what_replacing_gives(
            text in "[a;\"\n\r\x00é→]{0,12}", before in "[\"a]{0,3}")
        {
            for delimiter in [';', '→'] {
                let mut out = before.clone().into_bytes();
                csv_value(&mut out, &text, delimiter);
                let value = match text.contains(['"', '\n', '\r', '\0', delimiter]) {
                    true => format!("\"{}\"", text.replace('"', "\"\"")),
                    false => text.clone(),
                };
                prop_assert_eq!(String::from_utf8(out).unwrap(), format!("{before}{value}"));
            }
        }

        #[test]
        fn moments_are_written_as_core_formats_them(
            nanos in proptest::collection::vec(
                prop_oneof![any::<i64>(), -3_000_000_000i64..3_000_000_000, Just(i64::MIN),
                    Just(i64::MAX)],
                1..20))
        {
            let mut timestamps = TimestampWriter::default();
            for nanos in nanos {
                let mut out = Vec::new();
                timestamps.write(&mut out, nanos);
                prop_assert_eq!(String::from_utf8(out).unwrap(), time::format(nanos));
            }
        }
    }
}
