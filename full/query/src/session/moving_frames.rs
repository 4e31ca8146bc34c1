//! Sums, averages and deviations over frames that move (`rows between 9 preceding and current
//! row`), computed without subtracting the rows that leave. DataFusion subtracts: after a NaN, each
//! later result would be NaN, and after a great value, digits would be missing.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::WindowFunctionDefinition;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, LogicalPlan, ReversedUDAF, Signature,
};

/// Replaces the aggregates of windows. For optimised plans.
pub(super) fn with_exact_frames(plan: LogicalPlan) -> Result<LogicalPlan> {
    let replace = |expr: Expr| {
        let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
        let exact = match &call.fun {
            WindowFunctionDefinition::AggregateUDF(function) => ExactAggregate::of(function),
            WindowFunctionDefinition::WindowUDF(_) => None,
        };
        let is_replaced = exact.is_some();
        if let Some(exact) = exact {
            call.fun = WindowFunctionDefinition::AggregateUDF(Arc::new(exact.into()));
        }
        let expr = Expr::WindowFunction(call);
        Ok(if is_replaced { Transformed::yes(expr) } else { Transformed::no(expr) })
    };
    plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| expr.transform_up(replace))
    })
    .data()
}

/// A function of DataFusion whose accumulator for moving frames is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ExactAggregate {
    function: Arc<AggregateUDF>,
    result: FrameResult,
}

impl ExactAggregate {
    /// `None` if the function does not subtract numbers.
    fn of(function: &Arc<AggregateUDF>) -> Option<Self> {
        let result = match function.name() {
            "sum" => FrameResult::Sum,
            "avg" => FrameResult::Average,
            "var" => FrameResult::Variance(Spread::Sample),
            "var_pop" => FrameResult::Variance(Spread::Population),
            "stddev" => FrameResult::Deviation(Spread::Sample),
            "stddev_pop" => FrameResult::Deviation(Spread::Population),
            _ => return None,
        };
        Some(Self { function: Arc::clone(function), result })
    }
}

impl AggregateUDFImpl for ExactAggregate {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.function.return_type(arg_types)
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        self.function.return_field(arg_fields)
    }

    fn is_nullable(&self) -> bool {
        self.function.is_nullable()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(arg_types)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.function.default_value(data_type)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.function.state_fields(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.function.reverse_udf() {
            ReversedUDAF::Identical => ReversedUDAF::Identical,
            _ => ReversedUDAF::NotSupported,
        }
    }

    /// For frames that only grow.
    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.function.accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let is_float = args.expr_fields.iter().all(|field| *field.data_type() == DataType::Float64);
        if is_float && !args.is_distinct {
            return Ok(Box::new(MovingFrame::new(self.result)));
        }
        // Whole numbers and decimals are subtracted without a loss.
        self.function.create_sliding_accumulator(args)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FrameResult {
    Sum,
    Average,
    Variance(Spread),
    Deviation(Spread),
}

/// Of what a variance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Spread {
    Sample,
    Population,
}

impl FrameResult {
    fn of(self, moments: Moments) -> Option<f64> {
        match self {
            Self::Sum => (moments.count > 0.0).then_some(moments.sum),
            // The mean of equal numbers is that number; it overflows before the sum does.
            Self::Average if moments.mean.is_finite() => {
                (moments.count > 0.0).then_some(moments.mean)
            }
            Self::Average => (moments.count > 0.0).then(|| moments.sum / moments.count),
            Self::Variance(spread) => {
                let degrees = match spread {
                    Spread::Sample => moments.count - 1.0,
                    Spread::Population => moments.count,
                };
                (degrees > 0.0).then(|| moments.squares / degrees)
            }
            Self::Deviation(spread) => Self::Variance(spread).of(moments).map(f64::sqrt),
        }
    }
}

/// What the results of some rows are computed from.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: f64,
    sum: f64,
    mean: f64,
    /// The squared distances from the mean, added up.
    squares: f64,
}

