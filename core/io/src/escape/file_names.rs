//! Names as portable file names: special characters, case, names of devices, lengths. Opens
//! nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::percent::{percent_decoded, percent_encoded, push_percent};

/// `name` as one component of a path: special characters are written as `%` and two hexadecimal
/// digits.
///
/// Different names have different results. An empty name stays empty, and `..` is not changed.
pub fn path_escaped(name: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'~');
    percent_encoded(name.as_bytes(), plain)
}

/// Like [`path_escaped`], but short enough for every file system: a long name is cut, and `~` and a
/// hash are appended. Different names have different results.
pub fn short_path_escaped(name: &str) -> String {
    shortened(path_escaped(name), name)
}

/// A file name for `name`, without extension: like [`short_path_escaped`], but never empty and
/// never hidden. Different names have different results.
pub fn file_name(name: &str) -> String {
    let escaped = match name.strip_prefix('.') {
        Some(rest) => format!("%2E{}", path_escaped(rest)),
        None => path_escaped(name),
    };
    // No other name becomes a single percent sign.
    if escaped.is_empty() { "%".to_owned() } else { shortened(escaped, name) }
}

/// A path as compared by file systems that ignore case and trailing dots and spaces: equal for two
/// paths that are one file there.
pub fn folded(path: &str) -> String {
    let parts = path.split('/').map(|part| part.trim_end_matches(['.', ' ']).to_lowercase());
    parts.collect::<Vec<_>>().join("/")
}

/// Whether a path component is a DOS device name, whatever its extension: `CON`, `nul.txt`,
/// `Com1 .tar.gz`.
pub fn is_device_name(part: &str) -> bool {
    let stem =
        part.split('.').next().unwrap_or_default().trim_end_matches(' ').to_ascii_uppercase();
    let is_port = |name: &str| {
        let number = stem.strip_prefix(name).unwrap_or_default();
        matches!(number, "\u{b9}" | "\u{b2}" | "\u{b3}")
            || number.len() == 1 && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    matches!(&*stem, "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$")
        || is_port("COM")
        || is_port("LPT")
}

/// Escapes DOS device names in a path: the letters before the first dot are written as `%` and two
/// hexadecimal digits. Other paths are not changed.
pub fn without_device_names(path: &str) -> Cow<'_, str> {
    if !path.split('/').any(is_device_name) {
        return Cow::Borrowed(path);
    }
    let plain = |part: &str| {
        let stem = part.find('.').filter(|_| is_device_name(part)).unwrap_or(part.len());
        match part.split_at_checked(stem) {
            Some((stem, ending)) if is_device_name(part) => letters_escaped(stem) + ending,
            _ => part.to_owned(),
        }
    };
    Cow::Owned(path.split('/').map(plain).collect::<Vec<_>>().join("/"))
}

/// New names for those that collide if case is ignored, or are [device names](is_device_name).
/// `around` is the prefix and the suffix of all files. The names are results of [`file_name`].
///
/// Of colliding names the first in byte order is kept. In the others, every letter and dot is
/// written as `%` and two hexadecimal digits: this is reversible, and depends on the set of names
/// only.
pub fn portable(
    names: impl IntoIterator<Item = String>,
    around: (&str, &str),
) -> BTreeMap<String, String> {
    let names: BTreeSet<String> = names.into_iter().collect();
    let mut taken = HashSet::new();
    let is_other = |name: &String| {
        let whole = format!("{}{name}{}", around.0, around.1);
        is_device_name(&whole) || !taken.insert(folded(&whole))
    };
    let others: Vec<String> = names.into_iter().filter(is_other).collect();
    others
        .into_iter()
        .map(|name| (name.clone(), shortened(letters_escaped(&name), &name)))
        .collect()
}

/// Escapes the letters and dots of a percent-encoded text.
fn letters_escaped(escaped: &str) -> String {
    let mut text = String::with_capacity(escaped.len() * 3);
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            text.push('%');
            text.extend(rest.by_ref().take(2).map(char::from));
        } else if byte.is_ascii_digit() || matches!(byte, b'_' | b'-') {
            text.push(char::from(byte));
        } else {
            push_percent(&mut text, byte);
        }
    }
    text
}

/// Shortens `escaped` if it is too long, keeping it unique with a hash.
fn shortened(mut escaped: String, name: &str) -> String {
    if escaped.len() <= MAX_FILE_NAME && !looks_shortened(&escaped) {
        return escaped;
    }
    // Readers of tables decode names of folders, and refuse half a character.
    let mut end = MAX_FILE_NAME - HASH_LEN - 1;
    while !escaped.get(..end).is_some_and(is_whole) {
        end -= 1;
    }
    escaped.truncate(end);
    let hash = blake3::hash(name.as_bytes()).to_hex();
    escaped.push('~');
    escaped.push_str(hash.get(..HASH_LEN).unwrap_or_default());
    escaped
}

/// Whether it looks like the result of shortening.
fn looks_shortened(escaped: &str) -> bool {
    let mark = escaped.len().checked_sub(HASH_LEN + 1);
    escaped.len() > MAX_FILE_NAME - LONGEST_CHAR
        && mark.is_some_and(|mark| escaped.as_bytes()[mark] == b'~')
}

