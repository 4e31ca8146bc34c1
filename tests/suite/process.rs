//! The program as scripts see it: exit codes, what is written and what is not, pipes and signals.

mod codes;
mod command_line;
mod files;
mod mistakes;
mod names;
mod pipes;
mod signals;
mod verbs;
