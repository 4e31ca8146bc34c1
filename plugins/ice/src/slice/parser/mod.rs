//! Parses the text of one `.ice` file into declarations, or every mistake in it. Resolves no names.

use sluice_kit::mistake::Mistake;
use sluice_model::cursor::Token;

use super::syntax::{Declaration, DeclarationBody, SliceFile};
use super::token::Tokenizer;

#[cfg(test)]
mod tests;
mod tokens;
mod types;

pub(crate) use tokens::MAX_MISTAKES;
use tokens::{MAX_NAME, ParseResult, SliceParser, abbreviated, unescaped};

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
    enums, interfaces, exceptions and constants";
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

    /// Skips to after the next `;`.
    fn skip_statement(&mut self) {
        while self.take().is_some_and(|token| token.text != ";") {}
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
