//! The verbs for programs that embed them, such as the Python package: the same arguments, with
//! results for the caller instead of text on standard streams. Handles no signals, and prints
//! nothing, except as the whole [`program`], and events whose output is standard output (`cat`,
//! `--to -`).

use std::ffi::OsString;
use std::sync::Arc;

use clap::Parser;
use sluice_model::{DynSink, Registry, programs};
use sluice_pipeline::{Document, Pipeline, PluginInstance, Variables};

use crate::args::{self, CatArgs};
use crate::commands::generated;
use crate::conversion;
pub use crate::embedding::{Embedding, Output};
use crate::exit::EXIT_OK;
pub use crate::exit::Failure;
use crate::input_format::InputFormat;
use crate::inputs;
use crate::recipe::Recipe;
use crate::shell::Shell;
use crate::stdout;
use crate::{ParsedVerb, dispatch, parse_matches};

/// Makes glibc keep freed blocks of a few megabytes instead of returning them to the system.
///
/// Encoders allocate a page or frame of about a megabyte a thousand times per gigabyte. glibc
/// serves each by `mmap`, whose page faults cost a tenth of the run time, until a larger block has
/// been freed once: that raises its mmap threshold. Other allocators just see one allocation.
pub fn keep_freed_blocks() {
    const LARGEST_BLOCK: usize = 16 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGEST_BLOCK)));
}

/// Runs the program with these arguments, of which the first is its name: with everything that it
/// prints, and with its signal handlers. Returns the exit code. For processes that do nothing else.
pub fn program(arguments: impl IntoIterator<Item = OsString>, registry: Registry) -> u8 {
    keep_freed_blocks();
    crate::raise_open_file_limit();
    crate::stdout::wait_for_readers();
    let code = crate::exit_code(arguments, registry);
    // Threads still waiting for a child program end with this process; make sure its children do
    // too.
    programs::shut_down();
    code
}

/// Runs a verb with these arguments, of which the first is its name. Returns the exit code. What it
/// prints is in [`Embedding::take_output`], except events for standard output.
pub fn run(
    arguments: &[OsString],
    registry: Registry,
    embedding: &Arc<Embedding>,
) -> Result<u8, Failure> {
    let program = [OsString::from("sluice")];
    let words = program.iter().chain(arguments);
    let parsed = args::command().try_get_matches_from(words).and_then(parse_matches);
    let mut shell = Shell::embedded(registry, embedding);
    let (global, verb) = match parsed {
        // The help and the version.
        Err(error) if !error.use_stderr() => {
            stdout::unescaped(&error.render().to_string(), &shell)?;
            return Ok(EXIT_OK);
        }
        parsed => parsed.map_err(|error| usage(error, arguments))?,
    };
    (shell.quiet, shell.verbose) = (global.quiet, global.verbose);
    let ending = match verb {
        ParsedVerb::BuiltIn(verb) => dispatch(*verb, &shell),
        ParsedVerb::Linked(verb, arguments) => (verb.run)(&arguments, &shell),
    };
    ending.map(|status| status.code())
}

/// Every mistake in a pipeline file, or in the built-in pipeline of that name.
pub fn check(file: &str, variables: &Variables, registry: &Registry) -> Result<Pipeline, Failure> {
    let document = Document::open(file).map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(Pipeline::read(&document, variables, registry)?)
}

/// The verb `cat` alone: the options of all others need not be listed to read its own.
#[derive(Parser)]
#[command(name = "sluice", no_binary_name = true)]
struct LogCommand {
    #[command(flatten)]
    args: CatArgs,
}

/// What the events of a log are needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventForm {
    /// Their decoded fields.
    Rows,
    /// Their payloads.
    Payloads,
}

/// A pipeline that reads logs into `sink`: inputs and options are those of the verb `cat`.
///
/// Events are decoded as for reports: with the types that their format, the log or an option
/// declares, or else with the built-in ones. Refuses sources that run programs.
pub fn log_pipeline(
    arguments: &[OsString],
    form: EventForm,
    sink: DynSink,
    registry: Registry,
    embedding: &Arc<Embedding>,
) -> Result<Pipeline, Failure> {
    let LogCommand { args } =
        LogCommand::try_parse_from(arguments).map_err(|error| usage(error, arguments))?;
    let shell = Shell::embedded(registry, embedding);
    let text = pipeline_text(&args, form, &shell)?;
    let mut pipeline = generated::parse_generated("the query", &text, None, &shell)?;
    if let Some(node) = pipeline.nodes.last_mut() {
        node.instance = PluginInstance::Sink(sink);
    }
    Ok(pipeline)
}

fn pipeline_text(args: &CatArgs, form: EventForm, shell: &Shell) -> Result<String, Failure> {
    let (inputs, mut selection) = inputs::resolve_file_urls(&args.files, &args.selection, shell)?;
    let format = InputFormat::from_args(&args.format)?;
    let source = inputs::find_source(&inputs, &format, shell)?;
    if source.program.is_some() {
        return Err(Failure::Usage(format!(
            "`{}` runs a program: run it in a pipeline file that writes a log",
            source.name
        )));
    }
    let from_source = conversion::behind(source, &format.options)?;
    let types = match form {
        EventForm::Payloads if selection.condition.is_none() => Vec::new(),
        _ => conversion::decoding_types(source, &inputs, &selection.decoding, shell),
    };
    if types.is_empty() && selection.decoding.types.is_empty() {
        // Nothing is decoded.
        selection.decoding.channel_types.clear();
    }
    let recipe = Recipe {
        source: source.name,
        inputs: &inputs,
        source_options: &format.options,
        own_types: &types,
        selection: Some(&selection),
        from_source: &from_source,
        limit: args.limit,
        encodes: form == EventForm::Payloads && (source.gives_rows || !from_source.is_empty()),
        sink: "null",
        ..Recipe::default()
    };
    Ok(recipe.text())
}

/// The message of a command line that does not parse, without the usage.
fn usage(error: clap::Error, arguments: &[OsString]) -> Failure {
    if let Some(refusal) = crate::usage::not_utf8(&error, arguments) {
        return Failure::Usage(refusal);
    }
    let text = error.render().to_string();
    let message = text.split("\n\n").next().unwrap_or_default();
    Failure::Usage(message.trim_start_matches("error: ").trim_end().to_owned())
}
