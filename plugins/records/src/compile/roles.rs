//! What fields are for, beside being columns: lengths, times, numbers, checksums.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::Schema;
use sluice_core::{MessageType, TypeKey};

use crate::checksum::Algorithm;
use crate::columns::{At, Column, Shape};
use crate::format::{Checksum, Extent, Fate, Kind, Spot};
use crate::options::{Epoch, Field, Options, Place, Role, Type, Untimed, Wraps};
use crate::time::{GPS_EPOCH, Leap, Part, Timing, unit_nanos};
use crate::wire::Word;

use super::fields::{Body, Laid, number};
use super::{Draft, End, Mistakes, naming};

/// Two fields may be a time together.
const MOST_TIMES: usize = 2;
/// The times that a counter which begins anew may count to.
const LONGEST_TURN: u64 = 1 << 62;

/// What is the same for all kinds.
pub(super) struct Common {
    pub(super) length: Option<Extent>,
}

/// The roles that are the same for all kinds, and what is wrong with fields whatever they are for.
pub(super) fn common(
    options: &Options,
    head: &[Laid<'_>],
    drafts: &[Draft<'_>],
    mistakes: &mut Mistakes,
) -> Common {
    let body = drafts.iter().flat_map(|draft| &draft.fields);
    let mut lengths = head.iter().chain(body).filter(|laid| laid.has(Role::Length));
    let first = lengths.next();
    for other in lengths {
        other.wrong(mistakes, "role", "there is another length before this one");
    }
    let length = first.and_then(|laid| {
        let is_in_head = head.iter().any(|other| other.path == laid.path);
        if !is_in_head && !options.kinds.is_empty() {
            laid.wrong(mistakes, "role", "where there are `kinds`, the length stands in `head`");
            return None;
        }
        length(laid, mistakes)
    });
    Common { length }
}

fn length(laid: &Laid<'_>, mistakes: &mut Mistakes) -> Option<Extent> {
    let Some((Spot::Start(at), word)) = laid.whole() else {
        let what = "a length is one whole number, in front of all fields of changing size";
        laid.wrong(mistakes, "role", what);
        return None;
    };
    let (counts, plus) = (laid.field.counts.unwrap_or_default(), laid.field.plus.unwrap_or(0));
    if plus.unsigned_abs() > 1 << 30 {
        laid.wrong(mistakes, "plus", "no record is that long");
    }
    Some(Extent::Length { at, word, counts, plus })
}

/// Whether one of these says when an event was.
pub(super) fn has_time(fields: &[Laid<'_>]) -> bool {
    fields.iter().any(|laid| laid.has(Role::Time))
}

/// A kind, of whose fields nothing is left unsaid.
pub(super) fn kind(
    options: &Options,
    (head, tail): (&[Laid<'_>], &[Laid<'_>]),
    draft: Draft<'_>,
    end: &End,
    mistakes: &mut Mistakes,
) -> Kind {
    let fields: Vec<&Laid<'_>> = head.iter().chain(&draft.fields).chain(tail).collect();
    fields.iter().for_each(|laid| check_keys(laid, mistakes));
    let columns = columns(&fields, mistakes);
    let schema = Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()));
    let key =
        TypeKey(Algorithm::Crc64.of(&[draft.name.as_bytes(), format!("{schema:?}").as_bytes()]));
    let is_last = head.len() + draft.fields.len();
    let naming = naming::of(options, &draft, &fields, mistakes);
    Kind {
        fixed: end.fixed,
        least: end.least,
        constants: constants(&fields),
        checksum: checksum(options, &fields, is_last, draft.extra, end, mistakes, &draft.path),
        proof: 0,
        is_doubtful: false,
        fate: Fate::Event,
        timing: timing(options, &fields, &draft.path, mistakes),
        sequence: sequence(&fields, mistakes),
        naming,
        columns,
        schema,
        message: Arc::new(MessageType::named(&*draft.name, key)),
        name: draft.name,
        walk: match draft.body {
            Body::Walked { walk, .. } => Some(walk),
            Body::Fixed(_) | Body::Any => None,
        },
    }
}

/// Keys that say something of a role belong to fields that have it.
fn check_keys(laid: &Laid<'_>, mistakes: &mut Mistakes) {
    let Field { counts, plus, wraps, algorithm, from, until, .. } = laid.field;
    let given = [
        ("counts", Role::Length, counts.is_some()),
        ("plus", Role::Length, plus.is_some()),
        ("wraps", Role::Time, wraps.is_some()),
        ("algorithm", Role::Checksum, algorithm.is_some()),
        ("from", Role::Checksum, from.is_some()),
        ("until", Role::Checksum, until.is_some()),
    ];
    for (key, role, is_given) in given {
        if is_given && !laid.has(role) {
            let word = role.word();
            laid.wrong(mistakes, key, format!("`{key}` is for a field with the role `{word}`"));
        }
    }
}

fn columns(fields: &[&Laid<'_>], mistakes: &mut Mistakes) -> Vec<Column> {
    let (mut columns, mut names) = (Vec::new(), BTreeSet::new());
    for laid in fields {
        for column in &laid.columns {
            if names.insert(column.name.clone()) {
                columns.push(column.clone());
            } else {
                let what = format!("another field of the record is called `{}`", column.name);
                laid.wrong(mistakes, "name", what);
            }
        }
    }
    columns
}

fn constants(fields: &[&Laid<'_>]) -> Vec<(Spot, Vec<u8>)> {
    let constant = |laid: &&Laid<'_>| Some((laid.spot()?.0, laid.constant.clone()?));
    fields.iter().filter_map(constant).collect()
}

fn sequence(fields: &[&Laid<'_>], mistakes: &mut Mistakes) -> Option<(Spot, Word)> {
    let laid = only(fields, Role::Sequence, mistakes)?;
    let whole = laid.whole();
    if whole.is_none() {
        laid.wrong(mistakes, "role", "an event's number is one whole number in a fixed place");
    }
    whole
}

/// The only field with this role.
pub(super) fn only<'f, 'o>(
    fields: &[&'f Laid<'o>],
    role: Role,
    mistakes: &mut Mistakes,
) -> Option<&'f Laid<'o>> {
    let mut found = fields.iter().copied().filter(|laid| laid.has(role));
    let first = found.next();
    for other in found {
        let what = format!("another field of the record has the role `{}`", role.word());
        other.wrong(mistakes, "role", what);
    }
    first
}

fn timing(
    options: &Options,
    fields: &[&Laid<'_>],
    path: &[String],
    mistakes: &mut Mistakes,
) -> Option<Timing> {
    let timed: Vec<_> = fields.iter().filter(|laid| laid.has(Role::Time)).collect();
    if timed.is_empty() {
        if options.untimed == Untimed::Refuse {
            // Where `head` was found wrong and is left out, this may follow from that.
            let is_headless = options.head.is_empty() && !options.kinds.is_empty();
            mistakes.at(
                if is_headless { &[] } else { path },
                "nothing says when an event of it was: give a field the role `time`, or say \
                 `untimed = \"last\"`",
            );
        }
        return None;
    }
    for other in timed.iter().skip(MOST_TIMES) {
        other.wrong(mistakes, "role", "two fields say the time already");
    }
    let parts: Vec<Part> = timed.iter().filter_map(|laid| part(laid, mistakes)).collect();
    let mut wrapping = timed.iter().filter(|laid| is_wrapping(laid.field)).skip(1);
    if let Some(other) = wrapping.next() {
        other.wrong(mistakes, "wraps", "another field of the record begins at 0 again, too");
    }
    let (epoch, leap) = match (options.epoch, options.leap_seconds) {
        (Epoch::Unix | Epoch::Start, _) => (0, Leap::None),
        (Epoch::At(nanos), _) => (nanos, Leap::None),
        (Epoch::Gps, Some(seconds)) => (GPS_EPOCH * 1_000_000_000, Leap::Fixed(seconds)),
        (Epoch::Gps, None) => (GPS_EPOCH * 1_000_000_000, Leap::Known),
    };
    Some(Timing { parts, epoch, leap })
}

fn is_wrapping(field: &Field) -> bool {
    !matches!(field.wraps, None | Some(Wraps::AtTypesEnd(false)))
}

fn part(laid: &Laid<'_>, mistakes: &mut Mistakes) -> Option<Part> {
    let (Some(word), Some((at, _)), Shape::One) = (laid.word, laid.spot(), laid.shape) else {
        laid.wrong(mistakes, "role", "a time is one number in a fixed place");
        return None;
    };
    let Some(unit) = laid.field.unit.as_deref() else {
        mistakes.at(&laid.path, "a time needs a `unit`: weeks, days, s, ms, us or ns");
        return None;
    };
    let Some(unit) = unit_nanos(unit) else {
        let what = format!("`{unit}` is no unit of time: write weeks, days, s, ms, us or ns");
        laid.wrong(mistakes, "unit", what);
        return None;
    };
    let Field { scale, offset, .. } = laid.field;
    let scaled = scale.is_some() || offset.is_some();
    let scale = scaled.then(|| (scale.unwrap_or(1.0), offset.unwrap_or(0.0)));
    let wraps = match laid.field.wraps {
        Some(wraps) if is_wrapping(laid.field) => wrap(laid, wraps, word, scaled, mistakes),
        _ => None,
    };
    Some(Part { at, word, unit, scale, wraps, counter: 0 })
}

fn wrap(
    laid: &Laid<'_>,
    wraps: Wraps,
    word: Word,
    scaled: bool,
    mistakes: &mut Mistakes,
) -> Option<u64> {
    if word.number.is_signed() || word.number.width() == 8 || scaled {
        let what = "only u8, u16, u24 and u32 without a scale can begin at 0 again";
        laid.wrong(mistakes, "wraps", what);
        return None;
    }
    let (_, most) = word.number.range();
    match wraps {
        Wraps::AtTypesEnd(_) => u64::try_from(most + 1).ok(),
        Wraps::At(turn) if (2..=LONGEST_TURN).contains(&turn) && i128::from(turn) <= most + 1 => {
            Some(turn)
        }
        Wraps::At(_) => {
            laid.wrong(mistakes, "wraps", format!("expected a number from 2 to {}", most + 1));
            None
        }
    }
}

fn checksum(
    options: &Options,
    fields: &[&Laid<'_>],
    tail_from: usize,
    extra: Option<u8>,
    end: &End,
    mistakes: &mut Mistakes,
    path: &[String],
) -> Option<Checksum> {
    let Some(laid) = only(fields, Role::Checksum, mistakes) else {
        if extra.is_some() {
            let path: Vec<String> =
                path.iter().cloned().chain(["checksum_extra".to_owned()]).collect();
            mistakes.at(&path, "there is no field with the role `checksum`");
        }
        return None;
    };
    let Some((at, word)) = laid.whole().filter(|(_, word)| !word.number.is_signed()) else {
        laid.wrong(mistakes, "role", "a checksum is one number without a sign in a fixed place");
        return None;
    };
    let Some(algorithm) = laid.field.algorithm else {
        mistakes.at(&laid.path, "a checksum needs an `algorithm`, such as crc32");
        return None;
    };
    if algorithm.bits() != 8 * word.number.width() {
        let (bits, has) = (algorithm.bits(), 8 * word.number.width());
        laid.wrong(mistakes, "algorithm", format!("it gives {bits} bits, and the field has {has}"));
        return None;
    }
    let is_in_front = fields.iter().position(|other| other.path == laid.path) < Some(tail_from)
        && matches!(at, Spot::Start(_))
        && fields.first().is_some_and(|first| is_of(first, "head") && is_of(laid, "head"));
    let behind = move_on(at, word.number.width());
    let from = match &laid.field.from {
        None if is_in_front => behind,
        None => Spot::Start(0),
        Some(Place::Bytes(bytes)) => Spot::Start(usize::try_from(*bytes).unwrap_or(usize::MAX)),
        Some(Place::Field(name)) => named(fields, laid, "from", name, mistakes)?,
    };
    let until = match &laid.field.until {
        None if is_in_front => Spot::End(0),
        None => at,
        Some(name) => named(fields, laid, "until", name, mistakes)?,
    };
    let is_fixed = options.kinds.is_empty() && end.fixed.is_some();
    check_cover(laid, (at, word.number.width()), (from, until), (end.least, is_fixed), mistakes);
    Some(Checksum { at, word, algorithm, from, until, extra })
}

fn is_of(laid: &Laid<'_>, section: &str) -> bool {
    laid.path.first().is_some_and(|first| first == section)
}

fn move_on(spot: Spot, by: usize) -> Spot {
    match spot {
        Spot::Start(at) => Spot::Start(at.saturating_add(by)),
        Spot::End(before) => Spot::End(before.saturating_sub(by)),
    }
}

/// Where the field of that name begins.
fn named(
    fields: &[&Laid<'_>],
    laid: &Laid<'_>,
    key: &str,
    name: &str,
    mistakes: &mut Mistakes,
) -> Option<Spot> {
    let found = fields.iter().find(|other| other.field.name.as_deref() == Some(name));
    match found.map(|other| other.at) {
        Some(At::Spot(spot, _)) => return Some(spot),
        Some(At::Step(_)) => {
            let what = format!("the place of `{name}` differs from record to record");
            laid.wrong(mistakes, key, what);
        }
        None => laid.wrong(mistakes, key, format!("no field of the record is called `{name}`")),
    }
    None
}

/// What a checksum covers lies in every record, and does not hold itself. In some it may be nothing, such as a
/// payload that is not always there, but not in all of them.
fn check_cover(
    laid: &Laid<'_>,
    (at, width): (Spot, usize),
    (from, until): (Spot, Spot),
    (least, is_fixed): (usize, bool),
    mistakes: &mut Mistakes,
) {
    let is_nothing = from == until;
    let places = [from, until, at].map(|spot| spot.in_record(least));
    let [Some(from), Some(until), Some(at)] = places else {
        laid.wrong(mistakes, "role", "what it covers does not lie in every record");
        return;
    };
    if from > until || until > least {
        let what = "what it covers ends before it begins, or behind a short record; give `from` and `until`";
        laid.wrong(mistakes, "role", what);
    } else if is_nothing || from == until && is_fixed {
        laid.wrong(mistakes, "role", "it covers nothing, in any record; give `from` and `until`");
    } else if at < until && at + width > from {
        laid.wrong(mistakes, "role", "it would cover itself; give `from` and `until`");
    }
}

/// The text or whole number in a fixed place that a field is, with its length.
pub(super) fn word_or_text(laid: &Laid<'_>) -> Option<(Spot, usize, Option<Word>)> {
    let (spot, len) = laid.spot()?;
    let is_text = laid.field.kind == Type::Text;
    let is_whole = laid.whole().is_some() && number(laid.field.kind).is_some();
    (is_text || is_whole).then_some((spot, len, laid.word))
}
