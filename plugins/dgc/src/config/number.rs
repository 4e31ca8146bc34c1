//! Parses scalars as numbers and booleans, by the rules of C. Does not explain what is wrong.

/// An integer: decimal, hexadecimal after `0x`, octal after `0`.
pub(super) fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = sign(text.trim_start());
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let (digits, radix) = match lower.as_deref() {
        Some("0x") => (digits.get(2..)?, 16),
        Some(octal) if octal.starts_with('0') => (digits, 8),
        _ => (digits, 10),
    };
    // `from_str_radix` accepts a sign itself; C does not allow a second one.
    if !digits.starts_with(|digit: char| digit.is_digit(radix)) {
        return None;
    }
    let size = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if negative { -size } else { size }).ok()
}

/// A floating-point number, a hexadecimal integer, `inf` or `nan`.
pub(super) fn double(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let (negative, rest) = sign(text);
    let Some(digits) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) else {
        return text.parse().ok();
    };
    if !digits.starts_with(|digit: char| digit.is_ascii_hexdigit()) {
        return None;
    }
    let size = u64::from_str_radix(digits, 16).ok()? as f64;
    Some(if negative { -size } else { size })
}

pub(super) fn boolean(text: &str) -> Option<bool> {
    let is_one_of = |words: [&str; 4]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is_one_of(["y", "yes", "true", "1"]) {
        return Some(true);
    }
    is_one_of(["n", "no", "false", "0"]).then_some(false)
}

fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_as_c_reads_them() {
        let all = [("12", 12), ("-12", -12), ("0x1F", 31), ("-0X1f", -31), ("010", 8), ("0", 0)];
        for (text, number) in all {
            assert_eq!(integer(text), Some(number), "{text}");
        }
        assert_eq!(integer("-9223372036854775808"), Some(i64::MIN));
        for text in ["", "-", "--1", "0x", "0x-1", "08", "1.5", "12m", "9223372036854775808"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_may_be_hexadecimal_and_have_exponents() {
        let all = [("1.5", 1.5), (".5", 0.5), ("-3.", -3.0), ("2e-3", 2e-3), ("0x10", 16.0)];
        for (text, number) in all {
            assert_eq!(double(text), Some(number), "{text}");
        }
        for text in ["", "m", "1.5m", "0x", "0x+1", "1..2"] {
            assert_eq!(double(text), None, "{text}");
        }
    }

    #[test]
    fn booleans_are_eight_words_in_any_case() {
        for text in ["y", "YES", "True", "1"] {
            assert_eq!(boolean(text), Some(true), "{text}");
        }
        for text in ["N", "no", "False", "0"] {
            assert_eq!(boolean(text), Some(false), "{text}");
        }
        assert_eq!((boolean("on"), boolean("")), (None, None));
    }
}
