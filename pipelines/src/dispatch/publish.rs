//! Publishing what was delivered: the journal's line first, then all names at once, by the code that runs on this
//! machine use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_core::files::FileIdentity;
use sluice_core::output::{MANIFEST, PublishedFile};
use sluice_core::{Error, ErrorKind, Outputs, Overwrite, files};

use super::delivery::{Handed, Made, What};
use crate::batch::{Book, Outcome, UnitRecord};
use crate::run::Options;

/// What came of a unit, and where its outputs are until they are published.
#[derive(Debug)]
pub(super) struct Came {
    pub(super) what: What,
    pub(super) folder: PathBuf,
}

/// How a unit's outputs are published.
pub(super) struct Publishing<'o> {
    pub(super) options: &'o Options,
    /// The files that were read, none of which may be written.
    pub(super) inputs: Vec<PathBuf>,
    /// What other units read.
    pub(super) spared: Arc<BTreeSet<FileIdentity>>,
}

impl Came {
    /// The error it stands for, where others than a failure to run matter to the exit code.
    pub(super) fn refused(&self) -> Option<Error> {
        match &self.what {
            What::Failed { why, is_not_allowed: true } => {
                Some(ErrorKind::NotAllowed(why.clone()).into())
            }
            _ => None,
        }
    }
}

impl Publishing<'_> {
    /// Publishes what came of a unit, if it is good; gives what became of it, and its record.
    pub(super) fn settle(&self, came: Came, book: Option<&Book>) -> (Outcome, Option<UnitRecord>) {
        match self.published(came, book) {
            Ok(settled) => settled,
            Err(error) => (Outcome::Failed(error.to_string()), None),
        }
    }

    fn published(
        &self,
        Came { what, folder }: Came,
        book: Option<&Book>,
    ) -> Result<(Outcome, Option<UnitRecord>), Error> {
        match what {
            What::Done(made) => {
                let (report, record) = self.publish(*made, &folder, book)?;
                Ok((Outcome::Done(Box::new(report)), record))
            }
            What::Skipped(record) => {
                book.map_or(Ok(()), |book| book.clear(&record))?;
                Ok((Outcome::Skipped(record.exit), Some(*record)))
            }
            What::Failed { why, .. } | What::Refused { why } => Ok((Outcome::Failed(why), None)),
        }
    }

    fn publish(
        &self,
        made: Made,
        folder: &Path,
        book: Option<&Book>,
    ) -> Result<(crate::Report, Option<UnitRecord>), Error> {
        let Made { mut report, record, handed } = made;
        let outputs = Outputs::new(self.options.overwrite, false, &self.inputs);
        let mut outputs = outputs.with_protected_inputs(Arc::clone(&self.spared));
        if let Some(faults) = &self.options.faults {
            outputs = outputs.with_faults(Arc::clone(faults));
        }
        let (manifests, files): (Vec<Handed>, Vec<Handed>) =
            handed.into_iter().partition(|handed| handed.file.path.ends_with(MANIFEST));
        let texts = texts(&manifests, folder)?;
        for folder in texts.keys() {
            outputs.folder(folder)?;
        }
        for Handed { place, file } in files {
            outputs.adopt(&folder.join(place), file)?;
        }
        let text = |folder: &Path, _: &[PublishedFile]| {
            texts
                .get(folder)
                .cloned()
                .ok_or_else(|| Error::internal("a manifest was not delivered"))
        };
        let note = |files: &[PublishedFile]| match (book, &record) {
            (Some(book), Some(record)) if record.names(files) => book.note(record),
            (None, _) => Ok(()),
            _ => Err(Error::internal("what was delivered is not what its record says")),
        };
        report.files = outputs.publish_announced(text, note)?;
        if let (Some(book), Some(record)) = (book, &record)
            && self.options.overwrite != Overwrite::Refuse
        {
            book.clear(record)?;
        }
        Ok((report, record))
    }
}

/// The texts of manifests, by the folders they describe.
fn texts(manifests: &[Handed], folder: &Path) -> Result<BTreeMap<PathBuf, String>, Error> {
    let each = manifests.iter().map(|Handed { place, file }| {
        let place = folder.join(place);
        let text = String::from_utf8(files::read(&place)?)
            .map_err(|_| Error::internal("a manifest was delivered that is no text"))?;
        Ok((file.path.parent().unwrap_or(Path::new("")).to_owned(), text))
    });
    each.collect()
}
