//! Columns that options declare, as `CREATE TABLE` has them: `lat double, name varchar`. Makes no table.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{CreateTable, Statement as Sql};
use futures::executor::block_on;

use super::plan::{Planner, repeated, with_room};

/// How deeply types may lie in one another.
const MOST_NESTED: usize = 20;

/// Longer lists are refused.
const MOST_BYTES: usize = 16 << 10;

/// The columns of a list. `Err` says what is wrong with it.
pub(super) fn columns(list: &str, planner: &Planner) -> Result<SchemaRef> {
    with_room(|| {
        let made = parsed(list)?;
        let names = made.columns.iter().map(|column| column.name.value.clone());
        if let Some(name) = repeated(names) {
            return Err(wrong(&format!("the column `{name}` is declared twice")));
        }
        let (config, runtime) = (planner.config.clone(), Arc::clone(&planner.runtime));
        let state = SessionContext::new_with_config_rt(config, runtime).state();
        let statement = Statement::Statement(Box::new(Sql::CreateTable(made)));
        let LogicalPlan::Ddl(table) = block_on(state.statement_to_plan(statement))? else {
            return Err(no_list());
        };
        let inputs = table.inputs();
        let schema = inputs.first().ok_or_else(no_list)?.schema();
        let fields = schema.fields().iter();
        let fields = fields.map(|field| Arc::new(field.as_ref().clone().with_nullable(true)));
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    })
}

fn parsed(list: &str) -> Result<CreateTable> {
    if list.len() > MOST_BYTES {
        return Err(wrong(&format!("the list is longer than {MOST_BYTES} bytes")));
    }
    let text = format!("create table t ({list})");
    let parser = DFParserBuilder::new(text.as_str()).with_recursion_limit(MOST_NESTED).build();
    let mut statements = parser.and_then(|mut parser| parser.parse_statements())?;
    let statement = match (statements.pop_front(), statements.is_empty()) {
        (Some(Statement::Statement(statement)), true) => *statement,
        _ => return Err(no_list()),
    };
    match statement {
        Sql::CreateTable(made)
            if !made.columns.is_empty() && made.query.is_none() && made.constraints.is_empty() =>
        {
            Ok(made)
        }
        _ => Err(no_list()),
    }
}

fn no_list() -> DataFusionError {
    wrong("a list of columns with types is needed")
}

fn wrong(what: &str) -> DataFusionError {
    DataFusionError::Plan(what.to_owned())
}
