//! Batches through the public API.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};

use serde::Deserialize;
use sluice_io::files;
use sluice_model::options::InPaths;
use sluice_model::registry::{make_source, make_stage, schema_of};
use sluice_model::schemars::{self, JsonSchema};
use sluice_model::{
    Batch as Events, Error, Input, Map, OptionsError, Plugin, PluginFactory, Query, ReadContext,
    Reader, Registry, Source, Split, SplitStart, Stage, StageContext,
};
use sluice_pipeline::batch::{Batch, FailurePolicy, Status};
use sluice_pipeline::run::Options;
use sluice_pipeline::{Document, Pipeline, Variables};

use crate::toys;

/// A log without events.
#[derive(Debug, Deserialize, JsonSchema)]
struct EmptyLog {
    path: InPaths,
}

impl Source for EmptyLog {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn read<'s>(
        &'s self,
        _: &Split,
        _: SplitStart,
        _: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        Ok(Box::new(std::iter::empty()))
    }
}

/// Counts how often it is made.
#[derive(Debug, Deserialize, JsonSchema)]
struct Counted {}

static MADE: AtomicUsize = AtomicUsize::new(0);

impl TryFrom<Counted> for Stage {
    type Error = OptionsError;

    fn try_from(counted: Counted) -> Result<Self, OptionsError> {
        MADE.fetch_add(1, Ordering::Relaxed);
        Ok(Self::Map(Box::new(counted)))
    }
}

impl Map for Counted {
    fn apply(&self, batch: Events, _: &mut StageContext<'_>) -> Result<Events, Error> {
        Ok(batch)
    }
}

/// A batch of the files `a`, `b`, and `c` of a folder, which plugin `made` reads and `stage` passes
/// on.
fn batch_of(
    folder: &Path,
    stage: &str,
    made: &[Plugin],
    failing: FailurePolicy,
) -> (Batch, Registry) {
    let made = made.iter().copied();
    let registry = Registry::from_plugins(toys::registry().iter().copied().chain(made));
    for name in ["a", "b", "c"] {
        fs::write(folder.join(name), "old").unwrap();
    }
    let folder = folder.display();
    let text = format!(
        "[sources.log]\nplugin = \"made\"\npath = \"{folder}/[abc]\"\n\
         [stages.same]\nplugin = \"{stage}\"\nfrom = \"log\"\n\
         [sinks.out]\nplugin = \"file\"\nfrom = \"same\"\npath = \"{folder}/{{stem}}.out\"\n"
    );
    let document = Document::generated("test.toml", &text);
    let pipeline = Pipeline::read(&document, &Variables::default(), &registry).unwrap();
    (Batch::new(&pipeline, &registry, failing).unwrap(), registry)
}

#[test]
fn the_pipeline_of_a_unit_that_need_not_wait_is_made_once() {
    let made = [
        Plugin::new("made", PluginFactory::Source(make_source::<EmptyLog>), schema_of::<EmptyLog>),
        Plugin::new("counted", PluginFactory::Stage(make_stage::<Counted>), schema_of::<Counted>),
    ];
    let folder = tempfile::tempdir().unwrap();
    let (batch, registry) = batch_of(folder.path(), "counted", &made, FailurePolicy::Stop);
    MADE.store(0, Ordering::Relaxed);
    let options = Options { jobs: Some(3), ..Options::default() };
    let report = batch.run(&registry, &options).unwrap();
    assert_eq!(report.count(Status::Done), 3);
    // The first is also asked whether it may run programs.
    assert_eq!(MADE.load(Ordering::Relaxed), 3 + 1);
}

/// Remembers what it found in a file when it was asked for splits. While `a` is read, `b` changes.
#[derive(Debug, Deserialize, JsonSchema)]
struct RememberingLog {
    path: InPaths,
    #[serde(skip)]
    found: OnceLock<String>,
}

/// Whether the splits of `b` are known.
static KNOWS_B: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
/// What was found in `b` and `c` by what read them.
static READ: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Source for RememberingLog {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let path = &self.inputs()?[0].path;
        self.found.get_or_init(|| fs::read_to_string(path).unwrap());
        if path.ends_with("b") {
            *KNOWS_B.0.lock().unwrap() = true;
            KNOWS_B.1.notify_all();
        }
        Ok(vec![Split::whole(path, Some(3))])
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        _: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        if split.input.ends_with("a") {
            let knows = KNOWS_B.1.wait_while(KNOWS_B.0.lock().unwrap(), |knows| !*knows);
            drop(knows.unwrap());
            fs::write(split.input.with_file_name("b"), "new").unwrap();
        } else {
            READ.lock().unwrap().extend(self.found.get().cloned());
        }
        Ok(Box::new(std::iter::empty()))
    }
}

#[test]
fn a_unit_that_had_to_wait_reads_its_input_as_it_is_then() {
    let made = Plugin::new(
        "made",
        PluginFactory::Source(make_source::<RememberingLog>),
        schema_of::<RememberingLog>,
    );
    let folder = tempfile::tempdir().unwrap();
    let (batch, registry) = batch_of(folder.path(), "pass", &[made], FailurePolicy::Stop);
    let options = Options { jobs: Some(1), ..Options::default() };
    let report = batch.run(&registry, &options).unwrap();
    assert_eq!(report.count(Status::Done), 3);
    assert_eq!(*READ.lock().unwrap(), ["new", "old"]);
}

/// Panics when it is asked for splits of `b`.
#[derive(Debug, Deserialize, JsonSchema)]
struct PanickingLog {
    path: InPaths,
}

impl Source for PanickingLog {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let path = &self.inputs()?[0].path;
        assert!(!path.ends_with("b"), "no splits");
        Ok(vec![Split::whole(path, Some(3))])
    }

    fn read<'s>(
        &'s self,
        _: &Split,
        _: SplitStart,
        _: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        Ok(Box::new(std::iter::empty()))
    }
}

#[test]
fn an_input_on_which_a_plugin_panics_fails_without_the_others() {
    let made = Plugin::new(
        "made",
        PluginFactory::Source(make_source::<PanickingLog>),
        schema_of::<PanickingLog>,
    );
    let folder = tempfile::tempdir().unwrap();
    let (batch, registry) = batch_of(folder.path(), "pass", &[made], FailurePolicy::Continue);
    let options = Options { jobs: Some(1), ..Options::default() };
    let report = batch.run(&registry, &options).unwrap();
    assert_eq!((report.count(Status::Done), report.count(Status::Failed)), (2, 1));
}
