//! Topology: a pipeline's graph, cut into what tasks run and what has to happen in order.
//!
//! Every ordered stream has a head: a source, a fold or a merge. What follows a head up to the next
//! place that needs order is its segment. Ports name those places.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use sluice_model::{Batch, DynSink, Error, Fold, Map, Source, Stage, StageContext, TimeWindow};

use super::pushdown::Pushdown;
use super::segment::Branch;
use crate::spec::{OnDamage, PipelineNode, PluginInstance, StageFactory};
use sluice_kit::merge::{Merge, MergeWait};

/// The node behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Fold(usize),
    Merge(usize, usize),
}

pub(crate) struct SourceNode {
    pub(crate) node: usize,
    pub(crate) name: Arc<str>,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) damage: OnDamage,
    pub(crate) segment: Arc<Vec<Branch>>,
    /// Whether merges restore the order of its events: see [`Batch::places`].
    pub(crate) gives_places: bool,
}

pub(crate) struct FoldNode {
    pub(crate) node: usize,
    pub(crate) name: Arc<str>,
    pub(crate) fold: Box<dyn Fold>,
    /// Recreates it with empty state.
    pub(crate) factory: FoldFactory,
    pub(crate) origin: Option<i64>,
    pub(crate) window: TimeWindow,
    pub(crate) segment: Arc<Vec<Branch>>,
    /// Whether merges restore the order in which events come out. If it delays none, they restore
    /// that of what came in.
    pub(crate) gives_places: bool,
}

/// Recreates a fold.
#[derive(Clone)]
pub(crate) struct FoldFactory {
    make: Option<StageFactory>,
    /// The index of the fold among the stage's parts.
    part: usize,
}

impl FoldFactory {
    pub(crate) fn make(&self) -> Result<Box<dyn Fold>, Error> {
        let made = self.make.as_ref().map(StageFactory::make);
        let made = made.transpose().map_err(|e| Error::internal(e.to_string()))?;
        match made.and_then(|stage| stage.into_parts().into_iter().nth(self.part)) {
            Some(Stage::Fold(fold)) => Ok(fold),
            _ => Err(Error::internal("a fold cannot be created again")),
        }
    }
}

pub(crate) struct MergeNode {
    /// The node it merges for.
    pub(crate) node: usize,
    pub(crate) merge: Merge,
    /// For each input, the sources (by index in [`Topology::sources`]) that feed it.
    pub(crate) roots: Vec<BTreeSet<usize>>,
    /// For each input, whether it comes from one source without a stage that delays events; and in
    /// a merge of several sources, whether that holds for all, and no other one is shifted further.
    pub(crate) is_undelayed: Vec<bool>,
    /// For each input, when events last came.
    pub(crate) last_push: Vec<Instant>,
    /// For each input, the nearest merge before it.
    pub(crate) fed_by: Vec<Option<usize>>,
    pub(crate) segment: Arc<Vec<Branch>>,
    /// Whether other merges restore the order in which events come out. If it restores an order
    /// itself, they restore the same one.
    pub(crate) gives_places: bool,
}

pub(crate) struct SinkNode {
    pub(crate) node: usize,
    pub(crate) name: Arc<str>,
    pub(crate) sink: DynSink,
}

/// An empty chain: lets every event pass.
struct PassThrough;

impl Map for PassThrough {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        Ok(batch)
    }
}

#[derive(Default)]
pub(crate) struct Topology {
    pub(crate) sources: Vec<SourceNode>,
    pub(crate) folds: Vec<FoldNode>,
    /// Merges that others feed come after those they feed.
    pub(crate) merges: Vec<MergeNode>,
    pub(crate) sinks: Vec<SinkNode>,
    pub(crate) ports: Vec<Port>,
}

impl Topology {
    /// Cuts the graph. `origins` holds, for each node, the time of the first event it can see;
    /// `wanted` holds the pushed-down queries.
    pub(crate) fn build(
        nodes: Vec<PipelineNode>,
        origins: &[Option<i64>],
        wanted: &Pushdown,
        merge_limit: usize,
    ) -> Result<Self, Error> {
        let mut builder = TopologyBuilder::new(nodes, origins, wanted, merge_limit);
        for node in 0..builder.from.len() {
            let Some(PluginInstance::Source(source)) = builder.take_source(node) else { continue };
            let segment = Arc::new(builder.branches_after(node)?);
            let (name, damage) = builder.label(node);
            let source = Arc::from(source);
            let gives_places = builder.built.needs_places(&segment);
            let source = SourceNode { node, name, source, damage, segment, gives_places };
            builder.built.sources.push(source);
        }
        builder.built.note_feeders();
        Ok(builder.built)
    }

