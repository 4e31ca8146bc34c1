//! Parquet tables.
