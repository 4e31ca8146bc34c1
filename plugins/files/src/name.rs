//! Names of files: what a template gives, held below the folder, and each there once. Opens nothing.

use std::collections::HashMap;

use sluice_core::Template;
use sluice_core::name::{folded, printable_sentence};
use sluice_core::output::MANIFEST;

use crate::index::Index;

/// Why a name cannot be that of a file below the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A field of the template is not there.
    Missing,
    /// A value makes a folder.
    Slash,
    /// A part between slashes is empty, `.` or `..`.
    Nowhere,
    /// It is longer than file systems allow.
    TooLong,
    /// It has a control character, or is a temporary file's.
    Unusable,
    /// The folder's own lists have it.
    Taken,
    /// It is not UTF-8.
    NoText,
}

impl Fault {
    /// What is told of it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "the file's name needs a field that the event does not have",
            Self::Slash => "a value in the file's name has a slash",
            Self::Nowhere => "the file's name leads nowhere, or out of the folder",
            Self::TooLong => "the file's name is longer than file systems allow",
            Self::Unusable => "the file's name is one that cannot be used",
            Self::Taken => "the file's name is that of the folder's own list",
            Self::NoText => "the file's name is no text",
        }
    }

    /// What to do about it in the template.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Nowhere => {
                "between slashes, before the first and behind the last must be more than `.` or `..`"
            }
            Self::TooLong => "write at most 240 bytes between slashes",
            Self::Taken => "that is one of the folder's own files; choose another name",
            Self::Unusable => "leave out control characters, and the ending `.sluice-tmp`",
            Self::Missing | Self::Slash | Self::NoText => "choose values that always fit",
        }
    }
}

/// An event without a name.
#[derive(Debug)]
pub(crate) struct Unnamed {
    pub(crate) fault: Fault,
    /// The name it would have had, cut and with control characters spelled out; or the field that is missing.
    pub(crate) said: String,
}

impl Unnamed {
    /// The event would be called so.
    pub(crate) fn called(name: &str, fault: Fault) -> Self {
        // The template has spelled out what its values hold; their backslashes are left as they are.
        let start: String = name.chars().take(MOST_SAID).collect();
        let mut said = printable_sentence(&start).into_owned();
        if name.chars().nth(MOST_SAID).is_some() {
            said.push('…');
        }
        Self { fault, said }
    }

    /// The event lacks this field.
    pub(crate) fn lacking(field: String) -> Self {
        Self { fault: Fault::Missing, said: field }
    }

    /// Why the event is refused.
    pub(crate) fn reason(&self) -> String {
        match self.fault {
            Fault::Missing => {
                format!("the file's name needs `{}`, which the event does not have", self.said)
            }
            fault => fault.as_str().to_owned(),
        }
    }
}

/// So much of a name is told.
const MOST_SAID: usize = 80;

/// How many folders deep names lie.
#[derive(Debug)]
pub(crate) struct Depth(usize);

impl Depth {
    /// As many folders as the template's own text has slashes: values must not add any.
    pub(crate) fn of(template: &Template) -> Self {
        let slashes = own_text(template).iter().filter(|c| **c == Some('/')).count();
        Self(slashes)
    }

    /// Why a name cannot be that of a file below the folder, if that is so.
    pub(crate) fn fault(&self, name: &str) -> Option<Fault> {
        let parts = || name.split('/');
        if parts().count() != self.0 + 1 {
            return Some(Fault::Slash);
        }
        if name.contains(char::is_control) {
            return Some(Fault::Unusable);
        }
        if name.len() > LONGEST_IN_ALL {
            return Some(Fault::TooLong);
        }
        parts().find_map(part_fault).or_else(|| taken(parts().next().unwrap_or_default()))
    }
}

/// Why no event can have a name of this template, if that is so.
pub(crate) fn mistake(template: &Template) -> Option<Fault> {
    // What stands between elements of a list becomes part of the name, too.
    if template.to_string().contains(char::is_control) {
        return Some(Fault::Unusable);
    }
    let own = own_text(template);
    let mut parts = own.split(|c| *c == Some('/'));
    let first = parts.clone().next().and_then(whole);
    let fault = parts.find_map(shortest_fault);
    fault.or_else(|| first.and_then(|first| taken(&first)))
}

