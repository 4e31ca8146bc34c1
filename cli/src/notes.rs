//! Notes of a run for the terminal: those that say the same of many channels or fields become one
//! line.

use std::borrow::Cow;
use std::collections::HashMap;

use sluice_pipeline::report::Note;

/// Why a resumed run makes outputs again that are there.
pub(crate) fn other_pipeline() -> Note {
    let what = "another pipeline made the outputs that are there, so they are made again: its \
                options, its types, and its paths as they are written, are part of a pipeline";
    Note { node: "resume".to_owned(), what: what.to_owned(), count: 0 }
}

/// The most lines that say the same of different channels or fields, and the most of these that a
/// line names.
const MOST_ALIKE: usize = 4;

/// The notes in their order. Those that say the same of more than a few channels or fields are one,
/// at the place of the first; a note about one begins with its name and a colon.
pub(crate) fn merged(notes: &[Note]) -> Vec<Cow<'_, Note>> {
    let mut alike: HashMap<(&str, &str), Vec<&Note>> = HashMap::new();
    for note in notes {
        if let Some((_, what)) = note.what.split_once(": ") {
            alike.entry((&note.node, what)).or_default().push(note);
        }
    }
    let mut lines = Vec::new();
    for note in notes {
        let what = note.what.split_once(": ").map_or("", |(_, what)| what);
        match alike.get(&(note.node.as_str(), what)) {
            Some(group) if group.len() > MOST_ALIKE => {
                if std::ptr::eq(group[0], note) {
                    lines.push(Cow::Owned(merge(what, group)));
                }
            }
            _ => lines.push(Cow::Borrowed(note)),
        }
    }
    lines
}

fn merge(what: &str, group: &[&Note]) -> Note {
    let names = group.iter().filter_map(|note| note.what.split_once(": "));
    let shown: Vec<&str> = names.map(|(name, _)| name).take(MOST_ALIKE - 1).collect();
    let more = group.len() - shown.len();
    Note {
        node: group[0].node.clone(),
        what: format!("{} and {more} more: {what}", shown.join(", ")),
        count: group.iter().map(|note| note.count).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(node: &str, what: &str, count: u64) -> Note {
        Note { node: node.to_owned(), what: what.to_owned(), count }
    }

    #[test]
    fn what_is_said_of_many_channels_is_one_line() {
        let mut notes: Vec<Note> =
            (0..6).map(|n| note("typed", &format!("C{n}: of no declared type"), 10)).collect();
        notes.insert(0, note("typed", "A: another", 1));
        notes.insert(3, note("other", "C1: of no declared type", 2));
        notes.push(note("typed", "a note without a channel", 0));
        let lines: Vec<(String, u64)> =
            merged(&notes).into_iter().map(|note| (note.what.clone(), note.count)).collect();
        let expected = [
            ("A: another", 1),
            ("C0, C1, C2 and 3 more: of no declared type", 60),
            ("C1: of no declared type", 2),
            ("a note without a channel", 0),
        ];
        assert_eq!(lines, expected.map(|(what, count)| (what.to_owned(), count)));
    }

    #[test]
    fn few_lines_stay_as_they_are() {
        let notes: Vec<Note> = (0..MOST_ALIKE).map(|n| note("n", &format!("C{n}: w"), 1)).collect();
        assert_eq!(merged(&notes).len(), MOST_ALIKE);
    }
}
