//! Integer arithmetic that fails on overflow. DataFusion's wraps around.

use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use datafusion::arrow::compute::kernels::numeric::{add, mul, neg, sub};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;

/// Most bytes of an expression in a message or a name.
const MAX_SHOWN: usize = 80;

/// Replaces arithmetic of integers. Comes after the coercion of types, and before constants are
/// computed.
#[derive(Debug)]
pub(crate) struct CheckedArithmetic;

impl AnalyzerRule for CheckedArithmetic {
    fn name(&self) -> &str {
        "checked_arithmetic"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(with_checks).data()
    }
}

/// A node whose arithmetic fails on overflow.
fn with_checks(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let names = NamePreserver::new(&node);
    let with_checks = |expr: Expr| {
        let name = names.save(&expr);
        // From the top: an operation shows its operands as they were written.
        let checked = expr.transform_down(|expr| Ok(checked(expr, &schema)))?;
        Ok(checked.update_data(|expr| name.restore(expr)))
    };
    node.map_expressions(|expr| match expr {
        // The names of its members are those of columns.
        Expr::GroupingSet(_) => expr.map_children(with_checks),
        expr => with_checks(expr),
    })
}

fn checked(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    // The difference of two dates is an integer, too.
    let is_integer = |operand: &Expr| operand.get_type(schema).is_ok_and(|kind| kind.is_integer());
    let operation = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            Operation::of(*op).filter(|_| is_integer(left) && is_integer(right))
        }
        Expr::Negative(operand) if is_integer(operand) => Some(Operation::Negate),
        _ => None,
    };
    let Some(operation) = operation else { return Transformed::no(expr) };
    let (name, shown) = (column_name(&expr), Start::of(Shown(&expr)).text);
    let operands = match expr {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
        Expr::Negative(operand) => vec![*operand],
        other => return Transformed::no(other),
    };
    let signature = Signature::any(operands.len(), Volatility::Immutable);
    let function = CheckedOperation { operation, name, shown, signature };
    Transformed::yes(ScalarUDF::from(function).call(operands))
}

/// The name that DataFusion gives a column of this expression; a short one instead of a long one.
fn column_name(expr: &Expr) -> String {
    let Start { mut text, is_cut } = Start::of(expr.schema_name());
    if is_cut {
        let mut hasher = DefaultHasher::new();
        expr.hash(&mut hasher);
        text += &format!(" {:x}", hasher.finish());
    }
    text
}

/// An expression in a message, with the parentheses that it needs, and without casts.
struct Shown<'e>(&'e Expr);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                write_operand(f, left, op.precedence())?;
                write!(f, " {op} ")?;
                write_operand(f, right, op.precedence() + 1)
            }
            Expr::Negative(operand) => {
                f.write_str("-")?;
                write_operand(f, operand, u8::MAX)
            }
            Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => {
                write!(f, "{}", Shown(expr))
            }
            other => write!(f, "{}", other.human_display()),
        }
    }
}

/// Writes an operand, in parentheses unless it binds at least as tightly as the operator needs.
fn write_operand(f: &mut fmt::Formatter<'_>, operand: &Expr, least: u8) -> fmt::Result {
    let mut inner = operand;
    while let Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) = inner {
        inner = expr;
    }
    let precedence = match inner {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => op.precedence(),
        Expr::Between(_)
        | Expr::InList(_)
        | Expr::IsNotNull(_)
        | Expr::IsNull(_)
        | Expr::Like(_)
        | Expr::Not(_) => Operator::Eq.precedence(),
        _ => u8::MAX,
    };
    if precedence < least { write!(f, "({})", Shown(inner)) } else { write!(f, "{}", Shown(inner)) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
}

impl Operation {
    fn of(operator: Operator) -> Option<Self> {
        match operator {
            Operator::Plus => Some(Self::Add),
            Operator::Minus => Some(Self::Subtract),
            Operator::Multiply => Some(Self::Multiply),
            _ => None,
        }
    }
}

/// The start of a text: that of an operation can have megabytes.
#[derive(Default)]
struct Start {
    text: String,
    is_cut: bool,
}

impl Start {
    fn of(what: impl fmt::Display) -> Self {
        let mut start = Self::default();
        if write!(start, "{what}").is_err() {
            start.text.push('…');
            start.is_cut = true;
        }
        start
    }
}

impl Write for Start {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let fits = part.floor_char_boundary(MAX_SHOWN.saturating_sub(self.text.len()));
        self.text.push_str(&part[..fits]);
        if fits < part.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// A function that computes an operation of integers of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedOperation {
    operation: Operation,
    /// Of its column. Kept: it is asked for at each operation of a chain, again and again.
    name: String,
    /// For messages.
    shown: String,
    signature: Signature,
}

impl ScalarUDFImpl for CheckedOperation {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "add",
            Operation::Subtract => "subtract",
            Operation::Multiply => "multiply",
            Operation::Negate => "negate",
        }
    }

    fn schema_name(&self, _: &[Expr]) -> Result<String> {
        Ok(self.name.clone())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    // A condition on its result makes an outer join an inner one.
    fn is_strict(&self) -> bool {
        true
    }

    fn return_type(&self, operands: &[DataType]) -> Result<DataType> {
        match operands {
            [kind, ..] => Ok(kind.clone()),
            [] => Err(DataFusionError::Internal("an operation without operands".to_owned())),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let operands = args.arg_fields;
        let kinds: Vec<_> = operands.iter().map(|operand| operand.data_type().clone()).collect();
        let is_nullable = operands.iter().any(|operand| operand.is_nullable());
        Ok(Field::new(self.name(), self.return_type(&kinds)?, is_nullable).into())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let computed = match (self.operation, &args.args[..]) {
            (Operation::Add, [left, right]) => apply(left, right, add),
            (Operation::Subtract, [left, right]) => apply(left, right, sub),
            (Operation::Multiply, [left, right]) => apply(left, right, mul),
            (Operation::Negate, [ColumnarValue::Array(operand)]) => {
                neg(operand).map(ColumnarValue::Array).map_err(DataFusionError::from)
            }
            (Operation::Negate, [ColumnarValue::Scalar(operand)]) => {
                operand.arithmetic_negate().map(ColumnarValue::Scalar)
            }
            _ => Err(DataFusionError::Internal("an operation without its operands".to_owned())),
        };
        computed.map_err(|error| self.with_advice(error, args.return_field.data_type()))
    }
}

impl CheckedOperation {
    fn with_advice(&self, error: DataFusionError, kind: &DataType) -> DataFusionError {
        let DataFusionError::ArrowError(arrow, _) = error.find_root() else { return error };
        let ArrowError::ArithmeticOverflow(what) = &**arrow else { return error };
        let values = what.strip_prefix("Overflow happened on: ").unwrap_or(what);
        DataFusionError::Execution(format!(
            "`{}` is out of range of {kind}: {values}; cast an operand to a double (`x::double`), \
             or a decimal (`x::decimal(38, 0)`)",
            self.shown
        ))
    }
}

#[cfg(test)]
mod tests;
