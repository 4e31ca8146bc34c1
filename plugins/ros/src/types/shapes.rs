//! The fields of a type as shapes, for the plans of its payloads.

use sluice_kit::columns::{FieldShape, NumberType, PayloadField};
use sluice_kit::type_library::TypeId;

use super::Generation;
use super::library::{Library, Reference};
use super::text::{ElementCount, ElementType, Member, Primitive};

/// Types with billions of columns can be written down; nobody uses more than this.
const MAX_COLUMNS: usize = 2_000;
/// Deepest nesting of types.
const MAX_NESTING: usize = 32;
/// What stands in for the members of a type without any.
const EMPTY: &str = "structure_needs_at_least_one_member";

/// The fields of a type. `Err` says why they cannot become columns.
pub(crate) fn fields(
    library: &Library,
    id: TypeId,
    generation: Generation,
) -> Result<Vec<PayloadField>, String> {
    TypeShapes { library, generation, path: Vec::new(), columns: 0 }.members(id)
}

struct TypeShapes<'l> {
    library: &'l Library,
    generation: Generation,
    /// The enclosing types, outermost first.
    path: Vec<TypeId>,
    columns: usize,
}

impl TypeShapes<'_> {
    fn members(&mut self, id: TypeId) -> Result<Vec<PayloadField>, String> {
        let name = self.library.types.name(id);
        if self.path.contains(&id) {
            return Err(format!("`{name}` holds itself"));
        }
        if self.path.len() == MAX_NESTING {
            return Err(format!("types nest deeper than {MAX_NESTING} levels"));
        }
        self.path.push(id);
        let members = &self.library.types.get(id).declaration.members;
        let fields: Result<Vec<_>, String> = members
            .iter()
            .map(|member| Ok(PayloadField::new(member.name.clone(), self.member(id, member)?)))
            .collect();
        self.path.pop();
        let mut fields = fields?;
        if fields.is_empty() && self.generation == Generation::Ros2 {
            fields.push(PayloadField::new(EMPTY, FieldShape::Number(NumberType::U8)));
        }
        Ok(fields)
    }

    fn member(&mut self, id: TypeId, member: &Member) -> Result<FieldShape, String> {
        self.columns += 1;
        if self.columns > MAX_COLUMNS {
            return Err(format!("it would have more than {MAX_COLUMNS} columns"));
        }
        let element = match &member.of {
            ElementType::Primitive(of) => {
                self.primitive(*of).map_err(|why| format!("`{}`: {why}", member.name))?
            }
            ElementType::Declared(name) => match self.library.reference(id, name) {
                Some(Reference::Declared(used)) => FieldShape::Struct(self.members(used)?),
                Some(Reference::Time) => self.primitive(Primitive::Time)?,
                Some(Reference::Duration) => self.primitive(Primitive::Duration)?,
                None => return Err(format!("the type `{name}` is not declared")),
            },
        };
        let is_byte = element == FieldShape::Number(NumberType::U8);
        Ok(match member.count {
            ElementCount::One => element,
            ElementCount::Fixed(count) if is_byte => FieldShape::FixedBytes(count),
            ElementCount::Fixed(count) => FieldShape::Fixed(Box::new(element), count),
            ElementCount::Counted => FieldShape::List(Box::new(element)),
        })
    }

    fn primitive(&self, of: Primitive) -> Result<FieldShape, String> {
        let is_ros1 = self.generation == Generation::Ros1;
        Ok(FieldShape::Number(match of {
            Primitive::Bool => return Ok(FieldShape::Bool),
            Primitive::String => return Ok(FieldShape::Text),
            Primitive::WideString => {
                return Err("programs disagree on the bytes of a `wstring`".to_owned());
            }
            Primitive::Time if is_ros1 => {
                return Ok(time("nsec", NumberType::U32, NumberType::U32));
            }
            Primitive::Duration if is_ros1 => {
                return Ok(time("nsec", NumberType::I32, NumberType::I32));
            }
            Primitive::Time | Primitive::Duration => {
                return Ok(time("nanosec", NumberType::I32, NumberType::U32));
            }
            Primitive::Byte if is_ros1 => NumberType::I8,
            Primitive::Int8 => NumberType::I8,
            Primitive::Byte | Primitive::Char | Primitive::Uint8 => NumberType::U8,
            Primitive::Int16 => NumberType::I16,
            Primitive::Uint16 => NumberType::U16,
            Primitive::Int32 => NumberType::I32,
            Primitive::Uint32 => NumberType::U32,
            Primitive::Int64 => NumberType::I64,
            Primitive::Uint64 => NumberType::U64,
            Primitive::Float32 => NumberType::F32,
            Primitive::Float64 => NumberType::F64,
        }))
    }
}

fn time(fraction: &str, seconds: NumberType, nanoseconds: NumberType) -> FieldShape {
    FieldShape::Struct(vec![
        PayloadField::new("sec", FieldShape::Number(seconds)),
        PayloadField::new(fraction, FieldShape::Number(nanoseconds)),
    ])
}
