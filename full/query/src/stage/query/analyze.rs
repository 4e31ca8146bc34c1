//! Analyzes a parsed query: the tables and functions that it uses, and whether it needs all rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

use datafusion::common::utils::datafusion_strsim::normalized_levenshtein;
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::{Signature, Volatility};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, ObjectName, Query as Ast, Select, SelectItem, SetExpr,
    SetOperator, SetQuantifier, TableFactor, Value, ValueWithSpan, Visit, Visitor,
};

use super::SqlMistake;
use super::complexity::name_of;
use crate::functions::scalar_functions;
use crate::stage::columns::EventColumn;

/// The functions that queries may call.
#[derive(Debug)]
pub(crate) struct Functions(BTreeMap<String, FunctionClass>);

/// The kind of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FunctionClass {
    /// Computes a value of one row.
    Scalar,
    /// Computes a value of many rows.
    Aggregate,
    /// Computes a value of neighbouring rows.
    Window,
    /// Returns different values in different runs.
    Volatile,
}

impl Functions {
    /// All functions of DataFusion.
    pub(crate) fn known() -> Self {
        let mut all = BTreeMap::new();
        let mut add = |name: &str,
                       aliases: &[String],
                       class: FunctionClass,
                       signature: Option<&Signature>| {
            let changes = signature.is_some_and(|of| of.volatility != Volatility::Immutable);
            let class = if changes { FunctionClass::Volatile } else { class };
            for name in aliases.iter().map(String::as_str).chain([name]) {
                // Some names are both; the one that needs fewer rows comes first, and the call
                // distinguishes them.
                all.entry(name.to_lowercase()).or_insert(class);
            }
        };
        for function in scalar_functions() {
            add(
                function.name(),
                function.aliases(),
                FunctionClass::Scalar,
                Some(function.signature()),
            );
        }
        for function in SessionStateDefaults::default_higher_order_functions() {
            add(function.name(), function.aliases(), FunctionClass::Scalar, None);
        }
        for function in SessionStateDefaults::default_aggregate_functions() {
            add(
                function.name(),
                function.aliases(),
                FunctionClass::Aggregate,
                Some(function.signature()),
            );
        }
        for function in SessionStateDefaults::default_window_functions() {
            add(
                function.name(),
                function.aliases(),
                FunctionClass::Window,
                Some(function.signature()),
            );
        }
        add("unnest", &[], FunctionClass::Scalar, None);
        Self(all)
    }

    fn nearest(&self, name: &str) -> Option<&str> {
        let likeness = |known: &str| normalized_levenshtein(known, name);
        let each = self.0.keys().map(|known| (known.as_str(), likeness(known)));
        let (nearest, likeness) = each.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (likeness > 0.6).then_some(nearest)
    }
}

/// The table of all events.
pub(in crate::stage) const EVENTS: &str = "events";

/// A table that a query reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::stage) enum QueryTable {
    /// All events.
    Events,
    /// The decoded events of a channel.
    Channel(String),
}

impl QueryTable {
    /// The name in queries.
    pub(in crate::stage) fn name(&self) -> &str {
        match self {
            Self::Events => EVENTS,
            Self::Channel(name) => name,
        }
    }
}

impl fmt::Display for QueryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", sluice_io::escape::printable(self.name()))
    }
}

/// A part of a query that needs all rows, in words, with its article.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::stage) struct PipelineBreaker(pub(in crate::stage) String);

/// The result of the analysis.
#[derive(Debug)]
pub(super) struct QueryAnalysis<'f> {
    functions: &'f Functions,
    /// The names of common table expressions.
    cte_names: BTreeSet<String>,
    found: BTreeSet<QueryTable>,
    pub(super) tables: Vec<QueryTable>,
    pub(super) pipeline_breaker: Option<PipelineBreaker>,
    /// How deeply the current query is nested.
    depth: usize,
}

impl<'f> QueryAnalysis<'f> {
    /// Analyzes a whole query.
    pub(super) fn of_query(ast: &Ast, functions: &'f Functions) -> Result<Self, SqlMistake> {
        let (cte_names, found) = (BTreeSet::new(), BTreeSet::new());
        let (tables, pipeline_breaker) = (Vec::new(), None);
        let mut analysis = Self { functions, cte_names, found, tables, pipeline_breaker, depth: 0 };
        if let ControlFlow::Break(mistake) = analysis.visit_query(ast) {
            return Err(mistake);
        }
        analysis.tables = std::mem::take(&mut analysis.found).into_iter().collect();
        if analysis.tables.is_empty() {
            let what =
                format!("the query reads no table: there is `{EVENTS}`, and one per channel");
            return Err(SqlMistake::new(what));
        }
        Ok(analysis)
    }

