//! Paths to values in decoded messages, such as `pos[0]` or `legs[2].angle`, and their values in
//! Arrow columns.
//!
//! A path is a name, followed by any number of `.name` and `[index]`. An index counts from 0, a
//! negative one from the end. Names of letters, digits, `_`, `-` and non-ASCII characters are
//! written as they are; other names are quoted with backquotes (`` `odd name`.x ``), in which two
//! backquotes stand for one.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::cursor::Cursor;
use arrow_array::builder::UInt8Builder;
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayAccessor, ArrayRef, BooleanArray, OffsetSizeTrait, RecordBatch, UInt64Array,
    new_null_array,
};
use arrow_buffer::{ArrowNativeType, NullBuffer};
use arrow_schema::{DataType, Field, Fields, Schema};
use arrow_select::nullif::nullif;
use arrow_select::take::take;
use schemars::{JsonSchema, Schema as OptionSchema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::options::FIELDS_FORMAT;
use crate::raw::is_raw;

/// A path to a value in a decoded message, starting with the name of a column.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath {
    column: Arc<str>,
    steps: Vec<PathStep>,
}

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathStep {
    /// The member of that name.
    Name(Arc<str>),
    /// The element at that index; a negative one counts from the end.
    Index(i64),
}

/// Why a text is not a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The byte offset of the error.
    pub at: usize,
    /// What is wrong.
    pub what: String,
}

/// How a `-` after an unquoted name is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DashRule {
    /// As part of the name.
    InNames,
    /// As the end of the path: it may be a minus.
    EndsNames,
}

/// Fixed-size lists with more elements, counting nested ones, stay one leaf.
const MAX_EXPANDED: usize = 64;

impl FieldPath {
    /// The path to a whole column.
    pub fn column(name: impl Into<Arc<str>>) -> Self {
        Self { column: name.into(), steps: Vec::new() }
    }

    /// Extends the path by a step.
    pub fn then(&self, step: PathStep) -> Self {
        let steps = self.steps.iter().cloned().chain([step]).collect();
        Self { column: Arc::clone(&self.column), steps }
    }

    /// Parses a path. `Err` says what is wrong, and at which character.
    pub fn parse(text: &str) -> Result<Self, String> {
        let message = |error: PathError| {
            let before = text.get(..error.at).unwrap_or(text);
            let character = before.chars().count() + 1;
            format!("`{text}` is not a field path: at character {character}: {}", error.what)
        };
        let (path, len) = Self::scan(text, DashRule::InNames).map_err(message)?;
        match text.get(len..).and_then(|rest| rest.chars().next()) {
            None => Ok(path),
            Some(found) => Err(message(PathError { at: len, what: unexpected(found) })),
        }
    }

    /// Parses the path at the start of `text`, and returns it with its length in bytes.
    pub fn scan(text: &str, dash: DashRule) -> Result<(Self, usize), PathError> {
        let mut scanner = PathScanner { cursor: Cursor::new(text), dash };
        let mut path = Self::column(scanner.name()?);
        while let Some(step) = scanner.step()? {
            path.steps.push(step);
        }
        Ok((path, scanner.cursor.position()))
    }

    /// The name of the column it begins with.
    pub fn first(&self) -> &str {
        &self.column
    }

    /// The steps behind the column it begins with.
    pub fn steps(&self) -> &[PathStep] {
        &self.steps
    }

    /// The names it consists of; `None` if it contains an index.
    pub fn members(&self) -> Option<Vec<&str>> {
        let names = self.steps.iter().map(|step| match step {
            PathStep::Name(name) => Some(&**name),
            PathStep::Index(_) => None,
        });
        std::iter::once(Some(&*self.column)).chain(names).collect()
    }

