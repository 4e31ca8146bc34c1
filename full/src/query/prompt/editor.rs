//! The interactive prompt: a line editor with a history.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Behavior, CompletionType, Config, Editor};

use super::completion::PromptHelper;
use super::{PromptAction, Repl};
use crate::query::interrupt::QueryInterrupt;
use crate::query::logs::Logs;
use crate::query::out::OutputTarget;
use crate::query::user_folder;
use sluice::extension::{CommandResult, ExitStatus, Failure, Shell};

const PROMPT: &str = "sluice> ";

/// The most lines in the history.
const MAX_HISTORY: usize = 5_000;

/// Runs the prompt until it is closed. Errors are shown and do not end it.
pub(in crate::query) fn run_prompt(logs: &Logs, to: OutputTarget, shell: &Shell) -> CommandResult {
    let interrupt = QueryInterrupt::for_prompt();
    let mut repl = Repl::new(logs, to, &interrupt, shell);
    repl.shows_times = true;
    let mut prompt = Prompt::open(&repl, shell)?;
    let names = logs.session.log_names();
    let names: Vec<String> = names.iter().map(|name| super::quoted(name)).collect();
    shell.info(&format!("tables: {}; see .help", names.join(", ")));
    loop {
        // Reset before reading: Ctrl-C after a statement is meant for that statement.
        interrupt.reset();
        let Some(text) = prompt.read(&repl)? else { break };
        match repl.execute(&text) {
            Ok(PromptAction::Quit) => break,
            Ok(PromptAction::Continue | PromptAction::Failed) => {}
            Err(Failure::StdoutClosed) => return Err(Failure::StdoutClosed),
            Err(failure) => failure.report(shell),
        }
    }
    // The user has seen the messages.
    Ok(ExitStatus::Done)
}

struct Prompt {
    editor: Editor<PromptHelper, FileHistory>,
    /// The history file, unless it is unusable.
    history: Option<PathBuf>,
}

impl Prompt {
    fn open(repl: &Repl<'_>, shell: &Shell) -> Result<Self, Failure> {
        let mut config = Config::builder()
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .max_history_size(MAX_HISTORY)
            .map_err(prompt_error)?;
        if !io::stdout().is_terminal() {
            // Rows go elsewhere: do not mix the prompt into them.
            config = config.behavior(Behavior::PreferTerm);
        }
        let mut editor = Editor::with_config(config.build()).map_err(prompt_error)?;
        editor.set_helper(Some(PromptHelper(repl.vocabulary.clone())));
        let mut history = history();
        if let Some(path) = history.as_ref().filter(|path| path.exists())
            && let Err(error) = editor.load_history(path)
        {
            shell.info(&format!("note: the history cannot be read: {}: {error}", path.display()));
            history = None;
        }
        Ok(Self { editor, history })
    }

    /// The next input; `None` at the end.
    fn read(&mut self, repl: &Repl<'_>) -> Result<Option<String>, Failure> {
        if let Some(helper) = self.editor.helper_mut() {
            helper.0 = repl.vocabulary.clone();
        }
        loop {
            match self.editor.readline(PROMPT) {
                Ok(text) => {
                    self.remember(&text);
                    return Ok(Some(text));
                }
                // Ctrl-C discards the line.
                Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => {}
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(prompt_error(error)),
            }
        }
    }

    /// Saves a line at once, so that a killed program loses nothing. Errors are ignored.
    fn remember(&mut self, text: &str) {
        let added = self.editor.add_history_entry(text).unwrap_or(false);
        if let Some(path) = self.history.as_ref().filter(|_| added) {
            drop(self.editor.append_history(path));
        }
    }
}

/// The path of the history file. Creates its folder.
fn history() -> Option<PathBuf> {
    let folder = user_folder::state()?;
    fs::create_dir_all(&folder).ok()?;
    Some(folder.join("query_history"))
}

#[expect(clippy::needless_pass_by_value, reason = "used in map_err")]
fn prompt_error(error: ReadlineError) -> Failure {
    Failure::Failed(format!("the prompt cannot be shown: {error}"))
}
