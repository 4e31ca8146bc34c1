//! Putting beside each event of points what is known for its moment: a fold that looks at events in the
//! order of the log. Does nothing to the points: that is a map's work, on all cores.
//!
//! What is known is a column of the rows, and is kept by source: two recordings do not mix. Where it may come
//! later than the event that needs it, batches wait. Each event is decided at an event of its own, whatever the
//! batches are: at the first that says something of its moment or later, or when it has waited too long. Only
//! events of its own channel and those that say something tell how long that is, so it does not matter which
//! others a source leaves out. When too much waits, it is decided at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float64Array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};
use sluice_core::{
    Batch, Channel, ChannelId, ChannelQuery, Error, Fold, FoldQuery, Patterns, PerChannel, Rows,
    StageContext,
};

use super::rows::with_columns;
use super::sources::{Lender, Sources};
use super::weight::weights;
use super::{History, Known, Miss, Reader};
use crate::points::Points;

/// What waits at most, in bytes: at a million points a second, half a second of them.
const MOST_WAITING: u64 = 32 << 20;

/// How many channels are told of by themselves.
const MOST_TOLD: usize = 3;

/// Something known that can lie in a column.
pub(crate) trait Attached: Known {
    /// The column it lies in, which nobody but the stage's own map sees.
    const COLUMN: &str;
    /// How many numbers it is.
    const WIDTH: usize;
    /// What several are called.
    const PLURAL: &str;

    /// Appends its numbers.
    fn append(&self, to: &mut Vec<f64>);
}

/// What is known for each row, where a fold put it beside them.
pub(crate) struct Column<'r>(Option<&'r FixedSizeListArray>);

impl<'r> Column<'r> {
    /// Such a column; one in which nothing is known, if there is none.
    pub(crate) fn of<K: Attached>(column: Option<&'r ArrayRef>) -> Self {
        let lists = column.and_then(|column| column.as_fixed_size_list_opt());
        Self(lists.filter(|lists| lists.value_length() == K::WIDTH as i32))
    }

    /// The numbers of a row; nothing if nothing is known for it.
    pub(crate) fn values(&self, row: usize) -> Option<&'r [f64]> {
        let lists = self.0.filter(|lists| lists.is_valid(row))?;
        let values = lists.values().as_primitive_opt::<Float64Type>()?;
        let width = lists.value_length() as usize;
        values.values().get(row * width..(row + 1) * width)
    }
}

/// The rows that need something known: when each is of, and how many points it has.
pub(crate) struct Needs {
    pub(crate) times: Vec<i64>,
    pub(crate) points: Vec<u64>,
}

impl Needs {
    /// Those of these points.
    pub(crate) fn of(points: &Points, timestamps: &[i64]) -> Self {
        let counts = (0..points.events().len()).map(|row| points.range(row).len() as u64);
        Self { times: points.times(timestamps), points: counts.collect() }
    }
}

/// Which rows are points or whatever else the stage is for; some of them need nothing known.
pub(crate) type IsWork = Box<dyn Fn(&Rows) -> bool + Send>;

/// Which rows need something known. The second argument are the timestamps of the batch.
pub(crate) type NeedsOf = Box<dyn Fn(&Rows, &[i64]) -> Option<Needs> + Send>;

/// How something known is looked up for a moment.
pub(crate) type Find<K> = Box<dyn Fn(&History<K>, i64) -> Result<K, Miss> + Send>;

/// How a fold does its work.
pub(crate) struct Plan<K> {
    /// Reads what is known.
    pub(crate) reader: Reader,
    /// Which channels are asked for; none given: all.
    pub(crate) channels: Patterns,
    /// Which rows need something known.
    pub(crate) needs: NeedsOf,
    /// Which rows the stage is for, and what is said if there was none of them.
    pub(crate) work: Option<(IsWork, &'static str)>,
    /// How it is looked up.
    pub(crate) find: Find<K>,
    /// How long, in nanoseconds of the log, events wait for what comes later; none: they do not wait.
    pub(crate) wait: Option<i64>,
    /// How far in the log what is known may be from what needs it; none: any far.
    pub(crate) reach: Option<i64>,
    /// What is said of an event for which nothing is known, by reason: `came before any pose`.
    pub(crate) say: Box<dyn Fn(Miss) -> String + Send>,
    /// Whether such an event ends the run; and what to do about it.
    pub(crate) stop: Option<&'static str>,
}

/// The fold.
pub(crate) struct Attach<K> {
    plan: Plan<K>,
    asked: PerChannel<bool>,
    sources: Sources<K>,
    /// Whether there were events, and whether there was work among them.
    seen: Seen,
    held: VecDeque<Held<K>>,
    queue: Queue,
    /// How many questions there were.
    questions: u64,
    /// How much all events so far took.
    weighed: u64,
    /// How much it was when all channels were looked at last.
    let_go_at: u64,
    missed: BTreeMap<(String, Miss), (u64, u64)>,
    /// How many of what is known were older than one before them, by channel.
    older: BTreeMap<String, u64>,
    /// How many events of a source had what is known of another, before their own had something.
    lent: BTreeMap<(usize, usize), u64>,
}

const OLDER: &str = "are older than one before them";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Events,
    Work,
}

