//! Plugins that accept options and ignore them, and their registry.

use serde::Deserialize;
use sluice_model::Input;
use sluice_model::options::{ByteSize, InPaths, OutPath};
use sluice_model::plugin::{PrepareContext, Reader, SinkContext, SinkTraits, SplitStart, Written};
use sluice_model::registry::{make_sink, make_source, make_stage, schema_of};
use sluice_model::time::{TimeLength, TimePoint};
use sluice_model::{
    Batch, Error, Map, OptionsError, Patterns, Plugin, PluginFactory, ReadContext, Registry, Sink,
    Source, Split, Stage, StageContext,
};
use sluice_model::{schemars, schemars::JsonSchema};

/// The toys.
pub(crate) fn registry() -> Registry {
    Registry::from_plugins([
        Plugin {
            about: "makes up a drive",
            ..Plugin::new("demo", PluginFactory::Source(make_source::<Demo>), schema_of::<Demo>)
        },
        Plugin {
            about: "reads a log",
            sample: "[sources.log]\nplugin = \"log\"\npath = \"drive.log\"   # or a list\n",
            ..Plugin::new("log", PluginFactory::Source(make_source::<Log>), schema_of::<Log>)
        },
        Plugin::new("lcm-log", PluginFactory::Sink(make_sink::<Table>), schema_of::<Table>),
        Plugin::new("jsonl", PluginFactory::Sink(make_sink::<Lines>), schema_of::<Lines>),
        Plugin::new("table", PluginFactory::Sink(make_sink::<Table>), schema_of::<Table>),
        Plugin::new("file", PluginFactory::Sink(make_sink::<File>), schema_of::<File>),
        Plugin::new("filter", PluginFactory::Stage(make_stage::<Filter>), schema_of::<Filter>),
        Plugin::new("pass", PluginFactory::Stage(make_stage::<PassStage>), schema_of::<PassStage>),
        Plugin::new(
            "lcm",
            PluginFactory::Codec(|_, _| Err(OptionsError::at("", "a toy"))),
            schema_of::<PassStage>,
        ),
    ])
}

macro_rules! toy {
    ($(#[$about:meta])* $name:ident { $($(#[$of:meta])* $field:ident : $type:ty),* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name { $($(#[$of])* #[expect(dead_code, reason = "only read")] $field: $type),* }
    };
}

toy!(Demo {
    /// How long the drive is.
    #[serde(default)]
    seconds: f64,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    noisy: Option<bool>,
});

toy!(Log {
    /// The files.
    path: InPaths,
    #[serde(default)]
    types: Vec<InPaths>,
    #[serde(default)]
    epoch: Option<TimePoint>,
    #[serde(default)]
    window: Option<Window>,
});

toy!(Window { start: TimeLength, limit: Option<u8> });

toy!(Lines { path: OutPath });

toy!(Table {
    path: OutPath,
    #[serde(default)]
    compression: Compression,
    #[serde(default)]
    block: Option<ByteSize>,
    #[serde(default)]
    level: Option<i32>,
});

/// Says what it writes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    path: OutPath,
    #[serde(default)]
    #[expect(dead_code, reason = "only read")]
    more: Vec<OutPath>,
}

/// How blocks are compressed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Compression {
    /// Well.
    #[default]
    Zstd,
    /// Not at all.
    None,
}

/// Keeps some channels.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// What to keep.
    #[serde(default)]
    channels: Patterns,
    #[serde(default)]
    start: Option<i64>,
    #[serde(default)]
    end: Option<i64>,
}

/// Keeps everything.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PassStage {}

impl TryFrom<Filter> for Stage {
    type Error = OptionsError;

    fn try_from(filter: Filter) -> Result<Self, OptionsError> {
        if filter.channels.is_empty() && filter.start.is_none() && filter.end.is_none() {
            let message = "`filter` lets everything pass: give it channels or times".to_owned();
            return Err(OptionsError { path: Vec::new(), message });
        }
        match (filter.start, filter.end) {
            (Some(start), Some(end)) if end < start => {
                Err(OptionsError::at("end", "the end lies before the start"))
            }
            _ => Ok(Stage::Map(Box::new(PassStage {}))),
        }
    }
}

impl TryFrom<PassStage> for Stage {
    type Error = OptionsError;

    fn try_from(pass: PassStage) -> Result<Self, OptionsError> {
        Ok(Stage::Map(Box::new(pass)))
    }
}

impl Map for PassStage {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        Ok(batch)
    }
}

macro_rules! source {
    ($($type:ty),*) => {$(
        impl Source for $type {
            fn inputs(&self) -> Result<Vec<Input>, Error> {
                Ok(Vec::new())
            }
            fn read<'s>(
                &'s self, _: &Split, _: SplitStart, _: &ReadContext,
            ) -> Result<Box<dyn Reader + 's>, Error> {
                Ok(Box::new(std::iter::empty()))
            }
        }
    )*};
}
source!(Demo, Log);

macro_rules! sink {
    ($($type:ty: $targets:expr),*) => {$(
        impl Sink for $type {
            type Block = ();
            type Unit = ();
            type Output = ();
            fn traits(&self) -> SinkTraits {
                let targets: fn(&Self) -> Vec<std::path::PathBuf> = $targets;
                SinkTraits { targets: targets(self), ..SinkTraits::default() }
            }
            fn open(&self, _: &SinkContext) -> Result<(), Error> {
                Ok(())
            }
            fn prepare(&self, _: Batch, _: &mut PrepareContext<'_>) -> Result<(), Error> {
                Ok(())
            }
            fn write(&self, (): &mut (), (): ()) -> Result<Written, Error> {
                Ok(Written::default())
            }
            fn finish(&self, (): ()) -> Result<Written, Error> {
                Ok(Written::default())
            }
        }
    )*};
}
sink!(Lines: |_| Vec::new(), Table: |_| Vec::new(), File: |file| vec![file.path.0.clone()]);
