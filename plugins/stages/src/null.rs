//! Sink `null`: takes every event and writes nothing, to test and time what comes before it.

use std::path::PathBuf;

use serde::Deserialize;
use sluice_model::schemars::JsonSchema;
use sluice_model::{Batch, EncodeContext, Error, Sink, SinkContext};

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
    type Output = ();

    fn targets(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn accepts_rows(&self) -> bool {
        true
    }

    fn accepts_wide_times(&self) -> bool {
        true
    }

    fn open(&self, _: &SinkContext) -> Result<(), Error> {
        Ok(())
    }

    fn encode(&self, batch: Batch, _: &mut EncodeContext<'_>) -> Result<u64, Error> {
        Ok(batch.len() as u64)
    }

    fn append(&self, _: &mut (), events: u64) -> Result<u64, Error> {
        Ok(events)
    }

    fn finish(&self, _: ()) -> Result<u64, Error> {
        Ok(0)
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
        let mut context = EncodeContext::new(&channels, &buffers);
        let events = Null {}.encode(batch, &mut context).unwrap();
        assert_eq!(Null {}.append(&mut (), events).unwrap(), 2);
        assert_eq!((Null {}.finish(()).unwrap(), Null {}.targets().len()), (0, 0));
        assert!(Null {}.accepts_rows());
    }
}
