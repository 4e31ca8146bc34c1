//! The subscriptions of one client of a hub: regular expressions, within bounds.
//!
//! It does not cache matches; the [`hub`](super::hub) does.

use std::borrow::Cow;

use bytes::Bytes;
use regex::{Error, Regex, RegexBuilder};

/// Size limits for a compiled expression, tried in this order. The library does not report the size
/// of an expression, only that it exceeds a limit.
const SIZE_LIMITS: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Memory for all expressions of a client.
const BUDGET: usize = 16 << 20;

/// Cache that each matching thread may keep per expression.
const DFA_SIZE_LIMIT: usize = 256 << 10;

/// Why a subscription is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SubscriptionError {
    #[error("is not a regular expression: {0}")]
    Syntax(String),
    #[error(
        "is a regular expression that needs more than {} KiB",
        SIZE_LIMITS[SIZE_LIMITS.len() - 1] >> 10
    )]
    TooBig,
    #[error("exceeds the limit of {0} subscriptions")]
    TooMany(usize),
    #[error("exceeds the limit of {} MiB for regular expressions", BUDGET >> 20)]
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
    /// How often it was made: it ends when it was cancelled as often.
    count: usize,
    matcher: ChannelMatcher,
    cost: usize,
}

#[derive(Debug)]
enum ChannelMatcher {
    /// Most subscriptions are a channel name.
    Name(String),
    Regex(Regex),
}

impl Subscriptions {
    /// Adds one. On `Err` nothing changes.
    pub(super) fn add(&mut self, text: Bytes, limit: usize) -> Result<(), SubscriptionError> {
        if self.len() >= limit {
            return Err(SubscriptionError::TooMany(limit));
        }
        if let Some(known) = self.all.iter_mut().find(|known| known.text == text) {
            known.count += 1;
            return Ok(());
        }
        let (matcher, size) = compile(&readable(&text))?;
        let cost = size + text.len();
        if self.cost + cost > BUDGET {
            return Err(SubscriptionError::Budget);
        }
        self.cost += cost;
        self.all.push(Subscription { text, count: 1, matcher, cost });
        Ok(())
    }

    /// Removes one; `false` if none has this text.
    pub(super) fn remove(&mut self, text: &[u8]) -> bool {
        let Some(place) = self.all.iter().position(|known| known.text == text) else {
            return false;
        };
        let known = &mut self.all[place];
        known.count -= 1;
        if known.count == 0 {
            self.cost -= known.cost;
            self.all.remove(place);
        }
        true
    }

    /// Whether one of them matches the whole name.
    pub(super) fn matches(&self, channel: &str) -> bool {
        self.all.iter().any(|one| match &one.matcher {
            ChannelMatcher::Name(name) => name == channel,
            ChannelMatcher::Regex(regex) => regex.is_match(channel),
        })
    }

    /// Number of subscriptions, including repeated ones.
    pub(super) fn len(&self) -> usize {
        self.all.iter().map(|one| one.count).sum()
    }
}

/// Names and expressions as text: UTF-8, or else Latin-1.
pub(super) fn readable(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// Compiles a matcher for whole names. Returns it with its memory limit.
fn compile(text: &str) -> Result<(ChannelMatcher, usize), SubscriptionError> {
    if regex::escape(text) == text {
        return Ok((ChannelMatcher::Name(text.to_owned()), text.len()));
    }
    for size in SIZE_LIMITS {
        let build = |text: &str| {
            RegexBuilder::new(text).size_limit(size).dfa_size_limit(DFA_SIZE_LIMIT).build()
        };
        // First as it is: `A)|(B` is invalid, but would be valid in parentheses.
        match build(text).and_then(|_| build(&format!("^(?:{text})$"))) {
            Ok(regex) => return Ok((ChannelMatcher::Regex(regex), size)),
            Err(Error::CompiledTooBig(_)) => {}
            Err(e) => return Err(SubscriptionError::Syntax(reason(&e))),
        }
    }
    Err(SubscriptionError::TooBig)
}

/// The last line of the library's message; the lines above draw the expression.
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
        assert_eq!(refused("CAM("), "is not a regular expression: unclosed group");
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
        assert_eq!(refused, Some(SubscriptionError::Budget));
        assert_eq!(Subscriptions::default().add(text(0), 0), Err(SubscriptionError::TooMany(0)));
    }

    #[test]
    fn names_that_are_no_utf_8_are_latin_1() {
        assert_eq!(readable(b"caf\xe9"), "café");
        assert_eq!(readable("café".as_bytes()), "café");
    }
}
