//! What conditions of a query say of times and channels: so exactly that nothing is left to try of those,
//! and as what a source can be told. Other conditions are left to whoever asks.

use arrow_schema::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Between, BinaryExpr, Cast, Expr, Operator, TryCast, expr::InList};
use sluice_core::{Channel, Query, time};

use super::channels::{ChannelTest, Word, like};
use super::columns::{CHANNEL, SOURCE, Shape, TIMESTAMP};

/// Which events are wanted, as far as times and channels say it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// At or after this time.
    start: Option<i64>,
    /// Before this time.
    end: Option<i64>,
    /// None at all.
    nothing: bool,
    channels: Vec<ChannelTest>,
}

impl Wanted {
    /// The events of a table.
    pub(crate) fn of_table(shape: &Shape) -> Self {
        let channels = shape.channel().map(|name| ChannelTest::named(name));
        Self { channels: channels.into_iter().collect(), ..Self::default() }
    }

    /// Takes over what a condition says, if that is all it says.
    pub(crate) fn add(&mut self, condition: &Expr, shape: &Shape) -> bool {
        if let Some(times) = times(condition) {
            self.narrow(times);
            return true;
        }
        // A table of one channel has no such column.
        let has_name = matches!(shape, Shape::Events);
        match channels(condition, has_name) {
            Some(test) => {
                self.channels.push(test);
                true
            }
            None => false,
        }
    }

    fn narrow(&mut self, times: Times) {
        match times.first {
            Bound::At(first) => {
                self.start = Some(self.start.map_or(first, |start| start.max(first)))
            }
            Bound::Beyond => self.nothing = true,
            Bound::Open => {}
        }
        // A time behind the last that can be held is no bound.
        if let Some(end) = times.last.and_then(|last| last.checked_add(1)) {
            self.end = Some(self.end.map_or(end, |known| known.min(end)));
        }
        self.nothing |= times.none;
    }

    /// Whether no event can be wanted.
    pub(crate) fn is_nothing(&self) -> bool {
        self.nothing || self.start.zip(self.end).is_some_and(|(start, end)| start >= end)
    }

    /// Whether times are wanted that others are not.
    pub(crate) fn has_window(&self) -> bool {
        self.start.is_some() || self.end.is_some()
    }

    /// Whether channels are wanted that others are not.
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

    /// What a source can be told.
    pub(crate) fn query(&self) -> Query {
        let channels = ChannelTest::All(self.channels.clone()).query();
        Query { start: self.start, end: self.end, channels }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let said = |time: Option<i64>| time.map_or_else(|| "…".to_owned(), time::format);
        if self.has_window() {
            write!(f, ", window=[{}, {})", said(self.start), said(self.end))?;
        }
        if self.has_channels() {
            f.write_str(", channels=")?;
        }
        let tests: Vec<String> = self.channels.iter().map(told).collect();
        f.write_str(&tests.join(" and "))
    }
}

fn told(test: &ChannelTest) -> String {
    let all = |tests: &[ChannelTest], word: &str| {
        let tests: Vec<String> = tests.iter().map(told).collect();
        format!("({})", tests.join(word))
    };
    let word = |of: &Word| if *of == Word::Source { "source " } else { "" };
    let not = |negated: &bool| if *negated { "not " } else { "" };
    match test {
        ChannelTest::Is { of, names, negated } => {
            format!("{}{}{names:?}", word(of), not(negated))
        }
        ChannelTest::Like { of, pattern, negated } => {
            format!("{}{}{}", word(of), not(negated), serde_json::json!(pattern))
        }
        ChannelTest::Any(tests) => all(tests, " or "),
        ChannelTest::All(tests) => all(tests, " and "),
    }
}

/// Times from one to another, both included.
struct Times {
    first: Bound,
    last: Option<i64>,
    none: bool,
}

enum Bound {
    Open,
    At(i64),
    /// Behind every time that can be held.
    Beyond,
}

impl Times {
    fn from(first: i64) -> Self {
        Self { first: Bound::At(first), last: None, none: false }
    }

    fn until(last: i64) -> Self {
        Self { first: Bound::Open, last: Some(last), none: false }
    }
}

/// What a condition says of times, if it is about nothing else.
fn times(condition: &Expr) -> Option<Times> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            if is_timestamp(left) {
                compared(*op, time_of(right)?)
            } else if is_timestamp(right) {
                compared(op.swap()?, time_of(left)?)
            } else {
                None
            }
        }
        Expr::Between(Between { expr, negated: false, low, high }) if is_timestamp(expr) => {
            let (first, last) = (time_of(low)?, time_of(high)?);
            Some(Times { first: Bound::At(first), last: Some(last), none: first > last })
        }
        _ => None,
    }
}

