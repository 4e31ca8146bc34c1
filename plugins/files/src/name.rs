//! Names of files: what a template gives, held below the folder, and each there once. Opens nothing.

use std::collections::HashMap;

use sluice_core::Template;
use sluice_core::output::MANIFEST;

use crate::index::Index;

/// What makes names of events, and how many folders deep they lie.
#[derive(Debug)]
pub(crate) struct Depth(usize);

impl Depth {
    /// As many folders as the template's own text has slashes: values must not add any.
    pub(crate) fn of(template: &Template) -> Self {
        let (mut slashes, mut is_inside) = (0, false);
        let text = template.to_string();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                // Braces that stand for themselves.
                '{' | '}' if !is_inside && rest.peek() == Some(&c) => {
                    rest.next();
                }
                '{' => is_inside = true,
                '}' => is_inside = false,
                '/' if !is_inside => slashes += 1,
                _ => {}
            }
        }
        Self(slashes)
    }

    /// Why a name cannot be that of a file below the folder, if that is so.
    pub(crate) fn fault(&self, name: &str) -> Option<&'static str> {
        let parts = || name.split('/');
        let first = parts().next().unwrap_or_default();
        if parts().count() != self.0 + 1 {
            return Some("a value in the file's name has a slash");
        }
        if parts().any(|part| part.is_empty() || part == "." || part == "..") {
            return Some("the file's name leads nowhere, or out of the folder");
        }
        if name.len() > LONGEST_IN_ALL || parts().any(|part| part.len() > LONGEST) {
            return Some("the file's name is longer than file systems allow");
        }
        if name.contains('\0') || parts().any(|part| part.ends_with(".sluice-tmp")) {
            return Some("the file's name is one that cannot be used");
        }
        let is_taken = first == MANIFEST || Index::NAMES.contains(&first);
        is_taken.then_some("the file's name is that of the folder's own list")
    }
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

fn key(name: &str) -> u128 {
    let hash = blake3::hash(name.as_bytes());
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
        let flat = Depth(0);
        for name in
            ["", ".", "..", "a/b", "/a", "_manifest.json", "index.csv", "a\0", ".a.1-2.sluice-tmp"]
        {
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
        fn no_name_is_given_twice(asked in prop::collection::vec("a(-[2-4]){0,2}(\\.b)?", 0..40)) {
            let mut names = Names::default();
            let mut given = std::collections::BTreeSet::new();
            for name in asked {
                prop_assert!(given.insert(names.take(name)));
            }
        }
    }
}
