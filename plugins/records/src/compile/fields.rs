//! Lays out the fields of a description: their offsets, lengths and columns. Roles are not
//! considered.

use sluice_kit::columns::ViewKind;

use crate::column::{Arity, FieldPlace, RecordColumn, ValueKind};
use crate::offset::RecordOffset;
use crate::options::{Amount, Bits, Constant, Field, FieldType, Options, Role};
use crate::walk::WalkSize;
use crate::wire::{BinaryNumber, NumberType, range};

use super::offsets::{LengthFields, OffsetTracker, RecordBody};
use super::placed_field::PlacedField;
use super::{KeyPath, KindDraft, Mistakes, path};

/// The maximum number of fields.
const MAX_FIELDS: usize = 2_000;

/// The size that means the rest of the record.
const REST: &str = "rest";

/// Lays out the fields of a description.
pub(super) struct FieldLayout<'o, 'm> {
    pub(super) options: &'o Options,
    pub(super) max_len: usize,
    pub(super) mistakes: &'m mut Mistakes,
}

/// The length of a field, as its options say.
enum FieldSize {
    Fixed { bytes: usize, arity: Arity },
    Counted { by: String, width: usize },
    Rest { width: usize },
}

impl<'o> FieldLayout<'o, '_> {
    /// The fields of the head, and its length.
    pub(super) fn head(&mut self, sync: usize) -> (Vec<PlacedField<'o>>, usize) {
        let (mut placed, mut at) = (Vec::new(), sync);
        for (n, field) in self.options.head.iter().enumerate() {
            let path = path(&["head", &n.to_string()]);
            if let Some((bytes, arity)) = self.fixed(field, &path, "head") {
                placed.push(self.place_field(
                    field,
                    path,
                    FieldPlace::Fixed(RecordOffset::Start(at), bytes),
                    arity,
                ));
                at = at.saturating_add(bytes);
            }
        }
        (placed, at)
    }

    /// The fields of the tail, and its length.
    pub(super) fn tail(&mut self) -> (Vec<PlacedField<'o>>, usize) {
        let mut sized = Vec::new();
        for (n, field) in self.options.tail.iter().enumerate() {
            let path = path(&["tail", &n.to_string()]);
            if let Some((bytes, arity)) = self.fixed(field, &path, "tail") {
                sized.push((field, path, bytes, arity));
            }
        }
        let len = sized.iter().fold(0usize, |sum, (.., bytes, _)| sum.saturating_add(*bytes));
        let (mut placed, mut before) = (Vec::new(), len);
        for (field, path, bytes, arity) in sized {
            placed.push(self.place_field(
                field,
                path,
                FieldPlace::Fixed(RecordOffset::End(before), bytes),
                arity,
            ));
            before = before.saturating_sub(bytes);
        }
        (placed, len)
    }

    /// A draft per kind; without `kinds`, one for all records.
    pub(super) fn drafts(
        &mut self,
        head: &[PlacedField<'o>],
        head_len: usize,
    ) -> Vec<KindDraft<'o>> {
        let options = self.options;
        if options.kinds.is_empty() {
            let path = path(&["fields"]);
            let (fields, body) = self.body(&options.fields, &path, head, head_len);
            let (name, extra) = ("record".to_owned(), None);
            return vec![KindDraft { name, path, channel: None, extra, fields, body }];
        }
        let kinds = options.kinds.iter().map(|(key, kind)| {
            let at = path(&["kinds", key]);
            let mut fields_at = at.clone();
            fields_at.push("fields".to_owned());
            let (fields, body) = self.body(&kind.fields, &fields_at, head, head_len);
            let mut channel_at = at.clone();
            channel_at.push("channel".to_owned());
            KindDraft {
                name: kind.name.clone().unwrap_or_else(|| key.clone()),
                path: at,
                channel: kind.channel.as_deref().map(|channel| (channel, channel_at)),
                extra: kind.checksum_extra,
                fields,
                body,
            }
        });
        kinds.collect()
    }

    fn body(
        &mut self,
        fields: &'o [Field],
        path: &KeyPath,
        head: &[PlacedField<'o>],
        head_len: usize,
    ) -> (Vec<PlacedField<'o>>, RecordBody) {
        if fields.len() > MAX_FIELDS {
            self.mistakes.at(path, format!("expected at most {MAX_FIELDS} fields"));
            return (Vec::new(), RecordBody::Fixed(0));
        }
        let mut tracker = OffsetTracker::new(head_len);
        let (mut placed, mut length_fields) = (Vec::new(), LengthFields::from_head(head));
        for (n, field) in fields.iter().enumerate() {
            let mut at = path.clone();
            at.push(n.to_string());
            if let Some(rest) = tracker.rest {
                let what = format!(
                    "field {rest} takes the rest of the record, so none can follow \
                                    it"
                );
                self.mistakes.at(&at, what);
            }
            let Some(field_size) = self.field_size(field, &at) else { continue };
            let Some((size, arity)) = self.size(field_size, &mut length_fields, &at) else {
                continue;
            };
            let place = tracker.place(size);
            tracker.advance(size, n);
            let found = self.place_field(field, at, place, arity);
            length_fields.add(&found, tracker.count() - 1);
            placed.push(found);
        }
        let body = tracker.finish(length_fields);
        (placed, body)
    }

    /// The size of a field in a list where all sizes are fixed.
    fn fixed(&mut self, field: &'o Field, path: &KeyPath, list: &str) -> Option<(usize, Arity)> {
        match self.field_size(field, path)? {
            FieldSize::Fixed { bytes, arity } => Some((bytes, arity)),
            _ => {
                let what =
                    format!("a field of `{list}` needs a fixed size; put others into `fields`");
                self.mistakes.at(path, what);
                None
            }
        }
    }

    /// The size of a field, with the field that declares it looked up.
    fn size(
        &mut self,
        field_size: FieldSize,
        length_fields: &mut LengthFields,
        path: &KeyPath,
    ) -> Option<(WalkSize, Arity)> {
        match field_size {
            FieldSize::Fixed { bytes, arity } => Some((WalkSize::Fixed(bytes), arity)),
            FieldSize::Rest { width } => Some((WalkSize::Rest { width }, Arity::List)),
            FieldSize::Counted { by, width } => match length_fields.register(&by) {
                Ok(by) => Some((WalkSize::Counted { by, width }, Arity::List)),
                Err(what) => {
                    self.mistakes.at(path, what);
                    None
                }
            },
        }
    }

    /// The size of a field as its options give it.
    fn field_size(&mut self, field: &Field, path: &KeyPath) -> Option<FieldSize> {
        if field.kind == FieldType::Missing {
            self.mistakes.at(path, "missing field `type`");
            return None;
        }
        let is_sized = matches!(field.kind, FieldType::Bytes | FieldType::Text | FieldType::Pad);
        let (key, option, other) = match is_sized {
            true => ("size", &field.size, field.count.is_some().then_some("count")),
            false => ("count", &field.count, field.size.is_some().then_some("size")),
        };
        let at = |key: &str| path.iter().cloned().chain([key.to_owned()]).collect::<KeyPath>();
        if let Some(other) = other {
            let what = match is_sized {
                true => "a text, `bytes` or `pad` has a `size`, not a `count`",
                false => "the type determines the size of a number; for a list give `count`",
            };
            self.mistakes.at(&at(other), what);
        }
        let width = number(field.kind).map_or(1, NumberType::width);
        match option {
            None if is_sized => {
                self.mistakes.at(path, "a text, `bytes` or `pad` needs a `size`");
                None
            }
            None => Some(FieldSize::Fixed { bytes: width, arity: Arity::One }),
            Some(Amount::Named(name)) if name == REST => Some(FieldSize::Rest { width }),
            Some(Amount::Named(name)) => Some(FieldSize::Counted { by: name.clone(), width }),
            Some(Amount::Fixed(count)) => {
                let bytes = usize::try_from(*count).ok().and_then(|n| n.checked_mul(width));
                match bytes.filter(|bytes| (1..=self.max_len).contains(bytes)) {
                    Some(bytes) => {
                        let arity = if is_sized { Arity::One } else { Arity::Fixed(bytes / width) };
                        Some(FieldSize::Fixed { bytes, arity })
                    }
                    None => {
                        let max_len = self.max_len;
                        let what = format!(
                            "expected from 1 to as many as fit into {max_len} bytes (`max_record`)"
                        );
                        self.mistakes.at(&at(key), what);
                        None
                    }
                }
            }
        }
    }

    /// Places a field and checks what depends on it only.
    fn place_field(
        &mut self,
        field: &'o Field,
        path: KeyPath,
        at: FieldPlace,
        arity: Arity,
    ) -> PlacedField<'o> {
        let endian = field.endian.unwrap_or(self.options.endian);
        let word = number(field.kind).map(|number| BinaryNumber { number, endian });
        let is_text = matches!(field.kind, FieldType::Bytes | FieldType::Text | FieldType::Pad);
        // Bytes and text are one value, however long.
        let arity = if is_text { Arity::One } else { arity };
        let (columns, constant) = (Vec::new(), None);
        let mut placed = PlacedField { field, path, at, word, arity, columns, constant };
        self.check_scale(&placed);
        placed.constant = self.constant(&placed);
        placed.columns = self.columns(&placed);
        placed
    }

    fn check_scale(&mut self, placed: &PlacedField<'_>) {
        let Field { scale, offset, role, .. } = placed.field;
        for (key, number) in [("scale", scale), ("offset", offset)] {
            let Some(number) = number else { continue };
            if placed.word.is_none() || !placed.field.bits.is_empty() {
                placed.report(self.mistakes, key, format!("only numbers have a `{key}`"));
            } else if role.is_some_and(|role| role != Role::Time) {
                let what = format!("a field with a role other than `time` has no `{key}`");
                placed.report(self.mistakes, key, what);
            } else if !number.is_finite() || (key == "scale" && *number == 0.0) {
                placed.report(
                    self.mistakes,
                    key,
                    "expected a finite number, and a `scale` other \
                     than 0",
                );
            }
        }
    }

    fn constant(&mut self, placed: &PlacedField<'_>) -> Option<Vec<u8>> {
        let value = placed.field.value.as_ref()?;
        let made = match (value, placed.spot()) {
            (_, None) => {
                Err("its offset differs from record to record, so it cannot be compared; \
                              put it before fields of variable size, or into `tail`"
                    .to_owned())
            }
            _ if placed.arity != Arity::One => Err("a list has no `value`".to_owned()),
            (Constant::Flag(flag), _) if placed.field.kind == FieldType::Bool => {
                Ok(vec![u8::from(*flag)])
            }
            (Constant::Flag(_), _) => Err("only a `bool` can be true or false".to_owned()),
            (Constant::Number(number @ (0 | 1)), _) if placed.field.kind == FieldType::Bool => {
                Ok(vec![u8::from(*number == 1)])
            }
            (_, _) if placed.field.kind == FieldType::Bool => {
                Err("expected true or false".to_owned())
            }
            (Constant::Number(number), _) => match placed.word {
                Some(word) if !word.number.is_float() => {
                    let (least, most) = range(word.number);
                    match (least..=most).contains(&i128::from(*number)) {
                        true => Ok(word.bytes(number.cast_unsigned())),
                        false => Err(format!(
                            "expected a number from {least} to {most}, the range \
                             of its type"
                        )),
                    }
                }
                Some(_) => Err("a floating-point number cannot be compared".to_owned()),
                None => Err("expected a text, or bytes such as \"0xb5 62\"".to_owned()),
            },
            (Constant::Bytes(_), _) if placed.word.is_some() => {
                Err("expected a whole number".to_owned())
            }
            (Constant::Bytes(literal), Some((_, len))) if literal.0.len() == len => {
                Ok(literal.0.clone())
            }
            (Constant::Bytes(literal), Some((_, len))) => Err(format!(
                "expected {len} bytes, the size of the field, found {}",
                literal.0.len()
            )),
        };
        made.map_err(|what| placed.report(self.mistakes, "value", what)).ok()
    }

    fn columns(&mut self, placed: &PlacedField<'_>) -> Vec<RecordColumn> {
        let field = placed.field;
        let unit = field.unit.clone();
        let column = |name: &str, value| {
            let (name, unit) = (name.to_owned(), unit.clone());
            RecordColumn { name, unit, value }
        };
        let mut columns = Vec::new();
        for (name, bits) in &field.bits {
            match bits_of(placed, *bits) {
                Ok(what) => columns.push(column(name, ValueKind::Number(what))),
                Err(what) => self.report_bits(placed, name, what),
            }
        }
        let Some(name) = &field.name else { return columns };
        if name.is_empty() || name == REST {
            placed.report(self.mistakes, "name", format!("`{name}` cannot be the name of a field"));
        }
        let scaled = field.scale.is_some() || field.offset.is_some();
        let what = match (field.kind, placed.word) {
            (FieldType::Pad, _) => {
                placed.report(self.mistakes, "name", "padding has no name; use `bytes`");
                return columns;
            }
            (_, Some(_)) if scaled => {
                let (scale, offset) = (field.scale.unwrap_or(1.0), field.offset.unwrap_or(0.0));
                ValueKind::Number(ViewKind::Scaled(scale, offset))
            }
            (_, Some(_)) => ValueKind::Number(ViewKind::Value),
            (FieldType::Bool, _) => ValueKind::Number(ViewKind::NonZero),
            (FieldType::Text, _) => ValueKind::Text,
            _ => ValueKind::Bytes,
        };
        columns.push(column(name, what));
        columns
    }

    fn report_bits(&mut self, placed: &PlacedField<'_>, name: &str, what: String) {
        let path = placed.path.iter().cloned().chain(["bits".to_owned(), name.to_owned()]);
        self.mistakes.at(&path.collect::<KeyPath>(), what);
    }
}

