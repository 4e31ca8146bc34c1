//! Messages of DataFusion's planner, in plain words.

use super::invalid_query::{InvalidQuery, QueryPosition, lower_first};

/// Converts a message of the planner. Some have parts of the syntax tree.
pub(super) fn planner_message(what: &str) -> InvalidQuery {
    rewritten(what).unwrap_or_else(|| without_tree(what))
}

const OUTER_REFERENCE: &str = "this reference to the outer query is not supported: only conditions \
                               such as `inner.a = outer.b`, without LIMIT, in SELECT, WHERE and \
                               HAVING";
const EXISTS: &str = "EXISTS, IN, ANY and ALL are only supported in WHERE and HAVING, and their \
                      subqueries can refer to the outer query only in WHERE, without LIMIT and \
                      UNION";
const EXISTS_HELP: &str =
    "elsewhere write `(select count(*) from … where …) > 0`, or join the tables";

/// What is in a message of the planner, and the message and help in its place.
const KNOWN: [(&str, &str, &str); 9] = [
    (
        "Correlated scalar subquery can only be used in ",
        OUTER_REFERENCE,
        "compute it in SELECT, and use its name",
    ),
    ("In/Exist/SetComparison subquery can only be used in ", EXISTS, EXISTS_HELP),
    (
        "Windows require unique expression names",
        "two window functions differ only in casts",
        "compute what is cast in a subquery in FROM: `(select *, x::int as y from t)`",
    ),
    (
        "Unary operator '-' only supports signed ",
        "a minus sign is only supported before signed numbers and intervals",
        "write `0 - x`",
    ),
    (
        "SELECT DISTINCT ON expressions must match ",
        "ORDER BY does not begin with the expressions of DISTINCT ON",
        "write `select distinct on (x) … order by x, y`, and sort by y alone in a query around it: \
         `select * from (…) order by y`",
    ),
    (
        "Conflicting ordering requirements ",
        "aggregates of one SELECT cannot have these different orders",
        "compute each in a subquery in FROM, and join them by the groups",
    ),
    (
        "unnest should be rewritten ",
        "`unnest` is only supported in SELECT and FROM",
        "name it in SELECT, and use the name in ORDER BY, or in a query around it",
    ),
    (
        "Correlated scalar subquery must be aggregated ",
        "a value that refers to the outer query may have several rows",
        "choose one by an aggregate: `(select max(k) …)`",
    ),
    (
        "Too many columns! The subquery should only return one column",
        "a subquery that values are compared with has one column",
        "for several, write `exists (select 1 from t where t.k = x and t.l = y)`",
    ),
];

