//! Limits what approximations allocate at once, which the memory limit does not count. Executes
//! nothing.

use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunctionDefinition};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// The most centroids of an approximation, per group; the default is 100.
const MAX_CENTROIDS: u64 = 1_000;

/// Refuses approximations with too many centroids. Constants of the plan have been computed.
pub(super) fn check_centroids(plan: &LogicalPlan) -> Result<()> {
    let check = |expr: &Expr| {
        match expr {
            Expr::AggregateFunction(AggregateFunction { func, params }) => {
                check_call(func.name(), &params.args)?;
            }
            Expr::WindowFunction(call) => {
                if let WindowFunctionDefinition::AggregateUDF(func) = &call.fun {
                    check_call(func.name(), &call.params.args)?;
                }
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    };
    plan.apply_with_subqueries(|node| node.apply_expressions(|expr| expr.apply(check))).map(drop)
}

fn check_call(name: &str, args: &[Expr]) -> Result<()> {
    let centroids = match name {
        "approx_percentile_cont" => args.get(2),
        "approx_percentile_cont_with_weight" => args.get(3),
        _ => None,
    };
    let number = centroids.map(|centroids| centroids.as_literal()?.cast_to(&DataType::UInt64).ok());
    match number.flatten() {
        Some(ScalarValue::UInt64(Some(number))) if number > MAX_CENTROIDS => {
            Err(DataFusionError::Plan(format!(
                "`{name}` cannot use {number} centroids: at most {MAX_CENTROIDS} are allowed"
            )))
        }
        // DataFusion refuses what is no number.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use crate::session::{Session, SessionOptions};

    fn run(call: &str) -> Result<usize, String> {
        let session = Session::new(SessionOptions::default()).unwrap();
        let mut rows = 0;
        let mut count = |batch: arrow_array::RecordBatch| {
            rows += batch.num_rows();
            Ok(())
        };
        let sql = format!("select {call} from (select unnest(range(1, 9)) as n)");
        let done = session.run(&sql, &AtomicBool::new(false), &mut count);
        done.map(|()| rows).map_err(|error| error.to_string())
    }

    #[test]
    fn approximations_have_a_bound() {
        for huge in [
            "approx_percentile_cont(n, 0.5, 1000000000)",
            "approx_percentile_cont(n, 0.5, 500000000 + 500000000)",
            "approx_percentile_cont(n, 0.5, 1000000000) over ()",
            "approx_percentile_cont(0.5, 1001) within group (order by n)",
            "approx_percentile_cont_with_weight(n, n, 0.5, 1000000000)",
        ] {
            let message = run(huge).unwrap_err();
            assert!(message.contains("at most 1000 are allowed"), "{huge}: {message}");
        }
        for fine in [
            "approx_percentile_cont(n, 0.5, 50 + 50)",
            "approx_percentile_cont_with_weight(n, n, 0.5, 1000)",
            "approx_median(n)",
        ] {
            assert_eq!(run(fine), Ok(1), "{fine}");
        }
    }
}
