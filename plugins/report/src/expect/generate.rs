//! A first file of expectations from the figures of a good log: rounded, with room to vary, and
//! such that this log meets it.

use std::collections::BTreeMap;
use std::fmt::Write;

use sluice_io::escape::{is_unprintable, printable};
use sluice_model::Pattern;

use super::values::LEAST_EVENTS;
use super::words::length;
use crate::figures::{ChannelFigures, FieldFigures, Figures, Thinned};

/// How far rates may differ from those of the good log.
const TOLERANCE: f64 = 0.1;

/// The least share of long intervals that is allowed.
const LEAST_DROPPED: f64 = 0.05;

/// The shortest silences that are allowed at the ends of a log.
const LEAST_SLACK: u64 = 1_000_000_000;

/// The longest duration that a rule can hold, in nanoseconds.
const LONGEST: u64 = i64::MAX.unsigned_abs();

/// The most fields suggested per channel.
const MOST_FIELDS: usize = 8;

/// The text of a file of expectations that a log with these figures meets.
pub fn from_figures(figures: &Figures) -> String {
    let mut file = FileText::default();
    let names: Vec<_> = figures.inputs.iter().map(|input| printable(&input.name)).collect();
    let made_from = if names.is_empty() { "a log".to_owned() } else { names.join(", ") };
    file.line(format_args!("# Expectations, made from {made_from}."));
    file.line(format_args!("#"));
    file.line(format_args!("# Numbers are rounded, and have room to vary. Remove what does not"));
    file.line(format_args!(
        "# matter, and add what does; a table may be for a pattern (\"CAM_*\")."
    ));
    log_rules(&mut file, figures);
    // With too many channels, the log itself would not meet a table of one.
    let too_many = figures.thinned.iter().find(|thinned| thinned.what == Thinned::CHANNELS);
    if let Some(Thinned { of, shown, .. }) = too_many {
        file.line(format_args!(
            "\n# The log has {of} channels, more than the {shown} that can be compared."
        ));
        return file.text;
    }
    let mut channels: BTreeMap<&str, Vec<&ChannelFigures>> = BTreeMap::new();
    for channel in figures.channels.iter().filter(|channel| channel.events > 0) {
        channels.entry(&channel.name).or_default().push(channel);
    }
    let mut left_out = 0;
    for (name, same) in channels {
        let Some(pattern) = pattern(name) else {
            left_out += 1;
            continue;
        };
        file.line(format_args!("\n[channels.{}]", quoted(&pattern)));
        channel_rules(&mut file, figures, &same);
    }
    if left_out > 0 {
        file.line(format_args!("\n# {left_out} more channels are left out."));
    }
    file.text
}

#[derive(Default)]
struct FileText {
    text: String,
}

impl FileText {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _written = writeln!(self.text, "{line}");
    }
}

fn log_rules(file: &mut FileText, figures: &Figures) {
    file.line(format_args!("\n[log]"));
    let lost: u64 = figures.inputs.iter().map(|input| input.damaged_bytes).sum();
    let ranges: u64 = figures.inputs.iter().map(|input| input.damaged_ranges).sum();
    if ranges == 0 && lost == 0 {
        file.line(format_args!("damage = 0 # or a size (\"64KiB\"), or a share (\"0.1%\")"));
    } else {
        let most = round_up(lost.max(1));
        file.line(format_args!(
            "damage = {most} # bytes; the log that this was made from has some"
        ));
    }
    if let (Some(start), Some(end)) = (figures.start, figures.end) {
        let lasted = end.max(start).abs_diff(start);
        let half = round_down(lasted / 2);
        let least = duration(half);
        file.line(format_args!("duration = {{ min = {least} }} # it lasted {}", length(lasted)));
    }
    let steps = round_up(figures.steps_back);
    file.line(format_args!("time_back = {steps} # events earlier than the one before"));
    if let Some(jumps) = figures.sequence_jumps.map(round_up) {
        file.line(format_args!("missing_numbers = {jumps} # events that do not follow by number"));
    }
    file.line(format_args!("# no_other_channels = true"));
}

