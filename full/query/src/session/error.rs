//! Errors of queries, with messages for their authors.

use std::any::Any;

use arrow_schema::ArrowError;
use datafusion::common::{DataFusionError, Diagnostic};
use datafusion::sql::sqlparser::parser::ParserError;
use sluice_model::{Error, panics};

use super::identifiers;
use super::invalid_query::{InvalidQuery, QueryPosition, first_line, lower_first};
use super::planner_message::planner_message;

/// Why a query has no result, or not all of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The query is invalid. Nothing was read for its result.
    #[error("{0}")]
    Invalid(InvalidQuery),
    /// The memory limit was exceeded. Only plans that run outside of a [`Session`](super::Session)
    /// return this; a session adds advice.
    #[error("{0}")]
    OutOfMemory(String),
    /// Something else failed.
    #[error(transparent)]
    Failed(Error),
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
            QueryError::Invalid(invalid) => Self::invalid(invalid.to_string()),
            QueryError::OutOfMemory(what) => Self::refused(what),
        }
    }
}

/// Calls DataFusion, which panics on some queries.
pub(crate) fn catch_panics<T>(
    call: impl FnOnce() -> Result<T, DataFusionError>,
) -> Result<T, DataFusionError> {
    panics::catch(call).unwrap_or_else(|panic| {
        let message = panic_message(panics::message_of(&*panic));
        Err(DataFusionError::External(Box::new(Error::invalid(message))))
    })
}

/// What to do about a panic of DataFusion with this message.
fn panic_message(what: &str) -> String {
    if what.contains("offset overflow") {
        return "a column of a batch has more than 2 GiB: compute shorter values".to_owned();
    }
    format!(
        "the query cannot be executed: DataFusion panicked ({}); write it in another way",
        first_line(what)
    )
}

impl QueryError {
    /// Converts an error of DataFusion's planner, which also computes constants.
    pub(super) fn from_planner(error: DataFusionError) -> Self {
        let DataFusionError::ArrowError(arrow, _) = error.find_root() else {
            return Self::from_datafusion(error);
        };
        let (ArrowError::ParseError(what) | ArrowError::CastError(what)) = &**arrow else {
            return Self::from_datafusion(error);
        };
        let time = what.strip_prefix("Overflow converting ");
        let time = time.and_then(|rest| Some(rest.split_once(" to Nanosecond")?.0));
        Self::Invalid(match time {
            Some(time) => InvalidQuery {
                message: format!("`{time}` is out of range"),
                position: None,
                help: Some("times are between 1677-09-21 and 2262-04-11".to_owned()),
            },
            None => InvalidQuery::new(lower_first(what)),
        })
    }

    /// The error of a query that panicked, as Arrow does if a result does not fit into its types.
    pub(crate) fn from_panic(panic: &(dyn Any + Send)) -> Self {
        Self::Failed(Error::invalid(panic_message(panics::message_of(panic))))
    }

