//! Parses the text of one `.ice` file into declarations, or every mistake in it. Resolves no names.

use std::collections::HashSet;
use std::ops::Range;

use sluice_kit::mistake::Mistake;
use sluice_model::cursor::Token;

use super::syntax::{
    Builtin, Declaration, DeclarationBody, SliceFile, SliceMember, TypeName, TypeRef,
};
use super::token::Tokenizer;

mod tokens;

pub(crate) use tokens::MAX_MISTAKES;
use tokens::{
    MAX_NAME, MistakeReported, ParseResult, SliceParser, abbreviated, is_name, unescaped,
};

/// Parses a text. Returns its syntax and its mistakes: at most [`MAX_MISTAKES`], with nothing
/// parsed after the last. Linear in the length of the text.
pub(crate) fn parse(text: &str) -> (SliceFile, Vec<Mistake>) {
    let mut tokens = Tokenizer::new(text);
    let mut parser = SliceParser {
        next: tokens.next(),
        tokens,
        end: text.len(),
        modules: Vec::new(),
        is_inside: false,
        total_name_len: 0,
        unit: SliceFile::default(),
        mistakes: Vec::new(),
    };
    parser.file();
    (parser.unit, parser.mistakes)
}

const DECLARATION_HELP: &str = "a file holds modules, structs, classes, sequences, dictionaries, \
    enums, interfaces, \
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
/// The maximum nesting depth of modules.
const MAX_MODULE_DEPTH: usize = 32;
/// The maximum total length of a file's full type names.
const MAX_TOTAL_NAMES: usize = 32 << 20;

