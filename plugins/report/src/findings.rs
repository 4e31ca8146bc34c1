//! Findings: what a reader of a report should know first, from its figures.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sluice_io::escape::printable;
use sluice_model::{time, units};

use crate::{ChannelFigures, Figures, Finding, FindingKind, GapFigures, InputFigures};

/// A gap shorter than this is no finding, however regular its channel is otherwise.
const LEAST_GAP: u64 = 500_000_000;
/// A channel must have this many events before its beginning late or ending early is a finding.
const STEADY_EVENTS: u64 = 20;
/// How many names a finding about several channels gives.
const MOST_NAMES: usize = 3;

/// What stands out, worst first. Expectations that are not met are not among them: what compares
/// with expectations adds those.
pub(crate) fn findings(figures: &Figures) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(figures.inputs.iter().filter_map(damage));
    findings.extend(gaps(figures));
    findings.extend(figures.pictures.iter().filter(|camera| camera.bad > 0).map(|camera| {
        let (bad, count) = (units::count(camera.bad), units::pluralize(camera.count, "picture"));
        Finding {
            kind: FindingKind::BadPictures,
            text: format!("{}: {bad} of {count} cut off or unreadable", name(&camera.channel)),
            channel: Some(camera.channel.clone()),
            time: camera.first_bad,
        }
    }));
    findings.extend(undecoded(figures));
    findings.extend(steps_back(figures));
    findings.extend(far_times(figures));
    findings.extend(missing(figures));
    findings.extend(largest_first(figures, not_finite_of, not_finite));
    findings
}

/// A finding for each channel of which `count` is not zero.
fn largest_first(
    figures: &Figures,
    count: fn(&ChannelFigures) -> u64,
    finding: fn(&ChannelFigures) -> Finding,
) -> Vec<Finding> {
    let mut channels: Vec<_> = figures.channels.iter().filter(|c| count(c) > 0).collect();
    channels.sort_by_key(|channel| Reverse(count(channel)));
    channels.into_iter().map(finding).collect()
}

fn name(text: &str) -> String {
    printable(text).into_owned()
}

fn damage(input: &InputFigures) -> Option<Finding> {
    if input.damaged_ranges == 0 && input.damaged_bytes == 0 {
        return None;
    }
    let lost = units::bytes(input.damaged_bytes);
    let places = units::pluralize(input.damaged_ranges, "place");
    let first = input.damage.first().map_or(String::new(), |range| {
        format!(", the first at byte {}: {}", units::count(range.offset), range.reason)
    });
    let text = format!("{}: {lost} could not be read, in {places}{first}", name(&input.name));
    Some(Finding { kind: FindingKind::Damage, text, channel: None, time: None })
}

/// A time of silence, of one channel or of several at once.
struct Silence<'f> {
    channels: Vec<&'f str>,
    gap: GapFigures,
    usual: Option<u64>,
}

/// The longest gaps; those of several channels at the same time are one finding.
fn gaps(figures: &Figures) -> Vec<Finding> {
    let mut silences: Vec<Silence<'_>> = Vec::new();
    let mut all: Vec<(&ChannelFigures, GapFigures)> = figures
        .channels
        .iter()
        .flat_map(|c| worst_gaps(c, figures).map(move |gap| (c, gap)))
        .collect();
    all.sort_by_key(|(channel, gap)| (Reverse(gap.length), gap.start, channel.name.as_str()));
    for (channel, gap) in all {
        match silences.iter_mut().find(|silence| is_same(&silence.gap, &gap)) {
            Some(silence) if !silence.channels.contains(&channel.name.as_str()) => {
                silence.channels.push(&channel.name);
            }
            Some(_) => {}
            None => {
                silences.push(Silence { channels: vec![&channel.name], gap, usual: usual(channel) })
            }
        }
    }
    // A channel appears once: its longest gap, with the number of others.
    let mut shown: BTreeMap<&str, usize> = BTreeMap::new();
    let mut findings = Vec::new();
    for silence in &silences {
        let Some(first) = silence.channels.first() else { continue };
        let seen = shown.entry(first).or_default();
        *seen += 1;
        if *seen == 1 {
            findings.push(silence_finding(figures, silence));
        }
    }
    findings
}

