//! Sink `lerobot`: rows as frames of a LeRobot dataset. Its parts prepare frames, cut episodes,
//! encode them, and write the files of the dataset.

mod append;
mod columns;
mod declared;
mod encode;
mod episodes;
mod grid;
mod options;
mod plan;
mod prepare;
mod write;

use std::sync::Arc;

use sluice_model::{
    Batch, Error, Job, PrepareContext, Sink, SinkContext, SinkInput, SinkTraits, Written,
};

use encode::EncodedFrames;
use episodes::{CutLimits, EpisodeCutter};
use prepare::FrameBlock;
use write::DatasetFiles;

pub use options::LeRobotSink;

sluice_model::register! {
    sink "lerobot": LeRobotSink,
    about: "writes the rows of one channel as a LeRobot dataset, for training policies",
    sample: include_str!("../../samples/lerobot-sink.toml"),
    rate_option: Some("fps"),
}

/// A dataset that is being written.
pub struct OpenDataset {
    context: SinkContext,
    cutter: EpisodeCutter,
    files: DatasetFiles,
}

impl Sink for LeRobotSink {
    type Block = FrameBlock;
    type Unit = EncodedFrames;
    type Output = OpenDataset;

    fn traits(&self) -> SinkTraits {
        SinkTraits { buffers_events: true, ..SinkTraits::writing(self.folder()).with_rows(true) }
    }

    fn open(&self, context: &SinkContext) -> Result<OpenDataset, Error> {
        let limits = CutLimits {
            holes: self.holes,
            max_hold: self.max_hold.nanos(),
            min_frames: self.min_frames.into(),
            // Encoding may need the same again, several times at once.
            unit_bytes: (context.memory / 8).max(1 << 10),
        };
        let mut cutter = EpisodeCutter::new(limits, self.fps, self.task.as_deref());
        let files = match self.append {
            false => {
                context.outputs.folder(&self.folder())?;
                DatasetFiles::new(self, context)
            }
            true => append::open(self, context, &mut cutter)?,
        };
        Ok(OpenDataset { context: context.clone(), cutter, files })
    }

    fn prepare(&self, batch: Batch, context: &mut PrepareContext<'_>) -> Result<FrameBlock, Error> {
        self.frames(&batch, context)
    }

    fn gather(
        &self,
        dataset: &mut OpenDataset,
        input: SinkInput<FrameBlock>,
    ) -> Result<Vec<Job<EncodedFrames>>, Error> {
        let cutter = &mut dataset.cutter;
        match input {
            SinkInput::Block(block) => cutter.push(block, &dataset.context.channels),
            // Where episodes end must not depend on when a recording is flushed.
            SinkInput::Flush => Ok(Vec::new()),
            SinkInput::End => Ok(cutter.end()?.into_iter().collect()),
        }
    }

    fn write(&self, dataset: &mut OpenDataset, unit: EncodedFrames) -> Result<Written, Error> {
        let OpenDataset { cutter, files, .. } = dataset;
        let mut written = std::mem::take(&mut cutter.unreported);
        written.events += unit.events;
        let encoder = cutter.encoder.as_ref();
        let encoder = encoder.ok_or_else(|| Error::internal("frames without features"))?;
        files.write(unit, &Arc::clone(encoder), &cutter.tasks)?;
        Ok(written)
    }

    fn finish(&self, dataset: OpenDataset) -> Result<Written, Error> {
        let OpenDataset { mut cutter, files, .. } = dataset;
        let mut written = std::mem::take(&mut cutter.unreported);
        written.notes = notes(&cutter, &files);
        files.finish(&cutter)?;
        Ok(written)
    }
}

/// Notes about the whole dataset.
fn notes(cutter: &EpisodeCutter, files: &DatasetFiles) -> Vec<(String, u64)> {
    let counts = cutter.counts;
    let each = [
        ("holes in the grid at which an episode was split", counts.splits),
        ("frames repeated to fill holes in the grid", counts.held),
        ("episodes begun because times step back", counts.back),
        ("episodes shorter than `min_frames`, left out", counts.short),
        (
            "episodes that exceed the run's memory: in several row groups, with quantiles that are \
             the means of these",
            counts.long,
        ),
        ("frames without a task, which have an empty text; set `task`", counts.without_task),
        ("images that cannot be decoded, left out of the statistics", files.undecodable()),
        (
            "files replaced or removed that info.json did not count: an append was killed",
            files.uncounted_files(),
        ),
        (
            "new episodes that are not in the split `train`, which does not end with the last \
             episode: change `splits` in info.json",
            files.episodes_without_split(),
        ),
    ];
    let mut notes: Vec<_> = each
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| (what.to_owned(), count))
        .collect();
    notes.extend(cutter.declared.notes(files.robot_type.is_some()));
    if cutter.next_frame == 0 {
        notes.push(("the dataset has no frames, so LeRobot cannot load it".to_owned(), 0));
    }
    notes
}
