//! Parses the part of OMG IDL in which ROS 2 describes messages, `ros2idl`: modules, structs and
//! typedefs. Types become those of the message language. Resolves no names but of typedefs, and
//! reads no constants: payloads have none.

use std::collections::HashMap;
use std::ops::Range;

use sluice_kit::mistake::Mistake;
use sluice_kit::type_library::ParsedTypes;
use sluice_model::cursor::{Cursor, Token};

use super::text::{self, Declaration, Member, short_name};

/// The types of IDL, and those of the message language with the same payload.
const PRIMITIVES: [(&str, &str); 15] = [
    ("boolean", "bool"),
    ("octet", "byte"),
    ("char", "char"),
    ("int8", "int8"),
    ("uint8", "uint8"),
    ("short", "int16"),
    ("int16", "int16"),
    ("uint16", "uint16"),
    ("int32", "int32"),
    ("uint32", "uint32"),
    ("long", "int32"),
    ("int64", "int64"),
    ("uint64", "uint64"),
    ("float", "float32"),
    ("double", "float64"),
];

/// Deepest nesting of modules: ROS has two.
const MAX_MODULES: usize = 8;
/// The longest name of a type with its modules.
const MAX_NAME_LEN: usize = 255;
/// The most members and typedefs of a text.
const MAX_DECLARATORS: usize = 20_000;

/// The declarations of a text, of which the first one is of the type `name`, and the first mistake.
pub(crate) fn parse(name: &str, text: &str) -> ParsedTypes<Declaration> {
    let mut parser = Parser {
        cursor: Cursor::after_mark(text),
        modules: Vec::new(),
        typedefs: HashMap::new(),
        declarators: 0,
        all: Vec::new(),
    };
    let parsed = parser.definitions().and_then(|()| {
        let mut all = text::without_repetitions(parser.all);
        let is_it = |of: &(String, _, _)| short_name(&of.0) == short_name(name);
        let Some(first) = all.iter().position(is_it) else {
            return Err(mistake(0..0, format!("the text does not declare `{name}`")));
        };
        let (_, _, declaration) = all.remove(first);
        all.insert(0, (name.to_owned(), 0..0, declaration));
        Ok(all)
    });
    match parsed {
        Ok(all) => (all, Vec::new()),
        Err(mistake) => (vec![(name.to_owned(), 0..0, Declaration::default())], vec![mistake]),
    }
}

fn mistake(span: Range<usize>, message: String) -> Mistake {
    Mistake { span, message, help: None, detail: None }
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

struct Parser<'t> {
    cursor: Cursor<'t>,
    /// The enclosing modules, outermost first.
    modules: Vec<&'t str>,
    /// What typedefs mean, in the message language, by their full names.
    typedefs: HashMap<String, String>,
    /// How many members and typedefs there were.
    declarators: usize,
    all: Vec<(String, Range<usize>, Declaration)>,
}

impl<'t> Parser<'t> {
    fn definitions(&mut self) -> Result<(), Mistake> {
        loop {
            let token = self.next()?;
            match token.text {
                "" if self.modules.is_empty() => return Ok(()),
                "module" => {
                    let name = self.name()?;
                    self.expect("{")?;
                    self.modules.push(name.text);
                    if self.modules.len() > MAX_MODULES {
                        let message = format!("modules nest deeper than {MAX_MODULES} levels");
                        return Err(mistake(name.span, message));
                    }
                }
                "}" if self.modules.pop().is_some() => self.expect(";")?,
                "const" => while !matches!(self.next()?.text, ";" | "") {},
                "typedef" => {
                    let (of, _) = self.type_word()?;
                    for (name, word) in self.declarators(&of)? {
                        let name = self.full_name(&name)?;
                        self.typedefs.insert(name, word);
                    }
                }
                "struct" => self.structure()?,
                _ => return Err(wrong("`module`, `struct`, `typedef` or `const`", &token)),
            }
        }
    }

