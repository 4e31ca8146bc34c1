//! Checks a description and compiles it into a [`RecordFormat`]. Opens no log.

mod fields;
mod key;
mod naming;
mod offsets;
mod placed_field;
mod roles;

use memchr::memmem::Finder;
use sluice_model::{Clock, OptionsError};

use crate::format::{Disposition, HeaderEnd, KindKey, RecordExtent, RecordFormat, RecordKind};
use crate::naming::ChannelNaming;
use crate::offset::RecordOffset;
use crate::options::{Epoch, HeaderOption, Literal, Options, OtherKinds, Role, UntimedPolicy};

use crate::time::MAX_COUNTERS;

use offsets::RecordBody;
use placed_field::PlacedField;

/// Longer records would not fit into a batch, where text that is not UTF-8 takes four times the
/// space.
const MAX_RECORD_LEN: u64 = 256 << 20;
/// The maximum number of kinds.
const MAX_KINDS: usize = 4096;
/// How many bytes decide whether a record may start at a position, if heads are shorter.
const MAX_LOOKAHEAD: usize = 128;

/// The compiled format.
///
/// `Err` is the first mistake, with its key. Further lines list other mistakes of the same option.
pub(crate) fn compile(options: &Options) -> Result<RecordFormat, OptionsError> {
    let mut mistakes = Mistakes::default();
    let format = build_format(options, &mut mistakes);
    match (mistakes.into_error(), format) {
        (None, Some(format)) => Ok(format),
        (Some(error), _) => Err(error),
        (None, None) => Err(OptionsError::at("fields", "it describes no record")),
    }
}

/// The mistakes found so far, each once.
#[derive(Debug, Default)]
struct Mistakes(Vec<OptionsError>);

/// The keys that lead to a value.
type KeyPath = Vec<String>;

impl Mistakes {
    fn at(&mut self, path: &[String], message: impl Into<String>) {
        let mistake = OptionsError { path: path.to_vec(), message: message.into() };
        if !self.0.contains(&mistake) {
            self.0.push(mistake);
        }
    }

    fn at_key(&mut self, key: &str, message: impl Into<String>) {
        self.at(&[key.to_owned()], message);
    }

    /// The first mistake, with others of the same key. The caller drops that key and tries again,
    /// and so gets the mistakes of other keys.
    fn into_error(self) -> Option<OptionsError> {
        let mut mistakes = self.0;
        mistakes.sort_by_cached_key(|mistake| sort_key(&mistake.path));
        let mut mistakes = mistakes.into_iter();
        let mut first = mistakes.next()?;
        let same = mistakes.filter(|other| other.path.first() == first.path.first());
        let others: Vec<String> = same
            .map(|other| format!("also at `{}`: {}", other.path.join("."), other.message))
            .collect();
        if !others.is_empty() {
            first.message = format!("{}\n\n{}", first.message, others.join("\n"));
        }
        Some(first)
    }
}

/// Sort key of a mistake: those in fields last, because nothing is left to describe without fields;
/// then in list order, and mistakes of a whole list after those of its items.
fn sort_key(path: &[String]) -> (bool, bool, Vec<(Option<usize>, String)>) {
    let first = path.first().map(String::as_str);
    let is_in_fields = matches!(first, None | Some("head" | "fields" | "tail" | "kinds"));
    let keys = path.iter().map(|key| (key.parse().ok(), key.clone())).collect();
    (is_in_fields, path.len() <= 1, keys)
}

fn path(keys: &[&str]) -> KeyPath {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

/// A kind before it is compiled.
struct KindDraft<'o> {
    name: String,
    /// The keys that lead to it.
    path: KeyPath,
    channel: Option<(&'o str, KeyPath)>,
    extra: Option<u8>,
    fields: Vec<PlacedField<'o>>,
    body: RecordBody,
}

/// The fields of head and tail, which all kinds share.
struct SharedFields<'o> {
    head: Vec<PlacedField<'o>>,
    head_len: usize,
    tail: Vec<PlacedField<'o>>,
    tail_len: usize,
}

impl SharedFields<'_> {
    fn bounds(&self, draft: &KindDraft<'_>) -> LengthBounds {
        LengthBounds::from_draft(draft, self.head_len + self.tail_len)
    }
}

