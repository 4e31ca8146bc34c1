//! Pipeline files as text, on disk or built in. Does not parse them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sluice_model::Error;
use toml::{Table, Value};

use super::messages::{did_you_mean, listed};
use crate::library;

/// Longer files are not pipeline files; most likely a log was named by mistake.
const LONGEST: u64 = 256 << 10;

/// A pipeline file as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its name in messages: the path as typed, or `quickstart (built in)`.
    pub name: String,
    /// The text.
    pub text: String,
    /// The file that holds it; relative paths are relative to its folder. `None` if it is in none:
    /// they are relative to the working folder.
    pub file: Option<PathBuf>,
    /// Options that nodes have unless the text gives them, as a command line adds them.
    pub presets: Vec<PresetOption>,
}

/// An option of every node of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetOption {
    /// The plugin.
    pub plugin: &'static str,
    /// The name of the option.
    pub name: &'static str,
    /// Its value.
    pub value: String,
}

impl Document {
    /// Opens the file of that name, otherwise the built-in pipeline of that name. Folders come
    /// last, because pipelines write to folders of their own names.
    pub fn open(path_or_library_name: &str) -> Result<Self, Error> {
        let path = Path::new(path_or_library_name);
        if path.exists() && !path.is_dir() {
            return Self::load(path);
        }
        match library::get(path_or_library_name) {
            Some(text) => Ok(Self::generated(format!("{path_or_library_name} (built in)"), text)),
            None if path.exists() => Self::load(path),
            None => Err(not_found(path_or_library_name)),
        }
    }

    /// A text that is not in a file. Its relative paths are relative to the working folder.
    pub fn generated(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), file: None, presets: Vec::new() }
    }

    /// Whether it names this variable, in a string or as the key of a condition.
    pub fn names_variable(&self, name: &str) -> bool {
        let is_tested = |when: &Value| match when {
            Value::Table(tests) => tests.contains_key(name),
            Value::Array(either) => either.iter().any(|tests| tests.get(name).is_some()),
            _ => false,
        };
        let is_referred_to = [format!("${{{name}}}"), format!("${{{name}:-")]
            .iter()
            .any(|reference| self.text.contains(reference));
        is_referred_to
            || self.text.parse::<Table>().is_ok_and(|file| {
                let nodes = file.values().filter_map(Value::as_table).flat_map(Table::values);
                nodes.filter_map(|node| node.get("when")).any(is_tested)
            })
    }

    fn load(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
        let read = file.take(LONGEST + 1).read_to_end(&mut bytes);
        read.map_err(|error| Error::io("read", path, error))?;
        if bytes.len() as u64 > LONGEST {
            return Err(Error::refused(format!("{name} is too long for a pipeline file: {LOG}")));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let before = error.as_bytes().iter().take(at);
            let line = before.filter(|byte| **byte == b'\n').count() + 1;
            let what = format!("line {line} is not UTF-8: save a pipeline file as UTF-8; {LOG}");
            Error::malformed(&name, at as u64, what)
        })?;
        Ok(Self { name, text, file: Some(path.to_owned()), presets: Vec::new() })
    }
}

const LOG: &str = "if it is a log, `sluice convert` reads it";

fn not_found(name: &str) -> Error {
    let names: Vec<&str> = library::names().collect();
    let hint =
        did_you_mean(name, &names).unwrap_or_else(|| listed("the built-in ones are", &names));
    Error::refused(format!("no file and no built-in pipeline is called `{name}`; {hint}"))
}
