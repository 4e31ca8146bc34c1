//! What the text of one `.ice` file declares, or every mistake in it. Resolves no names.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use sluice_core::mistake::Mistake;

use super::syntax::{Body, Builtin, Declaration, Member, Named, TypeName, Unit};
use super::token::{Token, Tokens};

/// More mistakes of one file are not told: what stands behind the last of them is not read.
pub const MOST_MISTAKES: usize = 200;

/// What a text says, and the mistakes in it: at most [`MOST_MISTAKES`], and nothing declared behind the last of
/// so many. Takes time by the length of the text.
pub fn parse(text: &str) -> (Unit, Vec<Mistake>) {
    let mut tokens = Tokens::new(text);
    let mut parser = Parser {
        next: tokens.next(),
        tokens,
        end: text.len(),
        modules: Vec::new(),
        is_inside: false,
        names: 0,
        unit: Unit::default(),
        mistakes: Vec::new(),
    };
    parser.file();
    (parser.unit, parser.mistakes)
}

/// A mistake was noted; what stands around it can be read on.
struct Noted;

type Parsed<T> = Result<T, Noted>;

struct Parser<'t> {
    next: Option<Token<'t>>,
    /// Those behind the next one.
    tokens: Tokens<'t>,
    /// The length of the text.
    end: usize,
    /// The full names of the modules that are open, the innermost last.
    modules: Vec<Arc<str>>,
    /// Whether the `}` of a struct, class or enum has not come yet.
    is_inside: bool,
    /// How long the full names of all types are together.
    names: usize,
    unit: Unit,
    mistakes: Vec<Mistake>,
}

const TOP: &str = "a file holds modules, structs, classes, sequences, dictionaries, enums, interfaces, \
                   exceptions and constants";
const DECLARATIONS: [&str; 10] = [
    "module",
    "struct",
    "class",
    "sequence",
    "dictionary",
    "enum",
    "interface",
    "exception",
    "const",
    "local",
];
/// Modules inside of each other; nobody has more.
const DEEPEST_MODULE: usize = 32;
/// Every type has its name in full: with long names a small text would say much.
const LONGEST_NAME: usize = 1000;
/// The full names of all types of a file together.
const MOST_NAMES: usize = 32 << 20;
/// How much of a word is shown that is out of place.
const MOST_SHOWN: usize = 60;

impl<'t> Parser<'t> {
    fn file(&mut self) {
        let mut metadata = Vec::new();
        while let Some(token) = self.take() {
            let read = match token.text {
                "[" => self.metadata().map(|found| metadata.extend(found)),
                line if line.starts_with('#') => {
                    self.unit.includes.extend(included(line));
                    Ok(())
                }
                "local" | ";" => Ok(()),
                "}" if !self.modules.is_empty() => {
                    self.modules.pop();
                    Ok(())
                }
                _ => self.declaration(&token, std::mem::take(&mut metadata)),
            };
            if read.is_err() {
                self.skip_to_declaration();
            }
        }
        if let Some(span) = self.tokens.unclosed() {
            self.wrong(&span, "a comment without an end", Some("close it with `*/`"));
        } else if !self.modules.is_empty() {
            self.ended("the `}` of a module");
        }
    }

    fn declaration(&mut self, word: &Token<'t>, metadata: Vec<String>) -> Parsed<()> {
        match word.text {
            "module" => self.module(),
            "struct" => self.structure(metadata),
            "class" => self.class(metadata),
            "sequence" => self.sequence(metadata),
            "dictionary" => self.dictionary(metadata),
            "enum" => self.enumeration(metadata),
            "interface" => self.other("an interface"),
            "exception" => self.other("an exception"),
            "const" => {
                self.skip_statement();
                Ok(())
            }
            "}" => Err(self.wrong(&word.span, "a `}` that closes nothing", Some("leave it out"))),
            other => {
                let message = format!("expected a declaration, found `{}`", shown(other));
                Err(self.wrong(&word.span, message, Some(TOP)))
            }
        }
    }

    fn skip_to_declaration(&mut self) {
        let mut is_inside = std::mem::take(&mut self.is_inside);
        while let Some(token) = self.peek() {
            let is_own_end = token.text == "}" && std::mem::take(&mut is_inside);
            if DECLARATIONS.contains(&token.text) || (token.text == "}" && !is_own_end) {
                return;
            }
            self.advance();
        }
    }

