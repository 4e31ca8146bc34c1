//! `new`: makes the crate of a plugin that works, to be changed into another one. What is in it is in
//! `cli/templates`.

mod args;
mod checkout;
mod folder;
mod name;
mod template;

use std::path::PathBuf;

use serde_json::json;

use crate::ending::{Ending, Failure, Outcome};
use crate::out;
use crate::shell::Shell;

pub(crate) use args::NewArgs;

use args::NewKind;
use checkout::Checkout;

pub(crate) fn run(args: &NewArgs, shell: &Shell) -> Outcome {
    let NewArgs { kind, name, .. } = args;
    name::judge(name, kind.kind(), &shell.registry).map_err(Failure::WrongUse)?;
    let checkout = match &args.sluice {
        Some(path) => Checkout::named(path),
        None => Checkout::of_this_program(),
    };
    let checkout = checkout.map_err(Failure::WrongUse)?;
    let folder = args.to.clone().unwrap_or_else(|| PathBuf::from(name));
    let files = template::files(*kind, name, &checkout);
    folder::make(&folder, &files)?;
    if args.json {
        let paths: Vec<&str> = files.iter().map(|file| &file.path[..]).collect();
        let made = json!({ "kind": kind.kind().to_string(), "name": name, "folder": folder, "files": paths });
        out::json(&made.to_string())?;
    }
    shell.say(&next(*kind, name, &folder.to_string_lossy(), &checkout));
    Ok(Ending::Done)
}

/// What was made, and what to type now.
fn next(kind: NewKind, name: &str, folder: &str, checkout: &Checkout) -> String {
    let (kind, folder) = (kind.kind(), sluice_core::name::printable(folder));
    let root = checkout.root().to_string_lossy();
    let sluice = sluice_core::name::printable(&root);
    format!(
        "made the {kind} `{name}` in {folder}\n\n\
         \x20 cd {folder}\n\
         \x20 cargo test                      it keeps what every {kind} promises\n\
         \x20 cargo run -- run pipeline.toml  a pipeline with it\n\n\
         src/lib.rs is the plugin, README.md says how to make it yours\n\
         Sluice itself comes from {sluice}"
    )
}
