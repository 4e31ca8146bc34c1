//! A type and all that it holds as one text in the `.lcm` language, which declares the same messages.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::syntax::{Body, Constant, Dimension, TypeName};
use super::{Library, TypeId};

impl Library {
    /// A text that declares a type and everything it holds; nothing if it holds two types of one name.
    pub fn text_of(&self, id: TypeId) -> Option<String> {
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
        order.iter().for_each(|id| self.declare(*id, &mut text));
        Some(text)
    }

    fn declare(&self, id: TypeId, text: &mut String) {
        // Names are given in full, so that no package has to be said.
        let name = self.name(id);
        match &self.get(id).declaration.body {
            Body::Enum(values) => {
                line(text, format_args!("enum {name} {{"));
                for (value, number) in values {
                    line(text, format_args!("    {value} = {number},"));
                }
            }
            Body::Struct { members, constants } => {
                line(text, format_args!("struct {name} {{"));
                for constant in constants {
                    let of = constant.of.name();
                    line(
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
                            // A size of 0 can only be given by a constant.
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
                    line(text, format_args!("    {of} {}{sizes};", member.name));
                }
            }
        }
        text.push_str("}\n");
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = writeln!(text, "{line}");
}
