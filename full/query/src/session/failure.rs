//! What can go wrong with a query, in words for whoever wrote it. Knows no table.

use std::fmt;

use datafusion::common::{DataFusionError, Diagnostic};
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::parser::ParserError;
use sluice_core::Error;

use super::identifiers;

/// Why a query gave no result, or not all of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The query is wrong: nothing was read for its result.
    #[error("{0}")]
    Wrong(Wrong),
    /// There was not enough memory. Seen only by those who plan or run without a [`Session`](super::Session)'s
    /// own functions, which say what to do.
    #[error("{0}")]
    Exhausted(String),
    /// Something else failed.
    #[error(transparent)]
    Failed(Error),
}

/// A mistake in a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong.
    pub what: String,
    /// Where, if that is known.
    pub place: Option<Place>,
    /// What to do, if that is known.
    pub help: Option<String>,
}

/// A place in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its line; the first is 1.
    pub line: usize,
    /// Its character in the line; the first is 1.
    pub column: usize,
}

impl Wrong {
    /// A mistake of which only this is known.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), place: None, help: None }
    }

    /// The bytes of the query that the place names: one word, or a character. Nothing without a place.
    pub fn span(&self, sql: &str) -> Option<std::ops::Range<usize>> {
        let Place { line, column } = self.place?;
        let start_of_line: usize =
            sql.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
        let rest = sql.get(start_of_line..)?;
        let before: usize = rest.chars().take(column.checked_sub(1)?).map(char::len_utf8).sum();
        let start = start_of_line + before;
        let word = sql.get(start..)?.chars().take_while(|c| c.is_alphanumeric() || *c == '_');
        let len: usize = word.map(char::len_utf8).sum();
        Some(start..(start + len.max(1)).min(sql.len()))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column }) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.what)?;
        self.help.iter().try_for_each(|help| write!(f, "; {help}"))
    }
}

impl From<Error> for QueryError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Failed(error) => error,
            QueryError::Wrong(wrong) => Self::unfit(wrong.to_string()),
            QueryError::Exhausted(what) => Self::refused(what),
        }
    }
}

impl QueryError {
    /// What DataFusion says, for people.
    pub fn of(error: DataFusionError) -> Self {
        let place = diagnostic(&error).and_then(place_of);
        match error {
            DataFusionError::External(inner) => match inner.downcast::<Error>() {
                Ok(error) => Self::Failed(*error),
                Err(other) => match other.downcast::<Self>() {
                    Ok(error) => *error,
                    Err(other) => {
                        Self::Failed(Error::refused(format!("the query failed: {other}")))
                    }
                },
            },
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                Self::of(*inner).at(place)
            }
            DataFusionError::Collection(all) => match all.into_iter().next() {
                Some(first) => Self::of(first),
                None => Self::Failed(Error::broken("an empty list of errors")),
            },
            DataFusionError::Shared(inner) => match std::sync::Arc::try_unwrap(inner) {
                Ok(error) => Self::of(error),
                Err(shared) => shared_error(&shared).at(place),
            },
            DataFusionError::SQL(parser, _) => Self::Wrong(not_sql(&parser)),
            error @ DataFusionError::SchemaError(..) => Self::Wrong(wrong_schema(&error)).at(place),
            DataFusionError::Plan(what) | DataFusionError::NotImplemented(what) => {
                Self::Wrong(Wrong::new(lowered(&what))).at(place)
            }
            DataFusionError::Configuration(what) => Self::Wrong(Wrong::new(lowered(&what))),
            DataFusionError::ResourcesExhausted(what) => Self::Exhausted(exhausted(&what)),
            DataFusionError::IoError(error) => {
                Self::Failed(Error::io("spill to", "temporary files", error))
            }
            // So it also calls what it cannot do with columns of some type.
            DataFusionError::Internal(what) => Self::Failed(Error::unfit(format!(
                "the query cannot be worked out: {}",
                lowered(&what)
            ))),
            other => Self::Failed(Error::unfit(format!(
                "the query failed: {}",
                lowered(&other.strip_backtrace())
            ))),
        }
    }

    fn at(self, place: Option<Place>) -> Self {
        match self {
            Self::Wrong(wrong) => Self::Wrong(Wrong { place: wrong.place.or(place), ..wrong }),
            other => other,
        }
    }
}

/// An error that others hold, too, cannot be taken apart: it is told again.
fn shared_error(error: &DataFusionError) -> QueryError {
    match error {
        DataFusionError::External(inner) => QueryError::Failed(Error::refused(inner.to_string())),
        DataFusionError::ResourcesExhausted(what) => QueryError::Exhausted(exhausted(what)),
        DataFusionError::Shared(inner) => shared_error(inner),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            shared_error(inner)
        }
        other => {
            let what = lowered(&other.strip_backtrace());
            QueryError::Failed(Error::unfit(format!("the query failed: {what}")))
        }
    }
}

