//! Writes a type and all types it contains as one text in the `.lcm` language.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::syntax::{Constant, Dimension, StructMember, TypeBody, TypeName};
use super::{Library, TypeId};

/// The types of a description by the names they have in it.
type NamesInText = BTreeMap<TypeId, String>;

impl Library {
    /// A text that declares a type and all types it contains, with all constants of theirs or only
    /// those without which it would declare other types.
    ///
    /// Further versions of a name get another package. That changes no fingerprint: it has the
    /// short names of enums in it, but neither those of structs nor packages.
    pub fn description(&self, id: TypeId, all_constants: bool) -> String {
        let mut names = NamesInText::from([(id, self.name(id).to_owned())]);
        let mut taken = BTreeSet::from([self.name(id).to_owned()]);
        let (mut order, mut next) = (vec![id], 0);
        while let Some(id) = order.get(next).copied() {
            next += 1;
            for used in self.get(id).uses.iter().flatten() {
                if names.contains_key(used) {
                    continue;
                }
                let (mut name, mut version) = (self.name(*used).to_owned(), 1);
                while !taken.insert(name.clone()) {
                    version += 1;
                    name = format!("version{version}.{}", self.name(*used));
                }
                names.insert(*used, name);
                order.push(*used);
            }
        }
        let mut text = String::new();
        for id in order {
            self.write_declaration(id, &names, all_constants, &mut text);
        }
        text
    }

    fn write_declaration(
        &self,
        id: TypeId,
        names: &NamesInText,
        all_constants: bool,
        text: &mut String,
    ) {
        // Full names make a `package` unnecessary.
        let name = names.get(&id).map_or_else(|| self.name(id), String::as_str);
        match &self.get(id).declaration.body {
            TypeBody::Enum(values) => {
                write_line(text, format_args!("enum {name} {{"));
                for (value, number) in values {
                    write_line(text, format_args!("    {value} = {number},"));
                }
            }
            TypeBody::Struct { members, constants } => {
                write_line(text, format_args!("struct {name} {{"));
                for constant in constants.iter().filter(|c| all_constants || is_zero(c)) {
                    let of = constant.of.name();
                    write_line(
                        text,
                        format_args!("    const {of} {} = {};", constant.name, constant.text),
                    );
                }
                for (member, used) in members.iter().zip(&self.get(id).uses) {
                    let of = match &member.of {
                        TypeName::Primitive(primitive) => primitive.name(),
                        TypeName::Declared(name) => {
                            used.and_then(|used| names.get(&used)).unwrap_or(name)
                        }
                    };
                    let sizes = sizes(member, members, constants);
                    write_line(text, format_args!("    {of} {}{sizes};", member.name));
                }
            }
        }
        text.push_str("}\n");
    }
}

/// The dimensions of a member, as they are declared.
fn sizes(member: &StructMember, members: &[StructMember], constants: &[Constant]) -> String {
    let each = member.dimensions.iter().map(|dimension| match dimension {
        // Only a constant can give a size of 0.
        Dimension::Fixed { size: 0, text } => {
            let is_it = |constant: &&Constant| is_zero(constant) && constant.text == *text;
            let constant = constants.iter().find(is_it);
            format!("[{}]", constant.map_or("", |constant| &constant.name))
        }
        Dimension::Fixed { text, .. } => format!("[{text}]"),
        Dimension::Counted(place) => {
            format!("[{}]", members.get(*place).map_or("", |m| &m.name))
        }
    });
    each.collect()
}

fn is_zero(constant: &Constant) -> bool {
    constant.integer == Some(0)
}

fn write_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = writeln!(text, "{line}");
}
