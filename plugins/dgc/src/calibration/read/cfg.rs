//! Where a configuration file keeps what: groups in `calibration`, and more of cameras in `cameras`. Whatever
//! else a file has means nothing here.

use std::collections::HashSet;

use sluice_core::mistake::Mistake;

use super::{BOUNDS, FRAMES, Index, MASKS, ORIENTATIONS, PINHOLE, Reader, Settings, Tree};
use crate::calibration::Vehicle;
use crate::config::{Entry, Value, first};

/// What a configuration file tells of a vehicle.
///
/// What has a `pinhole` is a camera, what has a place otherwise is a sensor. Cameras may be told of in
/// `calibration`, in `calibration.cameras`, in `cameras`, and in a group `intrinsic_cal` in each.
pub(in super::super) fn cfg(tree: &Tree) -> Result<Vehicle, Vec<Mistake>> {
    let file = File::of(tree);
    let mut reader = Reader::default();
    for entry in file.things() {
        let settings = file.settings(entry);
        if settings.own(PINHOLE).is_some() {
            reader.camera(&settings);
        } else if is_placed(&settings) {
            reader.sensor(&settings);
        }
        if let Some(mask) = settings.own("mask") {
            reader.mask(&entry.name, &entry.span, mask);
        }
    }
    for settings in FRAMES.iter().filter_map(|name| file.beside(name)) {
        reader.frame(&settings);
    }
    if let Some(settings) = file.beside(BOUNDS) {
        reader.bounds(&settings);
    }
    if let Some(settings) = file.beside(MASKS) {
        settings.own.iter().for_each(|group| reader.masks(group));
    }
    reader.finish()
}

fn is_placed(settings: &Settings<'_>) -> bool {
    let is_told = |key: &str| settings.own(key).is_some();
    is_told("position") || ORIENTATIONS.iter().any(|key| is_told(key))
}

/// A group that has groups of sensors and cameras in it.
struct Home<'d> {
    entries: &'d [Entry],
    index: Index<'d>,
}

impl<'d> Home<'d> {
    fn of(entries: Option<&'d [Entry]>) -> Self {
        let entries = entries.unwrap_or_default();
        Self { entries, index: Index::of(entries) }
    }

    fn group(&self, name: &str) -> Option<&'d [Entry]> {
        first(self.entries, name).and_then(Value::entries)
    }
}

/// The groups of a file that matter.
struct File<'d> {
    whole: Home<'d>,
    calibration: Home<'d>,
    /// `calibration.cameras`.
    inner: Home<'d>,
    /// `cameras`.
    outer: Home<'d>,
}

impl<'d> File<'d> {
    fn of(tree: &'d [Entry]) -> Self {
        let whole = Home::of(Some(tree));
        let calibration = Home::of(whole.group("calibration"));
        let inner = Home::of(calibration.group("cameras"));
        let outer = Home::of(whole.group("cameras"));
        Self { whole, calibration, inner, outer }
    }

    /// What may be a sensor or a camera, the first of each name.
    fn things(&self) -> impl Iterator<Item = &'d Entry> {
        let mut seen = HashSet::new();
        let homes = [&self.calibration, &self.inner, &self.outer];
        homes.into_iter().flat_map(|home| home.entries).filter(move |entry| {
            let name = entry.name.as_str();
            let is_other = FRAMES.contains(&name) || [BOUNDS, MASKS, "cameras"].contains(&name);
            entry.value.entries().is_some() && !is_other && seen.insert(name)
        })
    }

    fn settings<'s>(&'s self, entry: &'s Entry) -> Settings<'s> {
        let mut own = Vec::new();
        for home in [&self.calibration, &self.inner, &self.outer] {
            if let Some(group) = home.index.group(&entry.name) {
                own.push(group);
                own.extend(first(group, "intrinsic_cal").and_then(Value::entries));
            }
        }
        let around = self.around(&entry.name);
        Settings { name: &entry.name, span: &entry.span, own, around }
    }

    /// The groups around those that are about a thing, the nearest first. What stands in `cameras` only has
    /// nothing to do with `calibration`.
    fn around(&self, name: &str) -> Vec<&Index<'d>> {
        let has = |home: &Home<'d>| home.index.group(name).is_some();
        let (is_in, is_inner) = (has(&self.calibration), has(&self.inner));
        let homes = [
            (is_inner, &self.inner),
            (is_in || is_inner, &self.calibration),
            (has(&self.outer), &self.outer),
            (true, &self.whole),
        ];
        homes.into_iter().filter(|(is_around, _)| *is_around).map(|(_, home)| &home.index).collect()
    }

    /// A group that stands in `calibration` or beside it.
    fn beside<'s>(&'s self, name: &str) -> Option<Settings<'s>> {
        let in_home = |home: &Home<'d>| home.entries.iter().find(|entry| entry.name == name);
        let inside = in_home(&self.calibration);
        let mut around = vec![&self.whole.index];
        if inside.is_some() {
            around.insert(0, &self.calibration.index);
        }
        let entry = inside.or_else(|| in_home(&self.whole))?;
        let own = vec![entry.value.entries()?];
        Some(Settings { name: &entry.name, span: &entry.span, own, around })
    }
}
