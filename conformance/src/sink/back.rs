//! Whether what a sink wrote gives its events again, to the source that reads it.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_schema::DataType;
use serde_json::json;
use sluice_core::Channel;
use sluice_pipeline::Report;
use sluice_pipeline::run::Options;

use super::{Bench, Reader, written};
use crate::Promise;
use crate::events::{Events, Gather, Plain, told};
use crate::finding::{Fault, Gathered};
use crate::pipe::{EVENTS, Pipe, read, run};

/// What of events a format holds. All of it, unless something else is said.
#[derive(Clone, Copy, Debug)]
pub struct FormatFidelity {
    /// Times are kept in steps of so many nanoseconds.
    pub time_step: i64,
    /// How times between two steps are rounded.
    pub rounding: TimeRounding,
    /// The numbers of events.
    pub sequences: bool,
    /// The sources of channels.
    pub sources: bool,
    /// The names of channels.
    pub channels: bool,
    /// How payloads of channels are encoded, and anything else that formats say of channels.
    pub encodings: bool,
    /// Decoded rows, where the source gives any.
    pub rows: bool,
    /// Which order.
    pub order: EventOrder,
}

/// How a format rounds times to the steps it keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeRounding {
    /// To the step before.
    #[default]
    Down,
    /// To the nearest step.
    Nearest,
}

/// Which order of events a format holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventOrder {
    /// That of all events.
    #[default]
    All,
    /// That of the events of each channel.
    OfChannel,
}

impl Default for FormatFidelity {
    fn default() -> Self {
        Self {
            time_step: 1,
            rounding: TimeRounding::Down,
            sequences: true,
            sources: true,
            channels: true,
            encodings: true,
            rows: true,
            order: EventOrder::All,
        }
    }
}

/// An event with its decoded fields, if it has any.
struct Whole {
    plain: Plain,
    row: Option<RecordBatch>,
}

impl FormatFidelity {
    /// The event as far as it is kept.
    fn of(&self, event: &Plain) -> Plain {
        let step = self.time_step.max(1);
        let half = match self.rounding {
            TimeRounding::Down => 0,
            TimeRounding::Nearest => step / 2,
        };
        let rounded = event.timestamp.saturating_add(half).div_euclid(step);
        let timestamp = rounded.saturating_mul(step);
        let sequence = if self.sequences { event.sequence } else { 0 };
        let payload = event.payload.clone();
        let (channel, origin) = (event.channel.clone(), event.origin.clone());
        Plain { timestamp, sequence, channel, origin, payload }
    }

    /// The channel as far as it is kept.
    fn channel(&self, event: &Plain) -> (String, String) {
        let source = if self.sources { event.channel.source.to_string() } else { String::new() };
        let name = event.channel.name.text();
        (if self.channels { name.to_owned() } else { String::new() }, source)
    }

    fn is_same(&self, one: &Plain, other: &Plain) -> bool {
        let key = |event: &Plain| (event.timestamp, event.sequence, self.channel(event));
        key(one) == key(other) && one.payload == other.payload
    }

    /// In which way an event that was read says something else of its channel or its fields than the one that was
    /// given. What a format says of channels beside that is its own business.
    fn difference(&self, given: &Whole, back: &Whole) -> Option<String> {
        let (was, is) = (&*given.plain.channel, &*back.plain.channel);
        let is_lost = |(key, value): (&String, &String)| is.metadata.get(key) != Some(value);
        if self.encodings && (was.encoding != is.encoding || was.metadata.iter().any(is_lost)) {
            let told = |channel: &Channel| format!("{:?} {:?}", channel.encoding, channel.metadata);
            return Some(format!("its channel is {} instead of {}", told(is), told(was)));
        }
        let row = back.row.as_ref().filter(|_| self.rows)?;
        let Some(due) = &given.row else { return Some("it had no fields".to_owned()) };
        let (fields, none) = (due.schema(), new_null_array(&DataType::Null, 1));
        let other =
            fields.fields().iter().zip(due.columns()).find(|(field, due)| {
                !same(row.column_by_name(field.name()).unwrap_or(&none), due)
            })?;
        Some(format!("its field `{}` is another one", other.0.name()))
    }