/// The longest gap of a channel, and silence at the beginning and end of the log.
fn worst_gaps<'f>(
    channel: &'f ChannelFigures,
    figures: &'f Figures,
) -> impl Iterator<Item = GapFigures> + use<'f> {
    let is_steady = channel.events >= STEADY_EVENTS && channel.gap_count * 20 <= channel.events;
    let longest = channel.gaps.iter().max_by_key(|gap| (gap.length, Reverse(gap.start))).copied();
    let longest = longest.filter(|gap| !is_one_of_many(gap, &channel.gaps));
    let least = usual(channel).map_or(u64::MAX, |usual| usual.saturating_mul(10));
    let edge = |from: Option<i64>, to: Option<i64>| {
        let (from, to) = (from?, to?);
        let gap = GapFigures { start: from, length: to.checked_sub(from)?.try_into().ok()? };
        (is_steady && gap.length > least).then_some(gap)
    };
    let before = edge(figures.axis_start, Some(channel.first));
    let after = edge(Some(channel.last), figures.axis_end);
    let all = [longest, before, after].into_iter().flatten();
    all.filter(|gap| gap.length >= LEAST_GAP && is_on_axis(gap, figures))
}

/// Whether a gap lies between events on the axis of time.
fn is_on_axis(gap: &GapFigures, figures: &Figures) -> bool {
    let end = gap.start.checked_add_unsigned(gap.length);
    let (from, to) = (figures.axis_start, figures.axis_end);
    from.is_none_or(|from| gap.start >= from)
        && end.is_some_and(|end| to.is_none_or(|to| end <= to))
}

/// Whether a channel's gaps are much alike: it sends in bursts.
fn is_one_of_many(longest: &GapFigures, gaps: &[GapFigures]) -> bool {
    let mut lengths: Vec<u64> = gaps.iter().map(|gap| gap.length).collect();
    lengths.sort_unstable();
    let usual = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    gaps.len() > 3 && longest.length < usual.saturating_mul(3)
}

/// The median interval in nanoseconds.
fn usual(channel: &ChannelFigures) -> Option<u64> {
    let rate = channel.rate.as_ref()?.median;
    (rate > 0.0 && rate.is_finite()).then(|| (1e9 / rate) as u64)
}

/// Whether gaps are of one cause: they cover the same time but for a tenth.
fn is_same(a: &GapFigures, b: &GapFigures) -> bool {
    let end = |gap: &GapFigures| i128::from(gap.start) + i128::from(gap.length);
    let from = i128::from(a.start).max(i128::from(b.start));
    let common = (end(a).min(end(b)) - from).max(0);
    common * 10 >= i128::from(a.length.max(b.length)) * 9
}

fn silence_finding(figures: &Figures, silence: &Silence<'_>) -> Finding {
    let (length, start) = (silence.gap.length, silence.gap.start);
    let names = list(&silence.channels);
    let end = start.saturating_add_unsigned(length);
    let place = if Some(start) == figures.axis_start {
        "from the start of the log".to_owned()
    } else if Some(end) == figures.axis_end {
        "until the end of the log".to_owned()
    } else {
        format!("from {}", at(figures, start))
    };
    let usual = match silence.usual {
        Some(usual) => format!(" (usually every {})", units::duration(usual)),
        None => String::new(),
    };
    let text = format!("{names} silent for {}, {place}{usual}", units::duration(length));
    let channel = silence.channels.first().map(|name| (*name).to_owned());
    let middle = start.saturating_add_unsigned(length / 2);
    Finding { kind: FindingKind::Gap, text, channel, time: Some(middle) }
}

