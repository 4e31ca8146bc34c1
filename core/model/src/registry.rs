//! The registry: which plugins a program has, by kind and name.
//!
//! Plugins of linked crates are found through `inventory`, which silently misses crates that no
//! code names: `plugins/all` names ours. Tests and embedders can make a registry by hand.

mod guard;
mod plugin;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::{ByteFormat, Codec, DynSink, Error, OptionsError, Service, Source, Stage};

use guard::{GuardedSource, made};
pub use plugin::{
    CompanionSink, Constructor, ConversionNodes, ConversionStage, DefaultRole, LogPayloads,
    PayloadProbe, Plugin, PluginFactory, PluginKind, SniffResult, TypeSet, type_set, type_sets,
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
    /// If two linked plugins of one kind have one name, or two sinks one extension: that is a
    /// mistake in the build, not in the input.
    pub fn linked() -> Self {
        Self::try_linked().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Every plugin linked into this program. `Err` says that two of one kind have one name, or two
    /// sinks one extension, and where both are registered.
    pub fn try_linked() -> Result<Self, Error> {
        Self::try_from_plugins(inventory::iter::<Plugin>.into_iter().copied())
    }

    /// A registry of exactly these plugins.
    ///
    /// # Panics
    ///
    /// If two of one kind have one name, or two sinks one extension.
    pub fn from_plugins(plugins: impl IntoIterator<Item = Plugin>) -> Self {
        Self::try_from_plugins(plugins).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_from_plugins(plugins: impl IntoIterator<Item = Plugin>) -> Result<Self, Error> {
        let mut all: Vec<Plugin> = plugins.into_iter().collect();
        all.sort_by_key(|plugin| (plugin.name, plugin.kind(), plugin.module));
        let same =
            |pair: &&[Plugin]| (pair[0].name, pair[0].kind()) == (pair[1].name, pair[1].kind());
        if let Some(pair) = all.windows(2).find(same) {
            return Err(Error::invalid(format!(
                "two {}s are registered as `{}`, in the modules `{}` and `{}`: give one of them \
                 another name in `register!`",
                pair[0].kind(),
                pair[0].name,
                pair[0].module,
                pair[1].module
            )));
        }
        check_sink_extensions(&all)?;
        Ok(Self(all.into()))
    }

    /// The plugin of that kind and name.
    pub fn get(&self, kind: PluginKind, name: &str) -> Option<&Plugin> {
        self.0.iter().find(|plugin| plugin.name == name && plugin.kind() == kind)
    }

    /// Makes the source of this name.
    pub fn source(&self, name: &str, options: Value) -> Result<Box<dyn Source>, OptionsError> {
        match self.get(PluginKind::Source, name).map(|plugin| plugin.make) {
            Some(PluginFactory::Source(make)) => {
                let source = made(|| make(options, self))?;
                Ok(Box::new(GuardedSource(source)))
            }
            _ => Err(missing(PluginKind::Source, name)),
        }
    }

    /// Makes the stage of this name.
    pub fn stage(&self, name: &str, options: Value) -> Result<Stage, OptionsError> {
        match self.get(PluginKind::Stage, name).map(|plugin| plugin.make) {
            Some(PluginFactory::Stage(make)) => made(|| make(options, self)),
            _ => Err(missing(PluginKind::Stage, name)),
        }
    }

    /// Makes the codec of this name.
    pub fn codec(&self, name: &str, options: Value) -> Result<Box<dyn Codec>, OptionsError> {
        match self.get(PluginKind::Codec, name).map(|plugin| plugin.make) {
            Some(PluginFactory::Codec(make)) => made(|| make(options, self)),
            _ => Err(missing(PluginKind::Codec, name)),
        }
    }

    /// Makes the sink of this name.
    pub fn sink(&self, name: &str, options: Value) -> Result<DynSink, OptionsError> {
        match self.get(PluginKind::Sink, name).map(|plugin| plugin.make) {
            Some(PluginFactory::Sink(make)) => made(|| make(options, self)),
            _ => Err(missing(PluginKind::Sink, name)),
        }
    }

    /// Makes the service of this name.
    pub fn service(&self, name: &str, options: Value) -> Result<Box<dyn Service>, OptionsError> {
        match self.get(PluginKind::Service, name).map(|plugin| plugin.make) {
            Some(PluginFactory::Service(make)) => made(|| make(options, self)),
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

    /// The sources that are certain to read a file that starts with `head`, by name.
    pub fn sniff_sure(&self, head: &[u8]) -> Vec<&Plugin> {
        let sources = self.iter().filter(|plugin| plugin.kind() == PluginKind::Source);
        sources.filter(|plugin| (plugin.sniff)(head) == SniffResult::Yes).collect()
    }

    /// The sources that recognize `path` by more than its first bytes, the most certain first.
    ///
    /// The first error, if there is one and no source recognizes it.
    pub fn sniff_path(&self, path: &Path) -> Result<Vec<&Plugin>, Error> {
        let (mut sure, mut first_error) = (Vec::new(), None);
        for plugin in self.iter().filter(|plugin| plugin.kind() == PluginKind::Source) {
            match (plugin.sniff_path)(path) {
                Ok(SniffResult::No) => {}
                Ok(sniff) => sure.push((sniff, plugin)),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        if let Some(error) = first_error.filter(|_| sure.is_empty()) {
            return Err(error);
        }
        sure.sort_by_key(|(sniff, _)| std::cmp::Reverse(*sniff));
        Ok(sure.into_iter().map(|(_, plugin)| plugin).collect())
    }

    /// The index of the log of which `path` is only a part, or whose folder it is: see
    /// [`Plugin::index_of`].
    pub fn index_of(&self, path: &Path) -> Option<PathBuf> {
        let mut sources = self.iter().filter(|plugin| plugin.kind() == PluginKind::Source);
        sources.find_map(|plugin| (plugin.index_of)(path))
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

/// Checks that no two sinks have one extension: the name of an output chooses its sink. Sources may
/// share one, because the bytes of a file choose its source.
fn check_sink_extensions(plugins: &[Plugin]) -> Result<(), Error> {
    let mut owners: BTreeMap<String, &Plugin> = BTreeMap::new();
    for plugin in plugins.iter().filter(|plugin| plugin.kind() == PluginKind::Sink) {
        for extension in plugin.extensions {
            let extension = extension.to_ascii_lowercase();
            match owners.insert(extension.clone(), plugin) {
                Some(other) if other.name != plugin.name => {
                    return Err(Error::invalid(format!(
                        "the sinks `{}` and `{}`, in the modules `{}` and `{}`, both have the \
                         extension `{extension}`, which has to choose one of them: remove it from \
                         `extensions` of the other in `register!`",
                        other.name, plugin.name, other.module, plugin.module
                    )));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn missing(kind: PluginKind, name: &str) -> OptionsError {
    let message = format!("this program has no {kind} `{name}`");
    OptionsError { path: Vec::new(), message }
}

#[cfg(test)]
mod tests {
    use schemars::Schema;

    use super::*;

    fn plugin(name: &'static str, make: PluginFactory) -> Plugin {
        Plugin { module: name, extensions: &["toy", "Drive"], ..Plugin::new(name, make, no_schema) }
    }

    fn no_schema() -> Schema {
        Schema::default()
    }

    fn source() -> PluginFactory {
        PluginFactory::Source(|_, _| Err(missing(PluginKind::Source, "toy")))
    }

    fn sink() -> PluginFactory {
        PluginFactory::Sink(|_, _| Err(missing(PluginKind::Sink, "toy")))
    }

    #[test]
    fn two_sinks_of_one_extension_are_an_error_that_names_both() {
        let plugins = [
            plugin("one", sink()),
            Plugin { extensions: &["log", "drive"], ..plugin("two", sink()) },
        ];
        let error = Registry::try_from_plugins(plugins).unwrap_err().to_string();
        let what = "the sinks `one` and `two`, in the modules `one` and `two`, both have the \
                    extension `drive`, which has to choose one of them: remove it from \
                    `extensions` of the other in `register!`";
        assert_eq!(error, what);
    }

    #[test]
    fn a_sink_and_sources_may_share_an_extension() {
        let plugins = [plugin("one", sink()), plugin("one", source()), plugin("two", source())];
        assert_eq!(Registry::from_plugins(plugins).iter().count(), 3);
    }

    #[test]
    fn an_error_of_a_source_hides_no_other_that_recognizes_the_path() {
        let failing = |name| Plugin {
            sniff_path: |path| Err(Error::refused(path.display().to_string())),
            ..plugin(name, source())
        };
        let sure = Plugin { sniff_path: |_| Ok(SniffResult::Yes), ..plugin("b", source()) };
        let sniff = |plugins: &[Plugin]| {
            let registry = Registry::from_plugins(plugins.iter().copied());
            let names = |found: Vec<&Plugin>| found.iter().map(|plugin| plugin.name).collect();
            registry.sniff_path(Path::new("x")).map(names).map_err(|error| error.to_string())
        };
        let (a, c) = (failing("a"), failing("c"));
        assert_eq!(sniff(&[a, sure, c]), Ok(vec!["b"]));
        assert_eq!(sniff(&[a, plugin("b", source()), c]), Err("x".to_owned()));
    }

    #[test]
    fn sources_that_are_all_sure_of_a_head_are_found() {
        let sure = |name| Plugin {
            sniff: |head| if head == b"A" { SniffResult::Yes } else { SniffResult::Maybe },
            ..plugin(name, source())
        };
        let registry =
            Registry::from_plugins([sure("b"), sure("a"), plugin("c", source()), sure("d")]);
        let names = |head: &[u8]| -> Vec<&str> {
            registry.sniff_sure(head).iter().map(|plugin| plugin.name).collect()
        };
        assert_eq!((names(b"A"), names(b"B")), (vec!["a", "b", "d"], vec![]));
    }
}
