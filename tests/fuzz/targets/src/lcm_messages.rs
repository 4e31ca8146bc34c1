//! LCM messages, decoded and encoded.

use std::sync::LazyLock;

use sluice_kit::TypeFile;
use sluice_lcm::LcmCodec;
use sluice_model::{Codec, PayloadType};

use crate::inverse::check_round_trip;

const TYPES: &str = "
    package f;
    enum kind_t { A, B = 7 }
    struct none_t { }
    struct point_t { double x, y; boolean ok; }
    struct fixed_t { int64_t t; point_t p[3]; float m[2][3]; byte key[5]; kind_t k; }
    struct lists_t { int16_t n; int8_t m; double v[n]; byte raw[m]; point_t p[n]; string s[m];
        float grid[n][m]; float half[n][2]; none_t none[n]; boolean flags[2][n]; }
    struct named_t { string name; int32_t n; int32_t values[n]; string note; }
    struct deep_t { int32_t n; named_t each[n]; fixed_t whole; lists_t more[2]; }
    struct tree_t { int8_t v; int8_t n; tree_t children[n]; named_t name; other_t other[n]; }
    struct other_t { int8_t n; tree_t trees[n]; }
";

static FORMS: LazyLock<Vec<PayloadType>> = LazyLock::new(|| {
    let all = (0..3).flat_map(|depth| {
        let file = TypeFile { path: "f.lcm".into(), text: TYPES.to_owned() };
        let codec = LcmCodec::from_files(vec![file], depth);
        assert!(codec.mistakes().is_empty(), "{:?}", codec.mistakes());
        codec.types().iter().filter_map(|known| known.payload_type.clone().ok()).collect::<Vec<_>>()
    });
    all.collect()
});

/// Any bytes are messages of some types: nothing panics or allocates much, and decoded messages
/// come back byte for byte.
pub fn lcm_messages(input: &[u8]) {
    let Some((which, bodies)) = input.split_first() else { return };
    let form = &FORMS[usize::from(*which) % FORMS.len()];
    let key = form.message_type().key.0.to_be_bytes();
    let payloads: Vec<Vec<u8>> =
        bodies.split(|byte| *byte == 0xfd).map(|body| [&key, body].concat()).collect();
    let columns = check_round_trip(form, &payloads);
    assert!(columns.get_array_memory_size() < (1 << 20) + 64 * input.len());
}
