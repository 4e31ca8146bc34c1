//! Columns that are written in another case than they have. Looks up no table.

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, SchemaError};
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{Expr, Ident, visit_expressions_mut};

/// The column that a query names and that is not there, and the only one that is called alike but for its
/// case.
pub(super) fn other_case(error: &DataFusionError) -> Option<(String, String)> {
    let (written, known) = missing(error)?;
    let mut alike: Vec<&String> =
        known.iter().filter(|name| name.eq_ignore_ascii_case(&written)).collect();
    alike.dedup();
    match alike.as_slice() {
        [one] if **one != written => Some((written, (*one).clone())),
        _ => None,
    }
}

/// The column that a query names and that is not there, and those that are, sorted.
pub(super) fn missing(error: &DataFusionError) -> Option<(String, Vec<String>)> {
    match error {
        DataFusionError::SchemaError(schema, _) => match &**schema {
            SchemaError::FieldNotFound { field, valid_fields } => {
                let mut known: Vec<String> =
                    valid_fields.iter().map(|column| column.name().to_owned()).collect();
                known.sort();
                known.dedup();
                Some((field.name().to_owned(), known))
            }
            _ => None,
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            missing(inner)
        }
        DataFusionError::Shared(inner) => missing(inner),
        DataFusionError::Collection(all) => all.iter().find_map(missing),
        _ => None,
    }
}

/// Calls all unquoted identifiers `written` in expressions `meant`. Whether there were some.
pub(super) fn rename(statement: &mut Parsed, written: &str, meant: &str) -> bool {
    let Parsed::Statement(statement) = statement else {
        return match statement {
            Parsed::Explain(explain) => rename(&mut explain.statement, written, meant),
            _ => false,
        };
    };
    let mut found = false;
    let mut call = |ident: &mut Ident| {
        if ident.quote_style.is_none() && ident.value == written {
            meant.clone_into(&mut ident.value);
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
