//! Splits SQL into statements at semicolons, outside of quotes and comments.

/// A statement in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Statement<'t> {
    /// Its start in the text, in bytes.
    pub(super) start: usize,
    /// The statement, without its semicolon.
    pub(super) text: &'t str,
}

/// The statements of a text, without empty ones.
pub(super) fn all(text: &str) -> Vec<Statement<'_>> {
    let (mut rest, mut found) = (text, Vec::new());
    loop {
        let start = text.len() - rest.len();
        let (statement, after) = first(rest).unwrap_or((rest, ""));
        if !is_blank(statement) {
            found.push(Statement { start, text: statement });
        }
        if after.is_empty() {
            return found;
        }
        rest = after;
    }
}

/// The first statement and the text after its semicolon; `None` if there is no semicolon yet.
pub(super) fn first(text: &str) -> Option<(&str, &str)> {
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some(after) = rest.strip_prefix(';') {
            return text.get(..at).map(|statement| (statement, after));
        }
        at += token_len(rest);
    }
    None
}

/// Whether the text has only blanks and comments.
pub(super) fn is_blank(text: &str) -> bool {
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if !rest.starts_with("--") && !rest.starts_with("/*") {
            return false;
        }
        rest = rest.get(token_len(rest)..).unwrap_or_default().trim_start();
    }
    true
}

/// The length of the first token, in bytes. An open quote or comment extends to the end.
fn token_len(text: &str) -> usize {
    let whole = match text.chars().next() {
        Some(quote @ ('\'' | '"' | '`')) => quoted(text, quote),
        Some('-') if text.starts_with("--") => text.find('\n').map(|at| at + 1),
        Some('/') if text.starts_with("/*") => comment(text),
        Some('$') => dollars(text),
        first => first.map(char::len_utf8),
    };
    whole.unwrap_or(text.len())
}

/// A doubled quote ends one token and starts the next.
fn quoted(text: &str, quote: char) -> Option<usize> {
    text.get(1..)?.find(quote).map(|at| at + 2)
}

/// Comments nest.
fn comment(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        let rest = text.get(at..)?;
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth = depth.saturating_sub(1);
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += rest.chars().next()?.len_utf8();
        }
    }
}

/// A text in `$$` or `$tag$` quotes. Any other dollar is a token.
fn dollars(text: &str) -> Option<usize> {
    let tag = text.get(1..)?.find(|c: char| c != '_' && !c.is_alphanumeric()).map(|at| at + 1);
    let Some(tag) = tag.filter(|at| text.get(*at..).is_some_and(|rest| rest.starts_with('$')))
    else {
        return Some(1);
    };
    let (tag, body) = text.split_at_checked(tag + 1)?;
    body.find(tag).map(|at| at + 2 * tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<&str> {
        let statements = super::all(text);
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
        assert_eq!(all(" \n--\n/**/"), Vec::<&str>::new());
    }

    #[test]
    fn an_incomplete_statement_is_not_returned() {
        for open in ["select 1", "select '; ", "/* ; ", "select $$ ; $", "-- ;", "select \"é;"] {
            assert_eq!(first(open), None, "{open}");
        }
        assert_eq!(first("select 'ü' ; x"), Some(("select 'ü' ", " x")));
    }

    #[test]
    fn blanks_and_comments_are_blank() {
        assert!(is_blank(" \n -- a\n /* b */ ") && is_blank("") && is_blank("-- open"));
        assert!(!is_blank("- 1") && !is_blank("/ 2") && !is_blank("--\nx"));
    }
}
