//! Finds the mistakes of a description, and makes a [`Format`] of one that has none. Opens no log.

mod fields;
mod key;
mod naming;
mod roles;

use memchr::memmem::Finder;
use sluice_core::{Clock, OptionsError};

use crate::channels::Naming;
use crate::format::{Extent, Fate, Format, Key, Kind, Skip, Spot};
use crate::options::{Epoch, Header, Literal, Options, OtherKinds, Untimed};

use crate::time::MOST_COUNTERS;

use fields::{Body, Laid};

/// Columns of records longer than this would not fit into a batch: text that is no UTF-8 is four times as long there.
const LONGEST: u64 = 256 << 20;
/// More kinds than this are a mistake.
const MOST_KINDS: usize = 4096;
/// How many bytes tell whether a record may begin somewhere, if its head is shorter.
const LONGEST_GLIMPSE: usize = 128;

/// The format that is described.
///
/// `Err` is the first mistake with the key at fault; others of the same option stand in its further lines.
pub fn compile(options: &Options) -> Result<Format, OptionsError> {
    let mut mistakes = Mistakes::default();
    let format = compiled(options, &mut mistakes);
    match (mistakes.into_error(), format) {
        (None, Some(format)) => Ok(format),
        (Some(error), _) => Err(error),
        (None, None) => Err(OptionsError::at("fields", "it describes no record")),
    }
}

/// The mistakes that have been found, each once.
#[derive(Debug, Default)]
struct Mistakes(Vec<OptionsError>);

