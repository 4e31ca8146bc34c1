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

/// The groups of a file that matter.
struct File<'d> {
    tree: &'d [Entry],
    calibration: &'d [Entry],
    /// `calibration.cameras`.
    inner: &'d [Entry],
    /// `cameras`.
    outer: &'d [Entry],
    /// The entries of `calibration`, `calibration.cameras` and `cameras` by name.
    indices: [Index<'d>; 3],
    /// `calibration` and the file.
    around: [Index<'d>; 2],
}

impl<'d> File<'d> {
    fn of(tree: &'d [Entry]) -> Self {
        let group = |entries, name| first(entries, name).and_then(Value::entries);
        let calibration = group(tree, "calibration").unwrap_or_default();
        let inner = group(calibration, "cameras").unwrap_or_default();
        let outer = group(tree, "cameras").unwrap_or_default();
        let indices = [calibration, inner, outer].map(Index::of);
        let around = [calibration, tree].map(Index::of);
        Self { tree, calibration, inner, outer, indices, around }
    }

    /// What may be a sensor or a camera, the first of each name.
    fn things(&self) -> impl Iterator<Item = &'d Entry> {
        let mut seen = HashSet::new();
        let all = self.calibration.iter().chain(self.inner).chain(self.outer);
        all.filter(move |entry| {
            let name = entry.name.as_str();
            let is_other = FRAMES.contains(&name) || [BOUNDS, MASKS, "cameras"].contains(&name);
            entry.value.entries().is_some() && !is_other && seen.insert(name)
        })
    }

    fn settings<'s>(&'s self, entry: &'s Entry) -> Settings<'s> {
        let mut own = Vec::new();
        for group in self.indices.iter().filter_map(|index| index.group(&entry.name)) {
            own.push(group);
            own.extend(first(group, "intrinsic_cal").and_then(Value::entries));
        }
        Settings { name: &entry.name, span: &entry.span, own, around: &self.around }
    }

    /// A group that stands in `calibration` or beside it.
    fn beside<'s>(&'s self, name: &str) -> Option<Settings<'s>> {
        let mut entries = self.calibration.iter().chain(self.tree);
        let entry = entries.find(|entry| entry.name == name)?;
        let own = vec![entry.value.entries()?];
        Some(Settings { name: &entry.name, span: &entry.span, own, around: &self.around })
    }
}
