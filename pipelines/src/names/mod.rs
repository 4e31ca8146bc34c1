//! Names in options: channel and source patterns, message fields, and time windows. Finds them,
//! most by a plugin's schema, and reports which no declared type has and which matched nothing in
//! a run. Filters no event.

mod declared;
mod option;
mod report;

use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;
use sluice_kit::Template;
use sluice_kit::selection::FieldList;
use sluice_model::options::{CHANNELS_FORMAT, FIELDS_FORMAT, SOURCES_FORMAT, TEMPLATE_FORMAT};
use sluice_model::{FieldPath, Pattern, Stage};

use crate::spec::PluginInstance;
use crate::spec::schema_view::SchemaView;

pub(crate) use declared::{GraphNode, undeclared};
pub use option::{NameOption, SearchedField, SearchedName};
pub use report::{MatchOutcome, NameKind, NameReport};
pub(crate) use report::{NodeNames, RunFacts, match_names};

/// The names in a node's options, found by its plugin's schema. `span` maps an option to its
/// position.
pub(crate) fn names_in_options(
    schema: &Value,
    options: &Value,
    part: &PluginInstance,
    span: impl Fn(&str) -> Range<usize>,
) -> Vec<NameOption> {
    let (shape, mut names) = (SchemaView::from_schema(schema), Vec::new());
    for (key, value) in options.as_object().into_iter().flatten() {
        collect(value, &shape.property(key), &mut |name| names.push((key.as_str(), name)));
    }
    if let PluginInstance::Stage(stage) = part {
        let fields = fields_of(stage).into_iter();
        names.extend(fields.map(|(option, field)| (option, SearchedName::Field(needed(field)))));
        for (option, channel) in channels_of(stage) {
            let is_it =
                |name: &SearchedName| matches!(name, SearchedName::Channel(c) if *c == channel);
            // Stages also name the channel of an option that is left out.
            if !names.iter().any(|(of, name)| *of == option && is_it(name)) {
                names.push((option, SearchedName::Channel(channel)));
            }
        }
        names.extend(window_of(stage, options));
    }
    let unnest = options.get(UNNEST_OPTION).and_then(|list| FieldPath::deserialize(list).ok());
    let named = |(option, mut name): (&str, SearchedName)| {
        if let (SearchedName::Field(field), false) = (&mut name, option == UNNEST_OPTION) {
            field.unnest.clone_from(&unnest);
        }
        NameOption { option: option.to_owned(), name, span: span(option) }
    };
    names.into_iter().map(named).collect()
}

/// The option of sinks that names a list to unnest; their other options name fields of its
/// elements.
const UNNEST_OPTION: &str = "unnest";

fn needed(path: FieldPath) -> SearchedField {
    SearchedField { path, is_needed: true, unnest: None }
}

fn fields_of(stage: &Stage) -> Vec<(&'static str, FieldPath)> {
    let fields = |part: &Stage| match part {
        Stage::Map(map) => map.named_fields(),
        Stage::Fold(fold) => fold.named_fields(),
        Stage::Chain(_) => Vec::new(),
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

/// The bounds of time windows: the first that is given names its window.
const WINDOW_OPTIONS: [&str; 4] = ["start", "clip_start", "end", "clip_end"];

/// The value of these that means no bound.
const NO_BOUND: &str = "none";

/// The time window of a stage that drops the events outside it.
fn window_of(stage: &Stage, options: &Value) -> Option<(&'static str, SearchedName)> {
    let has_window = |part: &Stage| match part {
        Stage::Map(map) => map.query().start.or(map.query().end).is_some(),
        Stage::Fold(_) | Stage::Chain(_) => false,
    };
    if !stage.parts().into_iter().any(has_window) {
        return None;
    }
    let mut bounds =
        WINDOW_OPTIONS.iter().filter_map(|option| Some((*option, options.get(*option)?)));
    let (option, bound) = bounds.find(|(_, bound)| !bound.is_null() && *bound != NO_BOUND)?;
    let written = bound.as_str().map_or_else(|| bound.to_string(), str::to_owned);
    Some((option, SearchedName::Window(written)))
}

fn collect(value: &Value, shape: &SchemaView<'_>, add: &mut dyn FnMut(SearchedName)) {
    if shape.is_format(FIELDS_FORMAT) {
        let fields = serde_json::from_value::<FieldList>(value.clone());
        let fields = fields.iter().flat_map(FieldList::paths).cloned();
        return fields.for_each(|path| {
            add(SearchedName::Field(SearchedField { path, is_needed: false, unnest: None }));
        });
    }
    let pattern = |text: &str| Pattern::parse(text).ok();
    match value {
        Value::String(text) if shape.is_format(TEMPLATE_FORMAT) => {
            let template = Template::parse(text);
            let fields = template.iter().flat_map(Template::fields).cloned();
            fields.for_each(|path| add(SearchedName::Field(needed(path))));
        }
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
