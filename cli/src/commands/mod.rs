//! The verbs, one a module. What several share is in `execute` and in the modules beside this one.

pub(crate) mod batch;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod execute;
pub(crate) mod graph;
pub(crate) mod hub;
pub(crate) mod info;
pub(crate) mod man;
pub(crate) mod merge_manifests;
pub(crate) mod new;
mod outline;
pub(crate) mod plan;
pub(crate) mod play;
pub(crate) mod plugins;
pub(crate) mod record;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod shared_names;
pub(crate) mod spy;
pub(crate) mod types;
pub(crate) mod verify;

use sluice_pipeline::{Document, Outline, Pipeline, Variables};

use crate::args::SetArgs;
use crate::ending::Failure;
use crate::shell::Shell;

/// The pipeline in this file, or the built-in one of that name.
fn pipeline(file: &str, set: &SetArgs, shell: &Shell) -> Result<Pipeline, Failure> {
    let document = document(file)?;
    tell_unused(&document, set, shell);
    Ok(Pipeline::read(&document, &variables(set), &shell.registry)?)
}

/// Warns of variables that were set but that the file does not mention.
fn tell_unused(document: &Document, set: &SetArgs, shell: &Shell) {
    for name in unused(document, set) {
        shell.warn(&format!("nothing in {} asks for the variable `{name}`", document.name));
    }
}

/// Says which variables have no value. Nothing runs without one, but much can be shown.
fn tell_unset(pipeline: &Outline, shell: &Shell) {
    if let Some(first) = pipeline.unset.first() {
        let names: Vec<String> = pipeline.unset.iter().map(|name| format!("`{name}`")).collect();
        shell.warn(&format!(
            "without a value, and shown as ${{NAME}}: {}; give values with --set {first}=… or in the \
             environment",
            names.join(", ")
        ));
    }
}

/// A file that is not there is wrong use: nothing has been tried yet.
fn document(file: &str) -> Result<Document, Failure> {
    Document::open(file).map_err(|error| Failure::WrongUse(error.to_string()))
}

fn variables(set: &SetArgs) -> Variables {
    let given = set.set.iter().map(|given| (given.name.clone(), given.value.clone()));
    Variables { set: given.collect(), environment: true }
}

/// The variables that were set but that the file does not mention.
fn unused<'s>(document: &Document, set: &'s SetArgs) -> Vec<&'s str> {
    let mentions = |name: &str| {
        [format!("${{{name}}}"), format!("${{{name}:-")]
            .iter()
            .any(|use_| document.text.contains(use_))
    };
    set.set.iter().map(|given| given.name.as_str()).filter(|name| !mentions(name)).collect()
}
