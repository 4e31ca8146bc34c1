//! What `.ice` files can declare. Reads no text: [`parser`](super::parser) does.

use std::ops::Range;
use std::sync::Arc;

/// What one file says.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    /// What it declares, in order.
    pub declared: Vec<Declaration>,
    /// The files it includes, as it names them.
    pub includes: Vec<String>,
}

/// Something with a name.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Its full name, as records have it: `::orca::Time`.
    pub name: String,
    /// Where its name stands.
    pub span: Range<usize>,
    /// What it is.
    pub body: Body,
    /// What stands in `["…"]` in front of it.
    pub metadata: Vec<String>,
}

/// What is declared.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Members one behind another.
    Struct(Vec<Member>),
    /// Members that a record holds by reference, with those of its base.
    Class {
        /// The class that it extends.
        base: Option<TypeName>,
        /// Its own members.
        members: Vec<Member>,
    },
    /// Any number of elements.
    Sequence(TypeName),
    /// Any number of pairs.
    Dictionary {
        /// The type of keys.
        key: TypeName,
        /// The type of values.
        value: TypeName,
    },
    /// Named numbers.
    Enum(Vec<(String, i32)>),
    /// Something of which there are no values in records: an interface, an exception.
    Other(&'static str),
}

/// A member of a struct or class.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: TypeName,
}

/// The name of a type, where it is used.
#[derive(Clone, Debug)]
pub struct TypeName {
    /// What it names.
    pub named: Named,
    /// Where it stands.
    pub span: Range<usize>,
}

impl PartialEq for TypeName {
    fn eq(&self, other: &Self) -> bool {
        self.named == other.named
    }
}

/// What the name of a type can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// Built into the language.
    Builtin(Builtin),
    /// Declared somewhere.
    Declared {
        /// The name as it is written.
        name: String,
        /// The module around it: empty, or `::orca`.
        scope: Arc<str>,
    },
    /// Something that is not decoded; what.
    Unfit(&'static str),
}

/// The types that are built into the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// `bool`
    Bool,
    /// `byte`
    Byte,
    /// `short`
    Short,
    /// `int`
    Int,
    /// `long`
    Long,
    /// `float`
    Float,
    /// `double`
    Double,
    /// `string`
    String,
}

impl Builtin {
    const ALL: [Self; 8] = [
        Self::Bool,
        Self::Byte,
        Self::Short,
        Self::Int,
        Self::Long,
        Self::Float,
        Self::Double,
        Self::String,
    ];

    /// Its name in the language.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Byte => "byte",
            Self::Short => "short",
            Self::Int => "int",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::String => "string",
        }
    }

    /// The type of that name.
    pub(super) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == word)
    }
}

/// Words that are names only behind a backslash.
pub(super) const KEYWORDS: [&str; 35] = [
    "Object",
    "LocalObject",
    "bool",
    "byte",
    "class",
    "const",
    "dictionary",
    "double",
    "enum",
    "exception",
    "extends",
    "false",
    "float",
    "idempotent",
    "implements",
    "int",
    "interface",
    "local",
    "long",
    "module",
    "nonmutating",
    "optional",
    "out",
    "sequence",
    "short",
    "string",
    "struct",
    "tag",
    "throws",
    "true",
    "void",
    "Value",
    "custom",
    "typeid",
    "compact",
];
