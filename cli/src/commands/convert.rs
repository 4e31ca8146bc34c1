//! `convert`: generates the most common pipeline from arguments, and runs it.

use std::collections::BTreeSet;
use std::path::Path;

use sluice_io::escape::printable;
use sluice_io::files::ForeignFormat;
use sluice_io::store::StorePath;
use sluice_kit::suggestion::nearest;
use sluice_model::{DefaultRole, Plugin, PluginKind, Source};
use sluice_pipeline::PluginInstance;

use crate::args::{Assignment, ConvertArgs, EngineArgs, FormatArgs};
use crate::commands::generated::{parse_generated, parse_usable, print_pipeline};
use crate::commands::{execute, report_file, run, shared_names};
use crate::conversion::{self, Conversion};
use crate::exit::{CommandResult, Failure};
use crate::flags::PipelineOrigin;
use crate::input_format::InputFormat;
use crate::inputs::{self, FoundSource, OpenMode};
use crate::plugin_lookup;
use crate::recipe::{Recipe, rate};
use crate::shell::Shell;
use crate::sniffing::FailedInputs;

pub(crate) fn run(args: &ConvertArgs, shell: &Shell) -> CommandResult {
    let report = args.engine.report().filter(|_| !args.print_pipeline);
    let (text, pipeline, mode_replaces) = report_file::prepare(report, || {
        execute::check_engine(&args.engine)?;
        let (text, failed) = pipeline_text(args, shell)?;
        let describe = args.format.describe.as_deref();
        let pipeline = parse_usable("sluice convert", (&text, failed), describe, shell)?;
        Ok((text, pipeline, mode_replaces(&args.to)?))
    })?;
    if args.print_pipeline {
        return print_pipeline("sluice convert", text, shell);
    }
    let overwrite = args.engine.overwrite || mode_replaces;
    let engine = EngineArgs { overwrite, ..args.engine.clone() };
    run::execute(pipeline, &engine, PipelineOrigin::of_generated(&text), shell)
}

/// Whether a `file://` URL asks to replace the log.
fn mode_replaces(to: &str) -> Result<bool, Failure> {
    let url = inputs::parse_file_url(to).map_err(Failure::Usage)?;
    Ok(url.is_some_and(|url| url.mode == Some(OpenMode::Write)))
}

