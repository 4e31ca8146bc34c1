//! Escaping text: for terminals, for JSON, and as portable file names.

mod file_names;
mod percent;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serializer};

pub use file_names::{
    file_name, folded, is_device_name, path_escaped, portable, short_path_escaped,
    without_device_names,
};
pub use percent::{percent_decoded, percent_encoded};

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

/// A path as lossless text: [`escaped`]. Its inverse is [`unescaped_path`].
pub fn escaped_path(path: &Path) -> Cow<'_, str> {
    escaped(path.as_os_str().as_bytes())
}

/// The path of which [`escaped_path`] has made this text.
pub fn unescaped_path(text: &str) -> PathBuf {
    OsStr::from_bytes(&unescaped(text)).into()
}

/// Serializes a path as [`escaped_path`].
pub fn path_as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&escaped_path(path))
}

/// Deserializes what [`path_as_text`] has serialized.
pub fn path_from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Ok(unescaped_path(&String::deserialize(deserializer)?))
}

/// A path as text, [`escaped`] if it is not UTF-8: for people, as a name may look escaped.
pub fn path_text(path: &Path) -> Cow<'_, str> {
    let text = path.to_str().map(Cow::Borrowed);
    text.unwrap_or_else(|| escaped_path(path))
}

/// The inverse of [`escaped`].
pub fn unescaped(text: &str) -> Cow<'_, [u8]> {
    if text.contains('\\') { Cow::Owned(unescape(text)) } else { Cow::Borrowed(text.as_bytes()) }
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

    #[derive(Debug, PartialEq, serde::Serialize, Deserialize)]
    struct AsText(
        #[serde(serialize_with = "path_as_text", deserialize_with = "path_from_text")] PathBuf,
    );

    proptest! {
        #[test]
        fn serialized_paths_come_back(name in prop::collection::vec(
            prop_oneof![Just(b'\\'), Just(b'x'), Just(b'f'), Just(b'5'), any::<u8>()], 0..8))
        {
            let path = AsText(OsStr::from_bytes(&name).into());
            let json = serde_json::to_string(&path).unwrap();
            prop_assert_eq!(serde_json::from_str::<AsText>(&json).unwrap(), path);
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
