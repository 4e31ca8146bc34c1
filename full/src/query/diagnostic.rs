//! Shows errors in statements at their position.

use std::ops::Range;

use sluice::extension::Shell;
use sluice_io::escape::printable_sentence;
use sluice_kit::mistake::Mistake;
use sluice_query::session::InvalidQuery;
use sluice_query::statements::Statement;

/// The text that has the statement.
#[derive(Clone, Copy)]
pub(super) struct SqlText<'t> {
    /// Its name in messages.
    pub(super) name: &'t str,
    pub(super) text: &'t str,
}

/// Shows an error at its position, or without one if that is unknown.
pub(super) fn report(
    invalid: &InvalidQuery,
    statement: &Statement<'_>,
    source: SqlText<'_>,
    shell: &Shell,
) {
    let span =
        invalid.span(statement.text).or_else(|| likely_position(&invalid.message, statement.text));
    let Some(Range { start, end }) = span else {
        shell.error(&printable_sentence(&invalid.to_string()));
        return;
    };
    let mistake = Mistake {
        span: start + statement.start..end + statement.start,
        message: invalid.message.clone(),
        help: invalid.help.clone(),
        detail: None,
    };
    shell.mistake(&mistake, source.name, source.text);
}

/// The likely position of a message without one: the end of an incomplete statement, or the only
/// occurrence of the first name in the message.
fn likely_position(what: &str, statement: &str) -> Option<Range<usize>> {
    if what.ends_with("found: EOF") {
        let end = statement.trim_end().len();
        return Some(end..end);
    }
    // The name of the log precedes that of the channel.
    let name = what
        .rsplit_once("called `")
        .map_or_else(|| what.split_once('`').map(|(_, rest)| rest), |(_, rest)| Some(rest));
    let name = name?.split_once('`').map(|(name, _)| name)?;
    let is_word = |c: char| c == '_' || c.is_alphanumeric();
    let mut places = statement.match_indices(name).map(|(at, _)| at..at + name.len());
    let mut whole_words = places.by_ref().filter(|position| {
        let before = statement.get(..position.start).and_then(|text| text.chars().next_back());
        let after = statement.get(position.end..).and_then(|text| text.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    });
    let position = whole_words.next().filter(|position| !position.is_empty())?;
    whole_words.next().is_none().then_some(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_point_to_a_unique_name_or_the_end() {
        let position = |what, statement| likely_position(what, statement);
        assert_eq!(position("there is no table `b`", "select b1 from b"), Some(15..16));
        assert_eq!(position("there is no table `b`", "select b from b"), None);
        assert_eq!(position("no channel in `d` called `P`", "select d from d.P"), Some(16..17));
        assert_eq!(position("expected: an expression, found: EOF", "select \n"), Some(6..6));
        assert_eq!(position("`` is nothing", "select"), None);
        assert_eq!(position("it is wrong", "select"), None);
    }
}
