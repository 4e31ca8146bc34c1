//! Compiles a type for its records: the checks in record order, and the members of the linear form.
//! Reads no record.
//!
//! | in a record | in its linear form | column |
//! |---|---|---|
//! | `bool`, `byte`, `short` … `double`, `string`, enums | unchanged | as core's columns define |
//! | struct | its members | `Struct` |
//! | sequence | size, elements | `List`; of `byte`, `Binary` |
//! | dictionary | size, pairs | `List` of `Struct` with `key` and `value` |
//! | reference to an instance of a class | a byte: 0 for none, k for the k-th possible class; then the members of the instance, those of the root first | nullable `Struct` |
//!
//! An instance also has a member `sliced`: the slices of undeclared classes as in the record,
//! except that names are always spelled out. A record with references ends with two more members:
//! `order`, the ids of instances in record order, empty if they rise; and `references`, the id of
//! each instance in the linear form, empty if each has only one reference.

use sluice_kit::columns::{FieldShape, NumberType, PayloadField};

use crate::slice::library::type_names;
use crate::slice::syntax::{Builtin, DeclarationBody, TypeName, TypeRef};
use crate::slice::{SliceLibrary, TypeId};
use crate::wire::{SPELLED, put_sized};

/// The plan for the records of a type.
#[derive(Debug)]
pub(crate) struct TypePlan {
    pub(crate) root: PlanRoot,
    /// The members of the linear form.
    pub(crate) members: Vec<PayloadField>,
    /// The members that the slices of a class but the root's start with, and the one behind them.
    pub(crate) part_starts: Vec<usize>,
    /// The approximate number of columns.
    pub(crate) columns: usize,
}

/// The root of a record.
#[derive(Debug)]
pub(crate) enum PlanRoot {
    /// A struct without references.
    Flat(Vec<FlatPart>),
    /// A struct with references.
    Struct(Vec<PlanPart>),
    /// A reference to the first instance.
    Class(ClassReference),
}

/// A part without references.
#[derive(Debug)]
pub(crate) enum FlatPart {
    /// This many arbitrary bytes.
    Bytes(usize),
    /// A boolean.
    Bool,
    /// One of these sorted values.
    Enum { width: usize, values: Vec<i32> },
    /// A size, and as many elements.
    List(Vec<FlatPart>),
}

/// A part that may have references.
#[derive(Debug)]
pub(crate) enum PlanPart {
    Flat(Vec<FlatPart>),
    /// A size, and as many elements.
    List(Vec<PlanPart>),
    Reference(ClassReference),
}

/// The classes that a reference may lead to, the declared one first.
#[derive(Debug)]
pub(crate) struct ClassReference(pub(crate) Vec<ClassPlan>);

/// The slices of a class: its own first, the root's last.
#[derive(Debug)]
pub(crate) struct ClassPlan(pub(crate) Vec<SlicePlan>);

/// The slice of a class: the members it adds to its base.
#[derive(Debug)]
pub(crate) struct SlicePlan {
    pub(crate) name: String,
    /// What it starts with in a record, up to its length, if its name is spelled out.
    pub(crate) head: Vec<u8>,
    pub(crate) parts: Vec<PlanPart>,
}

/// The maximum number of columns.
const MAX_COLUMNS: usize = 2_000;
/// The maximum nesting depth of types.
const MAX_DEPTH: usize = 32;

/// Compiles a struct or class.
pub(crate) fn compile(library: &SliceLibrary, id: TypeId) -> Result<TypePlan, String> {
    let mut compiler = PlanCompiler { library, columns: 0, path: vec![id] };
    let (root, members, part_starts) = match &library.get(id).declaration.body {
        DeclarationBody::Class { .. } => {
            let (class, mut members, part_starts) = compiler.class(id)?;
            push_trailer(&mut members);
            (PlanRoot::Class(ClassReference(vec![class])), members, part_starts)
        }
        _ => {
            let (root, members) = compiler.structure(id)?;
            (root, members, Vec::new())
        }
    };
    Ok(TypePlan { root, members, part_starts, columns: compiler.columns })
}

/// Adds the last members of the linear form of a record with references.
fn push_trailer(members: &mut Vec<PayloadField>) {
    for name in ["order", "references"] {
        members.push(synthetic_field(
            name,
            members,
            FieldShape::List(Box::new(FieldShape::Number(NumberType::I32))),
        ));
    }
}

/// A member that is not declared, under a name that no declared member has.
fn synthetic_field(name: &str, beside: &[PayloadField], shape: FieldShape) -> PayloadField {
    let mut name = name.to_owned();
    while beside.iter().any(|member| member.name == name) {
        name.push('_');
    }
    PayloadField::new(name, shape)
}

