//! Plugin crates that `sluice new` makes: they build, conform and run.