fn channel_rules(file: &mut FileText, figures: &Figures, same: &[&ChannelFigures]) {
    type_rule(file, same);
    rate_rules(file, same);
    let gaps = same.iter().filter_map(|channel| channel.longest_gap);
    if let Some(longest) = gaps.map(|gap| gap.length).max().filter(|gap| *gap <= LONGEST) {
        let most = round_up(longest.saturating_mul(2));
        file.line(format_args!("max_gap = {} # it was {}", duration(most), length(longest)));
    }
    let slack = |of: &dyn Fn(&ChannelFigures) -> u64| {
        let longest = same.iter().map(|channel| of(channel)).max().unwrap_or(0);
        let most = duration(round_up(longest.saturating_mul(2).max(LEAST_SLACK)));
        (longest <= LONGEST).then_some(most)
    };
    if let (Some(start), Some(end)) = (figures.start, figures.end) {
        let starts = slack(&|channel| channel.first.max(start).abs_diff(start));
        let ends = slack(&|channel| end.max(channel.last).abs_diff(channel.last));
        for (rule, most) in [("starts_within", starts), ("ends_within", ends)] {
            most.iter().for_each(|most| file.line(format_args!("{rule} = {most}")));
        }
    }
    let most = |of: &dyn Fn(&ChannelFigures) -> u64| {
        round_up(same.iter().map(|channel| of(channel)).max().unwrap_or(0))
    };
    if same.iter().all(|channel| !channel.types.is_empty()) {
        file.line(format_args!("undecoded = {}", most(&|channel| channel.undecoded)));
    }
    file.line(format_args!("time_back = {}", most(&|channel| channel.steps_back)));
    latency_rule(file, same);
    field_rules(file, same);
}

fn type_rule(file: &mut FileText, same: &[&ChannelFigures]) {
    // A channel without types could not meet the rule.
    if same.iter().any(|channel| channel.types.is_empty()) {
        return;
    }
    let types = same.iter().flat_map(|channel| &channel.types);
    let names: Option<Vec<String>> = types.map(|known| pattern(&known.name)).collect();
    let Some(names) = names else { return };
    let mut names: Vec<String> = names.iter().map(|name| string(name)).collect();
    names.sort();
    names.dedup();
    match &names[..] {
        [one] => file.line(format_args!("type = {one}")),
        many => file.line(format_args!("type = [{}]", many.join(", "))),
    }
}

fn rate_rules(file: &mut FileText, same: &[&ChannelFigures]) {
    let is_frequent = |channel: &&&ChannelFigures| channel.events >= LEAST_EVENTS;
    let frequent: Vec<&&ChannelFigures> = same.iter().filter(is_frequent).collect();
    let rates: Vec<f64> =
        frequent.iter().filter_map(|channel| channel.rate).map(|rate| rate.median).collect();
    let has_rates = rates.len() == same.len() && rates.iter().all(|rate| is_usable(*rate));
    if !has_rates {
        file.line(format_args!("count = {{ min = 1 }} # too few events for a rate"));
        return;
    }
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = rates.iter().copied().fold(0.0, f64::max);
    let hz = rounded(least);
    let is_near = |rate: f64| (rate - hz).abs() <= hz * TOLERANCE / 2.0;
    if is_near(least) && is_near(greatest) {
        file.line(format_args!("rate = {{ hz = {hz}, tolerance = {TOLERANCE} }}"));
    } else {
        let (min, max) = (least * (1.0 - TOLERANCE), greatest * (1.0 + TOLERANCE));
        file.line(format_args!("rate = {{ min = {min}, max = {max} }}"));
    }
    let shares = frequent.iter().filter_map(|channel| dropped(channel));
    let share = shares.fold(0.0, f64::max);
    let most = ((share * 200.0).ceil() / 100.0).clamp(LEAST_DROPPED, 1.0);
    file.line(format_args!("dropped = {most} # of intervals, over 1.5 times the median"));
}

/// A rate that a file can hold.
fn is_usable(rate: f64) -> bool {
    rate > 1e-9 && rate < 1e12
}

/// The share of intervals over 1.5 times the median.
fn dropped(channel: &ChannelFigures) -> Option<f64> {
    let limit = 1.5e9 / channel.rate?.median;
    let (all, long) = (channel.intervals.count(), channel.intervals.count_above(limit));
    (all > 0).then(|| long as f64 / all as f64)
}

fn latency_rule(file: &mut FileText, same: &[&ChannelFigures]) {
    let known: Vec<_> = same.iter().filter_map(|channel| channel.latency.as_ref()).collect();
    let (Some(least), Some(greatest)) =
        (known.iter().map(|l| l.least).min(), known.iter().map(|l| l.greatest).max())
    else {
        return;
    };
    if known.len() != same.len() {
        return;
    }
    // A clock that is off by far makes no rule.
    const FAR: u64 = 60_000_000_000;
    if least.unsigned_abs() > FAR || greatest.unsigned_abs() > FAR {
        return;
    }
    let ends = least.unsigned_abs().max(greatest.unsigned_abs());
    let most = round_up(ends.saturating_mul(2).max(1_000_000));
    let (min, max) = (duration_text(most), duration(most));
    match least < 0 {
        true => file.line(format_args!("latency = {{ min = \"-{min}\", max = {max} }}")),
        false => file.line(format_args!("latency = {{ max = {max} }}")),
    }
}

