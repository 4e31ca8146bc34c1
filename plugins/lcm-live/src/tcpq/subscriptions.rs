//! The subscriptions of one client of a hub: regular expressions, within bounds.
//!
//! They are those of Java, as far as two libraries have them: one in linear time, and for
//! look-around, back-references and the like one that backtracks, up to a limit. It does not cache
//! matches; the [`hub`](super::hub) does.

use std::borrow::Cow;

use bytes::Bytes;
use fancy_regex::Expr;
use regex::{Regex, RegexBuilder};

/// Size limits for a compiled expression, tried in this order. The library does not report the size
/// of an expression, only that it exceeds a limit.
const SIZE_LIMITS: [usize; 5] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, MAX_SIZE];
const MAX_SIZE: usize = 4 << 20;

/// Memory for all expressions of a client.
const BUDGET: usize = 16 << 20;

/// Cache that each matching thread may keep per expression.
const DFA_SIZE_LIMIT: usize = 256 << 10;
/// That of each part of an expression that backtracks.
const PART_DFA_SIZE_LIMIT: usize = 32 << 10;
/// Longest name, in bytes, that an expression that backtracks is applied to.
const MAX_BACKTRACKING_NAME_LEN: usize = 256;
/// About how many steps it may take on one name, which bounds its time to a fraction of a second.
const MAX_STEPS: usize = 1_000_000;
/// And without backtracking, which is all that its library limits.
const MAX_STEPS_AHEAD: usize = 10_000;
/// Memory for each of the latter: a place to return to, and a value to restore.
const STEP_SIZE: usize = 40;

/// Why a subscription is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SubscriptionError {
    #[error("is not a regular expression: {0}")]
    Syntax(String),
    #[error(
        "is a regular expression that needs more than {} KiB",
        MAX_SIZE >> 10
    )]
    TooBig,
    #[error("is a regular expression that repeats too often for one with look-around or the like")]
    TooManySteps,
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
    /// With look-around or the like.
    Backtracking(fancy_regex::Regex),
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
            // Beyond the limit, a message too many is sent: clients select again themselves.
            ChannelMatcher::Backtracking(regex) => {
                channel.len() > MAX_BACKTRACKING_NAME_LEN || regex.is_match(channel).unwrap_or(true)
            }
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
    let text = &*without_quotes(text);
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
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(e) => return compile_backtracking(text, &e),
        }
    }
    Err(SubscriptionError::TooBig)
}

/// Compiles an expression that is no regular one in the strict sense, because of `error`.
fn compile_backtracking(
    text: &str,
    error: &regex::Error,
) -> Result<(ChannelMatcher, usize), SubscriptionError> {
    use fancy_regex::{CompileError, Error};
    // The other library says it better, unless it has no look-around and so on.
    let syntax = |e: Error| {
        let reason = reason(error);
        let is_missing = reason.contains("not supported");
        SubscriptionError::Syntax(if is_missing { e.to_string() } else { reason })
    };
    let steps = steps_ahead(&Expr::parse_tree(text).map_err(syntax)?.expr, false)?;
    if steps > MAX_STEPS_AHEAD {
        return Err(SubscriptionError::TooManySteps);
    }
    // It consists of parts with limits of their own, between which there is such a character.
    let parts = 1 + text.bytes().filter(|byte| b"(|\\*+?{".contains(byte)).count();
    for size in SIZE_LIMITS.into_iter().take_while(|size| size * parts <= MAX_SIZE) {
        let build = |text: &str| {
            fancy_regex::RegexBuilder::new(text)
                .backtrack_limit(MAX_STEPS / steps)
                .delegate_size_limit(size)
                .delegate_dfa_size_limit(PART_DFA_SIZE_LIMIT)
                .max_prog_size(MAX_SIZE / size)
                .build()
        };
        let built = build(text).and_then(|_| build(&format!(r"\A(?:{text})\z")));
        match built {
            Ok(regex) => {
                let size = size * parts + STEP_SIZE * steps;
                return Ok((ChannelMatcher::Backtracking(regex), size));
            }
            Err(Error::CompileError(e)) => match *e {
                CompileError::InnerError(_) | CompileError::PatternTooComplex => {}
                other => return Err(SubscriptionError::Syntax(other.to_string())),
            },
            Err(e) => return Err(syntax(e)),
        }
    }
    Err(SubscriptionError::TooBig)
}

/// About how many steps an expression takes on a name without backtracking, from one position.
///
/// `is_in_loop`: iterations of an endless repetition around it consume the name. Those within it,
/// except in look-around, share the name, and end by one empty iteration.
///
/// `Err` for what Java does not have, some of which would make this wrong.
fn steps_ahead(expr: &Expr, is_in_loop: bool) -> Result<usize, SubscriptionError> {
    let (times, is_in_loop) = match *expr {
        Expr::Repeat { lo, hi: usize::MAX, .. } => {
            (lo.max(if is_in_loop { 2 } else { MAX_BACKTRACKING_NAME_LEN }), true)
        }
        Expr::Repeat { lo, hi, .. } => (lo.max(hi).max(1), is_in_loop),
        Expr::LookAround(..) => (1, false),
        Expr::SubroutineCall(_)
        | Expr::DefineGroup { .. }
        | Expr::Conditional { .. }
        | Expr::BackrefExistsCondition { .. }
        | Expr::BackrefWithRelativeRecursionLevel { .. }
        | Expr::BacktrackingControlVerb(_)
        | Expr::Absent(_)
        | Expr::AstNode(..) => {
            let reason =
                "it contains a subroutine call, condition or other construct unknown to Java";
            return Err(SubscriptionError::Syntax(reason.to_owned()));
        }
        _ => (1, is_in_loop),
    };
    let add = |steps: usize, child| Ok(steps.saturating_add(steps_ahead(child, is_in_loop)?));
    Ok(expr.children_iter().try_fold(1, add)?.saturating_mul(times))
}

