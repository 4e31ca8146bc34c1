//! Shows what is wrong with a statement at its place in the text it is from.

use std::ops::Range;

use sluice::extension::Shell;
use sluice_core::mistake::Mistake;
use sluice_core::name::printable_sentence;
use sluice_query::session::Wrong;

use super::statements::Statement;

/// A text of which a statement is a part.
#[derive(Clone, Copy)]
pub(super) struct Text<'t> {
    /// What it is called where a mistake in it is shown.
    pub(super) name: &'t str,
    pub(super) text: &'t str,
}

/// Shows where a statement is wrong, or says it where that is not known.
pub(super) fn tell(wrong: &Wrong, statement: &Statement<'_>, whole: Text<'_>, shell: &Shell) {
    let span = wrong.span(statement.text).or_else(|| likely_place(&wrong.what, statement.text));
    let Some(Range { start, end }) = span else {
        shell.error(&printable_sentence(&wrong.to_string()));
        return;
    };
    let mistake = Mistake {
        span: start + statement.start..end + statement.start,
        message: wrong.what.clone(),
        help: wrong.help.clone(),
        detail: None,
    };
    shell.mistake(&mistake, whole.name, whole.text);
}

/// The place that a message without one means: the end of the statement if that came too early, or the only
/// place where the name stands that it names first.
fn likely_place(what: &str, statement: &str) -> Option<Range<usize>> {
    if what.ends_with("found: EOF") {
        let end = statement.trim_end().len();
        return Some(end..end);
    }
    // What a channel is missing in is named before it.
    let name = what
        .rsplit_once("called `")
        .map_or_else(|| what.split_once('`').map(|(_, rest)| rest), |(_, rest)| Some(rest));
    let name = name?.split_once('`').map(|(name, _)| name)?;
    let is_word = |c: char| c == '_' || c.is_alphanumeric();
    let mut places = statement.match_indices(name).map(|(at, _)| at..at + name.len());
    let mut stands_alone = places.by_ref().filter(|place| {
        let before = statement.get(..place.start).and_then(|text| text.chars().next_back());
        let behind = statement.get(place.end..).and_then(|text| text.chars().next());
        !before.is_some_and(is_word) && !behind.is_some_and(is_word)
    });
    let place = stands_alone.next().filter(|place| !place.is_empty())?;
    stands_alone.next().is_none().then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_likely_where_a_name_stands_once_or_a_statement_ends() {
        let place = |what, statement| likely_place(what, statement);
        assert_eq!(place("there is no table `b`", "select b1 from b"), Some(15..16));
        assert_eq!(place("there is no table `b`", "select b from b"), None);
        assert_eq!(place("no channel in `d` called `P`", "select d from d.P"), Some(16..17));
        assert_eq!(place("expected: an expression, found: EOF", "select \n"), Some(6..6));
        assert_eq!(place("`` is nothing", "select"), None);
        assert_eq!(place("it is wrong", "select"), None);
    }
}
