//! The registry: which plugins a program has, by kind and name.
//!
//! Plugins of linked crates are found through `inventory`, which silently misses crates that no
//! code names: `plugins/all` names ours. Tests and embedders can make a registry by hand.

mod plugin;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::{ByteFormat, Codec, DynSink, Error, OptionsError, Service, Source, Stage};

pub use plugin::{
    CompanionSink, Constructor, ConversionNodes, ConversionStage, DefaultRole, Plugin,
    PluginFactory, PluginKind, SniffResult, TypeSet, TypesProbe, type_set, type_sets,
};
#[doc(hidden)]
pub use plugin::{make_codec, make_service, make_sink, make_source, make_stage, schema_of};

/// The plugins a program may use: passed to whoever makes one. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Registry(Arc<[Plugin]>);

impl Registry {
    /// Every plugin linked into this program. For programs and tests: libraries and plugins get the
    /// registry passed.
    ///
    /// # Panics
    ///
    /// If two linked plugins of one kind have one name: that is a mistake in the build, not in the
    /// input.
    pub fn linked() -> Self {
        Self::try_linked().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Every plugin linked into this program. `Err` says that two of one kind have one name, and
    /// where both are registered.
    pub fn try_linked() -> Result<Self, Error> {
        Self::try_from_plugins(inventory::iter::<Plugin>.into_iter().copied())
    }

    /// A registry of exactly these plugins.
    ///
    /// # Panics
    ///
    /// If two of one kind have one name.
    pub fn from_plugins(plugins: impl IntoIterator<Item = Plugin>) -> Self {
        Self::try_from_plugins(plugins).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_from_plugins(plugins: impl IntoIterator<Item = Plugin>) -> Result<Self, Error> {
        let mut all: Vec<Plugin> = plugins.into_iter().collect();
        all.sort_by_key(|plugin| (plugin.name, plugin.kind(), plugin.module));
        let same =
            |pair: &&[Plugin]| (pair[0].name, pair[0].kind()) == (pair[1].name, pair[1].kind());
        match all.windows(2).find(same) {
            None => Ok(Self(all.into())),
            Some(pair) => Err(Error::invalid(format!(
                "two {}s are registered as `{}`, in the modules `{}` and `{}`: give one of them \
                 another name in `register!`",
                pair[0].kind(),
                pair[0].name,
                pair[0].module,
                pair[1].module
            ))),
        }
    }

    /// The plugin of that kind and name.
    pub fn get(&self, kind: PluginKind, name: &str) -> Option<&Plugin> {
        self.0.iter().find(|plugin| plugin.name == name && plugin.kind() == kind)
    }

    /// Makes the source of this name.
    pub fn source(&self, name: &str, options: Value) -> Result<Box<dyn Source>, OptionsError> {
        match self.get(PluginKind::Source, name).map(|plugin| plugin.make) {
            Some(PluginFactory::Source(make)) => make(options, self),
            _ => Err(missing(PluginKind::Source, name)),
        }
    }

    /// Makes the stage of this name.
    pub fn stage(&self, name: &str, options: Value) -> Result<Stage, OptionsError> {
        match self.get(PluginKind::Stage, name).map(|plugin| plugin.make) {
            Some(PluginFactory::Stage(make)) => make(options, self),
            _ => Err(missing(PluginKind::Stage, name)),
        }
    }

    /// Makes the codec of this name.
    pub fn codec(&self, name: &str, options: Value) -> Result<Box<dyn Codec>, OptionsError> {
        match self.get(PluginKind::Codec, name).map(|plugin| plugin.make) {
            Some(PluginFactory::Codec(make)) => make(options, self),
            _ => Err(missing(PluginKind::Codec, name)),
        }
    }

    /// Makes the sink of this name.
    pub fn sink(&self, name: &str, options: Value) -> Result<DynSink, OptionsError> {
        match self.get(PluginKind::Sink, name).map(|plugin| plugin.make) {
            Some(PluginFactory::Sink(make)) => make(options, self),
            _ => Err(missing(PluginKind::Sink, name)),
        }
    }

    /// Makes the service of this name.
    pub fn service(&self, name: &str, options: Value) -> Result<Box<dyn Service>, OptionsError> {
        match self.get(PluginKind::Service, name).map(|plugin| plugin.make) {
            Some(PluginFactory::Service(make)) => make(options, self),
            _ => Err(missing(PluginKind::Service, name)),
        }
    }

    /// All plugins, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Plugin> {
        self.0.iter()
    }

    /// The names of all plugins of a kind, sorted.
    pub fn names(&self, kind: PluginKind) -> Vec<&'static str> {
        self.iter().filter(|plugin| plugin.kind() == kind).map(|plugin| plugin.name).collect()
    }

