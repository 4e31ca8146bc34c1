//! Hashes the inputs of a run: what is read, by whoever reads it, and the rest at the end.

use std::sync::Arc;

use rayon::ThreadPool;
use sluice_io::files::InputHashes;
use sluice_model::{Input, RunInput};

/// These inputs, with those of the hashes that they have.
pub(super) fn with_hashes(inputs: &[Input], hashes: &InputHashes) -> Vec<RunInput> {
    let each = inputs.iter().map(|input| RunInput {
        hash: hashes.of(&input.path).cloned(),
        ..RunInput::unhashed(input)
    });
    each.collect()
}

/// Hashes on all threads what has not been read, while outputs are finished. Stops when the hashes
/// are dropped.
pub(super) fn hash_rest(hashes: &Arc<InputHashes>, pool: &ThreadPool) {
    for hash in hashes.iter() {
        for _ in 0..pool.current_num_threads() {
            let (hash, run) = (Arc::clone(hash), Arc::downgrade(hashes));
            pool.spawn(move || hash.add_missing(|| run.strong_count() > 0));
        }
    }
}