    /// The events as far as they are kept, in lists in each of which the order is kept.
    fn lists(&self, events: &Events) -> BTreeMap<(String, String), Vec<Whole>> {
        let mut lists: BTreeMap<_, Vec<Whole>> = BTreeMap::new();
        let mut rows: BTreeMap<u32, RecordBatch> = BTreeMap::new();
        for of_type in events.batch.rows() {
            for (row, event) in of_type.events.iter().enumerate() {
                rows.insert(*event, of_type.columns.slice(row, 1));
            }
        }
        for (number, event) in (0..).zip(events.plain()) {
            let key = match self.order {
                EventOrder::All => Default::default(),
                EventOrder::OfChannel => self.channel(&event),
            };
            let event = Whole { plain: self.of(&event), row: rows.remove(&number) };
            lists.entry(key).or_default().push(event);
        }
        lists
    }
}

/// Whether two columns hold the same. What their parts are called, and how lists are kept, may differ.
fn same(one: &ArrayRef, other: &ArrayRef) -> bool {
    match (parts(one), parts(other)) {
        (Some(ours), Some(theirs)) => {
            let is_same = |pair: (&Option<ArrayRef>, &Option<ArrayRef>)| match pair {
                (Some(one), Some(other)) => same(one, other),
                (one, other) => one.is_none() && other.is_none(),
            };
            ours.len() == theirs.len() && ours.iter().zip(&theirs).all(is_same)
        }
        _ => one == other,
    }
}

/// The lists of a column of lists, and the columns of one of structs.
fn parts(column: &ArrayRef) -> Option<Vec<Option<ArrayRef>>> {
    let each = |of: &dyn Fn(usize) -> ArrayRef| {
        (0..column.len()).map(|row| column.is_valid(row).then(|| of(row))).collect()
    };
    if let Some(lists) = column.as_list_opt::<i32>() {
        return Some(each(&|row| lists.value(row)));
    }
    if let Some(lists) = column.as_fixed_size_list_opt() {
        return Some(each(&|row| lists.value(row)));
    }
    let structs = column.as_struct_opt()?;
    Some(structs.columns().iter().cloned().map(Some).collect())
}

impl Bench<'_> {
    /// Reads what is in the folder, and compares it with what was written.
    pub(super) fn reads_back(&self, reader: &Reader, report: &Report, found: &mut Gathered) {
        let case = format!("what `{}` reads of it", reader.plugin);
        let mut add = |kind: &str, what: String| {
            found.add(Fault::new(Promise::Readable, kind, what), case.clone());
        };
        if written(report) == 0 {
            let kind = "nothing was written, so nothing can be compared";
            let what = "give it events that it can hold by `fed_by`".to_owned();
            return add(kind, what);
        }
        let (back, damage) = match self.read_back(reader) {
            Ok(back) => back,
            Err(what) => return add("it cannot be read", what),
        };
        if damage > 0 {
            add("it is damaged", format!("{damage} ranges"));
        }
        if back.len() as u64 != written(report) {
            let (many, few) = (written(report), back.len());
            add("other events than were written", format!("{few} events instead of {many}"));
        }
        if let Some(what) = self.stranger(&back) {
            add("other events than were written", what);
        }
    }

    /// What reading gives, and how many damaged ranges there are.
    fn read_back(&self, reader: &Reader) -> Result<(Events, u64), String> {
        let mut options = reader.options.clone();
        if let Some(options) = options.as_object_mut() {
            let place = match options.get("path").and_then(|path| path.as_str()) {
                Some(name) => Some(self.out().join(name).display().to_string()),
                None => self.path(),
            };
            options.extend(place.map(|path| ("path".to_owned(), json!(path))));
        }
        let pipe = Pipe::default().with("sources", EVENTS, &reader.plugin, None, &options);
        let gather = Gather::default();
        let text = pipe.ending(EVENTS).text();
        let pipeline = read(&text, self.registry, None, &gather)?;
        let ran = run(pipeline, Options { jobs: Some(2), ..Options::default() });
        let report = ran.map_err(|failure| failure.what().to_owned())?;
        let events = gather.take().ok_or("the run has not come to its end")?;
        Ok((events, report.damaged_ranges))
    }

    /// An event that was read and not given, or not in this order, or not with what is said of it.
    fn stranger(&self, back: &Events) -> Option<String> {
        let keeps = &self.trial.keeps;
        let (given, back) = (keeps.lists(&self.events), keeps.lists(back));
        back.into_iter().find_map(|(channel, back)| {
            let mut given = given.get(&channel).into_iter().flatten();
            back.into_iter().find_map(|event| {
                let due = given.find(|given| keeps.is_same(&given.plain, &event.plain));
                let told = told(&event.plain);
                match due {
                    Some(due) => Some(format!("{told}: {}", keeps.difference(due, &event)?)),
                    None => Some(format!(
                        "{told} was not given, or before the one that is read before it"
                    )),
                }
            })
        })
    }
}