/// A message that says what to write instead, for mistakes that are known.
fn rewritten(what: &str) -> Option<InvalidQuery> {
    if let Some((_, message, help)) = KNOWN.iter().find(|(known, ..)| what.contains(known)) {
        return with_help((*message).to_owned(), help);
    }
    if let Some(call) = between(what, "given name and argument types '", "'") {
        let message = format!("no function takes these arguments: `{call}`");
        return with_help(message, "cast the arguments to other types");
    }
    if let Some(parts) = what.strip_prefix("compound identifier: ") {
        return Some(InvalidQuery::new(format!("there is no column with these names: {parts}")));
    }
    if let Some(column) = between(what, "While expanding wildcard, column \"", "\" must appear") {
        return ungrouped(what, column);
    }
    if what.starts_with("Projections require unique expression names") {
        let mut places = what.split(" at position ").skip(1);
        let mut place = || places.next()?.split(' ').next()?.trim_end_matches('.').parse().ok();
        let (first, second): (usize, usize) = (place()?, place()?);
        let (first, second) = (first + 1, second + 1);
        let message = format!("columns {first} and {second} of the result have the same name");
        return with_help(message, "give one of them another name: `x as y`");
    }
    if what.starts_with("For SELECT DISTINCT, ORDER BY expressions ") {
        let help = "name what it is ordered by in SELECT, `x + 1 as y`, and order by `y`";
        return with_help(lower_first(what), help);
    }
    if let Some(name) = between(what, "Invalid function '", "'") {
        let message = format!("there is no function `{name}`");
        let similar = between(what, "Did you mean '", "'");
        return match similar.filter(|similar| is_similar(name, similar)) {
            Some(similar) => with_help(message, &format!("there is `{similar}`")),
            None => Some(InvalidQuery::new(message)),
        };
    }
    if let Some(table) = what.strip_prefix("Invalid qualifier ") {
        let help = "write it as in FROM, as its case matters here";
        return with_help(format!("there is no table `{table}` here"), help);
    }
    if let Some(window) = between(what, "The window ", " is not defined!") {
        let help = "write it as in WINDOW, as its case matters here";
        return with_help(format!("there is no window `{window}`"), help);
    }
    if let Some(field) = between(what, "Field ", " not found in struct") {
        let help = "the case of fields matters; `arrow_typeof(…)` shows all";
        return with_help(format!("the struct has no field `{field}`"), help);
    }
    if let Some(call) = between(what, "`retract_batch` is not implemented: ", "(") {
        let message = format!("`{call}` is not supported over a frame that leaves rows behind");
        let help = "begin the frame at `unbounded preceding`, or use `min` or `max`";
        return with_help(message, help);
    }
    if what.starts_with("Dot access not supported ") {
        let InvalidQuery { position, .. } = without_tree(what);
        let message = "a dot is only supported after the name of a column".to_owned();
        return Some(InvalidQuery { message, position, help: Some("write `['name']`".to_owned()) });
    }
    let node = what.strip_prefix("Physical plan does not support logical expression ")?;
    let (message, help) = misplaced(node)?;
    with_help(message.to_owned(), help)
}

fn with_help(message: String, help: &str) -> Option<InvalidQuery> {
    Some(InvalidQuery { message, position: None, help: Some(help.to_owned()) })
}

/// A column that is neither grouped nor aggregated where it has to be.
fn ungrouped(what: &str, column: &str) -> Option<InvalidQuery> {
    if [" ROWS ", " RANGE ", " GROUPS "].iter().any(|frame| column.contains(frame)) {
        let message = "ORDER BY has a window function, and the result has groups".to_owned();
        let help = "name it in SELECT, `rank() over (…) as r`, and order by `r`";
        return with_help(message, help);
    }
    if what.starts_with("Column in ORDER BY") && column.contains('(') {
        let message = format!("the order is by a computed column that has no name: `{column}`");
        return with_help(message, "name it in SELECT, `max(x) + 1 as y`, and order by `y`");
    }
    let message = format!("`{column}` is neither in GROUP BY nor in an aggregate");
    with_help(message, &format!("group by it, or choose a value: `max({column})`"))
}

/// What to write instead of an expression that is not computed where it is.
fn misplaced(node: &str) -> Option<(&'static str, &'static str)> {
    Some(match node.split(['(', ' ']).next()? {
        "WindowFunction" => (
            "window functions are only supported in SELECT, QUALIFY and ORDER BY",
            "filter by QUALIFY, or compute them in a subquery in FROM",
        ),
        "AggregateFunction" => (
            "aggregates are only supported in SELECT, HAVING, QUALIFY and ORDER BY, and not of \
             aggregates, nor of columns of the result that are aggregates",
            "compute them in a subquery in FROM",
        ),
        "ScalarSubquery" | "OuterReferenceColumn" => {
            (OUTER_REFERENCE, "join the tables, and aggregate or number the pairs of rows")
        }
        "Exists" | "InSubquery" | "SetComparison" => (EXISTS, EXISTS_HELP),
        _ => return None,
    })
}

