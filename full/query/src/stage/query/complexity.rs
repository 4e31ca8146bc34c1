//! Limits the complexity of a query before it is planned: otherwise planning may take forever, or
//! overflow the stack.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{ObjectName, Query as Ast, visit_relations};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::SqlMistake;

/// The most operators and clauses: each may be nested in the one before.
const MAX_PARTS: usize = 400;

/// The most table reads after common table expressions are expanded.
const MAX_READS: u64 = 200;

/// Refuses queries with too many parts.
pub(super) fn check_size(text: &str) -> Result<(), SqlMistake> {
    let dialect = GenericDialect {};
    // The parser reports errors in the text.
    let Ok(tokens) = Tokenizer::new(&dialect, text).tokenize() else { return Ok(()) };
    let parts = tokens.iter().filter(|token| is_part(token)).count();
    if parts <= MAX_PARTS {
        return Ok(());
    }
    Err(SqlMistake::new(format!(
        "the query has {parts} parts, and at most {MAX_PARTS} are allowed; `x in (1, 2, …)` is \
         one part for any number of values"
    )))
}

fn is_part(token: &Token) -> bool {
    match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::NOT
                | Keyword::XOR
                | Keyword::SELECT
                | Keyword::FROM
                | Keyword::JOIN
                | Keyword::UNION
                | Keyword::EXCEPT
                | Keyword::INTERSECT
                | Keyword::CASE
                | Keyword::WHEN
                | Keyword::BETWEEN
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::IS
                | Keyword::IN
                | Keyword::DIV
                | Keyword::COLLATE
                | Keyword::AT
        ),
        Token::Comma
        | Token::Period
        | Token::SemiColon
        | Token::EOF
        | Token::Whitespace(_)
        | Token::Number(..)
        | Token::RParen
        | Token::RBracket
        | Token::RBrace => false,
        // Calls may be nested.
        Token::LParen | Token::LBracket | Token::LBrace => true,
        other => !other.to_string().starts_with(['\'', '"']),
    }
}

/// Refuses queries whose expanded common table expressions read too many tables.
pub(super) fn check_expansion(ast: &Ast) -> Result<(), SqlMistake> {
    let mut reads: BTreeMap<String, u64> = BTreeMap::new();
    for part in ast.with.iter().flat_map(|with| &with.cte_tables) {
        let of_part = reads_of(&part.query, &reads);
        reads.insert(part.alias.name.value.clone(), of_part);
    }
    let all = reads_of(&ast.body, &reads);
    if all <= MAX_READS {
        return Ok(());
    }
    Err(SqlMistake::new(format!(
        "the query reads tables more than {MAX_READS} times: each use of a WITH query reads its \
         tables again"
    )))
}

fn reads_of<V: datafusion::sql::sqlparser::ast::Visit>(
    part: &V,
    known: &BTreeMap<String, u64>,
) -> u64 {
    let mut sum = 0u64;
    let visited = visit_relations(part, |name: &ObjectName| {
        sum = sum.saturating_add(known.get(&name_of(name)).copied().unwrap_or(1));
        ControlFlow::<()>::Continue(())
    });
    debug_assert!(visited.is_continue(), "the visitor never breaks");
    sum
}

/// The name of a relation if it is one word, else an empty string.
pub(super) fn name_of(name: &ObjectName) -> String {
    match name.0.as_slice() {
        [one] => one.as_ident().map(|ident| ident.value.clone()).unwrap_or_default(),
        _ => String::new(),
    }
}
