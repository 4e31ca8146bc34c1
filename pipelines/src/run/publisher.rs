//! Where a run's outputs go: makes the room for them, and publishes what is complete. Writes no event.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use sluice_core::output::PublishedFile;
use sluice_core::{Error, Outputs, RunOrigin, SinkContext};

use super::recording::Piece;
use super::{Options, Setup, Within};
use crate::manifest::{Base, Ended};

/// Publishes the outputs of a run: once, or piece by piece.
pub(super) struct Publisher<'r> {
    pub(super) setup: &'r Setup,
    pub(super) options: &'r Options,
    pub(super) within: Option<&'r Within<'r>>,
    pub(super) origin: Arc<RunOrigin>,
    pub(super) plugins: Vec<String>,
    /// The files that are read, none of which may be written.
    pub(super) inputs: Vec<PathBuf>,
    /// What the sinks call their outputs.
    pub(super) targets: Vec<PathBuf>,
    /// Whether what grows can be read.
    pub(super) grows: bool,
    pub(super) hash: bool,
}

/// The outputs that are written now.
pub(super) struct Room {
    pub(super) outputs: Arc<Outputs>,
    begun: Instant,
    /// Events appended.
    pub(super) events: u64,
    /// Bytes of payloads appended to sinks that hold events back.
    pub(super) held: u64,
}

impl Room {
    pub(super) fn piece(&self) -> Piece {
        let (events, begun) = (self.events, self.begun);
        Piece { events, bytes: self.outputs.written().max(self.held), begun }
    }
}

impl Publisher<'_> {
    /// Room for outputs: of the whole run, or of the next piece.
    pub(super) fn room(&self) -> Result<Room, Error> {
        let Self { options, inputs, targets, .. } = self;
        let mut outputs = Outputs::new(options.overwrite, self.hash, inputs);
        if let Some(recording) = &options.recording {
            outputs = outputs.in_place(self.grows);
            for target in targets {
                outputs = outputs.with_name(target, recording.pieces.name(target)?);
            }
        }
        if let Some(within) = self.within {
            outputs = outputs.with_protected_inputs(Arc::clone(&within.spared));
            outputs = outputs.with_litter(Arc::clone(&within.litter));
        }
        if let Some(staging) = self.within.and_then(|within| within.staging.as_ref()) {
            outputs = outputs.staged(Arc::clone(staging));
        }
        if let Some(faults) = &options.faults {
            outputs = outputs.with_faults(Arc::clone(faults));
        }
        let outputs = Arc::new(outputs.with_tasks(self.setup.tasks()?));
        Ok(Room { outputs, begun: Instant::now(), events: 0, held: 0 })
    }

    /// What the sink of this name is opened with.
    pub(super) fn context(&self, room: &Room, sink: &Arc<str>) -> Result<SinkContext, Error> {
        Ok(SinkContext {
            outputs: Arc::clone(&room.outputs),
            channels: Arc::clone(&self.setup.shared.channels),
            tasks: self.setup.tasks()?,
            memory: self.setup.sink_memory(),
            origin: Arc::clone(&self.origin),
            playback: Arc::clone(&self.options.playback),
            cancelled: Arc::clone(&self.options.stop.drain),
            run_handle: self.setup.talk(sink),
        })
    }

    /// Publishes all that is complete.
    pub(super) fn publish(
        &self,
        outputs: &Outputs,
        ended: Ended,
    ) -> Result<Vec<PublishedFile>, Error> {
        let Self { origin, plugins, .. } = self;
        let base = Base { origin, plugins, ended };
        outputs.publish_announced(
            |folder, files| base.text_for(folder, files),
            |files| self.within.map_or(Ok(()), |within| (within.announce)(origin, ended, files)),
        )
    }
}
