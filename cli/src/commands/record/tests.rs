//! The pipelines that `record` generates, and recordings of a live source, with every plugin
//! linked.

use std::fs;
use std::path::Path;

use clap::Parser;
use sluice_all as _;
use sluice_model::{
    BatchBuilder, Channel, Encoding, Error, Input, LiveBatches, LiveSender, Name, Query,
    ReadContext, Reader, Registry, Split, SplitStart,
};

use super::*;
use crate::args::{BuiltInVerb, Cli};
use crate::exit::ExitStatus;
use crate::shell::Color;

/// A log in place of a live source, for arguments that are only parsed.
const LOG: &str = "file://drive.lcm?mode=r";

fn shell() -> Shell {
    Shell::new(Registry::linked(), true, Color::Never)
}

fn parsed(arguments: &[&str]) -> Result<Box<RecordArgs>, Failure> {
    let cli = Cli::try_parse_from(["sluice", "record"].iter().chain(arguments));
    let cli = cli.map_err(|error| Failure::Usage(error.to_string()))?;
    let BuiltInVerb::Record(args) = cli.verb else { panic!("not record") };
    Ok(args)
}

/// The pipeline generated from these arguments.
fn generated_pipeline(arguments: &[&str]) -> Result<String, Failure> {
    let (args, shell) = (parsed(arguments)?, shell());
    let out = RecordingOutput::from_args(&args, &shell)?;
    text(&args, &out, &shell)
}

/// How files are named and split with these arguments.
fn output_settings(arguments: &[&str]) -> (Numbering, ExistingOutput, String, PieceLimits, u128) {
    let (args, shell) = (parsed(arguments).unwrap(), shell());
    let RecordingOutput { naming, limits, flush, .. } =
        RecordingOutput::from_args(&args, &shell).unwrap();
    (naming.numbering, naming.existing, naming.suffix, limits, flush.as_millis())
}

fn section<'t>(text: &'t str, name: &str) -> &'t str {
    let rest = text.split(&format!("[{name}]")).nth(1).unwrap_or_else(|| panic!("{text}"));
    rest.split("\n[").next().unwrap()
}

#[test]
fn a_log_of_everything_is_recorded_by_default() {
    let (numbering, existing, suffix, limits, flush) = output_settings(&[]);
    assert_eq!((numbering, existing), (Numbering::Increment, ExistingOutput::Refuse));
    assert_eq!((suffix.as_str(), limits, flush), ("", PieceLimits::default(), 100));
    let text = generated_pipeline(&[]).unwrap();
    assert_eq!(section(&text, "sources.log"), "\nplugin = \"lcm-udp\"\n");
    assert!(text.contains("path = \"lcmlog-%Y-%m-%d\"\nrenumber = true"), "{text}");
}

#[test]
fn formats_are_chosen_by_extension_and_default_to_logs() {
    for (to, plugin, suffix) in [
        ("drive.lcm", "lcm-log", ""),
        ("drive", "lcm-log", ""),
        ("drive.00", "lcm-log", ""),
        ("file:///logs/drive.jsonl", "jsonl", ".jsonl"),
        ("file:///logs/drive.00?mode=w", "lcm-log", ""),
        ("-", "lcm-log", ""),
        ("drive.lcm.zst", "archive", ".lcm.zst"),
        ("drive.zst", "archive", ".zst"),
        ("my.drive.parquet", "parquet", ".parquet"),
        ("tables/", "parquet", ""),
        ("drive.jsonl", "jsonl", ".jsonl"),
    ] {
        let arguments = ["udpm://239.255.76.67:7667", "--to", to];
        let text = generated_pipeline(&arguments).unwrap();
        let sink = section(&text, "sinks.out");
        assert!(sink.contains(&format!("plugin = \"{plugin}\"")), "{to}: {text}");
        assert_eq!(sink.contains("renumber = true"), plugin == "lcm-log", "{to}: {text}");
        assert_eq!(output_settings(&arguments).2, suffix, "{to}");
    }
}

#[test]
fn names_of_formats_that_are_not_written_are_refused_as_by_convert() {
    for to in ["drive.json", "drive.bag", "drive.BAG", "drive.arrow", "drive.msg"] {
        let refused = generated_pipeline(&["--to", to]).unwrap_err().message();
        assert!(refused.contains("is not that of a format that this program writes"), "{refused}");
        let chosen = generated_pipeline(&["--to", to, "--as", "lcm-log"]).unwrap();
        assert!(chosen.contains("plugin = \"lcm-log\""), "{chosen}");
    }
}

