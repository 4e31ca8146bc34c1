//! A type compiled into a plan: what to do with a payload from its first byte to its last, and what the
//! columns are made of. Reads no payload.
//!
//! Everything of known length that lies side by side is one [`Region`]; between regions lie texts, counted
//! arrays and lists. Values go into numbered *slots*, flat vectors, of which [`Node`]s say how they
//! become Arrow arrays. Members that take no bytes have no column: there is nothing in them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use sluice_core::layout::ENUM;

use crate::types::syntax::{Body, Dimension, Member, Primitive, TypeName};
use crate::types::{Library, TypeId};

/// What a message of a type is, and what becomes of it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) program: Program,
    pub(crate) slots: Vec<Slot>,
    pub(crate) columns: Vec<Node>,
    pub(crate) schema: SchemaRef,
    pub(crate) regions: usize,
    pub(crate) registers: usize,
}

/// What is done with a row, in order.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
    /// The fewest bytes a row takes.
    pub(crate) least: usize,
    /// How many elements of arrays of known length may take no bytes in a row.
    pub(crate) empty: usize,
}

/// A step of a program.
#[derive(Debug)]
pub(crate) enum Op {
    Region(Region),
    /// A string, into a slot of texts.
    Text {
        slot: usize,
    },
    /// Bytes, as many as a register says, into a slot of bytes.
    Bytes {
        slot: usize,
        count: usize,
    },
    /// Numbers, `per` for each of as many as a register says.
    Numbers {
        offsets: usize,
        leaf: Numbers,
        count: usize,
    },
    /// Rows of another program, as many as a register says.
    List {
        offsets: usize,
        count: usize,
        item: Program,
    },
    /// Rows of another program, always as many.
    Repeat {
        count: usize,
        item: Program,
    },
    /// A value that is kept as it lies there, into a slot of bytes.
    Wire {
        slot: usize,
        of: TypeId,
    },
}

/// Numbers of a counted array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) slot: usize,
    pub(crate) width: usize,
    pub(crate) per: usize,
    pub(crate) are_booleans: bool,
}

/// Bytes of known length.
#[derive(Debug, Default)]
pub(crate) struct Region {
    /// Its number in the plan.
    pub(crate) id: usize,
    pub(crate) size: usize,
    pub(crate) leaves: Vec<Leaf>,
    /// Where booleans lie: each has to be 0 or 1.
    pub(crate) booleans: Vec<Range<usize>>,
    /// Members that say how long something behind them is.
    pub(crate) counts: Vec<Count>,
}

/// Numbers in a region that go into one slot.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) slot: usize,
    pub(crate) width: usize,
    /// Where they begin, in the order of the slot.
    pub(crate) places: Vec<usize>,
    /// How many lie side by side at each place.
    pub(crate) run: usize,
}

/// A number in a region that goes into a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    pub(crate) place: usize,
    pub(crate) width: usize,
    pub(crate) register: usize,
}

impl Count {
    /// The number in this record.
    #[inline]
    pub(crate) fn read(&self, record: &[u8]) -> i64 {
        let bytes = record.get(self.place..).unwrap_or_default();
        match self.width {
            1 => bytes.first_chunk().map_or(0, |b| i8::from_be_bytes(*b).into()),
            2 => bytes.first_chunk().map_or(0, |b| i16::from_be_bytes(*b).into()),
            4 => bytes.first_chunk().map_or(0, |b| i32::from_be_bytes(*b).into()),
            _ => bytes.first_chunk().map_or(0, |b| i64::from_be_bytes(*b)),
        }
    }
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Numbers of so many bytes.
    Numbers(usize),
    /// Where the rows of a list begin and end.
    Offsets,
    /// Texts or bytes, with where they begin and end.
    Bytes,
}

/// How slots become an Arrow array.
#[derive(Debug)]
pub(crate) enum Node {
    Number { slot: usize, of: Primitive },
    FixedBytes { slot: usize, size: usize },
    Text { slot: usize },
    Bytes { slot: usize },
    FixedList { size: usize, field: FieldRef, item: Box<Node> },
    List { offsets: usize, field: FieldRef, item: Box<Node> },
    Struct { fields: Fields, children: Vec<Node> },
}

