//! The second half of `align`, in the order of events: finishes rows as soon as all their values
//! are decided.
//!
//! A row is decided when each field has a later value, or the newest time of all events is later
//! than the row by what the field waits. So rows depend on the events and their order only, never
//! on batches, and memory is bounded by the tolerance.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::Array;
use sluice_model::time::{self, TimePoint};
use sluice_model::{
    Batch, Channel, ChannelId, Encoding, Error, Fold, FoldQuery, Name, RowsEffect, StageContext,
    units,
};

use super::buffer::RowBuffer;
use super::chunks::{ChunkColumn, InputChunks, ValueKinds};
use super::columns::TrackValues;
use super::figures::RowFigures;
use super::grid::Grid;
use super::guard::{Admission, Arrival, TimeGuard};
use super::incoming::{Incoming, IncomingEvents, NO_CHUNK};
use super::options::MissingPolicy;
use super::plan::{AlignPlan, CLOCK_RESET_NS, RowRule};
use super::rows::{RowTime, RowTimes};
use super::track::{Absence, Pick, PickRule, Place, TimedValue, Track};

/// The most bytes of values that rows may wait for.
const MAX_HELD_BYTES: u64 = 256 << 20;

/// The fold.
pub(super) struct AlignFold {
    plan: Arc<AlignPlan>,
    /// The channel of the plan, by channel id.
    channels: Vec<Option<usize>>,
    /// By channel of the plan, the one whose events come.
    sources: Vec<Option<Arc<Channel>>>,
    incoming: IncomingEvents,
    /// By input, how many events have a time, and how many should have one of their own.
    timed: Vec<(u64, u64)>,
    guard: TimeGuard,
    admitted: VecDeque<Admission>,
    inputs: Vec<InputChunks>,
    tracks: Vec<TrackState>,
    rows: Option<RowTimes>,
    /// The newest time since time started anew.
    newest: Option<i64>,
    /// Whether no more values come for the present rows.
    is_closing: bool,
    end: End,
    buffer: RowBuffer,
    /// The values of the present row.
    picks: Vec<Pick>,
    kinds: Vec<usize>,
    output: Option<ChannelId>,
    figures: RowFigures,
}

/// How near the end of the events is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Far,
    /// No more events come.
    Near,
    /// The last rows are decided.
    Reached,
    Reported,
}

/// A field's values, and where their columns are.
struct TrackState {
    track: Track,
    rule: PickRule,
    input: usize,
    /// Its place among the tracks of its input.
    slot: usize,
    kinds: ValueKinds,
    /// The type of the last value.
    kind: Option<usize>,
    /// The number of elements of its lists, if it is the same for all.
    length: Option<i64>,
}

impl TrackState {
    /// Whether a vector can have this list: the first one that is not empty says how long.
    fn fits(&mut self, column: &ChunkColumn, row: u32) -> bool {
        let Some(length) = column.list_length(row) else { return true };
        length > 0 && *self.length.get_or_insert(length) == length
    }
}

impl AlignFold {
    pub(super) fn new(plan: Arc<AlignPlan>) -> Self {
        let tracks = plan.tracks.iter().enumerate().map(|(at, track)| TrackState {
            track: Track::default(),
            rule: PickRule { method: track.method, tolerance: track.tolerance },
            input: track.input,
            slot: plan.inputs[track.input].tracks.iter().position(|one| *one == at).unwrap_or(0),
            kinds: ValueKinds::default(),
            kind: None,
            length: track.length.map(i64::from),
        });
        let (inputs, count) = (plan.inputs.len(), plan.tracks.len());
        Self {
            channels: Vec::new(),
            sources: vec![None; plan.channels.len()],
            incoming: IncomingEvents::default(),
            timed: vec![(0, 0); inputs],
            guard: TimeGuard::new(inputs),
            admitted: VecDeque::new(),
            inputs: (0..inputs).map(|_| InputChunks::default()).collect(),
            tracks: tracks.collect(),
            rows: None,
            newest: None,
            is_closing: false,
            end: End::Far,
            buffer: RowBuffer::new(count),
            picks: Vec::with_capacity(count),
            kinds: Vec::with_capacity(count),
            output: None,
            figures: RowFigures::new(count),
            plan,
        }
    }

