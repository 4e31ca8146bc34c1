//! A fold that attaches to each event of points a value looked up for its time, such as a pose.
//! Leaves the points alone: they are changed by a map, on all cores.
//!
//! The value is a column of the rows. Values are kept by source, so recordings do not mix. If a
//! value may arrive after the event that needs it, batches wait. Each event is resolved at a fixed
//! event of the log, whatever the batch boundaries: at the first value of its time or later, or
//! when it has waited too long. Waiting times are measured by events of its own channel and by
//! values only, so events that a source leaves out do not matter. If too many bytes are pending,
//! the oldest are resolved at once.

mod column;
mod queue;
mod report;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sluice_model::{
    Batch, Channel, ChannelId, ChannelQuery, Error, Fold, FoldQuery, Patterns, PerChannel, Rows,
    StageContext,
};

use super::sources::{HistoryOwner, SourceHistories};
use super::weight::event_weights;
use super::{ChannelReader, History, LookupMiss};
use crate::points::Points;

use self::column::attach_column;
use self::queue::{QueuedRequest, RequestQueue};

pub(crate) use self::column::{AttachedColumn, AttachedValue};

/// Maximum size of pending events, in bytes: half a second at a million points per second.
const MAX_PENDING_BYTES: u64 = 32 << 20;

/// The rows that need a value: their times, and how many points they have.
pub(crate) struct LookupTimes {
    pub(crate) times: Vec<i64>,
    pub(crate) points: Vec<u64>,
}

impl LookupTimes {
    /// The times of these points.
    pub(crate) fn from_points(points: &Points, timestamps: &[i64]) -> Self {
        let counts = (0..points.events().len()).map(|row| points.range(row).len() as u64);
        Self { times: points.times(timestamps), points: counts.collect() }
    }
}

/// Whether the stage processes rows; some of these may need no value.
pub(crate) type RowFilter = Box<dyn Fn(&Rows) -> bool + Send>;

/// The rows that need a value. The second argument is the timestamps of the batch.
pub(crate) type LookupTimesFn = Box<dyn Fn(&Rows, &[i64]) -> Option<LookupTimes> + Send>;

/// Looks up the value for a time.
pub(crate) type LookupFn<K> = Box<dyn Fn(&History<K>, i64) -> Result<K, LookupMiss> + Send>;

/// Configuration of an [`AttachFold`].
pub(crate) struct AttachPlan<K> {
    /// Reads the values.
    pub(crate) reader: ChannelReader,
    /// The selected channels; all if empty.
    pub(crate) channels: Patterns,
    /// The rows that need a value.
    pub(crate) lookup_times: LookupTimesFn,
    /// The rows that the stage processes, and the note if there were none.
    pub(crate) work: Option<(RowFilter, &'static str)>,
    /// Looks up a value.
    pub(crate) lookup: LookupFn<K>,
    /// How long events wait for later values, in nanoseconds of log time. `None`: not at all.
    pub(crate) wait: Option<i64>,
    /// Maximum distance in the log between a value and the event that uses it. `None`: unlimited.
    pub(crate) reach: Option<i64>,
    /// Describes a miss for notes, such as `came before any pose`.
    pub(crate) describe_miss: Box<dyn Fn(LookupMiss) -> String + Send>,
    /// If set, a miss ends the run with this advice.
    pub(crate) stop_advice: Option<&'static str>,
}

/// The fold that attaches values.
pub(crate) struct AttachFold<K> {
    plan: AttachPlan<K>,
    selected: PerChannel<bool>,
    sources: SourceHistories<K>,
    /// Whether there were events, and rows for the stage.
    input_seen: InputSeen,
    pending: VecDeque<PendingBatch<K>>,
    queue: RequestQueue,
    /// Number of requests so far.
    request_count: u64,
    /// Weight of all events so far, in bytes.
    total_weight: u64,
    /// `total_weight` at the last call of `expire_all`.
    last_expiry_weight: u64,
    missed: BTreeMap<(String, LookupMiss), (u64, u64)>,
    /// Number of values older than a previous one, by channel.
    out_of_order: BTreeMap<String, u64>,
    /// Number of events that used a value of another source, by source and owner.
    borrowed: BTreeMap<(usize, usize), u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InputSeen {
    Nothing,
    Events,
    Work,
}

/// A batch and the values for its rows.
struct PendingBatch<K> {
    batch: Batch,
    /// The number of its first request.
    first: u64,
    requests: Vec<LookupRequest>,
    results: Vec<Option<K>>,
    unresolved: usize,
}

/// A row that needs a value.
#[derive(Clone, Copy)]
struct LookupRequest {
    event: u32,
    rows: u32,
    row: u32,
    time: i64,
    points: u64,
    source: usize,
}

impl<K: AttachedValue> AttachFold<K> {
    pub(crate) fn new(plan: AttachPlan<K>) -> Self {
        Self {
            plan,
            selected: PerChannel::default(),
            sources: SourceHistories::default(),
            input_seen: InputSeen::Nothing,
            pending: VecDeque::new(),
            queue: RequestQueue::default(),
            request_count: 0,
            total_weight: 0,
            last_expiry_weight: 0,
            missed: BTreeMap::new(),
            out_of_order: BTreeMap::new(),
            borrowed: BTreeMap::new(),
        }
    }

