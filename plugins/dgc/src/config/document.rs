//! The content of a configuration file as a tree. Does not parse.

use std::fmt;
use std::ops::Range;

use super::number;

/// The content of a configuration file. Documents are compared without their positions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    pub(super) entries: Vec<ConfigEntry>,
}

/// A name and its value.
#[derive(Clone, Debug)]
pub struct ConfigEntry {
    /// The name.
    pub name: String,
    /// Byte range of the name.
    pub span: Range<usize>,
    /// The value.
    pub value: ConfigValue,
}

impl PartialEq for ConfigEntry {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.value) == (&other.name, &other.value)
    }
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigValue {
    /// A single scalar.
    Scalar(Scalar),
    /// An array of scalars; may be empty.
    List(Vec<Scalar>),
    /// Nested entries in file order. The first of each name wins.
    Group(Vec<ConfigEntry>),
}

/// An uninterpreted string; the accessors decide its type.
#[derive(Clone, Debug)]
pub struct Scalar {
    /// The text. A backslash that escapes a quote is kept.
    pub text: String,
    /// Byte range in the file, quotes included.
    pub span: Range<usize>,
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Document {
    /// The top-level entries, in file order.
    pub fn entries(&self) -> &[ConfigEntry] {
        &self.entries
    }

    /// The value at a dotted path, without inheritance.
    pub fn find(&self, path: &str) -> Option<&ConfigValue> {
        let (groups, last) = self.groups(path)?;
        first_value(groups.last()?, last)
    }

    /// The setting at a dotted path. If its last name is missing there, it is inherited from the
    /// enclosing groups, nearest first.
    pub fn setting(&self, path: &str) -> Option<&ConfigValue> {
        let (groups, last) = self.groups(path)?;
        groups.iter().rev().find_map(|entries| first_value(entries, last))
    }

    /// The groups along a path, outermost first, and its last name.
    fn groups<'p>(&self, path: &'p str) -> Option<(Vec<&[ConfigEntry]>, &'p str)> {
        let (around, last) = path.rsplit_once('.').map_or((None, path), |(a, l)| (Some(a), l));
        let mut groups = vec![self.entries()];
        for name in around.into_iter().flat_map(|around| around.split('.')) {
            groups.push(first_value(groups.last()?, name)?.entries()?);
        }
        Some((groups, last))
    }
}

/// The value of the first entry with this name.
pub(crate) fn first_value<'d>(entries: &'d [ConfigEntry], name: &str) -> Option<&'d ConfigValue> {
    entries.iter().find(|entry| entry.name == name).map(|entry| &entry.value)
}

impl ConfigValue {
    /// The entries of a group.
    pub fn entries(&self) -> Option<&[ConfigEntry]> {
        match self {
            Self::Group(entries) => Some(entries),
            Self::Scalar(_) | Self::List(_) => None,
        }
    }

    /// The scalars of a list, or the single scalar. `None` for a group.
    pub fn scalars(&self) -> Option<&[Scalar]> {
        match self {
            Self::Scalar(scalar) => Some(std::slice::from_ref(scalar)),
            Self::List(scalars) => Some(scalars),
            Self::Group(_) => None,
        }
    }

    /// The scalar, or the first one of a list.
    pub fn scalar(&self) -> Option<&Scalar> {
        self.scalars()?.first()
    }
}

impl Scalar {
    /// Parses an integer as C does: `0x` starts a hexadecimal number, `0` an octal one. `None` if
    /// it is not an integer or too large.
    pub fn integer(&self) -> Option<i64> {
        number::integer(&self.text)
    }

    /// Parses a floating-point number.
    pub fn double(&self) -> Option<f64> {
        number::double(&self.text)
    }

    /// Parses a boolean: `y`, `yes`, `true`, `1` or `n`, `no`, `false`, `0`, in any case.
    pub fn boolean(&self) -> Option<bool> {
        number::boolean(&self.text)
    }
}

/// Formats the document so that it parses back to an equal one.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_entries(f, &self.entries, 0)
    }
}

/// Recursion is bounded by the depth limit of the parser.
fn write_entries(f: &mut fmt::Formatter<'_>, entries: &[ConfigEntry], depth: usize) -> fmt::Result {
    let indent = 4 * depth;
    for ConfigEntry { name, value, .. } in entries {
        write!(f, "{:indent$}{name} ", "")?;
        match value {
            ConfigValue::Scalar(scalar) => writeln!(f, "= {};", QuotedScalar(scalar))?,
            ConfigValue::List(scalars) => {
                let scalars: Vec<String> =
                    scalars.iter().map(|w| QuotedScalar(w).to_string()).collect();
                writeln!(f, "= [{}];", scalars.join(", "))?;
            }
            ConfigValue::Group(entries) => {
                f.write_str("{\n")?;
                write_entries(f, entries, depth + 1)?;
                writeln!(f, "{:indent$}}}", "")?;
            }
        }
    }
    Ok(())
}

/// Whether a character may occur in names and unquoted values.
pub(super) fn is_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+')
}

/// Formats a scalar, quoted where necessary.
struct QuotedScalar<'w>(&'w Scalar);

impl fmt::Display for QuotedScalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0.text;
        if !text.is_empty() && text.chars().all(is_in_name) {
            f.write_str(text)
        } else {
            write!(f, "\"{text}\"")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Document {
        Document::parse(text).unwrap()
    }

    fn text_of(value: Option<&ConfigValue>) -> Option<&str> {
        value.and_then(ConfigValue::scalar).map(|scalar| scalar.text.as_str())
    }

    #[test]
    fn a_missing_setting_is_inherited_from_the_enclosing_groups() {
        let doc = parsed("unit = m; a { relative_to = body; b { c { x = 1; } } }");
        assert_eq!(text_of(doc.setting("a.b.c.x")), Some("1"));
        assert_eq!(text_of(doc.setting("a.b.c.relative_to")), Some("body"));
        assert_eq!(text_of(doc.setting("a.b.unit")), Some("m"));
        assert_eq!(doc.setting("a.b.none"), None);
        assert_eq!(doc.find("a.b.unit"), None);
    }

    #[test]
    fn only_the_last_name_of_a_path_is_inherited() {
        let doc = parsed("b { x = 1; } a { y = 2; }");
        assert_eq!(doc.setting("a.b.x"), None);
        assert_eq!(doc.setting("a.y.x"), None);
    }

    #[test]
    fn the_first_of_several_entries_with_one_name_wins() {
        let doc = parsed("a = 1; a = 2; g { x = 1; } g { y = 2; }");
        assert_eq!(text_of(doc.find("a")), Some("1"));
        assert_eq!(text_of(doc.find("g.x")), Some("1"));
        assert_eq!(doc.find("g.y"), None);
    }

    #[test]
    fn an_array_read_as_one_value_is_its_first_element() {
        let doc = parsed("a = [7, 8]; empty = [];");
        assert_eq!(text_of(doc.find("a")), Some("7"));
        assert_eq!(text_of(doc.find("empty")), None);
    }
}
