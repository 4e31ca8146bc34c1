//! A codec for the two types that tests need as payloads, since a plugin must not depend on another
//! one.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::{
    Batch, Channel, Codec, DeclaredTypes, Error, KeyOf, KnownType, MessageType, OptionsError,
    PayloadForm, PayloadType, TypeKey,
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

struct TwoTypesCodec(DeclaredTypes);

struct EmptyPayloadForm(SchemaRef);

impl TryFrom<TwoTypesOptions> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(_: TwoTypesOptions) -> Result<Self, OptionsError> {
        let known =
            [("pose_t", POSE_KEY), ("gps_to_local_t", GPS_TO_LOCAL_KEY)].map(|(name, key)| {
                let message_type = Arc::new(MessageType::named(name, TypeKey(key)));
                let form = EmptyPayloadForm(Schema::empty().into());
                let payload_type = PayloadType::new(Arc::clone(&message_type), form);
                KnownType { message_type, file: None, line: 1, payload_type: Ok(payload_type) }
            });
        let (types, fingerprint) = (known.into(), "two types".to_owned());
        let declared = DeclaredTypes { types, fingerprint, ..DeclaredTypes::default() };
        Ok(Box::new(TwoTypesCodec(declared)))
    }
}

impl Codec for TwoTypesCodec {
    fn declared(&self) -> &DeclaredTypes {
        &self.0
    }

    fn keys(&self, _: &Channel) -> Option<KeyOf> {
        Some(Arc::new(|payload| Some(TypeKey(u64::from_be_bytes(*payload.first_chunk()?)))))
    }

    fn adopt(&self, _: &MessageType, _: &Schema) -> Result<PayloadType, String> {
        Err("no types are adopted".to_owned())
    }
}

impl PayloadForm for EmptyPayloadForm {
    fn schema(&self) -> &SchemaRef {
        &self.0
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        _: &mut Vec<(u32, &'static str)>,
        _: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let one = |event: &u32| columns(batch.payload(*event as usize)).unwrap().1;
        let all: Vec<RecordBatch> = events.iter().map(one).collect();
        let parts = (0..all[0].num_columns()).map(|at| {
            let parts: Vec<_> = all.iter().map(|rows| rows.column(at).as_ref()).collect();
            arrow_select::concat::concat(&parts).unwrap()
        });
        let columns = RecordBatch::try_new(all[0].schema(), parts.collect()).unwrap();
        Ok((events.to_vec(), columns))
    }

    fn encode(
        &self,
        _: &RecordBatch,
        _: &mut Vec<(u32, &'static str)>,
        _: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String> {
        Err("nothing is encoded".to_owned())
    }
}