    /// The sources that may read a file that starts with `head`, the most certain first.
    pub fn sniff(&self, head: &[u8]) -> Vec<&Plugin> {
        let sources = self.iter().filter(|plugin| plugin.kind() == PluginKind::Source);
        let mut sure: Vec<(SniffResult, &Plugin)> = sources
            .map(|plugin| ((plugin.sniff)(head), plugin))
            .filter(|(s, _)| *s != SniffResult::No)
            .collect();
        sure.sort_by_key(|(sniff, _)| std::cmp::Reverse(*sniff));
        sure.into_iter().map(|(_, plugin)| plugin).collect()
    }

    /// The source that most certainly reads a file that starts with `head`: the first that
    /// [`sniff`](Self::sniff) lists, and its certainty. Asks no further once one is sure.
    pub fn sniff_best(&self, head: &[u8]) -> Option<(SniffResult, &Plugin)> {
        let mut best: Option<(SniffResult, &Plugin)> = None;
        for plugin in self.iter().filter(|plugin| plugin.kind() == PluginKind::Source) {
            let sniff = (plugin.sniff)(head);
            if sniff > best.map_or(SniffResult::No, |(best, _)| best) {
                best = Some((sniff, plugin));
            }
            if sniff == SniffResult::Yes {
                break;
            }
        }
        best
    }

    /// The sources that recognize `path` by more than its first bytes, the most certain first.
    pub fn sniff_path(&self, path: &Path) -> Result<Vec<&Plugin>, Error> {
        let mut sure = Vec::new();
        for plugin in self.iter().filter(|plugin| plugin.kind() == PluginKind::Source) {
            let sniff = (plugin.sniff_path)(path)?;
            sure.extend((sniff != SniffResult::No).then_some((sniff, plugin)));
        }
        sure.sort_by_key(|(sniff, _)| std::cmp::Reverse(*sniff));
        Ok(sure.into_iter().map(|(_, plugin)| plugin).collect())
    }

    /// The byte format that the source of this name offers.
    pub fn byte_format(&self, name: &str) -> Option<&'static dyn ByteFormat> {
        self.get(PluginKind::Source, name)?.byte_format
    }

    /// The names of all byte formats, sorted.
    pub fn byte_formats(&self) -> Vec<&'static str> {
        self.iter()
            .filter(|plugin| plugin.byte_format.is_some())
            .map(|plugin| plugin.name)
            .collect()
    }

    /// The plugin of that kind whose format has this extension.
    pub fn by_extension(&self, kind: PluginKind, extension: &str) -> Option<&Plugin> {
        let has =
            |plugin: &&Plugin| plugin.extensions.iter().any(|e| e.eq_ignore_ascii_case(extension));
        self.iter().filter(|plugin| plugin.kind() == kind).find(has)
    }

    /// The plugin of that kind that has this job by default.
    pub fn default_for(&self, kind: PluginKind, role: DefaultRole) -> Option<&Plugin> {
        self.iter().find(|plugin| plugin.kind() == kind && plugin.default_for.contains(&role))
    }

    /// The plugin of that kind that accepts a URL like this one, such as `udpm://…`.
    pub fn by_url(&self, kind: PluginKind, url: &str) -> Option<&Plugin> {
        let (scheme, _) = url.split_once("://")?;
        let has = |plugin: &&Plugin| plugin.schemes.iter().any(|s| s.eq_ignore_ascii_case(scheme));
        self.iter().filter(|plugin| plugin.kind() == kind).find(has)
    }
}

fn missing(kind: PluginKind, name: &str) -> OptionsError {
    let message = format!("this program has no {kind} `{name}`");
    OptionsError { path: Vec::new(), message }
}
