//! What is wrong with inputs besides damage, for callers that verify them.

use std::sync::{Mutex, PoisonError};

/// Collects what readers find wrong with inputs that can be read only once, from front to back:
/// what [`faults`](sluice_model::Source::faults) says of others. The caller of a run shares it with
/// the sources; by default nothing is collected, and readers need not look.
#[derive(Debug, Default)]
pub struct InputFaults(Option<Mutex<Vec<String>>>);

impl InputFaults {
    /// An empty collection.
    pub fn collecting() -> Self {
        Self(Some(Mutex::default()))
    }

    /// Whether anybody wants to know.
    pub fn is_collecting(&self) -> bool {
        self.0.is_some()
    }

    /// Adds one sentence for each fault.
    pub fn add(&self, faults: impl IntoIterator<Item = String>) {
        if let Some(all) = &self.0 {
            all.lock().unwrap_or_else(PoisonError::into_inner).extend(faults);
        }
    }

    /// Takes what was collected, in the order in which it was found.
    pub fn take(&self) -> Vec<String> {
        let all = self.0.as_ref().map(|all| all.lock().unwrap_or_else(PoisonError::into_inner));
        all.map(|mut all| std::mem::take(&mut *all)).unwrap_or_default()
    }
}
