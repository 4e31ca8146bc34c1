//! Reads a log, decodes its messages into record batches with the columns of tables, and keeps
//! them: what a program in Rust does that wants a table in memory. Prints the wall and CPU seconds
//! of that, from opening the log until the table is dropped.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use arrow_array::RecordBatch;
use clap::Parser;
use nix::time::ClockId;
use sluice_kit::event_table::{ChannelLabels, RowType, TableKind, record_batch};
use sluice_lcm as _;
use sluice_model::{
    Batch, DynSink, Error, PrepareContext, Registry, Sink, SinkContext, SinkTraits, Written,
};
use sluice_pipeline::run::Options;
use sluice_pipeline::{Document, Pipeline, PluginInstance, Variables};
use sluice_stages as _;

#[derive(Parser)]
#[command(about)]
struct KeepArgs {
    /// The log to read: LCM with one channel
    log: PathBuf,
    /// The file with the types of its messages
    types: PathBuf,
}

/// A sink that keeps tables in memory, in the order of the log.
#[derive(Clone, Default)]
struct KeepSink(Arc<Mutex<Vec<RecordBatch>>>);

/// Longer than any column of a batch.
const LONG_BLOCK: usize = 16 << 20;

fn main() -> anyhow::Result<()> {
    let args = KeepArgs::parse();
    // As the program does at start: from then on glibc keeps long blocks instead of returning each.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LONG_BLOCK)));
    let (wall, cpu) = (Instant::now(), cpu()?);
    let kept = keep(&args)?;
    ensure!(kept.iter().any(|rows| rows.num_rows() > 0), "the log has no messages of these types");
    // The peers return the memory within the measured time, too.
    drop(kept);
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), (self::cpu()? - cpu).as_secs_f64());
    Ok(writeln!(io::stdout(), "{wall} {cpu}")?)
}

/// The CPU time of this process so far.
fn cpu() -> anyhow::Result<Duration> {
    Ok(ClockId::CLOCK_PROCESS_CPUTIME_ID.now()?.into())
}

fn keep(args: &KeepArgs) -> anyhow::Result<Vec<RecordBatch>> {
    let text = format!(
        "[sources.log]\nplugin = \"lcm-log\"\npath = {:?}\n\
         [stages.decode]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = {:?}\nundecoded = \"stop\"\n\
         [sinks.out]\nplugin = \"null\"\nfrom = \"decode\"\n",
        args.log, args.types
    );
    let document = Document::generated("benchmark", text);
    let mut pipeline = Pipeline::read(&document, &Variables::default(), &Registry::linked())
        .map_err(|mistakes| anyhow!("the benchmark's pipeline is wrong: {mistakes:?}"))?;
    let sink = KeepSink::default();
    if let Some(node) = pipeline.nodes.last_mut() {
        node.instance = PluginInstance::Sink(DynSink::new(sink.clone()));
    }
    let report = sluice_pipeline::run::run(pipeline, &Options::default())?;
    ensure!(report.is_complete(), "the log is damaged: nothing was measured");
    let mut kept = sink.0.lock().map_err(|_| anyhow!("a thread has panicked"))?;
    Ok(std::mem::take(&mut kept))
}

impl Sink for KeepSink {
    type Block = RecordBatch;
    type Unit = RecordBatch;
    type Output = ();

    fn traits(&self) -> SinkTraits {
        SinkTraits::default().with_rows(true)
    }

    fn open(&self, _: &SinkContext) -> Result<(), Error> {
        Ok(())
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<RecordBatch, Error> {
        let [rows] = batch.rows() else {
            return Err(Error::invalid("expected messages of one type in each batch"));
        };
        let kind = TableKind::Fields("".into(), Arc::new(RowType::from_rows(rows)));
        let (columns, schema) = (kind.columns(), kind.schema());
        let labels = ChannelLabels::from_channels(context.channels);
        record_batch(&columns, &schema, &batch, Some(&rows.columns), &labels)
    }

    fn write(&self, (): &mut (), rows: RecordBatch) -> Result<Written, Error> {
        let mut kept = self.0.lock().map_err(|_| Error::internal("a thread has panicked"))?;
        let events = rows.num_rows() as u64;
        kept.push(rows);
        Ok(Written::events(events))
    }

    fn finish(&self, (): ()) -> Result<Written, Error> {
        Ok(Written::default())
    }
}
