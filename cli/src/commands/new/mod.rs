//! `new`: makes the crate of a plugin that works, to be changed into another one. What is in it is in
//! `cli/templates`.

mod args;
mod checkout;
mod folder;
mod name;
mod template;

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;

use crate::ending::{Ending, Failure, Outcome};
use crate::shell::Shell;

pub(crate) use args::NewArgs;

use args::NewKind;
use checkout::Origin;

pub(crate) fn run(args: &NewArgs, shell: &Shell) -> Outcome {
    let NewArgs { kind, name, .. } = args;
    name::judge(name, kind.kind(), &shell.registry).map_err(Failure::WrongUse)?;
    let origin = match &args.sluice {
        Some(path) => Origin::named(path).map_err(Failure::WrongUse)?,
        None => Origin::of_program(std::env::current_exe().ok().as_deref()),
    };
    let folder = args.to.clone().unwrap_or_else(|| PathBuf::from(name));
    let files = template::files(*kind, name, &origin);
    folder::make(&folder, &files)?;
    if args.json {
        let paths: Vec<&str> = files.iter().map(|file| &file.path[..]).collect();
        let made = json!({ "kind": kind.kind().to_string(), "name": name, "folder": folder, "files": paths });
        writeln!(io::stdout(), "{made}")?;
    }
    shell.say(&next(*kind, name, &folder.to_string_lossy(), &origin));
    Ok(Ending::Done)
}

/// What was made, and what to type now.
fn next(kind: NewKind, name: &str, folder: &str, origin: &Origin) -> String {
    let (kind, folder) = (kind.kind(), sluice_core::name::printable(folder));
    let from = match origin {
        Origin::Checkout(root) => format!("Sluice itself comes from {}", root.display()),
        Origin::Version(version) => format!(
            "Sluice itself is version {version}; `--sluice PATH` would take it from a checkout"
        ),
    };
    format!(
        "made the {kind} `{name}` in {folder}\n\n\
         \x20 cd {folder}\n\
         \x20 cargo test                      it keeps what every {kind} promises\n\
         \x20 cargo run -- run pipeline.toml  a pipeline with it\n\n\
         src/lib.rs is the plugin, README.md says how to make it yours\n{from}"
    )
}
