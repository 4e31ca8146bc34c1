//! Parses one `.lcm` file and collects every mistake in it. Does not resolve names of other types.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use sluice_kit::mistake::Mistake;
use sluice_model::cursor::Token;

use super::literal::{is_float, leading_integer, whole_integer};
use super::syntax::{
    Constant, Declaration, Dimension, Primitive, StructMember, TypeBody, TypeName,
};
use super::token::tokenize;

/// The declarations of a text in order, and the mistakes in it.
pub fn parse(text: &str) -> (Vec<Declaration>, Vec<Mistake>) {
    let mut parser = LcmParser {
        tokens: tokenize(text),
        end: text.len(),
        next: 0,
        package: String::new(),
        is_inside: false,
        mistakes: Vec::new(),
    };
    let declared = parser.file();
    (declared, parser.mistakes)
}

/// A mistake was reported; parsing goes on after it.
struct MistakeReported;

type ParseResult<T> = Result<T, MistakeReported>;

struct LcmParser<'t> {
    tokens: Vec<Token<'t>>,
    /// The length of the text.
    end: usize,
    next: usize,
    package: String,
    /// Whether a nested declaration is being read.
    is_inside: bool,
    mistakes: Vec<Mistake>,
}

const FILE_HELP: &str =
    "a file contains `package NAME;`, `struct NAME { … }` and `enum NAME { … }`";

impl<'t> LcmParser<'t> {
    fn file(&mut self) -> Vec<Declaration> {
        let mut declared = Vec::new();
        while let Some(word) = self.next_token() {
            let read = match word.text {
                "package" => self.package_name().map(|()| None),
                "struct" => self.structure().map(Some),
                "enum" => self.enumeration().map(Some),
                ";" => {
                    let message = "unexpected `;`";
                    self.report(word.span, message, Some("remove it: lcm-gen refuses it".into()));
                    continue;
                }
                other => {
                    let message = format!("expected a declaration, found `{other}`");
                    self.report(word.span, message, Some(FILE_HELP.into()));
                    Err(MistakeReported)
                }
            };
            match read {
                Ok(declaration) => declared.extend(declaration),
                Err(MistakeReported) => {
                    self.is_inside = false;
                    self.skip_to_declaration();
                }
            }
        }
        declared
    }

    fn skip_to_declaration(&mut self) {
        while let Some(token) = self.peek() {
            if matches!(token.text, "package" | "struct" | "enum") {
                return;
            }
            self.next += 1;
        }
    }

    fn package_name(&mut self) -> ParseResult<()> {
        let name = self.word("the package name")?;
        self.package = name.text.to_owned();
        self.expect(";", "after the package name")
    }

    /// Parses the full name of a declaration. A name with a dot is of another package, but its
    /// member types and the declarations after it are not.
    fn declared_name(&mut self, what: &str) -> ParseResult<(String, Range<usize>)> {
        let name = self.word(what)?;
        if Primitive::parse(name.text).is_some() {
            let message = format!("`{}` is a primitive type", name.text);
            self.report(name.span, message, Some("choose another name".into()));
            return Err(MistakeReported);
        }
        Ok((self.full(name.text), name.span))
    }

