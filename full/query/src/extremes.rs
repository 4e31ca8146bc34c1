//! `min` and `max` of groups of floats, in the order that ORDER BY has: infinities are values, and
//! NaN is greater than all of them. DataFusion's give the greatest finite number for an infinity,
//! and with a NaN depend on the order of rows. All else is DataFusion's.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Float64Type};
use arrow_array::{ArrowNativeTypeOp, ArrowNumericType};
use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op;

/// `min`; it replaces DataFusion's.
pub(crate) fn min() -> Arc<AggregateUDF> {
    Arc::new(Extreme { function: min_udaf(), wanted: Ordering::Less }.into())
}

/// `max`; it replaces DataFusion's.
pub(crate) fn max() -> Arc<AggregateUDF> {
    Arc::new(Extreme { function: max_udaf(), wanted: Ordering::Greater }.into())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    /// DataFusion's.
    function: Arc<AggregateUDF>,
    /// How a value that replaces another one compares with it.
    wanted: Ordering,
}

impl Extreme {
    fn of_groups<T>(&self, data_type: &DataType) -> Box<dyn GroupsAccumulator>
    where
        T: ArrowPrimitiveType + ArrowNumericType + Send,
        T::Native: ArrowNativeTypeOp,
    {
        let wanted = self.wanted;
        let take = move |current: &mut T::Native, new: T::Native| {
            if new.compare(*current) == wanted {
                *current = new;
            }
        };
        let start = match wanted {
            Ordering::Greater => T::Native::MIN_TOTAL_ORDER,
            _ => T::Native::MAX_TOTAL_ORDER,
        };
        let accumulator = prim_op::PrimitiveGroupsAccumulator::<T, _>::new(data_type, take);
        Box::new(accumulator.with_starting_value(start))
    }
}

impl AggregateUDFImpl for Extreme {
    delegate_to_function! {
        name() -> &str;
        signature() -> &Signature;
        return_type(types: &[DataType]) -> Result<DataType>;
        coerce_types(types: &[DataType]) -> Result<Vec<DataType>>;
        accumulator(args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>;
        create_sliding_accumulator(args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>;
        groups_accumulator_supported(args: AccumulatorArgs<'_>) -> bool;
        is_descending() -> Option<bool>;
        order_sensitivity() -> AggregateOrderSensitivity;
        reverse_expr() -> ReversedUDAF;
        value_from_stats(statistics: &StatisticsArgs<'_>) -> Option<ScalarValue>;
        documentation() -> Option<&Documentation>;
        set_monotonicity(kind: &DataType) -> SetMonotonicity;
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let data_type = args.return_field.data_type();
        Ok(match data_type {
            DataType::Float16 => self.of_groups::<Float16Type>(data_type),
            DataType::Float32 => self.of_groups::<Float32Type>(data_type),
            DataType::Float64 => self.of_groups::<Float64Type>(data_type),
            _ => return self.function.create_groups_accumulator(args),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::session::SessionOptions;
    use crate::testing::printed_rows;

    /// The rows of a query.
    fn rows(sql: &str, partitions: usize) -> Vec<String> {
        let options = SessionOptions { partitions, ..SessionOptions::default() };
        let rows = printed_rows(sql, options).unwrap();
        rows.iter().map(|row| row.join(" ").replace(".0", "").trim_end().to_owned()).collect()
    }

    #[test]
    fn infinities_and_nan_are_values_of_groups() {
        for kind in ["float", "double", "arrow_cast(v, 'Float16')"] {
            let column = if kind.contains('(') { kind.to_owned() } else { format!("v::{kind}") };
            let sql = format!(
                "with t(k, v) as (values (1, '-inf'), (1, '-inf'), (2, 'inf'), (3, 'NaN'), \
                 (3, '1'), (4, '1'), (4, 'NaN'), (5, 'NaN'), (6, null), (7, '2'), (7, '-3'), \
                 (7, null)), n as (select k, v::double as v from t) \
                 select k, max({column}), min({column}) from n group by k order by k"
            );
            for partitions in [1, 3] {
                let expected =
                    ["1 -inf -inf", "2 inf inf", "3 NaN 1", "4 NaN 1", "5 NaN NaN", "6", "7 2 -3"];
                assert_eq!(rows(&sql, partitions), expected, "{column}, {partitions}");
            }
        }
    }

    #[test]
    fn the_greatest_groups_are_those_of_all_groups() {
        let sql = |rest: &str| {
            format!(
                "with t(k, v) as (values (1, 1.0), (2, 'inf'::double), (3, 'NaN'::double), \
                 (3, 0.0), (4, '-inf'::double)) select k, max(v) as m from t group by k {rest}"
            )
        };
        assert_eq!(rows(&sql("order by m desc limit 2"), 1), ["3 NaN", "2 inf"]);
        assert_eq!(rows(&sql("order by m limit 2"), 1), ["4 -inf", "1 1"]);
        assert_eq!(rows("select max(x) from (values (1), (2)) t(x)", 1), ["2"]);
        assert_eq!(rows("select x % 2, min(x) from (values (3), (1)) t(x) group by 1", 1), ["1 1"]);
    }
}
