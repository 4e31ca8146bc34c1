//! Names of new plugins: whether one can be had. It is the plugin's, the crate's and the program's.

use sluice_core::{PluginKind, Registry};

/// Longer names serve nobody, and files are called after them.
const LONGEST: usize = 64;

/// What cannot be the name of a crate in Rust, or would take that of one this crate needs.
const TAKEN: &[&str] = &[
    "abstract",
    "alloc",
    "arrow-schema",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "schemars",
    "self",
    "serde",
    "serde-json",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Judges a name for a plugin of this kind. `Err` says what is wrong with it and what would be right.
pub(super) fn judge(name: &str, kind: PluginKind, registry: &Registry) -> Result<(), String> {
    let told = || sluice_core::name::printable(name).chars().take(LONGEST).collect::<String>();
    let is_allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_');
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_allowed) {
        return Err(format!(
            "`{}` cannot be the name of a crate: write lower-case letters, digits, - and _, beginning with a \
             letter, such as `my-log`",
            told()
        ));
    }
    // They would differ from others by what nobody sees, and Rust warns of some.
    if plain_of(name).split('-').any(str::is_empty) {
        return Err(format!(
            "`{}` cannot be the name of a crate: a - or _ stands between letters or digits, as in `my-log`",
            told()
        ));
    }
    if name.len() > LONGEST {
        return Err(format!("`{}…` is longer than {LONGEST} letters", told()));
    }
    let plain = plain_of(name);
    if TAKEN.contains(&&plain[..]) || plain == "sluice" || plain.starts_with("sluice-") {
        return Err(format!(
            "`{name}` cannot be the name of a crate that uses Sluice: Rust or Sluice has it for something \
             else; take another one, such as `my-{name}`"
        ));
    }
    if registry.get(kind, name).is_some() {
        return Err(format!(
            "this program has a {kind} `{name}` already, and yours would stand beside it; take another name, \
             such as `my-{name}`"
        ));
    }
    Ok(())
}

/// A name as those that Rust takes for the same are written.
fn plain_of(name: &str) -> String {
    name.replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_all as _;

    fn source(name: &str) -> Result<(), String> {
        judge(name, PluginKind::Source, &Registry::linked())
    }

    #[test]
    fn names_of_crates_can_be_had() {
        for name in ["gyro", "my-log", "a1_b2", "vel2"] {
            assert_eq!(source(name), Ok(()), "{name}");
        }
        assert_eq!(
            judge("vel", PluginKind::Stage, &Registry::linked()),
            Ok(()),
            "another kind has it"
        );
    }

    #[test]
    fn other_names_are_refused_with_what_to_do() {
        let long = "x".repeat(65);
        for name in
            ["", "Gyro", "1st", "-x", "_x", "my log", "gyr\u{f6}", "../up", "a/b", "a\n", &long]
        {
            assert!(source(name).is_err(), "{name:?}");
        }
        for name in ["x-", "x_", "a--b", "a__b", "a-_b", "a_-b"] {
            assert!(source(name).unwrap_err().contains("stands between"), "{name:?}");
        }
        for name in ["type", "self", "core", "serde_json", "sluice", "sluice-gyro", "sluice_x"] {
            assert!(source(name).unwrap_err().contains("take another one"), "{name}");
        }
        assert!(source("lcm-log").unwrap_err().contains("has a source `lcm-log` already"));
    }
}
