//! JSON messages, decoded and encoded by the schema that a log stores.

use sluice_json::fuzzing::message_type;
use sluice_model::{MessageType, TypeKey};

use crate::inputs;
use crate::inverse::check_round_trip;

/// A text is a schema, and other bytes are messages of its type: nothing panics or allocates much,
/// and decoded messages come back byte for byte.
pub fn json_messages(bytes: &[u8]) {
    let (schema, bodies) = inputs::cut_at(bytes, 0);
    let described = MessageType {
        text: inputs::text(schema).into(),
        ..MessageType::named("message", TypeKey::from_parts([b"json", schema]))
    };
    let Ok(plain) = message_type(&described) else { return };
    let payloads: Vec<_> = bodies.split(|byte| *byte == 0xfd).map(<[u8]>::to_vec).collect();
    for of in [plain.raw_variant(), Some(&plain)].into_iter().flatten() {
        let columns = check_round_trip(of, &payloads);
        assert!(columns.get_array_memory_size() < (1 << 20) + 2048 * bytes.len());
    }
}
