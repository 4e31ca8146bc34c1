//! What messages are: their types, and their fields. Decodes only what somebody looks at.
//!
//! Types are told by the stage `decode`, which is given one event at a time here, so that what `spy` shows
//! is what a pipeline would make of it. It is no part of the run: every event would be decoded there.

use std::collections::HashMap;

use serde_json::{Map as Object, Value, json};
use sluice_core::json::JsonRows;
use sluice_core::{
    ChannelId, Channels, Map, PluginFactory, PluginKind, Stage, StageContext, TypeKey, TypePaths,
};

use super::counting::{Last, Seen};
use crate::commands::info::Types;
use crate::ending::Failure;
use crate::inputs;
use crate::shell::Shell;

/// What messages are, as far as that is known.
pub(super) struct Messages {
    /// All types that there are names of.
    types: Types,
    decode: Option<Box<dyn Map>>,
    /// What is known already: by channel and fingerprint.
    kinds: HashMap<(ChannelId, Option<TypeKey>), Type>,
}

/// The type of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Type {
    /// Its name, if it is known.
    pub(super) name: Option<String>,
    /// Its fingerprint, if it has one.
    pub(super) key: Option<TypeKey>,
}

/// More types than these are not remembered: a message may say anything in the place of its fingerprint.
const MOST_TYPES: usize = 100_000;

impl Messages {
    /// Messages of the types that these files declare, and names of those that are built in. If none are
    /// given, the built-in types are what is decoded.
    pub(super) fn of(
        types: &[String],
        channel_types: &[(String, String)],
        shell: &Shell,
    ) -> Result<Self, Failure> {
        let given: Vec<_> = types.iter().map(Into::into).collect();
        let decoded = if given.is_empty() { TypePaths::built_in() } else { TypePaths(given) };
        let known = Types::named(&decoded.0, shell)?;
        let decode = if decoded.0.is_empty() {
            None
        } else {
            Some(decoder(&decoded, channel_types, shell)?)
        };
        Ok(Self { types: known, decode, kinds: HashMap::new() })
    }

    /// The type of a channel's last message.
    pub(super) fn type_of(&mut self, seen: &Seen, table: &Channels) -> Type {
        let key = self.types.keys(&seen.channel)(seen.last.payload());
        if let Some(known) = self.kinds.get(&(seen.id, key)) {
            return known.clone();
        }
        let decoded = key.and_then(|_| self.decoded(&seen.last, table)).map(|(name, _)| name);
        let told = || key.and_then(|key| self.types.name(key)).map(str::to_owned);
        let name =
            decoded.or_else(told).or_else(|| seen.channel.type_name.as_deref().map(str::to_owned));
        let found = Type { name, key };
        if self.kinds.len() < MOST_TYPES {
            self.kinds.insert((seen.id, key), found.clone());
        }
        found
    }

    /// The fields of a message as a JSON object; nothing if they cannot be told.
    pub(super) fn fields(&self, last: &Last, table: &Channels) -> Option<Value> {
        self.decoded(last, table).map(|(_, fields)| fields)
    }

    fn decoded(&self, last: &Last, table: &Channels) -> Option<(String, Value)> {
        let decode = self.decode.as_ref()?;
        let batch = decode.apply(last.batch(), &mut StageContext::new(table, None)).ok()?;
        let rows = batch.rows().first()?;
        let mut text = Vec::new();
        JsonRows::new(&rows.columns).ok()?.write(0, &mut text);
        Some((rows.message.name.to_string(), serde_json::from_slice(&text).ok()?))
    }
}

/// The stage that decodes messages of these types.
fn decoder(
    types: &TypePaths,
    channel_types: &[(String, String)],
    shell: &Shell,
) -> Result<Box<dyn Map>, Failure> {
    let plugin = inputs::named(shell, PluginKind::Stage, "decode")?;
    let each = channel_types.iter().map(|(channel, name)| (channel.clone(), json!(name)));
    let options = json!({ "types": types, "channel_types": each.collect::<Object<_, _>>() });
    let PluginFactory::Stage(make) = plugin.make else {
        return Err(Failure::Failed(format!("`{}` is no stage", plugin.name)));
    };
    match make(options) {
        Ok(Stage::Map(map)) => Ok(map),
        Ok(_) => Err(Failure::Failed(format!("`{}` has a memory", plugin.name))),
        Err(error) => Err(Failure::WrongUse(error.message)),
    }
}
