//! Test helpers: small logs, pipelines run in this process, and the program itself.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use rustix::process::Signal;
use sluice_all as _;
use sluice_kit::contract::overwrite;
use sluice_lcm::fuzzing::{HEADER_LEN, LcmHeader, append_event};
use sluice_model::options::ByteSize;
use sluice_model::{Error, Overwrite, Registry};
use sluice_pipeline::run::{self, Options, Stop};
use sluice_pipeline::{Document, Pipeline, Report, Variables};

/// With this memory limit, files are read in pieces of 64 KiB, so that small logs have many.
pub(crate) const SMALL_MEMORY: ByteSize = ByteSize(16 << 20);

/// An event of an LCM log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LcmEvent {
    pub(crate) number: i64,
    pub(crate) utime: i64,
    pub(crate) channel: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl LcmEvent {
    pub(crate) fn new(number: i64, utime: i64, channel: &str, payload: &[u8]) -> Self {
        Self { number, utime, channel: channel.into(), payload: payload.into() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        append_event(&mut bytes, self.number, self.utime, &self.channel, &self.payload).unwrap();
        bytes
    }
}

/// The bytes of a log of these events.
pub(crate) fn log(events: &[LcmEvent]) -> Vec<u8> {
    events.iter().flat_map(LcmEvent::bytes).collect()
}

/// Parses an undamaged log; panics on damage.
pub(crate) fn events(mut log: &[u8]) -> Vec<LcmEvent> {
    let mut events = Vec::new();
    while let Some((head, rest)) = log.split_first_chunk::<HEADER_LEN>() {
        let header = LcmHeader::parse(head).expect("a log without damage");
        let (channel, rest) = rest.split_at(header.channel_len as usize);
        let (payload, rest) = rest.split_at(header.data_len as usize);
        let (channel, payload) = (channel.to_vec(), payload.to_vec());
        events.push(LcmEvent { number: header.number, utime: header.utime, channel, payload });
        log = rest;
    }
    assert!(log.is_empty(), "{} bytes behind the last event", log.len());
    events
}

/// The decompressed contents of a file.
pub(crate) fn decompressed(packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    zstd::stream::copy_decode(packed, &mut plain).unwrap();
    plain
}

pub(crate) fn numbers(log: &[u8]) -> Vec<i64> {
    events(log).iter().map(|event| event.number).collect()
}

/// A pseudo-random number generator with a fixed seed.
pub(crate) struct SeededRng(pub(crate) u64);

impl SeededRng {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The start time of the test logs in microseconds: 2007-11-03T14:00:00Z.
pub(crate) const BEGIN: i64 = 1_194_098_400_000_000;

/// `count` events on the channels `A` to `E`, a millisecond apart, with payloads of many lengths.
pub(crate) fn drive(seed: u64, count: i64) -> Vec<LcmEvent> {
    let mut rng = SeededRng(seed);
    let each = (0..count).map(|number| {
        let channel = char::from(b'A' + rng.below(5) as u8).to_string();
        let payload: Vec<u8> = (0..rng.below(700)).map(|_| rng.below(256) as u8).collect();
        LcmEvent::new(number, BEGIN + number * 1_000 + rng.below(900) as i64, &channel, &payload)
    });
    each.collect()
}

/// A temporary folder, deleted on drop.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        overwrite(&path, bytes.as_ref()).unwrap();
        path
    }

    /// Copies the files of a folder of the repository.
    pub(crate) fn copy_all(&self, from: &str) {
        for file in fs::read_dir(root().join(from)).unwrap() {
            let file = file.unwrap();
            self.write(file.file_name().to_str().unwrap(), fs::read(file.path()).unwrap());
        }
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.at(name))
            .unwrap_or_else(|e| panic!("{name}: {e}; there are {:?}", self.names()))
    }

    /// The names of everything in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Parses a pipeline with `${DIR}` set to the folder.
pub(crate) fn pipeline(text: &str, folder: &Path) -> Pipeline {
    let set = BTreeMap::from([("DIR".to_owned(), folder.display().to_string())]);
    let variables = Variables { set, environment: false };
    let document = Document::generated("test.toml", text);
    Pipeline::read(&document, &variables, &Registry::linked()).unwrap_or_else(|m| panic!("{m}"))
}

