//! Pipelines with plugins in Python, for a program that has no Python in it: the Python of the
//! environment runs them, with the package `sluice-logs`, in place of this process.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{self, Path, PathBuf};
use std::process::{Command, Stdio};

use sluice_model::{Error, PluginKind};
use sluice_pipeline::PresetOption;

use crate::args::BuiltInVerb;
use crate::exit::{CommandResult, Failure};
use crate::shell::Shell;

const PLUGIN: &str = "python";

/// Whether a verb needs Python, and this program has none in it.
pub(crate) fn has_to_run(verb: &BuiltInVerb, shell: &Shell) -> bool {
    let is_wanted = matches!(verb, BuiltInVerb::Run(args) if args.python.is_some());
    is_wanted && shell.registry.get(PluginKind::Stage, PLUGIN).is_none()
}

/// The option of nodes that name no file of plugins.
pub(crate) fn file_option(file: &Path) -> Result<PresetOption, Failure> {
    // Relative to the working folder, unlike those in pipeline files.
    let path = path::absolute(file).map_err(|error| Error::io("open", file, error))?;
    let path = path.to_str().ok_or_else(|| {
        Failure::Usage(format!("--python: expected a path in UTF-8: {}", file.display()))
    })?;
    Ok(PresetOption { plugin: PLUGIN, name: "file", value: path.to_owned() })
}

/// Runs these arguments of the program by a Python. Returns only if there is none for them.
pub(crate) fn run_instead(arguments: &[OsString]) -> CommandResult {
    let python = find(&candidates())?;
    let error = Command::new(&python).args(["-P", "-m", "sluice"]).args(arguments).exec();
    Err(Error::io("start", &python, error).into())
}

/// The Pythons to try: beside this program, and on the path.
fn candidates() -> Vec<PathBuf> {
    let beside = env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent).map(|folder| folder.join("python3"));
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|folder| folder.join("python3"));
    beside.into_iter().chain(on_path).filter(|python| python.is_file()).collect()
}

/// The first of them that has the package in this version.
fn find(candidates: &[PathBuf]) -> Result<PathBuf, Failure> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let mut found = None;
    for python in candidates {
        match version_of_package(python) {
            Some(version) if version == VERSION => return Ok(python.clone()),
            Some(version) => {
                found.get_or_insert(format!(
                    "{} has sluice-logs {version}, and this program is {VERSION}",
                    python.display()
                ));
            }
            None => {}
        }
    }
    let why = found.unwrap_or_else(|| match candidates {
        [] => "there is no `python3` beside this program or on PATH".to_owned(),
        [first, ..] => format!("{} has no package `sluice-logs`", first.display()),
    });
    Err(Failure::Usage(format!(
        "plugins in Python need one that has the package: {why}; install it with `python3 -m pip \
         install sluice-logs=={VERSION}`"
    )))
}

/// The version of the package that a Python has.
fn version_of_package(python: &Path) -> Option<String> {
    // The working folder may have files named as modules are.
    let script = "import sluice, sluice._native; print(sluice.__version__)";
    let mut command = Command::new(python);
    command.args(["-P", "-c", script]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