    /// The values it leads to, one per row; null where a parent is null or a list too short.
    ///
    /// An element of a binary value is a byte; dictionaries are resolved. `None` if the columns
    /// have no such value by type.
    pub fn resolve(&self, columns: &RecordBatch) -> Option<ArrayRef> {
        let column = columns.column_by_name(&self.column).cloned()?;
        self.steps.iter().try_fold(without_dictionary(column)?, |array, step| {
            without_dictionary(match step {
                PathStep::Name(name) => member(&array, name)?,
                PathStep::Index(index) => element(&array, *index)?,
            })
        })
    }

    /// The paths of all leaves of these columns, in order: members of structs, and elements of
    /// fixed-size lists of at most 64 elements. Longer and variable-size lists are one leaf.
    pub fn leaves(schema: &Schema) -> Vec<Self> {
        let mut leaves = Vec::new();
        for field in schema.fields().iter().filter(|field| !is_raw(field)) {
            push_leaves(Self::column(field.name().as_str()), field, MAX_EXPANDED, &mut leaves);
        }
        leaves
    }
}

fn push_leaves(path: FieldPath, field: &Field, most: usize, leaves: &mut Vec<FieldPath>) {
    match field.data_type() {
        DataType::Struct(members) => push_members(&path, members, most, leaves),
        DataType::FixedSizeList(element, len) if expands(field, most) => {
            for index in 0..*len {
                let path = path.then(PathStep::Index(i64::from(index)));
                push_leaves(path, element, most / len.as_usize(), leaves);
            }
        }
        _ => leaves.push(path),
    }
}

fn push_members(path: &FieldPath, members: &Fields, most: usize, leaves: &mut Vec<FieldPath>) {
    for member in members {
        push_leaves(path.then(PathStep::Name(member.name().as_str().into())), member, most, leaves);
    }
}

/// Whether a fixed list has at most `most` elements, and at least one.
fn expands(list: &Field, most: usize) -> bool {
    let elements = elements(list.data_type());
    (1..=most).contains(&elements)
}

fn elements(data_type: &DataType) -> usize {
    match data_type {
        DataType::FixedSizeList(element, len) => {
            len.as_usize().saturating_mul(elements(element.data_type()))
        }
        _ => 1,
    }
}

fn without_dictionary(array: ArrayRef) -> Option<ArrayRef> {
    let Some(dictionary) = array.as_any_dictionary_opt() else { return Some(array) };
    take_or_null(dictionary.values(), dictionary.keys())
}

fn member(array: &ArrayRef, name: &str) -> Option<ArrayRef> {
    let parent = array.as_struct_opt()?;
    let member = parent.column_by_name(name)?;
    let Some(nulls) = parent.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return Some(Arc::clone(member));
    };
    // A member of a null struct may have any value.
    match member.data_type() {
        // These have no validity bitmap.
        DataType::Union(..) | DataType::RunEndEncoded(..) => None,
        _ => nullif(member, &BooleanArray::new(!nulls.inner(), None)).ok(),
    }
}

fn element(array: &ArrayRef, index: i64) -> Option<ArrayRef> {
    match array.data_type() {
        DataType::FixedSizeList(_, len) => fixed_element(array, in_list(len.as_usize(), index)?),
        DataType::List(_) => list_element::<i32>(array, index),
        DataType::LargeList(_) => list_element::<i64>(array, index),
        DataType::FixedSizeBinary(len) => {
            in_list(len.as_usize(), index)?;
            Some(byte(array.as_fixed_size_binary(), index))
        }
        DataType::Binary => Some(byte(array.as_binary::<i32>(), index)),
        DataType::LargeBinary => Some(byte(array.as_binary::<i64>(), index)),
        DataType::BinaryView => Some(byte(array.as_binary_view(), index)),
        _ => None,
    }
}

/// The position that an index means in a list of that length.
fn in_list(len: usize, index: i64) -> Option<usize> {
    let from_start = match index < 0 {
        true => i64::try_from(len).ok()?.checked_add(index)?,
        false => index,
    };
    usize::try_from(from_start).ok().filter(|at| *at < len)
}