impl Node {
    /// The type of its array.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            Self::Number { of, .. } => arrow_type(*of),
            Self::FixedBytes { size, .. } => DataType::FixedSizeBinary(*size as i32),
            Self::Text { .. } => DataType::Utf8,
            Self::Bytes { .. } => DataType::Binary,
            Self::FixedList { size, field, .. } => {
                DataType::FixedSizeList(Arc::clone(field), *size as i32)
            }
            Self::List { field, .. } => DataType::List(Arc::clone(field)),
            Self::Struct { fields, .. } => DataType::Struct(fields.clone()),
        }
    }
}

fn arrow_type(of: Primitive) -> DataType {
    match of {
        Primitive::Int8 => DataType::Int8,
        Primitive::Int16 => DataType::Int16,
        Primitive::Int32 => DataType::Int32,
        Primitive::Int64 => DataType::Int64,
        Primitive::Byte => DataType::UInt8,
        Primitive::Float => DataType::Float32,
        Primitive::Double => DataType::Float64,
        Primitive::String => DataType::Utf8,
        Primitive::Boolean => DataType::Boolean,
    }
}

/// How many bytes a value takes; nothing for strings.
pub(crate) fn width(of: Primitive) -> Option<usize> {
    Some(match of {
        Primitive::Int8 | Primitive::Byte | Primitive::Boolean => 1,
        Primitive::Int16 => 2,
        Primitive::Int32 | Primitive::Float => 4,
        Primitive::Int64 | Primitive::Double => 8,
        Primitive::String => return None,
    })
}

/// A string of no characters: its length and the zero at its end.
const LEAST_TEXT: usize = 5;
/// More columns than this serve nobody, and types can be written that have billions.
const MOST_SLOTS: usize = 2_000;
/// Types nest no deeper than this.
const DEEPEST: usize = 64;
/// Arrays of structs with at most so many numbers are read as part of what is around them.
const MOST_PLACES: usize = 64;
/// Arrays of known length may have so many elements that take no bytes; each costs some in memory.
const MOST_EMPTY: usize = 256;
/// Messages are no longer than a log can hold them.
const LONGEST: usize = i32::MAX as usize;

/// The plan of a type. A type that holds itself is taken apart `depth` times inside itself, less if that
/// would be too many columns; what is below is kept as bytes.
///
/// `Err` says why there is no plan.
pub(crate) fn compile(library: &Library, id: TypeId, depth: usize) -> Result<Plan, String> {
    let mut tried = compile_to(library, id, depth);
    for depth in (0..depth).rev() {
        if tried.is_ok() {
            break;
        }
        tried = compile_to(library, id, depth);
    }
    tried
}

fn compile_to(library: &Library, id: TypeId, depth: usize) -> Result<Plan, String> {
    let mut compiler =
        Compiler { library, depth, path: Vec::new(), slots: Vec::new(), regions: 0, registers: 0 };
    let mut out = Builder::default();
    let (fields, columns) = match &library.get(id).declaration.body {
        Body::Struct { members, .. } => compiler.members(id, members, &mut out)?,
        Body::Enum(values) => {
            let field = named("value", DataType::Int32, Some(values));
            (vec![field], vec![compiler.number(Primitive::Int32, 1, &mut out)?.0])
        }
    };
    let program = compiler.finish(out);
    let Compiler { slots, regions, registers, .. } = compiler;
    let schema = Arc::new(Schema::new(fields));
    Ok(Plan { program, slots, columns, schema, regions, registers })
}

fn named(name: &str, data_type: DataType, values: Option<&Vec<(String, i32)>>) -> FieldRef {
    let field = Field::new(name, data_type, false);
    let Some(values) = values else { return Arc::new(field) };
    let names: serde_json::Map<_, _> =
        values.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
    let metadata = HashMap::from([(ENUM.to_owned(), serde_json::Value::from(names).to_string())]);
    Arc::new(field.with_metadata(metadata))
}

