//! Sink `files`: options, the file of each event, and the report of events without one.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize};
use sluice_io::escape::{file_name, printable, without_device_names};
use sluice_io::output::OutputFiles;
use sluice_kit::Template;
use sluice_kit::template::BoundTemplate;
use sluice_model::options::OutPath;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, Channel, Channels, DynSink, Error, Event, FieldPath, Name, OptionsError, OutputFile,
    PerChannel, PluginFactory, PrepareContext, Rows, Sink, SinkContext, SinkTraits, Written,
};
use sluice_views::check_jpeg;

use crate::byte_values::ByteValues;
use crate::file_name::{self, FolderDepth, NameError, NameFault, UniqueNames};
use crate::index::FileIndex;
use crate::skip_report::SkipReport;

/// Options of `files`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub struct FilesSink {
    /// The folder to write.
    #[serde(deserialize_with = "deserialize_folder")]
    path: OutPath,
    /// File names within the folder, as a template with values of the event in braces.
    #[serde(default = "default_name", deserialize_with = "deserialize_name")]
    name: Template,
    /// The field to write: bytes, a string or a list of bytes. Default: the payload.
    #[serde(default)]
    field: Option<FieldPath>,
    /// The index of the files: a table `index.csv` (`csv`), names in `index.txt` (`names`), or
    /// `none`.
    #[serde(default)]
    index: FileIndex,
    /// How to check that files are complete: `none` or `jpeg`.
    #[serde(default)]
    check: FileCheck,
    /// What happens to files that are not complete: `keep` or `drop`.
    #[serde(default)]
    bad: BadFiles,
    /// What happens to files without bytes: `drop` or `keep`.
    #[serde(default)]
    empty: EmptyFiles,
    #[serde(skip)]
    channels: PerChannel<Arc<ChannelNames>>,
    #[serde(skip)]
    depth: OnceLock<FolderDepth>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
enum FileCheck {
    #[default]
    None,
    Jpeg,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
enum BadFiles {
    #[default]
    Keep,
    Drop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
enum EmptyFiles {
    #[default]
    Drop,
    Keep,
}

sluice_model::register! {
    sink "files": FilesSink,
    make: PluginFactory::Sink(|value, _| {
        let sink: FilesSink = sluice_model::options::read(value)?;
        match sink.check == FileCheck::None && sink.bad != BadFiles::default() {
            true => Err(OptionsError::needs("bad", "check")),
            false => Ok(DynSink::new(sink)),
        }
    }),
    about: "writes each payload or field as a file, such as the images of cameras, with an index",
    sample: include_str!("../samples/files.toml"),
}

fn deserialize_folder<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutPath, D::Error> {
    let path = OutPath::deserialize(deserializer)?;
    if path.is_folder() {
        return Ok(path);
    }
    Err(serde::de::Error::custom("expected a folder: add a slash at its end"))
}

fn deserialize_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Template, D::Error> {
    let template = Template::deserialize(deserializer)?;
    let Some(fault) = file_name::template_fault(&template) else { return Ok(template) };
    let (text, remedy) = (template.to_string(), fault.remedy());
    Err(serde::de::Error::custom(format!(
        "no file can have the name `{}`: {remedy}",
        printable(&text)
    )))
}

fn default_name() -> Template {
    Template::parse("{channel}-{sequence}.bin").expect("the default is a valid template")
}

/// A channel, and the same with names that are safe in a path.
#[derive(Debug)]
struct ChannelNames {
    channel: Channel,
    in_paths: Channel,
}

impl ChannelNames {
    fn new(channel: &Channel) -> Self {
        let mut in_paths = channel.clone();
        in_paths.name = Name::from_text(&file_name(channel.name.text()));
        in_paths.source = file_name(&channel.source).into();
        Self { channel: channel.clone(), in_paths }
    }
}

/// The files of a batch.
#[derive(Debug, Default)]
pub struct FileBlock {
    content: FileContent,
    files: Vec<PendingFile>,
    /// The concatenated index lines, without names.
    lines: Vec<u8>,
    /// The original channels of events without a file.
    left_out: Vec<u32>,
    skips: SkipReport,
}

/// The content of files.
#[derive(Debug)]
enum FileContent {
    /// The payloads of the events.
    Payloads(Batch),
    /// The values of a field, by type.
    ByteValues(Vec<Option<ByteValues>>),
}

impl Default for FileContent {
    fn default() -> Self {
        Self::ByteValues(Vec::new())
    }
}

impl FileContent {
    /// The bytes of an event; `location` is the type index and row of its decoded fields.
    fn bytes(&self, event: usize, location: Option<(usize, usize)>) -> Option<&[u8]> {
        match self {
            Self::Payloads(batch) => Some(batch.payload(event)),
            Self::ByteValues(values) => {
                let (kind, row) = location?;
                values.get(kind)?.as_ref()?.bytes(row)
            }
        }
    }
}

/// A file to write.
#[derive(Debug)]
struct PendingFile {
    name: String,
    event: usize,
    location: Option<(usize, usize)>,
    /// End of its index line.
    line_end: usize,
}

/// The result of checking the bytes of an event.
#[derive(Clone, Copy, Debug, Default)]
struct CheckResult {
    /// The entry in the index.
    check: &'static str,
    /// The note in the report, if any.
    note: Option<&'static str>,
    is_left_out: bool,
}

impl FileBlock {
    fn push(&mut self, file: PendingFile) {
        self.files.push(PendingFile { line_end: self.lines.len(), ..file });
    }
}

/// The folder being written.
#[derive(Debug)]
pub struct OutputFolder {
    files: OutputFiles,
    index: Option<OutputFile>,
    names: UniqueNames,
    count: u64,
    skips: SkipReport,
    channels: Arc<Channels>,
}

impl FilesSink {
    fn depth(&self) -> &FolderDepth {
        self.depth.get_or_init(|| FolderDepth::from_template(&self.name))
    }

