//! A type made ready for its records: what to check from front to back, and the members of its linear form.
//! Reads no record.
//!
//! | in a record | in its linear form | column |
//! |---|---|---|
//! | `bool`, `byte`, `short` … `double`, `string`, enums | as it is | as core's layouts say |
//! | struct | its members | `Struct` |
//! | sequence | size, elements | `List`; of `byte`, `Binary` |
//! | dictionary | size, pairs | `List` of `Struct` with `key` and `value` |
//! | reference to an instance of a class | a byte: 0 for none, k for the k-th class that it may be; then the members of the instance, those of the root first | nullable `Struct` |
//!
//! An instance also has a member `sliced`: the slices of classes that nobody declared, as they lie in the
//! record, but for names, which are always spelled out. A record with references has two more at its end: `order`,
//! the ids of instances as they lie in the record, nothing where they rise; and `references`, the id of each instance
//! in the linear form, nothing where none stands there twice because several references lead to it.

use sluice_core::layout::{FieldShape, LayoutField, NumberType};

use crate::slice::library::type_names;
use crate::slice::syntax::{Body, Builtin, Named, TypeName};
use crate::slice::{Library, TypeId};

/// What is in records of a type.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) top: Top,
    /// What is in the linear form.
    pub(crate) members: Vec<LayoutField>,
    /// How many columns there are, about.
    pub(crate) columns: usize,
}

/// What a record begins with.
#[derive(Debug)]
pub(crate) enum Top {
    /// A struct without references.
    Plain(Vec<Plain>),
    /// A struct with references.
    Struct(Vec<Part>),
    /// A reference to the first instance.
    Class(Reference),
}

/// Bytes in which there are no references.
#[derive(Debug)]
pub(crate) enum Plain {
    /// Any bytes, as many.
    Bytes(usize),
    /// A boolean.
    Bool,
    /// One of these values, which rise.
    Enum { width: usize, values: Vec<i32> },
    /// A size, and as many of these.
    List(Vec<Plain>),
}

/// Bytes in which there may be references.
#[derive(Debug)]
pub(crate) enum Part {
    Plain(Vec<Plain>),
    /// A size, and as many of these.
    List(Vec<Part>),
    Reference(Reference),
}

/// What a reference may lead to: the class that it names first.
#[derive(Debug)]
pub(crate) struct Reference(pub(crate) Vec<Class>);

/// A class, and what it extends: its own slice first, the root's last.
#[derive(Debug)]
pub(crate) struct Class(pub(crate) Vec<Slice>);

/// What a class adds to those it extends.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) name: String,
    pub(crate) parts: Vec<Part>,
}

/// More columns than this serve nobody.
const MOST_COLUMNS: usize = 2_000;
/// Types inside of each other; nobody has more.
const DEEPEST: usize = 32;

/// What is in records of a struct or class.
pub(crate) fn compile(library: &Library, id: TypeId) -> Result<Form, String> {
    let mut compiler = Compiler { library, columns: 0, path: vec![id] };
    let (top, members) = match &library.get(id).declaration.body {
        Body::Class { .. } => {
            let (class, mut members) = compiler.class(id)?;
            push_last(&mut members);
            (Top::Class(Reference(vec![class])), members)
        }
        _ => compiler.structure(id)?,
    };
    Ok(Form { top, members, columns: compiler.columns })
}

/// Adds what stands at the end of a linear form of a record with references.
fn push_last(members: &mut Vec<LayoutField>) {
    for name in ["order", "references"] {
        members.push(named(
            name,
            members,
            FieldShape::List(Box::new(FieldShape::Number(NumberType::I32))),
        ));
    }
}

/// A member of ours beside those that are declared.
fn named(name: &str, beside: &[LayoutField], shape: FieldShape) -> LayoutField {
    let mut name = name.to_owned();
    while beside.iter().any(|member| member.name == name) {
        name.push('_');
    }
    LayoutField::new(name, shape)
}

struct Compiler<'l> {
    library: &'l Library,
    columns: usize,
    /// The types that are being looked at, each inside of those before it.
    path: Vec<TypeId>,
}

