//! Parses templates into parts.

use sluice_model::FieldPath;
use sluice_model::field::DashRule;

use sluice_model::cursor::Cursor;

use super::decimals::NumberFormat;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplatePart {
    Text(String),
    /// With a minimum width, as the other texts.
    Channel(usize),
    Source(usize),
    Sequence(NumberFormat),
    Timestamp(usize),
    TimestampNs(NumberFormat),
    Field(FieldPart),
}

/// A field and its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldPart {
    pub(super) path: FieldPath,
    pub(super) format: NumberFormat,
    /// The number of nested lists that are expanded.
    pub(super) depth: usize,
    pub(super) separator: String,
}

/// The largest width and the most decimals: each element of a list may take as many.
const MAX_DIGITS: usize = 64;

/// An error in a template, and its byte offset.
pub(super) struct TemplateError {
    pub(super) at: usize,
    pub(super) what: String,
}

/// Parses a template into its parts.
pub(super) fn parse(text: &str) -> Result<Vec<TemplatePart>, TemplateError> {
    let mut scanner = TemplateScanner(Cursor::new(text));
    let mut parts = Vec::new();
    while let Some(part) = scanner.part()? {
        parts.push(part);
    }
    Ok(parts)
}

/// Scans a template.
struct TemplateScanner<'t>(Cursor<'t>);

impl TemplateScanner<'_> {
    fn error<T>(&self, what: impl Into<String>) -> Result<T, TemplateError> {
        Err(TemplateError { at: self.0.position(), what: what.into() })
    }

    fn part(&mut self) -> Result<Option<TemplatePart>, TemplateError> {
        let rest = self.0.rest();
        if rest.is_empty() {
            return Ok(None);
        }
        if rest.starts_with('{') && !rest.starts_with("{{") {
            return self.inserted().map(Some);
        }
        self.literal().map(Some)
    }

    /// Scans literal text up to the next value.
    fn literal(&mut self) -> Result<TemplatePart, TemplateError> {
        let mut literal = String::new();
        loop {
            literal.push_str(self.0.take_while(|c| !matches!(c, '{' | '}')).text);
            if self.0.eat("{{") {
                literal.push('{');
            } else if self.0.eat("}}") {
                literal.push('}');
            } else if self.0.peek() == Some('}') {
                return self.error("`}` without `{`; write `}}` for a literal brace");
            } else {
                return Ok(TemplatePart::Text(literal));
            }
        }
    }

    /// Scans the value in braces.
    fn inserted(&mut self) -> Result<TemplatePart, TemplateError> {
        let inside = self.0.rest().get(1..).unwrap_or_default();
        let Some((len, _)) = unquoted(inside).find(|(_, c)| *c == '}') else {
            return self.error("this brace is not closed; write `{{` for a literal brace");
        };
        self.0.take(1);
        let inside = inside.get(..len).unwrap_or_default();
        let end = unquoted(inside).find(|(_, c)| matches!(c, ':' | ';'));
        let end = end.map_or(len, |(at, _)| at);
        let (value, behind) = inside.split_at_checked(end).unwrap_or((inside, ""));
        let part = self.value(value)?;
        self.0.take(end);
        let part = self.formatted(part, behind)?;
        self.0.eat("}");
        Ok(part)
    }

    /// Parses the name of a value.
    fn value(&self, text: &str) -> Result<TemplatePart, TemplateError> {
        Ok(match text {
            "channel" => TemplatePart::Channel(0),
            "source" => TemplatePart::Source(0),
            "sequence" => TemplatePart::Sequence(NumberFormat::default()),
            "timestamp" => TemplatePart::Timestamp(0),
            "timestamp_ns" => TemplatePart::TimestampNs(NumberFormat::default()),
            _ => TemplatePart::Field(self.field(text)?),
        })
    }

    fn field(&self, text: &str) -> Result<FieldPart, TemplateError> {
        const ALL: &str = "[*]";
        let (mut path_text, mut depth) = (text, 0);
        while let Some(before) = path_text.strip_suffix(ALL) {
            (path_text, depth) = (before, depth + 1);
        }
        let wrong = |at: usize, what| TemplateError { at: self.0.position() + at, what };
        let (path, len) = FieldPath::scan(path_text, DashRule::InNames).map_err(|error| {
            let is_all = path_text.get(error.at..).is_some_and(|rest| rest.starts_with('*'));
            let what =
                if is_all { "`[*]` is only allowed at the end".to_owned() } else { error.what };
            wrong(error.at, what)
        })?;
        match path_text.get(len..).and_then(|rest| rest.chars().next()) {
            None => Ok(FieldPart {
                path,
                format: NumberFormat::default(),
                depth,
                separator: " ".into(),
            }),
            Some(found) => {
                Err(wrong(len, format!("expected `.`, `[`, `:` or `}}`, found `{found}`")))
            }
        }
    }

    /// Takes and applies the format after a name: `:.6`, `:016;,`.
    fn formatted(
        &mut self,
        mut part: TemplatePart,
        behind: &str,
    ) -> Result<TemplatePart, TemplateError> {
        if behind.is_empty() {
            return Ok(part);
        }
        let (format_text, separator) = match behind.split_once(';') {
            Some((format_text, separator)) => (format_text, Some(separator)),
            None => (behind, None),
        };
        if let Some(text) = format_text.strip_prefix(':') {
            let format = NumberFormat::parse(text).or_else(|what| self.error(what))?;
            match &mut part {
                TemplatePart::Sequence(ours) | TemplatePart::TimestampNs(ours) => *ours = format,
                TemplatePart::Field(inserted) => inserted.format = format,
                TemplatePart::Channel(width)
                | TemplatePart::Source(width)
                | TemplatePart::Timestamp(width)
                    if !format.zeros && format.decimals.is_none() =>
                {
                    *width = format.width;
                }
                _ => return self.error("this is text: it takes only a width, such as `12`"),
            }
        }
        self.0.take(format_text.len());
        if let Some(separator) = separator {
            match &mut part {
                TemplatePart::Field(inserted) if inserted.depth > 0 => {
                    separator.clone_into(&mut inserted.separator);
                }
                _ => return self.error("separators are for lists, as in `{ranges[*];,}`"),
            }
            self.0.take(1 + separator.len());
        }
        Ok(part)
    }
}

/// The characters of a text outside backquotes.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut is_quoted = false;
    text.char_indices().filter(move |(_, c)| {
        is_quoted ^= *c == '`';
        !is_quoted
    })
}

impl NumberFormat {
    /// Parses `016`, `.6`, `012.3`.
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected a width and decimals of at most {MAX_DIGITS}, such as `.6`, `016` or \
                 `12.3`, \
                 found `{text}`"
            )
        };
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_number.then(|| digits.parse::<usize>().ok()).flatten();
            number.filter(|number| *number <= MAX_DIGITS).ok_or_else(wrong)
        };
        let (width, decimals) = match text.split_once('.') {
            Some((width, decimals)) => (width, Some(number(decimals)?)),
            None => (text, None),
        };
        let (zeros, width) = width.strip_prefix('0').map_or((false, width), |width| (true, width));
        if !zeros && width.is_empty() && decimals.is_none() {
            return Err(wrong());
        }
        let width = if width.is_empty() && (decimals.is_some()) { 0 } else { number(width)? };
        Ok(Self { width, zeros, decimals })
    }
}