struct Compiler<'l> {
    library: &'l Library,
    depth: usize,
    /// The types around what is compiled.
    path: Vec<TypeId>,
    slots: Vec<Slot>,
    regions: usize,
    registers: usize,
}

/// A program in the making.
#[derive(Default)]
struct Builder {
    program: Program,
    open: Region,
}

impl Builder {
    fn push(&mut self, op: Op, compiler: &mut Compiler<'_>) {
        self.close(compiler);
        self.program.least += match &op {
            Op::Text { .. } => LEAST_TEXT,
            Op::Repeat { count, item } => count.saturating_mul(item.least),
            // What holds itself has at least a length field that says where it ends.
            Op::Wire { .. } => 1,
            Op::Region(region) => region.size,
            Op::Bytes { .. } | Op::Numbers { .. } | Op::List { .. } => 0,
        };
        if let Op::Repeat { count, item } = &op
            && item.least == 0
        {
            let more = count.saturating_mul(item.empty + 1);
            self.program.empty = self.program.empty.saturating_add(more).min(MOST_EMPTY);
        }
        self.program.ops.push(op);
    }

    fn close(&mut self, compiler: &mut Compiler<'_>) {
        if self.open.size > 0 {
            let mut region = std::mem::take(&mut self.open);
            region.id = compiler.regions;
            compiler.regions += 1;
            self.program.least += region.size;
            self.program.ops.push(Op::Region(region));
        }
    }
}