impl Compiler<'_> {
    fn structure(&mut self, id: TypeId) -> Result<(Top, Vec<LayoutField>), String> {
        let (mut parts, mut members) = self.members(id)?;
        if let [Part::Plain(_)] = parts.as_slice()
            && let Some(Part::Plain(plain)) = parts.pop()
        {
            return Ok((Top::Plain(plain), members));
        }
        push_last(&mut members);
        Ok((Top::Struct(parts), members))
    }

    /// A class with what it extends, and its members, those of the root first.
    fn class(&mut self, id: TypeId) -> Result<(Class, Vec<LayoutField>), String> {
        let (mut slices, mut members) = (Vec::new(), Vec::new());
        let mut line = self.library.line(id);
        while let Some(id) = line.pop() {
            let (parts, own) = self.members(id)?;
            slices.push(Slice { name: self.library.name(id).to_owned(), parts });
            members.extend(own);
        }
        slices.reverse();
        self.spend()?;
        members.push(named("sliced", &members, FieldShape::Bytes));
        Ok((Class(slices), members))
    }

    /// The members of a struct, or of a class itself.
    fn members(&mut self, id: TypeId) -> Result<(Vec<Part>, Vec<LayoutField>), String> {
        let library = self.library;
        let (mut parts, mut members) = (Vec::new(), Vec::new());
        for (member, used) in library.members(id).iter().zip(&library.get(id).uses) {
            let found = self.value(&member.of, *used);
            let (more, shape) = found.map_err(|reason| format!("`{}`: {reason}", member.name))?;
            more.into_iter().for_each(|part| push(&mut parts, part));
            members.push(LayoutField::new(member.name.clone(), shape));
        }
        Ok((parts, members))
    }

    fn value(
        &mut self,
        of: &TypeName,
        used: Option<TypeId>,
    ) -> Result<(Vec<Part>, FieldShape), String> {
        self.spend()?;
        match (&of.named, used) {
            (Named::Builtin(builtin), _) => Ok(self::builtin(*builtin)),
            (Named::Unfit(what), _) => Err(format!("{what} is not decoded")),
            (Named::Declared { name, .. }, None) => Err(format!("no type `{name}` is known")),
            (_, Some(id)) => {
                self.enter(id)?;
                let found = self.declared(id);
                self.path.pop();
                found
            }
        }
    }

    /// What a name stands for that is declared. It is on the path.
    fn declared(&mut self, id: TypeId) -> Result<(Vec<Part>, FieldShape), String> {
        let declared = self.library.get(id);
        match &declared.declaration.body {
            Body::Struct(_) => {
                let (parts, members) = self.members(id)?;
                Ok((parts, FieldShape::Struct(members)))
            }
            Body::Class { .. } => self.reference(id),
            Body::Enum(values) => Ok((
                vec![Part::Plain(vec![enumeration(values)?])],
                FieldShape::Enum(values.clone()),
            )),
            Body::Other(what) => Err(format!("{what} is not decoded")),
            Body::Sequence(of) => {
                let (parts, item) = self.value(of, declared.uses.first().copied().flatten())?;
                Ok((vec![list(parts)], FieldShape::List(Box::new(item))))
            }
            body @ Body::Dictionary { .. } => {
                let (mut parts, mut members) = (Vec::new(), Vec::new());
                let names = ["key", "value"].into_iter().zip(type_names(body));
                for ((name, of), used) in names.zip(&declared.uses) {
                    let (more, shape) = self.value(of, *used)?;
                    more.into_iter().for_each(|part| push(&mut parts, part));
                    members.push(LayoutField::new(name, shape));
                }
                Ok((vec![list(parts)], FieldShape::List(Box::new(FieldShape::Struct(members)))))
            }
        }
    }

    /// A reference to a class that is on the path, or to one that extends it.
    fn reference(&mut self, id: TypeId) -> Result<(Vec<Part>, FieldShape), String> {
        let library = self.library;
        let (class, members) = self.class(id)?;
        let (mut classes, mut cases) = (vec![class], vec![(library.name(id), members)]);
        for derived in library.derived(id) {
            self.enter(*derived)?;
            let (class, members) = self.class(*derived)?;
            self.path.pop();
            classes.push(class);
            cases.push((library.name(*derived), members));
        }
        let names: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
        let cases = cases.into_iter().map(|(name, members)| (short(name, &names), members));
        let shape = FieldShape::Variant(cases.collect());
        Ok((vec![Part::Reference(Reference(classes))], shape))
    }

    fn enter(&mut self, id: TypeId) -> Result<(), String> {
        if self.path.contains(&id) {
            let name = self.library.name(id);
            return Err(format!("a `{name}` may hold another one, which columns cannot"));
        }
        if self.path.len() >= DEEPEST {
            return Err(format!("it holds types inside of more than {DEEPEST} others"));
        }
        self.path.push(id);
        Ok(())
    }

    fn spend(&mut self) -> Result<(), String> {
        self.columns += 1;
        if self.columns > MOST_COLUMNS {
            return Err(format!("it would have more than {MOST_COLUMNS} columns"));
        }
        Ok(())
    }
}

