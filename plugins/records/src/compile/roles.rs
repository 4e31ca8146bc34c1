//! Compiles the roles of fields: lengths, times, sequence numbers, checksums.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::Schema;
use sluice_kit::columns::{Extent, FieldShape, PayloadField, PayloadPlan, SpanKind};
use sluice_model::{MessageType, TypeKey};

use crate::checksum::Algorithm;
use crate::column::{Arity, FieldPlace, RecordColumn};
use crate::columns;
use crate::format::{Checksum, Disposition, RecordExtent, RecordKind};
use crate::offset::RecordOffset;
use crate::options::{CoverStart, Epoch, Field, Options, Role, UntimedPolicy, WrapPoint};
use crate::time::{GPS_EPOCH, LeapSeconds, TimeField, Timing, unit_nanos};
use crate::walk::{FieldWalk, WalkSize, WalkStep};
use crate::wire::{BinaryNumber, range};

use super::offsets::RecordBody;
use super::placed_field::{PlacedField, only};
use super::{KindDraft, LengthBounds, Mistakes, naming};

/// How many fields may make up a time.
const MAX_TIME_FIELDS: usize = 2;
/// The maximum period of a wrapping counter.
const MAX_WRAP: u64 = 1 << 62;

/// The roles that all kinds share.
pub(super) struct CommonRoles {
    pub(super) length: Option<RecordExtent>,
}

