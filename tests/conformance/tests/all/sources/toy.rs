//! A small format with a valid source, and sources with one defect each.
//!
//! A file is a sequence of frames: `TOY1`, milliseconds and length as 4-byte little-endian numbers,
//! then the payload. A frame is valid if another one, or the end of the file, follows.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::Deserialize;
use sluice_io::escape::escaped_path;
use sluice_io::files;
use sluice_model::options::InPaths;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, BatchBuilder, Channel, Damage, Encoding, Error, Input, Name, Query, ReadContext, Reader,
    SniffResult, Source, Split, SplitStart, register,
};

const MAGIC: &[u8] = b"TOY1";
const HEAD: usize = 12;
/// The last bytes of a file whose frames need a next one.
pub(crate) const END: &[u8] = b"TOY1 the end";

/// A valid file of `count` frames.
pub(crate) fn file(count: u32) -> Vec<u8> {
    (0..count).flat_map(|n| frame(n * 10, &payload(n))).collect()
}

fn payload(n: u32) -> Vec<u8> {
    (0..20 + n % 7 * 5).map(|at| (n * 31 + at * 7) as u8).collect()
}

pub(crate) fn frame(ms: u32, payload: &[u8]) -> Vec<u8> {
    [MAGIC, &ms.to_le_bytes(), &(payload.len() as u32).to_le_bytes(), payload].concat()
}

/// The defect of a source. Numbers, because they are parameters of a type.
pub(crate) mod defect {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const LOSES_AT_SEAMS: u8 = 1;
    pub(crate) const DEPENDS_ON_THREADS: u8 = 2;
    pub(crate) const PANICS: u8 = 3;
    pub(crate) const OVERFLOWS_STACK: u8 = 4;
    pub(crate) const HANGS: u8 = 5;
    pub(crate) const GIVES_NOTHING_FOR_EVER: u8 = 6;
    pub(crate) const BELIEVES_LENGTHS: u8 = 7;
    pub(crate) const PASSES_CUT_PAYLOADS: u8 = 8;
    pub(crate) const SWALLOWS_THE_REST: u8 = 9;
    pub(crate) const TELLS_TOO_MUCH_DAMAGE: u8 = 10;
    pub(crate) const FAILS_WITHOUT_A_NAME: u8 = 11;
    pub(crate) const IGNORES_CUT_HEADERS: u8 = 12;
    pub(crate) const ABORTS: u8 = 13;
    pub(crate) const TELLS_TOO_LITTLE_DAMAGE: u8 = 14;
    pub(crate) const REPEATS_AFTER_DAMAGE: u8 = 15;
    pub(crate) const FAILS_ON_SOUND_FILES: u8 = 16;
    pub(crate) const GIVES_EVENTS_FOR_EVER: u8 = 17;
    pub(crate) const COUNTS: u8 = 18;
    pub(crate) const LOSES_IN_WINDOWS: u8 = 19;
    pub(crate) const MISSES_LAST_IN_WINDOWS: u8 = 20;
    pub(crate) const GIVES_UP: u8 = 21;
    pub(crate) const GIVES_NOTHING_OF_DAMAGED: u8 = 22;
    pub(crate) const MISCOUNTS: u8 = 23;
    pub(crate) const LOSES_FIRST: u8 = 24;
    pub(crate) const LOSES_LAST: u8 = 25;
    pub(crate) const TELLS_DAMAGE_TOO_EARLY: u8 = 26;
    /// None either: a frame is valid if another one or [`END`](super::END) follows, but not at the
    /// end of the file.
    pub(crate) const NONE_BUT_NEEDS_NEXT: u8 = 27;
}

/// Reads files of frames.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct ToyLogSource<const DEFECT: u8> {
    /// The files.
    path: InPaths,
    #[serde(skip)]
    events: AtomicI64,
}

/// Accepts any option.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "sluice_model::schemars")]
struct LooseSource {
    /// The files.
    path: InPaths,
}

/// Does not document its option.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct UndocumentedSource {
    /// The files.
    path: InPaths,
    #[serde(default)]
    #[expect(dead_code, reason = "nobody needs it")]
    colour: Option<String>,
}

macro_rules! toys {
    ($($name:literal: $type:ty $(, $field:ident = $value:expr)*;)*) => {
        $(register! {
            source $name: $type,
            about: "reads files of frames",
            sample: concat!("[sources.log]\nplugin = \"", $name, "\"\npath = \"a.toy\"\n# colour = \"red\"\n"),
            extensions: &["toy"]
            $(, $field: $value)*
        })*
    };
}

