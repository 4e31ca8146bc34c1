//! The sources of a run: how each is opened, read again from the start, and ended.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_io::files::is_stream;
use sluice_kit::reading::{ReadAhead, ReadLimits, ReadStep};
use sluice_model::{Batch, DamageLog, Error, Query, Source, Split};

use super::super::SourcePlan;
use super::super::milestone::InputLog;
use super::super::publisher::Publisher;
use super::super::segment::{Branch, SegmentOutcome};
use super::super::setup::{Setup, run_task};
use super::super::topology::SourceNode;
use crate::spec::OnDamage;

/// How long a live source may be silent before merges go on without it.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_millis(50);

/// How long live events may wait before they can be read: receivers gather them in batches, for
/// 10 ms or so.
const GATHERING_TIME: Duration = Duration::from_millis(20);

pub(super) struct RunningSource {
    pub(super) node: usize,
    pub(super) name: Arc<str>,
    source: Arc<dyn Source>,
    /// All files that it reads.
    pub(super) files: BTreeSet<PathBuf>,
    /// What to read when it restarts.
    pub(super) plan: (Vec<Split>, Query),
    pub(super) steps: ReadAhead<'static, SegmentOutcome>,
    pub(super) inputs: InputLog,
    pub(super) damage: OnDamage,
    pub(super) segment: Arc<Vec<Branch>>,
    /// How often it has been polled, so that sources take turns.
    pub(super) turns: u64,
    /// When it last delivered events.
    pub(super) last_data: Instant,
    /// What is still to be delivered could be read later than this, if it is live.
    caught_up: Instant,
    /// A later such time, once so many more steps have been delivered.
    next_caught_up: (Instant, usize),
    /// Whether data comes when others please: it is live, or reads a stream or from a program.
    pub(super) may_stall: bool,
    /// Whether it is live and has been silent for a while.
    pub(super) silent: bool,
    pub(super) ended: bool,
    /// Whether it was ended early because no node wanted more of it.
    pub(super) was_cut_short: bool,
}

/// One step of a source.
pub(super) type SourceStep = ReadStep<SegmentOutcome>;

impl RunningSource {
    /// Prepares reading as planned. Reads nothing.
    pub(super) fn open(
        source: SourceNode,
        reading: SourcePlan,
        publisher: &Publisher<'_>,
        limits: ReadLimits,
    ) -> Result<Self, Error> {
        let setup = publisher.setup;
        let SourceNode { node, name, source, damage, segment, gives_places } = source;
        let SourcePlan { inputs, splits, query, .. } = reading;
        let mut context = setup.context(&name, damage_log(&damage));
        context.query = query.clone();
        context.run = context.run.sharing(&publisher.hashes);
        let (shared, through) = (setup.shared.clone(), Arc::clone(&segment));
        let add = move |batch: Batch, step: &mut SourceStep| {
            let batch = match gives_places {
                true => batch.with_places_from(step.output.tally.node(node).left.total() as i64),
                false => batch,
            };
            shared.run(&through, Some(node), batch, &mut step.output)?;
            step.memory = step.output.memory;
            Ok(())
        };
        let (reads_from, pool) = (Arc::clone(&source), setup.pool()?);
        let executor = move |task| run_task(&pool, task);
        Ok(Self {
            node,
            files: inputs.into_iter().map(|input| input.path).collect(),
            inputs: InputLog::new(&name, &splits),
            steps: ReadAhead::new(reads_from, splits.clone(), context, add, executor, limits),
            may_stall: splits.iter().any(may_stall),
            plan: (splits, query),
            name,
            source,
            damage,
            segment,
            turns: 0,
            last_data: Instant::now(),
            caught_up: Instant::now(),
            next_caught_up: (Instant::now(), 0),
            silent: false,
            ended: false,
            was_cut_short: false,
        })
    }

    /// Starts reading or listening.
    pub(super) fn begin(&mut self, setup: &Setup) -> Result<(), Error> {
        setup.shared.labels.call(self.node, || self.steps.begin())
    }

    /// Starts it again, at a time that was sought or as planned.
    pub(super) fn restart(&mut self, sought: Option<i64>, setup: &Setup) -> Result<(), Error> {
        let (mut splits, mut query) = self.plan.clone();
        if let Some(time) = sought {
            query.start = Some(query.start.map_or(time, |start| start.max(time)));
            let again = || self.source.splits(setup.split_bytes(), &query);
            splits = setup.shared.labels.call(self.node, again)?;
        }
        self.inputs = InputLog::new(&self.name, &splits);
        self.steps.restart(splits, query);
        self.ended = false;
        Ok(())
    }

    /// Whether asking it yields something without waiting for others.
    pub(super) fn has_data(&self) -> bool {
        !self.may_stall || self.steps.is_ready()
    }

    /// Whether it is live, as planned.
    pub(super) fn is_live(&self) -> bool {
        self.plan.0.iter().any(|split| split.live)
    }

    /// Whether it is live and has delivered nothing for a while.
    pub(super) fn has_been_silent(&self) -> bool {
        self.receives() && self.last_data.elapsed() >= SILENCE_TIMEOUT
    }

    /// Whether it is live, and all that has arrived has been read.
    pub(super) fn is_quiet(&self) -> bool {
        self.receives() && self.steps.backlog() == 0
    }

    /// Notes that it was asked for a step, and whether one was delivered.
    pub(super) fn note_asked(&mut self, is_step: bool) {
        let (until, steps) = &mut self.next_caught_up;
        *steps -= usize::from(is_step).min(*steps);
        if *steps == 0 {
            self.caught_up = *until;
            *until = Instant::now();
            *steps = self.steps.backlog();
        }
    }

    /// What is still to be delivered, also what cannot be read yet, arrived later than this, if it
    /// is live.
    pub(super) fn caught_up(&self) -> Option<Instant> {
        let now = Instant::now();
        let read = self.receives().then(|| if self.is_quiet() { now } else { self.caught_up })?;
        read.checked_sub(GATHERING_TIME)
    }

    /// Whether it is live now. Looks at no split of files, which may be many.
    fn receives(&self) -> bool {
        self.may_stall && self.steps.is_live()
    }
}

/// Whether reading a split may take as long as others please.
fn may_stall(split: &Split) -> bool {
    let is_program = split.input.as_os_str().is_empty();
    split.live || split.bytes.is_none() && (is_program || is_stream(&split.input))
}

/// The log for the damage of a source.
fn damage_log(damage: &OnDamage) -> DamageLog {
    match damage {
        OnDamage::Quarantine(_) => DamageLog::keeping_bytes(),
        _ => DamageLog::default(),
    }
}
