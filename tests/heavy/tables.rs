//! Logs as tables: what is pushed down is not seen in results.