fn mine(head: &[u8]) -> SniffResult {
    if head.starts_with(b"TOY1") { SniffResult::Maybe } else { SniffResult::No }
}

toys! {
    "toy": ToyLogSource<{ defect::NONE }>;
    "loses-at-seams": ToyLogSource<{ defect::LOSES_AT_SEAMS }>;
    "depends-on-threads": ToyLogSource<{ defect::DEPENDS_ON_THREADS }>;
    "panics": ToyLogSource<{ defect::PANICS }>;
    "overflows-stack": ToyLogSource<{ defect::OVERFLOWS_STACK }>;
    "hangs": ToyLogSource<{ defect::HANGS }>;
    "gives-nothing-for-ever": ToyLogSource<{ defect::GIVES_NOTHING_FOR_EVER }>;
    "gives-events-for-ever": ToyLogSource<{ defect::GIVES_EVENTS_FOR_EVER }>;
    "believes-lengths": ToyLogSource<{ defect::BELIEVES_LENGTHS }>;
    "passes-cut-payloads": ToyLogSource<{ defect::PASSES_CUT_PAYLOADS }>;
    "swallows-the-rest": ToyLogSource<{ defect::SWALLOWS_THE_REST }>;
    "tells-too-much-damage": ToyLogSource<{ defect::TELLS_TOO_MUCH_DAMAGE }>;
    "tells-too-little-damage": ToyLogSource<{ defect::TELLS_TOO_LITTLE_DAMAGE }>;
    "repeats-after-damage": ToyLogSource<{ defect::REPEATS_AFTER_DAMAGE }>;
    "fails-without-a-name": ToyLogSource<{ defect::FAILS_WITHOUT_A_NAME }>;
    "fails-on-sound-files": ToyLogSource<{ defect::FAILS_ON_SOUND_FILES }>;
    "ignores-cut-headers": ToyLogSource<{ defect::IGNORES_CUT_HEADERS }>;
    "aborts": ToyLogSource<{ defect::ABORTS }>;
    "counts": ToyLogSource<{ defect::COUNTS }>;
    "loses-in-windows": ToyLogSource<{ defect::LOSES_IN_WINDOWS }>;
    "misses-last-in-windows": ToyLogSource<{ defect::MISSES_LAST_IN_WINDOWS }>;
    "gives-up": ToyLogSource<{ defect::GIVES_UP }>;
    "gives-nothing-of-damaged": ToyLogSource<{ defect::GIVES_NOTHING_OF_DAMAGED }>;
    "miscounts": ToyLogSource<{ defect::MISCOUNTS }>;
    "loses-first": ToyLogSource<{ defect::LOSES_FIRST }>;
    "loses-last": ToyLogSource<{ defect::LOSES_LAST }>;
    "tells-damage-too-early": ToyLogSource<{ defect::TELLS_DAMAGE_TOO_EARLY }>;
    "needs-next": ToyLogSource<{ defect::NONE_BUT_NEEDS_NEXT }>;
    "loose": LooseSource;
    "untold": UndocumentedSource;
    "claims-pictures": ToyLogSource<{ defect::NONE }>, sniff = |head| {
        if head.starts_with(b"\x89PNG") { SniffResult::Yes } else { mine(head) }
    };
    "panics-on-heads": ToyLogSource<{ defect::NONE }>, sniff = |head| {
        if head[..2] == *b"ZZ" { SniffResult::Maybe } else { SniffResult::No }
    };
}

register! {
    source "no-toml": ToyLogSource<{ defect::NONE }>,
    about: "reads files of frames",
    sample: "[sources.log\nplugin = \"no-toml\"\npath = \"a.toy\"\n",
}

register! {
    source "shows-nothing": ToyLogSource<{ defect::NONE }>,
    about: "reads files of frames",
    sample: "[sources.log]\nplugin = \"shows-nothing\"\n",
}

register! {
    source "talks": ToyLogSource<{ defect::NONE }>,
    about: "Reads files of frames. Also those of others.",
    sample: "[sources.log]\nplugin = \"talks\"\npath = \"a.toy\"\n",
}

/// Events with their positions, and damage.
#[derive(Default)]
struct ParsedFrames {
    events: Vec<(usize, u32, Vec<u8>)>,
    damage: Vec<(usize, usize)>,
}

