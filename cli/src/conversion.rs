//! The stages that conversions go through and the sinks beside the output's, as the plugins at both
//! ends say: messages become what the output's programs can show, and what they were. Names no
//! format.

use std::convert::Infallible;
use std::path::Path;

use serde_json::{Map, Value};
use sluice_io::files::is_special;
use sluice_kit::{EMBEDDED_IF_ANY, EMBEDDED_TYPES, TypePaths};
use sluice_model::registry::type_sets;
use sluice_model::{
    CompanionSink, ConversionNodes, ConversionStage, Encoding, Input, LogPayloads, Plugin,
};

use crate::args::{Assignment, DecodingArgs};
use crate::exit::Failure;
use crate::flags;
use crate::inputs;
use crate::node_names::{SINK_NAME, SOURCE_NAME};
use crate::recipe::toml_value;
use crate::shell::Shell;
use crate::sniffing;

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
    /// The stages between this source of `inputs` and this sink, which writes `output`.
    /// `given` are types to decode with.
    pub(crate) fn between(
        ends: Ends<'_>,
        output: &str,
        (inputs, shell): (&[String], &Shell),
        given: &[String],
    ) -> Result<Self, Failure> {
        let ((source, _), (sink, _)) = ends;
        let has_types = !given.is_empty();
        let all = Self::of_rows(ends, output, Vec::new())?;
        // A format's own form needs no conversion, unless it is asked for.
        if source.name == sink.name && !has_types {
            return Ok(Self { sink_options: all.sink_options, ..Self::default() });
        }
        // Programs know messages whose types the log itself declares.
        let is_kept = !has_types && !all.to_sink.is_empty() && all.from_source.is_empty();
        if is_kept && declare_types(source, inputs, shell) {
            return Ok(Self { sink_options: all.sink_options, ..Self::default() });
        }
        let types = match has_types {
            true => own_types(source, inputs, given, shell),
            false => types(source),
        };
        Ok(Self { types, ..all })
    }

    /// The stages between this source and this sink for rows that are made of several messages:
    /// their types are in no log. `types` are those to decode with.
    pub(crate) fn of_rows(
        ends: Ends<'_>,
        output: &str,
        types: Vec<String>,
    ) -> Result<Self, Failure> {
        let ((source, source_options), (sink, given)) = ends;
        let from_source = behind(source, source_options)?;
        let mut options = values(given);
        let nodes = (sink.conversion)(&mut options);
        let ConversionNodes { stages: to_sink, sinks } =
            nodes.map_err(|error| flags::options_error(SINK_NAME, &error))?;
        let taken = |option: &&Assignment| options.contains_key(&option.name);
        let sink_options = given.iter().filter(taken).cloned().collect();
        let sinks = if to_sink.is_empty() { Vec::new() } else { sinks };
        let companions = companions(&sinks, sink, output);
        Ok(Self { from_source, to_sink, companions, sink_options, types })
    }
}

/// The stages behind a source, for verbs without a sink of their own.
pub(crate) fn behind(
    source: &Plugin,
    options: &[Assignment],
) -> Result<Vec<ConversionStage>, Failure> {
    let nodes = (source.conversion)(&mut values(options));
    Ok(nodes.map_err(|error| flags::options_error(SOURCE_NAME, &error))?.stages)
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

/// The types that a source names for its payloads, those that channels of these logs declare
/// themselves, and, unless types are `given`, the built-in ones of their encodings: given ones may
/// be others of the same names.
pub fn own_types(
    source: &Plugin,
    inputs: &[String],
    given: &[String],
    shell: &Shell,
) -> Vec<String> {
    let payloads = payloads(source, inputs, shell).unwrap_or_default();
    let is_known =
        |encoding: &Encoding| payloads.iter().any(|one| one.encodings.contains(encoding));
    let sets = type_sets().into_iter().filter(|set| set.encoding.as_ref().is_some_and(is_known));
    let sets: Vec<&str> = sets.filter(|_| given.is_empty()).map(|set| set.name).collect();
    let embedded = !sets.is_empty() || payloads.iter().any(|payloads| payloads.declare_types);
    let embedded = embedded.then_some(EMBEDDED_IF_ANY);
    let own = source.types.iter().copied();
    embedded.into_iter().chain(sets).chain(own).map(str::to_owned).collect()
}

/// Whether each of these logs declares types of its channels.
fn declare_types(source: &Plugin, inputs: &[String], shell: &Shell) -> bool {
    let all_declare = |payloads: Vec<LogPayloads>| payloads.iter().all(|one| one.declare_types);
    source.types.contains(&EMBEDDED_TYPES)
        || payloads(source, inputs, shell).is_some_and(all_declare)
}

/// What each of these logs tells of its payloads. `None` if there is no log, or their format does
/// not tell without reading them. What cannot be read is reported when the logs are.
fn payloads(source: &Plugin, inputs: &[String], shell: &Shell) -> Option<Vec<LogPayloads>> {
    let payloads = source.payloads?;
    let files = inputs.iter().flat_map(|name| inputs::expand(shell, name).unwrap_or_default());
    let files: Vec<Input> = files.collect();
    let read = |file: &Input| Ok::<_, Infallible>(payloads(&file.path).unwrap_or_default());
    let Ok(found) = sniffing::try_map(&files, read);
    (!files.is_empty()).then_some(found)
}

/// The types with which events are decoded, besides those that are `given`: the source's own, and
/// all built-in ones if it has none, or its logs tell of payloads of other formats. Sources of rows
/// may have payloads, too, as tables of a log that was not decoded.
pub(crate) fn decoding_types(
    source: &Plugin,
    inputs: &[String],
    given: &DecodingArgs,
    shell: &Shell,
) -> Vec<String> {
    let own = own_types(source, inputs, &given.types, shell);
    let has_others = || {
        let tells_others = |all: Vec<LogPayloads>| all.iter().any(|one| !one.encodings.is_empty());
        source.types.is_empty() || payloads(source, inputs, shell).is_some_and(tells_others)
    };
    if !given.types.is_empty() || !has_others() {
        return own;
    }
    let others: Vec<String> = built_in().into_iter().filter(|name| !own.contains(name)).collect();
    [own, others].concat()
}

/// The types of the source's payloads: its own without those that the log declares, or else all
/// built-in ones. Where the log may declare types, its channels are decoded by those first.
fn types(source: &Plugin) -> Vec<String> {
    if !source.types.is_empty() {
        let own = source.types.iter().filter(|name| **name != EMBEDDED_TYPES);
        return own.map(|name| (*name).to_owned()).collect();
    }
    let embedded = source.payloads.map(|_| EMBEDDED_IF_ANY.to_owned());
    embedded.into_iter().chain(built_in()).collect()
}

/// All built-in types.
fn built_in() -> Vec<String> {
    let is_embedded = |name: &String| [EMBEDDED_TYPES, EMBEDDED_IF_ANY].contains(&name.as_str());
    let all = TypePaths::built_in().0.into_iter().map(|name| name.display().to_string());
    all.filter(|name| !is_embedded(name)).collect()
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