    /// The times of rows, whose anchor may be the first event of the log.
    fn row_times(&self, context: &StageContext<'_>) -> Result<RowTimes, Error> {
        let (rate, anchor) = match self.plan.rows {
            RowRule::Input(_) => return Ok(RowTimes::of_clock()),
            RowRule::Rate { rate, anchor } => (rate, anchor),
        };
        let anchor = match (anchor, context.origin) {
            (TimePoint::At(nanos), _) => nanos,
            (TimePoint::After(_), Some(origin)) => anchor.resolve(origin),
            (TimePoint::After(_), None) => {
                let what = "`anchor` counts from the first event, whose time is unknown; \
                            give an absolute time";
                return Err(Error::invalid(what));
            }
        };
        Ok(RowTimes::on_grid(Grid { rate, anchor }))
    }

    /// Learns the channels of a batch. `Err` if a channel of the plan has several sources.
    fn learn_channels(&mut self, batch: &Batch, context: &StageContext<'_>) -> Result<(), Error> {
        for channel in context.channels.since(self.channels.len()) {
            let name = channel.name.text();
            self.channels.push(self.plan.channels.iter().position(|plan| plan.name == name));
        }
        let mut last = None;
        for id in batch.channels() {
            if last.replace(*id) == Some(*id) {
                continue;
            }
            let Some(place) = self.channels.get(*id as usize).copied().flatten() else { continue };
            let channel = context.channels.get(ChannelId(*id));
            match &self.sources[place] {
                None => self.sources[place] = Some(channel),
                Some(known) if known.source == channel.source => {}
                Some(known) => {
                    return Err(Error::invalid(format!(
                        "`{}` has events of the sources `{}` and `{}`, which may be two \
                         robots; choose one with `source` of a stage `filter` before it",
                        channel.name.text(),
                        known.source,
                        channel.source
                    )));
                }
            }
        }
        Ok(())
    }

    /// Goes on until there are enough rows for a batch, or nothing is left to do.
    fn proceed(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        loop {
            self.finish_rows(context)?;
            if self.buffer.is_full() {
                return self.flush(context);
            }
            if self.is_closing {
                self.restart();
            }
            if let Some(admission) = self.admitted.pop_front() {
                self.accept(admission);
            } else if let Some(next) = self.incoming.next(&self.plan, &self.channels) {
                match next {
                    Incoming::Arrival(next) => {
                        self.timed[next.input].0 += 1;
                        self.guard.admit(next, &mut self.admitted);
                    }
                    Incoming::Untimed(input) => self.timed[input].1 += 1,
                }
            } else if self.end == End::Near {
                self.is_closing = true;
                self.end = End::Reached;
            } else {
                break;
            }
        }
        if self.end == End::Reached {
            self.end = End::Reported;
            self.figures.disbelieved = self.guard.disbelieved;
            self.figures.untimed = self.timed.iter().map(|(_, untimed)| untimed).sum();
            if self.figures.made == 0 {
                self.require_times()?;
            }
            let absent = self.tracks.iter().enumerate().filter(|(_, state)| state.kind.is_none());
            absent.for_each(|(track, _)| self.figures.mark_absent(track));
            self.figures.report(&self.plan, context);
        }
        let out = self.flush(context)?;
        self.release()?;
        Ok(out)
    }

    /// `Err` if no event of an input has a time of its own, so that there cannot be any row.
    fn require_times(&self) -> Result<(), Error> {
        let all = self.plan.inputs.iter().zip(&self.timed).enumerate();
        let never = all.filter(|(_, (_, (timed, untimed)))| *timed == 0 && *untimed > 0);
        for (input, (plan, (_, untimed))) in never {
            let channel = self.plan.channels.iter().find(|one| one.inputs.contains(&input));
            if let Some(((time, _), channel)) = plan.time.as_ref().zip(channel) {
                let name = &channel.name;
                return Err(Error::invalid(format!(
                    "none of the {untimed} messages of `{name}` has a time in its field \
                     `{time}`, so there are no rows; name another field in `time`"
                )));
            }
        }
        Ok(())
    }

    /// Adds the values of an event.
    fn accept(&mut self, admission: Admission) {
        let Admission { arrival, restarts } = admission;
        if restarts {
            self.is_closing = true;
            self.figures.restarts += 1;
            self.admitted.push_front(Admission { arrival, restarts: false });
            return;
        }
        let Arrival { time, input, sequence, place } = arrival;
        self.newest = Some(self.newest.map_or(time, |newest| newest.max(time)));
        let time = time.saturating_sub(self.plan.inputs[input].lag);
        let done = self.rows.as_ref().and_then(RowTimes::last);
        for track in &self.plan.inputs[input].tracks {
            let state = &mut self.tracks[*track];
            let Some(column) = self.inputs[input].column(place, state.slot) else { continue };
            if column.is_null(place.row) {
                continue;
            }
            if self.plan.tracks[*track].is_part && !state.fits(column, place.row) {
                self.figures.count_unfit(*track);
                continue;
            }
            state.kind = Some(column.kind);
            if done.is_some_and(|done| time <= done) || state.track.is_settled(time) {
                self.figures.count_late(*track);
            }
            state.track.insert(TimedValue { time, place });
        }
        if let (RowRule::Input(clock), Some(rows)) = (self.plan.rows, &mut self.rows)
            && clock == input
            && !rows.tick(time, sequence)
        {
            self.figures.idle_ticks += 1;
        }
    }

