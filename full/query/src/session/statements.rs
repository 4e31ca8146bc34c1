//! Refuses statements before they are planned: those that are no queries, and what DataFusion would
//! pass over. Plans nothing.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Statement, TableFactor, Visit, Visitor};

/// Refuses statements that are not queries before they are planned, and lists what is allowed.
pub(super) fn check_is_query(statement: &DfStatement) -> Result<()> {
    let what = match statement {
        DfStatement::Statement(statement) => match &**statement {
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

/// Refuses TABLESAMPLE, which DataFusion parses and does not apply.
pub(super) fn check_samples(statement: &DfStatement) -> Result<()> {
    let has_sample = match statement {
        DfStatement::Statement(statement) => statement.visit(&mut SampleSearch).is_break(),
        DfStatement::Explain(explain) => return check_samples(&explain.statement),
        _ => false,
    };
    match has_sample {
        false => Ok(()),
        true => Err(DataFusionError::Plan(
            "TABLESAMPLE is not supported: `where sequence % 100 = 0` takes one row of a hundred"
                .to_owned(),
        )),
    }
}

struct SampleSearch;

impl Visitor for SampleSearch {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { sample: Some(_), .. }
            | TableFactor::Derived { sample: Some(_), .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}
