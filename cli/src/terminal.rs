//! Terminal input and drawing: key presses, a status line or a full screen, and restoring the
//! terminal.
//!
//! The terminal is restored however the program ends or stops: return, panic, signal, Ctrl-Z. While
//! another program is in the foreground, nothing is read or drawn. The commands decide what keys
//! mean and what is drawn.

mod keys;

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
use sluice_model::panics::is_panic_caught;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::log::log_message;
use keys::KeyDecoder;
pub(crate) use keys::KeyPress;

/// The part of the terminal that is drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScreenArea {
    /// The last line, on standard error.
    Line,
    /// The whole screen, on standard output. The previous contents come back at the end.
    Whole,
}

/// A terminal in cbreak mode. Dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    screen: ScreenArea,
    keys: KeyDecoder,
    /// Whether the input has ended.
    closed: bool,
    signals: Option<Handle>,
}

/// The state to restore. Global, as the panic hook and the signal threads need it.
struct State {
    screen: ScreenArea,
    /// The original settings.
    before: Option<Termios>,
    /// Whether our settings are active.
    entered: bool,
    /// Whether the program is about to stop.
    leaving: bool,
}

static STATE: Mutex<State> =
    Mutex::new(State { screen: ScreenArea::Line, before: None, entered: false, leaving: false });

/// Clears the line of the cursor.
const CLEAR_LINE: &str = "\r\x1b[K";

/// How long to wait for the rest of an escape sequence. After that, it was the escape key.
const ESCAPE_TIMEOUT: Duration = Duration::from_millis(25);

impl Terminal {
    /// Opens the terminal, if there is one for input and for `screen`.
    pub(crate) fn open(screen: ScreenArea) -> Option<Self> {
        static HOOK: Once = Once::new();
        let shown = match screen {
            ScreenArea::Line => io::stderr().is_terminal(),
            ScreenArea::Whole => io::stdout().is_terminal(),
        };
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        // A status line would break up the records of a JSON log.
        let is_log = screen == ScreenArea::Line && crate::log::is_json();
        if !shown || dumb || is_log || !io::stdin().is_terminal() {
            return None;
        }
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if !is_panic_caught() {
                    restore();
                }
                before(panic);
            }));
        });
        let mut state = state();
        (state.screen, state.leaving) = (screen, false);
        state.enter();
        drop(state);
        Some(Self {
            screen,
            keys: KeyDecoder::default(),
            closed: false,
            signals: restore_on_signals(),
        })
    }

    /// Returns the keys pressed, waiting up to `wait` for the first. Enters cbreak mode again after
    /// the program was in the background.
    pub(crate) fn keys(&mut self, wait: Duration) -> Vec<KeyPress> {
        state().enter();
        let is_ours = state().entered;
        if !is_ours || self.closed {
            std::thread::sleep(wait);
            return Vec::new();
        }
        let mut pressed = Vec::new();
        if self.read(wait) {
            pressed.extend(self.keys.take());
            if !self.keys.is_empty() && !self.read(ESCAPE_TIMEOUT) {
                pressed.extend(self.keys.take_lone_escape());
            }
            pressed.extend(self.keys.take());
        }
        pressed
    }

    /// Reads pending input, waiting up to `wait`. Returns whether there was any.
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
                self.keys.push(bytes.get(..read).unwrap_or_default());
                return true;
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            // The terminal is gone.
            Err(_) => self.closed = true,
        }
        false
    }

    /// Columns and lines.
    pub(crate) fn size(&self) -> (usize, usize) {
        let size = match self.screen {
            ScreenArea::Line => tcgetwinsize(io::stderr()),
            ScreenArea::Whole => tcgetwinsize(io::stdout()),
        };
        let size = size.ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
    }

    /// Redraws the status line, which must not be wider than the terminal.
    pub(crate) fn draw_line(&self, line: &str) {
        let state = state();
        if state.entered {
            // Errors mean that the terminal is gone.
            drop(write!(io::stderr(), "{CLEAR_LINE}{line}"));
        }
    }

    /// Redraws the screen. The lines must fit on it.
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
        if let Some(handle) = &self.signals {
            handle.close();
        }
        state().leave();
    }
}

