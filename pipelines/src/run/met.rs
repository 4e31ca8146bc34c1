//! What nodes met whose options name channels or fields: under which names events came, and which
//! columns rows had. Counts nothing, and looks at no other node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_core::counts::channels_by_origin;
use sluice_core::{Batch, DeclaredColumns, TypeKey};

use crate::names::SearchedName;
use crate::spec::Node;

/// What is noted at a node.
#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    channels: bool,
    fields: bool,
}

/// Which nodes have names in their options, by their places in the pipeline.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamingNodes(Arc<[Noted]>);

impl NamingNodes {
    pub(crate) fn of(nodes: &[Node]) -> Self {
        let noted = |node: &Node| Noted {
            channels: node.names.iter().any(|n| matches!(n.name, SearchedName::Channel(_))),
            fields: node.names.iter().any(|n| matches!(n.name, SearchedName::Field(_))),
        };
        Self(nodes.iter().map(noted).collect())
    }

    /// What there is to note of a batch that a node is given; nothing if nobody asks.
    pub(crate) fn entered(&self, node: usize, batch: &Batch) -> Option<Met> {
        let noted = self.0.get(node).copied().unwrap_or_default();
        if !noted.channels && !noted.fields {
            return None;
        }
        let mut met = Met::default();
        if noted.channels {
            met.entered = channels_by_origin(batch);
        }
        if noted.fields {
            met.note_columns(batch);
        }
        Some(met)
    }

    /// The same for a batch that a node lets go on.
    pub(crate) fn left(&self, node: usize, batch: &Batch) -> Option<Met> {
        let noted = self.0.get(node).copied().unwrap_or_default();
        noted.channels.then(|| Met {
            left: channels_by_origin(batch).into_iter().map(|(read, _)| read).collect(),
            ..Met::default()
        })
    }
}

/// What a node met.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    /// The channels of events that came: as they were read, and as they are called there.
    pub(crate) entered: BTreeSet<(u32, u32)>,
    /// The channels of events that went on, as they were read.
    pub(crate) left: BTreeSet<u32>,
    /// The columns of rows that came, by type.
    columns: BTreeMap<(Arc<str>, TypeKey), DeclaredColumns>,
}

/// A damaged log may have a type for each event.
const MOST_TYPES: usize = 1024;

impl Met {
    pub(crate) fn add(&mut self, other: &Self) {
        self.entered.extend(&other.entered);
        self.left.extend(&other.left);
        for (kind, columns) in &other.columns {
            if self.columns.len() < MOST_TYPES {
                self.columns.entry(kind.clone()).or_insert_with(|| columns.clone());
            }
        }
    }

    /// The columns of all rows that came.
    pub(crate) fn columns(&self) -> DeclaredColumns {
        let mut all = DeclaredColumns::default();
        self.columns.values().cloned().for_each(|columns| all.add(columns));
        all
    }

    fn note_columns(&mut self, batch: &Batch) {
        for rows in batch.rows().iter().take(MOST_TYPES) {
            let kind = (Arc::clone(&rows.message.name), rows.message.key);
            self.columns
                .entry(kind)
                .or_insert_with(|| DeclaredColumns::from_schemas(vec![rows.columns.schema()]));
        }
    }
}