#[test]
fn text_has_the_payloads_unless_options_choose_what_is_written() {
    for (to, option) in [
        ("a.jsonl", "payload = true"),
        ("a.jsonl.zst", "payload = true"),
        ("a.csv", "payload = \"base64\""),
    ] {
        let text = generated_pipeline(&["--to", to]).unwrap();
        assert!(section(&text, "sinks.out").contains(option), "{text}");
        for option in ["fields=x", "unnest=x", "payload=false"] {
            let option = if to == "a.csv" { &option.replace("false", "hex") } else { option };
            let more = ["--to", to, "--types", "mit-dgc", "--sink-option", option];
            let text = generated_pipeline(&more).unwrap();
            assert!(!text.contains("payload = true") && !text.contains("base64"), "{text}");
        }
    }
}

#[test]
fn files_are_numbered_where_there_may_be_several() {
    let numbering = |more: &[&str]| output_settings(&[&["--to", "a"], more].concat()).0;
    assert_eq!(numbering(&[]), Numbering::One);
    for more in [&["-i"][..], &["--split-mb", "0.5"], &["--split-seconds", "3"]] {
        assert_eq!(numbering(more), Numbering::Increment, "{more:?}");
    }
    assert_eq!(numbering(&["--rotate", "3", "--split-mb", "1"]), Numbering::Rotate(3));
    assert_eq!(output_settings(&["--rotate", "3"]).0, Numbering::Rotate(3));
}

#[test]
fn folders_start_a_piece_every_minute_by_default() {
    let limits = |more: &[&str]| output_settings(&[&["--to", "tables/"], more].concat()).3;
    let age = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(limits(&[]), PieceLimits { bytes: None, age: age(60) });
    assert_eq!(limits(&["--split-seconds", "5"]), PieceLimits { bytes: None, age: age(5) });
    assert_eq!(limits(&["--split-mb", "0.5"]), PieceLimits { bytes: Some(1 << 19), age: None });
    assert_eq!(output_settings(&["--to", "tables/"]).0, Numbering::Folders);
}

#[test]
fn compressed_output_is_flushed_less_often() {
    assert_eq!(output_settings(&["--to", "a.lcm.zst"]).4, 1000);
    assert_eq!(output_settings(&["--to", "a.lcm.zst", "--as", "lcm-log"]).4, 1000);
}

