//! Topology: a pipeline's graph cut into what tasks run and what has to happen in order.
//!
//! Every ordered stream has a head: a source, a stage with memory, or a merge. What follows a head up
//! to the next place that needs order is its segment. Ports name those places.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use sluice_core::{Batch, DynSink, Error, Fold, Map, Source, Stage, StageContext, TimeWindow};

use super::segment::Branch;
use super::wanted::Wanted;
use crate::spec::{MakeStage, Node, OnDamage, Part};
use sluice_core::merge::{Merge, MergeWait};

/// What is behind a port.
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
}

pub(crate) struct FoldNode {
    pub(crate) node: usize,
    pub(crate) name: Arc<str>,
    pub(crate) fold: Box<dyn Fold>,
    /// Makes it again, without its memory.
    pub(crate) again: Again,
    pub(crate) origin: Option<i64>,
    pub(crate) wanted: TimeWindow,
    pub(crate) segment: Arc<Vec<Branch>>,
}

/// What makes a stage with memory again.
#[derive(Clone)]
pub(crate) struct Again {
    options: Value,
    make: Option<MakeStage>,
    /// Which part of the stage it is.
    part: usize,
}

impl Again {
    pub(crate) fn make(&self) -> Result<Box<dyn Fold>, Error> {
        let made = self.make.map(|make| make(self.options.clone()));
        let made = made.transpose().map_err(|e| Error::internal(e.to_string()))?;
        match made.and_then(|stage| stage.into_parts().into_iter().nth(self.part)) {
            Some(Stage::Fold(fold)) => Ok(fold),
            _ => Err(Error::internal("a stage with memory cannot be made again")),
        }
    }
}

pub(crate) struct MergeNode {
    /// The node it stands in front of.
    pub(crate) node: usize,
    pub(crate) merge: Merge,
    /// For each input, the sources (by place in [`Topology::sources`]) that feed it.
    pub(crate) roots: Vec<BTreeSet<usize>>,
    /// For each input, the merge that is nearest before it.
    pub(crate) fed_by: Vec<Option<usize>>,
    pub(crate) segment: Arc<Vec<Branch>>,
}

pub(crate) struct SinkNode {
    pub(crate) node: usize,
    pub(crate) name: Arc<str>,
    pub(crate) sink: Arc<dyn DynSink>,
}

/// What a chain of no stages does: lets everything pass.
struct Everything;

impl Map for Everything {
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
    /// Cuts the graph. `origins` holds, for each node, the time of the first event it can see, and `wanted`
    /// what is wanted of it.
    pub(crate) fn of(
        nodes: Vec<Node>,
        origins: &[Option<i64>],
        wanted: &Wanted,
        merge_limit: usize,
    ) -> Result<Self, Error> {
        let mut builder = Builder::new(nodes, origins, wanted, merge_limit);
        for node in 0..builder.from.len() {
            let Some(Part::Source(source)) = builder.take_source(node) else { continue };
            let segment = Arc::new(builder.after(node)?);
            let (name, damage) = builder.about(node);
            let source = Arc::from(source);
            builder.built.sources.push(SourceNode { node, name, source, damage, segment });
        }
        builder.built.note_feeders();
        Ok(builder.built)
    }

    /// Notes for each merge which others it feeds.
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

/// The ports that a segment leads to at once.
pub(crate) fn ports_of(segment: &[Branch]) -> Vec<usize> {
    let each = segment.iter().flat_map(|branch| match branch {
        Branch::Port(port) => vec![*port],
        Branch::Map { next, .. } => ports_of(next),
        Branch::Sink { .. } => Vec::new(),
    });
    each.collect()
}

struct Builder<'o> {
    parts: Vec<Option<Part>>,
    about: Vec<(Arc<str>, OnDamage)>,
    again: Vec<(Value, Option<MakeStage>)>,
    from: Vec<Vec<usize>>,
    roots: Vec<BTreeSet<usize>>,
    /// For each node, the one that decides when its events come.
    paces: Vec<usize>,
    /// For nodes with several inputs, the port each input arrives at, once it is made.
    inlets: Vec<Option<Vec<usize>>>,
    origins: &'o [Option<i64>],
    wanted: &'o Wanted,
    merge_limit: usize,
    built: Topology,
}