/// The keys that lead to something.
type Path = Vec<String>;

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

    /// The first mistake, with those of the same key: whoever asks goes on without that key, and hears of others.
    fn into_error(self) -> Option<OptionsError> {
        let mut mistakes = self.0;
        mistakes.sort_by_cached_key(|mistake| in_order(&mistake.path));
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

/// Something by which mistakes are sorted: in fields last, as nothing is left to describe without these; then as they
/// stand in lists, and behind them what is wrong with the list as a whole.
fn in_order(path: &[String]) -> (bool, bool, Vec<(Option<usize>, String)>) {
    let first = path.first().map(String::as_str);
    let is_in_fields = matches!(first, None | Some("head" | "fields" | "tail" | "kinds"));
    let keys = path.iter().map(|key| (key.parse().ok(), key.clone())).collect();
    (is_in_fields, path.len() <= 1, keys)
}

fn path(keys: &[&str]) -> Path {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

/// A kind before it is compiled.
struct Draft<'o> {
    name: String,
    /// The keys that lead to it.
    path: Path,
    channel: Option<(&'o str, Path)>,
    extra: Option<u8>,
    fields: Vec<Laid<'o>>,
    body: Body,
}

fn compiled(options: &Options, mistakes: &mut Mistakes) -> Option<Format> {
    if options.head.is_empty() && options.fields.is_empty() && options.kinds.is_empty() {
        // Where `fields` was found wrong and is left out, this follows from that.
        mistakes.at(&[], "`records` needs the fields of a record: `fields`, or `kinds`");
        return None;
    }
    check_keys(options, mistakes);
    let sync_len = options.sync.as_ref().map_or(0, |sync| sync.0.len());
    let longest = usize::try_from(options.max_record.0.min(LONGEST)).unwrap_or_default();
    let mut ruler = fields::Ruler { options, longest, mistakes };
    let (head, head_len) = ruler.head(sync_len);
    let (tail, tail_len) = ruler.tail();
    let drafts = ruler.bodies(&head, head_len);
    let roles = roles::common(options, &head, &drafts, mistakes);
    let key = key::of(options, &head, mistakes);
    let mut drafts = drafts;
    let others = others(options, &head, &tail, roles.length.is_some());
    if others == Some(Fate::Event) {
        drafts.push(Draft::others());
    }
    let end = |draft: &Draft<'_>| End::of(draft, head_len + tail_len);
    let ends: Vec<End> = drafts.iter().map(end).collect();
    let extent = extent(options, &roles, &ends, mistakes)?;

    let mut kinds = Vec::new();
    for (draft, end) in drafts.into_iter().zip(&ends) {
        let (common, path) = ((&*head, &*tail), draft.path.clone());
        if longest > 0 && end.least > longest {
            let least = end.least;
            mistakes.at(
                &path,
                format!("its records have {least} bytes, and `max_record` is {longest}"),
            );
        }
        kinds.push(roles::kind(options, common, draft, end, mistakes));
    }
    check_times(options, &kinds, mistakes);
    let is_told = !matches!(extent, Extent::Fields);
    match others {
        // They are told from damage by their length only, which none of the mistakes of their fields changes.
        Some(fate @ (Fate::LeftOut | Fate::Damage)) if is_told => {
            let (draft, common) = (Draft::others(), (&*head, &*tail));
            let end = end(&draft);
            let kind = roles::kind(options, common, draft, &end, &mut Mistakes::default());
            kinds.push(Kind { fate, timing: None, naming: Naming::Source, ..kind });
        }
        Some(Fate::LeftOut) => mistakes.at_key(
            "other_kinds",
            "nothing tells where records of other kinds end, so that they cannot be skipped: give a field of \
             `head` the role `length`, or the log a `sync`",
        ),
        _ => {}
    }
    let other = others.and(kinds.len().checked_sub(1)).filter(|last| *last >= options.kinds.len());
    if let Some(other) = other.and_then(|other| kinds.get_mut(other))
        && options.kinds.values().any(|kind| kind.checksum_extra.is_some())
    {
        // Theirs is not known, and so no checksum can be found right.
        other.checksum = None;
    }
    let key = key.map(|key| Key { other, ..key });
    number_counters(&mut kinds, mistakes);
    let reach = reach(sync_len, key.as_ref(), extent);
    let least = kinds.iter().map(|kind| kind.least).min().unwrap_or_default();
    let mut format = Format {
        magic: options.magic.clone().map_or_else(Vec::new, |magic| magic.0),
        header: header(options),
        sync: Finder::new(options.sync.as_ref().map_or(&[][..], |sync| &sync.0)).into_owned(),
        reach,
        glimpse: least.clamp(reach, reach.max(LONGEST_GLIMPSE)),
        head_len,
        tail_len,
        extent,
        key,
        kinds,
        longest,
        anchor: None,
        is_marked: false,
        clock: if options.epoch == Epoch::Start { Clock::Relative } else { Clock::Utc },
        is_sequential: false,
    };
    format.is_sequential = format.kinds.iter().any(is_sequential);
    weigh(&mut format, other);
    format.anchor = anchor(options.sync.as_ref(), &format);
    naming::check(options, &format, mistakes);
    Some(format)
}

/// What can be said of options one by one.
fn check_keys(options: &Options, mistakes: &mut Mistakes) {
    if !options.kinds.is_empty() && !options.fields.is_empty() {
        mistakes.at_key(
            "fields",
            "`kinds` have fields of their own: put what all of them have into `head` or `tail`",
        );
    }
    if options.kinds.is_empty() && options.other_kinds.is_some() {
        mistakes.at_key("other_kinds", "there are no `kinds`, and so no others");
    }
    if options.kinds.len() > MOST_KINDS {
        mistakes.at_key("kinds", format!("these are more than {MOST_KINDS} kinds"));
    }
    if options.leap_seconds.is_some() && options.epoch != Epoch::Gps {
        mistakes.at_key("leap_seconds", "only times of `epoch = \"gps\"` are without leap seconds");
    }
    if options.leap_seconds.is_some_and(|seconds| seconds.unsigned_abs() > 1000) {
        mistakes.at_key("leap_seconds", "GPS is ahead of UTC by some seconds, 18 since 2017");
    }
    if options.max_record.0 == 0 || options.max_record.0 > LONGEST {
        mistakes.at_key("max_record", "expected a size from 1B to 256MiB");
    }
    if let Some(Header::Bytes(len)) = options.header {
        let magic = options.magic.as_ref().map_or(0, |magic| magic.0.len() as u64);
        if len < magic {
            let what =
                format!("the header has {len} bytes, and `magic` alone {magic}; count it in");
            mistakes.at_key("header", what);
        }
        if len > 1 << 40 {
            mistakes.at_key("header", "a header of more than a terabyte");
        }
    }
}

impl Draft<'_> {
    /// Records of kinds that are not described.
    fn others() -> Self {
        Self {
            name: "other".to_owned(),
            path: path(&["other_kinds"]),
            channel: None,
            extra: None,
            fields: Vec::new(),
            body: Body::Any,
        }
    }
}

/// What becomes of records of kinds that are not described; nothing, where all are of one kind.
fn others(
    options: &Options,
    head: &[Laid<'_>],
    tail: &[Laid<'_>],
    has_length: bool,
) -> Option<Fate> {
    if options.kinds.is_empty() {
        return None;
    }
    let is_timed = roles::has_time(head) || roles::has_time(tail);
    let told = has_length || options.sync.is_some();
    let usual = told && (is_timed || options.untimed == Untimed::Last);
    Some(match options.other_kinds {
        Some(OtherKinds::Keep) => Fate::Event,
        Some(OtherKinds::Skip) => Fate::LeftOut,
        Some(OtherKinds::Damage) => Fate::Damage,
        None if usual => Fate::Event,
        None => Fate::Damage,
    })
}

/// How long records of a kind are.
struct End {
    fixed: Option<usize>,
    least: usize,
    /// Whether its fields tell where it ends.
    is_told: bool,
}

impl End {
    fn of(draft: &Draft<'_>, beside: usize) -> Self {
        match &draft.body {
            Body::Fixed(len) => {
                let len = len + beside;
                Self { fixed: Some(len), least: len, is_told: true }
            }
            Body::Walked { least, has_rest, .. } => {
                Self { fixed: None, least: least + beside, is_told: !has_rest }
            }
            Body::Any => Self { fixed: None, least: beside, is_told: false },
        }
    }
}

/// What tells where records end.
fn extent(
    options: &Options,
    roles: &roles::Common,
    ends: &[End],
    mistakes: &mut Mistakes,
) -> Option<Extent> {
    if let Some(length) = roles.length {
        return Some(length);
    }
    if ends.iter().any(|end| end.least == 0) {
        // Where fields were found wrong, this follows from that.
        mistakes.at(&[], "a record without any byte would never end: give it a field");
        return None;
    }
    if ends.iter().all(|end| end.is_told) {
        return Some(Extent::Fields);
    }
    if options.sync.is_some() {
        return Some(Extent::Sync);
    }
    let key = if options.kinds.is_empty() { "fields" } else { "kinds" };
    mistakes.at_key(
        key,
        "nothing tells where a record ends: give a field the role `length`, or the log a `sync`, or leave out \
         `rest` and `other_kinds`",
    );
    None
}

fn header(options: &Options) -> Skip {
    match &options.header {
        Some(Header::Bytes(len)) => Skip::Bytes(*len),
        Some(Header::Until(text)) => Skip::Until(text.clone()),
        None => Skip::Bytes(options.magic.as_ref().map_or(0, |magic| magic.0.len() as u64)),
    }
}

/// How many bytes tell a record's kind and length. All records have as many.
fn reach(sync: usize, key: Option<&crate::format::Key>, extent: Extent) -> usize {
    let length = match extent {
        Extent::Length { at, word, .. } => at + word.number.width(),
        Extent::Fields | Extent::Sync => 0,
    };
    sync.max(length).max(key.map_or(0, |key| key.at + key.len)).max(1)
}

fn is_sequential(kind: &Kind) -> bool {
    let wraps = |timing: &crate::time::Timing| timing.parts.iter().any(|part| part.wraps.is_some());
    kind.fate == Fate::Event && kind.timing.as_ref().is_none_or(wraps)
}

fn check_times(options: &Options, kinds: &[Kind], mistakes: &mut Mistakes) {
    let is_last = options.untimed == Untimed::Last;
    if is_last && kinds.iter().all(|kind| kind.timing.is_none()) {
        mistakes.at_key("untimed", "no record has a time: give a field the role `time`");
    }
}

/// Counters of the same unit and turn are one, whichever kinds they are in; others go on by themselves.
fn number_counters(kinds: &mut [Kind], mistakes: &mut Mistakes) {
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
    if known.len() > MOST_COUNTERS {
        let what = format!("more than {MOST_COUNTERS} different counters begin at 0 again");
        mistakes.at_key("kinds", what);
    }
}

/// Says how much a record of each kind proves.
fn weigh(format: &mut Format, other: Option<usize>) {
    let sync = 8 * format.sync.needle().len();
    let has_checksums = format.kinds.iter().any(|kind| kind.checksum.is_some());
    for (number, kind) in format.kinds.iter_mut().enumerate() {
        let constants: usize = kind.constants.iter().map(|(_, bytes)| 8 * bytes.len()).sum();
        let checksum = kind.checksum.map_or(0, |checksum| checksum.algorithm.bits());
        kind.proof = sync + constants + checksum;
        let is_unchecked = has_checksums && kind.checksum.is_none();
        kind.is_doubtful = kind.proof == 0 || (is_unchecked && other == Some(number));
        format.is_marked |= kind.proof > 0;
    }
}

/// What a search looks for: the sync word, or the longest constant that all kinds have in one place.
fn anchor(sync: Option<&Literal>, format: &Format) -> Option<(usize, Finder<'static>)> {
    if let Some(sync) = sync {
        return Some((0, Finder::new(&sync.0).into_owned()));
    }
    let (first, others) = format.kinds.split_first()?;
    let common = first.constants.iter().filter(|constant| {
        matches!(constant.0, Spot::Start(_))
            && others.iter().all(|kind| kind.constants.contains(constant))
    });
    let (spot, bytes) = common.max_by_key(|(_, bytes)| bytes.len())?;
    Some((spot.in_record(0)?, Finder::new(bytes).into_owned()))
}
