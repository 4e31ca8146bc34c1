//! Sink `report`: writes the figures of the events it is given, as a page or as JSON.
//!
//! Computes none itself, and knows nothing of the page.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Deserializer};
use sluice_model::options::OutPath;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, Channels, Error, FieldPath, Job, OutputFile, PrepareContext, RunOrigin, Sink,
    SinkContext, SinkInput, SinkTraits, Written,
};

use crate::Figures;
use crate::collect::{BucketWidth, Collection, Part, PartContext};
use crate::origin::{inputs, provenance};

/// Options of `report`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct ReportSink {
    /// The file to write: a page for `.html`, all figures as JSON for `.json`. `-` writes JSON to
    /// standard output.
    #[serde(deserialize_with = "path")]
    path: OutPath,
    /// The title of the page. Default: the names of the inputs.
    #[serde(default)]
    title: Option<String>,
    /// Numeric fields to plot, such as `pos[0]`, or `pos` for all its elements. Default: up to 60
    /// that vary.
    #[serde(default)]
    fields: Vec<FieldPath>,
    /// The width of buckets of time so far.
    #[serde(skip)]
    width: AtomicU32,
}

sluice_model::register! {
    sink "report": ReportSink,
    about: "writes what is in a log, as a page to look at or as JSON",
    sample: include_str!("../samples/report.toml"),
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutPath, D::Error> {
    let path = OutPath::deserialize(deserializer)?;
    if path.is_stdout() || ReportForm::from_path(&path).is_some() {
        return Ok(path);
    }
    Err(serde::de::Error::custom("expected a path that ends in `.html` or `.json`, or `-`"))
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportForm {
    Page,
    Json,
}

impl ReportForm {
    fn from_path(path: &OutPath) -> Option<Self> {
        match path.0.extension().and_then(OsStr::to_str) {
            Some("html" | "htm") => Some(Self::Page),
            Some("json") => Some(Self::Json),
            _ => None,
        }
    }
}

/// The report being written.
#[derive(Debug)]
pub(crate) struct ReportOutput {
    file: OutputFile,
    channels: Arc<Channels>,
    origin: Arc<RunOrigin>,
    collection: Collection,
}

impl Sink for ReportSink {
    type Block = Part;
    /// A number of events.
    type Unit = u64;
    type Output = ReportOutput;

    fn traits(&self) -> SinkTraits {
        SinkTraits {
            wants_hashes: true,
            accepts_wide_times: true,
            ..SinkTraits::writing(&self.path.0).with_rows(true)
        }
    }

    fn open(&self, context: &SinkContext) -> Result<ReportOutput, Error> {
        self.width.store(BucketWidth::default().to_bits(), Ordering::Relaxed);
        Ok(ReportOutput {
            file: context.outputs.create(&self.path.0)?,
            channels: Arc::clone(&context.channels),
            origin: Arc::clone(&context.origin),
            collection: Collection::default(),
        })
    }

    fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<Part, Error> {
        let least_width = BucketWidth::from_bits(self.width.load(Ordering::Relaxed));
        Ok(Part::from_batch(&batch, &PartContext { least_width }))
    }

    fn gather(
        &self,
        output: &mut ReportOutput,
        input: SinkInput<Part>,
    ) -> Result<Vec<Job<u64>>, Error> {
        let SinkInput::Block(part) = input else { return Ok(Vec::new()) };
        let events = part.events();
        output.collection.append(part);
        self.width.store(output.collection.width().to_bits(), Ordering::Relaxed);
        Ok(vec![Job::done(events)])
    }

    fn write(&self, _: &mut ReportOutput, events: u64) -> Result<Written, Error> {
        Ok(Written::events(events))
    }

    fn finish(&self, output: ReportOutput) -> Result<Written, Error> {
        let ReportOutput { mut file, channels, origin, collection } = output;
        let mut figures = collection.figures(&channels, &self.fields);
        figures.inputs = inputs(&origin);
        figures.provenance = provenance(&origin, self.title.clone());
        let form = ReportForm::from_path(&self.path).unwrap_or(ReportForm::Json);
        let text = match form {
            ReportForm::Page => page(&figures)?,
            ReportForm::Json => json(&figures)? + "\n",
        };
        file.write(text.as_bytes())?;
        file.finish(figures.events)?;
        Ok(Written::default())
    }
}

fn json(figures: &Figures) -> Result<String, Error> {
    serde_json::to_string(figures)
        .map_err(|e| Error::internal(format!("the figures are no JSON: {e}")))
}

/// A page without pictures of the figures.
fn page(figures: &Figures) -> Result<String, Error> {
    let figures = json(figures)?.replace('<', "\\u003c");
    Ok(format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Report</title>\n\
         <script type=\"application/json\" id=\"figures\">{figures}</script>\n"
    ))
}