/// Suggests ranges of fields: which of them matter, nobody knows from one log.
fn field_rules(file: &mut FileText, same: &[&ChannelFigures]) {
    let [channel] = same else { return };
    let varies = |field: &&FieldFigures| field.min < field.max && field.not_finite == 0;
    let fields: Vec<&FieldFigures> = channel.fields.iter().filter(varies).collect();
    for field in fields.iter().take(MOST_FIELDS) {
        let (Some(min), Some(max)) = (field.min, field.max) else { continue };
        let path = quoted(&field.path);
        file.line(format_args!("# fields.{path} = {{ min = {min}, max = {max} }}"));
    }
    let more = fields.len().saturating_sub(MOST_FIELDS);
    if more > 0 {
        file.line(format_args!("# and {more} more fields"));
    }
}

/// A pattern that matches this name only; `None` for a name that is too long for one.
fn pattern(name: &str) -> Option<String> {
    let is_plain = Pattern::parse(name).is_ok_and(|pattern| pattern.as_name() == Some(name));
    let text = if is_plain { name.to_owned() } else { format!("re:{}", escaped(name)) };
    Pattern::parse(&text).is_ok_and(|pattern| pattern.matches(name)).then_some(text)
}

/// A regular expression for a text.
fn escaped(text: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$#&-~".contains(c);
    let escape = |c: char| if special(c) { format!("\\{c}") } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// A key of TOML.
fn quoted(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { string(key) }
}

/// A string of TOML, on one line, without invisible characters.
fn string(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if is_unprintable(c) => format!("\\U{:08X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// The nearest number of two digits, or of one more if that is far off.
fn rounded(rate: f64) -> f64 {
    let scale = 10f64.powf(rate.log10().floor() - 1.0);
    let round = (rate / scale).round() * scale;
    // Without the noise of the multiplication.
    format!("{round:.9}").parse().unwrap_or(rate)
}

/// The next number of 1, 2, 5 times a power of ten.
fn round_up(number: u64) -> u64 {
    let mut power = 1u64;
    loop {
        for step in [1, 2, 5] {
            match power.checked_mul(step) {
                Some(round) if round >= number => return if number == 0 { 0 } else { round },
                Some(_) => {}
                None => return u64::MAX,
            }
        }
        let Some(next) = power.checked_mul(10) else { return u64::MAX };
        power = next;
    }
}

/// The number of 1, 2, 5 times a power of ten before it.
fn round_down(number: u64) -> u64 {
    let up = round_up(number);
    if up == number || number == 0 {
        return number;
    }
    let smaller = [up / 2, up / 5 * 2, up / 10];
    smaller.into_iter().find(|round| *round <= number).unwrap_or(0)
}

/// A duration as a value of TOML.
fn duration(nanos: u64) -> String {
    format!("\"{}\"", duration_text(nanos))
}

/// A duration in its largest whole unit; at most what a duration can hold.
fn duration_text(nanos: u64) -> String {
    let nanos = nanos.min(LONGEST);
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    match units.into_iter().find(|(size, _)| nanos.is_multiple_of(*size)) {
        Some((size, unit)) => format!("{}{unit}", nanos / size),
        None => format!("{nanos}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_outwards() {
        assert_eq!([0, 1, 3, 11, 50, 51].map(round_up), [0, 1, 5, 20, 50, 100]);
        assert_eq!([0, 1, 3, 11, 50, 51, 99].map(round_down), [0, 1, 2, 10, 50, 50, 50]);
        assert_eq!(round_up(u64::MAX), u64::MAX);
        assert_eq!((rounded(9.98), rounded(123.4), rounded(0.0512)), (10.0, 120.0, 0.051));
        assert_eq!(
            (duration_text(1_500_000_000), duration_text(0)),
            ("1500ms".into(), "0s".into())
        );
    }

    #[test]
    fn every_name_has_a_pattern_of_its_own() {
        for name in ["POSE", "CAM_*", "re:x", "odd[1", "a.b", "", "{", "ü", "a b", "x\u{202e}\""] {
            let text = pattern(name).unwrap();
            let parsed = Pattern::parse(&text).unwrap();
            assert!(parsed.matches(name), "{name}: {text}");
            assert!(!parsed.matches("CAM_L"), "{name}: {text}");
        }
    }
}
