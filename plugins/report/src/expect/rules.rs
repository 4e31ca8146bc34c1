//! Expectations, and the TOML files that hold them. Compares nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Deserializer};
use sluice_io::files;
use sluice_kit::mistake::Mistake;
use sluice_kit::suggestion;
use sluice_model::schemars::{JsonSchema, Schema, SchemaGenerator};
use sluice_model::time::TimeSpan;
use sluice_model::{Error, FieldPath, Pattern, Patterns};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::limit::Limit;
use super::values::{
    CountRange, DroppedShare, DurationRange, FieldRange, LatencyRange, MustExist, RateRange,
};

/// A longer file is not one of expectations.
const MAX_FILE: usize = 4 << 20;
/// Further mistakes are counted, not shown.
const MOST_SHOWN: usize = 100;

/// What a log is expected to be.
#[derive(Clone, Debug)]
pub struct Expectations {
    /// The file's name, without folders.
    name: String,
    /// The offsets at which lines start.
    lines: Vec<usize>,
    /// The hash of the text.
    hash: blake3::Hash,
    /// Those of the whole log.
    pub log: LogRules,
    /// Those of channels, in the order of the file.
    pub channels: Vec<ChannelExpectation>,
}

/// The rules of all channels that match a pattern.
#[derive(Clone, Debug)]
pub struct ChannelExpectation {
    /// The pattern.
    pub pattern: Pattern,
    /// Where it is in the file.
    pub offset: usize,
    /// Its rules.
    pub rules: ChannelRules,
}

/// A value and where it is in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule<T> {
    /// The value.
    pub value: T,
    /// The offset in the file.
    pub offset: usize,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Rule<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        let offset = spanned.span().start;
        Ok(Self { value: spanned.into_inner(), offset })
    }
}

impl<T: JsonSchema> JsonSchema for Rule<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

/// The content of a file of expectations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectationsFile {
    #[serde(default)]
    log: LogRules,
    #[serde(default)]
    channels: BTreeMap<Spanned<String>, ChannelRules>,
}

/// Expectations of a whole log. Rules that are left out are not compared.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
#[schemars(crate = "sluice_model::schemars")]
pub struct LogRules {
    /// How many bytes may be damaged: 0, a size such as `"64KiB"`, or a share such as `"0.1%"`.
    pub damage: Option<Rule<Limit>>,
    /// The time from the first to the last event.
    pub duration: Option<Rule<DurationRange>>,
    /// The number of events.
    pub count: Option<Rule<CountRange>>,
    /// Whether every channel of the log must match a pattern of the file.
    pub no_other_channels: Option<Rule<bool>>,
    /// How many events may have a number that does not follow that of the event before: events are
    /// lost there.
    pub missing_numbers: Option<Rule<Limit>>,
    /// How many events may be earlier than the event before.
    pub time_back: Option<Rule<Limit>>,
}

/// Expectations of the channels that match a pattern, each on its own. Rules that are left out are
/// not compared.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
#[schemars(crate = "sluice_model::schemars")]
pub struct ChannelRules {
    /// Whether a channel must match: `true` (the default), `false`, or `"warn"` for a note only.
    pub must_exist: Option<Rule<MustExist>>,
    /// The names of the types of its messages: names, globs, or `re:` and a regular expression.
    #[serde(rename = "type")]
    pub types: Option<Rule<Patterns>>,
    /// The number of events.
    pub count: Option<Rule<CountRange>>,
    /// Events per second, by the median of intervals.
    pub rate: Option<Rule<RateRange>>,
    /// The longest time without an event. Without `starts_within` and `ends_within`, also from the
    /// first event of the log and to the last one.
    pub max_gap: Option<Rule<TimeSpan>>,
    /// The greatest share of intervals that are much longer than the median.
    pub dropped: Option<Rule<DroppedShare>>,
    /// How long after the first event of the log its first event may be.
    pub starts_within: Option<Rule<TimeSpan>>,
    /// How long before the last event of the log its last event may be.
    pub ends_within: Option<Rule<TimeSpan>>,
    /// How many events may have no decoded fields.
    pub undecoded: Option<Rule<Limit>>,
    /// How many events may be earlier than the one before them.
    pub time_back: Option<Rule<Limit>>,
    /// The time at which events were received less that of their messages.
    pub latency: Option<Rule<LatencyRange>>,
    /// Ranges of numeric fields, by path, such as `"vel[0]"`.
    #[serde(default)]
    pub fields: BTreeMap<String, Rule<FieldRange>>,
}

