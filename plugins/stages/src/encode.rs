//! `encode`: columns become payloads again. Knows no format: codecs do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{
    Batch, ChannelId, Codecs, Error, KnownType, Map, MapQuery, MessageType, OptionsError, Pattern,
    PayloadType, Payloads, Rows, Stage, StageContext, TypePaths,
};

use crate::decode::{channel_types, known_codecs, summary};

/// Options of `encode`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EncodeOptions {
    /// Files that declare types, for rows that do not say themselves what type they are of: files,
    /// globs, folders, or names of built-in sets of types.
    pub types: TypePaths,
    /// The types of channels whose rows do not say it: by channel, or pattern of channels.
    pub channel_types: BTreeMap<String, String>,
    /// Whether payloads that are there are made anew, too.
    pub all: bool,
}

sluice_core::register! {
    stage "encode": EncodeOptions,
    about: "turns columns back into payloads",
    sample: include_str!("../samples/encode.toml"),
}

struct Encode {
    codecs: Codecs,
    types: Vec<KnownType>,
    channel_types: Vec<(Pattern, String)>,
    all: bool,
    beside: Option<String>,
    /// Types that were made from what rows say of them.
    adopted: Mutex<Vec<(Arc<MessageType>, Found)>>,
}

/// A type, or why there is none.
type Found = Result<Arc<dyn PayloadType>, String>;

impl TryFrom<EncodeOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: EncodeOptions) -> Result<Self, OptionsError> {
        let codecs = known_codecs(&options.types, None)?;
        let types: Vec<KnownType> = codecs.types().cloned().collect();
        let channel_types = channel_types(options.channel_types, &types)?;
        let beside = summary(&codecs);
        let (all, adopted) = (options.all, Mutex::default());
        Ok(Self::Map(Box::new(Encode { codecs, types, channel_types, all, beside, adopted })))
    }
}

impl Encode {
    /// The type of rows: the one they describe, or else one that was given.
    fn type_of(&self, batch: &Batch, rows: &Rows, context: &StageContext<'_>) -> Found {
        let message = &rows.message;
        if !message.text.is_empty() {
            return self.adopt(message);
        }
        let channel = rows.events.first().map(|event| batch.channels()[*event as usize]);
        let name = channel.map(|id| context.channels.get(ChannelId(id)).name.clone());
        let wanted = name.and_then(|name| {
            self.channel_types.iter().find(|(pattern, _)| pattern.matches(name.text()))
        });
        if let Some((_, wanted)) = wanted {
            return self.given(|known| *known.described.name == **wanted);
        }
        if !message.codec.is_empty() {
            return self.given(|known| known.described.key == message.key);
        }
        // Rows of another program: the one type with just these fields.
        let schema = rows.columns.schema();
        self.given(|known| {
            let Ok(form) = &known.form else { return false };
            let fields = form.schema().fields();
            fields.len() == schema.fields().len()
                && fields.iter().all(|field| schema.column_with_name(field.name()).is_some())
        })
    }

    fn given(&self, is_it: impl Fn(&KnownType) -> bool) -> Found {
        let mut found = self.types.iter().filter(|known| is_it(known));
        let Some(first) = found.next() else {
            return Err("none of the types that are given is theirs: give it with `types`".into());
        };
        if let Some(other) = found.find(|other| other.described.key != first.described.key) {
            let (first, other) = (&first.described.name, &other.described.name);
            return Err(format!(
                "they may be `{first}` or `{other}`: say which with `channel_types`"
            ));
        }
        first.form.clone()
    }

    fn adopt(&self, message: &Arc<MessageType>) -> Found {
        let mut adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &&(Arc<MessageType>, Found)| {
            Arc::ptr_eq(&known.0, message) || known.0 == *message
        };
        if let Some((_, found)) = adopted.iter().find(is_it) {
            return found.clone();
        }
        let found = match self.codecs.get(&message.codec) {
            Some(codec) => codec.adopt(message),
            None => Err(format!("this program has no codec `{}`", message.codec)),
        };
        adopted.push((Arc::clone(message), found.clone()));
        found
    }

    fn encode(
        &self,
        batch: Batch,
        rows: Rows,
        done: &mut Vec<Rows>,
        context: &mut StageContext<'_>,
    ) -> Result<Batch, Error> {
        let name = Arc::clone(&rows.message.name);
        let mut bad = Vec::new();
        let encoded =
            self.type_of(&batch, &rows, context).and_then(|of| of.encode(&rows.columns, &mut bad));
        let payloads = match encoded {
            Ok(payloads) => payloads,
            Err(reason) => {
                context.note(
                    format!("rows of `{name}` without a payload: {reason}"),
                    rows.events.len() as u64,
                );
                undecoded(&batch, &rows.events, context);
                done.push(rows);
                return Ok(batch);
            }
        };
        let batch = batch.with_payloads(&rows.events, &payloads);
        if bad.is_empty() {
            done.push(Rows { payloads: Payloads::Kept, ..rows });
            return Ok(batch);
        }
        let is_bad = |row: &u32| bad.binary_search_by_key(row, |(bad, _)| *bad).is_ok();
        let all = 0..rows.events.len() as u32;
        let (bad_rows, good_rows): (Vec<u32>, Vec<u32>) = all.partition(is_bad);
        for (_, reason) in &bad {
            context.note(format!("a row of `{name}` without a payload: {reason}"), 1);
        }
        let bad = rows.pick(&bad_rows);
        undecoded(&batch, &bad.events, context);
        if !good_rows.is_empty() {
            done.push(Rows { payloads: Payloads::Kept, ..rows.pick(&good_rows) });
        }
        done.push(Rows { payloads: Payloads::Gone, ..bad });
        Ok(batch)
    }
}

fn undecoded(batch: &Batch, events: &[u32], context: &mut StageContext<'_>) {
    let origins = batch.origins();
    context.undecoded.extend(events.iter().map(|event| origins[*event as usize]));
}

impl Map for Encode {
    fn apply(&self, mut batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let mut done = Vec::with_capacity(batch.rows().len());
        for rows in batch.rows().to_vec() {
            if rows.payloads == Payloads::Gone || self.all {
                batch = self.encode(batch, rows, &mut done, context)?;
            } else {
                done.push(rows);
            }
        }
        Ok(batch.with_rows(done))
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn beside_options(&self) -> Option<String> {
        self.beside.clone()
    }
}
