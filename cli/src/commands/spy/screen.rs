//! The screen of `spy`: reacts to keys, and renders lines. Draws nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use sluice_io::escape::{printable, printable_sentence};
use sluice_model::units;

use super::table::{self, SpyRow};
use crate::terminal::{KeyPress, clipped, width};

/// Sort order, selection and scroll position.
#[derive(Clone, Debug, Default)]
pub(super) struct ScreenState {
    order: ChannelOrder,
    /// The name of the selected channel.
    channel: Option<String>,
    /// The index of the first row shown.
    top: usize,
    /// The first line shown of the displayed message, if any.
    message: Option<usize>,
}

/// The sort order of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChannelOrder {
    #[default]
    Name,
    Rate,
    Bandwidth,
}

/// A command given by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpyCommand {
    /// Reset the counters.
    Reset,
    /// Quit.
    Quit,
}

/// The header above the table.
#[derive(Clone, Debug, Default)]
pub(super) struct TableHeader {
    pub(super) address: String,
    /// Time since counting was reset.
    pub(super) counted: Duration,
    pub(super) channels: usize,
    /// The number of channels not in the table.
    pub(super) more_channels: usize,
    pub(super) events: u64,
    pub(super) events_per_second: f64,
    pub(super) bytes_per_second: f64,
    pub(super) losses: BTreeMap<String, u64>,
    /// The last note.
    pub(super) note: Option<String>,
}

const KEYS: &str = "n name  h Hz  b bandwidth  up down enter message  r reset  q quit";
const MESSAGE_KEYS: &str = "up down  left back  r reset  q quit";

impl ScreenState {
    /// The channel whose message is displayed.
    pub(super) fn shown_message(&self) -> Option<&str> {
        self.message.and(self.channel.as_deref())
    }

    /// Sorts rows, with ties by name.
    pub(super) fn sort(&self, rows: &mut [SpyRow]) {
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        // Compare rates as integers, in thousandths, as floats have no total order.
        let thousandths = |rate: Option<f64>| Reverse((rate.unwrap_or(-1.0) * 1000.0) as i64);
        match self.order {
            ChannelOrder::Name => {}
            ChannelOrder::Rate => rows.sort_by_key(|row| thousandths(row.hz)),
            ChannelOrder::Bandwidth => rows.sort_by_key(|row| thousandths(row.bytes_per_second)),
        }
    }

    /// Handles a key. `rows` are sorted as displayed; `lines` is the height of the screen.
    pub(super) fn handle_key(
        &mut self,
        key: KeyPress,
        rows: &[SpyRow],
        lines: usize,
    ) -> Option<SpyCommand> {
        let page = lines.saturating_sub(6).max(1) as isize;
        match key {
            KeyPress::Char('q' | 'Q') => return Some(SpyCommand::Quit),
            KeyPress::Char('r') => return Some(SpyCommand::Reset),
            KeyPress::Char('n') => self.order = ChannelOrder::Name,
            KeyPress::Char('h') => self.order = ChannelOrder::Rate,
            KeyPress::Char('b') => self.order = ChannelOrder::Bandwidth,
            KeyPress::Up => self.step(-1, rows),
            KeyPress::Down => self.step(1, rows),
            KeyPress::PageUp => self.step(-page, rows),
            KeyPress::PageDown => self.step(page, rows),
            KeyPress::Home => self.step(isize::MIN, rows),
            KeyPress::End => self.step(isize::MAX, rows),
            KeyPress::Enter if self.message.is_some() => self.message = None,
            KeyPress::Enter | KeyPress::Right => self.message = self.channel.as_ref().map(|_| 0),
            KeyPress::Left | KeyPress::Escape | KeyPress::Backspace => self.message = None,
            KeyPress::Char(_) => {}
        }
        None
    }

    fn step(&mut self, lines: isize, rows: &[SpyRow]) {
        if let Some(top) = &mut self.message {
            *top = top.saturating_add_signed(lines);
            return;
        }
        let Some(last) = rows.len().checked_sub(1) else { return };
        let place = match self.place(rows) {
            Some(place) => place.saturating_add_signed(lines).min(last),
            None if lines > 1 => last,
            None => 0,
        };
        self.channel = rows.get(place).map(|row| row.name.clone());
    }

    fn place(&self, rows: &[SpyRow]) -> Option<usize> {
        let channel = self.channel.as_ref()?;
        rows.iter().position(|row| row.name == *channel)
    }

