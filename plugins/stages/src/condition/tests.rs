//! Which events conditions select, and how mistakes are reported.

use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::*;
use proptest::prelude::*;
use sluice_model::StageContext;

use super::Condition;
use crate::testing::{StageRunner, rows};

type DecidedRows = (Vec<Option<bool>>, Vec<(String, u64)>);

/// Whether a condition holds for rows of these columns, and the notes.
fn decided(text: &str, columns: Vec<(&str, ArrayRef)>) -> DecidedRows {
    let condition = Condition::parse(text).unwrap_or_else(|message| panic!("{message}"));
    let mut run = StageRunner::new("filter", serde_json::json!({}));
    let len = columns[0].1.len() as u32;
    let events: Vec<_> = (0..len).map(|n| ("POSE", i64::from(n) * 10)).collect();
    let all: Vec<u32> = (0..len).collect();
    let batch = run.batch(&events).with_rows(vec![rows("t", &all, columns)]);
    let mut context = StageContext::new(&run.channels, None);
    let truths = condition.decide(&batch, |_| true, &mut context).unwrap();
    (truths, context.report.notes)
}

fn sample() -> Vec<(&'static str, ArrayRef)> {
    let lists = [Some(vec![Some(1), Some(2)]), None, Some(vec![])];
    let mut hash = FixedSizeBinaryBuilder::new(2);
    for bytes in [[1, 2], [3, 4], [0xff, 0]] {
        hash.append_value(bytes).unwrap();
    }
    vec![
        ("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(-3)]))),
        ("x", Arc::new(Float64Array::from(vec![1.5, f64::NAN, -3.0]))),
        ("u", Arc::new(UInt64Array::from(vec![u64::MAX, 0, 7]))),
        ("s", Arc::new(StringArray::from(vec![Some("abc"), Some(""), None]))),
        ("b", Arc::new(BooleanArray::from(vec![true, false, true]))),
        ("l", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
        ("hash", Arc::new(hash.finish())),
        ("odd name", Arc::new(Int8Array::from(vec![1, 2, 3]))),
        ("nothing", Arc::new(NullArray::new(3))),
    ]
}

/// `t`, `f` and `?` for each of the three rows.
fn truths(text: &str) -> String {
    let (truths, notes) = decided(text, sample());
    assert!(notes.is_empty(), "{text}: {notes:?}");
    letters(&truths)
}

fn letters(truths: &[Option<bool>]) -> String {
    truths.iter().map(|truth| truth.map_or('?', |truth| if truth { 't' } else { 'f' })).collect()
}

#[test]
fn operators_bind_as_people_expect() {
    for (text, wanted) in [
        ("1 + 2 * 3 == 7", "ttt"),
        ("(1 + 2) * 3 == 9 and not 1 > 2", "ttt"),
        ("10 - 3 - 2 == 5 && 8 / 4 / 2 = 1", "ttt"),
        ("-2 * -3 == 6 and 7 % 4 == 3", "ttt"),
        ("false and true or true", "ttt"),
        ("not false and false", "fff"),
        ("!b or b", "ttt"),
        ("!(b and false)", "ttt"),
        ("n-1 == 0", "t?f"),
        ("0x1F == 31 and 1e3 == 1000 and .5 == 1/2", "ttt"),
    ] {
        assert_eq!(truths(text), wanted, "{text}");
    }
}

#[test]
fn what_is_missing_is_neither_true_nor_false() {
    for (text, wanted) in [
        ("n > 0", "t?f"),
        ("not n > 0", "f?t"),
        ("n > 0 or true", "ttt"),
        ("n > 0 and false", "fff"),
        ("n > 0 or false", "t?f"),
        ("n == n", "t?t"),
        ("l[0] == 1", "t??"),
        ("l[-1] == 2", "t??"),
        ("len(l) == 2", "t?f"),
        ("7 % n == 0", "t?f"),
        ("7 % (n - n) == 0", "???"),
        ("nothing == 1", "???"),
        ("n in [1, -3]", "t?t"),
        ("n not in [1]", "f?t"),
        ("exists(n)", "tft"),
        ("exists(nothing) or exists(missing.too[1])", "fff"),
        ("not exists(l) or l[0] > 0", "tt?"),
    ] {
        assert_eq!(truths(text), wanted, "{text}");
    }
}

#[test]
fn numbers_compare_exactly() {
    for (text, wanted) in [
        ("u == 18446744073709551615", "tff"),
        ("u > 18446744073709551614", "tff"),
        ("u == 18446744073709551616", "fff"),
        ("9007199254740993 > 9007199254740992.0", "ttt"),
        ("x != 1", "ttt"),
        ("x > -3 or x <= -3", "tft"),
        ("isnan(x)", "ftf"),
        ("isnan(sqrt(-1)) and sqrt(4) == 2", "ttt"),
        ("abs(n) == 3 and abs(x) >= 3", "fft"),
        ("b == 1", "tft"),
        ("b + b == 2", "tft"),
    ] {
        assert_eq!(truths(text), wanted, "{text}");
    }
}

#[test]
fn texts_compare_and_match() {
    for (text, wanted) in [
        ("s == 'abc'", "tf?"),
        ("s < \"b\"", "tt?"),
        ("s in ['abc', '']", "tt?"),
        ("s matches 'a*'", "tf?"),
        ("s not matches \"re:[a-c]+\"", "ft?"),
        ("len(s) == 3", "tf?"),
        ("'it''s' == \"it's\"", "ttt"),
        ("len('grün') == 4", "ttt"),
    ] {
        assert_eq!(truths(text), wanted, "{text}");
    }
}

#[test]
fn bytes_have_lengths_and_elements() {
    assert_eq!(truths("len(hash) == 2 and hash[0] == 0xff"), "fft");
    assert_eq!(truths("`odd name` >= 2"), "ftt");
}

#[test]
fn event_values_need_no_field() {
    assert_eq!(truths("$timestamp >= 10 and $sequence < 2"), "ftf");
    assert_eq!(truths("$channel == 'POSE' and $source matches 'l*' and $size > 5"), "ttt");
}

#[test]
fn values_of_the_wrong_type_are_noted_and_missing() {
    for (text, wanted, note) in [
        ("s > 3", "???", "`s > 3` cannot be evaluated: text cannot be compared with a number"),
        ("s + 1 > 3", "???", "`s` cannot be evaluated: text is not a number"),
        ("n or b", "t?t", "`n` cannot be evaluated: a number is neither true nor false"),
        (
            "n matches 'a'",
            "???",
            "`n matches 'a'` cannot be evaluated: a number cannot match a pattern",
        ),
        ("len(n) > 0", "???", "`len(n)` cannot be evaluated: a number has no length"),
        (
            "hash in ['a']",
            "???",
            "`hash in ['a']` cannot be evaluated: a list of texts cannot hold bytes",
        ),
        ("s in [1]", "???", "`s in [1]` cannot be evaluated: a list of numbers cannot hold text"),
        ("l == 1", "???", "`l == 1` cannot be evaluated: a list cannot be compared with a number"),
    ] {
        let (truths, notes) = decided(text, sample());
        assert_eq!((letters(&truths).as_str(), notes), (wanted, vec![(note.to_owned(), 3)]));
    }
}

#[test]
fn a_field_that_is_not_there_is_noted() {
    let (truths, notes) = decided("vel[0] > 3 or n == 1", sample());
    assert_eq!(letters(&truths), "t??");
    assert_eq!(notes, [("no field `vel[0]` in the decoded type".to_owned(), 3)]);
}

#[test]
fn a_size_that_is_unknown_is_noted() {
    let condition = Condition::parse("$size >= 0 or n == 1").unwrap();
    let mut run = StageRunner::new("filter", serde_json::json!({}));
    let columns: Vec<(&str, ArrayRef)> = vec![("n", Arc::new(Int64Array::from(vec![1, 2])))];
    let batch = run.batch(&[("POSE", 0), ("POSE", 1), ("RAW", 2)]);
    let batch = batch.with_rows(vec![rows("t", &[0, 1], columns)]);
    for (batch, wanted, unknown) in
        [(batch.clone(), "ttt", vec![]), (batch.without_payloads(), "t?t", vec![2])]
    {
        let mut context = StageContext::new(&run.channels, None);
        let truths = condition.decide(&batch, |_| true, &mut context).unwrap();
        assert_eq!(letters(&truths), wanted);
        let notes = context.report.notes.iter().filter(|(what, _)| what.contains("`$size`"));
        assert_eq!(notes.map(|(_, count)| *count).collect::<Vec<u64>>(), unknown);
    }
}

#[test]
fn mistakes_are_reported_with_their_column_and_what_to_write() {
    for (text, column, part) in [
        ("", 1, "expected a field, a number, a text or `(`, found the end"),
        ("a >", 4, "found the end"),
        ("a > )", 5, "found `)`"),
        ("a > 1)", 6, "`)` without `(`"),
        ("(a > 1", 7, "expected `)`, found the end"),
        ("a === 1", 3, "write `==`"),
        ("$timestamp > 2023-11-14", 14, "`start` and `end` of a filter take dates"),
        ("a <> 1", 3, "write `!=`"),
        ("a & b", 3, "write `and`"),
        ("a | b", 3, "write `or`"),
        ("a AND b", 3, "lower case"),
        ("a == null", 6, "exists(field)"),
        ("a between 1 and 2", 3, "two comparisons"),
        ("1 < a < 3", 7, "a < b and b < c"),
        ("a == 1 or 2", 11, "a in [2, …]"),
        ("a and 'text'", 7, "a == 'text'"),
        ("a + 1", 1, "compare it"),
        ("a + 'b' > 1", 5, "expected a number"),
        ("$size == 'a'", 1, "text can only be compared with text"),
        ("a in [1, 'b']", 10, "text can only be compared with text"),
        ("a in (1, 2)", 6, "a list such as `[1, 2]`"),
        ("a in []", 7, "expected a number or a text"),
        ("a not b", 7, "expected `in` or `matches`"),
        ("a matches b", 11, "a pattern in quotes"),
        ("a matches 're:('", 11, "not a regular expression"),
        ("!a == b", 4, "not a == b"),
        ("1 + not a", 5, "needs parentheses"),
        ("a b", 3, "expected an operator such as `and` or `==`, found `b`"),
        ("a == 'b", 6, "not closed"),
        ("a == 5m", 6, "`5m` is not a number"),
        ("a == 1.2.3", 6, "`1.2.3` is not a number"),
        ("a == 0x", 6, "`0x` is not a number"),
        ("a[x] == 1", 3, "expected a whole number"),
        ("a. == 1", 3, "expected a name"),
        ("max(a) > 1", 1, "expected one of `abs`, `sqrt`"),
        ("exists(1)", 8, "expected a field"),
        ("len(1) > 1", 5, "for lists, texts and bytes"),
        ("$topic == 'a'", 1, "`$channel`"),
        ("a ; b", 3, "not an operator"),
    ] {
        let message = Condition::parse(text).unwrap_err();
        assert!(message.starts_with(&format!("at column {column}: ")), "{text}: {message}");
        assert!(message.contains(part), "{text}: {message}");
        let caret = message.lines().last().unwrap().find('^').unwrap();
        assert_eq!(caret, column + 1, "{message}");
    }
}

#[test]
fn the_place_is_shown_in_long_and_in_broken_conditions() {
    let long = format!("{} == 1 or ?", vec!["a"; 60].join(" + "));
    let message = Condition::parse(&long).unwrap_err();
    let lines: Vec<_> = message.lines().collect();
    assert_eq!(lines[2].chars().nth(lines[3].find('^').unwrap()), Some('?'));
    let message = Condition::parse("a == 1\nand b ==\n").unwrap_err();
    assert!(message.starts_with("at line 3, column 1: "), "{message}");
}

#[test]
fn hostile_conditions_are_refused_or_read_in_bounded_stack() {
    for deep in ["(", "-", "not ", "!", "abs("] {
        let text = format!("{} 1", deep.repeat(1000));
        assert!(Condition::parse(&text).unwrap_err().contains("nested deeper"), "{deep}");
    }
    assert!(Condition::parse(&"a".repeat(20_000)).unwrap_err().contains("longer"));
    for sign in ["+", "and 1 <", "or b <", "* 2 +"] {
        let text = format!("0 < a {}", format!("{sign} a ").repeat(900));
        let (truths, _) = decided(&text, vec![("a", Arc::new(Int8Array::from(vec![1])))]);
        assert_eq!(truths.len(), 1);
    }
}

proptest! {
    #[test]
    fn any_text_is_a_condition_or_a_mistake_inside_it(
        text in prop_oneof![
            "[a-c0-9.$'`\"<>=!&|+*/%()\\[\\], -]{0,20}",
            "\\PC{0,12}",
            "((a|not|and|or|in|1|'t'|\\(|\\)|==|<|\\+|,|\\[) ){0,12}",
        ])
    {
        match Condition::parse(&text) {
            Ok(_) => { let _ = decided(&text, sample()); }
            Err(message) => prop_assert!(message.starts_with("at "), "{}", message),
        }
    }

    #[test]
    fn fields_compare_with_numbers_as_rust_does(
        values in proptest::collection::vec(any::<i64>(), 1..9), than in any::<i64>())
    {
        type Holds = fn(&i64, &i64) -> bool;
        let column: ArrayRef = Arc::new(Int64Array::from(values.clone()));
        let signs: [(&str, Holds); 4] =
            [("<", i64::lt), ("<=", i64::le), ("==", i64::eq), ("!=", i64::ne)];
        for (sign, holds) in signs {
            let text = format!("v {sign} {than}");
            let (truths, _) = decided(&text, vec![("v", Arc::clone(&column))]);
            let wanted: Vec<_> = values.iter().map(|value| Some(holds(value, &than))).collect();
            prop_assert_eq!(truths, wanted);
        }
    }
}
