//! Names in options: patterns of channels and sources, and fields of messages. Finds them by the schemas of
//! plugins, and says which no declared type has and which nothing in a run matched. Leaves no event out.

mod declared;
mod report;

use std::ops::Range;

use serde_json::Value;
use sluice_core::options::{CHANNELS_FORMAT, FIELDS_FORMAT, SOURCES_FORMAT};
use sluice_core::selection::FieldList;
use sluice_core::{FieldPath, Pattern, Stage};

use crate::spec::Part;
use crate::spec::shape::Shape;

pub(crate) use declared::undeclared;
pub(crate) use report::{Facts, NodeNames, judge};
pub use report::{MatchOutcome, NameKind, NameReport};

/// A name that somebody wrote into an option.
#[derive(Clone, Debug)]
pub struct NameOption {
    /// The option, the first of the keys that lead to it.
    pub option: String,
    /// What has to be there for the name to mean something.
    pub name: SearchedName,
    /// Where it stands in the pipeline file, for what is wrong with it.
    pub span: Range<usize>,
}

/// What a name in an option is looked for among.
#[derive(Clone, Debug)]
pub enum SearchedName {
    /// The channels of events.
    Channel(Pattern),
    /// The sources of events.
    Source(Pattern),
    /// The fields of decoded messages.
    Field(FieldPath),
}

/// The option of `filter` that is an expression.
const CONDITION: &str = "where";

/// The names in the options of a node whose plugin has this schema. `span` says where an option stands.
pub fn of_node(
    schema: &Value,
    options: &Value,
    part: &Part,
    span: impl Fn(&str) -> Range<usize>,
) -> Vec<NameOption> {
    let (shape, mut names) = (Shape::of(schema), Vec::new());
    for (key, value) in options.as_object().into_iter().flatten() {
        collect(value, &shape.property(key), &mut |name| names.push((key.as_str(), name)));
    }
    if let Part::Stage(stage) = part {
        let fields = fields_of(stage).into_iter();
        names.extend(fields.map(|field| (CONDITION, SearchedName::Field(field))));
        let channels = channels_of(stage).into_iter();
        names.extend(channels.map(|(option, channel)| (option, SearchedName::Channel(channel))));
    }
    let named = |(option, name): (&str, SearchedName)| NameOption {
        option: option.to_owned(),
        name,
        span: span(option),
    };
    names.into_iter().map(named).collect()
}

fn fields_of(stage: &Stage) -> Vec<FieldPath> {
    let fields = |part: &Stage| match part {
        Stage::Map(map) => map.fields(),
        Stage::Fold(_) | Stage::Chain(_) => Vec::new(),
    };
    stage.parts().into_iter().flat_map(fields).collect()
}

fn channels_of(stage: &Stage) -> Vec<(&'static str, Pattern)> {
    let channels = |part: &Stage| match part {
        Stage::Map(map) => map.named_channels(),
        Stage::Fold(fold) => fold.named_channels(),
        Stage::Chain(_) => Vec::new(),
    };
    stage.parts().into_iter().flat_map(channels).collect()
}

fn collect(value: &Value, shape: &Shape<'_>, add: &mut dyn FnMut(SearchedName)) {
    if shape.is_format(FIELDS_FORMAT) {
        let fields = serde_json::from_value::<FieldList>(value.clone());
        let fields = fields.iter().flat_map(FieldList::paths).cloned();
        return fields.for_each(|field| add(SearchedName::Field(field)));
    }
    let pattern = |text: &str| Pattern::parse(text).ok();
    match value {
        Value::String(text) if shape.is_format(CHANNELS_FORMAT) => {
            pattern(text).into_iter().for_each(|pattern| add(SearchedName::Channel(pattern)));
        }
        Value::String(text) if shape.is_format(SOURCES_FORMAT) => {
            pattern(text).into_iter().for_each(|pattern| add(SearchedName::Source(pattern)));
        }
        Value::Array(list) => {
            list.iter().for_each(|value| collect(value, &shape.element(), add));
        }
        Value::Object(table) => {
            for (key, value) in table {
                if shape.keys_are(CHANNELS_FORMAT) {
                    pattern(key).into_iter().for_each(|key| add(SearchedName::Channel(key)));
                }
                collect(value, &shape.property(key), add);
            }
        }
        _ => {}
    }
}
