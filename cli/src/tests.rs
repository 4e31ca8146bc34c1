//! Exit codes and the pipelines that `convert` generates, with every plugin linked.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use clap::{CommandFactory, Parser};
use serde_json::Value;
use sluice_all as _;
use sluice_model::registry::Constructor;
use sluice_model::{
    Error, Input, OptionsError, Plugin, PluginFactory, PluginKind, Query, ReadContext, Reader,
    Registry, SniffResult, Source, Split, SplitStart,
};

use crate::args::{BuiltInVerb, Cli};
use crate::commands::convert;
use crate::embedded::{self, Embedding};
use crate::exit::Failure;
use crate::shell::{Color, Shell};
use crate::sniffing;

fn exit_code(arguments: &[&str]) -> u8 {
    let arguments = ["sluice", "-q"].iter().chain(arguments).map(OsString::from);
    crate::exit_code(arguments, Registry::linked())
}

fn shell() -> Shell {
    Shell::new(Registry::linked(), true, Color::Never)
}

fn generated_pipeline(arguments: &[&str]) -> Result<String, Failure> {
    let cli = Cli::try_parse_from(["sluice", "convert"].iter().chain(arguments)).unwrap();
    let BuiltInVerb::Convert(args) = cli.verb else { panic!("not convert") };
    convert::pipeline_text(&args, &shell()).map(|(text, _)| text)
}

/// A folder with the log of a short drive, `drive.lcm`.
fn folder_with_log() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = folder.path().join("make.toml");
    let text = "[sources.drive]\nplugin = \"demo\"\nseconds = 0.5\n\n\
        [sinks.log]\nplugin = \"lcm-log\"\nfrom = \"drive\"\npath = \"drive.lcm\"\n";
    fs::write(&pipeline, text).unwrap();
    assert_eq!(exit_code(&["run", path_str(&pipeline)]), 0);
    folder
}

