//! Parses numbers in C notation: `10`, `0x1F`, `017`, `-2.5e3`.

/// The number at the start of a word, in C notation. `None` if it does not fit into 64 bits; 0 if
/// there are no valid digits.
pub(super) fn leading_integer(word: &str) -> Option<i64> {
    let (radix, digits) = notation(word);
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    match digits.get(..end).unwrap_or_default() {
        "" => Some(0),
        digits => i64::from_str_radix(digits, radix).ok(),
    }
}

/// Parses a whole word as a number in C notation, with an optional sign.
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

/// Whether a word is a floating-point number in C notation.
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