    /// The `{` behind the name of a struct, class or enum.
    fn open(&mut self, place: &str) -> Parsed<()> {
        self.expect("{", place)?;
        self.is_inside = true;
        Ok(())
    }

    fn module(&mut self) -> Parsed<()> {
        let name = self.name("the module's name")?;
        if self.modules.len() >= DEEPEST_MODULE {
            let message = format!("modules inside of more than {DEEPEST_MODULE} others");
            return Err(self.wrong(&name.span, message, None));
        }
        self.expect("{", "behind the module's name")?;
        let full = self.full(&name);
        if full.len() > LONGEST_NAME {
            let message =
                format!("modules whose names are longer than {LONGEST_NAME} bytes together");
            return Err(self.wrong(&name.span, message, None));
        }
        self.modules.push(full.into());
        Ok(())
    }

    fn full(&self, name: &Token<'_>) -> String {
        format!("{}::{}", self.scope(), unescaped(name.text))
    }

    fn scope(&self) -> &str {
        self.modules.last().map_or("", |scope| scope)
    }

    fn add(&mut self, name: &Token<'_>, body: Body, metadata: Vec<String>) {
        let (name, span) = (self.full(name), name.span.clone());
        self.names = self.names.saturating_add(name.len());
        if self.names > MOST_NAMES {
            let message =
                format!("names of types that are longer than {MOST_NAMES} bytes together");
            self.wrong(&span, message, Some("cut the file into several"));
            self.stop();
            return;
        }
        self.unit.declared.push(Declaration { name, span, body, metadata });
    }

    fn structure(&mut self, metadata: Vec<String>) -> Parsed<()> {
        let name = self.name("the struct's name")?;
        if self.took(";") {
            return Ok(());
        }
        self.open("behind the struct's name")?;
        let members = self.members()?;
        if members.is_empty() {
            let help = "a struct has at least one member";
            self.wrong(&name.span, "a struct without members", Some(help));
        }
        self.add(&name, Body::Struct(members), metadata);
        Ok(())
    }

    fn class(&mut self, metadata: Vec<String>) -> Parsed<()> {
        let name = self.name("the class's name")?;
        if self.took("(") {
            // A number that stands for the name in encodings after 1.0.
            self.word("the class's number")?;
            self.expect(")", "behind the class's number")?;
        }
        if self.took(";") {
            return Ok(());
        }
        let mut base = None;
        if self.took("extends") {
            base = Some(self.type_name("the class that it extends")?);
        }
        if self.took("implements") {
            self.type_name("an interface that it implements")?;
            while self.took(",") {
                self.type_name("an interface that it implements")?;
            }
        }
        self.open("behind the class's name")?;
        let members = self.members()?;
        self.add(&name, Body::Class { base, members }, metadata);
        Ok(())
    }

    /// The members up to the `}` of a struct or class.
    fn members(&mut self) -> Parsed<Vec<Member>> {
        let (mut members, mut names) = (Vec::new(), HashSet::new());
        loop {
            let Some(token) = self.peek() else { return Err(self.ended("`}`")) };
            match token.text {
                "}" => break,
                "[" => {
                    self.advance();
                    self.metadata()?;
                }
                ";" => self.advance(),
                line if line.starts_with('#') => self.advance(),
                _ => match self.member() {
                    Ok(Some((member, span))) => {
                        if !names.insert(member.name.clone()) {
                            let message = format!("`{}` is declared twice here", member.name);
                            self.wrong(&span, message, None);
                        }
                        members.push(member);
                    }
                    Ok(None) => {}
                    Err(Noted) => self.skip_member()?,
                },
            }
        }
        self.advance();
        self.is_inside = false;
        Ok(members)
    }