/// The draw target of progress bars: the last line on standard error, without its last columns.
///
/// A bar leaves the cursor after its last column, where terminals echo `^C`. If that wrapped,
/// clearing the line would clear the wrong one.
#[derive(Debug)]
pub(crate) struct BarLine;

/// Columns reserved for control characters that the terminal echoes.
const CONTROL_ECHO_COLUMNS: u16 = 6;

/// Whether a bar is currently drawn.
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
        columns.saturating_sub(CONTROL_ECHO_COLUMNS).max(1)
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

/// Restores the terminal. For code that ends the program at once.
pub(crate) fn restore() {
    if HAS_BAR.swap(false, Ordering::Relaxed) {
        drop(io::stderr().write_all(CLEAR_LINE.as_bytes()));
    }
    match STATE.try_lock() {
        Ok(mut state) => state.leave(),
        Err(TryLockError::Poisoned(state)) => state.into_inner().leave(),
        // Another thread is drawing while the program ends: a garbled line is better than a
        // deadlock.
        Err(TryLockError::WouldBlock) => {}
    }
}

/// Prints a message above the status line, which is redrawn later.
pub(crate) fn println(text: &str) {
    let state = state();
    if state.entered && state.screen == ScreenArea::Line {
        drop(write!(io::stderr(), "{CLEAR_LINE}"));
    }
    log_message(text);
}

impl State {
    /// Enters cbreak mode, unless it is active or another program is in the foreground.
    fn enter(&mut self) {
        if self.entered || self.leaving || !is_foreground() {
            return;
        }
        let stdin = io::stdin();
        let Ok(now) = tcgetattr(&stdin) else { return };
        let before = self.before.get_or_insert(now);
        if tcsetattr(&stdin, OptionalActions::Now, &cbreak_mode(before)).is_err() {
            return;
        }
        self.entered = true;
        if self.screen == ScreenArea::Whole {
            self.write("\x1b[?1049h\x1b[?25l");
        }
    }

    fn leave(&mut self) {
        if !std::mem::take(&mut self.entered) {
            return;
        }
        match self.screen {
            ScreenArea::Line => self.write(CLEAR_LINE),
            ScreenArea::Whole => self.write("\x1b[?25h\x1b[?1049l"),
        }
        if let Some(before) = &self.before {
            // Nothing more can be done on failure.
            let _restored = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }

    fn write(&self, sequence: &str) {
        drop(match self.screen {
            ScreenArea::Line => io::stderr().write_all(sequence.as_bytes()),
            ScreenArea::Whole => {
                let mut out = io::stdout().lock();
                out.write_all(sequence.as_bytes()).and_then(|()| out.flush())
            }
        });
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process group is in the foreground.
fn is_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|front| front == getpgrp())
}

/// The settings for cbreak mode: input is not buffered by lines and not echoed. Ctrl-C still sends
/// a signal.
fn cbreak_mode(before: &Termios) -> Termios {
    let mut modes = before.clone();
    modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
    // Ctrl-S would block drawing.
    modes.input_modes -= InputModes::IXON;
    modes.special_codes[SpecialCodeIndex::VMIN] = 1;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
    modes
}

/// Restores the terminal before a signal stops or ends the program.
fn restore_on_signals() -> Option<Handle> {
    let mut signals = Signals::new([SIGTSTP, SIGCONT, SIGQUIT]).ok()?;
    let handle = signals.handle();
    let heard = |signal| {
        if signal == SIGCONT {
            // Another program may have changed the settings meanwhile.
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

/// The width of standard output, if it is a terminal.
pub fn stdout_width() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// The width of a text in columns.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Clips a text to a number of columns, with an ellipsis if anything was cut.
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

    #[test]
    fn texts_are_clipped_to_columns() {
        assert_eq!((clipped("abc", 3), clipped("abcd", 3)), ("abc".into(), "ab…".into()));
        assert_eq!((clipped("日本語", 4), clipped("日本語", 6)), ("日…".into(), "日本語".into()));
        assert_eq!((clipped("abc", 1), clipped("abc", 0)), ("…".into(), String::new()));
    }
}
