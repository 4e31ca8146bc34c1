//! Isolation: cases are tried in a process of their own, so that what crashes, hangs or takes all memory
//! is a finding and not the end of the tests. Knows nothing of what a case does.
//!
//! The other process is the test's own program, run again with the test's name. It does what the test
//! does until it comes to the same trial, tries the cases, and ends. It writes down each case before it
//! begins; where it dies, another one goes on with the next case.

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

use crate::finding::{Fault, Gathered};
use crate::limits;
use crate::pipe::said;
use crate::{Finding, Promise};

/// Tells the other process which of the test's trials it is for.
const TRIAL: &str = "SLUICE_CONFORMANCE_TRIAL";
/// Tells it where the files are.
const FOLDER: &str = "SLUICE_CONFORMANCE_FOLDER";

/// How often a plugin may take the process with it before the rest is left.
const MOST_CRASHES: usize = 12;
/// How often it may have to be ended because it hangs.
const MOST_HANGS: usize = 2;

thread_local! {
    /// How many trials this test has begun.
    static TRIALS: Cell<usize> = const { Cell::new(0) };
}

/// How cases are to be tried.
#[derive(Clone, Debug)]
pub(crate) struct Isolation<'t> {
    /// The plugin, for names of folders.
    pub(crate) plugin: &'t str,
    /// How long a case may take.
    pub(crate) patience: Duration,
    /// How much memory cases may take beyond what was used before.
    pub(crate) memory: u64,
}

/// A line of what the other process writes down.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// A case begins.
    Case { number: usize, what: String },
    /// It showed something.
    Fault(Fault),
    /// It learned something that later cases need.
    Learned(Value),
    /// There are no more cases.
    Done,
}

/// Whether this is the other process, on its way to a trial. What comes before that is not to be tried again.
pub(crate) fn is_other_process() -> bool {
    std::env::var_os(TRIAL).is_some()
}

impl Isolation<'_> {
    /// Tries cases: `work` calls [`Cases::case`] for each, the same ones every time it is called, on files
    /// that it writes into [`Cases::folder`].
    ///
    /// Does not come back in the other process.
    pub(crate) fn run(&self, work: &dyn Fn(&mut Cases)) -> Vec<Finding> {
        let trial = TRIALS.with(|trials| trials.replace(trials.get() + 1));
        let thread = std::thread::current();
        let test = thread.name().filter(|name| *name != "main");
        match (std::env::var(TRIAL), std::env::var_os(FOLDER)) {
            (Ok(wanted), Some(folder)) if wanted == trial.to_string() => {
                self.work_and_end(Path::new(&folder), work)
            }
            // The other process is for another trial of this test.
            (Ok(_), _) => Vec::new(),
            _ => match test {
                Some(test) => self.in_other_processes(test, trial, work),
                None => self.here("the test's name is not known", trial, work),
            },
        }
    }

    fn in_other_processes(
        &self,
        test: &str,
        trial: usize,
        work: &dyn Fn(&mut Cases),
    ) -> Vec<Finding> {
        let place = match Place::new(self.plugin, test, trial) {
            Ok(place) => place,
            Err(error) => {
                return self.here(&format!("a folder cannot be made: {error}"), trial, work);
            }
        };
        let (mut crashes, mut hangs) = (0, 0);
        let mut died = Vec::new();
        loop {
            let ended = match self.watched(test, trial, &place) {
                Ok(ended) => ended,
                Err(error) => {
                    let why = format!("no process can be started: {error}");
                    return self.here(&why, trial, work);
                }
            };
            let told = Told::read(&place.log());
            if told.is_done {
                return place.findings(told, died);
            }
            let Some(case) = told.last_case() else {
                let what = format!("the test cannot be run again by its name `{test}`");
                return self.here(&what, trial, work);
            };
            hangs += usize::from(matches!(ended, Ended::Hung));
            crashes += 1;
            let fault = ended.fault(&place.stderr(), self);
            died.push((case.0, fault.clone(), case.1.clone()));
            place.keep(case.0);
            if crashes >= MOST_CRASHES || hangs >= MOST_HANGS {
                let mut findings = place.findings(told, died);
                let what = format!(
                    "; the process ended {crashes} times, so the cases behind are not tried"
                );
                findings
                    .iter_mut()
                    .filter(|finding| finding.what.starts_with(&fault.kind))
                    .for_each(|finding| finding.what += &what);
                return findings;
            }
        }
    }

    /// Runs the other process, and ends it if a case takes too long.
    fn watched(&self, test: &str, trial: usize, place: &Place) -> io::Result<Ended> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([test, "--exact", "--nocapture", "--include-ignored"])
            .env(TRIAL, trial.to_string())
            .env(FOLDER, &place.folder)
            // A stock of memory for each thread would count as taken.
            .env("MALLOC_ARENA_MAX", "1")
            .env("RUST_BACKTRACE", "0")
            // Never written to: that it ends tells the other process that this one is gone.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(place.stderr())?)
            .spawn()?;
        let (mut written, mut since) = (0, Instant::now());
        let mut nap = Duration::from_millis(1);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Ended::ByItself(status));
            }
            let now = fs::metadata(place.log()).map_or(0, |meta| meta.len());
            if now != written {
                (written, since) = (now, Instant::now());
            } else if since.elapsed() > self.patience {
                end(&mut child)?;
                return Ok(Ended::Hung);
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(Duration::from_millis(20));
        }
    }

    /// The other process's part.
    fn work_and_end(&self, folder: &Path, work: &dyn Fn(&mut Cases)) -> ! {
        let place = Place { folder: folder.to_owned() };
        end_with_parent();
        std::panic::set_hook(Box::new(|panic| note_panic(&panic.to_string())));
        let mut cases = Cases::resumed(place, Some(self.memory));
        work(&mut cases);
        cases.write(&Line::Done);
        std::process::exit(0)
    }

    /// Tries the cases in this process. What crashes or hangs does so.
    fn here(&self, why: &str, trial: usize, work: &dyn Fn(&mut Cases)) -> Vec<Finding> {
        let say =
            format!("conformance: `{}` is tried in the test's own process: {why}\n", self.plugin);
        // Who cannot be told is not told.
        drop(io::stderr().write_all(say.as_bytes()));
        let place = match Place::new(self.plugin, "here", trial) {
            Ok(place) => place,
            Err(error) => {
                let what = format!("nothing could be tried: no folder can be made: {error}");
                return vec![Finding::new(Promise::Readable, what)];
            }
        };
        let mut cases = Cases::resumed(place.clone(), None);
        work(&mut cases);
        place.findings(Told::read(&place.log()), Vec::new())
    }
}

