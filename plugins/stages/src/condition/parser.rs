//! Parses the tokens of a condition into a tree.

use std::ops::Range;

use sluice_model::{FieldPath, Pattern};

use super::error::{ConditionError, error_at};
use super::lexer::{ConditionToken, TokenKind, tokens};
use super::number::{Arithmetic, Number};
use super::tree::{Comparison, Expr, ExprNode, ExprType, Function, Literal};

/// The maximum nesting depth; each level uses stack.
const MAX_DEPTH: usize = 50;

/// The tree of a condition, and the fields it uses, each once.
pub(super) fn parse(text: &str) -> Result<(ExprNode, Vec<FieldPath>), ConditionError> {
    let mut parser =
        ConditionParser { text, tokens: tokens(text)?, next: 0, depth: 0, fields: Vec::new() };
    let node = parser.any()?;
    match parser.peek() {
        TokenKind::End => {}
        TokenKind::Sign(")") => return parser.unexpected("`)` without `(`"),
        _ => return parser.expected("an operator such as `and` or `==`"),
    }
    parser.expect(&node, ExprType::Truth)?;
    Ok((node, parser.fields))
}

struct ConditionParser<'t> {
    text: &'t str,
    tokens: Vec<ConditionToken>,
    next: usize,
    depth: usize,
    fields: Vec<FieldPath>,
}