fn compared(op: Operator, time: i64) -> Option<Times> {
    Some(match op {
        Operator::Eq => Times { first: Bound::At(time), last: Some(time), none: false },
        Operator::GtEq => Times::from(time),
        Operator::Gt => {
            let first = time.checked_add(1).map_or(Bound::Beyond, Bound::At);
            Times { first, last: None, none: false }
        }
        Operator::LtEq => Times::until(time),
        Operator::Lt => match time.checked_sub(1) {
            Some(last) => Times::until(last),
            None => Times { none: true, ..Times::until(time) },
        },
        _ => return None,
    })
}

/// The timestamp, maybe as another column of nanoseconds: that is the same moment, as it is in UTC. A second
/// cast may be of one that is in no zone, which takes it for a time of another.
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

/// What a condition says of channels and sources, if it is about nothing else.
fn channels(condition: &Expr, has_name: bool) -> Option<ChannelTest> {
    let word = |expr: &Expr| match expr {
        Expr::Column(column) if column.name() == SOURCE => Some(Word::Source),
        Expr::Column(column) if has_name && column.name() == CHANNEL => Some(Word::Name),
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
            let (column, value) = if word(left).is_some() { (left, right) } else { (right, left) };
            let names = vec![text_of(value)?.to_owned()];
            Some(ChannelTest::Is { of: word(column)?, names, negated: *op == Operator::NotEq })
        }
        Expr::InList(InList { expr, list, negated }) => {
            let names = list.iter().map(|name| text_of(name).map(str::to_owned));
            let names = names.collect::<Option<_>>()?;
            Some(ChannelTest::Is { of: word(expr)?, names, negated: *negated })
        }
        Expr::Like(pattern) if !pattern.case_insensitive && pattern.escape_char.is_none() => {
            let (of, negated) = (word(&pattern.expr)?, pattern.negated);
            Some(ChannelTest::Like { of, pattern: like(text_of(&pattern.pattern)?)?, negated })
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

    fn wanted(conditions: &[Expr]) -> Wanted {
        let mut wanted = Wanted::default();
        assert!(conditions.iter().all(|condition| wanted.add(condition, &Shape::Events)));
        wanted
    }

    #[test]
    fn conditions_on_times_are_a_window() {
        let window = |conditions: &[Expr]| (wanted(conditions).start, wanted(conditions).end);
        let ts = || col("timestamp");
        assert_eq!(window(&[ts().gt(time(5)), time(9).gt_eq(ts())]), (Some(6), Some(10)));
        assert_eq!(window(&[ts().between(time(1), time(2)), ts().lt(time(2))]), (Some(1), Some(2)));
        assert_eq!(window(&[ts().eq(time(4))]), (Some(4), Some(5)));
        assert_eq!(window(&[ts().lt_eq(time(i64::MAX))]), (None, None));
    }

    #[test]
    fn a_time_that_is_taken_for_one_of_another_zone_is_another() {
        let of =
            |zone: Option<&str>| DataType::Timestamp(TimeUnit::Nanosecond, zone.map(Into::into));
        let cast = |expr: Expr, zone| Expr::Cast(Cast::new(Box::new(expr), of(zone)));
        let local = cast(col("timestamp"), None);
        assert_eq!(wanted(&[local.clone().gt(time(5))]).start, Some(6));
        let shifted = cast(local, Some("Europe/Berlin"));
        assert!(!Wanted::default().add(&shifted.gt(time(5)), &Shape::Events));
    }

    #[test]
    fn what_no_time_fulfils_wants_nothing() {
        let ts = || col("timestamp");
        for none in
            [ts().gt(time(i64::MAX)), ts().lt(time(i64::MIN)), ts().between(time(2), time(1))]
        {
            assert!(wanted(&[none]).is_nothing());
        }
        assert!(wanted(&[ts().gt(time(1)), ts().lt(time(2))]).is_nothing());
        assert!(!wanted(&[ts().eq(time(i64::MAX))]).is_nothing());
        assert!(wanted(&[ts().eq(time(i64::MAX))]).wants_time(i64::MAX));
    }

    #[test]
    fn conditions_on_other_things_are_left() {
        let mut wanted = Wanted::default();
        for left in [
            col("sequence").gt(lit(3i64)),
            col("channel").eq(lit("A")).or(col("sequence").eq(lit(1i64))),
            col("timestamp").not_eq(time(3)),
            col("channel").gt(lit("A")),
            col("channel").like(lit("a\\_b")),
        ] {
            assert!(!wanted.add(&left, &Shape::Events), "{left}");
        }
        let fields = Shape::Payloads("A".into());
        assert!(!wanted.add(&col("channel").eq(lit("A")), &fields), "a field may be called so");
    }
}
