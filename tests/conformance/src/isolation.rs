//! Isolation: cases run in a child process, so that a crash, hang or memory exhaustion becomes a
//! finding instead of ending the tests. Knows nothing about the cases.
//!
//! The child process is the test program itself, started with the test's name. It repeats the test
//! up to the same trial, runs the cases and exits. It logs each case before it starts; if it dies,
//! another child continues with the next case.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_model::panics::message_of;

use crate::finding::{Fault, FindingSet};
use crate::limits;
use crate::{Finding, Promise};

/// Tells the child which of the test's trials to run.
const TRIAL: &str = "SLUICE_CONFORMANCE_TRIAL";
/// Tells the child where the files are.
const FOLDER: &str = "SLUICE_CONFORMANCE_FOLDER";

/// The number of crashes after which the remaining cases are skipped.
const MAX_CRASHES: usize = 12;
/// The number of hangs after which the remaining cases are skipped.
const MAX_HANGS: usize = 2;

thread_local! {
    /// The number of trials that this test has started.
    static TRIALS: Cell<usize> = const { Cell::new(0) };
}

/// How to run cases.
#[derive(Clone, Debug)]
pub(crate) struct Isolation<'t> {
    /// The plugin, for folder names.
    pub(crate) plugin: &'t str,
    /// The timeout of a case.
    pub(crate) patience: Duration,
    /// The memory that cases may use in addition to what is in use.
    pub(crate) memory: u64,
}

/// A line of the child's log.
#[derive(Debug, Serialize, Deserialize)]
enum CaseLogLine {
    /// A case starts.
    Case { number: usize, what: String },
    /// The case found a fault.
    Fault(Fault),
    /// The case produced a value that later cases need.
    Learned(Value),
    /// There are no more cases.
    Done,
}

/// Whether this is the child, on its way to a trial. What comes before is not tested again.
pub(crate) fn is_child_process() -> bool {
    std::env::var_os(TRIAL).is_some()
}

