//! Compiles a type into a plan: lays out regions, slots and columns, member by member.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema};
use sluice_core::layout::ENUM;

use super::plan::{
    ColumnNode, CountField, Leaf, MessagePlan, NumberArray, Op, Program, Region, SlotKind, width,
};
use crate::types::syntax::{Dimension, Primitive, StructMember, TypeBody, TypeName};
use crate::types::{Library, TypeId};

/// The empty string: length field and terminating zero.
const MIN_STRING_LEN: usize = 5;
/// Types with billions of columns can be written down; nobody uses more than this.
const MAX_SLOTS: usize = 2_000;
/// Deepest nesting of types.
const MAX_NESTING: usize = 64;
/// Struct arrays with at most this many runs of numbers become part of the region around them.
const MAX_INLINE_RUNS: usize = 64;
/// Most zero-byte elements that fixed arrays may have; each takes memory.
const MAX_EMPTY_ELEMENTS: usize = 256;
/// A log cannot hold longer messages.
const MAX_MESSAGE_LEN: usize = i32::MAX as usize;

/// Compiles the plan of a type.
///
/// A recursive type becomes columns down to `depth` levels inside itself, fewer if there would be
/// too many columns. Deeper levels stay bytes.
///
/// `Err` says why the type has no plan.
pub(crate) fn compile(library: &Library, id: TypeId, depth: usize) -> Result<MessagePlan, String> {
    let mut tried = compile_with_depth(library, id, depth);
    for depth in (0..depth).rev() {
        if tried.is_ok() {
            break;
        }
        tried = compile_with_depth(library, id, depth);
    }
    tried
}

fn compile_with_depth(library: &Library, id: TypeId, depth: usize) -> Result<MessagePlan, String> {
    let mut compiler = PlanCompiler {
        library,
        depth,
        path: Vec::new(),
        slots: Vec::new(),
        regions: 0,
        registers: 0,
    };
    let mut out = ProgramBuilder::default();
    let (fields, columns) = match &library.get(id).declaration.body {
        TypeBody::Struct { members, .. } => compiler.members(id, members, &mut out)?,
        TypeBody::Enum(values) => {
            let field = field("value", DataType::Int32, Some(values));
            (vec![field], vec![compiler.number(Primitive::Int32, 1, &mut out)?.0])
        }
    };
    let program = compiler.finish(out);
    let PlanCompiler { slots, regions, registers, .. } = compiler;
    let schema = Arc::new(Schema::new(fields));
    Ok(MessagePlan { program, slots, columns, schema, regions, registers })
}

fn field(name: &str, data_type: DataType, values: Option<&Vec<(String, i32)>>) -> FieldRef {
    let field = Field::new(name, data_type, false);
    let Some(values) = values else { return Arc::new(field) };
    let names: serde_json::Map<_, _> =
        values.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
    let metadata = HashMap::from([(ENUM.to_owned(), serde_json::Value::from(names).to_string())]);
    Arc::new(field.with_metadata(metadata))
}

struct PlanCompiler<'l> {
    library: &'l Library,
    depth: usize,
    /// The enclosing types, outermost first.
    path: Vec<TypeId>,
    slots: Vec<SlotKind>,
    regions: usize,
    registers: usize,
}

/// Builds a program; collects adjacent fixed-size members in the open region.
#[derive(Default)]
struct ProgramBuilder {
    program: Program,
    open: Region,
}

impl ProgramBuilder {
    fn push(&mut self, op: Op, compiler: &mut PlanCompiler<'_>) {
        self.close(compiler);
        self.program.min_len += match &op {
            Op::Text { .. } => MIN_STRING_LEN,
            Op::Repeat { count, item } => count.saturating_mul(item.min_len),
            // A recursive value has at least a length field that ends it.
            Op::Opaque { .. } => 1,
            Op::Region(region) => region.size,
            Op::Bytes { .. } | Op::Numbers { .. } | Op::List { .. } => 0,
        };
        if let Op::Repeat { count, item } = &op
            && item.min_len == 0
        {
            let more = count.saturating_mul(item.empty_elements + 1);
            self.program.empty_elements =
                self.program.empty_elements.saturating_add(more).min(MAX_EMPTY_ELEMENTS);
        }
        self.program.ops.push(op);
    }

    fn close(&mut self, compiler: &mut PlanCompiler<'_>) {
        if self.open.size > 0 {
            let mut region = std::mem::take(&mut self.open);
            region.id = compiler.regions;
            compiler.regions += 1;
            self.program.min_len += region.size;
            self.program.ops.push(Op::Region(region));
        }
    }
}

