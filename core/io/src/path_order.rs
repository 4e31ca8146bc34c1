//! The order of paths: by name, with numbers in names as numbers. A file comes before those that
//! continue it, which have a number before the extension. Touches no file.

use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Compares paths name by name: `log.99` comes before `log.100`, and `log.mcap` before
/// `log.00.mcap`, as they were written.
pub(crate) fn compare(a: &Path, b: &Path) -> Ordering {
    let mut others = b.components();
    for part in a.components() {
        let Some(other) = others.next() else { return Ordering::Greater };
        let order = compare_names(part.as_os_str().as_bytes(), other.as_os_str().as_bytes());
        if order.is_ne() {
            return order;
        }
    }
    // `7` and `07` are one number, but two names.
    if others.next().is_some() { Ordering::Less } else { a.cmp(b) }
}

fn compare_names(mut a: &[u8], mut b: &[u8]) -> Ordering {
    let mut is_behind_dot = false;
    loop {
        let (digits, others) = (leading_digits(a), leading_digits(b));
        let order = if digits.is_empty() || others.is_empty() {
            let (Some((byte, rest)), Some((other, others))) = (a.split_first(), b.split_first())
            else {
                return a.len().cmp(&b.len());
            };
            (a, b) = (rest, others);
            let is_behind_dot = std::mem::replace(&mut is_behind_dot, *byte == b'.');
            if is_behind_dot { extension_first(*byte, *other) } else { byte.cmp(other) }
        } else {
            is_behind_dot = false;
            (a, b) = (&a[digits.len()..], &b[others.len()..]);
            let (number, other) = (without_zeros(digits), without_zeros(others));
            number.len().cmp(&other.len()).then_with(|| number.cmp(other))
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn extension_first(byte: u8, other: u8) -> Ordering {
    byte.is_ascii_digit().cmp(&other.is_ascii_digit()).then_with(|| byte.cmp(&other))
}

fn leading_digits(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|byte| !byte.is_ascii_digit());
    name.get(..end.unwrap_or(name.len())).unwrap_or_default()
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    let start = digits.iter().position(|digit| *digit != b'0');
    digits.get(start.unwrap_or(digits.len())..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        let sorted = [
            "",
            "/a",
            "a",
            "a/2",
            "a/10/b",
            "a/10/c",
            "a.b",
            "a.b.00",
            "a.b.1",
            "a.0",
            "a.00",
            "a.0.b",
            "a.07",
            "a.7",
            "a.07.x9",
            "a.7.x10",
            "a.99",
            "a.100",
            "a.99999999999999999999999999",
            "a.100000000000000000000000000",
            "a1-2",
            "a1-10",
            "a1b",
            "a10",
            "b",
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(compare(Path::new(a), Path::new(b)), i.cmp(&j), "{a} {b}");
            }
        }
    }
}