impl Isolation<'_> {
    /// Runs cases: `work` calls [`Cases::case`] for each, the same ones every time, on files that
    /// it writes into [`Cases::folder`].
    ///
    /// Does not return in the child.
    pub(crate) fn run(&self, work: &dyn Fn(&mut Cases)) -> Vec<Finding> {
        let trial = TRIALS.with(|trials| trials.replace(trials.get() + 1));
        let thread = std::thread::current();
        let test = thread.name().filter(|name| *name != "main");
        match (std::env::var(TRIAL), std::env::var_os(FOLDER)) {
            (Ok(wanted), Some(folder)) if wanted == trial.to_string() => {
                self.run_as_child(Path::new(&folder), work)
            }
            // The child is for another trial of this test.
            (Ok(_), _) => Vec::new(),
            _ => match test {
                Some(test) => self.run_in_children(test, trial, work),
                None => self.run_in_process("the test's name is not known", trial, work),
            },
        }
    }

    fn run_in_children(&self, test: &str, trial: usize, work: &dyn Fn(&mut Cases)) -> Vec<Finding> {
        let dir = match TrialDir::new(self.plugin, test, trial) {
            Ok(dir) => dir,
            Err(error) => {
                return self.run_in_process(
                    &format!("a folder cannot be made: {error}"),
                    trial,
                    work,
                );
            }
        };
        let (mut crashes, mut hangs) = (0, 0);
        let mut died = Vec::new();
        loop {
            let ended = match self.run_child(test, trial, &dir) {
                Ok(ended) => ended,
                Err(error) => {
                    let why = format!("no process can be started: {error}");
                    return self.run_in_process(&why, trial, work);
                }
            };
            let case_log = CaseLog::read(&dir.log());
            if case_log.is_done {
                return dir.findings(case_log, died);
            }
            let Some(case) = case_log.last_case() else {
                let what = format!("the test cannot be run again by its name `{test}`");
                return self.run_in_process(&what, trial, work);
            };
            hangs += usize::from(matches!(ended, ChildExit::Hung));
            crashes += 1;
            let fault = ended.fault(&dir.stderr(), self);
            died.push((case.0, fault.clone(), case.1.clone()));
            dir.keep_case(case.0);
            if crashes >= MAX_CRASHES || hangs >= MAX_HANGS {
                let mut findings = dir.findings(case_log, died);
                let what =
                    format!("; the process ended {crashes} times, so later cases are not tried");
                findings
                    .iter_mut()
                    .filter(|finding| finding.what.starts_with(&fault.kind))
                    .for_each(|finding| finding.what += &what);
                return findings;
            }
        }
    }

    /// Runs a child, and kills it if a case takes too long.
    fn run_child(&self, test: &str, trial: usize, dir: &TrialDir) -> io::Result<ChildExit> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([test, "--exact", "--nocapture", "--include-ignored"])
            .env(TRIAL, trial.to_string())
            .env(FOLDER, &dir.folder)
            // Memory arenas per thread would count as used.
            .env("MALLOC_ARENA_MAX", "1")
            .env("RUST_BACKTRACE", "0")
            // Never written to: its end tells the child that this process is gone.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(dir.stderr())?)
            .spawn()?;
        let (mut written, mut since) = (0, Instant::now());
        let mut nap = Duration::from_millis(1);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(ChildExit::ByItself(status));
            }
            let now = fs::metadata(dir.log()).map_or(0, |meta| meta.len());
            if now != written {
                (written, since) = (now, Instant::now());
            } else if since.elapsed() > self.patience {
                end(&mut child)?;
                return Ok(ChildExit::Hung);
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(Duration::from_millis(20));
        }
    }

    /// The child's part.
    fn run_as_child(&self, folder: &Path, work: &dyn Fn(&mut Cases)) -> ! {
        let dir = TrialDir { folder: folder.to_owned() };
        end_with_parent();
        std::panic::set_hook(Box::new(|panic| note_panic(&panic.to_string())));
        let mut cases = Cases::resumed(dir, Some(self.memory));
        work(&mut cases);
        cases.write(&CaseLogLine::Done);
        std::process::exit(0)
    }

    /// Runs the cases in this process, where crashes and hangs are not contained.
    fn run_in_process(&self, why: &str, trial: usize, work: &dyn Fn(&mut Cases)) -> Vec<Finding> {
        let say =
            format!("conformance: `{}` is tried in the test's own process: {why}\n", self.plugin);
        // Nothing to do if stderr is closed.
        drop(io::stderr().write_all(say.as_bytes()));
        let dir = match TrialDir::new(self.plugin, "here", trial) {
            Ok(dir) => dir,
            Err(error) => {
                let what = format!("nothing could be tried: no folder can be made: {error}");
                return vec![Finding::new(Promise::Readable, what)];
            }
        };
        let mut cases = Cases::resumed(dir.clone(), None);
        work(&mut cases);
        dir.findings(CaseLog::read(&dir.log()), Vec::new())
    }
}

/// Ends this process when its parent is gone: nobody else would, if a case hangs.
fn end_with_parent() {
    let wait = || {
        drop(io::copy(&mut io::stdin(), &mut io::sink()));
        std::process::exit(1)
    };
    // Works without the thread, except for this.
    drop(std::thread::Builder::new().name("end-with-parent".to_owned()).spawn(wait));
}

