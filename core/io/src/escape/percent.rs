//! Percent-encoding: bytes as `%` and two hexadecimal digits. The caller says which ones.

#![warn(clippy::indexing_slicing)]

/// The bytes as text: those of `plain`, which must be ASCII other than `%`, as they are.
pub fn percent_encoded(bytes: &[u8], plain: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if plain(byte) { text.push(char::from(byte)) } else { push_percent(&mut text, byte) }
    }
    text
}

/// The inverse of [`percent_encoded`]. A `%` that two hexadecimal digits do not follow stays.
pub fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let encoded = after.split_first_chunk().filter(|_| first == b'%');
        let decoded = encoded.and_then(|(digits, after)| Some((byte(digits)?, after)));
        let (byte, after) = decoded.unwrap_or((first, after));
        bytes.push(byte);
        rest = after;
    }
    bytes
}

fn byte(digits: &[u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? << 4 | low?).ok()
}

pub(super) fn push_percent(text: &mut String, byte: u8) {
    text.push('%');
    for digit in [byte >> 4, byte & 15] {
        text.extend(char::from_digit(u32::from(digit), 16).map(|digit| digit.to_ascii_uppercase()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_escapes_stay_as_they_are() {
        assert_eq!(percent_decoded(b"a%2"), b"a%2");
        assert_eq!(percent_decoded(b"%zz%41%+1%4g%"), b"%zzA%+1%4g%");
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
            let text = percent_encoded(&bytes, plain);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(percent_decoded(text.as_bytes()), bytes);
        }

        #[test]
        fn any_text_is_decoded(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(percent_decoded(&text).len() <= text.len());
        }
    }
}
