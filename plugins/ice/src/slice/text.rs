//! A type and all that it may hold as one text in the Slice language, which declares the same records.

use std::collections::HashMap;
use std::fmt::Write;

use super::library::type_names;
use super::syntax::{Body, KEYWORDS, Named, TypeName};
use super::{Library, TypeId};

impl Library {
    /// A text that declares a type and everything its records may hold; the type itself last. The same for
    /// the same declarations, whatever file they came from.
    ///
    /// `Err` if it may hold two types of one name.
    pub fn text_of(&self, id: TypeId) -> Result<String, String> {
        let mut text = String::new();
        for held in self.held(id)? {
            self.declare(held, &mut text);
        }
        Ok(text)
    }

    /// A type and what it may hold, each behind what it holds itself.
    fn held(&self, id: TypeId) -> Result<Vec<TypeId>, String> {
        let mut names: HashMap<&str, TypeId> = HashMap::from([(self.name(id), id)]);
        let (mut order, mut path) = (Vec::new(), vec![(id, self.needs(id))]);
        while let Some((id, needs)) = path.last_mut() {
            let Some(next) = needs.pop() else {
                order.push(*id);
                path.pop();
                continue;
            };
            match names.insert(self.name(next), next) {
                None => path.push((next, self.needs(next))),
                Some(known) if known == next => {}
                Some(_) => {
                    return Err(format!(
                        "it may hold two types that are called `{}`",
                        self.name(next)
                    ));
                }
            }
        }
        Ok(order)
    }

    /// The types that have to be known for one; the first that is needed last.
    fn needs(&self, id: TypeId) -> Vec<TypeId> {
        let declared = self.get(id);
        let has_base = matches!(&declared.declaration.body, Body::Class { base: Some(_), .. });
        let members = declared.uses.len() - usize::from(has_base);
        let mut needs = Vec::new();
        // What it extends is held as it is, never as something that extends that.
        needs.extend(declared.uses.get(members..).unwrap_or_default().iter().flatten());
        for used in declared.uses.iter().take(members).flatten() {
            needs.push(*used);
            needs.extend(self.derived(*used));
        }
        needs.reverse();
        needs
    }

    fn declare(&self, id: TypeId, text: &mut String) {
        let declaration = &self.get(id).declaration;
        let mut modules: Vec<&str> = declaration.name.split("::").skip(1).collect();
        let name = modules.pop().unwrap_or_default();
        modules.iter().for_each(|module| line(text, format_args!("module {} {{", escaped(module))));
        self.declare_inside(id, &escaped(name), text);
        modules.iter().for_each(|_| line(text, format_args!("}};")));
    }

    fn declare_inside(&self, id: TypeId, name: &str, text: &mut String) {
        let body = &self.get(id).declaration.body;
        let named: Vec<String> = type_names(body)
            .into_iter()
            .zip(&self.get(id).uses)
            .map(|(of, used)| self.spelled(of, *used))
            .collect();
        match body {
            Body::Struct(_) => {
                line(text, format_args!("struct {name} {{"));
                self.declare_members(id, &named, text);
            }
            Body::Class { base, .. } => {
                let base = base.as_ref().and(named.last());
                let extends = base.map(|base| format!(" extends {base}")).unwrap_or_default();
                line(text, format_args!("class {name}{extends} {{"));
                self.declare_members(id, &named, text);
            }
            Body::Sequence(_) => line(text, format_args!("sequence<{}> {name};", named.join(", "))),
            Body::Dictionary { .. } => {
                line(text, format_args!("dictionary<{}> {name};", named.join(", ")));
            }
            Body::Enum(values) => {
                line(text, format_args!("enum {name} {{"));
                let mut following = Some(0);
                for (at, (value, number)) in values.iter().enumerate() {
                    let comma = if at + 1 < values.len() { "," } else { "" };
                    let given = if following == Some(*number) {
                        String::new()
                    } else {
                        format!(" = {number}")
                    };
                    line(text, format_args!("    {}{given}{comma}", escaped(value)));
                    following = number.checked_add(1);
                }
                line(text, format_args!("}};"));
            }
            // Nothing that has a text holds one.
            Body::Other(_) => {}
        }
    }

    fn declare_members(&self, id: TypeId, named: &[String], text: &mut String) {
        for (member, of) in self.members(id).iter().zip(named) {
            line(text, format_args!("    {of} {};", escaped(&member.name)));
        }
        line(text, format_args!("}};"));
    }

    fn spelled(&self, of: &TypeName, used: Option<TypeId>) -> String {
        match (&of.named, used) {
            (Named::Builtin(builtin), _) => builtin.name().to_owned(),
            (_, Some(used)) => {
                self.name(used).split("::").map(escaped).collect::<Vec<_>>().join("::")
            }
            // Nothing that has a text holds one.
            _ => String::new(),
        }
    }
}

fn escaped(name: &str) -> String {
    if KEYWORDS.contains(&name) { format!("\\{name}") } else { name.to_owned() }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = writeln!(text, "{line}");
}
