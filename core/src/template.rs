//! Templates: text with braces in which values of an event stand, such as `{utime} {pos[0]:.6}`. Knows
//! neither lines nor files: what a template's text is for is the sink's business.
//!
//! | in braces | is |
//! |---|---|
//! | `pos[0]`, `legs[2].angle` | a field of the decoded event, by its path |
//! | `ranges[*]` | all elements of a list, with a blank between; `m[*][*]` those of lists in a list |
//! | `channel`, `source` | where the event is from |
//! | `sequence` | its number |
//! | `timestamp_ns`, `timestamp` | its time, in nanoseconds, or as RFC 3339 has it |
//! | `` `channel` `` | the field of that name |
//!
//! Behind a colon stands how numbers are written, as C's `printf` takes it: `{pos[0]:.6}` with six decimals,
//! `{utime:016}` with zeros in front up to that width, `{x:12.3}` with blanks. Behind a semicolon stands what
//! separates elements, up to the brace: `{ranges[*]:.3;,}`. `{{` and `}}` are braces. What is no number takes a
//! width, too, counted in characters, and is filled up with blanks.
//!
//! Integers and times are whole numbers of their unit. Floats without a format are the shortest digits that
//! read back as the same number; `nan`, `inf` and `-inf` are words. Texts stand as they are, but for control
//! characters, which are spelled out; binary is base64, and what has members or elements is JSON.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_cast::cast;
use arrow_schema::DataType;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::field::Dash;
use crate::json::{self, integer};
use crate::lists::Lists;
use crate::name::printable;
use crate::{Channel, Clock, Event, FieldPath, Rows, time};

/// A text with places in it that values of an event are put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Channel,
    Source,
    Sequence(Format),
    Timestamp,
    TimestampNs(Format),
    Field(Inserted),
}

/// A field with the way in which it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Inserted {
    path: FieldPath,
    format: Format,
    /// How many lists, one inside another, are written element by element.
    depth: usize,
    separator: String,
}

/// How a number is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Format {
    /// It takes up as many characters at least.
    width: usize,
    /// Whether it is filled up with zeros, and not with blanks.
    zeros: bool,
    decimals: Option<usize>,
}

/// More characters, or more decimals, are a mistake: each element of a list may take as many.
const MOST_DIGITS: usize = 64;

/// The longest text that is made of an event, but for its last value: a list of bytes, and each of them as
/// wide as can be, would take many times the memory of the event.
pub const MOST_TEXT: usize = 64 << 20;

/// What is wrong with a template, and at which byte of it.
struct Mistake {
    at: usize,
    what: String,
}

impl Template {
    /// Reads a template. `Err` says what is wrong with it, and at which character.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut scanner = Scanner { text, at: 0 };
        let mut parts = Vec::new();
        loop {
            match scanner.part() {
                Ok(Some(part)) => parts.push(part),
                Ok(None) => return Ok(Self { text: text.to_owned(), parts }),
                Err(Mistake { at, what }) => {
                    let character = text.get(..at).unwrap_or(text).chars().count() + 1;
                    return Err(format!(
                        "`{text}` is no template: at character {character}: {what}"
                    ));
                }
            }
        }
    }

    /// The fields whose values it has, in order.
    pub fn fields(&self) -> impl Iterator<Item = &FieldPath> {
        self.parts.iter().filter_map(|part| match part {
            Part::Field(inserted) => Some(&inserted.path),
            _ => None,
        })
    }

    /// The template for events of one type, of which these are the rows; or for events that are not decoded.
    ///
    /// Finds each field once, so this is called once a batch and type. A field that the type does not have,
    /// or whose values have no form as text, is missing in every event.
    pub fn bind(&self, rows: Option<&Rows>) -> Bound<'_> {
        let parts = self.parts.iter().map(|part| match part {
            Part::Field(inserted) => {
                let array = rows.and_then(|rows| inserted.path.resolve(&rows.columns));
                let values = array.and_then(|array| Values::of(&array, inserted.depth));
                (part, values)
            }
            _ => (part, None),
        });
        Bound { parts: parts.collect() }
    }
}

impl fmt::Display for Template {
    /// As [`Template::parse`] was given it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Template {
    fn schema_name() -> Cow<'static, str> {
        "Template".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string",
            "description": "a text with fields in braces, such as `{utime} {pos[0]:.6}`" })
    }
}

/// A template whose fields were found in the rows of one type.
#[derive(Debug)]
pub struct Bound<'t> {
    parts: Vec<(&'t Part, Option<Values>)>,
}

