//! Stage `episodes`: cuts the rows of a channel into episodes, and numbers them. Aligns nothing.

mod cut;
mod keys;
mod table;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use serde::Deserialize;
use sluice_model::options::PATH_FORMAT;
use sluice_model::schemars::JsonSchema;
use sluice_model::time::TimeLength;
use sluice_model::{
    Batch, Channel, Error, FieldPath, Fold, MessageType, OptionsError, Pattern, PerChannel, Rows,
    RowsEffect, Stage, StageContext, TypeKey,
};

use crate::condition::Condition;
use cut::{Cutter, EpisodeRow, Standing};
use table::EpisodeTable;

/// Options of `episodes`. A row is in an episode if it passes every option that is given.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct EpisodesOptions {
    /// The channel whose rows are cut; events of others are dropped.
    #[serde(default = "aligned")]
    pub(crate) channel: Pattern,
    /// A longer time without a row ends an episode.
    pub(crate) gap: Option<TimeLength>,
    /// A field whose change ends an episode, such as the number of a trial.
    pub(crate) change: Option<FieldPath>,
    /// A condition, such as `mode == 2`: an episode is a stretch of rows for which it holds.
    #[serde(rename = "where")]
    pub(crate) condition: Option<Condition>,
    /// A file with the times of episodes: CSV with the columns `start`, `end` and, if wanted,
    /// `task`, or TOML with tables `[[episodes]]` of the same.
    #[schemars(extend("format" = PATH_FORMAT))]
    pub(crate) table: Option<PathBuf>,
    /// Shorter episodes are dropped, and counted.
    #[serde(default = "one")]
    pub(crate) min_rows: u64,
}

fn aligned() -> Pattern {
    Pattern::parse("aligned").unwrap_or_else(|never| unreachable!("{never}"))
}

fn one() -> u64 {
    1
}

/// Rows of an episode that may turn out too short are held back.
const MOST_MIN_ROWS: u64 = 1 << 20;

/// The columns that it adds.
const EPISODE: &str = "episode";
const TASK: &str = "task";

struct Episodes {
    channel: Pattern,
    selected: PerChannel<bool>,
    condition: Option<Condition>,
    table: Option<Arc<EpisodeTable>>,
    cutter: Cutter,
    min_rows: u64,
    /// The rows that are not passed on yet, with their episodes.
    pending: VecDeque<PendingRows>,
    /// The episodes that are not decided or not passed on, by number of their beginning.
    open: VecDeque<OpenEpisode>,
    /// The beginning of the first of `open`.
    first: u64,
    /// How many episodes are long enough.
    kept: u64,
    short: u64,
}

struct PendingRows {
    batch: Batch,
    /// The beginning that each row belongs to.
    begun: Vec<u64>,
}

/// An episode that has begun.
struct OpenEpisode {
    rows: u64,
    /// Its number, once it is long enough.
    number: Option<u64>,
    has_ended: bool,
    task: Option<Arc<str>>,
}

impl TryFrom<EpisodesOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: EpisodesOptions) -> Result<Self, OptionsError> {
        if options.gap.is_some_and(|gap| gap.0 <= 0) {
            return Err(OptionsError::at("gap", "expected a duration above 0"));
        }
        if !(1..=MOST_MIN_ROWS).contains(&options.min_rows) {
            let message = format!("expected a number from 1 to {MOST_MIN_ROWS}");
            return Err(OptionsError::at("min_rows", message));
        }
        let table = options.table.as_deref().map(EpisodeTable::open).transpose()?.map(Arc::new);
        let gap = options.gap.map(|gap| gap.0);
        Ok(Self::Fold(Box::new(Episodes {
            channel: options.channel,
            selected: PerChannel::default(),
            condition: options.condition,
            cutter: Cutter::new(gap, options.change, table.clone()),
            table,
            min_rows: options.min_rows,
            pending: VecDeque::new(),
            open: VecDeque::new(),
            first: 0,
            kept: 0,
            short: 0,
        })))
    }
}

sluice_model::register! {
    stage "episodes": EpisodesOptions,
    about: "cuts rows into numbered episodes, by time, conditions or a table",
    sample: include_str!("../../samples/episodes.toml"),
}

impl Episodes {
    /// Which events of a batch are rows, and meet the condition.
    fn select(
        &self,
        batch: &Batch,
        context: &mut StageContext<'_>,
    ) -> Result<Vec<Standing>, Error> {
        let of = |channel: &Channel| Ok(self.channel.matches(channel.name.text()));
        let selected = self.selected.table(context.channels, of)?;
        let mut rows = vec![Standing::Elsewhere; batch.len()];
        for event in batch.rows().iter().flat_map(|rows| &rows.events) {
            let event = *event as usize;
            if selected[batch.channels()[event] as usize] {
                rows[event] = Standing::Inside;
            }
        }
        if let Some(condition) = &self.condition {
            let is_row = |event: usize| rows[event] == Standing::Inside;
            let holds = condition.decide(batch, is_row, context)?;
            for (row, holds) in rows.iter_mut().zip(holds) {
                if *row == Standing::Inside && holds != Some(true) {
                    *row = Standing::Outside;
                }
            }
        }
        Ok(rows)
    }

    /// Counts a row that belongs to an episode.
    fn add(&mut self, row: &EpisodeRow) {
        if row.begins {
            self.end_last();
            let task = row.task.clone();
            self.open.push_back(OpenEpisode { rows: 0, number: None, has_ended: false, task });
        }
        let Some(last) = self.open.back_mut() else { return };
        last.rows += 1;
        if last.rows == self.min_rows {
            last.number = Some(self.kept);
            self.kept += 1;
        }
    }

