//! A codec for the two types that tests need as payloads, since a plugin names no other.

use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{
    Batch, Channel, Codec, Error, KeyOf, KnownType, MessageType, OptionsError, PayloadType,
    Payloads, Rows, TypeKey,
};

use crate::frames::kit::{POSE_KEY, TIE_KEY, columns};

/// The files are not read: the types are known.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Two {
    #[expect(dead_code, reason = "codecs are given files")]
    types: Vec<String>,
}

sluice_core::register! {
    codec "lcm": Two,
    about: "poses and ties for tests",
    sample: "",
}

struct TwoTypes(Vec<KnownType>);

#[derive(Debug)]
struct Form {
    described: Arc<MessageType>,
    schema: SchemaRef,
}

impl TryFrom<Two> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(_: Two) -> Result<Self, OptionsError> {
        let known = [("pose_t", POSE_KEY), ("gps_to_local_t", TIE_KEY)].map(|(name, key)| {
            let described = Arc::new(MessageType::named(name, TypeKey(key)));
            let form = Form { described: Arc::clone(&described), schema: Schema::empty().into() };
            KnownType {
                message_type: described,
                file: None,
                line: 1,
                payload_type: Ok(Arc::new(form)),
            }
        });
        Ok(Box::new(TwoTypes(known.into())))
    }
}

impl Codec for TwoTypes {
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

impl PayloadType for Form {
    fn message_type(&self) -> &Arc<MessageType> {
        &self.described
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
        let (message, events) = (Arc::clone(&self.described), events.to_vec());
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