/// A member's elements.
#[derive(Clone, Copy)]
enum Element<'l> {
    Number(Primitive),
    Text,
    Enum(&'l Vec<(String, i32)>),
    Struct(TypeId, &'l [Member]),
    /// A struct that is not taken apart.
    Wire(TypeId),
}

/// The registers of a struct's members that count something, by place.
type Registers = HashMap<usize, usize>;

type Columns = (Vec<FieldRef>, Vec<Node>);

impl<'l> Compiler<'l> {
    fn finish(&mut self, mut out: Builder) -> Program {
        out.close(self);
        out.program
    }

    fn members(
        &mut self,
        id: TypeId,
        members: &'l [Member],
        out: &mut Builder,
    ) -> Result<Columns, String> {
        if self.path.len() == DEEPEST {
            return Err(format!("it nests deeper than {DEEPEST} types"));
        }
        self.path.push(id);
        let counting = members.iter().flat_map(|member| &member.dimensions);
        let mut registers = Registers::new();
        for dimension in counting {
            if let Dimension::Counted(place) = dimension {
                let next = self.registers + registers.len();
                registers.entry(*place).or_insert(next);
            }
        }
        self.registers += registers.len();
        let (mut fields, mut nodes) = (Vec::new(), Vec::new());
        for (place, member) in members.iter().enumerate() {
            let Some(element) = self.element(id, place, member) else { continue };
            if let (Some(register), TypeName::Primitive(of)) = (registers.get(&place), &member.of) {
                let (place, width) = (out.open.size, width(*of).unwrap_or_default());
                out.open.counts.push(Count { place, width, register: *register });
            }
            let node = self.array(element, &member.dimensions, &registers, out)?;
            let values = match element {
                Element::Enum(values) => Some(values),
                _ => None,
            };
            fields.push(named(&member.name, node.data_type(), values));
            nodes.push(node);
        }
        self.path.pop();
        Ok((fields, nodes))
    }

    /// The elements of a member; nothing if it takes no bytes, however many there are.
    fn element(&self, id: TypeId, place: usize, member: &Member) -> Option<Element<'l>> {
        let is_none = |d: &Dimension| matches!(d, Dimension::Fixed { size: 0, .. });
        if member.dimensions.iter().any(is_none) {
            return None;
        }
        let of = match &member.of {
            TypeName::Primitive(Primitive::String) => return Some(Element::Text),
            TypeName::Primitive(of) => return Some(Element::Number(*of)),
            TypeName::Declared(_) => (*self.library.get(id).uses.get(place)?)?,
        };
        match &self.library.get(of).declaration.body {
            Body::Enum(values) => Some(Element::Enum(values)),
            _ if self.library.takes_no_bytes(of) => None,
            Body::Struct { members, .. } => {
                let inside = self.path.iter().filter(|around| **around == of).count();
                let is_deep = inside > self.depth;
                Some(if is_deep { Element::Wire(of) } else { Element::Struct(of, members) })
            }
        }
    }

    fn array(
        &mut self,
        element: Element<'l>,
        dimensions: &[Dimension],
        registers: &Registers,
        out: &mut Builder,
    ) -> Result<Node, String> {
        let number = match element {
            Element::Number(of) => Some(of),
            Element::Enum(_) => Some(Primitive::Int32),
            _ => None,
        };
        let Some((first, inner)) = dimensions.split_first() else {
            return self.single(element, out);
        };
        match (first, number, all_fixed(inner)?) {
            (Dimension::Fixed { size, .. }, Some(of), Some(per)) => {
                let run = checked(*size as usize, per)?;
                let (node, _) = self.number(of, run, out)?;
                Ok(fixed_lists(node, of, dimensions))
            }
            (Dimension::Counted(place), Some(Primitive::Byte), _) if inner.is_empty() => {
                let slot = self.slot(Slot::Bytes)?;
                out.push(Op::Bytes { slot, count: registers[place] }, self);
                Ok(Node::Bytes { slot })
            }
            (Dimension::Counted(place), Some(of), Some(per)) => {
                let width = width(of).unwrap_or_default();
                let (offsets, slot) = (self.slot(Slot::Offsets)?, self.slot(Slot::Numbers(width))?);
                let are_booleans = of == Primitive::Boolean;
                let leaf = Numbers { slot, width, per, are_booleans };
                out.push(Op::Numbers { offsets, leaf, count: registers[place] }, self);
                Ok(list(offsets, fixed_lists(Node::Number { slot, of }, of, inner)))
            }
            (Dimension::Counted(place), ..) => {
                let offsets = self.slot(Slot::Offsets)?;
                let (item, node) = self.item(element, inner, registers)?;
                out.push(Op::List { offsets, count: registers[place], item }, self);
                Ok(list(offsets, node))
            }
            (Dimension::Fixed { size, .. }, ..) => {
                let (item, node) = self.item(element, inner, registers)?;
                let count = *size as usize;
                repeat(count, item, out, self)?;
                Ok(fixed_list(count, node))
            }
        }
    }

    /// The elements of an array as a program of their own.
    fn item(
        &mut self,
        element: Element<'l>,
        inner: &[Dimension],
        registers: &Registers,
    ) -> Result<(Program, Node), String> {
        let mut out = Builder::default();
        let node = self.array(element, inner, registers, &mut out)?;
        Ok((self.finish(out), node))
    }

    fn single(&mut self, element: Element<'l>, out: &mut Builder) -> Result<Node, String> {
        match element {
            Element::Number(of) => self.number(of, 1, out).map(|(node, _)| node),
            Element::Enum(_) => self.number(Primitive::Int32, 1, out).map(|(node, _)| node),
            Element::Text => {
                let slot = self.slot(Slot::Bytes)?;
                out.push(Op::Text { slot }, self);
                Ok(Node::Text { slot })
            }
            Element::Wire(of) => {
                let slot = self.slot(Slot::Bytes)?;
                out.push(Op::Wire { slot, of }, self);
                Ok(Node::Bytes { slot })
            }
            Element::Struct(id, members) => {
                let (fields, children) = self.members(id, members, out)?;
                Ok(Node::Struct { fields: fields.into(), children })
            }
        }
    }

    /// Numbers side by side in the open region.
    fn number(
        &mut self,
        of: Primitive,
        run: usize,
        out: &mut Builder,
    ) -> Result<(Node, usize), String> {
        let width = width(of).unwrap_or_default();
        let (slot, place) = (self.slot(Slot::Numbers(width))?, out.open.size);
        out.open.size = grown(place, checked(width, run)?)?;
        if of == Primitive::Boolean {
            out.open.booleans.push(place..out.open.size);
        }
        out.open.leaves.push(Leaf { slot, width, places: vec![place], run });
        Ok((Node::Number { slot, of }, slot))
    }

    fn slot(&mut self, slot: Slot) -> Result<usize, String> {
        if self.slots.len() == MOST_SLOTS {
            return Err(format!("it has more than {MOST_SLOTS} columns"));
        }
        self.slots.push(slot);
        Ok(self.slots.len() - 1)
    }
}

