//! Records in Ice encoding 1.0, decoded and encoded.

use std::sync::LazyLock;

use sluice_ice::fuzzing::IceCodec;
use sluice_kit::TypeFile;
use sluice_model::{Codec, PayloadType};

use crate::inverse::check_round_trip;

const TYPES: &str = include_str!("../../../../plugins/ice/tests/types/everything.ice");

static FORMS: LazyLock<Vec<PayloadType>> = LazyLock::new(|| {
    let codec =
        IceCodec::from_files(vec![TypeFile { path: "f.ice".into(), text: TYPES.to_owned() }]);
    assert!(codec.mistakes().is_empty(), "{:?}", codec.mistakes());
    codec
        .types()
        .iter()
        .map(|known| known.payload_type.clone().expect("all of them are decoded"))
        .collect()
});

/// Any bytes are records of types that cover the Slice language: nothing panics or allocates much,
/// and decoded records come back byte for byte.
pub fn ice_record(input: &[u8]) {
    let Some((which, bodies)) = input.split_first() else { return };
    let form = &FORMS[usize::from(*which) % FORMS.len()];
    let payloads: Vec<_> = bodies.split(|byte| *byte == 0xfd).map(<[u8]>::to_vec).collect();
    let columns = check_round_trip(form, &payloads);
    assert!(columns.get_array_memory_size() < (1 << 20) + 128 * input.len());
}
