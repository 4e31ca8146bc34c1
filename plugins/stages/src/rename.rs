//! Stage `rename`: gives channels other names and sources. Views of channels refer to their new
//! names; other attributes stay.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use regex::Regex;
use serde::Deserialize;
use sluice_model::options::CHANNELS_FORMAT;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, Channel, ChannelId, Channels, Error, Map, Name, OptionsError, Pattern, PerChannel,
    RowsEffect, Stage, StageContext, plugin, whole_name_regex,
};

/// Options of `rename`. `map` takes precedence over `channels`; `prefix`, `suffix` and `source`
/// apply to every channel.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct RenameOptions {
    /// Rules. The first whose pattern matches a channel's name gives its new name.
    pub(crate) channels: Vec<RuleOptions>,
    /// New names by exact name. `{source}` stands for the channel's source.
    #[schemars(extend("propertyNames" = { "type": "string", "format": CHANNELS_FORMAT }))]
    pub(crate) map: BTreeMap<String, String>,
    /// Put before every name. `{source}` stands for the channel's source.
    pub(crate) prefix: String,
    /// Put after every name. `{source}` stands for the channel's source.
    pub(crate) suffix: String,
    /// The new source of every channel.
    pub(crate) source: Option<String>,
}

/// A rule of `rename`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct RuleOptions {
    /// The names it applies to: a glob, or `re:` and a regular expression for the whole name.
    #[schemars(extend("format" = CHANNELS_FORMAT))]
    pub(crate) from: String,
    /// The new name. With a regular expression, `$1` and `${name}` stand for its groups and `$$`
    /// for a dollar sign.
    pub(crate) to: String,
}

/// The placeholder for a channel's source.
const SOURCE: &str = "{source}";

#[derive(Debug)]
struct Rename {
    names: NameRules,
    source: Option<Arc<str>>,
    /// The new id of each channel, set with its first event. New channels are channels of the run
    /// too, and must not be renamed again.
    renamed: PerChannel<Arc<OnceLock<ChannelId>>>,
}

#[derive(Debug)]
struct NameRules {
    rules: Vec<RenameRule>,
    map: BTreeMap<String, String>,
    prefix: String,
    suffix: String,
}

#[derive(Debug)]
enum RenameRule {
    Glob { from: Pattern, to: String },
    Regex { from: Regex, to: String },
}

impl TryFrom<RenameOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: RenameOptions) -> Result<Self, OptionsError> {
        let RenameOptions { channels, map, prefix, suffix, source } = options;
        known_placeholders(&["prefix"], &prefix, &[SOURCE])?;
        known_placeholders(&["suffix"], &suffix, &[SOURCE])?;
        map.iter().try_for_each(|(from, to)| known_placeholders(&["map", from], to, &[SOURCE]))?;
        known_placeholders(&["source"], source.as_deref().unwrap_or_default(), &[])?;
        for (at, rule) in channels.iter().enumerate() {
            known_placeholders(&["channels", &at.to_string(), "to"], &rule.to, &[])?;
        }
        let rules = channels.into_iter().enumerate().map(|(at, rule)| {
            RenameRule::read(rule).map_err(|(key, message)| OptionsError {
                path: vec!["channels".to_owned(), at.to_string(), key.to_owned()],
                message,
            })
        });
        let names = NameRules { rules: rules.collect::<Result<_, _>>()?, map, prefix, suffix };
        let (source, renamed) = (source.map(Arc::from), PerChannel::default());
        Ok(Self::Map(Box::new(Rename { names, source, renamed })))
    }
}

sluice_model::register! {
    stage "rename": RenameOptions,
    about: "gives channels other names and sources",
    sample: include_str!("../samples/rename.toml"),
}

impl RenameRule {
    /// `Err` is the key at fault and the message.
    fn read(RuleOptions { from, to }: RuleOptions) -> Result<Self, (&'static str, String)> {
        let Some(regex) = from.strip_prefix("re:") else {
            let from = Pattern::parse(&from).map_err(|message| ("from", message))?;
            return Ok(Self::Glob { from, to });
        };
        let whole = whole_name_regex(regex).map_err(|message| ("from", message))?;
        match unknown_group(&to, &whole) {
            None => Ok(Self::Regex { from: whole, to }),
            Some(group) => Err((
                "to",
                format!(
                    "`{regex}` has no group `${group}`; write `${{1}}` if letters, digits or `_` \
                     follow, and `$$` for a dollar sign: in a pipeline file, `$${{1}}` and `$$$$`"
                ),
            )),
        }
    }

    /// The new name of a channel that the rule applies to.
    fn rename(&self, name: &str) -> Option<String> {
        match self {
            Self::Glob { from, to } => from.matches(name).then(|| to.clone()),
            Self::Regex { from, to } => {
                let groups = from.captures(name)?;
                let mut renamed = String::new();
                groups.expand(to, &mut renamed);
                Some(renamed)
            }
        }
    }
}

