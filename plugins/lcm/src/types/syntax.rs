//! The syntax tree of `.lcm` files. [`parser`](super::parser) builds it.

use std::ops::Range;

/// A declared struct or enum.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// The full name: package, dot and short name, or the short name alone.
    pub name: String,
    /// Position of the name.
    pub span: Range<usize>,
    /// The struct or enum.
    pub body: TypeBody,
}

/// The contents of a declaration.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeBody {
    /// Members in order.
    Struct {
        /// The members of messages.
        members: Vec<StructMember>,
        /// Named numbers.
        constants: Vec<Constant>,
    },
    /// Named values.
    Enum(Vec<(String, i32)>),
}

/// A member of a struct.
#[derive(Clone, Debug)]
pub struct StructMember {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub of: TypeName,
    /// The array dimensions, outermost first; none for a single value.
    pub dimensions: Vec<Dimension>,
    /// Position of the type name.
    pub span: Range<usize>,
}

impl PartialEq for StructMember {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.of, &self.dimensions) == (&other.name, &other.of, &other.dimensions)
    }
}

/// The type of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeName {
    /// A type of the language.
    Primitive(Primitive),
    /// A declared type, by its full name.
    Declared(String),
}

/// The primitive types of the language.
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

    /// The name in the language.
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

    /// The primitive type with this name.
    pub(super) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|primitive| primitive.name() == word)
    }

    /// The range of an integer type that may count elements and be the type of a constant.
    pub(super) fn integer_range(self) -> Option<(i64, i64)> {
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
    /// A fixed size, given as a number or constant.
    Fixed {
        /// Number of elements.
        size: u32,
        /// The size as written: it is part of the fingerprint.
        text: String,
    },
    /// The size is the value of an earlier member, given by its index.
    Counted(usize),
}

/// A named number.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Primitive,
    /// The value as written.
    pub text: String,
    /// The value, if it is an integer.
    pub integer: Option<i64>,
}