    fn end_last(&mut self) {
        let Some(last) = self.open.back_mut() else { return };
        if !last.has_ended && last.number.is_none() {
            self.short += 1;
        }
        last.has_ended = true;
    }

    fn episode(&self, begun: u64) -> Option<&OpenEpisode> {
        self.open.get(usize::try_from(begun.checked_sub(self.first)?).ok()?)
    }

    /// The pending batches whose episodes are all decided.
    fn take_decided(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let mut ready = Vec::new();
        while let Some(pending) = self.pending.front() {
            let is_decided = |begun: &u64| {
                let episode = self.episode(*begun);
                episode.is_none_or(|episode| episode.has_ended || episode.number.is_some())
            };
            if !pending.begun.last().is_none_or(is_decided) {
                break;
            }
            let Some(pending) = self.pending.pop_front() else { break };
            ready.extend(self.numbered(&pending, context)?);
        }
        let needed = self.pending.front().and_then(|pending| pending.begun.first()).copied();
        // The last one may go on.
        let last = (self.first + self.open.len() as u64).saturating_sub(1);
        while self.first < needed.unwrap_or(last).min(last) {
            self.open.pop_front();
            self.first += 1;
        }
        Ok(ready)
    }

    /// The rows of episodes that are long enough, with their numbers.
    fn numbered(
        &self,
        pending: &PendingRows,
        context: &mut StageContext<'_>,
    ) -> Result<Option<Batch>, Error> {
        let episode = |row: usize| self.episode(*pending.begun.get(row)?);
        let number = |row: usize| episode(row).and_then(|episode| episode.number);
        let kept = crate::keep(&pending.batch, context, |row| number(row).is_some());
        if kept.is_empty() {
            return Ok(None);
        }
        let kept_rows: Vec<usize> =
            (0..pending.batch.len()).filter(|row| number(*row).is_some()).collect();
        let tasks = self.table.as_ref().is_some_and(|table| table.has_tasks);
        let rows = kept.rows().iter().map(|of| {
            let events = || of.events.iter().filter_map(|event| kept_rows.get(*event as usize));
            let numbers: Int64Array =
                events().map(|row| number(*row).and_then(|n| i64::try_from(n).ok())).collect();
            let mut added: Vec<(&str, ArrayRef)> = vec![(EPISODE, Arc::new(numbers))];
            if tasks {
                let task = |row: &usize| episode(*row)?.task.as_deref();
                added.push((TASK, Arc::new(events().map(task).collect::<StringArray>())));
            }
            with_columns(of, added)
        });
        let rows = rows.collect::<Result<_, _>>()?;
        Ok(Some(kept.with_rows(rows)))
    }
}

fn with_columns(of: &Rows, added: Vec<(&str, ArrayRef)>) -> Result<Rows, Error> {
    let schema = of.columns.schema();
    if let Some((name, _)) = added.iter().find(|(name, _)| schema.index_of(name).is_ok()) {
        return Err(Error::invalid(format!(
            "episodes: rows of `{}` already have a field `{name}`; give that another name",
            of.message.name
        )));
    }
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    let mut columns = of.columns.columns().to_vec();
    for (name, column) in added {
        fields.push(Arc::new(Field::new(name, column.data_type().clone(), true)));
        columns.push(column);
    }
    let schema = Arc::new(Schema::new(fields));
    let form = format!("{:?}", schema.fields());
    let key = TypeKey::from_parts([of.message.name.as_bytes(), form.as_bytes()]);
    let columns = RecordBatch::try_new(schema, columns)
        .map_err(|error| Error::internal(format!("rows of episodes: {error}")))?;
    let message = Arc::new(MessageType::part(Arc::clone(&of.message.name), key));
    Ok(Rows { message, events: of.events.clone(), columns, ..of.clone() })
}

impl Fold for Episodes {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let selected = self.select(&batch, context)?;
        let mut begun = Vec::new();
        let cut = self.cutter.cut(&batch, &selected, context.origin)?;
        for row in cut.iter().flatten() {
            self.add(row);
            begun.push(self.first + self.open.len() as u64 - 1);
        }
        let batch = crate::keep(&batch, context, |event| cut[event].is_some());
        if !batch.is_empty() {
            let batch = if self.min_rows > 1 { batch.compact() } else { batch };
            self.pending.push_back(PendingRows { batch, begun });
        }
        self.take_decided(context)
    }

    fn named_fields(&self) -> Vec<(&'static str, FieldPath)> {
        let needed = self.condition.as_ref().map(Condition::needed_fields).unwrap_or_default();
        let needed = needed.into_iter().map(|field| ("where", field));
        let change = self.cutter.change().cloned().map(|field| ("change", field));
        needed.chain(change).collect()
    }

    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        // Also the default: without such a channel, every event is dropped.
        vec![("channel", self.channel.clone())]
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.end_last();
        let ready = self.take_decided(context)?;
        // Notes do not show a count of 0.
        context.note(if self.kept == 0 { "no episodes" } else { "episodes" }, self.kept);
        if self.short > 0 {
            let note = format!("episodes with fewer than {} rows are dropped", self.min_rows);
            context.note(note, self.short);
        }
        Ok(ready)
    }

    fn needs_origin(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.is_relative())
    }

    fn fingerprint(&self) -> Option<String> {
        self.table.as_ref().map(|table| table.fingerprint.clone())
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Unclear
    }
}