/// Runs a pipeline in this process, replacing existing outputs.
pub(crate) fn run(text: &str, folder: &Path, jobs: usize) -> Result<Report, Error> {
    run_with(text, folder, jobs, SMALL_MEMORY)
}

pub(crate) fn run_with(
    text: &str,
    folder: &Path,
    jobs: usize,
    memory: ByteSize,
) -> Result<Report, Error> {
    let options = Options {
        jobs: Some(jobs),
        memory: Some(memory),
        overwrite: Overwrite::Replace,
        hash: false,
        stop: Arc::<Stop>::default(),
        ..Options::default()
    };
    run::run(pipeline(text, folder), &options)
}

/// Copies `in.lcm` to `out.lcm`.
pub(crate) const COPY: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "${DIR}/in.lcm"
[sinks.out]
plugin = "lcm-log"
from = "log"
path = "${DIR}/out.lcm"
"#;

/// A command that runs the program in this folder with empty standard input.
pub(crate) fn sluice(folder: &Folder) -> Command {
    let mut command = Command::new(crate::PROGRAM);
    command.current_dir(folder.path()).stdin(Stdio::null()).env_remove("NO_COLOR");
    // Never the cache of whoever runs the tests.
    command.env("XDG_CACHE_HOME", folder.at("cache"));
    command
}

/// The exit code and outputs of the program.
pub(crate) struct ProgramOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl ProgramOutput {
    pub(crate) fn from_output(output: Output) -> Self {
        let Output { status, stdout, stderr } = output;
        Self { code: status.code(), stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() }
    }

    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        let out = String::from_utf8_lossy(&self.stdout);
        assert_eq!(self.code, Some(code), "stderr:\n{}\nstdout:\n{out:.2000}", self.stderr);
        self
    }

    /// Asserts that standard error contains this.
    #[track_caller]
    pub(crate) fn expect_stderr(self, what: &str) -> Self {
        assert!(self.stderr.contains(what), "no `{what}` in:\n{}", self.stderr);
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }
}

/// Runs the program with these arguments in this folder.
pub(crate) fn run_sluice(folder: &Folder, arguments: &[&str]) -> ProgramOutput {
    ProgramOutput::from_output(sluice(folder).args(arguments).output().unwrap())
}

/// Joins wrapped text into one line.
pub(crate) fn joined_lines(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reports that a test cannot run on this machine. Writes to standard error directly, as the test
/// harness hides the output of passing tests.
pub(crate) fn report_skip(what: &str) {
    io::stderr().write_all(format!("skipped: {what}\n").as_bytes()).unwrap();
}

/// Whether child processes ignore a signal, as below `nohup` or in a background job of a script.
/// Reports it, since the signal cannot be tested then.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let is_ignored = mask >> (signal.as_raw() - 1) & 1 == 1;
    if is_ignored {
        report_skip(&format!("programs started here ignore {signal:?}"));
    }
    is_ignored
}

/// The output of a script in `peers_py`, run in this folder; `None`, with a message, if there is no
/// Python.
pub(crate) fn python_script(folder: &Folder, script: &str, arguments: &[&str]) -> Option<String> {
    let script = root().join("tests/suite/peers_py").join(script);
    let output =
        Command::new("python3").arg(&script).args(arguments).current_dir(folder.path()).output();
    let Ok(output) = output else {
        report_skip("there is no python3 to compare with");
        return None;
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{} {arguments:?}: {stderr}", script.display());
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The path of a reference tool, if installed.
pub(crate) fn peer_tool(name: &str) -> PathBuf {
    let given = std::env::var_os("SLUICE_PEERS").map(PathBuf::from);
    given.unwrap_or_else(|| root().join(".cache/peers-venv")).join("bin").join(name)
}

/// The Python with this module; `None`, with a message, if there is none.
pub(crate) fn python_with(module: &str) -> Option<PathBuf> {
    let python = peer_tool("python3");
    let asked = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if asked.is_ok_and(|asked| asked.status.success()) {
        return Some(python);
    }
    report_skip(&format!("there is no Python with {module}; .ci/run installs it"));
    None
}

/// A log of the repository that is written in hexadecimal digits, with comments behind `#`.
pub(crate) fn hex_log(path: &str) -> Vec<u8> {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let digits: String = text.lines().filter_map(|line| line.split('#').next()).collect();
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