    /// Renders the screen to fit `size`. `message` are the lines of the displayed message.
    pub(super) fn render(
        &mut self,
        head: &TableHeader,
        rows: &[SpyRow],
        message: Option<&[String]>,
        (columns, lines): (usize, usize),
    ) -> Vec<String> {
        let mut frame: Vec<String> =
            head.lines().iter().map(|line| clipped(line, columns)).collect();
        let foot = lines > frame.len() + 4;
        let height = lines.saturating_sub(frame.len() + usize::from(foot));
        match message {
            Some(message) => self.add_message(message, rows, height, columns, &mut frame),
            None => self.add_table(rows, height, columns, &mut frame),
        }
        if foot {
            frame.resize(lines - 1, String::new());
            let keys = if message.is_some() { MESSAGE_KEYS } else { KEYS };
            frame.push(clipped(keys, columns));
        }
        frame.truncate(lines);
        frame
    }

    fn add_table(
        &mut self,
        rows: &[SpyRow],
        height: usize,
        columns: usize,
        frame: &mut Vec<String>,
    ) {
        // One line is the column header.
        let shown = height.saturating_sub(1);
        let place = self.place(rows);
        if let Some(place) = place {
            let least = (place + 1).saturating_sub(shown);
            self.top = self.top.clamp(least, place.max(least));
        }
        self.top = self.top.min(rows.len().saturating_sub(shown));
        let rows = rows.get(self.top..).unwrap_or_default();
        let rows = rows.get(..shown).unwrap_or(rows);
        let mut lines = table::lines(rows, columns);
        let chosen = place.and_then(|place| lines.get_mut(place.checked_sub(self.top)? + 1));
        if let Some(line) = chosen {
            let space = " ".repeat(columns.saturating_sub(width(line)));
            *line = format!("\x1b[7m{line}{space}\x1b[0m");
        }
        frame.extend(lines);
    }

    fn add_message(
        &mut self,
        message: &[String],
        rows: &[SpyRow],
        height: usize,
        columns: usize,
        frame: &mut Vec<String>,
    ) {
        if let Some(place) = self.place(rows) {
            frame.extend(table::lines(rows.get(place..=place).unwrap_or_default(), columns));
        }
        let shown = height.saturating_sub(2);
        let top = self.message.unwrap_or(0).min(message.len().saturating_sub(shown));
        self.message = Some(top);
        let lines = message.iter().skip(top).take(shown);
        frame.extend(lines.map(|line| clipped(line, columns)));
    }
}

impl TableHeader {
    /// The lines of the header, not clipped.
    pub(super) fn lines(&self) -> Vec<String> {
        let more = match self.more_channels {
            0 => String::new(),
            more => format!(" and {} more", units::count(more as u64)),
        };
        let rate = units::count(self.events_per_second.round() as u64);
        let mut lines = vec![format!(
            "{}  {}{more}  {rate} events/s  {}/s  {} in {} s",
            printable(&self.address),
            units::pluralize(self.channels as u64, "channel"),
            units::bytes(self.bytes_per_second as u64),
            units::pluralize(self.events, "event"),
            units::count(self.counted.as_secs()),
        )];
        lines.push(match self.losses.values().sum() {
            0 => "nothing lost".to_owned(),
            lost => {
                let each = self.losses.iter().map(|(reason, count)| {
                    format!("{} {}", units::count(*count), printable_sentence(reason))
                });
                format!("{} lost: {}", units::count(lost), each.collect::<Vec<_>>().join(", "))
            }
        });
        lines.extend(self.note.as_deref().map(|note| printable_sentence(note).into_owned()));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize) -> Vec<SpyRow> {
        let row = |n: usize| SpyRow {
            name: format!("CH_{n:03}"),
            hz: Some((n * 7 % 10) as f64),
            bytes_per_second: Some((n * 3 % 10) as f64),
            ..SpyRow::default()
        };
        (0..count).map(row).collect()
    }

    fn head() -> TableHeader {
        TableHeader { address: "udpm://x:1".into(), channels: 3, ..TableHeader::default() }
    }

    fn names(frame: &[String]) -> Vec<String> {
        let plain = frame.iter().map(|line| line.trim_start_matches("\x1b[7m"));
        let names = plain.filter_map(|line| line.split(' ').next());
        names.filter(|name| name.starts_with("CH_")).map(str::to_owned).collect()
    }

    #[test]
    fn channels_are_ordered_as_keys_ask() {
        let sorted = |key: char| {
            let (mut choice, mut rows) = (ScreenState::default(), rows(5));
            assert_eq!(choice.handle_key(KeyPress::Char(key), &rows, 24), None);
            choice.sort(&mut rows);
            rows.iter().map(|row| row.name[5..].to_owned()).collect::<String>()
        };
        assert_eq!([sorted('n'), sorted('h'), sorted('b')], ["01234", "41230", "32140"]);
    }

