//! Evaluates a condition for many events at once, column by column.
//!
//! Missing values propagate through everything but `exists`, and through `and` and `or` unless the
//! other side decides.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};

use super::number::Number;
use super::tree::{Comparison, EventField, Expr, ExprNode, Function, Literal};
use super::values::Values;

/// The events to evaluate a condition for: all decoded as one type, or none of them decoded.
pub(super) struct EvalScope<'a> {
    /// The number of events.
    pub(super) len: usize,
    /// The values of each field of the condition, if the events' type has it.
    pub(super) fields: &'a [Option<ArrayRef>],
    /// The values that every event has.
    pub(super) events: &'a dyn Fn(EventField) -> Values<'a>,
}

/// Parts whose values have the wrong type: the span and the reason.
pub(super) type TypeMismatches = Vec<(Range<usize>, String)>;

impl<'a> EvalScope<'a> {
    /// Whether the condition holds, per event; `None` if a value is missing.
    pub(super) fn decide(
        &self,
        node: &'a ExprNode,
        mismatches: &mut TypeMismatches,
    ) -> Vec<Option<bool>> {
        match self.values(node, mismatches) {
            Values::Truths(truths) => truths,
            Values::Missing => vec![None; self.len],
            other => {
                let message = format!("{} is neither true nor false", other.kind_name());
                mismatches.push((node.span.clone(), message));
                vec![None; self.len]
            }
        }
    }

    fn values(&self, node: &'a ExprNode, mismatches: &mut TypeMismatches) -> Values<'a> {
        match &node.expr {
            Expr::Number(number) => Values::Numbers(vec![Some(*number); self.len]),
            Expr::Text(text) => Values::Texts(vec![Some(text); self.len]),
            Expr::Truth(truth) => Values::Truths(vec![Some(*truth); self.len]),
            Expr::Field(at) => self.field(*at).map_or(Values::Missing, Values::from_array),
            Expr::EventField(field) => (self.events)(*field),
            Expr::Exists(at) => Values::Truths(self.exists(*at)),
            Expr::Not(operand) => {
                let truths = self.decide(operand, mismatches);
                Values::Truths(truths.into_iter().map(|truth| truth.map(|truth| !truth)).collect())
            }
            Expr::All(operands) => Values::Truths(self.join(operands, false, mismatches)),
            Expr::Any(operands) => Values::Truths(self.join(operands, true, mismatches)),
            Expr::Negate(operand) => {
                self.numbers(operand, mismatches, |number| Some(number.negate()))
            }
            Expr::Calculate(first, rest) => self.calculate(first, rest, mismatches),
            Expr::Compare(left, comparison, right) => {
                let sides = [self.values(left, mismatches), self.values(right, mismatches)];
                compare(sides, *comparison)
                    .unwrap_or_else(|message| missing(node, message, mismatches))
            }
            Expr::In(operand, list) => {
                let found = is_in(self.values(operand, mismatches), list);
                found.unwrap_or_else(|message| missing(node, message, mismatches))
            }
            Expr::Matches(operand, pattern) => match self.values(operand, mismatches) {
                Values::Missing => Values::Missing,
                Values::Texts(texts) => truths(&texts, |text| pattern.matches(text)),
                other => missing(
                    node,
                    format!("{} cannot match a pattern", other.kind_name()),
                    mismatches,
                ),
            },
            Expr::Call(function, operand) => self.call(*function, node, operand, mismatches),
        }
    }

    fn field(&self, at: usize) -> Option<&'a ArrayRef> {
        self.fields.get(at).and_then(Option::as_ref)
    }

    fn exists(&self, at: usize) -> Vec<Option<bool>> {
        let Some(array) = self.field(at) else { return vec![Some(false); self.len] };
        let nulls = array.logical_nulls();
        let is_there = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        (0..self.len).map(|row| Some(is_there(row))).collect()
    }

    /// Evaluates `and` or `or`: an operand that is `decisive` decides, even if others are missing.
    fn join(
        &self,
        operands: &'a [ExprNode],
        decisive: bool,
        mismatches: &mut TypeMismatches,
    ) -> Vec<Option<bool>> {
        let mut joined = vec![Some(!decisive); self.len];
        for operand in operands {
            for (joined, truth) in joined.iter_mut().zip(self.decide(operand, mismatches)) {
                if truth == Some(decisive) || *joined == Some(!decisive) {
                    *joined = truth;
                }
            }
        }
        joined
    }