fn is_similar(name: &str, other: &str) -> bool {
    strsim::jaro_winkler(&name.to_lowercase(), other) > 0.8
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// A message without parts of the syntax tree, and their position.
fn without_tree(what: &str) -> InvalidQuery {
    let Some((_, location)) = what.split_once("Location(") else {
        return InvalidQuery::new(lower_first(what));
    };
    let position = || {
        let (line, column) = location.split_once(')')?.0.split_once(',')?;
        let position =
            QueryPosition { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? };
        (position.line > 0 && position.column > 0).then_some(position)
    };
    let head = what.split(['{', '(', '[']).next().unwrap_or_default().trim();
    let (about, node) = head.rsplit_once(' ').unwrap_or(("", head));
    let message = if about.to_lowercase().starts_with("unsupported ast node") {
        format!("{} is not supported", words(node))
    } else {
        lower_first(about.trim_end_matches(':'))
    };
    InvalidQuery { message, position: position(), help: None }
}

/// `JSON TABLE` for `JsonTable`.
fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_uppercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_syntax_tree() {
        let tree = "Unsupported ast node in sqltorel: Collate { expr: Identifier(Ident { value: \
                    \"c\", quote_style: None, span: Span(Location(1,8)..Location(1,15)) }) }";
        let invalid = planner_message(tree);
        assert_eq!(invalid.message, "COLLATE is not supported");
        assert_eq!(invalid.position, Some(QueryPosition { line: 1, column: 8 }));
        let invalid = planner_message(
            "Dot access not supported for non-string expr: Identifier(Ident { value: \"c5\", \
             span: Span(Location(2,20)..Location(2,22)) })",
        );
        assert_eq!(invalid.message, "a dot is only supported after the name of a column");
        let invalid = planner_message(
            "Internal error: Function 'sum' failed to match any signature. No function matches \
             the given name and argument types 'sum(Utf8View)'. You might need to add casts.",
        );
        assert_eq!(invalid.message, "no function takes these arguments: `sum(Utf8View)`");
        assert_eq!(planner_message("Location(x").position, None);
        assert_eq!(words("JsonTable"), "JSON TABLE");
    }

    #[test]
    fn mistakes_are_explained_in_words_of_sql() {
        let grouped = "Column in SELECT must be in GROUP BY or an aggregate function: While \
                       expanding wildcard, column \"t.x\" must appear in the GROUP BY clause or";
        let twice = "Projections require unique expression names but the expression \"count(\
                     Int64(1)) AS count(*)\" at position 0 and \"count(Int64(1)) AS count(*)\" at \
                     position 2 have the same name. Consider aliasing (\"AS\") one of them.";
        let window = "Column in ORDER BY must be in GROUP BY or an aggregate function: While \
                      expanding wildcard, column \"rank() ORDER BY [sum(t.x) ASC NULLS LAST] RANGE \
                      BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW\" must appear in the GROUP BY";
        for (what, expected) in [
            (window, "name it in SELECT, `rank() over (…) as r`, and order by `r`"),
            (grouped, "`t.x` is neither in GROUP BY nor in an aggregate; group by it, "),
            (twice, "columns 1 and 3 of the result have the same name; "),
            ("Invalid qualifier x", "no table `x` here; write it as in FROM"),
            ("The window W is not defined!", "there is no window `W`; write it as in WINDOW"),
            ("Field X not found in struct", "the struct has no field `X`; the case of fields"),
            ("Invalid function 'nosuch'.\nDid you mean 'cos'?", "there is no function `nosuch`"),
            ("Invalid function 'summ'.\nDid you mean 'sum'?", "`summ`; there is `sum`"),
            ("Physical plan does not support logical expression Exists(Exists {", "EXISTS, IN, "),
            ("Unary operator '-' only supports signed numeric, interval", "; write `0 - x`"),
            (
                "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                "ORDER BY does not begin with the expressions of DISTINCT ON; write ",
            ),
            ("Conflicting ordering requirements in aggregate functions", "and join them by the"),
            ("Correlated scalar subquery must be aggregated to return", "by an aggregate: "),
            (
                "Too many columns! The subquery should only return one column: a, b",
                "has one column",
            ),
            (
                "Aggregate can not be used as a sliding accumulator because `retract_batch` is not \
                 implemented: bool_or(t.b) ORDER BY [t.n]",
                "`bool_or` is not supported over a frame",
            ),
        ] {
            let message = planner_message(what).to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
