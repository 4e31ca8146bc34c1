//! Parses declared columns in the syntax of `CREATE TABLE`: `lat double, name varchar`.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{CreateTable, Statement as Sql};
use futures::executor::block_on;

use super::plan::{Planner, first_duplicate};
use crate::session::with_deep_stack;

/// How deeply types may be nested.
const MAX_DEPTH: usize = 20;

/// Longer lists are refused.
const MAX_BYTES: usize = 16 << 10;

/// Parses a list of columns.
pub(super) fn parse_columns(list: &str, planner: &Planner) -> Result<SchemaRef> {
    with_deep_stack(|| {
        let table = parse_create_table(list)?;
        let names = table.columns.iter().map(|column| column.name.value.clone());
        if let Some(name) = first_duplicate(names) {
            return Err(plan_error(&format!("the column `{name}` is declared twice")));
        }
        let (config, runtime) = (planner.config.clone(), Arc::clone(&planner.runtime));
        let state = SessionContext::new_with_config_rt(config, runtime).state();
        let statement = Statement::Statement(Box::new(Sql::CreateTable(table)));
        let LogicalPlan::Ddl(ddl) = block_on(state.statement_to_plan(statement))? else {
            return Err(not_a_list());
        };
        let inputs = ddl.inputs();
        let schema = inputs.first().ok_or_else(not_a_list)?.schema();
        let fields = schema.fields().iter();
        let fields = fields.map(|field| Arc::new(field.as_ref().clone().with_nullable(true)));
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    })
    .flatten()
}

fn parse_create_table(list: &str) -> Result<CreateTable> {
    if list.len() > MAX_BYTES {
        return Err(plan_error(&format!("the list is longer than {MAX_BYTES} bytes")));
    }
    let text = format!("create table t ({list})");
    let parser = DFParserBuilder::new(text.as_str()).with_recursion_limit(MAX_DEPTH).build();
    let mut statements = parser.and_then(|mut parser| parser.parse_statements())?;
    let statement = match (statements.pop_front(), statements.is_empty()) {
        (Some(Statement::Statement(statement)), true) => *statement,
        _ => return Err(not_a_list()),
    };
    match statement {
        Sql::CreateTable(table)
            if !table.columns.is_empty()
                && table.query.is_none()
                && table.constraints.is_empty() =>
        {
            Ok(table)
        }
        _ => Err(not_a_list()),
    }
}

fn not_a_list() -> DataFusionError {
    plan_error("expected a list of columns with types")
}

fn plan_error(what: &str) -> DataFusionError {
    DataFusionError::Plan(what.to_owned())
}
