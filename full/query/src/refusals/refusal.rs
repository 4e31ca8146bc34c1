//! What a check says of a part of a query.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Value, ValueWithSpan};

/// `Break` says why the query is refused.
pub(super) type Refusal = ControlFlow<String>;

pub(super) fn refuse(what: impl Into<String>) -> Refusal {
    ControlFlow::Break(what.into())
}

pub(super) fn refuse_if(is_refused: bool, what: &str) -> Refusal {
    if is_refused { refuse(what) } else { ControlFlow::Continue(()) }
}

/// The digits of a number.
pub(super) fn number(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => Some(digits),
        _ => None,
    }
}
