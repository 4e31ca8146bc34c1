//! Tab completion: keywords, functions, and names of tables, channels and columns. Reads no logs:
//! channels are known once a query has discovered them.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};
use sluice_io::escape::printable;
use sluice_query::session::Session;
use sluice_query::table::LogTables;

use super::input::{is_command, is_whole};
use super::names::quoted;

const COMMANDS: [&str; 7] = [".format", ".help", ".quit", ".schema", ".tables", ".to", ".types"];

const KEYWORDS: [&str; 52] = [
    "all",
    "and",
    "as",
    "asc",
    "between",
    "by",
    "case",
    "cast",
    "count",
    "cross join",
    "desc",
    "describe",
    "distinct",
    "else",
    "end",
    "except",
    "exists",
    "explain",
    "extract",
    "false",
    "from",
    "full join",
    "group by",
    "having",
    "in",
    "inner join",
    "intersect",
    "interval",
    "is",
    "join",
    "lag",
    "left join",
    "like",
    "limit",
    "not",
    "null",
    "offset",
    "on",
    "or",
    "order by",
    "over",
    "partition by",
    "select",
    "then",
    "timestamp",
    "true",
    "union",
    "union all",
    "unnest",
    "using",
    "when",
    "where",
];

/// The columns of every log.
const COLUMNS: [&str; 5] = ["timestamp", "source", "channel", "sequence", "payload"];

/// The most columns to remember.
const MAX_COLUMNS: usize = 10_000;

/// The known words.
#[derive(Clone)]
pub(super) struct Vocabulary {
    logs: Vec<(String, Arc<LogTables>)>,
    functions: Vec<String>,
    columns: BTreeSet<String>,
}

impl Vocabulary {
    pub(super) fn from_session(session: &Session) -> Self {
        let names = session.log_names().into_iter();
        let logs = names.filter_map(|name| Some((name.clone(), session.log(&name)?)));
        let state = session.context().state();
        let functions = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
        let functions: BTreeSet<String> =
            functions.chain(state.window_functions().keys()).cloned().collect();
        Self {
            logs: logs.collect(),
            functions: functions.into_iter().collect(),
            columns: COLUMNS.map(str::to_owned).into(),
        }
    }

    /// Adds columns.
    pub(super) fn learn(&mut self, columns: impl IntoIterator<Item = String>) {
        let free = MAX_COLUMNS.saturating_sub(self.columns.len());
        self.columns.extend(columns.into_iter().take(free));
    }

    /// The start of the word at the cursor, and its completions.
    fn complete(&self, line: &str, cursor: usize) -> (usize, Vec<String>) {
        let before = line.get(..cursor).unwrap_or(line);
        if is_command(before) && !before.trim_start().contains(char::is_whitespace) {
            let start = before.len() - before.trim_start().len();
            let word = before.trim_start();
            let fits = COMMANDS.iter().filter(|command| command.starts_with(word));
            return (start, fits.map(|command| (*command).to_owned()).collect());
        }
        let parts = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '"' | '-'));
        let start = before.rfind(parts).map_or(0, |at| {
            at + before.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
        });
        let word = before.get(start..).unwrap_or_default();
        if before.get(..start).is_some_and(|front| front.ends_with('\'')) {
            return (start, self.channels(word));
        }
        (start, self.words(word))
    }

    /// Names of channels, as in string literals.
    fn channels(&self, word: &str) -> Vec<String> {
        let all = self.logs.iter().flat_map(|(_, log)| log.known_channels());
        let fits = all
            .filter(|name| starts_with_ignoring_case(name, word))
            .map(|name| name.replace('\'', "''"));
        typeable(fits.collect())
    }

    fn words(&self, word: &str) -> Vec<String> {
        let mut found: BTreeSet<String> = BTreeSet::new();
        for (name, log) in &self.logs {
            let name = quoted(name);
            if starts_with_ignoring_case(word, &format!("{name}.")) {
                let channels = log.known_channels().into_iter();
                found.extend(channels.map(|channel| format!("{name}.{}", quoted(&channel))));
            }
            found.insert(name);
        }
        found.extend(self.columns.iter().map(|column| quoted(column)));
        if !word.is_empty() {
            found.extend(self.functions.iter().map(|function| format!("{function}(")));
            // In capitals if the word was started so.
            let shouts = word.chars().all(|c| !c.is_lowercase());
            let spelled = |keyword: &&str| {
                if shouts { keyword.to_uppercase() } else { (*keyword).to_owned() }
            };
            found.extend(KEYWORDS.iter().map(spelled));
        }
        found.retain(|name| starts_with_ignoring_case(name, word));
        typeable(found)
    }
}