/// A batch, and what is known for its rows.
struct Held<K> {
    batch: Batch,
    /// The number of the first question.
    first: u64,
    asks: Vec<Ask>,
    answers: Vec<Option<K>>,
    open: usize,
}

/// A row for which something has to be known.
#[derive(Clone, Copy)]
struct Ask {
    event: u32,
    rows: u32,
    row: u32,
    time: i64,
    points: u64,
    source: usize,
}

/// The questions that wait for an answer.
#[derive(Default)]
struct Queue {
    /// For each source, by the moment they ask for, and number.
    open: Vec<BTreeSet<(i64, u64)>>,
    /// For each channel, in the order they came. Those that are answered stay until they are the first.
    lines: BTreeMap<u32, VecDeque<Place>>,
}

/// A question in line.
#[derive(Clone, Copy)]
struct Place {
    time: i64,
    number: u64,
    source: usize,
    timestamp: i64,
    /// What all events before it took.
    weight: u64,
}

impl Queue {
    fn join(&mut self, channel: u32, place: Place) {
        if self.open.len() <= place.source {
            self.open.resize_with(place.source + 1, BTreeSet::new);
        }
        self.open[place.source].insert((place.time, place.number));
        self.lines.entry(channel).or_default().push_back(place);
    }

    /// A question of a source for `time` or before it, if there is one.
    fn pop_until(&mut self, source: usize, time: i64) -> Option<(i64, u64)> {
        let open = self.open.get_mut(source)?;
        let first = *open.first()?;
        if first.0 > time { None } else { open.pop_first() }
    }

    /// The question of a channel that came first, if it is to wait no longer.
    fn pop_if(&mut self, channel: u32, is_due: impl Fn(&Place) -> bool) -> Option<(i64, u64)> {
        let line = self.lines.get_mut(&channel)?;
        while let Some(place) = line.front().copied() {
            let question = (place.time, place.number);
            let open = &mut self.open[place.source];
            let is_open = open.contains(&question);
            if is_open && !is_due(&place) {
                return None;
            }
            line.pop_front();
            if is_open {
                open.remove(&question);
                return Some(question);
            }
        }
        self.lines.remove(&channel);
        None
    }

    /// The channels of which some questions may wait.
    fn channels(&self) -> Vec<u32> {
        self.lines.keys().copied().collect()
    }
}

impl<K: Attached> Attach<K> {
    pub(crate) fn new(plan: Plan<K>) -> Self {
        Self {
            plan,
            asked: PerChannel::default(),
            sources: Sources::default(),
            seen: Seen::Nothing,
            held: VecDeque::new(),
            queue: Queue::default(),
            questions: 0,
            weighed: 0,
            let_go_at: 0,
            missed: BTreeMap::new(),
            older: BTreeMap::new(),
            lent: BTreeMap::new(),
        }
    }

    /// The rows of a batch for which something has to be known, by event.
    fn asks(&self, batch: &Batch, context: &StageContext<'_>) -> Result<Vec<Ask>, Error> {
        let asked = self.asked(context)?;
        let mut asks = Vec::new();
        for (at, rows) in (0..).zip(batch.rows()) {
            let Some(needs) = (self.plan.needs)(rows, batch.timestamps()) else { continue };
            for (row, event) in (0..).zip(&rows.events) {
                let channel = batch.channels()[*event as usize] as usize;
                if asked[channel] {
                    let source = self.sources.of_channel(channel);
                    let (time, points) = (needs.times[row as usize], needs.points[row as usize]);
                    asks.push(Ask { event: *event, rows: at, row, time, points, source });
                }
            }
        }
        asks.sort_by_key(|ask| ask.event);
        Ok(asks)
    }

