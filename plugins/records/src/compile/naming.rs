//! Which channel records are on: what the description says of it, and what is wrong with that.

use std::collections::BTreeMap;

use sluice_core::Template;

use crate::channels::{LONGEST_KEY, Naming, Says};
use crate::format::{Format, Kind};
use crate::options::{Options, Role};

use super::fields::Laid;
use super::key::whole;
use super::{Draft, Mistakes, Path, path, roles};

/// How the channel of a kind's records is told.
pub(super) fn of(
    options: &Options,
    draft: &Draft<'_>,
    fields: &[&Laid<'_>],
    mistakes: &mut Mistakes,
) -> Naming {
    let by_field = by_field(options, fields, mistakes);
    if let Some((text, path)) = &draft.channel {
        return template(text, path, fields, mistakes);
    }
    if let Some(text) = &options.channel {
        if by_field.is_some() {
            mistakes.at_key("channel", "a field has the role `channel`; leave out one of them");
        }
        return template(text, &path(&["channel"]), fields, mistakes);
    }
    match by_field {
        Some(naming) => naming,
        None if options.kinds.is_empty() => Naming::Source,
        None => Naming::Fixed(draft.name.clone()),
    }
}

fn by_field(options: &Options, fields: &[&Laid<'_>], mistakes: &mut Mistakes) -> Option<Naming> {
    let names = names(options, mistakes);
    let Some(laid) = roles::only(fields, Role::Channel, mistakes) else {
        if !names.is_empty() && !anybody_tells(options) {
            mistakes.at_key("channels", "no field has the role `channel`, whose numbers these are");
        }
        return None;
    };
    let Some((spot, len, word)) = roles::word_or_text(laid) else {
        let what = "a channel is told by one whole number or a text, in a fixed place";
        laid.wrong(mistakes, "role", what);
        return None;
    };
    if len > LONGEST_KEY {
        laid.wrong(mistakes, "size", format!("a channel's name has at most {LONGEST_KEY} bytes"));
    }
    if word.is_none() && !names.is_empty() {
        mistakes.at_key("channels", "the field with the role `channel` is a text, and so a name");
    }
    let says = word.map_or(Says::Text, |word| Says::Number(word, names));
    Some(Naming::ByFields { places: vec![(spot, len)], says })
}

fn anybody_tells(options: &Options) -> bool {
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
            mistakes.at(&path(&["channels", number]), "this number has a name already");
        }
    }
    names
}

/// A name with fields in braces.
fn template(text: &str, path: &Path, fields: &[&Laid<'_>], mistakes: &mut Mistakes) -> Naming {
    if !text.contains(['{', '}']) {
        return Naming::Fixed(text.to_owned());
    }
    let template = match Template::parse(text) {
        Ok(template) => template,
        Err(what) => {
            mistakes.at(path, what);
            return Naming::Source;
        }
    };
    let mut places = Vec::new();
    for field in template.fields() {
        let named = |laid: &&&Laid<'_>| laid.columns.iter().any(|c| c.name == field.first());
        match fields.iter().find(named).map(|laid| laid.spot()) {
            Some(Some(place)) => places.push(place),
            Some(None) => {
                let what =
                    format!("the place of `{}` differs from record to record", field.first());
                mistakes.at(path, what);
            }
            None => mistakes.at(path, format!("no field is called `{}`", field.first())),
        }
    }
    let len: usize = places.iter().map(|(_, len)| len).sum();
    if len > LONGEST_KEY {
        let what = format!("fields of {len} bytes; a name is made of at most {LONGEST_KEY}");
        mistakes.at(path, what);
    }
    Naming::ByFields { places, says: Says::Template(template) }
}

/// Names that are made of fields have to come out, and be the same whatever the event's time and number.
pub(super) fn check(options: &Options, format: &Format, mistakes: &mut Mistakes) {
    if !mistakes.0.is_empty() {
        return;
    }
    let mut own = options.kinds.iter();
    for kind in &format.kinds {
        let has_own = own.next().filter(|(_, kind)| kind.channel.is_some());
        let Naming::ByFields { says: Says::Template(template), .. } = &kind.naming else {
            continue;
        };
        if let Err(what) = check_template(format, kind, template) {
            match has_own {
                Some((key, _)) => mistakes.at(&path(&["kinds", key, "channel"]), what),
                None => mistakes.at_key("channel", what),
            }
        }
    }
}

fn check_template(format: &Format, kind: &Kind, template: &Template) -> Result<(), String> {
    let blank = vec![0; kind.least];
    let with = |event| kind.filled(format, template, &blank, event).map_err(|e| e.to_string());
    match (with((1, 2))?, with((3, 4))?) {
        (Some(one), Some(other)) if one == other => Ok(()),
        (Some(_), Some(_)) => Err(format!(
            "`{template}` would make a channel of every event: leave out its time and number"
        )),
        _ => Err(format!("`{template}` asks for a part that its field does not have")),
    }
}