    /// The rows of a batch that need a value, by event.
    fn requests(
        &self,
        batch: &Batch,
        context: &StageContext<'_>,
    ) -> Result<Vec<LookupRequest>, Error> {
        let selected = self.selected_channels(context)?;
        let mut requests = Vec::new();
        for (at, rows) in (0..).zip(batch.rows()) {
            let Some(lookup_times) = (self.plan.lookup_times)(rows, batch.timestamps()) else {
                continue;
            };
            for (row, event) in (0..).zip(&rows.events) {
                let channel = batch.channels()[*event as usize] as usize;
                if selected[channel] {
                    let source = self.sources.source_of(channel);
                    let (time, points) =
                        (lookup_times.times[row as usize], lookup_times.points[row as usize]);
                    requests.push(LookupRequest {
                        event: *event,
                        rows: at,
                        row,
                        time,
                        points,
                        source,
                    });
                }
            }
        }
        requests.sort_by_key(|request| request.event);
        Ok(requests)
    }

    /// Records whether there are rows for the stage.
    fn note_input(&mut self, batch: &Batch, context: &StageContext<'_>) -> Result<(), Error> {
        let Some((is_work, _)) = &self.plan.work else { return Ok(()) };
        if self.input_seen == InputSeen::Work || batch.is_empty() {
            return Ok(());
        }
        let selected = self.selected_channels(context)?;
        let is_selected = |event: &u32| selected[batch.channels()[*event as usize] as usize];
        let has_work = batch.rows().iter().any(|r| is_work(r) && r.events.iter().any(is_selected));
        self.input_seen = if has_work { InputSeen::Work } else { InputSeen::Events };
        Ok(())
    }

    /// The selected channels.
    fn selected_channels(&self, context: &StageContext<'_>) -> Result<Arc<Vec<bool>>, Error> {
        let channels = &self.plan.channels;
        let is_selected =
            |channel: &Channel| Ok(channels.is_empty() || channels.matches(channel.name.text()));
        self.selected.table(context.channels, is_selected)
    }

