//! A position in a text, for the parsers of small languages. Knows no language.

use std::ops::Range;

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token<'t> {
    /// Its text.
    pub text: &'t str,
    /// Its position.
    pub span: Range<usize>,
}

/// A text, and a position between two of its characters.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    /// At the start of a text.
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// At the start of a file: after the byte order mark that some editors write.
    pub fn after_mark(text: &'t str) -> Self {
        let mut cursor = Self::new(text);
        cursor.eat("\u{feff}");
        cursor
    }

    /// The offset in the text.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The text that follows.
    pub fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The next character.
    pub fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes this many bytes; everything if they end inside a character or after the text.
    pub fn take(&mut self, len: usize) -> Token<'t> {
        let (start, rest) = (self.at, self.rest());
        let text = rest.get(..len).unwrap_or(rest);
        self.at += text.len();
        Token { text, span: start..self.at }
    }

    /// Takes the next character, if there is one.
    pub fn next_char(&mut self) -> Option<char> {
        self.take(self.peek()?.len_utf8()).text.chars().next()
    }

    /// Takes the characters up to the first that is no part.
    pub fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> Token<'t> {
        let rest = self.rest();
        self.take(rest.find(|c| !is_part(c)).unwrap_or(rest.len()))
    }

    /// Takes `text` if it follows, and returns whether it does.
    pub fn eat(&mut self, text: &str) -> bool {
        let follows = self.rest().starts_with(text);
        if follows {
            self.take(text.len());
        }
        follows
    }

    /// The length of the comment that follows, and whether it is closed: `// …` to the end of the
    /// line, or `/* … */`, which is not nested.
    pub fn comment(&self) -> Option<(usize, bool)> {
        let rest = self.rest();
        if rest.starts_with("//") {
            return Some((rest.find('\n').unwrap_or(rest.len()), true));
        }
        let inside = rest.strip_prefix("/*")?;
        let end = inside.find("*/").map(|end| end + 2 * "/*".len());
        Some((end.unwrap_or(rest.len()), end.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_has_its_position() {
        let mut cursor = Cursor::after_mark("\u{feff}größe = 5");
        let word = cursor.take_while(char::is_alphanumeric);
        assert_eq!((word.text, word.span), ("größe", 3..10));
        assert!(cursor.eat(" =") && !cursor.eat("=") && cursor.peek() == Some(' '));
        assert_eq!((cursor.next_char(), cursor.take(9).text), (Some(' '), "5"));
        assert_eq!((cursor.next_char(), cursor.peek(), cursor.position()), (None, None, 14));
    }

    #[test]
    fn comments_end_with_their_line_or_mark() {
        let comment = |text| Cursor::new(text).comment();
        assert_eq!((comment("//a\nb"), comment("//")), (Some((3, true)), Some((2, true))));
        assert_eq!((comment("/*/ */ */"), comment("/*/")), (Some((6, true)), Some((3, false))));
        assert_eq!((comment("/"), comment("a//")), (None, None));
    }
}
