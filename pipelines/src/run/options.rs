//! How to run a pipeline, for callers and for the batch or worker that embeds a run.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use rayon::ThreadPool;
use sluice_io::files::FileIdentity;
use sluice_io::output::faults::FaultInjector;
use sluice_io::output::staging::StagingDir;
use sluice_io::output::{ListedLitter, PublishedFile};
use sluice_kit::{InputFaults, Playback};
use sluice_model::options::ByteSize;
use sluice_model::{Error, Overwrite, RunOrigin};

use super::milestone::{Milestone, Progress};
use super::recording::Recording;
use super::stop::Stop;
use crate::manifest::RunEnd;
use crate::report::Report;

/// The default memory cap.
pub const DEFAULT_MEMORY: ByteSize = ByteSize(512 << 20);

/// How to run a pipeline.
#[derive(Clone, Default)]
pub struct Options {
    /// Number of threads; `None` means one per core. With little memory, there are fewer.
    pub jobs: Option<usize>,
    /// Overrides the pipeline's memory cap.
    pub memory: Option<ByteSize>,
    /// How to treat existing outputs.
    pub overwrite: Overwrite,
    /// Whether the report includes the hashes of outputs.
    pub hash: bool,
    /// Stops the run from outside.
    pub stop: Arc<Stop>,
    /// Progress listener.
    pub progress: Option<Arc<dyn Progress>>,
    /// Controls sinks that play events in real time.
    pub playback: Arc<Playback>,
    /// Collects what sources find wrong with inputs besides damage.
    pub input_faults: Arc<InputFaults>,
    /// Whether nodes may run programs. Programs have the rights of the user, so a pipeline that
    /// runs any is refused otherwise.
    pub allow_exec: bool,
    /// Set if the run is a recording.
    pub recording: Option<Recording>,
    /// Whether a name in an option that matches nothing keeps the run from publishing; see
    /// [`Report::refused`](crate::Report::refused).
    pub strict: bool,
    /// Injected output failures, for tests.
    pub faults: Option<Arc<FaultInjector>>,
}

impl Options {
    pub(crate) fn report_milestone(&self, milestone: &Milestone<'_>) {
        if let Some(progress) = &self.progress {
            progress.milestone(milestone);
        }
    }

    /// Reports that a run failed, with what is known of it. A panic of the listener does not replace
    /// the error.
    pub(crate) fn report_failure(&self, report: &Report) {
        let failed = Milestone::Failed { report };
        let _reported: Result<(), Error> = Error::catching(|| {
            self.report_milestone(&failed);
            Ok(())
        });
    }

    /// Reports notes of a node, as they appear.
    pub(super) fn report_notes(&self, node: &str, notes: &[(String, u64)]) {
        if let Some(progress) = &self.progress {
            notes.iter().for_each(|(what, count)| progress.note(node, what, *count));
        }
    }
}

/// What a run gets from the batch or worker that embeds it.
pub(crate) struct ParentRun<'b> {
    /// A shared thread pool; `None` if the run starts its own.
    pub(crate) pool: Option<Arc<ThreadPool>>,
    /// Whether to hash inputs and outputs, as a record needs.
    pub(crate) hash: bool,
    /// Files that other units read, which must not be replaced.
    pub(crate) spared: Arc<BTreeSet<FileIdentity>>,
    /// The folders of its outputs into which other units write files.
    pub(crate) shared_folders: &'b [PathBuf],
    /// Temporary files of killed runs in the output folders.
    pub(crate) litter: Arc<ListedLitter>,
    /// Where to stage outputs that the driver of a cluster run publishes.
    pub(crate) staging: Option<Arc<StagingDir>>,
    /// Called with the run's end and all files about to be published. If it fails, none are.
    pub(crate) announce: &'b AnnounceFn<'b>,
}

pub(crate) type AnnounceFn<'b> =
    dyn Fn(&RunOrigin, &RunEnd, &[PublishedFile]) -> Result<(), Error> + 'b;

/// The memory cap.
pub(crate) fn memory_cap(options: &Options, from_file: Option<ByteSize>) -> ByteSize {
    options.memory.or(from_file).unwrap_or(DEFAULT_MEMORY)
}

/// The threads that a run may have with any memory.
const MIN_THREADS: usize = 4;

/// The memory cap that each further thread needs. The allocator keeps for each about that much of
/// what its tasks freed, which no budget counts.
const THREAD_MEMORY: u64 = 32 << 20;

/// The number of threads of a run, which its memory cap limits.
pub(crate) fn thread_count(options: &Options, from_file: Option<ByteSize>) -> usize {
    let memory = memory_cap(options, from_file);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = options.jobs.filter(|jobs| *jobs > 0).unwrap_or(cores);
    wanted.min(MIN_THREADS.max((memory.0 / THREAD_MEMORY) as usize))
}