impl Expectations {
    /// Parses the text of a file called `name`. `Err` has all mistakes in it, by position.
    pub fn parse(name: &str, text: &str) -> Result<Self, Vec<Mistake>> {
        let file = DeTable::parse(text).map_err(|error| vec![toml_mistake(&error, text)])?;
        let (log, channels) = read_rules(&file, text)?;
        refuse_no_rule(&log, &channels)?;
        let lines = text.match_indices('\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(lines).collect();
        let hash = blake3::hash(text.as_bytes());
        Ok(Self { name: name.to_owned(), lines, hash, log, channels })
    }

    /// Reads a file.
    ///
    /// `Err` if it cannot be read, or shows the mistakes in it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let bytes = files::read_small(path, MAX_FILE)?;
        if bytes.len() > MAX_FILE {
            let what = "a file of expectations has at most 4 MiB";
            return Err(Error::refused(format!("{what}: {}", path.display())));
        }
        let shown = path.to_string_lossy();
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::refused(format!("expectations are text in UTF-8: {shown}")))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &text)
            .map_err(|mistakes| Error::refused(rendered(&mistakes, &shown, &text)))
    }

    /// A line that differs between different expectations.
    pub(crate) fn fingerprint(&self) -> String {
        format!("expectations, blake3 {}", self.hash.to_hex())
    }

    /// The place of an offset: the file's name and the line; empty if they are in no file.
    pub(crate) fn place(&self, offset: usize) -> String {
        if self.name.is_empty() {
            return String::new();
        }
        let line = self.lines.partition_point(|start| *start <= offset);
        format!("{}:{line}", self.name)
    }

    /// Whether a rule needs the values of fields.
    pub(crate) fn needs_values(&self) -> bool {
        let rules = self.channels.iter().map(|channel| &channel.rules);
        rules.into_iter().any(|rules| rules.latency.is_some() || !rules.fields.is_empty())
    }

    /// The paths of the fields whose values are compared.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        let paths = self.channels.iter().flat_map(|channel| channel.rules.fields.keys());
        paths.map(String::as_str)
    }
}

impl LogRules {
    /// Whether there is a log that does not meet them.
    fn is_any(&self) -> bool {
        let Self { damage, duration, count, no_other_channels, missing_numbers, time_back } = self;
        let has_limit = [damage, missing_numbers, time_back].into_iter().any(Option::is_some);
        let is_closed = no_other_channels.is_some_and(|rule| rule.value);
        has_limit || duration.is_some() || count.is_some() || is_closed
    }
}

impl ChannelRules {
    /// Whether there is a log that does not meet them, or that they note.
    fn is_any(&self) -> bool {
        let may_miss = self.must_exist.is_some_and(|rule| rule.value == MustExist::No);
        let has_range = self.count.is_some() || self.rate.is_some() || self.latency.is_some();
        let has_time = [self.max_gap, self.starts_within, self.ends_within];
        let has_limit = [self.undecoded, self.time_back].iter().any(Option::is_some);
        let has_time = has_time.iter().any(Option::is_some) || self.dropped.is_some();
        let has_content = self.types.is_some() || !self.fields.is_empty();
        !may_miss || has_range || has_time || has_limit || has_content
    }
}

/// Refuses a file without a rule. An empty one is more likely lost than meant.
fn refuse_no_rule(log: &LogRules, channels: &[ChannelExpectation]) -> Result<(), Vec<Mistake>> {
    if log.is_any() || channels.iter().any(|channel| channel.rules.is_any()) {
        return Ok(());
    }
    let message = "no rule, so any log would meet it".to_owned();
    let help = Some("add one, for example `damage = 0` below `[log]`".to_owned());
    Err(vec![Mistake { span: 0..0, message, help, detail: None }])
}

