//! The program as scripts see it: exit codes, outputs, pipes and signals.

mod cat;
mod codes;
mod command_line;
mod completions;
mod elsewhere;
mod files;
mod info;
mod log_files;
mod mistakes;
mod names;
mod paths;
mod pipes;
mod python;
mod report_files;
mod resume;
mod signals;
mod undecided_names;
mod unset;
mod verbs;
mod verify;