impl<'o> Builder<'o> {
    fn new(
        nodes: Vec<Node>,
        origins: &'o [Option<i64>],
        wanted: &'o Wanted,
        merge_limit: usize,
    ) -> Self {
        let from: Vec<Vec<usize>> = nodes.iter().map(|node| node.from.clone()).collect();
        let (roots, paces) = (roots(&from), paces(&nodes));
        // What may wait at one of several merges is its share of what may wait at all.
        let waits = |from: &&Vec<usize>| from.iter().any(|input| paces[*input] != paces[from[0]]);
        let merge_limit = merge_limit / from.iter().filter(waits).count().max(1);
        let inlets = vec![None; nodes.len()];
        let about =
            nodes.iter().map(|node| (node.name.as_str().into(), node.damage.clone())).collect();
        let again = nodes.iter().map(|node| (node.options.clone(), node.again)).collect();
        let parts = nodes.into_iter().map(|node| Some(node.part)).collect();
        let built = Topology::default();
        Self {
            parts,
            about,
            again,
            from,
            roots,
            paces,
            inlets,
            origins,
            wanted,
            merge_limit,
            built,
        }
    }

    fn take_source(&mut self, node: usize) -> Option<Part> {
        matches!(self.parts[node], Some(Part::Source(_))).then(|| self.parts[node].take()).flatten()
    }

    fn about(&self, node: usize) -> (Arc<str>, OnDamage) {
        self.about[node].clone()
    }

    /// The branches by which what comes out of `node` goes on.
    fn after(&mut self, node: usize) -> Result<Vec<Branch>, Error> {
        let users: Vec<usize> =
            (0..self.from.len()).filter(|user| self.from[*user].contains(&node)).collect();
        users.into_iter().map(|user| self.edge(node, user)).collect()
    }

    fn edge(&mut self, node: usize, user: usize) -> Result<Branch, Error> {
        if self.from[user].len() == 1 {
            return self.enter(user);
        }
        let inlets = match self.inlets[user].clone() {
            Some(inlets) => inlets,
            None => self.merge_into(user)?,
        };
        let input = self.from[user].iter().position(|from| *from == node);
        let input = input.ok_or_else(|| Error::internal("an edge that no node names"))?;
        Ok(Branch::Port(inlets[input]))
    }

    fn enter(&mut self, node: usize) -> Result<Branch, Error> {
        let part = self.parts[node].take();
        match part.ok_or_else(|| Error::internal("a node is entered twice"))? {
            Part::Sink(sink) => {
                let sink: Arc<dyn DynSink> = Arc::from(sink);
                let (name, _) = self.about(node);
                self.built.sinks.push(SinkNode { node, name, sink: Arc::clone(&sink) });
                Ok(Branch::Sink { node, sink })
            }
            Part::Stage(stage) => self.enter_stage(node, stage),
            Part::Source(_) => Err(Error::internal("a source has an input")),
        }
    }

    /// A stage that is made of others is a line of branches, all of which are counted for its node.
    fn enter_stage(&mut self, node: usize, stage: Stage) -> Result<Branch, Error> {
        let mut parts = stage.into_parts();
        if parts.is_empty() {
            parts.push(Stage::Map(Box::new(Everything)));
        }
        let mut next = self.after(node)?;
        for (place, part) in parts.into_iter().enumerate().rev() {
            next = vec![self.enter_part(node, place, part, next)?];
        }
        next.pop().ok_or_else(|| Error::internal("a stage without parts"))
    }

    fn enter_part(
        &mut self,
        node: usize,
        place: usize,
        part: Stage,
        next: Vec<Branch>,
    ) -> Result<Branch, Error> {
        let (origin, wanted) = (self.origins[node], self.wanted.of_part(node, place));
        match part {
            Stage::Map(map) => Ok(Branch::Map { node, map: Arc::from(map), origin, wanted, next }),
            Stage::Fold(fold) => {
                let (options, make) = self.again[node].clone();
                let (again, segment) = (Again { options, make, part: place }, Arc::new(next));
                let (name, _) = self.about(node);
                let fold = FoldNode { node, name, fold, again, origin, wanted, segment };
                self.built.folds.push(fold);
                Ok(Branch::Port(self.port(Port::Fold(self.built.folds.len() - 1))))
            }
            Stage::Chain(_) => Err(Error::internal("a chain among the parts of a chain")),
        }
    }