    /// One member, or nothing for an operation.
    fn member(&mut self) -> Parsed<Option<(Member, Range<usize>)>> {
        while self.took("idempotent") || self.took("nonmutating") {}
        if self.took("void") {
            self.skip_statement();
            return Ok(None);
        }
        let is_optional = self.took("optional");
        if is_optional {
            self.expect("(", "behind `optional`")?;
            self.word("the number of an optional member")?;
            self.expect(")", "behind the number of an optional member")?;
        }
        let mut of = self.type_name("the type of a member")?;
        let name = self.name("the member's name")?;
        if self.peek().is_some_and(|token| token.text == "(") {
            self.skip_statement();
            return Ok(None);
        }
        if is_optional {
            of.named = Named::Unfit("an optional member, which encoding 1.0 does not have,");
        }
        if self.took("=") {
            self.word("the value that it has if nobody sets it")?;
        }
        self.expect(";", "behind a member")?;
        Ok(Some((Member { name: unescaped(name.text).to_owned(), of }, name.span)))
    }

    /// Goes on behind a member with a mistake. `Err` at what cannot be inside of a struct or class.
    fn skip_member(&mut self) -> Parsed<()> {
        while let Some(token) = self.peek() {
            if token.text == "}" {
                return Ok(());
            }
            if DECLARATIONS.contains(&token.text) {
                return Err(Noted);
            }
            self.advance();
            if token.text == ";" {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Goes on behind the next `;`.
    fn skip_statement(&mut self) {
        while self.take().is_some_and(|token| token.text != ";") {}
    }

    fn sequence(&mut self, metadata: Vec<String>) -> Parsed<()> {
        self.expect("<", "behind `sequence`")?;
        let of = self.type_name("the type of the elements")?;
        self.expect(">", "behind the type of the elements")?;
        let name = self.name("the sequence's name")?;
        self.expect(";", "behind the sequence's name")?;
        self.add(&name, Body::Sequence(of), metadata);
        Ok(())
    }

    fn dictionary(&mut self, metadata: Vec<String>) -> Parsed<()> {
        self.expect("<", "behind `dictionary`")?;
        let key = self.type_name("the type of the keys")?;
        self.expect(",", "behind the type of the keys")?;
        let value = self.type_name("the type of the values")?;
        self.expect(">", "behind the type of the values")?;
        let name = self.name("the dictionary's name")?;
        self.expect(";", "behind the dictionary's name")?;
        self.add(&name, Body::Dictionary { key, value }, metadata);
        Ok(())
    }

    fn enumeration(&mut self, metadata: Vec<String>) -> Parsed<()> {
        let name = self.name("the enum's name")?;
        self.open("behind the enum's name")?;
        let mut values: Vec<(String, i32)> = Vec::new();
        let (mut names, mut numbers, mut following) = (HashSet::new(), HashSet::new(), Some(0));
        while !self.took("}") {
            let value_name = self.name("the name of a value")?;
            let number = if self.took("=") { self.enum_value()? } else { following };
            let Some(number) = number.filter(|number| *number >= 0) else {
                let help = format!("values go from 0 to {}", i32::MAX);
                return Err(self.wrong(&value_name.span, "no value of an enum", Some(&help)));
            };
            let short = unescaped(value_name.text).to_owned();
            if !names.insert(short.clone()) || !numbers.insert(number) {
                let message =
                    format!("another value of this enum is called `{short}` or is {number}");
                return Err(self.wrong(&value_name.span, message, None));
            }
            following = number.checked_add(1);
            values.push((short, number));
            if !self.took(",") && self.peek().is_none_or(|token| token.text != "}") {
                self.expect("}", "behind the last value")?;
            }
        }
        self.is_inside = false;
        if values.is_empty() {
            let help = "an enum has at least one value";
            self.wrong(&name.span, "an enum without values", Some(help));
        }
        self.add(&name, Body::Enum(values), metadata);
        Ok(())
    }

    /// What stands behind `=`; nothing if it is not within 32 bits.
    fn enum_value(&mut self) -> Parsed<Option<i32>> {
        let value = self.word("the value: a number")?;
        let (radix, digits) = match value.text {
            hex if hex.starts_with("0x") || hex.starts_with("0X") => (16, &hex[2..]),
            octal if octal.len() > 1 && octal.starts_with('0') => (8, &octal[1..]),
            decimal => (10, decimal),
        };
        let Ok(number) = i64::from_str_radix(digits, radix) else {
            let message = format!("`{}` is no number", shown(value.text));
            return Err(self.wrong(&value.span, message, Some("values are given as numbers here")));
        };
        Ok(i32::try_from(number).ok())
    }

    /// Something whose body leaves nothing in records; what it is called is kept to say so.
    fn other(&mut self, what: &'static str) -> Parsed<()> {
        let name = self.name("a name")?;
        loop {
            match self.take().map(|token| token.text) {
                Some(";") => return Ok(()),
                Some("{") => break,
                Some(_) => {}
                None => return Err(self.ended("`{` or `;`")),
            }
        }
        let mut open = 1_usize;
        while open > 0 {
            match self.take().map(|token| token.text) {
                Some("{") => open += 1,
                Some("}") => open -= 1,
                Some(_) => {}
                None => return Err(self.ended("`}`")),
            }
        }
        self.add(&name, Body::Other(what), Vec::new());
        Ok(())
    }

    /// What stands in `["…", "…"]`, also in `[["…"]]`. The first bracket was read.
    fn metadata(&mut self) -> Parsed<Vec<String>> {
        let is_of_file = self.took("[");
        let mut found = Vec::new();
        loop {
            let text =
                self.take().filter(|token| token.text.len() > 1 && token.text.starts_with('"'));
            let Some(text) = text else {
                let Some(Token { span, .. }) = self.peek() else {
                    return Err(self.ended("a text in quotes"));
                };
                let help = "metadata is `[\"…\"]`";
                return Err(self.wrong(&span, "expected a text in quotes", Some(help)));
            };
            found.push(text.text.trim_matches('"').to_owned());
            if !self.took(",") {
                break;
            }
        }
        self.expect("]", "behind metadata")?;
        if is_of_file {
            self.expect("]", "behind metadata")?;
            found.clear();
        }
        Ok(found)
    }

    fn type_name(&mut self, what: &str) -> Parsed<TypeName> {
        if self.took("[") {
            self.metadata()?;
        }
        let word = self.word(what)?;
        if word.text.len() > 2 * LONGEST_NAME {
            let message = format!("the name of a type, longer than {} bytes", 2 * LONGEST_NAME);
            return Err(self.wrong(&word.span, message, None));
        }
        let span = word.span.clone();
        let named = if self.took("*") {
            Named::Unfit("a proxy")
        } else if let Some(builtin) = Builtin::of(word.text) {
            Named::Builtin(builtin)
        } else if matches!(word.text, "Object" | "LocalObject" | "::Ice::Object") {
            Named::Unfit("an object of any class")
        } else if word.text.split("::").enumerate().all(|(at, part)| {
            // In front of a full name there is nothing.
            (at == 0 && part.is_empty() && word.text.len() > 2) || is_name(part)
        }) {
            let name = word.text.split("::").map(unescaped).collect::<Vec<_>>().join("::");
            Named::Declared { name, scope: self.modules.last().cloned().unwrap_or_default() }
        } else {
            let message = format!("expected {what}, found `{}`", shown(word.text));
            return Err(self.wrong(&word.span, message, None));
        };
        Ok(TypeName { named, span })
    }

    fn peek(&self) -> Option<Token<'t>> {
        self.next.clone()
    }

    fn take(&mut self) -> Option<Token<'t>> {
        std::mem::replace(&mut self.next, self.tokens.next())
    }

    fn advance(&mut self) {
        self.next = self.tokens.next();
    }

    /// Whether the next token is this one, which is then taken.
    fn took(&mut self, text: &str) -> bool {
        let is_it = self.next.as_ref().is_some_and(|token| token.text == text);
        if is_it {
            self.advance();
        }
        is_it
    }

    /// The next token, which must be a word.
    fn word(&mut self, what: &str) -> Parsed<Token<'t>> {
        let Some(token) = self.peek() else { return Err(self.ended(what)) };
        let is_word = |c: char| c.is_alphanumeric() || "_.+-\\:\"\u{fffd}".contains(c);
        if !token.text.starts_with(is_word) {
            let message = format!("expected {what}, found `{}`", shown(token.text));
            return Err(self.wrong(&token.span, message, None));
        }
        self.advance();
        Ok(token)
    }

