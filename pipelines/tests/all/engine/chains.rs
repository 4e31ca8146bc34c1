//! Chains of stages, and what is read for folds.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};

use sluice_model::time::TimePoint;
use sluice_model::{
    Batch, ChannelQuery, DynSink, Error, ErrorKind, Fold, FoldQuery, Map, MapQuery, Pattern,
    Patterns, Stage, StageContext,
};
use sluice_pipeline::run::{self, Options, Stop};
use sluice_pipeline::spec::StageFactory;
use sluice_pipeline::{Outline, Pipeline, PluginInstance, Report, graph};

use crate::engine::kit::{LineSink, MadeUpSource, SECOND, chain_of, node, run, with_payloads};

/// Writes the number of events so far into each payload.
#[derive(Default)]
struct NumberingFold(u64);

impl Fold for NumberingFold {
    fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let numbered = with_payloads(&batch, |_| {
            self.0 += 1;
            self.0.to_string()
        });
        Ok(vec![numbered])
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        context.note("numbered", self.0);
        Ok(Vec::new())
    }
}

/// Drops multiples of three and doubles the others.
struct ThinningMap;

fn number(payload: &[u8]) -> u64 {
    std::str::from_utf8(payload).unwrap().parse().unwrap()
}

impl Map for ThinningMap {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let kept = batch.retain(|row| !number(batch.payload(row)).is_multiple_of(3));
        context.report.filtered += (batch.len() - kept.len()) as u64;
        context.note("thinned", (batch.len() - kept.len()) as u64);
        context.report.undecoded.extend(kept.origins().first());
        Ok(with_payloads(&kept, |row| (number(kept.payload(row)) * 2).to_string()))
    }
}

fn chain() -> Stage {
    let inner = Stage::Chain(vec![Stage::Map(Box::new(ThinningMap)), Stage::Chain(Vec::new())]);
    Stage::Chain(vec![Stage::Fold(Box::<NumberingFold>::default()), inner])
}

fn apart() -> Vec<(&'static str, Stage)> {
    vec![
        ("number", Stage::Fold(Box::<NumberingFold>::default())),
        ("thin", Stage::Map(Box::new(ThinningMap))),
    ]
}

const MADE: i64 = 30 * 100;

fn ran(stages: Vec<(&str, Stage)>, jobs: usize) -> (Vec<String>, Report) {
    let (made, lines) = (
        MadeUpSource { seconds: 30, per_second: 100, ..MadeUpSource::default() },
        LineSink::default(),
    );
    let report = run(chain_of(&made, stages, &lines), jobs);
    let lines = lines.lines.lock().unwrap().clone();
    (lines, report)
}

#[test]
fn a_chain_equals_its_parts_in_sequence_on_any_number_of_threads() {
    let (expected, _) = ran(apart(), 1);
    assert_eq!(expected.len() as i64, MADE / 3 * 2);
    assert_eq!(expected.last().unwrap(), &format!("B {} 29980000000 5998", MADE - 2));
    for jobs in [1, 2, 8] {
        assert_eq!(ran(vec![("both", chain())], jobs).0, expected, "{jobs} jobs");
    }
}

#[test]
fn a_chain_is_one_stage_of_the_report_and_its_accounting_balances() {
    let (_, report) = ran(vec![("both", chain()), ("none", Stage::Chain(Vec::new()))], 2);
    let notes = report.notes.iter().map(|note| (&*note.node, &*note.what, note.count));
    let made = MADE as u64;
    assert_eq!(
        notes.collect::<Vec<_>>(),
        [("both", "numbered", made), ("both", "thinned", made / 3)]
    );
    let sum = |of: fn(&sluice_pipeline::report::ChannelReport) -> u64| -> u64 {
        report.channels.iter().map(of).sum()
    };
    assert_eq!((sum(|row| row.entered), sum(|row| row.out)), (made, made / 3 * 2));
    assert_eq!((sum(|row| row.filtered), sum(|row| row.damaged)), (made / 3, 0));
    assert_eq!(sum(|row| row.undecoded), 60);
}

