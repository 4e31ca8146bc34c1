//! The screen of `spy`: what keys do to it, and its lines. Draws nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use sluice_core::name::printable;

use super::table::{self, Row};
use crate::terminal::{Key, clipped, width};
use crate::units;

/// What is chosen on the screen.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    order: Order,
    /// The name of the channel that is chosen.
    channel: Option<String>,
    /// The first channel that is shown, by its place.
    top: usize,
    /// The first line of the message that is shown, if one is.
    message: Option<usize>,
}

/// What channels are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Name,
    Rate,
    Bandwidth,
}

/// What a key asks for, beyond the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// To count from here.
    Reset,
    /// To end.
    Quit,
}

/// What stands above the table.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) address: String,
    /// How long has been counted.
    pub(super) counted: Duration,
    pub(super) channels: usize,
    /// Channels that are not in the table.
    pub(super) more_channels: usize,
    pub(super) events: u64,
    pub(super) events_per_second: f64,
    pub(super) bytes_per_second: f64,
    pub(super) losses: BTreeMap<String, u64>,
    /// What the input said last of itself.
    pub(super) note: Option<String>,
}

const KEYS: &str = "n name  h Hz  b bandwidth  up down enter message  r reset  q end";
const MESSAGE_KEYS: &str = "up down  left back  r reset  q end";

impl Choice {
    /// The channel whose message is shown.
    pub(super) fn message_of(&self) -> Option<&str> {
        self.message.and(self.channel.as_deref())
    }

    /// Puts rows into the order that is chosen; by name where that does not tell them apart.
    pub(super) fn sort(&self, rows: &mut [Row]) {
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        // Rates are compared in thousandths, as floats have no order of their own.
        let thousandths = |rate: Option<f64>| Reverse((rate.unwrap_or(-1.0) * 1000.0) as i64);
        match self.order {
            Order::Name => {}
            Order::Rate => rows.sort_by_key(|row| thousandths(row.hz)),
            Order::Bandwidth => rows.sort_by_key(|row| thousandths(row.bytes_per_second)),
        }
    }

    /// Does what a key asks for. `rows` are in the order they are shown in, on so many lines.
    pub(super) fn press(&mut self, key: Key, rows: &[Row], lines: usize) -> Option<Act> {
        let page = lines.saturating_sub(6).max(1) as isize;
        match key {
            Key::Char('q' | 'Q') => return Some(Act::Quit),
            Key::Char('r') => return Some(Act::Reset),
            Key::Char('n') => self.order = Order::Name,
            Key::Char('h') => self.order = Order::Rate,
            Key::Char('b') => self.order = Order::Bandwidth,
            Key::Up => self.step(-1, rows),
            Key::Down => self.step(1, rows),
            Key::PageUp => self.step(-page, rows),
            Key::PageDown => self.step(page, rows),
            Key::Home => self.step(isize::MIN, rows),
            Key::End => self.step(isize::MAX, rows),
            Key::Enter if self.message.is_some() => self.message = None,
            Key::Enter | Key::Right => self.message = self.channel.as_ref().map(|_| 0),
            Key::Left | Key::Escape | Key::Backspace => self.message = None,
            Key::Char(_) => {}
        }
        None
    }

    fn step(&mut self, lines: isize, rows: &[Row]) {
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

    fn place(&self, rows: &[Row]) -> Option<usize> {
        let channel = self.channel.as_ref()?;
        rows.iter().position(|row| row.name == *channel)
    }

    /// The whole screen: so many lines at most, each so wide at most. `message` are the lines of the
    /// message that is shown.
    pub(super) fn frame(
        &mut self,
        head: &Head,
        rows: &[Row],
        message: Option<&[String]>,
        (columns, lines): (usize, usize),
    ) -> Vec<String> {
        let mut frame: Vec<String> =
            head.lines().iter().map(|line| clipped(line, columns)).collect();
        let foot = lines > frame.len() + 4;
        let room = lines.saturating_sub(frame.len() + usize::from(foot));
        match message {
            Some(message) => self.add_message(message, rows, room, columns, &mut frame),
            None => self.add_table(rows, room, columns, &mut frame),
        }
        if foot {
            frame.resize(lines - 1, String::new());
            let keys = if message.is_some() { MESSAGE_KEYS } else { KEYS };
            frame.push(clipped(keys, columns));
        }
        frame.truncate(lines);
        frame
    }

    fn add_table(&mut self, rows: &[Row], room: usize, columns: usize, frame: &mut Vec<String>) {
        // One line has the heads.
        let shown = room.saturating_sub(1);
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
        rows: &[Row],
        room: usize,
        columns: usize,
        frame: &mut Vec<String>,
    ) {
        if let Some(place) = self.place(rows) {
            frame.extend(table::lines(rows.get(place..=place).unwrap_or_default(), columns));
        }
        let shown = room.saturating_sub(2);
        let top = self.message.unwrap_or(0).min(message.len().saturating_sub(shown));
        self.message = Some(top);
        let lines = message.iter().skip(top).take(shown);
        frame.extend(lines.map(|line| clipped(line, columns)));
    }
}

impl Head {
    /// The lines, however wide.
    pub(super) fn lines(&self) -> Vec<String> {
        let more = match self.more_channels {
            0 => String::new(),
            more => format!(" and {} more", units::count(more as u64)),
        };
        let rate = units::count(self.events_per_second.round() as u64);
        let mut lines = vec![format!(
            "{}  {}{more}  {rate} events/s  {}/s  {} in {} s",
            printable(&self.address),
            units::many(self.channels as u64, "channel"),
            units::bytes(self.bytes_per_second as u64),
            units::many(self.events, "event"),
            units::count(self.counted.as_secs()),
        )];
        lines.push(match self.losses.values().sum() {
            0 => "nothing lost".to_owned(),
            lost => {
                let each = self.losses.iter().map(|(reason, count)| {
                    format!("{} {}", units::count(*count), printable(reason))
                });
                format!("{} lost: {}", units::count(lost), each.collect::<Vec<_>>().join(", "))
            }
        });
        lines.extend(self.note.as_deref().map(|note| printable(note).into_owned()));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize) -> Vec<Row> {
        let row = |n: usize| Row {
            name: format!("CH_{n:03}"),
            hz: Some((n * 7 % 10) as f64),
            bytes_per_second: Some((n * 3 % 10) as f64),
            ..Row::default()
        };
        (0..count).map(row).collect()
    }

