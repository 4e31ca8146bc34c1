//! Gets statements from the arguments, a file, stdin or the prompt, and runs them.

use std::io::{self, BufRead, IsTerminal, Read};
use std::path::Path;

use sluice::extension::{CommandResult, ExitStatus, Failure, Shell, pluralize};
use sluice_model::Error;
use sluice_query::statements::Statements;

use super::args::QueryArgs;
use super::arguments::QueryArguments;
use super::diagnostic::SqlText;
use super::execute;
use super::interrupt::QueryInterrupt;
use super::logs::Logs;
use super::out::OutputTarget;
use super::prompt::{self, PromptAction, Repl};

/// The longest text, in bytes.
const MAX_QUERY_BYTES: u64 = 1 << 20;

/// The byte order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

pub(crate) fn run(args: &QueryArgs, shell: &Shell) -> CommandResult {
    let QueryArguments { query, logs: named } =
        QueryArguments::parse(&args.words, args.file.is_some());
    let reads_stdin = named.iter().any(|log| log.path == "-");
    let text = match (&args.file, query) {
        (Some(file), _) => Some((file.display().to_string(), read(file, reads_stdin)?)),
        (None, Some(query)) => Some(("query".to_owned(), query)),
        (None, None) => None,
    };
    if text.is_none() && named.is_empty() {
        let what = "expected a query or a log, such as: sluice query \"select count(*) from \
                    drive\" drive.lcm";
        return Err(Failure::Usage(what.into()));
    }
    if text.is_none() && reads_stdin {
        let what = "standard input cannot be both the query and a log: name one of them";
        return Err(Failure::Usage(what.into()));
    }
    // Check the arguments before reading anything.
    OutputTarget::from_args(args, Vec::new())?;
    let logs = Logs::open(args, &named, shell)?;
    let to = OutputTarget::from_args(args, logs.files.clone())?;
    match text {
        Some((name, text)) => script(SqlText { name: &name, text: &text }, &logs, &to, shell),
        None if io::stdin().is_terminal() => prompt::run_prompt(&logs, to, shell),
        // It takes the rows of one statement: read all before the first is executed.
        None if to.takes_one_result() => {
            let text = read(Path::new("-"), false)?;
            script(SqlText { name: "query", text: &text }, &logs, &to, shell)
        }
        None => read_statements(&logs, to, shell),
    }
}

/// Runs all statements of a text, up to the first that is invalid or fails.
fn script(text: SqlText<'_>, logs: &Logs, to: &OutputTarget, shell: &Shell) -> CommandResult {
    let statements = Statements::split(text.text).all;
    if statements.is_empty() {
        return Err(Failure::Usage(format!("there is no statement in {}", text.name)));
    }
    let count = statements.len();
    if count > 1 && to.is_file() {
        return Err(Failure::Usage(format!(
            "a file takes the rows of one statement, but there are {count}: {}",
            to.path().display()
        )));
    }
    if count > 1 && to.takes_one_result() {
        return Err(Failure::Usage(format!(
            "formats other than table, csv and jsonl take the rows of one statement, but there \
             are {count}: use one of these, or run each statement with its own --to"
        )));
    }
    to.check()?;
    let interrupt = QueryInterrupt::for_program();
    let mut worst = ExitStatus::Done;
    for (at, statement) in statements.iter().enumerate() {
        let to = if at > 0 { &to.after_others() } else { to };
        let answer = execute::execute(statement, text, logs, to, interrupt.flag(), shell)
            .map_err(|failure| interrupt.with_exit_code(failure))?;
        worst = worst.max(execute::ending(answer.as_ref())?);
        let Some(answer) = answer else { return Ok(worst) };
        if to.is_file() {
            let (rows, seconds) = (pluralize(answer.output.rows, "row"), answer.took.as_secs_f64());
            shell.info(&format!("{rows} in {seconds:.2} s; wrote {}", to.path().display()));
        }
    }
    Ok(worst)
}

/// Runs the statements on stdin as they arrive.
fn read_statements(logs: &Logs, to: OutputTarget, shell: &Shell) -> CommandResult {
    let interrupt = QueryInterrupt::for_program();
    let mut repl = Repl::new(logs, to, &interrupt, shell);
    let mut stdin = io::stdin().lock();
    let (mut buffered, mut is_first) = (String::new(), true);
    loop {
        let mut line = Vec::new();
        let read = stdin.by_ref().take(MAX_QUERY_BYTES + 1).read_until(b'\n', &mut line);
        let is_over = read.map_err(|e| Error::io("read", "-", e))? == 0;
        if std::mem::take(&mut is_first) && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        let line = String::from_utf8(line).map_err(|_| not_text("standard input"))?;
        buffered += &line;
        if buffered.len() as u64 > MAX_QUERY_BYTES {
            return Err(too_long("standard input"));
        }
        let may_be_whole = line.contains(';') || prompt::is_command(&buffered);
        let is_whole = is_over || (may_be_whole && prompt::is_whole(&buffered));
        if !is_whole {
            continue;
        }
        let action = repl.execute(&std::mem::take(&mut buffered));
        match action.map_err(|failure| interrupt.with_exit_code(failure))? {
            PromptAction::Continue if !is_over => {}
            PromptAction::Continue | PromptAction::Quit => return Ok(repl.ending()),
            PromptAction::Failed => return Ok(ExitStatus::InvalidPipelines),
        }
    }
}

/// Reads the text of a file, or of stdin.
fn read(file: &Path, stdin_is_log: bool) -> Result<String, Failure> {
    let name = file.display().to_string();
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        if stdin_is_log {
            let what = "standard input cannot be both the query and a log";
            return Err(Failure::Usage(what.into()));
        }
        io::stdin().lock().take(MAX_QUERY_BYTES + 1).read_to_end(&mut bytes)
    } else {
        let open = std::fs::File::open(file).map_err(|e| Error::io("open", file, e))?;
        open.take(MAX_QUERY_BYTES + 1).read_to_end(&mut bytes)
    };
    read.map_err(|e| Error::io("read", file, e))?;
    if bytes.len() as u64 > MAX_QUERY_BYTES {
        return Err(too_long(&name));
    }
    // Some editors begin a file with a byte order mark.
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|_| not_text(&name))
}

fn too_long(name: &str) -> Failure {
    Failure::Usage(format!("the query is longer than {MAX_QUERY_BYTES} bytes: {name}"))
}

fn not_text(name: &str) -> Failure {
    Failure::Usage(format!("the query is not UTF-8: {name}"))
}