/// The product of dimensions if all are of known size.
fn all_fixed(dimensions: &[Dimension]) -> Result<Option<usize>, String> {
    let mut product = 1;
    for dimension in dimensions {
        let Dimension::Fixed { size, .. } = dimension else { return Ok(None) };
        product = checked(product, *size as usize)?;
    }
    Ok(Some(product))
}

fn checked(a: usize, b: usize) -> Result<usize, String> {
    a.checked_mul(b).filter(|n| *n <= LONGEST).ok_or_else(too_long)
}

fn grown(size: usize, by: usize) -> Result<usize, String> {
    size.checked_add(by).filter(|n| *n <= LONGEST).ok_or_else(too_long)
}

fn too_long() -> String {
    "its messages are longer than 2 GiB".to_owned()
}

/// Lists around numbers; the innermost array of bytes is one value.
fn fixed_lists(number: Node, of: Primitive, dimensions: &[Dimension]) -> Node {
    let mut sizes: Vec<usize> = dimensions
        .iter()
        .map(|dimension| match dimension {
            Dimension::Fixed { size, .. } => *size as usize,
            Dimension::Counted(_) => 0,
        })
        .collect();
    let innermost = match (&number, of) {
        (Node::Number { slot, .. }, Primitive::Byte) => {
            let slot = *slot;
            sizes.pop().map_or(number, |size| Node::FixedBytes { slot, size })
        }
        _ => number,
    };
    sizes.into_iter().rev().fold(innermost, |item, size| fixed_list(size, item))
}

fn fixed_list(size: usize, item: Node) -> Node {
    Node::FixedList { size, field: named("item", item.data_type(), None), item: Box::new(item) }
}

fn list(offsets: usize, item: Node) -> Node {
    Node::List { offsets, field: named("item", item.data_type(), None), item: Box::new(item) }
}

/// `count` rows of `item`, as part of the open region if that is small.
fn repeat(
    count: usize,
    item: Program,
    out: &mut Builder,
    compiler: &mut Compiler<'_>,
) -> Result<(), String> {
    checked(count, item.least)?;
    let small = match item.ops.as_slice() {
        [Op::Region(region)] => {
            let places = region.leaves.iter().map(|leaf| leaf.places.len());
            count.saturating_mul(places.max().unwrap_or(0)) <= MOST_PLACES
        }
        _ => false,
    };
    if !small {
        out.push(Op::Repeat { count, item }, compiler);
        return Ok(());
    }
    for op in item.ops {
        let Op::Region(region) = op else { continue };
        let starts: Vec<usize> = (0..count).map(|n| out.open.size + n * region.size).collect();
        let moved = |places: &[usize]| -> Vec<usize> {
            starts.iter().flat_map(|start| places.iter().map(move |at| start + at)).collect()
        };
        let leaves = region.leaves.iter();
        out.open
            .leaves
            .extend(leaves.map(|leaf| Leaf { places: moved(&leaf.places), ..leaf.clone() }));
        let booleans = starts.iter().flat_map(|start| {
            region.booleans.iter().map(move |at| start + at.start..start + at.end)
        });
        out.open.booleans.extend(booleans);
        out.open.size = grown(out.open.size, count * region.size)?;
    }
    Ok(())
}
