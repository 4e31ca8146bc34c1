//! File names from a template: kept within the folder, and unique. Opens no files.

use std::collections::HashMap;

use sluice_io::escape::{folded, printable_sentence};
use sluice_io::output::MANIFEST;
use sluice_kit::Template;

use crate::index::FileIndex;

/// Why a name cannot be that of a file in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NameFault {
    /// A field of the template is missing.
    Missing,
    /// A value contains a slash.
    Slash,
    /// A part between slashes is empty, `.` or `..`.
    Unreachable,
    /// It is longer than file systems allow.
    TooLong,
    /// It has a control character, or is that of a temporary file.
    Unusable,
    /// It is reserved for the index or the manifest.
    Reserved,
    /// It is not UTF-8.
    NotUtf8,
}

impl NameFault {
    /// Describes the fault.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "the file name needs a field that the event does not have",
            Self::Slash => "a value in the file name contains a slash",
            Self::Unreachable => "the file name is empty or leads out of the folder",
            Self::TooLong => "the file name is longer than file systems allow",
            Self::Unusable => {
                "the file name has a control character or the extension of a temporary file"
            }
            Self::Reserved => "the file name is reserved for the index or the manifest",
            Self::NotUtf8 => "the file name is not UTF-8",
        }
    }

    /// How to fix the template.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Unreachable => {
                "each part between slashes has to be other than empty, `.` or `..`"
            }
            Self::TooLong => "use at most 240 bytes between slashes",
            Self::Reserved => {
                "this name is reserved for the index or the manifest; choose another one"
            }
            Self::Unusable => "leave out control characters and the extension `.sluice-tmp`",
            Self::Missing | Self::Slash | Self::NotUtf8 => "choose values that always fit",
        }
    }
}

/// Why an event has no valid file name.
#[derive(Debug)]
pub(crate) struct NameError {
    pub(crate) fault: NameFault,
    /// The invalid name, shortened and with control characters escaped; or the missing field.
    pub(crate) detail: String,
}

impl NameError {
    /// An invalid name.
    pub(crate) fn invalid(name: &str, fault: NameFault) -> Self {
        // The template has already escaped its values; their backslashes are kept.
        let start: String = name.chars().take(MAX_SHOWN_CHARS).collect();
        let mut detail = printable_sentence(&start).into_owned();
        if name.chars().nth(MAX_SHOWN_CHARS).is_some() {
            detail.push('…');
        }
        Self { fault, detail }
    }

    /// A missing field.
    pub(crate) fn missing_field(field: String) -> Self {
        Self { fault: NameFault::Missing, detail: field }
    }

    /// Why the event is refused.
    pub(crate) fn reason(&self) -> String {
        match self.fault {
            NameFault::Missing => {
                format!("the file name needs `{}`, which the event does not have", self.detail)
            }
            fault => fault.as_str().to_owned(),
        }
    }
}

/// Maximum number of characters of a name in notes.
const MAX_SHOWN_CHARS: usize = 80;

/// The folder depth of all names.
#[derive(Debug)]
pub(crate) struct FolderDepth(usize);

impl FolderDepth {
    /// The number of slashes in the literal text of the template; values must not add any.
    pub(crate) fn from_template(template: &Template) -> Self {
        let slashes = own_text(template).iter().filter(|c| **c == Some('/')).count();
        Self(slashes)
    }

    /// The fault of a name, if it has one.
    pub(crate) fn fault(&self, name: &str) -> Option<NameFault> {
        let parts = || name.split('/');
        if parts().count() != self.0 + 1 {
            return Some(NameFault::Slash);
        }
        if name.contains(char::is_control) {
            return Some(NameFault::Unusable);
        }
        if name.len() > MAX_NAME_LEN {
            return Some(NameFault::TooLong);
        }
        parts().find_map(part_fault).or_else(|| reserved_fault(parts().next().unwrap_or_default()))
    }
}

