//! ROS messages of declared types, decoded and encoded.

use arrow_schema::Schema;
use serde_json::json;
use sluice_model::{Channel, EmbeddedSchema, Encoding, Name, PayloadType};

use crate::inputs;
use crate::inverse::check_round_trip;

/// Any text is a declaration, and any bytes are messages of its type: nothing panics or allocates
/// much, a type is refused with a reason, its description declares the same type, and decoded
/// messages come back byte for byte.
pub fn ros_messages(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let (name, encoding, language) = match which % 3 {
        0 => ("ros2", Encoding::Cdr, "ros2msg"),
        1 => ("ros1", Encoding::Ros1, "ros1msg"),
        _ => ("ros2", Encoding::Cdr, "ros2idl"),
    };
    let (text, bodies) = inputs::cut_at(rest, 0);
    let codec = inputs::registry().codec(name, json!({})).expect("good options");
    let mut channel = Channel::new(Name::from_text("/topic"), "log", encoding);
    channel.type_name = Some("pkg/msg/Top".into());
    channel.schema = Some(EmbeddedSchema { encoding: language.into(), data: text.into() });
    let known = codec.embedded(&channel).expect("the language is the codec's own");
    let form = match known.payload_type {
        Ok(form) => form,
        Err(why) => return assert!(!why.is_empty()),
    };
    let differing = form.raw_variant().expect("other payloads have a column more");
    let payloads: Vec<_> = bodies.split(|byte| *byte == 0xfd).map(<[u8]>::to_vec).collect();
    for form in [&form, differing] {
        let described = form.message_type();
        let again = codec.adopt(described, &Schema::empty()).expect("it is its own description");
        assert_eq!((again.schema(), again.message_type()), (form.schema(), described));
        check_payloads(form, &payloads, bytes.len());
    }
}

fn check_payloads(form: &PayloadType, payloads: &[Vec<u8>], len: usize) {
    let columns = check_round_trip(form, payloads);
    assert!(columns.get_array_memory_size() < (4 << 20) + 256 * len);
}