impl<'t> SliceParser<'t> {
    fn file(&mut self) {
        let mut metadata = Vec::new();
        while let Some(token) = self.take() {
            let read = match token.text {
                "[" => self.metadata().map(|found| metadata.extend(found)),
                line if line.starts_with('#') => {
                    self.unit.includes.extend(include_name(line));
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
            self.report(&span, "an unclosed comment", Some("close it with `*/`"));
        } else if !self.modules.is_empty() {
            self.report_end("the `}` of a module");
        }
    }

    fn declaration(&mut self, word: &Token<'t>, metadata: Vec<String>) -> ParseResult<()> {
        match word.text {
            "module" => self.module(),
            "struct" => self.structure(metadata),
            "class" => self.class(metadata),
            "sequence" => self.sequence(metadata),
            "dictionary" => self.dictionary(metadata),
            "enum" => self.enumeration(metadata),
            "interface" => self.undecoded("an interface"),
            "exception" => self.undecoded("an exception"),
            "const" => {
                self.skip_statement();
                Ok(())
            }
            "}" => Err(self.report(&word.span, "an unmatched `}`", Some("remove it"))),
            other => {
                let message = format!("expected a declaration, found `{}`", abbreviated(other));
                Err(self.report(&word.span, message, Some(DECLARATION_HELP)))
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

    /// Expects the `{` after the name of a struct, class or enum.
    fn open(&mut self, place: &str) -> ParseResult<()> {
        self.expect("{", place)?;
        self.is_inside = true;
        Ok(())
    }

    fn module(&mut self) -> ParseResult<()> {
        let name = self.name("the module's name")?;
        if self.modules.len() >= MAX_MODULE_DEPTH {
            let message = format!("modules nested more than {MAX_MODULE_DEPTH} deep");
            return Err(self.report(&name.span, message, None));
        }
        self.expect("{", "after the module's name")?;
        let full = self.full_name(&name);
        if full.len() > MAX_NAME {
            let message = format!("modules whose names are longer than {MAX_NAME} bytes together");
            return Err(self.report(&name.span, message, None));
        }
        self.modules.push(full.into());
        Ok(())
    }

    fn full_name(&self, name: &Token<'_>) -> String {
        format!("{}::{}", self.scope(), unescaped(name.text))
    }

    fn scope(&self) -> &str {
        self.modules.last().map_or("", |scope| scope)
    }

    fn add(&mut self, name: &Token<'_>, body: DeclarationBody, metadata: Vec<String>) {
        let (name, span) = (self.full_name(name), name.span.clone());
        self.total_name_len = self.total_name_len.saturating_add(name.len());
        if self.total_name_len > MAX_TOTAL_NAMES {
            let message =
                format!("type names that are longer than {MAX_TOTAL_NAMES} bytes together");
            self.report(&span, message, Some("split the file"));
            self.stop();
            return;
        }
        self.unit.declarations.push(Declaration { name, span, body, metadata });
    }

    fn structure(&mut self, metadata: Vec<String>) -> ParseResult<()> {
        let name = self.name("the struct's name")?;
        if self.consume(";") {
            return Ok(());
        }
        self.open("after the struct's name")?;
        let members = self.members()?;
        if members.is_empty() {
            let help = "a struct has at least one member";
            self.report(&name.span, "a struct without members", Some(help));
        }
        self.add(&name, DeclarationBody::Struct(members), metadata);
        Ok(())
    }

    fn class(&mut self, metadata: Vec<String>) -> ParseResult<()> {
        let name = self.name("the class's name")?;
        if self.consume("(") {
            // A number that replaces the name in encodings after 1.0.
            self.word("the class's number")?;
            self.expect(")", "after the class's number")?;
        }
        if self.consume(";") {
            return Ok(());
        }
        let mut base = None;
        if self.consume("extends") {
            base = Some(self.type_name("the class that it extends")?);
        }
        if self.consume("implements") {
            self.type_name("an interface that it implements")?;
            while self.consume(",") {
                self.type_name("an interface that it implements")?;
            }
        }
        self.open("after the class's name")?;
        let members = self.members()?;
        self.add(&name, DeclarationBody::Class { base, members }, metadata);
        Ok(())
    }

    /// The members up to the `}` of a struct or class.
    fn members(&mut self) -> ParseResult<Vec<SliceMember>> {
        let (mut members, mut names) = (Vec::new(), HashSet::new());
        loop {
            let Some(token) = self.peek() else { return Err(self.report_end("`}`")) };
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
                            self.report(&span, message, None);
                        }
                        members.push(member);
                    }
                    Ok(None) => {}
                    Err(MistakeReported) => self.skip_member()?,
                },
            }
        }
        self.advance();
        self.is_inside = false;
        Ok(members)
    }

    /// One member, or `None` for an operation.
    fn member(&mut self) -> ParseResult<Option<(SliceMember, Range<usize>)>> {
        while self.consume("idempotent") || self.consume("nonmutating") {}
        if self.consume("void") {
            self.skip_statement();
            return Ok(None);
        }
        let is_optional = self.consume("optional");
        if is_optional {
            self.expect("(", "after `optional`")?;
            self.word("the number of an optional member")?;
            self.expect(")", "after the number of an optional member")?;
        }
        let mut of = self.type_name("the type of a member")?;
        let name = self.name("the member's name")?;
        if self.peek().is_some_and(|token| token.text == "(") {
            self.skip_statement();
            return Ok(None);
        }
        if is_optional {
            of.target =
                TypeRef::Unsupported("an optional member, which encoding 1.0 does not have,");
        }
        if self.consume("=") {
            self.word("a default value")?;
        }
        self.expect(";", "after a member")?;
        Ok(Some((SliceMember { name: unescaped(name.text).to_owned(), type_name: of }, name.span)))
    }

    /// Skips a member with a mistake. `Err` if something follows that cannot be in a struct or
    /// class.
    fn skip_member(&mut self) -> ParseResult<()> {
        while let Some(token) = self.peek() {
            if token.text == "}" {
                return Ok(());
            }
            if DECLARATIONS.contains(&token.text) {
                return Err(MistakeReported);
            }
            self.advance();
            if token.text == ";" {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Skips to after the next `;`.
    fn skip_statement(&mut self) {
        while self.take().is_some_and(|token| token.text != ";") {}
    }

    fn sequence(&mut self, metadata: Vec<String>) -> ParseResult<()> {
        self.expect("<", "after `sequence`")?;
        let of = self.type_name("the type of the elements")?;
        self.expect(">", "after the type of the elements")?;
        let name = self.name("the sequence's name")?;
        self.expect(";", "after the sequence's name")?;
        self.add(&name, DeclarationBody::Sequence(of), metadata);
        Ok(())
    }

    fn dictionary(&mut self, metadata: Vec<String>) -> ParseResult<()> {
        self.expect("<", "after `dictionary`")?;
        let key = self.type_name("the type of the keys")?;
        self.expect(",", "after the type of the keys")?;
        let value = self.type_name("the type of the values")?;
        self.expect(">", "after the type of the values")?;
        let name = self.name("the dictionary's name")?;
        self.expect(";", "after the dictionary's name")?;
        self.add(&name, DeclarationBody::Dictionary { key, value }, metadata);
        Ok(())
    }

    fn enumeration(&mut self, metadata: Vec<String>) -> ParseResult<()> {
        let name = self.name("the enum's name")?;
        self.open("after the enum's name")?;
        let mut values: Vec<(String, i32)> = Vec::new();
        let (mut names, mut numbers, mut following) = (HashSet::new(), HashSet::new(), Some(0));
        while !self.consume("}") {
            let value_name = self.name("the name of a value")?;
            let number = if self.consume("=") { self.enum_value()? } else { following };
            let Some(number) = number.filter(|number| *number >= 0) else {
                let help = format!("values are from 0 to {}", i32::MAX);
                return Err(self.report(
                    &value_name.span,
                    "an invalid value of an enum",
                    Some(&help),
                ));
            };
            let short = unescaped(value_name.text).to_owned();
            if !names.insert(short.clone()) || !numbers.insert(number) {
                let message =
                    format!("another value of this enum is named `{short}` or equals {number}");
                return Err(self.report(&value_name.span, message, None));
            }
            following = number.checked_add(1);
            values.push((short, number));
            if !self.consume(",") && self.peek().is_none_or(|token| token.text != "}") {
                self.expect("}", "after the last value")?;
            }
        }
        self.is_inside = false;
        if values.is_empty() {
            let help = "an enum has at least one value";
            self.report(&name.span, "an enum without values", Some(help));
        }
        self.add(&name, DeclarationBody::Enum(values), metadata);
        Ok(())
    }

    /// The value after `=`; `None` if it does not fit into 32 bits.
    fn enum_value(&mut self) -> ParseResult<Option<i32>> {
        let value = self.word("the value: a number")?;
        let (radix, digits) = match value.text {
            hex if hex.starts_with("0x") || hex.starts_with("0X") => (16, &hex[2..]),
            octal if octal.len() > 1 && octal.starts_with('0') => (8, &octal[1..]),
            decimal => (10, decimal),
        };
        let Ok(number) = i64::from_str_radix(digits, radix) else {
            let message = format!("`{}` is not a number", abbreviated(value.text));
            return Err(self.report(
                &value.span,
                message,
                Some("only numbers are supported as values"),
            ));
        };
        Ok(i32::try_from(number).ok())
    }

    /// Skips a declaration without values in records, and keeps its name for messages.
    fn undecoded(&mut self, what: &'static str) -> ParseResult<()> {
        let name = self.name("a name")?;
        loop {
            match self.take().map(|token| token.text) {
                Some(";") => return Ok(()),
                Some("{") => break,
                Some(_) => {}
                None => return Err(self.report_end("`{` or `;`")),
            }
        }
        let mut open = 1_usize;
        while open > 0 {
            match self.take().map(|token| token.text) {
                Some("{") => open += 1,
                Some("}") => open -= 1,
                Some(_) => {}
                None => return Err(self.report_end("`}`")),
            }
        }
        self.add(&name, DeclarationBody::Undecoded(what), Vec::new());
        Ok(())
    }

    /// The strings in `["…", "…"]` or `[["…"]]`. The first bracket has been consumed.
    fn metadata(&mut self) -> ParseResult<Vec<String>> {
        let is_of_file = self.consume("[");
        let mut found = Vec::new();
        loop {
            let text =
                self.take().filter(|token| token.text.len() > 1 && token.text.starts_with('"'));
            let Some(text) = text else {
                let Some(Token { span, .. }) = self.peek() else {
                    return Err(self.report_end("a string in quotes"));
                };
                let help = "metadata is `[\"…\"]`";
                return Err(self.report(&span, "expected a string in quotes", Some(help)));
            };
            found.push(text.text.trim_matches('"').to_owned());
            if !self.consume(",") {
                break;
            }
        }
        self.expect("]", "after metadata")?;
        if is_of_file {
            self.expect("]", "after metadata")?;
            found.clear();
        }
        Ok(found)
    }

    fn type_name(&mut self, what: &str) -> ParseResult<TypeName> {
        if self.consume("[") {
            self.metadata()?;
        }
        let word = self.word(what)?;
        if word.text.len() > 2 * MAX_NAME {
            let message = format!("the name of a type, longer than {} bytes", 2 * MAX_NAME);
            return Err(self.report(&word.span, message, None));
        }
        let span = word.span.clone();
        let named = if self.consume("*") {
            TypeRef::Unsupported("a proxy")
        } else if let Some(builtin) = Builtin::from_word(word.text) {
            TypeRef::Builtin(builtin)
        } else if matches!(word.text, "Object" | "LocalObject" | "::Ice::Object") {
            TypeRef::Unsupported("an object of any class")
        } else if word.text.split("::").enumerate().all(|(at, part)| {
            // A full name starts with an empty part.
            (at == 0 && part.is_empty() && word.text.len() > 2) || is_name(part)
        }) {
            let name = word.text.split("::").map(unescaped).collect::<Vec<_>>().join("::");
            TypeRef::Declared { name, scope: self.modules.last().cloned().unwrap_or_default() }
        } else {
            let message = format!("expected {what}, found `{}`", abbreviated(word.text));
            return Err(self.report(&word.span, message, None));
        };
        Ok(TypeName { target: named, span })
    }
}

/// The file that a preprocessor line includes.
fn include_name(line: &str) -> Option<String> {
    let rest = line.strip_prefix('#')?.trim_start().strip_prefix("include")?.trim();
    let close = match rest.chars().next()? {
        '"' => '"',
        '<' => '>',
        _ => return None,
    };
    let (name, _) = rest.get(1..)?.split_once(close)?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> SliceFile {
        let (unit, mistakes) = parse(text);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        unit
    }

    fn wrong(text: &str) -> Vec<String> {
        parse(text).1.into_iter().map(|mistake| mistake.message).collect()
    }

    #[test]
    fn declarations_that_do_not_affect_records_are_skipped() {
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
                local interface I extends J {
                    void f(int a, out string b) throws E; ["x"] int g(); };
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
        let names: Vec<&str> = unit.declarations.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["::a::b::I", "::a::b::E", "::a::b::C", "::a::b::S"]);
        assert_eq!(unit.declarations[2].metadata, ["log:X", "other"]);
        let DeclarationBody::Class { base, members } = &unit.declarations[2].body else { panic!() };
        let named = &base.as_ref().unwrap().target;
        let (name, scope) = ("::a::D".to_owned(), "::a::b".into());
        assert_eq!(*named, TypeRef::Declared { name, scope });
        let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["x", "int"]);
        let DeclarationBody::Struct(members) = &unit.declarations[3].body else { panic!() };
        assert!(members[1..].iter().all(|m| matches!(m.type_name.target, TypeRef::Unsupported(_))));
    }

    #[test]
    fn enum_values_continue_from_explicit_ones() {
        let unit = read("enum E { a, b = 5, c, d = 0x10, }; enum F { x };");
        let DeclarationBody::Enum(values) = &unit.declarations[0].body else { panic!() };
        let numbers: Vec<i32> = values.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, [0, 5, 6, 16]);
        assert_eq!(wrong("enum E { a = 1, b = 0, c };").len(), 1);
        assert_eq!(wrong("enum E { a = -1 };"), ["an invalid value of an enum"]);
        assert_eq!(wrong("enum E { };"), ["an enum without values"]);
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let all = wrong(
            "module m {
                struct S { int 1x; float y; float y; };
                sequence int> Q;
                class C { int x }
                struct NoMembers { };
                nonsense;
                dictionary<string> D;
            };
            }
            module open {",
        );
        let expected = [
            "expected the member's name, found `1x`",
            "`y` is declared twice here",
            "expected `<` after `sequence`, found `int`",
            "expected `;` after a member, found `}`",
            "a struct without members",
            "expected a declaration, found `nonsense`",
            "expected `,` after the type of the keys, found `>`",
            "an unmatched `}`",
            "expected the `}` of a module, found the end of the file",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn an_incomplete_declaration_is_a_mistake() {
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
    fn an_unclosed_comment_is_reported_as_such() {
        for text in ["/* open", "struct X { int a; /* ", "module m { interface I { /* } };", "[ /*"]
        {
            let (_, mistakes) = parse(text);
            let messages: Vec<&str> = mistakes.iter().map(|one| one.message.as_str()).collect();
            assert_eq!(messages, ["an unclosed comment"], "{text}");
            assert_eq!(text.get(mistakes[0].span.clone()), Some("/*"));
        }
    }

    #[test]
    fn the_number_of_mistakes_is_limited() {
        for piece in ["module m {", "} ", "struct S { int 1x; };", "enum E {};"] {
            assert_eq!(wrong(&piece.repeat(1_000)).len(), MAX_MISTAKES, "{piece}");
        }
        let word = "ü".repeat(1 << 20);
        assert!(wrong(&word).iter().all(|message| message.len() < 200 && message.contains("üü…`")));
        assert!(
            wrong(&format!("struct S {{ {word} x; }};")).iter().all(|message| message.len() < 200)
        );
    }

    #[test]
    fn a_small_text_with_long_names_does_not_use_much_memory() {
        let long = format!("module {} {{", "a".repeat(990));
        let enums: String = (0..40_000).map(|n| format!("enum E{n} {{ a }};")).collect();
        let (unit, mistakes) = parse(&(long + &enums + "};"));
        assert!(mistakes[0].message.starts_with("type names that are longer"), "{mistakes:?}");
        assert_eq!(mistakes.len(), 1);
        let names: usize = unit.declarations.iter().map(|declared| declared.name.len()).sum();
        assert!(names <= MAX_TOTAL_NAMES);
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "\\PC{0,200}") {
            parse(&text);
        }

        #[test]
        fn no_pieces_are_too_much(pieces in prop::collection::vec(0..30_usize, 0..60)) {
            let words = [
                "module", "struct", "class", "enum", "sequence", "dictionary", "interface",
                "{", "}",
                "<", ">", ";", ",", "(", ")", "[", "]", "\"x\"", "=", "int", "a", "::a::B",
                "extends",
                "/*", "*", "5", "#include \"x\"\n", "void", "optional", "const",
            ];
            let text: Vec<&str> = pieces.into_iter().map(|at| words[at]).collect();
            parse(&text.join(" "));
        }
    }
}
