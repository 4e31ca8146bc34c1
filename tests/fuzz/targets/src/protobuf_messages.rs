//! Protobuf messages, decoded and encoded by the descriptor set that a log stores.

use std::sync::Arc;

use sluice_model::{Channel, Codec, EmbeddedSchema, Encoding, Name};
use sluice_protobuf::fuzzing::{ProtobufCodec, TypedLayer};

use crate::inverse::check_round_trip;

/// Bytes are a descriptor set of the message `M`, and others messages of its type: nothing panics
/// or allocates much, and decoded messages come back byte for byte, also as columns in protobuf
/// again.
pub fn protobuf_messages(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else { return };
    let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
    let (set, bodies) = rest.split_at(len);
    let mut channel = Channel::new(Name::from_text("C"), "log", Encoding::Protobuf);
    channel.type_name = Some("M".into());
    channel.schema = Some(EmbeddedSchema { encoding: "protobuf".into(), data: set.into() });
    let known = ProtobufCodec::default().embedded(&channel);
    let Some(Ok(plain)) = known.map(|known| known.payload_type) else { return };
    let payloads: Vec<_> = bodies.split(|byte| *byte == 0xfd).map(<[u8]>::to_vec).collect();
    for of in [plain.raw_variant(), Some(&plain)].into_iter().flatten() {
        let columns = check_round_trip(of, &payloads);
        let message = Arc::clone(of.message_type());
        // The raw column may be one too many.
        let Ok(layer) = TypedLayer::new(&message, &columns.schema()) else { continue };
        let mut bad = Vec::new();
        let messages = layer.encode(&columns, &mut bad).expect("they are of its type");
        assert_eq!(bad, [], "every row is a message");
        assert_eq!(messages.offsets().len() - 1, columns.num_rows());
    }
}
