//! An error in a query, with its position.

use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::session::{QueryError, QueryPosition};

/// An error in a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SqlMistake {
    message: String,
    position: Option<QueryPosition>,
}

impl SqlMistake {
    /// An error without a position.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), position: None }
    }

    /// An error at a position.
    pub(crate) fn at(span: Span, message: impl Into<String>) -> Self {
        let number = |number: u64| usize::try_from(number).ok().filter(|number| *number > 0);
        let position = number(span.start.line).zip(number(span.start.column));
        let position = position.map(|(line, column)| QueryPosition { line, column });
        Self { message: message.into(), position }
    }

    /// Converts an error of the parser.
    pub(crate) fn from_parser(error: DataFusionError) -> Self {
        let too_deep = |error: &DataFusionError| match error {
            DataFusionError::SQL(parser, _) => {
                matches!(**parser, ParserError::RecursionLimitExceeded)
            }
            _ => false,
        };
        if too_deep(&error) {
            return Self::new("it is nested too deeply");
        }
        Self::from_planner(error)
    }

    /// Converts an error of the planner.
    pub(crate) fn from_planner(error: DataFusionError) -> Self {
        match QueryError::from_datafusion(error) {
            QueryError::Invalid(invalid) => {
                let help = invalid.help.map(|help| format!("; {help}")).unwrap_or_default();
                Self { message: invalid.message + &help, position: invalid.position }
            }
            other => Self::new(other.to_string()),
        }
    }

    /// The message and position, and the line of the query with a caret below.
    pub(crate) fn render(&self, text: &str) -> String {
        /// Characters shown on either side of the caret.
        const AROUND: usize = 60;
        let Some(QueryPosition { line, column }) = self.position else {
            return self.message.clone();
        };
        let Some(shown) = text.lines().nth(line - 1) else { return self.message.clone() };
        let skipped = column.saturating_sub(AROUND + 1);
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let shown: String = shown.chars().map(clean).skip(skipped).take(2 * AROUND).collect();
        let indent = " ".repeat(column - 1 - skipped);
        format!("at line {line}, column {column}: {}\n\n  {shown}\n  {indent}^", self.message)
    }
}
