//! Turns a batch into frames: the columns of their features, their times, and the runs that belong
//! to one channel, episode and task. Runs on any thread; cuts no episodes.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use sluice_model::{Batch, ChannelId, Error, FieldPath, PrepareContext, Rows, time};

use super::columns::{FieldValues, ImageSource, PreparedColumn, UnusableRows};
use super::options::{FloatPolicy, LeRobotSink, UnusablePolicy};
use super::plan::{self, EPISODE, PlannedFeature};
use crate::feature::{FeatureType, NumberType, TASK};
use crate::numbers;

/// Frames that have the same columns.
#[derive(Debug)]
pub(super) struct FramePart {
    pub(super) columns: Vec<PreparedColumn>,
    pub(super) times: Vec<i64>,
    pub(super) sequences: Vec<i64>,
    /// The channels as read.
    pub(super) origins: Vec<u32>,
    /// Bytes of a frame's numbers.
    fixed_bytes: usize,
}

impl FramePart {
    /// About how many bytes a frame takes.
    pub(super) fn frame_bytes(&self, row: usize) -> usize {
        let texts = self.columns.iter().map(|column| match column.feature_type {
            FeatureType::Text => column.values.as_string::<i32>().value_length(row) as usize,
            FeatureType::Image => column.values.as_binary::<i32>().value_length(row) as usize,
            FeatureType::Number(_) => 0,
        });
        self.fixed_bytes + texts.sum::<usize>()
    }
}

/// Consecutive frames of one channel, episode and task.
#[derive(Debug)]
pub(super) struct FrameRun {
    pub(super) part: Arc<FramePart>,
    pub(super) rows: Range<usize>,
    pub(super) channel: ChannelId,
    /// The value of the field `episode`.
    pub(super) episode: Option<i64>,
    /// The value of the field `task`.
    pub(super) task: Option<Arc<str>>,
}

/// The frames of a batch, in order.
#[derive(Debug)]
pub struct FrameBlock {
    pub(super) runs: Vec<FrameRun>,
}

/// Bytes of the columns that every dataset has.
const OWN_BYTES: usize = 40;

const UNDECODED: &str = "the event has no fields: put the stage `decode` before the sink";

impl LeRobotSink {
    /// The frames of a batch.
    pub(super) fn frames(
        &self,
        batch: &Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<FrameBlock, Error> {
        let mut parts = Vec::new();
        // The part and row of each event.
        let mut places: Vec<Option<(usize, usize)>> = vec![None; batch.len()];
        let mut decoded = vec![false; batch.len()];
        for rows in batch.rows() {
            let mut unusable = UnusableRows::new();
            let part = self.part(batch, rows, &mut unusable, context)?;
            let mut frame = 0;
            for (row, event) in rows.events.iter().enumerate() {
                decoded[*event as usize] = true;
                match unusable.remove(&row) {
                    Some(why) => self.refuse(batch, *event, why, context)?,
                    None => {
                        places[*event as usize] = Some((parts.len(), frame));
                        frame += 1;
                    }
                }
            }
            parts.push(part);
        }
        let undecoded = (0..).zip(&decoded).filter(|(_, decoded)| !**decoded);
        context.report.refused.extend(undecoded.map(|(event, _)| (event, UNDECODED.to_owned())));
        Ok(FrameBlock { runs: runs(batch, &parts, &places) })
    }

    fn refuse(
        &self,
        batch: &Batch,
        event: u32,
        why: String,
        context: &mut PrepareContext<'_>,
    ) -> Result<(), Error> {
        if self.unusable == UnusablePolicy::Drop {
            context.report.refused.push((event, why));
            return Ok(());
        }
        let at = time::format(batch.timestamps()[event as usize]);
        let what = "`unusable = \"drop\"` leaves such rows out";
        Err(Error::invalid(format!("the row at {at} cannot be a frame: {why}; {what}")))
    }

    /// The usable rows of one type.
    fn part(
        &self,
        batch: &Batch,
        rows: &Rows,
        unusable: &mut UnusableRows,
        context: &PrepareContext<'_>,
    ) -> Result<PreparedPart, Error> {
        let planned = self.planned(batch, rows, context)?;
        let resolved: Vec<_> = planned
            .iter()
            .map(|planned| {
                let array = planned.field.resolve(&rows.columns);
                let missing = || plan::missing_field(&planned.field, rows.columns.schema_ref());
                let array = array.ok_or_else(missing)?;
                Ok((array, ImageSource::resolve(planned, &rows.columns)))
            })
            .collect::<Result<_, Error>>()?;
        let keeps_doubles = self.floats == FloatPolicy::Keep;
        let mut fields = Vec::new();
        for (planned, (array, images)) in planned.iter().zip(&resolved) {
            let (array, count) = (Some(Arc::clone(array)), rows.events.len());
            fields.push(FieldValues::resolve(
                planned,
                array,
                images.as_ref(),
                keeps_doubles,
                unusable,
                count,
            )?);
        }
        let all = 0..rows.events.len() as u32;
        let kept: Vec<u32> = all.filter(|row| !unusable.contains_key(&(*row as usize))).collect();
        let time_of = |row: u32| batch.timestamps()[rows.events[row as usize] as usize];
        let columns = fields.into_iter().map(|field| field.select(&kept, time_of));
        let columns: Vec<PreparedColumn> = columns.collect::<Result<_, _>>()?;
        let events = || kept.iter().map(|row| rows.events[*row as usize] as usize);
        let fixed_bytes = OWN_BYTES + columns.iter().map(number_bytes).sum::<usize>();
        let frames = FramePart {
            columns,
            times: events().map(|event| batch.timestamps()[event]).collect(),
            sequences: events().map(|event| batch.sequences()[event]).collect(),
            origins: events().map(|event| batch.origins()[event]).collect(),
            fixed_bytes,
        };
        // A field that is chosen as a feature is no text of a task.
        let is_feature = planned.iter().any(|planned| planned.field.first() == TASK);
        let tasks = tasks(rows, &kept, is_feature)?;
        let episodes = episodes(rows, &kept)?;
        Ok(PreparedPart { frames: Arc::new(frames), episodes, tasks })
    }

    fn planned(
        &self,
        batch: &Batch,
        rows: &Rows,
        context: &PrepareContext<'_>,
    ) -> Result<Vec<PlannedFeature>, Error> {
        let first = rows.events.first().map_or(0, |event| *event as usize);
        let channel = batch.channels().get(first).map(|id| context.channels.get(ChannelId(*id)));
        let name = channel.as_ref().map_or("", |channel| channel.name.text());
        let schema = rows.columns.schema_ref();
        plan::plan(self.features.as_ref(), schema, name, &rows.message.name)
    }
}

/// Frames with what tells episodes and tasks apart.
struct PreparedPart {
    frames: Arc<FramePart>,
    episodes: Option<Vec<Option<i64>>>,
    tasks: Option<Vec<Option<Arc<str>>>>,
}

impl PreparedPart {
    fn episode(&self, row: usize) -> Option<i64> {
        self.episodes.as_ref()?.get(row).copied().flatten()
    }

