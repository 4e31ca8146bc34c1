//! Tracks where each field of a record starts, and which fields declare the length of others.

use std::collections::BTreeMap;

use crate::column::{Arity, FieldPlace};
use crate::offset::RecordOffset;
use crate::walk::{FieldWalk, MAX_REGISTERS, WalkSize, WalkStep};
use crate::wire::BinaryNumber;

use super::placed_field::PlacedField;

/// The part of a record between head and tail.
#[derive(Clone, Debug)]
pub(super) enum RecordBody {
    /// A fixed length.
    Fixed(usize),
    /// A length that depends on fields.
    Variable { walk: FieldWalk, min_len: usize, has_rest: bool },
    /// Any length.
    Any,
}

/// Passes fields in order and tracks the offset of the next one.
pub(super) struct OffsetTracker {
    /// The offset of the next field, while it is fixed.
    at: Option<usize>,
    /// The minimum length of the fields so far.
    len: usize,
    walk: FieldWalk,
    /// The number of the field that takes the rest of the record.
    pub(super) rest: Option<usize>,
}

impl OffsetTracker {
    /// A tracker for the fields after a head of this length.
    pub(super) fn new(head_len: usize) -> Self {
        Self { at: Some(head_len), len: 0, walk: FieldWalk::default(), rest: None }
    }

    /// How many fields it has passed.
    pub(super) fn count(&self) -> usize {
        self.walk.steps.len()
    }

    pub(super) fn place(&self, size: WalkSize) -> FieldPlace {
        match (self.at, size) {
            (Some(at), WalkSize::Fixed(len)) => FieldPlace::Fixed(RecordOffset::Start(at), len),
            _ => FieldPlace::Step(self.walk.steps.len()),
        }
    }

    pub(super) fn advance(&mut self, size: WalkSize, number: usize) {
        self.walk.steps.push(WalkStep { size, register: None });
        match size {
            WalkSize::Fixed(len) => {
                self.at = self.at.map(|at| at.saturating_add(len));
                self.len = self.len.saturating_add(len);
            }
            WalkSize::Rest { .. } => (self.at, self.rest) = (None, Some(number)),
            WalkSize::Counted { .. } => self.at = None,
        }
    }

    pub(super) fn finish(mut self, length_fields: LengthFields) -> RecordBody {
        if self.at.is_some() {
            return RecordBody::Fixed(self.len);
        }
        for length_field in length_fields.used() {
            match length_field.place {
                LengthFieldPlace::Head(at) => {
                    self.walk.head_registers.push((at, length_field.word, length_field.register))
                }
                LengthFieldPlace::Step(step) => {
                    if let Some(step) = self.walk.steps.get_mut(step) {
                        step.register = Some((length_field.word, length_field.register));
                    }
                }
            }
        }
        RecordBody::Variable { walk: self.walk, min_len: self.len, has_rest: self.rest.is_some() }
    }
}

/// Fields that may declare the length of others, by name.
pub(super) struct LengthFields {
    by_name: BTreeMap<String, Result<(LengthFieldPlace, BinaryNumber), String>>,
    /// Those in use, in the order of their registers.
    used: Vec<String>,
}

#[derive(Clone, Copy)]
enum LengthFieldPlace {
    Head(usize),
    Step(usize),
}

struct LengthField {
    place: LengthFieldPlace,
    word: BinaryNumber,
    register: usize,
}

impl LengthFields {
    pub(super) fn from_head(head: &[PlacedField<'_>]) -> Self {
        let mut length_fields = Self { by_name: BTreeMap::new(), used: Vec::new() };
        for placed in head {
            if let FieldPlace::Fixed(RecordOffset::Start(at), _) = placed.at {
                length_fields.insert(placed, LengthFieldPlace::Head(at));
            }
        }
        length_fields
    }

    pub(super) fn add(&mut self, placed: &PlacedField<'_>, step: usize) {
        self.insert(placed, LengthFieldPlace::Step(step));
    }

    fn insert(&mut self, placed: &PlacedField<'_>, place: LengthFieldPlace) {
        let Some(name) = &placed.field.name else { return };
        let fits = |word: &BinaryNumber| !word.number.is_signed() && placed.arity == Arity::One;
        let scaled = placed.field.scale.is_some() || placed.field.offset.is_some();
        let length_field = match placed.word.filter(fits) {
            Some(word) if !scaled => Ok((place, word)),
            _ => Err(format!(
                "`{name}` cannot declare a size: expected u8, u16, u24, u32 or u64, without a scale"
            )),
        };
        self.by_name.insert(name.clone(), length_field);
    }

    /// The register of the field called `name`.
    pub(super) fn register(&mut self, name: &str) -> Result<usize, String> {
        match self.by_name.get(name) {
            None => return Err(format!("no earlier field is called `{name}`")),
            Some(Err(what)) => return Err(what.clone()),
            Some(Ok(_)) => {}
        }
        if let Some(register) = self.used.iter().position(|used| used == name) {
            return Ok(register);
        }
        if self.used.len() == MAX_REGISTERS {
            return Err(format!("more than {MAX_REGISTERS} fields declare the length of others"));
        }
        self.used.push(name.to_owned());
        Ok(self.used.len() - 1)
    }

    fn used(&self) -> impl Iterator<Item = LengthField> {
        self.used.iter().enumerate().filter_map(|(register, name)| {
            let (place, word) = self.by_name.get(name)?.as_ref().ok().copied()?;
            Some(LengthField { place, word, register })
        })
    }
}