    /// Makes the merge in front of a node with several inputs; gives the port of each input.
    ///
    /// Inputs that come at the same pace are put together first, step by step; then the groups are
    /// merged by time.
    fn merge_into(&mut self, node: usize) -> Result<Vec<usize>, Error> {
        let inputs = self.from[node].clone();
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        for (place, input) in inputs.iter().enumerate() {
            let pace = self.paces[*input];
            match groups.iter_mut().find(|(known, _)| *known == pace) {
                Some((_, places)) => places.push(place),
                None => groups.push((pace, vec![place])),
            }
        }
        let entry = vec![self.enter(node)?];
        let mut inlets = vec![0; inputs.len()];
        if let [(pace, places)] = &groups[..] {
            let roots = vec![self.roots[*pace].clone(); places.len()];
            let merge = self.merge(node, MergeWait::Step, roots, entry);
            self.connect(merge, places, &mut inlets);
        } else {
            let roots = groups.iter().map(|(pace, _)| self.roots[*pace].clone()).collect();
            let outer = self.merge(node, MergeWait::Source, roots, entry);
            for (n, (pace, places)) in groups.iter().enumerate() {
                let port = self.port(Port::Merge(outer, n));
                if let [only] = places[..] {
                    inlets[only] = port;
                    continue;
                }
                let roots = vec![self.roots[*pace].clone(); places.len()];
                let inner = self.merge(node, MergeWait::Step, roots, vec![Branch::Port(port)]);
                self.connect(inner, places, &mut inlets);
            }
        }
        self.inlets[node] = Some(inlets.clone());
        Ok(inlets)
    }

    fn merge(
        &mut self,
        node: usize,
        patience: MergeWait,
        roots: Vec<BTreeSet<usize>>,
        segment: Vec<Branch>,
    ) -> usize {
        // Only where a source feeds two inputs can one of them grow while the other is waited for.
        let shares = |(n, set): (usize, &BTreeSet<usize>)| {
            roots.iter().take(n).any(|other| !other.is_disjoint(set))
        };
        let grows = patience == MergeWait::Source && roots.iter().enumerate().any(shares);
        let limit = if grows { self.merge_limit } else { usize::MAX };
        let (merge, fed_by) = (Merge::new(roots.len(), patience, limit), vec![None; roots.len()]);
        let segment = Arc::new(segment);
        self.built.merges.push(MergeNode { node, merge, roots, fed_by, segment });
        self.built.merges.len() - 1
    }

    fn connect(&mut self, merge: usize, places: &[usize], inlets: &mut [usize]) {
        for (input, place) in places.iter().enumerate() {
            inlets[*place] = self.port(Port::Merge(merge, input));
        }
    }

    fn port(&mut self, port: Port) -> usize {
        self.built.ports.push(port);
        self.built.ports.len() - 1
    }
}

/// For each node, the one that decides when its events come: its source, or what last held them back, a
/// stage with memory or a merge that waits for its inputs. What comes at one pace comes within one step.
fn paces(nodes: &[Node]) -> Vec<usize> {
    let mut paces: Vec<usize> = (0..nodes.len()).collect();
    // Each round settles at least the nodes behind those that are settled.
    loop {
        let before = paces.clone();
        for (place, node) in nodes.iter().enumerate() {
            let mut inputs = node.from.iter().map(|input| paces[*input]);
            let Some(first) = inputs.next() else { continue };
            let holds = matches!(&node.part, Part::Stage(stage) if holds(stage));
            paces[place] = if holds || inputs.any(|other| other != first) { place } else { first };
        }
        if paces == before {
            return paces;
        }
    }
}

fn holds(stage: &Stage) -> bool {
    stage.parts().into_iter().any(|part| matches!(part, Stage::Fold(fold) if fold.delays_events()))
}

/// For each node, which sources it hears, by their order among the sources.
fn roots(from: &[Vec<usize>]) -> Vec<BTreeSet<usize>> {
    let order: Vec<usize> = (0..from.len()).filter(|node| from[*node].is_empty()).collect();
    let mut roots: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); from.len()];
    for (place, source) in order.iter().enumerate() {
        roots[*source].insert(place);
    }
    // A graph without cycles is settled after as many rounds as it has nodes, mostly after a few.
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