    /// Finishes the rows that are decided, until there are enough for a batch.
    fn finish_rows(&mut self, context: &StageContext<'_>) -> Result<(), Error> {
        while !self.buffer.is_full() {
            let Some(row) = self.decided_row() else { return Ok(()) };
            self.choose(row);
            if let Some(rows) = &mut self.rows {
                rows.advance(row);
            }
            if context.window.wants_time(row.time) {
                self.emit(row)?;
            }
        }
        Ok(())
    }

    /// The next row, if all its values are decided.
    fn decided_row(&self) -> Option<RowTime> {
        let (rows, newest) = (self.rows.as_ref()?, self.newest?);
        let is_past = |time: i64| self.is_closing || newest > time;
        if !is_past(rows.earliest()?.saturating_add(self.plan.least_lag)) {
            return None;
        }
        let next_use = |from: i64| {
            self.tracks.iter().filter_map(|state| state.track.next_use(from, state.rule)).min()
        };
        let row = rows.next(next_use)?;
        let mut tracks = self.tracks.iter().zip(&self.plan.tracks);
        let is_decided = tracks.all(|(state, plan)| {
            state.track.knows_after(row.time) || is_past(row.time.saturating_add(plan.wait))
        });
        is_decided.then_some(row)
    }

    /// Chooses the values of a row.
    fn choose(&mut self, row: RowTime) {
        let Self { tracks, inputs, picks, .. } = self;
        picks.clear();
        for state in tracks {
            state.track.advance(row.time, state.rule.tolerance);
            state.track.settle(row.time, state.rule);
            let chunks = &inputs[state.input];
            let combines = |a: Place, b: Place| {
                let columns = chunks.column(a, state.slot).zip(chunks.column(b, state.slot));
                columns.is_some_and(|(one, other)| one.combines(a.row, other, b.row))
            };
            picks.push(state.track.pick(row.time, row.before, state.rule, combines));
        }
    }

    /// Lets the chosen row come out, unless it lacks a value.
    fn emit(&mut self, row: RowTime) -> Result<(), Error> {
        let missing = |pick: &Pick| matches!(pick, Pick::Missing(_));
        let lacks = self.picks.iter().any(missing);
        self.figures.due += 1;
        if lacks {
            self.figures.count_missing(&self.picks);
            let not_yet = |pick: &Pick| matches!(pick, Pick::Missing(Absence::NotYet));
            let has_begun = !self.picks.iter().any(not_yet);
            let is_empty = self.picks.iter().all(missing);
            match self.plan.missing {
                MissingPolicy::Null if has_begun && !is_empty => {}
                MissingPolicy::Stop if has_begun && !is_empty => return Err(self.refusal(row)),
                _ => return Ok(()),
            }
        }
        let mut bytes = 0;
        self.kinds.clear();
        for (state, pick) in self.tracks.iter_mut().zip(&self.picks) {
            if let Pick::One(place, _) | Pick::Between(place, ..) = pick
                && let Some(column) = self.inputs[state.input].column(*place, state.slot)
            {
                state.kind = Some(column.kind);
                bytes += u64::from(column.row_bytes);
            }
            self.kinds.push(state.kind.unwrap_or(usize::MAX));
        }
        self.buffer.push(row, &self.picks, &self.kinds, bytes);
        self.figures.count_made(row, &self.picks);
        Ok(())
    }

    fn refusal(&self, row: RowTime) -> Error {
        let mut each = self.plan.tracks.iter().zip(&self.picks);
        let lacks = each.find_map(|(plan, pick)| match pick {
            Pick::Missing(absence) => Some((plan, *absence)),
            _ => None,
        });
        let why = lacks.map(|(plan, absence)| {
            let tolerance = units::duration(plan.tolerance.unsigned_abs());
            let why = match absence {
                Absence::NotYet => "none came before".to_owned(),
                Absence::Old(age) => format!("the last one is {} old", units::duration(age)),
                Absence::NoNext(_) => "none that fits comes after it".to_owned(),
            };
            format!("`{}` has no value: {why}, and `tolerance` is {tolerance}", plan.label)
        });
        Error::invalid(format!(
            "row at {}: {}; raise `tolerance`, or choose `missing = \"drop\"` or \"null\"",
            time::format(row.time),
            why.unwrap_or_default()
        ))
    }

