//! Sink `foxglove-layout`: writes a layout for the views among its events. Stores no event.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::options::OutPath;
use sluice_model::{
    Batch, Channel, ChannelId, Error, OutputFile, PrepareContext, Sink, SinkContext, SinkTraits,
    Written,
};

use crate::layout::{ViewTopic, layout};

/// Options of `foxglove-layout`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FoxgloveLayout {
    /// The file to write, such as `drive.foxglove.json`.
    #[serde(deserialize_with = "OutPath::without_folder")]
    path: OutPath,
}

sluice_model::register! {
    sink "foxglove-layout": FoxgloveLayout,
    about: "writes a layout that shows all views in Foxglove or Lichtblick",
    sample: include_str!("../samples/foxglove-layout.toml"),
}

/// The channels of a batch.
#[derive(Debug)]
pub(crate) struct BatchChannels {
    events: u64,
    channels: Vec<Arc<Channel>>,
}

/// The file, which is not published without views, and the views so far.
#[derive(Debug)]
pub(crate) struct LayoutOutput {
    file: OutputFile,
    events: u64,
    views: BTreeSet<ViewTopic>,
}

impl Sink for FoxgloveLayout {
    type Block = BatchChannels;
    type Unit = BatchChannels;
    type Output = LayoutOutput;

    fn traits(&self) -> SinkTraits {
        SinkTraits { accepts_wide_times: true, ..SinkTraits::writing(&self.path.0).with_rows(true) }
    }

    fn open(&self, context: &SinkContext) -> Result<LayoutOutput, Error> {
        let file = context.outputs.create(&self.path.0)?;
        Ok(LayoutOutput { file, events: 0, views: BTreeSet::new() })
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<BatchChannels, Error> {
        let ids: HashSet<u32> = batch.channels().iter().copied().collect();
        let mut ids: Vec<u32> = ids.into_iter().collect();
        ids.sort_unstable();
        let channels = ids.into_iter().map(|id| context.channels.get(ChannelId(id))).collect();
        Ok(BatchChannels { events: batch.len() as u64, channels })
    }

    fn write(&self, output: &mut LayoutOutput, unit: BatchChannels) -> Result<Written, Error> {
        output.events += unit.events;
        for channel in unit.channels {
            let kind = channel.type_name.as_deref().and_then(|name| name.strip_prefix("foxglove."));
            let Some(kind) = kind.filter(|_| channel.metadata.contains_key(Channel::VIEW)) else {
                continue;
            };
            let (topic, kind) = (channel.name.text().to_owned(), kind.to_owned());
            output.views.insert(ViewTopic { topic, kind });
        }
        Ok(Written::events(unit.events))
    }

    fn finish(&self, mut output: LayoutOutput) -> Result<Written, Error> {
        if output.views.is_empty() {
            let note =
                "no layout is written: no event is a view, as the stage `foxglove` adds them";
            return Ok(Written { notes: vec![(note.to_owned(), 0)], ..Written::default() });
        }
        let text = serde_json::to_string_pretty(&layout(&output.views))
            .map_err(|e| Error::internal(format!("a layout is no JSON: {e}")))?;
        output.file.write_text(text.as_bytes())?;
        output.file.write(b"\n")?;
        output.file.finish(output.events)?;
        Ok(Written::default())
    }
}