fn build_format(options: &Options, mistakes: &mut Mistakes) -> Option<RecordFormat> {
    if options.head.is_empty() && options.fields.is_empty() && options.kinds.is_empty() {
        // May follow from `fields` having been dropped as wrong.
        mistakes.at(&[], "`records` needs the fields of a record: `fields`, or `kinds`");
        return None;
    }
    check_keys(options, mistakes);
    let sync_len = options.sync.as_ref().map_or(0, |sync| sync.0.len());
    let max_len = usize::try_from(options.max_record.0.min(MAX_RECORD_LEN)).unwrap_or_default();
    let mut layout = fields::FieldLayout { options, max_len, mistakes };
    let (head, head_len) = layout.head(sync_len);
    let (tail, tail_len) = layout.tail();
    let mut drafts = layout.drafts(&head, head_len);
    let shared = SharedFields { head, head_len, tail, tail_len };
    let roles = roles::common(options, &shared.head, &drafts, mistakes);
    let key = key::compile(options, &shared.head, mistakes);
    let others = others(options, &shared, roles.length.is_some());
    if others == Some(Disposition::Event) {
        drafts.push(KindDraft::others());
    }
    let bounds: Vec<LengthBounds> = drafts.iter().map(|draft| shared.bounds(draft)).collect();
    let keeps_others = others == Some(Disposition::Event);
    let extent = extent(options, &roles, &bounds, keeps_others, mistakes)?;
    let mut kinds = compile_kinds(options, &shared, drafts, &bounds, mistakes);
    check_times(options, &kinds, mistakes);
    kinds.extend(unread_kind(options, &shared, others, extent, mistakes));
    let other = others.and(kinds.len().checked_sub(1)).filter(|last| *last >= options.kinds.len());
    let key = key.map(|key| KindKey { other, ..key });
    number_counters(&mut kinds, mistakes);
    let prefix_len = prefix_len(sync_len, key.as_ref(), extent);
    let min_len = kinds.iter().map(|kind| kind.min_len).min().unwrap_or_default();
    let mut format = RecordFormat {
        magic: options.magic.clone().map_or_else(Vec::new, |magic| magic.0),
        header: header(options),
        sync: Finder::new(options.sync.as_ref().map_or(&[][..], |sync| &sync.0)).into_owned(),
        prefix_len,
        lookahead: min_len.clamp(prefix_len, prefix_len.max(MAX_LOOKAHEAD)),
        head_len,
        tail_len,
        extent,
        key,
        kinds,
        max_len,
        anchor: None,
        is_marked: false,
        clock: if options.epoch == Epoch::Start { Clock::Relative } else { Clock::Utc },
        is_sequential: false,
    };
    complete(&mut format, options, other);
    naming::check(options, &format, mistakes);
    Some(format)
}

/// The kinds that are events, in the order of their drafts.
fn compile_kinds(
    options: &Options,
    shared: &SharedFields<'_>,
    drafts: Vec<KindDraft<'_>>,
    bounds: &[LengthBounds],
    mistakes: &mut Mistakes,
) -> Vec<RecordKind> {
    let max_len = usize::try_from(options.max_record.0.min(MAX_RECORD_LEN)).unwrap_or_default();
    let mut kinds = Vec::new();
    for (draft, bounds) in drafts.into_iter().zip(bounds) {
        if max_len > 0 && bounds.min_len > max_len {
            let min_len = bounds.min_len;
            let what = format!("its records have {min_len} bytes, and `max_record` is {max_len}");
            mistakes.at(&draft.path, what);
        }
        kinds.push(roles::kind(options, (&shared.head, &shared.tail), draft, bounds, mistakes));
    }
    kinds
}

/// The kind of records that are skipped or damage because their kind is not described.
fn unread_kind(
    options: &Options,
    shared: &SharedFields<'_>,
    others: Option<Disposition>,
    extent: RecordExtent,
    mistakes: &mut Mistakes,
) -> Option<RecordKind> {
    let disposition = others.filter(|others| *others != Disposition::Event)?;
    if !matches!(extent, RecordExtent::Fields) || options.sync.is_some() {
        // Only their length matters, so mistakes in their fields do not.
        let (draft, fields) = (KindDraft::others(), (&*shared.head, &*shared.tail));
        let bounds = shared.bounds(&draft);
        let kind = roles::kind(options, fields, draft, &bounds, &mut Mistakes::default());
        return Some(RecordKind {
            disposition,
            timing: None,
            naming: ChannelNaming::Source,
            ..kind
        });
    }
    if disposition == Disposition::Skip {
        mistakes.at_key(
            "other_kinds",
            "nothing tells where records of other kinds end, so that they cannot be skipped: give \
             a field of `head` the role `length`, or the log a `sync`",
        );
    }
    None
}

