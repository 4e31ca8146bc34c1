//! The layout of `.cfg` calibrations: groups in `calibration`, and more about cameras in `cameras`.
//! Everything else in the file is ignored.

use std::collections::HashSet;

use sluice_kit::mistake::Mistake;

use super::{
    BOUNDS, CalibrationReader, ConfigTree, EntryIndex, FRAMES, FrameSettings, MASKS, ORIENTATIONS,
    PINHOLE,
};
use crate::calibration::vehicle::VehicleCalibration;
use crate::config::{ConfigEntry, ConfigValue, first_value};

/// Reads the calibration from a configuration file.
///
/// A group with a `pinhole` is a camera; any other group with a position or orientation is a
/// sensor. Cameras may be described in `calibration`, in `calibration.cameras`, in `cameras`, and
/// in a group `intrinsic_cal` in each.
pub(in super::super) fn vehicle_from_cfg(
    tree: &ConfigTree,
) -> Result<VehicleCalibration, Vec<Mistake>> {
    let file = CfgFile::from_tree(tree);
    let mut reader = CalibrationReader::default();
    for entry in file.frame_entries() {
        let settings = file.settings(entry);
        if settings.own(PINHOLE).is_some() {
            reader.camera(&settings);
        } else if has_mount(&settings) {
            reader.sensor(&settings);
        }
        if let Some(mask) = settings.own("mask") {
            reader.mask(&entry.name, &entry.span, mask);
        }
    }
    for settings in FRAMES.iter().filter_map(|name| file.group_settings(name)) {
        reader.frame(&settings);
    }
    if let Some(settings) = file.group_settings(BOUNDS) {
        reader.bounds(&settings);
    }
    if let Some(settings) = file.group_settings(MASKS) {
        settings.own.iter().for_each(|group| reader.masks(group));
    }
    reader.finish()
}

fn has_mount(settings: &FrameSettings<'_>) -> bool {
    let is_set = |key: &str| settings.own(key).is_some();
    is_set("position") || ORIENTATIONS.iter().any(|key| is_set(key))
}

/// A group that contains groups of sensors and cameras.
struct Section<'d> {
    entries: &'d [ConfigEntry],
    index: EntryIndex<'d>,
}

impl<'d> Section<'d> {
    fn new(entries: Option<&'d [ConfigEntry]>) -> Self {
        let entries = entries.unwrap_or_default();
        Self { entries, index: EntryIndex::new(entries) }
    }

    fn group(&self, name: &str) -> Option<&'d [ConfigEntry]> {
        first_value(self.entries, name).and_then(ConfigValue::entries)
    }
}

/// The relevant groups of a file.
struct CfgFile<'d> {
    root: Section<'d>,
    calibration: Section<'d>,
    /// `calibration.cameras`.
    calibration_cameras: Section<'d>,
    /// `cameras`.
    cameras: Section<'d>,
}

impl<'d> CfgFile<'d> {
    fn from_tree(tree: &'d [ConfigEntry]) -> Self {
        let root = Section::new(Some(tree));
        let calibration = Section::new(root.group("calibration"));
        let calibration_cameras = Section::new(calibration.group("cameras"));
        let cameras = Section::new(root.group("cameras"));
        Self { root, calibration, calibration_cameras, cameras }
    }

    /// The groups that may be sensors or cameras; the first of each name.
    fn frame_entries(&self) -> impl Iterator<Item = &'d ConfigEntry> {
        let mut seen = HashSet::new();
        let sections = [&self.calibration, &self.calibration_cameras, &self.cameras];
        sections.into_iter().flat_map(|section| section.entries).filter(move |entry| {
            let name = entry.name.as_str();
            let is_other = FRAMES.contains(&name) || [BOUNDS, MASKS, "cameras"].contains(&name);
            entry.value.entries().is_some() && !is_other && seen.insert(name)
        })
    }

    fn settings<'s>(&'s self, entry: &'s ConfigEntry) -> FrameSettings<'s> {
        let mut own = Vec::new();
        for section in [&self.calibration, &self.calibration_cameras, &self.cameras] {
            if let Some(group) = section.index.group(&entry.name) {
                own.push(group);
                own.extend(first_value(group, "intrinsic_cal").and_then(ConfigValue::entries));
            }
        }
        let enclosing = self.enclosing(&entry.name);
        FrameSettings { name: &entry.name, span: &entry.span, own, enclosing }
    }

    /// The groups that enclose those of `name`, nearest first. A camera that only occurs in
    /// `cameras` inherits nothing from `calibration`.
    fn enclosing(&self, name: &str) -> Vec<&EntryIndex<'d>> {
        let has = |section: &Section<'d>| section.index.group(name).is_some();
        let (is_in, is_inner) = (has(&self.calibration), has(&self.calibration_cameras));
        let sections = [
            (is_inner, &self.calibration_cameras),
            (is_in || is_inner, &self.calibration),
            (has(&self.cameras), &self.cameras),
            (true, &self.root),
        ];
        sections
            .into_iter()
            .filter(|(is_enclosing, _)| *is_enclosing)
            .map(|(_, section)| &section.index)
            .collect()
    }

    /// The settings of a group in `calibration` or at the top level.
    fn group_settings<'s>(&'s self, name: &str) -> Option<FrameSettings<'s>> {
        let entry_in =
            |section: &Section<'d>| section.entries.iter().find(|entry| entry.name == name);
        let inside = entry_in(&self.calibration);
        let mut enclosing = vec![&self.root.index];
        if inside.is_some() {
            enclosing.insert(0, &self.calibration.index);
        }
        let entry = inside.or_else(|| entry_in(&self.root))?;
        let own = vec![entry.value.entries()?];
        Some(FrameSettings { name: &entry.name, span: &entry.span, own, enclosing })
    }
}
