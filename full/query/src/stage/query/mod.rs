//! Parses the query of a stage, and checks what can be checked before any event is read.

mod analyze;
mod complexity;
mod sql_mistake;

use datafusion::common::DFSchema;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, LimitClause, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, Query as Ast,
    SetExpr, Statement, Value,
};

pub(super) use analyze::{EVENTS, Functions, PipelineBreaker, QueryTable};
pub(super) use sql_mistake::SqlMistake;

use super::columns::{self, EventColumn};
use crate::precedence::correct_precedence;
use crate::refusals::{check_numbers, check_syntax};
use analyze::QueryAnalysis;

/// Longer queries are refused: parsing takes a multiple of their length.
const MAX_BYTES: usize = 16 << 10;

/// How deeply expressions may be nested.
const MAX_DEPTH: usize = 40;

/// A query of one stage.
#[derive(Clone, Debug)]
pub(super) struct Query {
    text: String,
    ast: Ast,
    /// The tables that it reads, sorted.
    pub(super) tables: Vec<QueryTable>,
    /// The first part that needs all rows, if any.
    pub(super) pipeline_breaker: Option<PipelineBreaker>,
    /// `LIMIT` and `OFFSET` of a per-row query.
    pub(super) limit: Option<LimitOffset>,
    /// Whether result events keep the times of the events they come from.
    pub(super) keeps_times: bool,
    /// Whether they keep channels and sources.
    pub(super) keeps_channels: bool,
}

/// `LIMIT` and `OFFSET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LimitOffset {
    pub(super) skip: u64,
    pub(super) fetch: Option<u64>,
}

impl Query {
    /// Parses a query.
    pub(super) fn parse(text: &str, functions: &Functions) -> Result<Self, SqlMistake> {
        if text.len() > MAX_BYTES {
            return Err(SqlMistake::new(format!("the query is longer than {MAX_BYTES} bytes")));
        }
        complexity::check_size(text)?;
        check_numbers(text).map_err(SqlMistake::new)?;
        let mut ast = parse_single_query(text)?;
        complexity::check_expansion(&ast)?;
        let analysis = QueryAnalysis::of_query(&ast, functions)?;
        check_syntax(&ast).map_err(SqlMistake::new)?;
        let (keeps_times, keeps_channels) = analyze::preserved(&ast);
        let mut pipeline_breaker = analysis.pipeline_breaker;
        let mut limit = None;
        if pipeline_breaker.is_none() {
            match limit_of(&ast) {
                Ok(found) => {
                    limit = found;
                    (ast.limit_clause, ast.fetch) = (None, None);
                }
                Err(what) => pipeline_breaker = Some(PipelineBreaker(what)),
            }
        }
        let text = text.to_owned();
        Ok(Self {
            text,
            ast,
            tables: analysis.tables,
            pipeline_breaker,
            limit,
            keeps_times,
            keeps_channels,
        })
    }

    /// The start of the text on one line, to identify the query in messages.
    pub(super) fn excerpt(&self) -> String {
        const MOST: usize = 60;
        let words = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        match words.char_indices().nth(MOST) {
            Some((at, _)) => format!("{}…", words.get(..at).unwrap_or_default()),
            None => words,
        }
    }

    /// Renders an error with the line that it is in.
    pub(super) fn render(&self, mistake: &SqlMistake) -> String {
        mistake.render(&self.text)
    }

    /// The statement to plan.
    pub(super) fn statement(&self) -> DfStatement {
        statement_of(self.ast.clone())
    }

    /// The statement with a total order, so that equal input gives equal output: first what the
    /// query orders by, or else time, then all sortable columns of `plan`.
    pub(super) fn with_total_order(&self, plan: &LogicalPlan) -> DfStatement {
        let mut ast = self.ast.clone();
        let schema = plan.schema();
        if has_distinct_on(&ast) {
            // It would have to begin with what it is distinct on, and repeats no column.
            ast = outer_query(&ast, schema);
        }
        let place = |at: usize| {
            let number = Value::Number((at + 1).to_string(), false).with_empty_span();
            OrderByExpr {
                expr: Expr::Value(number),
                options: OrderByOptions::default(),
                with_fill: None,
            }
        };
        let fields = schema.fields().iter().enumerate();
        let sorted = fields.filter(|(_, field)| columns::has_order(field.data_type()));
        let mut rest: Vec<usize> = sorted.map(|(at, _)| at).collect();
        rest.sort_by_key(|at| schema.field(*at).name() != EventColumn::Timestamp.name());
        let rest = rest.into_iter().map(place);
        match ast.order_by.as_mut().map(|order| &mut order.kind) {
            Some(OrderByKind::Expressions(by)) => by.extend(rest),
            Some(OrderByKind::All(_)) => {}
            None => {
                let kind = OrderByKind::Expressions(rest.collect());
                ast.order_by = Some(OrderBy { kind, interpolate: None });
            }
        }
        statement_of(ast)
    }
}