/// The pipeline file equivalent to the arguments, and the inputs that fail alone.
pub(crate) fn pipeline_text(
    args: &ConvertArgs,
    shell: &Shell,
) -> Result<(String, FailedInputs), Failure> {
    let sink = OutputTarget::from_path(&args.to, args.sink.as_deref(), &args.sink_option, shell)?;
    let failing = args.engine.failing(args.print_pipeline);
    let (inputs, unnamed) = inputs::texts(&args.inputs, failing)?;
    let (inputs, selection) = inputs::resolve_file_urls(&inputs, &args.selection, shell)?;
    let format = InputFormat::from_args(&args.format)?;
    let FoundSource { plugin: source, names, mut failed } =
        inputs::find_source_of_usable(&inputs, &format, failing, shell)?;
    failed.extend(unnamed);
    let sink_options = [sink_defaults(&sink, args), args.sink_option.clone()].concat();
    let content = content_sink(sink.plugin, &sink_options, shell);
    let shared = shared_names::find(&names, &format.options, (source, content), shell)?;
    let aligns = args.alignment.align.is_some();
    let ends = ((source, &*format.options), (sink.plugin, &*sink_options));
    let conversion = match aligns {
        true => {
            let given = &selection.decoding;
            let types = conversion::decoding_types(source, &names, given, shell);
            Conversion::of_rows(ends, &sink.path, types)?
        }
        false => Conversion::between(ends, &sink.path, (&names, shell), &selection.decoding.types)?,
    };
    let recipe = Recipe {
        source: source.name,
        inputs: &inputs,
        source_options: &format.options,
        source_name: args.source_name.as_deref(),
        selection: Some(&selection),
        shared_names: &shared,
        from_source: &conversion.from_source,
        to_sink: &conversion.to_sink,
        sink: sink.plugin.name,
        output: &sink.path,
        sink_options: &conversion.sink_options,
        alignment: Some(&args.alignment),
        fields: &args.field,
        companions: &conversion.companions,
        ..Recipe::default()
    };
    if aligns || !conversion.to_sink.is_empty() {
        let recipe = Recipe { own_types: &conversion.types, ..recipe };
        let unaligned = Recipe { alignment: None, fields: &[], ..recipe };
        if conversion.to_sink.is_empty() && needs_payloads(&unaligned.text(), shell)? {
            return Err(Failure::Usage(format!(
                "{}: the sink `{}` writes payloads, which rows of --align do not have; write them \
                 as a table, MCAP file, CSV, JSON lines or a dataset",
                sink.path, sink.plugin.name
            )));
        }
        return Ok((recipe.text(), failed));
    }
    let text = recipe.text();
    let gives_rows = source.gives_rows || !conversion.from_source.is_empty();
    if !gives_rows && source.types.is_empty() && source.payloads.is_none() {
        return Ok((text, failed));
    }
    // Without the types of the source it may be wrong: those are looked for where they are used.
    let wants_payloads = needs_payloads(&text, shell).unwrap_or(false);
    if gives_rows && wants_payloads && selection.condition.is_none() {
        return Ok((Recipe { encodes: true, ..recipe }.text(), failed));
    }
    // If the source knows its types, decode whenever the sink can write fields or a condition needs
    // them.
    if !wants_payloads || selection.condition.is_some() {
        let encodes = gives_rows && wants_payloads;
        let given = &selection.decoding.types;
        let own_types = &conversion::own_types(source, &names, given, shell);
        return Ok((Recipe { own_types, encodes, ..recipe }.text(), failed));
    }
    Ok((text, failed))
}

/// The options that follow from the output, and from rows on one time base: these are one channel,
/// and may have a rate.
fn sink_defaults(sink: &OutputTarget<'_>, args: &ConvertArgs) -> Vec<Assignment> {
    let align = args.alignment.align.as_deref();
    let of_channel =
        sink.plugin.for_one_channel.iter().map(|(name, value)| (*name, (*value).into()));
    let of_channel = of_channel.filter(|_| align.is_some() && !sink.path.ends_with('/'));
    // Other rates are refused where they were given.
    let rate = align.and_then(rate).filter(|rate| *rate > 0.0 && *rate <= 1e6);
    let of_rate = sink.plugin.rate_option.zip(rate).map(|(name, rate)| (name, rate.to_string()));
    let is_given = |name: &str| args.sink_option.iter().any(|option| option.name == name);
    let defaults = of_channel.chain(of_rate).filter(|(name, _)| !is_given(name));
    let defaults = defaults.map(|(name, value)| Assignment { name: name.into(), value });
    sink.options.iter().cloned().chain(defaults).collect()
}

/// The sink of the format that is written: of an archive, that of its content.
fn content_sink<'s>(sink: &'s Plugin, options: &[Assignment], shell: &'s Shell) -> &'s Plugin {
    if !sink.default_for.contains(&DefaultRole::Archive) {
        return sink;
    }
    let format = options.iter().rev().find(|option| option.name == "format");
    let content = match format {
        Some(format) => shell.registry.get(PluginKind::Sink, format.value.trim_matches('"')),
        None => shell.registry.default_for(PluginKind::Sink, DefaultRole::Log),
    };
    content.unwrap_or(sink)
}

/// Whether a sink of this pipeline needs payloads.
fn needs_payloads(text: &str, shell: &Shell) -> Result<bool, Failure> {
    let pipeline = parse_generated("sluice convert", text, None, shell)?;
    Ok(pipeline.nodes.iter().any(
        |node| matches!(&node.instance, PluginInstance::Sink(sink) if !sink.traits().accepts_rows),
    ))
}

/// Arguments that name logs: what to read, and how.
#[derive(Clone, Copy, Debug)]
pub struct LogArgs<'a> {
    /// The verb, as a prefix of errors.
    pub verb: &'a str,
    /// Files and globs.
    pub paths: &'a [String],
    /// Their format.
    pub format: &'a FormatArgs,
}