    fn check_bytes(&self, bytes: &[u8]) -> CheckResult {
        let fault = match (self.check, bytes.is_empty()) {
            (FileCheck::None, false) => return CheckResult::default(),
            (FileCheck::None, true) => "empty file",
            (FileCheck::Jpeg, _) => match check_jpeg(bytes) {
                Ok(_) => return CheckResult { check: "ok", ..CheckResult::default() },
                Err(fault) => fault.as_str(),
            },
        };
        let is_left_out = match bytes.is_empty() {
            true => self.empty == EmptyFiles::Drop,
            false => self.bad == BadFiles::Drop,
        };
        CheckResult { check: fault, note: Some(fault), is_left_out }
    }

    /// The file name of an event, or why it has none.
    fn name_file(
        &self,
        bound: &BoundTemplate<'_>,
        channel: &Channel,
        event: &Event<'_>,
        row: Option<usize>,
    ) -> Result<String, NameError> {
        let mut name = Vec::new();
        if !bound.write(channel, event, row, &mut name) {
            // If no field is missing, the name exceeded the maximum length.
            return Err(bound.missing(row).map_or_else(
                || NameError::invalid("", NameFault::TooLong),
                |field| NameError::missing_field(field.to_string()),
            ));
        }
        let name = String::from_utf8(name).map_err(|error| {
            NameError::invalid(&String::from_utf8_lossy(error.as_bytes()), NameFault::NotUtf8)
        })?;
        // As those of channels. Times have some.
        let name = if name.contains(':') { name.replace(':', "%3A") } else { name };
        let name = match without_device_names(&name) {
            Cow::Borrowed(_) => name,
            Cow::Owned(other) => other,
        };
        match self.depth().fault(&name) {
            Some(fault) => Err(NameError::invalid(&name, fault)),
            None => Ok(name),
        }
    }

    fn content(&self, batch: &Batch) -> FileContent {
        let Some(field) = &self.field else {
            return FileContent::Payloads(batch.clone().with_rows(Vec::new()));
        };
        let find = |rows: &Rows| ByteValues::from_array(field.resolve(&rows.columns)?);
        FileContent::ByteValues(batch.rows().iter().map(find).collect())
    }

