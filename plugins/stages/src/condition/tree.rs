//! What a condition says, as a tree. Reads nothing and works nothing out.

use std::ops::Range;

use sluice_core::Pattern;

use super::number::{Arithmetic, Number};

/// A part of a condition.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) says: Says,
    /// Where it stands in the condition.
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Says {
    Number(Number),
    Text(String),
    Truth(bool),
    /// The field of that number in the condition's list.
    Field(usize),
    EventField(EventField),
    Negate(Box<Node>),
    Not(Box<Node>),
    /// One node for any number of operands, so that long lists do not make deep trees.
    All(Vec<Node>),
    Any(Vec<Node>),
    Calculate(Box<Node>, Vec<(Arithmetic, Node)>),
    Compare(Box<Node>, Comparison, Box<Node>),
    In(Box<Node>, Vec<Literal>),
    Matches(Box<Node>, Pattern),
    Call(Function, Box<Node>),
    /// Whether the field of that number has a value.
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

/// What every event has, decoded or not.
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

/// What is known of a part's values before any is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    Text,
    Truth,
    /// Whatever the field has.
    Any,
}

impl Comparison {
    /// Whether it holds where the left side is so compared with the right; nothing: they cannot be.
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

impl Node {
    pub(super) fn kind(&self) -> Kind {
        match &self.says {
            Says::Number(_) | Says::Negate(_) | Says::Calculate(..) => Kind::Number,
            Says::Text(_) => Kind::Text,
            Says::Truth(_) | Says::Not(_) | Says::All(_) | Says::Any(_) => Kind::Truth,
            Says::Compare(..) | Says::In(..) | Says::Matches(..) | Says::Exists(_) => Kind::Truth,
            Says::Call(Function::IsNan | Function::Exists, _) => Kind::Truth,
            Says::Call(..) => Kind::Number,
            Says::EventField(EventField::Source | EventField::Channel) => Kind::Text,
            Says::EventField(_) => Kind::Number,
            Says::Field(_) => Kind::Any,
        }
    }
}
