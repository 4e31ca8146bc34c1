//! Pushdown of conditions on times, channels and sources. A condition is pushed down only if that
//! evaluates it exactly; the others stay filters.

use arrow_schema::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Between, BinaryExpr, Cast, Expr, Operator, TryCast, expr::InList};
use sluice_kit::event_table::{CHANNEL, SOURCE, TIMESTAMP, TableKind};
use sluice_model::{Channel, Query, time};

use super::channels::{ChannelAttribute, ChannelTest, like_pattern};

/// The pushed-down conditions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pushdown {
    /// At or after this time.
    start: Option<i64>,
    /// Before this time.
    end: Option<i64>,
    /// No event can match.
    is_empty: bool,
    channels: Vec<ChannelTest>,
}

impl Pushdown {
    /// The pushdown of a table without conditions.
    pub(crate) fn of_table(kind: &TableKind) -> Self {
        let channels = kind.channel().map(|name| ChannelTest::named(name));
        Self { channels: channels.into_iter().collect(), ..Self::default() }
    }

    /// Pushes a condition down. Returns `false` if it must stay a filter.
    pub(crate) fn add(&mut self, condition: &Expr, kind: &TableKind) -> bool {
        if let Some(times) = time_range(condition) {
            self.narrow(times);
            return true;
        }
        // A channel's table has no column `channel`.
        let has_name = matches!(kind, TableKind::Events);
        match channels(condition, has_name) {
            Some(test) => {
                self.channels.push(test);
                true
            }
            None => false,
        }
    }

    fn narrow(&mut self, times: TimeRange) {
        match times.first {
            TimeBound::At(first) => {
                self.start = Some(self.start.map_or(first, |start| start.max(first)))
            }
            TimeBound::Beyond => self.is_empty = true,
            TimeBound::Open => {}
        }
        // After the last possible timestamp, the end is open.
        if let Some(end) = times.last.and_then(|last| last.checked_add(1)) {
            self.end = Some(self.end.map_or(end, |known| known.min(end)));
        }
        self.is_empty |= times.none;
    }

    /// Whether no event can match.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty || self.start.zip(self.end).is_some_and(|(start, end)| start >= end)
    }

    /// Whether every event of a table matches.
    pub(crate) fn is_whole_table(&self, kind: &TableKind) -> bool {
        let of_table = usize::from(kind.channel().is_some());
        !self.is_empty() && !self.has_window() && self.channels.len() == of_table
    }

    /// Whether times are limited.
    pub(crate) fn has_window(&self) -> bool {
        self.start.is_some() || self.end.is_some()
    }

    /// Whether channels are limited.
    pub(crate) fn has_channels(&self) -> bool {
        !self.channels.is_empty()
    }

    pub(crate) fn wants_time(&self, timestamp: i64) -> bool {
        self.start.is_none_or(|start| timestamp >= start)
            && self.end.is_none_or(|end| timestamp < end)
    }

    pub(crate) fn wants_channel(&self, channel: &Channel) -> bool {
        self.channels.iter().all(|test| test.holds(channel))
    }

    /// The query for the source.
    pub(crate) fn query(&self) -> Query {
        let channels = ChannelTest::All(self.channels.clone()).query();
        Query { start: self.start, end: self.end, channels }
    }
}

impl std::fmt::Display for Pushdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show = |time: Option<i64>| time.map_or_else(|| "…".to_owned(), time::format);
        if self.has_window() {
            write!(f, ", window=[{}, {})", show(self.start), show(self.end))?;
        }
        if self.has_channels() {
            f.write_str(", channels=")?;
        }
        let tests: Vec<String> = self.channels.iter().map(describe).collect();
        f.write_str(&tests.join(" and "))
    }
}

