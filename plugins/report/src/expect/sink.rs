//! Sink `expectations`: writes a first file of expectations from the log that it is given.

use std::sync::Arc;

use serde::Deserialize;
use sluice_model::options::OutPath;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, Channels, DefaultRole, Error, Job, OutputFile, PrepareContext, RunOrigin, Sink,
    SinkContext, SinkInput, SinkTraits, Written,
};

use super::generate::from_figures;
use crate::collect::{Collection, Collector, Part, RowFigures};
use crate::origin;

/// Options of `expectations`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct ExpectationsSink {
    /// The file to write; `-` is standard output.
    #[serde(deserialize_with = "OutPath::without_folder")]
    path: OutPath,
    #[serde(skip)]
    collector: Collector,
}

sluice_model::register! {
    sink "expectations": ExpectationsSink,
    about: "writes a first file of expectations for `expect`, from a good log",
    sample: include_str!("../../samples/expectations.toml"),
    default_for: &[DefaultRole::Expectations],
}

/// The file being written.
#[derive(Debug)]
pub(crate) struct ExpectationsOutput {
    file: OutputFile,
    channels: Arc<Channels>,
    origin: Arc<RunOrigin>,
    collection: Collection,
}

impl Sink for ExpectationsSink {
    type Block = Part;
    /// A number of events.
    type Unit = u64;
    type Output = ExpectationsOutput;

    fn traits(&self) -> SinkTraits {
        SinkTraits { accepts_wide_times: true, ..SinkTraits::writing(&self.path.0).with_rows(true) }
    }

    fn open(&self, context: &SinkContext) -> Result<ExpectationsOutput, Error> {
        self.collector.begin(context.is_piece);
        Ok(ExpectationsOutput {
            file: context.outputs.create(&self.path.0)?,
            channels: Arc::clone(&context.channels),
            origin: Arc::clone(&context.origin),
            collection: Collection::default(),
        })
    }

    fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<Part, Error> {
        Ok(self.collector.part(&batch, RowFigures::Values, None))
    }

    fn gather(
        &self,
        output: &mut ExpectationsOutput,
        input: SinkInput<Part>,
    ) -> Result<Vec<Job<u64>>, Error> {
        let SinkInput::Block(part) = input else { return Ok(Vec::new()) };
        let events = part.events();
        output.collection.append(part, &self.collector);
        Ok(vec![Job::done(events)])
    }

    fn write(&self, _: &mut ExpectationsOutput, events: u64) -> Result<Written, Error> {
        Ok(Written::events(events))
    }

    fn finish(&self, output: ExpectationsOutput) -> Result<Written, Error> {
        let ExpectationsOutput { mut file, channels, origin, collection } = output;
        let mut figures = collection.figures(&channels, None);
        figures.inputs = origin::inputs(&origin)?;
        file.write_text(from_figures(&figures).as_bytes())?;
        file.finish(figures.events)?;
        Ok(Written::default())
    }
}
