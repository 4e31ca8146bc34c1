//! The stages that conversions go through and the sinks beside the output's, as the plugins at both
//! ends say: messages become what the output's programs can show, and what they were. Names no
//! format.

use std::path::Path;

use serde_json::{Map, Value};
use sluice_io::files::is_special;
use sluice_kit::{EMBEDDED_TYPES, TypePaths};
use sluice_model::{CompanionSink, ConversionNodes, ConversionStage, Plugin};

use crate::args::Assignment;
use crate::recipe::toml_value;

/// The source and the sink of a conversion, with their options.
type Ends<'e> = ((&'e Plugin, &'e [Assignment]), (&'e Plugin, &'e [Assignment]));

/// The stages at both ends of a conversion, and what they need.
#[derive(Debug, Default)]
pub(crate) struct Conversion {
    /// Those behind the source.
    pub(crate) from_source: Vec<ConversionStage>,
    /// Those in front of the sink.
    pub(crate) to_sink: Vec<ConversionStage>,
    /// The plugins of the sinks beside the output's, and the files they write.
    pub(crate) companions: Vec<(&'static str, String)>,
    /// The sink's options without those that are for these stages.
    pub(crate) sink_options: Vec<Assignment>,
    /// The types with which payloads are decoded for `to_sink`.
    pub(crate) types: Vec<String>,
}

impl Conversion {
    /// The stages between this source and this sink, which writes `output`.
    pub(crate) fn between(ends: Ends<'_>, output: &str, has_types: bool) -> Self {
        let ((source, _), (sink, _)) = ends;
        let all = Self::of_rows(ends, output, has_types);
        // A format's own form needs no conversion, unless it is asked for.
        if source.name == sink.name && !has_types {
            return Self { sink_options: all.sink_options, ..Self::default() };
        }
        // Programs know messages whose types the log itself declares.
        let is_declared = source.types.contains(&EMBEDDED_TYPES) && all.from_source.is_empty();
        if is_declared && !has_types {
            return Self { sink_options: all.sink_options, ..Self::default() };
        }
        Self { types: types(source, has_types), ..all }
    }

    /// The stages between this source and this sink for rows that are made of several messages:
    /// their types are in no log.
    pub(crate) fn of_rows(ends: Ends<'_>, output: &str, has_types: bool) -> Self {
        let ((source, source_options), (sink, given)) = ends;
        let from_source = behind(source, source_options);
        let mut options = values(given);
        let ConversionNodes { stages: to_sink, sinks } = (sink.conversion)(&mut options);
        let taken = |option: &&Assignment| options.contains_key(&option.name);
        let sink_options = given.iter().filter(taken).cloned().collect();
        let sinks = if to_sink.is_empty() { Vec::new() } else { sinks };
        let companions = companions(&sinks, sink, output);
        let types = match from_source.is_empty() {
            true => decoding_types(source, has_types),
            false => source.types.iter().map(|name| (*name).to_owned()).collect(),
        };
        Self { from_source, to_sink, companions, sink_options, types }
    }
}

/// The stages behind a source, for verbs without a sink of their own.
pub(crate) fn behind(source: &Plugin, options: &[Assignment]) -> Vec<ConversionStage> {
    (source.conversion)(&mut values(options)).stages
}

/// The companions of an output, named after it. An output without an extension of its sink has
/// none: streams, devices and URLs among them.
fn companions(sinks: &[CompanionSink], sink: &Plugin, output: &str) -> Vec<(&'static str, String)> {
    let plain = output.strip_suffix(".zst").unwrap_or(output);
    let stem = sink.extensions.iter().find_map(|extension| {
        let stem = plain.strip_suffix(extension)?.strip_suffix('.')?;
        (!stem.is_empty() && !stem.ends_with('/')).then_some(stem)
    });
    let Some(stem) = stem.filter(|_| !is_special(Path::new(output))) else { return Vec::new() };
    sinks.iter().map(|sink| (sink.plugin, format!("{stem}{}", sink.extension))).collect()
}

/// The types with which events are decoded, besides those that were given: those that a source of
/// rows names for its payloads, or else [`known_types`].
pub(crate) fn decoding_types(source: &Plugin, has_types: bool) -> Vec<String> {
    match source.gives_rows {
        true => source.types.iter().map(|name| (*name).to_owned()).collect(),
        false => known_types(source, has_types),
    }
}

/// The types of the source's payloads, declared by the log itself or known: its own, or else all
/// built-in ones.
pub(crate) fn known_types(source: &Plugin, has_types: bool) -> Vec<String> {
    match source.types.contains(&EMBEDDED_TYPES) {
        true => source.types.iter().map(|name| (*name).to_owned()).collect(),
        false => types(source, has_types),
    }
}

/// The types of the source's payloads: its own, or else all built-in ones.
fn types(source: &Plugin, has_types: bool) -> Vec<String> {
    let is_named = |name: &String| *name != EMBEDDED_TYPES;
    if !source.types.is_empty() || has_types {
        return source.types.iter().map(|name| (*name).to_owned()).filter(is_named).collect();
    }
    let built_in = TypePaths::built_in().0.into_iter();
    built_in.map(|name| name.display().to_string()).filter(is_named).collect()
}

fn values(options: &[Assignment]) -> Map<String, Value> {
    let value = |text: &str| -> Option<Value> {
        let line = format!("value = {}", toml_value(text));
        let mut table = toml::from_str::<Map<String, Value>>(&line).ok()?;
        table.remove("value")
    };
    let each = options.iter();
    each.map(|option| (option.name.clone(), value(&option.value).unwrap_or_default())).collect()
}