fn has_distinct_on(ast: &Ast) -> bool {
    let SetExpr::Select(select) = &*ast.body else { return false };
    matches!(select.distinct, Some(Distinct::On(_)))
}

/// A query of all columns of `inner`, in its order as far as that is by these columns.
fn outer_query(inner: &Ast, schema: &DFSchema) -> Ast {
    let by = match inner.order_by.as_ref().map(|order| &order.kind) {
        Some(OrderByKind::Expressions(by)) => by.as_slice(),
        _ => &[],
    };
    let is_column = |by: &&OrderByExpr| match &by.expr {
        Expr::Identifier(name) => schema.has_column_with_unqualified_name(&name.value),
        _ => false,
    };
    let by: Vec<OrderByExpr> = by.iter().take_while(is_column).cloned().collect();
    let mut outer = parse_single_query(&format!("select * from ({inner})"))
        .unwrap_or_else(|_| unreachable!("a query in parentheses is a table"));
    outer.order_by = (!by.is_empty())
        .then_some(OrderBy { kind: OrderByKind::Expressions(by), interpolate: None });
    outer
}

fn statement_of(ast: Ast) -> DfStatement {
    DfStatement::Statement(Box::new(Statement::Query(Box::new(ast))))
}

/// Parses a text of exactly one query.
fn parse_single_query(text: &str) -> Result<Ast, SqlMistake> {
    let parser = DFParserBuilder::new(text).with_recursion_limit(MAX_DEPTH).build();
    let statements = parser.and_then(|mut parser| parser.parse_statements());
    let mut statements = statements.map_err(SqlMistake::from_parser)?;
    let statement = match (statements.pop_front(), statements.is_empty()) {
        (Some(statement), true) => statement,
        (None, _) => {
            return Err(SqlMistake::new("the query is empty: write `select … from events`"));
        }
        (Some(_), false) => {
            return Err(SqlMistake::new("expected one query, found several statements"));
        }
    };
    let refused = "only a query is allowed: it starts with SELECT or WITH";
    let DfStatement::Statement(statement) = statement else { return Err(SqlMistake::new(refused)) };
    match *statement {
        Statement::Query(mut query) => {
            correct_precedence(&mut *query);
            Ok(*query)
        }
        _ => Err(SqlMistake::new(refused)),
    }
}