    /// Notes whether there is work for the stage.
    fn look(&mut self, batch: &Batch, context: &StageContext<'_>) -> Result<(), Error> {
        let Some((is_work, _)) = &self.plan.work else { return Ok(()) };
        if self.seen == Seen::Work || batch.is_empty() {
            return Ok(());
        }
        let asked = self.asked(context)?;
        let is_asked = |event: &u32| asked[batch.channels()[*event as usize] as usize];
        let has_work = batch.rows().iter().any(|r| is_work(r) && r.events.iter().any(is_asked));
        self.seen = if has_work { Seen::Work } else { Seen::Events };
        Ok(())
    }

    /// Which channels are asked for.
    fn asked(&self, context: &StageContext<'_>) -> Result<Arc<Vec<bool>>, Error> {
        let channels = &self.plan.channels;
        let is_asked =
            |channel: &Channel| Ok(channels.is_empty() || channels.matches(channel.name.text()));
        self.asked.table(context.channels, is_asked)
    }

    /// Goes through the events of the batch that came last.
    fn walk(&mut self, known: Vec<(u32, K)>, context: &StageContext<'_>) -> Result<(), Error> {
        let Some(held) = self.held.back() else { return Ok(()) };
        let (batch, asks) = (held.batch.clone(), held.asks.clone());
        let mut weights = match self.plan.wait {
            Some(_) => weights(&batch),
            None => Vec::new(),
        }
        .into_iter();
        let (mut known, mut asks) = (known.into_iter().peekable(), asks.into_iter().peekable());
        for (event, timestamp) in (0..).zip(batch.timestamps()) {
            let channel = batch.channels()[event as usize];
            if known.peek().is_some_and(|(at, _)| *at == event) {
                self.let_all_go(Some(*timestamp), context)?;
            } else if asks.peek().is_some_and(|ask| ask.event == event) {
                self.let_go(channel, Some(*timestamp), context)?;
            }
            while let Some(ask) = asks.next_if(|ask| ask.event == event) {
                self.ask(ask, (channel, *timestamp), context)?;
            }
            while let Some((_, known)) = known.next_if(|(at, _)| *at == event) {
                self.learn(known, channel, context)?;
            }
            self.weighed = self.weighed.saturating_add(weights.next().unwrap_or(0));
            if self.weighed - self.let_go_at > MOST_WAITING / 64 {
                self.let_all_go(None, context)?;
            }
        }
        Ok(())
    }

    fn ask(
        &mut self,
        ask: Ask,
        (channel, timestamp): (u32, i64),
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let Ask { time, source, .. } = ask;
        let number = self.questions;
        self.questions += 1;
        let may_wait = self.plan.wait.is_some();
        let newest = self.sources.for_source(source).and_then(|known| known.newest());
        if may_wait && newest.is_none_or(|newest| newest < time) {
            let weight = self.weighed;
            self.queue.join(channel, Place { time, number, source, timestamp, weight });
            return Ok(());
        }
        self.answer((time, number), context)
    }

    /// Adds something known, which decides all that was waiting for it.
    fn learn(&mut self, known: K, channel: u32, context: &StageContext<'_>) -> Result<(), Error> {
        let (time, source) = (known.time(), self.sources.of_channel(channel as usize));
        let history = self.sources.history(source);
        if history.steps_back(time) {
            let channel = context.channels.get(ChannelId(channel)).name.text().to_owned();
            *self.older.entry(channel).or_default() += 1;
        }
        if history.begins_anew(time) {
            // What is known now is about to be forgotten.
            self.answer_until(source, i64::MAX, context)?;
        }
        self.sources.note(source, known);
        self.answer_until(source, time, context)
    }

    /// Answers the questions for `time` and before it of all sources that have what `lender` knows.
    fn answer_until(
        &mut self,
        lender: usize,
        time: i64,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        for source in 0..self.queue.open.len() {
            if self.sources.lender(source) == Lender::Is(lender) {
                while let Some(question) = self.queue.pop_until(source, time) {
                    self.answer(question, context)?;
                }
            }
        }
        Ok(())
    }

    /// Decides what has waited too long on all channels, by what is known now.
    fn let_all_go(&mut self, now: Option<i64>, context: &StageContext<'_>) -> Result<(), Error> {
        self.let_go_at = self.weighed;
        self.queue.channels().into_iter().try_for_each(|channel| self.let_go(channel, now, context))
    }

