//! Refuses clauses that the planner ignores.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Cte, Expr, GroupByExpr, Join, JoinConstraint, JoinOperator, NamedWindowExpr,
    OrderBy, OrderByExpr, OrderByKind, PipeOperator, Query, Select, SelectFlavor, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, SetOperator, SetQuantifier, TableFactor,
    TableWithJoins, UnaryOperator, Value, ValueWithSpan, Visit, Visitor, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::calls;
use super::refusal::{Refusal, number, refuse, refuse_if};

/// Refuses a statement with a clause that the planner would ignore or misread.
pub(crate) fn check_syntax(statement: &impl Visit) -> Result<(), String> {
    match statement.visit(&mut SyntaxCheck) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(what) => Err(what),
    }
}

/// Refuses numbers with a word right behind them: `1_000` would be `1`, called `_000`.
pub(crate) fn check_numbers(text: &str) -> Result<(), String> {
    let mut tokens = Vec::new();
    // The parser reports what is no token.
    drop(Tokenizer::new(&GenericDialect {}, text).tokenize_with_location_into_buf(&mut tokens));
    for pair in tokens.windows(2) {
        if let [number, word] = pair
            && let (Token::Number(digits, _), Token::Word(word)) = (&number.token, &word.token)
            && word.quote_style.is_none()
        {
            return Err(format!(
                "`{digits}{word}` is neither a number nor a name: write numbers without `_`, and \
                 a blank after them"
            ));
        }
    }
    Ok(())
}

struct SyntaxCheck;

impl Visitor for SyntaxCheck {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> Refusal {
        check_query(query)
    }