    fn block(&self, batch: &Batch, context: &mut PrepareContext<'_>) -> Result<FileBlock, Error> {
        let channels =
            self.channels.table(context.channels, |c| Ok(Arc::new(ChannelNames::new(c))))?;
        let bound: Vec<_> = batch.rows().iter().map(|rows| self.name.bind(Some(rows))).collect();
        let (bare, row_locations) = (self.name.bind(None), row_locations(batch));
        let (content, mut block) = (self.content(batch), FileBlock::default());
        for (row, event) in batch.iter().enumerate() {
            let (names, location) = (&channels[event.channel.index()], row_locations[row]);
            let Some(bytes) = content.bytes(row, location) else {
                block.skips.note_missing(event.channel);
                block.left_out.push(batch.origins()[row]);
                continue;
            };
            block.skips.note_present(event.channel);
            let CheckResult { check, note, is_left_out } = self.check_bytes(bytes);
            if let Some(note) = note {
                block.skips.note_checked(event.channel, note, is_left_out);
            }
            if is_left_out {
                block.left_out.push(batch.origins()[row]);
                continue;
            }
            let bound = location.map_or(&bare, |(kind, _)| &bound[kind]);
            match self.name_file(bound, &names.in_paths, &event, location.map(|(_, row)| row)) {
                Ok(name) => {
                    let line = (&event, &names.channel);
                    self.index.write_rest(line, bytes.len(), check, &mut block.lines);
                    block.push(PendingFile { name, event: row, location, line_end: 0 });
                }
                Err(unnamed) => {
                    context.report.refused.push((row as u32, unnamed.reason()));
                    block.skips.note_unnamed(event.channel, unnamed);
                }
            }
        }
        block.content = content;
        Ok(block)
    }
}

/// The type index and row of each event's decoded fields.
fn row_locations(batch: &Batch) -> Vec<Option<(usize, usize)>> {
    let mut row_locations = vec![None; batch.len()];
    for (kind, rows) in batch.rows().iter().enumerate() {
        for (row, event) in rows.events.iter().enumerate() {
            row_locations[*event as usize] = Some((kind, row));
        }
    }
    row_locations
}

impl FilesSink {
    /// Notes about the whole output.
    fn notes(&self, folder: &OutputFolder) -> Vec<(String, u64)> {
        let mut notes = folder.skips.notes(&folder.channels, self.field.as_ref());
        if folder.names.renamed > 0 {
            let what = "files whose name was taken; a number was added";
            notes.push((what.to_owned(), folder.names.renamed));
        }
        notes
    }
}

impl Sink for FilesSink {
    type Block = FileBlock;
    type Unit = FileBlock;
    type Output = OutputFolder;

    fn traits(&self) -> SinkTraits {
        SinkTraits::writing(&self.path.0).with_rows(self.field.is_some())
    }

    fn open(&self, context: &SinkContext) -> Result<OutputFolder, Error> {
        let folder = &self.path.0;
        context.outputs.folder(folder)?;
        let files = context.outputs.many(folder)?;
        let index = self.index.file().map(|name| context.outputs.create_index(&folder.join(name)));
        let mut index = index.transpose()?;
        if let Some(index) = &mut index {
            index.write(self.index.head())?;
        }
        let (names, skips) = (UniqueNames::default(), SkipReport::default());
        let channels = Arc::clone(&context.channels);
        Ok(OutputFolder { files, index, names, count: 0, skips, channels })
    }

    fn prepare(&self, batch: Batch, context: &mut PrepareContext<'_>) -> Result<FileBlock, Error> {
        self.block(&batch, context)
    }

    fn write(&self, folder: &mut OutputFolder, block: FileBlock) -> Result<Written, Error> {
        let FileBlock { content, files, lines, left_out, skips } = block;
        let (count, mut line_start, mut list) = (files.len() as u64, 0, Vec::new());
        for PendingFile { name, event, location, line_end } in files {
            let name = folder.names.claim(name);
            let bytes = content.bytes(event, location);
            let bytes = bytes.ok_or_else(|| Error::internal("a file without its bytes"))?;
            folder.files.write(&name, bytes, 1)?;
            self.index.write_name(&name, &mut list);
            list.extend_from_slice(lines.get(line_start..line_end).unwrap_or_default());
            line_start = line_end;
        }
        if let Some(index) = &mut folder.index {
            index.write(&list)?;
        }
        folder.count += count;
        folder.skips.merge(skips);
        Ok(Written { events: count, skipped: left_out, ..Written::default() })
    }

    fn finish(&self, folder: OutputFolder) -> Result<Written, Error> {
        let notes = self.notes(&folder);
        if let Some(index) = folder.index {
            index.finish(folder.count)?;
        }
        folder.files.finish()?;
        Ok(Written { notes, ..Written::default() })
    }
}
