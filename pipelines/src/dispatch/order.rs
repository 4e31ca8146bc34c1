//! Orders: units to be run, as plain data. Runs none.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluice_core::files::is_file;
use sluice_core::options::ByteSize;
use sluice_core::output::{remove_file, replace_file};
use sluice_core::store::is_address;
use sluice_core::{Error, Input, Overwrite, Registry};

use super::room::{Room, Site};
use super::{Fulfilled, Greeting, worker};
use crate::batch::{Blueprint, Fill, Unit, UnitRecord};
use crate::run::{self, Options};
use crate::spec::{OnDamage, Part, Pipeline};

/// A unit to be run: everything that decides what is written, as plain data.
///
/// What all orders of a run share is one value in memory, and can be sent once: see [`Order::apart`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub(super) shared: Arc<Shared>,
    pub(super) own: Own,
}

/// What all orders of a run share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Shared {
    pub(super) greeting: Greeting,
    /// The driver's working folder.
    pub(super) folder: PathBuf,
    /// Where workers leave what they made.
    pub(super) site: Site,
    pub(super) blueprint: Blueprint,
    pub(super) memory: ByteSize,
    pub(super) jobs: Option<usize>,
    #[serde(with = "overwriting")]
    pub(super) overwrite: Overwrite,
    pub(super) hash: bool,
    pub(super) allow_exec: bool,
    /// The folder of the record, if it is a batch that has one.
    pub(super) record: Option<PathBuf>,
}

/// What an order has for itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Own {
    pub(super) unit: usize,
    /// What it is called.
    pub(super) name: PathBuf,
    /// What it reads, as far as that are files.
    pub(super) inputs: Vec<Input>,
    /// Whether the pipeline's source reads that input, and not what the pipeline says.
    pub(super) fills_input: bool,
    pub(super) fills: Vec<Fill>,
    /// The files and folders it is to write.
    pub(super) outputs: Vec<PathBuf>,
    pub(super) known: Known,
}

/// What earlier runs recorded of a unit, the latest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Known {
    Here(Vec<UnitRecord>),
    /// It is long: units may have thousands of files. A file in the room has it.
    InRoom(String),
}

/// How many bytes of records may travel with an order.
const MOST_KNOWN: usize = 16 << 10;

impl Order {
    pub(super) fn of(shared: &Arc<Shared>, own: Own) -> Self {
        Self { shared: Arc::clone(shared), own }
    }

    /// The unit's number, from 0: its place among the orders of a run.
    pub fn unit(&self) -> usize {
        self.own.unit
    }

    /// The folder to run in: that of the driver, so that relative paths mean what they mean there.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// What the unit is called where it is talked of: its input, or the pipeline's name.
    pub fn input(&self) -> &Path {
        &self.own.name
    }

    /// Who ordered it.
    pub fn greeting(&self) -> &Greeting {
        &self.shared.greeting
    }

    /// The folder where deliveries appear, which is the same for all orders of a run.
    pub fn room(&self) -> &Path {
        self.shared.site.path()
    }

    /// Whether the folder to run in and the driver's room can be seen here; the first that cannot, if not.
    pub fn unseen(&self) -> Option<&Path> {
        let (folder, site) = (self.folder(), &self.shared.site);
        if !folder.is_dir() {
            return Some(folder);
        }
        (!site.is_there()).then(|| site.path())
    }

    /// Whether the driver's room cannot be seen here: the run is over, most likely.
    pub fn is_over(&self) -> bool {
        !self.shared.site.is_there()
    }

    /// Leaves a mark in the driver's room, unless that is gone: it is not made again, since nobody would remove it.
    pub fn mark(&self, name: &str) -> Result<(), Error> {
        let path = self.room().join(name);
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

    /// Whether there is such a mark.
    pub fn is_marked(&self, name: &str) -> bool {
        is_file(&self.room().join(name))
    }

    /// How much memory it is to be run with.
    pub fn memory(&self) -> ByteSize {
        self.shared.memory
    }

    /// Runs it in this process, whose current folder is [`folder`](Self::folder), and leaves outputs and
    /// a delivery in the driver's room. Of `options`, threads, stop, progress, and whether programs may be run count.
    ///
    /// `Err` if not even a delivery could be left that says why: worth another attempt, elsewhere if possible.
    pub fn fulfil(&self, registry: &Registry, options: &Options) -> Result<Fulfilled, Error> {
        worker::fulfil(self, registry, options)
    }

    /// Leaves a delivery that says that it failed, and why: for whoever started a process that died.
    pub fn give_up(&self, why: &str) -> Result<(), Error> {
        worker::give_up(self, why)
    }

    /// How many attempts there have been, by what is in the driver's room.
    pub fn attempts(&self) -> Result<usize, Error> {
        self.shared.site.attempts(self.unit())
    }

    /// As JSON in two parts: what all orders of a run share, and what is its own.
    pub fn apart(&self) -> Result<(String, String), Error> {
        Ok((json(&self.shared)?, json(&self.own)?))
    }

    /// The order of these two parts. `Err` if they are not such parts.
    pub fn together(shared: &str, own: &str) -> Result<Self, Error> {
        let wrong =
            |e| Error::invalid(format!("this is no order of a driver of this version: {e}"));
        let shared = Arc::new(serde_json::from_str(shared).map_err(wrong)?);
        Ok(Self { shared, own: serde_json::from_str(own).map_err(wrong)? })
    }

    /// The pipeline to run.
    pub(super) fn pipeline(&self, registry: &Registry) -> Result<Pipeline, Error> {
        let Own { inputs, fills_input, fills, .. } = &self.own;
        let input = inputs.first().filter(|_| *fills_input).map(|input| &*input.path);
        self.shared.blueprint.made(input, fills, registry)
    }

    /// The files that are read, none of which may be written.
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        self.own.inputs.iter().map(|input| input.path.clone()).collect()
    }

