//! The stage `sql`: runs a query over events, and turns its rows into events.
//!
//! `query` parses and checks the query. A per-row query (each row depends on one event) runs on
//! each batch separately, on any thread (`row_map`); `lineage` tracks the event of each row, which
//! gives the row its time, channel and sequence number. A query that needs all rows runs as one
//! plan within a memory budget (`fold`).

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