/// The rules of a file. `Err` has all mistakes in it.
fn read_rules(
    file: &Spanned<DeTable<'_>>,
    text: &str,
) -> Result<(LogRules, Vec<ChannelExpectation>), Vec<Mistake>> {
    let read = |table| read_table(Spanned::new(file.span(), table), text);
    read(file.get_ref().clone()).map_err(|first| {
        // One table shows one mistake: with one rule each, all of them.
        let single = single_rules(file.get_ref(), &mut Vec::new());
        let mut mistakes: Vec<_> = single.into_iter().filter_map(|rule| read(rule).err()).collect();
        mistakes.sort_by_key(|mistake| (mistake.span.start, mistake.span.end));
        // A wrong pattern is wrong for each rule below it.
        mistakes.dedup();
        if mistakes.is_empty() { vec![first] } else { mistakes }
    })
}

/// The rules of a file, or of a part of it. `Err` is the first mistake.
fn read_table(
    table: Spanned<DeTable<'_>>,
    text: &str,
) -> Result<(LogRules, Vec<ChannelExpectation>), Mistake> {
    let file = ExpectationsFile::deserialize(toml::Deserializer::from(table))
        .map_err(|error| toml_mistake(&error, text))?;
    let channel = |(name, mut rules): (Spanned<String>, ChannelRules)| {
        let span = name.span();
        rules.fields = checked_fields(rules.fields)?;
        check_types(rules.types.as_ref())?;
        let offset = span.start;
        let pattern = Pattern::parse(name.get_ref());
        let pattern =
            pattern.map_err(|message| Mistake { span, message, help: None, detail: None })?;
        Ok(ChannelExpectation { pattern, offset, rules })
    };
    let channels = file.channels.into_iter().map(channel);
    let mut channels = channels.collect::<Result<Vec<_>, Mistake>>()?;
    channels.sort_by_key(|channel| channel.offset);
    Ok((file.log, channels))
}

/// Tables of one rule each, which are the whole table together. `path` is where it is.
fn single_rules<'t>(table: &DeTable<'t>, path: &mut Vec<String>) -> Vec<DeTable<'t>> {
    let mut single = Vec::new();
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        let path_words: Vec<&str> = path.iter().map(String::as_str).collect();
        let is_group = matches!(
            path_words[..],
            ["log" | "channels"] | ["channels", _] | ["channels", _, "fields"]
        );
        let values = match value.get_ref() {
            DeValue::Table(inner) if is_group && !inner.is_empty() => {
                let mut inner = single_rules(inner, path);
                // A mistake in a rule hides one in the pattern.
                if matches!(path[..], [_, _]) {
                    inner.push(DeTable::new());
                }
                let inner = inner.into_iter();
                inner.map(|one| Spanned::new(value.span(), DeValue::Table(one))).collect()
            }
            _ => vec![value.clone()],
        };
        path.pop();
        single.extend(values.into_iter().map(|value| DeTable::from_iter([(key.clone(), value)])));
    }
    single
}

/// Refuses no name of a type, which no message has.
fn check_types(types: Option<&Rule<Patterns>>) -> Result<(), Mistake> {
    match types {
        Some(rule) if rule.value.0.iter().all(|pattern| pattern.text().is_empty()) => {
            let message = "expected the name of a type, found none".to_owned();
            let span = rule.offset..rule.offset + 1;
            Err(Mistake { span, message, help: None, detail: None })
        }
        _ => Ok(()),
    }
}

/// The rules by the usual spelling of their paths.
fn checked_fields(
    fields: BTreeMap<String, Rule<FieldRange>>,
) -> Result<BTreeMap<String, Rule<FieldRange>>, Mistake> {
    let each = fields.into_iter().map(|(path, rule)| {
        let path = FieldPath::parse(&path).and_then(|path| rule.value.check().map(|()| path));
        let path = path.map_err(|message| {
            let span = rule.offset..rule.offset + 1;
            Mistake { span, message, help: None, detail: None }
        })?;
        Ok((path.to_string(), rule))
    });
    each.collect()
}