    /// Decides what has waited too long on a channel, by what is known now. Without a time, only what waits
    /// since so many bytes.
    fn let_go(
        &mut self,
        channel: u32,
        now: Option<i64>,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let Some(wait) = self.plan.wait else { return Ok(()) };
        let weighed = self.weighed;
        // A clock that is set back is no reason to wait for it to catch up.
        let is_late =
            |place: &Place| now.is_some_and(|n| n.abs_diff(place.timestamp) > wait.unsigned_abs());
        let is_due = |place: &Place| is_late(place) || weighed - place.weight > MOST_WAITING;
        while let Some(question) = self.queue.pop_if(channel, is_due) {
            self.answer(question, context)?;
        }
        Ok(())
    }

    fn answer(
        &mut self,
        (time, number): (i64, u64),
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let after = self.held.partition_point(|held| held.first <= number);
        let Some(held) = after.checked_sub(1).and_then(|at| self.held.get_mut(at)) else {
            return Err(Error::internal("an answer to a question that nobody asked"));
        };
        let place = (number - held.first) as usize;
        held.open -= 1;
        let ask = held.asks[place];
        let lender = self.sources.lender(ask.source);
        let found = match self.sources.for_source(ask.source) {
            Some(history) => (self.plan.find)(history, time),
            None if lender == Lender::Several => Err(Miss::Several),
            None => Err(Miss::Before),
        };
        match found {
            Ok(known) => {
                held.answers[place] = Some(known);
                if let Lender::Is(lender) = lender
                    && lender != ask.source
                {
                    *self.lent.entry((ask.source, lender)).or_default() += 1;
                }
            }
            Err(miss) => {
                let event = held.batch.event(ask.event as usize);
                // Of what nobody asked for, what is known may have been left out, too.
                if context.window.wants_time(event.timestamp) {
                    let channel = context.channels.get(event.channel);
                    self.miss(channel.name.text(), miss, ask)?;
                }
            }
        }
        Ok(())
    }

    fn miss(&mut self, channel: &str, miss: Miss, ask: Ask) -> Result<(), Error> {
        if let Some(advice) = self.plan.stop {
            let (when, why) = (sluice_core::time::format(ask.time), (self.plan.say)(miss));
            return Err(Error::invalid(format!(
                "an event of `{channel}` of {when} {why}: {advice}"
            )));
        }
        let missed = self.missed.entry((channel.to_owned(), miss)).or_default();
        *missed = (missed.0 + 1, missed.1 + ask.points);
        Ok(())
    }

    /// The batches at the front of which every row is decided, with what is known beside them.
    fn ready(&mut self) -> Result<Vec<Batch>, Error> {
        let mut ready = Vec::new();
        while self.held.front().is_some_and(|held| held.open == 0) {
            ready.extend(self.held.pop_front().map(Held::finish).transpose()?);
        }
        Ok(ready)
    }

    fn tell(&mut self, context: &mut StageContext<'_>) {
        if !self.missed.is_empty() && self.sources.is_empty() {
            let channel = self.plan.reader.channel().as_name().unwrap_or("…");
            let what = K::PLURAL;
            let note =
                format!("no {what} came on `{channel}`: is it filtered out before the stage?");
            context.note(note, 0);
        }
        let mut by_miss: BTreeMap<Miss, Vec<(String, u64, u64)>> = BTreeMap::new();
        for ((channel, miss), (events, points)) in std::mem::take(&mut self.missed) {
            by_miss.entry(miss).or_default().push((channel, events, points));
        }
        for (miss, mut channels) in by_miss {
            if channels.len() > MOST_TOLD {
                channels = vec![together(&channels)];
            }
            for (channel, events, points) in channels {
                let s = if events == 1 { "" } else { "s" };
                let points = match points {
                    0 => String::new(),
                    1 => " with 1 point".to_owned(),
                    points => format!(" with {points} points"),
                };
                let why = (self.plan.say)(miss);
                context.note(format!("{channel}: {events} event{s}{points} {why}"), 0);
            }
        }
        for (channel, count) in std::mem::take(&mut self.older) {
            let what = K::PLURAL;
            let are = if count == 1 { "is older than one before it" } else { OLDER };
            context.note(format!("{channel}: {count} of the {what} {are}"), 0);
        }
        self.tell_of_lent(context);
        if let (Seen::Events, Some((_, idle))) = (self.seen, &self.plan.work) {
            context.note(*idle, 0);
        }
    }

