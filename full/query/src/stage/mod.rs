//! The stage `sql`: events in, a query over them, rows out, as events again. Reads no log, and no file.
//!
//! A query is first read and looked at (`query`). Where it decides of each row alone, every batch is asked by
//! itself (`each`), on any thread; each row then says which event it is made of (`lineage`), and is an event
//! of that one's time, channel and number. Where something in it has to see all rows, they are handed to one plan
//! (`whole`), within a cap on memory.

mod columns;
mod declared;
mod event_mapping;
mod fold;
mod limit;
mod lineage;
mod options;
mod pending;
mod plan;
mod query;
mod query_input;
mod row_map;
mod schemas;
mod tables;
#[cfg(test)]
mod tests;

pub use options::SqlStage;
