//! Files of the LCM language.

use sluice_kit::TypeFile;
use sluice_lcm::LcmCodec;
use sluice_model::Codec;

use crate::inputs;

/// Any text is a file of types: nothing panics, and a type's description declares the same
/// messages.
pub fn lcm_types(bytes: &[u8]) {
    let text = inputs::text(bytes);
    let (first, second) = text.split_once("\u{0}").unwrap_or((text, ""));
    let file = |path: &str, text: &str| TypeFile { path: path.into(), text: text.to_owned() };
    let files = vec![file("a/first.lcm", first), file("b/second.lcm", second)];
    let codec = LcmCodec::from_files(files, 1);
    assert!(codec.mistakes().iter().all(|mistake| mistake.contains("first.lcm")
        || mistake.contains("second.lcm")
        || mistake.starts_with("and ")));
    for known in codec.types() {
        let Ok(form) = &known.payload_type else { continue };
        if known.message_type.text.is_empty() {
            continue;
        }
        let again =
            codec.adopt(&known.message_type, form.schema()).expect("a description can be read");
        assert_eq!(again.schema(), form.schema());
    }
}
