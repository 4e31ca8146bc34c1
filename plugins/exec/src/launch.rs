//! Options of a program (command, folder, environment, timeout), and starting it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sluice_io::escape::printable;
use sluice_model::programs::Program;
use sluice_model::time::TimeSpan;
use sluice_model::{Error, RunHandle};

use crate::process::{Pipes, Process, StdinMode, display_text};

/// The placeholder for the input's path in arguments.
pub(crate) const INPUT: &str = "{input}";

/// The options of a program.
#[derive(Clone, Debug)]
pub(crate) struct LaunchOptions {
    pub(crate) command: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) timeout: TimeSpan,
}

/// The default of `timeout`.
pub(crate) fn timeout() -> TimeSpan {
    TimeSpan(60_000_000_000)
}

/// The default of `folder`.
pub(crate) fn here() -> PathBuf {
    PathBuf::from(".")
}

/// Parses the option `command`: a program and its arguments.
pub(crate) fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    checked(from, |command: &Vec<String>| match command.first() {
        None => Err("`command` is empty: expected a list of a program and its arguments".into()),
        Some(program) if program.is_empty() => Err("`command` names no program".into()),
        Some(_) if command.iter().any(|word| word.contains('\0')) => {
            Err("`command` contains a zero byte".into())
        }
        Some(_) => Ok(()),
    })
}

/// Parses the option `folder`.
pub(crate) fn folder<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    checked(from, |folder: &PathBuf| {
        let bytes = folder.as_os_str().as_encoded_bytes();
        if bytes.is_empty() {
            return Err("`folder` is empty; `.` is the folder of the pipeline file".into());
        }
        if bytes.contains(&0) {
            return Err("`folder` contains a zero byte".into());
        }
        Ok(())
    })
}

/// Parses the option `env`: variables by name.
pub(crate) fn variables<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    checked(from, |env: &BTreeMap<String, String>| {
        for (name, value) in env {
            if name.is_empty() {
                return Err("`env` has a variable without a name".into());
            }
            if name.contains('=') {
                return Err(format!("the variable `{name}` has a `=` in its name"));
            }
            if name.contains('\0') || value.contains('\0') {
                return Err(format!("the variable {name:?} contains a zero byte"));
            }
        }
        Ok(())
    })
}

/// A value that passes `check`, whose error is reported at the option's key.
fn checked<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
    check: impl Fn(&T) -> Result<(), String>,
) -> Result<T, D::Error> {
    let value = T::deserialize(from)?;
    check(&value).map_err(D::Error::custom)?;
    Ok(value)
}

impl LaunchOptions {
    /// How long it may be inactive; `None` for no limit.
    pub(crate) fn patience(&self) -> Option<Duration> {
        Some(self.timeout.duration()).filter(|limit| !limit.is_zero())
    }

    /// Starts the program, for this input if there is one.
    pub(crate) fn start(
        &self,
        input: Option<&Path>,
        stdin: StdinMode,
        talk: &RunHandle,
    ) -> Result<(Process, Pipes), Error> {
        let input = input.map(std::path::absolute).transpose();
        let input = input.map_err(|e| Error::io("find", &self.folder, e))?;
        let words: Vec<OsString> =
            self.command.iter().map(|word| fill_input(word, input.as_deref())).collect();
        let shown: Vec<_> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let command_line = command_line(&shown);
        let meta =
            std::fs::metadata(&self.folder).map_err(|e| Error::io("run in", &self.folder, e))?;
        if !meta.is_dir() {
            let what = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(Error::io("run in", &self.folder, what));
        }
        let (program, arguments) =
            words.split_first().ok_or_else(|| Error::internal("no command"))?;
        let mut command = Command::new(self.resolve_program(program)?);
        command.args(arguments).current_dir(&self.folder).envs(&self.env);
        // A process group of its own, so that it can be killed with all its children, and only by
        // us.
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        Process::start(command, stdin, command_line.clone(), self.patience(), talk)
            .map_err(|error| self.not_started(&command_line, &program.to_string_lossy(), error))
    }

    /// The path of the program. A relative path with a `/` is relative to the folder it runs in.
    fn resolve_program(&self, program: &OsStr) -> Result<PathBuf, Error> {
        if !program.as_encoded_bytes().contains(&b'/') {
            return Ok(PathBuf::from(program));
        }
        let place = std::path::absolute(self.folder.join(program));
        place.map_err(|e| Error::io("find", program, e))
    }

