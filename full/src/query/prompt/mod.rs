//! A conversation: statements and commands that come one after another, typed or through a pipe. Where they are
//! typed is `editor`'s business.

mod completion;
mod editor;
mod names;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ValueEnum;
use sluice::extension::{Ending, Failure, Shell, many, print_types, tell};
use sluice_core::name::printable;

use super::args::Form;
use super::ask;
use super::logs::Logs;
use super::out::To;
use super::statements::{self, Statement};
use super::stopping::Stopping;
use super::wrong::Text;
use completion::Vocabulary;
pub(super) use editor::talk;
use names::quoted;

const HELP: &str = "\
A statement ends with a semicolon and may take several lines. Tab completes names, Ctrl-C gives up a line or
ends a query, Ctrl-D ends.

.tables          tables, and those of channels; reads logs once for that
.schema TABLE    the columns of a table
.types           the types that messages are decoded by
.format [FORM]   how rows are shown: table, csv or jsonl
.to FILE         where the rows of the next statement go: .parquet, .arrow, .csv or .jsonl
.help            this
.quit            the end
";

/// What comes after something was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// More.
    More,
    /// It was wrong, and that has been said.
    Wrong,
    /// Nothing.
    Quit,
}

/// Statements and commands, heard one after another.
pub(super) struct Conversation<'a> {
    logs: &'a Logs,
    to: To,
    /// Where the rows of the next statement go.
    once: Option<To>,
    stopping: &'a Stopping,
    shell: &'a Shell,
    /// Whether it is said how long each answer took.
    tells_times: bool,
    /// What is known to be completed.
    vocabulary: Vocabulary,
    worst: Ending,
    answers: u64,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(logs: &'a Logs, to: To, stopping: &'a Stopping, shell: &'a Shell) -> Self {
        Self {
            logs,
            to,
            once: None,
            stopping,
            shell,
            tells_times: false,
            vocabulary: Vocabulary::of(&logs.session),
            worst: Ending::Done,
            answers: 0,
        }
    }

    /// The worst ending of all statements so far.
    pub(super) fn ending(&self) -> Ending {
        self.worst
    }

    /// Obeys a command, or asks statements, up to the first that is wrong or fails.
    pub(super) fn hear(&mut self, text: &str) -> Result<Next, Failure> {
        if is_command(text) {
            return self.obey(text.trim());
        }
        let whole = Text { name: "query", text };
        for statement in statements::all(text) {
            if self.ask(&statement, whole)? == Next::Wrong {
                return Ok(Next::Wrong);
            }
        }
        Ok(Next::More)
    }

    fn ask(&mut self, statement: &Statement<'_>, whole: Text<'_>) -> Result<Next, Failure> {
        self.logs.look_anew()?;
        let once = self.once.take();
        let to = once.as_ref().unwrap_or(&self.to);
        let to = if self.answers > 0 { &to.behind_others() } else { to };
        to.judge()?;
        self.answers += 1;
        let answer = ask::ask(statement, whole, self.logs, to, self.stopping.raised(), self.shell)?;
        let Some(answer) = answer else { return Ok(Next::Wrong) };
        self.worst = self.worst.max(answer.ending);
        if self.tells_times || to.is_file() {
            let rows = many(answer.written.rows, "row");
            let wrote = if to.is_file() {
                format!("; wrote {}", to.path().display())
            } else {
                String::new()
            };
            self.shell.say(&format!("{rows} in {:.3} s{wrote}", answer.took.as_secs_f64()));
        }
        self.vocabulary.learn(answer.columns);
        Ok(Next::More)
    }

    fn obey(&mut self, command: &str) -> Result<Next, Failure> {
        let (verb, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim().trim_end_matches(';').trim_end();
        match verb.trim_end_matches(';') {
            ".quit" | ".exit" | ".q" => return Ok(Next::Quit),
            ".help" => io::stdout().write_all(HELP.as_bytes())?,
            ".tables" => self.show_tables()?,
            ".schema" if !rest.is_empty() => return self.show_schema(rest),
            ".schema" => return Ok(self.wrong("say of which table: .schema TABLE")),
            ".types" => return self.show_types(),
            ".format" => return self.choose_form(rest),
            ".to" => return self.choose_file(rest),
            _ => {
                let verb = printable(verb);
                return Ok(self.wrong(&format!("there is no command `{verb}`: see .help")));
            }
        }
        Ok(Next::More)
    }

    fn wrong(&self, what: &str) -> Next {
        self.shell.error(what);
        Next::Wrong
    }

    fn show_tables(&self) -> Result<(), Failure> {
        self.logs.look_anew()?;
        let session = &self.logs.session;
        let mut out = String::new();
        for name in session.log_names() {
            let Some(log) = session.log(&name) else { continue };
            let table = quoted(&name);
            out += &format!("{}\n", printable(&table));
            for channel in log.channels_until(self.stopping.raised())? {
                out += &format!("{}\n", printable(&format!("{table}.{}", quoted(&channel))));
            }
        }
        Ok(io::stdout().write_all(out.as_bytes())?)
    }

    fn show_schema(&mut self, table: &str) -> Result<Next, Failure> {
        let text = format!("select * from {table}");
        let (whole, statement) =
            (Text { name: "query", text: &text }, Statement { start: 0, text: &text });
        let stop = self.stopping.raised();
        let Some(schema) = ask::columns(&statement, whole, self.logs, stop, self.shell)? else {
            return Ok(Next::Wrong);
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
        Ok(Next::More)
    }

    fn show_types(&self) -> Result<Next, Failure> {
        if self.logs.types.is_empty() {
            tell("no types were given: --types says by which messages are decoded");
            return Ok(Next::More);
        }
        let files = self.logs.types.iter().map(PathBuf::from).collect();
        print_types(files, false, self.shell)?;
        Ok(Next::More)
    }

    fn choose_form(&mut self, word: &str) -> Result<Next, Failure> {
        let name = |form: &Form| form.to_possible_value().map(|value| value.get_name().to_owned());
        if word.is_empty() {
            writeln!(io::stdout(), "{}", name(&self.to.form()).unwrap_or_default())?;
            return Ok(Next::More);
        }
        let Ok(form) = Form::from_str(word, true) else {
            let all: Vec<String> = Form::value_variants().iter().filter_map(name).collect();
            let word = printable(word);
            return Ok(self.wrong(&format!("there is no form `{word}`: {}", all.join(", "))));
        };
        self.to = self.to.with(form);
        Ok(Next::More)
    }

    fn choose_file(&mut self, path: &str) -> Result<Next, Failure> {
        let path = path.trim_matches(['\'', '"']);
        if path.is_empty() {
            return Ok(self.wrong("say into which file: .to FILE"));
        }
        let to = self.to.elsewhere(path)?;
        to.judge()?;
        self.once = Some(to);
        Ok(Next::More)
    }
}

/// Whether it is a command rather than SQL.
pub(super) fn is_command(text: &str) -> bool {
    text.trim_start().starts_with('.')
}

/// Whether nothing more has to come before it can be heard.
pub(super) fn is_whole(text: &str) -> bool {
    if is_command(text) {
        return true;
    }
    let mut rest = text;
    while let Some((_, behind)) = statements::first(rest) {
        rest = behind;
    }
    // A comment may not be over yet.
    rest.trim().is_empty() || (statements::is_blank(rest) && !rest.contains("/*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_whole_ends_with_a_semicolon_or_is_a_command() {
        for whole in [".tables", "", " \n", "select 1;", "select ';' ; ", "a; -- b", "-- a\n"] {
            assert!(is_whole(whole), "{whole}");
        }
        for open in ["select 1", "select 1; select 2", "select ';", "/* ;", "a; /* b"] {
            assert!(!is_whole(open), "{open}");
        }
    }
}
