//! What to set if the columns of a table cannot be determined, as in a pipeline file and on the
//! command line.

use sluice_io::escape::printable;

use super::options::{CsvSource, TIMES, TimeUnit};

/// What may separate cells, in the order in which it is looked for.
const DELIMITERS: [char; 5] = ['\t', ';', ',', '|', ' '];
/// What names of time columns contain.
const TIME_WORDS: [&str; 2] = ["time", "stamp"];

/// How to set an option to a value, written as in TOML.
pub(super) fn setting(option: &str, value: &str) -> String {
    // The command line takes text without quotes, unless it needs escapes.
    let text = value.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let given = text.filter(|text| !text.contains('\\')).unwrap_or(value);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.,%/".contains(c);
    let given = match given.chars().all(is_plain) {
        true => format!("{option}={given}"),
        false => format!("'{option}={}'", given.replace('\'', r"'\''")),
    };
    format!("`{option} = {value}` (on the command line: `--source-option {given}`)")
}

/// Like [`setting`] for a text.
pub(super) fn text_setting(option: &str, text: &str) -> String {
    setting(option, &format!("{text:?}"))
}

/// What to do about a table that is not UTF-8.
pub(super) fn other_characters(head: &[u8]) -> Option<&'static str> {
    let is_utf16 = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff");
    is_utf16.then_some(
        "the file is UTF-16, not UTF-8: convert it first, for example with `iconv -f UTF-16 -t \
         UTF-8`",
    )
}

/// What to do about a first line that is one cell, and seems to have another delimiter.
pub(super) fn other_delimiter(options: &CsvSource, names: &[String]) -> Option<String> {
    let [name] = names else { return None };
    let own = options.delimiter;
    let found = DELIMITERS.into_iter().find(|other| *other != own && name.contains(*other))?;
    let value = text_setting("delimiter", &found.to_string());
    Some(format!("the first line has {found:?} and no {own:?} between cells: set {value}"))
}

/// What to do about a table without a column that is called like a time.
pub(super) fn no_time(names: &[String]) -> String {
    if names.iter().all(|name| name.trim().parse::<f64>().is_ok()) {
        return format!(
            "the first line has numbers where names are expected: set {}, and name all columns, as \
             in {}",
            setting("header", "false"),
            text_setting("columns", "t,x,y")
        );
    }
    let is_time = |name: &&String| {
        let lower = name.to_lowercase();
        lower == "t" || TIME_WORDS.iter().any(|word| lower.contains(word))
    };
    let advice = match names.iter().find(is_time) {
        Some(near) => format!(
            "did you mean `{}`? Then set {}",
            printable(near),
            text_setting("timestamp", near)
        ),
        None => format!("name the time column with {}", text_setting("timestamp", "NAME")),
    };
    let times = TIMES.map(|name| format!("`{name}`")).join(", ");
    format!("no column is called {times}: {advice}; found {}", list_names(names))
}

/// The first names of columns, for a message.
pub(super) fn list_names(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let shown: Vec<String> =
        names.iter().take(SHOWN).map(|name| format!("`{}`", printable(name))).collect();
    let more = if names.len() > SHOWN { ", …" } else { "" };
    shown.join(", ") + more
}

/// What to do about a time that is too large for its unit, if it fits a smaller one.
pub(super) fn out_of_range(unit: i64, fits: impl Fn(i64) -> bool) -> String {
    let smaller = TimeUnit::ALL.into_iter().filter(|(smaller, _)| smaller.nanos() < unit);
    let fitting = smaller.into_iter().find(|(smaller, _)| fits(smaller.nanos()));
    let advice = fitting.map(|(_, word)| format!("; set {}", text_setting("unit", word)));
    format!("out of the range of times{}", advice.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_can_be_copied_to_a_file_and_to_a_shell() {
        let given = |setting: String| setting.split_once("--source-option ").unwrap().1.to_owned();
        let says = setting("header", "false");
        assert_eq!(says, "`header = false` (on the command line: `--source-option header=false`)");
        let tab = text_setting("delimiter", "\t");
        assert!(tab.starts_with("`delimiter = \"\\t\"`"), "{tab}");
        assert_eq!(given(tab), "'delimiter=\"\\t\"'`)");
        assert_eq!(given(text_setting("delimiter", ";")), "'delimiter=;'`)");
        assert_eq!(given(text_setting("timestamp", "%time")), "timestamp=%time`)");
        assert_eq!(given(text_setting("timestamp", "Time [s]")), "'timestamp=Time [s]'`)");
        assert_eq!(given(text_setting("timestamp", "it's")), "'timestamp=it'\\''s'`)");
    }
}