    fn numbers(
        &self,
        node: &'a ExprNode,
        mismatches: &mut TypeMismatches,
        work_out: impl Fn(Number) -> Option<Number>,
    ) -> Values<'a> {
        match as_numbers(self.values(node, mismatches)) {
            Ok(Some(numbers)) => {
                Values::Numbers(numbers.into_iter().map(|number| work_out(number?)).collect())
            }
            Ok(None) => Values::Missing,
            Err(message) => missing(node, format!("{message} is not a number"), mismatches),
        }
    }

    fn calculate(
        &self,
        first: &'a ExprNode,
        rest: &'a [(super::number::Arithmetic, ExprNode)],
        mismatches: &mut TypeMismatches,
    ) -> Values<'a> {
        let mut found = self.numbers(first, mismatches, Some);
        for (operation, node) in rest {
            let right = self.numbers(node, mismatches, Some);
            let (Values::Numbers(left), Values::Numbers(right)) = (found, right) else {
                found = Values::Missing;
                continue;
            };
            let both = left.into_iter().zip(right);
            let calculated = both.map(|(left, right)| left?.calculate(*operation, right?));
            found = Values::Numbers(calculated.collect());
        }
        found
    }

    fn call(
        &self,
        function: Function,
        node: &'a ExprNode,
        operand: &'a ExprNode,
        mismatches: &mut TypeMismatches,
    ) -> Values<'a> {
        match function {
            Function::Abs => self.numbers(operand, mismatches, |number| Some(number.abs())),
            Function::Sqrt => self
                .numbers(operand, mismatches, |number| Some(Number::Float(number.float().sqrt()))),
            Function::IsNan => match self.numbers(operand, mismatches, Some) {
                Values::Numbers(numbers) => truths(&numbers, |number| number.float().is_nan()),
                other => other,
            },
            Function::Len => {
                let found = lengths(self.values(operand, mismatches));
                found.unwrap_or_else(|message| {
                    missing(node, format!("{message} has no length"), mismatches)
                })
            }
            // The parser turns it into a node of its own.
            Function::Exists => Values::Missing,
        }
    }
}

/// Records a type mismatch.
fn missing<'a>(node: &ExprNode, message: String, mismatches: &mut TypeMismatches) -> Values<'a> {
    mismatches.push((node.span.clone(), message));
    Values::Missing
}

fn truths<'a, T: Copy>(values: &[Option<T>], holds: impl Fn(T) -> bool) -> Values<'a> {
    Values::Truths(values.iter().map(|value| value.map(&holds)).collect())
}

/// The values as numbers; `None` if all are missing. `Err` names their type.
fn as_numbers(values: Values<'_>) -> Result<Option<Vec<Option<Number>>>, &'static str> {
    match values {
        Values::Missing => Ok(None),
        Values::Numbers(numbers) => Ok(Some(numbers)),
        Values::Truths(truths) => {
            let number = |truth: bool| Number::Whole(truth.into());
            Ok(Some(truths.into_iter().map(|truth| truth.map(number)).collect()))
        }
        other => Err(other.kind_name()),
    }
}

fn compare<'a>(sides: [Values<'a>; 2], comparison: Comparison) -> Result<Values<'a>, String> {
    let unlike =
        format!("{} cannot be compared with {}", sides[0].kind_name(), sides[1].kind_name());
    let [left, right] = sides;
    match (left, right) {
        (Values::Missing, _) | (_, Values::Missing) => Ok(Values::Missing),
        (Values::Texts(left), Values::Texts(right)) => {
            Ok(compared(left, right, |a, b| comparison.holds(Some(a.cmp(b)))))
        }
        (left, right) => match (as_numbers(left), as_numbers(right)) {
            (Ok(Some(left)), Ok(Some(right))) => {
                Ok(compared(left, right, |a, b| comparison.holds(a.compare(b))))
            }
            _ => Err(unlike),
        },
    }
}

fn compared<'a, T: Copy>(
    left: Vec<Option<T>>,
    right: Vec<Option<T>>,
    holds: impl Fn(T, T) -> bool,
) -> Values<'a> {
    let both = left.into_iter().zip(right);
    Values::Truths(both.map(|(left, right)| Some(holds(left?, right?))).collect())
}

fn is_in<'a>(values: Values<'a>, list: &[Literal]) -> Result<Values<'a>, String> {
    let number = |literal: &Literal| match literal {
        Literal::Number(number) => Some(*number),
        Literal::Text(_) => None,
    };
    let text = |literal: &'_ Literal| match literal {
        Literal::Text(text) => Some(text.clone()),
        Literal::Number(_) => None,
    };
    let (numbers, words): (Vec<_>, Vec<_>) =
        (list.iter().filter_map(number).collect(), list.iter().filter_map(text).collect());
    match values {
        Values::Missing => Ok(Values::Missing),
        Values::Texts(texts) if numbers.is_empty() => {
            Ok(truths(&texts, |text| words.iter().any(|word| word == text)))
        }
        values if words.is_empty() => match as_numbers(values) {
            Ok(Some(found)) => Ok(truths(&found, |found| {
                numbers.iter().any(|number| Comparison::Equal.holds(found.compare(*number)))
            })),
            Ok(None) => Ok(Values::Missing),
            Err(message) => Err(format!("a list of numbers cannot hold {message}")),
        },
        other => Err(format!("a list of texts cannot hold {}", other.kind_name())),
    }
}

/// The lengths of the values. `Err` names the type that has none.
fn lengths(values: Values<'_>) -> Result<Values<'_>, &'static str> {
    let number = |length: usize| Number::from_i128(length as i128);
    match values {
        Values::Missing => Ok(Values::Missing),
        Values::Texts(texts) => {
            let length = |text: &str| number(text.chars().count());
            Ok(Values::Numbers(texts.into_iter().map(|text| text.map(length)).collect()))
        }
        Values::Lengths(_, lengths) => {
            Ok(Values::Numbers(lengths.into_iter().map(|length| length.map(number)).collect()))
        }
        other => Err(other.kind_name()),
    }
}
