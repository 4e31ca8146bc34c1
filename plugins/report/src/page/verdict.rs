//! The verdict: whether the log is whole, its main figures, and what to look at first.

use maud::{Markup, html};
use sluice_io::escape::printable_sentence;
use sluice_model::units;

use super::text::{Clock, name};
use crate::{Figures, Finding, FindingKind, InputFigures};

/// The number of findings that are shown.
const MOST_FINDINGS: usize = 7;

/// The first `lanes` channels have a lane in the time line.
pub(super) fn section(figures: &Figures, clock: Clock, lanes: usize) -> Markup {
    let damage = Damage::new(figures);
    let state = if damage.is_some() { "damaged" } else { "whole" };
    let unmet = figures.findings.iter().filter(|f| f.kind == FindingKind::Unmet).count();
    html! {
        section #verdict data-verdict=(state) data-unmet=[(unmet > 0).then_some(unmet)] {
            h2 {
                span.badge { (if damage.is_some() { "Damaged" } else { "Whole" }) }
                " " (sentence(figures, damage.as_ref()))
            }
            @if unmet > 0 {
                p.unmet { (units::pluralize(unmet as u64, "expectation")) " not met." }
            }
            (facts(figures, clock))
            (findings(figures, clock, lanes))
            @if figures.inputs.len() > 1 { (inputs(&figures.inputs)) }
        }
    }
}

/// What was lost of all inputs.
struct Damage {
    ranges: u64,
    bytes: u64,
}

impl Damage {
    /// `None` if nothing is damaged.
    fn new(figures: &Figures) -> Option<Self> {
        let sum = |of: fn(&InputFigures) -> u64| {
            figures.inputs.iter().fold(0u64, |sum, input| sum.saturating_add(of(input)))
        };
        let damage = Self { ranges: sum(|i| i.damaged_ranges), bytes: sum(|i| i.damaged_bytes) };
        (damage.ranges > 0 || damage.bytes > 0).then_some(damage)
    }
}

fn sentence(figures: &Figures, damage: Option<&Damage>) -> String {
    let Some(damage) = damage else {
        return match figures.events {
            0 => "No damage was found, and no events".to_owned(),
            events => format!("{} read, no damage found", units::pluralize(events, "event")),
        };
    };
    let length = total_bytes(&figures.inputs);
    let lost = match length {
        Some(length) => format!("{} of {}", units::bytes(damage.bytes), units::bytes(length)),
        None => units::bytes(damage.bytes),
    };
    let places = units::pluralize(damage.ranges, "place");
    format!("{lost} could not be read, in {places}")
}

/// The length of all inputs, if all have one.
fn total_bytes(inputs: &[InputFigures]) -> Option<u64> {
    inputs.iter().try_fold(0u64, |sum, input| Some(sum.saturating_add(input.bytes?)))
}

fn facts(figures: &Figures, clock: Clock) -> Markup {
    let has_times = figures.start.is_some();
    let duration = if has_times { units::duration(clock.duration()) } else { "–".to_owned() };
    let size = total_bytes(&figures.inputs).filter(|_| !figures.inputs.is_empty());
    let zone = if clock.is_relative() { "by the log’s own clock" } else { "UTC" };
    html! {
        dl.facts {
            (fact("Duration", &duration))
            (fact("Size", &size.map_or("unknown".to_owned(), units::bytes)))
            (fact("Events", &units::count(figures.events)))
            (fact("Channels", &units::count(figures.channels.len() as u64)))
            @if let Some(bytes) = figures.bytes { (fact("Payload", &units::bytes(bytes))) }
            @if let Some((start, end)) = figures.start.zip(figures.end) {
                (fact(&format!("First event, {zone}"), &clock.absolute(start)))
                (fact(&format!("Last event, {zone}"), &clock.absolute(end)))
            }
            @if let [input] = figures.inputs.as_slice() {
                div { dt { "File" } dd { (name(&input.name)) } }
                @if let Some(hash) = &input.blake3 {
                    div.wide { dt { "BLAKE3" } dd { code { (hash) } } }
                }
            }
        }
    }
}

fn fact(term: &str, value: &str) -> Markup {
    html! { div { dt { (term) } dd { (value) } } }
}

fn findings(figures: &Figures, clock: Clock, lanes: usize) -> Markup {
    let (shown, rest) = figures.findings.split_at(figures.findings.len().min(MOST_FINDINGS));
    html! {
        @if shown.is_empty() {
            p.calm { "Nothing stands out: no gaps, no undecoded events, no steps back in time." }
        } @else {
            h3 #findings { "Look at this first" }
            ol.findings aria-labelledby="findings" {
                @for finding in shown { (finding_line(finding, &place(figures, finding, lanes), clock)) }
            }
            @if !rest.is_empty() {
                p.muted {
                    (units::pluralize(rest.len() as u64, "more finding"))
                    " in the sections below."
                }
            }
        }
    }
}

fn finding_line(finding: &Finding, place: &str, clock: Clock) -> Markup {
    let time = finding.time.map(|time| super::text::decimals(clock.seconds(time), 3));
    html! {
        li data-kind=(kind_word(finding.kind)) {
            span.kind { (kind_word(finding.kind)) }
            " "
            a href=(place) data-time=[time] { bdi { (printable_sentence(&finding.text)) } }
        }
    }
}

/// The word in front of a finding.
fn kind_word(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Unmet => "unmet",
        FindingKind::Damage => "damage",
        FindingKind::Gap => "gap",
        FindingKind::BadPictures => "pictures",
        FindingKind::Undecoded => "undecoded",
        FindingKind::StepsBack => "clock",
        FindingKind::Missing => "missing",
        FindingKind::NotFinite => "numbers",
    }
}

/// The element that shows what a finding is about.
fn place(figures: &Figures, finding: &Finding, lanes: usize) -> String {
    let channel = finding.channel.as_ref();
    let number = channel.and_then(|name| figures.channels.iter().position(|c| c.name == *name));
    match (finding.kind, number) {
        (FindingKind::Damage, _) => "#damage".to_owned(),
        (FindingKind::Gap, Some(number)) if number < lanes => format!("#lane-{number}"),
        (FindingKind::BadPictures, _) => {
            let camera = figures.pictures.iter().position(|p| Some(&p.channel) == channel);
            camera.map_or("#pictures".to_owned(), |camera| format!("#camera-{camera}"))
        }
        (_, Some(number)) => format!("#channel-{number}"),
        (FindingKind::Gap, None) => "#timeline".to_owned(),
        (_, None) => "#channels".to_owned(),
    }
}

fn inputs(inputs: &[InputFigures]) -> Markup {
    html! {
        details.inputs {
            summary { (units::pluralize(inputs.len() as u64, "input")) }
            div.scroll tabindex="0" role="region" aria-label="Inputs" {
                table {
                    caption { "Inputs, in reading order" }
                    thead { tr {
                        th scope="col" { "File" }
                        th.number scope="col" { "Size" }
                        th.number scope="col" { "Not readable" }
                        th scope="col" { "BLAKE3" }
                    } }
                    tbody { @for input in inputs {
                        tr {
                            th scope="row" { (name(&input.name)) }
                            td.number { (input.bytes.map_or("–".to_owned(), units::bytes)) }
                            td.number { (units::bytes(input.damaged_bytes)) }
                            td { @if let Some(hash) = &input.blake3 { code { (hash) } } }
                        }
                    } }
                }
            }
        }
    }
}
