//! The fields of a type as shapes, and their plan.

use std::sync::Arc;

use sluice_kit::columns::{
    Endian, EnumEncoding, FieldShape, LengthEncoding, NumberType, OpaqueValue, PayloadField,
    PayloadPlan, Strictness, WireRules,
};

use super::skip::{FAULTS, skip};
use crate::types::syntax::{Dimension, Primitive, StructMember, TypeBody, TypeName};
use crate::types::{Library, TypeId};

/// Types with billions of columns can be written down; nobody uses more than this.
const MAX_COLUMNS: usize = 2_000;
/// Deepest nesting of types.
const MAX_NESTING: usize = 64;

/// LCM's wire format.
const WIRE: WireRules = WireRules {
    endian: Endian::Big,
    booleans: 1,
    lengths: LengthEncoding::U32WithNul,
    enums: EnumEncoding::I32,
    alignment: 1,
    strictness: Strictness::Lossless,
    max_columns: MAX_COLUMNS,
    // Types and arrays have limits of their own.
    max_depth: usize::MAX,
    max_fixed_len: usize::MAX,
    faults: &FAULTS,
};

/// Compiles the plan of a type.
///
/// A recursive type becomes columns down to `depth` levels inside itself, fewer if there would be
/// too many columns. Deeper levels stay bytes.
///
/// `Err` says why the type has no plan.
pub(crate) fn compile(
    library: &Arc<Library>,
    id: TypeId,
    depth: usize,
) -> Result<PayloadPlan, String> {
    let mut tried = compile_with_depth(library, id, depth);
    for depth in (0..depth).rev() {
        if tried.is_ok() {
            break;
        }
        tried = compile_with_depth(library, id, depth);
    }
    tried
}

fn compile_with_depth(
    library: &Arc<Library>,
    id: TypeId,
    depth: usize,
) -> Result<PayloadPlan, String> {
    let mut shapes = TypeShapes { library, depth, path: Vec::new(), columns: 0 };
    let fields = match &library.get(id).declaration.body {
        TypeBody::Struct { members, .. } => shapes.members(id, members)?,
        TypeBody::Enum(values) => {
            vec![PayloadField::new("value", FieldShape::Enum(values.clone()))]
        }
    };
    PayloadPlan::compile(WIRE, &fields)
}

/// Describes the fields of a type and of those in it.
struct TypeShapes<'l> {
    library: &'l Arc<Library>,
    depth: usize,
    /// The enclosing types, outermost first.
    path: Vec<TypeId>,
    columns: usize,
}

impl TypeShapes<'_> {
    fn members(
        &mut self,
        id: TypeId,
        members: &[StructMember],
    ) -> Result<Vec<PayloadField>, String> {
        if self.path.len() == MAX_NESTING {
            return Err(format!("types nest deeper than {MAX_NESTING} levels"));
        }
        self.path.push(id);
        let mut fields = Vec::new();
        for (place, member) in members.iter().enumerate() {
            let shape = self.member(id, place, member)?;
            fields.push(PayloadField::new(member.name.clone(), shape));
        }
        self.path.pop();
        Ok(fields)
    }

    fn member(
        &mut self,
        id: TypeId,
        place: usize,
        member: &StructMember,
    ) -> Result<FieldShape, String> {
        let is_empty = |d: &Dimension| matches!(d, Dimension::Fixed { size: 0, .. });
        let element = match member.dimensions.iter().any(is_empty) {
            true => FieldShape::Struct(Vec::new()),
            false => self.element(id, place, member)?,
        };
        if element == FieldShape::Struct(Vec::new()) {
            // It takes no bytes, however many there are.
            return Ok(element);
        }
        if !matches!(element, FieldShape::Struct(_)) {
            self.spend(1)?;
        }
        let is_byte = member.of == TypeName::Primitive(Primitive::Byte);
        let mut dimensions = member.dimensions.iter().rev();
        let innermost = match dimensions.clone().next().filter(|_| is_byte) {
            Some(Dimension::Fixed { size, .. }) => Some(FieldShape::FixedBytes(*size as usize)),
            Some(Dimension::Counted(by)) => Some(FieldShape::CountedBytes(*by)),
            None => None,
        };
        if innermost.is_some() {
            dimensions.next();
        }
        dimensions.try_fold(innermost.unwrap_or(element), |item, dimension| {
            let item = Box::new(item);
            Ok(match dimension {
                Dimension::Fixed { size, .. } => FieldShape::Fixed(item, *size as usize),
                Dimension::Counted(by) => {
                    self.spend(1)?;
                    FieldShape::Counted(item, *by)
                }
            })
        })
    }

    /// The shape of a member's elements; a struct without members if they take no bytes.
    fn element(
        &mut self,
        id: TypeId,
        place: usize,
        member: &StructMember,
    ) -> Result<FieldShape, String> {
        let nothing = FieldShape::Struct(Vec::new());
        let of = match &member.of {
            TypeName::Primitive(of) => return Ok(primitive(*of)),
            TypeName::Declared(_) => {
                let used = self.library.get(id).uses.get(place).copied().flatten();
                let Some(of) = used else { return Ok(nothing) };
                of
            }
        };
        match &self.library.get(of).declaration.body {
            TypeBody::Enum(values) => Ok(FieldShape::Enum(values.clone())),
            _ if self.library.takes_no_bytes(of) => Ok(nothing),
            TypeBody::Struct { members, .. } => {
                let inside = self.path.iter().filter(|around| **around == of).count();
                if inside > self.depth {
                    let library = Arc::clone(self.library);
                    let value = OpaqueValue::new(move |cursor| skip(cursor, &library, of));
                    return Ok(FieldShape::Opaque(value));
                }
                self.members(of, members).map(FieldShape::Struct)
            }
        }
    }

    fn spend(&mut self, columns: usize) -> Result<(), String> {
        self.columns += columns;
        match self.columns > MAX_COLUMNS {
            true => Err(format!("more than {MAX_COLUMNS} columns")),
            false => Ok(()),
        }
    }
}

fn primitive(of: Primitive) -> FieldShape {
    FieldShape::Number(match of {
        Primitive::Int8 => NumberType::I8,
        Primitive::Int16 => NumberType::I16,
        Primitive::Int32 => NumberType::I32,
        Primitive::Int64 => NumberType::I64,
        Primitive::Byte => NumberType::U8,
        Primitive::Float => NumberType::F32,
        Primitive::Double => NumberType::F64,
        Primitive::String => return FieldShape::Text,
        Primitive::Boolean => return FieldShape::Bool,
    })
}