    /// Whether a merge restores the order of the stream that flows into a segment.
    fn needs_places(&self, segment: &[Branch]) -> bool {
        ports_of(segment).into_iter().any(|port| match self.ports[port] {
            Port::Fold(fold) if self.folds[fold].fold.delays_events() => false,
            Port::Fold(fold) => self.needs_places(&self.folds[fold].segment),
            Port::Merge(merge, _) => self.merges[merge].merge.wait() != MergeWait::Source,
        })
    }

    /// Records for each merge which others it feeds.
    fn note_feeders(&mut self) {
        for merge in 0..self.merges.len() {
            let mut segments = vec![Arc::clone(&self.merges[merge].segment)];
            while let Some(segment) = segments.pop() {
                for port in ports_of(&segment) {
                    match self.ports[port] {
                        Port::Fold(fold) => segments.push(Arc::clone(&self.folds[fold].segment)),
                        Port::Merge(fed, input) => self.merges[fed].fed_by[input] = Some(merge),
                    }
                }
            }
        }
    }
}

/// The ports that a segment leads to directly.
pub(crate) fn ports_of(segment: &[Branch]) -> Vec<usize> {
    let each = segment.iter().flat_map(|branch| match branch {
        Branch::Port(port) => vec![*port],
        Branch::Map { next, .. } => ports_of(next),
        Branch::Sink { .. } => Vec::new(),
    });
    each.collect()
}

struct TopologyBuilder<'o> {
    parts: Vec<Option<PluginInstance>>,
    node_labels: Vec<(Arc<str>, OnDamage)>,
    stage_factories: Vec<Option<StageFactory>>,
    from: Vec<Vec<usize>>,
    roots: Vec<BTreeSet<usize>>,
    paces: Vec<Pace>,
    /// For nodes with several inputs, the port of each input, once it exists.
    inlets: Vec<Option<Vec<usize>>>,
    origins: &'o [Option<i64>],
    pushdown: &'o Pushdown,
    merge_limit: usize,
    built: Topology,
}

impl<'o> TopologyBuilder<'o> {
    fn new(
        nodes: Vec<PipelineNode>,
        origins: &'o [Option<i64>],
        wanted: &'o Pushdown,
        merge_limit: usize,
    ) -> Self {
        let from: Vec<Vec<usize>> = nodes.iter().map(|node| node.from.clone()).collect();
        let (roots, paces) = (roots(&from), paces(&nodes));
        // Each of several merges gets its share of the memory for waiting events.
        let waiting: usize = from.iter().map(|inputs| waiting_merges(inputs, &paces)).sum();
        let merge_limit = merge_limit / waiting.max(1);
        let inlets = vec![None; nodes.len()];
        let about =
            nodes.iter().map(|node| (node.name.as_str().into(), node.damage.clone())).collect();
        let again = nodes.iter().map(|node| node.stage_factory.clone()).collect();
        let parts = nodes.into_iter().map(|node| Some(node.instance)).collect();
        let built = Topology::default();
        Self {
            parts,
            node_labels: about,
            stage_factories: again,
            from,
            roots,
            paces,
            inlets,
            origins,
            pushdown: wanted,
            merge_limit,
            built,
        }
    }

    fn take_source(&mut self, node: usize) -> Option<PluginInstance> {
        matches!(self.parts[node], Some(PluginInstance::Source(_)))
            .then(|| self.parts[node].take())
            .flatten()
    }

    fn label(&self, node: usize) -> (Arc<str>, OnDamage) {
        self.node_labels[node].clone()
    }

    /// The branches that follow `node`.
    fn branches_after(&mut self, node: usize) -> Result<Vec<Branch>, Error> {
        let users: Vec<usize> =
            (0..self.from.len()).filter(|user| self.from[*user].contains(&node)).collect();
        users.into_iter().map(|user| self.edge(node, user)).collect()
    }

    fn edge(&mut self, node: usize, user: usize) -> Result<Branch, Error> {
        if self.from[user].len() == 1 {
            return self.branch_into(user);
        }
        let inlets = match self.inlets[user].clone() {
            Some(inlets) => inlets,
            None => self.merge_into(user)?,
        };
        let input = self.from[user].iter().position(|from| *from == node);
        let input = input.ok_or_else(|| Error::internal("an edge that no node names"))?;
        Ok(Branch::Port(inlets[input]))
    }

    fn branch_into(&mut self, node: usize) -> Result<Branch, Error> {
        let part = self.parts[node].take();
        match part.ok_or_else(|| Error::internal("a node is entered twice"))? {
            PluginInstance::Sink(sink) => {
                let (name, _) = self.label(node);
                self.built.sinks.push(SinkNode { node, name, sink: sink.clone() });
                Ok(Branch::Sink { node, sink })
            }
            PluginInstance::Stage(stage) => self.branch_into_stage(node, stage),
            PluginInstance::Source(_) => Err(Error::internal("a source has an input")),
        }
    }

