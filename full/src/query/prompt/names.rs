//! Quoting of names.

/// Keywords that must be quoted as names.
const RESERVED: [&str; 40] = [
    "all",
    "and",
    "any",
    "as",
    "between",
    "by",
    "case",
    "cross",
    "distinct",
    "else",
    "end",
    "except",
    "exists",
    "false",
    "from",
    "full",
    "group",
    "having",
    "in",
    "inner",
    "intersect",
    "is",
    "join",
    "left",
    "like",
    "limit",
    "natural",
    "not",
    "null",
    "on",
    "or",
    "order",
    "right",
    "select",
    "then",
    "true",
    "union",
    "using",
    "when",
    "where",
];

/// The name as SQL needs it: plain or in double quotes.
pub(super) fn quoted(name: &str) -> String {
    let mut chars = name.chars();
    let begins = chars.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic());
    let is_plain = begins && chars.all(|c| c == '_' || c.is_ascii_alphanumeric());
    let is_reserved = RESERVED.iter().any(|word| word.eq_ignore_ascii_case(name));
    if is_plain && !is_reserved {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_if_needed() {
        let names = ["drive", "POSE_2", "2007-11-03", "a\"b; drop", "Select", "", "é"];
        let written = names.map(quoted);
        let expected = [
            "drive",
            "POSE_2",
            "\"2007-11-03\"",
            "\"a\"\"b; drop\"",
            "\"Select\"",
            "\"\"",
            "\"é\"",
        ];
        assert_eq!(written, expected);
    }
}