/// The fault of a template, if no event can have a valid name.
pub(crate) fn template_fault(template: &Template) -> Option<NameFault> {
    // Separators of list elements become part of the name, too.
    if template.to_string().contains(char::is_control) {
        return Some(NameFault::Unusable);
    }
    let own = own_text(template);
    let mut parts = own.split(|c| *c == Some('/'));
    let first = parts.clone().next().and_then(literal_part);
    let fault = parts.find_map(shortest_fault);
    fault.or_else(|| first.and_then(|first| reserved_fault(&first)))
}

/// The literal text of a template; `None` stands for a value.
fn own_text(template: &Template) -> Vec<Option<char>> {
    let (mut own, mut is_inside, mut is_quoted) = (Vec::new(), false, false);
    let text = template.to_string();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // Escaped braces.
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

/// The fault of a part, whatever its values are.
fn shortest_fault(part: &[Option<char>]) -> Option<NameFault> {
    // A letter for each value: values may also be empty, so the length only counts literal text.
    let text: String = part.iter().map(|c| c.unwrap_or('x')).collect();
    let own_len: usize = part.iter().flatten().map(|c| c.len_utf8()).sum();
    part_fault(&text).filter(|fault| *fault != NameFault::TooLong || own_len > MAX_PART_LEN)
}

/// The text of a part without values.
fn literal_part(part: &[Option<char>]) -> Option<String> {
    part.iter().copied().collect()
}

/// The fault of a part between slashes.
fn part_fault(part: &str) -> Option<NameFault> {
    if matches!(part, "" | "." | "..") {
        return Some(NameFault::Unreachable);
    }
    if part.len() > MAX_PART_LEN {
        return Some(NameFault::TooLong);
    }
    part.ends_with(".sluice-tmp").then_some(NameFault::Unusable)
}

/// Whether a name is reserved.
fn reserved_fault(first: &str) -> Option<NameFault> {
    (first == MANIFEST || FileIndex::NAMES.contains(&first)).then_some(NameFault::Reserved)
}

/// File systems allow 255 bytes; a number before the extension takes some.
const MAX_PART_LEN: usize = 240;
/// File systems allow 4096 bytes, including the path of the folder.
const MAX_NAME_LEN: usize = 2048;

/// The names used so far: a hash of each, and how often it was requested. 32 bytes per file.
#[derive(Debug, Default)]
pub(crate) struct UniqueNames {
    claimed: HashMap<u128, u32>,
    /// How many names got a number because they were taken.
    pub(crate) renamed: u64,
}

impl UniqueNames {
    /// The name itself if it is new, else with the first number from 2 on that makes it unique.
    pub(crate) fn claim(&mut self, name: String) -> String {
        let count = self.claimed.entry(key(&name)).or_insert(0);
        if *count == 0 {
            *count = 1;
            return name;
        }
        self.renamed += 1;
        loop {
            let count = self.claimed.entry(key(&name)).or_insert(0);
            *count += 1;
            let numbered = numbered(&name, *count);
            // Another file may already have the numbered name.
            if let std::collections::hash_map::Entry::Vacant(place) =
                self.claimed.entry(key(&numbered))
            {
                place.insert(1);
                return numbered;
            }
        }
    }
}

/// A hash that is equal for names that differ only in case.
fn key(name: &str) -> u128 {
    let hash = blake3::hash(folded(name).as_bytes());
    let first = hash.as_bytes().first_chunk().copied().unwrap_or_default();
    u128::from_le_bytes(first)
}

/// Inserts a number before the extension.
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
        let depth = |text: &str| FolderDepth::from_template(&Template::parse(text).unwrap()).0;
        assert_eq!(depth("{channel}-{utime}.jpg"), 0);
        assert_eq!(depth("a/{{/{channel}/{x[*];/}}}/"), 4);
        assert_eq!(depth("{`a}/{b`}/{c}"), 1);
        let flat = FolderDepth(0);
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
            assert!(FolderDepth(1).fault(name).is_some(), "{name}");
        }
        assert_eq!(FolderDepth(1).fault("CAM/1.jpg"), None);
    }

    #[test]
    fn templates_that_cannot_name_a_file_are_recognised_by_their_literal_text() {
        let template_fault = |text: &str| template_fault(&Template::parse(text).unwrap());
        for text in ["", "/{a}", "../{a}", "./{a}", "a/", "{a}/", "{a}//{b}", "{a}/../{b}", "{a}/."]
        {
            assert_eq!(template_fault(text), Some(NameFault::Unreachable), "{text}");
        }
        for text in ["a\n{a}", "{a[*];\n}", "\0", "{a}.sluice-tmp", "{a}.sluice-tmp/{b}"] {
            assert_eq!(template_fault(text), Some(NameFault::Unusable), "{text}");
        }
        for text in ["index.csv", "index.txt", "_manifest.json", "index.csv/{a}"] {
            assert_eq!(template_fault(text), Some(NameFault::Reserved), "{text}");
        }
        let long = "x".repeat(240);
        assert_eq!(template_fault(&format!("{{a}}{long}")), None);
        assert_eq!(template_fault(&format!("{{a}}{long}x")), Some(NameFault::TooLong));
        for text in
            ["{a}", ".{a}", "..{a}", "{a}/{b}/c", "a/index.csv", "index.csv{a}", "{a}.{b}", &long]
        {
            assert_eq!(template_fault(text), None, "{text}");
        }
    }

    #[test]
    fn invalid_names_in_notes_are_short_and_escaped() {
        assert_eq!(NameError::invalid("a\u{1b}[2J/b", NameFault::Slash).detail, "a\\u{1b}[2J/b");
        assert_eq!(
            NameError::invalid(&"é".repeat(81), NameFault::Slash).detail,
            "é".repeat(80) + "…"
        );
    }

    #[test]
    fn a_name_that_differs_in_case_only_gets_a_number_too() {
        let mut names = UniqueNames::default();
        let asked = ["CAM/1.jpg", "Cam/1.JPG", "CAM./1.jpg", "cam/2.jpg"];
        let assigned = asked.map(|name| names.claim(name.to_owned()));
        assert_eq!(assigned, ["CAM/1.jpg", "Cam/1-2.JPG", "CAM./1-3.jpg", "cam/2.jpg"]);
    }

    #[test]
    fn a_taken_name_gets_a_number_before_its_extension() {
        let mut names = UniqueNames::default();
        let asked = ["a.jpg", "a.jpg", "a-3.jpg", "a.jpg", "d.e/f", "d.e/f", ".x", ".x"];
        let assigned = asked.map(|name| names.claim(name.to_owned()));
        let expected = ["a.jpg", "a-2.jpg", "a-3.jpg", "a-4.jpg", "d.e/f", "d.e/f-2", ".x", ".x-2"];
        assert_eq!(assigned, expected);
        assert_eq!(names.renamed, 4);
    }

    proptest! {
        #[test]
        fn a_refused_template_yields_no_valid_name(
            text in "(\\{a\\}|[./x\n]|index\\.csv|\\.sluice-tmp){0,5}",
            value in "[./ax]{0,3}|index")
        {
            let template = Template::parse(&text).unwrap();
            let name = text.replace("{a}", &value);
            let fault = FolderDepth::from_template(&template).fault(&name);
            prop_assert!(fault.is_some() || template_fault(&template).is_none(), "{:?}", name);
            // Templates without values are checked completely.
            let has_values = template.fields().next().is_some();
            prop_assert!(has_values || fault.is_some() == template_fault(&template).is_some());
        }

        #[test]
        fn no_name_is_given_twice(asked in prop::collection::vec("a(-[2-4]){0,2}(\\.b)?", 0..40)) {
            let mut names = UniqueNames::default();
            let mut assigned = std::collections::BTreeSet::new();
            for name in asked {
                prop_assert!(assigned.insert(names.claim(name)));
            }
        }
    }
}
