use proptest::prelude::*;

use super::*;

fn errors_of(text: &str) -> String {
    let mistakes = Document::parse(text).unwrap_err();
    let shown: Vec<String> = mistakes
        .iter()
        .map(|m| format!("{}: {}", 1 + text[..m.span.start].matches('\n').count(), m.message))
        .collect();
    shown.join("\n")
}

fn value_of(text: &str) -> ConfigValue {
    Document::parse(text).unwrap().entries()[0].value.clone()
}

fn text_of(text: &str) -> String {
    value_of(text).scalar().unwrap().text.clone()
}

#[test]
fn casts_mean_nothing() {
    assert_eq!(value_of("a = (double) 5;"), value_of("a = 5;"));
    assert_eq!(value_of("a = (unsigned char[]) [5];"), value_of("a = [5];"));
}

#[test]
fn an_array_may_end_in_a_comma_and_may_be_empty() {
    assert_eq!(value_of("a = [1, 2,];"), value_of("a=[1,2];"));
    assert_eq!(value_of("a = [];"), ConfigValue::List(Vec::new()));
    assert!(errors_of("a = [,];").contains("expected a value or `]`, found `,`"));
}

#[test]
fn numbers_are_names_like_others() {
    assert_eq!(text_of("a = -1.5e-3;"), "-1.5e-3");
    assert_eq!(text_of("-7 = yes;"), "yes");
}

#[test]
fn a_backslash_keeps_a_quote_from_ending_a_text_and_stays_in_it() {
    assert_eq!(text_of(r#"a = "say \"no\"!";"#), r#"say \"no\"!"#);
    assert_eq!(text_of(r#"a = "";"#), "");
}

#[test]
fn a_comment_begins_even_inside_a_text() {
    assert_eq!(text_of("a = \"one # two\" ; \n three\";"), "one \n three");
    assert_eq!(text_of("# nothing = here; \u{fc}\na = b#c\n;"), "b");
}

#[test]
fn an_unclosed_string_is_a_mistake_at_its_start() {
    let expected = [
        "2: unclosed string: expected `\"`",
        "3: expected a value for `b`, found the end of the file",
    ];
    assert_eq!(errors_of("a = 1;\nb = \"x;\n"), expected.join("\n"));
}

#[test]
fn words_have_255_bytes_at_most() {
    let (fits, too_long) = ("x".repeat(255), "x".repeat(256));
    assert_eq!(text_of(&format!("a = {fits};")), fits);
    assert_eq!(text_of(&format!("a = \"{fits}\";")), fits);
    assert!(errors_of(&format!("a = {too_long};")).contains("longer than 255 bytes"));
    assert!(errors_of(&format!("a = \"{too_long}\";")).contains("longer than 255 bytes"));
    assert!(errors_of(&format!("{too_long} = 1;")).contains("longer than 255 bytes"));
}

#[test]
fn unprintable_bytes_are_mistakes_outside_of_comments() {
    assert!(errors_of("a = \u{fc};").contains("expected printable ASCII, found the byte 0xc3"));
    assert!(errors_of("a = \"\u{1}\";").contains("found the byte 0x01"));
    assert!(errors_of("a = $;").contains("unexpected character `$`"));
}

#[test]
fn several_mistakes_are_reported_at_once() {
    let text = "a { x = ; }\nb = 1\nc = 2;\n};\nd 5;\ne { y = 1; };\nf {";
    let expected = [
        "1: expected a value for `x`, found `;`",
        "2: expected `;` after the value of `b`",
        "4: unexpected `}`",
        "4: unexpected `;`",
        "5: expected `=` or `{` after `d`, found `5`",
        "6: unexpected `;`",
        "7: unclosed group `f`: expected `}`",
    ];
    assert_eq!(errors_of(text), expected.join("\n"));
}

#[test]
fn the_nesting_of_groups_is_limited() {
    let nested = |depth: usize| format!("{}{}", "a {".repeat(depth), "}".repeat(depth));
    assert!(Document::parse(&nested(MAX_DEPTH)).is_ok());
    assert!(errors_of(&nested(MAX_DEPTH + 1)).contains("groups nested more than 64 deep"));
    assert!(Document::parse(&nested(300_000)).is_err());
}

#[test]
fn parsing_stops_after_too_many_mistakes() {
    assert_eq!(Document::parse(&"; ".repeat(100_000)).unwrap_err().len(), MAX_MISTAKES);
    assert_eq!(Document::parse(&"$ ".repeat(100_000)).unwrap_err().len(), MAX_MISTAKES);
}

fn names() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_.+-]{1,12}"
}

fn scalars() -> impl Strategy<Value = Scalar> {
    let quoted = prop::collection::vec(r#"([ !$-\[\]-~\n\t]|\\")"#, 0..12);
    prop_oneof![names(), quoted.prop_map(|parts| parts.concat())]
        .prop_map(|text| Scalar { text, span: 0..0 })
}

fn documents() -> impl Strategy<Value = Document> {
    let value = prop_oneof![
        scalars().prop_map(ConfigValue::Scalar),
        prop::collection::vec(scalars(), 0..5).prop_map(ConfigValue::List),
    ];
    let value = value.prop_recursive(5, 60, 6, |inner| {
        let entry =
            (names(), inner).prop_map(|(name, value)| ConfigEntry { name, span: 0..0, value });
        prop::collection::vec(entry, 0..6).prop_map(ConfigValue::Group)
    });
    let entry = (names(), value).prop_map(|(name, value)| ConfigEntry { name, span: 0..0, value });
    prop::collection::vec(entry, 0..6).prop_map(|entries| Document { entries })
}

proptest! {
    #[test]
    fn a_document_round_trips_through_its_text(document in documents()) {
        let text = document.to_string();
        prop_assert_eq!(Document::parse(&text), Ok(document), "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused_with_places_that_are_in_it(
        text in r#"([a-c={};,"\\\[\]()#\n ]|\PC){0,60}"#,
    ) {
        match Document::parse(&text) {
            Ok(document) => {
                prop_assert_eq!(Document::parse(&document.to_string()), Ok(document));
            }
            Err(mistakes) => {
                prop_assert!(!mistakes.is_empty());
                for mistake in mistakes {
                    prop_assert!(mistake.span.end <= text.len(), "{:?}", mistake);
                    mistake.render("a.cfg", &text, false);
                }
            }
        }
    }
}
