//! Files of the Slice language.

use sluice_ice::fuzzing::IceCodec;
use sluice_kit::TypeFile;
use sluice_model::Codec;

use crate::inputs;

/// Any text is one or two `.ice` files: nothing panics, every mistake names its file, and a type's
/// description declares the same records.
pub fn ice_types(bytes: &[u8]) {
    let text = inputs::text(bytes);
    let texts = text.splitn(2, '\u{1}').zip(["a.ice", "b.ice"]);
    let file = |(text, name): (&str, &str)| TypeFile { path: name.into(), text: text.to_owned() };
    let codec = IceCodec::from_files(texts.map(file).collect());
    for mistake in codec.mistakes() {
        let names_a_file = mistake.contains("a.ice") || mistake.contains("b.ice");
        assert!(names_a_file || mistake.starts_with("and "), "{mistake}");
    }
    for known in codec.types() {
        let Ok(form) = &known.payload_type else { continue };
        let adopted = codec.adopt(&known.message_type, form.schema()).expect("it is its own");
        assert_eq!(adopted.schema(), form.schema());
    }
}
