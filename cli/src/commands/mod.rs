//! The verbs, one module each. Shared code is in `execute` and beside this module.

pub(crate) mod batch;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod check_log;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod execute;
pub(crate) mod generated;
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
pub(crate) mod report;
mod report_file;
pub(crate) mod run;
pub(crate) mod schema;
mod shared_names;
pub(crate) mod spy;
pub(crate) mod types;
pub(crate) mod verify;

use sluice_pipeline::{Document, Outline, Pipeline, Variables};

use crate::args::SetArgs;
use crate::exit::Failure;
use crate::shell::Shell;

/// Reads a pipeline file, or the built-in pipeline of that name.
fn pipeline(file: &str, set: &SetArgs, shell: &Shell) -> Result<Pipeline, Failure> {
    read(&document(file)?, set, shell)
}

fn read(document: &Document, set: &SetArgs, shell: &Shell) -> Result<Pipeline, Failure> {
    warn_unused(&[document], set, shell);
    Ok(Pipeline::read(document, &variables(set), &shell.registry)?)
}

/// Warns of variables that were set but occur in none of the files.
fn warn_unused(documents: &[&Document], set: &SetArgs, shell: &Shell) {
    let files: Vec<&str> = documents.iter().map(|document| document.name.as_str()).collect();
    let is_used = |name: &str| documents.iter().any(|document| document.names_variable(name));
    let names = set.set.iter().map(|given| given.name.as_str());
    for name in names.filter(|name| !documents.is_empty() && !is_used(name)) {
        shell.warn(&format!("the variable `{name}` is not used in {}", files.join(" or ")));
    }
}

/// Warns of variables without a value. The pipeline can be shown, but not run.
fn warn_unset(pipeline: &Outline, shell: &Shell) {
    if let Some(first) = pipeline.unset.first() {
        let names: Vec<String> = pipeline.unset.iter().map(|name| format!("`{name}`")).collect();
        shell.warn(&format!(
            "without a value, shown as ${{NAME}}: {}; set them with --set {first}=… or in the \
             environment",
            names.join(", ")
        ));
    }
}

/// Opens a pipeline file. A missing file is a usage error.
fn document(file: &str) -> Result<Document, Failure> {
    Document::open(file).map_err(|error| Failure::Usage(error.to_string()))
}

fn variables(set: &SetArgs) -> Variables {
    let given = set.set.iter().map(|given| (given.name.clone(), given.value.clone()));
    Variables { set: given.collect(), environment: true }
}