    /// Converts an error of DataFusion.
    pub fn from_datafusion(error: DataFusionError) -> Self {
        let position = diagnostic(&error).and_then(position_of);
        match error {
            DataFusionError::External(inner) => match inner.downcast::<Error>() {
                Ok(error) => Self::Failed(*error),
                Err(other) => match other.downcast::<Self>() {
                    Ok(error) => *error,
                    Err(other) => {
                        let lines = other.to_string();
                        let lines = lines.lines().map(str::trim).collect::<Vec<_>>().join(" ");
                        Self::Failed(Error::refused(format!("the query failed: {lines}")))
                    }
                },
            },
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                Self::from_datafusion(*inner).at(position)
            }
            DataFusionError::Collection(all) => match all.into_iter().next() {
                Some(first) => Self::from_datafusion(first),
                None => Self::Failed(Error::internal("an empty list of errors")),
            },
            DataFusionError::Shared(inner) => match std::sync::Arc::try_unwrap(inner) {
                Ok(error) => Self::from_datafusion(error),
                Err(shared) => shared_error(&shared).at(position),
            },
            DataFusionError::SQL(parser, _) => Self::Invalid(syntax_error(&parser)),
            error @ DataFusionError::SchemaError(..) => {
                Self::Invalid(schema_error(&error)).at(position)
            }
            DataFusionError::NotImplemented(what) if is_name(&what) => {
                Self::Invalid(InvalidQuery::new(format!("{what} is not supported"))).at(position)
            }
            DataFusionError::Plan(what) | DataFusionError::NotImplemented(what) => {
                Self::Invalid(planner_message(&what)).at(position)
            }
            DataFusionError::Configuration(what) => {
                Self::Invalid(InvalidQuery::new(lower_first(&what)))
            }
            DataFusionError::ResourcesExhausted(what) => Self::OutOfMemory(out_of_memory(&what)),
            DataFusionError::IoError(error) => {
                Self::Failed(Error::io("spill to", "temporary files", error))
            }
            // DataFusion also calls operations internal errors that a type does not support.
            DataFusionError::Internal(what) => Self::Failed(Error::invalid(format!(
                "the query cannot be executed: {}",
                lower_first(&what)
            ))),
            DataFusionError::Execution(what) => Self::Failed(failed(&what)),
            DataFusionError::ArrowError(arrow, _) => Self::Failed(match *arrow {
                ArrowError::ParseError(what)
                | ArrowError::CastError(what)
                | ArrowError::ComputeError(what)
                | ArrowError::ArithmeticOverflow(what)
                | ArrowError::InvalidArgumentError(what) => failed(&what),
                ArrowError::DivideByZero => failed("division by zero"),
                other => failed(&other.to_string()),
            }),
            other => Self::Failed(failed(&other.strip_backtrace())),
        }
    }

    fn at(self, position: Option<QueryPosition>) -> Self {
        match self {
            Self::Invalid(invalid) => {
                Self::Invalid(InvalidQuery { position: invalid.position.or(position), ..invalid })
            }
            other => other,
        }
    }
}

fn failed(what: &str) -> Error {
    Error::invalid(format!("the query failed: {}", lower_first(what)))
}

/// Whether a message is only the name of what is not supported, such as `TOP`.
fn is_name(what: &str) -> bool {
    !what.is_empty() && what.chars().all(|c| c.is_ascii_uppercase() || c == ' ')
}

/// Converts an error that has other owners, and so cannot be moved out.
fn shared_error(error: &DataFusionError) -> QueryError {
    match error {
        DataFusionError::External(inner) => QueryError::Failed(Error::refused(inner.to_string())),
        DataFusionError::ResourcesExhausted(what) => QueryError::OutOfMemory(out_of_memory(what)),
        DataFusionError::Shared(inner) => shared_error(inner),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            shared_error(inner)
        }
        DataFusionError::Execution(what) => QueryError::Failed(failed(what)),
        other => QueryError::Failed(failed(&other.strip_backtrace())),
    }
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

fn position_of(diagnostic: &Diagnostic) -> Option<QueryPosition> {
    let start = diagnostic.span?.start;
    let position = QueryPosition {
        line: usize::try_from(start.line).ok()?,
        column: usize::try_from(start.column).ok()?,
    };
    (position.line > 0 && position.column > 0).then_some(position)
}

fn syntax_error(error: &ParserError) -> InvalidQuery {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.as_str(),
        ParserError::RecursionLimitExceeded => "it is nested too deeply",
    };
    let (what, position) = split_position(text);
    if what.contains("MATCH_CONDITION") {
        let help = "write `last_value(v) ignore nulls over (order by timestamp)` over UNION ALL of \
                    both tables";
        let message = "ASOF JOIN is not supported".to_owned();
        return InvalidQuery { message, position, help: Some(help.to_owned()) };
    }
    InvalidQuery {
        message: format!("this is not valid SQL: {}", lower_first(what)),
        position,
        help: None,
    }
}

