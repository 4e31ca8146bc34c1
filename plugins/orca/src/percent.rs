//! Percent-encoding: bytes as one word without blanks.

#![warn(clippy::indexing_slicing)]

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// The bytes as one percent-encoded word.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    let mut word = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_graphic() && *byte != b'%' {
            word.push(char::from(*byte));
        } else {
            let digit = |half: u8| DIGITS.get(usize::from(half)).copied().unwrap_or(b'0');
            word.extend(['%', char::from(digit(byte >> 4)), char::from(digit(byte & 15))]);
        }
    }
    word
}

/// The bytes of a word made by [`encoded`]. A `%` not followed by two hex digits stays as it is.
pub(crate) fn decoded(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let byte = if *first == b'%' { after.first_chunk().and_then(escaped) } else { None };
        let taken = if byte.is_some() { 3 } else { 1 };
        bytes.push(byte.unwrap_or(*first));
        rest = rest.get(taken..).unwrap_or_default();
    }
    bytes
}

fn escaped(digits: &[u8; 2]) -> Option<u8> {
    let half = |digit: &u8| char::from(*digit).to_digit(16);
    let [high, low] = digits.each_ref().map(half);
    u8::try_from(high? << 4 | low?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_escapes_stay_as_they_are() {
        assert_eq!(decoded(b"a%2"), b"a%2");
        assert_eq!(decoded(b"%zz%41%"), b"%zzA%");
    }

    proptest! {
        #[test]
        fn words_have_no_blanks_and_round_trip(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let word = encoded(&bytes);
            prop_assert!(word.bytes().all(|b| b.is_ascii_graphic()));
            prop_assert_eq!(decoded(word.as_bytes()), bytes);
        }

        #[test]
        fn any_word_is_decoded(word in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(decoded(&word).len() <= word.len());
        }
    }
}
