//! Works a condition out for many events at once, column by column. Decides about no event.
//!
//! What is missing stays missing through everything but `exists`, and `and` and `or` where the other side
//! decides alone.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};

use super::number::Number;
use super::tree::{Comparison, EventField, Function, Literal, Node, Says};
use super::values::Values;

/// The events that a condition is worked out for, all decoded from one type or none of them decoded.
pub(super) struct Scope<'a> {
    /// How many events there are.
    pub(super) len: usize,
    /// For each field the condition names its values, where the events' type has it.
    pub(super) fields: &'a [Option<ArrayRef>],
    /// What every event has.
    pub(super) events: &'a dyn Fn(EventField) -> Values<'a>,
}

/// A part that could not be worked out, as its values are not of the kind it needs: where it stands, and
/// why.
pub(super) type Misfits = Vec<(Range<usize>, String)>;

impl<'a> Scope<'a> {
    /// Whether the condition holds, one an event; nothing where a value is missing.
    pub(super) fn decide(&self, node: &'a Node, misfits: &mut Misfits) -> Vec<Option<bool>> {
        match self.values(node, misfits) {
            Values::Truths(truths) => truths,
            Values::Missing => vec![None; self.len],
            other => {
                let what = format!("{} is no answer to whether it holds", other.what());
                misfits.push((node.span.clone(), what));
                vec![None; self.len]
            }
        }
    }

    fn values(&self, node: &'a Node, misfits: &mut Misfits) -> Values<'a> {
        match &node.says {
            Says::Number(number) => Values::Numbers(vec![Some(*number); self.len]),
            Says::Text(text) => Values::Texts(vec![Some(text); self.len]),
            Says::Truth(truth) => Values::Truths(vec![Some(*truth); self.len]),
            Says::Field(at) => self.field(*at).map_or(Values::Missing, Values::of),
            Says::EventField(field) => (self.events)(*field),
            Says::Exists(at) => Values::Truths(self.exists(*at)),
            Says::Not(operand) => {
                let truths = self.decide(operand, misfits);
                Values::Truths(truths.into_iter().map(|truth| truth.map(|truth| !truth)).collect())
            }
            Says::All(operands) => Values::Truths(self.join(operands, false, misfits)),
            Says::Any(operands) => Values::Truths(self.join(operands, true, misfits)),
            Says::Negate(operand) => self.numbers(operand, misfits, |number| Some(number.negate())),
            Says::Calculate(first, rest) => self.calculate(first, rest, misfits),
            Says::Compare(left, comparison, right) => {
                let sides = [self.values(left, misfits), self.values(right, misfits)];
                compare(sides, *comparison).unwrap_or_else(|what| missing(node, what, misfits))
            }
            Says::In(operand, list) => {
                let found = is_in(self.values(operand, misfits), list);
                found.unwrap_or_else(|what| missing(node, what, misfits))
            }
            Says::Matches(operand, pattern) => match self.values(operand, misfits) {
                Values::Missing => Values::Missing,
                Values::Texts(texts) => truths(&texts, |text| pattern.matches(text)),
                other => missing(node, format!("{} cannot match a pattern", other.what()), misfits),
            },
            Says::Call(function, operand) => self.call(*function, node, operand, misfits),
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

    /// `and` or `or`: an operand that is `decisive` decides, whatever is missing beside it.
    fn join(
        &self,
        operands: &'a [Node],
        decisive: bool,
        misfits: &mut Misfits,
    ) -> Vec<Option<bool>> {
        let mut joined = vec![Some(!decisive); self.len];
        for operand in operands {
            for (joined, truth) in joined.iter_mut().zip(self.decide(operand, misfits)) {
                if truth == Some(decisive) || *joined == Some(!decisive) {
                    *joined = truth;
                }
            }
        }
        joined
    }

    fn numbers(
        &self,
        node: &'a Node,
        misfits: &mut Misfits,
        work_out: impl Fn(Number) -> Option<Number>,
    ) -> Values<'a> {
        match as_numbers(self.values(node, misfits)) {
            Ok(Some(numbers)) => {
                Values::Numbers(numbers.into_iter().map(|number| work_out(number?)).collect())
            }
            Ok(None) => Values::Missing,
            Err(what) => missing(node, format!("{what} is no number"), misfits),
        }
    }

    fn calculate(
        &self,
        first: &'a Node,
        rest: &'a [(super::number::Arithmetic, Node)],
        misfits: &mut Misfits,
    ) -> Values<'a> {
        let mut found = self.numbers(first, misfits, Some);
        for (operation, node) in rest {
            let right = self.numbers(node, misfits, Some);
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
        node: &'a Node,
        operand: &'a Node,
        misfits: &mut Misfits,
    ) -> Values<'a> {
        match function {
            Function::Abs => self.numbers(operand, misfits, |number| Some(number.abs())),
            Function::Sqrt => {
                self.numbers(operand, misfits, |number| Some(Number::Float(number.float().sqrt())))
            }
            Function::IsNan => match self.numbers(operand, misfits, Some) {
                Values::Numbers(numbers) => truths(&numbers, |number| number.float().is_nan()),
                other => other,
            },
            Function::Len => {
                let found = lengths(self.values(operand, misfits));
                found.unwrap_or_else(|what| missing(node, format!("{what} has no length"), misfits))
            }
            // The parser makes a node of its own of it.
            Function::Exists => Values::Missing,
        }
    }
}

/// Takes note of what does not fit.
fn missing<'a>(node: &Node, what: String, misfits: &mut Misfits) -> Values<'a> {
    misfits.push((node.span.clone(), what));
    Values::Missing
}

fn truths<'a, T: Copy>(values: &[Option<T>], holds: impl Fn(T) -> bool) -> Values<'a> {
    Values::Truths(values.iter().map(|value| value.map(&holds)).collect())
}

/// Nothing if all are missing. `Err` says what they are instead.
fn as_numbers(values: Values<'_>) -> Result<Option<Vec<Option<Number>>>, &'static str> {
    match values {
        Values::Missing => Ok(None),
        Values::Numbers(numbers) => Ok(Some(numbers)),
        Values::Truths(truths) => {
            let number = |truth: bool| Number::Whole(truth.into());
            Ok(Some(truths.into_iter().map(|truth| truth.map(number)).collect()))
        }
        other => Err(other.what()),
    }
}

fn compare<'a>(sides: [Values<'a>; 2], comparison: Comparison) -> Result<Values<'a>, String> {
    let unlike = format!("{} cannot be compared with {}", sides[0].what(), sides[1].what());
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
            Err(what) => Err(format!("a list of numbers cannot hold {what}")),
        },
        other => Err(format!("a list of texts cannot hold {}", other.what())),
    }
}

/// `Err` says what it is that has no length.
fn lengths(values: Values<'_>) -> Result<Values<'_>, &'static str> {
    let number = |length: usize| Number::of(length as i128);
    match values {
        Values::Missing => Ok(Values::Missing),
        Values::Texts(texts) => {
            let length = |text: &str| number(text.chars().count());
            Ok(Values::Numbers(texts.into_iter().map(|text| text.map(length)).collect()))
        }
        Values::Lengths(_, lengths) => {
            Ok(Values::Numbers(lengths.into_iter().map(|length| length.map(number)).collect()))
        }
        other => Err(other.what()),
    }
}
