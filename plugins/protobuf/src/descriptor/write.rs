//! Writes the descriptor of the message of a plan: one file, proto3, structs as nested messages.
//! The same plan and names give the same bytes.

use std::collections::HashSet;

use super::{FieldLabel, MESSAGE_TYPE};
use crate::plan::{FieldPlan, MessagePlan, Presence, ValuePlan};
use crate::wire::{WireType, put_bytes, put_delimited, put_varint, tag};

/// What a set calls its file and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorNames {
    pub(crate) file: String,
    /// Empty for none.
    pub(crate) package: String,
    pub(crate) message: String,
}

impl DescriptorNames {
    /// The names for a type called `name`, which may contain any characters.
    pub(crate) fn from_type(name: &str, key: &str) -> Self {
        let mut parts: Vec<String> =
            name.split(['.', '/', ':']).filter(|part| !part.is_empty()).map(identifier).collect();
        let message = parts.pop().unwrap_or_else(|| "Message".to_owned());
        let package = parts.join(".");
        let file = format!("{}/{message}.{key}.proto", package.replace('.', "/"));
        Self { file: file.trim_start_matches('/').to_owned(), package, message }
    }

    /// The full name of the message.
    pub(crate) fn full(&self) -> String {
        super::full_name(&self.package, &self.message)
    }
}

/// The name with everything replaced that identifiers must not contain.
pub(crate) fn identifier(name: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name: String = name.chars().map(|c| if is_fine(c) { c } else { '_' }).collect();
    match name.chars().next() {
        Some(first) if !first.is_ascii_digit() => name,
        _ => format!("_{name}"),
    }
}

/// The name of a field in JSON, which must be unique as well.
pub(crate) fn json_name(name: &str) -> String {
    let (mut json, mut is_upper) = (String::new(), false);
    for c in name.chars() {
        match c {
            '_' => is_upper = true,
            c if is_upper => {
                json.push(c.to_ascii_uppercase());
                is_upper = false;
            }
            c => json.push(c),
        }
    }
    json
}

/// A `FileDescriptorSet` that declares this message.
pub(crate) fn write_set(names: &DescriptorNames, plan: &MessagePlan) -> Vec<u8> {
    let mut set = Vec::new();
    message(&mut set, 1, |file| {
        string(file, 1, &names.file);
        if !names.package.is_empty() {
            string(file, 2, &names.package);
        }
        let scope = format!(".{}", names.full());
        message(file, 4, |out| declaration(out, &names.message, &scope, plan));
        string(file, 12, "proto3");
    });
    set
}

fn declaration(out: &mut Vec<u8>, name: &str, scope: &str, plan: &MessagePlan) {
    string(out, 1, name);
    let types = nested_names(plan);
    let mut optional = 0;
    for (plan, nested) in plan.fields.iter().zip(&types) {
        let type_name = nested.as_ref().map(|nested| format!("{scope}.{nested}"));
        message(out, 2, |out| field(out, plan, type_name.as_deref(), &mut optional));
    }
    for (plan, nested) in plan.fields.iter().zip(&types) {
        let Some(name) = nested else { continue };
        let scope = format!("{scope}.{name}");
        message(out, 3, |out| match &plan.value {
            ValuePlan::Message(plan) => declaration(out, name, &scope, plan),
            ValuePlan::Wrapper(inner) => {
                let inner =
                    MessagePlan { fields: vec![(**inner).clone()], ..MessagePlan::default() };
                declaration(out, name, &scope, &inner);
            }
            ValuePlan::Scalar(..) => {}
        });
    }
    for plan in plan.fields.iter().filter(|plan| needs_oneof(plan)) {
        message(out, 8, |out| string(out, 1, &format!("_{}", plan.name)));
    }
}

/// The names of the messages that fields need, none of which is that of a field or another one.
fn nested_names(plan: &MessagePlan) -> Vec<Option<String>> {
    let mut taken: HashSet<String> = plan.fields.iter().map(|field| field.name.clone()).collect();
    taken.extend(plan.fields.iter().map(|field| format!("_{}", field.name)));
    let name = |plan: &FieldPlan| {
        if matches!(plan.value, ValuePlan::Scalar(..)) {
            return None;
        }
        let mut name = json_name(&plan.name);
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let mut name = identifier(&name);
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        Some(name)
    };
    plan.fields.iter().map(name).collect()
}

/// Whether a field is declared `optional`, which descriptors say by a oneof of its own.
fn needs_oneof(plan: &FieldPlan) -> bool {
    plan.presence == Presence::Optional && matches!(plan.value, ValuePlan::Scalar(..))
}

fn field(out: &mut Vec<u8>, plan: &FieldPlan, type_name: Option<&str>, optional: &mut u64) {
    string(out, 1, &plan.name);
    number(out, 3, u64::from(plan.number));
    let is_list = matches!(plan.presence, Presence::List { .. });
    let label = if is_list { FieldLabel::Repeated } else { FieldLabel::Single };
    number(out, 4, if label == FieldLabel::Repeated { 3 } else { 1 });
    match &plan.value {
        ValuePlan::Scalar(scalar, _) => number(out, 5, scalar.type_number()),
        ValuePlan::Message(_) | ValuePlan::Wrapper(_) => number(out, 5, MESSAGE_TYPE),
    }
    if let Some(type_name) = type_name {
        string(out, 6, type_name);
    }
    let is_optional = needs_oneof(plan);
    if is_optional {
        number(out, 9, *optional);
        *optional += 1;
    }
    string(out, 10, &json_name(&plan.name));
    if is_optional {
        number(out, 17, 1);
    }
}

fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(u64::from(tag(field, WireType::Varint)), out);
    put_varint(value, out);
}

fn string(out: &mut Vec<u8>, field: u32, text: &str) {
    put_varint(u64::from(tag(field, WireType::Len)), out);
    put_bytes(text.as_bytes(), out);
}

fn message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    put_varint(u64::from(tag(field, WireType::Len)), out);
    let written: Result<(), std::convert::Infallible> = put_delimited(out, |out| {
        write(out);
        Ok(())
    });
    match written {
        Ok(()) => {}
    }
}