fn fixed_element(array: &ArrayRef, at: usize) -> Option<ArrayRef> {
    let list = array.as_fixed_size_list();
    let len = list.value_length().as_usize();
    let place = |row: usize| row * len + at;
    let places = match array.nulls() {
        Some(_) => places(array, |row| Some(place(row))),
        None => UInt64Array::from_iter_values((0..array.len()).map(|row| place(row) as u64)),
    };
    take_or_null(list.values(), &places)
}

fn list_element<O: OffsetSizeTrait>(array: &ArrayRef, index: i64) -> Option<ArrayRef> {
    let list = array.as_list::<O>();
    let offsets = list.value_offsets();
    let place = |row: usize| {
        let start = offsets.get(row)?.as_usize();
        let len = offsets.get(row + 1)?.as_usize() - start;
        in_list(len, index).map(|at| start + at)
    };
    take_or_null(list.values(), &places(array, place))
}

/// The result of `place` for each row of `array` that is not null.
fn places(array: &ArrayRef, place: impl Fn(usize) -> Option<usize>) -> UInt64Array {
    let nulls = array.nulls();
    let place = |row: usize| {
        let is_there = nulls.is_none_or(|nulls: &NullBuffer| nulls.is_valid(row));
        is_there.then(|| place(row)).flatten().map(|at| at as u64)
    };
    (0..array.len()).map(place).collect()
}

fn take_or_null(values: &ArrayRef, places: &dyn Array) -> Option<ArrayRef> {
    if values.is_empty() {
        return Some(new_null_array(values.data_type(), places.len()));
    }
    take(values, places, None).ok()
}

fn byte<'a>(array: impl ArrayAccessor<Item = &'a [u8]>, index: i64) -> ArrayRef {
    let mut bytes = UInt8Builder::with_capacity(array.len());
    for row in 0..array.len() {
        let value = array.is_valid(row).then(|| array.value(row));
        let at = |value: &[u8]| value.get(in_list(value.len(), index)?).copied();
        bytes.append_option(value.and_then(at));
    }
    Arc::new(bytes.finish())
}

/// Parses a path from the start of a text.
struct PathScanner<'t> {
    cursor: Cursor<'t>,
    dash: DashRule,
}

impl PathScanner<'_> {
    fn error<T>(&self, what: impl Into<String>) -> Result<T, PathError> {
        Err(PathError { at: self.cursor.position(), what: what.into() })
    }

    fn step(&mut self) -> Result<Option<PathStep>, PathError> {
        if self.cursor.eat(".") {
            Ok(Some(PathStep::Name(self.name()?)))
        } else if self.cursor.eat("[") {
            Ok(Some(PathStep::Index(self.index()?)))
        } else {
            Ok(None)
        }
    }

    fn name(&mut self) -> Result<Arc<str>, PathError> {
        if self.cursor.peek() == Some('`') {
            return self.quoted_name();
        }
        let dash = self.dash == DashRule::InNames;
        let name = self.cursor.take_while(|c| is_plain(c) || dash && c == '-').text;
        if name.is_empty() {
            return match self.cursor.peek() {
                Some('"' | '\'') => {
                    self.error("expected a name; put names with special characters in backquotes")
                }
                Some(found) => self.error(format!("expected a name, found `{found}`")),
                None => self.error("expected a name, found the end"),
            };
        }
        Ok(name.into())
    }

    fn quoted_name(&mut self) -> Result<Arc<str>, PathError> {
        let mut name = String::new();
        let mut rest = self.cursor.rest().char_indices().skip(1).peekable();
        while let Some((at, c)) = rest.next() {
            match c {
                '`' if rest.next_if(|(_, next)| *next == '`').is_none() => {
                    self.cursor.take(at + 1);
                    return Ok(name.into());
                }
                c => name.push(c),
            }
        }
        self.error("this backquote is not closed")
    }

    fn index(&mut self) -> Result<i64, PathError> {
        let before = self.cursor;
        let digits = self.cursor.take_while(|c| c.is_ascii_digit() || c == '-');
        let Ok(index) = digits.text.parse() else {
            self.cursor = before;
            return self.error("expected a whole number such as 0, or -1 for the last");
        };
        if self.cursor.eat("]") { Ok(index) } else { self.error("expected `]`") }
    }
}