#[test]
fn a_chain_is_one_node_of_the_graph() {
    let pipeline =
        chain_of(&MadeUpSource::default(), vec![("both", chain())], &LineSink::default());
    let drawn = graph::mermaid(&Outline::from(&pipeline));
    assert!(drawn.ends_with("    n0 --> n1\n    n1 --> n2\n"), "{drawn}");
}

#[test]
fn what_a_chain_remembers_is_forgotten_when_everything_is_played_again() {
    let made = MadeUpSource { seconds: 4, per_second: 6, ..MadeUpSource::default() };
    let lines = LineSink { rounds: 2, ..LineSink::default() };
    let mut pipeline = chain_of(&made, vec![("both", chain())], &lines);
    pipeline.nodes[1].stage_factory = Some(StageFactory::new(|| Ok(chain())));
    run(pipeline, 2);
    let lines = lines.lines.lock().unwrap();
    let (first, second) = lines.split_at(lines.len() / 2);
    assert_eq!((first.len(), first), (16, second));
}

#[test]
fn inputs_are_not_split_if_everything_is_sent_live() {
    let lines = |is_live| {
        let made = MadeUpSource { seconds: 4, per_second: 6, ..MadeUpSource::default() };
        let lines = LineSink { is_live, ..LineSink::default() };
        run(chain_of(&made, vec![("both", chain())], &lines), 2);
        let sent = lines.lines.lock().unwrap().clone();
        (made.target.load(Ordering::Relaxed), sent)
    };
    let ((target, sent), (usual, stored)) = (lines(true), lines(false));
    assert_eq!((target, sent), (u64::MAX, stored));
    assert!(usual < u64::MAX);
}

/// Requests the end of the run when it sees events.
struct Stopping(Arc<Stop>);

impl Map for Stopping {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        if !self.0.is_requested() {
            self.0.request();
        }
        Ok(batch)
    }
}

#[test]
fn a_stopped_run_is_complete_only_if_everything_is_sent_live() {
    let ended = |is_live| {
        let made = MadeUpSource { seconds: 40, per_second: 6, ..MadeUpSource::default() };
        let stop = Arc::<Stop>::default();
        let stopping = Stage::Map(Box::new(Stopping(Arc::clone(&stop))));
        let lines = LineSink { is_live, ..LineSink::default() };
        let pipeline = chain_of(&made, vec![("stopping", stopping)], &lines);
        run::run(pipeline, &Options { stop, jobs: Some(2), ..Options::default() })
    };
    assert!(ended(true).unwrap().notes.iter().any(|note| note.what.contains("stopped before")));
    // A sink without files may store events elsewhere.
    let error = ended(false).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Interrupted), "{error}");
}

/// Lets this many events pass.
struct FirstEvents(usize);

impl Fold for FirstEvents {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let passing = self.0.min(batch.len());
        self.0 -= passing;
        context.report.filtered += (batch.len() - passing) as u64;
        Ok(vec![batch.slice(0, passing)])
    }

    fn is_done(&self) -> bool {
        self.0 == 0
    }
}

#[test]
fn reading_stops_where_nothing_behind_a_chain_wants_more() {
    let first = || Stage::Fold(Box::new(FirstEvents(10)));
    for jobs in [1, 2, 8] {
        let (lines, report) = ran(vec![("both", chain()), ("first", first())], jobs);
        assert_eq!(lines.len(), 10);
        assert_eq!(report.sources["made"].events, 200, "two steps with {jobs} jobs");
    }
}

#[test]
fn chains_behind_chains_see_events_in_order_on_any_number_of_threads() {
    let (expected, _) = ran((0..3).flat_map(|_| apart()).collect(), 1);
    assert_eq!(expected.len(), 890);
    for jobs in [1, 2, 8] {
        let chains = vec![("one", chain()), ("two", chain()), ("three", chain())];
        assert_eq!(ran(chains, jobs).0, expected, "{jobs} jobs");
    }
}

/// Passes only if several batches of one stage run concurrently.
struct BarrierMap(Arc<Barrier>);

impl Map for BarrierMap {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        self.0.wait();
        Ok(batch)
    }
}

