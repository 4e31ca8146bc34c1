//! `LIMIT` and `OFFSET` of per-row queries.

use sluice_model::{Batch, Error, Fold, StageContext};

use super::query::LimitOffset;

/// Skips rows, then lets rows pass; holds what is left of both counts.
#[derive(Debug)]
pub(super) struct LimitFold(pub(super) LimitOffset);

impl Fold for LimitFold {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let len = batch.len() as u64;
        let skipped = self.0.skip.min(len);
        let passed = self.0.fetch.unwrap_or(u64::MAX).min(len - skipped);
        self.0.skip -= skipped;
        self.0.fetch = self.0.fetch.map(|fetch| fetch - passed);
        context.report.filtered += len - passed;
        Ok(vec![batch.slice(skipped as usize, passed as usize)])
    }

    fn delays_events(&self) -> bool {
        false
    }

    fn is_done(&self) -> bool {
        self.0.fetch == Some(0)
    }
}