/// `Err` if `text`, at `path`, has a placeholder other than these: it would become part of names.
fn known_placeholders(path: &[&str], text: &str, known: &[&str]) -> Result<(), OptionsError> {
    let is_placeholder = |inside: &&str| {
        !inside.is_empty() && inside.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    // `${name}` is a group of a regular expression.
    let starts = text.match_indices('{').filter(|(at, _)| !text[..*at].ends_with('$'));
    let inside = starts.filter_map(|(at, _)| Some(text[at + 1..].split_once('}')?.0));
    let mut names = inside.filter(is_placeholder).map(|name| format!("{{{name}}}"));
    let Some(name) = names.find(|name| !known.contains(&name.as_str())) else { return Ok(()) };
    let message = match known {
        [] => {
            format!("`{name}` is no placeholder here; `prefix`, `suffix` and `map` have `{SOURCE}`")
        }
        _ => format!("there is no placeholder `{name}`; the only one is `{SOURCE}`"),
    };
    Err(OptionsError { path: path.iter().map(|key| (*key).to_owned()).collect(), message })
}

/// A group in `to` that `regex` does not have, which would silently expand to nothing.
fn unknown_group<'t>(to: &'t str, regex: &Regex) -> Option<&'t str> {
    let is_known = |group: &str| match group.parse::<usize>() {
        Ok(number) => number < regex.captures_len(),
        Err(_) => regex.capture_names().flatten().any(|name| name == group),
    };
    let mut rest = to;
    while let Some((_, tail)) = rest.split_once('$') {
        if let Some(after) = tail.strip_prefix('$') {
            rest = after;
            continue;
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (group, after) = match tail.strip_prefix('{').and_then(|tail| tail.split_once('}')) {
            Some(braced) => braced,
            None => tail.split_at(tail.find(|c| !is_part(c)).unwrap_or(tail.len())),
        };
        if !is_known(group) {
            return Some(group);
        }
        rest = after;
    }
    None
}

impl NameRules {
    fn rename(&self, name: &str, source: &str) -> String {
        let mapped = self.map.get(name).map(|to| to.replace(SOURCE, source));
        let ruled = || self.rules.iter().find_map(|rule| rule.rename(name));
        let renamed = mapped.or_else(ruled).unwrap_or_else(|| name.to_owned());
        let [before, after] = [&self.prefix, &self.suffix].map(|text| text.replace(SOURCE, source));
        format!("{before}{renamed}{after}")
    }
}

impl Rename {
    fn rename(&self, id: ChannelId, channels: &Channels) -> Result<ChannelId, Error> {
        let old = channels.get(id);
        let rename = |name: &str| Name::from_text(&self.names.rename(name, &old.source));
        let name = rename(old.name.text());
        let source = self.source.as_ref().unwrap_or(&old.source).clone();
        let mut metadata = old.metadata.clone();
        // A view that names no channel of its file would be taken for an event of its own.
        if let Some(shown) = metadata.get_mut(Channel::VIEW_OF) {
            *shown = rename(shown).text().to_owned();
        }
        channels.intern(Channel { name, source, metadata, ..Channel::clone(&old) })
    }
}

