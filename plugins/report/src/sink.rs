//! Sink `report`: writes the figures of the events it is given, as a page or as JSON.
//!
//! Computes none itself, and knows nothing of the page.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use sluice_kit::selection::FieldList;
use sluice_model::options::OutPath;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, ChannelId, Channels, DynSink, Error, FieldPath, Job, OptionsError, OutputFile,
    PluginFactory, PrepareContext, Registry, RunOrigin, Sink, SinkContext, SinkInput, SinkTraits,
    Written,
};

use crate::collect::{
    Collection, Collector, Part, ReportViews, RowFigures, ShownContext, without_numbers,
};
use crate::expect::{Comparison, Expectations, compare};
use crate::findings::findings;
use crate::origin::{inputs, provenance};
use crate::page::page;
use crate::{CloudFigures, Finding, Thumbnail};

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
    /// Numeric fields to plot, such as `pos[0]`, or `pos` for all its elements; none if empty.
    /// Default: up to 60 that vary.
    fields: Option<FieldList>,
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
        let options = sluice_model::options::read(value)?;
        ReportSink::new(options, registry).map(DynSink::new)
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
    views: Arc<ReportViews>,
    collector: Collector,
}

impl ReportSink {
    fn new(options: ReportOptions, registry: &Registry) -> Result<Self, OptionsError> {
        let open = |file| {
            Expectations::open(file).map_err(|error| OptionsError::at("expect", error.to_string()))
        };
        let expectations = options.expect.as_deref().map(open).transpose()?;
        let views = Arc::new(ReportViews::new(registry)?);
        Ok(Self { options, expectations, views, collector: Collector::default() })
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
    scans: Vec<CloudFigures>,
}

/// What becomes of events, of the pictures among them, and of packets of lasers.
#[derive(Debug)]
pub(crate) enum ReportUnit {
    /// So many events were added.
    Events(u64),
    /// A thumbnail of a channel; `None` if the picture cannot be decoded.
    Thumbnail(u32, Option<Thumbnail>),
    /// A scan; `None` if its packets have no points.
    Scan(Option<CloudFigures>),
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
        self.collector.begin(context.is_piece);
        let plotted = self.options.fields.as_ref().map(FieldList::paths).unwrap_or_default();
        let plotted: Vec<String> = plotted.iter().map(FieldPath::to_string).collect();
        let plotted = plotted.iter().map(String::as_str);
        Ok(ReportOutput {
            file: context.outputs.create(&self.options.path.0)?,
            channels: Arc::clone(&context.channels),
            origin: Arc::clone(&context.origin),
            collection: Collection::keeping(
                self.expectations.iter().flat_map(Expectations::fields).chain(plotted),
            ),
            thumbnails: Vec::new(),
            scans: Vec::new(),
        })
    }

    fn prepare(&self, batch: Batch, context: &mut PrepareContext<'_>) -> Result<Part, Error> {
        let shown = ShownContext { channels: context.channels, views: &self.views };
        Ok(self.collector.part(&batch, RowFigures::Values, Some(shown)))
    }

    fn gather(
        &self,
        output: &mut ReportOutput,
        input: SinkInput<Part>,
    ) -> Result<Vec<Job<ReportUnit>>, Error> {
        match input {
            SinkInput::Block(part) => {
                let events = part.events();
                output.collection.append(part, &self.collector);
                Ok(vec![Job::done(ReportUnit::Events(events))])
            }
            SinkInput::Flush => Ok(Vec::new()),
            SinkInput::End => {
                let scans = scan_jobs(output, &self.views);
                let pictures = self.options.pictures.into();
                Ok(scans.chain(thumbnail_jobs(&output.collection, pictures)).collect())
            }
        }
    }

    fn write(&self, output: &mut ReportOutput, unit: ReportUnit) -> Result<Written, Error> {
        match unit {
            ReportUnit::Events(events) => return Ok(Written::events(events)),
            ReportUnit::Thumbnail(channel, thumbnail) => {
                output.thumbnails.extend(thumbnail.map(|thumbnail| (channel, thumbnail)));
            }
            ReportUnit::Scan(scan) => output.scans.extend(scan),
        }
        Ok(Written::default())
    }

