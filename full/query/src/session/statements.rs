//! Refuses statements before they are planned: those that are no queries, and what DataFusion would
//! pass over. Plans nothing.

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::Statement;

use crate::refusals;

/// Refuses statements that are not queries before they are planned, and lists what is allowed.
pub(super) fn check_is_query(statement: &DfStatement) -> Result<()> {
    let what = match statement {
        DfStatement::Statement(statement) => match &**statement {
            Statement::Query(_)
            | Statement::ExplainTable { .. }
            | Statement::ShowTables { .. }
            | Statement::ShowColumns { .. }
            | Statement::ShowFunctions { .. }
            | Statement::ShowVariable { .. } => return Ok(()),
            Statement::Explain { statement, .. } if matches!(**statement, Statement::Query(_)) => {
                return Ok(());
            }
            other => first_words(&other.to_string()),
        },
        DfStatement::Explain(explain) => return check_is_query(&explain.statement),
        other => first_words(&other.to_string()),
    };
    Err(DataFusionError::Plan(format!(
        "`{what}` is not a query: only SELECT, WITH, VALUES, EXPLAIN, DESCRIBE and SHOW are \
         allowed, which change nothing"
    )))
}

fn first_words(statement: &str) -> String {
    let words: Vec<&str> = statement.split_whitespace().take(2).collect();
    words.join(" ").chars().take(60).collect()
}

/// Refuses clauses that DataFusion ignores.
pub(super) fn check_syntax(statement: &DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(statement) => {
            refusals::check_syntax(&**statement).map_err(DataFusionError::Plan)
        }
        DfStatement::Explain(explain) => check_syntax(&explain.statement),
        _ => Ok(()),
    }
}
