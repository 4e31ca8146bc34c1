//! The terminal: keys as they are pressed, what is drawn in place, and the way back to how it was.
//!
//! Whatever ends or stops the program restores the terminal first: leaving, a panic, a signal, Ctrl-Z.
//! While another program has the terminal, nothing is read from it or drawn. What keys mean, and what is
//! drawn, is the commands' business.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::Duration;

use indicatif::TermLike;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp,
    tcgetwinsize, tcsetattr,
};
use signal_hook::consts::{SIGCONT, SIGQUIT, SIGTSTP};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::log::tell;

/// A key that somebody pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
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

/// What is drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    /// The last line, on standard error.
    Line,
    /// All of it, on standard output; what was there before comes back at the end.
    Whole,
}

/// A terminal that gives keys one by one. Dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    screen: Screen,
    keys: Keys,
    /// Nothing will be read any more.
    closed: bool,
    listening: Option<Handle>,
}

/// What has to be undone: of the whole program, since a panic and a signal have to find it.
struct State {
    screen: Screen,
    /// How the terminal was.
    before: Option<Termios>,
    /// Whether it is ours now.
    entered: bool,
    /// Whether the program is about to be stopped.
    leaving: bool,
}

static STATE: Mutex<State> =
    Mutex::new(State { screen: Screen::Line, before: None, entered: false, leaving: false });

/// The sequence that clears the line the cursor is in.
const CLEAR_LINE: &str = "\r\x1b[K";

/// How long the rest of a key's sequence may take. What is no key by then was the escape key.
const REST: Duration = Duration::from_millis(25);

impl Terminal {
    /// Takes the terminal, if there is one for keys and one for that screen.
    pub(crate) fn open(screen: Screen) -> Option<Self> {
        static HOOK: Once = Once::new();
        let shown = match screen {
            Screen::Line => io::stderr().is_terminal(),
            Screen::Whole => io::stdout().is_terminal(),
        };
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        // Nothing is drawn among the objects of a log.
        let is_log = screen == Screen::Line && crate::log::is_json();
        if !shown || dumb || is_log || !io::stdin().is_terminal() {
            return None;
        }
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        let mut state = state();
        (state.screen, state.leaving) = (screen, false);
        state.enter();
        drop(state);
        Some(Self { screen, keys: Keys::default(), closed: false, listening: listen() })
    }

    /// The keys that were pressed; waits that long for one. Takes the terminal back, if it was away.
    pub(crate) fn keys(&mut self, wait: Duration) -> Vec<Key> {
        state().enter();
        let is_ours = state().entered;
        if !is_ours || self.closed {
            std::thread::sleep(wait);
            return Vec::new();
        }
        let mut pressed = Vec::new();
        if self.read(wait) {
            pressed.extend(self.keys.take());
            if !self.keys.is_empty() && !self.read(REST) {
                pressed.extend(self.keys.give_up());
            }
            pressed.extend(self.keys.take());
        }
        pressed
    }

    /// Reads what has been typed, waiting that long. Gives whether there was anything.
    fn read(&mut self, wait: Duration) -> bool {
        let stdin = io::stdin();
        let wait = Timespec::try_from(wait).ok();
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        if !matches!(poll(&mut ready, wait.as_ref()), Ok(1..)) {
            return false;
        }
        let mut bytes = [0; 256];
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) => self.closed = true,
            Ok(read) => {
                self.keys.waiting.extend_from_slice(bytes.get(..read).unwrap_or_default());
                return true;
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            // The terminal is gone, and nobody presses a key any more.
            Err(_) => self.closed = true,
        }
        false
    }

    /// Columns and lines.
    pub(crate) fn size(&self) -> (usize, usize) {
        let size = match self.screen {
            Screen::Line => tcgetwinsize(io::stderr()),
            Screen::Whole => tcgetwinsize(io::stdout()),
        };
        let size = size.ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
    }

    /// Draws the changing line anew. It must not be wider than the terminal.
    pub(crate) fn draw_line(&self, line: &str) {
        let state = state();
        if state.entered {
            // Where the terminal is gone, nobody looks.
            drop(write!(io::stderr(), "{CLEAR_LINE}{line}"));
        }
    }

    /// Draws the whole screen anew. Lines must not be wider than it, nor more than it has.
    pub(crate) fn draw(&self, lines: &[String]) {
        let state = state();
        if !state.entered {
            return;
        }
        let mut frame = String::from("\x1b[H");
        frame += &lines.join("\x1b[K\r\n");
        frame += "\x1b[K\x1b[J";
        let mut out = io::stdout().lock();
        drop(out.write_all(frame.as_bytes()).and_then(|()| out.flush()));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(handle) = &self.listening {
            handle.close();
        }
        state().leave();
    }
}

/// Where a bar is drawn: the last line, on standard error, without its last columns.
///
/// A bar leaves the cursor behind its last column. Terminals write the `^C` of Ctrl-C there, and where that
/// did not fit into the line, what clears the line would clear the one below.
#[derive(Debug)]
pub(crate) struct BarLine;

