//! Sources whose events carry a source name derived from their input's name. Reads nothing itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use sluice_model::{
    Batch, Channel, ChannelId, Damage, Error, Input, LiveBatches, Query, ReadContext, Reader, Seam,
    Source, Split, SplitStart,
};

use crate::batch::template::Template;

/// A source whose events are named after their input.
pub(crate) struct NamedSource {
    inner: Box<dyn Source>,
    name: Template,
    /// Its logs, once they are needed.
    logs: OnceLock<BTreeSet<PathBuf>>,
}

impl NamedSource {
    /// Gives the events of a source this name. `Err` if it is not a template; pipeline files are
    /// checked for that.
    pub(crate) fn new(inner: Box<dyn Source>, text: &str) -> Result<Self, Error> {
        let wrong = |_| Error::internal(format!("`{text}` is not a source name"));
        let name = Template::parse_source_name(text).map_err(wrong)?;
        Ok(Self { inner, name, logs: OnceLock::new() })
    }

    /// The log that this input is, or is a part of.
    fn log_of(&self, input: &Path) -> Result<PathBuf, Error> {
        if self.logs.get().is_none() {
            let logs = self.inner.logs()?.into_iter().map(|log| log.path).collect();
            // Another thread may have found the same.
            self.logs.get_or_init(|| logs);
        }
        let is_log = |path: &&Path| self.logs.get().is_some_and(|logs| logs.contains(*path));
        Ok(input.ancestors().find(is_log).unwrap_or(input).to_owned())
    }
}

/// The query for the wrapped source, which uses other source names.
fn inner_query(query: &Query) -> Query {
    Query { channels: query.channels.clone().ignoring_sources(), ..query.clone() }
}

#[deny(clippy::missing_trait_methods)]
impl Source for NamedSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        self.inner.inputs()
    }

    fn logs(&self) -> Result<Vec<Input>, Error> {
        self.inner.logs()
    }

    fn files(&self) -> Result<Vec<Input>, Error> {
        self.inner.files()
    }

    fn is_undecoded(&self) -> bool {
        self.inner.is_undecoded()
    }

    fn has_own_rows(&self) -> bool {
        self.inner.has_own_rows()
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        self.inner.splits(target, &inner_query(query))
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
        // The wrapped source's channels are not those of the run.
        let inside = ReadContext {
            channels: Arc::default(),
            query: inner_query(&context.query),
            ..context.with_own_damage()
        };
        let reader = self.inner.read(split, entry, &inside)?;
        let (name, input, run) = (&self.name, self.log_of(&split.input)?, context.clone());
        Ok(Box::new(NamedReader { reader, name, input, inside, run, ids: Vec::new() }))
    }

    fn listen(&self, split: &Split, context: &ReadContext) -> Result<LiveBatches, Error> {
        let source = self.name.source_name(&split.input, &context.source)?.into();
        let query = inner_query(&context.query);
        self.inner.listen(split, &ReadContext { source, query, ..context.clone() })
    }
}

/// The error for events of a source whose channels it has not interned.
pub(crate) fn unknown_channel() -> Error {
    Error::internal("an event of a channel that its source did not name")
}

/// Reads a split, and names the source of its events after the input.
struct NamedReader<'s> {
    reader: Box<dyn Reader + 's>,
    name: &'s Template,
    input: PathBuf,
    /// The context of the wrapped source.
    inside: ReadContext,
    run: ReadContext,
    /// The run's id of each channel of the wrapped source.
    ids: Vec<ChannelId>,
}

impl NamedReader<'_> {
    /// Interns all channels that the wrapped source has met.
    fn intern_channels(&mut self) -> Result<(), Error> {
        for channel in self.inside.channels.since(self.ids.len()) {
            let source = self.name.source_name(&self.input, &channel.source)?;
            let named = Channel { source: source.into(), ..Channel::clone(&channel) };
            self.ids.push(self.run.channels.intern(named)?);
        }
        Ok(())
    }

    fn run_channel(&self, id: u32) -> Result<ChannelId, Error> {
        let id = self.ids.get(id as usize).copied();
        id.ok_or_else(unknown_channel)
    }

    /// Forwards damage with the run's channel ids.
    fn forward_damage(&self) -> Result<(), Error> {
        for damage in self.inside.damage.take_list() {
            let channel = damage.channel.map(|id| self.run_channel(id.0)).transpose()?;
            self.run.damage.report(Damage { channel, ..damage });
        }
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl Reader for NamedReader<'_> {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        let batch = self.reader.next_batch()?;
        self.intern_channels()?;
        self.forward_damage()?;
        let Some(batch) = batch else { return Ok(None) };
        batch.with_channel_ids(&self.ids).map(Some).ok_or_else(unknown_channel)
    }

    fn seam(&self) -> Seam {
        self.reader.seam()
    }
}
