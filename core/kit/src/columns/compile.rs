//! Compiles fields into a plan: lays out regions, slots and columns, member by member.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema};

use super::plan::{
    CLASS, ColumnNode, Count, CountField, Leaf, NumberArray, Op, PayloadPlan, Program, SlotKind,
    ValueType, VariantCases, VariantNode, VariantOp,
};
use super::program_builder::{ProgramBuilder, checked_mul};
use super::shape::{
    counting_members, enum_values, integer, is_integer, members_of_cases, takes_no_bytes,
    uniform_alignment,
};
use super::{
    Endian, Extent, FieldShape, NumberType, NumberView, PayloadField, SpanKind, ViewKind, WireRules,
};

/// The key in a field's metadata for the names of an enum's values, as a JSON object.
pub const ENUM: &str = "sluice.enum";

/// Struct arrays with at most this many runs of numbers become part of the region around them.
const MAX_INLINE_RUNS: usize = 64;

impl PayloadPlan {
    /// Compiles the plan of payloads with these fields. `Err` says why they cannot become columns.
    pub fn compile(rules: WireRules, fields: &[PayloadField]) -> Result<Self, String> {
        Self::compile_in_parts(rules, fields, &[])
    }

    /// Like [`compile`](Self::compile), for payloads that [`decode_parts`](Self::decode_parts) may
    /// get in parts: all but the first start with the fields that have these indices.
    pub fn compile_in_parts(
        rules: WireRules,
        fields: &[PayloadField],
        part_starts: &[usize],
    ) -> Result<Self, String> {
        let mut compiler = PlanCompiler::new(rules, 0);
        compiler.part_starts = part_starts.to_vec();
        let mut out = ProgramBuilder::new(rules, rules.alignment);
        let (fields, columns) = compiler.members(fields, &mut out)?;
        let program = out.finish(&mut compiler.regions);
        let PlanCompiler { slots, regions, registers, longest_region, is_one_way, .. } = compiler;
        let (schema, zeros) = (Arc::new(Schema::new(fields)), vec![0; longest_region]);
        let plan = Self { rules, program, slots, columns, schema, ..Self::empty() };
        Ok(Self { regions, registers, zeros, is_one_way, ..plan })
    }
}

struct PlanCompiler {
    rules: WireRules,
    slots: Vec<SlotKind>,
    regions: usize,
    registers: usize,
    /// The longest region of a variant.
    longest_region: usize,
    is_one_way: bool,
    /// The byte order of the numbers that are being compiled.
    endian: Endian,
    depth: usize,
    /// The members that parts of a payload start with, until the outermost ones are compiled.
    part_starts: Vec<usize>,
}

/// Registers by index of the counting member.
type CountRegisters = HashMap<usize, usize>;

type StructColumns = (Vec<FieldRef>, Vec<ColumnNode>);

impl PlanCompiler {
    fn new(rules: WireRules, depth: usize) -> Self {
        Self {
            rules,
            slots: Vec::new(),
            regions: 0,
            registers: 0,
            longest_region: 0,
            is_one_way: false,
            endian: rules.endian,
            depth,
            part_starts: Vec::new(),
        }
    }

