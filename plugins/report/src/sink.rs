//! Sink `report`: writes the figures of the events it is given, as a page or as JSON.
//!
//! Computes none itself, and knows nothing of the page.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Deserializer};
use sluice_model::options::OutPath;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, ChannelId, Channels, Error, FieldPath, Job, OptionsError, OutputFile, PluginFactory,
    PrepareContext, Registry, RunOrigin, Sink, SinkContext, SinkInput, SinkTraits, Written,
};

use crate::collect::{
    BucketWidth, CollectedPictures, Collection, Part, PartContext, ReportViews, RowFigures,
    ShownContext,
};
use crate::expect::{Comparison, Expectations, compare};
use crate::findings::findings;
use crate::origin::{inputs, provenance};
use crate::page::page;
use crate::{Finding, Thumbnail};

/// Options of `report`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct ReportOptions {
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
    /// The most thumbnails of each camera.
    #[serde(default = "thumbnails")]
    pictures: u8,
    /// A file of expectations, as for the stage `expect`: those that are not met are findings, and
    /// the exit code is 4.
    #[serde(default)]
    #[schemars(extend("format" = sluice_model::options::PATH_FORMAT))]
    expect: Option<PathBuf>,
}

sluice_model::register! {
    sink "report": ReportOptions,
    make: PluginFactory::Sink(|value, registry| {
        let sink = ReportSink::new(sluice_model::options::read(value)?, registry)?;
        Ok(Arc::new(sink))
    }),
    about: "writes what is in a log, as a page to look at or as JSON",
    sample: include_str!("../samples/report.toml"),
    default_for: &[sluice_model::DefaultRole::Report],
    extensions: &["html"],
}

/// The sink.
#[derive(Debug)]
pub(crate) struct ReportSink {
    options: ReportOptions,
    expectations: Option<Expectations>,
    views: ReportViews,
    /// The width of buckets of time so far.
    width: AtomicU32,
    /// The pictures and packets that are not needed any more.
    collected: CollectedPictures,
}

impl ReportSink {
    fn new(options: ReportOptions, registry: &Registry) -> Result<Self, OptionsError> {
        let open = |file| {
            Expectations::open(file).map_err(|error| OptionsError::at("expect", error.to_string()))
        };
        let expectations = options.expect.as_deref().map(open).transpose()?;
        let views = ReportViews::new(registry)?;
        let (width, collected) = (AtomicU32::default(), CollectedPictures::default());
        Ok(Self { options, expectations, views, width, collected })
    }
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutPath, D::Error> {
    let path = OutPath::deserialize(deserializer)?;
    if path.is_stdout() || ReportForm::from_path(&path).is_some() {
        return Ok(path);
    }
    Err(serde::de::Error::custom("expected a path that ends in `.html` or `.json`, or `-`"))
}

fn thumbnails() -> u8 {
    12
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
    /// With the numbers of their channels.
    thumbnails: Vec<(u32, Thumbnail)>,
}

/// What becomes of events, and of the pictures among them.
#[derive(Debug)]
pub(crate) enum ReportUnit {
    /// So many events were added.
    Events(u64),
    /// A thumbnail of a channel; `None` if the picture cannot be decoded.
    Thumbnail(u32, Option<Thumbnail>),
}

impl Sink for ReportSink {
    type Block = Part;
    type Unit = ReportUnit;
    type Output = ReportOutput;

    fn traits(&self) -> SinkTraits {
        SinkTraits {
            wants_hashes: true,
            accepts_wide_times: true,
            ..SinkTraits::writing(&self.options.path.0).with_rows(true)
        }
    }

    fn open(&self, context: &SinkContext) -> Result<ReportOutput, Error> {
        self.width.store(BucketWidth::default().to_bits(), Ordering::Relaxed);
        self.collected.clear();
        Ok(ReportOutput {
            file: context.outputs.create(&self.options.path.0)?,
            channels: Arc::clone(&context.channels),
            origin: Arc::clone(&context.origin),
            collection: Collection::keeping(
                self.expectations.iter().flat_map(Expectations::fields),
            ),
            thumbnails: Vec::new(),
        })
    }

    fn prepare(&self, batch: Batch, context: &mut PrepareContext<'_>) -> Result<Part, Error> {
        let least_width = BucketWidth::from_bits(self.width.load(Ordering::Relaxed));
        let (views, pictures) = (&self.views, &self.collected);
        let shown = ShownContext { channels: context.channels, views, pictures };
        let (rows, shown) = (RowFigures::Values, Some(shown));
        Ok(Part::from_batch(&batch, &PartContext { least_width, rows, shown }))
    }

    fn gather(
        &self,
        output: &mut ReportOutput,
        input: SinkInput<Part>,
    ) -> Result<Vec<Job<ReportUnit>>, Error> {
        match input {
            SinkInput::Block(part) => {
                let events = part.events();
                output.collection.append(part);
                self.width.store(output.collection.width().to_bits(), Ordering::Relaxed);
                output.collection.note_pictures(&self.collected);
                Ok(vec![Job::done(ReportUnit::Events(events))])
            }
            SinkInput::Flush => Ok(Vec::new()),
            SinkInput::End => Ok(thumbnail_jobs(&output.collection, self.options.pictures.into())),
        }
    }

    fn write(&self, output: &mut ReportOutput, unit: ReportUnit) -> Result<Written, Error> {
        match unit {
            ReportUnit::Events(events) => return Ok(Written::events(events)),
            ReportUnit::Thumbnail(channel, thumbnail) => {
                output.thumbnails.extend(thumbnail.map(|thumbnail| (channel, thumbnail)));
            }
        }
        Ok(Written::default())
    }

    fn finish(&self, output: ReportOutput) -> Result<Written, Error> {
        let ReportOutput { mut file, channels, origin, collection, thumbnails } = output;
        let mut figures = collection.figures(&channels, &self.options.fields);
        figures.clouds.extend(collection.revolutions(&self.views, &channels)?);
        for (channel, thumbnail) in thumbnails {
            let name = channels.get(ChannelId(channel));
            let pictures = figures.pictures.iter_mut();
            let camera = pictures.into_iter().find(|p| p.channel == name.name.text());
            camera.into_iter().for_each(|camera| camera.thumbnails.push(thumbnail.clone()));
        }
        figures.inputs = inputs(&origin);
        figures.provenance = provenance(&origin, self.options.title.clone());
        let compared = self.expectations.as_ref().map(|expected| compare(expected, &figures));
        let Comparison { unmet, notes } = compared.unwrap_or_default();
        figures.findings = unmet.iter().map(Finding::from).chain(findings(&figures)).collect();
        let form = ReportForm::from_path(&self.options.path).unwrap_or(ReportForm::Json);
        let text = match form {
            ReportForm::Page => page(&figures)?,
            ReportForm::Json => figures.to_json()? + "\n",
        };
        file.write(text.as_bytes())?;
        file.finish(figures.events)?;
        let notes = notes.into_iter().map(|note| (note, 0)).collect();
        Ok(Written { notes, unmet, ..Written::default() })
    }
}

/// Decoding and scaling takes as long as reading much of the log.
fn thumbnail_jobs(collection: &Collection, most: usize) -> Vec<Job<ReportUnit>> {
    /// About the memory that decoding a picture takes.
    const BYTES: usize = 16 << 20;
    let each = collection.spaced_pictures(most).into_iter().map(|(channel, time, picture)| {
        Job::new(BYTES, move || Ok(ReportUnit::Thumbnail(channel, picture.thumbnail(time))))
    });
    each.collect()
}
