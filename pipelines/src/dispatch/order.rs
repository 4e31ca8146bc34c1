//! Orders: units to run, as plain data. Runs none.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluice_io::files::is_file;
use sluice_io::output::{remove_file, replace_file};
use sluice_io::store::is_address;
use sluice_model::options::ByteSize;
use sluice_model::{Error, Input, Overwrite, Registry};

use super::ProgramIdentity;
use super::exchange::{ExchangeDir, ExchangePath};
use crate::batch::{Blueprint, FilledSlot, Unit, UnitRecord};
use crate::run::{self, Options};
use crate::spec::{OnDamage, Pipeline, PluginInstance};

/// How executing an order ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderOutcome {
    /// A delivery exists, successful or not; nothing more to do.
    Delivered,
    /// It failed in a way that another attempt may not; retry, elsewhere if possible.
    Retry(String),
    /// The run no longer waits for it; nothing was done.
    Abandoned(String),
}

/// The maximum number of attempts per unit, and of dispatch rounds that settle none.
pub const ATTEMPTS: usize = 3;

/// A unit to run: everything that decides what is written, as plain data.
///
/// The part that all orders of a run share is one value in memory, and can be sent once; see
/// [`UnitOrder::to_json_parts`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnitOrder {
    pub(super) shared: Arc<RunSpec>,
    pub(super) own: UnitSpec,
}

/// The part that all orders of a run share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RunSpec {
    #[serde(rename = "greeting")]
    pub(super) identity: ProgramIdentity,
    /// The driver's working folder.
    pub(super) folder: PathBuf,
    /// Where workers leave their results.
    pub(super) site: ExchangePath,
    pub(super) blueprint: Blueprint,
    pub(super) memory: ByteSize,
    pub(super) jobs: Option<usize>,
    #[serde(with = "overwrite_json")]
    pub(super) overwrite: Overwrite,
    pub(super) hash: bool,
    pub(super) allow_exec: bool,
    /// The folder of the batch record, if there is one.
    pub(super) record: Option<PathBuf>,
}

/// The part that is specific to one order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct UnitSpec {
    pub(super) unit: usize,
    /// Its name in messages.
    pub(super) name: PathBuf,
    /// The files it reads.
    pub(super) inputs: Vec<Input>,
    /// Whether the source's `path` is replaced by the input.
    pub(super) fills_input: bool,
    pub(super) fills: Vec<FilledSlot>,
    /// The files and folders it writes.
    pub(super) outputs: Vec<PathBuf>,
    /// The folders of these into which other units write files.
    pub(super) shared_folders: Vec<PathBuf>,
    pub(super) known: KnownRecords,
}

/// Earlier records of a unit, latest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum KnownRecords {
    #[serde(rename = "Here")]
    Inline(Vec<UnitRecord>),
    /// In a file of the exchange directory, because units may have thousands of files.
    #[serde(rename = "InRoom")]
    InFile(String),
}

/// The maximum bytes of records sent with an order.
const MAX_INLINE_RECORDS: usize = 16 << 10;

impl UnitOrder {
    pub(super) fn new(shared: &Arc<RunSpec>, own: UnitSpec) -> Self {
        Self { shared: Arc::clone(shared), own }
    }

    /// The unit's number, from 0: its index among the orders of a run.
    pub fn unit(&self) -> usize {
        self.own.unit
    }

    /// The folder to run in: the driver's, so that relative paths keep their meaning.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// The unit's name in messages: its input, or the pipeline's name.
    pub fn input(&self) -> &Path {
        &self.own.name
    }

    /// The identity of the program that made the order.
    pub fn identity(&self) -> &ProgramIdentity {
        &self.shared.identity
    }

    /// The first of the working folder and the exchange directory that is not visible here; `None`
    /// if both are.
    pub fn invisible_folder(&self) -> Option<&Path> {
        let (folder, site) = (self.folder(), &self.shared.site);
        if !folder.is_dir() {
            return Some(folder);
        }
        (!site.exists()).then(|| site.path())
    }

    /// Whether the exchange directory is not visible here, most likely because the run is over.
    pub fn is_over(&self) -> bool {
        !self.shared.site.exists()
    }

    /// Leaves a mark in the exchange directory, unless that is gone: recreating it would leave it
    /// for ever.
    pub fn mark(&self, name: &str) -> Result<(), Error> {
        let path = self.shared.site.path().join(name);
        if !is_address(&path) {
            if let Some(folder) = path.parent() {
                match fs::create_dir(folder) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(Error::io("create", folder, error));
                    }
                    _ => {}
                }
            }
            return File::create(&path).map(drop).map_err(|e| Error::io("create", path, e));
        }
        replace_file(&path, b"done")?;
        if self.is_over() { remove_file(&path) } else { Ok(()) }
    }

    /// Whether this mark exists.
    pub fn is_marked(&self, name: &str) -> bool {
        is_file(&self.shared.site.path().join(name))
    }

    /// The memory cap of the run.
    pub fn memory(&self) -> ByteSize {
        self.shared.memory
    }

    /// The number of attempts so far, according to the exchange directory.
    pub fn attempts(&self) -> Result<usize, Error> {
        self.shared.site.attempts(self.unit())
    }

    /// The order as two JSON texts: the shared part and its own part.
    pub fn to_json_parts(&self) -> Result<(String, String), Error> {
        Ok((json(&self.shared)?, json(&self.own)?))
    }

    /// The order made of these two texts. `Err` if they are not valid.
    pub fn from_json_parts(shared: &str, own: &str) -> Result<Self, Error> {
        let wrong = |e| Error::invalid(format!("this is not an order of this version: {e}"));
        let shared = Arc::new(serde_json::from_str(shared).map_err(wrong)?);
        Ok(Self { shared, own: serde_json::from_str(own).map_err(wrong)? })
    }

    /// The pipeline to run.
    pub(super) fn pipeline(&self, registry: &Registry) -> Result<Pipeline, Error> {
        let UnitSpec { inputs, fills_input, fills, .. } = &self.own;
        let input = inputs.first().filter(|_| *fills_input).map(|input| &*input.path);
        self.shared.blueprint.build(input, fills, registry)
    }

    /// The files it reads, none of which may be written.
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        self.own.inputs.iter().map(|input| input.path.clone()).collect()
    }

    /// Earlier records of the unit, latest first.
    pub(super) fn known_records(&self) -> Result<Vec<UnitRecord>, Error> {
        match &self.own.known {
            KnownRecords::Inline(records) => Ok(records.clone()),
            KnownRecords::InFile(name) => self.shared.site.read_json(name),
        }
    }
}

