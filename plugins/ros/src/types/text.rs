//! Parses the message language of ROS: one declaration, and possibly those it uses, each behind a
//! line of `=` and a line `MSG: name`. Resolves no names.

use std::ops::Range;

use sluice_kit::mistake::Mistake;
use sluice_kit::type_library::ParsedTypes;

/// A declared type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declaration {
    pub(crate) members: Vec<Member>,
    /// Its constants, as they are written.
    constants: Vec<String>,
}

/// A member of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) of: ElementType,
    pub(crate) count: ElementCount,
    /// The type as it is written in this language.
    pub(super) word: String,
    /// Where the type is written.
    pub(crate) span: Range<usize>,
}

/// The type of a member's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ElementType {
    Primitive(Primitive),
    /// A declared type of this name.
    Declared(String),
}

/// The types of the language itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Primitive {
    Bool,
    Byte,
    Char,
    Int8,
    Uint8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Float32,
    Float64,
    String,
    WideString,
    Time,
    Duration,
}

/// How many elements a member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementCount {
    One,
    /// An array.
    Fixed(usize),
    /// A sequence, with or without a bound.
    Counted,
}

const PRIMITIVES: [(&str, Primitive); 17] = [
    ("bool", Primitive::Bool),
    ("byte", Primitive::Byte),
    ("char", Primitive::Char),
    ("int8", Primitive::Int8),
    ("uint8", Primitive::Uint8),
    ("int16", Primitive::Int16),
    ("uint16", Primitive::Uint16),
    ("int32", Primitive::Int32),
    ("uint32", Primitive::Uint32),
    ("int64", Primitive::Int64),
    ("uint64", Primitive::Uint64),
    ("float32", Primitive::Float32),
    ("float64", Primitive::Float64),
    ("string", Primitive::String),
    ("wstring", Primitive::WideString),
    ("time", Primitive::Time),
    ("duration", Primitive::Duration),
];

/// The shortest line of `=` that separates declarations. Writers use 80.
const MIN_SEPARATOR: usize = 10;

impl Declaration {
    /// The declaration without comments and defaults.
    pub(crate) fn write(&self, out: &mut String) {
        for constant in &self.constants {
            *out += constant;
            out.push('\n');
        }
        for Member { word, name, .. } in &self.members {
            *out += word;
            out.push(' ');
            *out += name;
            out.push('\n');
        }
    }
}

/// The line between two declarations.
pub(crate) fn separator(name: &str) -> String {
    format!("{}\nMSG: {name}\n", "=".repeat(80))
}

/// A name without the `msg` between package and type.
pub(crate) fn short_name(name: &str) -> String {
    match name.rsplit_once('/') {
        Some((package, name)) => {
            format!("{}/{name}", package.strip_suffix("/msg").unwrap_or(package))
        }
        None => name.to_owned(),
    }
}

/// The declarations of a text, of which the first one is of the type `name`, and the mistakes.
pub(crate) fn parse(name: &str, text: &str) -> ParsedTypes<Declaration> {
    let mut all = vec![(name.to_owned(), 0..0, Declaration::default())];
    let (mut mistakes, mut at, mut after_separator) = (Vec::new(), 0, false);
    for whole in text.split_inclusive('\n') {
        let start = at + (whole.len() - whole.trim_start().len());
        at += whole.len();
        let line = whole.trim();
        if let Some(name) = line.strip_prefix("MSG:").filter(|_| after_separator) {
            let name = name.trim();
            all.push((name.to_owned(), start..start + line.len(), Declaration::default()));
        }
        let was_separator = std::mem::replace(&mut after_separator, is_separator(line));
        if was_separator || after_separator || line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((_, _, declaration)) = all.last_mut() else { continue };
        match parse_line(line, start) {
            Ok(Line::Member(member)) => declaration.members.push(member),
            Ok(Line::Constant) => declaration.constants.push(line.to_owned()),
            Err(message) => {
                let span = start..start + line.len();
                mistakes.push(Mistake { span, message, help: None, detail: None });
            }
        }
    }
    (without_repetitions(all), mistakes)
}

fn is_separator(line: &str) -> bool {
    line.len() >= MIN_SEPARATOR && line.bytes().all(|byte| byte == b'=')
}

/// Some writers repeat a declaration for each of its uses.
pub(super) fn without_repetitions(
    all: Vec<(String, Range<usize>, Declaration)>,
) -> Vec<(String, Range<usize>, Declaration)> {
    let mut kept: Vec<(String, Range<usize>, Declaration)> = Vec::new();
    let mut texts = std::collections::HashSet::new();
    for (name, span, declaration) in all {
        let mut text = format!("{name}\n");
        declaration.write(&mut text);
        if texts.insert(text) {
            kept.push((name, span, declaration));
        }
    }
    kept
}

/// What a line declares.
enum Line {
    Member(Member),
    Constant,
}

fn parse_line(line: &str, start: usize) -> Result<Line, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (of, count) = parse_type(word)?;
    let rest = rest.trim_start();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let (name, rest) = rest.split_at_checked(end).unwrap_or_default();
    if name.is_empty() {
        return Err(format!("expected a name behind the type `{word}`"));
    }
    if rest.trim_start().starts_with('=') {
        return Ok(Line::Constant);
    }
    if !rest.is_empty() && !rest.starts_with(|c: char| c.is_whitespace() || c == '#') {
        return Err(format!("expected letters, digits and `_` in the name that begins `{name}`"));
    }
    let span = start..start + word.len();
    Ok(Line::Member(Member { name: name.to_owned(), of, count, word: word.to_owned(), span }))
}

pub(super) fn parse_type(word: &str) -> Result<(ElementType, ElementCount), String> {
    let wrong = || format!("expected a type, found `{word}`");
    let (element, count) = match word.split_once('[') {
        None => (word, ElementCount::One),
        Some((element, count)) => {
            let count = count.strip_suffix(']').ok_or_else(wrong)?;
            let count = match count.strip_prefix("<=") {
                Some(bound) => bound.parse::<u32>().ok().map(|_| ElementCount::Counted),
                None if count.is_empty() => Some(ElementCount::Counted),
                None => count.parse().ok().map(ElementCount::Fixed),
            };
            (element, count.ok_or_else(|| format!("expected a number of elements in `{word}`"))?)
        }
    };
    let element = match element.split_once("<=") {
        Some((element, bound)) if bound.parse::<u32>().is_ok() => element,
        Some(_) => return Err(wrong()),
        None => element,
    };
    let is_name = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
    };
    if !element.split('/').all(is_name) {
        return Err(wrong());
    }
    let primitive = PRIMITIVES.iter().find(|(name, _)| *name == element);
    let of = match primitive {
        Some((_, primitive)) => ElementType::Primitive(*primitive),
        None => ElementType::Declared(element.to_owned()),
    };
    Ok((of, count))
}
