//! The wording of mistakes: suggestions, lists of names, and serde's messages in plain words.

pub(crate) use sluice_kit::suggestion::nearest;
use toml::de::DeValue;

/// What a choice expects of which serde does not say the names.
const NAME: &str = "a name";
const ONE_NAME: &str = "one of its names";

/// ``did you mean `near`?``, if one of `known` is near.
pub(crate) fn did_you_mean(word: &str, known: &[&str]) -> Option<String> {
    nearest(word, known).map(|near| format!("did you mean `{near}`?"))
}

/// The suggestion, otherwise the whole list after `intro`.
pub(crate) fn suggest(word: &str, known: &[&str], intro: &str) -> String {
    did_you_mean(word, known).unwrap_or_else(|| listed(intro, known))
}

/// ``intro `a`, `b` and `c` ``.
pub(crate) fn listed(intro: &str, names: &[&str]) -> String {
    if names.is_empty() {
        format!("{intro} none")
    } else {
        format!("{intro} {}", joined(names, "and"))
    }
}

/// `` `a`, `b` and `c` ``.
pub(crate) fn joined(names: &[&str], last: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// The type of a value, with its article.
pub(crate) fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Rewords what serde or a plugin says about a value: expected and found.
pub(crate) fn plainly(message: &str, found: Option<&DeValue<'_>>) -> String {
    let message = &shorten(message);
    if let Some((given, expected)) = split(message, "invalid type: ") {
        let (given, expected) = (type_in_words(given), expected_in_words(expected));
        let found = match found.map(kind_of) {
            None => given,
            // Where in a table with a tag it is, serde does not say.
            Some("a table") if ![NAME, ONE_NAME].contains(&expected) => given,
            Some(found) => found,
        };
        return format!("expected {expected}, found {found}");
    }
    if let Some((given, expected)) = split(message, "invalid value: ") {
        let found = if given == "map" { "a table" } else { value_in_words(given) };
        return format!("expected {}, found {found}", expected_in_words(expected));
    }
    if let Some((given, expected)) = split(message, "invalid length ") {
        return format!("expected {}, found {given}", expected_in_words(expected));
    }
    if let Some((given, known)) = variants(message) {
        return format!("expected {}, found `{given}`", joined(&known, "or"));
    }
    match found {
        Some(DeValue::Integer(found)) if is_expectation(message) => {
            format!("expected {message}, found `{found}`")
        }
        Some(found) if is_expectation(message) => {
            format!("expected {message}, found {}", kind_of(found))
        }
        _ => message.clone(),
    }
}

/// The value found and the values allowed, if `message` says so.
pub(crate) fn variants(message: &str) -> Option<(&str, Vec<&str>)> {
    given_and_allowed(message, "unknown variant ")
}

/// Whether a plain message expects one of the names of a choice.
pub(crate) fn expects_name(message: &str) -> bool {
    [NAME, ONE_NAME].iter().any(|name| message.starts_with(&format!("expected {name}, found ")))
}

/// The key found and the keys allowed, if `message` says so.
pub(crate) fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    given_and_allowed(message, "unknown field ")
}

fn given_and_allowed<'m>(message: &'m str, start: &str) -> Option<(&'m str, Vec<&'m str>)> {
    let (given, expected) = split(message, start)?;
    Some((given.trim_matches('`'), expected.split('`').skip(1).step_by(2).collect()))
}

/// The field that `message` says is missing or unknown.
pub(crate) fn field<'m>(message: &'m str, what: &str) -> Option<&'m str> {
    let (_, rest) = message.split_once(what)?;
    rest.strip_prefix(" field `")?.split_once('`').map(|(name, _)| name)
}

fn split<'m>(message: &'m str, start: &str) -> Option<(&'m str, &'m str)> {
    message.strip_prefix(start)?.rsplit_once(", expected ")
}

/// Untagged enums report only their expectation: `a size such as …`. A sentence is none.
fn is_expectation(message: &str) -> bool {
    let is_sentence = [" is ", " has ", " needs ", " must ", " cannot "];
    (message.starts_with("a ") || message.starts_with("an "))
        && !is_sentence.iter().any(|verb| message.contains(verb))
}

/// A message, and the drawing after an empty line.
pub(crate) fn lines(message: &str) -> (&str, Option<&str>) {
    match message.split_once("\n\n") {
        Some((first, drawn)) => (first, Some(drawn)),
        None => (message, None),
    }
}

/// One line: regex errors come with a drawing.
fn shorten(message: &str) -> String {
    let drawn = message.split_once("regex parse error:");
    let short = drawn.and_then(|(intro, drawing)| {
        let (_, reason) = drawing.rsplit_once("error: ")?;
        Some(format!("{intro}{reason}"))
    });
    let whole = short.unwrap_or_else(|| message.to_owned());
    whole.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn type_in_words(given: &str) -> &str {
    let kinds = [
        ("string", "a string"),
        ("integer", "an integer"),
        ("floating point", "a float"),
        ("boolean", "a boolean"),
        ("sequence", "a list"),
        ("map", "a table"),
    ];
    kinds.iter().find(|(serde, _)| given.starts_with(serde)).map_or(given, |(_, words)| words)
}

/// ``integer `-1` `` → `` `-1` ``.
fn value_in_words(given: &str) -> &str {
    given.find(['`', '"']).and_then(|at| given.get(at..)).unwrap_or(given)
}

fn expected_in_words(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "path string" => "a path",
        "a sequence" => "a list",
        "a map" => "a table",
        "unit" | "string or map" | "map with a single key" => NAME,
        "a nonzero u16" | "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => {
            "a whole number above 0"
        }
        record if record.starts_with("struct ") => "a table",
        choice if choice.contains(" enum ") || choice.starts_with("enum ") => ONE_NAME,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::*;

    #[test]
    fn serde_speaks_plainly() {
        let says = |message: &str| plainly(message, None);
        assert_eq!(
            says("invalid type: integer `5`, expected a string"),
            "expected a string, found an integer"
        );
        assert_eq!(
            says("invalid value: integer `-1`, expected u8"),
            "expected a whole number from 0 to 255, found `-1`"
        );
        assert_eq!(
            says("unknown variant `x`, expected `a` or `b`"),
            "expected `a` or `b`, found `x`"
        );
        assert_eq!(
            plainly("a size such as 1", Some(&DeValue::Boolean(true))),
            "expected a size such as 1, found a boolean"
        );
        assert_eq!(
            says("invalid value: map, expected map with a single key"),
            "expected a name, found a table"
        );
        let table = DeTable::parse("a = 1").unwrap();
        let table = DeValue::Table(table.into_inner());
        assert_eq!(
            plainly("invalid type: string \"x\", expected f64", Some(&table)),
            "expected a number, found a string"
        );
        assert_eq!(
            plainly("invalid type: map, expected f64", Some(&table)),
            "expected a number, found a table"
        );
        let sentence = "a checksum needs an `algorithm`";
        assert_eq!(plainly(sentence, Some(&DeValue::Boolean(true))), sentence);
        assert_eq!(
            says(
                "`(` is not a regular expression: regex parse error:\n  (\n  ^\nerror: unclosed group"
            ),
            "`(` is not a regular expression: unclosed group"
        );
    }
}
