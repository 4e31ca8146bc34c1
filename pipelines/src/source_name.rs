//! Sources whose events say which input they are from: what the source of an event is called, made
//! from the name of its input. Reads nothing by itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_core::{
    Batch, Channel, ChannelId, Damage, Error, Input, Query, ReadContext, Reader, Seam, Source,
    Split, SplitStart,
};

use crate::batch::template::Template;
use crate::run::SourceReading;
use crate::spec::{Node, Part};

/// A node's plugin, whose events are of sources with this name if it is a source.
///
/// `Err` if the name is no template, which pipeline files are checked for.
pub(crate) fn named(part: Part, name: Option<&str>) -> Result<Part, Error> {
    let (inner, text) = match (part, name) {
        (Part::Source(source), Some(text)) => (source, text),
        (part, _) => return Ok(part),
    };
    let wrong = |_| Error::internal(format!("`{text}` is no name of a source"));
    let name = Template::parse_source_name(text).map_err(wrong)?;
    Ok(Part::Source(Box::new(NamedSource { inner, name })))
}

/// What is to be said of sources whose inputs are called alike, by their places in the pipeline.
pub(crate) fn notes(nodes: &[Node], reading: &[SourceReading]) -> Vec<(usize, String)> {
    reading.iter().filter_map(|source| Some((source.node, note(nodes, source)?))).collect()
}

fn note(nodes: &[Node], source: &SourceReading) -> Option<String> {
    let text = nodes.get(source.node)?.source_name.as_deref()?;
    let name = Template::parse_source_name(text).ok().filter(Template::goes_by_name)?;
    let mut inputs: BTreeMap<String, usize> = BTreeMap::new();
    for input in &source.inputs {
        *inputs.entry(name.source_name(&input.path, "").ok()?).or_default() += 1;
    }
    let (called, count) = inputs.into_iter().find(|(_, count)| *count > 1)?;
    Some(format!(
        "{count} inputs are called `{called}` by `source_name`: `{{name}}`, `{{parent}}/{{name}}` or \
         `{{path}}` tells them apart"
    ))
}

/// A source whose events are of sources called after the inputs.
struct NamedSource {
    inner: Box<dyn Source>,
    name: Template,
}

/// What is asked of the source itself, whose events are of sources called otherwise.
fn asked(query: &Query) -> Query {
    Query { channels: query.channels.clone().ignoring_sources(), ..query.clone() }
}

impl Source for NamedSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        self.inner.inputs()
    }

    fn files(&self) -> Result<Vec<Input>, Error> {
        self.inner.files()
    }

    fn is_undecoded(&self) -> bool {
        self.inner.is_undecoded()
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        self.inner.splits(target, &asked(query))
    }

    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        self.inner.events_in(input)
    }

    fn findings(&self, input: &Path) -> Result<Vec<String>, Error> {
        self.inner.findings(input)
    }

    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        self.inner.faults(input)
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        // Channels by the names that the source has for them are none of the run's.
        let inside = ReadContext {
            channels: Arc::default(),
            query: asked(&context.query),
            ..context.with_own_damage()
        };
        let reader = self.inner.read(split, entry, &inside)?;
        let (name, input, run) = (&self.name, split.input.clone(), context.clone());
        Ok(Box::new(NamedReader { reader, name, input, inside, run, ids: Vec::new() }))
    }
}

fn unnamed() -> Error {
    Error::internal("an event of a channel that its source did not name")
}

/// Reads a split, and calls the sources of its events after the input.
struct NamedReader<'s> {
    reader: Box<dyn Reader + 's>,
    name: &'s Template,
    input: PathBuf,
    /// What the source reads with.
    inside: ReadContext,
    run: ReadContext,
    /// The run's number of each channel of the source.
    ids: Vec<ChannelId>,
}

impl NamedReader<'_> {
    /// The run's numbers of all channels that the source has met.
    fn meet_channels(&mut self) -> Result<(), Error> {
        for channel in self.inside.channels.since(self.ids.len()) {
            let source = self.name.source_name(&self.input, &channel.source)?;
            let named = Channel { source: source.into(), ..Channel::clone(&channel) };
            self.ids.push(self.run.channels.intern(named)?);
        }
        Ok(())
    }

    fn number(&self, id: u32) -> Result<ChannelId, Error> {
        let id = self.ids.get(id as usize).copied();
        id.ok_or_else(unnamed)
    }

    /// Hands on what was damaged.
    fn hand_on_damage(&self) -> Result<(), Error> {
        for damage in self.inside.damage.take() {
            let channel = damage.channel.map(|id| self.number(id.0)).transpose()?;
            self.run.damage.report(Damage { channel, ..damage });
        }
        Ok(())
    }
}

impl Reader for NamedReader<'_> {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        let batch = self.reader.next_batch()?;
        self.meet_channels()?;
        self.hand_on_damage()?;
        let Some(batch) = batch else { return Ok(None) };
        batch.with_channel_ids(&self.ids).map(Some).ok_or_else(unnamed)
    }

    fn seam(&self) -> Seam {
        self.reader.seam()
    }
}
