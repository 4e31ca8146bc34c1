//! Notes on a run: what its report says once per node.

use serde::{Deserialize, Serialize};

/// A note: something reported once per node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The node.
    pub node: String,
    /// The text.
    pub what: String,
    /// How often it happened; 0 if a count has no meaning.
    pub count: u64,
}