    /// A chain becomes a line of branches, all counted for its node.
    fn branch_into_stage(&mut self, node: usize, stage: Stage) -> Result<Branch, Error> {
        let origins = stage.origins(self.origins[node]);
        let mut parts = stage.into_parts();
        if parts.is_empty() {
            parts.push(Stage::Map(Box::new(PassThrough)));
        }
        let mut next = self.branches_after(node)?;
        for (place, (part, origin)) in parts.into_iter().zip(origins).enumerate().rev() {
            next = vec![self.branch_into_part((node, place, origin), part, next)?];
        }
        next.pop().ok_or_else(|| Error::internal("a stage without parts"))
    }

    fn branch_into_part(
        &mut self,
        (node, place, origin): (usize, usize, Option<i64>),
        part: Stage,
        next: Vec<Branch>,
    ) -> Result<Branch, Error> {
        let wanted = self.pushdown.query_after(node, place);
        match part {
            Stage::Map(map) => {
                Ok(Branch::Map { node, map: Arc::from(map), origin, needed: wanted, next })
            }
            Stage::Fold(fold) => {
                let make = self.stage_factories[node].clone();
                let (again, segment) = (FoldFactory { make, part: place }, Arc::new(next));
                let (name, _) = self.label(node);
                let window = wanted.window();
                let gives_places = fold.delays_events() && self.built.needs_places(&segment);
                self.built.folds.push(FoldNode {
                    node,
                    name,
                    fold,
                    factory: again,
                    origin,
                    window,
                    segment,
                    gives_places,
                });
                Ok(Branch::Port(self.port(Port::Fold(self.built.folds.len() - 1))))
            }
            Stage::Chain(_) => Err(Error::internal("a chain among the parts of a chain")),
        }
    }

    /// Creates the merge in front of a node with several inputs; returns the port of each input.
    ///
    /// Inputs of the same pace are merged first, step by step, then these groups by time.
    fn merge_into(&mut self, node: usize) -> Result<Vec<usize>, Error> {
        let inputs = self.from[node].clone();
        let groups = pace_groups(&inputs, &self.paces);
        let entry = vec![self.branch_into(node)?];
        let mut inlets = vec![0; inputs.len()];
        if let [(by, places)] = &groups[..] {
            self.merge_steps(node, (*by, places), entry, &mut inlets);
        } else {
            let roots: Vec<_> = groups.iter().map(|(by, _)| self.roots[*by].clone()).collect();
            // Only if a source feeds two inputs can one of them grow while the other is waited for.
            let shares = |(n, set): (usize, &BTreeSet<usize>)| {
                roots.iter().take(n).any(|other| !other.is_disjoint(set))
            };
            let grows = roots.iter().enumerate().any(shares);
            let limit = if grows { self.merge_limit } else { usize::MAX };
            let merge = Merge::new(groups.len(), limit);
            let outer = self.merge(node, merge, roots, entry);
            let is_undelayed = groups.iter().all(|(by, _)| self.from[*by].is_empty());
            let furthest = inputs.iter().map(|input| self.paces[*input].shift).max();
            for (n, (by, places)) in groups.iter().enumerate() {
                let is_furthest =
                    |place: &usize| Some(self.paces[inputs[*place]].shift) == furthest;
                self.built.merges[outer].is_undelayed[n] =
                    is_undelayed && places.iter().all(is_furthest);
                let port = self.port(Port::Merge(outer, n));
                if let [only] = places[..] {
                    inlets[only] = port;
                    continue;
                }
                self.merge_steps(node, (*by, places), vec![Branch::Port(port)], &mut inlets);
            }
        }
        self.inlets[node] = Some(inlets.clone());
        Ok(inlets)
    }

    /// Merges inputs of `node`, given by their places, that have the same pace: first those with
    /// the same shift, in the order of their source, then these by time.
    fn merge_steps(
        &mut self,
        node: usize,
        (by, places): (usize, &[usize]),
        mut segment: Vec<Branch>,
        inlets: &mut [usize],
    ) {
        let mut shifts: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for place in places {
            shifts.entry(self.paces[self.from[node][*place]].shift).or_default().push(*place);
        }
        let mut ports = Vec::new();
        if shifts.len() > 1 {
            let descending = shifts.keys().rev().copied().collect();
            let merge = Merge::shifted(descending, self.merge_limit);
            ports = self.merge_split((node, by), merge, shifts.len(), std::mem::take(&mut segment));
        }
        for (_, places) in shifts {
            // Ports are in descending order of shifts.
            let port = ports.pop();
            if let ([only], Some(port)) = (&places[..], port) {
                inlets[*only] = port;
                continue;
            }
            let next = port.map_or_else(|| std::mem::take(&mut segment), |p| vec![Branch::Port(p)]);
            let merge = Merge::of_split(places.len());
            let ports = self.merge_split((node, by), merge, places.len(), next);
            places.iter().zip(ports).for_each(|(place, port)| inlets[*place] = port);
        }
    }

