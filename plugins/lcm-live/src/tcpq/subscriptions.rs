//! What one client of a hub wants: its regular expressions, within bounds.
//!
//! It does not remember answers; that is the [`hub`](super::hub)'s.

use std::borrow::Cow;

use bytes::Bytes;
use regex::{Error, Regex, RegexBuilder};

/// Memory that one expression may take when compiled, tried in this order. The library does not tell
/// what one takes, only that it takes no more.
const SIZES: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Memory for all expressions of one client.
const BUDGET: usize = 16 << 20;

/// What one matching thread may keep of an expression besides.
const DFA_SIZE: usize = 256 << 10;

/// Why a subscription is not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("is no regular expression: {0}")]
    Syntax(String),
    #[error("is a regular expression that needs more than {} KiB", SIZES[SIZES.len() - 1] >> 10)]
    TooBig,
    #[error("is one subscription more than the {0} allowed")]
    TooMany(usize),
    #[error("is more than the {} MiB of regular expressions allowed", BUDGET >> 20)]
    Budget,
}

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    all: Vec<Subscription>,
    cost: usize,
}

#[derive(Debug)]
struct Subscription {
    text: Bytes,
    /// How often it was made: it ends when it was ended as often.
    times: usize,
    matcher: Matcher,
    cost: usize,
}

#[derive(Debug)]
enum Matcher {
    /// Most subscriptions are the name of one channel.
    Name(String),
    Regex(Regex),
}

impl Subscriptions {
    /// Adds one. On `Err` nothing changed.
    pub(super) fn add(&mut self, text: Bytes, limit: usize) -> Result<(), Refused> {
        if self.len() >= limit {
            return Err(Refused::TooMany(limit));
        }
        if let Some(known) = self.all.iter_mut().find(|known| known.text == text) {
            known.times += 1;
            return Ok(());
        }
        let (matcher, size) = compile(&readable(&text))?;
        let cost = size + text.len();
        if self.cost + cost > BUDGET {
            return Err(Refused::Budget);
        }
        self.cost += cost;
        self.all.push(Subscription { text, times: 1, matcher, cost });
        Ok(())
    }

    /// Ends one; `false` if there is none with this text.
    pub(super) fn remove(&mut self, text: &[u8]) -> bool {
        let Some(place) = self.all.iter().position(|known| known.text == text) else {
            return false;
        };
        let known = &mut self.all[place];
        known.times -= 1;
        if known.times == 0 {
            self.cost -= known.cost;
            self.all.remove(place);
        }
        true
    }

    /// Whether one of them matches the whole name.
    pub(super) fn matches(&self, channel: &str) -> bool {
        self.all.iter().any(|one| match &one.matcher {
            Matcher::Name(name) => name == channel,
            Matcher::Regex(regex) => regex.is_match(channel),
        })
    }

    /// How many there are, with those made more than once.
    pub(super) fn len(&self) -> usize {
        self.all.iter().map(|one| one.times).sum()
    }
}

/// Names and expressions as text: UTF-8, or else Latin-1, which any bytes are.
pub(super) fn readable(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// A matcher of whole names, and the memory it may take.
fn compile(text: &str) -> Result<(Matcher, usize), Refused> {
    if regex::escape(text) == text {
        return Ok((Matcher::Name(text.to_owned()), text.len()));
    }
    for size in SIZES {
        let build =
            |text: &str| RegexBuilder::new(text).size_limit(size).dfa_size_limit(DFA_SIZE).build();
        // First as it stands: `A)|(B` is none, though it would be one in parentheses.
        match build(text).and_then(|_| build(&format!("^(?:{text})$"))) {
            Ok(regex) => return Ok((Matcher::Regex(regex), size)),
            Err(Error::CompiledTooBig(_)) => {}
            Err(e) => return Err(Refused::Syntax(reason(&e))),
        }
    }
    Err(Refused::TooBig)
}

/// The last line of the library's message, which draws the expression in those above.
fn reason(error: &Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(text: &'static str, channel: &str) -> bool {
        let mut subscriptions = Subscriptions::default();
        subscriptions.add(Bytes::from_static(text.as_bytes()), 10).unwrap();
        subscriptions.matches(channel)
    }

    #[test]
    fn the_whole_name_has_to_match() {
        assert!(wants("POSE", "POSE") && !wants("POSE", "POSE2") && !wants("OSE", "POSE"));
        assert!(wants("CAM_[0-9]+", "CAM_12") && !wants("CAM_[0-9]+", "CAM_12_RAW"));
        assert!(wants("A|B", "B") && !wants("A|B", "AX") && wants(".*", "") && wants("", ""));
    }

    #[test]
    fn what_is_no_expression_is_refused_with_the_reason() {
        let mut subscriptions = Subscriptions::default();
        let mut refused = |text: &'static str| {
            subscriptions.add(Bytes::from_static(text.as_bytes()), 10).unwrap_err().to_string()
        };
        assert_eq!(refused("CAM("), "is no regular expression: unclosed group");
        assert!(refused("(?!CAM).*").contains("look-around"));
        assert!(refused("A)|(B").contains("unopened group"));
        assert!(refused("(a{1000}){1000}").contains("needs more than 1024 KiB"));
    }

    #[test]
    fn a_subscription_ends_when_it_was_ended_as_often_as_made() {
        let mut subscriptions = Subscriptions::default();
        let text = Bytes::from_static(b"A+");
        subscriptions.add(text.clone(), 10).unwrap();
        subscriptions.add(text.clone(), 10).unwrap();
        assert!(subscriptions.remove(&text) && subscriptions.matches("AA"));
        assert!(subscriptions.remove(&text) && !subscriptions.matches("AA"));
        assert!(!subscriptions.remove(&text));
        assert_eq!((subscriptions.len(), subscriptions.cost), (0, 0));
    }

    #[test]
    fn number_and_memory_of_subscriptions_are_bounded() {
        let mut subscriptions = Subscriptions::default();
        let text = |n: u32| Bytes::from(format!("[a-z]{{1000}}{n}"));
        let refused = (0..2000).find_map(|n| subscriptions.add(text(n), 5000).err());
        assert_eq!(refused, Some(Refused::Budget));
        assert_eq!(Subscriptions::default().add(text(0), 0), Err(Refused::TooMany(0)));
    }

    #[test]
    fn names_that_are_no_utf_8_are_latin_1() {
        assert_eq!(readable(b"caf\xe9"), "café");
        assert_eq!(readable("café".as_bytes()), "café");
    }
}
