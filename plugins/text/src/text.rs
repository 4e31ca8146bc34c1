//! Sink `text`: one line per event, for people or from templates. See [`crate::line`] and
//! [`crate::templates`].

use std::path::PathBuf;

use serde::Deserialize;
use sluice_kit::unnest::list_path;
use sluice_model::options::OutPath;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, DynSink, Error, FieldPath, OptionsError, PluginFactory, PrepareContext, Sink,
    SinkContext, SinkTraits, Written,
};

use crate::file::{Blocks, LinePiece, TextBlock, TextFile};
use crate::line::{Detail, TextLines};
use crate::templates::{LineTemplates, MissingFieldPolicy, SkippedLines};

/// Options of `text`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct TextSink {
    /// The file to write; `-`, the default, is standard output.
    #[serde(default = "stdout", deserialize_with = "OutPath::without_folder")]
    path: OutPath,
    /// The template of a line: text with fields in braces, such as `{utime} {pos[0]:.6}`; or a
    /// table of templates by channel, of which the first match counts. Default: lines for people.
    #[serde(default)]
    line: Option<LineTemplates>,
    /// A first line, written even without events.
    #[serde(default)]
    header: Option<String>,
    /// In lines for people, show at most 8 elements of lists and 64 characters of texts, and how
    /// much was left out. Has no effect on `line`.
    #[serde(default)]
    abbreviate: bool,
    /// A list in decoded events to unnest: each element is a line of its own.
    #[serde(default, deserialize_with = "list_path")]
    unnest: Option<FieldPath>,
    /// What happens to events that lack a field of their `line`: `skip` writes no line and counts
    /// them, `stop` ends the run.
    #[serde(default)]
    missing: MissingFieldPolicy,
    #[serde(skip)]
    lines: TextLines,
}

/// Lines of a piece of a batch, and how many events or elements have none.
#[derive(Debug)]
pub(crate) struct LinesBlock {
    text: TextBlock,
    skipped: SkippedLines,
}

/// A file of lines being written, and how many events or elements have none.
#[derive(Debug)]
pub(crate) struct LinesFile {
    file: TextFile,
    skipped: SkippedLines,
}

fn stdout() -> OutPath {
    OutPath(PathBuf::from("-"))
}

sluice_model::register! {
    sink "text": TextSink,
    make: PluginFactory::Sink(|value, _| {
        let sink: TextSink = sluice_model::options::read(value)?;
        match sink.line.is_none() && sink.missing != MissingFieldPolicy::default() {
            true => Err(OptionsError::needs("missing", "line")),
            false => Ok(DynSink::new(sink)),
        }
    }),
    about: "writes one line per event, for people or from a template",
    sample: include_str!("../samples/text.toml"),
    default_for: &[sluice_model::DefaultRole::Print],
    extensions: &["txt"],
    is_for_reading_only: true,
}

impl TextSink {
    fn detail(&self) -> Detail {
        if self.abbreviate { Detail::Abbreviated } else { Detail::Whole }
    }

    fn encode_piece(
        &self,
        piece: &LinePiece,
        context: &PrepareContext<'_>,
    ) -> Result<(LinesBlock, usize), Error> {
        let mut skipped = SkippedLines::default();
        let text = TextBlock::new(piece, context, |out| {
            match &self.line {
                Some(line) => {
                    skipped = line.write(&piece.batch, context.channels, self.missing, out)?;
                }
                None => self.lines.write(&piece.batch, context.channels, self.detail(), out)?,
            }
            Ok(())
        })?;
        let bytes = text.bytes();
        Ok((LinesBlock { text: text.without_lines(skipped.total()), skipped }, bytes))
    }
}

impl Sink for TextSink {
    type Block = Blocks<LinesBlock>;
    type Unit = Blocks<LinesBlock>;
    type Output = LinesFile;

    fn traits(&self) -> SinkTraits {
        TextFile::traits(&self.path, true)
    }