/// The name of a class without its module, if that tells it from the others.
fn short(name: &str, all: &[&str]) -> String {
    let last = |name: &'_ str| name.rsplit("::").next().unwrap_or_default().to_owned();
    let is_same = |other: &&&str| last(other) == last(name);
    if all.iter().filter(is_same).count() == 1 { last(name) } else { dotted(name) }
}

/// A full name as people, tables and reports see it: `orca.Time` for `::orca::Time`.
pub(crate) fn dotted(name: &str) -> String {
    name.trim_start_matches("::").replace("::", ".")
}

fn builtin(builtin: Builtin) -> (Vec<Part>, FieldShape) {
    let number = |of: NumberType| (Plain::Bytes(of.width()), FieldShape::Number(of));
    let (plain, shape) = match builtin {
        Builtin::Bool => (Plain::Bool, FieldShape::Bool),
        Builtin::Byte => number(NumberType::U8),
        Builtin::Short => number(NumberType::I16),
        Builtin::Int => number(NumberType::I32),
        Builtin::Long => number(NumberType::I64),
        Builtin::Float => number(NumberType::F32),
        Builtin::Double => number(NumberType::F64),
        Builtin::String => (Plain::List(vec![Plain::Bytes(1)]), FieldShape::Text),
    };
    (vec![Part::Plain(vec![plain])], shape)
}

fn enumeration(values: &[(String, i32)]) -> Result<Plain, String> {
    let width = |most: usize| match most {
        0..=127 => 1,
        128..=32_767 => 2,
        _ => 4,
    };
    let mut numbers: Vec<i32> = values.iter().map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    let most = numbers.last().and_then(|most| usize::try_from(*most).ok()).unwrap_or_default();
    // Older programs go by how many values there are, newer ones by the greatest.
    if width(most) != width(numbers.len()) {
        return Err("an enum whose values take more bytes than their number says".to_owned());
    }
    Ok(Plain::Enum { width: width(most), values: numbers })
}

fn list(mut parts: Vec<Part>) -> Part {
    match parts.as_slice() {
        [Part::Plain(_)] => match parts.pop() {
            Some(Part::Plain(plain)) => Part::Plain(vec![Plain::List(plain)]),
            other => Part::List(other.into_iter().collect()),
        },
        _ => Part::List(parts),
    }
}

/// Adds a part, and makes one of neighbours without references.
fn push(parts: &mut Vec<Part>, part: Part) {
    match (parts.last_mut(), part) {
        (Some(Part::Plain(before)), Part::Plain(more)) => {
            more.into_iter().for_each(|plain| push_plain(before, plain));
        }
        (_, part) => parts.push(part),
    }
}

fn push_plain(all: &mut Vec<Plain>, plain: Plain) {
    match (all.last_mut(), &plain) {
        (Some(Plain::Bytes(before)), Plain::Bytes(more)) => *before += more,
        _ => all.push(plain),
    }
}