/// These mistakes with their lines.
fn rendered(mistakes: &[Mistake], name: &str, text: &str) -> String {
    let count = match mistakes.len() {
        1 => "a mistake".to_owned(),
        all if all > MOST_SHOWN => format!("{all} mistakes, the first {MOST_SHOWN} are shown"),
        all => format!("{all} mistakes"),
    };
    let shown = mistakes.iter().take(MOST_SHOWN);
    let shown = shown.map(|mistake| format!("\n\n{}", mistake.render(name, text, false)));
    format!("the expectations have {count}{}", shown.collect::<String>())
}

/// The parser's error with its place, in plain words.
fn toml_mistake(error: &toml::de::Error, text: &str) -> Mistake {
    let span = error.span().unwrap_or(text.len()..text.len());
    let message = error.message().lines().next().unwrap_or_default();
    let unknown = unknown_key(message);
    let help = unknown.and_then(|(key, known)| {
        let near = suggestion::nearest(key, &known).map(|near| format!("did you mean `{near}`?"));
        let all = || format!("expected {}", known.join(", "));
        Some(near.unwrap_or_else(all)).filter(|_| !known.is_empty())
    });
    let message = match unknown_key(message) {
        Some((key, _)) => format!("unknown key `{key}`"),
        None => plainly(message),
    };
    Mistake { span: first_line(span, text), message, help, detail: None }
}

/// The key that `message` says is unknown, and the known ones.
fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    let (key, known) = message.strip_prefix("unknown field `")?.split_once('`')?;
    Some((key, known.split('`').skip(1).step_by(2).collect()))
}

/// serde's words in those of people.
fn plainly(message: &str) -> String {
    // Untagged enums report only their expectation.
    let message = match message.starts_with("a duration such as ") {
        true => format!("expected {message}"),
        false => message.to_owned(),
    };
    let words =
        [("expected f64", "expected a number"), ("expected u64", "expected a whole number")];
    words.iter().fold(message, |text, (from, to)| text.replace(from, to))
}

