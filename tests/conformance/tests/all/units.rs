//! A sink in the shape of columnar formats: it gathers ten events to a unit, which a job encodes.

use std::mem::take;
use std::sync::Arc;

use serde::Deserialize;
use sluice_model::options::OutPath;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, Channels, Error, Job, OutputFile, PrepareContext, Sink, SinkContext, SinkInput,
    SinkTraits, Written,
};

use crate::sinks::{put, trial};

/// Writes the logs of these tests in units of ten events.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct UnitSink {
    /// The log.
    path: OutPath,
}

struct UnitOutput {
    file: OutputFile,
    gathered: Vec<Batch>,
    written: u64,
    channels: Arc<Channels>,
}

sluice_model::register! {
    sink "units": UnitSink,
    about: "writes the logs of these tests in units",
    sample: "[sinks.out]\nplugin = \"units\"\nfrom = \"log\"\npath = \"a\"",
}

impl Sink for UnitSink {
    type Block = Batch;
    type Unit = (Vec<u8>, u64);
    type Output = UnitOutput;

    fn traits(&self) -> SinkTraits {
        SinkTraits { buffers_events: true, ..SinkTraits::writing(&self.path.0) }
    }

    fn open(&self, context: &SinkContext) -> Result<Self::Output, Error> {
        let (file, channels) =
            (context.outputs.create(&self.path.0)?, Arc::clone(&context.channels));
        Ok(UnitOutput { file, gathered: Vec::new(), written: 0, channels })
    }

    fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<Batch, Error> {
        Ok(batch.with_rows(Vec::new()).owned())
    }

    fn gather(
        &self,
        UnitOutput { gathered: events, channels, .. }: &mut UnitOutput,
        input: SinkInput<Batch>,
    ) -> Result<Vec<Job<Self::Unit>>, Error> {
        let SinkInput::Block(batch) = input else {
            return Ok(vec![encoded(take(events), channels)]);
        };
        let mut units = Vec::new();
        for row in 0..batch.len() {
            events.push(batch.slice(row, 1));
            if events.len() == 10 {
                units.push(encoded(take(events), channels));
            }
        }
        Ok(units)
    }

    fn write(&self, output: &mut Self::Output, unit: Self::Unit) -> Result<Written, Error> {
        output.file.write(&unit.0)?;
        output.written += unit.1;
        Ok(Written::events(unit.1))
    }

    fn finish(&self, output: UnitOutput) -> Result<Written, Error> {
        output.file.finish(output.written).map(|()| Written::default())
    }
}

fn encoded(events: Vec<Batch>, channels: &Arc<Channels>) -> Job<(Vec<u8>, u64)> {
    let (channels, bytes) = (Arc::clone(channels), events.iter().map(Batch::memory).sum());
    Job::new(bytes, move || {
        let mut unit = vec![b'#'];
        events.iter().flat_map(Batch::iter).for_each(|event| put(&mut unit, &event, &channels));
        Ok((unit, events.len() as u64))
    })
}

#[test]
fn a_sink_that_gathers_units_has_no_findings() {
    trial("units").check();
}
