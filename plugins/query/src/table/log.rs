//! A log that can be queried: its source, and the types its messages are decoded by. Reads nothing but
//! what tables are made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use sluice_core::{Channels, Error, Kind, Make, Map, OptionsError, Registry, Source, Stage};

use super::findings::FindingsLog;

/// A log that can be queried.
pub struct LogTables {
    pub(crate) source: Arc<dyn Source>,
    /// What its events' source is called where the format has none of its own.
    pub(crate) source_name: Arc<str>,
    pub(crate) registry: Registry,
    /// Turns payloads into rows, if types are known.
    pub(crate) decode: Option<Arc<dyn Map>>,
    /// Every channel that was met.
    pub(crate) channels: Arc<Channels>,
    pub(crate) findings: FindingsLog,
}

impl std::fmt::Debug for LogTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogTables").field("source_name", &self.source_name).finish_non_exhaustive()
    }
}

impl LogTables {
    /// What `source` reads, without types: sources that give rows need none. `source_name` is what events'
    /// source is called where the format has none of its own. Opens nothing.
    pub fn new(source: Box<dyn Source>, source_name: &str, registry: &Registry) -> Self {
        Self {
            source: Arc::from(source),
            source_name: source_name.into(),
            registry: registry.clone(),
            decode: None,
            channels: Arc::default(),
            findings: FindingsLog::default(),
        }
    }

    /// The same, decoded by these types, as the stage `decode` has them: files, globs, folders and names
    /// of built-in sets; `channel_types` says which type channels have where several would do. `Err` says
    /// what is wrong with the types. None leave it as it is.
    pub fn with_types(
        self,
        types: &[String],
        channel_types: &BTreeMap<String, String>,
    ) -> Result<Self, OptionsError> {
        if types.is_empty() {
            return Ok(self);
        }
        let options = json!({ "types": types, "channel_types": channel_types });
        let decode = map_of(&self.registry, "decode", options)?;
        Ok(Self { decode: Some(decode), ..self })
    }

    /// The names of its channels, sorted. Reads the whole log once, unless that has been done; of an input
    /// that can be read once only, those that were met so far.
    pub fn channels(&self) -> Result<Vec<String>, Error> {
        Ok(self.known_channels())
    }

    /// The names of the channels that were met so far, sorted. Reads nothing.
    pub fn known_channels(&self) -> Vec<String> {
        let all = self.channels.since(0);
        let mut names: Vec<String> =
            all.iter().map(|channel| channel.name.text().to_owned()).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// A stage without memory, made of these options.
fn map_of(
    registry: &Registry,
    name: &str,
    options: serde_json::Value,
) -> Result<Arc<dyn Map>, OptionsError> {
    let missing = |message: String| OptionsError { path: Vec::new(), message };
    let plugin = registry.get(Kind::Stage, name);
    let plugin = plugin.ok_or_else(|| missing(format!("this program has no stage `{name}`")))?;
    let Make::Stage(make) = plugin.make else {
        return Err(missing(format!("`{name}` is no stage")));
    };
    match make(options)? {
        Stage::Map(map) => Ok(Arc::from(map)),
        _ => {
            Err(missing(format!("the stage `{name}` has a memory, and cannot be used for tables")))
        }
    }
}
