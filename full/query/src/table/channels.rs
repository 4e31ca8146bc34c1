//! Conditions on channels and sources: evaluated exactly as in SQL, and converted to queries for
//! sources.

use sluice_model::{Channel, ChannelQuery, Pattern, Patterns};

/// A condition on the channel of an event.
#[derive(Clone, Debug)]
pub(crate) enum ChannelTest {
    /// The attribute is, or is not, one of these names.
    Is { attribute: ChannelAttribute, names: Vec<String>, negated: bool },
    /// The attribute matches the pattern, or does not.
    Like { attribute: ChannelAttribute, pattern: Pattern, negated: bool },
    /// Any of these holds.
    Any(Vec<Self>),
    /// All of these hold.
    All(Vec<Self>),
}

/// The attribute of a channel that a condition tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelAttribute {
    Name,
    Source,
}

impl ChannelAttribute {
    fn value(self, channel: &Channel) -> &str {
        match self {
            Self::Name => channel.name.text(),
            Self::Source => &channel.source,
        }
    }
}

impl ChannelTest {
    /// Accepts the channel with exactly this name.
    pub(crate) fn named(name: &str) -> Self {
        Self::Is { attribute: ChannelAttribute::Name, names: vec![name.to_owned()], negated: false }
    }

    /// Either condition. Joins lists of names: DataFusion rewrites short IN lists to ORs.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Is { attribute: a, names: mut all, negated: false },
                Self::Is { attribute: b, names, negated: false },
            ) if a == b => {
                all.extend(names);
                Self::Is { attribute: a, names: all, negated: false }
            }
            (left, right) => Self::Any(vec![left, right]),
        }
    }

    pub(crate) fn holds(&self, channel: &Channel) -> bool {
        match self {
            Self::Is { attribute, names, negated } => {
                let attribute = attribute.value(channel);
                names.iter().any(|name| name == attribute) != *negated
            }
            Self::Like { attribute, pattern, negated } => {
                pattern.matches(attribute.value(channel)) != *negated
            }
            Self::Any(tests) => tests.iter().any(|test| test.holds(channel)),
            Self::All(tests) => tests.iter().all(|test| test.holds(channel)),
        }
    }

    /// The query for a source: it covers every channel that passes, and maybe more.
    pub(crate) fn query(&self) -> ChannelQuery {
        match self {
            Self::Is { attribute, names, negated } => {
                let patterns: Option<Vec<Pattern>> =
                    names.iter().map(|name| exact_pattern(name)).collect();
                patterns.map_or_else(ChannelQuery::default, |patterns| {
                    query(*attribute, patterns, *negated)
                })
            }
            Self::Like { attribute, pattern, negated } => {
                query(*attribute, vec![pattern.clone()], *negated)
            }
            Self::Any(tests) => {
                let all = tests.iter().map(Self::query).reduce(ChannelQuery::or);
                all.unwrap_or_default()
            }
            Self::All(tests) => {
                let all = tests.iter().map(Self::query);
                all.fold(ChannelQuery::default(), |all, query| all.and(&query))
            }
        }
    }
}

fn query(attribute: ChannelAttribute, patterns: Vec<Pattern>, negated: bool) -> ChannelQuery {
    let (none, patterns) = (Patterns::default(), Patterns(patterns));
    match (attribute, negated) {
        (ChannelAttribute::Name, false) => ChannelQuery::from_patterns(&patterns, &none, &none),
        (ChannelAttribute::Name, true) => ChannelQuery::from_patterns(&none, &patterns, &none),
        (ChannelAttribute::Source, false) => ChannelQuery::from_patterns(&none, &none, &patterns),
        // Source queries cannot exclude sources: such events are read and dropped.
        (ChannelAttribute::Source, true) => ChannelQuery::default(),
    }
}

/// A pattern that matches one name. `None` if there is none.
fn exact_pattern(name: &str) -> Option<Pattern> {
    let plain = Pattern::parse(name).ok().filter(|pattern| pattern.as_name() == Some(name));
    plain.or_else(|| Pattern::parse(&format!("re:{}", escape_regex(name))).ok())
}

/// The pattern for SQL's `LIKE`. `None` if it has escapes.
pub(crate) fn like_pattern(pattern: &str) -> Option<Pattern> {
    if pattern.contains('\\') {
        return None;
    }
    let each = pattern.chars().map(|c| match c {
        '%' => ".*".to_owned(),
        '_' => ".".to_owned(),
        c => escape_regex(c.encode_utf8(&mut [0; 4])),
    });
    Pattern::parse(&format!("re:(?s:{})", each.collect::<String>())).ok()
}

/// A regular expression that matches exactly this text.
fn escape_regex(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        c if c.is_ascii_punctuation() => format!("\\{c}"),
        c => c.to_string(),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::{Encoding, Name};

    fn channel(name: &str, source: &str) -> Channel {
        Channel::new(Name::from_text(name), source, Encoding::Lcm)
    }

    #[test]
    fn special_characters_in_names_match_literally() {
        for name in ["POSE", "a*b", "re:x", "x[1]", "ä\nb", "{a,b}", "", "a b#c~d&e-f", "(?s:x)"] {
            let test = ChannelTest::named(name);
            let query = test.query();
            assert!(test.holds(&channel(name, "s")) && query.wants(name, "s"), "{name}");
            for other in ["aXb", "a", "x1", "x"] {
                assert_eq!(test.holds(&channel(other, "s")), other == name);
                assert!(!query.wants(other, "s"), "{name} {other}");
            }
        }
    }

    #[test]
    fn like_patterns_match_as_in_sql() {
        let matches = |pattern: &str, name: &str| like_pattern(pattern).unwrap().matches(name);
        assert!(matches("CAM_%", "CAMX") && matches("%", "a\nb") && matches("A.B", "A.B"));
        assert!(!matches("A.B", "AxB") && !matches("CAM%", "XCAM") && !matches("a", "A"));
        assert!(like_pattern("a\\_b").is_none());
    }

    #[test]
    fn source_queries_cover_every_matching_channel() {
        let attribute = ChannelAttribute::Source;
        let not_x = ChannelTest::Is { attribute, names: vec!["x".into()], negated: true };
        let tests = [
            ChannelTest::named("A").or(not_x.clone()),
            ChannelTest::named("A").or(ChannelTest::named("B")),
            ChannelTest::All(vec![ChannelTest::named("A"), not_x.clone()]),
            ChannelTest::Any(Vec::new()),
            ChannelTest::Like {
                attribute: ChannelAttribute::Name,
                pattern: like_pattern("A%").unwrap(),
                negated: true,
            },
            not_x,
        ];
        for test in tests {
            let query = test.query();
            for (name, source) in [("A", "x"), ("A", "y"), ("B", "x"), ("B", "y")] {
                let holds = test.holds(&channel(name, source));
                assert!(!holds || query.wants(name, source), "{test:?} {name} {source}");
            }
        }
    }
}
