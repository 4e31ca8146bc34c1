//! Hashes a run's inputs on the pool while the run goes on, one input after another.

use std::sync::{Arc, Weak};

use rayon::ThreadPool;
use sluice_model::{Input, RunInput, RunOrigin};

use crate::manifest::hash_file;

/// Describes the run and its inputs. Hashes are computed if there is a pool; inputs that cannot be
/// read twice have none.
pub(super) fn origin(
    name: Option<String>,
    pipeline: String,
    inputs: &[Input],
    pool: Option<Arc<ThreadPool>>,
) -> Arc<RunOrigin> {
    let each = inputs.iter().map(|input| match input.bytes.filter(|_| pool.is_some()) {
        Some(bytes) => {
            let (path, blake3) = (input.path.clone(), Default::default());
            RunInput { path, bytes: Some(bytes), blake3 }
        }
        None => RunInput::unhashed(input),
    });
    let origin =
        Arc::new(RunOrigin { name, pipeline, inputs: each.collect(), ..RunOrigin::default() });
    if let Some(pool) = pool {
        hash_from(0, Arc::downgrade(&origin), pool);
    }
    origin
}

/// Hashes the first unhashed input from index `from` on, then schedules the next one. Stops when
/// the run's origin is dropped.
fn hash_from(from: usize, origin: Weak<RunOrigin>, pool: Arc<ThreadPool>) {
    let next = |origin: &RunOrigin| {
        let mut open = origin.inputs.iter().enumerate().skip(from);
        open.find(|(_, input)| input.blake3.get().is_none()).map(|(place, _)| place)
    };
    let Some(place) = origin.upgrade().and_then(|origin| next(&origin)) else { return };
    let on = Arc::clone(&pool);
    on.spawn(move || {
        if let Some(origin) = origin.upgrade()
            && let Some(input) = origin.inputs.get(place)
        {
            // If an input can no longer be read, reading it fails the run.
            input.blake3.get_or_init(|| hash_file(&input.path).ok());
        }
        hash_from(place + 1, origin, pool);
    });
}