/// Ends this process when the one that started it is gone: nobody else would, if a case hangs.
fn end_with_parent() {
    let wait = || {
        drop(io::copy(&mut io::stdin(), &mut io::sink()));
        std::process::exit(1)
    };
    // Without the thread, only that is missing.
    drop(std::thread::Builder::new().name("end-with-parent".to_owned()).spawn(wait));
}

fn end(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

/// How the other process ended before it was done.
enum Ended {
    ByItself(ExitStatus),
    Hung,
}

impl Ended {
    fn fault(&self, stderr: &Path, isolation: &Isolation<'_>) -> Fault {
        let said = fs::read(stderr).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let is_told = |line: &&str| !line.trim().is_empty() && !line.starts_with("note: ");
        let last = said.lines().rev().find(is_told).unwrap_or_default();
        match self {
            Self::Hung => Fault::new(
                Promise::Termination,
                "it does not come to an end",
                format!("nothing happened for {:?}", isolation.patience),
            ),
            Self::ByItself(_) if said.contains("memory allocation of") => Fault::new(
                Promise::Memory,
                "it asks for memory as if its input could be believed",
                format!(
                    "{last}, with {} MiB allowed beyond what was used before",
                    isolation.memory >> 20
                ),
            ),
            Self::ByItself(_) if said.contains("has overflowed its stack") => {
                Fault::new(Promise::NoPanic, "it overflows the stack", String::new())
            }
            Self::ByItself(status) => {
                Fault::new(Promise::NoPanic, "the process ended", format!("{status}; {last}"))
            }
        }
    }
}

/// Where both processes find the files of a trial.
#[derive(Clone, Debug)]
struct Place {
    folder: PathBuf,
}

/// Locks of the folders of this process, which keeps them to its end: what lies in them is looked at by
/// tests behind a trial.
static LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// How many runs of the same test may go on at once.
const MOST_RUNS: usize = 64;

/// The folder of this name, or another one where another run of the same test has that one.
fn locked(root: &Path, name: &str) -> io::Result<PathBuf> {
    for run in 0..MOST_RUNS {
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

impl Place {
    /// An empty folder below the build's own, so that what is kept there is found and goes with it.
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
        let folder = locked(&root, &name)?;
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(folder.join("input"))?;
        Ok(Self { folder })
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn stderr(&self) -> PathBuf {
        self.folder.join("stderr")
    }

    fn input(&self) -> PathBuf {
        self.folder.join("input")
    }

    fn kept(&self, case: usize) -> PathBuf {
        self.folder.join(format!("case-{case}"))
    }

    /// Keeps the files of a case for who looks into the finding.
    fn keep(&self, case: usize) {
        // A finding without its file is still a finding.
        drop(copied(&self.input(), &self.kept(case)));
    }

    fn findings(&self, told: Told, died: Vec<(usize, Fault, String)>) -> Vec<Finding> {
        let mut gathered = Gathered::default();
        let mut all: Vec<(usize, Fault, String)> = told.faults.into_iter().chain(died).collect();
        all.sort_by_key(|(case, ..)| *case);
        for (number, fault, what) in all {
            let kept = self.kept(number);
            let case = match kept.exists() {
                true => format!("{what} (kept in {})", kept.display()),
                false => what,
            };
            gathered.add(fault, case);
        }
        gathered.findings()
    }
}

fn copied(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copied(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// What has been written down.
#[derive(Default)]
struct Told {
    cases: Vec<(usize, String)>,
    faults: Vec<(usize, Fault, String)>,
    learned: Vec<Value>,
    is_done: bool,
}

impl Told {
    fn read(log: &Path) -> Self {
        let mut told = Self::default();
        let text = fs::read_to_string(log).unwrap_or_default();
        for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match line {
                Line::Case { number, what } => told.cases.push((number, what)),
                Line::Fault(fault) => {
                    let (number, what) = told.last_case().cloned().unwrap_or_default();
                    told.faults.push((number, fault, what));
                }
                Line::Learned(value) => told.learned.push(value),
                Line::Done => told.is_done = true,
            }
        }
        told
    }

    fn last_case(&self) -> Option<&(usize, String)> {
        self.cases.last()
    }
}

/// The cases of a trial as they are tried.
pub(crate) struct Cases {
    place: Place,
    log: Option<File>,
    learned: Vec<Value>,
    known: Gathered,
    /// The first case that has not been tried by a process before this one.
    first: usize,
    next: usize,
    memory: Option<u64>,
}

impl Cases {
    fn resumed(place: Place, memory: Option<u64>) -> Self {
        let told = Told::read(&place.log());
        let first = told.last_case().map_or(0, |(number, _)| number + 1);
        let log = OpenOptions::new().create(true).append(true).open(place.log()).ok();
        let mut known = Gathered::default();
        for (_, fault, what) in told.faults {
            known.add(fault, what);
        }
        Self { place, log, learned: told.learned, known, first, next: 0, memory }
    }

    /// Where the files of a case are written.
    pub(crate) fn folder(&self) -> PathBuf {
        self.place.input()
    }

    /// What earlier cases learned, also in processes that are no more.
    pub(crate) fn learned(&self) -> &[Value] {
        &self.learned
    }

    /// Keeps what later cases need.
    pub(crate) fn learn(&mut self, value: Value) {
        self.write(&Line::Learned(value.clone()));
        self.learned.push(value);
    }

    /// Tries a case, with memory limited: `what` says in words with what.
    pub(crate) fn case(&mut self, what: &str, work: impl FnOnce(&mut Self) -> Vec<Fault>) {
        self.case_within(self.memory, what, work);
    }

    /// Tries a case that may take what memory it likes, because it needs threads.
    pub(crate) fn roomy_case(&mut self, what: &str, work: impl FnOnce(&mut Self) -> Vec<Fault>) {
        self.case_within(None, what, work);
    }

    fn case_within(
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
        self.write(&Line::Case { number, what: what.to_owned() });
        drop(taken_panics());
        let worked = {
            let _limit = memory.map(limits::Limit::set);
            catch_unwind(AssertUnwindSafe(|| work(self)))
        };
        let panics = taken_panics();
        // A panic of a library that the plugin catches is its own business.
        let faults = worked.unwrap_or_else(|panic| {
            let what = panics.first().cloned().unwrap_or_else(|| said(&*panic));
            vec![Fault::new(Promise::NoPanic, "it panics", what)]
        });
        for fault in faults {
            self.tell(number, fault, what);
        }
    }

    fn tell(&mut self, number: usize, fault: Fault, what: &str) {
        if !self.known.has(&fault) {
            self.place.keep(number);
        }
        self.write(&Line::Fault(fault.clone()));
        self.known.add(fault, what);
    }

    /// Writes a line at once: what is not written before a crash is lost.
    fn write(&mut self, line: &Line) {
        let text = serde_json::to_string(line).unwrap_or_default() + "\n";
        if let Some(log) = &mut self.log {
            log.write_all(text.as_bytes()).expect("the log of a trial can be written");
        }
    }
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note_panic(what: &str) {
    // What a test compares must lie on one line.
    let what = what.replace('\n', " ");
    PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(what);
}

fn taken_panics() -> Vec<String> {
    std::mem::take(&mut PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}
