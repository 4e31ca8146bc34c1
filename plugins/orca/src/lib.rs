//! Logs of the Orca robotics project: source and sink `orca`.
//!
//! A log is a *master file*, which gives the order of events, and the *subfiles* it names, each
//! with the objects of one interface. `master` parses the text of the master file, `subfile` the
//! bytes of a subfile, `config` separates configuration records from data, `log` combines them, and
//! `reader` follows the lines of the master. `source` and `sink` are the plugins. Objects are
//! decoded by the codec `ice`; `types` has their declarations.

mod config;
mod config_buffer;
mod display;
mod log;
mod master;
mod object;
mod reader;
mod sink;
mod source;
mod subfile;
mod types;
