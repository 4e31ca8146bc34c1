//! Gives `IS [NOT] DISTINCT FROM` its precedence: the parser takes all that follows for its right
//! side, so that `a IS DISTINCT FROM b AND c` would be `a IS DISTINCT FROM (b AND c)`.

use std::convert::Infallible;
use std::mem;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, UnaryOperator, Value, VisitMut, VisitorMut,
};

/// Corrects all expressions of a parsed text.
pub(crate) fn correct_precedence(parsed: &mut impl VisitMut) {
    let ControlFlow::Continue(()) = parsed.visit(&mut Correction);
}

/// The same for a statement.
pub(crate) fn correct_statement(statement: &mut DfStatement) {
    match statement {
        DfStatement::Statement(statement) => correct_precedence(&mut **statement),
        DfStatement::Explain(explain) => correct_statement(&mut explain.statement),
        DfStatement::CopyTo(_) | DfStatement::CreateExternalTable(_) | DfStatement::Reset(_) => {}
    }
}

struct Correction;

impl VisitorMut for Correction {
    type Break = Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Some(tighter) = right_precedence(expr)
            && let Some(right) = right_side(expr)
            && precedence(right).is_some_and(|looser| looser <= tighter)
        {
            // The leftmost operand that the operators on the right side leave to this one.
            let mut whole = mem::replace(right, placeholder());
            let mut operand = &mut whole;
            while precedence(operand).is_some_and(|looser| looser <= tighter)
                && let Expr::BinaryOp { left, .. } = operand
            {
                operand = left;
            }
            *right = mem::replace(operand, placeholder());
            *operand = mem::replace(expr, placeholder());
            *expr = whole;
        }
        ControlFlow::Continue(())
    }
}

/// The precedence of an operator of logic without parentheses around it.
fn precedence(expr: &Expr) -> Option<u8> {
    match expr {
        Expr::BinaryOp { op: BinaryOperator::Or, .. } => Some(0),
        Expr::BinaryOp { op: BinaryOperator::And, .. } => Some(1),
        _ => None,
    }
}

/// The precedence of an operator with a right side, of which only that of logic differs.
fn right_precedence(expr: &Expr) -> Option<u8> {
    match expr {
        Expr::UnaryOp { op: UnaryOperator::Not, .. } => Some(2),
        Expr::BinaryOp { .. } => Some(precedence(expr).unwrap_or(3)),
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) | Expr::UnaryOp { .. } => Some(3),
        _ => None,
    }
}

fn right_side(expr: &mut Expr) -> Option<&mut Expr> {
    match expr {
        Expr::BinaryOp { right, .. }
        | Expr::IsDistinctFrom(_, right)
        | Expr::IsNotDistinctFrom(_, right)
        | Expr::UnaryOp { expr: right, .. } => Some(right),
        _ => None,
    }
}

fn placeholder() -> Expr {
    Expr::value(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::DFParserBuilder;
    use datafusion::sql::sqlparser::ast::Statement as SqlStatement;

    fn parsed(text: &str) -> DfStatement {
        DFParserBuilder::new(text).build().unwrap().parse_statements().unwrap().remove(0).unwrap()
    }

    /// Removes parentheses, and keeps what they say.
    struct WithoutParentheses;

    impl VisitorMut for WithoutParentheses {
        type Break = Infallible;

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
            if let Expr::Nested(inner) = expr {
                *expr = mem::replace(inner, placeholder());
            }
            ControlFlow::Continue(())
        }
    }

    fn without_parentheses(statement: DfStatement) -> SqlStatement {
        match statement {
            DfStatement::Statement(mut statement) => {
                let ControlFlow::Continue(()) = statement.visit(&mut WithoutParentheses);
                *statement
            }
            DfStatement::Explain(explain) => without_parentheses(*explain.statement),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn is_distinct_from_binds_tighter_than_logic() {
        for (text, meant) in [
            ("a is distinct from b and c", "(a is distinct from b) and c"),
            ("a is not distinct from b or c and d", "(a is not distinct from b) or (c and d)"),
            ("a is distinct from b and c or d", "((a is distinct from b) and c) or d"),
            ("p and a is distinct from b or c", "(p and (a is distinct from b)) or c"),
            ("p or a is distinct from b and c or d", "(p or ((a is distinct from b) and c)) or d"),
            ("p = not a is distinct from b and c", "(p = (not (a is distinct from b))) and c"),
            ("p and (a is distinct from b or c)", "p and ((a is distinct from b) or c)"),
            ("not a is distinct from b and c", "(not (a is distinct from b)) and c"),
            (
                "a is distinct from b and c is distinct from d or e",
                "((a is distinct from b) and (c is distinct from d)) or e",
            ),
            ("a is distinct from b = c", "a is distinct from (b = c)"),
            (
                "case when a is distinct from b and c then 1 end",
                "case when (a is distinct from b) and c then 1 end",
            ),
        ] {
            for around in ["select {}", "select x from t where ({}) and y", "explain select {}"] {
                let [mut text, meant] =
                    [text, meant].map(|filled| parsed(&around.replace("{}", filled)));
                correct_statement(&mut text);
                assert_eq!(without_parentheses(text), without_parentheses(meant));
            }
        }
    }

    #[test]
    fn parentheses_and_other_operators_stay() {
        for text in [
            "select a is distinct from (b and c)",
            "select a or b and c or not d and e",
            "select not (a and b)",
            "select x from t where a between b and c and d is null",
        ] {
            let mut corrected = parsed(text);
            correct_statement(&mut corrected);
            assert_eq!(corrected, parsed(text), "{text}");
        }
    }
}