/// Whether a character needs no quoting in a name; `-` is handled separately.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || !(c.is_ascii() || c.is_whitespace())
}

fn unexpected(found: char) -> String {
    match found {
        ']' => "`]` without `[`".to_owned(),
        found => format!("expected `.`, `[` or the end, found `{found}`"),
    }
}

impl fmt::Display for FieldPath {
    /// As [`FieldPath::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(&self.column, f)?;
        for step in &self.steps {
            match step {
                PathStep::Name(name) => {
                    f.write_str(".")?;
                    write_name(name, f)?;
                }
                PathStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

fn write_name(name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let is_plain = |c: char| is_plain(c) || c == '-';
    match !name.is_empty() && name.chars().all(is_plain) {
        true => f.write_str(name),
        false => write!(f, "`{}`", name.replace('`', "``")),
    }
}

impl Serialize for FieldPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FieldPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for FieldPath {
    fn schema_name() -> Cow<'static, str> {
        "FieldPath".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> OptionSchema {
        json_schema!({ "type": "string", "format": FIELDS_FORMAT,
            "description": "a field, such as `pos[0]` or `legs[2].angle`" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::builder::{FixedSizeBinaryBuilder, ListBuilder, StringBuilder};
    use arrow_array::types::{Float64Type, Int8Type, Int32Type, UInt8Type};
    use arrow_array::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn path(text: &str) -> FieldPath {
        FieldPath::parse(text).unwrap()
    }

    fn columns(named: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(named.into_iter().map(|(n, a)| (n, a, true)))
            .unwrap()
    }

    fn ints(array: &ArrayRef) -> Vec<Option<i32>> {
        array.as_primitive::<Int32Type>().iter().collect()
    }

    fn lists(rows: &[Option<Vec<Option<i32>>>]) -> ListArray {
        ListArray::from_iter_primitive::<Int32Type, _, _>(rows.iter().cloned())
    }

    #[test]
    fn paths_print_as_they_are_read() {
        for text in
            ["utime", "pos[0]", "a.b[2].c", "m[1][-2]", "a-b._c1", "grün", "`odd name`.`a``b`[3]"]
        {
            assert_eq!(path(text).to_string(), text);
        }
        assert_eq!(path("`plain`.`1`").to_string(), "plain.1");
    }

    #[test]
    fn errors_name_the_character() {
        let message = |text: &str| FieldPath::parse(text).unwrap_err();
        for (text, part) in [
            ("", "at character 1: expected a name, found the end"),
            ("a..b", "at character 3: expected a name, found `.`"),
            ("grün[x]", "at character 6: expected a whole number"),
            ("a[1", "at character 4: expected `]`"),
            ("a b", "at character 2: expected `.`, `[` or the end, found ` `"),
            ("a]", "at character 2: `]` without `[`"),
            ("\"a\"", "backquotes"),
            ("a.`b", "at character 3: this backquote is not closed"),
            ("a[99999999999999999999]", "at character 3"),
        ] {
            assert!(message(text).contains(part), "{}", message(text));
        }
    }

    #[test]
    fn a_dash_ends_names_where_it_may_be_a_minus() {
        let (path, len) = FieldPath::scan("a.b-1", DashRule::EndsNames).unwrap();
        assert_eq!((path.to_string().as_str(), len), ("a.b", 3));
    }

    #[test]
    fn options_read_paths_from_strings() {
        let paths: Vec<FieldPath> = serde_json::from_str(r#"["pos[0]", "utime"]"#).unwrap();
        assert_eq!(serde_json::to_string(&paths).unwrap(), r#"["pos[0]","utime"]"#);
        assert!(serde_json::from_str::<FieldPath>("\"a[\"").is_err());
    }

    #[test]
    fn elements_of_lists_that_are_too_short_are_null() {
        let rows = [Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(4)])];
        let found = |path_: &str| {
            ints(&path(path_).resolve(&columns(vec![("v", Arc::new(lists(&rows)))])).unwrap())
        };
        assert_eq!(found("v[0]"), [Some(1), None, None, Some(4)]);
        assert_eq!(found("v[-1]"), [None, None, None, Some(4)]);
        assert_eq!(found("v[7]"), [None; 4]);
    }

    #[test]
    fn fixed_lists_have_the_elements_their_type_says() {
        let rows = [Some([1, 2]), None, Some([5, 6])].map(|row| row.map(|row| row.map(Some)));
        let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(rows, 2);
        let columns = columns(vec![("v", Arc::new(fixed.slice(1, 2)))]);
        assert_eq!(ints(&path("v[-2]").resolve(&columns).unwrap()), [None, Some(5)]);
        assert!(path("v[2]").resolve(&columns).is_none());
        assert!(path("v[-3]").resolve(&columns).is_none());
    }

    #[test]
    fn members_of_null_structs_are_null() {
        let x: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), None]));
        let fields = vec![Field::new("x", DataType::Int32, true)].into();
        let valid = NullBuffer::from(vec![true, false, true]);
        let inner = StructArray::new(fields, vec![x], Some(valid));
        let columns = columns(vec![("s", Arc::new(inner))]);
        assert_eq!(ints(&path("s.x").resolve(&columns).unwrap()), [Some(1), None, None]);
        assert!(path("s.y").resolve(&columns).is_none());
        assert!(path("t").resolve(&columns).is_none() && path("s[0]").resolve(&columns).is_none());
    }

    #[test]
    fn elements_of_binary_values_are_bytes() {
        let mut fixed = FixedSizeBinaryBuilder::new(2);
        fixed.append_value([1, 2]).unwrap();
        fixed.append_null();
        let variable = BinaryArray::from(vec![Some(&[9u8][..]), Some(&[])]);
        let columns = columns(vec![("f", Arc::new(fixed.finish())), ("b", Arc::new(variable))]);
        let found = |text: &str| -> Vec<Option<u8>> {
            path(text).resolve(&columns).unwrap().as_primitive::<UInt8Type>().iter().collect()
        };
        assert_eq!(found("f[1]"), [Some(2), None]);
        assert_eq!(found("b[-1]"), [Some(9), None]);
        assert!(path("f[2]").resolve(&columns).is_none());
    }

    #[test]
    fn dictionaries_are_looked_through() {
        let values: ArrayRef = Arc::new(lists(&[Some(vec![Some(7)]), Some(vec![])]));
        let keys = Int8Array::from(vec![Some(1), Some(0), None]);
        let words = DictionaryArray::<Int8Type>::new(keys, values);
        let columns = columns(vec![("d", Arc::new(words))]);
        assert_eq!(ints(&path("d[0]").resolve(&columns).unwrap()), [None, Some(7), None]);
    }

    fn fixed(field: Field, len: i32) -> DataType {
        DataType::FixedSizeList(Arc::new(field), len)
    }

    #[test]
    fn leaves_are_what_a_table_can_hold() {
        let double = |name: &str| Field::new(name, DataType::Float64, false);
        let leg = DataType::Struct(
            vec![double("angle"), Field::new("m", fixed(double("e"), 30), false)].into(),
        );
        let schema = Schema::new(vec![
            Field::new("utime", DataType::Int64, false),
            Field::new("pos", fixed(double("e"), 2), false),
            Field::new("m", fixed(Field::new("e", fixed(double("e"), 2), false), 2), false),
            Field::new("big", fixed(Field::new("e", fixed(double("e"), 9), false), 9), false),
            Field::new("legs", fixed(Field::new("e", leg, false), 3), false),
            Field::new("names", DataType::new_list(DataType::Utf8, false), false),
            Field::new("none", fixed(double("e"), 0), false),
        ]);
        let leaves: Vec<_> = FieldPath::leaves(&schema).iter().map(FieldPath::to_string).collect();
        let wanted = "utime pos[0] pos[1] m[0][0] m[0][1] m[1][0] m[1][1] big legs[0].angle \
                      legs[0].m \
            legs[1].angle legs[1].m legs[2].angle legs[2].m names none";
        assert_eq!(leaves.join(" "), wanted);
    }

    #[test]
    fn structs_in_lists_are_reached() {
        let x: ArrayRef = Arc::new(Float64Array::from(vec![1.5, 2.5, 3.5]));
        let field = Arc::new(Field::new("x", DataType::Float64, true));
        let inner: ArrayRef = Arc::new(StructArray::from(vec![(field, x)]));
        let offsets = arrow_buffer::OffsetBuffer::from_lengths([2, 1]);
        let element = Arc::new(Field::new("e", inner.data_type().clone(), true));
        let list = ListArray::new(element, offsets, inner, None);
        let found = path("l[1].x").resolve(&columns(vec![("l", Arc::new(list))])).unwrap();
        let found: Vec<_> = found.as_primitive::<Float64Type>().iter().collect();
        assert_eq!(found, [Some(2.5), None]);
    }

    #[test]
    fn lists_of_strings_are_reached_though_no_list_has_any() {
        let mut names = ListBuilder::new(StringBuilder::new());
        names.append_null();
        names.append(true);
        let columns = columns(vec![("n", Arc::new(names.finish()))]);
        assert_eq!(path("n[0]").resolve(&columns).unwrap().null_count(), 2);
    }

    fn any_path() -> impl Strategy<Value = FieldPath> {
        let name = "[a-z_0-9`. \"é-]{0,6}";
        let step = prop_oneof![
            name.prop_map(|name| PathStep::Name(name.into())),
            any::<i64>().prop_map(PathStep::Index)
        ];
        (name, vec(step, 0..5))
            .prop_map(|(column, steps)| FieldPath { column: column.into(), steps })
    }

    proptest! {
        #[test]
        fn every_path_reads_back(path in any_path()) {
            prop_assert_eq!(FieldPath::parse(&path.to_string()), Ok(path));
        }

        #[test]
        fn any_text_is_a_path_or_a_mistake_inside_it(text in "[a-z`.\\[\\]0-9é \
                                                              -]{0,12}|\\PC{0,8}") {
            match FieldPath::scan(&text, DashRule::InNames) {
                Ok((_, len)) => prop_assert!(text.is_char_boundary(len)),
                Err(error) => prop_assert!(text.is_char_boundary(error.at)),
            }
            if let Ok(path) = FieldPath::parse(&text) {
                prop_assert_eq!(FieldPath::parse(&path.to_string()), Ok(path));
            }
        }

        #[test]
        fn elements_are_those_of_the_rows(
            rows in vec(proptest::option::of(vec(proptest::option::of(any::<i32>()), 0..4)), 0..20),
            cut in 0usize..20, index in -5i64..5)
        {
            let start = cut.min(rows.len());
            let list = lists(&rows).slice(start, rows.len() - start);
            let found = FieldPath::column("v").then(PathStep::Index(index))
                .resolve(&columns(vec![("v", Arc::new(list))])).unwrap();
            let wanted: Vec<Option<i32>> = rows[start..].iter().map(|row| {
                let row = row.as_ref()?;
                let at = if index < 0 { row.len() as i64 + index } else { index };
                row.get(usize::try_from(at).ok()?).copied().flatten()
            }).collect();
            prop_assert_eq!(ints(&found), wanted);
        }
    }
}