/// What some bytes start with.
enum FrameHead {
    Frame { ms: u32, len: usize },
    Damage,
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

fn frame_head<const DEFECT: u8>(bytes: &[u8]) -> FrameHead {
    let believed = || {
        let (ms, len) = (number(bytes, 4)?, number(bytes, 8)? as usize);
        let rest = bytes.get(HEAD..)?.get(len..)?;
        let may_end = DEFECT != defect::NONE_BUT_NEEDS_NEXT && MAGIC.starts_with(rest);
        let follows = rest.starts_with(MAGIC) || may_end;
        (bytes.starts_with(MAGIC) && follows).then_some(FrameHead::Frame { ms, len: HEAD + len })
    };
    believed().unwrap_or(FrameHead::Damage)
}

fn dig(depth: u64) -> u64 {
    if depth == u64::MAX { 0 } else { std::hint::black_box(dig(depth + 1)) + 1 }
}

/// Applies the defect at an invalid frame. Returns whether to skip the rest.
fn apply_defect<const DEFECT: u8>(
    bytes: &[u8],
    found: &mut ParsedFrames,
    at: usize,
) -> Result<bool, Error> {
    let len = number(bytes, 8).unwrap_or(0);
    let is_headed = bytes.starts_with(MAGIC) && bytes.len() >= HEAD;
    match DEFECT {
        defect::PANICS => assert!(len < 1 << 24, "a length of {len}"),
        defect::OVERFLOWS_STACK if len > 1 << 30 => assert_ne!(dig(0), 7),
        defect::ABORTS if len > 1 << 30 => std::process::abort(),
        defect::HANGS if len == u32::MAX => loop {
            std::thread::yield_now();
        },
        defect::BELIEVES_LENGTHS if is_headed => {
            let room = vec![0u8; len as usize];
            assert_eq!(std::hint::black_box(room).len(), len as usize);
        }
        defect::PASSES_CUT_PAYLOADS if is_headed && bytes.len() < HEAD + len as usize => {
            let whole = bytes.len() < 200;
            if whole {
                found.events.push((at, number(bytes, 4).unwrap_or(0), bytes[HEAD..].to_vec()));
                return Ok(true);
            }
        }
        defect::SWALLOWS_THE_REST => return Ok(true),
        defect::IGNORES_CUT_HEADERS if bytes.len() < HEAD => return Ok(true),
        defect::FAILS_WITHOUT_A_NAME => return Err(Error::refused("something is wrong")),
        _ => {}
    }
    Ok(false)
}

fn parse<const DEFECT: u8>(bytes: &[u8]) -> Result<ParsedFrames, Error> {
    let (mut found, mut at) = (ParsedFrames::default(), 0);
    while at < bytes.len() {
        if let FrameHead::Frame { ms, len } = frame_head::<DEFECT>(&bytes[at..]) {
            found.events.push((at, ms, bytes[at + HEAD..at + len].to_vec()));
            at += len;
            continue;
        }
        if apply_defect::<DEFECT>(&bytes[at..], &mut found, at)? {
            return Ok(found);
        }
        let is_end = |at: usize| DEFECT == defect::NONE_BUT_NEEDS_NEXT && bytes[at..] == *END;
        if is_end(at) {
            break;
        }
        let is_frame = |bytes| matches!(frame_head::<DEFECT>(bytes), FrameHead::Frame { .. });
        let is_next = |at: &usize| is_frame(&bytes[*at..]) || is_end(*at);
        let end = (at + 1..bytes.len()).find(is_next).unwrap_or(bytes.len());
        let told = match DEFECT {
            defect::TELLS_TOO_MUCH_DAMAGE => number(&bytes[at..], 8).unwrap_or(0) as usize,
            defect::TELLS_TOO_LITTLE_DAMAGE => 1,
            _ => end - at,
        };
        let early = usize::from(DEFECT == defect::TELLS_DAMAGE_TOO_EARLY && at > 0);
        found.damage.push((at - early, told + early));
        if DEFECT == defect::REPEATS_AFTER_DAMAGE {
            let again = found.events.first().cloned();
            found.events.extend(again.map(|(_, ms, payload)| (at, ms, payload)));
        }
        at = end;
    }
    match DEFECT {
        defect::LOSES_FIRST => drop(found.events.drain(..found.events.len().min(1))),
        defect::LOSES_LAST => drop(found.events.pop()),
        _ => {}
    }
    if DEFECT == defect::FAILS_ON_SOUND_FILES {
        return Err(Error::refused("it is not Monday"));
    }
    Ok(found)
}

fn splits(path: &InPaths, target: u64) -> Result<Vec<Split>, Error> {
    Split::from_files(files::expand(&path.0)?, target, |_, len| Ok(0..len))
}

/// The events and the damage that start in a split. Files are read whole, so there is no guessing.
fn read<'s, const DEFECT: u8>(
    split: &Split,
    context: &ReadContext,
    events: &AtomicI64,
) -> Result<Box<dyn Reader + 's>, Error> {
    let bytes = fs::read(&split.input).map_err(|e| Error::io("read", &split.input, e))?;
    let mut found = parse::<DEFECT>(&bytes)?;
    if let Some((at, _)) = found.damage.first() {
        match DEFECT {
            defect::GIVES_UP => {
                return Err(Error::refused(format!("no frame at {at}: {}", split.input.display())));
            }
            defect::GIVES_NOTHING_OF_DAMAGED => {
                found = ParsedFrames { events: Vec::new(), damage: vec![(0, bytes.len())] };
            }
            _ => {}
        }
    }
    let name = Name::from_text("TOY");
    let channel =
        context.channels.intern(Channel::new(name, context.source.clone(), Encoding::Unknown))?;
    let end = split.end.unwrap_or(u64::MAX);
    let is_here = |at: usize| (split.start..end).contains(&(at as u64));
    let mut batch = BatchBuilder::default();
    for (at, ms, payload) in found.events.iter().filter(|(at, ..)| is_here(*at)) {
        if DEFECT == defect::LOSES_AT_SEAMS && (at + HEAD + payload.len()) as u64 > end {
            continue;
        }
        let time = i64::from(*ms) * 1_000_000;
        let is_lost = match DEFECT {
            defect::LOSES_IN_WINDOWS => !context.query.is_all() && *ms >= 30,
            defect::MISSES_LAST_IN_WINDOWS => context.query.end.is_some_and(|end| time + 1 >= end),
            _ => false,
        };
        if is_lost {
            continue;
        }
        let sequence = match DEFECT {
            defect::DEPENDS_ON_THREADS => thread(),
            defect::COUNTS => events.fetch_add(1, Ordering::Relaxed),
            _ => *at as i64,
        };
        batch.push_copy(time, sequence, channel, payload);
    }
    let input: std::sync::Arc<str> = escaped_path(&split.input).into();
    for (at, len) in found.damage.iter().filter(|(at, _)| is_here(*at)) {
        context.damage.report(Damage::new(&input, *at as u64, *len as u64, "no frame"));
    }
    let batch = batch.finish();
    let more: Box<dyn Iterator<Item = Batch> + Send> = match (DEFECT, found.damage.is_empty()) {
        (defect::GIVES_NOTHING_FOR_EVER, false) => Box::new(std::iter::repeat(Batch::default())),
        (defect::GIVES_EVENTS_FOR_EVER, false) => Box::new(std::iter::repeat(batch.clone())),
        _ => Box::new(std::iter::empty()),
    };
    Ok(Box::new(std::iter::once(batch).chain(more).map(Ok)))
}

