//! The `.lcm` language and the codec: what is declared, what messages become, and what hostile ones cost.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod codec;
mod language;
mod made_up;