/// A class, its members, and how many of them there are after each slice, the root's first.
type CompiledClass = (ClassPlan, Vec<PayloadField>, Vec<usize>);

struct PlanCompiler<'l> {
    library: &'l SliceLibrary,
    columns: usize,
    /// The types being compiled, each nested in the one before it.
    path: Vec<TypeId>,
}

impl PlanCompiler<'_> {
    fn structure(&mut self, id: TypeId) -> Result<(PlanRoot, Vec<PayloadField>), String> {
        let (mut parts, mut members) = self.members(id)?;
        if let [PlanPart::Flat(_)] = parts.as_slice()
            && let Some(PlanPart::Flat(plain)) = parts.pop()
        {
            return Ok((PlanRoot::Flat(plain), members));
        }
        push_trailer(&mut members);
        Ok((PlanRoot::Struct(parts), members))
    }

    /// A class with its bases, its members, those of the root first, and how many there are after
    /// each slice.
    fn class(&mut self, id: TypeId) -> Result<CompiledClass, String> {
        let (mut slices, mut members, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut line = self.library.ancestry(id);
        while let Some(id) = line.pop() {
            let (parts, own) = self.members(id)?;
            let (name, mut head) = (self.library.name(id).to_owned(), vec![SPELLED]);
            put_sized(&mut head, name.as_bytes())?;
            slices.push(SlicePlan { name, head, parts });
            members.extend(own);
            ends.push(members.len());
        }
        slices.reverse();
        self.spend()?;
        members.push(synthetic_field("sliced", &members, FieldShape::Bytes));
        Ok((ClassPlan(slices), members, ends))
    }

    /// The members of a struct, or of a class without its bases.
    fn members(&mut self, id: TypeId) -> Result<(Vec<PlanPart>, Vec<PayloadField>), String> {
        let library = self.library;
        let (mut parts, mut members) = (Vec::new(), Vec::new());
        for (member, used) in library.members(id).iter().zip(&library.get(id).uses) {
            let compiled = self.value(&member.type_name, *used);
            let (added, shape) =
                compiled.map_err(|reason| format!("`{}`: {reason}", member.name))?;
            added.into_iter().for_each(|part| push_part(&mut parts, part));
            members.push(PayloadField::new(member.name.clone(), shape));
        }
        Ok((parts, members))
    }

    fn value(
        &mut self,
        of: &TypeName,
        used: Option<TypeId>,
    ) -> Result<(Vec<PlanPart>, FieldShape), String> {
        self.spend()?;
        match (&of.target, used) {
            (TypeRef::Builtin(builtin), _) => Ok(self::builtin_part(*builtin)),
            (TypeRef::Unsupported(what), _) => Err(format!("{what} cannot be decoded")),
            (TypeRef::Declared { name, .. }, None) => Err(format!("the type `{name}` is unknown")),
            (_, Some(id)) => {
                self.enter(id)?;
                let compiled = self.declared(id);
                self.path.pop();
                compiled
            }
        }
    }

    /// Compiles a declared type, which is on the path.
    fn declared(&mut self, id: TypeId) -> Result<(Vec<PlanPart>, FieldShape), String> {
        let declared = self.library.get(id);
        match &declared.declaration.body {
            DeclarationBody::Struct(_) => {
                let (parts, members) = self.members(id)?;
                Ok((parts, FieldShape::Struct(members)))
            }
            DeclarationBody::Class { .. } => self.reference(id),
            DeclarationBody::Enum(values) => Ok((
                vec![PlanPart::Flat(vec![enum_part(values)?])],
                FieldShape::Enum(values.clone()),
            )),
            DeclarationBody::Undecoded(what) => Err(format!("{what} cannot be decoded")),
            DeclarationBody::Sequence(of) => {
                let (parts, item) = self.value(of, declared.uses.first().copied().flatten())?;
                Ok((vec![list_part(parts)], FieldShape::List(Box::new(item))))
            }
            body @ DeclarationBody::Dictionary { .. } => {
                let (mut parts, mut members) = (Vec::new(), Vec::new());
                let names = ["key", "value"].into_iter().zip(type_names(body));
                for ((name, of), used) in names.zip(&declared.uses) {
                    let (added, shape) = self.value(of, *used)?;
                    added.into_iter().for_each(|part| push_part(&mut parts, part));
                    members.push(PayloadField::new(name, shape));
                }
                Ok((
                    vec![list_part(parts)],
                    FieldShape::List(Box::new(FieldShape::Struct(members))),
                ))
            }
        }
    }

    /// A reference to a class, which is on the path, or to one that extends it.
    fn reference(&mut self, id: TypeId) -> Result<(Vec<PlanPart>, FieldShape), String> {
        let library = self.library;
        let (class, members, _) = self.class(id)?;
        let (mut classes, mut cases) = (vec![class], vec![(library.name(id), members)]);
        for derived in library.derived(id) {
            self.enter(*derived)?;
            let (class, members, _) = self.class(*derived)?;
            self.path.pop();
            classes.push(class);
            cases.push((library.name(*derived), members));
        }
        let names: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
        let cases = cases.into_iter().map(|(name, members)| (short_name(name, &names), members));
        let shape = FieldShape::Variant(cases.collect());
        Ok((vec![PlanPart::Reference(ClassReference(classes))], shape))
    }

    fn enter(&mut self, id: TypeId) -> Result<(), String> {
        if self.path.contains(&id) {
            let name = self.library.name(id);
            return Err(format!(
                "a `{name}` may contain another one, which columns cannot \
                represent"
            ));
        }
        if self.path.len() >= MAX_DEPTH {
            return Err(format!("it nests types more than {MAX_DEPTH} deep"));
        }
        self.path.push(id);
        Ok(())
    }

    fn spend(&mut self) -> Result<(), String> {
        self.columns += 1;
        if self.columns > MAX_COLUMNS {
            return Err(format!("it would have more than {MAX_COLUMNS} columns"));
        }
        Ok(())
    }
}

