//! Executes a statement: writes its rows, and reports findings.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use sluice::extension::{
    CommandResult, ExitStatus, Failure, SOURCE_NAME, Shell, pluralize, report_flag_losses,
};
use sluice_io::escape::printable_sentence;
use sluice_pipeline::Report;
use sluice_pipeline::report::{DamageReport, Note};
use sluice_query::session::QueryError;
use sluice_query::statements::Statement;
use sluice_query::table::Findings;

use super::diagnostic::{self, SqlText};
use super::logs::Logs;
use super::out::{OutputSummary, OutputTarget, ResultMetadata};

/// The result of a statement.
pub(super) struct QueryAnswer {
    pub(super) output: OutputSummary,
    pub(super) ending: ExitStatus,
    pub(super) took: Duration,
    /// The names of its columns.
    pub(super) columns: Vec<String>,
}

/// Executes a statement. `None` if it is invalid, which is reported here.
pub(super) fn execute(
    statement: &Statement<'_>,
    source: SqlText<'_>,
    logs: &Logs,
    to: &OutputTarget,
    stop: &AtomicBool,
    shell: &Shell,
) -> Result<Option<QueryAnswer>, Failure> {
    let began = Instant::now();
    let result = answer(statement, logs, to, stop);
    // Findings belong to this query, even if it failed.
    let findings = logs.session.take_findings();
    match result {
        Ok((output, columns)) => {
            let ending = report_findings(findings, shell);
            for note in &output.notes {
                shell.info(&format!("note: {}", printable_sentence(note)));
            }
            Ok(Some(QueryAnswer { output, ending, took: began.elapsed(), columns }))
        }
        Err(QueryError::Invalid(wrong)) => {
            diagnostic::report(&wrong, statement, source, shell);
            Ok(None)
        }
        Err(error) => Err(sluice_model::Error::from(error).into()),
    }
}

fn answer(
    statement: &Statement<'_>,
    logs: &Logs,
    to: &OutputTarget,
    stop: &AtomicBool,
) -> Result<(OutputSummary, Vec<String>), QueryError> {
    let planned = logs.session.plan(statement.text, stop)?;
    let metadata = ResultMetadata { query: statement.text.trim(), inputs: &logs.inputs };
    let schema = planned.schema();
    let mut out = to.open(&schema, &metadata)?;
    logs.session.run_planned(&planned, stop, &mut |rows| out.append(&rows))?;
    let columns = schema.fields().iter().map(|field| field.name().clone()).collect();
    Ok((out.finish()?, columns))
}

/// The result columns of a statement. `None` if it is invalid, which is reported here.
pub(super) fn columns(
    statement: &Statement<'_>,
    source: SqlText<'_>,
    logs: &Logs,
    stop: &AtomicBool,
    shell: &Shell,
) -> Result<Option<SchemaRef>, Failure> {
    match logs.session.plan(statement.text, stop) {
        Ok(planned) => Ok(Some(planned.schema())),
        Err(QueryError::Invalid(wrong)) => {
            diagnostic::report(&wrong, statement, source, shell);
            Ok(None)
        }
        Err(error) => Err(sluice_model::Error::from(error).into()),
    }
}

/// The ending of a command after its last statement.
pub(super) fn ending(answer: Option<&QueryAnswer>) -> CommandResult {
    // The error was reported.
    Ok(answer.map_or(ExitStatus::InvalidPipelines, |answer| answer.ending))
}

/// Reports damage and missing events.
fn report_findings(findings: Findings, shell: &Shell) -> ExitStatus {
    let is_complete = findings.is_complete();
    for (what, count) in &findings.left_out {
        shell.warn(&format!("{}: {}", pluralize(*count, "event"), printable_sentence(what)));
    }
    let damaged_ranges = findings.damage.len() as u64 + findings.more_damage;
    let damage = findings.damage.into_iter().map(|damage| DamageReport {
        source: SOURCE_NAME.to_owned(),
        input: damage.input.to_string(),
        offset: damage.offset,
        length: damage.length,
        reason: damage.reason,
    });
    let notes = findings.notes.into_iter();
    let notes = notes.map(|(what, count)| Note { node: SOURCE_NAME.to_owned(), what, count });
    let report = Report {
        damage: damage.collect(),
        damaged_ranges,
        notes: notes.collect(),
        ..Report::default()
    };
    report_flag_losses(&report, shell);
    if is_complete { ExitStatus::Done } else { ExitStatus::Losses }
}