    fn head() -> Head {
        Head { address: "udpm://x:1".into(), channels: 3, ..Head::default() }
    }

    fn names(frame: &[String]) -> Vec<String> {
        let plain = frame.iter().map(|line| line.trim_start_matches("\x1b[7m"));
        let names = plain.filter_map(|line| line.split(' ').next());
        names.filter(|name| name.starts_with("CH_")).map(str::to_owned).collect()
    }

    #[test]
    fn channels_are_ordered_as_keys_ask() {
        let sorted = |key: char| {
            let (mut choice, mut rows) = (Choice::default(), rows(5));
            assert_eq!(choice.press(Key::Char(key), &rows, 24), None);
            choice.sort(&mut rows);
            rows.iter().map(|row| row.name[5..].to_owned()).collect::<String>()
        };
        assert_eq!([sorted('n'), sorted('h'), sorted('b')], ["01234", "41230", "32140"]);
    }

    #[test]
    fn keys_reset_and_end() {
        let press = |key| Choice::default().press(key, &rows(3), 24);
        assert_eq!(press(Key::Char('r')), Some(Act::Reset));
        assert_eq!(press(Key::Char('q')), Some(Act::Quit));
        assert_eq!(press(Key::Char('x')), None);
    }

    #[test]
    fn the_chosen_channel_is_always_shown_and_stays_chosen_in_another_order() {
        let (mut choice, rows) = (Choice::default(), rows(500));
        let size = (60, 12);
        assert_eq!(names(&choice.frame(&head(), &rows, None, size))[0], "CH_000");
        for _ in 0..200 {
            choice.press(Key::Down, &rows, 12);
        }
        let frame = choice.frame(&head(), &rows, None, size);
        let chosen = frame.iter().find(|line| line.starts_with("\x1b[7m")).unwrap();
        assert!(chosen.contains("CH_199"), "{chosen}");
        choice.press(Key::End, &rows, 12);
        assert_eq!(names(&choice.frame(&head(), &rows, None, size)).last().unwrap(), "CH_499");
        choice.press(Key::PageUp, &rows, 12);
        assert!(names(&choice.frame(&head(), &rows, None, size)).contains(&"CH_493".to_owned()));
        choice.press(Key::Home, &rows, 12);
        assert_eq!(names(&choice.frame(&head(), &rows, None, size))[0], "CH_000");
        choice.press(Key::Char('h'), &rows, 12);
        assert_eq!(choice.channel.as_deref(), Some("CH_000"));
    }

    #[test]
    fn a_message_is_opened_scrolled_and_closed() {
        let (mut choice, rows) = (Choice::default(), rows(3));
        choice.press(Key::Enter, &rows, 24);
        assert_eq!(choice.message_of(), None);
        choice.press(Key::Down, &rows, 24);
        choice.press(Key::Enter, &rows, 24);
        assert_eq!(choice.message_of(), Some("CH_000"));
        let message: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let shown = |choice: &mut Choice| choice.frame(&head(), &rows, Some(&message), (60, 12));
        assert!(shown(&mut choice).contains(&"line 0".to_owned()));
        choice.press(Key::Down, &rows, 24);
        let frame = shown(&mut choice);
        assert!(!frame.contains(&"line 0".to_owned()) && frame.contains(&"line 1".to_owned()));
        choice.press(Key::End, &rows, 24);
        assert!(shown(&mut choice).contains(&"line 99".to_owned()));
        choice.press(Key::Left, &rows, 24);
        assert_eq!(choice.message_of(), None);
    }

    #[test]
    fn frames_fit_into_every_terminal() {
        let (mut choice, rows) = (Choice::default(), rows(50));
        choice.press(Key::Down, &rows, 24);
        let losses = BTreeMap::from([("missing".to_owned(), 3), ("late".to_owned(), 1)]);
        let head = Head { losses, note: Some("listening".into()), ..head() };
        let message = vec!["x".repeat(200); 50];
        for columns in 0..90 {
            for lines in 0..20 {
                for message in [None, Some(&message[..])] {
                    let frame = choice.frame(&head, &rows, message, (columns, lines));
                    assert!(frame.len() <= lines);
                    let plain =
                        frame.iter().map(|line| line.replace("\x1b[7m", "").replace("\x1b[0m", ""));
                    assert!(plain.into_iter().all(|line| width(&line) <= columns));
                }
                choice.press(Key::Left, &rows, lines);
            }
        }
    }

    #[test]
    fn the_head_says_what_was_lost_and_why() {
        let losses = BTreeMap::from([("late".to_owned(), 1), ("missing".to_owned(), 2000)]);
        let head = Head { losses, more_channels: 5, events: 7, ..head() };
        let lines = head.lines();
        assert_eq!(
            lines[0],
            "udpm://x:1  3 channels and 5 more  0 events/s  0 B/s  7 events in 0 s"
        );
        assert_eq!(lines[1], "2,001 lost: 1 late, 2,000 missing");
        assert_eq!(Head::default().lines()[1], "nothing lost");
    }
}