fn end(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

/// How the child ended before it was done.
enum ChildExit {
    ByItself(ExitStatus),
    Hung,
}

impl ChildExit {
    fn fault(&self, stderr: &Path, isolation: &Isolation<'_>) -> Fault {
        let text = fs::read(stderr).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let is_message = |line: &&str| !line.trim().is_empty() && !line.starts_with("note: ");
        let last = text.lines().rev().find(is_message).unwrap_or_default();
        match self {
            Self::Hung => Fault::new(
                Promise::Termination,
                "it does not terminate",
                format!("nothing happened for {:?}", isolation.patience),
            ),
            Self::ByItself(_) if text.contains("memory allocation of") => Fault::new(
                Promise::Memory,
                "it allocates memory as if its input could be trusted",
                format!(
                    "{last}, with {} MiB allowed beyond what was used before",
                    isolation.memory >> 20
                ),
            ),
            Self::ByItself(_) if text.contains("has overflowed its stack") => {
                Fault::new(Promise::NoPanic, "it overflows the stack", String::new())
            }
            Self::ByItself(status) => {
                Fault::new(Promise::NoPanic, "the process ended", format!("{status}; {last}"))
            }
        }
    }
}

/// The folder of a trial's files, shared by both processes.
#[derive(Clone, Debug)]
struct TrialDir {
    folder: PathBuf,
}

/// Locks on the folders of this process, held until exit: later parts of a test look at their
/// content.
static LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// The maximum number of concurrent runs of the same test.
const MAX_RUNS: usize = 64;

/// Locks the folder of this name, or an alternative if another run of the same test holds it.
fn lock_dir(root: &Path, name: &str) -> io::Result<PathBuf> {
    for run in 0..MAX_RUNS {
        let folder = root.join(if run == 0 { name.to_owned() } else { format!("{name}~{run}") });
        let lock = folder.with_extension("lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(lock)?;
        match file.try_lock() {
            Ok(()) => {
                LOCKS.lock().unwrap_or_else(PoisonError::into_inner).push(file);
                return Ok(folder);
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other("too many runs of the same test"))
}

impl TrialDir {
    /// Creates an empty folder in the build directory, so that kept files are found and cleaned
    /// with it.
    fn new(plugin: &str, test: &str, trial: usize) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let profile = program.ancestors().find(|folder| folder.ends_with("deps"));
        let target = profile.and_then(|deps| deps.parent()?.parent());
        let root = target.map_or_else(std::env::temp_dir, |target| target.join("tmp"));
        let name = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let name = format!("{}-{}-{trial}", name(plugin), name(test));
        let stem = program.file_stem().unwrap_or_default();
        let root = root.join("sluice-conformance").join(stem);
        fs::create_dir_all(&root)?;
        let dir = Self { folder: lock_dir(&root, &name)? };
        match fs::remove_dir_all(&dir.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(dir.input())?;
        Ok(dir)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn stderr(&self) -> PathBuf {
        self.folder.join("stderr")
    }

    /// The name reads as an escape, so that damage whose input is not escaped names no file.
    fn input(&self) -> PathBuf {
        self.folder.join(r"input\xff")
    }

    fn kept_case_dir(&self, case: usize) -> PathBuf {
        self.folder.join(format!("case-{case}"))
    }

    /// Keeps the files of a case for inspection.
    fn keep_case(&self, case: usize) {
        // A finding without its file is still useful.
        drop(copy_dir(&self.input(), &self.kept_case_dir(case)));
    }

    fn findings(&self, case_log: CaseLog, died: Vec<(usize, Fault, String)>) -> Vec<Finding> {
        let mut gathered = FindingSet::default();
        let mut all: Vec<(usize, Fault, String)> =
            case_log.faults.into_iter().chain(died).collect();
        all.sort_by_key(|(case, ..)| *case);
        for (number, fault, what) in all {
            let kept = self.kept_case_dir(number);
            let case = match kept.exists() {
                true => format!("{what} (kept in {})", kept.display()),
                false => what,
            };
            gathered.add(fault, case);
        }
        gathered.findings()
    }
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The content of a child's log.
#[derive(Default)]
struct CaseLog {
    cases: Vec<(usize, String)>,
    faults: Vec<(usize, Fault, String)>,
    learned: Vec<Value>,
    is_done: bool,
}

impl CaseLog {
    fn read(log: &Path) -> Self {
        let mut case_log = Self::default();
        let text = fs::read_to_string(log).unwrap_or_default();
        for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match line {
                CaseLogLine::Case { number, what } => case_log.cases.push((number, what)),
                CaseLogLine::Fault(fault) => {
                    let (number, what) = case_log.last_case().cloned().unwrap_or_default();
                    case_log.faults.push((number, fault, what));
                }
                CaseLogLine::Learned(value) => case_log.learned.push(value),
                CaseLogLine::Done => case_log.is_done = true,
            }
        }
        case_log
    }

    fn last_case(&self) -> Option<&(usize, String)> {
        self.cases.last()
    }
}

/// The cases of a trial while they run.
pub(crate) struct Cases {
    dir: TrialDir,
    log: Option<File>,
    learned: Vec<Value>,
    recorded: FindingSet,
    /// The first case that no earlier process has run.
    first: usize,
    next: usize,
    memory: Option<u64>,
}

impl Cases {
    fn resumed(dir: TrialDir, memory: Option<u64>) -> Self {
        let case_log = CaseLog::read(&dir.log());
        let first = case_log.last_case().map_or(0, |(number, _)| number + 1);
        let log = OpenOptions::new().create(true).append(true).open(dir.log()).ok();
        let mut known = FindingSet::default();
        for (_, fault, what) in case_log.faults {
            known.add(fault, what);
        }
        Self { dir, log, learned: case_log.learned, recorded: known, first, next: 0, memory }
    }

    /// The folder for the files of a case.
    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.input()
    }

    /// Values from earlier cases, including those of processes that have died.
    pub(crate) fn learned(&self) -> &[Value] {
        &self.learned
    }

    /// Keeps a value for later cases.
    pub(crate) fn learn(&mut self, value: Value) {
        self.write(&CaseLogLine::Learned(value.clone()));
        self.learned.push(value);
    }

    /// Runs a case with limited memory; `what` describes it.
    pub(crate) fn case(&mut self, what: &str, work: impl FnOnce(&mut Self) -> Vec<Fault>) {
        self.case_with_limit(self.memory, what, work);
    }

    /// Runs a case without a memory limit, because it needs threads.
    pub(crate) fn unlimited_case(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Self) -> Vec<Fault>,
    ) {
        self.case_with_limit(None, what, work);
    }

    fn case_with_limit(
        &mut self,
        memory: Option<u64>,
        what: &str,
        work: impl FnOnce(&mut Self) -> Vec<Fault>,
    ) {
        let number = self.next;
        self.next += 1;
        if number < self.first {
            return;
        }
        self.write(&CaseLogLine::Case { number, what: what.to_owned() });
        drop(take_panics());
        let worked = {
            let _limit = memory.map(limits::MemoryLimit::set);
            catch_unwind(AssertUnwindSafe(|| work(self)))
        };
        let panics = take_panics();
        // A panic that the plugin catches itself is fine.
        let faults = worked.unwrap_or_else(|panic| {
            let what = panics.first().cloned();
            let what = what.unwrap_or_else(|| message_of(&*panic).to_owned());
            vec![Fault::new(Promise::NoPanic, "it panics", what)]
        });
        for fault in faults {
            self.record_fault(number, fault, what);
        }
    }

    fn record_fault(&mut self, number: usize, fault: Fault, what: &str) {
        if !self.recorded.has(&fault) {
            self.dir.keep_case(number);
        }
        self.write(&CaseLogLine::Fault(fault.clone()));
        self.recorded.add(fault, what);
    }

    /// Writes a line unbuffered: what is not written before a crash is lost.
    fn write(&mut self, line: &CaseLogLine) {
        let text = serde_json::to_string(line).unwrap_or_default() + "\n";
        if let Some(log) = &mut self.log {
            log.write_all(text.as_bytes()).expect("the log of a trial can be written");
        }
    }
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note_panic(what: &str) {
    // Tests compare single lines.
    let what = what.replace('\n', " ");
    PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(what);
}

fn take_panics() -> Vec<String> {
    std::mem::take(&mut PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}
