//! What the parts of an executor share: its options, and the channel for messages to the user.

use std::path::PathBuf;

use sluice_pipeline::dispatch::ProgramIdentity;
use tokio::sync::mpsc;

use crate::endpoint::SchedulerEndpoint;

/// Options of an executor.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    /// The scheduler.
    pub scheduler: SchedulerEndpoint,
    /// The name of the executor; the host name by default.
    pub name: Option<String>,
    /// How many units run at a time.
    pub slots: usize,
    /// How many threads each unit uses.
    pub jobs: usize,
    /// Where Ballista keeps its (small) files; a temporary folder by default.
    pub work_dir: Option<PathBuf>,
    /// Whether pipelines may run programs here.
    pub allow_exec: bool,
    /// The version and plugins of this program.
    pub program: ProgramIdentity,
}

/// Where tasks of the executor send messages for the user.
pub(crate) type MessageSender = mpsc::Sender<String>;

/// Sends a message for the user.
pub(super) async fn send_message(messages: &MessageSender, text: String) {
    // At shutdown nobody receives it.
    drop(messages.send(text).await);
}
