//! Patterns of names: globs and regular expressions.

use sluice_model::{ChannelQuery, Pattern, Patterns};

use crate::inputs;

/// No text makes parsing a pattern panic; a plain name matches only itself, a glob its own text,
/// and the query for a source matches what the pattern does.
pub fn pattern(bytes: &[u8]) {
    let (text, name) = inputs::cut_at(bytes, 0);
    let (text, name) = (inputs::text(text), inputs::text(name));
    let pattern = match Pattern::parse(text) {
        Ok(pattern) => pattern,
        Err(what) => return assert!(!what.is_empty()),
    };
    assert!(text.starts_with("re:") || pattern.matches(text));
    if let Some(plain) = pattern.as_name() {
        assert_eq!((plain, pattern.matches(name)), (text, name == text));
    }
    let written = serde_json::to_string(&pattern).expect("it is a text");
    assert_eq!(serde_json::from_str::<Pattern>(&written).expect("it was written"), pattern);
    let (patterns, none) = (Patterns(vec![pattern]), Patterns::default());
    let query = ChannelQuery::from_patterns(&patterns, &none, &none);
    assert_eq!(query.wants(name, "log"), patterns.matches(name));
    let but = ChannelQuery::from_patterns(&none, &patterns, &none);
    assert_eq!(but.wants(name, "log"), !patterns.matches(name));
    assert!(!query.and(&but).wants(name, "log") && query.or(but).wants(name, "log"));
}
