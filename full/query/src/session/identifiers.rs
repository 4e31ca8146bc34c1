//! Corrects the case of column names.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::common::{Column, DataFusionError, SchemaError};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, visit_expressions_mut};

/// For an unknown column: its name, or that of its table, as written and as it is spelled, if
/// exactly one known name differs only in case.
pub(super) fn other_case(error: &DataFusionError) -> Option<(String, String)> {
    let (column, known) = not_found(error)?;
    let names = known.iter().map(Column::name);
    let by_name = ignoring_case(column.name(), names);
    by_name.or_else(|| {
        let tables = known.iter().filter_map(|known| Some(known.relation.as_ref()?.table()));
        ignoring_case(column.relation.as_ref()?.table(), tables)
    })
}

/// The only known name that differs from `written` in case. `None` if one matches exactly.
fn ignoring_case<'n>(
    written: &str,
    known: impl Iterator<Item = &'n str>,
) -> Option<(String, String)> {
    let known: BTreeSet<&str> = known.collect();
    let mut matches = known.iter().filter(|name| name.to_lowercase() == written.to_lowercase());
    let first = matches.next().filter(|_| !known.contains(written))?;
    matches.next().is_none().then(|| (written.to_owned(), (*first).to_owned()))
}

/// The unknown column of an error, and the known columns, sorted. Names have their table only if
/// the table is what is wrong.
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

/// Renames all unquoted identifiers `written` in expressions to `actual`. Returns whether there
/// were any.
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