    #[test]
    fn keys_reset_and_end() {
        let press = |key| ScreenState::default().handle_key(key, &rows(3), 24);
        assert_eq!(press(KeyPress::Char('r')), Some(SpyCommand::Reset));
        assert_eq!(press(KeyPress::Char('q')), Some(SpyCommand::Quit));
        assert_eq!(press(KeyPress::Char('x')), None);
    }

    #[test]
    fn the_chosen_channel_is_always_shown_and_stays_chosen_in_another_order() {
        let (mut choice, rows) = (ScreenState::default(), rows(500));
        let size = (60, 12);
        assert_eq!(names(&choice.render(&head(), &rows, None, size))[0], "CH_000");
        for _ in 0..200 {
            choice.handle_key(KeyPress::Down, &rows, 12);
        }
        let frame = choice.render(&head(), &rows, None, size);
        let chosen = frame.iter().find(|line| line.starts_with("\x1b[7m")).unwrap();
        assert!(chosen.contains("CH_199"), "{chosen}");
        choice.handle_key(KeyPress::End, &rows, 12);
        assert_eq!(names(&choice.render(&head(), &rows, None, size)).last().unwrap(), "CH_499");
        choice.handle_key(KeyPress::PageUp, &rows, 12);
        assert!(names(&choice.render(&head(), &rows, None, size)).contains(&"CH_493".to_owned()));
        choice.handle_key(KeyPress::Home, &rows, 12);
        assert_eq!(names(&choice.render(&head(), &rows, None, size))[0], "CH_000");
        choice.handle_key(KeyPress::Char('h'), &rows, 12);
        assert_eq!(choice.channel.as_deref(), Some("CH_000"));
    }

    #[test]
    fn a_message_is_opened_scrolled_and_closed() {
        let (mut choice, rows) = (ScreenState::default(), rows(3));
        choice.handle_key(KeyPress::Enter, &rows, 24);
        assert_eq!(choice.shown_message(), None);
        choice.handle_key(KeyPress::Down, &rows, 24);
        choice.handle_key(KeyPress::Enter, &rows, 24);
        assert_eq!(choice.shown_message(), Some("CH_000"));
        let message: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let shown =
            |choice: &mut ScreenState| choice.render(&head(), &rows, Some(&message), (60, 12));
        assert!(shown(&mut choice).contains(&"line 0".to_owned()));
        choice.handle_key(KeyPress::Down, &rows, 24);
        let frame = shown(&mut choice);
        assert!(!frame.contains(&"line 0".to_owned()) && frame.contains(&"line 1".to_owned()));
        choice.handle_key(KeyPress::End, &rows, 24);
        assert!(shown(&mut choice).contains(&"line 99".to_owned()));
        choice.handle_key(KeyPress::Left, &rows, 24);
        assert_eq!(choice.shown_message(), None);
    }

    #[test]
    fn frames_fit_into_every_terminal() {
        let (mut choice, rows) = (ScreenState::default(), rows(50));
        choice.handle_key(KeyPress::Down, &rows, 24);
        let losses = BTreeMap::from([("missing".to_owned(), 3), ("late".to_owned(), 1)]);
        let head = TableHeader { losses, note: Some("listening".into()), ..head() };
        let message = vec!["x".repeat(200); 50];
        for columns in 0..90 {
            for lines in 0..20 {
                for message in [None, Some(&message[..])] {
                    let frame = choice.render(&head, &rows, message, (columns, lines));
                    assert!(frame.len() <= lines);
                    let plain =
                        frame.iter().map(|line| line.replace("\x1b[7m", "").replace("\x1b[0m", ""));
                    assert!(plain.into_iter().all(|line| width(&line) <= columns));
                }
                choice.handle_key(KeyPress::Left, &rows, lines);
            }
        }
    }

    #[test]
    fn the_header_shows_losses_by_reason() {
        let losses = BTreeMap::from([("late".to_owned(), 1), ("missing".to_owned(), 2000)]);
        let head = TableHeader { losses, more_channels: 5, events: 7, ..head() };
        let lines = head.lines();
        assert_eq!(
            lines[0],
            "udpm://x:1  3 channels and 5 more  0 events/s  0 B/s  7 events in 0 s"
        );
        assert_eq!(lines[1], "2,001 lost: 1 late, 2,000 missing");
        assert_eq!(TableHeader::default().lines()[1], "nothing lost");
    }
}