impl Bound<'_> {
    /// Appends the text for an event of `channel`, whose fields are in row `row` of the rows that were bound.
    ///
    /// Gives false, and appends nothing, if a field is missing or null there, or if the text would be longer
    /// than [`MOST_TEXT`]. Allocates nothing but for `timestamp`.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn write(
        &self,
        channel: &Channel,
        event: &Event<'_>,
        row: Option<usize>,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        let most = start.saturating_add(MOST_TEXT);
        let is_whole = self.parts.iter().all(|(part, values)| {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Channel => write_text(channel.name.text(), out),
                Part::Source => write_text(&channel.source, out),
                Part::Sequence(format) => write_signed(event.sequence, *format, out),
                Part::Timestamp => write_time(channel.clock, event.timestamp, out),
                Part::TimestampNs(format) => write_signed(event.timestamp, *format, out),
                Part::Field(inserted) => {
                    let found = values.as_ref().zip(row);
                    let write =
                        |(values, row): (&Values, _)| values.write(row, inserted, most, out);
                    return found.is_some_and(write);
                }
            }
            out.len() <= most
        });
        if !is_whole {
            out.truncate(start);
        }
        is_whole
    }

    /// The first field that is missing or null in row `row`: why [`write`](Self::write) gave false. Nothing if
    /// the text would be too long.
    pub fn missing(&self, row: Option<usize>) -> Option<&FieldPath> {
        self.parts.iter().find_map(|(part, values)| {
            let Part::Field(inserted) = part else { return None };
            let found = values.as_ref().zip(row);
            let is_there = found.is_some_and(|(values, row)| values.is_whole(row));
            (!is_there).then_some(&inserted.path)
        })
    }
}

/// The values of a field, one a row.
#[derive(Debug)]
struct Values {
    nulls: Option<NullBuffer>,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Double(ScalarBuffer<f64>),
    Single(ScalarBuffer<f32>),
    Signed(ScalarBuffer<i64>),
    Unsigned(ScalarBuffer<u64>),
    /// All else, written already: what there is, and where each value ends in it.
    Written {
        text: Vec<u8>,
        ends: Vec<usize>,
    },
    /// Elements: where those of each row are.
    List {
        ranges: Vec<Range<usize>>,
        elements: Box<Values>,
    },
}

impl Values {
    /// The values of `array`, with its elements `depth` lists deep. Nothing if they have no form as text, or
    /// lists are not as deep.
    fn of(array: &ArrayRef, depth: usize) -> Option<Self> {
        let form = if depth == 0 { Form::of(array)? } else { Form::of_list(array, depth)? };
        Some(Self { nulls: array.logical_nulls(), form })
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Whether neither the value nor an element of it is null.
    fn is_whole(&self, row: usize) -> bool {
        let elements = || match &self.form {
            Form::List { ranges, elements } => {
                ranges[row].clone().all(|place| elements.is_whole(place))
            }
            _ => true,
        };
        !self.is_null(row) && elements()
    }

    /// Appends a value; gives false if it or an element is null, or if `out` has become longer than `most`.
    fn write(&self, row: usize, inserted: &Inserted, most: usize, out: &mut Vec<u8>) -> bool {
        if self.is_null(row) {
            return false;
        }
        let format = inserted.format;
        match &self.form {
            Form::Double(values) => write_double(values[row], format, out),
            Form::Single(values) => write_single(values[row], format, out),
            Form::Signed(values) => write_signed(values[row], format, out),
            Form::Unsigned(values) => write_unsigned(values[row], format, out),
            Form::Written { text, ends } => {
                let start = row.checked_sub(1).map_or(0, |before| ends[before]);
                let written = &text[start..ends[row]];
                out.extend_from_slice(written);
                fill_text(written, format.width, out);
            }
            Form::List { ranges, elements } => {
                return ranges[row].clone().enumerate().all(|(n, place)| {
                    if n > 0 {
                        out.extend_from_slice(inserted.separator.as_bytes());
                    }
                    elements.write(place, inserted, most, out)
                });
            }
        }
        out.len() <= most
    }
}

impl Form {
    fn of(array: &ArrayRef) -> Option<Self> {
        let as_type = |data_type: &DataType| cast(array, data_type).ok();
        let data_type = array.data_type();
        Some(match data_type {
            DataType::Float64 => Self::Double(array.as_primitive::<Float64Type>().values().clone()),
            DataType::Float32 | DataType::Float16 => {
                let array = as_type(&DataType::Float32)?;
                Self::Single(array.as_primitive::<Float32Type>().values().clone())
            }
            DataType::UInt64 => Self::Unsigned(array.as_primitive::<UInt64Type>().values().clone()),
            _ if data_type.is_integer() || is_time(data_type) => {
                let array = as_type(&DataType::Int64)?;
                Self::Signed(array.as_primitive::<Int64Type>().values().clone())
            }
            DataType::Dictionary(_, values) => return Self::of(&as_type(values)?),
            _ => Self::written(array)?,
        })
    }