    /// Creates a merge of streams that were split from node `by`. Returns the port of each input.
    fn merge_split(
        &mut self,
        (node, by): (usize, usize),
        merge: Merge,
        inputs: usize,
        segment: Vec<Branch>,
    ) -> Vec<usize> {
        let roots = vec![self.roots[by].clone(); inputs];
        let merge = self.merge(node, merge, roots, segment);
        self.built.merges[merge].is_undelayed.fill(self.from[by].is_empty());
        (0..inputs).map(|input| self.port(Port::Merge(merge, input))).collect()
    }

    fn merge(
        &mut self,
        node: usize,
        merge: Merge,
        roots: Vec<BTreeSet<usize>>,
        segment: Vec<Branch>,
    ) -> usize {
        let gives_places = merge.wait() != MergeWait::Step && self.built.needs_places(&segment);
        self.built.merges.push(MergeNode {
            node,
            merge,
            gives_places,
            is_undelayed: vec![false; roots.len()],
            last_push: vec![Instant::now(); roots.len()],
            fed_by: vec![None; roots.len()],
            roots,
            segment: Arc::new(segment),
        });
        self.built.merges.len() - 1
    }

    fn port(&mut self, port: Port) -> usize {
        self.built.ports.push(port);
        self.built.ports.len() - 1
    }
}

/// When the events of a node arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    /// The node that decides it: the source, or the last node that held them back, a fold or a
    /// merge that waits for its inputs. Events of one such node arrive within one step.
    by: usize,
    /// What was added to their times since then.
    shift: i64,
}

fn paces(nodes: &[PipelineNode]) -> Vec<Pace> {
    let mut paces: Vec<Pace> = (0..nodes.len()).map(|by| Pace { by, shift: 0 }).collect();
    // Each round settles at least the successors of settled nodes.
    loop {
        let before = paces.clone();
        for (place, node) in nodes.iter().enumerate() {
            let mut inputs = node.from.iter().map(|input| paces[*input]);
            let Some(first) = inputs.next() else { continue };
            let (holds, shift) = match &node.instance {
                PluginInstance::Stage(stage) => (holds(stage), stage.shift()),
                _ => (false, 0),
            };
            paces[place] = if holds || inputs.any(|other| other != first) {
                Pace { by: place, shift: 0 }
            } else {
                Pace { shift: first.shift.saturating_add(shift), ..first }
            };
        }
        if paces == before {
            return paces;
        }
    }
}

/// The inputs of a node, by their places, that have the same pace.
fn pace_groups(inputs: &[usize], paces: &[Pace]) -> Vec<(usize, Vec<usize>)> {
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for (place, input) in inputs.iter().enumerate() {
        let by = paces[*input].by;
        match groups.iter_mut().find(|(known, _)| *known == by) {
            Some((_, places)) => places.push(place),
            None => groups.push((by, vec![place])),
        }
    }
    groups
}

/// How many merges in front of a node wait for more than a step.
fn waiting_merges(inputs: &[usize], paces: &[Pace]) -> usize {
    let groups = pace_groups(inputs, paces);
    let is_shifted = |(_, places): &&(usize, Vec<usize>)| {
        places.iter().any(|place| paces[inputs[*place]] != paces[inputs[places[0]]])
    };
    usize::from(groups.len() > 1) + groups.iter().filter(is_shifted).count()
}

fn holds(stage: &Stage) -> bool {
    stage.parts().into_iter().any(|part| matches!(part, Stage::Fold(fold) if fold.delays_events()))
}

/// For each node, the sources that feed it, by their order among the sources.
fn roots(from: &[Vec<usize>]) -> Vec<BTreeSet<usize>> {
    let order: Vec<usize> = (0..from.len()).filter(|node| from[*node].is_empty()).collect();
    let mut roots: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); from.len()];
    for (place, source) in order.iter().enumerate() {
        roots[*source].insert(place);
    }
    // An acyclic graph is settled after at most as many rounds as it has nodes, usually after a
    // few.
    loop {
        let before = roots.clone();
        for (node, inputs) in from.iter().enumerate() {
            for input in inputs {
                let more = roots[*input].clone();
                roots[node].extend(more);
            }
        }
        if roots == before {
            return roots;
        }
    }
}
