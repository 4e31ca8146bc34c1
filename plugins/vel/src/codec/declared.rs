//! Message declarations, from pipeline files, `.veltypes` files, and the descriptions stored with
//! rows. Compiles them; decodes nothing.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_kit::columns::{FieldShape, NumberType, PayloadField, PayloadPlan, WireRules};

use crate::hash;

/// VEL's wire format.
const WIRE: WireRules = WireRules { booleans: 4, ..WireRules::LITTLE_ENDIAN };
/// The column for data after the known fields of a newer version.
const TAIL: &str = "tail";

/// A message type: name, version, and fields in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclaredMessage {
    /// Its name, from which its number is computed.
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
    /// The type: `u8`, `i8`, `u16`, `i16`, `u32`, `i32`, `u64`, `i64`, `f32`, `f64`, `bool`,
    /// `string`, `bytes`, or `struct` with nested fields.
    #[serde(rename = "type", default, skip_serializing_if = "FieldType::is_struct")]
    pub of: FieldType,
    /// Number of elements: a number, the name of an earlier field with the number, or `*` for a
    /// 32-bit number before them. Default: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<DeclaredCount>,
    /// The fields of a `struct`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<DeclaredField>,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
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

/// The number of elements of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number, the name of an earlier field, or \"*\"")]
pub enum DeclaredCount {
    /// A fixed number.
    Fixed(usize),
    /// The value of an earlier field, or of a number before the elements for `*`.
    Named(String),
}

/// The versions that a plan applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// The declared version.
    This,
    /// Later versions: data after the declared fields is kept as bytes.
    Above,
}

impl DeclaredMessage {
    /// The number of the type.
    pub fn type_id(&self) -> u32 {
        hash::simple_hash(self.name.as_bytes())
    }

    /// The plan of payloads. `Err` says why there is none.
    pub fn plan(&self, versions: Versions) -> Result<PayloadPlan, String> {
        if self.name.is_empty() {
            return Err("a message has an empty name".to_owned());
        }
        let mut members = members(&self.fields)?;
        if versions == Versions::Above {
            let is_taken = |name: &str| members.iter().any(|member| member.name == name);
            let mut name = Cow::Borrowed(TAIL);
            while is_taken(&name) {
                name = format!("{name}_").into();
            }
            members.push(PayloadField::new(name, FieldShape::Rest));
        }
        PayloadPlan::compile(WIRE, &members)
    }
}

fn members(fields: &[DeclaredField]) -> Result<Vec<PayloadField>, String> {
    let each = fields.iter().enumerate().map(|(at, field)| {
        let shape = shape(field, fields.get(..at).unwrap_or_default());
        let shape = shape.map_err(|what| format!("`{}`: {what}", field.name))?;
        Ok(PayloadField::new(field.name.clone(), shape))
    });
    each.collect()
}

fn shape(field: &DeclaredField, before: &[DeclaredField]) -> Result<FieldShape, String> {
    if field.name.is_empty() {
        return Err("a field has an empty name".to_owned());
    }
    let one = match (field.of, field.fields.as_slice()) {
        (FieldType::Struct, []) => return Err("it has neither a type nor fields".to_owned()),
        (FieldType::Struct, fields) => FieldShape::Struct(members(fields)?),
        (of, []) => of.shape(),
        _ => return Err("only a struct can have fields".to_owned()),
    };
    Ok(match &field.count {
        None => one,
        Some(DeclaredCount::Fixed(count)) => FieldShape::Fixed(Box::new(one), *count),
        Some(DeclaredCount::Named(by)) if by == "*" => FieldShape::List(Box::new(one)),
        Some(DeclaredCount::Named(by)) => {
            let place = before.iter().position(|earlier| earlier.name == *by);
            let place = place.ok_or_else(|| {
                format!(
                    "no earlier field `{by}` to count elements; `*` stands for a number right \
                    before them"
                )
            })?;
            FieldShape::Counted(Box::new(one), place)
        }
    })
}