    fn open(&self, context: &SinkContext) -> Result<LinesFile, Error> {
        let head = self.header.as_ref().map(|line| format!("{line}\n")).unwrap_or_default();
        let file = TextFile::open(&self.path, head.as_bytes(), context)?;
        Ok(LinesFile { file, skipped: SkippedLines::default() })
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<Blocks<LinesBlock>, Error> {
        let encode = |piece, context: &PrepareContext<'_>| self.encode_piece(&piece, context);
        Blocks::encode(batch, self.unnest.as_ref(), context, encode)
    }

    fn write(&self, output: &mut LinesFile, blocks: Blocks<LinesBlock>) -> Result<Written, Error> {
        let (channels, path) = (output.file.channels(), self.unnest.as_ref());
        let encode = |piece, context: &PrepareContext<'_>| self.encode_piece(&piece, context);
        blocks.write(path, &channels, encode, |block| {
            output.skipped.add(block.skipped);
            output.file.append(block.text)
        })
    }

    fn flush(&self, output: &mut LinesFile) -> Result<(), Error> {
        output.file.flush()
    }

    fn finish(&self, output: LinesFile) -> Result<Written, Error> {
        let of = if self.unnest.is_some() { "elements or events" } else { "events" };
        output.file.finish(output.skipped.notes(of), self.unnest.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use crate::testing::{SampleLog, make};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn a_line_is_written_for_each_event() {
        let log = SampleLog::new(&[(b"A", 0, b"ab"), (b"B", 1_500_000_000, b"")]);
        let text = log.written("text", json!({}), &[1]);
        let expected = "1970-01-01T00:00:00.000000000Z  A  #0  2 B  6162\n\
            1970-01-01T00:00:01.500000000Z  B  #1  0 B\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn without_a_path_it_goes_to_standard_output() {
        assert_eq!(make("text", json!({})).unwrap().traits().targets, [Path::new("-")]);
    }

    fn mixed() -> SampleLog {
        let log =
            SampleLog::new(&[(b"A", 1, b"ab"), (b"B", 2, b""), (b"C", 3, b""), (b"A", 4, b"")]);
        log.decoded_pose(&[0, 3]).decoded(&[2], &[7])
    }

    #[test]
    fn a_template_says_what_a_line_is() {
        let options = json!({ "line": "{channel}\t{utime} {pos[0]:.6} {pos[1]:.6}",
            "header": "# utime x y" });
        let (text, notes) = mixed().lines_with_notes("text", options, &[2]);
        assert_eq!(text, "# utime x y\nA\t5 nan 2.500000\nA\t5 nan 2.500000\n");
        assert_eq!(
            notes,
            [("events without a line: field `utime` is missing or null".to_owned(), 2)]
        );
    }

    #[test]
    fn a_header_is_there_without_events() {
        let options = json!({ "header": "# nothing", "line": "{x}" });
        assert_eq!(SampleLog::new(&[]).written("text", options, &[]), "# nothing\n");
    }

    #[test]
    fn the_first_pattern_that_matches_says_what_a_line_is() {
        let options = json!({ "line": { "C": "c {v}", "re:[AC]": "{channel} {sequence:03}" } });
        let (text, notes) = mixed().lines_with_notes("text", options, &[1, 3]);
        assert_eq!(text, "A 000\nc 7\nA 003\n");
        let what = "events without a line: `line` has no template for their channels".to_owned();
        assert_eq!(notes, [(what, 1)]);
    }

    #[test]
    fn a_missing_field_ends_the_run_with_stop() {
        let options = json!({ "line": "{v}", "missing": "stop" });
        let error = mixed().failure("text", options);
        assert!(error.contains("event 0 on channel `A` has no field `v`"), "{error}");
        assert!(error.contains("missing or null; `missing = \"skip\"`"), "{error}");
        let options = json!({ "line": "{v}", "missing": "stop" });
        let error = SampleLog::new(&[(b"A", 0, b"")]).failure("text", options);
        assert!(error.contains("is not decoded"), "{error}");
    }

    #[test]
    fn mistakes_in_templates_are_reported_with_their_place() {
        let place = |line: Value| {
            let error = make("text", json!({ "line": line })).err().unwrap();
            (error.path.join("."), error.message)
        };
        let (path, message) = place(json!("{pos["));
        assert_eq!(path, "line");
        assert!(message.contains("at character 1: this brace"), "{message}");
        let (path, message) = place(json!({ "A": "{a}", "B*": "}" }));
        assert_eq!(path, "line.B*");
        assert!(message.contains("at character 1"), "{message}");
        assert!(place(json!({})).1.contains("empty"));
        assert!(place(json!(5)).1.contains("a template, or a table of channels"));
        let error = make("text", json!({ "missing": "stop" })).err().unwrap();
        assert_eq!(
            (error.path, &*error.message),
            (vec!["missing".into()], "`missing` needs `line`")
        );
    }

    #[test]
    fn lists_are_unnested_and_events_are_counted() {
        let log = SampleLog::new(&[(b"A", 1, b""), (b"A", 2, b""), (b"B", 3, b""), (b"A", 4, b"")])
            .scans(&[0, 1, 3], &[2, 0, 1])
            .decoded(&[2], &[7]);
        let options = json!({ "unnest": "points", "line": { "A": "{sequence} {utime} {x:.1} \
             {points_sequence}", "*": "{v}" } });
        let (text, notes) = log.lines_with_notes("text", options, &[1, 2]);
        assert_eq!(text, "0 0 0.0 0\n0 0 0.5 1\n7\n3 2 1.0 2\n");
        assert_eq!(notes, []);
        let options = json!({ "unnest": "point", "line": "{sequence}" });
        let (text, notes) = log.lines_with_notes("text", options, &[1]);
        assert_eq!(text, "0\n1\n2\n3\n");
        assert_eq!(notes, [("no event has a list `point`".to_owned(), 0)]);
        let error = make("text", json!({ "unnest": "points[0]" })).err().unwrap();
        assert!(error.path == ["unnest"] && error.message.contains("whole list"), "{error}");
    }

    #[test]
    fn elements_without_a_line_are_not_called_events() {
        let log = SampleLog::new(&[(b"A", 1, b""), (b"A", 2, b"")]).scans(&[0, 1], &[2, 3]);
        let options = json!({ "unnest": "points", "line": "{nowhere}" });
        let (text, notes) = log.lines_with_notes("text", options, &[1]);
        let what = "elements or events without a line: field `nowhere` is missing or null";
        assert_eq!((text.as_str(), notes), ("", vec![(what.to_owned(), 5)]));
    }

    #[test]
    fn a_line_that_would_be_too_long_is_noted() {
        let log = SampleLog::new(&[(b"A", 1, b""), (b"A", 2, b"")]).scans(&[0, 1], &[1_100_000, 1]);
        let options = json!({ "line": "{points[*]:64}" });
        let (text, notes) = log.lines_with_notes("text", options, &[]);
        assert_eq!(text.lines().count(), 1);
        let what = "events without a line: longer than 64 MiB";
        assert_eq!(notes, [(what.to_owned(), 1)]);
        let options = json!({ "line": "{points[*]:64}", "missing": "stop" });
        assert!(log.failure("text", options).contains("longer than 64 MiB"));
    }

    #[test]
    fn a_list_of_many_elements_is_written_piece_by_piece() {
        let log = SampleLog::new(&[(b"A", 1, b""), (b"B", 2, b""), (b"A", 4, b"")])
            .scans(&[0, 2], &[150_000, 70_000]);
        for (sink, options) in [
            ("text", json!({ "unnest": "points", "line": "{points_sequence}" })),
            (
                "csv",
                json!({ "unnest": "points", "fields": "points_sequence", "event_columns": [],
                "header": false }),
            ),
        ] {
            let text = log.lines(sink, options);
            let found: Vec<&str> =
                text.lines().filter(|line| line.parse::<u32>().is_ok()).collect();
            assert_eq!(found.len(), 220_000, "{sink}");
            assert!(found.iter().zip(0u32..).all(|(found, n)| *found == n.to_string()));
        }
    }

    /// What Python's `%.6f` (C's) returns for these; `None` without Python.
    fn in_c(values: &[f64]) -> Option<Vec<String>> {
        let code = "import struct, sys\nfor a in sys.argv[1:]:\n \
            print('%.6f' % struct.unpack('>d', bytes.fromhex(a))[0])";
        let bits = values.iter().map(|value| format!("{:016x}", value.to_bits()));
        let ran = Command::new("python3").arg("-c").arg(code).args(bits).output().ok()?;
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        Some(String::from_utf8(ran.stdout).unwrap().lines().map(str::to_owned).collect())
    }

    fn lines_of(values: &[f64]) -> Vec<String> {
        let log = SampleLog::new(&vec![(&b"A"[..], 0, &b""[..]); values.len()]).doubles(values);
        let text = log.written("text", json!({ "line": "{x:.6}" }), &[]);
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn six_decimals_are_those_of_c() {
        let mut values = vec![0.0, -0.0, 1e-7, -4.9e-7, 5e-7, f64::MIN_POSITIVE, 5e-324, f64::MAX];
        values.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 9.007_199_254_740_993e9]);
        // Exactly halfway between two values of six decimals.
        values.extend((0..200).map(|n| f64::from(2 * n + 1) / 128.0));
        values.extend(
            (0..500).map(|n| (f64::from(n) * 0.618_033_988_7).sin() * 10f64.powi(n % 17 - 6)),
        );
        values.extend((0..64).map(|n| 2f64.powi(n)));
        match in_c(&values) {
            Some(expected) => assert_eq!(lines_of(&values), expected),
            None => eprintln!("skipped: there is no python3 to compare with"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn any_number_is_written_as_c_does_it(
            bits in proptest::collection::vec(any::<u64>(), 500))
        {
            let values: Vec<f64> = bits.into_iter().map(f64::from_bits).collect();
            match in_c(&values) {
                Some(expected) => prop_assert_eq!(lines_of(&values), expected),
                None => eprintln!("skipped: there is no python3 to compare with"),
            }
        }
    }
}
