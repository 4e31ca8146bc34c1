//! Numbers as people read them: counts, bytes, durations.

/// A count with thousands separators: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count with its noun: `1 event`, `2,410 events`.
pub fn pluralize(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", count(number))
}

/// A number of bytes: `31 B`, `12.3 MB`.
pub fn bytes(number: u64) -> String {
    let units = [("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    // A number that rounds to 1000 of a unit is written as 1 of the next.
    match units.into_iter().find(|(_, size)| number as f64 >= size * 0.99995) {
        Some((unit, size)) => format!("{:.1} {unit}", number as f64 / size),
        None => format!("{number} B"),
    }
}

/// A duration in nanoseconds: `12 ns`, `3.5 ms`, `9.990 s`, `1 h 02 min 03 s`.
pub fn duration(nanos: u64) -> String {
    let seconds = nanos as f64 / 1e9;
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} µs", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds * 1e3),
        1_000_000_000..60_000_000_000 => format!("{seconds:.3} s"),
        _ => long_duration(nanos / 1_000_000_000),
    }
}

fn long_duration(seconds: u64) -> String {
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    match (hours / 24, hours % 24) {
        (0, 0) => format!("{minutes} min {seconds:02} s"),
        (0, hours) => format!("{hours} h {minutes:02} min {seconds:02} s"),
        (days, hours) => format!("{} d {hours:02} h {minutes:02} min", count(days)),
    }
}

/// A rate of events: `1,235 Hz`, `9.98 Hz`, `0.04 Hz`.
pub fn rate(hertz: f64) -> String {
    let decimals = match hertz {
        100.0.. => return format!("{} Hz", count(hertz.round() as u64)),
        10.0.. => 1,
        0.1.. => 2,
        // Five digits, however low it is.
        _ => (4.0 - hertz.log10().floor()).clamp(0.0, 20.0) as usize,
    };
    let digits = format!("{hertz:.decimals$}");
    let is_fraction = digits.contains('.');
    let digits = if is_fraction { digits.trim_end_matches('0') } else { &digits };
    format!("{} Hz", digits.trim_end_matches('.'))
}

/// Bytes per second: `23.6 MB/s`.
pub fn throughput(number: u64, seconds: f64) -> String {
    format!("{}/s", bytes((number as f64 / seconds.max(1e-9)) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_thousands_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            (pluralize(1, "event"), pluralize(0, "file")),
            ("1 event".into(), "0 files".into())
        );
    }

    #[test]
    fn bytes_have_the_unit_that_fits() {
        assert_eq!([0, 999, 1000, 999_999].map(bytes), ["0 B", "999 B", "1.0 kB", "1.0 MB"]);
        assert_eq!(bytes(12_345_678), "12.3 MB");
        assert_eq!(throughput(20_000_000, 2.0), "10.0 MB/s");
    }

    #[test]
    fn rates_have_digits_however_low_they_are() {
        let rates = [1234.5, 99.95, 30.04, 10.0, 9.984, 0.25, 0.05, 0.04, 1.0 / 86_400.0, 0.0];
        let words = [
            "1,235 Hz",
            "100 Hz",
            "30 Hz",
            "10 Hz",
            "9.98 Hz",
            "0.25 Hz",
            "0.05 Hz",
            "0.04 Hz",
            "0.000011574 Hz",
            "0 Hz",
        ];
        assert_eq!(rates.map(rate), words);
    }

    #[test]
    fn lengths_have_the_unit_that_fits() {
        let lengths = [12, 3_500_000, 9_990_000_000, 3_723_000_000_000, 90_000_000_000_000];
        let words = ["12 ns", "3.5 ms", "9.990 s", "1 h 02 min 03 s", "1 d 01 h 00 min"];
        assert_eq!(lengths.map(duration), words);
    }
}