    /// Processes the events of the newest batch in order.
    fn process_events(
        &mut self,
        values: Vec<(u32, K)>,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let Some(pending) = self.pending.back() else { return Ok(()) };
        let (batch, requests) = (pending.batch.clone(), pending.requests.clone());
        let mut event_weights = match self.plan.wait {
            Some(_) => event_weights(&batch),
            None => Vec::new(),
        }
        .into_iter();
        let (mut values, mut requests) =
            (values.into_iter().peekable(), requests.into_iter().peekable());
        for (event, timestamp) in (0..).zip(batch.timestamps()) {
            let channel = batch.channels()[event as usize];
            if values.peek().is_some_and(|(at, _)| *at == event) {
                self.expire_all(Some(*timestamp), context)?;
            } else if requests.peek().is_some_and(|request| request.event == event) {
                self.expire(channel, Some(*timestamp), context)?;
            }
            while let Some(request) = requests.next_if(|request| request.event == event) {
                self.submit(request, (channel, *timestamp), context)?;
            }
            while let Some((_, value)) = values.next_if(|(at, _)| *at == event) {
                self.add_value(value, channel, context)?;
            }
            self.total_weight = self.total_weight.saturating_add(event_weights.next().unwrap_or(0));
            if self.total_weight - self.last_expiry_weight > MAX_PENDING_BYTES / 64 {
                self.expire_all(None, context)?;
            }
        }
        Ok(())
    }

    fn submit(
        &mut self,
        request: LookupRequest,
        (channel, timestamp): (u32, i64),
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let LookupRequest { time, source, .. } = request;
        let number = self.request_count;
        self.request_count += 1;
        let may_wait = self.plan.wait.is_some();
        let newest = self.sources.history_for(source).and_then(|history| history.newest());
        if may_wait && newest.is_none_or(|newest| newest < time) {
            let weight = self.total_weight;
            self.queue.push(channel, QueuedRequest { time, number, source, timestamp, weight });
            return Ok(());
        }
        self.resolve((time, number), context)
    }

    /// Adds a value and resolves the requests that waited for it.
    fn add_value(
        &mut self,
        value: K,
        channel: u32,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let (time, source) = (value.time(), self.sources.source_of(channel as usize));
        let history = self.sources.history(source);
        if history.is_out_of_order(time) {
            let channel = context.channels.get(ChannelId(channel)).name.text().to_owned();
            *self.out_of_order.entry(channel).or_default() += 1;
        }
        if history.restarts_at(time) {
            // The history is about to be cleared.
            self.resolve_until(source, i64::MAX, context)?;
        }
        self.sources.add(source, value);
        self.resolve_until(source, time, context)
    }

    /// Resolves the requests for `time` and earlier of all sources that use the history of `owner`.
    fn resolve_until(
        &mut self,
        owner: usize,
        time: i64,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        for source in 0..self.queue.by_source.len() {
            if self.sources.owner(source) == HistoryOwner::Source(owner) {
                while let Some(key) = self.queue.pop_until(source, time) {
                    self.resolve(key, context)?;
                }
            }
        }
        Ok(())
    }

    /// Resolves requests that have waited too long, on all channels.
    fn expire_all(&mut self, now: Option<i64>, context: &StageContext<'_>) -> Result<(), Error> {
        self.last_expiry_weight = self.total_weight;
        self.queue.channels().into_iter().try_for_each(|channel| self.expire(channel, now, context))
    }

    /// Resolves requests of a channel that have waited too long. Without `now`, only those over the
    /// byte limit.
    fn expire(
        &mut self,
        channel: u32,
        now: Option<i64>,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let Some(wait) = self.plan.wait else { return Ok(()) };
        let total_weight = self.total_weight;
        // A clock that was set back does not prolong the wait.
        let is_late = |request: &QueuedRequest| {
            now.is_some_and(|n| n.abs_diff(request.timestamp) > wait.unsigned_abs())
        };
        let is_due = |request: &QueuedRequest| {
            is_late(request) || total_weight - request.weight > MAX_PENDING_BYTES
        };
        while let Some(key) = self.queue.pop_if(channel, is_due) {
            self.resolve(key, context)?;
        }
        Ok(())
    }

