//! `file://` URLs of logs as LCM programs accept them: `file:///path?speed=N&mode=w`, where special
//! characters may be `%` and two hexadecimal digits. Opens nothing.

use sluice_io::escape::percent_decoded;

/// A URL `file://PATH?speed=N&mode=r|w|a&start_timestamp=USEC`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileUrl {
    /// The path of the log: absolute after `file:///`, otherwise relative to the working directory.
    pub(crate) path: String,
    /// How the log is opened, if given.
    pub(crate) mode: Option<OpenMode>,
    /// The playback speed as a multiple of real time; 0 or less is as fast as possible.
    pub(crate) speed: Option<f64>,
    /// The time to start reading at, in microseconds since 1970.
    pub(crate) start: Option<i64>,
    /// Unknown keys, to be warned about.
    pub(crate) unknown: Vec<String>,
}

/// How a log is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Read.
    Read,
    /// Write, replacing an existing file.
    Write,
    /// Append to an existing file.
    Append,
}

/// Parses a `file://` URL; `None` if `text` is not one. `Err` says what is wrong with it.
pub(crate) fn parse_file_url(text: &str) -> Result<Option<FileUrl>, String> {
    let Some(rest) = text.strip_prefix("file://") else { return Ok(None) };
    let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
    if path.is_empty() {
        return Err(format!("`{text}` names no file; write file:///PATH"));
    }
    // Names of logs may have other `%`, which stay.
    let path = String::from_utf8(percent_decoded(path.as_bytes()))
        .map_err(|_| format!("the path of `{text}` is not UTF-8"))?;
    let mut url = FileUrl { path, mode: None, speed: None, start: None, unknown: Vec::new() };
    // The LCM library accepts several groups of options, each with its own `?`.
    for option in options.split(['?', '&']).filter(|option| !option.is_empty()) {
        let wrong = |expected: &str| format!("`{option}` in {text}: expected {expected}");
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        match key {
            "mode" => {
                let mode = OpenMode::parse(value);
                url.mode = Some(mode.ok_or_else(|| wrong("mode=r, mode=w or mode=a"))?);
            }
            "speed" => {
                let speed = value.parse().ok().filter(|speed: &f64| speed.is_finite());
                url.speed = Some(speed.ok_or_else(|| wrong("speed= and a number"))?);
            }
            "start_timestamp" => {
                let start = value.parse().map_err(|_| {
                    wrong("start_timestamp= and a whole number of microseconds since 1970")
                });
                url.start = Some(start?);
            }
            unknown => url.unknown.push(unknown.to_owned()),
        }
    }
    Ok(Some(url))
}

impl OpenMode {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "r" => Some(Self::Read),
            "w" => Some(Self::Write),
            "a" => Some(Self::Append),
            _ => None,
        }
    }
}

impl FileUrl {
    /// The start time in the form of `--start`.
    pub(crate) fn start_text(&self) -> Option<String> {
        let exact = |micros: i64| micros.checked_mul(1000).map(|nanos| format!("{nanos}ns"));
        self.start.map(|micros| exact(micros).unwrap_or_else(|| format!("{micros}us")))
    }

    /// The path of the log to write. `Err` if the mode is `r`.
    pub(crate) fn output(&self) -> Result<&str, String> {
        match self.mode {
            Some(OpenMode::Read) => Err(format!(
                "mode=r is for reading, but {} is an output: use mode=w or mode=a",
                self.path
            )),
            _ => Ok(&self.path),
        }
    }

    /// Warnings about unknown keys.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.unknown.iter().map(|key| format!("unknown key `{key}` in file://{}", self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> FileUrl {
        parse_file_url(text).unwrap().unwrap()
    }

    #[test]
    fn other_texts_are_not_file_urls() {
        for text in ["drive.lcm", "udpm://239.255.76.67:7667", "-", "file:drive.lcm", ""] {
            assert_eq!(parse_file_url(text), Ok(None));
        }
    }

    #[test]
    fn paths_are_absolute_or_relative_and_decoded() {
        assert_eq!(url("file:///logs/a.lcm").path, "/logs/a.lcm");
        assert_eq!(url("file://logs/a%20b%3F%c3%A9.lcm").path, "logs/a b?é.lcm");
        assert_eq!(url("file://log%%%2/100%.lcm%4").path, "log%%%2/100%.lcm%4");
        assert!(parse_file_url("file://a%ff.lcm").unwrap_err().contains("not UTF-8"));
    }

    #[test]
    fn options_may_be_in_several_groups_and_the_last_one_applies() {
        let url = url("file://a?speed=2&mode=w?start_timestamp=-5&mode=a&colour=red&x");
        assert_eq!((url.speed, url.mode, url.start), (Some(2.0), Some(OpenMode::Append), Some(-5)));
        assert_eq!(url.unknown, ["colour", "x"]);
        assert_eq!(url.warnings().count(), 2);
        assert_eq!(url.start_text().unwrap(), "-5000ns");
    }

    #[test]
    fn invalid_options_are_reported() {
        for (text, part) in [
            ("file://", "names no file"),
            ("file://?mode=r", "names no file"),
            ("file://a?mode=rw", "mode=r, mode=w"),
            ("file://a?speed=fast", "a number"),
            ("file://a?speed=inf", "a number"),
            ("file://a?start_timestamp=1.5", "whole number"),
        ] {
            let wrong = parse_file_url(text).unwrap_err();
            assert!(wrong.contains(part), "{wrong}");
        }
    }

    #[test]
    fn a_url_for_reading_is_not_an_output() {
        assert!(url("file://a?mode=r").output().is_err());
        assert_eq!(url("file://a?mode=w").output(), Ok("a"));
        assert_eq!(url("file://a").output(), Ok("a"));
    }
}
