//! Validates the name of a new plugin, which is also that of its crate and program.

use sluice_model::{PluginKind, Registry};

/// Files are named after the plugin, so the length is limited.
const MAX_NAME_LEN: usize = 64;

/// Names that Rust does not allow for a crate, or that a dependency of the new crate has.
const RESERVED_NAMES: &[&str] = &[
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

/// Checks the name of a plugin of this kind. `Err` says what is wrong and what to use instead.
pub(super) fn check(name: &str, kind: PluginKind, registry: &Registry) -> Result<(), String> {
    let shown =
        || sluice_io::escape::printable(name).chars().take(MAX_NAME_LEN).collect::<String>();
    let is_allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_');
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_allowed) {
        return Err(format!(
            "`{}` is not a valid crate name: use lower-case letters, digits, - and _, starting \
             with a letter, such as `my-log`",
            shown()
        ));
    }
    // Such names are hard to tell apart, and Rust warns about some.
    if normalized(name).split('-').any(str::is_empty) {
        return Err(format!(
            "`{}` is not a valid crate name: put - and _ between letters or digits, as in `my-log`",
            shown()
        ));
    }
    if name.len() > MAX_NAME_LEN {
        return Err(format!("`{}…` is longer than {MAX_NAME_LEN} characters", shown()));
    }
    let plain = normalized(name);
    if RESERVED_NAMES.contains(&&plain[..]) || plain == "sluice" || plain.starts_with("sluice-") {
        return Err(format!(
            "`{name}` is reserved by Rust or Sluice; choose another name, such as `my-{name}`"
        ));
    }
    if registry.get(kind, name).is_some() {
        return Err(format!(
            "this program already has a {kind} `{name}`; choose another name, such as `my-{name}`"
        ));
    }
    Ok(())
}

/// The canonical form of a crate name.
fn normalized(name: &str) -> String {
    name.replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_all as _;

    fn source(name: &str) -> Result<(), String> {
        check(name, PluginKind::Source, &Registry::linked())
    }

    #[test]
    fn names_of_crates_can_be_had() {
        for name in ["gyro", "my-log", "a1_b2", "vel2"] {
            assert_eq!(source(name), Ok(()), "{name}");
        }
        assert_eq!(
            check("vel", PluginKind::Stage, &Registry::linked()),
            Ok(()),
            "another kind has it"
        );
    }

    #[test]
    fn other_names_are_refused_with_advice() {
        let long = "x".repeat(65);
        for name in
            ["", "Gyro", "1st", "-x", "_x", "my log", "gyr\u{f6}", "../up", "a/b", "a\n", &long]
        {
            assert!(source(name).is_err(), "{name:?}");
        }
        for name in ["x-", "x_", "a--b", "a__b", "a-_b", "a_-b"] {
            assert!(source(name).unwrap_err().contains("between letters"), "{name:?}");
        }
        for name in ["type", "self", "core", "serde_json", "sluice", "sluice-gyro", "sluice_x"] {
            assert!(source(name).unwrap_err().contains("choose another name"), "{name}");
        }
        assert!(source("lcm-log").unwrap_err().contains("already has a source `lcm-log`"));
    }
}
