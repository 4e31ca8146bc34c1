//! Deliveries: what a worker says of a unit when it is at an end with it. Publishes nothing.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sluice_core::output::PublishedFile;
use sluice_core::output::staging::StagedFile;
use sluice_core::{Error, ErrorKind};

use super::room::Site;
use crate::batch::UnitRecord;
use crate::report::Report;

/// What came of a unit.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Delivery {
    pub(super) unit: usize,
    /// The attempt that made it, which is the name of its folder.
    pub(super) attempt: String,
    pub(super) what: What,
}

/// What came of an attempt.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum What {
    /// Outputs.
    Done(Box<Made>),
    /// It had been done before, as this record says.
    Skipped(Box<UnitRecord>),
    /// It failed, and would fail everywhere.
    Failed { why: String, is_not_allowed: bool },
    /// This worker cannot do it; others may.
    Refused { why: String },
}

/// What a run made.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Made {
    /// Without the files, which are in `handed`.
    pub(super) report: Report,
    /// Nothing, where there is no record of a batch.
    pub(super) record: Option<UnitRecord>,
    pub(super) handed: Vec<Handed>,
}

/// A file that is handed on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Handed {
    /// Where it is in the attempt's folder.
    pub(super) place: PathBuf,
    /// What it is to be.
    pub(super) file: PublishedFile,
}

impl Delivery {
    /// Reads a delivery of this unit. `Err` if it is none.
    pub(super) fn read(site: &Site, path: &Path, unit: usize) -> Result<Self, Error> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let delivery: Self = site.read_json(name)?;
        let is_plain = |path: &Path| {
            let mut parts = path.components();
            let plain = parts.all(|part| matches!(part, Component::Normal(_)));
            plain && !path.as_os_str().is_empty()
        };
        let sound = match &delivery.what {
            What::Done(made) => made.handed.iter().all(|handed| is_plain(&handed.place)),
            _ => true,
        };
        if delivery.unit == unit && site.delivery(unit, &delivery.attempt) == path && sound {
            return Ok(delivery);
        }
        Err(Error::refused(format!("this is no delivery of unit {unit}: {}", path.display())))
    }
}

impl What {
    pub(super) fn failed(error: &Error) -> Self {
        let is_not_allowed = matches!(error.kind(), ErrorKind::NotAllowed(_));
        Self::Failed { why: error.to_string(), is_not_allowed }
    }
}

impl Handed {
    /// What was put into an attempt's folder.
    pub(super) fn of(put: StagedFile, folder: &Path) -> Result<Self, Error> {
        let StagedFile { place, file } = put;
        let place = place.strip_prefix(folder).map(Path::to_owned);
        let place =
            place.map_err(|_| Error::internal("a file was staged outside of its attempt"))?;
        Ok(Self { place, file })
    }
}
