//! Archives.