    fn breaks_pipeline(&mut self, what: impl Into<String>) {
        self.pipeline_breaker.get_or_insert_with(|| PipelineBreaker(what.into()));
    }

    /// Visits a whole query. The name of a common table expression is known after it: in itself, it
    /// is the table.
    fn visit_query(&mut self, ast: &Ast) -> ControlFlow<SqlMistake> {
        let Some(with) = &ast.with else { return ast.visit(self) };
        if with.recursive {
            return refuse("WITH RECURSIVE is not allowed: it may have no end");
        }
        self.depth += 1;
        for part in &with.cte_tables {
            part.query.visit(self)?;
            self.cte_names.insert(part.alias.name.value.clone());
        }
        self.depth -= 1;
        Ast { with: None, ..ast.clone() }.visit(self)
    }

    fn visit_body(&mut self, body: &SetExpr) -> ControlFlow<SqlMistake> {
        match body {
            SetExpr::Select(_) | SetExpr::Query(_) => {}
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                match (op, set_quantifier) {
                    (SetOperator::Union, SetQuantifier::All) => {}
                    (SetOperator::Union, _) => self.breaks_pipeline("UNION without ALL"),
                    (other, _) => self.breaks_pipeline(other.to_string()),
                }
                self.visit_body(left)?;
                self.visit_body(right)?;
            }
            SetExpr::Values(_) => self.breaks_pipeline("VALUES"),
            SetExpr::Table(_) => {
                return refuse("`table x` is not supported: write `select * from x`");
            }
            _ => return refuse("only a query is allowed: it starts with SELECT or WITH"),
        }
        ControlFlow::Continue(())
    }

    fn visit_call(&mut self, function: &Function) -> ControlFlow<SqlMistake> {
        let [part] = function.name.0.as_slice() else {
            return refuse(format!("there is no function `{}`", function.name));
        };
        let Some(ident) = part.as_ident() else { return ControlFlow::Continue(()) };
        let name = ident.value.to_lowercase();
        let at = |what: String| ControlFlow::Break(SqlMistake::at(ident.span, what));
        match self.functions.0.get(&name) {
            None => {
                let near = self.functions.nearest(&name);
                let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                return at(format!("there is no function `{}`{near}", ident.value));
            }
            Some(FunctionClass::Volatile) => {
                return at(format!(
                    "`{name}` has another value in every run, but the output of a pipeline may \
                     depend only on its input"
                ));
            }
            Some(_) if function.over.is_some() => {
                self.breaks_pipeline(format!("the window function `{name}`"));
            }
            Some(FunctionClass::Aggregate) => {
                self.breaks_pipeline(format!("the aggregate `{name}`"))
            }
            Some(FunctionClass::Window) => {
                self.breaks_pipeline(format!("the window function `{name}`"))
            }
            Some(FunctionClass::Scalar) => {}
        }
        ControlFlow::Continue(())
    }
}

fn refuse(what: impl Into<String>) -> ControlFlow<SqlMistake> {
    ControlFlow::Break(SqlMistake::new(what))
}

