//! Compiles members to nodes: what is read in which order, and which columns it becomes.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef, Fields};

use super::{
    FieldShape, LayoutField, LengthEncoding, NumberType, WireRules, element, field, struct_type,
};

/// The most columns of a layout: declarations can expand to billions.
const MAX_COLUMNS: usize = 2_000;
/// Layouts nest no deeper than this.
const MAX_DEPTH: usize = 32;
/// The most bytes of a fixed-size list.
const MAX_FIXED_BYTES: usize = 16 << 20;
/// The column with the name of a variant's case.
pub(super) const CLASS: &str = "class";

/// A whole layout.
#[derive(Debug)]
pub(super) struct CompiledLayout {
    pub(super) nodes: Vec<LayoutNode>,
    pub(super) fields: Vec<FieldRef>,
    /// The number of members that are lengths of later members.
    pub(super) registers: usize,
}

/// A field of a payload.
#[derive(Debug)]
pub(super) enum LayoutNode {
    Number { of: NumberType, register: Option<usize> },
    Bool { width: usize },
    Enum { width: usize },
    Text(LengthEncoding),
    Bytes(LengthEncoding),
    Rest,
    Fixed { count: usize, item: Box<LayoutNode>, field: FieldRef },
    List { count: ListLength, least: usize, item: Box<LayoutNode>, field: FieldRef },
    Struct { members: Vec<LayoutNode>, fields: Fields },
    Variant(VariantNode),
}

/// Where the length of a list is stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListLength {
    Prefix(LengthEncoding),
    Register(usize),
}

/// One of several structs, or none.
#[derive(Debug)]
pub(super) struct VariantNode {
    /// The members of all cases, preceded by the class if there are several cases.
    pub(super) fields: Fields,
    /// The names of the cases, if there are several.
    pub(super) classes: Option<Vec<Arc<str>>>,
    pub(super) children: Vec<LayoutNode>,
    /// For each case its children, in order.
    pub(super) cases: Vec<Vec<usize>>,
    /// The bytes of its columns for a missing value.
    pub(super) blank: usize,
}

impl LayoutNode {
    /// The type of its column.
    fn data_type(&self) -> DataType {
        match self {
            Self::Number { of, .. } => of.data_type(),
            Self::Bool { .. } => DataType::Boolean,
            Self::Enum { .. } => DataType::Int32,
            Self::Text(_) => DataType::Utf8,
            Self::Bytes(_) | Self::Rest => DataType::Binary,
            Self::Fixed { count, field, .. } => {
                DataType::FixedSizeList(Arc::clone(field), *count as i32)
            }
            Self::List { field, .. } => DataType::List(Arc::clone(field)),
            Self::Struct { fields, .. } | Self::Variant(VariantNode { fields, .. }) => {
                DataType::Struct(fields.clone())
            }
        }
    }

    /// Whether it may be null.
    fn may_be_null(&self) -> bool {
        matches!(self, Self::Variant(_))
    }

    /// Its minimum length in bytes.
    pub(super) fn least(&self) -> usize {
        let length = |lengths: LengthEncoding| if lengths == LengthEncoding::U32 { 4 } else { 1 };
        match self {
            Self::Number { of, .. } => of.width(),
            Self::Bool { width } | Self::Enum { width } => *width,
            Self::Text(lengths) | Self::Bytes(lengths) => length(*lengths),
            Self::Fixed { count, item, .. } => count.saturating_mul(item.least()),
            Self::List { count: ListLength::Prefix(lengths), .. } => length(*lengths),
            Self::Struct { members, .. } => members.iter().map(Self::least).sum(),
            Self::Variant(_) => 1,
            Self::Rest | Self::List { count: ListLength::Register(_), .. } => 0,
        }
    }
}