    /// Tells of sources whose first events had what another source knows, though something of their own came
    /// later: two recordings that may have nothing to do with each other.
    fn tell_of_lent(&mut self, context: &mut StageContext<'_>) {
        let lent = std::mem::take(&mut self.lent).into_iter();
        let lent = lent.filter(|((source, _), _)| !self.sources.history(*source).is_empty());
        let said = lent.map(|((source, lender), count)| {
            let (source, lender) = (self.sources.name(source), self.sources.name(lender));
            let (what, s) = (K::PLURAL, if count == 1 { "" } else { "s" });
            format!(
                "{count} event{s} of `{source}` had {what} of `{lender}` before there were its own"
            )
        });
        // Places of sources depend on which thread met them first.
        said.collect::<BTreeSet<String>>().into_iter().for_each(|said| context.note(said, 0));
    }
}

impl<K: Attached> Fold for Attach<K> {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let known = self.plan.reader.read(&batch, context)?;
        self.sources.meet(context);
        let asks = self.asks(&batch, context)?;
        self.look(&batch, context)?;
        let waits = self.plan.wait.is_some();
        let batch = if waits { batch.compact() } else { batch };
        let (first, open, answers) = (self.questions, asks.len(), vec![None; asks.len()]);
        self.held.push_back(Held { batch, first, asks, answers, open });
        self.walk(known, context)?;
        self.ready()
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        for source in 0..self.queue.open.len() {
            while let Some(question) = self.queue.pop_until(source, i64::MAX) {
                self.answer(question, context)?;
            }
        }
        self.tell(context);
        self.ready()
    }

    fn delays_events(&self) -> bool {
        self.plan.wait.is_some()
    }

    fn query(&self) -> FoldQuery {
        let channel = Patterns(vec![self.plan.reader.channel().clone()]);
        let none = Patterns::default();
        FoldQuery {
            keeps_times: self.plan.reach.is_some(),
            keeps_channels: true,
            also: Some(ChannelQuery::from_patterns(&channel, &none, &none)),
            reach: self.plan.reach.unwrap_or(0),
        }
    }
}

impl<K: Attached> Held<K> {
    fn finish(self) -> Result<Batch, Error> {
        if self.asks.is_empty() {
            return Ok(self.batch);
        }
        let rows = self.batch.rows();
        let mut known: Vec<Vec<Option<&K>>> = vec![Vec::new(); rows.len()];
        for (ask, answer) in self.asks.iter().zip(&self.answers) {
            let column = &mut known[ask.rows as usize];
            column.resize(rows[ask.rows as usize].events.len(), None);
            column[ask.row as usize] = answer.as_ref();
        }
        let attached = rows.iter().zip(known).map(|(rows, known)| match known.is_empty() {
            true => Ok(rows.clone()),
            false => attach(rows, &known),
        });
        let attached = attached.collect::<Result<_, _>>()?;
        Ok(self.batch.with_rows(attached))
    }
}

/// What several channels missed, as one line: the ends of a log are the same for all of them.
fn together(channels: &[(String, u64, u64)]) -> (String, u64, u64) {
    let named: Vec<&str> = channels.iter().take(MOST_TOLD).map(|(name, ..)| &**name).collect();
    let name = format!("{} and {} more", named.join(", "), channels.len() - named.len());
    let sum = |of: fn(&(String, u64, u64)) -> u64| channels.iter().map(of).sum();
    (name, sum(|channel| channel.1), sum(|channel| channel.2))
}

/// The rows with what is known beside them.
fn attach<K: Attached>(rows: &Rows, known: &[Option<&K>]) -> Result<Rows, Error> {
    let mut numbers = Vec::with_capacity(known.len() * K::WIDTH);
    for (row, known) in (1..).zip(known) {
        known.inspect(|known| known.append(&mut numbers));
        numbers.resize(row * K::WIDTH, 0.0);
    }
    let nulls = NullBuffer::from(known.iter().map(Option::is_some).collect::<Vec<bool>>());
    let element = Arc::new(Field::new_list_field(DataType::Float64, false));
    let numbers: ArrayRef = Arc::new(Float64Array::from(numbers));
    let list = FixedSizeListArray::new(element, K::WIDTH as i32, numbers, Some(nulls));
    let field = Field::new(K::COLUMN, list.data_type().clone(), true);
    with_columns(rows, &[], vec![(field, Arc::new(list))])
}
