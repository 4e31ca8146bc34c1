//! Computes figures: what each batch contributes, on any thread, and their sum in the order of the
//! log.
//!
//! The sum is exact: it does not depend on how the log is cut into batches. Memory is bounded,
//! whatever the log.

mod bins;
mod channel;
mod clouds;
mod fields;
mod finish;
mod gaps;
mod grid;
mod hints;
mod latency;
mod packets;
mod part;
mod pictures;
mod places;
mod plots;
mod row_types;
mod sum;
#[cfg(test)]
mod tests;
mod type_rows;
mod views;

use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_model::{Batch, ChannelId, Channels, Error};

use part::Limits;
pub(crate) use part::Part;
pub(crate) use plots::without_numbers;
pub(crate) use views::ReportViews;

use bins::BinCounter;
use fields::Fields;
use hints::CollectedHints;
use row_types::RowTypes;

use crate::CloudFigures;
use crate::thumbnail::StoredPicture;

/// The most channels with figures of their own.
const MAX_CHANNELS: usize = 1_000;
/// The most channels that may have thumbnails: the first of the log.
const MAX_CAMERAS: usize = 128;
/// The most fields with figures: of all channels, and of each.
const MAX_FIELDS: usize = 1_000;
const MAX_FIELDS_OF_CHANNEL: usize = 128;

/// Computes what batches contribute, on any thread. One for all outputs of a sink.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    hints: CollectedHints,
    types: RowTypes,
    /// Those that no thread uses.
    bins: Mutex<Vec<BinCounter>>,
}

impl Collector {
    /// Starts with a new log, or with a piece of a recording.
    pub(crate) fn begin(&self, is_piece: bool) {
        self.hints.begin(is_piece);
        self.types.clear();
    }

    /// What a batch contributes; `shown` is `None` if what messages show is not needed.
    pub(crate) fn part(
        &self,
        batch: &Batch,
        rows: RowFigures,
        shown: Option<ShownContext<'_>>,
    ) -> Part {
        let mut bins = self.bins().pop().unwrap_or_default();
        let part =
            Part::from_batch(batch, &PartContext { collector: self, rows, shown }, &mut bins);
        self.bins().push(bins);
        part
    }

    fn bins(&self) -> MutexGuard<'_, Vec<BinCounter>> {
        self.bins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What computing the contribution of a batch needs to know.
#[derive(Clone, Copy, Debug)]
struct PartContext<'c> {
    collector: &'c Collector,
    rows: RowFigures,
    shown: Option<ShownContext<'c>>,
}

/// What is measured of decoded rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowFigures {
    /// Latencies, and the fields that are numbers.
    Values,
    /// Nothing but their types.
    Types,
}

/// What computing what a batch shows needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownContext<'c> {
    /// Every channel of the run.
    pub(crate) channels: &'c Channels,
    /// What messages show.
    pub(crate) views: &'c ReportViews,
}

/// The packets of a laser's first revolution.
pub(crate) struct LaserPackets {
    channel: u32,
    /// The number of the map that says they are packets.
    map: usize,
    events: Batch,
}

impl LaserPackets {
    /// The scan; `None` if the packets have no points.
    ///
    /// `Err` if the stage that makes points of packets fails.
    pub(crate) fn scan(
        self,
        views: &ReportViews,
        channels: &Channels,
    ) -> Result<Option<CloudFigures>, Error> {
        let cloud = views.revolution(self.map, self.events, channels)?;
        let name = channels.get(ChannelId(self.channel)).name.text().to_owned();
        Ok(cloud.map(|cloud| cloud.figures(name)))
    }
}

/// What has been collected of a log so far.
#[derive(Debug)]
pub(crate) struct Collection {
    part: Part,
    fields: Fields,
    limits: Limits,
}

impl Default for Collection {
    fn default() -> Self {
        Self::keeping([])
    }
}

impl Collection {
    /// A collection that keeps fields with these paths, whatever the number of fields.
    pub(crate) fn keeping<'p>(paths: impl IntoIterator<Item = &'p str>) -> Self {
        let kept = paths.into_iter().map(str::to_owned).collect();
        let fields = Fields::limited(MAX_FIELDS, MAX_FIELDS_OF_CHANNEL, kept);
        let limits = Limits { channels: MAX_CHANNELS, cameras: MAX_CAMERAS };
        Self { part: Part::default(), fields, limits }
    }

    /// Adds the part that follows in the order of the log, and tells the collector what is not
    /// needed any more.
    pub(crate) fn append(&mut self, mut next: Part, collector: &Collector) {
        let (widths, next_width) = (self.part.widths(), next.times.width());
        let mut fields = std::mem::take(&mut next.fields);
        let is_shown = next.channels.iter().any(|part| part.views.has_hints());
        self.part.append(next, &self.limits);
        let width = self.part.times.width();
        fields.widen(next_width, width);
        self.fields.widen(widths.0, width);
        self.fields.append(&fields, |channel| self.part.place(channel));
        if is_shown || widths != self.part.widths() {
            collector.hints.replace(self.part.collected_times());
        }
    }

    /// Of each channel with packets of a laser, those of its first revolution.
    pub(crate) fn scans(&self) -> impl Iterator<Item = LaserPackets> {
        self.part.channels.iter().filter_map(|part| {
            let (map, packets) = part.views.packets.as_ref()?;
            let events = packets.events(part.channel)?;
            Some(LaserPackets { channel: part.channel, map: *map, events })
        })
    }

    /// At most `most` evenly spaced pictures of each camera, with its channel's number and their
    /// times.
    pub(crate) fn spaced_pictures(&self, most: usize) -> Vec<(u32, i64, StoredPicture)> {
        let each = self.part.channels.iter().flat_map(|part| {
            let spaced = part.views.pictures.spaced(most).into_iter();
            spaced.map(|(time, picture)| (part.channel, time, picture))
        });
        each.collect()
    }
}
