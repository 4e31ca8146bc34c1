//! Whether bytes are a whole JPEG file.

use sluice_views::check_jpeg;

/// Any bytes have an answer; no prefix of a complete file is complete, except for padding at its
/// end.
pub fn jpeg(bytes: &[u8]) {
    if let Err(fault) = check_jpeg(bytes) {
        return assert!(!fault.as_str().is_empty());
    }
    let padding = bytes.iter().rev().take_while(|byte| matches!(byte, 0x00 | 0xFF)).count();
    let bare = &bytes[..bytes.len() - padding];
    assert_eq!(check_jpeg(bare), check_jpeg(bytes));
    assert!(bare.ends_with(&[0xFF, 0xD9]));
    // All prefixes would take too long for long inputs.
    let step = bare.len() / 64 + 1;
    for len in (0..bare.len()).step_by(step) {
        assert!(check_jpeg(&bare[..len]).is_err(), "the first {len} bytes");
    }
}