    fn structure(&mut self) -> Result<(), Mistake> {
        let name = self.name()?;
        let full = self.full_name(&name)?;
        let mut declaration = Declaration::default();
        let token = self.next()?;
        match token.text {
            // It is declared elsewhere.
            ";" => return Ok(()),
            "{" => {}
            _ => return Err(wrong("`{`", &token)),
        }
        loop {
            let before = self.cursor;
            if self.next()?.text == "}" {
                break;
            }
            self.cursor = before;
            let (of, span) = self.type_word()?;
            for (name, word) in self.declarators(&of)? {
                let parsed = text::parse_type(&word);
                let (of, count) = parsed.map_err(|message| mistake(span.clone(), message))?;
                let (name, span) = (name.text.to_owned(), span.clone());
                declaration.members.push(Member { name, of, count, word, span });
            }
        }
        self.all.push((full, name.span, declaration));
        self.expect(";")
    }

    /// Names of members up to `;`, with their types in the message language.
    fn declarators(&mut self, of: &str) -> Result<Vec<(Token<'t>, String)>, Mistake> {
        let mut all = Vec::new();
        loop {
            let name = self.name()?;
            let (mut word, mut token) = (of.to_owned(), self.next()?);
            if token.text == "[" {
                let count = self.number()?;
                self.expect("]")?;
                word = counted(word, &count, &name.span)?;
                token = self.next()?;
            }
            self.declarators += 1;
            if self.declarators > MAX_DECLARATORS {
                let message = format!("more than {MAX_DECLARATORS} members and typedefs");
                return Err(mistake(name.span, message));
            }
            all.push((name, word));
            match token.text {
                "," => {}
                ";" => return Ok(all),
                _ => return Err(wrong("`;`", &token)),
            }
        }
    }

    /// A type in the message language, and where it is written.
    fn type_word(&mut self) -> Result<(String, Range<usize>), Mistake> {
        let token = self.next()?;
        if token.text != "sequence" {
            return Ok((self.element(&token)?, token.span));
        }
        self.expect("<")?;
        let inner = self.next()?;
        let inner = self.element(&inner)?;
        let (mut bound, mut end) = (String::new(), self.next()?);
        if end.text == "," {
            bound = format!("<={}", self.number()?);
            end = self.next()?;
        }
        match end.text {
            ">" => Ok((counted(inner, &bound, &token.span)?, token.span)),
            _ => Err(wrong("`>`", &end)),
        }
    }

    /// The type that begins with a token, in the message language.
    fn element(&mut self, token: &Token<'t>) -> Result<String, Mistake> {
        match token.text {
            "string" | "wstring" => {
                if !self.eat("<")? {
                    return Ok(token.text.to_owned());
                }
                let bound = self.number()?;
                self.expect(">")?;
                return Ok(format!("{}<={bound}", token.text));
            }
            "unsigned" => {
                let size = self.next()?;
                return match size.text {
                    "short" => Ok("uint16".to_owned()),
                    "long" if self.eat("long")? => Ok("uint64".to_owned()),
                    "long" => Ok("uint32".to_owned()),
                    _ => Err(wrong("`short` or `long`", &size)),
                };
            }
            "long" if self.eat("long")? => return Ok("int64".to_owned()),
            "sequence" => return Err(wrong("a type", token)),
            _ => {}
        }
        if let Some((_, word)) = PRIMITIVES.iter().find(|(name, _)| *name == token.text) {
            return Ok((*word).to_owned());
        }
        if token.text.len() > MAX_NAME_LEN {
            return Err(too_long(token));
        }
        let name = token.text.trim_start_matches(':').replace("::", "/");
        if let Some(word) = self.typedef(&name) {
            return Ok(word);
        }
        match text::parse_type(&name) {
            Ok((text::ElementType::Declared(_), text::ElementCount::One)) => Ok(name),
            _ => Err(wrong("a type", token)),
        }
    }

    /// What a typedef of this name means, in the innermost module that has one.
    fn typedef(&self, name: &str) -> Option<String> {
        let scopes = (0..=self.modules.len()).rev().filter_map(|len| self.modules.get(..len));
        let mut names = scopes.map(|modules| [modules, &[name]].concat().join("/"));
        names.find_map(|name| self.typedefs.get(&name).cloned())
    }

    fn full_name(&self, name: &Token<'_>) -> Result<String, Mistake> {
        let full = [&self.modules[..], &[name.text]].concat().join("/");
        if full.len() > MAX_NAME_LEN {
            return Err(too_long(name));
        }
        Ok(full)
    }

