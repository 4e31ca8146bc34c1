//! The REPL: executes statements and dot commands one after another, from a prompt or a pipe.

mod completion;
mod editor;
mod input;
mod names;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ValueEnum;
use sluice::extension::{ExitStatus, Failure, Shell, log_message, pluralize, print_types};
use sluice_io::escape::printable;
use sluice_query::statements::{Statement, Statements};

use super::args::RowFormat;
use super::diagnostic::SqlText;
use super::execute;
use super::interrupt::QueryInterrupt;
use super::logs::Logs;
use super::out::OutputTarget;
use completion::Vocabulary;
pub(super) use editor::run_prompt;
pub(super) use input::{is_command, is_whole};
use names::quoted;

const HELP: &str = "\
Statements end with a semicolon and may take several lines. Tab completes names, Ctrl-C discards
a line or stops a query, Ctrl-D quits.

.tables          list the tables of logs and channels; reads each log once
.schema TABLE    show the columns of a table
.types           show the types that messages are decoded by
.format [FORMAT] set how rows are shown: table, csv, json or jsonl
.to FILE         write the rows of the next statement to .parquet, .arrow, .csv, .json or .jsonl
.help            show this help
.quit            quit
";

/// What to do after an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptAction {
    /// Read the next input.
    Continue,
    /// It was invalid, which was reported.
    Failed,
    /// Exit.
    Quit,
}

/// Executes statements and commands.
pub(super) struct Repl<'a> {
    logs: &'a Logs,
    to: OutputTarget,
    /// The target of the next statement.
    next_to: Option<OutputTarget>,
    /// Whether a statement has written to `to`.
    has_written: bool,
    interrupt: &'a QueryInterrupt,
    shell: &'a Shell,
    /// Whether to show how long each statement took.
    shows_times: bool,
    /// The words for completion.
    vocabulary: Vocabulary,
    worst: ExitStatus,
    answers: u64,
}

impl<'a> Repl<'a> {
    pub(super) fn new(
        logs: &'a Logs,
        to: OutputTarget,
        interrupt: &'a QueryInterrupt,
        shell: &'a Shell,
    ) -> Self {
        Self {
            logs,
            to,
            next_to: None,
            has_written: false,
            interrupt,
            shell,
            shows_times: false,
            vocabulary: Vocabulary::from_session(&logs.session),
            worst: ExitStatus::Done,
            answers: 0,
        }
    }

    /// The worst ending so far.
    pub(super) fn ending(&self) -> ExitStatus {
        self.worst
    }

    /// Runs a command or statements; stops at the first that is invalid or fails.
    pub(super) fn execute(&mut self, text: &str) -> Result<PromptAction, Failure> {
        if is_command(text) {
            return self.run_command(text.trim());
        }
        let source = SqlText { name: "query", text };
        for statement in Statements::split(text).all {
            if self.run_statement(&statement, source)? == PromptAction::Failed {
                return Ok(PromptAction::Failed);
            }
        }
        Ok(PromptAction::Continue)
    }

    fn run_statement(
        &mut self,
        statement: &Statement<'_>,
        source: SqlText<'_>,
    ) -> Result<PromptAction, Failure> {
        self.logs.refresh()?;
        let next_to = self.next_to.take();
        // People can read several arrays of JSON.
        let is_shown = !self.to.is_file() && self.to.format() == RowFormat::Json;
        if next_to.is_none() && self.to.takes_one_result() && !is_shown && self.has_written {
            let what =
                "the output takes the rows of one statement: use .to FILE for those of another";
            return Err(Failure::Usage(what.into()));
        }
        let to = next_to.as_ref().unwrap_or(&self.to);
        let to = if self.answers > 0 { &to.after_others() } else { to };
        to.check()?;
        self.answers += 1;
        let answer =
            execute::execute(statement, source, self.logs, to, self.interrupt.flag(), self.shell)?;
        let Some(answer) = answer else { return Ok(PromptAction::Failed) };
        self.has_written |= next_to.is_none();
        self.worst = self.worst.max(answer.ending);
        if self.shows_times || to.is_file() {
            let rows = pluralize(answer.output.rows, "row");
            let wrote = if to.is_file() {
                format!("; wrote {}", to.path().display())
            } else {
                String::new()
            };
            self.shell.info(&format!("{rows} in {:.3} s{wrote}", answer.took.as_secs_f64()));
        }
        self.vocabulary.learn(answer.columns);
        Ok(PromptAction::Continue)
    }

