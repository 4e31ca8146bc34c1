//! Logs and outputs on an object store: a real server on this machine.
