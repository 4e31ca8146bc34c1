//! Resolves names in ORDER BY as SQL does: a name alone is a column of the result, and within an
//! expression that of a table, if it has the column. DataFusion always takes that of the result:
//! `select sum(x) as x … order by sum(x)` would be the sum of a sum.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::common::Column;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, Query, SelectItem, SetExpr,
    VisitMut, VisitorMut,
};

use super::statement_queries::for_each_query;
use super::{identifiers, repeated_keys, result_names};

/// A column that no table has: the error for it lists the columns that there are.
const UNKNOWN_COLUMN: &str = "(a column of ORDER BY)";

/// The most queries of a statement for which ORDER BY is ambiguous: each is planned with it.
const MAX_AMBIGUOUS: usize = 50;

/// The columns that ambiguous ORDER BYs can name, by the place of their query.
type KnownColumns = BTreeMap<usize, Vec<Column>>;

/// Plans a statement.
pub(crate) async fn statement_to_plan(
    state: &SessionState,
    mut statement: DfStatement,
) -> Result<LogicalPlan> {
    for_each_query(&mut statement, &mut |_, query| result_names::order_by_names(query));
    match resolved_plan(state, statement.clone()).await {
        Err(error) if repeated_keys::may_be_refused(&error) => {}
        plan => return plan,
    }
    for_each_query(&mut statement, &mut |_, query| repeated_keys::of_parsed_removed(query));
    resolved_plan(state, statement).await
}

/// Plans a statement whose ORDER BYs name columns of results or of tables.
async fn resolved_plan(state: &SessionState, statement: DfStatement) -> Result<LogicalPlan> {
    let mut known = known_columns(state, &statement).await?;
    let resolved = qualified(&statement, &known);
    let error = match state.statement_to_plan(resolved).await {
        Err(error) if !known.is_empty() && identifiers::same_name(&error).is_none() => error,
        plan => return plan,
    };
    // In groups, it may be that only the column of the result has a value.
    for place in known.keys().copied().collect::<Vec<_>>() {
        let mut alone = qualified(&statement, &known);
        for_each_query(&mut alone, &mut |other, query| {
            if other != place && known.contains_key(&other) {
                query.order_by = None;
            }
        });
        match state.statement_to_plan(alone).await {
            Err(error) if identifiers::same_name(&error).is_none() => drop(known.remove(&place)),
            _ => {}
        }
    }
    state.statement_to_plan(qualified(&statement, &known)).await.map_err(|_| error)
}

/// The columns that ORDER BY can name where it has ambiguous names, if that can be told.
async fn known_columns(state: &SessionState, statement: &DfStatement) -> Result<KnownColumns> {
    let mut ambiguous = Vec::new();
    for_each_query(&mut statement.clone(), &mut |place, query| {
        if !ambiguous_names(query).is_empty() {
            ambiguous.push(place);
        }
    });
    if ambiguous.len() > MAX_AMBIGUOUS {
        return Err(DataFusionError::Plan(format!(
            "ORDER BY has names that both a result and a table have in {} queries, and at most \
             {MAX_AMBIGUOUS} are allowed: give the columns of the results other names",
            ambiguous.len()
        )));
    }
    let mut known = KnownColumns::new();
    for wanted in ambiguous {
        let mut probe = qualified(statement, &known);
        for_each_query(&mut probe, &mut |place, query| {
            if place == wanted {
                order_by_unknown(query);
            }
        });
        let Err(error) = state.statement_to_plan(probe).await else { continue };
        let columns = identifiers::columns_instead_of(&error, UNKNOWN_COLUMN);
        let mut is_changed = false;
        for_each_query(&mut statement.clone(), &mut |place, query| {
            is_changed |= place == wanted && qualify(query, columns);
        });
        if is_changed {
            known.insert(wanted, columns.to_vec());
        }
    }
    Ok(known)
}

/// The statement with tables at the ambiguous names of queries whose columns are known.
fn qualified(statement: &DfStatement, known: &KnownColumns) -> DfStatement {
    let mut statement = statement.clone();
    for_each_query(&mut statement, &mut |place, query| {
        if let Some(columns) = known.get(&place) {
            qualify(query, columns);
        }
    });
    statement
}

/// Names within expressions in ORDER BY that are also those of computed columns of the result.
fn ambiguous_names(query: &mut Query) -> BTreeSet<String> {
    let SetExpr::Select(select) = &*query.body else { return BTreeSet::new() };
    let computed = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { expr: Expr::Identifier(name), alias } if name == alias => None,
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        _ => None,
    };
    let mut computed: BTreeSet<String> = select.projection.iter().filter_map(computed).collect();
    for item in &select.projection {
        if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item
            && let Some(replace) = &options.opt_replace
        {
            computed.extend(replace.items.iter().map(|item| item.column_name.value.clone()));
        }
    }
    let mut found = BTreeSet::new();
    if !computed.is_empty() {
        for_each_name(query, &mut |_, name| {
            found.extend(computed.contains(&name).then_some(name));
        });
    }
    found
}

/// Calls a function for the names without a table that are within expressions in ORDER BY.
fn for_each_name(query: &mut Query, call: &mut dyn FnMut(&mut Expr, String)) {
    struct Names<'c> {
        /// How many subqueries are around, which have names of their own.
        depth: usize,
        call: &'c mut dyn FnMut(&mut Expr, String),
    }
    impl VisitorMut for Names<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if self.depth == 0
                && let Expr::Identifier(name) = expr
            {
                let name = name.value.clone();
                (self.call)(expr, name);
            }
            ControlFlow::Continue(())
        }
    }
    let Some(OrderBy { kind: OrderByKind::Expressions(by), .. }) = &mut query.order_by else {
        return;
    };
    for by in by.iter_mut().filter(|by| !result_names::is_name(&by.expr)) {
        let visited = by.expr.visit(&mut Names { depth: 0, call });
        debug_assert!(visited.is_continue());
    }
}

/// Makes planning a query fail with the list of columns that its ORDER BY can name.
fn order_by_unknown(query: &mut Query) {
    let unknown = OrderByExpr {
        expr: Expr::Identifier(Ident::with_quote('"', UNKNOWN_COLUMN)),
        options: OrderByOptions::default(),
        with_fill: None,
    };
    query.order_by =
        Some(OrderBy { kind: OrderByKind::Expressions(vec![unknown]), interpolate: None });
}

/// Adds the table to ambiguous names that exactly one table has. Returns whether there were any.
fn qualify(query: &mut Query, known: &[Column]) -> bool {
    let ambiguous = ambiguous_names(query);
    let mut is_changed = false;
    for_each_name(query, &mut |expr, name| {
        let tables = known.iter().filter(|column| column.name == name);
        let mut tables = tables.filter_map(|column| column.relation.as_ref());
        if ambiguous.contains(&name)
            && let (Some(table), None) = (tables.next(), tables.next())
        {
            let quoted = |part: &str| Ident::with_quote('"', part);
            let mut parts = identifiers::table_parts(table);
            parts.push(&name);
            *expr = Expr::CompoundIdentifier(parts.into_iter().map(quoted).collect());
            is_changed = true;
        }
    });
    is_changed
}
