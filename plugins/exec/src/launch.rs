//! What options say of a program: its command, where it runs and how long it may be silent; and starting it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use sluice_core::Error;
use sluice_core::programs::{Program, Talk};
use sluice_core::time::Length;

use crate::process::{Pipes, Process};

/// What stands for the input's path in arguments.
pub(crate) const INPUT: &str = "{input}";

/// A program as options say it.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) command: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) timeout: Length,
}

/// Whether a program gets anything on its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    Yes,
    No,
}

/// How long a program may be silent where options do not say it.
pub(crate) fn timeout() -> Length {
    Length(60_000_000_000)
}

/// The folder in which programs run where nobody says it.
pub(crate) fn here() -> PathBuf {
    PathBuf::from(".")
}

impl Launch {
    /// `Err` says what no program can be.
    pub(crate) fn judge(&self) -> Result<(), String> {
        match self.command.first() {
            None => {
                Err("`command` is a list of a program and its arguments, and this is empty".into())
            }
            Some(program) if program.is_empty() => Err("`command` names no program".into()),
            Some(_) if self.timeout.0 < 0 => Err("`timeout` is below 0; 0 means no limit".into()),
            Some(_) if self.has_zero() => Err("a program cannot be given a zero byte".into()),
            Some(_) => Ok(()),
        }
    }

    fn has_zero(&self) -> bool {
        let pairs = self.env.iter().flat_map(|(name, value)| [name, value]);
        let named = self.env.keys().all(|name| !name.is_empty() && !name.contains('='));
        !named || self.command.iter().chain(pairs).any(|text| text.contains('\0'))
    }

    /// How long it may neither take nor give anything; nothing if there is no limit.
    pub(crate) fn patience(&self) -> Option<Duration> {
        Some(self.timeout.duration()).filter(|limit| !limit.is_zero())
    }

    /// Starts it, at work on this input if there is one.
    pub(crate) fn start(
        &self,
        input: Option<&Path>,
        fed: Fed,
        talk: &Talk,
    ) -> Result<(Process, Pipes), Error> {
        let input = input.map(std::path::absolute).transpose();
        let input = input.map_err(|e| Error::io("find", &self.folder, e))?;
        let fill = |text: &String| match &input {
            Some(path) => text.replace(INPUT, &path.to_string_lossy()),
            None => text.clone(),
        };
        let words: Vec<String> = self.command.iter().map(fill).collect();
        let line = line(&words);
        let meta =
            std::fs::metadata(&self.folder).map_err(|e| Error::io("run in", &self.folder, e))?;
        if !meta.is_dir() {
            let what = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(Error::io("run in", &self.folder, what));
        }
        let (program, arguments) =
            words.split_first().ok_or_else(|| Error::broken("no command"))?;
        let mut command = Command::new(self.place_of(program)?);
        command.args(arguments).current_dir(&self.folder).envs(&self.env);
        // A group of its own: it is ended with all it starts, and only by us.
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        Process::start(command, fed, line.clone(), self.patience(), talk)
            .map_err(|error| self.not_started(&line, program, error))
    }

    /// Where a program lies: beside the others of the folder it runs in, if it is named by a path.
    fn place_of(&self, program: &str) -> Result<PathBuf, Error> {
        if !program.contains('/') {
            return Ok(PathBuf::from(program));
        }
        let place = std::path::absolute(self.folder.join(program));
        place.map_err(|e| Error::io("find", program, e))
    }

    fn not_started(&self, line: &str, program: &str, error: io::Error) -> Error {
        let is_path = program.contains('/');
        let why = match error.kind() {
            io::ErrorKind::NotFound if is_path => {
                format!(
                    "there is no {program} in {}, or what its first line names",
                    self.folder.display()
                )
            }
            io::ErrorKind::NotFound => {
                format!("there is no program `{program}` on the path (PATH)")
            }
            io::ErrorKind::PermissionDenied => {
                format!("{program} may not be executed; `chmod +x` allows it")
            }
            _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
                format!("{program} is no program; a script begins with a line such as `#!/bin/sh`")
            }
            _ => error.to_string(),
        };
        Error::refused(format!("`{line}` cannot be started: {why}"))
    }
}

/// A command as people would type it.
pub(crate) fn line(words: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%{}".contains(c);
    let quoted = words.iter().map(|word| {
        let is_plain = !word.is_empty() && word.chars().all(plain);
        if is_plain { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// What a plugin of this family runs with these options.
pub(crate) fn program(options: &Value) -> Program {
    let words = options["command"].as_array().into_iter().flatten();
    let words: Vec<String> = words.filter_map(|word| word.as_str().map(str::to_owned)).collect();
    let folder = options["folder"].as_str().map_or_else(here, PathBuf::from);
    let named = words.iter().enumerate().filter(|(at, word)| *at > 0 || word.contains('/'));
    let files = named.map(|(_, word)| folder.join(word)).filter(|path| path.is_file());
    Program { line: line(&words), files: files.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_they_would_be_typed() {
        let words = ["sh", "-c", "echo it's", "", "a.py"].map(str::to_owned);
        assert_eq!(line(&words), r"sh -c 'echo it'\''s' '' a.py");
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
}
