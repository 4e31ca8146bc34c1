//! Configuration files of the vehicle, and calibrations in both languages.

use sluice_dgc::fuzzing::{Calibration, Document};

/// The configuration language: any text is parsed or refused, what was parsed round-trips, and so
/// do calibrations in it.
pub fn config_language(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Document::parse(&text) {
        Ok(document) => {
            assert_eq!(Document::parse(&document.to_string()).as_ref(), Ok(&document));
            walk(&document);
        }
        Err(mistakes) => assert!(!mistakes.is_empty()),
    }
    for read in [Calibration::from_cfg, Calibration::from_toml] {
        if let Ok(calibration) = read("fuzz", &text) {
            assert!(calibration.names().all(|name| calibration.mount(name).is_some()));
        }
    }
}

/// Looks up each top-level name.
fn walk(document: &Document) {
    for entry in document.entries().iter().take(100) {
        let value = document.setting(&entry.name);
        if let Some(scalar) = value.and_then(|value| value.scalar()) {
            let _ = (scalar.integer(), scalar.double(), scalar.boolean());
        }
    }
}
