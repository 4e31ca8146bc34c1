//! Descriptors: messages and enums that a `FileDescriptorSet` declares, and sets that declare the
//! message of a plan. Knows no columns.
//!
//! Reads and writes the few fields of descriptors that matter here by hand: a crate for them would
//! bring a compiler of macros into every build.

use std::collections::HashMap;

use crate::wire::{WireCursor, WireValue};

mod write;

pub(crate) use write::{DescriptorNames, identifier, json_name, write_set};

/// The type number of messages.
pub(crate) const MESSAGE_TYPE: u64 = 11;
/// The type number of groups.
const GROUP_TYPE: u64 = 10;
/// How deep declarations may nest.
const MAX_DEPTH: usize = 32;
/// The most messages and enums of a set.
const MAX_TYPES: usize = 20_000;

/// What a set of files declares, by full names without leading dot.
#[derive(Debug, Default)]
pub(crate) struct DescriptorSet {
    pub(crate) messages: HashMap<String, MessageDescriptor>,
    /// The values of enums.
    pub(crate) enums: HashMap<String, Vec<(String, i32)>>,
}

/// A message.
#[derive(Debug, Default)]
pub(crate) struct MessageDescriptor {
    pub(crate) fields: Vec<FieldDescriptor>,
    /// Whether it is an entry of a map.
    pub(crate) is_map_entry: bool,
}

/// A field.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldDescriptor {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) label: FieldLabel,
    /// The number of its type.
    pub(crate) kind: u64,
    /// The message or enum that its type is.
    pub(crate) type_name: String,
    /// The index of its oneof.
    pub(crate) oneof: Option<u64>,
    /// Whether it may be unset, rather than zero.
    pub(crate) has_presence: bool,
    pub(crate) is_packed: bool,
    /// Whether it is a group.
    pub(crate) is_delimited: bool,
}

/// How often a field occurs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldLabel {
    #[default]
    Single,
    Repeated,
}

/// The features of an edition that matter here; those of older syntax are given by it.
#[derive(Clone, Copy, Debug)]
struct Features {
    has_presence: bool,
    is_packed: bool,
    is_delimited: bool,
}

impl Features {
    const PROTO2: Self = Self { has_presence: true, is_packed: false, is_delimited: false };
    const PROTO3: Self = Self { has_presence: false, is_packed: true, is_delimited: false };
    const EDITION: Self = Self { has_presence: true, is_packed: true, is_delimited: false };

    /// These features, overridden by a `FeatureSet`.
    fn overridden(mut self, set: &[u8]) -> Result<Self, String> {
        each(set, |field, value| {
            let WireValue::Number(value) = value else { return Ok(()) };
            match field {
                1 => self.has_presence = value != 2,
                3 => self.is_packed = value == 1,
                5 => self.is_delimited = value == 2,
                _ => {}
            }
            Ok(())
        })?;
        Ok(self)
    }

    /// These features, overridden by the field `at` of options.
    fn overridden_in(self, options: &[u8], at: u32) -> Result<Self, String> {
        let mut features = self;
        each(options, |field, value| {
            if let (true, WireValue::Bytes(set)) = (field == at, value) {
                features = features.overridden(set)?;
            }
            Ok(())
        })?;
        Ok(features)
    }
}

