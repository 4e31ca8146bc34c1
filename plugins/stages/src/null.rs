//! Sink `null`: takes every event and writes nothing, to test and time what comes before it.

use serde::Deserialize;
use sluice_model::schemars::JsonSchema;
use sluice_model::{Batch, Error, PrepareContext, Sink, SinkContext, SinkTraits, Written};

/// Options of `null`: there are none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct Null {}

sluice_model::register! {
    sink "null": Null,
    about: "takes every event and writes nothing",
    sample: include_str!("../samples/null.toml"),
}

impl Sink for Null {
    /// The number of events.
    type Block = u64;
    type Unit = u64;
    type Output = ();

    fn traits(&self) -> SinkTraits {
        SinkTraits { accepts_wide_times: true, ..SinkTraits::default().with_rows(true) }
    }

    fn open(&self, _: &SinkContext) -> Result<(), Error> {
        Ok(())
    }

    fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<u64, Error> {
        Ok(batch.len() as u64)
    }

    fn write(&self, _: &mut (), events: u64) -> Result<Written, Error> {
        Ok(Written::events(events))
    }

    fn finish(&self, _: ()) -> Result<Written, Error> {
        Ok(Written::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::StageRunner;
    use sluice_model::{BlockPool, Channels};

    #[test]
    fn events_are_counted_and_nothing_is_written() {
        let batch = StageRunner::new("filter", serde_json::json!({})).batch(&[("A", 0), ("B", 1)]);
        let (channels, buffers) = (Channels::default(), BlockPool::new(16, 1));
        let mut context = PrepareContext::new(&channels, &buffers);
        let events = Null {}.prepare(batch, &mut context).unwrap();
        assert_eq!(Null {}.write(&mut (), events).unwrap().events, 2);
        assert_eq!(Null {}.finish(()).unwrap().events, 0);
        let traits = Sink::traits(&Null {});
        assert!(traits.accepts_rows && traits.targets.is_empty());
    }
}