    fn resolve(
        &mut self,
        (time, number): (i64, u64),
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let after = self.pending.partition_point(|pending| pending.first <= number);
        let Some(pending) = after.checked_sub(1).and_then(|at| self.pending.get_mut(at)) else {
            return Err(Error::internal("resolved a request that is not pending"));
        };
        let index = (number - pending.first) as usize;
        pending.unresolved -= 1;
        let request = pending.requests[index];
        let owner = self.sources.owner(request.source);
        let found = match self.sources.history_for(request.source) {
            Some(history) => (self.plan.lookup)(history, time),
            None if owner == HistoryOwner::Ambiguous => Err(LookupMiss::AmbiguousSource),
            None => Err(LookupMiss::Before),
        };
        match found {
            Ok(value) => {
                pending.results[index] = Some(value);
                if let HistoryOwner::Source(owner) = owner
                    && owner != request.source
                {
                    *self.borrowed.entry((request.source, owner)).or_default() += 1;
                }
            }
            Err(miss) => {
                let event = pending.batch.event(request.event as usize);
                // Outside the queried window, the values may have been filtered out as well.
                if context.window.wants_time(event.timestamp) {
                    let channel = context.channels.get(event.channel);
                    self.record_miss(channel.name.text(), miss, request)?;
                }
            }
        }
        Ok(())
    }

    fn record_miss(
        &mut self,
        channel: &str,
        miss: LookupMiss,
        request: LookupRequest,
    ) -> Result<(), Error> {
        if let Some(advice) = self.plan.stop_advice {
            let (when, why) =
                (sluice_model::time::format(request.time), (self.plan.describe_miss)(miss));
            return Err(Error::invalid(format!(
                "an event of `{channel}` of {when} {why}: {advice}"
            )));
        }
        let missed = self.missed.entry((channel.to_owned(), miss)).or_default();
        *missed = (missed.0 + 1, missed.1 + request.points);
        Ok(())
    }

    /// Removes the leading batches that are fully resolved, with their values attached.
    fn take_ready(&mut self) -> Result<Vec<Batch>, Error> {
        let mut ready = Vec::new();
        while self.pending.front().is_some_and(|pending| pending.unresolved == 0) {
            ready.extend(self.pending.pop_front().map(PendingBatch::finish).transpose()?);
        }
        Ok(ready)
    }
}

impl<K: AttachedValue> Fold for AttachFold<K> {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let values = self.plan.reader.read(&batch, context)?;
        self.sources.add_channels(context);
        let requests = self.requests(&batch, context)?;
        self.note_input(&batch, context)?;
        let waits = self.plan.wait.is_some();
        let batch = if waits { batch.compact() } else { batch };
        let (first, unresolved, results) =
            (self.request_count, requests.len(), vec![None; requests.len()]);
        self.pending.push_back(PendingBatch { batch, first, requests, results, unresolved });
        self.process_events(values, context)?;
        self.take_ready()
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        for source in 0..self.queue.by_source.len() {
            while let Some(key) = self.queue.pop_until(source, i64::MAX) {
                self.resolve(key, context)?;
            }
        }
        self.report(context);
        self.take_ready()
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

impl<K: AttachedValue> PendingBatch<K> {
    fn finish(self) -> Result<Batch, Error> {
        if self.requests.is_empty() {
            return Ok(self.batch);
        }
        let rows = self.batch.rows();
        let mut values: Vec<Vec<Option<&K>>> = vec![Vec::new(); rows.len()];
        for (request, result) in self.requests.iter().zip(&self.results) {
            let column = &mut values[request.rows as usize];
            column.resize(rows[request.rows as usize].events.len(), None);
            column[request.row as usize] = result.as_ref();
        }
        let attached = rows.iter().zip(values).map(|(rows, values)| match values.is_empty() {
            true => Ok(rows.clone()),
            false => attach_column(rows, &values),
        });
        let attached = attached.collect::<Result<_, _>>()?;
        Ok(self.batch.with_rows(attached))
    }
}
