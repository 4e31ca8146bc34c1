//! Sums, averages, deviations, correlations and regressions over frames that move (`rows between 9
//! preceding and current row`), computed without subtracting the rows that leave. DataFusion
//! subtracts: after a NaN, each later result would be NaN, and after a great value, digits would be
//! missing.

mod frame;
mod moments;
#[cfg(test)]
mod tests;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::logical_expr::expr::WindowFunctionDefinition;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, LogicalPlan, ReversedUDAF, Signature,
};

use frame::MovingFrame;
use moments::{NumberMoments, PairMoments};

/// Replaces the aggregates of windows. For optimised plans. The rows of frames are counted in
/// `memory`.
pub(super) fn with_exact_frames(
    plan: LogicalPlan,
    memory: &Arc<dyn MemoryPool>,
) -> Result<LogicalPlan> {
    let replace = |expr: Expr| {
        let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
        if let WindowFunctionDefinition::AggregateUDF(function) = &call.fun
            && let Some(result) = FrameResult::of(function)
        {
            let (function, memory) = (Arc::clone(function), Arc::clone(memory));
            let exact = Arc::new(ExactAggregate { function, result, memory }.into());
            call.fun = WindowFunctionDefinition::AggregateUDF(exact);
            return Ok(Transformed::yes(Expr::WindowFunction(call)));
        }
        Ok(Transformed::no(Expr::WindowFunction(call)))
    };
    plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| expr.transform_up(replace))
    })
    .data()
}

/// A function of DataFusion whose accumulator for moving frames is replaced.
#[derive(Clone, Debug)]
struct ExactAggregate {
    function: Arc<AggregateUDF>,
    result: FrameResult,
    memory: Arc<dyn MemoryPool>,
}

impl PartialEq for ExactAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function
    }
}

impl Eq for ExactAggregate {}

impl Hash for ExactAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

impl AggregateUDFImpl for ExactAggregate {
    delegate_to_function! {
        name() -> &str;
        aliases() -> &[String];
        signature() -> &Signature;
        return_type(types: &[DataType]) -> Result<DataType>;
        return_field(fields: &[FieldRef]) -> Result<FieldRef>;
        is_nullable() -> bool;
        coerce_types(types: &[DataType]) -> Result<Vec<DataType>>;
        default_value(kind: &DataType) -> Result<ScalarValue>;
        state_fields(args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>>;
        // For frames that only grow.
        accumulator(args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>;
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.function.reverse_udf() {
            ReversedUDAF::Identical => ReversedUDAF::Identical,
            _ => ReversedUDAF::NotSupported,
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let is_float = args.expr_fields.iter().all(|field| *field.data_type() == DataType::Float64);
        if !is_float || args.is_distinct {
            // Whole numbers and decimals are subtracted without a loss.
            return self.function.create_sliding_accumulator(args);
        }
        Ok(match self.result {
            FrameResult::OfNumbers(result) => Box::new(MovingFrame::new(result, &self.memory)),
            FrameResult::OfPairs(result) => Box::new(MovingFrame::new(result, &self.memory)),
        })
    }
}

/// The result of a frame.
#[derive(Clone, Copy, Debug)]
enum FrameResult {
    OfNumbers(fn(NumberMoments) -> Option<f64>),
    OfPairs(fn(PairMoments) -> Option<f64>),
}

impl FrameResult {
    /// `None` if the function does not subtract numbers.
    fn of(function: &AggregateUDF) -> Option<Self> {
        Some(match function.name() {
            "sum" => Self::OfNumbers(NumberMoments::sum),
            "avg" => Self::OfNumbers(NumberMoments::average),
            "var" => Self::OfNumbers(NumberMoments::sample_variance),
            "var_pop" => Self::OfNumbers(NumberMoments::population_variance),
            "stddev" => Self::OfNumbers(NumberMoments::sample_deviation),
            "stddev_pop" => Self::OfNumbers(NumberMoments::population_deviation),
            "covar_samp" => Self::OfPairs(PairMoments::sample_covariance),
            "covar_pop" => Self::OfPairs(PairMoments::population_covariance),
            "corr" => Self::OfPairs(PairMoments::correlation),
            "regr_slope" => Self::OfPairs(PairMoments::slope),
            "regr_intercept" => Self::OfPairs(PairMoments::intercept),
            "regr_r2" => Self::OfPairs(PairMoments::r2),
            "regr_avgx" => Self::OfPairs(PairMoments::average_x),
            "regr_avgy" => Self::OfPairs(PairMoments::average_y),
            "regr_sxx" => Self::OfPairs(PairMoments::squares_x),
            "regr_syy" => Self::OfPairs(PairMoments::squares_y),
            "regr_sxy" => Self::OfPairs(PairMoments::products),
            _ => return None,
        })
    }
}