/// Opens the source of these logs; also returns its plugin. Refuses sources that run programs.
pub fn open_logs<'s>(
    args: &LogArgs<'_>,
    shell: &'s Shell,
) -> Result<(&'s Plugin, Box<dyn Source>), Failure> {
    let format = InputFormat::from_args(args.format)?;
    let plugin = inputs::find_source(args.paths, &format, shell)?;
    if plugin.program.is_some() {
        return Err(Failure::Usage(format!(
            "`{}` runs a program, which `{}` does not allow; run it in a pipeline file that \
             writes a log",
            plugin.name, args.verb
        )));
    }
    let recipe = Recipe {
        source: plugin.name,
        inputs: args.paths,
        source_options: &format.options,
        sink: "null",
        ..Recipe::default()
    };
    let pipeline = parse_generated(args.verb, &recipe.text(), None, shell)?;
    let source = pipeline.nodes.into_iter().find_map(|node| match node.instance {
        PluginInstance::Source(source) => Some(source),
        _ => None,
    });
    let missing = || Failure::Failed("no source".into());
    Ok((plugin, source.ok_or_else(missing)?))
}

/// The sink for an output, its path, and the options implied by the path.
pub(crate) struct OutputTarget<'s> {
    pub(crate) plugin: &'s Plugin,
    pub(crate) path: String,
    pub(crate) options: Vec<Assignment>,
}

impl<'s> OutputTarget<'s> {
    /// The sink for an output: the one called `name`, or the one its path implies. `given` are its
    /// other options.
    pub(crate) fn from_path(
        to: &str,
        name: Option<&str>,
        given: &[Assignment],
        shell: &'s Shell,
    ) -> Result<Self, Failure> {
        if let Some(url) = inputs::file_url_with_warnings(to, shell)? {
            let path = url.output().map_err(Failure::Usage)?;
            // Programs for LCM write logs of any name to such a URL.
            let log = match name {
                None if !names_format(path, shell) => Some(
                    plugin_lookup::default_plugin(shell, PluginKind::Sink, DefaultRole::Log)?.name,
                ),
                _ => name,
            };
            let mut target = Self::from_path(path, log, given, shell)?;
            if url.mode == Some(OpenMode::Append) {
                target.options.push(Assignment { name: "append".into(), value: "true".into() });
            }
            return Ok(target);
        }
        // Before the extension, which addresses that are not supported need not have.
        StorePath::parse(Path::new(to))?;
        let path = folder_with_slash(to);
        if let Some(name) = name {
            let plugin = plugin_lookup::plugin_named(shell, PluginKind::Sink, name)?;
            plugin_lookup::refuse_other_url(plugin, &path, shell)?;
            return Ok(Self { plugin, path, options: Vec::new() });
        }
        if plugin_lookup::is_url(&path) {
            let plugin = plugin_lookup::plugin_for_url(shell, PluginKind::Sink, &path)?;
            return Ok(Self { plugin, path, options: Vec::new() });
        }
        if path == "-" {
            let names = shell.registry.names(PluginKind::Sink).join(", ");
            let what = "standard output has no extension to choose a format by";
            return Err(Failure::Usage(format!("{what}; name one with --as: {names}")));
        }
        if path.ends_with('/') {
            let plugin =
                plugin_lookup::default_plugin(shell, PluginKind::Sink, DefaultRole::Tables)?;
            return Ok(Self { plugin, path, options: Vec::new() });
        }
        Self::by_extension(path, given, shell)
    }

