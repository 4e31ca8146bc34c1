//! Stage `encode`: turns columns back into payloads. Codecs know the formats.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::BinaryArray;
use arrow_schema::{Field, FieldRef, Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sluice_kit::column_types::have_same_values;
use sluice_kit::{CodecOptions, Codecs, TypePaths};
use sluice_model::{
    Batch, ChannelId, Error, KnownType, Map, MapQuery, MessageType, OptionsError, PayloadType,
    Payloads, PluginFactory, Registry, Rows, RowsEffect, Stage, StageContext,
};

use crate::decode::{ChannelTypes, load_codecs, made_from};

/// Options of `encode`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EncodeOptions {
    /// Files that declare types, for rows that do not name their type: files, globs, folders, or
    /// names of built-in type sets.
    pub(crate) types: TypePaths,
    /// The type of rows that do not name it: by channel, or pattern of channels.
    pub(crate) channel_types: BTreeMap<String, String>,
    /// Messages that no file declares, as lists of their fields: see the codec `vel`.
    pub(crate) messages: Vec<Value>,
    /// Whether to encode again events that have a payload.
    pub(crate) all: bool,
}

sluice_model::register! {
    stage "encode": EncodeOptions,
    make: PluginFactory::Stage(|value, registry| stage(sluice_model::options::read(value)?, registry)),
    about: "turns columns back into payloads",
    sample: include_str!("../samples/encode.toml"),
}

struct Encode {
    codecs: Codecs,
    types: Vec<KnownType>,
    channel_types: ChannelTypes,
    all: bool,
    fingerprint: Option<String>,
    /// Types adopted from the descriptions in rows, and the columns of these rows.
    adopted: Mutex<Vec<(Arc<MessageType>, SchemaRef, TypeResult)>>,
}

/// A type, or the reason why there is none.
type TypeResult = Result<PayloadType, String>;

fn stage(options: EncodeOptions, registry: &Registry) -> Result<Stage, OptionsError> {
    let codec_options = CodecOptions { messages: options.messages, ..CodecOptions::default() };
    let codecs = load_codecs(&options.types, &codec_options, registry)?;
    let types: Vec<KnownType> = codecs.types().cloned().collect();
    let channel_types = ChannelTypes::new(options.channel_types, &types)?;
    let fingerprint = made_from(&codecs);
    let (all, adopted) = (options.all, Mutex::default());
    Ok(Stage::Map(Box::new(Encode { codecs, types, channel_types, all, fingerprint, adopted })))
}

