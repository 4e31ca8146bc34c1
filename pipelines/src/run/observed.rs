//! What nodes with names in their options observed: the names under which events arrived, and the
//! columns of rows. Counts nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_kit::counts::channels_by_origin;
use sluice_model::{Batch, DeclaredColumns, TypeKey};

use crate::names::SearchedName;
use crate::spec::PipelineNode;

/// What to observe at a node.
#[derive(Clone, Copy, Debug, Default)]
struct ObservedKinds {
    channels: bool,
    fields: bool,
}

/// The nodes with names in their options, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamingNodes(Arc<[ObservedKinds]>);

impl NamingNodes {
    pub(crate) fn from_nodes(nodes: &[PipelineNode]) -> Self {
        let noted = |node: &PipelineNode| ObservedKinds {
            channels: node.names.iter().any(|n| matches!(n.name, SearchedName::Channel(_))),
            fields: node.names.iter().any(|n| n.name.field().is_some()),
        };
        Self(nodes.iter().map(noted).collect())
    }

    /// Observes a batch that enters a node; `None` if the node has no names.
    pub(crate) fn entered(&self, node: usize, batch: &Batch) -> Option<ObservedNames> {
        let noted = self.0.get(node).copied().unwrap_or_default();
        if !noted.channels && !noted.fields {
            return None;
        }
        let mut observed = ObservedNames::default();
        if noted.channels {
            observed.entered = channels_by_origin(batch);
        }
        if noted.fields {
            observed.note_columns(batch);
        }
        Some(observed)
    }

    /// The same for a batch that leaves a node.
    pub(crate) fn left(&self, node: usize, batch: &Batch) -> Option<ObservedNames> {
        let noted = self.0.get(node).copied().unwrap_or_default();
        noted.channels.then(|| ObservedNames {
            left: channels_by_origin(batch).into_iter().map(|(read, _)| read).collect(),
            ..ObservedNames::default()
        })
    }
}

/// What a node observed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedNames {
    /// The channels of entering events: the original and the current one.
    pub(crate) entered: BTreeSet<(u32, u32)>,
    /// The original channels of leaving events.
    pub(crate) left: BTreeSet<u32>,
    /// The columns of entering rows, by type.
    columns: BTreeMap<(Arc<str>, TypeKey), DeclaredColumns>,
}

/// A damaged log may have a new type for each event.
const MAX_TYPES: usize = 1024;

impl ObservedNames {
    pub(crate) fn add(&mut self, other: &Self) {
        self.entered.extend(&other.entered);
        self.left.extend(&other.left);
        for (kind, columns) in &other.columns {
            if self.columns.len() < MAX_TYPES {
                self.columns.entry(kind.clone()).or_insert_with(|| columns.clone());
            }
        }
    }

    /// The columns of all entering rows.
    pub(crate) fn columns(&self) -> DeclaredColumns {
        let mut all = DeclaredColumns::default();
        self.columns.values().cloned().for_each(|columns| all.add(columns));
        all
    }

    fn note_columns(&mut self, batch: &Batch) {
        for rows in batch.rows().iter().take(MAX_TYPES) {
            let kind = (Arc::clone(&rows.message.name), rows.message.key);
            self.columns
                .entry(kind)
                .or_insert_with(|| DeclaredColumns::from_schemas(vec![rows.columns.schema()]));
        }
    }
}
