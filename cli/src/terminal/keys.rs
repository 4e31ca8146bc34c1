//! Key presses, decoded from the bytes of a terminal. Reads nothing.

/// A key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPress {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
    Enter,
    Escape,
    Backspace,
}

/// Decodes key presses from the bytes of a terminal.
#[derive(Debug, Default)]
pub(super) struct KeyDecoder {
    pending: Vec<u8>,
}

impl KeyDecoder {
    /// Adds what was read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes the complete key presses. Unknown sequences are dropped.
    pub(super) fn take(&mut self) -> Vec<KeyPress> {
        let mut keys = Vec::new();
        while let Some((key, len)) = first_key(&self.pending) {
            keys.extend(key);
            self.pending.drain(..len);
        }
        keys
    }

    /// The key press if no more bytes follow: a lone escape.
    pub(super) fn take_lone_escape(&mut self) -> Option<KeyPress> {
        let alone = self.pending == [0x1b];
        self.pending.clear();
        alone.then_some(KeyPress::Escape)
    }
}

/// Decodes the first key: the key, or `None` if it is unknown, and its length in bytes. Returns
/// `None` if more bytes are needed.
fn first_key(bytes: &[u8]) -> Option<(Option<KeyPress>, usize)> {
    let (first, rest) = bytes.split_first()?;
    match first {
        0x1b => parse_escape_sequence(rest).map(|(key, len)| (key, len + 1)),
        b'\r' | b'\n' => Some((Some(KeyPress::Enter), 1)),
        0x7f | 0x08 => Some((Some(KeyPress::Backspace), 1)),
        0x00..0x20 => Some((None, 1)),
        0x20..0x7f => Some((Some(KeyPress::Char(char::from(*first))), 1)),
        // All known keys are ASCII.
        _ => Some((None, 1)),
    }
}

/// Decodes what follows an escape byte.
fn parse_escape_sequence(bytes: &[u8]) -> Option<(Option<KeyPress>, usize)> {
    let (first, rest) = bytes.split_first()?;
    match first {
        b'O' => rest.first().map(|last| (key_from_sequence(b"", *last), 2)),
        b'[' => {
            let end = rest.iter().position(|byte| (0x40..0x7f).contains(byte))?;
            Some((key_from_sequence(rest.get(..end)?, *rest.get(end)?), end + 2))
        }
        // The escape key, followed by another escape sequence.
        0x1b => Some((Some(KeyPress::Escape), 0)),
        // A key with Alt.
        _ => Some((None, 1)),
    }
}

fn key_from_sequence(parameters: &[u8], last: u8) -> Option<KeyPress> {
    // Modifiers follow after a semicolon.
    let number = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
    Some(match (number, last) {
        (_, b'A') => KeyPress::Up,
        (_, b'B') => KeyPress::Down,
        (_, b'C') => KeyPress::Right,
        (_, b'D') => KeyPress::Left,
        (_, b'H') | (b"1" | b"7", b'~') => KeyPress::Home,
        (_, b'F') | (b"4" | b"8", b'~') => KeyPress::End,
        (b"5", b'~') => KeyPress::PageUp,
        (b"6", b'~') => KeyPress::PageDown,
        (_, b'M') => KeyPress::Enter,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(bytes: &[u8]) -> Vec<KeyPress> {
        let mut keys = KeyDecoder { pending: bytes.to_vec() };
        let mut pressed = keys.take();
        pressed.extend(keys.take_lone_escape());
        pressed
    }

    #[test]
    fn keys_are_decoded_from_terminal_input() {
        use KeyPress::*;
        assert_eq!(pressed(b" q?"), [Char(' '), Char('q'), Char('?')]);
        assert_eq!(pressed(b"\x1b[A\x1b[B\x1bOC\x1bOD"), [Up, Down, Right, Left]);
        assert_eq!(pressed(b"\x1b[H\x1b[1~\x1b[7~\x1b[F\x1b[4~"), [Home, Home, Home, End, End]);
        assert_eq!(pressed(b"\x1b[5~\x1b[6~\x1b[1;5C"), [PageUp, PageDown, Right]);
        assert_eq!(pressed(b"\n\r\x7f"), [Enter, Enter, Backspace]);
    }

    #[test]
    fn unknown_sequences_are_skipped() {
        assert_eq!(
            pressed(b"\x1b[99~a\x1bx\x01\xc3\xbcb"),
            [KeyPress::Char('a'), KeyPress::Char('b')]
        );
    }

    #[test]
    fn a_key_may_arrive_in_pieces_and_a_lone_escape_is_a_key() {
        let mut keys = KeyDecoder { pending: b"a\x1b[".to_vec() };
        assert_eq!(keys.take(), [KeyPress::Char('a')]);
        keys.pending.extend_from_slice(b"5~");
        assert_eq!(keys.take(), [KeyPress::PageUp]);
        assert_eq!((pressed(b"\x1b"), pressed(b"\x1b[")), (vec![KeyPress::Escape], vec![]));
        assert_eq!(pressed(b"\x1b\x1b[A"), [KeyPress::Escape, KeyPress::Up]);
    }
}