impl Map for Rename {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let renamed = self.renamed.table(context.channels, |_| Ok(Arc::default()))?;
        let new_id = |id: &u32| match renamed[*id as usize].get() {
            Some(new) => Ok(new.0),
            None => {
                let new = self.rename(ChannelId(*id), context.channels)?;
                Ok(renamed[*id as usize].get_or_init(|| new).0)
            }
        };
        let ids = batch.channels().iter().map(new_id).collect::<Result<Vec<u32>, Error>>()?;
        Ok(if ids == batch.channels() { batch } else { batch.with_channels(ids) })
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Same
    }

    fn query(&self) -> plugin::MapQuery {
        plugin::MapQuery { keeps_times: true, ..plugin::MapQuery::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::StageRunner;
    use serde_json::{Value, json};
    use sluice_model::BatchBuilder;

    fn renamed(options: Value, name: &str) -> Channel {
        let mut run = StageRunner::new("rename", options);
        let batch = run.batch(&[(name, 0)]);
        let out = run.all([batch]).unwrap();
        Channel::clone(&run.channels.get(ChannelId(out.channels()[0])))
    }

    fn name(options: Value, name: &str) -> String {
        renamed(options, name).name.text().to_owned()
    }

    #[test]
    fn the_first_rule_that_matches_names_a_channel() {
        let rules = || {
            json!({ "channels": [
                { "from": "re:CAM_([A-Z]+)_(?<n>[0-9])", "to": "cam/$1-${n}$$" },
                { "from": "CAM_*", "to": "other$1" },
                { "from": "*X", "to": "never" },
            ] })
        };
        assert_eq!(name(rules(), "CAM_LEFT_2"), "cam/LEFT-2$");
        assert_eq!(name(rules(), "CAM_X"), "other$1");
        assert_eq!(name(rules(), "POSE"), "POSE");
    }

    #[test]
    fn exact_names_go_first_and_affixes_hold_for_all() {
        let options = || {
            json!({ "map": { "A": "pose" }, "channels": [{ "from": "*", "to": "x" }],
                "prefix": "r1/", "suffix": "'" })
        };
        assert_eq!(name(options(), "A"), "r1/pose'");
        assert_eq!(name(options(), "B"), "r1/x'");
    }

    #[test]
    fn affixes_may_hold_the_source() {
        let source = StageRunner::channel("A").source.to_string();
        let options = json!({ "prefix": "{source}/", "suffix": "@{source}" });
        assert_eq!(name(options, "A"), format!("{source}/A@{source}"));
    }

    #[test]
    fn unknown_placeholders_are_refused() {
        let refusal = |options: Value| StageRunner::refusal("rename", options);
        assert_eq!(refusal(json!({ "prefix": "{nope}/" })).path, ["prefix"]);
        assert_eq!(refusal(json!({ "suffix": "{source}{x}" })).path, ["suffix"]);
        let error = refusal(json!({ "prefix": "{stem}" }));
        assert!(error.message.contains("no placeholder `{stem}`"), "{error}");
        assert_eq!(refusal(json!({ "map": { "A": "{stem}" } })).path, ["map", "A"]);
        assert_eq!(refusal(json!({ "source": "{source}-2" })).path, ["source"]);
        let rule = json!({ "channels": [{ "from": "re:(?<x>.*)", "to": "${x}/{source}" }] });
        assert_eq!(refusal(rule).path, ["channels", "0", "to"]);
        assert_eq!(name(json!({ "prefix": "{}{1}{" }), "A"), "{}{1}{A");
    }

    #[test]
    fn the_source_changes_and_other_attributes_stay() {
        let channel = renamed(json!({ "source": "robot" }), "POSE");
        let before = StageRunner::channel("POSE");
        assert_eq!(channel, Channel { source: "robot".into(), ..before });
    }

    #[test]
    fn names_that_are_not_utf8_can_be_added_and_removed() {
        let odd = renamed(json!({ "map": { "A": "CAM\\xff" } }), "A");
        assert_eq!(odd.name.as_bytes(), b"CAM\xff");
        assert_eq!(name(json!({ "map": { "CAM\\xff": "A" } }), "CAM\\xff"), "A");
    }

    #[test]
    fn a_view_names_what_it_shows_as_that_is_renamed() {
        let shown = |options: Value, of: &str| {
            let mut run = StageRunner::new("rename", options);
            let mut view = StageRunner::channel("/view");
            view.metadata.insert("sluice.view.of".to_owned(), of.to_owned());
            let mut builder = BatchBuilder::default();
            builder.push_copy(0, 0, run.channels.intern(view).unwrap(), b"");
            let out = run.all([builder.finish()]).unwrap();
            let channel = run.channels.get(ChannelId(out.channels()[0]));
            (channel.name.text().to_owned(), channel.metadata["sluice.view.of"].clone())
        };
        let pair = |name: &str, of: &str| (name.to_owned(), of.to_owned());
        assert_eq!(shown(json!({ "prefix": "r1/" }), "POSE"), pair("r1//view", "r1/POSE"));
        let map = json!({ "map": { "POSE": "pose" } });
        assert_eq!(shown(map.clone(), "POSE"), pair("/view", "pose"));
        assert_eq!(shown(map, "OTHER"), pair("/view", "OTHER"));
        assert_eq!(shown(json!({ "source": "robot" }), "POSE"), pair("/view", "POSE"));
    }

    #[test]
    fn a_new_name_is_not_renamed_again() {
        let mut run = StageRunner::new("rename", json!({ "prefix": "x" }));
        for _ in 0..3 {
            let batch = run.batch(&[("A", 0)]);
            run.all([batch]).unwrap();
        }
        let names: Vec<_> =
            run.channels.since(0).iter().map(|c| c.name.text().to_owned()).collect();
        assert_eq!(names, ["A", "xA"]);
    }

    #[test]
    fn the_channels_that_were_read_are_remembered() {
        let mut run = StageRunner::new("rename", json!({ "map": { "A": "B" } }));
        let batch = run.batch(&[("A", 0), ("B", 1)]);
        let out = run.all([batch.clone()]).unwrap();
        assert_eq!((out.origins(), out.channels()), (batch.channels(), &[1, 1][..]));
    }

    #[test]
    fn mistakes_in_rules_are_found_where_they_are() {
        let wrong = |from: &str, to: &str| {
            let rules = json!([{ "from": "A", "to": "B" }, { "from": from, "to": to }]);
            StageRunner::refusal("rename", json!({ "channels": rules }))
        };
        assert_eq!(wrong("re:(", "x").path, ["channels", "1", "from"]);
        assert_eq!(wrong("odd[", "x").path, ["channels", "1", "from"]);
        for to in ["$2", "$1_x", "${name}", "a$"] {
            let error = wrong("re:(A)", to);
            assert_eq!(error.path, ["channels", "1", "to"]);
            assert!(error.message.contains("has no group"), "{error}");
            assert!(error.message.contains("in a pipeline file, `$${1}`"), "{error}");
        }
    }
}
