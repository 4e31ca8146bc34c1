//! The syntax tree of a condition.

use std::ops::Range;

use sluice_model::Pattern;

use super::number::{Arithmetic, Number};

/// A part of a condition.
#[derive(Clone, Debug)]
pub(super) struct ExprNode {
    pub(super) expr: Expr,
    /// Its bytes in the condition.
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Expr {
    Number(Number),
    Text(String),
    Truth(bool),
    /// The field with this index in the condition's list.
    Field(usize),
    EventField(EventField),
    Negate(Box<ExprNode>),
    Not(Box<ExprNode>),
    /// One node for any number of operands, so that long lists do not make deep trees.
    All(Vec<ExprNode>),
    Any(Vec<ExprNode>),
    Calculate(Box<ExprNode>, Vec<(Arithmetic, ExprNode)>),
    Compare(Box<ExprNode>, Comparison, Box<ExprNode>),
    In(Box<ExprNode>, Vec<Literal>),
    Matches(Box<ExprNode>, Pattern),
    Call(Function, Box<ExprNode>),
    /// Whether the field with this index has a value.
    Exists(usize),
}

#[derive(Clone, Debug)]
pub(super) enum Literal {
    Number(Number),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// A value that every event has, decoded or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventField {
    Timestamp,
    Source,
    Channel,
    Sequence,
    Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Abs,
    Sqrt,
    Len,
    IsNan,
    Exists,
}

/// The static type of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExprType {
    Number,
    Text,
    Truth,
    /// The type of the field, which is not known yet.
    Any,
}

impl Comparison {
    /// Whether the comparison holds for operands in this order; `None` if they are not comparable.
    pub(super) fn holds(self, order: Option<std::cmp::Ordering>) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        match self {
            Self::Equal => order == Some(Equal),
            Self::Unequal => order != Some(Equal),
            Self::Less => order == Some(Less),
            Self::AtMost => matches!(order, Some(Less | Equal)),
            Self::Greater => order == Some(Greater),
            Self::AtLeast => matches!(order, Some(Greater | Equal)),
        }
    }

    pub(super) fn spelled(sign: &str) -> Option<Self> {
        Some(match sign {
            "==" => Self::Equal,
            "!=" => Self::Unequal,
            "<" => Self::Less,
            "<=" => Self::AtMost,
            ">" => Self::Greater,
            ">=" => Self::AtLeast,
            _ => return None,
        })
    }
}

impl EventField {
    pub(super) const ALL: [(&'static str, Self); 5] = [
        ("timestamp", Self::Timestamp),
        ("source", Self::Source),
        ("channel", Self::Channel),
        ("sequence", Self::Sequence),
        ("size", Self::Size),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, field)| field)
    }
}

impl Function {
    pub(super) const ALL: [(&'static str, Self); 5] = [
        ("abs", Self::Abs),
        ("sqrt", Self::Sqrt),
        ("len", Self::Len),
        ("isnan", Self::IsNan),
        ("exists", Self::Exists),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, function)| function)
    }
}

impl ExprNode {
    pub(super) fn kind(&self) -> ExprType {
        match &self.expr {
            Expr::Number(_) | Expr::Negate(_) | Expr::Calculate(..) => ExprType::Number,
            Expr::Text(_) => ExprType::Text,
            Expr::Truth(_) | Expr::Not(_) | Expr::All(_) | Expr::Any(_) => ExprType::Truth,
            Expr::Compare(..) | Expr::In(..) | Expr::Matches(..) | Expr::Exists(_) => {
                ExprType::Truth
            }
            Expr::Call(Function::IsNan | Function::Exists, _) => ExprType::Truth,
            Expr::Call(..) => ExprType::Number,
            Expr::EventField(EventField::Source | EventField::Channel) => ExprType::Text,
            Expr::EventField(_) => ExprType::Number,
            Expr::Field(_) => ExprType::Any,
        }
    }
}