/// The expression with what is between `\Q` and `\E` escaped character by character.
fn without_quotes(text: &str) -> Cow<'_, str> {
    if !text.contains(r"\Q") {
        return text.into();
    }
    let (mut unquoted, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        unquoted += before;
        if let Some(quoted) = escape.strip_prefix(r"\Q") {
            let (literal, after) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
            unquoted += &regex::escape(literal);
            rest = after;
        } else {
            let len = escape.chars().take(2).map(char::len_utf8).sum();
            let (escaped, after) = escape.split_at(len);
            unquoted += escaped;
            rest = after;
        }
    }
    (unquoted + rest).into()
}

/// The last line of the library's message; the lines above draw the expression.
fn reason(error: &regex::Error) -> String {
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
        assert!(refused("(?!CAM").contains("without closing parenthesis"));
        assert!(refused("A)|(B").contains("unopened group"));
        assert!(refused("A)|(?=B)(B").contains("unopened group"));
        assert!(refused("(?<=A+)B").contains("lookbehind"));
        assert!(refused("(a{1000}){1000}").contains("needs more than 4096 KiB"));
        assert!(refused("(?!\\pL{1000})x").contains("needs more than 4096 KiB"));
    }

    #[test]
    fn expressions_of_java_are_served() {
        assert!(wants("(?!CAM).*", "POSE") && !wants("(?!CAM).*", "CAM_1"));
        assert!(wants(".*(?<!_RAW)", "POSE") && !wants(".*(?<!_RAW)", "POSE_RAW"));
        assert!(wants("A(?=B)B", "AB") && !wants("A(?=B)B", "A") && !wants("(?!B)A", "AB"));
        assert!(wants("(A|B)_\\1", "A_A") && !wants("(A|B)_\\1", "A_B"));
        assert!(wants("POSE\\Z", "POSE") && !wants("POSE\\Z", "POSE2"));
        assert!(wants("\\QX.Y\\E", "X.Y") && !wants("\\QX.Y\\E", "XZY"));
        assert!(wants("\\QA(\\E[0-9]", "A(1") && wants("\\QA|B", "A|B") && wants("\\\\Q.", "\\QA"));
        assert!(wants(".{1,2000}", "POSE") && wants("(?!x)\\w+", "café"));
    }

    #[test]
    fn an_expression_that_backtracks_too_long_matches() {
        let names = "(?=a)(a*)*(a*)*\\1b";
        assert!(wants(names, &"a".repeat(63)) && !wants(names, "x"));
    }

    #[test]
    fn an_expression_that_repeats_too_often_is_refused() {
        let refused = |text: &str| {
            let mut subscriptions = Subscriptions::default();
            subscriptions.add(Bytes::copy_from_slice(text.as_bytes()), 10).unwrap_err()
        };
        for text in [
            "((?=.)){4000000000}.*",
            "((?=.)|x){0,4000000000}",
            "((?=.)){4000000000,}.*",
            "(((?=.)){200}){200}",
            "(?=a)(?:aa){9223372036854775808}",
            "(?=a)((a?){18446744073709551615})\\2",
            // Empty iterations end loops without backtracking.
            "(?:(?=(?:(?=(?:(?=.)[a-z]?)*)[a-z]?)*)[a-z]?)*",
        ] {
            assert_eq!(refused(text), SubscriptionError::TooManySteps, "{text}");
        }
        for text in ["(\\pL(?=x))(\\g<1>\\g<1>)", "(a)?(?(1)b|c)", "(?~a)(?=b)", "(*COMMIT)(?=a)"] {
            let error = refused(text).to_string();
            assert!(error.contains("unknown to Java"), "{text}: {error}");
        }
    }

    #[test]
    fn expressions_that_repeat_within_reason_are_served() {
        let tempered = "(?:(?!RAW).)*_(?:(?!OLD|RAW).)*";
        assert!(wants(tempered, "CAM_1") && !wants(tempered, "CAM_1_RAW"));
        assert!(wants("(?!CAM)([A-Z]+_)*[A-Z]{1,20}", "LONG_CHANNEL_NAME"));
        let all = "(?=.*A)(?=.*B)(?=.*C).*";
        assert!(wants(all, "CAB") && !wants(all, "CAX"));
    }

    #[test]
    fn names_too_long_to_backtrack_over_match() {
        assert!(!wants("(?!a).*", &"a".repeat(256)) && wants("(?!a).*", &"a".repeat(257)));
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
