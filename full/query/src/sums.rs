//! `sum` of integers of 64 bits: one that these cannot hold is an error. DataFusion's wraps around.
//! Sums of distinct integers and of all else are DataFusion's.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Decimal128Array, PrimitiveArray};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
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
        if args.is_distinct || Integer::of(args.return_type()).is_none() {
            return self.function.inner().state_fields(args);
        }
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "sum"), WIDE, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match Integer::of(args.return_field.data_type()) {
            Some(kind) if !args.is_distinct => Ok(Box::new(WideSum { kind, count: 0, sum: 0 })),
            _ => self.function.inner().accumulator(args),
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match Integer::of(args.return_field.data_type()) {
            Some(_) if !args.is_distinct => self.accumulator(args),
            _ => self.function.inner().create_sliding_accumulator(args),
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
}

impl Integer {
    fn of(kind: &DataType) -> Option<Self> {
        match kind {
            DataType::Int64 => Some(Self::Signed),
            DataType::UInt64 => Some(Self::Unsigned),
            _ => None,
        }
    }

    /// The integers as wide ones.
    fn widened(self, values: &dyn Array) -> Decimal128Array {
        let wide: Decimal128Array = match self {
            Self::Signed => values.as_primitive::<Int64Type>().unary(i128::from),
            Self::Unsigned => values.as_primitive::<UInt64Type>().unary(i128::from),
        };
        wide.with_data_type(WIDE)
    }

    fn narrowed(self, sums: &Decimal128Array) -> Result<ArrayRef> {
        fn narrow<T>(sums: &Decimal128Array) -> Result<ArrayRef>
        where
            T: ArrowPrimitiveType,
            T::Native: TryFrom<i128>,
        {
            let narrow = |sum| T::Native::try_from(sum).map_err(|_| beyond_64_bits(sum));
            let sums: PrimitiveArray<T> = sums.try_unary(narrow)?;
            Ok(Arc::new(sums))
        }
        match self {
            Self::Signed => narrow::<Int64Type>(sums),
            Self::Unsigned => narrow::<UInt64Type>(sums),
        }
    }
}

fn beyond_64_bits(sum: i128) -> DataFusionError {
    DataFusionError::Execution(format!(
        "the sum {sum} is beyond 64 bits: write `sum(x::decimal(38, 0))`, or `sum(x::double)`"
    ))
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
    fn add(&mut self, values: &Decimal128Array, sign: i128) {
        let (count, sum) = if values.null_count() == 0 {
            (values.len(), values.values().iter().sum::<i128>())
        } else {
            (values.len() - values.null_count(), values.iter().flatten().sum())
        };
        self.count += sign * count as i128;
        self.sum += sign * sum;
    }
}

impl Accumulator for WideSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values.iter().for_each(|values| self.add(&self.kind.widened(values), 1));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values.iter().for_each(|values| self.add(&self.kind.widened(values), -1));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states.iter().for_each(|sums| self.add(sums.as_primitive(), 1));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = (self.count > 0).then_some(self.sum);
        let sum = Decimal128Array::from(vec![sum]).with_data_type(WIDE);
        ScalarValue::try_from_array(&self.kind.narrowed(&sum)?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![ScalarValue::Decimal128(sum, 38, 0)])
    }

    fn size(&self) -> usize {
        size_of_val(self)
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
            ("select sum(sum(x)) over () from n where k = 2 group by x", &["2", "2"]),
        ] {
            assert_eq!(rows(sql, "Int64").unwrap(), expected, "{sql}");
        }
        let unsigned = "select arrow_typeof(sum(x)), sum(x) from n where x > 0";
        assert_eq!(rows(unsigned, "UInt64").unwrap(), ["UInt64 9223372036854775815"]);
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
        let twice = "select sum(x) from (select x from n union all select x from n) where x > 7";
        let message = rows(twice, "UInt64").unwrap();
        assert_eq!(message, ["18446744073709551614"]);
        let thrice = "select sum(y) from (select unnest([x, x, x]) as y from n) where y > 7";
        assert!(rows(thrice, "UInt64").unwrap_err().contains("the sum 27670116110564327421"));
        let wide = "select sum(x::decimal(38, 0)) from n where x > 0";
        assert_eq!(rows(wide, "Int64").unwrap(), ["9223372036854775815"]);
    }
}