    fn run_command(&mut self, command: &str) -> Result<PromptAction, Failure> {
        let (verb, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim().trim_end_matches(';').trim_end();
        match verb.trim_end_matches(';') {
            ".quit" | ".exit" | ".q" => return Ok(PromptAction::Quit),
            ".help" => io::stdout().write_all(HELP.as_bytes())?,
            ".tables" => self.show_tables()?,
            ".schema" if !rest.is_empty() => return self.show_schema(rest),
            ".schema" => return Ok(self.command_error("expected a table: .schema TABLE")),
            ".types" => return self.show_types(),
            ".format" => return self.choose_format(rest),
            ".to" => return self.choose_file(rest),
            _ => {
                let verb = printable(verb);
                return Ok(self.command_error(&format!("unknown command `{verb}`: see .help")));
            }
        }
        Ok(PromptAction::Continue)
    }

    fn command_error(&self, what: &str) -> PromptAction {
        self.shell.error(what);
        PromptAction::Failed
    }

    fn show_tables(&self) -> Result<(), Failure> {
        self.logs.refresh()?;
        let session = &self.logs.session;
        let mut out = String::new();
        for name in session.log_names() {
            let Some(log) = session.log(&name) else { continue };
            let table = quoted(&name);
            out += &format!("{}\n", printable(&table));
            for channel in log.channels_until(self.interrupt.flag())? {
                out += &format!("{}\n", printable(&format!("{table}.{}", quoted(&channel))));
            }
        }
        Ok(io::stdout().write_all(out.as_bytes())?)
    }

    fn show_schema(&mut self, table: &str) -> Result<PromptAction, Failure> {
        self.logs.refresh()?;
        let text = format!("select * from {table}");
        let (source, statement) =
            (SqlText { name: "query", text: &text }, Statement { start: 0, text: &text });
        let stop = self.interrupt.flag();
        let Some(schema) = execute::columns(&statement, source, self.logs, stop, self.shell)?
        else {
            return Ok(PromptAction::Failed);
        };
        let names = schema.fields().iter().map(|field| quoted(field.name()));
        let names: Vec<String> = names.map(|name| printable(&name).into_owned()).collect();
        let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(40);
        let mut out = String::new();
        for (name, field) in names.iter().zip(schema.fields()) {
            let kind = field.data_type().to_string();
            out += &format!("{name:widest$}  {}\n", printable(&kind));
        }
        io::stdout().write_all(out.as_bytes())?;
        self.vocabulary.learn(schema.fields().iter().map(|field| field.name().clone()));
        Ok(PromptAction::Continue)
    }

    fn show_types(&self) -> Result<PromptAction, Failure> {
        if self.logs.types.is_empty() {
            log_message("no types: use --types to decode messages");
            return Ok(PromptAction::Continue);
        }
        let files = self.logs.types.iter().map(PathBuf::from).collect();
        print_types(files, false, self.shell)?;
        Ok(PromptAction::Continue)
    }

    fn choose_format(&mut self, word: &str) -> Result<PromptAction, Failure> {
        let name = |format: &RowFormat| {
            format.to_possible_value().map(|value| value.get_name().to_owned())
        };
        if word.is_empty() {
            writeln!(io::stdout(), "{}", name(&self.to.format()).unwrap_or_default())?;
            return Ok(PromptAction::Continue);
        }
        let Ok(format) = RowFormat::from_str(word, true) else {
            let all: Vec<String> = RowFormat::value_variants().iter().filter_map(name).collect();
            let word = printable(word);
            return Ok(self.command_error(&format!(
                "unknown format `{word}`: expected one of {}",
                all.join(", ")
            )));
        };
        self.to = self.to.with_format(format);
        Ok(PromptAction::Continue)
    }

    fn choose_file(&mut self, path: &str) -> Result<PromptAction, Failure> {
        let path = path.trim_matches(['\'', '"']);
        if path.is_empty() {
            return Ok(self.command_error("expected a file: .to FILE"));
        }
        let to = self.to.with_path(path)?;
        to.check()?;
        self.next_to = Some(to);
        Ok(PromptAction::Continue)
    }
}