impl Moments {
    fn of(value: f64) -> Self {
        // The distance of NaN and of infinite values from their mean is NaN.
        let squares = if value.is_finite() { 0.0 } else { f64::NAN };
        Self { count: 1.0, sum: value, mean: value, squares }
    }

    /// Those of both, by the method of Chan, Golub and LeVeque.
    fn merged(self, later: Self) -> Self {
        if self.count == 0.0 || later.count == 0.0 {
            return if later.count == 0.0 { self } else { later };
        }
        let count = self.count + later.count;
        let distance = later.mean - self.mean;
        let mean = self.mean + distance * (later.count / count);
        let between = distance * distance * (self.count * later.count / count);
        let squares = self.squares + later.squares + between;
        Self { count, sum: self.sum + later.sum, mean, squares }
    }
}

/// The rows of a frame, as a queue of two stacks: each row is added twice, whatever the length of
/// the frame.
#[derive(Debug)]
struct MovingFrame {
    result: FrameResult,
    /// For each of the older rows, the moments from it to the newest of them; the oldest row last.
    older: Vec<Moments>,
    newer: Vec<f64>,
    newer_moments: Moments,
}

impl MovingFrame {
    fn new(result: FrameResult) -> Self {
        let newer_moments = Moments::default();
        Self { result, older: Vec::new(), newer: Vec::new(), newer_moments }
    }

    fn push(&mut self, value: f64) {
        self.newer.push(value);
        self.newer_moments = self.newer_moments.merged(Moments::of(value));
    }

    /// Removes the oldest row.
    fn pop(&mut self) {
        if self.older.is_empty() {
            let mut moments = Moments::default();
            let newer = self.newer.drain(..).rev();
            self.older.extend(newer.map(|value| {
                moments = Moments::of(value).merged(moments);
                moments
            }));
            self.newer_moments = Moments::default();
        }
        self.older.pop();
    }

    fn moments(&self) -> Moments {
        self.older.last().copied().unwrap_or_default().merged(self.newer_moments)
    }
}

impl Accumulator for MovingFrame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        numbers(values)?.for_each(|value| self.push(value));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        numbers(values)?.for_each(|_| self.pop());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.result.of(self.moments())))
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.older.capacity() * size_of::<Moments>()
            + self.newer.capacity() * size_of::<f64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(DataFusionError::Internal("the rows of a frame have no state to merge".to_owned()))
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(DataFusionError::Internal("the rows of a frame cannot be merged".to_owned()))
    }
}