/// Only names that can be typed as shown.
fn typeable(mut found: BTreeSet<String>) -> Vec<String> {
    found.retain(|name| *name == printable(name));
    found.into_iter().collect()
}

fn starts_with_ignoring_case(name: &str, word: &str) -> bool {
    name.get(..word.len()).is_some_and(|front| front.eq_ignore_ascii_case(word))
}

/// The helper of the line editor.
pub(super) struct PromptHelper(pub(super) Vocabulary);

impl Helper for PromptHelper {}
impl Highlighter for PromptHelper {}

impl Hinter for PromptHelper {
    type Hint = String;
}

impl Completer for PromptHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.0.complete(line, cursor))
    }
}

impl Validator for PromptHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match is_whole(context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

#[cfg(test)]
mod tests {
    use sluice_model::Registry;
    use sluice_model::{Error, Input, ReadContext, Reader, Source, Split, SplitStart};
    use sluice_query::session::SessionOptions;

    use super::*;

    struct EmptySource;

    impl Source for EmptySource {
        fn inputs(&self) -> Result<Vec<Input>, Error> {
            Ok(Vec::new())
        }

        fn read<'s>(
            &'s self,
            _: &Split,
            _: SplitStart,
            _: &ReadContext,
        ) -> Result<Box<dyn Reader + 's>, Error> {
            Ok(Box::new(std::iter::empty()))
        }
    }

    fn vocabulary() -> Vocabulary {
        let session = Session::new(SessionOptions::default()).unwrap();
        for name in ["drive", "2007-11-03"] {
            let log = LogTables::new(Box::new(EmptySource), "log", &Registry::linked());
            session.add_log(name, log.into()).unwrap();
        }
        Vocabulary::from_session(&session)
    }

    fn completed(line: &str) -> (usize, Vec<String>) {
        vocabulary().complete(line, line.len())
    }

    #[test]
    fn names_keywords_functions_and_commands_are_completed() {
        assert_eq!(completed("select * from dri"), (14, vec!["drive".into()]));
        assert_eq!(completed("select * from \"20"), (14, vec!["\"2007-11-03\"".into()]));
        assert_eq!(completed(".ta"), (0, vec![".tables".into()]));
        assert_eq!(completed("select sequ"), (7, vec!["sequence".into()]));
        assert_eq!(completed("WHER"), (0, vec!["WHERE".into()]));
        assert_eq!(completed("select (gro"), (8, vec!["group by".into(), "grouping(".into()]));
        assert_eq!(completed("select 'PO"), (8, vec![]));
        assert_eq!(completed("é dri"), (3, vec!["drive".into()]));
    }

    #[test]
    fn columns_of_earlier_results_are_completed() {
        let mut vocabulary = vocabulary();
        vocabulary.learn(["vel_x".to_owned(), "odd name".to_owned(), "a\u{1}b".to_owned()]);
        assert_eq!(vocabulary.complete("select vel", 10).1, ["vel_x"]);
        assert_eq!(vocabulary.complete("select \"odd", 11).1, ["\"odd name\""]);
        assert_eq!(vocabulary.complete("select \"a", 9).1, Vec::<String>::new());
    }
}
