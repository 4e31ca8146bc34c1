//! The async runtime of requests: two threads of its own, started with the first request. Callers
//! are plain threads that block.

use std::future::Future;
use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, sync_channel};

use tokio::runtime::{Builder, Runtime};

/// Requests mostly wait for the network; the rest is copying and decryption.
const THREADS: usize = 2;

fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("object-store")
        .enable_all()
        .build()?;
    Ok(RUNTIME.get_or_init(|| runtime))
}

/// A request in flight.
pub(crate) struct PendingRequest<T>(Receiver<io::Result<T>>);

impl<T> PendingRequest<T> {
    /// Blocks until the request is done.
    pub(crate) fn wait(self) -> io::Result<T> {
        let gone = |_| Err(io::Error::other("the request was dropped"));
        self.0.recv().unwrap_or_else(gone)
    }
}

/// Starts a request; it proceeds even before anyone waits for it. May be called from any thread,
/// also inside another runtime.
pub(crate) fn spawn<T: Send + 'static>(
    request: impl Future<Output = io::Result<T>> + Send + 'static,
) -> PendingRequest<T> {
    let (give, take) = sync_channel(1);
    match runtime() {
        Ok(runtime) => drop(runtime.spawn(async move {
            // The caller may have dropped the request.
            drop(give.send(request.await));
        })),
        Err(error) => drop(give.send(Err(error))),
    }
    PendingRequest(take)
}

/// Makes a request, and blocks until it is done.
pub(crate) fn block_on<T: Send + 'static>(
    request: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    spawn(request).wait()
}
