//! Tests of the full program: SQL, the cluster, object stores.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cache;
mod cluster;
mod cluster_access;
mod cluster_faults;
mod documents;
#[expect(dead_code, reason = "the other suite uses the rest")]
#[path = "../../../tests/suite/kit.rs"]
mod kit;
#[expect(dead_code, reason = "the other suite uses the rest")]
#[path = "../../../tests/suite/namespaces.rs"]
mod namespaces;
mod query;
mod s3;
mod s3_cluster;
mod s3_moto;
mod sql;
mod tables;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_sluice");
