//! Deliveries: a worker's result for one unit. Publishes nothing.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sluice_io::output::PublishedFile;
use sluice_io::output::staging::StagedFile;
use sluice_model::{Error, ErrorKind};

use super::exchange::ExchangePath;
use crate::batch::UnitRecord;
use crate::report::Report;

/// A worker's result for one unit.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UnitDelivery {
    pub(super) unit: usize,
    /// The attempt, which names its folder.
    pub(super) attempt: String,
    pub(super) what: AttemptResult,
}

/// The result of one attempt.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum AttemptResult {
    /// It produced these outputs.
    Done(Box<UnitOutputs>),
    /// An earlier run had done it, according to this record.
    Skipped(Box<UnitRecord>),
    /// It failed, and would fail on any worker.
    Failed {
        why: String,
        is_not_allowed: bool,
        /// What is known of the run.
        known: Box<Report>,
    },
    /// This worker cannot run it; others may.
    Refused { why: String },
}

/// The outputs of a unit.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UnitOutputs {
    /// Without files; these are in `handed`.
    pub(super) report: Report,
    /// `None` if the run has no batch record.
    pub(super) record: Option<UnitRecord>,
    pub(super) handed: Vec<DeliveredFile>,
}

/// A delivered file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DeliveredFile {
    /// Its path in the attempt's folder.
    pub(super) place: PathBuf,
    /// What it will be published as.
    pub(super) file: PublishedFile,
    #[serde(default)]
    pub(super) is_index: bool,
}

impl UnitDelivery {
    /// Reads a delivery for this unit. `Err` if it is not valid.
    pub(super) fn read(site: &ExchangePath, path: &Path, unit: usize) -> Result<Self, Error> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let delivery: Self = site.read_json(name)?;
        let is_plain = |path: &Path| {
            let mut parts = path.components();
            let plain = parts.all(|part| matches!(part, Component::Normal(_)));
            plain && !path.as_os_str().is_empty()
        };
        let sound = match &delivery.what {
            AttemptResult::Done(made) => made.handed.iter().all(|handed| is_plain(&handed.place)),
            _ => true,
        };
        if delivery.unit == unit && site.delivery(unit, &delivery.attempt) == path && sound {
            return Ok(delivery);
        }
        Err(Error::refused(format!("this is not a delivery of unit {unit}: {}", path.display())))
    }
}

impl AttemptResult {
    pub(super) fn failed(error: &Error, known: Report) -> Self {
        let is_not_allowed = matches!(error.kind(), ErrorKind::NotAllowed(_));
        // What it has staged is published by nobody.
        let known = Box::new(Report { files: Vec::new(), ..known });
        Self::Failed { why: error.to_string(), is_not_allowed, known }
    }
}

impl DeliveredFile {
    /// A file staged in an attempt's folder.
    pub(super) fn from_staged(put: StagedFile, folder: &Path) -> Result<Self, Error> {
        let StagedFile { place, file, is_index } = put;
        let place = place.strip_prefix(folder).map(Path::to_owned);
        let place =
            place.map_err(|_| Error::internal("a file was staged outside of its attempt"))?;
        Ok(Self { place, file, is_index })
    }
}
