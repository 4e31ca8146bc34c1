//! Source `ticks`: a plugin without input, defined outside the repository.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::{
    BatchBuilder, Channel, Encoding, Error, Input, Name, Query, ReadContext, Reader, Source, Split,
    SplitStart,
};

/// Generates one event per second.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ticks {
    /// The number of events.
    count: u64,
}

/// About what an event takes in memory.
const EVENT_BYTES: u64 = 64;

sluice_model::register! {
    source "ticks": Ticks,
    about: "ticks like a clock, one event per second",
    sample: "[sources.clock]\nplugin = \"ticks\"\n## The number of events.\ncount = 60\n",
}

impl Source for Ticks {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        Ok(vec![Split::whole("ticks", Some(self.count.saturating_mul(EVENT_BYTES)))])
    }

    fn read<'s>(
        &'s self,
        _: &Split,
        _: SplitStart,
        run: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let channel = Channel::new(Name::from_text("TICK"), run.source.clone(), Encoding::Text);
        let channel = run.channels.intern(channel)?;
        let seconds = 0i64..i64::try_from(self.count).unwrap_or(i64::MAX);
        Ok(Box::new(seconds.map(move |second| {
            let mut batch = BatchBuilder::default();
            batch.push_copy(second * 1_000_000_000, second, channel, b"tick");
            Ok(batch.finish())
        })))
    }
}
