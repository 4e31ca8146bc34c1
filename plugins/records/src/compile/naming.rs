//! Compiles and checks how records get their channel.

use std::collections::BTreeMap;

use sluice_kit::Template;

use crate::channels::MAX_KEY_LEN;
use crate::format::{RecordFormat, RecordKind};
use crate::naming::{ChannelNaming, NameSource};
use crate::options::{Options, Role};

use super::key::whole;
use super::placed_field::{PlacedField, only};
use super::{KeyPath, KindDraft, Mistakes, path};

/// How records of a kind get their channel.
pub(super) fn compile(
    options: &Options,
    draft: &KindDraft<'_>,
    fields: &[&PlacedField<'_>],
    mistakes: &mut Mistakes,
) -> ChannelNaming {
    let by_field = by_field(options, fields, mistakes);
    if let Some((text, path)) = &draft.channel {
        return template(text, path, fields, mistakes);
    }
    if let Some(text) = &options.channel {
        if by_field.is_some() {
            mistakes.at_key("channel", "a field has the role `channel`; leave out either");
        }
        return template(text, &path(&["channel"]), fields, mistakes);
    }
    match by_field {
        Some(naming) => naming,
        None if options.kinds.is_empty() => ChannelNaming::Source,
        None => ChannelNaming::Fixed(draft.name.clone()),
    }
}

fn by_field(
    options: &Options,
    fields: &[&PlacedField<'_>],
    mistakes: &mut Mistakes,
) -> Option<ChannelNaming> {
    let names = names(options, mistakes);
    let Some(placed) = only(fields, Role::Channel, mistakes) else {
        if !names.is_empty() && !has_channel_role(options) {
            mistakes.at_key("channels", "`channels` needs a field with the role `channel`");
        }
        return None;
    };
    let Some((spot, len, word)) = placed.word_or_text() else {
        let what = "a channel must be a single integer or a text at a fixed offset";
        placed.report(mistakes, "role", what);
        return None;
    };
    if len > MAX_KEY_LEN {
        placed.report(
            mistakes,
            "size",
            format!("a channel's name has at most {MAX_KEY_LEN} bytes"),
        );
    }
    if word.is_none() && !names.is_empty() {
        mistakes.at_key(
            "channels",
            "the field with the role `channel` is a text, which is the \
                                     name itself",
        );
    }
    let name_from = word.map_or(NameSource::Text, |word| NameSource::Number(word, names));
    Some(ChannelNaming::ByFields { places: vec![(spot, len)], name_from })
}

fn has_channel_role(options: &Options) -> bool {
    let kinds = options.kinds.values().flat_map(|kind| &kind.fields);
    let all = options.head.iter().chain(&options.fields).chain(&options.tail).chain(kinds);
    all.into_iter().any(|field| field.role == Some(Role::Channel))
}

fn names(options: &Options, mistakes: &mut Mistakes) -> BTreeMap<i128, String> {
    let mut names = BTreeMap::new();
    for (number, name) in &options.channels {
        let Some(value) = whole(number) else {
            let what = "expected a whole number, such as 7 or 0x07";
            mistakes.at(&path(&["channels", number]), what);
            continue;
        };
        if names.insert(value, name.clone()).is_some() {
            mistakes.at(&path(&["channels", number]), "this number already has a name");
        }
    }
    names
}

/// A name with fields in braces.
fn template(
    text: &str,
    path: &KeyPath,
    fields: &[&PlacedField<'_>],
    mistakes: &mut Mistakes,
) -> ChannelNaming {
    if !text.contains(['{', '}']) {
        return ChannelNaming::Fixed(text.to_owned());
    }
    let template = match Template::parse(text) {
        Ok(template) => template,
        Err(what) => {
            mistakes.at(path, what);
            return ChannelNaming::Source;
        }
    };
    let mut places = Vec::new();
    for field in template.fields() {
        let named =
            |placed: &&&PlacedField<'_>| placed.columns.iter().any(|c| c.name == field.first());
        match fields.iter().find(named).map(|placed| placed.spot()) {
            Some(Some(place)) => places.push(place),
            Some(None) => {
                let what =
                    format!("the offset of `{}` differs from record to record", field.first());
                mistakes.at(path, what);
            }
            None => mistakes.at(path, format!("no field is called `{}`", field.first())),
        }
    }
    let len: usize = places.iter().map(|(_, len)| len).sum();
    if len > MAX_KEY_LEN {
        let what = format!("expected fields of at most {MAX_KEY_LEN} bytes in total, found {len}");
        mistakes.at(path, what);
    }
    ChannelNaming::ByFields { places, name_from: NameSource::Template(template) }
}

/// Templates must be complete, and must not depend on the event's time or number.
pub(super) fn check(options: &Options, format: &RecordFormat, mistakes: &mut Mistakes) {
    if !mistakes.0.is_empty() {
        return;
    }
    let mut own = options.kinds.iter();
    for kind in &format.kinds {
        let has_own = own.next().filter(|(_, kind)| kind.channel.is_some());
        let ChannelNaming::ByFields { name_from: NameSource::Template(template), .. } =
            &kind.naming
        else {
            continue;
        };
        if let Err(what) = check_template(kind, template) {
            match has_own {
                Some((key, _)) => mistakes.at(&path(&["kinds", key, "channel"]), what),
                None => mistakes.at_key("channel", what),
            }
        }
    }
}

fn check_template(kind: &RecordKind, template: &Template) -> Result<(), String> {
    let blank = vec![0; kind.min_len];
    let with = |event| kind.render(template, &blank, event).map_err(|e| e.to_string());
    match (with((1, 2))?, with((3, 4))?) {
        (Some(one), Some(other)) if one == other => Ok(()),
        (Some(_), Some(_)) => Err(format!(
            "`{template}` would make a channel for every event: leave out its time and number"
        )),
        _ => Err(format!("`{template}` uses a part that its field does not have")),
    }
}