/// The element type of a member.
#[derive(Clone, Copy)]
enum Element<'l> {
    Number(Primitive),
    Text,
    Enum(&'l Vec<(String, i32)>),
    Struct(TypeId, &'l [StructMember]),
    /// A struct kept as raw bytes.
    Opaque(TypeId),
}

/// Registers by index of the counting member.
type CountRegisters = HashMap<usize, usize>;

type StructColumns = (Vec<FieldRef>, Vec<ColumnNode>);

impl<'l> PlanCompiler<'l> {
    fn finish(&mut self, mut out: ProgramBuilder) -> Program {
        out.close(self);
        out.program
    }

    fn members(
        &mut self,
        id: TypeId,
        members: &'l [StructMember],
        out: &mut ProgramBuilder,
    ) -> Result<StructColumns, String> {
        if self.path.len() == MAX_NESTING {
            return Err(format!("types nest deeper than {MAX_NESTING} levels"));
        }
        self.path.push(id);
        let counting = members.iter().flat_map(|member| &member.dimensions);
        let mut registers = CountRegisters::new();
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
                let (offset, width) = (out.open.size, width(*of).unwrap_or_default());
                out.open.counts.push(CountField { offset, width, register: *register });
            }
            let node = self.array(element, &member.dimensions, &registers, out)?;
            let values = match element {
                Element::Enum(values) => Some(values),
                _ => None,
            };
            fields.push(field(&member.name, node.data_type(), values));
            nodes.push(node);
        }
        self.path.pop();
        Ok((fields, nodes))
    }

    /// The element type of a member; `None` if it takes no bytes.
    fn element(&self, id: TypeId, place: usize, member: &StructMember) -> Option<Element<'l>> {
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
            TypeBody::Enum(values) => Some(Element::Enum(values)),
            _ if self.library.takes_no_bytes(of) => None,
            TypeBody::Struct { members, .. } => {
                let inside = self.path.iter().filter(|around| **around == of).count();
                let is_deep = inside > self.depth;
                Some(if is_deep { Element::Opaque(of) } else { Element::Struct(of, members) })
            }
        }
    }

    fn array(
        &mut self,
        element: Element<'l>,
        dimensions: &[Dimension],
        registers: &CountRegisters,
        out: &mut ProgramBuilder,
    ) -> Result<ColumnNode, String> {
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
                let run = checked_mul(*size as usize, per)?;
                let (node, _) = self.number(of, run, out)?;
                Ok(fixed_lists(node, of, dimensions))
            }
            (Dimension::Counted(place), Some(Primitive::Byte), _) if inner.is_empty() => {
                let slot = self.slot(SlotKind::Bytes)?;
                out.push(Op::Bytes { slot, count: registers[place] }, self);
                Ok(ColumnNode::Bytes { slot })
            }
            (Dimension::Counted(place), Some(of), Some(per)) => {
                let width = width(of).unwrap_or_default();
                let (offsets, slot) =
                    (self.slot(SlotKind::Offsets)?, self.slot(SlotKind::Numbers(width))?);
                let are_booleans = of == Primitive::Boolean;
                let leaf = NumberArray { slot, width, per_element: per, are_booleans };
                out.push(Op::Numbers { offsets, leaf, count: registers[place] }, self);
                Ok(list(offsets, fixed_lists(ColumnNode::Number { slot, of }, of, inner)))
            }
            (Dimension::Counted(place), ..) => {
                let offsets = self.slot(SlotKind::Offsets)?;
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

    /// Compiles the elements of an array as a separate program.
    fn item(
        &mut self,
        element: Element<'l>,
        inner: &[Dimension],
        registers: &CountRegisters,
    ) -> Result<(Program, ColumnNode), String> {
        let mut out = ProgramBuilder::default();
        let node = self.array(element, inner, registers, &mut out)?;
        Ok((self.finish(out), node))
    }

    fn single(
        &mut self,
        element: Element<'l>,
        out: &mut ProgramBuilder,
    ) -> Result<ColumnNode, String> {
        match element {
            Element::Number(of) => self.number(of, 1, out).map(|(node, _)| node),
            Element::Enum(_) => self.number(Primitive::Int32, 1, out).map(|(node, _)| node),
            Element::Text => {
                let slot = self.slot(SlotKind::Bytes)?;
                out.push(Op::Text { slot }, self);
                Ok(ColumnNode::Text { slot })
            }
            Element::Opaque(of) => {
                let slot = self.slot(SlotKind::Bytes)?;
                out.push(Op::Opaque { slot, of }, self);
                Ok(ColumnNode::Bytes { slot })
            }
            Element::Struct(id, members) => {
                let (fields, children) = self.members(id, members, out)?;
                Ok(ColumnNode::Struct { fields: fields.into(), children })
            }
        }
    }

    /// Adds adjacent numbers to the open region.
    fn number(
        &mut self,
        of: Primitive,
        run: usize,
        out: &mut ProgramBuilder,
    ) -> Result<(ColumnNode, usize), String> {
        let width = width(of).unwrap_or_default();
        let (slot, offset) = (self.slot(SlotKind::Numbers(width))?, out.open.size);
        out.open.size = checked_add(offset, checked_mul(width, run)?)?;
        if of == Primitive::Boolean {
            out.open.booleans.push(offset..out.open.size);
        }
        out.open.leaves.push(Leaf { slot, width, offsets: vec![offset], run });
        Ok((ColumnNode::Number { slot, of }, slot))
    }

    fn slot(&mut self, slot: SlotKind) -> Result<usize, String> {
        if self.slots.len() == MAX_SLOTS {
            return Err(format!("more than {MAX_SLOTS} columns"));
        }
        self.slots.push(slot);
        Ok(self.slots.len() - 1)
    }
}