/// Compiles the roles that all kinds share.
pub(super) fn common(
    options: &Options,
    head: &[PlacedField<'_>],
    drafts: &[KindDraft<'_>],
    mistakes: &mut Mistakes,
) -> CommonRoles {
    let body = drafts.iter().flat_map(|draft| &draft.fields);
    let mut lengths = head.iter().chain(body).filter(|placed| placed.has(Role::Length));
    let first = lengths.next();
    for other in lengths {
        other.report(mistakes, "role", "another field already has the role `length`");
    }
    let length = first.and_then(|placed| {
        let is_in_head = head.iter().any(|other| other.path == placed.path);
        if !is_in_head && !options.kinds.is_empty() {
            placed.report(
                mistakes,
                "role",
                "with `kinds`, the field with the role `length` must \
                 be in `head`",
            );
            return None;
        }
        length(placed, mistakes)
    });
    CommonRoles { length }
}

fn length(placed: &PlacedField<'_>, mistakes: &mut Mistakes) -> Option<RecordExtent> {
    let Some((RecordOffset::Start(at), word)) = placed.whole() else {
        let what = "a length must be a single integer before all fields of variable size";
        placed.report(mistakes, "role", what);
        return None;
    };
    let (counts, plus) = (placed.field.counts.unwrap_or_default(), placed.field.plus.unwrap_or(0));
    if plus.unsigned_abs() > 1 << 30 {
        placed.report(mistakes, "plus", "expected a number from -2^30 to 2^30");
    }
    Some(RecordExtent::Length { at, word, counts, plus })
}

/// Whether one of the fields is a time.
pub(super) fn has_time(fields: &[PlacedField<'_>]) -> bool {
    fields.iter().any(|placed| placed.has(Role::Time))
}

/// Compiles a kind.
pub(super) fn kind(
    options: &Options,
    (head, tail): (&[PlacedField<'_>], &[PlacedField<'_>]),
    draft: KindDraft<'_>,
    bounds: &LengthBounds,
    mistakes: &mut Mistakes,
) -> RecordKind {
    let fields: Vec<&PlacedField<'_>> = head.iter().chain(&draft.fields).chain(tail).collect();
    fields.iter().for_each(|placed| check_keys(placed, mistakes));
    let columns = columns(&fields, mistakes);
    let payload = payload_fields(options, (head, tail), &draft);
    let (plan, schema) = match columns::compile(&payload, &columns) {
        Ok(compiled) => compiled,
        Err(what) => {
            // Other mistakes are reported already.
            if mistakes.0.is_empty() {
                mistakes.at(&draft.path, what);
            }
            (PayloadPlan::empty(), Arc::new(Schema::empty()))
        }
    };
    let key = TypeKey(
        Algorithm::Crc64.compute(&[draft.name.as_bytes(), format!("{schema:?}").as_bytes()]),
    );
    // Only payloads hold what is between head and tail of undescribed kinds.
    let message = match draft.body {
        RecordBody::Any => MessageType::part(&*draft.name, key),
        _ => MessageType::named(&*draft.name, key),
    };
    let tail_from = head.len() + draft.fields.len();
    let naming = naming::compile(options, &draft, &fields, mistakes);
    RecordKind {
        fixed_len: bounds.fixed_len,
        min_len: bounds.min_len,
        constants: constants(&fields),
        checksum: checksum(options, &fields, tail_from, draft.extra, bounds, mistakes, &draft.path),
        proof_bits: 0,
        is_doubtful: false,
        disposition: Disposition::Event,
        timing: timing(options, &fields, &draft.path, mistakes),
        sequence: sequence(&fields, mistakes),
        naming,
        plan,
        schema,
        message: Arc::new(message),
        name: draft.name,
        walk: match draft.body {
            RecordBody::Variable { walk, .. } => Some(walk),
            RecordBody::Fixed(_) | RecordBody::Any => None,
        },
    }
}

/// The fields of a record, in order.
fn payload_fields(
    options: &Options,
    (head, tail): (&[PlacedField<'_>], &[PlacedField<'_>]),
    draft: &KindDraft<'_>,
) -> Vec<PayloadField> {
    let walk = match &draft.body {
        RecordBody::Variable { walk, .. } => walk.clone(),
        RecordBody::Fixed(_) | RecordBody::Any => FieldWalk::default(),
    };
    let tail_len = tail.iter().filter_map(PlacedField::spot).map(|(_, len)| len).sum();
    // The sync word is the first member.
    let member = |register: usize| {
        let mut in_head = walk.head_registers.iter().filter(|(.., number)| *number == register);
        let is_at = |at: usize| {
            head.iter().position(|placed| {
                placed.spot().is_some_and(|(spot, _)| spot == RecordOffset::Start(at))
            })
        };
        let is_it = |step: &WalkStep| step.register.is_some_and(|(_, number)| number == register);
        let in_head = in_head.find_map(|(at, ..)| is_at(*at));
        let in_body = || walk.steps.iter().position(is_it).map(|step| head.len() + step);
        in_head.or_else(in_body).map_or(usize::MAX, |place| 1 + place)
    };
    let shape = |placed: &PlacedField<'_>| {
        let size = match placed.at {
            FieldPlace::Fixed(_, len) => WalkSize::Fixed(len),
            FieldPlace::Step(step) => {
                walk.steps.get(step).map_or(WalkSize::Fixed(0), |step| step.size)
            }
        };
        let of = (placed.field.kind, placed.word);
        let shape = columns::shape(of, (size, placed.arity), &placed.columns, member, tail_len);
        PayloadField::new(placed.field.name.clone().unwrap_or_default(), shape)
    };
    let skipped = |extent| PayloadField::new("", FieldShape::Span(SpanKind::Skipped, extent));
    let sync_len = options.sync.as_ref().map_or(0, |sync| sync.0.len());
    let mut fields = vec![skipped(Extent::Fixed(sync_len))];
    fields.extend(head.iter().chain(&draft.fields).map(shape));
    if !matches!(draft.body, RecordBody::Variable { has_rest: true, .. }) {
        fields.push(skipped(Extent::Rest(tail_len)));
    }
    fields.extend(tail.iter().map(shape));
    fields
}

/// Checks that keys of a role are only on fields with that role.
fn check_keys(placed: &PlacedField<'_>, mistakes: &mut Mistakes) {
    let Field { counts, plus, wraps, algorithm, from, until, .. } = placed.field;
    let role_keys = [
        ("counts", Role::Length, counts.is_some()),
        ("plus", Role::Length, plus.is_some()),
        ("wraps", Role::Time, wraps.is_some()),
        ("algorithm", Role::Checksum, algorithm.is_some()),
        ("from", Role::Checksum, from.is_some()),
        ("until", Role::Checksum, until.is_some()),
    ];
    for (key, role, is_given) in role_keys {
        if is_given && !placed.has(role) {
            let word = role.word();
            placed.report(mistakes, key, format!("`{key}` is for a field with the role `{word}`"));
        }
    }
}

fn columns(fields: &[&PlacedField<'_>], mistakes: &mut Mistakes) -> Vec<RecordColumn> {
    let (mut columns, mut names) = (Vec::new(), BTreeSet::new());
    for placed in fields {
        for column in &placed.columns {
            if names.insert(column.name.clone()) {
                columns.push(column.clone());
            } else {
                let what = format!("another field of the record is called `{}`", column.name);
                placed.report(mistakes, "name", what);
            }
        }
    }
    columns
}

fn constants(fields: &[&PlacedField<'_>]) -> Vec<(RecordOffset, Vec<u8>)> {
    let constant = |placed: &&PlacedField<'_>| Some((placed.spot()?.0, placed.constant.clone()?));
    fields.iter().filter_map(constant).collect()
}

fn sequence(
    fields: &[&PlacedField<'_>],
    mistakes: &mut Mistakes,
) -> Option<(RecordOffset, BinaryNumber)> {
    let placed = only(fields, Role::Sequence, mistakes)?;
    let whole = placed.whole();
    if whole.is_none() {
        placed.report(
            mistakes,
            "role",
            "a sequence number must be a single integer at a fixed \
             offset",
        );
    }
    whole
}

fn timing(
    options: &Options,
    fields: &[&PlacedField<'_>],
    path: &[String],
    mistakes: &mut Mistakes,
) -> Option<Timing> {
    let timed: Vec<_> = fields.iter().filter(|placed| placed.has(Role::Time)).collect();
    if timed.is_empty() {
        if options.untimed == UntimedPolicy::Refuse {
            // May follow from `head` having been dropped as wrong.
            let is_headless = options.head.is_empty() && !options.kinds.is_empty();
            mistakes.at(
                if is_headless { &[] } else { path },
                "its events have no time: give a field the role `time`, or set `untimed = \
                 \"last\"`",
            );
        }
        return None;
    }
    for other in timed.iter().skip(MAX_TIME_FIELDS) {
        other.report(mistakes, "role", "two fields already have the role `time`");
    }
    let parts: Vec<TimeField> =
        timed.iter().filter_map(|placed| time_field(placed, mistakes)).collect();
    let mut wrapping = timed.iter().filter(|placed| is_wrapping(placed.field)).skip(1);
    if let Some(other) = wrapping.next() {
        other.report(mistakes, "wraps", "another field of the record has `wraps` already");
    }
    let (epoch, leap) = match (options.epoch, options.leap_seconds) {
        (Epoch::Unix | Epoch::Start, _) => (0, LeapSeconds::None),
        (Epoch::At(nanos), _) => (nanos, LeapSeconds::None),
        (Epoch::Gps, Some(seconds)) => (GPS_EPOCH * 1_000_000_000, LeapSeconds::Fixed(seconds)),
        (Epoch::Gps, None) => (GPS_EPOCH * 1_000_000_000, LeapSeconds::Historical),
    };
    Some(Timing { parts, epoch, leap })
}

fn is_wrapping(field: &Field) -> bool {
    !matches!(field.wraps, None | Some(WrapPoint::AtTypesEnd(false)))
}

fn time_field(placed: &PlacedField<'_>, mistakes: &mut Mistakes) -> Option<TimeField> {
    let (Some(word), Some((at, _)), Arity::One) = (placed.word, placed.spot(), placed.arity) else {
        placed.report(mistakes, "role", "a time must be a single number at a fixed offset");
        return None;
    };
    let Some(unit) = placed.field.unit.as_deref() else {
        mistakes.at(&placed.path, "a time needs a `unit`: weeks, days, s, ms, us or ns");
        return None;
    };
    let Some(unit) = unit_nanos(unit) else {
        let what = format!("`{unit}` is not a unit of time: expected weeks, days, s, ms, us or ns");
        placed.report(mistakes, "unit", what);
        return None;
    };
    let Field { scale, offset, .. } = placed.field;
    let scaled = scale.is_some() || offset.is_some();
    let scale = scaled.then(|| (scale.unwrap_or(1.0), offset.unwrap_or(0.0)));
    let wraps = match placed.field.wraps {
        Some(wraps) if is_wrapping(placed.field) => {
            wrap_point(placed, wraps, word, scaled, mistakes)
        }
        _ => None,
    };
    Some(TimeField { at, word, unit, scale, wraps, counter: 0 })
}

fn wrap_point(
    placed: &PlacedField<'_>,
    wraps: WrapPoint,
    word: BinaryNumber,
    scaled: bool,
    mistakes: &mut Mistakes,
) -> Option<u64> {
    if word.number.is_signed() || word.number.width() == 8 || scaled {
        let what = "only u8, u16, u24 and u32 without a scale can wrap";
        placed.report(mistakes, "wraps", what);
        return None;
    }
    let (_, most) = range(word.number);
    match wraps {
        WrapPoint::AtTypesEnd(_) => u64::try_from(most + 1).ok(),
        WrapPoint::At(turn) if (2..=MAX_WRAP).contains(&turn) && i128::from(turn) <= most + 1 => {
            Some(turn)
        }
        WrapPoint::At(_) => {
            placed.report(mistakes, "wraps", format!("expected a number from 2 to {}", most + 1));
            None
        }
    }
}

fn checksum(
    options: &Options,
    fields: &[&PlacedField<'_>],
    tail_from: usize,
    extra: Option<u8>,
    bounds: &LengthBounds,
    mistakes: &mut Mistakes,
    path: &[String],
) -> Option<Checksum> {
    let Some(placed) = only(fields, Role::Checksum, mistakes) else {
        if extra.is_some() {
            let path: Vec<String> =
                path.iter().cloned().chain(["checksum_extra".to_owned()]).collect();
            mistakes.at(&path, "there is no field with the role `checksum`");
        }
        return None;
    };
    let (at, word, algorithm) = checksum_field(placed, mistakes)?;
    let is_in_front = fields.iter().position(|other| other.path == placed.path) < Some(tail_from)
        && matches!(at, RecordOffset::Start(_))
        && fields.first().is_some_and(|first| is_in(first, "head") && is_in(placed, "head"));
    let behind = advance(at, word.number.width());
    let from = match &placed.field.from {
        None if is_in_front => behind,
        None => RecordOffset::Start(0),
        Some(CoverStart::Bytes(bytes)) => {
            RecordOffset::Start(usize::try_from(*bytes).unwrap_or(usize::MAX))
        }
        Some(CoverStart::Field(name)) => offset_of_field(fields, placed, "from", name, mistakes)?,
    };
    let until = match &placed.field.until {
        None if is_in_front => RecordOffset::End(0),
        None => at,
        Some(name) => offset_of_field(fields, placed, "until", name, mistakes)?,
    };
    let is_fixed = options.kinds.is_empty() && bounds.fixed_len.is_some();
    check_cover(
        placed,
        (at, word.number.width()),
        (from, until),
        (bounds.min_len, is_fixed),
        mistakes,
    );
    Some(Checksum { at, word, algorithm, from, until, extra })
}

/// The offset, number and algorithm of a field with the role `checksum`.
fn checksum_field(
    placed: &PlacedField<'_>,
    mistakes: &mut Mistakes,
) -> Option<(RecordOffset, BinaryNumber, Algorithm)> {
    let Some((at, word)) = placed.whole().filter(|(_, word)| !word.number.is_signed()) else {
        placed.report(
            mistakes,
            "role",
            "a checksum must be a single unsigned number at a fixed \
             offset",
        );
        return None;
    };
    let Some(algorithm) = placed.field.algorithm else {
        mistakes.at(&placed.path, "a checksum needs an `algorithm`, such as crc32");
        return None;
    };
    if algorithm.bits() != 8 * word.number.width() {
        let (bits, has) = (algorithm.bits(), 8 * word.number.width());
        placed.report(
            mistakes,
            "algorithm",
            format!("it has {bits} bits, but the field has {has}"),
        );
        return None;
    }
    Some((at, word, algorithm))
}

fn is_in(placed: &PlacedField<'_>, section: &str) -> bool {
    placed.path.first().is_some_and(|first| first == section)
}

fn advance(spot: RecordOffset, by: usize) -> RecordOffset {
    match spot {
        RecordOffset::Start(at) => RecordOffset::Start(at.saturating_add(by)),
        RecordOffset::End(before) => RecordOffset::End(before.saturating_sub(by)),
    }
}

/// The offset of the field called `name`.
fn offset_of_field(
    fields: &[&PlacedField<'_>],
    placed: &PlacedField<'_>,
    key: &str,
    name: &str,
    mistakes: &mut Mistakes,
) -> Option<RecordOffset> {
    let found = fields.iter().find(|other| other.field.name.as_deref() == Some(name));
    match found.map(|other| other.at) {
        Some(FieldPlace::Fixed(spot, _)) => return Some(spot),
        Some(FieldPlace::Step(_)) => {
            let what = format!("the offset of `{name}` differs from record to record");
            placed.report(mistakes, key, what);
        }
        None => placed.report(mistakes, key, format!("no field of the record is called `{name}`")),
    }
    None
}

/// Checks that the covered bytes are in every record and do not include the checksum. They may be
/// empty in some records, such as an optional payload, but not in all.
fn check_cover(
    placed: &PlacedField<'_>,
    (at, width): (RecordOffset, usize),
    (from, until): (RecordOffset, RecordOffset),
    (min_len, is_fixed): (usize, bool),
    mistakes: &mut Mistakes,
) {
    let is_nothing = from == until;
    let places = [from, until, at].map(|spot| spot.in_record(min_len));
    let [Some(from), Some(until), Some(at)] = places else {
        placed.report(mistakes, "role", "what it covers is not in every record");
        return;
    };
    if from > until || until > min_len {
        let what = "what it covers ends before it starts, or after the end of a short record; give \
                    `from` and `until`";
        placed.report(mistakes, "role", what);
    } else if is_nothing || from == until && is_fixed {
        placed.report(mistakes, "role", "it covers nothing in any record; give `from` and `until`");
    } else if at < until && at + width > from {
        placed.report(mistakes, "role", "it would cover itself; give `from` and `until`");
    }
}