fn describe(test: &ChannelTest) -> String {
    let all = |tests: &[ChannelTest], operator: &str| {
        let tests: Vec<String> = tests.iter().map(describe).collect();
        format!("({})", tests.join(operator))
    };
    let prefix = |attribute: &ChannelAttribute| {
        if *attribute == ChannelAttribute::Source { "source " } else { "" }
    };
    let not = |negated: &bool| if *negated { "not " } else { "" };
    match test {
        ChannelTest::Is { attribute, names, negated } => {
            format!("{}{}{names:?}", prefix(attribute), not(negated))
        }
        ChannelTest::Like { attribute, pattern, negated } => {
            format!("{}{}{}", prefix(attribute), not(negated), serde_json::json!(pattern))
        }
        ChannelTest::Any(tests) => all(tests, " or "),
        ChannelTest::All(tests) => all(tests, " and "),
    }
}

/// A range of times, inclusive on both ends.
struct TimeRange {
    first: TimeBound,
    last: Option<i64>,
    none: bool,
}

enum TimeBound {
    Open,
    At(i64),
    /// After the last possible timestamp.
    Beyond,
}

impl TimeRange {
    fn from(first: i64) -> Self {
        Self { first: TimeBound::At(first), last: None, none: false }
    }

    fn until(last: i64) -> Self {
        Self { first: TimeBound::Open, last: Some(last), none: false }
    }
}

/// The range of a condition that tests nothing but the timestamp.
fn time_range(condition: &Expr) -> Option<TimeRange> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            if is_timestamp(left) {
                range_of_comparison(*op, time_of(right)?)
            } else if is_timestamp(right) {
                range_of_comparison(op.swap()?, time_of(left)?)
            } else {
                None
            }
        }
        Expr::Between(Between { expr, negated: false, low, high }) if is_timestamp(expr) => {
            let (first, last) = (time_of(low)?, time_of(high)?);
            Some(TimeRange { first: TimeBound::At(first), last: Some(last), none: first > last })
        }
        _ => None,
    }
}

fn range_of_comparison(op: Operator, time: i64) -> Option<TimeRange> {
    Some(match op {
        Operator::Eq => TimeRange { first: TimeBound::At(time), last: Some(time), none: false },
        Operator::GtEq => TimeRange::from(time),
        Operator::Gt => {
            let first = time.checked_add(1).map_or(TimeBound::Beyond, TimeBound::At);
            TimeRange { first, last: None, none: false }
        }
        Operator::LtEq => TimeRange::until(time),
        Operator::Lt => match time.checked_sub(1) {
            Some(last) => TimeRange::until(last),
            None => TimeRange { none: true, ..TimeRange::until(time) },
        },
        _ => return None,
    })
}

/// The timestamp, possibly cast to another timestamp in nanoseconds: the same moment, as the column
/// is in UTC. Not for nested casts, which may reinterpret a local time in another zone.
fn is_timestamp(expr: &Expr) -> bool {
    match expr {
        Expr::Column(column) => column.name() == TIMESTAMP,
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            matches!(field.data_type(), DataType::Timestamp(TimeUnit::Nanosecond, _))
                && matches!(&**expr, Expr::Column(column) if column.name() == TIMESTAMP)
        }
        _ => false,
    }
}

fn time_of(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::TimestampNanosecond(time, _), _) => *time,
        _ => None,
    }
}

