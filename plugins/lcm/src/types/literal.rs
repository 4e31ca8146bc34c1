//! Numbers as C writes them: `10`, `0x1F`, `017`, `-2.5e3`. Knows no types.

/// The number at the beginning of a word, in C's notations: `10`, `0x1F`, `017`. Nothing if it does not
/// fit into 64 bits; 0 for digits that the notation does not have.
pub(super) fn leading_integer(word: &str) -> Option<i64> {
    let (radix, digits) = notation(word);
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    match digits.get(..end).unwrap_or_default() {
        "" => Some(0),
        digits => i64::from_str_radix(digits, radix).ok(),
    }
}

/// The number that a word is, with a sign or without, in C's notations.
pub(super) fn whole_integer(word: &str) -> Option<i64> {
    let (sign, unsigned) = match word.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", word),
    };
    let (radix, digits) = notation(unsigned);
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    if !is_number {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

fn notation(word: &str) -> (u32, &str) {
    if let Some(digits) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return (16, digits);
    }
    match word.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => (8, digits),
        _ => (10, word),
    }
}

/// Whether a word is a floating-point number as C reads them.
pub(super) fn is_float(word: &str) -> bool {
    let unsigned = word.strip_prefix('-').unwrap_or(word).to_ascii_lowercase();
    let Some(digits) = unsigned.strip_prefix("0x") else {
        return !unsigned.starts_with('-') && unsigned.parse::<f64>().is_ok();
    };
    let (mantissa, exponent) = digits.split_once('p').unwrap_or((digits, "0"));
    let hex = mantissa.replacen('.', "", 1);
    let is_hex = !hex.is_empty() && hex.chars().all(|c| c.is_ascii_hexdigit());
    is_hex && exponent.parse::<i32>().is_ok()
}
