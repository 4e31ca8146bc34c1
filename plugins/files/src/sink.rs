//! Sink `files`: options, what of each event becomes a file, and what is told of those that do not.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer};
use sluice_core::name::{file_name, printable, without_device_names};
use sluice_core::options::OutPath;
use sluice_core::output::OutputFiles;
use sluice_core::schemars::JsonSchema;
use sluice_core::template::BoundTemplate;
use sluice_core::{
    Batch, Channel, Channels, EncodeContext, Error, Event, FieldPath, Name, OutputFile, PerChannel,
    Rows, Sink, SinkContext, Template,
};

use crate::index::Index;
use crate::jpeg;
use crate::name::{self, Depth, Fault, Names, Unnamed};
use crate::told::Told;
use crate::value::Values;

/// Options of `files`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_core::schemars")]
pub struct Files {
    /// The folder to write.
    #[serde(deserialize_with = "folder")]
    path: OutPath,
    /// What files are called, below the folder: values of the event in braces.
    #[serde(default = "channel_and_number", deserialize_with = "possible")]
    name: Template,
    /// The field that becomes a file: bytes, a text or a list of bytes. Without it, the payload.
    #[serde(default)]
    field: Option<FieldPath>,
    /// The list of the files: a table `index.csv` (`csv`), names in `index.txt` (`names`), or `none`.
    #[serde(default)]
    index: Index,
    /// How it is told whether a file is whole: `none` or `jpeg`.
    #[serde(default)]
    check: Check,
    /// Whether files that are not whole are written: `keep` or `drop`.
    #[serde(default)]
    bad: Bad,
    /// Whether there is a file where it has no bytes: `drop` or `keep`.
    #[serde(default)]
    empty: Empty,
    #[serde(skip)]
    channels: PerChannel<Arc<Known>>,
    #[serde(skip)]
    depth: OnceLock<Depth>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_core::schemars")]
enum Check {
    #[default]
    None,
    Jpeg,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_core::schemars")]
enum Bad {
    #[default]
    Keep,
    Drop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_core::schemars")]
enum Empty {
    #[default]
    Drop,
    Keep,
}

sluice_core::register! {
    sink "files": Files,
    about: "writes a file a payload or field, such as the images of cameras, and a list of them",
    sample: include_str!("../samples/files.toml"),
}

fn folder<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutPath, D::Error> {
    let path = OutPath::deserialize(deserializer)?;
    if path.is_folder() {
        return Ok(path);
    }
    Err(serde::de::Error::custom("expected a folder: write a slash at its end"))
}

fn possible<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Template, D::Error> {
    let template = Template::deserialize(deserializer)?;
    let Some(fault) = name::mistake(&template) else { return Ok(template) };
    let (text, remedy) = (template.to_string(), fault.remedy());
    Err(serde::de::Error::custom(format!(
        "no file below the folder can be called `{}`: {remedy}",
        printable(&text)
    )))
}

fn channel_and_number() -> Template {
    Template::parse("{channel}-{sequence}.bin").expect("it is a template")
}

/// A channel, and the same with names in which nothing means anything in a path.
#[derive(Debug)]
struct Known {
    channel: Channel,
    in_paths: Channel,
}

impl Known {
    fn of(channel: &Channel) -> Self {
        let mut in_paths = channel.clone();
        in_paths.name = Name::from_text(&file_name(channel.name.text()));
        in_paths.source = file_name(&channel.source).into();
        Self { channel: channel.clone(), in_paths }
    }
}

/// The files of a batch.
#[derive(Debug, Default)]
pub struct Block {
    content: Content,
    files: Vec<Ready>,
    /// The lines of the list, without names, one behind the other.
    lines: Vec<u8>,
    /// The channels, as they were read, of events that are no files.
    left_out: Vec<u32>,
    told: Told,
}

/// What becomes files.
#[derive(Debug)]
enum Content {
    /// The events' payloads.
    Payloads(Batch),
    /// The values of a field, a list a type.
    Values(Vec<Option<Values>>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Values(Vec::new())
    }
}

impl Content {
    /// The bytes of an event, which is in that row of the rows of that type.
    fn bytes(&self, event: usize, place: Option<(usize, usize)>) -> Option<&[u8]> {
        match self {
            Self::Payloads(batch) => Some(batch.payload(event)),
            Self::Values(values) => {
                let (kind, row) = place?;
                values.get(kind)?.as_ref()?.bytes(row)
            }
        }
    }
}

/// A file that is to be written.
#[derive(Debug)]
struct Ready {
    name: String,
    event: usize,
    place: Option<(usize, usize)>,
    /// Where its line ends.
    line_end: usize,
}

/// What becomes of the bytes of an event.
#[derive(Clone, Copy, Debug, Default)]
struct Verdict {
    /// What the list says of them.
    check: &'static str,
    /// What the report says of them, if anything.
    told: Option<&'static str>,
    is_left_out: bool,
}

impl Block {
    fn push(&mut self, file: Ready) {
        self.files.push(Ready { line_end: self.lines.len(), ..file });
    }
}

/// The folder in the making.
#[derive(Debug)]
pub struct Folder {
    files: OutputFiles,
    index: Option<OutputFile>,
    names: Names,
    count: u64,
    left_out: Vec<u32>,
    told: Told,
    channels: Arc<Channels>,
}

impl Files {
    fn depth(&self) -> &Depth {
        self.depth.get_or_init(|| Depth::of(&self.name))
    }

