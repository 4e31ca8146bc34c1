//! Executes a statement: writes its rows, and reports findings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use sluice::extension::{
    CommandResult, ExitStatus, Failure, SOURCE_NAME, Shell, pluralize, report_flag_losses,
};
use sluice_io::escape::printable_sentence;
use sluice_model::{Error, ErrorKind};
use sluice_pipeline::Report;
use sluice_pipeline::report::{DamageReport, Note};
use sluice_query::session::QueryError;
use sluice_query::statements::Statement;
use sluice_query::table::Findings;

use super::diagnostic::{self, SqlText};
use super::logs::Logs;
use super::out::{OutputSummary, OutputTarget, ResultMetadata};

/// About how much is written between two looks at whether to stop.
const PART_BYTES: usize = 8 << 20;

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
        Err(error) => Err(Error::from(error).into()),
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
    let mut append = |rows: RecordBatch| in_parts(&rows, stop, &mut |part| out.append(part));
    logs.session.run_planned(&planned, stop, &mut append)?;
    let columns = schema.fields().iter().map(|field| field.name().clone()).collect();
    Ok((out.finish()?, columns))
}

/// Writes a batch in parts until `stop` is set: it may have rows of any length, and take minutes.
fn in_parts(
    rows: &RecordBatch,
    stop: &AtomicBool,
    write: &mut dyn FnMut(&RecordBatch) -> Result<(), Error>,
) -> Result<(), Error> {
    let count = rows.num_rows();
    let parts = rows.get_array_memory_size().div_ceil(PART_BYTES).max(1);
    let step = count.div_ceil(parts).max(1);
    for start in (0..count).step_by(step) {
        if stop.load(Ordering::Relaxed) {
            return Err(ErrorKind::Aborted.into());
        }
        write(&rows.slice(start, step.min(count - start)))?;
    }
    Ok(())
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
        Err(error) => Err(Error::from(error).into()),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::{ArrayRef, StringArray};

    use super::*;

    fn texts(count: usize, length: usize) -> RecordBatch {
        let texts = (0..count).map(|n| Some(format!("{n}{}", "x".repeat(length))));
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        RecordBatch::try_from_iter([("x", texts)]).unwrap()
    }

    #[test]
    fn a_batch_of_long_rows_is_written_in_parts_until_it_is_stopped() {
        let rows = texts(100, 1 << 20);
        let (go_on, mut parts) = (AtomicBool::new(false), Vec::new());
        let mut write = |part: &RecordBatch| {
            parts.push(part.clone());
            Ok(())
        };
        in_parts(&rows, &go_on, &mut write).unwrap();
        assert!(parts.iter().all(|part| part.num_rows() <= 8) && parts.len() < 20);
        let all = parts.iter().flat_map(|part| part.column(0).as_string::<i32>());
        assert!(all.eq(rows.column(0).as_string::<i32>()));

        let (stop, mut count) = (AtomicBool::new(false), 0);
        let stopped = in_parts(&rows, &stop, &mut |_| {
            count += 1;
            stop.store(true, Ordering::Relaxed);
            Ok(())
        });
        assert!(matches!(stopped.unwrap_err().kind(), ErrorKind::Aborted));
        assert_eq!(count, 1);
    }

    #[test]
    fn batches_of_short_rows_are_written_as_they_are() {
        let empty = RecordBatch::new_empty(texts(1, 1).schema());
        for (rows, expected) in [(texts(8192, 10), &[8192][..]), (empty, &[])] {
            let mut counts = Vec::new();
            let mut write = |part: &RecordBatch| {
                counts.push(part.num_rows());
                Ok(())
            };
            in_parts(&rows, &AtomicBool::new(false), &mut write).unwrap();
            assert_eq!(counts, expected);
        }
    }
}