#[test]
fn the_source_gets_the_selection_as_options() {
    let text = generated_pipeline(&[
        "udpm://239.255.76.67:7667",
        "--channel",
        "CAM_*",
        "-c",
        "re:A|B",
        "--regex",
        "X${1}.*",
        "--exclude",
        "CAM_TEST",
        "--interface",
        "lo",
        "--duration",
        "1m30s",
        "--idle-timeout",
        "2.5",
        "--limit",
        "7",
        "-m",
        "0.5",
    ]);
    let most = generated_pipeline(&["-m", "1e30"]).unwrap();
    assert!(most.contains("buffer = 9223372036854775807\n"), "{most}");
    let expected = "
plugin = \"lcm-udp\"
url = \"udpm://239.255.76.67:7667\"
channels = [\"CAM_*\", \"re:A|B\", \"re:X$${1}.*\"]
exclude = [\"CAM_TEST\"]
interface = \"lo\"
duration = \"1m30s\"
idle_timeout = 2.5
limit = 7
buffer = 524288
";
    let text = text.unwrap();
    assert_eq!(section(&text, "sources.log"), expected);
    assert!(!text.contains("[stages"), "{text}");
}

#[test]
fn inverted_regexes_are_left_out() {
    let text = generated_pipeline(&["--regex", "A|B", "-v", "-x", "C"]).unwrap();
    assert!(text.contains("exclude = [\"C\", \"re:A|B\"]") && !text.contains("channels"), "{text}");
}

#[test]
fn messages_are_selected_by_their_fields() {
    let arguments = ["--types", "mit-dgc", "--where", "utime > 3", "--limit", "7"];
    let text = generated_pipeline(&arguments).unwrap();
    assert!(
        text.contains("plugin = \"decode\"") && text.contains("where = \"utime > 3\""),
        "{text}"
    );
    // Only messages that are selected are counted.
    assert!(section(&text, "stages.first").contains("events = 7"), "{text}");
    assert!(!section(&text, "sources.log").contains("limit"), "{text}");
}

#[test]
fn a_log_is_read_from_a_time_on_and_filtered_by_a_stage() {
    let text =
        generated_pipeline(&["file://x.lcm?start_timestamp=5", "--as", "lcm-log", "-c", "A"]);
    let failure = text.unwrap_err();
    // The log is opened to detect its format.
    assert_eq!(failure.code(), 1, "{failure:?}");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("x.lcm");
    fs::write(&log, "").unwrap();
    let url = format!("file://{}?start_timestamp=5", log.display());
    let text = generated_pipeline(&[&url, "-c", "A", "-n", "3"]).unwrap();
    assert!(section(&text, "sources.log").contains("plugin = \"lcm-log\""), "{text}");
    assert!(section(&text, "stages.keep").contains("start = \"5000ns\""), "{text}");
    assert!(section(&text, "stages.keep").contains("channels = \"A\""), "{text}");
    assert!(section(&text, "stages.first").contains("events = 3"), "{text}");
}

#[test]
fn contradictory_arguments_are_usage_errors() {
    let wrong: [&[&str]; 23] = [
        &["drive.lcm"],
        &["http://example.invalid"],
        &["--to", "a", "-a", "-f"],
        &["--to", "a", "-i", "--rotate", "3"],
        &["--to", "a", "--rotate", "0"],
        &["--to", "a", "--split-mb", "0"],
        &["--to", "a", "--split-seconds", "-1"],
        &["--to", "a", "--duration", "0"],
        &["--to", "a", "-v"],
        &["--to", "a", "--regex", "("],
        &["--to", "a.lcm.zst", "-a"],
        &["--to", "a/", "-f"],
        &["--to", "a/", "--rotate", "2"],
        &["--to", "-", "-i"],
        &["--to", "-", "-a"],
        &["--to", "udpm://239.255.76.67:7667"],
        &["--to", "file://a?mode=r"],
        &["--to", "file://a?mode=w", "-a"],
        &["--to", "file://a?mode=x"],
        &["--to", "a.lcm.gz"],
        &["--to", "a.tar"],
        &["--to", "a.lcm.xz", "-i"],
        &[LOG, "--to", "a", "--interface", "lo"],
    ];
    for arguments in wrong {
        let failure = generated_pipeline(arguments).unwrap_err();
        assert_eq!(failure.code(), 2, "{arguments:?}: {failure:?}");
    }
}

#[test]
fn the_mode_of_a_url_decides_about_an_existing_file() {
    for (to, expected) in [
        ("file://a?mode=w", ExistingOutput::Replace),
        ("file://a?mode=a", ExistingOutput::Continue),
        ("file://a", ExistingOutput::Refuse),
    ] {
        assert_eq!(output_settings(&["--to", to]).1, expected, "{to}");
    }
    let text = generated_pipeline(&["--to", "file://a?mode=a"]).unwrap();
    assert!(text.contains("path = \"a\"\nappend = true\nrenumber = true"), "{text}");
}

#[test]
fn expressions_of_other_loggers_are_noticed() {
    assert!(looks_like_regex("A|B") && looks_like_regex("CAM.*") && looks_like_regex("^A$"));
    assert!(
        !looks_like_regex("CAM_*") && !looks_like_regex("re:A|B") && !looks_like_regex("{A,B}")
    );
}

#[test]
fn rotated_files_are_reported_under_the_names_they_have_now() {
    let file = |(path, rows): (&str, u64)| PublishedFile {
        path: path.into(),
        rows,
        bytes: 0,
        blake3: None,
    };
    let remaining = |suffix: &str, files: &[(&str, u64)]| -> Vec<(PathBuf, u64)> {
        let suffix = suffix.to_owned();
        let naming = FileNaming::new(Numbering::Rotate(2), ExistingOutput::Refuse, true, suffix);
        let left = remaining_files(files.iter().copied().map(file).collect(), &naming);
        left.into_iter().map(|file| (file.path, file.rows)).collect()
    };
    let left = remaining("", &[("a.0", 1), ("a.0", 2), ("a.0", 3)]);
    assert_eq!(left, [("a.1".into(), 2), ("a.0".into(), 3)]);
    let names = ["1.0.parquet", "1.0.parquet", "2.0.parquet", "1.0.parquet"];
    let left = remaining(".parquet", &names.map(|name| (name, 1)));
    assert_eq!(left, ["1.1.parquet", "2.0.parquet", "1.0.parquet"].map(|n| (n.into(), 1)));
}

/// A live source that returns batches of events of 100 bytes, and then ends or waits to be stopped.
struct FakeLiveSource {
    batches: usize,
    events: usize,
    then: WhenDrained,
}

#[derive(Clone, Copy, PartialEq)]
enum WhenDrained {
    Ends,
    Waits,
}

impl sluice_model::Source for FakeLiveSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        Ok(vec![Split::live("test")])
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        Ok(Box::new(self.listen(split, context)?))
    }

    fn listen(&self, _: &Split, context: &ReadContext) -> Result<LiveBatches, Error> {
        let channel = Channel::new(Name::from_text("POSE"), "test", Encoding::Unknown);
        let channel = context.channels.intern(channel)?;
        let (sender, batches) = LiveSender::bounded(4);
        let Self { batches: count, events, then } = *self;
        let run = context.run.clone();
        sender.start_thread(move |sender| {
            for number in 1..=count as i64 {
                let mut batch = BatchBuilder::default();
                (0..events).for_each(|_| {
                    batch.push_copy(number * 1_000_000, number, channel, &[7; 68]);
                });
                if !sender.send(batch.finish()) {
                    return Ok(());
                }
            }
            while then == WhenDrained::Waits && !run.is_cancelled() {
                std::thread::yield_now();
            }
            Ok(())
        })?;
        Ok(batches)
    }
}

