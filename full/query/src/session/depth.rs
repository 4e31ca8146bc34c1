//! Limits how deeply a query nests: parsers, planners and operators recurse, and a stack overflow
//! would end the process. Deep work runs on stacks that are enough for the limit.

use std::ops::ControlFlow;
use std::thread::{Builder, JoinHandle};

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Expr, Query, SetExpr, TableFactor, Visit, Visitor};

/// The most operators that contain each other, together with all SELECTs, tables and window
/// functions, which may do so in a plan.
pub(crate) const MAX_DEPTH: usize = 2_000;

/// The stack of the planning thread, of which only used pages take memory. At the limit, a build
/// without optimisation uses less than a quarter. Dropping the longest chain that fits into
/// [`MAX_QUERY_BYTES`](super::planning::MAX_QUERY_BYTES), which is parsed before it is refused,
/// also fits.
const PLANNING_STACK: usize = 256 << 20;

/// The stack of threads that execute plans: operators recurse less than planners.
pub(super) const EXECUTION_STACK: usize = 64 << 20;

/// The name of planning threads.
pub(super) const PLANNING_THREAD: &str = "sluice-plan";

/// Runs recursive work on a thread with a deep stack.
pub(crate) fn with_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let planned = planning_thread().spawn_scoped(scope, work)?;
        let panicked = |_| DataFusionError::Internal("planning panicked".to_owned());
        planned.join().map_err(panicked)
    })
}

/// Starts recursive work on a thread with a deep stack.
pub(super) fn spawn_deep(work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    planning_thread().spawn(work)
}

fn planning_thread() -> Builder {
    Builder::new().name(PLANNING_THREAD.to_owned()).stack_size(PLANNING_STACK)
}

/// Refuses a statement whose plan may be deeper than [`MAX_DEPTH`].
pub(super) fn check_depth(statement: &DfStatement) -> Result<()> {
    let statement = match statement {
        DfStatement::Statement(statement) => statement,
        DfStatement::Explain(explain) => return check_depth(&explain.statement),
        _ => return Ok(()),
    };
    if statement.visit(&mut Depth::default()).is_continue() {
        return Ok(());
    }
    Err(DataFusionError::Plan(format!(
        "it chains or nests more than {MAX_DEPTH} operators, SELECTs and tables; `x in (1, 2, …)` \
         is one operator for any number of values, and values in a file, or after VALUES, can be \
         joined"
    )))
}

#[derive(Default)]
struct Depth {
    /// How many operators contain the current one.
    operators: usize,
    /// The clauses so far: plans may nest each in the one before.
    clauses: usize,
}

impl Depth {
    fn check(&self) -> ControlFlow<()> {
        match self.operators + self.clauses {
            0..=MAX_DEPTH => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    /// Counts UNIONs and the like, which have no visit of their own.
    fn add_set_operations(&mut self, mut body: &SetExpr) -> ControlFlow<()> {
        while let SetExpr::SetOperation { left, right, .. } = body {
            self.clauses += 1;
            self.check()?;
            self.add_set_operations(right)?;
            body = left;
        }
        ControlFlow::Continue(())
    }
}

/// How many operators an expression has itself.
fn operators(expr: &Expr) -> usize {
    match expr {
        Expr::CompoundFieldAccess { access_chain, .. } => access_chain.len(),
        _ => 1,
    }
}

impl Visitor for Depth {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.clauses += 1 + query.pipe_operators.len();
        self.add_set_operations(&query.body)?;
        self.check()
    }

    fn pre_visit_table_factor(&mut self, _: &TableFactor) -> ControlFlow<()> {
        self.clauses += 1;
        self.check()
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.operators += operators(expr);
        if matches!(expr, Expr::Function(function) if function.over.is_some()) {
            self.clauses += 1;
        }
        self.check()
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.operators -= operators(expr);
        ControlFlow::Continue(())
    }
}