impl Encode {
    /// Splits rows that do not describe their type by the types assigned to their channels.
    fn split_by_type<'s>(
        &'s self,
        batch: &Batch,
        rows: Rows,
        context: &StageContext<'_>,
    ) -> Vec<(Rows, Option<&'s str>)> {
        if !rows.message.text.is_empty() || self.channel_types.is_empty() {
            return vec![(rows, None)];
        }
        let mut known: BTreeMap<u32, Option<&str>> = BTreeMap::new();
        let mut parts: BTreeMap<Option<&str>, Vec<u32>> = BTreeMap::new();
        for (row, event) in rows.events.iter().enumerate() {
            let channel = batch.channels()[*event as usize];
            let type_name = known.entry(channel).or_insert_with(|| {
                self.channel_types.type_of(&context.channels.get(ChannelId(channel)))
            });
            parts.entry(*type_name).or_default().push(row as u32);
        }
        parts.into_iter().map(|(type_name, part)| (rows.pick(&part), type_name)).collect()
    }

    /// The type of rows: the one they describe, or else a declared one. Also where their
    /// description cannot be used.
    fn type_of(&self, rows: &Rows, type_name: Option<&str>) -> TypeResult {
        let message = &rows.message;
        if message.is_part() {
            let what = "they are list elements or selected fields, not whole messages";
            return Err(what.to_owned());
        }
        let identity = |of: &MessageType| (Arc::clone(&of.codec), of.key);
        let declared =
            || self.find_type(|known| identity(&known.message_type) == identity(message));
        if !message.text.is_empty() {
            return self.adopt(rows).or_else(|why| declared().map_err(|_| why));
        }
        if let Some(type_name) = type_name {
            return self.find_type(|known| *known.message_type.name == *type_name);
        }
        if !message.codec.is_empty() {
            // An empty text may be a whole description: of a ROS type without members.
            return declared().or_else(|why| self.adopt(rows).map_err(|_| why));
        }
        self.type_by_fields(&rows.columns.schema())
    }

    /// The type of rows of another program: the only one with these fields, or of several the one
    /// whose fields have these types.
    fn type_by_fields(&self, found: &Schema) -> TypeResult {
        let has_fields = |known: &&KnownType, is_it: &dyn Fn(&Field, &Field) -> bool| {
            let Ok(form) = &known.payload_type else { return false };
            let fields = form.schema().fields();
            let is_there = |field: &FieldRef| {
                found.field_with_name(field.name()).is_ok_and(|found| is_it(field, found))
            };
            fields.len() == found.fields().len() && fields.iter().all(is_there)
        };
        let named = self.types.iter().filter(|known| has_fields(known, &|_, _| true));
        let named: Vec<&KnownType> = named.collect();
        let same_type =
            |field: &Field, found: &Field| have_same_values(field.data_type(), found.data_type());
        let exact = named.iter().copied().filter(|known| has_fields(known, &same_type));
        let exact: Vec<&KnownType> = exact.collect();
        only_type(if exact.is_empty() { &named } else { &exact })
    }

    fn find_type(&self, is_it: impl Fn(&KnownType) -> bool) -> TypeResult {
        let found: Vec<&KnownType> = self.types.iter().filter(|known| is_it(known)).collect();
        only_type(&found)
    }

    fn adopt(&self, rows: &Rows) -> TypeResult {
        let (message, schema) = (&rows.message, rows.columns.schema());
        let mut adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |(known, columns, _): &&(Arc<MessageType>, SchemaRef, TypeResult)| {
            (Arc::ptr_eq(known, message) || known == message) && *columns == schema
        };
        if let Some((_, _, found)) = adopted.iter().find(is_it) {
            return found.clone();
        }
        let found = match self.codecs.get(&message.codec) {
            Some(codec) => codec.adopt(message, &schema),
            None => Err(format!("this program has no codec `{}`", message.codec)),
        };
        adopted.push((Arc::clone(message), schema, found.clone()));
        found
    }

    /// Encodes rows and sets the payloads of their events. Rows that cannot be encoded stay as they
    /// are.
    fn encode(
        &self,
        batch: Batch,
        rows: Rows,
        type_name: Option<&str>,
        finished: &mut Vec<Rows>,
        context: &mut StageContext<'_>,
    ) -> Batch {
        let name = Arc::clone(&rows.message.name);
        let mut bad = Vec::new();
        let encoded =
            self.type_of(&rows, type_name).and_then(|of| of.encode(&rows.columns, &mut bad));
        let payloads = match encoded {
            Ok(payloads) => payloads,
            Err(reason) => {
                let count = rows.events.len() as u64;
                context.note(format!("rows of `{name}` not encoded: {reason}"), count);
                mark_undecoded(&batch, &rows.events, context);
                finished.push(rows);
                return batch;
            }
        };
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        bad.iter().for_each(|(_, reason)| *reasons.entry(reason).or_default() += 1);
        for (reason, count) in reasons {
            context.note(format!("row of `{name}` not encoded: {reason}"), count);
        }
        if bad.is_empty() {
            let batch = batch.with_payloads(&rows.events, &payloads);
            finished.push(Rows { payloads: Payloads::Kept, ..rows });
            return batch;
        }
        let is_bad = |row: &u32| bad.binary_search_by_key(row, |(bad, _)| *bad).is_ok();
        let all = 0..rows.events.len() as u32;
        let (bad_rows, good_rows): (Vec<u32>, Vec<u32>) = all.partition(is_bad);
        let bad = rows.pick(&bad_rows);
        mark_undecoded(&batch, &bad.events, context);
        finished.push(bad);
        if good_rows.is_empty() {
            return batch;
        }
        let good = rows.pick(&good_rows);
        let payloads = BinaryArray::from_iter_values(payloads.iter().flatten());
        let batch = batch.with_payloads(&good.events, &payloads);
        finished.push(Rows { payloads: Payloads::Kept, ..good });
        batch
    }
}

/// The first of these types, if they have the same fingerprint.
fn only_type(found: &[&KnownType]) -> TypeResult {
    let Some((first, others)) = found.split_first() else {
        return Err("no declared type matches; name its file with `types`".into());
    };
    let is_other = |other: &&&KnownType| other.message_type.key != first.message_type.key;
    if let Some(other) = others.iter().find(is_other) {
        let (first, other) = (&first.message_type.name, &other.message_type.name);
        return Err(format!(
            "they may be `{first}` or `{other}`; the option `channel_types` selects one"
        ));
    }
    first.payload_type.clone()
}

fn mark_undecoded(batch: &Batch, events: &[u32], context: &mut StageContext<'_>) {
    let origins = batch.origins();
    context.report.undecoded.extend(events.iter().map(|event| origins[*event as usize]));
}

impl Map for Encode {
    fn apply(&self, mut batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let mut finished = Vec::with_capacity(batch.rows().len());
        for rows in batch.rows().to_vec() {
            if rows.payloads == Payloads::Kept && !self.all {
                finished.push(rows);
                continue;
            }
            for (rows, type_name) in self.split_by_type(&batch, rows, context) {
                batch = self.encode(batch, rows, type_name, &mut finished, context);
            }
        }
        Ok(batch.with_rows(finished))
    }

    fn uses_rows(&self) -> bool {
        true
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Same
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        self.fingerprint.clone()
    }

    fn notes(&self) -> Vec<String> {
        self.codecs.unusable()
    }
}
