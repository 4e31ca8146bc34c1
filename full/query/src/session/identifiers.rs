//! Corrects the case of column names.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::common::{Column, DataFusionError, SchemaError, TableReference};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, visit_expressions_mut};
use sluice_kit::event_table::{PAYLOAD, RESERVED};

/// For an unknown column: its name, or that of its table or log, as written and as it is spelled,
/// if exactly one known name differs only in case.
pub(super) fn other_case(error: &DataFusionError) -> Option<(String, String)> {
    let (column, known) = not_found(error)?;
    let names = known.iter().map(Column::name);
    let by_name = ignoring_case(column.name(), names);
    let table = column.relation.as_ref();
    let by_table = || {
        let tables = known.iter().filter_map(|known| Some(known.relation.as_ref()?.table()));
        ignoring_case(table?.table(), tables)
    };
    let by_log = || {
        let logs = known.iter().filter_map(|known| known.relation.as_ref()?.schema());
        ignoring_case(table?.schema()?, logs)
    };
    by_name.or_else(by_table).or_else(by_log)
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
        Some(table) if column_exists => {
            format!("{}.{}", table_parts(table).join("."), column.name())
        }
        _ => column.name().to_owned(),
    };
    let known: BTreeSet<String> = known.iter().map(display_name).collect();
    Some((display_name(column), known.into_iter().collect()))
}

/// Whether a column is missing where there are only those of events, not the fields of messages.
pub(super) fn may_be_field(error: &DataFusionError) -> bool {
    not_found(error).is_some_and(|(_, known)| {
        known.iter().any(|column| column.name == PAYLOAD)
            && known.iter().all(|column| RESERVED.contains(&column.name()))
    })
}

/// The known columns, if `written` is the unknown column of an error.
pub(super) fn columns_instead_of<'e>(error: &'e DataFusionError, written: &str) -> &'e [Column] {
    match not_found(error) {
        Some((column, known)) if column.name == written => known,
        _ => &[],
    }
}

/// The name that a column with a table and one without have both, which DataFusion refuses.
pub(super) fn same_name(error: &DataFusionError) -> Option<&str> {
    match schema_error(error)? {
        SchemaError::AmbiguousReference { field } if field.relation.is_some() => Some(&field.name),
        _ => None,
    }
}

/// The name of two expressions of one clause that DataFusion refuses, as it tells them apart by
/// name.
pub(super) fn same_expression(error: &DataFusionError) -> Option<&str> {
    match schema_error(error)? {
        SchemaError::DuplicateUnqualifiedField { name } => Some(name),
        _ => None,
    }
}

/// The name of two columns, with that of their tables.
pub(super) fn same_column(error: &DataFusionError) -> Option<String> {
    match schema_error(error)? {
        SchemaError::DuplicateQualifiedField { qualifier, name } => {
            Some(format!("{qualifier}.{name}"))
        }
        _ => None,
    }
}

fn not_found(error: &DataFusionError) -> Option<(&Column, &[Column])> {
    match schema_error(error)? {
        SchemaError::FieldNotFound { field, valid_fields } => Some((field, valid_fields)),
        _ => None,
    }
}

fn schema_error(error: &DataFusionError) -> Option<&SchemaError> {
    match error {
        DataFusionError::SchemaError(schema, _) => Some(schema),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            schema_error(inner)
        }
        DataFusionError::Shared(inner) => schema_error(inner),
        DataFusionError::Collection(all) => all.iter().find_map(schema_error),
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

/// The names of a table, of its log and so on.
pub(super) fn table_parts(table: &TableReference) -> Vec<&str> {
    let parts = [table.catalog(), table.schema(), Some(table.table())];
    parts.into_iter().flatten().collect()
}
