//! Parses the declarations of types: structs, classes, sequences, dictionaries and enums.

use std::collections::HashSet;
use std::ops::Range;

use super::DECLARATIONS;
use super::tokens::{
    MAX_NAME, MistakeReported, ParseResult, SliceParser, abbreviated, is_name, unescaped,
};
use crate::slice::syntax::{Builtin, DeclarationBody, SliceMember, TypeName, TypeRef};

impl SliceParser<'_> {
    pub(super) fn structure(&mut self, metadata: Vec<String>) -> ParseResult<()> {
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

    pub(super) fn class(&mut self, metadata: Vec<String>) -> ParseResult<()> {
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

    pub(super) fn sequence(&mut self, metadata: Vec<String>) -> ParseResult<()> {
        self.expect("<", "after `sequence`")?;
        let of = self.type_name("the type of the elements")?;
        self.expect(">", "after the type of the elements")?;
        let name = self.name("the sequence's name")?;
        self.expect(";", "after the sequence's name")?;
        self.add(&name, DeclarationBody::Sequence(of), metadata);
        Ok(())
    }

    pub(super) fn dictionary(&mut self, metadata: Vec<String>) -> ParseResult<()> {
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

    pub(super) fn enumeration(&mut self, metadata: Vec<String>) -> ParseResult<()> {
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
