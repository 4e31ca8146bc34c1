//! What the text of one `.lcm` file declares, or every mistake in it. Resolves no names of other types.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use sluice_core::mistake::Mistake;

use super::literal::{is_float, leading_integer, whole_integer};
use super::syntax::{Body, Constant, Declaration, Dimension, Member, Primitive, TypeName};
use super::token::{Token, tokens};

/// What a text declares, in order, and the mistakes in it.
pub fn parse(text: &str) -> (Vec<Declaration>, Vec<Mistake>) {
    let mut parser = Parser {
        tokens: tokens(text),
        end: text.len(),
        next: 0,
        package: String::new(),
        is_inside: false,
        mistakes: Vec::new(),
    };
    let declared = parser.file();
    (declared, parser.mistakes)
}

/// A mistake was noted; what stands around it can be read on.
struct Noted;

type Parsed<T> = Result<T, Noted>;

struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    /// The length of the text.
    end: usize,
    next: usize,
    package: String,
    /// Whether a declaration inside of another one is read.
    is_inside: bool,
    mistakes: Vec<Mistake>,
}

const TOP: &str = "a file holds `package NAME;`, `struct NAME { … }` and `enum NAME { … }`";

impl<'t> Parser<'t> {
    fn file(&mut self) -> Vec<Declaration> {
        let mut declared = Vec::new();
        while let Some(word) = self.take() {
            let read = match word.text {
                "package" => self.package_name().map(|()| None),
                "struct" => self.structure().map(Some),
                "enum" => self.enumeration().map(Some),
                ";" => {
                    let message = "a `;` that ends nothing";
                    self.wrong(word.span, message, Some("leave it out: lcm-gen refuses it".into()));
                    continue;
                }
                other => {
                    let message = format!("expected a declaration, found `{other}`");
                    self.wrong(word.span, message, Some(TOP.into()));
                    Err(Noted)
                }
            };
            match read {
                Ok(declaration) => declared.extend(declaration),
                Err(Noted) => {
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

    fn package_name(&mut self) -> Parsed<()> {
        let name = self.word("the package's name")?;
        self.package = name.text.to_owned();
        self.expect(";", "behind the package's name")
    }

    /// The full name of what is declared. With a dot in it, it is of another package: it alone, not the types
    /// of its members nor what follows.
    fn declared_name(&mut self, what: &str) -> Parsed<(String, Range<usize>)> {
        let name = self.word(what)?;
        if Primitive::of(name.text).is_some() {
            let message = format!("`{}` is a type of the language", name.text);
            self.wrong(name.span, message, Some("call it otherwise".into()));
            return Err(Noted);
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

    fn structure(&mut self) -> Parsed<Declaration> {
        let (name, span) = self.declared_name("the struct's name")?;
        self.expect("{", "behind the struct's name")?;
        let mut parts = Parts::default();
        loop {
            let Some(token) = self.peek() else { return Err(self.ended("`}` of the struct")) };
            match token.text {
                "}" => break,
                ";" => {
                    self.wrong(token.span, "expected a member, found `;`", None);
                    self.next += 1;
                }
                "struct" | "enum" => {
                    let message = format!("a{} inside of a struct", article(token.text));
                    let help = "declare it for itself, and a member of its type here";
                    self.wrong(token.span, message, Some(help.into()));
                    if std::mem::replace(&mut self.is_inside, true) {
                        return Err(Noted);
                    }
                    self.next += 1;
                    // What is inside is read for its own mistakes, but not what is inside of that.
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
        let Parts { members, constants, .. } = parts;
        Ok(Declaration { name, span, body: Body::Struct { members, constants } })
    }

    /// Reads something that ends with a `;`, and goes on behind that if there is a mistake in it.
    fn statement(&mut self, read: impl FnOnce(&mut Self) -> Parsed<()>) {
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

    fn members(&mut self, parts: &mut Parts) -> Parsed<()> {
        let of = self.word("the type of a member")?;
        let span = of.span.clone();
        let of = match Primitive::of(of.text) {
            Some(primitive) => TypeName::Primitive(primitive),
            None => TypeName::Declared(self.full(of.text)),
        };
        loop {
            let name = self.word("the member's name")?;
            self.check_name(&name, parts)?;
            let mut dimensions = Vec::new();
            while self.peek().is_some_and(|token| token.text == "[") {
                self.next += 1;
                dimensions.push(self.dimension(parts)?);
                self.expect("]", "behind the size of an array")?;
            }
            let (name, of, span) = (name.text.to_owned(), of.clone(), span.clone());
            parts.names.insert(name.clone(), Place::Member(parts.members.len()));
            parts.members.push(Member { name, of, dimensions, span });
            if !self.goes_on("member")? {
                return Ok(());
            }
        }
    }

    fn dimension(&mut self, parts: &Parts) -> Parsed<Dimension> {
        let size = self.word("the size of an array: a number, a constant or a member")?;
        let text = size.text;
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let number = leading_integer(text);
            return self.fixed(number, text, &size.span);
        }
        let place = match parts.names.get(text) {
            Some(Place::Member(place)) => *place,
            Some(Place::Constant(place)) => {
                let Constant { integer, text, .. } = &parts.constants[*place];
                return self.fixed_by_constant(*integer, text.clone(), &size.span);
            }
            None => {
                let message = format!("`{text}` is neither a number nor declared before");
                let help =
                    "a size is a number above 0, a constant, or a member that stands before it";
                self.wrong(size.span, message, Some(help.into()));
                return Err(Noted);
            }
        };
        let member = &parts.members[place];
        let counts = match &member.of {
            TypeName::Primitive(primitive) => primitive.integers().is_some(),
            TypeName::Declared(_) => false,
        };
        if !counts || !member.dimensions.is_empty() {
            let message = format!("`{text}` is no single integer");
            let help = "arrays are counted by a single int8_t, int16_t, int32_t or int64_t";
            self.wrong(size.span, message, Some(help.into()));
            return Err(Noted);
        }
        Ok(Dimension::Counted(place))
    }

    fn fixed(&mut self, number: Option<i64>, text: &str, span: &Range<usize>) -> Parsed<Dimension> {
        let size = number.filter(|number| *number > 0).and_then(|n| i32::try_from(n).ok());
        match size {
            Some(size) => Ok(Dimension::Fixed { size: size.unsigned_abs(), text: text.to_owned() }),
            None => {
                let message = format!("`{text}` is no size of an array");
                let help = format!("sizes go from 1 to {}", i32::MAX);
                self.wrong(span.clone(), message, Some(help));
                Err(Noted)
            }
        }
    }

    fn fixed_by_constant(
        &mut self,
        number: Option<i64>,
        text: String,
        span: &Range<usize>,
    ) -> Parsed<Dimension> {
        let size = number.and_then(|n| i32::try_from(n).ok()).and_then(|n| u32::try_from(n).ok());
        match size {
            Some(size) => Ok(Dimension::Fixed { size, text }),
            None => {
                let message = format!("a constant of the value {text} is no size of an array");
                let help = format!("sizes are integers from 0 to {}", i32::MAX);
                self.wrong(span.clone(), message, Some(help));
                Err(Noted)
            }
        }
    }

    fn constants(&mut self, parts: &mut Parts) -> Parsed<()> {
        let word = self.word("the constant's type")?;
        let allowed = |p: &Primitive| {
            p.integers().is_some() || matches!(p, Primitive::Float | Primitive::Double)
        };
        let Some(of) = Primitive::of(word.text).filter(allowed) else {
            let message = format!("`{}` cannot be the type of a constant", word.text);
            let help = "constants are int8_t, int16_t, int32_t, int64_t, float or double";
            self.wrong(word.span, message, Some(help.into()));
            return Err(Noted);
        };
        loop {
            let name = self.word("the constant's name")?;
            self.check_name(&name, parts)?;
            self.expect("=", "behind the constant's name")?;
            let value = self.word("the constant's value")?;
            let constant = self.constant(of, name.text, &value)?;
            parts.names.insert(constant.name.clone(), Place::Constant(parts.constants.len()));
            parts.constants.push(constant);
            if !self.goes_on("constant")? {
                return Ok(());
            }
        }
    }

    fn constant(&mut self, of: Primitive, name: &str, value: &Token<'_>) -> Parsed<Constant> {
        let (name, text) = (name.to_owned(), value.text.to_owned());
        let Some((least, most)) = of.integers() else {
            if is_float(value.text) {
                return Ok(Constant { name, of, text, integer: None });
            }
            let message = format!("`{text}` is no number");
            self.wrong(value.span.clone(), message, None);
            return Err(Noted);
        };
        match whole_integer(value.text).filter(|n| (least..=most).contains(n)) {
            Some(number) => Ok(Constant { name, of, text, integer: Some(number) }),
            None => {
                let message = format!("`{text}` is no {}", of.name());
                let help = format!("it is an integer from {least} to {most}");
                self.wrong(value.span.clone(), message, Some(help));
                Err(Noted)
            }
        }
    }

    fn check_name(&mut self, name: &Token<'_>, parts: &Parts) -> Parsed<()> {
        if !name.text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            let message = format!("`{}` cannot be a name", name.text);
            let help = "names begin with a letter or `_`";
            self.wrong(name.span.clone(), message, Some(help.into()));
            return Err(Noted);
        }
        if parts.names.contains_key(name.text) {
            let message = format!("`{}` is declared twice in this struct", name.text);
            self.wrong(name.span.clone(), message, None);
            return Err(Noted);
        }
        Ok(())
    }

    /// Whether a list goes on behind a `,`, or ends with a `;`.
    fn goes_on(&mut self, what: &str) -> Parsed<bool> {
        match self.peek().map(|token| token.text) {
            Some(",") => {
                self.next += 1;
                Ok(true)
            }
            _ => self.expect(";", &format!("behind a {what}")).map(|()| false),
        }
    }

    fn enumeration(&mut self) -> Parsed<Declaration> {
        let (name, span) = self.declared_name("the enum's name")?;
        self.expect("{", "behind the enum's name")?;
        let mut values: Vec<(String, i32)> = Vec::new();
        let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
        let mut greatest = 0_i32;
        loop {
            let Some(token) = self.peek() else { return Err(self.ended("`}` of the enum")) };
            if token.text == "}" {
                break;
            }
            let value_name = self.word("the name of a value")?;
            let value = self.value(&value_name, greatest)?;
            if !names.insert(value_name.text) || !numbers.insert(value) {
                let name = value_name.text;
                let message =
                    format!("another value of this enum is called `{name}` or is {value}");
                self.wrong(value_name.span, message, None);
                return Err(Noted);
            }
            greatest = greatest.max(value);
            values.push((value_name.text.to_owned(), value));
            if self.peek().is_some_and(|token| matches!(token.text, "," | ";")) {
                self.next += 1;
            }
        }
        self.next += 1;
        Ok(Declaration { name, span, body: Body::Enum(values) })
    }

    /// The value of an enum's name: what is given, or one above the greatest before it.
    fn value(&mut self, name: &Token<'_>, greatest: i32) -> Parsed<i32> {
        let (number, span) = if self.peek().is_some_and(|token| token.text == "=") {
            self.next += 1;
            let value = self.word("the value")?;
            (whole_integer(value.text).and_then(|n| i32::try_from(n).ok()), value.span)
        } else {
            (greatest.checked_add(1), name.span.clone())
        };
        number.ok_or_else(|| {
            let help = format!("values go from {} to {}", i32::MIN, i32::MAX);
            self.wrong(span, "no value of an enum", Some(help));
            Noted
        })
    }

    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.next).cloned()
    }

    fn take(&mut self) -> Option<Token<'t>> {
        let token = self.peek();
        self.next += usize::from(token.is_some());
        token
    }

    /// The next token, which must be a word.
    fn word(&mut self, what: &str) -> Parsed<Token<'t>> {
        let Some(token) = self.peek() else { return Err(self.ended(what)) };
        let is_mark =
            token.text.starts_with(|c: char| c.is_ascii() && "{}[]();,:\"'!~<>=&|^%*+".contains(c));
        if is_mark {
            let message = format!("expected {what}, found `{}`", token.text);
            self.wrong(token.span, message, None);
            return Err(Noted);
        }
        if token.text.contains(char::REPLACEMENT_CHARACTER) {
            let message = format!("{what} is not UTF-8");
            let help = "only comments may be in another encoding";
            self.wrong(token.span, message, Some(help.into()));
            return Err(Noted);
        }
        self.next += 1;
        Ok(token)
    }

    fn expect(&mut self, mark: &str, place: &str) -> Parsed<()> {
        let Some(token) = self.peek() else { return Err(self.ended(&format!("`{mark}`"))) };
        if token.text != mark {
            let message = format!("expected `{mark}` {place}, found `{}`", token.text);
            self.wrong(token.span, message, None);
            return Err(Noted);
        }
        self.next += 1;
        Ok(())
    }

    fn ended(&mut self, what: &str) -> Noted {
        self.wrong(self.end..self.end, format!("expected {what}, found the end of the file"), None);
        Noted
    }

    fn wrong(&mut self, span: Range<usize>, message: impl Into<String>, help: Option<String>) {
        self.mistakes.push(Mistake { span, message: message.into(), help, detail: None });
    }
}

/// What of a struct has been read.
#[derive(Default)]
struct Parts {
    members: Vec<Member>,
    constants: Vec<Constant>,
    names: HashMap<String, Place>,
}

/// What a name of a struct stands for.
#[derive(Clone, Copy)]
enum Place {
    Member(usize),
    Constant(usize),
}

fn article(word: &str) -> String {
    let n = if word.starts_with('e') { "n" } else { "" };
    format!("{n} {word}")
}
