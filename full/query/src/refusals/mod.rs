//! Refuses SQL that DataFusion parses and then ignores, or answers otherwise than the standard and
//! other databases. Plans and executes nothing.

mod calls;
mod refusal;
mod subqueries;
mod syntax;
mod types;

pub(crate) use subqueries::{check_anti_joins, check_subqueries};
pub(crate) use syntax::{check_numbers, check_syntax};
pub(crate) use types::check_types;

#[cfg(test)]
mod tests;