/// Splits a parser message into its text and its position.
fn split_position(text: &str) -> (&str, Option<QueryPosition>) {
    let parsed = || {
        let (what, position) = text.rsplit_once(" at Line: ")?;
        let (line, column) = position.split_once(", Column: ")?;
        let position =
            QueryPosition { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? };
        Some((what, position))
    };
    parsed().map_or((text, None), |(what, position)| (what, Some(position)))
}

fn schema_error(error: &DataFusionError) -> InvalidQuery {
    if let Some(name) = identifiers::same_name(error) {
        let message = format!("two columns are called `{name}`");
        let help = Some("give one of them, or of their tables, another name: `… as y`".to_owned());
        return InvalidQuery { message, position: None, help };
    }
    if let Some(name) = identifiers::same_expression(error) {
        let message = format!("two expressions differ only in casts or parentheses: `{name}`");
        let help = "compute one of them in a subquery in FROM: `(select *, x::int as y from t)`";
        return InvalidQuery { message, position: None, help: Some(help.to_owned()) };
    }
    if let Some(column) = identifiers::same_column(error) {
        let message = format!("two columns are called `{column}`");
        let help = "give one table another name, `from t, t as u`, and group by each column once";
        return InvalidQuery { message, position: None, help: Some(help.to_owned()) };
    }
    let Some((written, known)) = identifiers::missing_column(error) else {
        return InvalidQuery::new(lower_first(&error.strip_backtrace()));
    };
    if written.is_empty() {
        let help = (!known.is_empty()).then(|| format!("there are: {}", name_list(&known)));
        let message = "the name of a column is empty".to_owned();
        return InvalidQuery { message, position: None, help };
    }
    let similar = nearest(&written, &known);
    let help = match similar {
        Some(name) => format!("there is `{name}`"),
        None if known.is_empty() => "there are no columns here".to_owned(),
        None => format!("there are: {}", name_list(&known)),
    };
    InvalidQuery {
        message: format!("there is no column `{written}`"),
        position: None,
        help: Some(help),
    }
}

/// The most similar name, if it is similar enough.
pub(crate) fn nearest<'n>(written: &str, known: &'n [String]) -> Option<&'n String> {
    let likeness =
        |name: &&String| strsim::jaro_winkler(&name.to_lowercase(), &written.to_lowercase());
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) > 0.8).then_some(best)
}

/// A list of names, shortened if there are many.
pub(crate) fn name_list(names: &[String]) -> String {
    const MOST: usize = 20;
    let mut shown =
        names.iter().take(MOST).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        shown += &format!(" and {} more", names.len() - MOST);
    }
    shown
}

fn out_of_memory(message: &str) -> String {
    let message = first_line(message);
    format!("the query needs more memory than it may use ({})", lower_first(&message))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::session::{Session, SessionOptions};

    #[test]
    fn a_name_alone_is_what_is_not_supported() {
        let top = QueryError::from_datafusion(DataFusionError::NotImplemented("TOP".to_owned()));
        assert_eq!(top.to_string(), "TOP is not supported");
    }

    #[test]
    fn what_cannot_be_planned_is_invalid() {
        let session = Session::new(SessionOptions::default()).unwrap();
        for (call, says) in [
            ("n['a']", "cannot access field"),
            ("named_struct('a')", "named_struct requires an even number of arguments"),
            ("arrow_cast(n, 'Foo')", "unsupported type 'Foo'"),
        ] {
            let sql = format!("select {call} from (select 1 as n)");
            let planned = session.plan(&sql, &AtomicBool::new(false));
            let Err(QueryError::Invalid(invalid)) = planned else { panic!("{planned:?}") };
            assert!(invalid.message.starts_with(says), "{invalid}");
        }
    }

    #[test]
    fn the_position_is_split_from_a_parser_message() {
        let (what, position) = split_position("Expected: FROM, found: x at Line: 3, Column: 14");
        assert_eq!(
            (what, position),
            ("Expected: FROM, found: x", Some(QueryPosition { line: 3, column: 14 }))
        );
        assert_eq!(split_position("nothing").1, None);
    }
}
