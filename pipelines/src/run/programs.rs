//! Programs that nodes run: whether the run allows them, and their connection to it. Starts none.

use std::sync::Arc;

use sluice_io::escape::printable;
use sluice_model::{Error, ErrorKind, RunHost};

use super::stop::Interruption;
use super::{Options, Progress, Stop};
use crate::spec::{Pipeline, PipelineNode};

/// Checks that the options allow the pipeline to run programs. `Err` lists the nodes that run
/// programs, with their commands.
pub fn check_programs_allowed(pipeline: &Pipeline, options: &Options) -> Result<(), Error> {
    let programs = |node: &PipelineNode| {
        let program = node.program.as_ref()?;
        Some(format!("\n  {} `{}` runs {}", node.kind, node.name, printable(&program.line)))
    };
    let programs: String = pipeline.nodes.iter().filter_map(programs).collect();
    if programs.is_empty() || options.allow_exec {
        return Ok(());
    }
    let what = format!(
        "this pipeline runs programs, which needs --allow-exec, because programs have all your \
         rights; nothing was done:{programs}"
    );
    Err(ErrorKind::NotAllowed(what).into())
}

/// The run, as its nodes see it.
pub(super) struct NodeHost {
    pub(super) stop: Arc<Stop>,
    pub(super) interruption: Interruption,
    pub(super) progress: Option<Arc<dyn Progress>>,
}

impl RunHost for NodeHost {
    fn log_line(&self, node: &str, line: &str) {
        if let Some(progress) = &self.progress {
            progress.program_output(node, line);
        }
    }

    fn note(&self, node: &str, what: &str, count: u64) {
        if let Some(progress) = &self.progress {
            progress.note(node, what, count);
        }
    }

    fn is_aborted(&self) -> bool {
        self.interruption.is_discarded(&self.stop)
    }
}