    fn full(&self, name: &str) -> String {
        if name.contains('.') || self.package.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.package)
        }
    }

    fn structure(&mut self) -> ParseResult<Declaration> {
        let (name, span) = self.declared_name("the struct name")?;
        self.expect("{", "after the struct name")?;
        let mut parts = StructParts::default();
        loop {
            let Some(token) = self.peek() else {
                return Err(self.unexpected_end("`}` of the struct"));
            };
            match token.text {
                "}" => break,
                ";" => {
                    self.report(token.span, "expected a member, found `;`", None);
                    self.next += 1;
                }
                "struct" | "enum" => {
                    let message = format!("a{} inside a struct", article(token.text));
                    let help = "declare it at the top level, and a member of its type here";
                    self.report(token.span, message, Some(help.into()));
                    if std::mem::replace(&mut self.is_inside, true) {
                        return Err(MistakeReported);
                    }
                    self.next += 1;
                    // A nested declaration is parsed for its own mistakes; one nested in that is
                    // not.
                    let inner =
                        if token.text == "enum" { Self::enumeration } else { Self::structure };
                    inner(self)?;
                    self.is_inside = false;
                }
                "const" => {
                    self.next += 1;
                    self.statement(|parser| parser.constants(&mut parts));
                }
                _ => self.statement(|parser| parser.members(&mut parts)),
            }
        }
        self.next += 1;
        let StructParts { members, constants, .. } = parts;
        Ok(Declaration { name, span, body: TypeBody::Struct { members, constants } })
    }

    /// Reads a statement that ends with `;`. Skips to the next one after a mistake.
    fn statement(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<()>) {
        if read(self).is_ok() {
            return;
        }
        while let Some(token) = self.peek() {
            if matches!(token.text, "}" | "struct" | "enum" | "package") {
                return;
            }
            self.next += 1;
            if token.text == ";" {
                return;
            }
        }
    }

    fn members(&mut self, parts: &mut StructParts) -> ParseResult<()> {
        let of = self.word("the type of a member")?;
        let span = of.span.clone();
        let of = match Primitive::parse(of.text) {
            Some(primitive) => TypeName::Primitive(primitive),
            None => TypeName::Declared(self.full(of.text)),
        };
        loop {
            let name = self.word("the member name")?;
            self.check_name(&name, parts)?;
            let mut dimensions = Vec::new();
            while self.peek().is_some_and(|token| token.text == "[") {
                self.next += 1;
                dimensions.push(self.dimension(parts)?);
                self.expect("]", "after the array size")?;
            }
            let (name, of, span) = (name.text.to_owned(), of.clone(), span.clone());
            parts.names.insert(name.clone(), NameTarget::Member(parts.members.len()));
            parts.members.push(StructMember { name, of, dimensions, span });
            if !self.list_continues("member")? {
                return Ok(());
            }
        }
    }

    fn dimension(&mut self, parts: &StructParts) -> ParseResult<Dimension> {
        let size = self.word("an array size: a number, a constant or a member")?;
        let text = size.text;
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let number = leading_integer(text);
            return self.fixed_dimension(number, text, &size.span);
        }
        let place = match parts.names.get(text) {
            Some(NameTarget::Member(place)) => *place,
            Some(NameTarget::Constant(place)) => {
                let Constant { integer, text, .. } = &parts.constants[*place];
                return self.dimension_from_constant(*integer, text.clone(), &size.span);
            }
            None => {
                let message = format!("`{text}` is neither a number nor declared above");
                let help = "a size is a number above 0, a constant, or an earlier member";
                self.report(size.span, message, Some(help.into()));
                return Err(MistakeReported);
            }
        };
        let member = &parts.members[place];
        let counts = match &member.of {
            TypeName::Primitive(primitive) => primitive.integer_range().is_some(),
            TypeName::Declared(_) => false,
        };
        if !counts || !member.dimensions.is_empty() {
            let message = format!("`{text}` is not a single integer");
            let help = "arrays are counted by a single int8_t, int16_t, int32_t or int64_t";
            self.report(size.span, message, Some(help.into()));
            return Err(MistakeReported);
        }
        Ok(Dimension::Counted(place))
    }

    fn fixed_dimension(
        &mut self,
        number: Option<i64>,
        text: &str,
        span: &Range<usize>,
    ) -> ParseResult<Dimension> {
        let size = number.filter(|number| *number > 0).and_then(|n| i32::try_from(n).ok());
        match size {
            Some(size) => Ok(Dimension::Fixed { size: size.unsigned_abs(), text: text.to_owned() }),
            None => {
                let message = format!("`{text}` is not an array size");
                let help = format!("sizes range from 1 to {}", i32::MAX);
                self.report(span.clone(), message, Some(help));
                Err(MistakeReported)
            }
        }
    }

    fn dimension_from_constant(
        &mut self,
        number: Option<i64>,
        text: String,
        span: &Range<usize>,
    ) -> ParseResult<Dimension> {
        let size = number.and_then(|n| i32::try_from(n).ok()).and_then(|n| u32::try_from(n).ok());
        match size {
            Some(size) => Ok(Dimension::Fixed { size, text }),
            None => {
                let message = format!("a constant with value {text} is not an array size");
                let help = format!("sizes are integers from 0 to {}", i32::MAX);
                self.report(span.clone(), message, Some(help));
                Err(MistakeReported)
            }
        }
    }

    fn constants(&mut self, parts: &mut StructParts) -> ParseResult<()> {
        let word = self.word("the constant type")?;
        let allowed = |p: &Primitive| {
            p.integer_range().is_some() || matches!(p, Primitive::Float | Primitive::Double)
        };
        let Some(of) = Primitive::parse(word.text).filter(allowed) else {
            let message = format!("`{}` cannot be the type of a constant", word.text);
            let help = "constants are int8_t, int16_t, int32_t, int64_t, float or double";
            self.report(word.span, message, Some(help.into()));
            return Err(MistakeReported);
        };
        loop {
            let name = self.word("the constant name")?;
            self.check_name(&name, parts)?;
            self.expect("=", "after the constant name")?;
            let value = self.word("the constant value")?;
            let constant = self.constant(of, name.text, &value)?;
            parts.names.insert(constant.name.clone(), NameTarget::Constant(parts.constants.len()));
            parts.constants.push(constant);
            if !self.list_continues("constant")? {
                return Ok(());
            }
        }
    }

    fn constant(&mut self, of: Primitive, name: &str, value: &Token<'_>) -> ParseResult<Constant> {
        let (name, text) = (name.to_owned(), value.text.to_owned());
        let Some((least, most)) = of.integer_range() else {
            if is_float(value.text) {
                return Ok(Constant { name, of, text, integer: None });
            }
            let message = format!("`{text}` is not a number");
            self.report(value.span.clone(), message, None);
            return Err(MistakeReported);
        };
        match whole_integer(value.text).filter(|n| (least..=most).contains(n)) {
            Some(number) => Ok(Constant { name, of, text, integer: Some(number) }),
            None => {
                let message = format!("`{text}` is not a valid {}", of.name());
                let help = format!("expected an integer from {least} to {most}");
                self.report(value.span.clone(), message, Some(help));
                Err(MistakeReported)
            }
        }
    }

    fn check_name(&mut self, name: &Token<'_>, parts: &StructParts) -> ParseResult<()> {
        if !name.text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            let message = format!("`{}` cannot be a name", name.text);
            let help = "names start with a letter or `_`";
            self.report(name.span.clone(), message, Some(help.into()));
            return Err(MistakeReported);
        }
        if parts.names.contains_key(name.text) {
            let message = format!("`{}` is declared twice in this struct", name.text);
            self.report(name.span.clone(), message, None);
            return Err(MistakeReported);
        }
        Ok(())
    }

    /// Whether a list continues after a `,` or ends with a `;`.
    fn list_continues(&mut self, what: &str) -> ParseResult<bool> {
        match self.peek().map(|token| token.text) {
            Some(",") => {
                self.next += 1;
                Ok(true)
            }
            _ => self.expect(";", &format!("after a {what}")).map(|()| false),
        }
    }

    fn enumeration(&mut self) -> ParseResult<Declaration> {
        let (name, span) = self.declared_name("the enum name")?;
        self.expect("{", "after the enum name")?;
        let mut values: Vec<(String, i32)> = Vec::new();
        let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
        let mut greatest = 0_i32;
        loop {
            let Some(token) = self.peek() else {
                return Err(self.unexpected_end("`}` of the enum"));
            };
            if token.text == "}" {
                break;
            }
            let value_name = self.word("the name of a value")?;
            let value = self.value(&value_name, greatest)?;
            if !names.insert(value_name.text) || !numbers.insert(value) {
                let name = value_name.text;
                let message = format!(
                    "another value of this enum has the name `{name}` or the number {value}"
                );
                self.report(value_name.span, message, None);
                return Err(MistakeReported);
            }
            greatest = greatest.max(value);
            values.push((value_name.text.to_owned(), value));
            if self.peek().is_some_and(|token| matches!(token.text, "," | ";")) {
                self.next += 1;
            }
        }
        self.next += 1;
        Ok(Declaration { name, span, body: TypeBody::Enum(values) })
    }

    /// The value of an enum constant: the given one, or one above the greatest before it.
    fn value(&mut self, name: &Token<'_>, greatest: i32) -> ParseResult<i32> {
        let (number, span) = if self.peek().is_some_and(|token| token.text == "=") {
            self.next += 1;
            let value = self.word("the value")?;
            (whole_integer(value.text).and_then(|n| i32::try_from(n).ok()), value.span)
        } else {
            (greatest.checked_add(1), name.span.clone())
        };
        number.ok_or_else(|| {
            let help = format!("values range from {} to {}", i32::MIN, i32::MAX);
            self.report(span, "enum value out of range", Some(help));
            MistakeReported
        })
    }

    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.next).cloned()
    }

    fn next_token(&mut self) -> Option<Token<'t>> {
        let token = self.peek();
        self.next += usize::from(token.is_some());
        token
    }

    /// The next token, which must be a word.
    fn word(&mut self, what: &str) -> ParseResult<Token<'t>> {
        let Some(token) = self.peek() else { return Err(self.unexpected_end(what)) };
        let is_mark =
            token.text.starts_with(|c: char| c.is_ascii() && "{}[]();,:\"'!~<>=&|^%*+".contains(c));
        if is_mark {
            let message = format!("expected {what}, found `{}`", token.text);
            self.report(token.span, message, None);
            return Err(MistakeReported);
        }
        if token.text.contains(char::REPLACEMENT_CHARACTER) {
            let message = format!("{what} is not UTF-8");
            let help = "only comments may be in another encoding";
            self.report(token.span, message, Some(help.into()));
            return Err(MistakeReported);
        }
        self.next += 1;
        Ok(token)
    }

    fn expect(&mut self, mark: &str, place: &str) -> ParseResult<()> {
        let Some(token) = self.peek() else {
            return Err(self.unexpected_end(&format!("`{mark}`")));
        };
        if token.text != mark {
            let message = format!("expected `{mark}` {place}, found `{}`", token.text);
            self.report(token.span, message, None);
            return Err(MistakeReported);
        }
        self.next += 1;
        Ok(())
    }

    fn unexpected_end(&mut self, what: &str) -> MistakeReported {
        self.report(
            self.end..self.end,
            format!("expected {what}, found the end of the file"),
            None,
        );
        MistakeReported
    }

    fn report(&mut self, span: Range<usize>, message: impl Into<String>, help: Option<String>) {
        self.mistakes.push(Mistake { span, message: message.into(), help, detail: None });
    }
}

/// The members and constants of a struct read so far.
#[derive(Default)]
struct StructParts {
    members: Vec<StructMember>,
    constants: Vec<Constant>,
    names: HashMap<String, NameTarget>,
}

/// What a name in a struct refers to.
#[derive(Clone, Copy)]
enum NameTarget {
    Member(usize),
    Constant(usize),
}

fn article(word: &str) -> String {
    let n = if word.starts_with('e') { "n" } else { "" };
    format!("{n} {word}")
}
