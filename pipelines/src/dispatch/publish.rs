//! Publishes deliveries: the journal line first, then all names at once, with the same code as
//! local runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_io::files::{self, FileIdentity};
use sluice_io::output::staging::StagedFile;
use sluice_io::output::{MANIFEST, PublishedFile};
use sluice_model::{Error, ErrorKind, Outputs, Overwrite};

use super::delivery::{AttemptResult, DeliveredFile, UnitOutputs};
use crate::batch::{BatchRecorder, UnitOutcome, UnitRecord};
use crate::report::Report;
use crate::run::Options;

/// A delivery, and the folder of its outputs until they are published.
#[derive(Debug)]
pub(super) struct ReceivedDelivery {
    pub(super) what: AttemptResult,
    pub(super) folder: PathBuf,
}

/// Publishes a unit's outputs.
pub(super) struct DeliveryPublisher<'o> {
    pub(super) options: &'o Options,
    /// The files that were read, none of which may be written.
    pub(super) inputs: Vec<PathBuf>,
    /// Files that other units read.
    pub(super) spared: Arc<BTreeSet<FileIdentity>>,
}

impl ReceivedDelivery {
    /// The error with its own exit code that this result stands for, if any.
    pub(super) fn refusal(&self) -> Option<Error> {
        match &self.what {
            AttemptResult::Failed { why, is_not_allowed: true, .. } => {
                Some(ErrorKind::NotAllowed(why.clone()).into())
            }
            _ => None,
        }
    }

    /// What is known of the run if it has failed, or if its outputs cannot be published.
    pub(super) fn known(&self) -> Report {
        match &self.what {
            AttemptResult::Done(outputs) => outputs.report.clone(),
            AttemptResult::Failed { known, .. } => Report::clone(known),
            AttemptResult::Skipped(_) | AttemptResult::Refused { .. } => Report::default(),
        }
    }
}

impl DeliveryPublisher<'_> {
    /// Publishes a delivery, if it succeeded; returns the outcome and the unit's record.
    pub(super) fn settle(
        &self,
        delivery: ReceivedDelivery,
        recorder: Option<&BatchRecorder<'_>>,
    ) -> (UnitOutcome, Option<UnitRecord>) {
        match self.try_settle(delivery, recorder) {
            Ok(settled) => settled,
            Err(error) => (UnitOutcome::Failed(error.to_string(), Box::default()), None),
        }
    }

    fn try_settle(
        &self,
        ReceivedDelivery { what, folder }: ReceivedDelivery,
        recorder: Option<&BatchRecorder<'_>>,
    ) -> Result<(UnitOutcome, Option<UnitRecord>), Error> {
        match what {
            AttemptResult::Done(outputs) => {
                let (report, record) = self.publish(*outputs, &folder, recorder)?;
                Ok((UnitOutcome::Done(Box::new(report)), record))
            }
            AttemptResult::Skipped(record) => {
                recorder.map_or(Ok(()), |recorder| recorder.remove_stale_files(&record))?;
                Ok((UnitOutcome::Skipped(record.ended.clone()), Some(*record)))
            }
            AttemptResult::Failed { why, known, .. } => Ok((UnitOutcome::Failed(why, known), None)),
            AttemptResult::Refused { why } => Ok((UnitOutcome::Failed(why, Box::default()), None)),
        }
    }

    fn publish(
        &self,
        outputs: UnitOutputs,
        folder: &Path,
        recorder: Option<&BatchRecorder<'_>>,
    ) -> Result<(Report, Option<UnitRecord>), Error> {
        let _publishing = self.options.stop.publishing();
        let UnitOutputs { mut report, record, handed } = outputs;
        let outputs = Outputs::new(self.options.overwrite, false, &self.inputs);
        let mut outputs = outputs.with_protected_inputs(Arc::clone(&self.spared));
        outputs = outputs.with_abort(self.options.stop.abort_flag());
        if let Some(faults) = &self.options.faults {
            outputs = outputs.with_faults(Arc::clone(faults));
        }
        let (manifests, files): (Vec<DeliveredFile>, Vec<DeliveredFile>) =
            handed.into_iter().partition(|handed| handed.file.path.ends_with(MANIFEST));
        let texts = manifest_texts(&manifests, folder)?;
        for folder in texts.keys() {
            outputs.folder(folder)?;
        }
        for DeliveredFile { place, file, is_index } in files {
            outputs.adopt(StagedFile { place: folder.join(place), file, is_index })?;
        }
        let text = |folder: &Path, _: &[PublishedFile]| {
            texts
                .get(folder)
                .cloned()
                .ok_or_else(|| Error::internal("a manifest was not delivered"))
        };
        let note = |files: &[PublishedFile]| match (recorder, &record) {
            (Some(recorder), Some(record)) if record.describes(files) => recorder.append(record),
            (None, _) => Ok(()),
            _ => Err(Error::internal("the delivered files do not match their record")),
        };
        report.files = outputs.publish_announced(text, note)?;
        report.note_leftover(&outputs);
        if let (Some(recorder), Some(record)) = (recorder, &record)
            && self.options.overwrite != Overwrite::Refuse
        {
            recorder.remove_stale_files(record)?;
        }
        Ok((report, record))
    }
}

/// The manifest texts, by the folder they describe.
fn manifest_texts(
    manifests: &[DeliveredFile],
    folder: &Path,
) -> Result<BTreeMap<PathBuf, String>, Error> {
    let each = manifests.iter().map(|DeliveredFile { place, file, .. }| {
        let place = folder.join(place);
        let text = String::from_utf8(files::read(&place)?)
            .map_err(|_| Error::internal("a delivered manifest is not UTF-8"))?;
        Ok((file.path.parent().unwrap_or(Path::new("")).to_owned(), text))
    });
    each.collect()
}
