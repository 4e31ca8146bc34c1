//! Where sensors are mounted, by the channels of their events. Knows no file of calibrations.

use std::collections::BTreeMap;

use sluice_core::{OptionsError, Pattern};

use crate::calibration::{Calibration, Mount};

/// Which place in a calibration each channel has.
pub(crate) struct Mounts {
    calibration: Calibration,
    /// Channels and the names that the calibration has for them; plain names first.
    named: Vec<(Pattern, String)>,
}

impl Mounts {
    /// `Err` for what is no pattern, and for names that the calibration has no place of.
    pub(crate) fn of(
        calibration: Calibration,
        named: BTreeMap<String, String>,
    ) -> Result<Self, OptionsError> {
        Self::checked(calibration, named, |calibration, name| calibration.mount(name).is_some())
    }

    /// The same for those who ask for masks only: a name that has nothing else is a name, too.
    pub(crate) fn of_masks(
        calibration: Calibration,
        named: BTreeMap<String, String>,
    ) -> Result<Self, OptionsError> {
        Self::checked(calibration, named, |calibration, name| {
            calibration.mount(name).is_some() || calibration.mask(name).is_some()
        })
    }

    fn checked(
        calibration: Calibration,
        named: BTreeMap<String, String>,
        is_known: impl Fn(&Calibration, &str) -> bool,
    ) -> Result<Self, OptionsError> {
        let checked = named.into_iter().map(|(channels, name)| {
            let wrong = |message: String| OptionsError {
                path: vec!["mounts".into(), channels.clone()],
                message,
            };
            let pattern = Pattern::parse(&channels).map_err(wrong)?;
            match is_known(&calibration, &name) {
                true => Ok((pattern, name)),
                false => Err(wrong(unknown(&calibration, &name))),
            }
        });
        let mut named = checked.collect::<Result<Vec<_>, _>>()?;
        named.sort_by_key(|(pattern, _)| pattern.as_name().is_none());
        Ok(Self { calibration, named })
    }

    /// What the calibration calls the sensor of a channel.
    pub(crate) fn name_of<'n>(&'n self, channel: &'n str) -> &'n str {
        let named = self.named.iter().find(|(pattern, _)| pattern.matches(channel));
        named.map_or(channel, |(_, name)| name)
    }

    /// Where the sensor of a channel is mounted.
    pub(crate) fn of_channel(&self, channel: &str) -> Option<Mount> {
        self.calibration.mount(self.name_of(channel))
    }

    /// The angles at which the scanner of a channel sees the vehicle itself.
    pub(crate) fn mask_of(&self, channel: &str) -> Option<[f64; 2]> {
        self.calibration.mask(self.name_of(channel))
    }

    /// Whether the calibration has masks, and knows the sensor of this channel in no way.
    pub(crate) fn lacks_mask_of(&self, channel: &str) -> bool {
        self.calibration.has_masks()
            && self.mask_of(channel).is_none()
            && self.of_channel(channel).is_none()
    }

    /// Where a sensor is mounted, by its name in the calibration.
    pub(crate) fn of_name(&self, name: &str) -> Result<Mount, String> {
        self.calibration.mount(name).ok_or_else(|| unknown(&self.calibration, name))
    }

    /// What the calibration was made from, as a line of text.
    pub(crate) fn made_from(&self) -> &str {
        self.calibration.made_from()
    }
}

fn unknown(calibration: &Calibration, name: &str) -> String {
    let known: Vec<&str> = calibration.names().collect();
    format!("the calibration has no `{name}`; it has {}", known.join(", "))
}