    /// The next token, which must be a name without its module.
    fn name(&mut self, what: &str) -> Parsed<Token<'t>> {
        let Some(token) = self.peek() else { return Err(self.ended(what)) };
        if !is_name(token.text) {
            let message = format!("expected {what}, found `{}`", shown(token.text));
            let help = "names are letters, digits and `_`, and begin with no digit";
            return Err(self.wrong(&token.span, message, Some(help)));
        }
        if token.text.len() > LONGEST_NAME {
            let message = format!("a name longer than {LONGEST_NAME} bytes");
            return Err(self.wrong(&token.span, message, None));
        }
        self.advance();
        Ok(token)
    }

    fn expect(&mut self, mark: &str, place: &str) -> Parsed<()> {
        if self.took(mark) {
            return Ok(());
        }
        let Some(token) = self.peek() else { return Err(self.ended(&format!("`{mark}`"))) };
        let message = format!("expected `{mark}` {place}, found `{}`", shown(token.text));
        Err(self.wrong(&token.span, message, None))
    }

    /// Something is missing at the end of the file. That a comment goes on to there is told elsewhere.
    fn ended(&mut self, what: &str) -> Noted {
        if self.tokens.unclosed().is_some() {
            return Noted;
        }
        let end = self.end..self.end;
        self.wrong(&end, format!("expected {what}, found the end of the file"), None)
    }

    fn wrong(
        &mut self,
        span: &Range<usize>,
        message: impl Into<String>,
        help: Option<&str>,
    ) -> Noted {
        let (span, message, help) = (span.clone(), message.into(), help.map(str::to_owned));
        if self.mistakes.len() < MOST_MISTAKES {
            self.mistakes.push(Mistake { span, message, help, detail: None });
        }
        if self.mistakes.len() == MOST_MISTAKES {
            self.stop();
        }
        Noted
    }

    /// Passes over the rest of the file.
    fn stop(&mut self) {
        (self.next, self.tokens) = (None, Tokens::new(""));
        self.modules.clear();
    }
}