#[test]
fn what_stands_between_two_stages_with_memory_is_run_beside_each_other() {
    let number = || Stage::Fold(Box::<NumberingFold>::default());
    let meet = Stage::Map(Box::new(BarrierMap(Arc::new(Barrier::new(2)))));
    let chain = Stage::Chain(vec![number(), meet]);
    let (lines, _) = ran(vec![("chain", chain), ("number", number())], 2);
    assert_eq!(lines.len() as i64, MADE);
}

/// Writes the number of the last event on A into each payload.
#[derive(Default)]
struct LastOfA {
    last: Option<i64>,
    query: FoldQuery,
}

impl Fold for LastOfA {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let name = |row: usize| context.channels.get(batch.event(row).channel).name.clone();
        let told = with_payloads(&batch, |row| {
            if name(row).text() == "A" {
                self.last = Some(batch.sequences()[row]);
            }
            format!("{:?}", self.last)
        });
        Ok(vec![told])
    }

    fn query(&self) -> FoldQuery {
        self.query.clone()
    }
}

/// Lets channel B pass for two seconds.
struct WindowMap;

const WINDOW: std::ops::Range<i64> = 20 * SECOND..22 * SECOND;

fn channel(name: &str) -> ChannelQuery {
    let names = Patterns(vec![Pattern::parse(name).unwrap()]);
    ChannelQuery::from_patterns(&names, &Patterns::default(), &Patterns::default())
}

impl Map for WindowMap {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let is_b = |row: usize| context.channels.get(batch.event(row).channel).name.text() == "B";
        let kept = batch.retain(|row| WINDOW.contains(&batch.timestamps()[row]) && is_b(row));
        context.report.filtered += (batch.len() - kept.len()) as u64;
        Ok(kept)
    }

    fn query(&self) -> MapQuery {
        MapQuery {
            start: Some(TimePoint::At(WINDOW.start)),
            end: Some(TimePoint::At(WINDOW.end)),
            channels: channel("B"),
            keeps_times: true,
            keeps_channels: true,
        }
    }
}

/// The resulting lines, the number of splits read, and the number of events.
fn windowed(query: &FoldQuery, together: bool, jobs: usize) -> (Vec<String>, usize, u64) {
    let fold = Stage::Fold(Box::new(LastOfA { last: None, query: query.clone() }));
    let window = Stage::Map(Box::new(WindowMap));
    let stages = match together {
        true => vec![("both", Stage::Chain(vec![fold, window]))],
        false => vec![("fold", fold), ("window", window)],
    };
    let (made, lines) = (
        MadeUpSource { seconds: 60, per_second: 30, ..MadeUpSource::default() },
        LineSink::default(),
    );
    let report = run(chain_of(&made, stages, &lines), jobs);
    let lines = lines.lines.lock().unwrap().clone();
    (lines, made.read.load(Ordering::Relaxed), report.sources["made"].events)
}

#[test]
fn a_window_passes_a_fold_that_says_what_it_needs() {
    let needs = FoldQuery {
        keeps_times: true,
        keeps_channels: true,
        also: Some(channel("A")),
        reach: SECOND,
    };
    let (expected, all, events) = windowed(&FoldQuery::default(), false, 2);
    assert_eq!((expected.len(), all, events), (20, 60, 1800));
    assert_eq!(expected[0], "B 601 20033333333 Some(600)");
    for jobs in [1, 2, 8] {
        for together in [false, true] {
            let (lines, read, events) = windowed(&needs, together, jobs);
            assert_eq!(lines, expected);
            assert_eq!((read, events), (4, 80), "four seconds of two channels");
        }
    }
    let only_channels = FoldQuery { keeps_times: false, ..needs };
    assert_eq!(windowed(&only_channels, true, 2), (expected, 60, 1200));
}

#[test]
fn a_chain_of_maps_is_run_where_events_are_read() {
    let maps =
        || Stage::Chain(vec![Stage::Map(Box::new(WindowMap)), Stage::Map(Box::new(WindowMap))]);
    let (made, lines) = (
        MadeUpSource { seconds: 60, per_second: 30, ..MadeUpSource::default() },
        LineSink::default(),
    );
    let pipeline = chain_of(&made, vec![("maps", maps())], &lines);
    assert!(matches!(
        &pipeline.nodes[1].instance,
        PluginInstance::Stage(stage) if stage.parts().len() == 2
    ));
    let report = run(pipeline, 2);
    assert_eq!((lines.lines.lock().unwrap().len(), made.read.load(Ordering::Relaxed)), (20, 2));
    assert_eq!(report.channels.len(), 1);
}

