//! Resolves the channel columns of a table to channels.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef};
use sluice_model::{Channel, ChannelId, Encoding, Error, Name, ReadContext};

use super::ParquetTable;
use crate::meta::ChannelMeta;

/// The columns that identify the channel of each event.
pub(super) struct ChannelColumns {
    pub(super) sources: Option<ArrayRef>,
    pub(super) names: Option<ArrayRef>,
    /// The variant among channels of one name and source.
    pub(super) variants: Option<Vec<i32>>,
}

/// Resolves source, name and variant to a channel, once per batch and combination.
#[derive(Default)]
pub(super) struct ChannelResolver(HashMap<(String, String, Option<i32>), ChannelId>);

impl ChannelResolver {
    pub(super) fn resolve(
        &mut self,
        len: usize,
        named: &ChannelColumns,
        table: &ParquetTable,
        context: &ReadContext,
    ) -> Result<Vec<u32>, Error> {
        let ChannelColumns { sources, names, variants } = named;
        let sources = sources.as_ref().map(|column| column.as_dictionary::<Int32Type>());
        let names = names.as_ref().map(|column| column.as_dictionary::<Int32Type>());
        let mut resolved: HashMap<(i32, i32, Option<i32>), u32> = HashMap::new();
        let (mut last, mut channels) = (None, Vec::with_capacity(len));
        for row in 0..len {
            let source = sources.map_or(-1, |column| column.keys().value(row));
            let name = names.map_or(-1, |column| column.keys().value(row));
            let variant = variants.as_ref().and_then(|column| column.get(row).copied());
            let keys = (source, name, variant);
            let channel = match last {
                Some((same, channel)) if same == keys => channel,
                _ => match resolved.get(&keys) {
                    Some(channel) => *channel,
                    None => {
                        let word = |column: Option<&arrow_array::Int32DictionaryArray>,
                                    key: i32| {
                            let values = column?.values().as_string::<i32>();
                            // A row without a value has a key of none.
                            let key =
                                usize::try_from(key).ok().filter(|key| *key < values.len())?;
                            Some(values.value(key).to_owned())
                        };
                        let source_word =
                            word(sources, source).unwrap_or_else(|| context.source.to_string());
                        let name_word =
                            word(names, name).unwrap_or_else(|| table.channel.text().to_owned());
                        let words = (source_word, name_word, variant);
                        let id = self.channel(words, table, context)?.0;
                        resolved.insert(keys, id);
                        id
                    }
                },
            };
            last = Some((keys, channel));
            channels.push(channel);
        }
        Ok(channels)
    }

    pub(super) fn channel(
        &mut self,
        words: (String, String, Option<i32>),
        table: &ParquetTable,
        context: &ReadContext,
    ) -> Result<ChannelId, Error> {
        if let Some(id) = self.0.get(&words) {
            return Ok(*id);
        }
        let (source, name, variant) = &words;
        let is_variant = |meta: &&ChannelMeta| {
            variant.is_none_or(|variant| i64::from(meta.variant) == i64::from(variant))
        };
        let all: Vec<&ChannelMeta> =
            table.channels_named(name, source).filter(is_variant).collect();
        let channel = match ChannelMeta::common(&all) {
            Some(meta) => meta.to_channel(),
            None => Channel::new(Name::from_text(name), source.as_str(), Encoding::Unknown),
        };
        let id = context.channels.intern(channel)?;
        self.0.insert(words, id);
        Ok(id)
    }
}