/// The template's own text; where a value stands is nothing.
fn own_text(template: &Template) -> Vec<Option<char>> {
    let (mut own, mut is_inside, mut is_quoted) = (Vec::new(), false, false);
    let text = template.to_string();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // Braces that stand for themselves.
            '{' | '}' if !is_inside && rest.peek() == Some(&c) => {
                rest.next();
                own.push(Some(c));
            }
            '{' if !is_inside => {
                is_inside = true;
                own.push(None);
            }
            '`' if is_inside => is_quoted = !is_quoted,
            '}' if is_inside && !is_quoted => is_inside = false,
            _ if is_inside => {}
            c => own.push(Some(c)),
        }
    }
    own
}

/// Why a part is none whatever its values are.
fn shortest_fault(part: &[Option<char>]) -> Option<Fault> {
    // A letter for each value tells them from nothing and from dots, but they may be empty.
    let text: String = part.iter().map(|c| c.unwrap_or('x')).collect();
    let own_len: usize = part.iter().flatten().map(|c| c.len_utf8()).sum();
    part_fault(&text).filter(|fault| *fault != Fault::TooLong || own_len > LONGEST)
}

/// A part without values.
fn whole(part: &[Option<char>]) -> Option<String> {
    part.iter().copied().collect()
}

/// Why a name cannot have this between its slashes.
fn part_fault(part: &str) -> Option<Fault> {
    if matches!(part, "" | "." | "..") {
        return Some(Fault::Nowhere);
    }
    if part.len() > LONGEST {
        return Some(Fault::TooLong);
    }
    part.ends_with(".sluice-tmp").then_some(Fault::Unusable)
}

/// Whether the folder's own files have the name.
fn taken(first: &str) -> Option<Fault> {
    (first == MANIFEST || Index::NAMES.contains(&first)).then_some(Fault::Taken)
}

/// File systems allow 255 bytes; a number in front of the ending takes some.
const LONGEST: usize = 240;
/// And 4096 with the folder's own path.
const LONGEST_IN_ALL: usize = 2048;

/// The names that files have so far: a hash of each, and how often it was asked for. 32 bytes a file.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<u128, u32>,
    /// How many got a number, as their name was there.
    pub(crate) again: u64,
}

impl Names {
    /// The name itself where it is new; else with the first number from 2 on that makes it so.
    pub(crate) fn take(&mut self, name: String) -> String {
        let count = self.known.entry(key(&name)).or_insert(0);
        if *count == 0 {
            *count = 1;
            return name;
        }
        self.again += 1;
        loop {
            let count = self.known.entry(key(&name)).or_insert(0);
            *count += 1;
            let numbered = numbered(&name, *count);
            // A file may have had that name of its own.
            if let std::collections::hash_map::Entry::Vacant(place) =
                self.known.entry(key(&numbered))
            {
                place.insert(1);
                return numbered;
            }
        }
    }
}

/// The same for names that are one file where case is ignored.
fn key(name: &str) -> u128 {
    let hash = blake3::hash(folded(name).as_bytes());
    let first = hash.as_bytes().first_chunk().copied().unwrap_or_default();
    u128::from_le_bytes(first)
}

