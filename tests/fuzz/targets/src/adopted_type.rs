//! Type descriptions, as tables carry them, and payloads of these types.

use std::sync::{Arc, LazyLock};

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use serde_json::json;
use sluice_ice::fuzzing::IceCodec;
use sluice_kit::{CodecOptions, Codecs, TypeFile, TypePaths};
use sluice_lcm::LcmCodec;
use sluice_model::{Codec, MessageType, PayloadType};

use crate::inputs;
use crate::inverse::check_round_trip;

const NAMES: [&str; 3] = ["lcm", "ice", "vel"];

static CODECS: LazyLock<Codecs> = LazyLock::new(|| {
    let (types, options) = (TypePaths::default(), CodecOptions::default());
    Codecs::from_paths(inputs::registry(), &types, &options).expect("there are no files")
});

/// Any text is a type description, or types from which descriptions are made: an error, or a type
/// whose payloads come back byte for byte, and whose columns other types refuse.
pub fn adopted_type(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let (text, payload) = inputs::cut_at(rest, 0);
    let name = NAMES[usize::from(which % 3)];
    let codec = CODECS.get(name).expect("it is linked");
    if which & 0x80 != 0 {
        let Ok(described) = serde_json::from_slice::<MessageType>(text) else { return };
        match codec.adopt(&described, &Schema::empty()) {
            Ok(form) => check_payload(name, &form, payload),
            Err(what) => assert!(!what.is_empty()),
        }
        return;
    }
    for (described, form) in declared(name, inputs::text(text)) {
        if described.text.is_empty() {
            continue;
        }
        let again = codec.adopt(&described, form.schema()).expect("a description can be read");
        assert_eq!(again.schema(), form.schema());
        check_payload(name, &again, payload);
    }
}

/// The types that a text declares, in a codec's language.
fn declared(codec: &str, text: &str) -> Vec<(Arc<MessageType>, PayloadType)> {
    let file = |path: &str| vec![TypeFile { path: path.into(), text: text.to_owned() }];
    let codec: Box<dyn Codec> = match codec {
        "lcm" => Box::new(LcmCodec::from_files(file("f.lcm"), 1)),
        "ice" => Box::new(IceCodec::from_files(file("f.ice"))),
        _ => match vel(text) {
            Some(codec) => codec,
            None => return Vec::new(),
        },
    };
    let known = codec.types().iter();
    known
        .filter_map(|known| {
            Some((Arc::clone(&known.message_type), known.payload_type.clone().ok()?))
        })
        .collect()
}

/// A codec for a message declared in a pipeline file.
fn vel(text: &str) -> Option<Box<dyn Codec>> {
    let message: serde_json::Value = serde_json::from_str(text).ok()?;
    inputs::registry().codec("vel", json!({ "messages": [message] })).ok()
}

/// Checks payloads of a type. Those of LCM start with its fingerprint, by which callers find it.
fn check_payload(codec: &str, form: &PayloadType, payload: &[u8]) {
    let key = form.message_type().key.0.to_be_bytes();
    let mut payloads = vec![[&key, payload].concat(), payload.to_vec()];
    payloads
        .retain(|payload| codec != "lcm" || payload.len() < key.len() || payload.starts_with(&key));
    check_round_trip(form, &payloads);
    let others = RecordBatch::new_empty(Arc::new(Schema::empty()));
    let is_without = form.schema().fields().is_empty();
    assert_eq!(form.encode(&others, &mut Vec::new()).is_ok(), is_without);
}