    fn judge(&self, bytes: &[u8]) -> Verdict {
        let fault = match (self.check, bytes.is_empty()) {
            (Check::None, false) => return Verdict::default(),
            (Check::None, true) => "empty file",
            (Check::Jpeg, _) => match jpeg::check(bytes) {
                Ok(()) => return Verdict { check: "ok", ..Verdict::default() },
                Err(fault) => fault.as_str(),
            },
        };
        let is_left_out = match bytes.is_empty() {
            true => self.empty == Empty::Drop,
            false => self.bad == Bad::Drop,
        };
        Verdict { check: fault, told: Some(fault), is_left_out }
    }

    /// The name of an event's file. `Err` says why it can have none.
    fn named(
        &self,
        bound: &BoundTemplate<'_>,
        channel: &Channel,
        event: &Event<'_>,
        row: Option<usize>,
    ) -> Result<String, Unnamed> {
        let mut name = Vec::new();
        if !bound.write(channel, event, row, &mut name) {
            // Nothing is missing from what is longer than any text may be.
            return Err(bound.missing(row).map_or_else(
                || Unnamed::called("", Fault::TooLong),
                |field| Unnamed::lacking(field.to_string()),
            ));
        }
        let name = String::from_utf8(name).map_err(|error| {
            Unnamed::called(&String::from_utf8_lossy(error.as_bytes()), Fault::NoText)
        })?;
        let name = match without_device_names(&name) {
            Cow::Borrowed(_) => name,
            Cow::Owned(other) => other,
        };
        match self.depth().fault(&name) {
            Some(fault) => Err(Unnamed::called(&name, fault)),
            None => Ok(name),
        }
    }

    fn content(&self, batch: &Batch) -> Content {
        let Some(field) = &self.field else {
            return Content::Payloads(batch.clone().with_rows(Vec::new()));
        };
        let find = |rows: &Rows| Values::of(field.resolve(&rows.columns)?);
        Content::Values(batch.rows().iter().map(find).collect())
    }

    fn block(&self, batch: &Batch, context: &mut EncodeContext<'_>) -> Result<Block, Error> {
        let channels = self.channels.table(context.channels, |c| Ok(Arc::new(Known::of(c))))?;
        let bound: Vec<_> = batch.rows().iter().map(|rows| self.name.bind(Some(rows))).collect();
        let (bare, places) = (self.name.bind(None), places(batch));
        let (content, mut block) = (self.content(batch), Block::default());
        for (row, event) in batch.iter().enumerate() {
            let (known, place) = (&channels[event.channel.index()], places[row]);
            let Some(bytes) = content.bytes(row, place) else {
                block.told.lacks(event.channel);
                block.left_out.push(batch.origins()[row]);
                continue;
            };
            block.told.has(event.channel);
            let Verdict { check, told, is_left_out } = self.judge(bytes);
            if let Some(told) = told {
                block.told.judged(event.channel, told, is_left_out);
            }
            if is_left_out {
                block.left_out.push(batch.origins()[row]);
                continue;
            }
            let bound = place.map_or(&bare, |(kind, _)| &bound[kind]);
            match self.named(bound, &known.in_paths, &event, place.map(|(_, row)| row)) {
                Ok(name) => {
                    let line = (&event, &known.channel);
                    self.index.write_rest(line, bytes.len(), check, &mut block.lines);
                    block.push(Ready { name, event: row, place, line_end: 0 });
                }
                Err(unnamed) => {
                    context.refused.push((row as u32, unnamed.reason()));
                    block.told.unnamed(event.channel, unnamed);
                }
            }
        }
        block.content = content;
        Ok(block)
    }
}

/// For each event the type and row it is decoded in.
fn places(batch: &Batch) -> Vec<Option<(usize, usize)>> {
    let mut places = vec![None; batch.len()];
    for (kind, rows) in batch.rows().iter().enumerate() {
        for (row, event) in rows.events.iter().enumerate() {
            places[*event as usize] = Some((kind, row));
        }
    }
    places
}

impl Sink for Files {
    type Block = Block;
    type Output = Folder;

    fn targets(&self) -> Vec<PathBuf> {
        vec![self.path.0.clone()]
    }

    fn accepts_rows(&self) -> bool {
        self.field.is_some()
    }

    fn open(&self, context: &SinkContext) -> Result<Folder, Error> {
        let folder = &self.path.0;
        context.outputs.folder(folder)?;
        let files = context.outputs.many(folder)?;
        let index = self.index.file().map(|name| context.outputs.create_as_is(&folder.join(name)));
        let mut index = index.transpose()?;
        if let Some(index) = &mut index {
            index.write(self.index.head())?;
        }
        let (names, left_out, told) = (Names::default(), Vec::new(), Told::default());
        let channels = Arc::clone(&context.channels);
        Ok(Folder { files, index, names, count: 0, left_out, told, channels })
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Block, Error> {
        self.block(&batch, context)
    }

    fn append(&self, folder: &mut Folder, block: Block) -> Result<u64, Error> {
        let Block { content, files, lines, left_out, told } = block;
        let (count, mut line_start, mut list) = (files.len() as u64, 0, Vec::new());
        for Ready { name, event, place, line_end } in files {
            let name = folder.names.take(name);
            let bytes = content.bytes(event, place);
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
        folder.left_out.extend(left_out);
        folder.told.add(told);
        Ok(count)
    }

    fn take_skipped(&self, folder: &mut Folder) -> Vec<u32> {
        std::mem::take(&mut folder.left_out)
    }

    fn notes(&self, folder: &Folder) -> Vec<(String, u64)> {
        let mut notes = folder.told.notes(&folder.channels, self.field.as_ref());
        if folder.names.again > 0 {
            let what = "files got a number in their names, as these were there already";
            notes.push((what.to_owned(), folder.names.again));
        }
        notes
    }

    fn finish(&self, folder: Folder) -> Result<u64, Error> {
        if let Some(index) = folder.index {
            index.finish(folder.count)?;
        }
        folder.files.finish()?;
        Ok(0)
    }
}