/// The file that a line for the preprocessor includes.
fn included(line: &str) -> Option<String> {
    let rest = line.strip_prefix('#')?.trim_start().strip_prefix("include")?.trim();
    let close = match rest.chars().next()? {
        '"' => '"',
        '<' => '>',
        _ => return None,
    };
    let (name, _) = rest.get(1..)?.split_once(close)?;
    Some(name.to_owned())
}

/// As much of a word as tells which it is.
fn shown(word: &str) -> Cow<'_, str> {
    match word.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", word.get(..end).unwrap_or_default()).into(),
        None => word.into(),
    }
}

fn unescaped(name: &str) -> &str {
    name.strip_prefix('\\').unwrap_or(name)
}

fn is_name(word: &str) -> bool {
    let word = unescaped(word);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && word.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Unit {
        let (unit, mistakes) = parse(text);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        unit
    }

    fn wrong(text: &str) -> Vec<String> {
        parse(text).1.into_iter().map(|mistake| mistake.message).collect()
    }

    #[test]
    fn what_leaves_nothing_in_records_is_stepped_over() {
        let unit = read(
            r#"#ifndef A
            #define A
            #include <orca/common.ice>
            #include "other.ice"
            [["java:package:x"]]
            module a { module b {
                class Forward;
                const string Text = "}; \" ;";
                const int Five = 5;
                local interface I extends J { void f(int a, out string b) throws E; ["x"] int g(); };
                exception E { string why = "none"; };
                interface Later;
                ["log:X", "other"] class C(5) extends ::a::D implements I {
                    ["protected"] int x = 3;
                    idempotent string name();
                    void f();
                    double \int;
                };
                ["log:X:config"] struct S { bool b; C* p; Object o; optional(1) int q; };
            }; };
            #endif"#,
        );
        assert_eq!(unit.includes, ["orca/common.ice", "other.ice"]);
        let names: Vec<&str> = unit.declared.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["::a::b::I", "::a::b::E", "::a::b::C", "::a::b::S"]);
        assert_eq!(unit.declared[2].metadata, ["log:X", "other"]);
        let Body::Class { base, members } = &unit.declared[2].body else { panic!() };
        let named = &base.as_ref().unwrap().named;
        let (name, scope) = ("::a::D".to_owned(), "::a::b".into());
        assert_eq!(*named, Named::Declared { name, scope });
        let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["x", "int"]);
        let Body::Struct(members) = &unit.declared[3].body else { panic!() };
        assert!(members[1..].iter().all(|m| matches!(m.of.named, Named::Unfit(_))));
    }

    #[test]
    fn values_of_enums_go_on_from_those_given() {
        let unit = read("enum E { a, b = 5, c, d = 0x10, }; enum F { x };");
        let Body::Enum(values) = &unit.declared[0].body else { panic!() };
        let numbers: Vec<i32> = values.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, [0, 5, 6, 16]);
        assert_eq!(wrong("enum E { a = 1, b = 0, c };").len(), 1);
        assert_eq!(wrong("enum E { a = -1 };"), ["no value of an enum"]);
        assert_eq!(wrong("enum E { };"), ["an enum without values"]);
    }

    #[test]
    fn every_mistake_is_told_in_one_go() {
        let all = wrong(
            "module m {
                struct S { int 1x; float y; float y; };
                sequence int> Q;
                class C { int x }
                struct Empty { };
                nonsense;
                dictionary<string> D;
            };
            }
            module open {",
        );
        let expected = [
            "expected the member's name, found `1x`",
            "`y` is declared twice here",
            "expected `<` behind `sequence`, found `int`",
            "expected `;` behind a member, found `}`",
            "a struct without members",
            "expected a declaration, found `nonsense`",
            "expected `,` behind the type of the keys, found `>`",
            "a `}` that closes nothing",
            "expected the `}` of a module, found the end of the file",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn what_is_left_open_is_a_mistake() {
        for text in
            ["module", "struct S", "struct S {", "struct S { int", "class C(", "[", "[\"x\""]
        {
            assert!(!wrong(text).is_empty(), "{text}");
        }
        assert!(wrong(&"module a {".repeat(40))[0].contains("more than 32"));
        assert!(wrong(&format!("module {} {{", "a".repeat(999)))[0].contains("longer than 1000"));
        assert!(wrong(&format!("struct {}", "a".repeat(1001)))[0].contains("longer than 1000"));
    }

    #[test]
    fn a_comment_without_an_end_is_told_as_that() {
        for text in ["/* open", "struct X { int a; /* ", "module m { interface I { /* } };", "[ /*"]
        {
            let (_, mistakes) = parse(text);
            let told: Vec<&str> = mistakes.iter().map(|one| one.message.as_str()).collect();
            assert_eq!(told, ["a comment without an end"], "{text}");
            assert_eq!(text.get(mistakes[0].span.clone()), Some("/*"));
        }
    }

    #[test]
    fn no_more_mistakes_are_told_than_people_read() {
        for piece in ["module m {", "} ", "struct S { int 1x; };", "enum E {};"] {
            assert_eq!(wrong(&piece.repeat(1_000)).len(), MOST_MISTAKES, "{piece}");
        }
        let word = "ü".repeat(1 << 20);
        assert!(wrong(&word).iter().all(|told| told.len() < 200 && told.contains("üü…`")));
        assert!(wrong(&format!("struct S {{ {word} x; }};")).iter().all(|told| told.len() < 200));
    }

    #[test]
    fn a_small_text_cannot_say_much_by_long_names() {
        let long = format!("module {} {{", "a".repeat(990));
        let enums: String = (0..40_000).map(|n| format!("enum E{n} {{ a }};")).collect();
        let (unit, mistakes) = parse(&(long + &enums + "};"));
        assert!(mistakes[0].message.starts_with("names of types that are longer"), "{mistakes:?}");
        assert_eq!(mistakes.len(), 1);
        let names: usize = unit.declared.iter().map(|declared| declared.name.len()).sum();
        assert!(names <= MOST_NAMES);
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "\\PC{0,200}") {
            parse(&text);
        }

        #[test]
        fn no_pieces_are_too_much(pieces in prop::collection::vec(0..30_usize, 0..60)) {
            let words = [
                "module", "struct", "class", "enum", "sequence", "dictionary", "interface", "{", "}",
                "<", ">", ";", ",", "(", ")", "[", "]", "\"x\"", "=", "int", "a", "::a::B", "extends",
                "/*", "*", "5", "#include \"x\"\n", "void", "optional", "const",
            ];
            let text: Vec<&str> = pieces.into_iter().map(|at| words[at]).collect();
            parse(&text.join(" "));
        }
    }
}
