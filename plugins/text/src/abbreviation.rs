//! Abbreviated JSON for people: long lists and texts are cut and show how much was left out.
//!
//! The result is not valid JSON where something was cut.

use std::fmt::Write;

/// The maximum number of list elements to show.
const MAX_ELEMENTS: usize = 8;

/// The maximum number of characters of a text to show, including base64.
pub(crate) const MAX_CHARACTERS: usize = 64;

/// An open list or object.
struct OpenNode {
    is_list: bool,
    /// Elements before the current one.
    elements: usize,
}

/// `json` with lists of at most 8 elements, ending in `… 173 more`, and texts of at most 64
/// characters, ending in `…" (1,608 characters)`.
pub(crate) fn abbreviated(json: &str) -> String {
    let mut out = String::with_capacity(json.len().min(4096));
    let (mut open, mut rest): (Vec<OpenNode>, _) = (Vec::new(), json);
    // The nesting depth at which the end of a list is being skipped.
    let mut hidden: Option<usize> = None;
    while let Some(c) = rest.chars().next() {
        let (token, after) = rest.split_at(if c == '"' { text_len(rest) } else { c.len_utf8() });
        rest = after;
        match c {
            '[' | '{' => open.push(OpenNode { is_list: c == '[', elements: 0 }),
            ',' => count(&mut open),
            ']' | '}' => {
                let closed = open.pop().map_or(0, |list| list.elements + 1);
                if hidden == Some(open.len() + 1) {
                    hidden = None;
                    let more = thousands(closed.saturating_sub(MAX_ELEMENTS));
                    // Writing to a string does not fail.
                    let _written = write!(out, "… {more} more");
                }
            }
            _ => {}
        }
        if hidden.is_none() {
            if c == '"' {
                push_text(token, &mut out)
            } else {
                out.push_str(token)
            }
            let is_full = |list: &OpenNode| list.is_list && list.elements == MAX_ELEMENTS;
            if c == ',' && open.last().is_some_and(is_full) {
                hidden = Some(open.len());
            }
        }
    }
    out
}

fn count(open: &mut [OpenNode]) {
    if let Some(innermost) = open.last_mut() {
        innermost.elements += 1;
    }
}

/// The length of the string at the start of `json`, with its quotes.
fn text_len(json: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in json.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    json.len()
}

/// Appends a string with its quotes. An escape counts as one character and is never cut.
fn push_text(text: &str, out: &mut String) {
    let (mut characters, mut end, mut chars) = (0, text.len(), text.char_indices().skip(1));
    while let Some((at, c)) = chars.next() {
        if characters == MAX_CHARACTERS {
            end = end.min(at);
        }
        if c == '"' {
            break;
        }
        characters += 1;
        // What follows a backslash belongs to it: one character, or `u` and four digits.
        if c == '\\' && chars.next().is_some_and(|(_, c)| c == 'u') {
            chars.by_ref().take(4).for_each(drop);
        }
    }
    if characters <= MAX_CHARACTERS {
        out.push_str(text);
        return;
    }
    let shown = text.get(..end).unwrap_or(text);
    // Writing to a string does not fail.
    let _written = write!(out, "{shown}…\" ({} characters)", thousands(characters));
}

/// A number with thousands separators.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn short(value: &Value) -> String {
        abbreviated(&value.to_string())
    }

    #[test]
    fn long_lists_end_in_how_many_more_there_are() {
        let list = |n: i32| json!({ "a": (0..n).collect::<Vec<_>>(), "b": 1 });
        assert_eq!(short(&list(8)), list(8).to_string());
        assert_eq!(short(&list(9)), r#"{"a":[0,1,2,3,4,5,6,7,… 1 more],"b":1}"#);
        assert_eq!(short(&list(2008)), r#"{"a":[0,1,2,3,4,5,6,7,… 2,000 more],"b":1}"#);
        let nested = json!(vec![json!([[1, 2], "a,]\"", { "x": [3, 4] }]); 10]);
        let shown = short(&nested);
        assert_eq!(shown.matches("[1,2]").count(), 8, "{shown}");
        assert!(shown.ends_with(r#"{"x":[3,4]}],… 2 more]"#), "{shown}");
    }

    #[test]
    fn long_texts_end_in_how_long_they_are() {
        for text in ["a".repeat(64), "\u{fc}\n".repeat(32), "\"\\".repeat(32)] {
            assert_eq!(short(&json!(text)), json!(text).to_string());
        }
        let shown = short(&json!("\\".repeat(1608)));
        assert_eq!(shown, format!("\"{}…\" (1,608 characters)", "\\\\".repeat(64)));
        let control = short(&json!("\u{1}".repeat(65)));
        assert_eq!(control, format!("\"{}…\" (65 characters)", "\\u0001".repeat(64)));
    }

    #[test]
    fn objects_and_invalid_json_stay() {
        let object = (0..20).map(|n| (n.to_string(), json!(n))).collect::<serde_json::Map<_, _>>();
        assert_eq!(short(&Value::Object(object.clone())), Value::Object(object).to_string());
        for odd in ["", "]", "}}", "\"", "\"a\\", "[", ",,,,,,,,,,,,", "nul"] {
            assert_eq!(abbreviated(odd), odd);
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            "[a\"\\\\\u{1}é]{0,90}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 400, 20, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
                proptest::collection::btree_map("[a-z,\\]]{1,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// The abbreviation, computed from the value itself.
    fn expected_text(value: &Value) -> String {
        match value {
            Value::String(text) if text.chars().count() > MAX_CHARACTERS => {
                let shown: String = text.chars().take(MAX_CHARACTERS).collect();
                let shown = json!(shown).to_string();
                let shown = shown.strip_suffix('"').unwrap();
                format!("{shown}…\" ({} characters)", thousands(text.chars().count()))
            }
            Value::Array(list) => {
                let mut each: Vec<String> =
                    list.iter().take(MAX_ELEMENTS).map(expected_text).collect();
                if list.len() > MAX_ELEMENTS {
                    each.push(format!("… {} more", list.len() - MAX_ELEMENTS));
                }
                format!("[{}]", each.join(","))
            }
            Value::Object(map) => {
                let pair = |(key, value): (&String, &Value)| {
                    format!("{}:{}", json!(key), expected_text(value))
                };
                format!("{{{}}}", map.iter().map(pair).collect::<Vec<_>>().join(","))
            }
            plain => plain.to_string(),
        }
    }

    proptest! {
        #[test]
        fn any_value_is_shown_as_its_model(value in any_json()) {
            prop_assert_eq!(short(&value), expected_text(&value));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\]{},\"\\\\u0a…]{0,60}") {
            drop(abbreviated(&text));
        }
    }
}