/// Records the live source with these arguments, in this folder.
fn recorded(live: FakeLiveSource, folder: &Path, arguments: &[&str]) -> CommandResult {
    let to = format!("{}/{}", folder.display(), arguments[0]);
    let arguments = [&["--progress", "none", "--to", &to], &arguments[1..]].concat();
    let (args, shell) = (parsed(&arguments)?, shell());
    let out = RecordingOutput::from_args(&args, &shell)?;
    let text = text(&args, &out, &shell)?;
    let mut pipeline = generated::parse_generated("test", &text, None, &shell)?;
    pipeline.nodes[0].instance = PluginInstance::Source(Box::new(live));
    record(pipeline, &args, out, &shell)
}

/// The names and lengths of the files in a folder.
fn listed(folder: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut found: Vec<_> = entries
        .map(|e| (e.file_name().into_string().unwrap(), e.metadata().unwrap().len()))
        .collect();
    found.sort();
    found
}

fn named(files: &[(&str, u64)]) -> Vec<(String, u64)> {
    files.iter().map(|(name, len)| ((*name).to_owned(), *len)).collect()
}

const TEN_BATCHES: FakeLiveSource =
    FakeLiveSource { batches: 10, events: 100, then: WhenDrained::Ends };

#[test]
fn a_recording_is_split_by_length() {
    let folder = tempfile::tempdir().unwrap();
    // Each batch is 10,000 bytes.
    let ending = recorded(TEN_BATCHES, folder.path(), &["a.lcm", "--split-mb", "0.02"]).unwrap();
    assert_eq!(ending, ExitStatus::Done);
    let expected =
        [("a.lcm.00", 30_000), ("a.lcm.01", 30_000), ("a.lcm.02", 30_000), ("a.lcm.03", 10_000)];
    assert_eq!(listed(folder.path()), named(&expected));
}

#[test]
fn a_ring_of_files_keeps_the_last_ones_and_the_report_knows_them() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let ring = ["a.lcm", "--rotate", "2", "--split-mb", "0.02", "--report"];
    let arguments = [&ring[..], &[report.to_str().unwrap()]].concat();
    recorded(TEN_BATCHES, folder.path(), &arguments).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let files = report["files"].as_array().unwrap();
    let bytes: Vec<u64> = files.iter().map(|file| file["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes, [30_000, 10_000]);
    for (file, name) in files.iter().zip(["a.lcm.1", "a.lcm.0"]) {
        assert_eq!(file["path"], folder.path().join(name).to_str().unwrap());
    }
    let names = ["a.lcm.0", "a.lcm.1", "report.json"];
    assert_eq!(listed(folder.path()).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
}

#[test]
fn pieces_of_tables_are_one_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["tables/", "--split-mb", "0.0001"];
    recorded(TEN_BATCHES, folder.path(), &arguments).unwrap();
    let pieces = listed(&folder.path().join("tables"));
    assert!(pieces.len() > 1 && pieces[0].0 == "piece=00000", "{pieces:?}");
    let first = listed(&folder.path().join("tables/piece=00000"));
    assert_eq!(
        first.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["_manifest.json", "channel=POSE"]
    );
}

#[test]
fn existing_files_are_refused_continued_or_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let record = |more: &[&str]| recorded(TEN_BATCHES, folder.path(), &[&["a"], more].concat());
    record(&[]).unwrap();
    assert_eq!(record(&[]).unwrap_err().code(), 1);
    record(&["-a"]).unwrap();
    assert_eq!(listed(folder.path()), named(&[("a", 200_000)]));
    record(&["-f"]).unwrap();
    record(&["-i"]).unwrap();
    assert_eq!(listed(folder.path()), named(&[("a", 100_000), ("a.00", 100_000)]));
}

#[test]
fn a_quota_that_is_exceeded_ends_a_recording_or_refuses_it() {
    let folder = tempfile::tempdir().unwrap();
    let live = FakeLiveSource { then: WhenDrained::Waits, ..TEN_BATCHES };
    let refused = recorded(live, folder.path(), &["a", "--disk-quota", "7P"]).unwrap_err();
    assert_eq!(refused.code(), 1);
    assert!(listed(folder.path()).is_empty());
}