    fn task(&self, row: usize) -> Option<&Arc<str>> {
        self.tasks.as_ref()?.get(row)?.as_ref()
    }
}

fn number_bytes(column: &PreparedColumn) -> usize {
    let FeatureType::Number(number) = column.feature_type else { return 0 };
    let width: usize = column.shape.iter().product();
    width * number.data_type().primitive_width().unwrap_or(1)
}

/// The values of the field `episode` in these rows.
fn episodes(rows: &Rows, kept: &[u32]) -> Result<Option<Vec<Option<i64>>>, Error> {
    let Some(array) = FieldPath::column(EPISODE).resolve(&rows.columns) else { return Ok(None) };
    if !array.data_type().is_integer() {
        return Err(Error::invalid(format!(
            "expected integers in the field `{EPISODE}`, found {}: rename the field, or number \
             episodes with the stage `episodes`",
            array.data_type()
        )));
    }
    let nulls = array.nulls().cloned();
    let numbers = numbers::converted(array, NumberType::Int64).ok_or_else(|| {
        Error::invalid(format!("a number in the field `{EPISODE}` is beyond 64 bits"))
    })?;
    let values = numbers.as_primitive::<Int64Type>().values();
    let value = |row: &u32| {
        let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(*row as usize));
        values.get(*row as usize).copied().filter(|_| !is_null)
    };
    Ok(Some(kept.iter().map(value).collect()))
}

/// The texts of the field `task` in these rows. Equal neighbours share one. `Err` if it is no text,
/// unless it is a feature as well.
fn tasks(
    rows: &Rows,
    kept: &[u32],
    is_feature: bool,
) -> Result<Option<Vec<Option<Arc<str>>>>, Error> {
    let Some(array) = FieldPath::column(TASK).resolve(&rows.columns) else { return Ok(None) };
    let text: fn(&ArrayRef, usize) -> &str = match array.data_type() {
        DataType::Utf8 => |array, row| array.as_string::<i32>().value(row),
        DataType::LargeUtf8 => |array, row| array.as_string::<i64>().value(row),
        DataType::Utf8View => |array, row| array.as_string_view().value(row),
        // It has no value.
        DataType::Null => return Ok(None),
        _ if is_feature => return Ok(None),
        other => {
            return Err(Error::invalid(format!(
                "expected text in the field `{TASK}`, found {other}: rename the field, or give it \
                 another name in `features`"
            )));
        }
    };
    let mut last: Option<Arc<str>> = None;
    let shared = kept.iter().map(|row| {
        let row = *row as usize;
        let text = array.is_valid(row).then(|| text(&array, row))?;
        let same = last.as_ref().filter(|last| &***last == text).cloned();
        let shared = same.unwrap_or_else(|| text.into());
        last = Some(Arc::clone(&shared));
        Some(shared)
    });
    Ok(Some(shared.collect()))
}

/// The frames in the order of their events, cut where anything but their values changes.
fn runs(batch: &Batch, parts: &[PreparedPart], places: &[Option<(usize, usize)>]) -> Vec<FrameRun> {
    let mut runs: Vec<FrameRun> = Vec::new();
    let mut last_part = None;
    for (event, place) in places.iter().enumerate() {
        let Some((at, row)) = *place else { continue };
        let (part, channel) = (&parts[at], ChannelId(batch.channels()[event]));
        let (episode, task) = (part.episode(row), part.task(row));
        let continues = |run: &&mut FrameRun| {
            let same = run.channel == channel && run.episode == episode;
            same && run.rows.end == row && last_part == Some(at) && run.task.as_ref() == task
        };
        match runs.last_mut().filter(continues) {
            Some(run) => run.rows.end += 1,
            None => runs.push(FrameRun {
                part: Arc::clone(&part.frames),
                rows: row..row + 1,
                channel,
                episode,
                task: task.cloned(),
            }),
        }
        last_part = Some(at);
    }
    runs
}