/// Some names, and how many more there are.
fn list(names: &[&str]) -> String {
    let (first, rest) = names.split_at(names.len().min(MOST_NAMES));
    let first: Vec<String> = first.iter().map(|text| name(text)).collect();
    match rest.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// A time, after the start of the axis.
fn at(figures: &Figures, when: i64) -> String {
    match figures.axis_start {
        Some(start) => format!("+{}", units::duration(when.abs_diff(start))),
        None => time::format(when),
    }
}

/// One for each channel, or one for the log if nothing is decoded, mostly because no types are
/// known.
fn undecoded(figures: &Figures) -> Vec<Finding> {
    let channels = figures.channels.len() as u64;
    let all: u64 = figures.channels.iter().map(|channel| channel.undecoded).sum();
    if channels > 1 && all > 0 && all == figures.events {
        let (events, channels) =
            (units::pluralize(figures.events, "event"), units::pluralize(channels, "channel"));
        let text = format!("nothing decoded: {events} on {channels}");
        return vec![Finding { kind: FindingKind::Undecoded, text, channel: None, time: None }];
    }
    let of_channel = |channel: &ChannelFigures| {
        let count = units::count(channel.undecoded);
        let all = units::pluralize(channel.events, "event");
        Finding {
            kind: FindingKind::Undecoded,
            text: format!("{}: {count} of {all} not decoded", name(&channel.name)),
            channel: Some(channel.name.clone()),
            time: channel.first_undecoded,
        }
    };
    largest_first(figures, |channel| channel.undecoded, of_channel)
}

fn steps_back(figures: &Figures) -> Vec<Finding> {
    let mut findings = largest_first(
        figures,
        |channel| channel.largest_step_back,
        |channel| Finding {
            kind: FindingKind::StepsBack,
            text: format!(
                "{}: times step back {}, by up to {}",
                name(&channel.name),
                units::pluralize(channel.steps_back, "time"),
                units::duration(channel.largest_step_back)
            ),
            channel: Some(channel.name.clone()),
            time: None,
        },
    );
    if findings.is_empty() && figures.steps_back > 0 {
        let text = format!(
            "Times step back {} from one channel to another",
            units::pluralize(figures.steps_back, "time")
        );
        findings.push(Finding { kind: FindingKind::StepsBack, text, channel: None, time: None });
    }
    if figures.wide_times > 0 {
        let events = units::pluralize(figures.wide_times, "event");
        let text = format!("{events} with a time that does not fit into 64 bits of nanoseconds");
        findings.push(Finding { kind: FindingKind::StepsBack, text, channel: None, time: None });
    }
    findings
}

fn far_times(figures: &Figures) -> Option<Finding> {
    (figures.off_axis > 0).then(|| Finding {
        kind: FindingKind::StepsBack,
        text: format!(
            "{} with a time far from all others, which the time line leaves out",
            units::pluralize(figures.off_axis, "event")
        ),
        channel: None,
        time: None,
    })
}

fn missing(figures: &Figures) -> Option<Finding> {
    figures.sequence_jumps.filter(|jumps| *jumps > 0).map(|jumps| Finding {
        kind: FindingKind::Missing,
        text: format!(
            "Event numbers jump {}: events are lost, or were left out",
            units::pluralize(jumps, "time")
        ),
        channel: None,
        time: None,
    })
}

fn not_finite_of(channel: &ChannelFigures) -> u64 {
    channel.fields.iter().fold(0, |sum, field| sum.saturating_add(field.not_finite))
}

fn not_finite(channel: &ChannelFigures) -> Finding {
    let most = channel.fields.iter().max_by_key(|field| field.not_finite);
    let path = most.map_or(String::new(), |field| format!(", most in {}", name(&field.path)));
    let values = units::pluralize(not_finite_of(channel), "value");
    Finding {
        kind: FindingKind::NotFinite,
        text: format!("{}: {values} NaN or infinite{path}", name(&channel.name)),
        channel: Some(channel.name.clone()),
        time: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RateFigures;

    const SECOND: u64 = 1_000_000_000;

    /// A channel of 10 Hz from 0 to 100 s.
    fn channel(name: &str, gaps: &[(i64, u64)]) -> ChannelFigures {
        let gap = |(start, length): &(i64, u64)| GapFigures {
            start: start * SECOND as i64,
            length: length * SECOND,
        };
        ChannelFigures {
            name: name.to_owned(),
            events: 1000,
            last: 100 * SECOND as i64,
            rate: Some(RateFigures { median: 10.0, p1: 10.0, p99: 10.0, mean: 10.0 }),
            gaps: gaps.iter().map(gap).collect(),
            gap_count: gaps.len() as u64,
            ..ChannelFigures::default()
        }
    }

    fn figures(channels: Vec<ChannelFigures>) -> Figures {
        let (axis_start, axis_end) = (Some(0), Some(100 * SECOND as i64));
        Figures { axis_start, axis_end, channels, ..Figures::default() }
    }

    fn texts(figures: &Figures) -> Vec<String> {
        findings(figures).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_whole_log_has_none() {
        assert_eq!(texts(&Figures::default()), [""; 0]);
        assert_eq!(texts(&figures(vec![channel("A", &[])])), [""; 0]);
    }

    #[test]
    fn gaps_of_one_cause_are_one_finding() {
        let channels = ["A", "B", "C", "D"].map(|name| channel(name, &[(20, 5), (50, 1)]));
        assert_eq!(
            texts(&figures(channels.to_vec())),
            ["A, B, C and 1 more silent for 5.000 s, from +20.000 s (usually every 100.0 ms)"]
        );
    }

    #[test]
    fn a_channel_that_sends_in_bursts_has_no_gaps() {
        let bursts = channel("A", &[(10, 5), (20, 5), (30, 6), (40, 5)]);
        assert_eq!(texts(&figures(vec![bursts])), [""; 0]);
        let silent = channel("A", &[(10, 5), (20, 5), (30, 20), (40, 5)]);
        assert_eq!(texts(&figures(vec![silent])).len(), 1);
    }

    #[test]
    fn a_channel_that_ends_early_is_silent_until_the_end() {
        let early = ChannelFigures { last: 60 * SECOND as i64, ..channel("A", &[]) };
        let found = findings(&figures(vec![early, channel("B", &[])]));
        assert_eq!(
            found[0].text,
            "A silent for 40.000 s, until the end of the log (usually every 100.0 ms)"
        );
        assert_eq!((found.len(), found[0].time), (1, Some(80 * SECOND as i64)));
    }

    #[test]
    fn a_log_of_which_nothing_is_decoded_is_one_finding() {
        let undecoded = |name| ChannelFigures { events: 10, undecoded: 10, ..channel(name, &[]) };
        let mut log = figures(vec![undecoded("A"), undecoded("B")]);
        log.events = 20;
        assert_eq!(texts(&log), ["nothing decoded: 20 events on 2 channels"]);
        log.channels[0].undecoded = 9;
        assert_eq!(
            texts(&log),
            ["B: 10 of 10 events not decoded", "A: 9 of 10 events not decoded"]
        );
    }

    #[test]
    fn the_worst_comes_first() {
        let mut log = figures(vec![ChannelFigures { undecoded: 3, ..channel("A", &[(1, 2)]) }]);
        log.sequence_jumps = Some(1);
        log.inputs = vec![InputFigures { damaged_ranges: 1, ..InputFigures::default() }];
        let kinds: Vec<FindingKind> = findings(&log).iter().map(|finding| finding.kind).collect();
        use FindingKind::{Damage, Gap, Missing, Undecoded};
        assert_eq!(kinds, [Damage, Gap, Undecoded, Missing]);
        assert!(kinds.is_sorted());
    }
}
