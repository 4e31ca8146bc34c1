//! Writes a type and all types it contains as one text in the `.lcm` language.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::syntax::{Constant, Dimension, TypeBody, TypeName};
use super::{Library, TypeId};

impl Library {
    /// A text that declares a type and all types it contains; `None` if two of them have the same
    /// name.
    pub fn description(&self, id: TypeId) -> Option<String> {
        let mut held: BTreeMap<&str, TypeId> = BTreeMap::from([(self.name(id), id)]);
        let (mut order, mut next) = (vec![id], 0);
        while let Some(id) = order.get(next).copied() {
            next += 1;
            for used in self.get(id).uses.iter().flatten() {
                let known = *held.entry(self.name(*used)).or_insert_with(|| {
                    order.push(*used);
                    *used
                });
                if known != *used {
                    return None;
                }
            }
        }
        let mut text = String::new();
        order.iter().for_each(|id| self.write_declaration(*id, &mut text));
        Some(text)
    }

    fn write_declaration(&self, id: TypeId, text: &mut String) {
        // Full names make a `package` unnecessary.
        let name = self.name(id);
        match &self.get(id).declaration.body {
            TypeBody::Enum(values) => {
                write_line(text, format_args!("enum {name} {{"));
                for (value, number) in values {
                    write_line(text, format_args!("    {value} = {number},"));
                }
            }
            TypeBody::Struct { members, constants } => {
                write_line(text, format_args!("struct {name} {{"));
                for constant in constants {
                    let of = constant.of.name();
                    write_line(
                        text,
                        format_args!("    const {of} {} = {};", constant.name, constant.text),
                    );
                }
                for member in members {
                    let of = match &member.of {
                        TypeName::Primitive(primitive) => primitive.name(),
                        TypeName::Declared(name) => name,
                    };
                    let sizes: String = member
                        .dimensions
                        .iter()
                        .map(|dimension| match dimension {
                            // Only a constant can give a size of 0.
                            Dimension::Fixed { size: 0, text } => {
                                let is_it = |constant: &&Constant| {
                                    constant.integer == Some(0) && constant.text == *text
                                };
                                let constant = constants.iter().find(is_it);
                                format!("[{}]", constant.map_or("", |constant| &constant.name))
                            }
                            Dimension::Fixed { text, .. } => format!("[{text}]"),
                            Dimension::Counted(place) => {
                                format!("[{}]", members.get(*place).map_or("", |m| &m.name))
                            }
                        })
                        .collect();
                    write_line(text, format_args!("    {of} {}{sizes};", member.name));
                }
            }
        }
        text.push_str("}\n");
    }
}

fn write_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = writeln!(text, "{line}");
}