/// `LIMIT` and `OFFSET` of the query. `Err` names a form that is not a plain number.
fn limit_of(ast: &Ast) -> Result<Option<LimitOffset>, String> {
    if ast.fetch.is_some() {
        return Err("FETCH".to_owned());
    }
    let (limit, offset) = match &ast.limit_clause {
        None => return Ok(None),
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
            (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
        Some(_) => return Err("LIMIT BY".to_owned()),
    };
    let number = |expr: &Expr| match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse::<u64>().ok(),
            _ => None,
        },
        _ => None,
    };
    let wrong = || "a LIMIT that is not a plain number".to_owned();
    let fetch = limit.map(|limit| number(limit).ok_or_else(wrong)).transpose()?;
    let skip = offset.map(|offset| number(offset).ok_or_else(wrong)).transpose()?;
    Ok(Some(LimitOffset { skip: skip.unwrap_or(0), fetch }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Query, String> {
        Query::parse(text, &Functions::known()).map_err(|mistake| mistake.render(text))
    }

    fn pipeline_breaker(text: &str) -> Option<String> {
        read(text).unwrap().pipeline_breaker.map(|breaker| breaker.0)
    }

    #[test]
    fn a_mistake_is_shown_where_it_is() {
        let shown = read("select a\nfrom POSE wher b").unwrap_err();
        assert!(shown.contains("at line 2, column 16: "), "{shown}");
        assert!(shown.ends_with("\n\n  from POSE wher b\n                 ^"), "{shown}");
        let shown = read("select velocty(a), averag(b) from POSE").unwrap_err();
        assert!(shown.contains("at line 1, column 8: there is no function `velocty`"), "{shown}");
        let shown = read("select arry_length(a) from POSE").unwrap_err();
        assert!(shown.contains("did you mean `array_length`?"), "{shown}");
    }

    #[test]
    fn per_row_queries_differ_from_those_that_need_all_rows() {
        for per_row in [
            "select * from POSE where vel[1] > 3",
            "select timestamp, x.a + 1 as b from POSE p where p.q is not null and q in (1, 2)",
            "select a from A union all select b from B",
            "select t.a from (select a from A where a > 1) t limit 5 offset 2",
            "with fast as (select * from POSE) select v from fast",
            "select unnest(ranges) as range from SCAN",
            "select case when a > 1 then 'x' else upper(b) end as c from A",
        ] {
            assert_eq!(pipeline_breaker(per_row), None, "{per_row}");
        }
        for (blocking, what) in [
            ("select channel, count(*) from events group by channel", "GROUP BY"),
            ("select max(a) from A", "the aggregate `max`"),
            ("select distinct a from A", "DISTINCT"),
            ("select a from A order by a", "ORDER BY"),
            ("select a from A union select a from B", "UNION without ALL"),
            ("select a from A except select a from B", "EXCEPT"),
            ("select A.a from A join B on A.t = B.t", "a JOIN"),
            ("select A.a from A, B", "a JOIN"),
            ("select lag(a) over (order by t) from A", "the window function `lag`"),
            ("select row_number() over () from A", "the window function `row_number`"),
            ("select a from A where a > (select max(b) from B)", "a subquery in an expression"),
            ("select a from A where a in (select b from B)", "a subquery in an expression"),
            ("select a from (select a from A limit 3)", "a LIMIT in a subquery"),
        ] {
            let found = pipeline_breaker(blocking);
            assert!(found.as_deref().is_some_and(|found| found.contains(what)), "{found:?}");
        }
    }

    #[test]
    fn limit_and_offset_of_the_whole_query_are_parsed() {
        let limit = |text| read(text).unwrap().limit;
        assert_eq!(limit("select a from A"), None);
        let ten = Some(LimitOffset { skip: 0, fetch: Some(10) });
        assert_eq!(limit("select a from A limit 10"), ten);
        assert_eq!(limit("select a from A offset 3"), Some(LimitOffset { skip: 3, fetch: None }));
        assert!(pipeline_breaker("select a from A limit 1 + 1").is_some());
    }

    #[test]
    fn tables_are_found_without_those_of_a_with_clause() {
        let tables = |text| read(text).unwrap().tables;
        let text =
            "with fast as (select * from POSE) select * from fast union all select * from \"a b\"";
        let channel = |name: &str| QueryTable::Channel(name.to_owned());
        assert_eq!(tables(text), [channel("POSE"), channel("a b")]);
        assert_eq!(tables("select timestamp from events"), [QueryTable::Events]);
    }

    #[test]
    fn a_with_part_named_like_its_table_reads_the_table() {
        let tables = |text| read(text).unwrap().tables;
        let pose = || QueryTable::Channel("POSE".to_owned());
        let text = "with POSE as (select * from POSE where v > 1) select * from POSE";
        assert_eq!(tables(text), [pose()]);
        let text = "with a as (select * from b), b as (select * from POSE) select * from b";
        assert_eq!(tables(text), [pose(), QueryTable::Channel("b".to_owned())]);
        let text = "with events as (select * from events), b as (select * from events) select * \
                    from (select * from b)";
        assert_eq!(tables(text), [QueryTable::Events]);
        assert_eq!(pipeline_breaker(text), None);
        let message = read("with a as (with b as (select 1) select * from b) select * from a");
        assert!(message.unwrap_err().contains("only allowed at the start"));
    }

    #[test]
    fn volatile_functions_are_refused() {
        for volatile in
            ["now()", "random()", "uuid()", "current_date", "current_timestamp", "current_time()"]
        {
            let message = read(&format!("select {volatile} as x from events")).unwrap_err();
            assert!(message.contains("another value in every run"), "{volatile}: {message}");
        }
        let message = read("select a from A tablesample (10 percent)").unwrap_err();
        assert!(message.contains("sample"), "{message}");
    }

    #[test]
    fn other_statements_and_tables_are_refused() {
        for (text, what) in [
            ("", "empty"),
            ("select 1", "reads no table"),
            ("select a from A; select a from A", "several statements"),
            ("drop table A", "only a query"),
            ("insert into A values (1)", "only a query"),
            ("copy A to 'x.csv'", "only a query"),
            ("create external table t stored as csv location '/etc/passwd'", "only a query"),
            ("explain select a from A", "only a query"),
            ("select * from generate_series(1, 10)", "table functions"),
            ("select * from '/etc/passwd'", "`/etc/passwd`"),
            ("select * from a.b", "one word"),
            (
                "with recursive r as (select a from A union all select a from r) select * from r",
                "RECURSIVE",
            ),
            ("select a into B from A", "INTO"),
            ("values (1), (2)", "reads no table"),
            ("select a from A where b similar to 'x'", "SIMILAR TO"),
            ("select a from A prewhere b > 1", "PREWHERE"),
            ("select a * 1_000 as a from A", "`1_000`"),
        ] {
            match read(text) {
                Err(message) => assert!(message.contains(what), "{text}: {message}"),
                // A path is just the name of a channel.
                Ok(query) => assert_eq!(query.tables[0].name(), what.trim_matches('`'), "{text}"),
            }
        }
    }

    #[test]
    fn hostile_queries_are_refused_or_read_without_harm() {
        let read = |text: String| read(&text);
        assert!(read("select ".repeat(9_000)).unwrap_err().contains("longer than"));
        let deep = |open: &str, close: &str, n: usize| {
            format!("select {}a{} from A", open.repeat(n), close.repeat(n))
        };
        assert!(read(deep("(", ")", 3_000)).unwrap_err().contains("parts"));
        assert!(read(deep("(", ")", 200)).unwrap_err().contains("deep"));
        assert!(read(deep("not ", "", 2_000)).is_err());
        assert!(read(deep("- ", "", 2_000)).is_err());
        assert!(
            read(format!("select a{} from A", "+1".repeat(5_000))).unwrap_err().contains("parts")
        );
        assert!(read(format!("select a{} from A", "::int".repeat(2_000))).is_err());
        assert!(read(format!("select a{} from A", "[1]".repeat(2_000))).is_err());
        assert!(
            read(format!("select * from {}A{}", "(select * from ".repeat(500), ")".repeat(500)))
                .is_err()
        );
        let doubled = (1..20)
            .map(|n| format!("c{n} as (select * from c{0} union all select * from c{0})", n - 1));
        let doubled: Vec<String> = doubled.collect();
        let text =
            format!("with c0 as (select a from A), {} select * from c19", doubled.join(", "));
        assert!(read(text).unwrap_err().contains("times"));
        for garbage in
            ["\u{0}", "select '", "select \"", "/* ", "select $1 from A", "🤖", "select a from"]
        {
            assert!(read(garbage.to_owned()).is_err(), "{garbage:?}");
        }
    }

    #[test]
    fn unchanged_times_and_channels_are_recognised() {
        let keeps =
            |text| read(text).map(|query| (query.keeps_times, query.keeps_channels)).unwrap();
        assert_eq!(keeps("select v from POSE"), (true, true));
        assert_eq!(keeps("select timestamp, 'x' as channel from POSE"), (true, false));
        assert_eq!(
            keeps("select timestamp + interval '1 second' as timestamp from POSE"),
            (false, true)
        );
        assert_eq!(keeps("select * from (select 1 as timestamp from POSE)"), (false, false));
        assert_eq!(keeps("select p.*, p.timestamp as timestamp from POSE p"), (true, true));
        for text in [
            "select p.* replace (timestamp + interval '1 day' as timestamp) from POSE p",
            "select header.timestamp as timestamp from POSE",
        ] {
            assert!(!keeps(text).0, "{text}");
        }
        assert_eq!(keeps("select timestamp from POSE as p (timestamp, a, b, c)"), (false, false));
    }
}
