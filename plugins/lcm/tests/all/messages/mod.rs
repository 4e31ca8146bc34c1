//! The `.lcm` language and the codec: what is declared, what messages become, and what hostile ones
//! cost.

mod codec;
mod language;
mod random_types;
