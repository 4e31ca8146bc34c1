//! What a configuration file says, as a tree. Does not parse.

use std::fmt;
use std::ops::Range;

use sluice_core::mistake::Mistake;

use super::{number, parser};

/// What a configuration file says. Two documents are equal if they say the same, wherever it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    pub(super) entries: Vec<Entry>,
}

/// A name with what it stands for.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The bytes of the text that are the name.
    pub span: Range<usize>,
    /// What it stands for.
    pub value: Value,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.value) == (&other.name, &other.value)
    }
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A single word.
    Word(Word),
    /// An array of words, perhaps of none.
    List(Vec<Word>),
    /// More entries, in their order. Of those with one name the first counts.
    Group(Vec<Entry>),
}

/// A text; what it means is decided by whoever reads it.
#[derive(Clone, Debug)]
pub struct Word {
    /// The text. A backslash that kept a quote from ending it is still in it.
    pub text: String,
    /// The bytes of the file that are the word, with its quotes.
    pub span: Range<usize>,
}

impl PartialEq for Word {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Document {
    /// What a text says. `Err` has all mistakes in it, in their order, up to some twenty.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        parser::parse(text)
    }

    /// All entries outside of groups, in their order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What stands at a path of names with dots between them, and nowhere else.
    pub fn find(&self, path: &str) -> Option<&Value> {
        let (groups, last) = self.groups(path)?;
        first(groups.last()?, last)
    }

    /// What counts at a path of names with dots between them: if its last name is not there, what the groups
    /// around have under that name, the nearest first.
    pub fn setting(&self, path: &str) -> Option<&Value> {
        let (groups, last) = self.groups(path)?;
        groups.iter().rev().find_map(|entries| first(entries, last))
    }

    /// The groups that a path leads through, outermost first, and its last name.
    fn groups<'p>(&self, path: &'p str) -> Option<(Vec<&[Entry]>, &'p str)> {
        let (around, last) = path.rsplit_once('.').map_or((None, path), |(a, l)| (Some(a), l));
        let mut groups = vec![self.entries()];
        for name in around.into_iter().flat_map(|around| around.split('.')) {
            groups.push(first(groups.last()?, name)?.entries()?);
        }
        Some((groups, last))
    }
}

/// What the first entry of that name stands for.
pub(crate) fn first<'d>(entries: &'d [Entry], name: &str) -> Option<&'d Value> {
    entries.iter().find(|entry| entry.name == name).map(|entry| &entry.value)
}

impl Value {
    /// The entries, if it is a group.
    pub fn entries(&self) -> Option<&[Entry]> {
        match self {
            Self::Group(entries) => Some(entries),
            Self::Word(_) | Self::List(_) => None,
        }
    }

    /// The words, if it is no group; one for a word.
    pub fn words(&self) -> Option<&[Word]> {
        match self {
            Self::Word(word) => Some(std::slice::from_ref(word)),
            Self::List(words) => Some(words),
            Self::Group(_) => None,
        }
    }

    /// The word, or the first one of a list: what reading it as a single value gives.
    pub fn word(&self) -> Option<&Word> {
        self.words()?.first()
    }
}

impl Word {
    /// Read as a whole number, as C does: `0x` begins a hexadecimal one, `0` an octal one. Nothing if it is
    /// none, or too large.
    pub fn integer(&self) -> Option<i64> {
        number::integer(&self.text)
    }

    /// Read as a number. Nothing if it is none.
    pub fn double(&self) -> Option<f64> {
        number::double(&self.text)
    }

    /// Read as a boolean: `y`, `yes`, `true`, `1` or `n`, `no`, `false`, `0`, in any case. Nothing if it is
    /// another word.
    pub fn boolean(&self) -> Option<bool> {
        number::boolean(&self.text)
    }
}

/// The document as text that is read as the same document.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_entries(f, &self.entries, 0)
    }
}

/// Groups are no deeper than the parser lets them be.
fn write_entries(f: &mut fmt::Formatter<'_>, entries: &[Entry], depth: usize) -> fmt::Result {
    let indent = 4 * depth;
    for Entry { name, value, .. } in entries {
        write!(f, "{:indent$}{name} ", "")?;
        match value {
            Value::Word(word) => writeln!(f, "= {};", Written(word))?,
            Value::List(words) => {
                let words: Vec<String> = words.iter().map(|w| Written(w).to_string()).collect();
                writeln!(f, "= [{}];", words.join(", "))?;
            }
            Value::Group(entries) => {
                f.write_str("{\n")?;
                write_entries(f, entries, depth + 1)?;
                writeln!(f, "{:indent$}}}", "")?;
            }
        }
    }
    Ok(())
}

/// A word as it stands in a file: in quotes where it needs them.
struct Written<'w>(&'w Word);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0.text;
        if !text.is_empty() && text.bytes().all(parser::is_in_name) {
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

    fn text_of(value: Option<&Value>) -> Option<&str> {
        value.and_then(Value::word).map(|word| word.text.as_str())
    }

    #[test]
    fn a_setting_that_is_missing_comes_from_the_groups_around() {
        let doc = parsed("unit = m; a { relative_to = body; b { c { x = 1; } } }");
        assert_eq!(text_of(doc.setting("a.b.c.x")), Some("1"));
        assert_eq!(text_of(doc.setting("a.b.c.relative_to")), Some("body"));
        assert_eq!(text_of(doc.setting("a.b.unit")), Some("m"));
        assert_eq!(doc.setting("a.b.none"), None);
        assert_eq!(doc.find("a.b.unit"), None);
    }

    #[test]
    fn only_the_last_name_of_a_path_is_looked_for_further_out() {
        let doc = parsed("b { x = 1; } a { y = 2; }");
        assert_eq!(doc.setting("a.b.x"), None);
        assert_eq!(doc.setting("a.y.x"), None);
    }

    #[test]
    fn of_entries_with_one_name_the_first_counts() {
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
