//! The text form of a name loses nothing, and what is printed cannot control a terminal.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_core::Name;
use sluice_core::name::printable;

fuzz_target!(|bytes: &[u8]| {
    let name = Name::from_bytes(bytes);
    assert_eq!(name.as_bytes(), bytes);
    assert_eq!(Name::from_text(name.text()).as_bytes(), bytes);
    assert!(!printable(name.text()).contains(char::is_control));
    if let Ok(text) = str::from_utf8(bytes) {
        // What somebody types is the name of something, and stays that.
        let typed = Name::from_text(text);
        assert_eq!(Name::from_bytes(typed.as_bytes()), typed);
    }
});
