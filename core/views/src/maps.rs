//! Maps from fields to views: those of the options, then the built-in ones. Reads no rows.

use std::sync::LazyLock;

use serde::Deserialize;
use sluice_model::{Channel, OptionsError};

use crate::fields::{PlacementFields, ViewMap};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MapFile {
    map: Vec<ViewMap>,
}

/// The maps of the built-in types, which `maps/*.toml` list.
static BUILT_IN: LazyLock<Vec<ViewMap>> = LazyLock::new(|| {
    let files = [
        include_str!("../maps/mit-dgc.toml"),
        include_str!("../maps/vel.toml"),
        include_str!("../maps/orca.toml"),
    ];
    let parse = |text| parse_maps(text).expect("a test reads the built-in maps");
    files.into_iter().flat_map(parse).collect()
});

/// Reads a file of maps. `Err` says what is wrong.
pub fn parse_maps(text: &str) -> Result<Vec<ViewMap>, String> {
    let value: serde_json::Value = toml::from_str(text).map_err(|e| e.to_string())?;
    // Reading structs from TOML directly is three times as much code.
    serde_json::from_value::<MapFile>(value).map(|file| file.map).map_err(|e| e.to_string())
}

/// All maps to use, in the order in which they are tried.
///
/// `Err` names the first map that says nothing, or too much.
pub fn maps(own: Vec<ViewMap>, built_in: bool) -> Result<Vec<ViewMap>, OptionsError> {
    for (at, map) in own.iter().enumerate() {
        check(map).map_err(|message| OptionsError::in_entry("map", at, message))?;
    }
    let built_in = if built_in { BUILT_IN.as_slice() } else { &[] };
    Ok(own.into_iter().chain(built_in.iter().cloned()).collect())
}

fn check(map: &ViewMap) -> Result<(), String> {
    let kinds = [
        map.image.is_some(),
        map.scan.is_some(),
        map.points.is_some(),
        map.velodyne.is_some(),
        map.pose.is_some(),
        map.fix.is_some(),
        map.mount.is_some(),
        map.log.is_some(),
    ];
    let count = kinds.into_iter().filter(|is_set| *is_set).count();
    if count != 1 {
        return Err(format!(
            "expected one of `image`, `scan`, `points`, `velodyne`, `pose`, `fix`, `mount` and \
             `log`, found {count}"
        ));
    }
    for (key, template) in [("topic", &map.topic), ("frame", &map.frame)] {
        if let Some(name) = template.as_deref().and_then(unknown_placeholder) {
            return Err(format!("`{key}`: expected `{{channel}}` or `{{source}}`, found `{name}`"));
        }
    }
    if let Some(scan) = &map.scan
        && scan.step.is_some()
        && scan.field_of_view.is_some()
    {
        return Err("`scan` has both `step` and `field_of_view`: one follows from the other".into());
    }
    if let Some(image) = &map.image
        && image.encoding.is_some()
        && image.encoding_field.is_some()
    {
        return Err("`image` has both `encoding` and `encoding_field`".into());
    }
    let pose = map.pose.as_ref().map(|pose| &pose.at);
    let mount = map.mount.as_ref().map(|mount| &mount.at);
    pose.or(mount).map_or(Ok(()), check_placement)
}

/// The first placeholder that stands for nothing.
fn unknown_placeholder(template: &str) -> Option<&str> {
    let placeholders = template.match_indices('{').filter_map(|(at, _)| {
        let end = template[at..].find('}')?;
        template.get(at..=at + end)
    });
    placeholders.into_iter().find(|name| !["{channel}", "{source}"].contains(name))
}

fn check_placement(at: &PlacementFields) -> Result<(), String> {
    let count = |name: &str, found: usize, allowed: &[usize]| match allowed.contains(&found) {
        true => Ok(()),
        false => Err(format!("`{name}` has {found} numbers")),
    };
    count("position", at.position.len(), &[0, 2, 3])?;
    count("quaternion", at.quaternion.len(), &[0, 4])?;
    count("rpy", at.rpy.len(), &[0, 3])?;
    let ways = [!at.quaternion.is_empty(), !at.rpy.is_empty(), at.yaw.is_some()];
    match ways.into_iter().filter(|is_set| *is_set).count() {
        0 | 1 => Ok(()),
        _ => Err("expected one of `quaternion`, `rpy` and `yaw`".into()),
    }
}

/// Names for events of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewNames {
    /// The channel of the view.
    pub topic: String,
    /// The coordinate frame of the data.
    pub frame: String,
}

impl ViewMap {
    /// Whether it is meant for messages of this type on this channel. It still may not have the
    /// fields.
    pub fn is_for(&self, channel: &str, type_name: &str) -> bool {
        self.is_for_channel(channel) && self.is_for_type(type_name)
    }

    /// Whether it is meant for some messages of this channel.
    pub fn is_for_channel(&self, channel: &str) -> bool {
        self.channels.is_empty() || self.channels.matches(channel)
    }

    /// Whether it is meant for messages of this type on some channel.
    pub fn is_for_type(&self, type_name: &str) -> bool {
        self.types.is_empty() || self.types.matches(type_name)
    }

    /// The names for events of a channel.
    pub fn names(&self, channel: &Channel) -> ViewNames {
        let fill = |template: &str| {
            template.replace("{channel}", channel.name.text()).replace("{source}", &channel.source)
        };
        ViewNames {
            topic: fill(self.topic.as_deref().unwrap_or("/view/{channel}")),
            frame: fill(self.frame.as_deref().unwrap_or("{channel}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_maps_are_in_order() {
        let all = maps(Vec::new(), true).unwrap();
        assert!(all.len() > 15);
        all.iter().for_each(|map| check(map).unwrap());
        assert!(maps(Vec::new(), false).unwrap().is_empty());
    }

    #[test]
    fn a_map_says_exactly_one_thing() {
        let refusal = |text: &str| maps(vec![toml::from_str(text).unwrap()], false).unwrap_err();
        assert!(refusal("channels = [\"A\"]").message.contains("found 0"));
        let both = "points.field = \"p\"\nlog.text = \"t\"";
        assert!(refusal(both).message.contains("found 2"));
        let pose = "pose.at.position = [\"x\"]";
        assert_eq!(refusal(pose).message, "`position` has 1 numbers");
        let turned = "pose.at.yaw = 1\npose.at.rpy = [0, 0, 1]";
        assert!(refusal(turned).message.contains("one of"));
        let topic = "log.text = \"t\"\ntopic = \"/x/{channel}/{sauce}\"";
        assert!(refusal(topic).message.ends_with("found `{sauce}`"));
    }
}