    /// Starts time anew: nothing so far belongs to what comes.
    fn restart(&mut self) {
        self.is_closing = false;
        self.newest = None;
        self.tracks.iter_mut().for_each(|state| state.track.clear());
        self.rows.iter_mut().for_each(RowTimes::restart);
    }

    /// The finished rows as a batch.
    fn flush(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        if self.buffer.is_empty() {
            return Ok(Vec::new());
        }
        let channel = match self.output {
            Some(channel) => channel,
            None => *self.output.insert(self.output_channel(context)?),
        };
        let Self { plan, tracks, inputs, buffer, .. } = self;
        let values = |track: usize, kind: usize| {
            let state = &tracks[track];
            let (first, chunks) = inputs[state.input].columns(state.slot);
            let (plan, kind) = (&plan.tracks[track], state.kinds.get(kind));
            TrackValues { plan, kind, length: state.length, first, chunks }
        };
        let batch = buffer.take(plan, channel, values)?;
        context.report.added.extend_from_slice(batch.channels());
        Ok(vec![batch])
    }

    /// The channel of the rows: of the source of the first field's channel.
    fn output_channel(&self, context: &StageContext<'_>) -> Result<ChannelId, Error> {
        let name = Name::from_text(&self.plan.name);
        let like = self.sources.iter().flatten().next();
        let source = like.map_or_else(|| Arc::from(""), |like| Arc::clone(&like.source));
        let clock = like.map(|like| like.clock).unwrap_or_default();
        let channel = Channel::new(name, source, Encoding::Unknown);
        context.channels.intern(Channel { clock, ..channel })
    }

    /// Drops what no row needs any more. `Err` if the rest takes too much memory.
    fn release(&mut self) -> Result<(), Error> {
        if let (Some(newest), RowRule::Input(_)) = (self.newest, self.plan.rows) {
            // Without events of the clock, no row says what is no longer needed.
            for (state, plan) in self.tracks.iter_mut().zip(&self.plan.tracks) {
                let late = plan.wait.max(0).saturating_add(CLOCK_RESET_NS);
                state.track.advance(newest.saturating_sub(late), state.rule.tolerance);
            }
        }
        for TrackState { track, input, slot, .. } in &self.tracks {
            let waits = self.guard.waiting().filter(|waiting| waiting.input == *input);
            let waits = waits.map(|waiting| waiting.place.chunk).filter(|chunk| *chunk != NO_CHUNK);
            let first = track.first_chunk().into_iter().chain(waits).min();
            self.inputs[*input].keep_column_from(*slot, first);
        }
        self.inputs.iter_mut().for_each(InputChunks::trim);
        if self.memory() > MAX_HELD_BYTES {
            return Err(Error::refused(format!(
                "align: rows wait for values of more than {}: lower `tolerance`, or choose `last`",
                units::bytes(MAX_HELD_BYTES)
            )));
        }
        Ok(())
    }

    /// About how much memory the values take that rows wait for.
    pub(super) fn memory(&self) -> u64 {
        let places: u64 = self.tracks.iter().map(|state| state.track.memory()).sum();
        places + self.inputs.iter().map(InputChunks::memory).sum::<u64>()
    }
}

impl Fold for AlignFold {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        context.report.filtered += batch.len() as u64;
        if self.rows.is_none() {
            self.rows = Some(self.row_times(context)?);
        }
        self.learn_channels(&batch, context)?;
        let Self { incoming, plan, channels, tracks, inputs, .. } = self;
        incoming.push(batch, plan, channels, |input, values| {
            let of = plan.inputs[input].tracks.iter().zip(values);
            let columns = of.map(|(track, values)| {
                // Columns without values are no use, and lists of a fixed length are large.
                let values = values.filter(|values| values.logical_null_count() < values.len())?;
                let kind = tracks[*track].kinds.number(values.data_type());
                Some(ChunkColumn::new(values, kind))
            });
            inputs[input].push(columns.collect())
        });
        self.proceed(context)
    }

    fn more(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.proceed(context)
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.guard.finish(&mut self.admitted);
        self.end = End::Near;
        self.proceed(context)
    }

    fn query(&self) -> FoldQuery {
        self.plan.fold_query()
    }

    fn needs_origin(&self) -> bool {
        self.plan.needs_origin()
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::PartsOnly
    }
}
