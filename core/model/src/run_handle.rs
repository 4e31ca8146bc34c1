//! A node's connection to its run: whether it was cancelled, what it has read, and what the engine
//! offers to single nodes.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The part of the engine that nodes can call.
pub trait RunHost: Send + Sync {
    /// Logs a line that a program of this node has printed. Must not block.
    fn log_line(&self, node: &str, line: &str);

    /// Shows a note of this node as it appears, with how often it happened; 0 for a note without a
    /// count. Must not block.
    fn note(&self, node: &str, what: &str, count: u64);

    /// Whether the run is aborted.
    fn is_aborted(&self) -> bool;
}

/// A node's connection to its run. Cheap to clone; the default is connected to no run.
#[derive(Clone, Default)]
pub struct RunHandle {
    node: Arc<str>,
    host: Option<Arc<dyn RunHost>>,
    cancelled: Arc<AtomicBool>,
    abandoned: Arc<AtomicBool>,
    bytes_read: Arc<AtomicU64>,
    shared: Vec<Arc<dyn Any + Send + Sync>>,
}

impl RunHandle {
    /// The handle of a node. `cancelled` is set when the run ends early.
    pub fn new(
        node: impl Into<Arc<str>>,
        host: Arc<dyn RunHost>,
        cancelled: Arc<AtomicBool>,
    ) -> Self {
        Self { node: node.into(), host: Some(host), cancelled, ..Self::default() }
    }

    /// The same handle with a value for [`shared`](Self::shared).
    #[must_use]
    pub fn sharing<T: Any + Send + Sync>(mut self, value: &Arc<T>) -> Self {
        self.shared.push(Arc::clone(value) as _);
        self
    }

    /// The same handle, counting read bytes in `bytes_read`.
    #[must_use]
    pub fn counting_in(self, bytes_read: Arc<AtomicU64>) -> Self {
        Self { bytes_read, ..self }
    }

    /// A handle of the same run that is abandoned on its own.
    pub fn detached(&self) -> Self {
        Self { abandoned: Arc::default(), ..self.clone() }
    }

    /// The node's name; empty outside a pipeline, and for maps, which share one handle.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Ends the run early.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the run ends early, or the results of this node are no longer needed. Nodes that
    /// wait or search for long must check it.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.is_abandoned()
    }

    /// Tells the node that its results are no longer needed.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether the results of this node are no longer needed.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Whether the run is aborted.
    pub fn is_aborted(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.is_aborted())
    }

    /// Counts bytes of input that were read, for progress.
    pub fn count_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The bytes of input read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Logs a line that a program has printed.
    pub fn log_line(&self, line: &str) {
        if let Some(host) = &self.host {
            host.log_line(&self.node, line);
        }
    }

    /// Shows a note at once, for nodes that wait before they can report it. The report has it only
    /// if the node also reports it.
    pub fn note(&self, what: &str, count: u64) {
        if let Some(host) = &self.host {
            host.note(&self.node, what, count);
        }
    }

    /// The value of this type that the caller of the run shares with its nodes, such as the control
    /// of playback; its default if there is none.
    pub fn shared<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.shared.iter().find_map(|value| Arc::clone(value).downcast().ok()).unwrap_or_default()
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunHandle({})", self.node)
    }
}
