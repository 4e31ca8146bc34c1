//! Looks up the mounts of sensors by channel. Reads no calibration files.

use std::collections::BTreeMap;

use sluice_model::{OptionsError, Pattern};

use crate::calibration::{Calibration, Mount};

/// The mounts and masks of sensors, by channel.
pub(crate) struct SensorMounts {
    calibration: Calibration,
    /// Channels and their names in the calibration; plain names before patterns.
    names: Vec<(Pattern, String)>,
}

impl SensorMounts {
    /// Validates the option `mounts`. `Err` for invalid patterns, and for names without a mount.
    pub(crate) fn new(
        calibration: Calibration,
        names: BTreeMap<String, String>,
    ) -> Result<Self, OptionsError> {
        Self::with_checked_names(calibration, names, |calibration, name| {
            calibration.mount(name).is_some()
        })
    }

    /// Like [`SensorMounts::new`], but also accepts names that only have a mask.
    pub(crate) fn for_masks(
        calibration: Calibration,
        names: BTreeMap<String, String>,
    ) -> Result<Self, OptionsError> {
        Self::with_checked_names(calibration, names, |calibration, name| {
            calibration.mount(name).is_some() || calibration.mask(name).is_some()
        })
    }

    fn with_checked_names(
        calibration: Calibration,
        names: BTreeMap<String, String>,
        is_known: impl Fn(&Calibration, &str) -> bool,
    ) -> Result<Self, OptionsError> {
        let checked = names.into_iter().map(|(channels, name)| {
            let wrong = |message: String| OptionsError::in_entry("mounts", &channels, message);
            let pattern = Pattern::parse(&channels).map_err(wrong)?;
            match is_known(&calibration, &name) {
                true => Ok((pattern, name)),
                false => Err(wrong(unknown_sensor(&calibration, &name))),
            }
        });
        let mut names = checked.collect::<Result<Vec<_>, _>>()?;
        names.sort_by_key(|(pattern, _)| pattern.as_name().is_none());
        Ok(Self { calibration, names })
    }

    /// The name of a channel's sensor in the calibration.
    pub(crate) fn name_of<'n>(&'n self, channel: &'n str) -> &'n str {
        let names = self.names.iter().find(|(pattern, _)| pattern.matches(channel));
        names.map_or(channel, |(_, name)| name)
    }

    /// The mount of a channel's sensor.
    pub(crate) fn mount_of(&self, channel: &str) -> Option<Mount> {
        self.calibration.mount(self.name_of(channel))
    }

    /// The range of angles in which a channel's scanner sees its vehicle.
    pub(crate) fn mask_of(&self, channel: &str) -> Option<[f64; 2]> {
        self.calibration.mask(self.name_of(channel))
    }

    /// Whether the calibration has masks, but neither mask nor mount for this channel.
    pub(crate) fn lacks_mask_of(&self, channel: &str) -> bool {
        self.calibration.has_masks()
            && self.mask_of(channel).is_none()
            && self.mount_of(channel).is_none()
    }

    /// The mount of a sensor, by its name in the calibration.
    pub(crate) fn mount_by_name(&self, name: &str) -> Result<Mount, String> {
        self.calibration.mount(name).ok_or_else(|| unknown_sensor(&self.calibration, name))
    }

    /// A line that identifies the calibration.
    pub(crate) fn fingerprint(&self) -> &str {
        self.calibration.fingerprint()
    }
}

fn unknown_sensor(calibration: &Calibration, name: &str) -> String {
    let known: Vec<&str> = calibration.names().collect();
    format!("unknown sensor `{name}`: expected one of {}", known.join(", "))
}
