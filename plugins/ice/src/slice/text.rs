//! Formats a type and its dependencies as Slice text that declares the same records.

use std::collections::HashMap;
use std::fmt::Write;

use super::library::type_names;
use super::syntax::{DeclarationBody, KEYWORDS, TypeName, TypeRef};
use super::{SliceLibrary, TypeId};

impl SliceLibrary {
    /// The text that declares a type and everything its records may contain, the type itself last.
    /// It only depends on the declarations, and not on the files they came from.
    ///
    /// `Err` if it may contain two types of one name.
    pub(crate) fn text_of(&self, id: TypeId) -> Result<String, String> {
        let mut text = String::new();
        for dependency in self.dependencies(id)? {
            self.declare(dependency, &mut text);
        }
        Ok(text)
    }

    /// A type and its dependencies, each after its own dependencies.
    fn dependencies(&self, id: TypeId) -> Result<Vec<TypeId>, String> {
        let mut names: HashMap<&str, TypeId> = HashMap::from([(self.name(id), id)]);
        let (mut order, mut path) = (Vec::new(), vec![(id, self.direct_dependencies(id))]);
        while let Some((id, needs)) = path.last_mut() {
            let Some(next) = needs.pop() else {
                order.push(*id);
                path.pop();
                continue;
            };
            match names.insert(self.name(next), next) {
                None => path.push((next, self.direct_dependencies(next))),
                Some(known) if known == next => {}
                Some(_) => {
                    return Err(format!("it may contain two types named `{}`", self.name(next)));
                }
            }
        }
        Ok(order)
    }

    /// The direct dependencies of a type; the first that is needed last.
    fn direct_dependencies(&self, id: TypeId) -> Vec<TypeId> {
        let declared = self.get(id);
        let has_base =
            matches!(&declared.declaration.body, DeclarationBody::Class { base: Some(_), .. });
        let members = declared.uses.len() - usize::from(has_base);
        let mut needs = Vec::new();
        // A base is contained as it is, never as a class that extends it.
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
            .map(|(of, used)| self.type_text(of, *used))
            .collect();
        match body {
            DeclarationBody::Struct(_) => {
                line(text, format_args!("struct {name} {{"));
                self.declare_members(id, &named, text);
            }
            DeclarationBody::Class { base, .. } => {
                let base = base.as_ref().and(named.last());
                let extends = base.map(|base| format!(" extends {base}")).unwrap_or_default();
                line(text, format_args!("class {name}{extends} {{"));
                self.declare_members(id, &named, text);
            }
            DeclarationBody::Sequence(_) => {
                line(text, format_args!("sequence<{}> {name};", named.join(", ")))
            }
            DeclarationBody::Dictionary { .. } => {
                line(text, format_args!("dictionary<{}> {name};", named.join(", ")));
            }
            DeclarationBody::Enum(values) => {
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
            // Types with a text contain none.
            DeclarationBody::Undecoded(_) => {}
        }
    }

    fn declare_members(&self, id: TypeId, named: &[String], text: &mut String) {
        for (member, of) in self.members(id).iter().zip(named) {
            line(text, format_args!("    {of} {};", escaped(&member.name)));
        }
        line(text, format_args!("}};"));
    }

    fn type_text(&self, of: &TypeName, used: Option<TypeId>) -> String {
        match (&of.target, used) {
            (TypeRef::Builtin(builtin), _) => builtin.name().to_owned(),
            (_, Some(used)) => {
                self.name(used).split("::").map(escaped).collect::<Vec<_>>().join("::")
            }
            // Types with a text contain none.
            _ => String::new(),
        }
    }
}

fn escaped(name: &str) -> String {
    if KEYWORDS.contains(&name) { format!("\\{name}") } else { name.to_owned() }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _written = writeln!(text, "{line}");
}