/// The bytes of its columns for a missing value.
fn blank_bytes(node: &LayoutNode) -> usize {
    match node {
        LayoutNode::Number { of, .. } => of.width(),
        LayoutNode::Bool { .. } => 1,
        LayoutNode::Enum { .. }
        | LayoutNode::Text(_)
        | LayoutNode::Bytes(_)
        | LayoutNode::Rest
        | LayoutNode::List { .. } => 4,
        LayoutNode::Fixed { count, item, .. } => count.saturating_mul(blank_bytes(item)),
        LayoutNode::Struct { members, .. } => members.iter().map(blank_bytes).sum(),
        LayoutNode::Variant(variant) => variant.blank,
    }
}

pub(super) fn compile(wire: WireRules, members: &[LayoutField]) -> Result<CompiledLayout, String> {
    let mut compiler = Compiler { wire, columns: 0, registers: 0, depth: 0 };
    let (nodes, fields) = compiler.members(members)?;
    Ok(CompiledLayout { nodes, fields, registers: compiler.registers })
}

struct Compiler {
    wire: WireRules,
    columns: usize,
    registers: usize,
    depth: usize,
}

impl Compiler {
    fn members(
        &mut self,
        members: &[LayoutField],
    ) -> Result<(Vec<LayoutNode>, Vec<FieldRef>), String> {
        let counting: BTreeSet<usize> = members.iter().filter_map(length_member).collect();
        let first = self.registers;
        self.registers += counting.len();
        let register = |at: usize| counting.iter().position(|c| *c == at).map(|n| first + n);
        let (mut nodes, mut fields, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (at, member) in members.iter().enumerate() {
            let LayoutField { name, shape } = member;
            let wrong = |what: String| format!("`{name}`: {what}");
            let mut node = match length_member(member) {
                Some(by) if by >= at || !is_whole(members.get(by)) => {
                    return Err(wrong("its length is not an integer member before it".to_owned()));
                }
                by => self.node(shape, by.and_then(register)).map_err(wrong)?,
            };
            if let LayoutNode::Number { register: to, .. } = &mut node {
                *to = register(at);
            }
            if matches!(shape, FieldShape::Rest) && (self.depth > 0 || at + 1 < members.len()) {
                return Err(wrong("only the last field can be the rest of the payload".to_owned()));
            }
            if has_no_bytes(&node) {
                continue;
            }
            if !names.insert(name) {
                return Err(wrong("two fields have this name".to_owned()));
            }
            fields.push(field(name, node.data_type(), node.may_be_null(), shape));
            nodes.push(node);
        }
        Ok((nodes, fields))
    }

    fn nested<T>(
        &mut self,
        do_it: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        if self.depth == MAX_DEPTH {
            return Err(format!("it nests deeper than {MAX_DEPTH}"));
        }
        self.depth += 1;
        let done = do_it(self);
        self.depth -= 1;
        done
    }

    /// Compiles a shape, whose length is in `register` if another member counts it.
    fn node(&mut self, shape: &FieldShape, register: Option<usize>) -> Result<LayoutNode, String> {
        self.columns += 1;
        if self.columns > MAX_COLUMNS {
            return Err(format!("it would have more than {MAX_COLUMNS} columns"));
        }
        let WireRules { booleans, lengths } = self.wire;
        Ok(match shape {
            FieldShape::Number(of) => LayoutNode::Number { of: *of, register: None },
            FieldShape::Bool => LayoutNode::Bool { width: booleans },
            FieldShape::Enum(values) => LayoutNode::Enum { width: enum_width(values.len()) },
            FieldShape::Text => LayoutNode::Text(lengths),
            FieldShape::Bytes => LayoutNode::Bytes(lengths),
            FieldShape::Rest => LayoutNode::Rest,
            FieldShape::Fixed(item, count) => {
                let item = Box::new(self.nested(|inner| inner.node(item, None))?);
                if item.least().saturating_mul(*count) > MAX_FIXED_BYTES {
                    return Err(format!("a list of {count} elements is too long"));
                }
                let field = element(item.data_type(), item.may_be_null());
                LayoutNode::Fixed { count: *count, item, field }
            }
            FieldShape::List(item) if **item == FieldShape::Number(NumberType::U8) => {
                LayoutNode::Bytes(lengths)
            }
            FieldShape::List(item) => self.list(item, ListLength::Prefix(lengths))?,
            FieldShape::Counted(item, _) => match register {
                Some(register) => self.list(item, ListLength::Register(register))?,
                None => return Err("it has no length member".to_owned()),
            },
            FieldShape::Struct(members) => {
                let (members, fields) = self.nested(|inner| inner.members(members))?;
                LayoutNode::Struct { members, fields: fields.into() }
            }
            FieldShape::Variant(cases) => self.nested(|inner| inner.variant(cases))?,
        })
    }

    fn list(&mut self, item: &FieldShape, count: ListLength) -> Result<LayoutNode, String> {
        let item = Box::new(self.nested(|inner| inner.node(item, None))?);
        let least = item.least();
        if least == 0 {
            return Err("a list of elements without bytes has no end".to_owned());
        }
        let field = element(item.data_type(), item.may_be_null());
        Ok(LayoutNode::List { count, least, item, field })
    }

    fn variant(&mut self, cases: &[(String, Vec<LayoutField>)]) -> Result<LayoutNode, String> {
        if cases.len() > usize::from(u8::MAX) {
            return Err("it has more than 255 cases".to_owned());
        }
        let mut all: Vec<&LayoutField> = Vec::new();
        let mut places = Vec::new();
        for (_, members) in cases {
            if members.iter().any(|member| length_member(member).is_some()) {
                return Err("a list cannot be counted by a member inside a variant".to_owned());
            }
            let mut case = Vec::new();
            for member in members {
                let known = all.iter().position(|known| known.name == member.name);
                let place = known.unwrap_or(all.len());
                if known.is_none() {
                    all.push(member);
                } else if all.get(place).is_some_and(|known| known.shape != member.shape) {
                    return Err(format!("`{}` differs between its classes", member.name));
                }
                case.push(place);
            }
            places.push(case);
        }
        let classes = (cases.len() > 1)
            .then(|| cases.iter().map(|(name, _)| Arc::from(name.as_str())).collect::<Vec<_>>());
        let mut fields = Vec::new();
        if classes.is_some() {
            if all.iter().any(|member| member.name == CLASS) {
                return Err(format!("a member of a class cannot be called `{CLASS}`"));
            }
            fields.push(field(CLASS, DataType::Utf8, true, &FieldShape::Text));
        }
        let mut children = Vec::new();
        // Members without bytes have no column, so indices shift.
        let mut moved = Vec::new();
        for member in &all {
            let node = self.node(&member.shape, None)?;
            let is_there = !has_no_bytes(&node);
            moved.push(is_there.then_some(children.len()));
            if is_there {
                fields.push(field(&member.name, node.data_type(), true, &member.shape));
                children.push(node);
            }
        }
        let cases = places
            .iter()
            .map(|case| case.iter().filter_map(|at| *moved.get(*at)?).collect())
            .collect();
        let DataType::Struct(fields) = struct_type(fields) else {
            return Err("a struct is a struct".to_owned());
        };
        let blank = children.iter().map(blank_bytes).fold(1, usize::saturating_add);
        Ok(LayoutNode::Variant(VariantNode { fields, classes, children, cases, blank }))
    }
}

fn length_member(member: &LayoutField) -> Option<usize> {
    if let FieldShape::Counted(_, by) = &member.shape { Some(*by) } else { None }
}

fn is_whole(member: Option<&LayoutField>) -> bool {
    use NumberType::{I8, I16, I32, I64, U8, U16, U32, U64};
    let shape = member.map(|member| &member.shape);
    matches!(shape, Some(FieldShape::Number(I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)))
}

/// Whether it never takes any bytes, and so has no values.
fn has_no_bytes(node: &LayoutNode) -> bool {
    match node {
        LayoutNode::Fixed { count, item, .. } => *count == 0 || has_no_bytes(item),
        LayoutNode::Struct { members, .. } => members.is_empty(),
        _ => false,
    }
}

fn enum_width(values: usize) -> usize {
    match values {
        0..=127 => 1,
        128..=32_767 => 2,
        _ => 4,
    }
}
