//! Where sensors are mounted, by the channels of their events. Knows no file of calibrations.

use std::collections::BTreeMap;

use sluice_core::{OptionsError, Pattern};

use crate::calibration::{Calibration, Mount};

/// Which place in a calibration each channel has.
pub(super) struct Mounts {
    calibration: Calibration,
    /// Channels and the names that the calibration has for them; plain names first.
    named: Vec<(Pattern, String)>,
}

impl Mounts {
    /// `Err` for what is no pattern, and for names that the calibration does not have.
    pub(super) fn of(
        calibration: Calibration,
        named: BTreeMap<String, String>,
    ) -> Result<Self, OptionsError> {
        let checked = named.into_iter().map(|(channels, name)| {
            let wrong = |message: String| OptionsError {
                path: vec!["mounts".into(), channels.clone()],
                message,
            };
            let pattern = Pattern::parse(&channels).map_err(wrong)?;
            match calibration.mount(&name) {
                Some(_) => Ok((pattern, name)),
                None => Err(wrong(unknown(&calibration, &name))),
            }
        });
        let mut named = checked.collect::<Result<Vec<_>, _>>()?;
        named.sort_by_key(|(pattern, _)| pattern.as_name().is_none());
        Ok(Self { calibration, named })
    }

    /// Where the sensor of a channel is mounted.
    pub(super) fn of_channel(&self, channel: &str) -> Option<Mount> {
        let named = self.named.iter().find(|(pattern, _)| pattern.matches(channel));
        self.calibration.mount(named.map_or(channel, |(_, name)| name))
    }

    /// Where a sensor is mounted, by its name in the calibration.
    pub(super) fn of_name(&self, name: &str) -> Result<Mount, String> {
        self.calibration.mount(name).ok_or_else(|| unknown(&self.calibration, name))
    }

    /// What the calibration was made from, as a line of text.
    pub(super) fn made_from(&self) -> &str {
        self.calibration.made_from()
    }
}

fn unknown(calibration: &Calibration, name: &str) -> String {
    let known: Vec<&str> = calibration.names().collect();
    format!("the calibration has no `{name}`; it has {}", known.join(", "))
}