/// Fills in what follows from the kinds. `other` is the kind of records that are not described.
fn complete(format: &mut RecordFormat, options: &Options, other: Option<usize>) {
    if let Some(other) = other.and_then(|other| format.kinds.get_mut(other))
        && options.kinds.values().any(|kind| kind.checksum_extra.is_some())
    {
        // The extra byte of an undescribed kind is unknown, so no checksum of it could match.
        other.checksum = None;
    }
    format.is_sequential = format.kinds.iter().any(is_sequential);
    set_proof_bits(format, other);
    format.anchor = anchor(options.sync.as_ref(), format);
}

/// Checks options that do not depend on fields.
fn check_keys(options: &Options, mistakes: &mut Mistakes) {
    if !options.kinds.is_empty() && !options.fields.is_empty() {
        mistakes.at_key(
            "fields",
            "`kinds` have their own fields: put what all of them share into `head` or `tail`",
        );
    }
    // If a field has the role `kind`, the mistake is there.
    let has_kind = options.head.iter().any(|field| field.role == Some(Role::Kind));
    if options.kinds.is_empty() && options.other_kinds.is_some() && !has_kind {
        mistakes.at_key("other_kinds", "`other_kinds` needs `kinds`");
    }
    if options.kinds.len() > MAX_KINDS {
        mistakes.at_key("kinds", format!("expected at most {MAX_KINDS} kinds"));
    }
    if options.leap_seconds.is_some() && options.epoch != Epoch::Gps {
        mistakes.at_key("leap_seconds", "`leap_seconds` needs `epoch = \"gps\"`");
    }
    if options.leap_seconds.is_some_and(|seconds| seconds.unsigned_abs() > 1000) {
        mistakes.at_key(
            "leap_seconds",
            "expected at most 1000 seconds; GPS has been 18 seconds \
             ahead of UTC since 2017",
        );
    }
    if options.max_record.0 == 0 || options.max_record.0 > MAX_RECORD_LEN {
        mistakes.at_key("max_record", "expected a size from 1B to 256MiB");
    }
    if let Some(HeaderOption::Bytes(len)) = options.header {
        let magic = options.magic.as_ref().map_or(0, |magic| magic.0.len() as u64);
        if len < magic {
            let what = format!(
                "the header has {len} bytes, fewer than the {magic} of `magic`, which it \
                         includes"
            );
            mistakes.at_key("header", what);
        }
        if len > 1 << 40 {
            mistakes.at_key("header", "expected a header of at most 1 TiB");
        }
    }
}

impl KindDraft<'_> {
    /// The draft for records of undescribed kinds.
    fn others() -> Self {
        Self {
            name: "other".to_owned(),
            path: path(&["other_kinds"]),
            channel: None,
            extra: None,
            fields: Vec::new(),
            body: RecordBody::Any,
        }
    }
}

/// What happens to records of undescribed kinds; `None` without `kinds`.
fn others(options: &Options, shared: &SharedFields<'_>, has_length: bool) -> Option<Disposition> {
    if options.kinds.is_empty() {
        return None;
    }
    let is_timed = roles::has_time(&shared.head) || roles::has_time(&shared.tail);
    let has_ends = has_length || options.sync.is_some();
    let keeps = has_ends && (is_timed || options.untimed == UntimedPolicy::Last);
    Some(match options.other_kinds {
        Some(OtherKinds::Keep) => Disposition::Event,
        Some(OtherKinds::Skip) => Disposition::Skip,
        Some(OtherKinds::Damage) => Disposition::Damage,
        None if keeps => Disposition::Event,
        None => Disposition::Damage,
    })
}

/// The bounds of the length of a kind's records.
struct LengthBounds {
    fixed_len: Option<usize>,
    min_len: usize,
    /// Whether a field takes the rest of the record, so that its fields do not tell where it ends.
    has_rest: bool,
}

impl LengthBounds {
    fn from_draft(draft: &KindDraft<'_>, beside: usize) -> Self {
        match &draft.body {
            RecordBody::Fixed(len) => {
                let len = len + beside;
                Self { fixed_len: Some(len), min_len: len, has_rest: false }
            }
            RecordBody::Variable { min_len, has_rest, .. } => {
                Self { fixed_len: None, min_len: min_len + beside, has_rest: *has_rest }
            }
            RecordBody::Any => Self { fixed_len: None, min_len: beside, has_rest: false },
        }
    }
}