    fn finish(&self, output: ReportOutput) -> Result<Written, Error> {
        let ReportOutput { mut file, channels, origin, collection, thumbnails, mut scans } = output;
        let plots = self.options.fields.as_ref().map(FieldList::paths);
        let mut figures = collection.figures(&channels, plots);
        scans.sort_by(|a, b| a.channel.cmp(&b.channel));
        figures.clouds.append(&mut scans);
        for (channel, thumbnail) in thumbnails {
            let name = channels.get(ChannelId(channel));
            let pictures = figures.pictures.iter_mut();
            let camera = pictures.into_iter().find(|p| p.channel == name.name.text());
            camera.into_iter().for_each(|camera| camera.thumbnails.push(thumbnail.clone()));
        }
        figures.inputs = inputs(&origin)?;
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
        let unplotted = without_numbers(&figures, plots.unwrap_or_default());
        let notes = notes.into_iter().chain(unplotted.map(FieldList::note_of_unplotted));
        let notes = notes.map(|note| (note, 0)).collect();
        Ok(Written { notes, unmet, ..Written::default() })
    }
}

fn scan_jobs(
    output: &ReportOutput,
    views: &Arc<ReportViews>,
) -> impl Iterator<Item = Job<ReportUnit>> {
    /// About the memory that the points of a revolution take.
    const BYTES: usize = 16 << 20;
    output.collection.scans().map(|packets| {
        let (views, channels) = (Arc::clone(views), Arc::clone(&output.channels));
        Job::new(BYTES, move || Ok(ReportUnit::Scan(packets.scan(&views, &channels)?)))
    })
}

/// Decoding and scaling takes as long as reading much of the log.
fn thumbnail_jobs(collection: &Collection, most: usize) -> impl Iterator<Item = Job<ReportUnit>> {
    /// About the memory that decoding a picture takes.
    const BYTES: usize = 16 << 20;
    collection.spaced_pictures(most).into_iter().map(|(channel, time, picture)| {
        Job::new(BYTES, move || Ok(ReportUnit::Thumbnail(channel, picture.thumbnail(time))))
    })
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
    use jpeg_encoder::{ColorType, Encoder};
    use serde_json::json;
    use sluice_model::{
        BatchBuilder, BlockPool, Channel, Encoding, MessageType, Name, Payloads, Rows, TypeKey,
        options,
    };

    use super::*;

    fn pictures(times: impl Iterator<Item = i64>, channel: ChannelId) -> Batch {
        let mut jpeg = Vec::new();
        Encoder::new(&mut jpeg, 60).encode(&[90; 48], 4, 4, ColorType::Rgb).unwrap();
        let mut batch = BatchBuilder::default();
        times.for_each(|time| batch.push_copy(time, 0, channel, b"x"));
        let batch = batch.finish();
        let images: ArrayRef = Arc::new(BinaryArray::from(vec![jpeg.as_slice(); batch.len()]));
        let columns = RecordBatch::try_from_iter([("image", images)]).unwrap();
        let message = Arc::new(MessageType::named("image_t", TypeKey(1)));
        let events = (0..batch.len() as u32).collect();
        batch.with_rows(vec![Rows { message, payloads: Payloads::Kept, events, columns }])
    }

    #[test]
    fn a_piece_of_a_recording_has_pictures_that_were_prepared_during_the_one_before() {
        let value = json!({ "path": "-" });
        let sink = ReportSink::new(options::read(value).unwrap(), &Registry::linked()).unwrap();
        let context = SinkContext { is_piece: true, ..SinkContext::standalone() };
        let camera = Channel::new(Name::from_text("CAM"), "log", Encoding::Lcm);
        let camera = context.channels.intern(camera).unwrap();
        let pool = BlockPool::new(64, 1);
        let prepare = |times: std::ops::Range<i64>| {
            let batch = pictures(times.map(|n| n * 1_000_000), camera);
            sink.prepare(batch, &mut PrepareContext::new(&context.channels, &pool)).unwrap()
        };
        let mut first = sink.open(&context).unwrap();
        sink.gather(&mut first, SinkInput::Block(prepare(0..1_000))).unwrap();
        let ahead = prepare(500..510);
        let mut second = sink.open(&context).unwrap();
        sink.gather(&mut second, SinkInput::Block(ahead)).unwrap();
        let thumbnails = sink.gather(&mut second, SinkInput::End).unwrap();
        assert_eq!(thumbnails.len(), 10);
    }
}
