//! Opens the outputs of a run, and publishes those that are complete. Writes no event.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use sluice_io::files::InputHashes;
use sluice_io::output::PublishedFile;
use sluice_model::{Error, ErrorKind, Outputs, RunOrigin, SinkContext};

use super::recording::PieceProgress;
use super::{Options, ParentRun, Setup};
use crate::manifest::{ManifestBase, RunEnd};

/// Publishes the outputs of a run, once or piece by piece.
pub(super) struct Publisher<'r> {
    pub(super) setup: &'r Setup,
    pub(super) options: &'r Options,
    pub(super) parent: Option<&'r ParentRun<'r>>,
    pub(super) origin: Arc<RunOrigin>,
    /// The hashes of the inputs, if they are wanted.
    pub(super) hashes: Arc<InputHashes>,
    pub(super) plugins: Vec<String>,
    /// The files that are read, none of which may be written.
    pub(super) inputs: Vec<PathBuf>,
    /// The sinks' targets.
    pub(super) targets: Vec<PathBuf>,
    /// The sinks, by node index, that get what is received live, which cannot be read again: it is
    /// published also if the run fails.
    pub(super) receiving: BTreeSet<usize>,
    /// Whether all outputs are readable while they grow.
    pub(super) grows: bool,
    pub(super) hash: bool,
}

/// The open outputs, and how much has been written to them.
pub(super) struct OutputSet {
    pub(super) outputs: Arc<Outputs>,
    started: Instant,
    /// Events appended.
    pub(super) events: u64,
    /// Payload bytes appended to sinks that buffer events.
    pub(super) held: u64,
}

impl OutputSet {
    pub(super) fn piece(&self) -> PieceProgress {
        let (events, begun) = (self.events, self.started);
        PieceProgress { events, bytes: self.outputs.written().max(self.held), started: begun }
    }
}

impl Publisher<'_> {
    /// Opens the outputs of the whole run, or of the next piece.
    pub(super) fn open_outputs(&self) -> Result<OutputSet, Error> {
        let Self { options, inputs, targets, .. } = self;
        let mut outputs = Outputs::new(options.overwrite, self.hash, inputs);
        outputs = outputs.with_abort(options.stop.abort_flag());
        if let Some(recording) = &options.recording {
            outputs = outputs.in_place(self.grows);
            for target in targets {
                outputs = outputs.with_name(target, recording.pieces.name(target)?);
            }
        }
        if let Some(within) = self.parent {
            outputs = outputs.with_protected_inputs(Arc::clone(&within.spared));
            outputs = outputs.with_litter(Arc::clone(&within.litter));
            outputs = outputs.in_shared_folders(within.shared_folders);
        }
        if let Some(staging) = self.parent.and_then(|within| within.staging.as_ref()) {
            outputs = outputs.staged(Arc::clone(staging));
        }
        if let Some(faults) = &options.faults {
            outputs = outputs.with_faults(Arc::clone(faults));
        }
        let outputs = Arc::new(outputs.with_tasks(self.setup.tasks()?));
        Ok(OutputSet { outputs, started: Instant::now(), events: 0, held: 0 })
    }

    /// The context for opening the sink with this name.
    pub(super) fn context(
        &self,
        outputs: &OutputSet,
        sink: &Arc<str>,
    ) -> Result<SinkContext, Error> {
        Ok(SinkContext {
            outputs: Arc::clone(&outputs.outputs),
            channels: Arc::clone(&self.setup.shared.channels),
            memory: self.setup.sink_memory(),
            origin: Arc::clone(&self.origin),
            run: self.setup.sink_handle(sink),
            is_piece: self.options.recording.is_some(),
        })
    }

    /// Whether an error of outputs says that the disk is full, and this is a recording, which then
    /// ends with what it has.
    pub(super) fn is_disk_full(&self, error: &Error) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let ErrorKind::Io { source, .. } = error.kind() else { return false };
        let is_full = matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge);
        is_full && self.options.recording.is_some()
    }

    /// Publishes all complete outputs.
    pub(super) fn publish(
        &self,
        outputs: &Outputs,
        ended: &RunEnd,
    ) -> Result<Vec<PublishedFile>, Error> {
        let Self { origin, plugins, .. } = self;
        let _publishing = self.options.stop.publishing();
        let base = ManifestBase { origin, plugins, ended };
        outputs.publish_announced(
            |folder, files| base.manifest_text(folder, files),
            |files| self.parent.map_or(Ok(()), |within| (within.announce)(origin, ended, files)),
        )
    }
}
