//! Tells commands from statements, and whether an input is complete.

use sluice_query::statements::Statements;

/// Whether this is a dot command.
pub(in crate::query) fn is_command(text: &str) -> bool {
    text.trim_start().starts_with('.')
}

/// Whether the text is a command, or ends with a complete statement.
pub(in crate::query) fn is_whole(text: &str) -> bool {
    is_command(text) || !Statements::split(text).is_open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_input_ends_with_a_semicolon_or_is_a_command() {
        for complete in [".tables", "", " \n", "select 1;", "select ';' ; ", "a; -- b", "-- a\n"] {
            assert!(is_whole(complete), "{complete}");
        }
        for open in ["select 1", "select 1; select 2", "select ';", "/* ;", "a; /* b"] {
            assert!(!is_whole(open), "{open}");
        }
    }
}
