//! `cat`: prints events, as lines for people or as JSON.

use std::sync::Arc;

use sluice_core::Kind;
use sluice_pipeline::run::{self, Options};

use crate::args::{Assignment, CatArgs, ProgressForm};
use crate::commands::{convert, execute};
use crate::description::Format;
use crate::ending::Outcome;
use crate::flags::Origin;
use crate::inputs;
use crate::progress::Meter;
use crate::recipe::Recipe;
use crate::shell::Shell;
use crate::signals::Listening;

pub(crate) fn run(args: &CatArgs, shell: &Shell) -> Outcome {
    let file = std::slice::from_ref(&args.file);
    let (inputs, selection) = inputs::without_addresses(file, &args.selection, shell)?;
    let format = Format::of(args.from.as_deref(), args.describe.as_deref(), &args.source_option)?;
    let source = convert::source(&inputs, format.from.as_deref(), &format.options, shell)?;
    let sink = inputs::named(shell, Kind::Sink, if args.json { "jsonl" } else { "text" })?;
    let payload = Assignment { name: "payload".into(), value: "true".into() };
    let recipe = Recipe {
        source: source.name,
        inputs: &inputs,
        source_options: &format.options,
        own_types: source.types,
        selection: Some(&selection),
        limit: args.limit,
        // To show a payload, it has to be there.
        encodes: args.payload && source.gives_rows,
        sink: sink.name,
        output: "-",
        sink_options: if args.payload { &[payload] } else { &[] },
        fields: &args.field,
        ..Recipe::default()
    };
    let pipeline = convert::read("sluice cat", &recipe.text(), shell)?;
    // Of a run that only prints, nothing is to be seen but what programs say.
    let meter = Arc::new(Meter::new(ProgressForm::None, shell));
    let allow_exec = args.allow_exec;
    let options = Options { allow_exec, progress: Some(meter.clone()), ..Options::default() };
    // There is nothing to finish.
    let listening = Listening::to_end();
    let result = run::run(pipeline, &options);
    drop(listening);
    let mut report = result?;
    meter.forget_told(&mut report);
    execute::tell_losses(&report, shell);
    execute::tell_unmatched(&report, Origin::Flags, shell);
    Ok(execute::ending_of(&report, args.strict))
}