/// Notes how many of its events are inside the window and how many outside.
struct WindowProbe;

impl Map for WindowProbe {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        for time in batch.timestamps() {
            let wanted = context.window.wants_time(*time);
            context.note(if wanted { "wanted" } else { "not wanted" }, 1);
        }
        Ok(batch)
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }
}

impl Fold for WindowProbe {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        Ok(vec![self.apply(batch, context)?])
    }

    fn query(&self) -> FoldQuery {
        FoldQuery { keeps_times: true, reach: SECOND, ..FoldQuery::default() }
    }
}

#[test]
fn stages_know_which_times_are_wanted_of_them() {
    let (map, fold) = (|| Stage::Map(Box::new(WindowProbe)), || Stage::Fold(Box::new(WindowProbe)));
    let window = || Stage::Map(Box::new(WindowMap));
    let asked = |stages: Vec<(&'static str, Stage)>| {
        let (made, lines) = (
            MadeUpSource { seconds: 60, per_second: 30, ..MadeUpSource::default() },
            LineSink::default(),
        );
        run(chain_of(&made, stages, &lines), 2)
    };
    let notes = |report: &Report, node: &str| {
        let count = |what: &str| {
            let mut notes = report.notes.iter();
            notes.find(|note| note.node == node && note.what == what).map_or(0, |note| note.count)
        };
        (count("wanted"), count("not wanted"))
    };
    let apart = asked(vec![("map", map()), ("fold", fold()), ("window", window())]);
    assert_eq!(notes(&apart, "map"), (120, 0), "the window and the reach of what follows");
    assert_eq!(notes(&apart, "fold"), (60, 60));
    let chained = asked(vec![("both", Stage::Chain(vec![fold(), window()]))]);
    assert_eq!(notes(&chained, "both"), (60, 60));
    let alone = asked(vec![("fold", fold())]);
    assert_eq!(notes(&alone, "fold"), (1800, 0));
}

/// Wants these channels.
struct ChannelsMap(ChannelQuery);

impl Map for ChannelsMap {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        Ok(batch)
    }

    fn query(&self) -> MapQuery {
        let channels = self.0.clone();
        MapQuery { channels, keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }
}

#[test]
fn what_is_wanted_of_many_branches_that_meet_again_is_found_soon() {
    let stage = |name: &str, from: &[usize], channels: ChannelQuery| {
        node(name, from, PluginInstance::Stage(Stage::Map(Box::new(ChannelsMap(channels)))), None)
    };
    let planned = |own: &ChannelQuery| {
        let made = MadeUpSource { seconds: 1, per_second: 3, ..MadeUpSource::default() };
        let mut nodes = vec![node("made", &[], PluginInstance::Source(Box::new(made)), None)];
        nodes.push(stage("own", &[0], own.clone()));
        for _ in 0..30 {
            let end = nodes.len() - 1;
            nodes.push(stage("left", &[end], channel(&format!("re:A|L{end}"))));
            nodes.push(stage("right", &[end], channel(&format!("re:A|R{end}"))));
            nodes.push(stage("both", &[end + 1, end + 2], ChannelQuery::default()));
        }
        let out = PluginInstance::Sink(DynSink::new(LineSink::default()));
        nodes.push(node("out", &[nodes.len() - 1], out, None));
        let pipeline = Pipeline { nodes, ..Pipeline::default() };
        let reading = run::plan(&pipeline, &Options::default()).unwrap();
        reading.sources[0].query.channels.clone()
    };
    let wants = |query: ChannelQuery| ["A", "B"].map(|name| query.wants(name, ""));
    assert!(wants(planned(&ChannelQuery::default()))[0]);
    assert_eq!(wants(planned(&channel("A"))), [true, false]);
}
