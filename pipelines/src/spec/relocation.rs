//! Relocates pipeline files: makes every path that is relative to the file absolute. Changes
//! nothing else in the text.

use std::path::Path;

use sluice_io::escape::is_unprintable;
use sluice_model::Registry;

use super::check::{Check, TextEdit};
use super::{Document, Variables};
use crate::mistake::Mistakes;

impl Document {
    /// The text with every path relative to its folder joined to `folder`, which is absolute. The
    /// result does the same from anywhere. `Err` holds the mistakes in it.
    pub fn relocated(
        &self,
        folder: &Path,
        variables: &Variables,
        registry: &Registry,
    ) -> Result<String, Mistakes> {
        let check = Check::new(self, variables, registry).in_folder(folder);
        let mut edits = check.edits()?;
        edits.sort_by_key(|edit| edit.span.start);
        let mut text = self.text.clone();
        // Back to front, so that earlier positions stay valid.
        for TextEdit { span, text: whole } in edits.into_iter().rev() {
            text.replace_range(span, &whole);
        }
        Ok(text)
    }
}

/// A TOML string with exactly this value: no variables, and no control characters.
pub fn string_literal(text: &str) -> String {
    let special = text.contains("${") || text.contains("$$");
    let text = if special { text.replace('$', "$$") } else { text.to_owned() };
    let is_hidden = |c: char| is_unprintable(c) && !c.is_control();
    if text.contains(is_hidden) { quoted(&text) } else { toml::Value::String(text).to_string() }
}

/// A text in double quotes on one line, valid as a TOML key or part of one.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if is_unprintable(c) && u32::from(c) > 0xffff => {
                out += &format!("\\U{:08x}", u32::from(c));
            }
            c if is_unprintable(c) => out += &format!("\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_quoted_reads_back(text in "[a\"\\\\\n\t\u{1}\u{7f}\u{202e}\u{e0001}ü'${}\\PC]{0,20}") {
            let literals = [(quoted(&text), false), (string_literal(&text), true)];
            for (literal, has_variables) in literals {
                let table: toml::Table = toml::from_str(&format!("x = {literal}")).unwrap();
                let read = table["x"].as_str().unwrap();
                let filled = Variables::default().expand(read).map(|expanded| expanded.text);
                let read = if has_variables { filled } else { Ok(read.to_owned()) };
                prop_assert_eq!(read.as_deref(), Ok(text.as_str()));
                prop_assert!(!literal.contains(|c| is_unprintable(c) && c != '\n' && c != '\t'));
            }
            let table: toml::Table = toml::from_str(&format!("{} = 1", quoted(&text))).unwrap();
            prop_assert!(table.contains_key(&text));
        }
    }
}
