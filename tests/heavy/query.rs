//! `sluice query`, as users call it.
