//! Columns that are written in another case than they have. Looks up no table.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::common::{Column, DataFusionError, SchemaError};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, visit_expressions_mut};

/// The word of a column that is not there as it is written, and the only one that is called alike but for
/// its case: the column's name, or that of its table.
pub(super) fn other_case(error: &DataFusionError) -> Option<(String, String)> {
    let (column, known) = not_found(error)?;
    let names = known.iter().map(Column::name);
    let by_name = ignoring_case(column.name(), names);
    by_name.or_else(|| {
        let tables = known.iter().filter_map(|known| Some(known.relation.as_ref()?.table()));
        ignoring_case(column.relation.as_ref()?.table(), tables)
    })
}

/// The only one of these that is `written`, but for its case. Nothing, if one is written just so.
fn ignoring_case<'n>(
    written: &str,
    known: impl Iterator<Item = &'n str>,
) -> Option<(String, String)> {
    let known: BTreeSet<&str> = known.collect();
    let mut matches = known.iter().filter(|name| name.to_lowercase() == written.to_lowercase());
    let first = matches.next().filter(|_| !known.contains(written))?;
    matches.next().is_none().then(|| (written.to_owned(), (*first).to_owned()))
}

/// The column that a query names and that is not there, and those that are, sorted: without their tables,
/// unless it is those that are wrong.
pub(super) fn missing_column(error: &DataFusionError) -> Option<(String, Vec<String>)> {
    let (column, known) = not_found(error)?;
    let column_exists = known.iter().any(|known| known.name() == column.name());
    let display_name = |column: &Column| match &column.relation {
        Some(table) if column_exists => format!("{}.{}", table.table(), column.name()),
        _ => column.name().to_owned(),
    };
    let known: BTreeSet<String> = known.iter().map(display_name).collect();
    Some((display_name(column), known.into_iter().collect()))
}

fn not_found(error: &DataFusionError) -> Option<(&Column, &[Column])> {
    match error {
        DataFusionError::SchemaError(schema, _) => match &**schema {
            SchemaError::FieldNotFound { field, valid_fields } => Some((field, valid_fields)),
            _ => None,
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            not_found(inner)
        }
        DataFusionError::Shared(inner) => not_found(inner),
        DataFusionError::Collection(all) => all.iter().find_map(not_found),
        _ => None,
    }
}

/// Calls all unquoted identifiers `written` in expressions `actual`. Whether there were some.
pub(super) fn rename(statement: &mut DfStatement, written: &str, actual: &str) -> bool {
    let DfStatement::Statement(statement) = statement else {
        return match statement {
            DfStatement::Explain(explain) => rename(&mut explain.statement, written, actual),
            _ => false,
        };
    };
    let mut found = false;
    let mut call = |ident: &mut Ident| {
        if ident.quote_style.is_none() && ident.value == written {
            actual.clone_into(&mut ident.value);
            found = true;
        }
    };
    let visited = visit_expressions_mut(&mut **statement, |expr| {
        match expr {
            Expr::Identifier(ident) => call(ident),
            Expr::CompoundIdentifier(parts) => parts.iter_mut().for_each(&mut call),
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    visited.is_continue() && found
}