    fn written(array: &ArrayRef) -> Option<Self> {
        let write = json::value(array).ok()?;
        let (mut text, mut ends) = (Vec::new(), Vec::with_capacity(array.len()));
        let (texts, nulls) = (cast_to_text(array), array.logical_nulls());
        for row in 0..array.len() {
            let start = text.len();
            match &texts {
                _ if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) => {}
                Some(texts) => write_text(texts.as_string_view().value(row), &mut text),
                None => {
                    write(row, &mut text);
                    unquote(&mut text, start);
                }
            }
            ends.push(text.len());
        }
        Some(Self::Written { text, ends })
    }

    fn of_list(array: &ArrayRef, depth: usize) -> Option<Self> {
        let Lists { elements, mut ranges } = Lists::of(array)?;
        // A slice of a list has elements of other rows before and behind its own.
        let (first, last) = (ranges.first()?.start, ranges.last()?.end);
        for range in &mut ranges {
            *range = range.start - first..range.end - first;
        }
        let elements = Box::new(Values::of(&elements.slice(first, last - first), depth - 1)?);
        Some(Self::List { ranges, elements })
    }
}

fn is_time(data_type: &DataType) -> bool {
    use DataType::{Date32, Date64, Duration, Time32, Time64, Timestamp};
    matches!(data_type, Timestamp(..) | Duration(_) | Time32(_) | Time64(_) | Date32 | Date64)
}

