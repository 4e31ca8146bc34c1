//! Logs described in pipeline files, by the whole program.
