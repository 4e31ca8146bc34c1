//! Channel names, and texts derived from them.

use sluice_io::escape::{file_name, path_escaped, printable};
use sluice_model::Name;

/// The text form of a name loses nothing, and what is printed cannot control a terminal.
pub fn name(bytes: &[u8]) {
    let name = Name::from_bytes(bytes);
    assert_eq!(name.as_bytes(), bytes);
    assert_eq!(Name::from_text(name.text()).as_bytes(), bytes);
    assert!(!printable(name.text()).contains(char::is_control));
    for file in [file_name(name.text()), path_escaped(name.text())] {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.~%".contains(c);
        assert!(file.chars().all(is_plain), "{file}");
    }
    let file = file_name(name.text());
    assert!((1..=200).contains(&file.len()) && !file.starts_with('.'), "{file}");
    if let Ok(text) = str::from_utf8(bytes) {
        // Typed text is a name, and stays the same.
        let typed = Name::from_text(text);
        assert_eq!(Name::from_bytes(typed.as_bytes()), typed);
    }
}