/// The product of the dimensions if all are fixed.
fn all_fixed(dimensions: &[Dimension]) -> Result<Option<usize>, String> {
    let mut product = 1;
    for dimension in dimensions {
        let Dimension::Fixed { size, .. } = dimension else { return Ok(None) };
        product = checked_mul(product, *size as usize)?;
    }
    Ok(Some(product))
}

fn checked_mul(a: usize, b: usize) -> Result<usize, String> {
    a.checked_mul(b).filter(|n| *n <= MAX_MESSAGE_LEN).ok_or_else(too_long)
}

fn checked_add(size: usize, by: usize) -> Result<usize, String> {
    size.checked_add(by).filter(|n| *n <= MAX_MESSAGE_LEN).ok_or_else(too_long)
}

fn too_long() -> String {
    "messages are longer than 2 GiB".to_owned()
}

/// Wraps numbers in fixed-size lists. The innermost byte array is one binary value.
fn fixed_lists(number: ColumnNode, of: Primitive, dimensions: &[Dimension]) -> ColumnNode {
    let mut sizes: Vec<usize> = dimensions
        .iter()
        .map(|dimension| match dimension {
            Dimension::Fixed { size, .. } => *size as usize,
            Dimension::Counted(_) => 0,
        })
        .collect();
    let innermost = match (&number, of) {
        (ColumnNode::Number { slot, .. }, Primitive::Byte) => {
            let slot = *slot;
            sizes.pop().map_or(number, |size| ColumnNode::FixedBytes { slot, size })
        }
        _ => number,
    };
    sizes.into_iter().rev().fold(innermost, |item, size| fixed_list(size, item))
}

fn fixed_list(size: usize, item: ColumnNode) -> ColumnNode {
    ColumnNode::FixedList {
        size,
        field: field("item", item.data_type(), None),
        item: Box::new(item),
    }
}

fn list(offsets: usize, item: ColumnNode) -> ColumnNode {
    ColumnNode::List { offsets, field: field("item", item.data_type(), None), item: Box::new(item) }
}

/// Adds `count` rows of `item`, inline in the open region if they are small.
fn repeat(
    count: usize,
    item: Program,
    out: &mut ProgramBuilder,
    compiler: &mut PlanCompiler<'_>,
) -> Result<(), String> {
    checked_mul(count, item.min_len)?;
    let small = match item.ops.as_slice() {
        [Op::Region(region)] => {
            let places = region.leaves.iter().map(|leaf| leaf.offsets.len());
            count.saturating_mul(places.max().unwrap_or(0)) <= MAX_INLINE_RUNS
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
            .extend(leaves.map(|leaf| Leaf { offsets: moved(&leaf.offsets), ..leaf.clone() }));
        let booleans = starts.iter().flat_map(|start| {
            region.booleans.iter().map(move |at| start + at.start..start + at.end)
        });
        out.open.booleans.extend(booleans);
        out.open.size = checked_add(out.open.size, count * region.size)?;
    }
    Ok(())
}
