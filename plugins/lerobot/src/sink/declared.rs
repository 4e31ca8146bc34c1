//! What the datasets of the rows declare: robot types, and names of axes. Keeps what all of them
//! declare alike. Reads no values.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_io::escape::printable;
use sluice_model::{Channel, Error};

use super::encode::{column_of, feature_of};
use super::prepare::FramePart;
use crate::feature::{Feature, ROBOT_TYPE, UNCOPIED};
use crate::info::DatasetInfo;

/// What the rows so far declare.
#[derive(Debug, Default)]
pub(super) struct Declarations {
    /// Whether the dataset had frames before: the names of its axes stay.
    appends: bool,
    /// The robot type that the rows must not contradict.
    required_robot: Option<String>,
    robot_types: BTreeSet<Option<String>>,
    /// Keys of the descriptions of the rows' datasets that rows do not carry, as lists.
    uncopied: BTreeSet<String>,
    /// Features whose axes have other names in some rows than in the first.
    renamed_axes: BTreeSet<String>,
}

impl Declarations {
    /// Of rows that are added to a dataset. `is_chosen`: whether an option has the robot type.
    pub(super) fn appended_to(info: &DatasetInfo, is_chosen: bool) -> Self {
        let mut declared = Self { appends: info.frames > 0, ..Self::default() };
        if !is_chosen {
            declared.required_robot.clone_from(&info.robot_type);
        }
        if declared.appends {
            declared.robot_types.insert(info.robot_type.clone());
        }
        declared
    }

    /// Adds those of a channel. `Err` if it has another robot type than the dataset.
    pub(super) fn add_channel(&mut self, channel: &Channel) -> Result<(), Error> {
        let robot_type = channel.metadata.get(ROBOT_TYPE);
        if let Some((own, found)) = self.required_robot.as_ref().zip(robot_type)
            && own != found
        {
            return Err(Error::invalid(format!(
                "cannot append to this dataset: its robot type is `{own}`, that of the rows \
                 `{found}`: set `robot_type = \"{own}\"` to add them all the same"
            )));
        }
        self.robot_types.insert(robot_type.cloned());
        self.uncopied.extend(channel.metadata.get(UNCOPIED).cloned());
        Ok(())
    }

    /// Adds those of frames of a dataset with these features.
    pub(super) fn add_frames(&mut self, part: &FramePart, features: &[Feature]) {
        let differs = |feature: &&Feature| {
            let Ok(column) = column_of(part, feature) else { return false };
            let is_compared = !self.appends || column.declared_axes.is_some();
            is_compared && feature_of(column).is_ok_and(|own| own.names != feature.names)
        };
        let renamed: Vec<String> =
            features.iter().filter(differs).map(|feature| feature.name.clone()).collect();
        self.renamed_axes.extend(renamed);
    }

    /// The robot type of all rows.
    pub(super) fn robot_type(&self) -> Option<String> {
        let mut each = self.robot_types.iter();
        each.next().cloned().flatten().filter(|_| each.next().is_none())
    }

    /// The features of the dataset, without names of axes that differ.
    pub(super) fn describe(&self, features: &[Feature]) -> Vec<Feature> {
        let mut features = features.to_vec();
        let differs = |feature: &&mut Feature| self.renamed_axes.contains(&feature.name);
        for feature in features.iter_mut().filter(differs).filter(|_| !self.appends) {
            feature.names = feature.feature_type.axis_names();
        }
        features
    }

    /// Notes about what differs. `has_robot`: whether the dataset has a robot type in any case.
    pub(super) fn notes(&self, has_robot: bool) -> Vec<(String, u64)> {
        let mut notes = Vec::new();
        if !has_robot && self.robot_types.len() > 1 {
            let name = |robot: &Option<String>| match robot {
                Some(robot) => Value::from(&**robot).to_string(),
                None => "none".to_owned(),
            };
            let each: Vec<String> = self.robot_types.iter().map(name).collect();
            notes.push((
                format!(
                    "the inputs have different robot types ({}), so info.json has none: set \
                     `robot_type`",
                    each.join(", ")
                ),
                0,
            ));
        }
        let uncopied = self.uncopied.iter().map(|keys| {
            let keys = printable(keys);
            let what = "the dataset does not get what info.json of an input says in these keys";
            (format!("{what}: {keys}"), 0)
        });
        notes.extend(uncopied);
        let each = self.renamed_axes.iter().map(|feature| {
            let what = match self.appends {
                true => "the names of its axes differ from those of the dataset, which stay",
                false => {
                    "the inputs name its axes differently, so info.json does not: set `names` in \
                     `features`"
                }
            };
            (format!("`{feature}`: {what}"), 0)
        });
        notes.extend(each);
        notes
    }
}