    fn by_extension(path: String, given: &[Assignment], shell: &'s Shell) -> Result<Self, Failure> {
        let (extension, packed) = plugin_lookup::extension(Path::new(&path));
        let named = extension.as_deref();
        let inner = named.and_then(|e| shell.registry.by_extension(PluginKind::Sink, e));
        let archive = shell.registry.default_for(PluginKind::Sink, DefaultRole::Archive);
        let archive = archive.filter(|_| packed);
        // Names such as `lcmlog-2007-11-03.00.zst` have a number there.
        let is_word = |name: &str| name.starts_with(|first: char| first.is_ascii_alphabetic());
        let chooses = given.iter().any(|option| option.name == "format");
        if let (Some(archive), Some(name), None) = (archive, named, inner)
            && is_word(name)
            && !chooses
            && !archive.inner_extensions.contains(&name)
        {
            let path = printable(&path);
            shell.warn(&format!(
                "{path} becomes an archive of the default format, as `.{name}` is none that \
                 archives hold; --sink-option format=… chooses one"
            ));
        }
        // The formats an archive can hold. Other sinks compress by themselves.
        let format = match inner {
            None => named.filter(|e| archive.is_some_and(|a| a.inner_extensions.contains(e))),
            // The default of archives.
            Some(plugin) if plugin.default_for.contains(&DefaultRole::Log) => None,
            Some(plugin) if shell.registry.byte_format(plugin.name).is_some() => Some(plugin.name),
            Some(_) => return Self::without_archive(inner, path, shell),
        };
        // An option that only the log's own sink has selects that sink.
        let takes = |plugin: &Plugin| {
            let names = plugin.option_names();
            given.iter().all(|option| names.contains(&option.name))
        };
        let Some(plugin) = archive.filter(|archive| takes(archive) || !inner.is_some_and(takes))
        else {
            return Self::without_archive(inner, path, shell);
        };
        let format = format.filter(|_| given.iter().all(|option| option.name != "format"));
        let option = |value: &str| Assignment { name: "format".into(), value: value.into() };
        Ok(Self { plugin, path, options: format.map(option).into_iter().collect() })
    }

    fn without_archive(
        inner: Option<&'s Plugin>,
        path: String,
        shell: &Shell,
    ) -> Result<Self, Failure> {
        let plugin = inner.ok_or_else(|| Failure::Usage(unknown_extension(&path, shell)))?;
        Ok(Self { plugin, path, options: Vec::new() })
    }
}

/// What to write in place of an output whose extension is of no format that is written.
fn unknown_extension(path: &str, shell: &Shell) -> String {
    let sinks = shell.registry.iter().filter(|plugin| plugin.kind() == PluginKind::Sink);
    let known: BTreeSet<&str> = sinks.flat_map(|plugin| plugin.extensions).copied().collect();
    let near = plugin_lookup::extension(Path::new(path)).0.and_then(|extension| {
        let near = nearest(&extension, &known.iter().copied().collect::<Vec<_>>())?;
        Some(format!("did you mean `.{near}`? Otherwise, "))
    });
    let written: Vec<String> = known.iter().map(|extension| format!("`.{extension}`")).collect();
    format!(
        "the extension of `{path}` is not that of a format that this program writes; {}choose one \
         of {}, or name a sink of `sluice plugins` with --as",
        near.unwrap_or_default(),
        written.join(", ")
    )
}

/// The extension of reports, which are no logs.
const REPORT_EXTENSION: &str = "json";

/// Whether the name of an output tells its format, even if that is one that is not written.
pub(crate) fn names_format(to: &str, shell: &Shell) -> bool {
    let (extension, packed) = plugin_lookup::extension(Path::new(to));
    let is_known = |extension: String| {
        let of_plugin = |plugin: &Plugin| [plugin.extensions, plugin.inner_extensions].concat();
        let mut known = shell.registry.iter().flat_map(of_plugin).chain([REPORT_EXTENSION]);
        known.any(|known| known.eq_ignore_ascii_case(&extension))
    };
    let is_foreign = |extension: &String| ForeignFormat::of_packed_extension(extension).is_some();
    packed
        || folder_with_slash(to).ends_with('/')
        || extension.as_ref().is_some_and(is_foreign)
        || extension.is_some_and(is_known)
}

/// Adds a slash to folders, which tells them from files.
fn folder_with_slash(path: &str) -> String {
    let is_folder = path != "-" && !path.ends_with('/') && Path::new(path).is_dir();
    if is_folder { format!("{path}/") } else { path.to_owned() }
}
