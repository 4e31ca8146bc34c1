//! Camera logs, as the source `camlog` reads them.

use serde_json::json;

use crate::{inputs, pieces};

/// The bytes of an `image_t` message before its image.
const HEAD: usize = 30;

/// Any bytes are a camera log: splits yield the same as the whole, damage lies in it, and messages
/// state the length of their images. Text and other formats may be refused, but nothing that starts
/// like a log.
pub fn camlog(bytes: &[u8]) {
    let path = inputs::file("a.camlog", bytes);
    let source = inputs::source("camlog", json!({ "path": path }));
    let read = pieces::read(&*source, bytes.len());
    assert!(read.is_some() || !bytes.starts_with(b"\xed\xed\0"), "no log is refused");
    for event in read.into_iter().flat_map(|read| read.events) {
        let (head, image) = event.payload.split_at_checked(HEAD).expect("a message has its head");
        let said = head.last_chunk().map(|len| u32::from_be_bytes(*len) as usize);
        assert_eq!(said, Some(image.len()));
    }
}