/// The columns that are left for what the terminal writes by itself.
const ECHOED: u16 = 6;

/// Whether a bar is on the terminal.
static HAS_BAR: AtomicBool = AtomicBool::new(false);

impl BarLine {
    fn write(text: &str) -> io::Result<()> {
        HAS_BAR.store(true, Ordering::Relaxed);
        io::stderr().write_all(text.as_bytes())
    }

    fn step(count: usize, direction: char) -> io::Result<()> {
        if count == 0 { Ok(()) } else { Self::write(&format!("\x1b[{count}{direction}")) }
    }
}

impl TermLike for BarLine {
    fn width(&self) -> u16 {
        let columns = tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
        let columns = if columns == 0 { 80 } else { columns };
        columns.saturating_sub(ECHOED).max(1)
    }

    fn move_cursor_up(&self, count: usize) -> io::Result<()> {
        Self::step(count, 'A')
    }

    fn move_cursor_down(&self, count: usize) -> io::Result<()> {
        Self::step(count, 'B')
    }

    fn move_cursor_right(&self, count: usize) -> io::Result<()> {
        Self::step(count, 'C')
    }

    fn move_cursor_left(&self, count: usize) -> io::Result<()> {
        Self::step(count, 'D')
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        Self::write(&format!("{line}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        Self::write(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        io::stderr().write_all(CLEAR_LINE.as_bytes())?;
        HAS_BAR.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Restores the terminal, if it is ours. For who ends the program at once.
pub(crate) fn restore() {
    if HAS_BAR.swap(false, Ordering::Relaxed) {
        drop(io::stderr().write_all(CLEAR_LINE.as_bytes()));
    }
    match STATE.try_lock() {
        Ok(mut state) => state.leave(),
        Err(TryLockError::Poisoned(state)) => state.into_inner().leave(),
        // Whoever has it draws, and the program ends beside it: better a wrong line than none.
        Err(TryLockError::WouldBlock) => {}
    }
}

/// Says something without tearing up the changing line, which is drawn again behind it.
pub(crate) fn say(text: &str) {
    let state = state();
    if state.entered && state.screen == Screen::Line {
        drop(write!(io::stderr(), "{CLEAR_LINE}"));
    }
    tell(text);
}

impl State {
    /// Takes the terminal, unless it is ours already or another program has it.
    fn enter(&mut self) {
        if self.entered || self.leaving || !is_in_front() {
            return;
        }
        let stdin = io::stdin();
        let Ok(now) = tcgetattr(&stdin) else { return };
        let before = self.before.get_or_insert(now);
        if tcsetattr(&stdin, OptionalActions::Now, &one_by_one(before)).is_err() {
            return;
        }
        self.entered = true;
        if self.screen == Screen::Whole {
            self.write("\x1b[?1049h\x1b[?25l");
        }
    }

    fn leave(&mut self) {
        if !std::mem::take(&mut self.entered) {
            return;
        }
        match self.screen {
            Screen::Line => self.write(CLEAR_LINE),
            Screen::Whole => self.write("\x1b[?25h\x1b[?1049l"),
        }
        if let Some(before) = &self.before {
            // What cannot be restored now never can.
            let _restored = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }

    fn write(&self, sequence: &str) {
        drop(match self.screen {
            Screen::Line => io::stderr().write_all(sequence.as_bytes()),
            Screen::Whole => {
                let mut out = io::stdout().lock();
                out.write_all(sequence.as_bytes()).and_then(|()| out.flush())
            }
        });
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether keys and drawing are ours, and not another program's of the same terminal.
fn is_in_front() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|front| front == getpgrp())
}

/// The same modes, but keys come as they are pressed, and are not shown. Ctrl-C and its like stay
/// signals, and lines end as ever.
fn one_by_one(before: &Termios) -> Termios {
    let mut modes = before.clone();
    modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
    // A terminal that somebody stopped with Ctrl-S would hold up who draws.
    modes.input_modes -= InputModes::IXON;
    modes.special_codes[SpecialCodeIndex::VMIN] = 1;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
    modes
}

/// Restores the terminal before a signal stops or ends the program.
fn listen() -> Option<Handle> {
    let mut signals = Signals::new([SIGTSTP, SIGCONT, SIGQUIT]).ok()?;
    let handle = signals.handle();
    let heard = |signal| {
        if signal == SIGCONT {
            // Who had the terminal meanwhile may have left it in any way.
            let mut state = state();
            (state.entered, state.leaving) = (false, false);
            return;
        }
        let mut state = state();
        state.leaving = true;
        state.leave();
        drop(state);
        drop(emulate_default_handler(signal));
    };
    let listen = move || signals.forever().for_each(heard);
    let thread = std::thread::Builder::new().name("sluice-terminal".into()).spawn(listen);
    thread.is_ok().then_some(handle)
}

/// Bytes from a terminal that are not yet keys.
#[derive(Debug, Default)]
struct Keys {
    waiting: Vec<u8>,
}

impl Keys {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The keys that are whole. What means nothing is left out.
    fn take(&mut self) -> Vec<Key> {
        let mut keys = Vec::new();
        while let Some((key, len)) = first_key(&self.waiting) {
            keys.extend(key);
            self.waiting.drain(..len);
        }
        keys
    }

    /// The key that was pressed if nothing more comes.
    fn give_up(&mut self) -> Option<Key> {
        let alone = self.waiting == [0x1b];
        self.waiting.clear();
        alone.then_some(Key::Escape)
    }
}

/// The first key of some bytes, if it means something, and how many bytes it takes; nothing if more have
/// to come.
fn first_key(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let (first, rest) = bytes.split_first()?;
    match first {
        0x1b => sequence(rest).map(|(key, len)| (key, len + 1)),
        b'\r' | b'\n' => Some((Some(Key::Enter), 1)),
        0x7f | 0x08 => Some((Some(Key::Backspace), 1)),
        0x00..0x20 => Some((None, 1)),
        0x20..0x7f => Some((Some(Key::Char(char::from(*first))), 1)),
        // No key that means something is beyond ASCII.
        _ => Some((None, 1)),
    }
}

/// What stands behind an escape.
fn sequence(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let (first, rest) = bytes.split_first()?;
    match first {
        b'O' => rest.first().map(|last| (named(b"", *last), 2)),
        b'[' => {
            let end = rest.iter().position(|byte| (0x40..0x7f).contains(byte))?;
            Some((named(rest.get(..end)?, *rest.get(end)?), end + 2))
        }
        // The escape key, and another one at once.
        0x1b => Some((Some(Key::Escape), 0)),
        // A key with Alt.
        _ => Some((None, 1)),
    }
}

fn named(parameters: &[u8], last: u8) -> Option<Key> {
    // Behind a semicolon it says which of Shift and its like were held.
    let number = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
    Some(match (number, last) {
        (_, b'A') => Key::Up,
        (_, b'B') => Key::Down,
        (_, b'C') => Key::Right,
        (_, b'D') => Key::Left,
        (_, b'H') | (b"1" | b"7", b'~') => Key::Home,
        (_, b'F') | (b"4" | b"8", b'~') => Key::End,
        (b"5", b'~') => Key::PageUp,
        (b"6", b'~') => Key::PageDown,
        (_, b'M') => Key::Enter,
        _ => return None,
    })
}

/// How many columns a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// As much of a text as fits into so many columns; an ellipsis says that there was more.
pub fn clipped(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut clipped, mut left) = (String::new(), columns.saturating_sub(1));
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        clipped.push(c);
    }
    if columns > 0 {
        clipped.push('…');
    }
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(bytes: &[u8]) -> Vec<Key> {
        let mut keys = Keys { waiting: bytes.to_vec() };
        let mut pressed = keys.take();
        pressed.extend(keys.give_up());
        pressed
    }

    #[test]
    fn keys_are_told_from_what_terminals_send() {
        use Key::*;
        assert_eq!(pressed(b" q?"), [Char(' '), Char('q'), Char('?')]);
        assert_eq!(pressed(b"\x1b[A\x1b[B\x1bOC\x1bOD"), [Up, Down, Right, Left]);
        assert_eq!(pressed(b"\x1b[H\x1b[1~\x1b[7~\x1b[F\x1b[4~"), [Home, Home, Home, End, End]);
        assert_eq!(pressed(b"\x1b[5~\x1b[6~\x1b[1;5C"), [PageUp, PageDown, Right]);
        assert_eq!(pressed(b"\n\r\x7f"), [Enter, Enter, Backspace]);
    }

    #[test]
    fn what_is_no_key_is_passed_over() {
        assert_eq!(pressed(b"\x1b[99~a\x1bx\x01\xc3\xbcb"), [Key::Char('a'), Key::Char('b')]);
    }

    #[test]
    fn a_key_may_come_in_pieces_and_an_escape_alone_is_the_key() {
        let mut keys = Keys { waiting: b"a\x1b[".to_vec() };
        assert_eq!(keys.take(), [Key::Char('a')]);
        keys.waiting.extend_from_slice(b"5~");
        assert_eq!(keys.take(), [Key::PageUp]);
        assert_eq!((pressed(b"\x1b"), pressed(b"\x1b[")), (vec![Key::Escape], vec![]));
        assert_eq!(pressed(b"\x1b\x1b[A"), [Key::Escape, Key::Up]);
    }

    #[test]
    fn texts_are_clipped_to_columns() {
        assert_eq!((clipped("abc", 3), clipped("abcd", 3)), ("abc".into(), "ab…".into()));
        assert_eq!((clipped("日本語", 4), clipped("日本語", 6)), ("日…".into(), "日本語".into()));
        assert_eq!((clipped("abc", 1), clipped("abc", 0)), ("…".into(), String::new()));
    }
}