impl ConditionParser<'_> {
    /// The current token. The end token is never passed.
    fn token(&self) -> &ConditionToken {
        self.tokens.get(self.next).or(self.tokens.last()).expect("the last token is the end")
    }

    fn peek(&self) -> &TokenKind {
        &self.token().kind
    }

    fn advance(&mut self) -> ConditionToken {
        let token = self.token().clone();
        self.next += 1;
        token
    }

    fn accept(&mut self, sign: &'static str) -> bool {
        let is_next = *self.peek() == TokenKind::Sign(sign);
        self.next += usize::from(is_next);
        is_next
    }

    fn require(&mut self, sign: &'static str) -> Result<(), ConditionError> {
        if self.accept(sign) { Ok(()) } else { self.expected(&format!("`{sign}`")) }
    }

    fn unexpected<T>(&self, message: impl Into<String>) -> Result<T, ConditionError> {
        Err(error_at(self.token().span.clone(), message))
    }

    fn expected<T>(&self, message: &str) -> Result<T, ConditionError> {
        let token = self.token();
        let found = match token.kind {
            TokenKind::End => "the end".to_owned(),
            _ => format!("`{}`", self.spelled(&token.span)),
        };
        self.unexpected(format!("expected {message}, found {found}"))
    }

    fn spelled(&self, span: &Range<usize>) -> &str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    fn node(&self, start: usize, expr: Expr) -> ExprNode {
        let end = self.tokens.get(self.next - 1).map_or(start, |token| token.span.end);
        ExprNode { expr, span: start..end }
    }

    fn nested<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, ConditionError>,
    ) -> Result<T, ConditionError> {
        if self.depth == MAX_DEPTH {
            return self.unexpected(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        self.depth += 1;
        let found = inner(self);
        self.depth -= 1;
        found
    }

    fn any(&mut self) -> Result<ExprNode, ConditionError> {
        self.operands("or", Self::all, Expr::Any)
    }

    fn all(&mut self) -> Result<ExprNode, ConditionError> {
        self.operands("and", Self::not, Expr::All)
    }

    fn operands(
        &mut self,
        sign: &'static str,
        operand: impl Fn(&mut Self) -> Result<ExprNode, ConditionError>,
        expr: impl FnOnce(Vec<ExprNode>) -> Expr,
    ) -> Result<ExprNode, ConditionError> {
        let start = self.token().span.start;
        let first = operand(self)?;
        if *self.peek() != TokenKind::Sign(sign) {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.accept(sign) {
            operands.push(operand(self)?);
        }
        for operand in &operands {
            self.expect(operand, ExprType::Truth)?;
        }
        Ok(self.node(start, expr(operands)))
    }

    fn not(&mut self) -> Result<ExprNode, ConditionError> {
        let start = self.token().span.start;
        if !self.accept("not") {
            return self.comparison();
        }
        let operand = self.nested(Self::not)?;
        self.expect(&operand, ExprType::Truth)?;
        Ok(self.node(start, Expr::Not(Box::new(operand))))
    }

    fn comparison(&mut self) -> Result<ExprNode, ConditionError> {
        let (start, is_denied) = (self.token().span.start, *self.peek() == TokenKind::Sign("!"));
        let left = self.sum()?;
        let TokenKind::Sign(sign) = *self.peek() else { return Ok(left) };
        let compares =
            Comparison::spelled(sign).is_some() || ["in", "matches", "not"].contains(&sign);
        if !compares {
            return Ok(left);
        }
        if is_denied {
            return self.unexpected("ambiguous `!`: write `not a == b` or `(!a) == b`");
        }
        let sign = self.advance();
        let node = match Comparison::spelled(self.spelled_sign(&sign)) {
            Some(comparison) => self.compared(start, left, comparison)?,
            None => self.tested(start, left, &sign)?,
        };
        self.refuse_chain()?;
        Ok(node)
    }

    fn spelled_sign(&self, token: &ConditionToken) -> &'static str {
        if let TokenKind::Sign(sign) = token.kind { sign } else { "" }
    }

    fn compared(
        &mut self,
        start: usize,
        left: ExprNode,
        comparison: Comparison,
    ) -> Result<ExprNode, ConditionError> {
        let right = self.sum()?;
        let kinds = [left.kind(), right.kind()];
        let node = self.node(start, Expr::Compare(Box::new(left), comparison, Box::new(right)));
        let mixes_text = kinds.contains(&ExprType::Text)
            && !kinds.iter().all(|kind| matches!(kind, ExprType::Text | ExprType::Any));
        if mixes_text {
            return Err(error_at(node.span, "text can only be compared with text"));
        }
        Ok(node)
    }

    /// `in` or `matches`, possibly after `not`.
    fn tested(
        &mut self,
        start: usize,
        left: ExprNode,
        sign: &ConditionToken,
    ) -> Result<ExprNode, ConditionError> {
        let sign = self.spelled_sign(sign);
        let is_denied = sign == "not";
        let node = if sign == "in" || is_denied && self.accept("in") {
            let list = self.list(&left)?;
            self.node(start, Expr::In(Box::new(left), list))
        } else if sign == "matches" || is_denied && self.accept("matches") {
            self.expect(&left, ExprType::Text)?;
            let pattern = self.pattern()?;
            self.node(start, Expr::Matches(Box::new(left), pattern))
        } else {
            return self.expected("`in` or `matches`");
        };
        Ok(if is_denied { self.node(start, Expr::Not(Box::new(node))) } else { node })
    }

    fn refuse_chain(&self) -> Result<(), ConditionError> {
        match self.peek() {
            TokenKind::Sign(sign) if Comparison::spelled(sign).is_some() => {
                self.unexpected("comparisons cannot be chained; write `a < b and b < c`")
            }
            _ => Ok(()),
        }
    }

    fn list(&mut self, left: &ExprNode) -> Result<Vec<Literal>, ConditionError> {
        if !self.accept("[") {
            return self.expected("a list such as `[1, 2]`");
        }
        let mut list = Vec::new();
        loop {
            list.push(self.literal(left.kind(), list.first())?);
            if self.accept("]") {
                return Ok(list);
            }
            self.require(",")?;
        }
    }

    fn literal(
        &mut self,
        left: ExprType,
        first: Option<&Literal>,
    ) -> Result<Literal, ConditionError> {
        let token = self.token().clone();
        let is_negative = self.accept("-");
        let literal = match self.peek() {
            TokenKind::Number(number) => {
                Literal::Number(if is_negative { number.negate() } else { *number })
            }
            TokenKind::Text(text) if !is_negative => Literal::Text(text.clone()),
            _ => return self.expected("a number or a text"),
        };
        self.advance();
        let is_text = matches!(literal, Literal::Text(_));
        let fits_left = left == ExprType::Any || is_text == (left == ExprType::Text);
        let fits_first = first.is_none_or(|first| is_text == matches!(first, Literal::Text(_)));
        if !fits_left || !fits_first {
            return Err(error_at(token.span, "text can only be compared with text"));
        }
        Ok(literal)
    }

    fn pattern(&mut self) -> Result<Pattern, ConditionError> {
        let TokenKind::Text(text) = self.peek() else {
            return self.expected("a pattern in quotes");
        };
        let pattern = Pattern::parse(text).or_else(|message| self.unexpected(message))?;
        self.advance();
        Ok(pattern)
    }

    fn sum(&mut self) -> Result<ExprNode, ConditionError> {
        let signs = [("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
        self.calculation(&signs, Self::product)
    }

    fn product(&mut self) -> Result<ExprNode, ConditionError> {
        let signs =
            [("*", Arithmetic::Multiply), ("/", Arithmetic::Divide), ("%", Arithmetic::Remainder)];
        self.calculation(&signs, Self::signed)
    }

    fn calculation(
        &mut self,
        signs: &[(&'static str, Arithmetic)],
        operand: impl Fn(&mut Self) -> Result<ExprNode, ConditionError>,
    ) -> Result<ExprNode, ConditionError> {
        let start = self.token().span.start;
        let first = operand(self)?;
        let mut rest = Vec::new();
        while let Some((_, operation)) = signs.iter().find(|(sign, _)| self.accept(sign)) {
            rest.push((*operation, operand(self)?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        for node in rest.iter().map(|(_, node)| node).chain([&first]) {
            self.expect(node, ExprType::Number)?;
        }
        Ok(self.node(start, Expr::Calculate(Box::new(first), rest)))
    }

    fn signed(&mut self) -> Result<ExprNode, ConditionError> {
        let start = self.token().span.start;
        if self.accept("-") {
            let operand = self.nested(Self::signed)?;
            self.expect(&operand, ExprType::Number)?;
            let expr = match operand.expr {
                Expr::Number(number) => Expr::Number(number.negate()),
                _ => Expr::Negate(Box::new(operand)),
            };
            return Ok(self.node(start, expr));
        }
        if self.accept("!") {
            let operand = self.nested(Self::signed)?;
            self.expect(&operand, ExprType::Truth)?;
            return Ok(self.node(start, Expr::Not(Box::new(operand))));
        }
        self.value()
    }

    fn value(&mut self) -> Result<ExprNode, ConditionError> {
        let start = self.token().span.start;
        let expr = match self.peek().clone() {
            TokenKind::Number(number) => Expr::Number(number),
            TokenKind::Text(text) => Expr::Text(text),
            TokenKind::Sign(truth @ ("true" | "false")) => Expr::Truth(truth == "true"),
            TokenKind::EventField(field) => Expr::EventField(field),
            TokenKind::Field(path) => Expr::Field(self.field(path)),
            TokenKind::Function(function) => return self.call(start, function),
            TokenKind::Sign("(") => return self.parenthesised(start),
            TokenKind::Sign("not") => {
                return self.unexpected("`not` needs parentheses here: `(not a)`");
            }
            _ => return self.expected("a field, a number, a text or `(`"),
        };
        self.advance();
        Ok(self.node(start, expr))
    }

    fn parenthesised(&mut self, start: usize) -> Result<ExprNode, ConditionError> {
        self.advance();
        let inner = self.nested(Self::any)?;
        self.require(")")?;
        Ok(self.node(start, inner.expr))
    }

    fn call(&mut self, start: usize, function: Function) -> Result<ExprNode, ConditionError> {
        self.advance();
        self.require("(")?;
        let expr = match function {
            Function::Exists => Expr::Exists(self.existing()?),
            _ => Expr::Call(function, Box::new(self.argument(function)?)),
        };
        self.require(")")?;
        Ok(self.node(start, expr))
    }

    fn argument(&mut self, function: Function) -> Result<ExprNode, ConditionError> {
        let argument = self.nested(Self::any)?;
        match (function, argument.kind()) {
            (Function::Len, ExprType::Number | ExprType::Truth) => {
                Err(error_at(argument.span, "`len` is for lists, texts and bytes"))
            }
            (Function::Len, _) => Ok(argument),
            _ => self.expect(&argument, ExprType::Number).map(|()| argument),
        }
    }

    fn existing(&mut self) -> Result<usize, ConditionError> {
        let TokenKind::Field(path) = self.peek().clone() else {
            return self.expected("a field");
        };
        self.advance();
        Ok(self.field(path))
    }

    /// The index of a field in the list.
    fn field(&mut self, path: FieldPath) -> usize {
        let known = self.fields.iter().position(|known| *known == path);
        known.unwrap_or_else(|| {
            self.fields.push(path);
            self.fields.len() - 1
        })
    }

    fn expect(&self, node: &ExprNode, wanted: ExprType) -> Result<(), ConditionError> {
        let found = node.kind();
        // A boolean counts as 1 or 0 where a number is needed.
        let fits = found == wanted
            || found == ExprType::Any
            || (found, wanted) == (ExprType::Truth, ExprType::Number);
        if fits {
            return Ok(());
        }
        Err(error_at(node.span.clone(), self.mismatch_message(node, wanted)))
    }

    fn mismatch_message(&self, node: &ExprNode, wanted: ExprType) -> String {
        let spelled = self.spelled(&node.span);
        match (wanted, &node.expr) {
            (
                ExprType::Truth,
                Expr::Number(Number::Whole(_) | Number::Large(_) | Number::Float(_))
                | Expr::Text(_),
            ) => format!(
                "expected a condition, found {spelled}; write `a == {spelled}`, or `a in \
                 [{spelled}, …]` for several values"
            ),
            (ExprType::Truth, _) => {
                format!("expected a condition, found the value `{spelled}`; compare it")
            }
            (ExprType::Text, _) => format!("expected a text, found `{spelled}`"),
            _ => format!("expected a number, found {spelled}"),
        }
    }
}