/// The numbers of the only argument, without nulls, which count in no result.
fn numbers(values: &[ArrayRef]) -> Result<impl Iterator<Item = f64> + '_> {
    let numbers = values.first().and_then(|values| values.as_primitive_opt::<Float64Type>());
    let numbers = numbers.ok_or_else(|| {
        let found = values.first().map(|values| values.data_type());
        DataFusionError::Internal(format!("numbers were expected, not {found:?}"))
    })?;
    Ok(numbers.iter().flatten())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use arrow_array::RecordBatch;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Float64Type;

    use super::*;
    use crate::session::{Session, SessionOptions};

    const FUNCTIONS: [(&str, FrameResult); 6] = [
        ("sum", FrameResult::Sum),
        ("avg", FrameResult::Average),
        ("var_samp", FrameResult::Variance(Spread::Sample)),
        ("var_pop", FrameResult::Variance(Spread::Population)),
        ("stddev", FrameResult::Deviation(Spread::Sample)),
        ("stddev_pop", FrameResult::Deviation(Spread::Population)),
    ];

    /// The numbers of all result columns, row by row.
    fn run(sql: &str) -> Vec<Vec<Option<f64>>> {
        let session = Session::new(SessionOptions::default()).unwrap();
        let mut rows = Vec::new();
        let mut take = |batch: RecordBatch| {
            for row in 0..batch.num_rows() {
                let columns = batch.columns().iter().map(|c| c.as_primitive::<Float64Type>());
                rows.push(columns.map(|c| c.is_valid(row).then(|| c.value(row))).collect());
            }
            Ok(())
        };
        session.run(sql, &AtomicBool::new(false), &mut take).unwrap();
        rows
    }

    /// Numbers with gaps in their keys, nulls, and a few of which DataFusion makes NaN.
    const TABLE: &str = "t as (select n * n % 97 as k, case when n % 7 = 0 then null \
        when n % 31 = 30 then 'NaN'::double when n = 40 then 1e300 when n = 80 then 'inf'::double \
        else sin(n) * 1000 end as x, n % 3 as p from (select unnest(range(1, 200)) as n))";

    fn assert_close(found: Option<f64>, expected: Option<f64>, what: &str) {
        let is_equal = match (found, expected) {
            (Some(found), Some(expected)) => {
                found == expected
                    || found.is_nan() && expected.is_nan()
                    || (found - expected).abs() <= 1e-9 * expected.abs().max(1e-3)
            }
            _ => found == expected,
        };
        assert!(is_equal, "{what}: {found:?}, expected {expected:?}");
    }

    #[test]
    fn each_frame_has_the_result_of_its_rows_alone() {
        let calls = |window: &str| {
            let calls = FUNCTIONS.map(|(name, _)| format!("{name}(x) {window}"));
            calls.join(", ")
        };
        for (frame, first, last) in [
            ("rows between 9 preceding and current row", "b.r >= a.r - 9", "b.r <= a.r"),
            ("rows between 3 preceding and 2 following", "b.r >= a.r - 3", "b.r <= a.r + 2"),
            ("rows between 8 preceding and 4 preceding", "b.r >= a.r - 8", "b.r <= a.r - 4"),
            ("rows between current row and unbounded following", "b.r >= a.r", "true"),
            ("range between 5 preceding and 2 preceding", "b.k >= a.k - 5", "b.k <= a.k - 2"),
            ("rows between unbounded preceding and current row", "true", "b.r <= a.r"),
        ] {
            for partition in ["", "partition by p"] {
                let from = format!(
                    "with {TABLE}, a as (select *, row_number() over ({partition} order by k, x) \
                     as r from t)"
                );
                let order = if frame.starts_with("range") { "k" } else { "r" };
                let window = format!("over ({partition} order by {order} {frame})");
                let found = format!("{from} select {} from a order by p, r", calls(&window));
                let same = if partition.is_empty() { "true" } else { "a.p = b.p" };
                let expected = format!(
                    "{from} select {} from a left join (select k, r, p, x from a) b \
                     on {same} and {first} and {last} group by a.p, a.r order by a.p, a.r",
                    calls("").replace("(x)", "(b.x)")
                );
                let (found, expected) = (run(&found), run(&expected));
                assert_eq!(found.len(), 199);
                assert_eq!(found.len(), expected.len());
                for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    for ((name, _), (found, expected)) in
                        FUNCTIONS.iter().zip(found.iter().zip(expected))
                    {
                        let what = format!("{name} {window}, row {row}");
                        assert_close(*found, *expected, &what);
                    }
                }
            }
        }
    }

    #[test]
    fn filters_and_whole_numbers_are_as_before() {
        let table = "t(k, x, n) as (values (1, 1.5, 1), (2, 'NaN'::double, 9007199254740993), \
            (3, 2.5, 3), (4, 4.0, 9007199254740993))";
        let window = "over (order by k rows between 1 preceding and current row)";
        let sql = format!("with {table} select sum(x) filter (where k <> 2) {window} from t");
        assert_eq!(run(&sql), [[Some(1.5)], [Some(1.5)], [Some(2.5)], [Some(6.5)]]);
        let sum = "9007199254740996";
        let sql = format!(
            "with {table} select case when sum(n) {window} = {sum} then 1.0 else 0.0 end from t"
        );
        assert_eq!(run(&sql), [[Some(0.0)], [Some(0.0)], [Some(1.0)], [Some(1.0)]]);
    }
}
