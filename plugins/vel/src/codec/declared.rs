//! Messages as they are declared: in pipeline files, in `.veltypes` files, and in descriptions that
//! travel with rows. Turns them into layouts; decodes nothing.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::layout::{
    FieldShape, LayoutField, LengthEncoding, NumberType, PayloadLayout, WireRules,
};

use crate::hash;

/// How VEL writes what formats write in different ways.
const WIRE: WireRules = WireRules { booleans: 4, lengths: LengthEncoding::U32 };
/// The column of what a newer version has behind the fields that are known.
const TAIL: &str = "tail";

/// A type of message: what it is called, in which version, and its fields in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// Its name; its number follows from it.
    pub name: String,
    /// The version that has these fields.
    pub version: i32,
    /// Its fields.
    pub fields: Vec<DeclaredField>,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclaredField {
    /// Its name.
    pub name: String,
    /// What it is: `u8`, `i8`, `u16`, `i16`, `u32`, `i32`, `u64`, `i64`, `f32`, `f64`, `bool`, `string`,
    /// `bytes`, or `struct` with fields of its own.
    #[serde(rename = "type", default, skip_serializing_if = "FieldType::is_struct")]
    pub of: FieldType,
    /// How many there are: a number, the name of an earlier field that says it, or `*` if a 32-bit number
    /// in front of them does. One, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<DeclaredCount>,
    /// The fields of a `struct`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<DeclaredField>,
}

/// What a field is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "their names say it")]
pub enum FieldType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
    Bool,
    String,
    Bytes,
    #[default]
    Struct,
}

impl FieldType {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_struct(&self) -> bool {
        *self == Self::Struct
    }

    fn shape(self) -> FieldShape {
        FieldShape::Number(match self {
            Self::U8 => NumberType::U8,
            Self::I8 => NumberType::I8,
            Self::U16 => NumberType::U16,
            Self::I16 => NumberType::I16,
            Self::U32 => NumberType::U32,
            Self::I32 => NumberType::I32,
            Self::U64 => NumberType::U64,
            Self::I64 => NumberType::I64,
            Self::F32 => NumberType::F32,
            Self::F64 => NumberType::F64,
            Self::Bool => return FieldShape::Bool,
            Self::String => return FieldShape::Text,
            Self::Bytes => return FieldShape::Bytes,
            Self::Struct => return FieldShape::Struct(Vec::new()),
        })
    }
}

/// How many of a field there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number, the name of an earlier field, or \"*\"")]
pub enum DeclaredCount {
    /// Always as many.
    Fixed(usize),
    /// As many as an earlier field says, or, if it is `*`, a number in front of them.
    Said(String),
}

/// Which versions a layout is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Just the declared one.
    This,
    /// Those above it: what is behind the declared fields is kept as bytes.
    Above,
}

impl Declared {
    /// The number of its type.
    pub fn type_id(&self) -> u32 {
        hash::simple_hash(self.name.as_bytes())
    }

    /// The layout of its payloads. `Err` says why there is none.
    pub fn layout(&self, versions: Versions) -> Result<PayloadLayout, String> {
        if self.name.is_empty() {
            return Err("a message's name is needed, and this is empty".to_owned());
        }
        let mut members = members(&self.fields)?;
        if versions == Versions::Above {
            let is_taken = |name: &str| members.iter().any(|member| member.name == name);
            let mut name = Cow::Borrowed(TAIL);
            while is_taken(&name) {
                name = format!("{name}_").into();
            }
            members.push(LayoutField::new(name, FieldShape::Rest));
        }
        PayloadLayout::new(WIRE, &members)
    }
}

fn members(fields: &[DeclaredField]) -> Result<Vec<LayoutField>, String> {
    let each = fields.iter().enumerate().map(|(at, field)| {
        let shape = shape(field, fields.get(..at).unwrap_or_default());
        let shape = shape.map_err(|what| format!("`{}`: {what}", field.name))?;
        Ok(LayoutField::new(field.name.clone(), shape))
    });
    each.collect()
}

fn shape(field: &DeclaredField, before: &[DeclaredField]) -> Result<FieldShape, String> {
    if field.name.is_empty() {
        return Err("a field's name is needed, and this is empty".to_owned());
    }
    let one = match (field.of, field.fields.as_slice()) {
        (FieldType::Struct, []) => return Err("it has neither a type nor fields".to_owned()),
        (FieldType::Struct, fields) => FieldShape::Struct(members(fields)?),
        (of, []) => of.shape(),
        _ => return Err("only a struct has fields".to_owned()),
    };
    Ok(match &field.count {
        None => one,
        Some(DeclaredCount::Fixed(count)) => FieldShape::Fixed(Box::new(one), *count),
        Some(DeclaredCount::Said(by)) if by == "*" => FieldShape::List(Box::new(one)),
        Some(DeclaredCount::Said(by)) => {
            let place = before.iter().position(|earlier| earlier.name == *by);
            let place = place.ok_or_else(|| {
                format!("no field `{by}` in front of it says how many there are; `*` would be a number right before them")
            })?;
            FieldShape::Counted(Box::new(one), place)
        }
    })
}
