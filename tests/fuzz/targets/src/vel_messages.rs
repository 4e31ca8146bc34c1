//! VEL messages, decoded and encoded.

use std::sync::LazyLock;

use serde_json::json;
use sluice_model::PayloadType;

use crate::inputs;
use crate::inverse::check_round_trip;

/// The built-in types, and one that covers all declarations.
static FORMS: LazyLock<Vec<PayloadType>> = LazyLock::new(|| {
    let fields = json!([
        { "name": "n", "type": "u16" }, { "name": "ok", "type": "bool" },
        { "name": "text", "type": "string" },
        { "name": "raw", "type": "bytes" }, { "name": "key", "type": "u8", "count": 4 },
        { "name": "values", "type": "f64", "count": "n" },
        { "name": "said", "type": "i32", "count": "*" },
        { "name": "each", "type": "struct", "count": "n", "fields": [
            { "name": "a", "type": "i8" }, { "name": "m", "type": "u8" },
            { "name": "names", "type": "string", "count": "m" } ] },
    ]);
    let message = json!({ "name": "Everything", "version": 3, "fields": fields });
    let codec = inputs::registry()
        .codec("vel", json!({ "types": "vel", "messages": [message] }))
        .expect("good options");
    assert!(codec.mistakes().is_empty(), "{:?}", codec.mistakes());
    codec
        .types()
        .iter()
        .map(|known| known.payload_type.clone().expect("all of them are decoded"))
        .collect()
});

/// Any bytes are messages of some types: nothing panics or allocates much, and decoded messages
/// come back byte for byte.
pub fn vel_messages(bytes: &[u8]) {
    let Some((which, bodies)) = bytes.split_first() else { return };
    let form = &FORMS[usize::from(*which) % FORMS.len()];
    let payloads: Vec<_> = bodies.split(|byte| *byte == 0xfd).map(<[u8]>::to_vec).collect();
    let columns = check_round_trip(form, &payloads);
    assert!(columns.get_array_memory_size() < (1 << 20) + 128 * bytes.len());
}