/// The part of a span on its first line.
fn first_line(span: Range<usize>, text: &str) -> Range<usize> {
    let rest = text.get(span.clone()).unwrap_or_default();
    span.start..span.start + rest.find('\n').unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Expectations, Vec<Mistake>> {
        Expectations::parse("expect.toml", text)
    }

    /// The line, column, message and help of the only mistake in a text.
    fn mistake(text: &str) -> (usize, usize, String, Option<String>) {
        let [mistake] = <[Mistake; 1]>::try_from(parse(text).unwrap_err()).unwrap();
        let (line, column) = mistake.position(text);
        (line, column, mistake.message, mistake.help)
    }

    #[test]
    fn rules_know_their_line() {
        let text = "[log]\ndamage = 0\n\n[channels.B]\nrate = 10\n[channels.\"A*\"]\n\
                    fields.\"vel[0]\" = { min = 1 }\n";
        let expectations = parse(text).unwrap();
        let place = |offset| expectations.place(offset);
        assert_eq!(place(expectations.log.damage.unwrap().offset), "expect.toml:2");
        let [b, a] = &expectations.channels[..] else { panic!("two") };
        assert_eq!((b.pattern.text(), a.pattern.text()), ("B", "A*"));
        assert_eq!(
            (place(b.offset), place(a.offset)),
            ("expect.toml:4".into(), "expect.toml:6".into())
        );
        assert_eq!(place(b.rules.rate.unwrap().offset), "expect.toml:5");
        assert_eq!(place(a.rules.fields["vel[0]"].offset), "expect.toml:7");
        assert_eq!(expectations.fields().count(), 1);
        assert!(expectations.needs_values());
    }

    #[test]
    fn mistakes_have_a_line_a_column_and_advice() {
        let (line, column, message, help) = mistake("[channels.A]\nmax_gab = \"1s\"\n");
        assert_eq!((line, column, message.as_str()), (2, 1, "unknown key `max_gab`"));
        assert_eq!(help.as_deref(), Some("did you mean `max_gap`?"));
        let (line, column, message, _) = mistake("[channels.A]\nmax_gap = \"soon\"\n");
        assert_eq!((line, column), (2, 11));
        assert!(message.contains("not a duration"), "{message}");
        let (line, _, message, _) = mistake("[log]\ndamage = 0\n[channels.\"re:(\"]\n");
        assert_eq!(line, 3);
        assert_eq!(message, "`(` is not a regular expression: unclosed group, at character 1");
        let (line, _, message, _) = mistake("[channels.A]\ntype = \"re:(\"\n");
        assert_eq!(line, 2);
        assert!(message.contains("`(` is not a regular expression: unclosed group"), "{message}");
        for text in ["log = -1\n", "[channels]\nA = 1\n"] {
            let (_, _, message, _) = mistake(text);
            assert!(message.ends_with("expected a table"), "{message}");
        }
        let (line, _, _, help) = mistake("[channel.A]\nrate = 1\n");
        assert_eq!((line, help.as_deref()), (1, Some("did you mean `channels`?")));
        let (line, ..) = mistake("[channels.A]\nrate = { hz = 10, tolerance = 2 }\n");
        assert_eq!(line, 2);
        for rule in ["rate = { min = 0 }", "count = { min = 0 }", "type = \"\"", "type = []"] {
            let (line, ..) = mistake(&format!("[channels.A]\n{rule}\n"));
            assert_eq!(line, 2, "{rule}");
        }
        let (_, _, message, _) = mistake("[channels.A]\nlatency = { median = {} }\n");
        assert!(message.starts_with("expected a duration such as "), "{message}");
        let (line, _, message, _) = mistake("[channels.A]\nfields.\"a[\" = { min = 1 }\n");
        assert_eq!(line, 2, "{message}");
        assert_eq!(mistake("[channels.A\n").0, 1);
    }

    #[test]
    fn all_mistakes_are_found_at_once() {
        let text = "[log]\nmissing_number = 0\ncount = -1\n\
                    [channels.G]\nrate = \"fast\"\nmaxgap = 1\n\
                    fields.\"a[\" = { min = 1 }\nfields.b = { min = 2, max = 1 }\n\
                    [channels.\"re:(\"]\nrate = 1\ncount = true\nmax_gap = 1\n\
                    [channels.R]\ncount = 1\n[others]\n\
                    [channels.\"re:[\"]\ncount = { min = 5, max = 2 }\n";
        let mistakes = parse(text).unwrap_err();
        let lines = mistakes.iter().map(|mistake| mistake.position(text).0);
        assert_eq!(lines.collect::<Vec<_>>(), [2, 3, 5, 6, 7, 8, 9, 11, 15, 16, 17]);
        let shown = rendered(&mistakes, "expect.toml", text);
        assert!(shown.starts_with("the expectations have 11 mistakes\n\nerror: "), "{shown}");
        assert!(shown.contains("`missing_number`") && shown.contains("`others`"), "{shown}");
        let many: String = (0..200).map(|key| format!("key_{key} = 1\n")).collect();
        let shown = rendered(&parse(&many).unwrap_err(), "expect.toml", &many);
        assert!(shown.starts_with("the expectations have 200 mistakes, the first 100 are shown"));
        assert_eq!(shown.matches("error: ").count(), 100);
    }

    #[test]
    fn expectations_without_a_rule_are_a_mistake() {
        let without = [
            "",
            "# damage = 0\n",
            "[log]\n",
            "[log]\n[channels]\n",
            "[log]\nno_other_channels = false\n",
            "[channels.A]\nmust_exist = false\n",
            "[channels.A]\nmust_exist = false\nfields = {}\n",
        ];
        for text in without {
            let (line, column, message, help) = mistake(text);
            assert_eq!((line, column), (1, 1), "{text}");
            assert!(message.contains("no rule, so any log would meet it"), "{message}");
            assert!(help.unwrap().contains("damage = 0"));
        }
        // A channel must exist.
        for text in ["[channels.A]\n", "[log]\nno_other_channels = true\n"] {
            assert!(!parse(text).unwrap().needs_values(), "{text}");
        }
    }
}