/// Calls `field` for each field of a message.
fn each<'b>(
    bytes: &'b [u8],
    mut field: impl FnMut(u32, WireValue<'b>) -> Result<(), String>,
) -> Result<(), String> {
    let broken = |reason: &str| format!("its descriptor is damaged: {reason}");
    let mut cursor = WireCursor::new(bytes);
    while !cursor.is_empty() {
        let tag = cursor.tag().map_err(broken)?;
        let value = cursor.value(tag).map_err(broken)?;
        field(tag >> 3, value)?;
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Result<String, String> {
    let text =
        std::str::from_utf8(bytes).map_err(|_| "its descriptor has names that are no text")?;
    Ok(text.to_owned())
}

impl DescriptorSet {
    /// Reads a `FileDescriptorSet`, which may be untrusted.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut set = Self::default();
        each(bytes, |field, value| match (field, value) {
            (1, WireValue::Bytes(file)) => set.file(file),
            _ => Ok(()),
        })?;
        Ok(set)
    }

    fn file(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (mut package, mut syntax, mut edition) = (String::new(), String::new(), None);
        let (mut messages, mut enums, mut options) = (Vec::new(), Vec::new(), Vec::new());
        each(bytes, |field, value| {
            match (field, value) {
                (2, WireValue::Bytes(name)) => package = text(name)?,
                (4, WireValue::Bytes(message)) => messages.push(message),
                (5, WireValue::Bytes(values)) => enums.push(values),
                (8, WireValue::Bytes(bytes)) => options.push(bytes),
                (12, WireValue::Bytes(name)) => syntax = text(name)?,
                (14, WireValue::Number(number)) => edition = Some(number),
                _ => {}
            }
            Ok(())
        })?;
        let mut features = match (syntax.as_str(), edition) {
            (_, Some(1_000..)) => Features::EDITION,
            ("proto3", _) | (_, Some(999)) => Features::PROTO3,
            _ => Features::PROTO2,
        };
        for options in options {
            features = features.overridden_in(options, 50)?;
        }
        for values in enums {
            self.enumeration(&package, values)?;
        }
        messages.into_iter().try_for_each(|message| self.message(&package, message, features, 0))
    }

    fn enumeration(&mut self, scope: &str, bytes: &[u8]) -> Result<(), String> {
        let (mut name, mut values) = (String::new(), Vec::new());
        each(bytes, |field, value| {
            match (field, value) {
                (1, WireValue::Bytes(bytes)) => name = text(bytes)?,
                (2, WireValue::Bytes(bytes)) => values.push(enum_value(bytes)?),
                _ => {}
            }
            Ok(())
        })?;
        self.check_size()?;
        self.enums.insert(full_name(scope, &name), values);
        Ok(())
    }

    fn message(
        &mut self,
        scope: &str,
        bytes: &[u8],
        features: Features,
        depth: usize,
    ) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("its descriptor nests deeper than {MAX_DEPTH} levels"));
        }
        self.check_size()?;
        let (mut name, mut features) = (String::new(), features);
        let mut message = MessageDescriptor::default();
        each(bytes, |field, value| {
            match (field, value) {
                (1, WireValue::Bytes(bytes)) => name = text(bytes)?,
                (7, WireValue::Bytes(options)) => {
                    features = features.overridden_in(options, 12)?;
                    message.is_map_entry |= is_entry(options)?;
                }
                _ => {}
            }
            Ok::<_, String>(())
        })?;
        let name = full_name(scope, &name);
        each(bytes, |field, value| {
            match (field, value) {
                (2, WireValue::Bytes(bytes)) => {
                    message.fields.push(FieldDescriptor::parse(bytes, features)?);
                }
                (3, WireValue::Bytes(bytes)) => self.message(&name, bytes, features, depth + 1)?,
                (4, WireValue::Bytes(bytes)) => self.enumeration(&name, bytes)?,
                _ => {}
            }
            Ok(())
        })?;
        self.messages.insert(name, message);
        Ok(())
    }

    fn check_size(&self) -> Result<(), String> {
        match self.messages.len() + self.enums.len() < MAX_TYPES {
            true => Ok(()),
            false => Err(format!("its descriptor declares more than {MAX_TYPES} types")),
        }
    }
}

fn full_name(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

fn is_entry(options: &[u8]) -> Result<bool, String> {
    let mut is_entry = false;
    each(options, |field, value| {
        is_entry |= field == 7 && matches!(value, WireValue::Number(1));
        Ok(())
    })?;
    Ok(is_entry)
}

fn enum_value(bytes: &[u8]) -> Result<(String, i32), String> {
    let (mut name, mut number) = (String::new(), 0);
    each(bytes, |field, value| {
        match (field, value) {
            (1, WireValue::Bytes(bytes)) => name = text(bytes)?,
            (2, WireValue::Number(value)) => number = value as i32,
            _ => {}
        }
        Ok(())
    })?;
    Ok((name, number))
}

impl FieldDescriptor {
    fn parse(bytes: &[u8], features: Features) -> Result<Self, String> {
        let mut parsed = Self::default();
        let (mut features, mut packed, mut is_optional) = (features, None, false);
        each(bytes, |field, value| {
            match (field, value) {
                (1, WireValue::Bytes(bytes)) => parsed.name = text(bytes)?,
                (3, WireValue::Number(number)) => {
                    let number = u32::try_from(number).ok();
                    let number = number.filter(|n| (1..=crate::wire::MAX_FIELD).contains(n));
                    parsed.number = number.ok_or("it numbers a field out of range")?;
                }
                (4, WireValue::Number(3)) => parsed.label = FieldLabel::Repeated,
                (5, WireValue::Number(kind)) => parsed.kind = kind,
                (6, WireValue::Bytes(bytes)) => {
                    parsed.type_name = text(bytes)?.trim_start_matches('.').to_owned();
                }
                (8, WireValue::Bytes(options)) => {
                    features = features.overridden_in(options, 21)?;
                    each(options, |field, value| {
                        if let (2, WireValue::Number(value)) = (field, value) {
                            packed = Some(value != 0);
                        }
                        Ok(())
                    })?;
                }
                (9, WireValue::Number(index)) => parsed.oneof = Some(index),
                (17, WireValue::Number(value)) => is_optional = value != 0,
                _ => {}
            }
            Ok(())
        })?;
        if parsed.name.is_empty() || parsed.number == 0 {
            return Err("it has a field without name or number".to_owned());
        }
        parsed.has_presence = features.has_presence || is_optional || parsed.oneof.is_some();
        parsed.is_packed = packed.unwrap_or(features.is_packed);
        parsed.is_delimited =
            parsed.kind == GROUP_TYPE || (features.is_delimited && parsed.kind == MESSAGE_TYPE);
        Ok(parsed)
    }
}
