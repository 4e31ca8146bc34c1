//! `new`: creates the crate of a working plugin, to be adapted. The files are in `cli/templates`.

mod args;
mod checkout;
mod folder;
mod name;
mod template;

use std::path::PathBuf;

use serde_json::json;
use sluice_io::escape::path_text;

use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::shell::Shell;
use crate::stdout;

pub(crate) use args::NewArgs;

use args::NewKind;
use checkout::Checkout;

pub(crate) fn run(args: &NewArgs, shell: &Shell) -> CommandResult {
    let NewArgs { kind, name, .. } = args;
    name::check(name, kind.kind(), &shell.registry).map_err(Failure::Usage)?;
    let checkout = match &args.sluice {
        Some(path) => Checkout::open(path),
        None => Checkout::of_current_program(),
    };
    let checkout = checkout.map_err(Failure::Usage)?;
    let folder = args.to.clone().unwrap_or_else(|| PathBuf::from(name));
    let files = template::files(*kind, name, &checkout);
    folder::create(&folder, &files)?;
    if args.json {
        let paths: Vec<&str> = files.iter().map(|file| &file.path[..]).collect();
        let kind = kind.kind().to_string();
        let made =
            json!({ "kind": kind, "name": name, "folder": path_text(&folder), "files": paths });
        stdout::json(&made.to_string(), shell)?;
    }
    shell.info(&next_steps(*kind, name, &folder.to_string_lossy(), &checkout));
    Ok(ExitStatus::Done)
}

/// What was created, and the next steps.
fn next_steps(kind: NewKind, name: &str, folder: &str, checkout: &Checkout) -> String {
    let (kind, folder) = (kind.kind(), sluice_io::escape::printable(folder));
    let root = checkout.root().to_string_lossy();
    let sluice = sluice_io::escape::printable(&root);
    format!(
        "created the {kind} `{name}` in {folder}\n\n\
         \x20 cd {folder}\n\
         \x20 cargo test                      the contract of every {kind}\n\
         \x20 cargo run -- run pipeline.toml  a pipeline with it\n\n\
         src/lib.rs is the plugin, README.md says how to adapt it\n\
         it depends on Sluice in {sluice}"
    )
}
