//! What the text of one `.lcm` file declares, or every mistake in it. Resolves no names of other types.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use sluice_core::mistake::Mistake;

use super::token::{Token, tokens};

/// A declared struct or enum.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Its full name: package, a dot if there is one, and short name.
    pub name: String,
    /// Where its name stands.
    pub span: Range<usize>,
    /// What it is.
    pub body: Body,
}

/// What is declared.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Members in order.
    Struct {
        /// What messages hold.
        members: Vec<Member>,
        /// Named numbers.
        constants: Vec<Constant>,
    },
    /// Named values.
    Enum(Vec<(String, i32)>),
}

/// A member of a struct.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub of: TypeName,
    /// Its dimensions, the outermost first; none for a single value.
    pub dimensions: Vec<Dimension>,
    /// Where the name of its type stands.
    pub span: Range<usize>,
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.of, &self.dimensions) == (&other.name, &other.of, &other.dimensions)
    }
}

/// The type of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeName {
    /// Built into the language.
    Primitive(Primitive),
    /// Declared somewhere, by its full name.
    Declared(String),
}

/// The types that are built into the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// `int8_t`
    Int8,
    /// `int16_t`
    Int16,
    /// `int32_t`
    Int32,
    /// `int64_t`
    Int64,
    /// `byte`
    Byte,
    /// `float`
    Float,
    /// `double`
    Double,
    /// `string`
    String,
    /// `boolean`
    Boolean,
}

impl Primitive {
    const ALL: [Self; 9] = [
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Byte,
        Self::Float,
        Self::Double,
        Self::String,
        Self::Boolean,
    ];

    /// Its name in the language.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8_t",
            Self::Int16 => "int16_t",
            Self::Int32 => "int32_t",
            Self::Int64 => "int64_t",
            Self::Byte => "byte",
            Self::Float => "float",
            Self::Double => "double",
            Self::String => "string",
            Self::Boolean => "boolean",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|primitive| primitive.name() == word)
    }

    /// The least and greatest value, where it is an integer that may count and be a constant.
    fn integers(self) -> Option<(i64, i64)> {
        Some(match self {
            Self::Int8 => (i8::MIN.into(), i8::MAX.into()),
            Self::Int16 => (i16::MIN.into(), i16::MAX.into()),
            Self::Int32 => (i32::MIN.into(), i32::MAX.into()),
            Self::Int64 => (i64::MIN, i64::MAX),
            _ => return None,
        })
    }
}

/// One dimension of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Of a size that is known, by a number or a constant.
    Fixed {
        /// How many elements.
        size: u32,
        /// The number as it is written: it is part of the fingerprint.
        text: String,
    },
    /// Of the size that a member before it holds, by its place among the members.
    Counted(usize),
}

/// A named number.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Primitive,
    /// Its value as it is written.
    pub text: String,
    /// Its value, if it is an integer.
    pub integer: Option<i64>,
}

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

/// The number at the beginning of a word, in C's notations: `10`, `0x1F`, `017`. Nothing if it does not
/// fit into 64 bits; 0 for digits that the notation does not have.
fn leading_integer(word: &str) -> Option<i64> {
    let (radix, digits) = notation(word);
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    match digits.get(..end).unwrap_or_default() {
        "" => Some(0),
        digits => i64::from_str_radix(digits, radix).ok(),
    }
}

/// The number that a word is, with a sign or without, in C's notations.
fn whole_integer(word: &str) -> Option<i64> {
    let (sign, unsigned) = match word.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", word),
    };
    let (radix, digits) = notation(unsigned);
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    if !is_number {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

fn notation(word: &str) -> (u32, &str) {
    if let Some(digits) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return (16, digits);
    }
    match word.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => (8, digits),
        _ => (10, word),
    }
}

/// Whether a word is a floating-point number as C reads them.
fn is_float(word: &str) -> bool {
    let unsigned = word.strip_prefix('-').unwrap_or(word).to_ascii_lowercase();
    let Some(digits) = unsigned.strip_prefix("0x") else {
        return !unsigned.starts_with('-') && unsigned.parse::<f64>().is_ok();
    };
    let (mantissa, exponent) = digits.split_once('p').unwrap_or((digits, "0"));
    let hex = mantissa.replacen('.', "", 1);
    let is_hex = !hex.is_empty() && hex.chars().all(|c| c.is_ascii_hexdigit());
    is_hex && exponent.parse::<i32>().is_ok()
}