impl Visitor for QueryAnalysis<'_> {
    type Break = SqlMistake;

    fn pre_visit_query(&mut self, query: &Ast) -> ControlFlow<SqlMistake> {
        self.depth += 1;
        if query.with.is_some() {
            return refuse("WITH is only allowed at the start of the whole query");
        }
        if query.order_by.is_some() {
            self.breaks_pipeline("ORDER BY");
        }
        let is_limited = query.limit_clause.is_some() || query.fetch.is_some();
        if is_limited && self.depth > 1 {
            self.breaks_pipeline("a LIMIT in a subquery");
        }
        if !query.locks.is_empty() || query.for_clause.is_some() || !query.pipe_operators.is_empty()
        {
            return refuse("FOR and |> are not supported");
        }
        self.visit_body(&query.body)
    }

    fn post_visit_query(&mut self, _: &Ast) -> ControlFlow<SqlMistake> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlMistake> {
        if select.into.is_some() {
            return refuse("INTO is not allowed: a stage makes events, not tables");
        }
        if select.distinct.is_some() {
            self.breaks_pipeline("DISTINCT");
        }
        let is_grouped = match &select.group_by {
            GroupByExpr::All(_) => true,
            GroupByExpr::Expressions(by, _) => !by.is_empty(),
        };
        if is_grouped {
            self.breaks_pipeline("GROUP BY");
        }
        if select.having.is_some() {
            self.breaks_pipeline("HAVING");
        }
        let joins = select.from.iter().any(|from| !from.joins.is_empty());
        if joins || select.from.len() > 1 {
            self.breaks_pipeline("a JOIN");
        }
        if select.from.is_empty() {
            self.breaks_pipeline("a SELECT without FROM");
        }
        let others = [
            select.top.is_some(),
            !select.sort_by.is_empty(),
            !select.lateral_views.is_empty(),
            select.qualify.is_some(),
            !select.connect_by.is_empty(),
        ];
        if others.contains(&true) {
            self.breaks_pipeline("TOP, QUALIFY, SORT BY, LATERAL VIEW or CONNECT BY");
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<SqlMistake> {
        match factor {
            TableFactor::Table { args: None, sample: None, .. }
            | TableFactor::Derived { sample: None, lateral: false, .. }
            | TableFactor::NestedJoin { .. } => ControlFlow::Continue(()),
            TableFactor::Table { sample: Some(_), .. }
            | TableFactor::Derived { sample: Some(_), .. } => refuse(
                "TABLESAMPLE returns another sample in every run; use the stage `sample` to take \
                 every nth event",
            ),
            TableFactor::UNNEST { .. } => {
                refuse("UNNEST after FROM is not supported: write `select unnest(x) from …`")
            }
            TableFactor::Table { .. }
            | TableFactor::Function { .. }
            | TableFactor::TableFunction { .. } => refuse(format!(
                "table functions are not allowed: there is `{EVENTS}`, and a table per channel"
            )),
            _ => refuse("expected tables or queries in parentheses after FROM"),
        }
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<SqlMistake> {
        let name = name_of(relation);
        if name.is_empty() {
            return refuse(format!(
                "`{relation}` is not a table: a table is one word, `{EVENTS}` or the name of a \
                 channel, in double quotes if it has more than letters, digits and _"
            ));
        }
        if !self.cte_names.contains(&name) {
            let is_events = name == EVENTS;
            self.found.insert(if is_events {
                QueryTable::Events
            } else {
                QueryTable::Channel(name)
            });
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<SqlMistake> {
        match &value.value {
            Value::Placeholder(name) => ControlFlow::Break(SqlMistake::at(
                value.span,
                format!("the parameter `{name}` has no value; write the value itself"),
            )),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlMistake> {
        match expr {
            Expr::Function(function) => self.visit_call(function),
            Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => {
                self.breaks_pipeline("a subquery in an expression");
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether result events keep the times, and the channels and sources, of the events they come
/// from. `false` if unsure.
pub(super) fn preserved(ast: &Ast) -> (bool, bool) {
    let select = match &*ast.body {
        SetExpr::Select(select) if ast.with.is_none() => select,
        _ => return (false, false),
    };
    let [one] = select.from.as_slice() else { return (false, false) };
    let TableFactor::Table { name, alias, .. } = &one.relation else { return (false, false) };
    if !one.joins.is_empty() || alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
        return (false, false);
    }
    let table = alias.as_ref().map_or_else(|| name_of(name), |alias| alias.name.value.clone());
    let keeps =
        |own: EventColumn| select.projection.iter().all(|item| keeps_own(item, own.name(), &table));
    (keeps(EventColumn::Timestamp), keeps(EventColumn::Channel) && keeps(EventColumn::Source))
}

/// Whether a select item leaves this column of `table` unchanged.
fn keeps_own(item: &SelectItem, name: &str, table: &str) -> bool {
    let is_it = |expr: &Expr| match expr {
        Expr::Identifier(ident) => ident.value == name,
        // A field of a struct may have the same name.
        Expr::CompoundIdentifier(parts) => {
            matches!(parts.as_slice(), [of, ident] if of.value == table && ident.value == name)
        }
        _ => false,
    };
    match item {
        SelectItem::ExprWithAlias { expr, alias } => alias.value != name || is_it(expr),
        SelectItem::ExprWithAliases { aliases, .. } => {
            aliases.iter().all(|alias| alias.value != name)
        }
        SelectItem::UnnamedExpr(_) => true,
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
            options.opt_replace.is_none() && options.opt_rename.is_none()
        }
    }
}
