//! Field paths as text: parsing and printing.

use std::fmt;
use std::sync::Arc;

use super::{DashRule, FieldPath, PathError, PathStep};
use crate::cursor::Cursor;

impl FieldPath {
    /// Parses a path. `Err` says what is wrong, and at which character.
    pub fn parse(text: &str) -> Result<Self, String> {
        let message = |error: PathError| {
            let before = text.get(..error.at).unwrap_or(text);
            let character = before.chars().count() + 1;
            format!("`{text}` is not a field path: at character {character}: {}", error.what)
        };
        let (path, len) = Self::scan(text, DashRule::InNames).map_err(message)?;
        match text.get(len..).and_then(|rest| rest.chars().next()) {
            None => Ok(path),
            Some(found) => Err(message(PathError { at: len, what: unexpected(found) })),
        }
    }

    /// Parses the path at the start of `text`, and returns it with its length in bytes.
    pub fn scan(text: &str, dash: DashRule) -> Result<(Self, usize), PathError> {
        let mut scanner = PathScanner { cursor: Cursor::new(text), dash };
        let mut path = Self::column(scanner.name()?);
        while let Some(step) = scanner.step()? {
            path.steps.push(step);
        }
        Ok((path, scanner.cursor.position()))
    }
}

/// Parses a path from the start of a text.
struct PathScanner<'t> {
    cursor: Cursor<'t>,
    dash: DashRule,
}

impl PathScanner<'_> {
    fn error<T>(&self, what: impl Into<String>) -> Result<T, PathError> {
        Err(PathError { at: self.cursor.position(), what: what.into() })
    }

    fn step(&mut self) -> Result<Option<PathStep>, PathError> {
        if self.cursor.eat(".") {
            Ok(Some(PathStep::Name(self.name()?)))
        } else if self.cursor.eat("[") {
            Ok(Some(PathStep::Index(self.index()?)))
        } else {
            Ok(None)
        }
    }

    fn name(&mut self) -> Result<Arc<str>, PathError> {
        if self.cursor.peek() == Some('`') {
            return self.quoted_name();
        }
        let dash = self.dash == DashRule::InNames;
        let name = self.cursor.take_while(|c| is_plain(c) || dash && c == '-').text;
        if name.is_empty() {
            return match self.cursor.peek() {
                Some('"' | '\'') => {
                    self.error("expected a name; put names with special characters in backquotes")
                }
                Some(found) => self.error(format!("expected a name, found `{found}`")),
                None => self.error("expected a name, found the end"),
            };
        }
        Ok(name.into())
    }

    fn quoted_name(&mut self) -> Result<Arc<str>, PathError> {
        let mut name = String::new();
        let mut rest = self.cursor.rest().char_indices().skip(1).peekable();
        while let Some((at, c)) = rest.next() {
            match c {
                '`' if rest.next_if(|(_, next)| *next == '`').is_none() => {
                    self.cursor.take(at + 1);
                    return Ok(name.into());
                }
                c => name.push(c),
            }
        }
        self.error("this backquote is not closed")
    }

    fn index(&mut self) -> Result<i64, PathError> {
        let before = self.cursor;
        let digits = self.cursor.take_while(|c| c.is_ascii_digit() || c == '-');
        let Ok(index) = digits.text.parse() else {
            self.cursor = before;
            return self.error("expected a whole number such as 0, or -1 for the last");
        };
        if self.cursor.eat("]") { Ok(index) } else { self.error("expected `]`") }
    }
}

/// Whether a character needs no quoting in a name; `-` is handled separately.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || !(c.is_ascii() || c.is_whitespace())
}

fn unexpected(found: char) -> String {
    match found {
        ']' => "`]` without `[`".to_owned(),
        found => format!("expected `.`, `[` or the end, found `{found}`"),
    }
}

impl fmt::Display for FieldPath {
    /// As [`FieldPath::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(&self.column, f)?;
        for step in &self.steps {
            match step {
                PathStep::Name(name) => {
                    f.write_str(".")?;
                    write_name(name, f)?;
                }
                PathStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

fn write_name(name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let is_plain = |c: char| is_plain(c) || c == '-';
    match !name.is_empty() && name.chars().all(is_plain) {
        true => f.write_str(name),
        false => write!(f, "`{}`", name.replace('`', "``")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::tests::path;
    use super::*;

    #[test]
    fn paths_print_as_they_are_read() {
        for text in
            ["utime", "pos[0]", "a.b[2].c", "m[1][-2]", "a-b._c1", "grün", "`odd name`.`a``b`[3]"]
        {
            assert_eq!(path(text).to_string(), text);
        }
        assert_eq!(path("`plain`.`1`").to_string(), "plain.1");
    }

    #[test]
    fn errors_name_the_character() {
        let message = |text: &str| FieldPath::parse(text).unwrap_err();
        for (text, part) in [
            ("", "at character 1: expected a name, found the end"),
            ("a..b", "at character 3: expected a name, found `.`"),
            ("grün[x]", "at character 6: expected a whole number"),
            ("a[1", "at character 4: expected `]`"),
            ("a b", "at character 2: expected `.`, `[` or the end, found ` `"),
            ("a]", "at character 2: `]` without `[`"),
            ("\"a\"", "backquotes"),
            ("a.`b", "at character 3: this backquote is not closed"),
            ("a[99999999999999999999]", "at character 3"),
        ] {
            assert!(message(text).contains(part), "{}", message(text));
        }
    }

    #[test]
    fn a_dash_ends_names_where_it_may_be_a_minus() {
        let (path, len) = FieldPath::scan("a.b-1", DashRule::EndsNames).unwrap();
        assert_eq!((path.to_string().as_str(), len), ("a.b", 3));
    }

    fn any_path() -> impl Strategy<Value = FieldPath> {
        let name = "[a-z_0-9`. \"é-]{0,6}";
        let step = prop_oneof![
            name.prop_map(|name| PathStep::Name(name.into())),
            any::<i64>().prop_map(PathStep::Index)
        ];
        (name, vec(step, 0..5))
            .prop_map(|(column, steps)| FieldPath { column: column.into(), steps })
    }

    proptest! {
        #[test]
        fn every_path_reads_back(path in any_path()) {
            prop_assert_eq!(FieldPath::parse(&path.to_string()), Ok(path));
        }

        #[test]
        fn any_text_is_a_path_or_a_mistake_inside_it(text in "[a-z`.\\[\\]0-9é \
                                                              -]{0,12}|\\PC{0,8}") {
            match FieldPath::scan(&text, DashRule::InNames) {
                Ok((_, len)) => prop_assert!(text.is_char_boundary(len)),
                Err(error) => prop_assert!(text.is_char_boundary(error.at)),
            }
            if let Ok(path) = FieldPath::parse(&text) {
                prop_assert_eq!(FieldPath::parse(&path.to_string()), Ok(path));
            }
        }
    }
}
