//! A codec for the two types that tests need as payloads, since a plugin must not depend on another
//! one.

use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::{
    Batch, Channel, Codec, Error, KeyOf, KnownType, MessageType, OptionsError, PayloadType,
    Payloads, Rows, TypeKey,
};

use crate::frames::kit::{GPS_TO_LOCAL_KEY, POSE_KEY, columns};

/// The files are not read: the types are fixed.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct TwoTypesOptions {
    #[expect(dead_code, reason = "codecs are given files")]
    types: Vec<String>,
}

sluice_model::register! {
    codec "lcm": TwoTypesOptions,
    about: "poses and GPS references for tests",
    sample: "",
}

struct TwoTypesCodec(Vec<KnownType>);

#[derive(Debug)]
struct EmptyPayloadType {
    message_type: Arc<MessageType>,
    schema: SchemaRef,
}

impl TryFrom<TwoTypesOptions> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(_: TwoTypesOptions) -> Result<Self, OptionsError> {
        let known =
            [("pose_t", POSE_KEY), ("gps_to_local_t", GPS_TO_LOCAL_KEY)].map(|(name, key)| {
                let message_type = Arc::new(MessageType::named(name, TypeKey(key)));
                let payload_type = EmptyPayloadType {
                    message_type: Arc::clone(&message_type),
                    schema: Schema::empty().into(),
                };
                KnownType {
                    message_type,
                    file: None,
                    line: 1,
                    payload_type: Ok(Arc::new(payload_type)),
                }
            });
        Ok(Box::new(TwoTypesCodec(known.into())))
    }
}

impl Codec for TwoTypesCodec {
    fn mistakes(&self) -> &[String] {
        &[]
    }

    fn types(&self) -> &[KnownType] {
        &self.0
    }

    fn keys(&self, _: &Channel) -> Option<KeyOf> {
        Some(Arc::new(|payload| Some(TypeKey(u64::from_be_bytes(*payload.first_chunk()?)))))
    }

    fn fingerprint(&self) -> &str {
        "two types"
    }

    fn adopt(&self, _: &MessageType, _: &Schema) -> Result<Arc<dyn PayloadType>, String> {
        Err("no types are adopted".to_owned())
    }
}

impl PayloadType for EmptyPayloadType {
    fn message_type(&self) -> &Arc<MessageType> {
        &self.message_type
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        _: &mut Vec<(u32, &'static str)>,
    ) -> Result<Rows, Error> {
        let one = |event: &u32| columns(batch.payload(*event as usize)).unwrap().1;
        let all: Vec<RecordBatch> = events.iter().map(one).collect();
        let parts = (0..all[0].num_columns()).map(|at| {
            let parts: Vec<_> = all.iter().map(|rows| rows.column(at).as_ref()).collect();
            arrow_select::concat::concat(&parts).unwrap()
        });
        let columns = RecordBatch::try_new(all[0].schema(), parts.collect()).unwrap();
        let (message, events) = (Arc::clone(&self.message_type), events.to_vec());
        Ok(Rows { message, payloads: Payloads::Kept, events, columns })
    }

    fn encode(
        &self,
        _: &RecordBatch,
        _: &mut Vec<(u32, &'static str)>,
    ) -> Result<BinaryArray, String> {
        Err("nothing is encoded".to_owned())
    }
}