fn bits_of(placed: &PlacedField<'_>, bits: Bits) -> Result<ViewKind, String> {
    let whole = placed.word.filter(|word| !word.number.is_float() && placed.arity == Arity::One);
    let word = whole.ok_or("only an integer has bits")?;
    let width = 8 * word.number.width() as u32;
    let (low, high) = match bits {
        Bits::One(bit) => (bit, bit),
        Bits::Range(low, high) => (low, high),
    };
    if high >= width {
        return Err(format!("its type has bits 0 to {}", width - 1));
    }
    Ok(match bits {
        Bits::One(bit) => ViewKind::Flag(bit),
        Bits::Range(..) => ViewKind::Bits(low, high - low + 1),
    })
}

/// The number type of a field type.
fn number(kind: FieldType) -> Option<NumberType> {
    Some(match kind {
        FieldType::U8 => NumberType::U8,
        FieldType::I8 => NumberType::I8,
        FieldType::U16 => NumberType::U16,
        FieldType::I16 => NumberType::I16,
        FieldType::U24 => NumberType::U24,
        FieldType::I24 => NumberType::I24,
        FieldType::U32 => NumberType::U32,
        FieldType::I32 => NumberType::I32,
        FieldType::U64 => NumberType::U64,
        FieldType::I64 => NumberType::I64,
        FieldType::F32 => NumberType::F32,
        FieldType::F64 => NumberType::F64,
        FieldType::Bool
        | FieldType::Bytes
        | FieldType::Text
        | FieldType::Pad
        | FieldType::Missing => return None,
    })
}