    fn members(
        &mut self,
        members: &[PayloadField],
        out: &mut ProgramBuilder,
    ) -> Result<StructColumns, String> {
        let registers = self.registers_of(members)?;
        let part_starts = std::mem::take(&mut self.part_starts);
        let (mut fields, mut nodes, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (at, PayloadField { name, shape }) in members.iter().enumerate() {
            for _ in part_starts.iter().filter(|start| **start == at) {
                out.push(Op::Part, &mut self.regions);
            }
            let wrong = |what: String| format!("`{name}`: {what}");
            if matches!(shape, FieldShape::Rest) && (self.depth > 0 || at + 1 < members.len()) {
                return Err(wrong("only the last field can be the rest of the payload".to_owned()));
            }
            if takes_no_bytes(shape) {
                // It has no column, but it may be wrong.
                let mut apart = Self::new(self.rules, self.depth);
                let compiled =
                    apart.value(shape, &registers, &mut ProgramBuilder::new(self.rules, 0));
                compiled.map_err(wrong)?;
                continue;
            }
            let has_views =
                matches!(shape, FieldShape::Span(SpanKind::Skipped, _) | FieldShape::Views(..));
            if !has_views && !names.insert(name) {
                return Err(wrong("two fields have this name".to_owned()));
            }
            if let (Some(register), Some((of, endian))) = (registers.get(&at), integer(shape)) {
                out.align(self.rules.alignment_of(of.width()), &mut self.regions);
                let (offset, register) = (out.open.size, *register);
                let endian = endian.unwrap_or(self.rules.endian);
                out.open.counts.push(CountField { offset, of, endian, register });
            }
            if let FieldShape::Span(SpanKind::Skipped, extent) = shape {
                self.skip(*extent, &registers, out).map_err(wrong)?;
                continue;
            }
            if let FieldShape::Views(of, views) = shape {
                let node = self.value(of, &registers, out).map_err(wrong)?;
                self.is_one_way = true;
                for NumberView { name, kind } in views {
                    let node = view(&node, *kind).map_err(wrong)?;
                    fields.push(field(name, node.data_type(), false, of));
                    nodes.push(node);
                }
                continue;
            }
            let node = self.value(shape, &registers, out).map_err(wrong)?;
            fields.push(field(name, node.data_type(), node.is_nullable(), shape));
            nodes.push(node);
        }
        Ok((fields, nodes))
    }

    /// A register for each member that counts another one.
    fn registers_of(&mut self, members: &[PayloadField]) -> Result<CountRegisters, String> {
        let mut registers = CountRegisters::new();
        for (at, PayloadField { name, shape }) in members.iter().enumerate() {
            for by in counting_members(shape) {
                if by >= at || !is_integer(members.get(by)) {
                    return Err(format!("`{name}`: its length is not an integer member before it"));
                }
                let next = self.registers + registers.len();
                registers.entry(by).or_insert(next);
            }
        }
        self.registers += registers.len();
        Ok(registers)
    }

    fn nested<T>(
        &mut self,
        compile: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        if self.depth == self.rules.max_depth {
            return Err(format!("it nests deeper than {}", self.rules.max_depth));
        }
        self.depth += 1;
        let compiled = compile(self);
        self.depth -= 1;
        compiled
    }

    fn value(
        &mut self,
        shape: &FieldShape,
        registers: &CountRegisters,
        out: &mut ProgramBuilder,
    ) -> Result<ColumnNode, String> {
        if let Some((of, run)) = self.number_run(shape)? {
            let slot = self.number(of, run, out)?;
            return self.number_column(shape, slot);
        }
        match shape {
            FieldShape::Text => {
                let slot = self.slot(SlotKind::Bytes)?;
                out.push(Op::Text { slot }, &mut self.regions);
                Ok(ColumnNode::Text { slot })
            }
            FieldShape::Bytes => self.bytes(Count::Prefix, out),
            FieldShape::CountedBytes(by) => {
                self.bytes(Count::Register(register(registers, *by)?), out)
            }
            FieldShape::Opaque(of) => {
                let slot = self.slot(SlotKind::Bytes)?;
                out.push(Op::Opaque { slot, of: of.clone() }, &mut self.regions);
                Ok(ColumnNode::Bytes { slot })
            }
            FieldShape::Rest => self.bytes(Count::Rest(0), out),
            FieldShape::Span(SpanKind::TrimmedText, extent) => {
                self.is_one_way = true;
                let (count, slot) = (count(*extent, registers)?, self.slot(SlotKind::Bytes)?);
                out.push(Op::Bytes { slot, count, kind: SpanKind::TrimmedText }, &mut self.regions);
                Ok(ColumnNode::Text { slot })
            }
            FieldShape::Span(_, extent) => self.bytes(count(*extent, registers)?, out),
            FieldShape::RestList(item, tail) => self.list(item, Count::Rest(*tail), registers, out),
            FieldShape::InOrder(endian, of) => {
                let around = std::mem::replace(&mut self.endian, *endian);
                let node = self.value(of, registers, out);
                self.endian = around;
                node
            }
            FieldShape::Fixed(item, size) => self.fixed(item, *size, registers, out),
            FieldShape::List(item) if **item == FieldShape::Number(NumberType::U8) => {
                self.bytes(Count::Prefix, out)
            }
            FieldShape::List(item) => self.list(item, Count::Prefix, registers, out),
            FieldShape::Counted(item, by) => {
                self.list(item, Count::Register(register(registers, *by)?), registers, out)
            }
            FieldShape::Struct(members) => {
                let (fields, children) = self.nested(|inner| inner.members(members, out))?;
                Ok(ColumnNode::Struct { fields: fields.into(), children })
            }
            FieldShape::Variant(cases) => self.nested(|inner| inner.variant(cases, out)),
            FieldShape::Views(..) => Err("only a member has views".to_owned()),
            FieldShape::Number(_)
            | FieldShape::Bool
            | FieldShape::Enum(_)
            | FieldShape::FixedBytes(_) => Err("it is not a number".to_owned()),
        }
    }

    /// The type of the numbers of a shape that is nothing else, and how many there are.
    fn number_run(&self, shape: &FieldShape) -> Result<Option<(ValueType, usize)>, String> {
        Ok(Some(match shape {
            FieldShape::Number(of) => (ValueType::Number(*of), 1),
            FieldShape::Bool => (ValueType::Bool(self.rules.booleans), 1),
            FieldShape::Enum(values) => (ValueType::Enum(self.rules.enums.width(values.len())), 1),
            FieldShape::FixedBytes(size) => (ValueType::Number(NumberType::U8), *size),
            FieldShape::Fixed(item, size) => {
                let Some((of, run)) = self.number_run(item)? else { return Ok(None) };
                self.check_fixed(*size, run.saturating_mul(of.width()))?;
                (of, checked_mul(*size, run)?)
            }
            _ => return Ok(None),
        }))
    }

    /// The column of the numbers of a shape that is nothing else.
    fn number_column(&mut self, shape: &FieldShape, slot: usize) -> Result<ColumnNode, String> {
        match shape {
            FieldShape::Fixed(item, size) => {
                let item = self.nested(|inner| inner.number_column(item, slot))?;
                Ok(fixed_list(*size, item))
            }
            FieldShape::FixedBytes(size) => Ok(ColumnNode::FixedBytes { slot, size: *size }),
            _ => {
                let of = self.number_run(shape)?.ok_or("it is not a number")?.0;
                Ok(ColumnNode::Number { slot, of })
            }
        }
    }

    /// Compiles the elements of an array, each of which starts at a multiple of `aligned`, as a
    /// separate program.
    fn item(
        &mut self,
        item: &FieldShape,
        aligned: usize,
        registers: &CountRegisters,
    ) -> Result<(Program, ColumnNode), String> {
        let mut out = ProgramBuilder::new(self.rules, aligned);
        let node = self.value(item, registers, &mut out)?;
        Ok((out.finish(&mut self.regions), node))
    }

    fn list(
        &mut self,
        item: &FieldShape,
        count: Count,
        registers: &CountRegisters,
        out: &mut ProgramBuilder,
    ) -> Result<ColumnNode, String> {
        if takes_no_bytes(item) || *item == FieldShape::Rest {
            return Err("a list of elements without bytes has no end".to_owned());
        }
        let offsets = self.slot(SlotKind::Offsets)?;
        let node = if let Some((of, per_element)) = self.number_run(item)? {
            let slot = self.number_slot(of)?;
            let leaf = NumberArray { slot, of, endian: self.endian, per_element };
            let align = self.rules.alignment_of(of.width());
            out.push(Op::Numbers { offsets, leaf, count, align }, &mut self.regions);
            self.nested(|inner| inner.number_column(item, slot))?
        } else {
            let align = uniform_alignment(item, &self.rules).unwrap_or(1);
            let (item, node) = self.nested(|inner| inner.item(item, align, registers))?;
            out.push(Op::List { offsets, count, item, align }, &mut self.regions);
            node
        };
        Ok(ColumnNode::List { offsets, field: element(&node), item: Box::new(node) })
    }

    fn fixed(
        &mut self,
        item: &FieldShape,
        size: usize,
        registers: &CountRegisters,
        out: &mut ProgramBuilder,
    ) -> Result<ColumnNode, String> {
        let align = uniform_alignment(item, &self.rules).unwrap_or(1);
        let (item, node) = self.nested(|inner| inner.item(item, align, registers))?;
        out.align(align, &mut self.regions);
        self.repeat(size, item, align, out)?;
        Ok(fixed_list(size, node))
    }

    fn bytes(&mut self, count: Count, out: &mut ProgramBuilder) -> Result<ColumnNode, String> {
        let slot = self.slot(SlotKind::Bytes)?;
        out.push(Op::Bytes { slot, count, kind: SpanKind::Bytes }, &mut self.regions);
        Ok(ColumnNode::Bytes { slot })
    }

    /// Adds bytes without a column: to the open region if it is known how many.
    fn skip(
        &mut self,
        extent: Extent,
        registers: &CountRegisters,
        out: &mut ProgramBuilder,
    ) -> Result<(), String> {
        self.is_one_way = true;
        match count(extent, registers)? {
            Count::Fixed(len) => drop(out.extend(len, 1)?),
            count => {
                out.push(Op::Bytes { slot: 0, count, kind: SpanKind::Skipped }, &mut self.regions)
            }
        }
        Ok(())
    }

    /// A slot of numbers. Those of 24 bits are kept as 32.
    fn number_slot(&mut self, of: ValueType) -> Result<usize, String> {
        self.is_one_way |= of.width() == 3;
        self.slot(SlotKind::Numbers(of.width().next_power_of_two()))
    }

    /// Adds adjacent numbers to the open region, and returns their slot.
    fn number(
        &mut self,
        of: ValueType,
        run: usize,
        out: &mut ProgramBuilder,
    ) -> Result<usize, String> {
        let width = of.width();
        out.align(self.rules.alignment_of(width), &mut self.regions);
        let (slot, offset) = (self.number_slot(of)?, out.extend(width, run)?);
        if matches!(of, ValueType::Bool(_)) {
            out.open.booleans.push(offset..out.open.size);
        }
        let (endian, offsets) = (self.endian, vec![offset]);
        out.open.leaves.push(Leaf { slot, of, endian, offsets, run });
        Ok(slot)
    }

    fn check_fixed(&self, count: usize, item_len: usize) -> Result<(), String> {
        if item_len.saturating_mul(count) > self.rules.max_fixed_len {
            return Err(format!("a list of {count} elements is too long"));
        }
        Ok(())
    }

    /// Adds `count` rows of `item`, inline in the open region if they are small. They follow each
    /// other without padding if all start at a multiple of `aligned`.
    fn repeat(
        &mut self,
        count: usize,
        item: Program,
        aligned: usize,
        out: &mut ProgramBuilder,
    ) -> Result<(), String> {
        self.check_fixed(count, item.min_len)?;
        checked_mul(count, item.min_len)?;
        if let [Op::Region(region)] = item.ops.as_slice() {
            let runs = region.leaves.iter().map(|leaf| leaf.offsets.len()).max().unwrap_or(0);
            if count.saturating_mul(runs) <= MAX_INLINE_RUNS {
                return out.inline(count, region);
            }
        }
        out.push(Op::Repeat { count, item }, &mut self.regions);
        out.aligned = aligned;
        Ok(())
    }

    fn variant(
        &mut self,
        cases: &[(String, Vec<PayloadField>)],
        out: &mut ProgramBuilder,
    ) -> Result<ColumnNode, String> {
        let (members, places) = members_of_cases(cases)?;
        let classes = (cases.len() > 1)
            .then(|| cases.iter().map(|(name, _)| Arc::from(name.as_str())).collect::<Vec<_>>());
        let mut fields = Vec::new();
        if classes.is_some() {
            if members.iter().any(|member| member.name == CLASS) {
                return Err(format!("a member of a class cannot be called `{CLASS}`"));
            }
            fields.push(field(CLASS, DataType::Utf8, true, &FieldShape::Text));
        }
        let slot = self.slot(SlotKind::Numbers(1))?;
        let (mut programs, mut nodes) = (Vec::new(), Vec::new());
        // Members without bytes have no column, so indices shift.
        let mut moved = Vec::new();
        for PayloadField { name, shape } in &members {
            let (program, node) = self.item(shape, 1, &CountRegisters::new())?;
            let has_bytes = !takes_no_bytes(shape);
            moved.push(has_bytes.then_some(nodes.len()));
            if has_bytes {
                fields.push(field(name, node.data_type(), true, shape));
                self.longest_region = self.longest_region.max(longest_region(&program));
                programs.push(program);
                nodes.push(node);
            }
        }
        let children = places
            .iter()
            .map(|case| case.iter().filter_map(|at| *moved.get(*at)?).collect())
            .collect();
        let cases = Arc::new(VariantCases { classes, children });
        let blank = blank_bytes(&nodes).saturating_add(1);
        let op = VariantOp { slot, children: programs, cases: Arc::clone(&cases), blank };
        out.push(Op::Variant(op), &mut self.regions);
        Ok(ColumnNode::Variant(VariantNode { slot, fields: fields.into(), children: nodes, cases }))
    }

    fn slot(&mut self, slot: SlotKind) -> Result<usize, String> {
        let max_columns = self.rules.max_columns;
        if self.slots.len() == max_columns {
            return Err(format!("it would have more than {max_columns} columns"));
        }
        self.slots.push(slot);
        Ok(self.slots.len() - 1)
    }
}

fn field(name: &str, data_type: DataType, nullable: bool, shape: &FieldShape) -> FieldRef {
    let field = Field::new(name, data_type, nullable);
    let Some(values) = enum_values(shape) else { return Arc::new(field) };
    let names: serde_json::Map<_, _> =
        values.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
    let metadata = HashMap::from([(ENUM.to_owned(), serde_json::Value::from(names).to_string())]);
    Arc::new(field.with_metadata(metadata))
}

/// The number of bytes of a span.
fn count(extent: Extent, registers: &CountRegisters) -> Result<Count, String> {
    Ok(match extent {
        Extent::Fixed(len) => Count::Fixed(len),
        Extent::Counted(by) => Count::Register(register(registers, by)?),
        Extent::Rest(tail) => Count::Rest(tail),
    })
}

/// The column of a view of numbers.
fn view(numbers: &ColumnNode, kind: ViewKind) -> Result<ColumnNode, String> {
    Ok(match numbers {
        ColumnNode::Number { slot, of: ValueType::Number(of) } => {
            ColumnNode::View { slot: *slot, of: *of, kind }
        }
        ColumnNode::FixedList { size, item, .. } => fixed_list(*size, view(item, kind)?),
        ColumnNode::List { offsets, item, .. } => {
            let item = view(item, kind)?;
            ColumnNode::List { offsets: *offsets, field: element(&item), item: Box::new(item) }
        }
        _ => return Err("only numbers have views".to_owned()),
    })
}

fn register(registers: &CountRegisters, by: usize) -> Result<usize, String> {
    registers.get(&by).copied().ok_or_else(|| "it has no length member".to_owned())
}

/// The bytes of these columns for a missing value.
fn blank_bytes(nodes: &[ColumnNode]) -> usize {
    let blank = |node: &ColumnNode| match node {
        ColumnNode::Number { of: ValueType::Bool(_), .. } => 1,
        ColumnNode::Number { of: ValueType::Number(of), .. } => of.width(),
        ColumnNode::View { .. } => 8,
        ColumnNode::Number { of: ValueType::Enum(_), .. }
        | ColumnNode::Text { .. }
        | ColumnNode::Bytes { .. }
        | ColumnNode::List { .. } => 4,
        ColumnNode::FixedBytes { size, .. } => *size,
        ColumnNode::FixedList { size, item, .. } => {
            size.saturating_mul(blank_bytes(std::slice::from_ref(item)))
        }
        ColumnNode::Struct { children, .. } => blank_bytes(children),
        ColumnNode::Variant(variant) => blank_bytes(&variant.children).saturating_add(1),
    };
    nodes.iter().map(blank).fold(0, usize::saturating_add)
}

fn longest_region(program: &Program) -> usize {
    let longest = |op: &Op| match op {
        Op::Region(region) => region.size,
        Op::List { item, .. } | Op::Repeat { item, .. } => longest_region(item),
        Op::Variant(variant) => variant.children.iter().map(longest_region).max().unwrap_or(0),
        _ => 0,
    };
    program.ops.iter().map(longest).max().unwrap_or(0)
}

fn fixed_list(size: usize, item: ColumnNode) -> ColumnNode {
    ColumnNode::FixedList { size, field: element(&item), item: Box::new(item) }
}

fn element(item: &ColumnNode) -> FieldRef {
    Arc::new(Field::new("item", item.data_type(), item.is_nullable()))
}
