//! `sum` of integers of 64 bits, and of durations, which are some: one that these cannot hold is an
//! error. DataFusion's wraps around. Sums of all else are DataFusion's.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Int64Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray, Decimal128Array, PrimitiveArray};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::hash_map::Entry;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{HashMap, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op;

/// `sum`; it replaces DataFusion's.
pub(crate) fn sum() -> Arc<AggregateUDF> {
    Arc::new(Sum { function: sum_udaf() }.into())
}

/// The type in which sums are computed. More rows than there can be fit into it.
const WIDE: DataType = DataType::Decimal128(38, 0);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    /// DataFusion's.
    function: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Sum {
    delegate_to_function! {
        name() -> &str;
        signature() -> &Signature;
        return_type(types: &[DataType]) -> Result<DataType>;
        groups_accumulator_supported(args: AccumulatorArgs<'_>) -> bool;
        order_sensitivity() -> AggregateOrderSensitivity;
        reverse_expr() -> ReversedUDAF;
        value_from_stats(statistics: &StatisticsArgs<'_>) -> Option<ScalarValue>;
        documentation() -> Option<&Documentation>;
        set_monotonicity(kind: &DataType) -> SetMonotonicity;
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        // The distinct values, or a wide sum.
        if args.is_distinct || Integer::of(args.return_type()).is_none() {
            return self.function.inner().state_fields(args);
        }
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "sum"), WIDE, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match Integer::of(args.return_field.data_type()) {
            Some(kind) if args.is_distinct => Ok(Box::new(DistinctSum::new(kind))),
            Some(kind) => Ok(Box::new(WideSum { kind, count: 0, sum: 0 })),
            None => self.function.inner().accumulator(args),
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match Integer::of(args.return_field.data_type()) {
            Some(_) => self.accumulator(args),
            None => self.function.inner().create_sliding_accumulator(args),
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let Some(kind) = Integer::of(args.return_field.data_type()) else {
            return self.function.inner().create_groups_accumulator(args);
        };
        let add = |sum: &mut i128, value: i128| *sum = sum.wrapping_add(value);
        let sums = prim_op::PrimitiveGroupsAccumulator::<Decimal128Type, _>::new(&WIDE, add);
        Ok(Box::new(GroupSums { kind, sums: Box::new(sums) }))
    }
}

/// A type of integers of 64 bits.
#[derive(Clone, Copy, Debug)]
enum Integer {
    Signed,
    Unsigned,
    Duration(TimeUnit),
}

/// Calls `$of::<T>($args)` with the Arrow type of an [`Integer`].
macro_rules! with_type_of {
    ($kind:expr, $of:ident($($arg:expr),*)) => {
        match $kind {
            Integer::Signed => $of::<Int64Type>($($arg),*),
            Integer::Unsigned => $of::<UInt64Type>($($arg),*),
            Integer::Duration(TimeUnit::Second) => $of::<DurationSecondType>($($arg),*),
            Integer::Duration(TimeUnit::Millisecond) => $of::<DurationMillisecondType>($($arg),*),
            Integer::Duration(TimeUnit::Microsecond) => $of::<DurationMicrosecondType>($($arg),*),
            Integer::Duration(TimeUnit::Nanosecond) => $of::<DurationNanosecondType>($($arg),*),
        }
    };
}

impl Integer {
    fn of(kind: &DataType) -> Option<Self> {
        match kind {
            DataType::Int64 => Some(Self::Signed),
            DataType::UInt64 => Some(Self::Unsigned),
            DataType::Duration(unit) => Some(Self::Duration(*unit)),
            _ => None,
        }
    }

    /// The integers as wide ones.
    fn widened(self, values: &dyn Array) -> Decimal128Array {
        fn widen<T: ArrowPrimitiveType<Native: Into<i128>>>(values: &dyn Array) -> Decimal128Array {
            values.as_primitive::<T>().unary(Into::into)
        }
        with_type_of!(self, widen(values)).with_data_type(WIDE)
    }

    fn narrowed(self, sums: &Decimal128Array) -> Result<ArrayRef> {
        fn narrow<T>(kind: Integer, sums: &Decimal128Array) -> Result<ArrayRef>
        where
            T: ArrowPrimitiveType<Native: TryFrom<i128>>,
        {
            let sums: PrimitiveArray<T> = sums.try_unary(|sum| kind.native::<T>(sum))?;
            Ok(Arc::new(sums))
        }
        with_type_of!(self, narrow(self, sums))
    }

    /// The sum as the result has it, or none.
    fn result(self, sum: Option<i128>) -> Result<ScalarValue> {
        fn result<T>(kind: Integer, sum: Option<i128>) -> Result<ScalarValue>
        where
            T: ArrowPrimitiveType<Native: TryFrom<i128>>,
        {
            let sum = sum.map(|sum| kind.native::<T>(sum)).transpose()?;
            ScalarValue::new_primitive::<T>(sum, &T::DATA_TYPE)
        }
        with_type_of!(self, result(self, sum))
    }

    /// The integer; `Err` if it is beyond 64 bits.
    fn native<T>(self, sum: i128) -> Result<T::Native>
    where
        T: ArrowPrimitiveType<Native: TryFrom<i128>>,
    {
        T::Native::try_from(sum).map_err(|_| self.beyond_64_bits(sum))
    }

    /// How many values there are, and their sum.
    fn count_and_sum(self, values: &dyn Array) -> (usize, i128) {
        fn of<T: ArrowPrimitiveType<Native: Into<i128>>>(values: &dyn Array) -> (usize, i128) {
            count_and_sum(values.as_primitive::<T>())
        }
        with_type_of!(self, of(values))
    }

    fn beyond_64_bits(self, sum: i128) -> DataFusionError {
        let instead = match self {
            Self::Signed | Self::Unsigned => "`sum(x::decimal(38, 0))`, or `sum(x::double)`",
            Self::Duration(_) => "`sum(extract(epoch from x))`",
        };
        DataFusionError::Execution(format!("the sum {sum} is beyond 64 bits: write {instead}"))
    }
}

fn count_and_sum<T>(values: &PrimitiveArray<T>) -> (usize, i128)
where
    T: ArrowPrimitiveType<Native: Into<i128>>,
{
    let sum = if values.null_count() == 0 {
        values.values().iter().map(|value| (*value).into()).sum()
    } else {
        values.iter().flatten().map(Into::into).sum()
    };
    (values.len() - values.null_count(), sum)
}

/// The sum of all rows, or of those of a frame.
#[derive(Debug)]
struct WideSum {
    kind: Integer,
    /// How many values there are: none have no sum.
    count: i128,
    sum: i128,
}

impl WideSum {
    fn add(&mut self, (count, sum): (usize, i128), sign: i128) {
        self.count += sign * count as i128;
        self.sum += sign * sum;
    }
}

impl Accumulator for WideSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values.iter().for_each(|values| self.add(self.kind.count_and_sum(values), 1));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values.iter().for_each(|values| self.add(self.kind.count_and_sum(values), -1));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let sums = states.iter().map(|sums| sums.as_primitive::<Decimal128Type>());
        sums.for_each(|sums| self.add(count_and_sum(sums), 1));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.kind.result((self.count > 0).then_some(self.sum))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![ScalarValue::Decimal128(sum, 38, 0)])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sum of the distinct values of all rows, or of those of a frame.
#[derive(Debug)]
struct DistinctSum {
    kind: Integer,
    /// How often each value is there.
    counts: HashMap<i128, usize>,
    sum: i128,
}

impl DistinctSum {
    fn new(kind: Integer) -> Self {
        Self { kind, counts: HashMap::default(), sum: 0 }
    }
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for values in values {
            for value in self.kind.widened(values).iter().flatten() {
                let count = self.counts.entry(value).or_default();
                if *count == 0 {
                    self.sum += value;
                }
                *count += 1;
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for values in values {
            for value in self.kind.widened(values).iter().flatten() {
                if let Entry::Occupied(mut count) = self.counts.entry(value) {
                    *count.get_mut() -= 1;
                    if *count.get() == 0 {
                        count.remove();
                        self.sum -= value;
                    }
                }
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states.iter().flat_map(|states| states.as_list::<i32>().iter()).flatten() {
            self.update_batch(&[values])?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.kind.result((!self.counts.is_empty()).then_some(self.sum))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = Decimal128Array::from_iter_values(self.counts.keys().copied());
        let values = self.kind.narrowed(&values)?;
        Ok(vec![SingleRowListArrayBuilder::new(values).build_list_scalar()])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<(i128, usize)>()
    }
}

/// The sums of groups.
struct GroupSums {
    kind: Integer,
    /// Of wide integers.
    sums: Box<dyn GroupsAccumulator>,
}

impl GroupsAccumulator for GroupSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.sums.update_batch(&self.widened(values), groups, filter, count)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.sums.merge_batch(states, groups, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.kind.narrowed(self.sums.evaluate(emit_to)?.as_primitive())
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.sums.state(emit_to)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.sums.convert_to_state(&self.widened(values), filter)
    }

    fn size(&self) -> usize {
        self.sums.size()
    }
}

impl GroupSums {
    fn widened(&self, values: &[ArrayRef]) -> Vec<ArrayRef> {
        values.iter().map(|values| Arc::new(self.kind.widened(values)) as ArrayRef).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::session::SessionOptions;
    use crate::testing::printed_rows;

    /// Two great numbers, a small one and none, in groups.
    const TABLE: &str = "with t(k, x) as (values (1, 9223372036854775807), (1, 1), (2, -5), \
                         (2, 7), (3, null), (1, -10))";

    fn rows(sql: &str, kind: &str) -> Result<Vec<String>, String> {
        let x = if kind == "UInt64" { "case when x > 0 then x end" } else { "x" };
        let column = format!("arrow_cast({x}, '{kind}') as x");
        let sql = format!("{TABLE}, n as (select k, {column} from t) {sql}");
        let mut found = None;
        for partitions in [1, 3] {
            let options = SessionOptions { partitions, ..SessionOptions::default() };
            let rows = printed_rows(&sql, options);
            let rows = rows.map(|rows| rows.iter().map(|row| row.join(" ")).collect());
            assert!(found.is_none_or(|found| found == rows), "{sql}: {rows:?}");
            found = Some(rows);
        }
        found.unwrap()
    }

    #[test]
    fn sums_that_64_bits_can_hold_are_exact() {
        for (sql, expected) in [
            ("select sum(x) from n", ["9223372036854775800"].as_slice()),
            (
                "select k, sum(x) from n group by k order by k",
                &["1 9223372036854775798", "2 2", "3 "],
            ),
            ("select sum(x) filter (where k > 1) from n", &["2"]),
            ("select sum(x) filter (where k > 2) from n", &[""]),
            ("select sum(x) from n where k = 3", &[""]),
            ("select arrow_typeof(sum(x)), sum(x + 1) from n where k = 2", &["Int64 4"]),
            ("select sum(distinct x) from n where k = 2", &["2"]),
            (
                "select sum(x) over (order by k, x rows 1 preceding) from n where k > 1 \
                 order by k, x",
                &["-5", "2", "7"],
            ),
            ("select sum(distinct x), avg(k) from n", &["9223372036854775800 1.6666666666666667"]),
            (
                "select k, sum(distinct x), avg(k) from (select k, unnest([x, x]) as x from n) \
                 group by k order by k",
                &["1 9223372036854775798 1.0", "2 2 2.0", "3  3.0"],
            ),
            (
                "select sum(distinct x) over (order by k, x rows 2 preceding) from \
                 (select k, unnest([x, x]) as x from n where k > 1) order by k, x",
                &["-5", "-5", "2", "2", "7", "7"],
            ),
            ("select sum(sum(x)) over () from n where k = 2 group by x", &["2", "2"]),
        ] {
            assert_eq!(rows(sql, "Int64").unwrap(), expected, "{sql}");
        }
        let unsigned = "select arrow_typeof(sum(x)), sum(x) from n where x > 0";
        assert_eq!(rows(unsigned, "UInt64").unwrap(), ["UInt64 9223372036854775815"]);
        let moving = "select sum(distinct x) over (order by x rows 1 preceding) from n where x > 0";
        let sums = ["1", "8", "9223372036854775814"];
        assert_eq!(rows(moving, "UInt64").unwrap(), sums);
        let durations = "select arrow_typeof(sum(x)), extract(epoch from sum(x)), \
                         extract(epoch from sum(distinct x)) from n where k = 2";
        assert_eq!(rows(durations, "Duration(ms)").unwrap(), ["Duration(ms) 0.002 0.002"]);
    }

    #[test]
    fn a_sum_beyond_64_bits_is_an_error() {
        for sql in [
            "select sum(x) from n where x > 0",
            "select k, sum(x) from n where x > 0 group by k",
            "select sum(x) over (order by x rows 1 preceding) from n where x > 0",
            "select sum(x) over () from n where x > 0",
            "select sum(x) over (order by x) from n where x > 0",
        ] {
            let message = rows(sql, "Int64").unwrap_err();
            assert!(message.contains(" is beyond 64 bits: write `sum(x::dec"), "{sql}: {message}");
        }
        for sql in [
            "select sum(distinct x) from n where x > 0",
            "select sum(distinct x), avg(x) from n where x > 0",
            "select sum(distinct x), count(distinct k) from n where x > 0",
            "select k, sum(distinct x), avg(x) from n where x > 0 group by k",
            "select sum(distinct x) over () from n where x > 0",
            "select sum(distinct x) over (order by x) from n where x > 0",
            "select sum(distinct x) over (order by x rows 1 preceding) from n where x > 0",
        ] {
            let message = rows(sql, "Int64").unwrap_err();
            assert!(message.contains(" is beyond 64 bits: write `sum(x::dec"), "{sql}: {message}");
        }
        for sql in [
            "select sum(x) from n where x > 0",
            "select sum(distinct x), avg(k) from n where x > 0",
            "select k, sum(x) from n where x > 0 group by k",
            "select sum(x) over (order by x rows 1 preceding) from n where x > 0",
        ] {
            for unit in ["s", "ms", "us", "ns"] {
                let sql = sql.replace("x > 0", "extract(epoch from x) > 0");
                let message = rows(&sql, &format!("Duration({unit})")).unwrap_err();
                let help = " is beyond 64 bits: write `sum(extract(epoch from x))`";
                assert!(message.contains(help), "{sql}: {message}");
            }
        }
        let twice = "select sum(x) from (select x from n union all select x from n) where x > 7";
        let message = rows(twice, "UInt64").unwrap();
        assert_eq!(message, ["18446744073709551614"]);
        let thrice = "select sum(y) from (select unnest([x, x, x]) as y from n) where y > 7";
        assert!(rows(thrice, "UInt64").unwrap_err().contains("the sum 27670116110564327421"));
        let wide = "select sum(x::decimal(38, 0)) from n where x > 0";
        assert_eq!(rows(wide, "Int64").unwrap(), ["9223372036854775815"]);
    }
}
