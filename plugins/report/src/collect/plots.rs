//! Chooses the fields that are plotted.

use std::collections::BTreeSet;

use sluice_model::FieldPath;

use super::fields::Field;
use crate::Figures;

/// The most fields that are plotted.
const MAX_PLOTS: usize = 60;

/// The fields that are plotted, by the places of their channel and of the field.
#[derive(Debug)]
pub(super) struct PlotChoice {
    plotted: BTreeSet<(usize, usize)>,
    candidates: usize,
}

impl PlotChoice {
    /// Chooses among the fields of each channel: those at or below one of these paths, or without
    /// paths all whose values differ but times and counters. If there are too many, each channel
    /// has its first, then each its second, and so on.
    pub(super) fn new<'f>(
        channels: impl Iterator<Item = &'f [Field]>,
        paths: Option<&[FieldPath]>,
    ) -> Self {
        let is_candidate = |field: &Field| match paths {
            None => !is_time(&field.path) && field.varies(),
            Some(paths) => paths.iter().any(|path| is_or_contains(path, &field.path)),
        };
        let mut candidates: Vec<(usize, usize, usize)> = Vec::new();
        for (channel, fields) in channels.enumerate() {
            let fields = fields.iter().enumerate().filter(|(_, field)| is_candidate(field));
            candidates.extend(fields.zip(0..).map(|((field, _), round)| (round, channel, field)));
        }
        candidates.sort_unstable();
        let shown = candidates.iter().take(MAX_PLOTS);
        let plotted = shown.map(|(_, channel, field)| (*channel, *field)).collect();
        Self { plotted, candidates: candidates.len() }
    }

    pub(super) fn is_plotted(&self, channel: usize, field: usize) -> bool {
        self.plotted.contains(&(channel, field))
    }

    pub(super) fn len(&self) -> usize {
        self.plotted.len()
    }

    /// How many fields could be plotted.
    pub(super) fn candidates(&self) -> usize {
        self.candidates
    }
}

/// Those of these paths at or below which no channel has numbers.
pub(crate) fn without_numbers<'p>(
    figures: &Figures,
    paths: &'p [FieldPath],
) -> impl Iterator<Item = &'p FieldPath> {
    let fields = || figures.channels.iter().flat_map(|channel| &channel.fields);
    paths.iter().filter(move |path| !fields().any(|field| is_or_contains(path, &field.path)))
}

/// Whether `field` is at this path or below it.
fn is_or_contains(path: &FieldPath, field: &str) -> bool {
    let rest = field.strip_prefix(&path.to_string());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Whether a field is a time or a counter of messages by its name.
fn is_time(path: &str) -> bool {
    const NAMES: [&str; 14] = [
        "utime",
        "time",
        "timestamp",
        "timestamps",
        "timeStamp",
        "stamp",
        "sec",
        "secs",
        "nsec",
        "nsecs",
        "nanosec",
        "seq",
        "seconds",
        "useconds",
    ];
    let last = path.rsplit('.').next().unwrap_or(path);
    NAMES.contains(&last) || last.ends_with("_utime")
}
