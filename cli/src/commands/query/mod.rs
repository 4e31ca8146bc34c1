//! `query`: asks questions of logs in SQL. What a query may say is no business of it: `sluice_query` plans and
//! runs them.

mod args;
#[cfg(feature = "query")]
mod ask;
#[cfg(feature = "query")]
mod logs;
#[cfg(feature = "query")]
mod out;
#[cfg(feature = "query")]
mod prompt;
#[cfg(feature = "query")]
mod script;
#[cfg(feature = "query")]
mod statements;
#[cfg(feature = "query")]
mod stopping;
#[cfg(feature = "query")]
mod words;
#[cfg(feature = "query")]
mod wrong;

pub(crate) use args::QueryArgs;

#[cfg(feature = "query")]
pub(crate) use script::run;

/// Says that this program cannot do that.
#[cfg(not(feature = "query"))]
pub(crate) fn run(_args: &QueryArgs, _shell: &crate::shell::Shell) -> crate::ending::Outcome {
    crate::features::QUERY.require().map(|()| crate::ending::Ending::Wrong)
}
