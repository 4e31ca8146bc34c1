//! What `.lcm` files can declare. Reads no text: [`parser`](super::parser) does.

use std::ops::Range;

/// A declared struct or enum.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Its full name: package, a dot if there is one, and short name.
    pub name: String,
    /// Where its name stands.
    pub span: Range<usize>,
    /// What it is.
    pub body: Body,
}

/// What is declared.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Members in order.
    Struct {
        /// What messages hold.
        members: Vec<Member>,
        /// Named numbers.
        constants: Vec<Constant>,
    },
    /// Named values.
    Enum(Vec<(String, i32)>),
}

/// A member of a struct.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub of: TypeName,
    /// Its dimensions, the outermost first; none for a single value.
    pub dimensions: Vec<Dimension>,
    /// Where the name of its type stands.
    pub span: Range<usize>,
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.of, &self.dimensions) == (&other.name, &other.of, &other.dimensions)
    }
}

/// The type of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeName {
    /// Built into the language.
    Primitive(Primitive),
    /// Declared somewhere, by its full name.
    Declared(String),
}

/// The types that are built into the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// `int8_t`
    Int8,
    /// `int16_t`
    Int16,
    /// `int32_t`
    Int32,
    /// `int64_t`
    Int64,
    /// `byte`
    Byte,
    /// `float`
    Float,
    /// `double`
    Double,
    /// `string`
    String,
    /// `boolean`
    Boolean,
}

impl Primitive {
    const ALL: [Self; 9] = [
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Byte,
        Self::Float,
        Self::Double,
        Self::String,
        Self::Boolean,
    ];

    /// Its name in the language.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8_t",
            Self::Int16 => "int16_t",
            Self::Int32 => "int32_t",
            Self::Int64 => "int64_t",
            Self::Byte => "byte",
            Self::Float => "float",
            Self::Double => "double",
            Self::String => "string",
            Self::Boolean => "boolean",
        }
    }

    /// The type of that name.
    pub(super) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|primitive| primitive.name() == word)
    }

    /// The least and greatest value, where it is an integer that may count and be a constant.
    pub(super) fn integers(self) -> Option<(i64, i64)> {
        Some(match self {
            Self::Int8 => (i8::MIN.into(), i8::MAX.into()),
            Self::Int16 => (i16::MIN.into(), i16::MAX.into()),
            Self::Int32 => (i32::MIN.into(), i32::MAX.into()),
            Self::Int64 => (i64::MIN, i64::MAX),
            _ => return None,
        })
    }
}

/// One dimension of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Of a size that is known, by a number or a constant.
    Fixed {
        /// How many elements.
        size: u32,
        /// The number as it is written: it is part of the fingerprint.
        text: String,
    },
    /// Of the size that a member before it holds, by its place among the members.
    Counted(usize),
}

/// A named number.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Primitive,
    /// Its value as it is written.
    pub text: String,
    /// Its value, if it is an integer.
    pub integer: Option<i64>,
}
