//! Identifies and decodes messages, but only those displayed.
//!
//! Decodes with the stage `decode`, one event at a time, so that `spy` shows what a pipeline would
//! produce. The stage is not part of the run, where it would decode every event.

use std::collections::HashMap;

use serde_json::{Map as Object, Value, json};
use sluice_kit::TypePaths;
use sluice_kit::json::JsonRows;
use sluice_model::{ChannelId, Channels, Map, PluginKind, Stage, StageContext, TypeKey};

use super::counters::{ChannelView, LastEvent};
use crate::args::DecodingArgs;
use crate::commands::info::TypeNames;
use crate::exit::Failure;
use crate::plugin_lookup;
use crate::shell::Shell;

/// Identifies and decodes messages.
pub(super) struct MessageDecoder {
    /// All named types.
    types: TypeNames,
    decode: Option<Box<dyn Map>>,
    /// Types found so far, by channel and fingerprint.
    type_cache: HashMap<(ChannelId, Option<TypeKey>), TypeLabel>,
}

/// The type of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TypeLabel {
    /// The name, if known.
    pub(super) name: Option<String>,
    /// The fingerprint, if it has one.
    pub(super) key: Option<TypeKey>,
}

/// The size limit of the cache, as garbage payloads may have any fingerprint.
const MOST_TYPES: usize = 100_000;

impl MessageDecoder {
    /// Creates a decoder for the types declared in these files, or for the built-in types if none
    /// are given. All built-in types have names.
    pub(super) fn from_args(args: &DecodingArgs, shell: &Shell) -> Result<Self, Failure> {
        let given: Vec<_> = args.types.iter().map(Into::into).collect();
        let decoded = if given.is_empty() { TypePaths::built_in() } else { TypePaths(given) };
        let known = TypeNames::from_paths(&decoded.0, shell)?;
        let decode = if decoded.0.is_empty() {
            None
        } else {
            Some(decoder(&decoded, &args.channel_types, shell)?)
        };
        Ok(Self { types: known, decode, type_cache: HashMap::new() })
    }

    /// The type of a channel's last message.
    pub(super) fn type_of(&mut self, seen: &ChannelView, table: &Channels) -> TypeLabel {
        let key = self.types.type_lookup(&seen.channel)(seen.last.payload());
        if let Some(known) = self.type_cache.get(&(seen.id, key)) {
            return known.clone();
        }
        let decoded = key.and_then(|_| self.decoded(&seen.last, table)).map(|(name, _)| name);
        let known_name = || key.and_then(|key| self.types.name(key)).map(str::to_owned);
        let name = decoded
            .or_else(known_name)
            .or_else(|| seen.channel.type_name.as_deref().map(str::to_owned));
        let found = TypeLabel { name, key };
        if self.type_cache.len() < MOST_TYPES {
            self.type_cache.insert((seen.id, key), found.clone());
        }
        found
    }

    /// The fields of a message as a JSON object; `None` if it cannot be decoded.
    pub(super) fn fields(&self, last: &LastEvent, table: &Channels) -> Option<Value> {
        self.decoded(last, table).map(|(_, fields)| fields)
    }

    fn decoded(&self, last: &LastEvent, table: &Channels) -> Option<(String, Value)> {
        let decode = self.decode.as_ref()?;
        let batch = decode.apply(last.batch(), &mut StageContext::new(table, None)).ok()?;
        let rows = batch.rows().first()?;
        let mut text = Vec::new();
        JsonRows::new(&rows.columns).ok()?.write(0, &mut text);
        Some((rows.message.name.to_string(), serde_json::from_slice(&text).ok()?))
    }
}

/// Creates the `decode` stage for these types.
fn decoder(
    types: &TypePaths,
    channel_types: &[(String, String)],
    shell: &Shell,
) -> Result<Box<dyn Map>, Failure> {
    let plugin = plugin_lookup::plugin_named(shell, PluginKind::Stage, "decode")?;
    let each = channel_types.iter().map(|(channel, name)| (channel.clone(), json!(name)));
    let options = json!({ "types": types, "channel_types": each.collect::<Object<_, _>>() });
    match shell.registry.stage(plugin.name, options) {
        Ok(Stage::Map(map)) => Ok(map),
        Ok(_) => Err(Failure::Failed(format!("`{}` is a stateful stage", plugin.name))),
        Err(error) => Err(Failure::Usage(error.message)),
    }
}