    fn name(&mut self) -> Result<Token<'t>, Mistake> {
        let token = self.next()?;
        let is_name = !token.text.is_empty() && token.text.chars().all(is_part);
        if is_name { Ok(token) } else { Err(wrong("a name", &token)) }
    }

    fn number(&mut self) -> Result<String, Mistake> {
        let token = self.next()?;
        let number = token.text.parse::<u32>().map_err(|_| wrong("a number", &token))?;
        Ok(number.to_string())
    }

    fn expect(&mut self, text: &str) -> Result<(), Mistake> {
        let token = self.next()?;
        if token.text == text { Ok(()) } else { Err(wrong(&format!("`{text}`"), &token)) }
    }

    fn eat(&mut self, text: &str) -> Result<bool, Mistake> {
        let before = self.cursor;
        let follows = self.next()?.text == text;
        if !follows {
            self.cursor = before;
        }
        Ok(follows)
    }

    /// A name, a literal, or another character; empty at the end. Annotations are left out.
    fn next(&mut self) -> Result<Token<'t>, Mistake> {
        loop {
            self.skip_space()?;
            let token = match self.cursor.peek() {
                Some('"' | '\'') => self.literal()?,
                Some(c) if is_part(c) || c == ':' => {
                    self.cursor.take_while(|c| is_part(c) || c == ':')
                }
                next => self.cursor.take(next.map_or(0, char::len_utf8)),
            };
            if token.text != "@" {
                return Ok(token);
            }
            self.annotation()?;
        }
    }

    /// Skips an annotation behind its `@`.
    fn annotation(&mut self) -> Result<(), Mistake> {
        let name = self.cursor.take_while(is_part);
        if name.text == "optional" {
            let message = "members that are `@optional` are not supported".to_owned();
            return Err(mistake(name.span, message));
        }
        self.skip_space()?;
        let mut depth = 0_usize;
        while depth > 0 || self.cursor.peek() == Some('(') {
            self.skip_space()?;
            match self.cursor.peek() {
                Some('"' | '\'') => {
                    self.literal()?;
                }
                Some('(') => depth += usize::from(self.cursor.eat("(")),
                Some(')') => depth -= usize::from(self.cursor.eat(")")),
                Some(_) => {
                    self.cursor.next_char();
                }
                None => return Err(mistake(name.span, "an annotation is not closed".to_owned())),
            }
            if depth == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Takes a text or a character in quotes.
    fn literal(&mut self) -> Result<Token<'t>, Mistake> {
        let rest = self.cursor.rest();
        let quote = self.cursor.peek();
        let mut is_escaped = false;
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                c if Some(c) == quote => return Ok(self.cursor.take(at + 1)),
                _ => {}
            }
        }
        let span = self.cursor.position()..self.cursor.position() + 1;
        Err(mistake(span, "a text is not closed".to_owned()))
    }

    /// Skips space, comments, lines of the preprocessor, and what recorders put before each text:
    /// a line of `=`, and one with the type's name.
    fn skip_space(&mut self) -> Result<(), Mistake> {
        loop {
            self.cursor.take_while(char::is_whitespace);
            if let Some((len, is_closed)) = self.cursor.comment() {
                let comment = self.cursor.take(len);
                if !is_closed {
                    return Err(mistake(comment.span, "a comment is not closed".to_owned()));
                }
            } else if self.cursor.rest().starts_with("#") {
                self.cursor.take_while(|c| c != '\n');
            } else if self.cursor.rest().starts_with("==========") {
                self.cursor.take_while(|c| c != '\n');
                self.cursor.eat("\n");
                if self.cursor.rest().starts_with("IDL:") {
                    self.cursor.take_while(|c| c != '\n');
                }
            } else {
                return Ok(());
            }
        }
    }
}

/// A type with an array's length, or a sequence's bound.
fn counted(of: String, count: &str, span: &Range<usize>) -> Result<String, Mistake> {
    if of.contains('[') {
        let message = "arrays and sequences of these are not supported".to_owned();
        return Err(mistake(span.clone(), message));
    }
    Ok(format!("{of}[{count}]"))
}

fn too_long(name: &Token<'_>) -> Mistake {
    mistake(name.span.clone(), format!("a name of more than {MAX_NAME_LEN} characters"))
}

fn wrong(expected: &str, found: &Token<'_>) -> Mistake {
    let text = match found.text {
        "" => "the end".to_owned(),
        text => format!("`{text}`"),
    };
    mistake(found.span.clone(), format!("expected {expected}, found {text}"))
}
