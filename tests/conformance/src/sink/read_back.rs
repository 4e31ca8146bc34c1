//! Checks that a source reads the events back that a sink wrote.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_schema::DataType;
use serde_json::json;
use sluice_model::Channel;
use sluice_pipeline::Report;
use sluice_pipeline::run::Options;

use super::{OutputReader, SinkBench, written};
use crate::Promise;
use crate::events::{ComparableEvent, Events, GatherSink, describe_event};
use crate::finding::{Fault, FindingSet};
use crate::pipe::{EVENTS, PipelineText, read_pipeline, run};

/// Which properties of events a format keeps. All by default.
#[derive(Clone, Copy, Debug)]
pub struct FormatFidelity {
    /// The resolution of times, in nanoseconds.
    pub time_step: i64,
    /// How times between two steps are rounded.
    pub rounding: TimeRounding,
    /// The numbers of events.
    pub sequences: bool,
    /// The sources of channels.
    pub sources: bool,
    /// The names of channels.
    pub channels: bool,
    /// The payload encoding and metadata of channels.
    pub encodings: bool,
    /// Decoded rows, where the source gives any.
    pub rows: bool,
    /// The order of events.
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

/// Which order of events a format keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventOrder {
    /// The order of all events.
    #[default]
    All,
    /// The order within each channel.
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

/// An event with its decoded row, if any.
struct EventWithRow {
    plain: ComparableEvent,
    row: Option<RecordBatch>,
}

impl FormatFidelity {
    /// The event as the format keeps it.
    fn expected(&self, event: &ComparableEvent) -> ComparableEvent {
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
        ComparableEvent { timestamp, sequence, channel, origin, payload }
    }

    /// The channel as the format keeps it.
    fn channel(&self, event: &ComparableEvent) -> (String, String) {
        let source = if self.sources { event.channel.source.to_string() } else { String::new() };
        let name = event.channel.name.text();
        (if self.channels { name.to_owned() } else { String::new() }, source)
    }

    fn is_same(&self, one: &ComparableEvent, other: &ComparableEvent) -> bool {
        let key = |event: &ComparableEvent| (event.timestamp, event.sequence, self.channel(event));
        key(one) == key(other) && one.payload == other.payload
    }

    /// How the channel or the fields of an event that was read differ from the original. Additional
    /// metadata from the format is allowed.
    fn difference(&self, given: &EventWithRow, back: &EventWithRow) -> Option<String> {
        let (was, is) = (&*given.plain.channel, &*back.plain.channel);
        let is_lost = |(key, value): (&String, &String)| is.metadata.get(key) != Some(value);
        if self.encodings && (was.encoding != is.encoding || was.metadata.iter().any(is_lost)) {
            let told = |channel: &Channel| format!("{:?} {:?}", channel.encoding, channel.metadata);
            return Some(format!("its channel is {} instead of {}", told(is), told(was)));
        }
        let row = back.row.as_ref().filter(|_| self.rows)?;
        let Some(due) = &given.row else { return Some("it had no fields".to_owned()) };
        let (fields, none) = (due.schema(), new_null_array(&DataType::Null, 1));
        let other = fields.fields().iter().zip(due.columns()).find(|(field, due)| {
            !same_values(row.column_by_name(field.name()).unwrap_or(&none), due)
        })?;
        Some(format!("its field `{}` is another one", other.0.name()))
    }

    /// The events as the format keeps them, in lists that are each ordered.
    fn lists(&self, events: &Events) -> BTreeMap<(String, String), Vec<EventWithRow>> {
        let mut lists: BTreeMap<_, Vec<EventWithRow>> = BTreeMap::new();
        let mut rows: BTreeMap<u32, RecordBatch> = BTreeMap::new();
        for of_type in events.batch.rows() {
            for (row, event) in of_type.events.iter().enumerate() {
                rows.insert(*event, of_type.columns.slice(row, 1));
            }
        }
        for (number, event) in (0..).zip(events.comparable()) {
            let key = match self.order {
                EventOrder::All => Default::default(),
                EventOrder::OfChannel => self.channel(&event),
            };
            let event = EventWithRow { plain: self.expected(&event), row: rows.remove(&number) };
            lists.entry(key).or_default().push(event);
        }
        lists
    }
}

/// Whether two columns hold the same values. Field names and list types may differ.
fn same_values(one: &ArrayRef, other: &ArrayRef) -> bool {
    match (nested_columns(one), nested_columns(other)) {
        (Some(ours), Some(theirs)) => {
            let is_same = |pair: (&Option<ArrayRef>, &Option<ArrayRef>)| match pair {
                (Some(one), Some(other)) => same_values(one, other),
                (one, other) => one.is_none() && other.is_none(),
            };
            ours.len() == theirs.len() && ours.iter().zip(&theirs).all(is_same)
        }
        _ => one == other,
    }
}

/// The lists of a list column, or the columns of a struct column.
fn nested_columns(column: &ArrayRef) -> Option<Vec<Option<ArrayRef>>> {
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

impl SinkBench<'_> {
    /// Reads the output and compares it with the events.
    pub(super) fn reads_back(
        &self,
        reader: &OutputReader,
        report: &Report,
        found: &mut FindingSet,
    ) {
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
        if let Some(what) = self.unexpected_event(&back) {
            add("other events than were written", what);
        }
    }

    /// The events read, and the number of damaged ranges.
    fn read_back(&self, reader: &OutputReader) -> Result<(Events, u64), String> {
        let mut options = reader.options.clone();
        if let Some(options) = options.as_object_mut() {
            let place = match options.get("path").and_then(|path| path.as_str()) {
                Some(name) => Some(self.out().join(name).display().to_string()),
                None => self.path(),
            };
            options.extend(place.map(|path| ("path".to_owned(), json!(path))));
        }
        let pipe = PipelineText::default().with("sources", EVENTS, &reader.plugin, None, &options);
        let gather = GatherSink::default();
        let text = pipe.with_end(EVENTS).text();
        let pipeline = read_pipeline(&text, self.registry, None, &gather)?;
        let ran = run(pipeline, Options { jobs: Some(2), ..Options::default() });
        let report = ran.map_err(|failure| failure.what().to_owned())?;
        let events = gather.take().ok_or("the run has not come to its end")?;
        Ok((events, report.damaged_ranges))
    }

    /// An event that was read but not written, or in another order, or with other properties.
    fn unexpected_event(&self, back: &Events) -> Option<String> {
        let keeps = &self.trial.keeps;
        let (given, back) = (keeps.lists(&self.events), keeps.lists(back));
        back.into_iter().find_map(|(channel, back)| {
            let mut given = given.get(&channel).into_iter().flatten();
            back.into_iter().find_map(|event| {
                let due = given.find(|given| keeps.is_same(&given.plain, &event.plain));
                let told = describe_event(&event.plain);
                match due {
                    Some(due) => Some(format!("{told}: {}", keeps.difference(due, &event)?)),
                    None => Some(format!(
                        "{told} was not written, or was written before the event read before it"
                    )),
                }
            })
        })
    }
}