/// Whether a percent-encoded text ends with a whole character.
fn is_whole(escaped: &str) -> bool {
    let is_cut = escaped.rfind('%').is_some_and(|at| at + "%NN".len() > escaped.len());
    !is_cut && std::str::from_utf8(&percent_decoded(escaped.as_bytes())).is_ok()
}

/// Leaves space for an extension within the 255 bytes that file systems allow.
const MAX_FILE_NAME: usize = 200;
const HASH_LEN: usize = 32;
/// The bytes of a percent-encoded character.
const LONGEST_CHAR: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_differ_only_in_case_get_distinct_names_in_any_order() {
        let names = ["POSE", "Pose", "pose", "b", "c.", "c", "%C3%A9"].map(str::to_owned);
        let apart = portable(names.clone(), ("", ""));
        let mut backwards = names.clone();
        backwards.reverse();
        assert_eq!(apart, portable(backwards, ("", "")));
        assert_eq!(apart.len(), 3, "{apart:?}");
        assert_eq!(apart["Pose"], "%50%6F%73%65");
        assert_eq!(apart["c."], "%63%2E");
        let given = names.iter().map(|name| apart.get(name).unwrap_or(name));
        let folded: BTreeSet<String> = given.map(|name| folded(name)).collect();
        assert_eq!(folded.len(), names.len());
        // Before an extension, a dot is not the last character.
        let dotted = ["c.", "c"].map(str::to_owned);
        assert!(portable(dotted, ("", ".las")).is_empty());
        let long = ["X", "x"].map(|letter| letter.repeat(190));
        let apart = portable(long, ("", ""));
        assert!(apart.values().all(|name| name.len() <= MAX_FILE_NAME), "{apart:?}");
    }

    #[test]
    fn names_of_devices_are_spelled_out_and_no_others() {
        for name in
            ["CON", "nul", "Aux.txt", "prn .tar.gz", "com1", "LPT0.a", "COM\u{b9}", "CONIN$"]
        {
            assert!(is_device_name(name), "{name}");
        }
        for name in ["CONSOLE", "COM", "COM10", "CAM1", "a.con", "channel=CON", "", ".con", "LPTx"]
        {
            assert!(!is_device_name(name), "{name}");
        }
        let paths = [
            ("CON", "%43%4F%4E"),
            ("a/Aux.7.jpg", "a/%41%75%78.7.jpg"),
            ("com1/lpt9 .txt", "%63%6F%6D1/%6C%70%749%20.txt"),
        ];
        for (path, wanted) in paths {
            assert_eq!(without_device_names(path), wanted);
        }
        assert!(matches!(without_device_names("CAM/con-1.jpg"), Cow::Borrowed(_)));
        let names = ["con", "CON", "aux.b", "POSE"].map(str::to_owned);
        let others = portable(names.clone(), ("", ".las"));
        assert_eq!(others.len(), 3, "{others:?}");
        assert_eq!(others["aux.b"], "%61%75%78%2E%62");
        // After a prefix it is not a device name.
        assert_eq!(portable(names, ("channel=", "")).len(), 1);
    }

    #[test]
    fn file_names_mean_nothing_to_a_file_system() {
        assert_eq!(path_escaped("CAM_1/a b%é"), "CAM_1%2Fa%20b%25%C3%A9");
        assert_eq!(
            ["", ".", "..", ".a", "a.b"].map(file_name),
            ["%", "%2E", "%2E.", "%2Ea", "a.b"]
        );
        let long = ["x".repeat(200), "x".repeat(201), "y".repeat(4000), "é".repeat(100)];
        let names = long.clone().map(|name| file_name(&name));
        assert_eq!(names[0], long[0]);
        assert!(names.iter().all(|name| name.len() <= 200), "{names:?}");
    }

    #[test]
    fn long_names_are_not_cut_within_a_character() {
        for (before, name) in (0..13).flat_map(|n| ["é", "€", "𝄞", "a/"].map(|name| (n, name)))
        {
            let name = "x".repeat(before) + &name.repeat(100);
            for short in [file_name(&name), letters_escaped(&file_name(&name))] {
                let short = shortened(short.clone(), &short);
                assert!(is_whole(&short) && short.len() <= 200, "{short}");
                assert!(short.len() > 188 && looks_shortened(&short), "{short}");
                assert_ne!(file_name(&short), short);
            }
        }
        assert!(["%", "%C", "%C3", "a%C3%", "%E2%82"].iter().all(|cut| !is_whole(cut)));
        assert!(["", "a", "%C3%A9", "%E2%82%ACb"].iter().all(|whole| is_whole(whole)));
    }

    #[test]
    fn a_name_that_is_what_a_longer_one_becomes_becomes_another_one() {
        let shortened = file_name(&"x".repeat(300));
        assert_ne!(file_name(&shortened), shortened);
        assert_eq!(file_name(&shortened).len(), shortened.len());
        assert_eq!(short_path_escaped(".."), "..");
    }

    proptest! {
        #[test]
        fn different_names_give_different_file_names(a in "[a.2E/%é]{0,5}", b in "[a.2E/%é]{0,5}") {
            prop_assert_eq!(file_name(&a) == file_name(&b), a == b);
            let plain = file_name(&a).bytes().all(|b| b.is_ascii_graphic() && b != b'/');
            prop_assert!(plain && !file_name(&a).starts_with('.'));
        }

    }
}