/// Refuses what is no query, before it is planned: with a sentence that says what there is instead.
pub(super) fn expect_query(statement: &Parsed) -> Result<(), DataFusionError> {
    let what = match statement {
        Parsed::Statement(statement) => match &**statement {
            Statement::Query(query) if query.locks.is_empty() => return Ok(()),
            Statement::ExplainTable { .. }
            | Statement::ShowTables { .. }
            | Statement::ShowColumns { .. }
            | Statement::ShowFunctions { .. }
            | Statement::ShowVariable { .. } => return Ok(()),
            Statement::Explain { statement, .. } if matches!(**statement, Statement::Query(_)) => {
                return Ok(());
            }
            other => first_words(&other.to_string()),
        },
        Parsed::Explain(explain) => return expect_query(&explain.statement),
        other => first_words(&other.to_string()),
    };
    Err(DataFusionError::Plan(format!(
        "`{what}` is no query: only SELECT, WITH, VALUES, EXPLAIN, DESCRIBE and SHOW are allowed, which \
         change and write nothing"
    )))
}

fn first_words(statement: &str) -> String {
    let words: Vec<&str> = statement.split_whitespace().take(2).collect();
    words.join(" ").chars().take(60).collect()
}

fn diagnostic(error: &DataFusionError) -> Option<&Diagnostic> {
    match error {
        DataFusionError::Diagnostic(diagnostic, _) => Some(diagnostic),
        DataFusionError::Context(_, inner) => diagnostic(inner),
        DataFusionError::Shared(inner) => diagnostic(inner),
        DataFusionError::Collection(all) => all.first().and_then(diagnostic),
        _ => None,
    }
}

fn place_of(diagnostic: &Diagnostic) -> Option<Place> {
    let start = diagnostic.span?.start;
    let place = Place {
        line: usize::try_from(start.line).ok()?,
        column: usize::try_from(start.column).ok()?,
    };
    (place.line > 0 && place.column > 0).then_some(place)
}

fn not_sql(error: &ParserError) -> Wrong {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.as_str(),
        ParserError::RecursionLimitExceeded => "it is nested too deeply",
    };
    let (what, place) = split_place(text);
    Wrong { what: format!("this is no SQL: {}", lowered(what)), place, help: None }
}

/// The parser's words, and the place that stands behind them.
fn split_place(text: &str) -> (&str, Option<Place>) {
    let parsed = || {
        let (what, place) = text.rsplit_once(" at Line: ")?;
        let (line, column) = place.split_once(", Column: ")?;
        let place = Place { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? };
        Some((what, place))
    };
    parsed().map_or((text, None), |(what, place)| (what, Some(place)))
}

fn wrong_schema(error: &DataFusionError) -> Wrong {
    let Some((written, known)) = identifiers::missing(error) else {
        return Wrong::new(lowered(&error.strip_backtrace()));
    };
    let alike = nearest(&written, &known);
    let help = match alike {
        Some(name) => format!("there is `{name}`"),
        None if known.is_empty() => "there are no columns here".to_owned(),
        None => format!("there are: {}", listed(&known)),
    };
    Wrong { what: format!("there is no column `{written}`"), place: None, help: Some(help) }
}

/// The name that is most like one that is not there, if one is.
pub(crate) fn nearest<'n>(written: &str, known: &'n [String]) -> Option<&'n String> {
    let likeness =
        |name: &&String| strsim::jaro_winkler(&name.to_lowercase(), &written.to_lowercase());
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) > 0.8).then_some(best)
}

/// Names as text, the first of many.
pub(crate) fn listed(names: &[String]) -> String {
    const MOST: usize = 20;
    let mut shown =
        names.iter().take(MOST).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        shown += &format!(" and {} more", names.len() - MOST);
    }
    shown
}

fn exhausted(what: &str) -> String {
    let what = first_line(what);
    format!("the query needs more memory than it may use ({})", lowered(&what))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// As messages of this program begin: with a small letter, unless a name is meant.
fn lowered(text: &str) -> String {
    let text = first_line(text);
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_in_bytes_of_the_query() {
        let wrong = |line, column| Wrong { place: Some(Place { line, column }), ..Wrong::new("") };
        assert_eq!(wrong(2, 3).span("ä\nä word x"), Some(6..10));
        assert_eq!(wrong(1, 1).span("*"), Some(0..1));
        assert_eq!(wrong(9, 9).span("short"), Some(5..5));
        assert_eq!(Wrong::new("").span("x"), None);
    }

    #[test]
    fn what_the_parser_says_is_taken_apart() {
        let (what, place) = split_place("Expected: FROM, found: x at Line: 3, Column: 14");
        assert_eq!(
            (what, place),
            ("Expected: FROM, found: x", Some(Place { line: 3, column: 14 }))
        );
        assert_eq!(split_place("nothing").1, None);
    }
}
