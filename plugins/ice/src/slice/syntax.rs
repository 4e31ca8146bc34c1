//! The syntax tree of `.ice` files. Built by the [`parser`](super::parser).

use std::ops::Range;
use std::sync::Arc;

/// One file.
#[derive(Clone, Debug, Default)]
pub(crate) struct SliceFile {
    /// Its declarations, in order.
    pub declarations: Vec<Declaration>,
    /// The files it includes, as written.
    pub includes: Vec<String>,
}

/// A named declaration.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// The full name, as in records: `::orca::Time`.
    pub name: String,
    /// The position of the name.
    pub span: Range<usize>,
    /// The kind and content.
    pub body: DeclarationBody,
    /// The strings in `["…"]` in front of it.
    pub metadata: Vec<String>,
}

/// The kind and content of a declaration.
#[derive(Clone, Debug, PartialEq)]
pub enum DeclarationBody {
    /// Consecutive members.
    Struct(Vec<SliceMember>),
    /// Members that a record holds by reference, after those of the base.
    Class {
        /// The class that it extends.
        base: Option<TypeName>,
        /// Its own members.
        members: Vec<SliceMember>,
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
    /// Something without values in records: an interface, an exception.
    Undecoded(&'static str),
}

/// A member of a struct or class.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceMember {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_name: TypeName,
}

/// A use of a type name.
#[derive(Clone, Debug)]
pub struct TypeName {
    /// The type it refers to.
    pub target: TypeRef,
    /// The position.
    pub span: Range<usize>,
}

impl PartialEq for TypeName {
    fn eq(&self, other: &Self) -> bool {
        self.target == other.target
    }
}

/// What a type name can refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeRef {
    /// A built-in type.
    Builtin(Builtin),
    /// A declared type.
    Declared {
        /// The name as written.
        name: String,
        /// The enclosing module: empty, or `::orca`.
        scope: Arc<str>,
    },
    /// Something that is not supported, with its description.
    Unsupported(&'static str),
}

/// The built-in types of the language.
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

    /// The name in the language.
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

    /// The type with this name.
    pub(super) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == word)
    }
}

/// Words that are only names after a backslash.
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
