//! Logs of the Orca robotics project, source and sink `orca`.
//!
//! A log is a *master file*, which says in which order what happened, and the *subfiles* it names, each of
//! which holds the objects of one interface. [`master`] is the text of the master file, [`subfile`] the bytes
//! of a subfile; [`config`] tells configuration from data; [`log`] puts them together; [`reader`] goes along
//! the lines of the master; [`source`] and [`sink`] are the plugins. What is in an object is a codec's
//! business; [`types`] are their declarations for it.

pub mod config;
pub mod log;
pub mod master;
pub mod reader;
pub mod sink;
pub mod source;
pub mod subfile;
pub mod types;

mod front;
mod percent;