    /// What earlier runs recorded of it, the latest first.
    pub(super) fn known(&self) -> Result<Vec<UnitRecord>, Error> {
        match &self.own.known {
            Known::Here(records) => Ok(records.clone()),
            Known::InRoom(name) => self.shared.site.read_json(name),
        }
    }
}

impl Shared {
    pub(super) fn of(
        room: &Room,
        blueprint: &Blueprint,
        registry: &Registry,
        options: &Options,
    ) -> Result<Self, Error> {
        let here = Path::new(".");
        Ok(Self {
            greeting: Greeting::of(registry),
            folder: std::env::current_dir().map_err(|e| Error::io("find", here, e))?,
            site: room.site().clone(),
            blueprint: blueprint.clone(),
            memory: run::memory(options, blueprint.memory),
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

impl Own {
    /// A unit of a batch.
    pub(super) fn of_unit(place: usize, unit: &Unit, blueprint: &Blueprint) -> Result<Self, Error> {
        Ok(Self {
            unit: place,
            name: unit.input.path.clone(),
            inputs: vec![unit.input.clone()],
            fills_input: true,
            fills: blueprint.fills(&unit.input.path, unit.index)?,
            outputs: unit.outputs.clone(),
            known: Known::Here(Vec::new()),
        })
    }

    /// A whole pipeline.
    pub(super) fn of_pipeline(pipeline: &Pipeline) -> Result<Self, Error> {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for node in &pipeline.nodes {
            match &node.part {
                Part::Source(source) => inputs.extend(source.files()?),
                Part::Sink(sink) => outputs.extend(sink.targets()),
                Part::Stage(_) => {}
            }
            if let OnDamage::Quarantine(path) = &node.damage {
                outputs.push(run::quarantine_of(&node.name, path.as_deref()));
            }
        }
        let name = pipeline.name.clone().unwrap_or_else(|| "the pipeline".to_owned());
        let (name, fills_input, fills) = (PathBuf::from(name), false, Vec::new());
        let known = Known::Here(Vec::new());
        Ok(Self { unit: 0, name, inputs, fills_input, fills, outputs, known })
    }

    /// With what earlier runs recorded of it, if that matters.
    pub(super) fn known<'r>(
        self,
        records: impl Iterator<Item = &'r UnitRecord>,
        room: &Room,
        options: &Options,
    ) -> Result<Self, Error> {
        if options.overwrite != Overwrite::Redo {
            return Ok(self);
        }
        let records: Vec<UnitRecord> = records.cloned().collect();
        let text = json(&records)?;
        if text.len() <= MOST_KNOWN {
            return Ok(Self { known: Known::Here(records), ..self });
        }
        let name = format!("known-{:06}.json", self.unit);
        replace_file(&room.site().path().join(&name), text.as_bytes())?;
        Ok(Self { known: Known::InRoom(name), ..self })
    }

    /// The folder of the first output, for a pipeline that has no record.
    pub(super) fn folder(&self) -> &Path {
        let Some(output) = self.outputs.first() else { return Path::new("") };
        // Above a bucket there is nothing.
        let parent = output.parent().filter(|parent| is_address(parent) == is_address(output));
        parent.unwrap_or(output)
    }
}

/// Paths that are not UTF-8 cannot be sent.
fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| {
        Error::refused(format!("this run cannot be sent to another machine as text: {e}"))
    })
}

/// What becomes of outputs that exist, by name.
mod overwriting {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use sluice_core::Overwrite;

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
            other => Err(de::Error::custom(format!("`{other}` is no way to treat outputs"))),
        }
    }
}
