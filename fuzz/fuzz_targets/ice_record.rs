//! Any bytes as records of types with all that the Slice language has: nothing panics or takes much memory, and
//! what is decoded comes back byte for byte.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use sluice_core::{BatchBuilder, ChannelId, Codec, PayloadType};
use sluice_ice::codec::IceCodec;
use sluice_ice::slice::TypeFile;

const TYPES: &str = include_str!("../../plugins/ice/tests/types/everything.ice");

static FORMS: LazyLock<Vec<Arc<dyn PayloadType>>> = LazyLock::new(|| {
    let codec = IceCodec::of(vec![TypeFile { path: "f.ice".into(), text: TYPES.to_owned() }]);
    assert!(codec.mistakes().is_empty(), "{:?}", codec.mistakes());
    codec.types().iter().map(|known| known.form.clone().expect("all of them are decoded")).collect()
});

fuzz_target!(|input: &[u8]| {
    let Some((which, bodies)) = input.split_first() else { return };
    let form = &FORMS[usize::from(*which) % FORMS.len()];
    let payloads: Vec<&[u8]> = bodies.split(|byte| *byte == 0xfd).collect();
    let mut batch = BatchBuilder::default();
    for (n, payload) in (0i64..).zip(&payloads) {
        batch.push_copy(n, n, ChannelId(0), payload);
    }
    let events: Vec<u32> = (0..payloads.len() as u32).collect();
    let mut bad = Vec::new();
    let rows = form.decode(&batch.finish(), &events, &mut bad).expect("payloads are no errors");
    assert_eq!(rows.events.len() + bad.len(), payloads.len());
    assert!(rows.columns.get_array_memory_size() < (1 << 20) + 128 * input.len());
    bad.clear();
    let encoded = form.encode(&rows.columns, &mut bad).expect("the columns are its own");
    assert!(bad.is_empty(), "{bad:?}");
    for (event, payload) in rows.events.iter().zip(encoded.iter()) {
        assert_eq!(payload, Some(payloads[*event as usize]));
    }
});
