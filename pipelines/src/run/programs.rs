//! Programs that nodes run: whether a run may have them, and what they have to do with it. Starts none.

use std::sync::Arc;

use sluice_core::name::printable;
use sluice_core::{Error, ErrorKind, programs};

use super::stop::Interruption;
use super::{Options, Progress, Stop};
use crate::spec::{Node, Pipeline};

/// Whether these options allow what the pipeline does. `Err` lists the nodes that run programs, with
/// their commands.
pub fn allowed(pipeline: &Pipeline, options: &Options) -> Result<(), Error> {
    let told = |node: &Node| {
        let program = node.program.as_ref()?;
        Some(format!("\n  {} `{}` runs {}", node.kind, node.name, printable(&program.line)))
    };
    let told: String = pipeline.nodes.iter().filter_map(told).collect();
    if told.is_empty() || options.allow_exec {
        return Ok(());
    }
    let what = format!(
        "this pipeline runs programs, which is done only with --allow-exec, since they may do whatever \
         you may; nothing was done:{told}"
    );
    Err(ErrorKind::NotAllowed(what).into())
}

/// The run as programs see it.
pub(super) struct Host {
    pub(super) stop: Arc<Stop>,
    pub(super) interruption: Interruption,
    pub(super) progress: Option<Arc<dyn Progress>>,
}

impl programs::RunHost for Host {
    fn log_line(&self, node: &str, line: &str) {
        if let Some(progress) = &self.progress {
            progress.said(node, line);
        }
    }

    fn is_aborted(&self) -> bool {
        self.interruption.has_given_up(&self.stop)
    }
}