/// The test of a condition on nothing but channels and sources.
fn channels(condition: &Expr, has_name: bool) -> Option<ChannelTest> {
    let attribute_of = |expr: &Expr| match expr {
        Expr::Column(column) if column.name() == SOURCE => Some(ChannelAttribute::Source),
        Expr::Column(column) if has_name && column.name() == CHANNEL => {
            Some(ChannelAttribute::Name)
        }
        _ => None,
    };
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Or | Operator::And), right }) => {
            let (left, right) = (channels(left, has_name)?, channels(right, has_name)?);
            Some(if *op == Operator::Or {
                left.or(right)
            } else {
                ChannelTest::All(vec![left, right])
            })
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Eq | Operator::NotEq), right }) => {
            let (column, value) =
                if attribute_of(left).is_some() { (left, right) } else { (right, left) };
            let names = vec![text_of(value)?.to_owned()];
            Some(ChannelTest::Is {
                attribute: attribute_of(column)?,
                names,
                negated: *op == Operator::NotEq,
            })
        }
        Expr::InList(InList { expr, list, negated }) => {
            let names = list.iter().map(|name| text_of(name).map(str::to_owned));
            let names = names.collect::<Option<_>>()?;
            Some(ChannelTest::Is { attribute: attribute_of(expr)?, names, negated: *negated })
        }
        Expr::Like(pattern) if !pattern.case_insensitive && pattern.escape_char.is_none() => {
            let (attribute, negated) = (attribute_of(&pattern.expr)?, pattern.negated);
            Some(ChannelTest::Like {
                attribute,
                pattern: like_pattern(text_of(&pattern.pattern)?)?,
                negated,
            })
        }
        _ => None,
    }
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(scalar, _) => scalar.try_as_str().flatten(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::{col, lit};

    fn time(nanos: i64) -> Expr {
        lit(ScalarValue::TimestampNanosecond(Some(nanos), Some("UTC".into())))
    }

    fn pushdown(conditions: &[Expr]) -> Pushdown {
        let mut pushdown = Pushdown::default();
        assert!(conditions.iter().all(|condition| pushdown.add(condition, &TableKind::Events)));
        pushdown
    }

    #[test]
    fn conditions_on_times_become_a_window() {
        let window = |conditions: &[Expr]| (pushdown(conditions).start, pushdown(conditions).end);
        let ts = || col("timestamp");
        assert_eq!(window(&[ts().gt(time(5)), time(9).gt_eq(ts())]), (Some(6), Some(10)));
        assert_eq!(window(&[ts().between(time(1), time(2)), ts().lt(time(2))]), (Some(1), Some(2)));
        assert_eq!(window(&[ts().eq(time(4))]), (Some(4), Some(5)));
        assert_eq!(window(&[ts().lt_eq(time(i64::MAX))]), (None, None));
    }

    #[test]
    fn times_cast_to_another_zone_are_not_pushed_down() {
        let of =
            |zone: Option<&str>| DataType::Timestamp(TimeUnit::Nanosecond, zone.map(Into::into));
        let cast = |expr: Expr, zone| Expr::Cast(Cast::new(Box::new(expr), of(zone)));
        let local = cast(col("timestamp"), None);
        assert_eq!(pushdown(&[local.clone().gt(time(5))]).start, Some(6));
        let shifted = cast(local, Some("Europe/Berlin"));
        assert!(!Pushdown::default().add(&shifted.gt(time(5)), &TableKind::Events));
    }

    #[test]
    fn contradictory_times_match_nothing() {
        let ts = || col("timestamp");
        for none in
            [ts().gt(time(i64::MAX)), ts().lt(time(i64::MIN)), ts().between(time(2), time(1))]
        {
            assert!(pushdown(&[none]).is_empty());
        }
        assert!(pushdown(&[ts().gt(time(1)), ts().lt(time(2))]).is_empty());
        assert!(!pushdown(&[ts().eq(time(i64::MAX))]).is_empty());
        assert!(pushdown(&[ts().eq(time(i64::MAX))]).wants_time(i64::MAX));
    }

    #[test]
    fn other_conditions_stay_filters() {
        let mut pushdown = Pushdown::default();
        for left in [
            col("sequence").gt(lit(3i64)),
            col("channel").eq(lit("A")).or(col("sequence").eq(lit(1i64))),
            col("timestamp").not_eq(time(3)),
            col("channel").gt(lit("A")),
            col("channel").like(lit("a\\_b")),
        ] {
            assert!(!pushdown.add(&left, &TableKind::Events), "{left}");
        }
        let fields = TableKind::Payloads("A".into());
        assert!(!pushdown.add(&col("channel").eq(lit("A")), &fields), "a field may be called so");
    }
}