/// How the end of a record is found.
fn extent(
    options: &Options,
    roles: &roles::CommonRoles,
    bounds: &[LengthBounds],
    keeps_others: bool,
    mistakes: &mut Mistakes,
) -> Option<RecordExtent> {
    if let Some(length) = roles.length {
        return Some(length);
    }
    if bounds.iter().any(|kind| kind.min_len == 0) {
        // May follow from fields having been dropped as wrong.
        mistakes.at(&[], "a record needs at least one byte: give it a field");
        return None;
    }
    let others_end = !keeps_others || options.sync.is_some();
    if others_end && bounds.iter().all(|kind| !kind.has_rest) {
        return Some(RecordExtent::Fields);
    }
    if options.sync.is_some() {
        return Some(RecordExtent::Sync);
    }
    let key = if options.kinds.is_empty() { "fields" } else { "kinds" };
    mistakes.at_key(
        key,
        "nothing tells where a record ends: give a field the role `length`, or the log a `sync`, \
         or leave out `rest` and `other_kinds`",
    );
    None
}

fn header(options: &Options) -> HeaderEnd {
    match &options.header {
        Some(HeaderOption::Bytes(len)) => HeaderEnd::Bytes(*len),
        Some(HeaderOption::Until(text)) => HeaderEnd::Until(text.clone()),
        None => HeaderEnd::Bytes(options.magic.as_ref().map_or(0, |magic| magic.0.len() as u64)),
    }
}

/// Length of the prefix that determines kind and length. Every record is at least as long.
fn prefix_len(sync: usize, key: Option<&crate::format::KindKey>, extent: RecordExtent) -> usize {
    let length = match extent {
        RecordExtent::Length { at, word, .. } => at + word.number.width(),
        RecordExtent::Fields | RecordExtent::Sync => 0,
    };
    sync.max(length).max(key.map_or(0, |key| key.at + key.len)).max(1)
}

fn is_sequential(kind: &RecordKind) -> bool {
    let wraps = |timing: &crate::time::Timing| timing.parts.iter().any(|part| part.wraps.is_some());
    kind.disposition == Disposition::Event && kind.timing.as_ref().is_none_or(wraps)
}

fn check_times(options: &Options, kinds: &[RecordKind], mistakes: &mut Mistakes) {
    let is_last = options.untimed == UntimedPolicy::Last;
    if is_last && kinds.iter().all(|kind| kind.timing.is_none()) {
        mistakes.at_key("untimed", "no record has a time: give a field the role `time`");
    }
}

/// Assigns counters: fields of the same unit and period share one, whatever their kinds.
fn number_counters(kinds: &mut [RecordKind], mistakes: &mut Mistakes) {
    let mut known: Vec<(i64, u64)> = Vec::new();
    let timings = kinds.iter_mut().filter_map(|kind| kind.timing.as_mut());
    for part in timings.flat_map(|timing| &mut timing.parts) {
        let Some(turn) = part.wraps else { continue };
        let counter = (part.unit, turn);
        part.counter = known.iter().position(|other| *other == counter).unwrap_or(known.len());
        if part.counter == known.len() {
            known.push(counter);
        }
    }
    if known.len() > MAX_COUNTERS {
        let what = format!("expected at most {MAX_COUNTERS} different counters with `wraps`");
        mistakes.at_key("kinds", what);
    }
}

/// Sets how many bits identify a record of each kind.
fn set_proof_bits(format: &mut RecordFormat, other: Option<usize>) {
    let sync = 8 * format.sync.needle().len();
    let has_checksums = format.kinds.iter().any(|kind| kind.checksum.is_some());
    for (number, kind) in format.kinds.iter_mut().enumerate() {
        let constants: usize = kind.constants.iter().map(|(_, bytes)| 8 * bytes.len()).sum();
        let checksum = kind.checksum.map_or(0, |checksum| checksum.algorithm.bits());
        kind.proof_bits = sync + constants + checksum;
        let is_unchecked = has_checksums && kind.checksum.is_none();
        kind.is_doubtful = kind.proof_bits == 0 || (is_unchecked && other == Some(number));
        format.is_marked |= kind.proof_bits > 0;
    }
}

/// What a search looks for: the sync word, or the longest constant that all kinds have at one
/// offset.
fn anchor(sync: Option<&Literal>, format: &RecordFormat) -> Option<(usize, Finder<'static>)> {
    if let Some(sync) = sync {
        return Some((0, Finder::new(&sync.0).into_owned()));
    }
    let (first, others) = format.kinds.split_first()?;
    let common = first.constants.iter().filter(|constant| {
        matches!(constant.0, RecordOffset::Start(_))
            && others.iter().all(|kind| kind.constants.contains(constant))
    });
    let (spot, bytes) = common.max_by_key(|(_, bytes)| bytes.len())?;
    Some((spot.in_record(0)?, Finder::new(bytes).into_owned()))
}