    fn not_started(&self, command_line: &str, program: &str, error: io::Error) -> Error {
        let is_path = program.contains('/');
        let why = match error.kind() {
            io::ErrorKind::NotFound if is_path => {
                format!(
                    "{program} does not exist in {}, or its first line names an interpreter that \
                     does not",
                    self.folder.display()
                )
            }
            io::ErrorKind::NotFound => {
                format!("the program `{program}` is not on the PATH")
            }
            io::ErrorKind::PermissionDenied if self.folder.join(program).is_dir() => {
                format!("{program} is a folder, not a program")
            }
            io::ErrorKind::PermissionDenied => {
                format!("{program} is not executable; `chmod +x` makes it so")
            }
            _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
                format!(
                    "{program} is not a program; a script needs a first line such as \
                         `#!/bin/sh`"
                )
            }
            _ => error.to_string(),
        };
        Error::refused(format!(
            "`{}` cannot be started: {}",
            display_text(command_line),
            printable(&why)
        ))
    }
}

/// An argument with the input's path filled in, byte by byte, so that any path works.
fn fill_input(word: &str, input: Option<&Path>) -> OsString {
    let Some(input) = input else { return word.into() };
    let mut filled = OsString::new();
    for (n, text) in word.split(INPUT).enumerate() {
        if n > 0 {
            filled.push(input);
        }
        filled.push(text);
    }
    filled
}

/// A command as typed in a shell.
pub(crate) fn command_line(words: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%{}".contains(c);
    let quoted = words.iter().map(|word| {
        let is_plain = !word.is_empty() && word.chars().all(plain);
        if is_plain { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// The program that a plugin of this family runs with these options.
pub(crate) fn program(options: &Value) -> Program {
    let words = options["command"].as_array().into_iter().flatten();
    let words: Vec<String> = words.filter_map(|word| word.as_str().map(str::to_owned)).collect();
    let folder = options["folder"].as_str().map_or_else(here, PathBuf::from);
    let named = words.iter().enumerate().filter(|(at, word)| *at > 0 || word.contains('/'));
    let files = named.map(|(_, word)| folder.join(word)).filter(|path| path.is_file());
    Program { line: command_line(&words), files: files.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::PluginKind;

    #[test]
    fn commands_are_shown_as_they_would_be_typed() {
        let words = ["sh", "-c", "echo it's", "", "a.py"].map(str::to_owned);
        assert_eq!(command_line(&words), r"sh -c 'echo it'\''s' '' a.py");
    }

    #[test]
    fn files_that_a_command_names_decide_what_it_does() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("keep.py"), "").unwrap();
        let options = serde_json::json!({
            "command": ["python3", "keep.py", "--least", "3"], "folder": folder.path(),
        });
        let program = program(&options);
        assert_eq!(program.line, "python3 keep.py --least 3");
        assert_eq!(program.files, [folder.path().join("keep.py")]);
    }

    #[test]
    fn arguments_have_the_path_of_the_input_byte_by_byte() {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let input = OsString::from_vec(b"/log\xff/a".to_vec());
        let filled = |word| fill_input(word, Some(Path::new(&input))).as_bytes().to_vec();
        assert_eq!(filled("{input}"), b"/log\xff/a");
        assert_eq!(filled("a={input},{input}"), b"a=/log\xff/a,/log\xff/a");
        assert_eq!(filled("plain"), b"plain");
        assert_eq!(fill_input("{input}", None), "{input}");
    }

    #[test]
    fn mistakes_are_reported_at_their_option() {
        let wrong = [
            ("command", serde_json::json!([])),
            ("command", serde_json::json!([""])),
            ("command", serde_json::json!(["a", "\0"])),
            ("folder", serde_json::json!("")),
            ("env", serde_json::json!({ "A=B": "x" })),
            ("env", serde_json::json!({ "": "x" })),
            ("env", serde_json::json!({ "A": "\0" })),
            ("timeout", serde_json::json!(-1)),
        ];
        let registry = sluice_model::Registry::linked();
        for kind in [PluginKind::Source, PluginKind::Stage] {
            let plugin = registry.get(kind, "exec").unwrap();
            for (key, value) in &wrong {
                let mut options = serde_json::json!({ "command": ["cat"] });
                options[key] = value.clone();
                let error = match kind {
                    PluginKind::Source => registry.source("exec", options).map(drop).unwrap_err(),
                    _ => registry.stage("exec", options).map(drop).unwrap_err(),
                };
                assert_eq!(error.path, [*key], "{kind} {value}: {error}");
                // Else they would be taken for what was expected.
                assert!(!error.message.starts_with("a "), "{error}");
            }
            let schema = (plugin.schema)();
            assert_eq!(schema.as_value()["properties"]["timeout"]["default"], "60s");
        }
    }
}