/// The name of a class without its module, if that is unambiguous.
fn short_name(name: &str, all: &[&str]) -> String {
    let last = |name: &'_ str| name.rsplit("::").next().unwrap_or_default().to_owned();
    let is_same = |other: &&&str| last(other) == last(name);
    if all.iter().filter(is_same).count() == 1 { last(name) } else { dotted(name) }
}

/// A full name in the form for users: `orca.Time` for `::orca::Time`.
pub(crate) fn dotted(name: &str) -> String {
    name.trim_start_matches("::").replace("::", ".")
}

fn builtin_part(builtin: Builtin) -> (Vec<PlanPart>, FieldShape) {
    let number = |of: NumberType| (FlatPart::Bytes(of.width()), FieldShape::Number(of));
    let (plain, shape) = match builtin {
        Builtin::Bool => (FlatPart::Bool, FieldShape::Bool),
        Builtin::Byte => number(NumberType::U8),
        Builtin::Short => number(NumberType::I16),
        Builtin::Int => number(NumberType::I32),
        Builtin::Long => number(NumberType::I64),
        Builtin::Float => number(NumberType::F32),
        Builtin::Double => number(NumberType::F64),
        Builtin::String => (FlatPart::List(vec![FlatPart::Bytes(1)]), FieldShape::Text),
    };
    (vec![PlanPart::Flat(vec![plain])], shape)
}

fn enum_part(values: &[(String, i32)]) -> Result<FlatPart, String> {
    let width = |max: usize| match max {
        0..=127 => 1,
        128..=32_767 => 2,
        _ => 4,
    };
    let mut numbers: Vec<i32> = values.iter().map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    let max = numbers.last().and_then(|max| usize::try_from(*max).ok()).unwrap_or_default();
    // Older programs use the number of values, newer ones the greatest value.
    if width(max) != width(numbers.len()) {
        return Err("an enum whose values need more bytes than their count suggests".to_owned());
    }
    Ok(FlatPart::Enum { width: width(max), values: numbers })
}

fn list_part(mut parts: Vec<PlanPart>) -> PlanPart {
    match parts.as_slice() {
        [PlanPart::Flat(_)] => match parts.pop() {
            Some(PlanPart::Flat(plain)) => PlanPart::Flat(vec![FlatPart::List(plain)]),
            other => PlanPart::List(other.into_iter().collect()),
        },
        _ => PlanPart::List(parts),
    }
}

/// Adds a part, and merges adjacent parts without references.
fn push_part(parts: &mut Vec<PlanPart>, part: PlanPart) {
    match (parts.last_mut(), part) {
        (Some(PlanPart::Flat(before)), PlanPart::Flat(added)) => {
            added.into_iter().for_each(|plain| push_flat(before, plain));
        }
        (_, part) => parts.push(part),
    }
}

fn push_flat(all: &mut Vec<FlatPart>, plain: FlatPart) {
    match (all.last_mut(), &plain) {
        (Some(FlatPart::Bytes(before)), FlatPart::Bytes(added)) => *before += added,
        _ => all.push(plain),
    }
}
