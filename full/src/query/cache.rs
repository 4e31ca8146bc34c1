//! The cache of tables that queries use: where it is, and which logs it is for.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::json;
use sluice::extension::{Assignment, FormatArgs};
use sluice_model::Plugin;
use sluice_query::cache::TableCache;

use super::user_folder;

/// The cache of this user. `None` without a home folder.
pub(super) fn table_cache() -> Option<TableCache> {
    Some(TableCache::new(user_folder::cache()?.join("queries"), program()?))
}

/// Differs between versions and builds of the program.
fn program() -> Option<String> {
    let meta = std::fs::metadata(std::env::current_exe().ok()?).ok()?;
    let version = env!("CARGO_PKG_VERSION");
    Some(format!("{version}, {} bytes, {}.{:09}", meta.len(), meta.mtime(), meta.mtime_nsec()))
}

/// What tells apart sources of the same files. `None` if options name further files, whose changes
/// would not be noticed.
pub(super) fn source_key(plugin: &Plugin, format: &FormatArgs) -> Option<String> {
    if format.describe.is_some() || format.source_option.iter().any(names_file) {
        return None;
    }
    let options = format.source_option.iter().map(|option| json!([option.name, option.value]));
    Some(json!({ "plugin": plugin.name, "options": options.collect::<Vec<_>>() }).to_string())
}

/// Whether the value of an option, which may be a list, has the path of something that exists.
fn names_file(option: &Assignment) -> bool {
    let is_separator = |c: char| c.is_whitespace() || matches!(c, '[' | ']' | ',' | '"' | '\'');
    let mut parts = option.value.split(is_separator).chain([option.value.as_str()]);
    parts.any(|part| !part.is_empty() && Path::new(part).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_name_files_are_recognized() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let is_file = |value: String| names_file(&Assignment { name: "x".to_owned(), value });
        for value in [format!("{path}"), format!("\"{path}\""), format!("['no', '{path}']")] {
            assert!(is_file(value.clone()), "{value}");
        }
        assert!(!is_file("sorted".to_owned()) && !is_file(String::new()));
    }
}