fn path_str(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_arguments_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn help_and_version_succeed_and_invalid_use_fails() {
    assert_eq!((exit_code(&["--version"]), exit_code(&["run", "--help"])), (0, 0));
    let wrong: [&[&str]; 6] = [
        &["frobnicate"],
        &["run", "no-such-pipeline"],
        &["run", "quickstart", "--resume", "--overwrite"],
        &["run", "quickstart", "--engine", "ballista"],
        &["convert", "x", "--to", "y.lcm", "--start", "noon"],
        &["cat", "x", "--channel", "odd[name"],
    ];
    for arguments in wrong {
        assert_eq!(exit_code(arguments), 2, "{arguments:?}");
    }
}

#[test]
fn unreadable_inputs_fail() {
    for arguments in
        [&["info", "/no/such.lcm"][..], &["convert", "/no/such.lcm", "--to", "/no/x.lcm"]]
    {
        assert_eq!(exit_code(arguments), 1, "{arguments:?}");
    }
}

#[test]
fn a_log_is_converted_checked_and_refused_the_second_time() {
    let folder = folder_with_log();
    let at = |name: &str| path_str(&folder.path().join(name)).to_owned();
    let (log, copy, report) = (at("drive.lcm"), at("copy.lcm"), at("report.json"));
    let convert = ["convert", &log, "--to", &copy, "--report", &report];
    assert_eq!(exit_code(&convert), 0);
    assert_eq!(fs::read(&log).unwrap(), fs::read(&copy).unwrap());
    assert_eq!(exit_code(&["verify", &log, &copy, &report]), 0);
    assert_eq!(exit_code(&convert), 1);
    let failed: serde_json::Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!(failed["exit"], 1);
    assert!(failed["error"].as_str().unwrap().contains("exists"));
}

#[test]
fn a_damaged_log_is_converted_with_losses() {
    let folder = folder_with_log();
    let at = |name: &str| path_str(&folder.path().join(name)).to_owned();
    let (log, copy) = (at("drive.lcm"), at("copy.lcm"));
    let mut bytes = fs::read(&log).unwrap();
    bytes.truncate(bytes.len() - 3);
    fs::write(&log, bytes).unwrap();
    for arguments in [&["info", &log][..], &["verify", &log], &["convert", &log, "--to", &copy]] {
        assert_eq!(exit_code(arguments), 3, "{arguments:?}");
    }
    assert_eq!(exit_code(&["verify", &copy]), 0);
}

#[test]
fn a_report_does_not_replace_a_log() {
    let folder = folder_with_log();
    let at = |name: &str| path_str(&folder.path().join(name)).to_owned();
    let (log, copy) = (at("drive.lcm"), at("copy.lcm"));
    for report in [&log, &copy] {
        assert_eq!(exit_code(&["convert", &log, "--to", &copy, "--report", report]), 2);
    }
    assert_eq!(exit_code(&["verify", &log]), 0);
}

#[test]
fn formats_are_detected_by_magic_and_by_extension() {
    let folder = folder_with_log();
    let odd = folder.path().join("drive.odd");
    fs::copy(folder.path().join("drive.lcm"), &odd).unwrap();
    let text = generated_pipeline(&[path_str(&odd), "--to", "out.jsonl.zst"]).unwrap();
    assert!(text.contains("plugin = \"lcm-log\"") && text.contains("plugin = \"jsonl\""), "{text}");
    let empty = folder.path().join("empty.lcm");
    fs::write(&empty, "").unwrap();
    assert!(
        generated_pipeline(&[path_str(&empty), "--to", "x", "--as", "csv"])
            .unwrap()
            .contains("csv")
    );
}

#[test]
fn a_log_that_two_sources_are_sure_of_is_refused_with_both_names() {
    let folder = folder_with_log();
    let log = folder.path().join("drive.lcm");
    let linked = Registry::linked();
    let lcm = *linked.get(PluginKind::Source, "lcm-log").unwrap();
    let rival = Plugin { name: "my-lcm", ..lcm };
    let registry = Registry::from_plugins(linked.iter().copied().chain([rival]));
    let shell = Shell::new(registry, true, Color::Never);
    let Err(Failure::Failed(what)) = sniffing::sniff(&shell, &log) else { panic!("no error") };
    let due = format!(
        "both `lcm-log` and `my-lcm` recognize {}; name the one that shall read it with --from",
        log.display()
    );
    assert_eq!(what, due);
}

#[test]
fn of_two_sources_that_claim_a_path_the_first_by_name_reads_it_and_the_other_is_named() {
    let folder = folder_with_log();
    let logs = ["drive.lcm", "copy.lcm"].map(|name| folder.path().join(name));
    fs::copy(&logs[0], &logs[1]).unwrap();
    let lcm = *Registry::linked().get(PluginKind::Source, "lcm-log").unwrap();
    let told = |rival: SniffResult| -> Vec<String> {
        let sniff_path: fn(&Path) -> _ = match rival {
            SniffResult::Yes => |_| Ok(SniffResult::Yes),
            _ => |_| Ok(SniffResult::Maybe),
        };
        let sure = Plugin { sniff_path: |_| Ok(SniffResult::Yes), ..lcm };
        let rival = Plugin { name: "my-lcm", sniff_path, ..lcm };
        let embedding = Arc::<Embedding>::default();
        let shell = Shell::embedded(Registry::from_plugins([rival, sure]), &embedding);
        for log in logs.iter().chain(&logs) {
            let read_by = sniffing::sniff(&shell, log).map(|plugin| plugin.name);
            assert_eq!(read_by.ok(), Some("lcm-log"));
        }
        let messages = embedding.take_output().messages;
        messages.iter().map(|message| message["message"].as_str().unwrap().to_owned()).collect()
    };
    let due = logs.each_ref().map(|log| {
        let log = log.display();
        let what = "is read by `lcm-log`, and `my-lcm` may read it, too";
        format!("{log} {what}: name the right one with --from")
    });
    assert_eq!(told(SniffResult::Yes), due);
    assert_eq!(told(SniffResult::Maybe), [""; 0]);
}

#[test]
fn an_undetectable_format_is_a_usage_error() {
    let folder = folder_with_log();
    let log = folder.path().join("drive.lcm");
    let other = folder.path().join("other");
    fs::write(&other, "neither").unwrap();
    let wrong: [&[&str]; 6] = [
        &[path_str(&other), "--to", "x.lcm"],
        &["-", "--to", "x.lcm"],
        &[path_str(&log), "--to", "-"],
        &[path_str(&log), "--to", "x.odd"],
        &[path_str(&log), "--to", "x.lcm", "--as", "odd"],
        &[path_str(&log), "--to", "memq://"],
    ];
    for arguments in wrong {
        let failure = generated_pipeline(arguments).unwrap_err();
        assert_eq!(failure.code(), 2, "{arguments:?}: {failure:?}");
    }
}

#[test]
fn a_run_that_names_a_cluster_and_stays_on_this_machine_is_wrong_use() {
    let folder = folder_with_log();
    let (log, out) = (folder.path().join("drive.lcm"), folder.path().join("out.jsonl"));
    let convert = ["convert", path_str(&log), "--to", path_str(&out)];
    let options: [&[&str]; 6] = [
        &["--scheduler", "127.0.0.1:1"],
        &["--local-cluster", "2"],
        &["--local-cluster", "0"],
        &["--secret-file", "secret"],
        &["--tls", "keys"],
        &["--insecure"],
    ];
    for cluster in options {
        assert_eq!(exit_code(&[&convert[..], cluster].concat()), 2, "{cluster:?}");
    }
    assert!(!out.exists());
}

/// When a source panics that otherwise reads LCM logs.
#[derive(Clone, Copy)]
enum Panicking {
    Made,
    Findings,
    Faults,
}

/// A source that panics at one call.
struct PanickingSource(Box<dyn Source>, Panicking);

impl PanickingSource {
    fn plugin(make: Constructor<Box<dyn Source>>) -> Registry {
        let linked = Registry::linked();
        let lcm = *linked.get(PluginKind::Source, "lcm-log").unwrap();
        let made = Plugin { name: "my-lcm", make: PluginFactory::Source(make), ..lcm };
        Registry::from_plugins(linked.iter().filter(|p| p.name != "lcm-log").copied().chain([made]))
    }

    fn boxed(options: Value, panics: Panicking) -> Result<Box<dyn Source>, OptionsError> {
        assert!(!matches!(panics, Panicking::Made), "not made");
        Ok(Box::new(Self(Registry::linked().source("lcm-log", options)?, panics)))
    }
}

impl Source for PanickingSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        self.0.inputs()
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        self.0.splits(target, query)
    }

    fn findings(&self, _: &Path) -> Result<Vec<String>, Error> {
        assert!(!matches!(self.1, Panicking::Findings), "no findings");
        Ok(Vec::new())
    }

    fn faults(&self, _: &Path) -> Result<Vec<String>, Error> {
        assert!(!matches!(self.1, Panicking::Faults), "no faults");
        Ok(Vec::new())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        self.0.read(split, entry, context)
    }
}

#[test]
fn a_source_that_panics_in_a_look_at_a_log_is_named_with_the_file() {
    let folder = folder_with_log();
    let log = folder.path().join("drive.lcm");
    let makers: [(&str, Constructor<Box<dyn Source>>); 3] = [
        ("info", |options, _| PanickingSource::boxed(options, Panicking::Made)),
        ("info", |options, _| PanickingSource::boxed(options, Panicking::Findings)),
        ("verify", |options, _| PanickingSource::boxed(options, Panicking::Faults)),
    ];
    for (verb, make) in makers {
        let embedding = Arc::<Embedding>::default();
        let arguments = [verb.into(), log.clone().into_os_string()];
        let run = embedded::run(&arguments, PanickingSource::plugin(make), &embedding);
        let output = embedding.take_output();
        let messages = output.messages.iter().filter_map(|message| message["message"].as_str());
        let mut said: Vec<String> = messages.chain([&*output.text]).map(str::to_owned).collect();
        said.extend(run.err().map(|failure| failure.message()));
        let said = said.join("\n");
        assert!(said.contains("panicked"), "{said}");
        assert!(said.contains("`my-lcm`") && said.contains(path_str(&log)), "{said}");
    }
}