/// A number that depends on the calling thread.
fn thread() -> i64 {
    let thread = std::thread::current();
    thread.name().unwrap_or_default().bytes().map(i64::from).sum()
}

macro_rules! source {
    ($type:ty, $defect:expr, $events:expr $(, $parameter:ident)?) => {
        impl$(<const $parameter: u8>)? Source for $type {
            fn inputs(&self) -> Result<Vec<Input>, Error> {
                files::expand(&self.path.0)
            }

            fn splits(&self, target: u64, _: &Query) -> Result<Vec<Split>, Error> {
                splits(&self.path, target)
            }

            fn read<'s>(
                &'s self,
                split: &Split,
                _: SplitStart,
                context: &ReadContext,
            ) -> Result<Box<dyn Reader + 's>, Error> {
                let events: fn(&Self) -> &AtomicI64 = $events;
                read::<{ $defect }>(split, context, events(self))
            }

            fn events_in(&self, _: &Path) -> Result<Option<u64>, Error> {
                Ok((($defect) == defect::MISCOUNTS).then_some(3))
            }
        }
    };
}

/// Used by the sources that do not read it.
static UNSEEN: AtomicI64 = AtomicI64::new(0);

source!(ToyLogSource<DEFECT>, DEFECT, |toy| &toy.events, DEFECT);
source!(LooseSource, defect::NONE, |_| &UNSEEN);
source!(UndocumentedSource, defect::NONE, |_| &UNSEEN);
