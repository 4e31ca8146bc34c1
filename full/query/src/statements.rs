//! Splits SQL into statements at semicolons, outside of quotes and comments.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};

/// A statement in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement<'t> {
    /// Its start in the text, in bytes.
    pub start: usize,
    /// The statement, without its semicolon.
    pub text: &'t str,
}

/// A text of statements. Blanks and comments alone are no statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statements<'t> {
    /// All statements. An open quote extends to the end.
    pub all: Vec<Statement<'t>>,
    /// Whether the last statement lacks its semicolon, or a quote or comment is open.
    pub is_open: bool,
}

impl<'t> Statements<'t> {
    /// Splits a text. Its statements may be invalid in themselves.
    pub fn split(text: &'t str) -> Self {
        let mut tokens = Vec::new();
        let mut tokenizer = Tokenizer::new(&GenericDialect {}, text);
        let is_cut = tokenizer.tokenize_with_location_into_buf(&mut tokens).is_err();
        let mut offsets = Offsets { text, rest: text, at: Location { line: 1, column: 1 } };
        let (mut all, mut start, mut is_blank) = (Vec::new(), 0, true);
        let mut push = |start: usize, end: usize, is_blank: bool| {
            let text = text.get(start..end).filter(|_| !is_blank);
            all.extend(text.map(|text| Statement { start, text }));
        };
        for token in &tokens {
            match &token.token {
                Token::SemiColon => {
                    let end = offsets.of(token.span.start);
                    push(start, end, is_blank);
                    (start, is_blank) = (end + 1, true);
                }
                Token::Whitespace(_) => {}
                _ => is_blank = false,
            }
        }
        if is_cut {
            let end = tokens.last().map_or(0, |last| offsets.of(last.span.end));
            is_blank &= text.get(end..).is_some_and(|rest| rest.starts_with("/*"));
        }
        push(start, text.len(), is_blank);
        Self { all, is_open: is_cut || !is_blank }
    }
}

/// Converts locations, in ascending order, to offsets in bytes.
struct Offsets<'t> {
    text: &'t str,
    /// The text at `at`.
    rest: &'t str,
    at: Location,
}

impl Offsets<'_> {
    fn of(&mut self, to: Location) -> usize {
        let mut chars = self.rest.chars();
        while self.at < to {
            match chars.next() {
                Some('\n') => self.at = Location { line: self.at.line + 1, column: 1 },
                Some(_) => self.at.column += 1,
                None => break,
            }
        }
        self.rest = chars.as_str();
        self.text.len() - self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<&str> {
        let statements = Statements::split(text).all;
        for statement in &statements {
            assert!(text[statement.start..].starts_with(statement.text), "{statement:?}");
        }
        statements.iter().map(|statement| statement.text).collect()
    }

    #[test]
    fn semicolons_in_quotes_and_comments_end_no_statement() {
        let text = "select ';', \"a;b\" -- c;d\n; /* e; /* f; */ g; */ select 2;;\n -- end;";
        assert_eq!(all(text), ["select ';', \"a;b\" -- c;d\n", " /* e; /* f; */ g; */ select 2"]);
        assert_eq!(all("select 'it''s; '; select `a;`"), ["select 'it''s; '", " select `a;`"]);
        assert_eq!(all("select $$;$$, $x$;$$;$x$, $1; b"), ["select $$;$$, $x$;$$;$x$, $1", " b"]);
        assert_eq!(all("select 'ü\n' ; é"), ["select 'ü\n' ", " é"]);
        assert_eq!(all(" \n--\n/**/"), Vec::<&str>::new());
    }

    #[test]
    fn an_open_statement_extends_to_the_end() {
        for open in ["select 1", "select '; ", "select $$ ; $", "select \"é;", "a; select ';"] {
            let statements = Statements::split(open);
            assert!(statements.is_open, "{open}");
            assert!(open.ends_with(statements.all.last().unwrap().text), "{open}");
        }
    }

    #[test]
    fn blanks_and_comments_are_no_statement() {
        for blank in [" \n -- a\n /* b */ ", "", "-- open;"] {
            assert_eq!(Statements::split(blank), Statements { all: Vec::new(), is_open: false });
        }
        assert_eq!(Statements::split("/* ; "), Statements { all: Vec::new(), is_open: true });
        for text in ["- 1", "/ 2", "--\nx"] {
            assert_eq!(all(text), [text]);
        }
    }

    #[test]
    fn a_semicolon_or_a_comment_after_it_ends_the_text() {
        for whole in ["select 1;", "select ';' ; ", "a; -- b", "a; /* b */"] {
            assert!(!Statements::split(whole).is_open, "{whole}");
        }
        for open in ["select 1; select 2", "a; /* b"] {
            assert!(Statements::split(open).is_open, "{open}");
        }
    }
}