    fn pre_visit_select(&mut self, select: &Select) -> Refusal {
        check_select(select)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Refusal {
        check_table(factor)
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Refusal {
        match expr {
            Expr::SimilarTo { .. } => refuse(
                "SIMILAR TO is not supported: use LIKE, or a regular expression for the whole \
                 text, `x ~ '^(a|b)$'`",
            ),
            Expr::BinaryOp { op: BinaryOperator::Arrow | BinaryOperator::LongArrow, .. } => refuse(
                "`->` is not supported: write `s['name']` for a field, and `select unnest(xs) as x \
                 …` in FROM to compute with the elements of a list",
            ),
            Expr::Function(function) => calls::check_call(function),
            Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => refuse_if(
                is_test(right),
                "IS after IS DISTINCT FROM can be read in two ways: put one of them into \
                 parentheses",
            ),
            Expr::Like { escape_char: Some(escape), .. }
            | Expr::ILike { escape_char: Some(escape), .. } => refuse_if(
                !matches!(&escape.value, Value::SingleQuotedString(text) if text == "\\"),
                "ESCAPE is only supported with the backslash, which escapes without it, too: \
                 `x like 'C\\_%'`",
            ),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match number(expr) {
                Some(digits) => check_integer(digits, 1 << 63, "-"),
                None => ControlFlow::Continue(()),
            },
            Expr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) => refuse(format!(
                "`{name}` would stand for a value that is given later: write the value itself"
            )),
            Expr::Value(_) => match number(expr) {
                Some(digits) => check_integer(digits, u64::MAX, ""),
                None => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether it is an operator that begins with IS, without parentheses.
fn is_test(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsNotTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsNotFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotUnknown(_)
            | Expr::IsDistinctFrom(..)
            | Expr::IsNotDistinctFrom(..)
    )
}

/// Refuses integers that would be rounded to floating-point numbers.
fn check_integer(digits: &str, max: u64, sign: &str) -> Refusal {
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_integer || digits.parse::<u64>().is_ok_and(|value| value <= max) {
        return ControlFlow::Continue(());
    }
    refuse(format!(
        "the integer {sign}{digits} is beyond 64 bits: write `{sign}{digits}.0` for a \
         floating-point number, or `'{sign}{digits}'::decimal(38, 0)`"
    ))
}

fn check_query(query: &Query) -> Refusal {
    refuse_if(!query.locks.is_empty(), "FOR UPDATE and FOR SHARE are not supported")?;
    refuse_if(query.for_clause.is_some(), "FOR XML, FOR JSON and FOR BROWSE are not supported")?;
    let has_settings = query.settings.is_some() || query.format_clause.is_some();
    refuse_if(has_settings, "SETTINGS and FORMAT are not supported in a query")?;
    check_set_operations(&query.body)?;
    if let Some(with) = query.with.as_ref().filter(|with| with.recursive) {
        with.cte_tables.iter().try_for_each(check_recursive)?;
    }
    query.pipe_operators.iter().try_for_each(check_pipe_operator)?;
    if let Some(OrderBy { kind: OrderByKind::Expressions(by), .. }) = &query.order_by {
        by.iter().try_for_each(check_order_by)?;
    }
    let windows = calls::has_named_window(&query.order_by);
    refuse_if(windows || calls::has_named_window(&query.pipe_operators), calls::NAMED_WINDOW)
}

/// Those with ALL return too many or too few equal rows.
fn check_set_operations(body: &SetExpr) -> Refusal {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else {
        return ControlFlow::Continue(());
    };
    if *op != SetOperator::Union && *set_quantifier == SetQuantifier::All {
        return refuse(format!("{op} ALL is not supported: {op} returns each row once"));
    }
    check_set_operations(left)?;
    check_set_operations(right)
}

fn check_recursive(part: &Cte) -> Refusal {
    let Query { with, body, order_by, limit_clause, fetch, pipe_operators, .. } = &*part.query;
    let is_recursive = matches!(&**body, SetExpr::SetOperation { op: SetOperator::Union, .. });
    let is_bare = with.is_none()
        && order_by.is_none()
        && limit_clause.is_none()
        && fetch.is_none()
        && pipe_operators.is_empty();
    refuse_if(
        is_recursive && !is_bare,
        "WITH RECURSIVE allows no WITH, ORDER BY or LIMIT in a part with UNION: write them in the \
         query that reads it",
    )
}

fn check_pipe_operator(operator: &PipeOperator) -> Refusal {
    match operator {
        PipeOperator::Join(join) => check_join(join),
        PipeOperator::Aggregate { full_table_exprs, group_by_expr } => refuse_if(
            full_table_exprs.iter().chain(group_by_expr).any(|expr| expr.order_by.asc.is_some()),
            "ASC and DESC are not supported in AGGREGATE: write `|> order by …`",
        ),
        PipeOperator::OrderBy { exprs } => exprs.iter().try_for_each(check_order_by),
        _ => ControlFlow::Continue(()),
    }
}

/// Refuses constants, which order nothing, except those that are places of columns.
fn check_order_by(by: &OrderByExpr) -> Refusal {
    let is_place = number(&by.expr).is_some_and(|digits| digits.parse::<usize>().is_ok());
    if is_place || !is_constant(&by.expr) {
        return ControlFlow::Continue(());
    }
    let constant: String = by.expr.to_string().chars().take(60).collect();
    refuse(format!(
        "`{constant}` in ORDER BY is a constant, which orders nothing: write the place of a \
         column, 1, 2, …, or its name, which has no quotes or double ones"
    ))
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => is_constant(expr),
        _ => false,
    }
}

fn check_select(select: &Select) -> Refusal {
    refuse_if(select.prewhere.is_some(), "PREWHERE is not supported: use WHERE")?;
    refuse_if(!select.connect_by.is_empty(), "CONNECT BY is not supported: use WITH RECURSIVE")?;
    let no_select = select.flavor == SelectFlavor::FromFirstNoSelect;
    refuse_if(no_select, "FROM needs a SELECT: write `select * from …`")?;
    let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = &select.group_by;
    refuse_if(
        !modifiers.is_empty(),
        "WITH ROLLUP, WITH CUBE, WITH TOTALS and GROUPING SETS after GROUP BY columns are not \
         supported: write `group by rollup (…)`, `cube (…)` or `grouping sets (…)`",
    )?;
    refuse_if(
        select.value_table_mode.is_some(),
        "SELECT AS STRUCT and AS VALUE are not supported",
    )?;
    let clauses = [
        ("WHERE", calls::has_windows(&select.selection)),
        ("GROUP BY", calls::has_windows(&select.group_by)),
        ("HAVING", calls::has_windows(&select.having)),
    ];
    if let Some((clause, _)) = clauses.iter().find(|(_, has_windows)| *has_windows) {
        return refuse(format!(
            "window functions are not supported in {clause}: filter by QUALIFY, or compute them \
             in a subquery in FROM"
        ));
    }
    refuse_if(select.exclude.is_some(), "EXCLUDE is only supported right after `*`")?;
    select.projection.iter().try_for_each(check_item)?;
    select.from.iter().try_for_each(check_joins)?;
    let extends = select.named_window.iter().any(|window| match &window.1 {
        NamedWindowExpr::WindowSpec(spec) => spec.window_name.is_some(),
        NamedWindowExpr::NamedWindow(_) => false,
    });
    refuse_if(extends, calls::EXTENDED_WINDOW)?;
    let windows = calls::has_named_window(&select.qualify);
    refuse_if(windows || calls::has_named_window(&select.distinct), calls::NAMED_WINDOW)
}

fn check_item(item: &SelectItem) -> Refusal {
    let (SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)) = item else {
        return ControlFlow::Continue(());
    };
    let WildcardAdditionalOptions { opt_ilike, opt_alias, .. } = options;
    refuse_if(opt_ilike.is_some(), "`* ILIKE` is not supported: name columns, or use `* EXCLUDE`")?;
    refuse_if(opt_alias.is_some(), "`*` can have no name: name columns")?;
    let of_value =
        matches!(item, SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::Expr(_), _));
    refuse_if(of_value, "`.*` is only supported after a table")
}

fn check_joins(from: &TableWithJoins) -> Refusal {
    from.joins.iter().try_for_each(check_join)
}

fn check_join(join: &Join) -> Refusal {
    use JoinConstraint::{Natural, None, Using};
    match &join.join_operator {
        JoinOperator::Join(None)
        | JoinOperator::Inner(None)
        | JoinOperator::Left(None)
        | JoinOperator::LeftOuter(None)
        | JoinOperator::Right(None)
        | JoinOperator::RightOuter(None)
        | JoinOperator::FullOuter(None)
        | JoinOperator::LeftSemi(None)
        | JoinOperator::RightSemi(None)
        | JoinOperator::LeftAnti(None)
        | JoinOperator::RightAnti(None) => {
            refuse("JOIN needs ON or USING: write CROSS JOIN for all pairs of rows")
        }
        JoinOperator::Semi(_) | JoinOperator::Anti(_) => {
            let kind =
                if matches!(join.join_operator, JoinOperator::Semi(_)) { "SEMI" } else { "ANTI" };
            refuse(format!("{kind} JOIN needs a side: write LEFT {kind} JOIN"))
        }
        // The columns in common would be those of the left table, which has no row.
        JoinOperator::Right(Using(_) | Natural)
        | JoinOperator::RightOuter(Using(_) | Natural)
        | JoinOperator::FullOuter(Using(_) | Natural) => refuse(
            "RIGHT and FULL JOIN are not supported with USING or NATURAL: write `on a.x = b.x`, \
             and `coalesce(a.x, b.x)`",
        ),
        _ => ControlFlow::Continue(()),
    }
}

fn check_table(factor: &TableFactor) -> Refusal {
    let has_sample = match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => return check_joins(table_with_joins),
        TableFactor::Function { with_ordinality, .. } => {
            return refuse_if(*with_ordinality, ORDINALITY);
        }
        TableFactor::Table {
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
            ..
        } => {
            let has_hints = !with_hints.is_empty() || !index_hints.is_empty();
            refuse_if(has_hints, "hints after a table are not supported")?;
            refuse_if(version.is_some(), "versions of a table are not supported")?;
            refuse_if(!partitions.is_empty(), "PARTITION after a table is not supported")?;
            refuse_if(json_path.is_some(), "paths after a table are not supported")?;
            refuse_if(*with_ordinality, ORDINALITY)?;
            sample.is_some()
        }
        TableFactor::Derived { sample, .. } => sample.is_some(),
        _ => false,
    };
    refuse_if(
        has_sample,
        "TABLESAMPLE is not supported: `where sequence % 100 = 0` takes one row of a hundred",
    )
}

const ORDINALITY: &str = "WITH ORDINALITY is not supported: use `row_number() over ()`";