/// The name with a number in front of its ending.
fn numbered(name: &str, number: u32) -> String {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = name.get(file..).and_then(|name| name.rfind('.')).filter(|dot| *dot > 0);
    let (stem, ending) = name.split_at(dot.map_or(name.len(), |dot| file + dot));
    format!("{stem}-{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_templates_own_slashes_make_folders() {
        let depth = |text: &str| Depth::of(&Template::parse(text).unwrap()).0;
        assert_eq!(depth("{channel}-{utime}.jpg"), 0);
        assert_eq!(depth("a/{{/{channel}/{x[*];/}}}/"), 4);
        assert_eq!(depth("{`a}/{b`}/{c}"), 1);
        let flat = Depth(0);
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "/a",
            "_manifest.json",
            "index.csv",
            "a\0",
            "a\nb",
            ".a.1-2.sluice-tmp",
        ] {
            assert!(flat.fault(name).is_some(), "{name}");
        }
        assert!(flat.fault(&"x".repeat(241)).is_some());
        assert_eq!(flat.fault("CAM-1.jpg"), None);
        for name in ["a", "a/../b", "../b", "a/..", "a//", "index.csv/x"] {
            assert!(Depth(1).fault(name).is_some(), "{name}");
        }
        assert_eq!(Depth(1).fault("CAM/1.jpg"), None);
    }

    #[test]
    fn templates_that_can_name_no_file_are_told_by_their_own_text() {
        let mistake = |text: &str| mistake(&Template::parse(text).unwrap());
        for text in ["", "/{a}", "../{a}", "./{a}", "a/", "{a}/", "{a}//{b}", "{a}/../{b}", "{a}/."]
        {
            assert_eq!(mistake(text), Some(Fault::Nowhere), "{text}");
        }
        for text in ["a\n{a}", "{a[*];\n}", "\0", "{a}.sluice-tmp", "{a}.sluice-tmp/{b}"] {
            assert_eq!(mistake(text), Some(Fault::Unusable), "{text}");
        }
        for text in ["index.csv", "index.txt", "_manifest.json", "index.csv/{a}"] {
            assert_eq!(mistake(text), Some(Fault::Taken), "{text}");
        }
        let long = "x".repeat(240);
        assert_eq!(mistake(&format!("{{a}}{long}")), None);
        assert_eq!(mistake(&format!("{{a}}{long}x")), Some(Fault::TooLong));
        for text in
            ["{a}", ".{a}", "..{a}", "{a}/{b}/c", "a/index.csv", "index.csv{a}", "{a}.{b}", &long]
        {
            assert_eq!(mistake(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_told_of_a_name_is_short_and_harmless() {
        assert_eq!(Unnamed::called("a\u{1b}[2J/b", Fault::Slash).said, "a\\u{1b}[2J/b");
        assert_eq!(Unnamed::called(&"é".repeat(81), Fault::Slash).said, "é".repeat(80) + "…");
    }

    #[test]
    fn a_name_that_differs_in_case_only_gets_a_number_too() {
        let mut names = Names::default();
        let asked = ["CAM/1.jpg", "Cam/1.JPG", "CAM./1.jpg", "cam/2.jpg"];
        let given = asked.map(|name| names.take(name.to_owned()));
        assert_eq!(given, ["CAM/1.jpg", "Cam/1-2.JPG", "CAM./1-3.jpg", "cam/2.jpg"]);
    }

    #[test]
    fn a_name_that_is_there_gets_a_number_in_front_of_its_ending() {
        let mut names = Names::default();
        let asked = ["a.jpg", "a.jpg", "a-3.jpg", "a.jpg", "d.e/f", "d.e/f", ".x", ".x"];
        let given = asked.map(|name| names.take(name.to_owned()));
        let wanted = ["a.jpg", "a-2.jpg", "a-3.jpg", "a-4.jpg", "d.e/f", "d.e/f-2", ".x", ".x-2"];
        assert_eq!(given, wanted);
        assert_eq!(names.again, 4);
    }

    proptest! {
        #[test]
        fn a_template_that_is_told_wrong_gives_no_name(
            text in "(\\{a\\}|[./x\n]|index\\.csv|\\.sluice-tmp){0,5}", value in "[./ax]{0,3}|index")
        {
            let template = Template::parse(&text).unwrap();
            let name = text.replace("{a}", &value);
            let fault = Depth::of(&template).fault(&name);
            prop_assert!(fault.is_some() || mistake(&template).is_none(), "{:?}", name);
            // What has no values is judged in full.
            let has_values = template.fields().next().is_some();
            prop_assert!(has_values || fault.is_some() == mistake(&template).is_some());
        }

        #[test]
        fn no_name_is_given_twice(asked in prop::collection::vec("a(-[2-4]){0,2}(\\.b)?", 0..40)) {
            let mut names = Names::default();
            let mut given = std::collections::BTreeSet::new();
            for name in asked {
                prop_assert!(given.insert(names.take(name)));
            }
        }
    }
}
