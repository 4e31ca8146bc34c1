//! The stage `sql` in pipelines.