fn cast_to_text(array: &ArrayRef) -> Option<ArrayRef> {
    let is_text =
        matches!(array.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    is_text.then(|| cast(array, &DataType::Utf8View).ok()).flatten()
}

/// Takes the quotes from a JSON string that `out` has from `start` on. Its text needs no escapes.
fn unquote(out: &mut Vec<u8>, start: usize) {
    if out.get(start) == Some(&b'"') {
        out.pop();
        out.remove(start);
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(printable(text).as_bytes());
}

fn write_time(clock: Clock, nanos: i64, out: &mut Vec<u8>) {
    const SECOND: u64 = 1_000_000_000;
    match clock {
        Clock::Utc => out.extend_from_slice(time::format(nanos).as_bytes()),
        Clock::Relative => {
            if nanos < 0 {
                out.push(b'-');
            }
            let nanos = nanos.unsigned_abs();
            integer(out, nanos / SECOND);
            write_fraction(nanos % SECOND, 9, out);
        }
    }
}

fn write_signed(value: i64, format: Format, out: &mut Vec<u8>) {
    let start = out.len();
    integer(out, value);
    complete_integer(start, format, out);
}

fn write_unsigned(value: u64, format: Format, out: &mut Vec<u8>) {
    let start = out.len();
    integer(out, value);
    complete_integer(start, format, out);
}

/// Gives the integer that begins at `start` its decimals and its width.
fn complete_integer(start: usize, format: Format, out: &mut Vec<u8>) {
    if let Some(decimals) = format.decimals.filter(|decimals| *decimals > 0) {
        out.push(b'.');
        out.resize(out.len() + decimals, b'0');
    }
    fill(start, format.zeros, format.width, out);
}

fn write_single(value: f32, format: Format, out: &mut Vec<u8>) {
    match format.decimals {
        None if value.is_finite() => {
            let start = out.len();
            // Writing to a Vec does not fail.
            let _written = write!(out, "{value:?}");
            fill(start, format.zeros, format.width, out);
        }
        _ => write_double(f64::from(value), format, out),
    }
}

fn write_double(value: f64, format: Format, out: &mut Vec<u8>) {
    let start = out.len();
    match format.decimals {
        _ if !value.is_finite() => out.extend_from_slice(match value {
            f64::INFINITY => b"inf".as_slice(),
            f64::NEG_INFINITY => b"-inf",
            _ => b"nan",
        }),
        Some(decimals) => write_decimals(value, decimals, out),
        None => {
            // Writing to a Vec does not fail.
            let _written = write!(out, "{value:?}");
        }
    }
    fill(start, format.zeros && value.is_finite(), format.width, out);
}

/// Fills what `out` has from `start` on up to a width, with zeros behind its sign or blanks before it.
fn fill(start: usize, zeros: bool, width: usize, out: &mut Vec<u8>) {
    let len = out.len() - start;
    if len >= width {
        return;
    }
    let (lack, byte) = (width - len, if zeros { b'0' } else { b' ' });
    let at = if zeros && out.get(start) == Some(&b'-') { start + 1 } else { start };
    out.splice(at..at, std::iter::repeat_n(byte, lack));
}

/// Puts blanks before what `out` ends with, up to a width in characters.
fn fill_text(text: &[u8], width: usize, out: &mut Vec<u8>) {
    if text.len() / MOST_BYTES_A_CHARACTER >= width {
        return;
    }
    let characters = std::str::from_utf8(text).map_or(text.len(), |text| text.chars().count());
    let at = out.len() - text.len();
    out.splice(at..at, std::iter::repeat_n(b' ', width.saturating_sub(characters)));
}

/// What a character takes in UTF-8.
const MOST_BYTES_A_CHARACTER: usize = 4;

/// The most decimals for which twice a power of ten is a `u64`.
const FEW_DECIMALS: usize = 18;

/// Writes a finite number with so many decimals, rounded as C's `printf` does it: by the exact value of the
/// number, to the even digit where that lies in the middle.
fn write_decimals(value: f64, decimals: usize, out: &mut Vec<u8>) {
    match split(value.abs(), decimals) {
        Some((whole, fraction)) => {
            if value.is_sign_negative() {
                out.push(b'-');
            }
            integer(out, whole);
            if decimals > 0 {
                write_fraction(fraction, decimals, out);
            }
        }
        // Numbers without a fraction, and many decimals.
        None => {
            let _written = write!(out, "{value:.decimals$}");
        }
    }
}

/// A number from 0 on as its whole part and its first decimals, rounded. Nothing where that is not as easy:
/// from 2^53 on, and for many decimals.
///
/// It is `mantissa / 2^shift`, so its fraction times a power of ten is a whole number of 113 bits at most,
/// of which all but `shift` bits are wanted: nothing is lost before it is rounded.
#[inline]
fn split(value: f64, decimals: usize) -> Option<(u64, u64)> {
    const MANTISSA: u32 = f64::MANTISSA_DIGITS - 1;
    const BIAS: u32 = 1023 + MANTISSA;
    let power = *POWERS.get(decimals)?;
    let bits = value.to_bits();
    let (exponent, digits) = ((bits >> MANTISSA) as u32, bits & ((1 << MANTISSA) - 1));
    // Numbers next to zero have no leading one.
    let mantissa = if exponent == 0 { digits } else { digits | 1 << MANTISSA };
    let shift = BIAS.checked_sub(exponent.max(1)).filter(|shift| *shift > 0)?;
    let (whole, below) = match shift {
        ..64 => (mantissa >> shift, mantissa & ((1 << shift) - 1)),
        64.. => (0, mantissa),
    };
    // Less than a half of the last decimal, whatever it is.
    if shift > 120 {
        return Some((whole, 0));
    }
    let scaled = u128::from(below) * u128::from(power);
    let (fraction, rest) = ((scaled >> shift) as u64, scaled & ((1 << shift) - 1));
    let half = 1u128 << (shift - 1);
    let is_odd = if decimals == 0 { whole } else { fraction } & 1 == 1;
    let rounded = fraction + u64::from(rest > half || rest == half && is_odd);
    Some(if rounded == power { (whole + 1, 0) } else { (whole, rounded) })
}

const POWERS: [u64; FEW_DECIMALS + 1] = {
    let mut powers = [1; FEW_DECIMALS + 1];
    let mut at = 1;
    while at <= FEW_DECIMALS {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// Appends a point and so many decimals.
fn write_fraction(fraction: u64, decimals: usize, out: &mut Vec<u8>) {
    let start = out.len();
    // With a one in front all zeros are written, and where the one is the point goes.
    integer(out, fraction + POWERS[decimals]);
    out[start] = b'.';
}

/// Reads a template from its start.
struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error<T>(&self, what: impl Into<String>) -> Result<T, Mistake> {
        Err(Mistake { at: self.at, what: what.into() })
    }

    fn part(&mut self) -> Result<Option<Part>, Mistake> {
        let rest = self.rest();
        if rest.is_empty() {
            return Ok(None);
        }
        if rest.starts_with('{') && !rest.starts_with("{{") {
            return self.inserted().map(Some);
        }
        self.literal().map(Some)
    }

    /// Text up to the next value.
    fn literal(&mut self) -> Result<Part, Mistake> {
        let mut literal = String::new();
        loop {
            let len = self.rest().find(['{', '}']).unwrap_or(self.rest().len());
            literal.push_str(self.rest().get(..len).unwrap_or_default());
            self.at += len;
            let brace = match self.rest().get(..2) {
                Some("{{") => '{',
                Some("}}") => '}',
                _ if self.rest().starts_with('}') => {
                    return self.error("`}` without `{`; a brace itself is `}}`");
                }
                _ => return Ok(Part::Text(literal)),
            };
            literal.push(brace);
            self.at += 2;
        }
    }

    /// What stands in braces.
    fn inserted(&mut self) -> Result<Part, Mistake> {
        let inside = self.rest().get(1..).unwrap_or_default();
        let Some((len, _)) = unquoted(inside).find(|(_, c)| *c == '}') else {
            return self.error("this brace has no other at its end; a brace itself is `{{`");
        };
        self.at += 1;
        let inside = inside.get(..len).unwrap_or_default();
        let end = unquoted(inside).find(|(_, c)| matches!(c, ':' | ';'));
        let end = end.map_or(len, |(at, _)| at);
        let (value, behind) = inside.split_at_checked(end).unwrap_or((inside, ""));
        let part = self.value(value)?;
        self.at += end;
        let part = self.formatted(part, behind)?;
        self.at += len - end + 1;
        Ok(part)
    }

    /// The value that a name stands for.
    fn value(&self, text: &str) -> Result<Part, Mistake> {
        Ok(match text {
            "channel" => Part::Channel,
            "source" => Part::Source,
            "sequence" => Part::Sequence(Format::default()),
            "timestamp" => Part::Timestamp,
            "timestamp_ns" => Part::TimestampNs(Format::default()),
            _ => Part::Field(self.field(text)?),
        })
    }

    fn field(&self, text: &str) -> Result<Inserted, Mistake> {
        const ALL: &str = "[*]";
        let (mut path_text, mut depth) = (text, 0);
        while let Some(before) = path_text.strip_suffix(ALL) {
            (path_text, depth) = (before, depth + 1);
        }
        let wrong = |at: usize, what| Mistake { at: self.at + at, what };
        let (path, len) = FieldPath::scan(path_text, Dash::InNames).map_err(|error| {
            let is_all = path_text.get(error.at..).is_some_and(|rest| rest.starts_with('*'));
            let what = if is_all { "`[*]` stands at the end".to_owned() } else { error.what };
            wrong(error.at, what)
        })?;
        match path_text.get(len..).and_then(|rest| rest.chars().next()) {
            None => Ok(Inserted { path, format: Format::default(), depth, separator: " ".into() }),
            Some(found) => {
                Err(wrong(len, format!("expected `.`, `[`, `:` or `}}`, found `{found}`")))
            }
        }
    }

    /// The part with what stands behind its name: `:.6`, `:016;,`.
    fn formatted(&mut self, mut part: Part, behind: &str) -> Result<Part, Mistake> {
        if behind.is_empty() {
            return Ok(part);
        }
        let (format_text, separator) = match behind.split_once(';') {
            Some((format_text, separator)) => (format_text, Some(separator)),
            None => (behind, None),
        };
        if let Some(text) = format_text.strip_prefix(':') {
            let format = Format::parse(text).or_else(|what| self.error(what))?;
            match &mut part {
                Part::Sequence(ours) | Part::TimestampNs(ours) => *ours = format,
                Part::Field(inserted) => inserted.format = format,
                _ => return self.error("this is a text, and formats are for numbers"),
            }
        }
        if let Some(separator) = separator {
            self.at += format_text.len();
            match &mut part {
                Part::Field(inserted) if inserted.depth > 0 => {
                    separator.clone_into(&mut inserted.separator);
                }
                _ => return self.error("a separator is for elements, as in `{ranges[*];,}`"),
            }
        }
        Ok(part)
    }
}

/// The characters of a text that do not stand in backquotes.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut is_quoted = false;
    text.char_indices().filter(move |(_, c)| {
        is_quoted ^= *c == '`';
        !is_quoted
    })
}

impl Format {
    /// Reads `016`, `.6`, `012.3`.
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected a width and decimals of at most {MOST_DIGITS}, such as `.6`, `016` or `12.3`, \
                 found `{text}`"
            )
        };
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_number.then(|| digits.parse::<usize>().ok()).flatten();
            number.filter(|number| *number <= MOST_DIGITS).ok_or_else(wrong)
        };
        let (width, decimals) = match text.split_once('.') {
            Some((width, decimals)) => (width, Some(number(decimals)?)),
            None => (text, None),
        };
        let (zeros, width) = width.strip_prefix('0').map_or((false, width), |width| (true, width));
        if !zeros && width.is_empty() && decimals.is_none() {
            return Err(wrong());
        }
        let width = if width.is_empty() && (decimals.is_some()) { 0 } else { number(width)? };
        Ok(Self { width, zeros, decimals })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChannelId, Encoding, MessageType, Name, Payloads, TypeKey};
    use arrow_array::types::{Int16Type, Int32Type};
    use arrow_array::*;
    use arrow_schema::Field;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn rows(columns: Vec<(&str, ArrayRef)>) -> Rows {
        let columns: Vec<_> = columns.into_iter().map(|(n, a)| (n, a, true)).collect();
        let columns = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let events = (0..columns.num_rows() as u32).collect();
        let message = MessageType::named("t", TypeKey(1)).into();
        Rows { message, payloads: Payloads::Kept, events, columns }
    }

    fn channel() -> Channel {
        Channel::new(Name::from_text("POSE\n"), "log", Encoding::Lcm)
    }

    const EVENT: Event<'static> = Event {
        timestamp: 1_194_098_400_123_456_000,
        sequence: -7,
        channel: ChannelId(0),
        payload: b"",
    };

    /// What the template gives for a row; nothing where a field is missing.
    fn written(template: &str, rows: &Rows, row: usize) -> Option<String> {
        let template = Template::parse(template).unwrap();
        let (bound, mut out) = (template.bind(Some(rows)), b"before".to_vec());
        let is_whole = bound.write(&channel(), &EVENT, Some(row), &mut out);
        assert_eq!(is_whole, bound.missing(Some(row)).is_none());
        let text = String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned();
        assert!(is_whole || text.is_empty());
        is_whole.then_some(text)
    }

    fn whole(template: &str, rows: &Rows) -> String {
        written(template, rows, 0).unwrap()
    }

    fn pose() -> Rows {
        let pos = [Some([Some(1.5), Some(-0.0), Some(1e-7)]), Some([Some(1.0), None, None])];
        let pos = FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(pos, 3);
        let ranges = [Some(vec![Some(1.25f32), Some(0.1)]), Some(vec![])];
        rows(vec![
            ("utime", Arc::new(Int64Array::from(vec![Some(1234), None]))),
            ("pos", Arc::new(pos)),
            ("ranges", Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(ranges))),
            ("name", Arc::new(StringArray::from(vec!["a\u{1b}[2J\nb", ""]))),
            ("bytes", Arc::new(BinaryArray::from(vec![&[0u8, 255, 16][..], b""]))),
            ("channel", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
            ("odd name", Arc::new(BooleanArray::from(vec![true, false]))),
        ])
    }

    #[test]
    fn fields_are_put_in_by_their_paths() {
        let line = "{utime} {pos[0]:.6} {pos[1]:.6} {pos[-1]:.6} {`odd name`}";
        assert_eq!(whole(line, &pose()), "1234 1.500000 -0.000000 0.000000 true");
        assert_eq!(whole("{{{utime}}} }}{{", &pose()), "{1234} }{");
        assert_eq!(whole("", &pose()), "");
    }

    #[test]
    fn lists_are_written_element_by_element() {
        assert_eq!(whole("{ranges[*]:.2}", &pose()), "1.25 0.10");
        assert_eq!(whole("{ranges[*];,}|{ranges[*]:.1; - }", &pose()), "1.25,0.1|1.2 - 0.1");
        assert_eq!(whole("{pos[*]}", &pose()), "1.5 -0.0 1e-7");
        assert_eq!(written("<{ranges[*]}>", &pose(), 1), Some("<>".to_owned()));
        assert_eq!(written("{pos[*]}", &pose(), 1), None, "an element is null");
    }

    #[test]
    fn lists_in_lists_are_written_and_slices_have_their_own_elements() {
        let inner = |n: i32| vec![Some(n), Some(n + 1)];
        let flat = ListArray::from_iter_primitive::<Int32Type, _, _>(
            [inner(0), inner(10), inner(20), inner(30)].map(Some),
        );
        let element = Arc::new(Field::new("e", flat.data_type().clone(), true));
        let offsets = arrow_buffer::OffsetBuffer::from_lengths([1, 2, 1]);
        let list = ListArray::new(element, offsets, Arc::new(flat), None).slice(1, 2);
        let rows = rows(vec![("m", Arc::new(list))]);
        assert_eq!(whole("{m[*][*]}", &rows), "10 11 20 21");
        assert_eq!(whole("{m[*]}", &rows), "[10,11] [20,21]");
        assert_eq!(whole("{m}", &rows), "[[10,11],[20,21]]");
        assert_eq!(written("{m[*][*]:03;/}", &rows, 1).unwrap(), "030/031");
        assert_eq!(written("{m[*][*][*]}", &rows, 0), None);
    }

    #[test]
    fn what_every_event_has_is_there_without_fields() {
        let template =
            Template::parse("{channel} {source} {sequence:04} {timestamp_ns} {timestamp}").unwrap();
        let mut out = Vec::new();
        assert!(template.bind(None).write(&channel(), &EVENT, None, &mut out));
        let wanted =
            "POSE\\n log -007 1194098400123456000 2007-11-03T14:00:00.123456000Z".to_owned();
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
        assert_eq!(whole("{`channel`}", &pose()), u64::MAX.to_string());
        assert!(template.fields().next().is_none());
    }

    #[test]
    fn times_from_the_start_of_a_log_are_seconds() {
        let mut channel = channel();
        channel.clock = Clock::Relative;
        let (template, mut out) = (Template::parse("{timestamp}").unwrap(), Vec::new());
        let event = Event { timestamp: -10_027_000_001, ..EVENT };
        assert!(template.bind(None).write(&channel, &event, None, &mut out));
        assert_eq!(out, b"-10.027000001");
    }

    #[test]
    fn a_missing_field_leaves_nothing_and_is_named() {
        for (line, row) in [("x{nowhere}", 0), ("{pos[0]} {pos[1]}", 1), ("{utime}", 1)] {
            assert_eq!(written(line, &pose(), row), None, "{line}");
        }
        let template = Template::parse("{utime}{pos[1]}").unwrap();
        let rows = pose();
        assert_eq!(template.bind(Some(&rows)).missing(Some(1)).unwrap().to_string(), "utime");
        assert_eq!(template.bind(None).missing(None).unwrap().to_string(), "utime");
        let named: Vec<_> = template.fields().map(FieldPath::to_string).collect();
        assert_eq!(named, ["utime", "pos[1]"]);
    }

    #[test]
    fn texts_cannot_break_lines_and_bytes_are_base64() {
        assert_eq!(whole("{name} {bytes}", &pose()), "a\\u{1b}[2J\\nb AP8Q");
        assert_eq!(written("<{name}>", &pose(), 1).unwrap(), "<>");
    }

    #[test]
    fn what_is_no_number_is_as_wide_in_characters_as_wanted() {
        let rows = rows(vec![
            ("s", Arc::new(StringArray::from(vec!["é→"]))),
            ("b", Arc::new(BooleanArray::from(vec![true]))),
        ]);
        assert_eq!(whole("{s:4}|{s:1}|{b:06}|{b:3}|", &rows), "  é→|é→|  true|true|");
    }

    #[test]
    fn texts_behind_dictionaries_are_texts() {
        let words: DictionaryArray<Int32Type> = ["say \"so\"", "a\nb"].into_iter().collect();
        let element = Arc::new(Field::new("e", words.data_type().clone(), true));
        let offsets = arrow_buffer::OffsetBuffer::from_lengths([2]);
        let list = ListArray::new(element, offsets, Arc::new(words), None);
        assert_eq!(whole("{l[*];|}", &rows(vec![("l", Arc::new(list))])), "say \"so\"|a\\nb");
    }

    #[test]
    fn a_text_that_is_too_long_is_none_and_no_field_is_missing() {
        let count = MOST_TEXT / 64 + 2;
        let element = Arc::new(Field::new("e", DataType::Int8, true));
        let offsets = arrow_buffer::OffsetBuffer::from_lengths([count]);
        let bytes = Arc::new(Int8Array::from(vec![1; count]));
        let rows = rows(vec![("v", Arc::new(ListArray::new(element, offsets, bytes, None)))]);
        assert!(written("{v[*]}", &rows, 0).is_some());
        let template = Template::parse("{v[*]:64}").unwrap();
        let (bound, mut out) = (template.bind(Some(&rows)), Vec::new());
        assert!(!bound.write(&channel(), &EVENT, Some(0), &mut out));
        assert!(out.is_empty() && bound.missing(Some(0)).is_none());
    }

    fn float(value: f64, template: &str) -> String {
        whole(template, &rows(vec![("x", Arc::new(Float64Array::from(vec![value])))]))
    }

    #[test]
    fn numbers_are_written_as_c_does_it() {
        for (value, format, wanted) in [
            (0.5, ".0", "0"),
            (1.5, ".0", "2"),
            (2.5, ".0", "2"),
            (0.125, ".2", "0.12"),
            (0.375, ".2", "0.38"),
            (2.675, ".2", "2.67"),
            (0.999_999_5, ".6", "1.000000"),
            (-0.000_000_4, ".6", "-0.000000"),
            (1e300, ".0", &format!("{:.0}", 1e300)),
            (5e-324, ".3", "0.000"),
            (0.1, ".25", "0.1000000000000000055511151"),
            (-2.5, "08.2", "-0002.50"),
            (-2.5, "8.2", "   -2.50"),
            (2.5, "2", "2.5"),
            (f64::NAN, ".6", "nan"),
            (f64::NEG_INFINITY, "06.1", "  -inf"),
            (f64::INFINITY, ".1", "inf"),
        ] {
            assert_eq!(float(value, &format!("{{x:{format}}}")), wanted, "{value} {format}");
        }
        assert_eq!((float(f64::NAN, "{x}"), float(0.1, "{x}")), ("nan".into(), "0.1".into()));
    }

    #[test]
    fn every_kind_of_number_and_time_is_one() {
        let rows = rows(vec![
            ("i", Arc::new(PrimitiveArray::<Int16Type>::from(vec![-5]))),
            ("f", Arc::new(Float32Array::from(vec![0.1]))),
            ("t", Arc::new(TimestampNanosecondArray::from(vec![12]).with_timezone("UTC"))),
            ("d", Arc::new(Date32Array::from(vec![3]))),
            ("b", Arc::new(BooleanArray::from(vec![false]))),
        ]);
        let line = "{i:04} {i:.2} {f} {f:.9} {t:5} {d} {b}";
        assert_eq!(whole(line, &rows), "-005 -5.00 0.1 0.100000001    12 3 false");
    }

    #[test]
    fn mistakes_are_told_with_their_places() {
        for (text, part) in [
            ("a}", "at character 2: `}` without `{`"),
            ("ä{x", "at character 2: this brace has no other"),
            ("{}", "at character 2: expected a name"),
            ("{a b}", "at character 3: expected `.`, `[`, `:` or `}`, found ` `"),
            ("{a[*].x}", "at character 4: `[*]` stands at the end"),
            ("{a[}", "at character 4: expected a whole number"),
            ("{a:}", "at character 3: expected a width"),
            ("{a:6f}", "found `6f`"),
            ("{a:.9999}", "at most 64"),
            ("{a[*]:65}", "at most 64"),
            ("{channel:5}", "formats are for numbers"),
            ("{a;,}", "at character 3: a separator is for elements"),
            ("{`a}", "this brace has no other"),
        ] {
            let message = Template::parse(text).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn options_read_templates_from_strings() {
        let template: Template = serde_json::from_str("\"{a:.2} {{\"").unwrap();
        assert_eq!(serde_json::to_string(&template).unwrap(), "\"{a:.2} {{\"");
        assert!(serde_json::from_str::<Template>("\"{\"").is_err());
    }

    fn any_double() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<f64>(),
            any::<u64>().prop_map(f64::from_bits),
            (any::<i64>(), 0u32..64).prop_map(|(n, by)| n as f64 / (1u64 << by) as f64),
            (-2_000_000i64..2_000_000, 0u32..12).prop_map(|(n, by)| n as f64 / (1u64 << by) as f64),
            (any::<i32>(), 0i32..9).prop_map(|(n, by)| f64::from(n) / 10f64.powi(by)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn decimals_are_exact_to_the_last_digit(value in any_double(), decimals in 0usize..22) {
            prop_assume!(value.is_finite());
            let mut out = Vec::new();
            write_decimals(value, decimals, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!("{value:.decimals$}"));
        }

        #[test]
        fn any_text_is_a_template_or_a_mistake(text in "[a{}:;*.0-9`é\\[\\]]{0,16}|\\PC{0,12}") {
            if let Ok(template) = Template::parse(&text) {
                prop_assert_eq!(template.to_string(), text);
                let mut out = Vec::new();
                template.bind(None).write(&channel(), &EVENT, None, &mut out);
            }
        }

        #[test]
        fn any_text_is_written_by_a_template_that_shields_its_braces(text in "[{}a`]{0,12}|\\PC{0,12}") {
            let shielded = text.replace('{', "{{").replace('}', "}}");
            let (template, mut out) = (Template::parse(&shielded).unwrap(), Vec::new());
            prop_assert!(template.bind(None).write(&channel(), &EVENT, None, &mut out));
            prop_assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