impl RunSpec {
    pub(super) fn new(
        exchange: &ExchangeDir,
        blueprint: &Blueprint,
        registry: &Registry,
        options: &Options,
    ) -> Result<Self, Error> {
        let here = Path::new(".");
        Ok(Self {
            identity: ProgramIdentity::new(registry),
            folder: std::env::current_dir().map_err(|e| Error::io("find", here, e))?,
            site: exchange.site().clone(),
            blueprint: blueprint.clone(),
            memory: run::memory_cap(options, blueprint.memory),
            jobs: options.jobs,
            overwrite: options.overwrite,
            hash: options.hash,
            allow_exec: options.allow_exec,
            record: None,
        })
    }

    pub(super) fn recorded_in(self, folder: &Path) -> Self {
        Self { record: Some(folder.to_owned()), ..self }
    }
}

impl UnitSpec {
    /// A unit of a batch.
    pub(super) fn from_unit(
        place: usize,
        unit: &Unit,
        blueprint: &Blueprint,
    ) -> Result<Self, Error> {
        Ok(Self {
            unit: place,
            name: unit.input.path.clone(),
            inputs: vec![unit.input.clone()],
            fills_input: true,
            fills: blueprint.fills(&unit.input.path, unit.index)?,
            outputs: unit.outputs.clone(),
            shared_folders: unit.shared_folders.clone(),
            known: KnownRecords::Inline(Vec::new()),
        })
    }

    /// A whole pipeline.
    pub(super) fn from_pipeline(pipeline: &Pipeline) -> Result<Self, Error> {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for node in &pipeline.nodes {
            match &node.instance {
                PluginInstance::Source(source) => inputs.extend(source.files()?),
                PluginInstance::Sink(sink) => outputs.extend(sink.traits().targets.iter().cloned()),
                PluginInstance::Stage(_) => {}
            }
            if let OnDamage::Quarantine(path) = &node.damage {
                outputs.push(path.clone());
            }
        }
        let name = pipeline.name.clone().unwrap_or_else(|| "the pipeline".to_owned());
        let (name, fills_input, fills) = (PathBuf::from(name), false, Vec::new());
        Ok(Self {
            unit: 0,
            name,
            inputs,
            fills_input,
            fills,
            outputs,
            shared_folders: Vec::new(),
            known: KnownRecords::Inline(Vec::new()),
        })
    }

    /// Adds earlier records of the unit, if the overwrite mode needs them.
    pub(super) fn with_known_records<'r>(
        self,
        records: impl Iterator<Item = &'r UnitRecord>,
        exchange: &ExchangeDir,
        options: &Options,
    ) -> Result<Self, Error> {
        if options.overwrite != Overwrite::Redo {
            return Ok(self);
        }
        let records: Vec<UnitRecord> = records.cloned().collect();
        let text = json(&records)?;
        if text.len() <= MAX_INLINE_RECORDS {
            return Ok(Self { known: KnownRecords::Inline(records), ..self });
        }
        let name = format!("known-{:06}.json", self.unit);
        replace_file(&exchange.site().path().join(&name), text.as_bytes())?;
        Ok(Self { known: KnownRecords::InFile(name), ..self })
    }

    /// The folder of the first output, for a pipeline without a record.
    pub(super) fn output_folder(&self) -> &Path {
        let Some(output) = self.outputs.first() else { return Path::new("") };
        // A bucket has no parent.
        let parent = output.parent().filter(|parent| is_address(parent) == is_address(output));
        parent.unwrap_or(output)
    }
}

/// Paths that are not UTF-8 cannot be sent.
fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| {
        Error::refused(format!("this run cannot be serialised for another machine: {e}"))
    })
}

/// The overwrite mode, by name.
mod overwrite_json {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use sluice_model::Overwrite;

    pub(super) fn serialize<S: Serializer>(what: &Overwrite, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match what {
            Overwrite::Refuse => "refuse",
            Overwrite::Replace => "replace",
            Overwrite::Redo => "redo",
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Overwrite, D::Error> {
        match String::deserialize(from)?.as_str() {
            "refuse" => Ok(Overwrite::Refuse),
            "replace" => Ok(Overwrite::Replace),
            "redo" => Ok(Overwrite::Redo),
            other => Err(de::Error::custom(format!("unknown overwrite mode `{other}`"))),
        }
    }
}
