//! The async runtime that requests run on: two threads of its own, from the first request on. Callers are plain
//! threads, which wait.

use std::future::Future;
use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, sync_channel};

use tokio::runtime::{Builder, Runtime};

/// Requests mostly wait for the network; what is left to do for them is copying and decrypting.
const THREADS: usize = 2;

fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("object-store")
        .enable_all()
        .build()?;
    Ok(RUNTIME.get_or_init(|| made))
}

/// What a request will give.
pub(crate) struct PendingRequest<T>(Receiver<io::Result<T>>);

impl<T> PendingRequest<T> {
    /// Waits for it.
    pub(crate) fn wait(self) -> io::Result<T> {
        let gone = |_| Err(io::Error::other("the request came to no end"));
        self.0.recv().unwrap_or_else(gone)
    }
}

/// Begins a request, which goes on although nobody waits yet. May be called on any thread, also on one of another
/// runtime.
pub(crate) fn spawn<T: Send + 'static>(
    request: impl Future<Output = io::Result<T>> + Send + 'static,
) -> PendingRequest<T> {
    let (give, take) = sync_channel(1);
    match runtime() {
        Ok(runtime) => drop(runtime.spawn(async move {
            // Nobody wants it any more where nobody takes it.
            drop(give.send(request.await));
        })),
        Err(error) => drop(give.send(Err(error))),
    }
    PendingRequest(take)
}

/// Makes a request and waits for what it gives.
pub(crate) fn block_on<T: Send + 'static>(
    request: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    spawn(request).wait()
}
