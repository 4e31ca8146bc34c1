//! Why a batch that is resumed makes again what an earlier one made.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sluice_model::{Error, Registry};

use super::{Batch, BatchRecord};
use crate::resolved;
use crate::run::{self, Options};

impl Batch {
    /// Whether another pipeline made the outputs, so that a resumed batch makes them again. Judges
    /// by the first unit with a record.
    pub fn is_of_other_pipeline(
        &self,
        registry: &Registry,
        options: &Options,
    ) -> Result<bool, Error> {
        let Some(record) = BatchRecord::read(&self.folder)? else { return Ok(false) };
        let mut recorded = BTreeMap::<&[PathBuf], Vec<&str>>::new();
        for made in record.latest_first() {
            recorded.entry(&made.outputs).or_default().push(&made.pipeline);
        }
        for unit in &self.units {
            if let Some(made) = recorded.get(&*self.recorded_outputs(unit)?) {
                let pipeline = self.pipeline(unit, registry)?;
                let memory = run::memory_cap(options, pipeline.memory);
                return Ok(!made.contains(&&*resolved::text(&pipeline, memory)));
            }
        }
        Ok(false)
    }
}
