//! Escaping text: for terminals, for JSON, and as portable file names.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serializer;

/// The name of a field in a table whose own columns have the names `reserved`: one of them, with
/// any number of underscores after it, gets one more.
///
/// [`field_of_column`] is the inverse.
pub fn column_of_field(field: &str, reserved: &[&str]) -> String {
    let is_reserved = reserved.contains(&field.trim_end_matches('_'));
    if is_reserved { format!("{field}_") } else { field.to_owned() }
}

/// The name of the field in a column; `None` if the column is one of `reserved`.
pub fn field_of_column<'n>(column: &'n str, reserved: &[&str]) -> Option<&'n str> {
    let is_reserved = reserved.contains(&column.trim_end_matches('_'));
    if is_reserved { column.strip_suffix('_') } else { Some(column) }
}

/// Text from an input, safe to print on a terminal: [unprintable](is_unprintable) characters become
/// `\n`, `\r`, `\t` or `\u{202e}`, and a backslash that would read as such an escape becomes
/// `\x5c`.
///
/// Different results of [`escaped`] stay different.
pub fn printable(text: &str) -> Cow<'_, str> {
    let looks_spelled = |at: usize| {
        let behind = text.get(at + 1..).unwrap_or_default();
        behind.starts_with(['n', 'r', 't']) || behind.starts_with("u{")
    };
    if !text.chars().any(is_unprintable)
        && !text.match_indices('\\').any(|(at, _)| looks_spelled(at))
    {
        return Cow::Borrowed(text);
    }
    let mut spelled = String::with_capacity(text.len() + 16);
    for (at, c) in text.char_indices() {
        match c {
            '\\' if looks_spelled(at) => spelled.push_str("\\x5c"),
            c => push_escaped(&mut spelled, c),
        }
    }
    Cow::Owned(spelled)
}

/// A message that may quote inputs, safe to print on a terminal in one line. Like [`printable`],
/// but keeps backslashes, since quoted parts may be escaped already.
pub fn printable_sentence(text: &str) -> Cow<'_, str> {
    escape_unless(text, |_| false)
}

/// Lines of text that may quote inputs, safe to print on a terminal. Like [`printable_sentence`],
/// but keeps newlines and tabs.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escape_unless(text, |c| matches!(c, '\n' | '\t'))
}

fn escape_unless(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_unprintable(c) && !stays(c)) {
        return Cow::Borrowed(text);
    }
    let mut spelled = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if stays(c) { spelled.push(c) } else { push_escaped(&mut spelled, c) }
    }
    Cow::Owned(spelled)
}

fn push_escaped(text: &mut String, c: char) {
    match c {
        '\n' | '\r' | '\t' => text.extend(c.escape_default()),
        c if is_unprintable(c) => text.extend(c.escape_unicode()),
        c => text.push(c),
    }
}

/// JSON text in which [unprintable](is_unprintable) characters are escaped as `\uNNNN`. The value
/// is unchanged, since such characters only occur in strings.
pub fn json_escaped(json: &str) -> Cow<'_, str> {
    // Most reports are ASCII, of which bytes tell as much as characters, and faster.
    let is_plain = match json.is_ascii() {
        true => !json.bytes().any(|byte| byte.is_ascii_control()),
        false => !json.chars().any(is_unprintable),
    };
    if is_plain {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        // Newlines and tabs may occur between values.
        if !is_unprintable(c) || matches!(c, '\n' | '\r' | '\t') {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    Cow::Owned(escaped)
}

/// Whether terminals interpret a character, or it hides or reorders others: controls, bidirectional
/// marks and overrides, line separators, and invisible format characters.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Bytes as lossless text: UTF-8 stays as it is, other bytes become `\xNN`, and a backslash that
/// would read as such an escape becomes `\x5c`.
pub fn escaped(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\\') => Cow::Borrowed(text),
        _ => Cow::Owned(escape(bytes)),
    }
}

/// Serializes a path as text, [`escaped`] if it is not UTF-8.
pub fn path_as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path_text(path))
}

/// Like [`path_as_text`], for a list of paths.
pub fn paths_as_text<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path_text(path)))
}

fn path_text(path: &Path) -> Cow<'_, str> {
    let text = path.to_str().map(Cow::Borrowed);
    text.unwrap_or_else(|| escaped(path.as_os_str().as_bytes()))
}

/// The inverse of [`escaped`].
pub fn unescaped(text: &str) -> Cow<'_, [u8]> {
    if text.contains('\\') { Cow::Owned(unescape(text)) } else { Cow::Borrowed(text.as_bytes()) }
}

