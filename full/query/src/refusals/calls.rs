//! Refuses clauses of function calls that the planner ignores.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::execution::SessionStateDefaults;
use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Query, Visit, Visitor, WindowType,
};

use super::refusal::{Refusal, number, refuse, refuse_if};

pub(super) const EXTENDED_WINDOW: &str =
    "a window in parentheses cannot begin with the name of another: write all of it";

pub(super) const NAMED_WINDOW: &str =
    "`over w` is only supported in SELECT: in QUALIFY and ORDER BY write the whole window";

/// Functions that are computed row by row. DataFusion prefers them to aggregates and window
/// functions of the same name.
static SCALAR: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let mut names = BTreeSet::from(["unnest".to_owned(), "unnest_outer".to_owned()]);
    let mut add = |name: &str, aliases: &[String]| {
        names.extend(aliases.iter().cloned().chain([name.to_owned()]));
    };
    for function in SessionStateDefaults::default_scalar_functions() {
        add(function.name(), function.aliases());
    }
    for function in SessionStateDefaults::default_higher_order_functions() {
        add(function.name(), function.aliases());
    }
    names
});

/// Functions that need `OVER`, or are others with it.
static WINDOW: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let all = SessionStateDefaults::default_window_functions();
    let names = all.iter().flat_map(|of| of.aliases().iter().cloned().chain([of.name().into()]));
    names.collect()
});

static AGGREGATE: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let all = SessionStateDefaults::default_aggregate_functions();
    let names = all.iter().flat_map(|of| of.aliases().iter().cloned().chain([of.name().into()]));
    names.collect()
});

/// The functions that honour IGNORE NULLS with `OVER`. Without it, DataFusion refuses the others.
const IGNORE_NULLS: [&str; 6] =
    ["array_agg", "first_value", "lag", "last_value", "lead", "nth_value"];

/// Whether DataFusion computes an aggregate of all rows although it has DISTINCT.
fn ignores_distinct(name: &str) -> bool {
    let prefixes = ["approx_percentile_cont", "covar", "regr_"];
    name == "corr" || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

pub(super) fn check_call(function: &Function) -> Refusal {
    let name = function.name.to_string().to_lowercase();
    if function.parameters != FunctionArguments::None {
        return refuse(format!("`{name}` takes one list of arguments"));
    }
    let clauses = CallClauses::of_call(function);
    if SCALAR.contains(&name) && clauses.any() {
        return refuse(format!(
            "`{name}` is computed row by row: DISTINCT, ORDER BY, IGNORE NULLS, WITHIN GROUP, \
             FILTER and OVER do not apply"
        ));
    }
    if clauses.distinct && ignores_distinct(&name) {
        return refuse(format!(
            "DISTINCT does not apply to `{name}`: select distinct rows in FROM, such as `from \
             (select distinct x, y from t)`"
        ));
    }
    let is_all_columns = clauses.distinct && name == "count" && takes_wildcard(function);
    refuse_if(is_all_columns, "count(distinct *) is not supported: name the columns")?;
    refuse_if(
        orders_by_number(function),
        "numbers in ORDER BY of a call are no columns of the result: name what to order by",
    )?;
    let Some(over) = &function.over else {
        if WINDOW.contains(&name) && !AGGREGATE.contains(&name) && !SCALAR.contains(&name) {
            return refuse(format!(
                "`{name}` is a window function: write `{name}(…) over (order by …)`"
            ));
        }
        return ControlFlow::Continue(());
    };
    if let WindowType::WindowSpec(window) = over {
        refuse_if(window.window_name.is_some(), EXTENDED_WINDOW)?;
    }
    if WINDOW.contains(&name) && clauses.distinct {
        return refuse(format!("DISTINCT does not apply to the window function `{name}`"));
    }
    if clauses.null_treatment && !IGNORE_NULLS.contains(&name.as_str()) {
        return refuse(format!("IGNORE NULLS and RESPECT NULLS do not apply to `{name}`"));
    }
    ControlFlow::Continue(())
}

/// Which clauses a call has.
struct CallClauses {
    distinct: bool,
    null_treatment: bool,
    others: bool,
}

impl CallClauses {
    fn of_call(function: &Function) -> Self {
        let mut found = Self {
            distinct: false,
            null_treatment: function.null_treatment.is_some(),
            others: function.over.is_some()
                || function.filter.is_some()
                || !function.within_group.is_empty(),
        };
        if let FunctionArguments::List(list) = &function.args {
            found.distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
            for clause in &list.clauses {
                match clause {
                    FunctionArgumentClause::IgnoreOrRespectNulls(_) => found.null_treatment = true,
                    _ => found.others = true,
                }
            }
        }
        found
    }

    fn any(&self) -> bool {
        self.distinct || self.null_treatment || self.others
    }
}

fn takes_wildcard(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    list.args.iter().any(|arg| {
        matches!(
            arg,
            FunctionArg::Unnamed(FunctionArgExpr::Wildcard | FunctionArgExpr::QualifiedWildcard(_))
        )
    })
}

/// Whether arguments are in the order of a number, which would be that of a column of the table.
fn orders_by_number(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    list.clauses.iter().any(|clause| match clause {
        FunctionArgumentClause::OrderBy(by) => by.iter().any(|by| number(&by.expr).is_some()),
        _ => false,
    })
}

/// Whether a part of a query has window functions, except in its subqueries.
pub(super) fn has_windows(part: &impl Visit) -> bool {
    part.visit(&mut WindowSearch { depth: 0 }).is_break()
}

struct WindowSearch {
    /// How many subqueries are around.
    depth: usize,
}

impl Visitor for WindowSearch {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(Function { over: Some(_), .. }) if self.depth == 0 => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether a function refers to a named window.
pub(super) fn has_named_window(part: &impl Visit) -> bool {
    part.visit(&mut NamedWindowSearch).is_break()
}

struct NamedWindowSearch;

impl Visitor for NamedWindowSearch {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(Function { over: Some(WindowType::NamedWindow(_)), .. }) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
