//! Programs of other languages in pipelines, by the whole program.