/// `name` as one component of a path: special characters are written as `%` and two hexadecimal
/// digits.
///
/// Different names have different results. An empty name stays empty, and `..` is not changed.
pub fn path_escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'~') {
            escaped.push(char::from(byte));
        } else {
            push_percent(&mut escaped, byte);
        }
    }
    escaped
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
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((plain, encoded)) = rest.split_once('%') {
        let Some((digits, after)) = encoded.split_at_checked(2) else { return false };
        let Ok(byte) = u8::from_str_radix(digits, 16) else { return false };
        bytes.extend_from_slice(plain.as_bytes());
        bytes.push(byte);
        rest = after;
    }
    bytes.extend_from_slice(rest.as_bytes());
    std::str::from_utf8(&bytes).is_ok()
}

/// Leaves space for an extension within the 255 bytes that file systems allow.
const MAX_FILE_NAME: usize = 200;
const HASH_LEN: usize = 32;
/// The bytes of a percent-encoded character.
const LONGEST_CHAR: usize = 12;

fn push_percent(text: &mut String, byte: u8) {
    text.push('%');
    for digit in [byte >> 4, byte & 15] {
        text.extend(char::from_digit(u32::from(digit), 16).map(|digit| digit.to_ascii_uppercase()));
    }
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        push_shielded(&mut text, chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Appends `valid`, escaping each backslash that would read as an escape.
fn push_shielded(text: &mut String, valid: &str) {
    for (at, c) in valid.char_indices() {
        let reads_as_escape = c == '\\' && valid.get(at..).and_then(escaped_byte).is_some();
        if reads_as_escape { text.push_str("\\x5c") } else { text.push(c) }
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let len = match escaped_byte(rest) {
            Some(byte) => {
                bytes.push(byte);
                "\\xNN".len()
            }
            None => {
                bytes.extend_from_slice(rest.get(..c.len_utf8()).unwrap_or_default().as_bytes());
                c.len_utf8()
            }
        };
        rest = rest.get(len..).unwrap_or_default();
    }
    bytes
}

/// Decodes the escape at the start of `text`; only lower-case digits are valid.
fn escaped_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("\\x")?.get(..2)?;
    let lower = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if lower { u8::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_named_like_reserved_columns_round_trip() {
        let reserved = ["timestamp", "timestamp_ns", "payload"];
        for (field, column) in [
            ("x", "x"),
            ("timestamp", "timestamp_"),
            ("timestamp_", "timestamp__"),
            ("timestamp_ns", "timestamp_ns_"),
            ("payload___", "payload____"),
            ("timestamp_x", "timestamp_x"),
            ("_", "_"),
            ("", ""),
        ] {
            assert_eq!(column_of_field(field, &reserved), column);
            assert_eq!(field_of_column(column, &reserved), Some(field));
        }
        assert_eq!(field_of_column("payload", &reserved), None);
    }

    #[test]
    fn printed_text_never_controls_a_terminal_or_looks_escaped() {
        let spelled = [
            ("\u{1b}[31m\u{7f}\u{9b}", "\\u{1b}[31m\\u{7f}\\u{9b}"),
            (
                "a\u{202e}txt.exe\u{2066}\u{feff}\u{e0041}",
                "a\\u{202e}txt.exe\\u{2066}\\u{feff}\\u{e0041}",
            ),
            ("two\nlines\t\r", "two\\nlines\\t\\r"),
            ("\\u{202e} \\n", "\\x5cu{202e} \\x5cn"),
            ("\\xff C:\\data ünï 日本", "\\xff C:\\data ünï 日本"),
        ];
        for (text, wanted) in spelled {
            assert_eq!(printable(text), wanted);
        }
        assert_eq!(printable_sentence("\\n \u{202e}\n"), "\\n \\u{202e}\\n");
        assert_eq!(printable_lines("a\tb\n\u{1b}\r"), "a\tb\n\\u{1b}\\r");
        assert_eq!(
            json_escaped("{\"a\":\n\"\u{7f}\u{202e}\u{e0041}ü\"}"),
            "{\"a\":\n\"\\u007f\\u202e\\udb40\\udc41ü\"}"
        );
    }

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

        #[test]
        fn what_is_printed_of_different_names_differs(
            a in "[\\\\nu{1b}x\u{1b}\n\u{202e}]{0,6}", b in "[\\\\nu{1b}x\u{1b}\n\u{202e}]{0,6}")
        {
            let print = |text: &str| printable(&escaped(text.as_bytes())).into_owned();
            prop_assert_eq!(print(&a) == print(&b), a == b);
            prop_assert!(!print(&a).chars().any(is_unprintable));
        }
    }
}
