//! The rows of a frame, counted against the memory limit.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::Accumulator;

use super::moments::{Moments, NumberMoments, PairMoments};

/// The rows of a frame, as a queue of two stacks: each row is added twice, whatever the length of
/// the frame.
#[derive(Debug)]
pub(super) struct MovingFrame<M: Moments> {
    result: fn(M) -> Option<f64>,
    /// For each of the older rows, the moments from it to the newest of them; the oldest row last.
    older: Vec<M>,
    newer: Vec<M::Row>,
    newer_moments: M,
    /// The memory of all rows.
    reservation: MemoryReservation,
}

impl<M: Moments> MovingFrame<M> {
    pub(super) fn new(result: fn(M) -> Option<f64>, memory: &Arc<dyn MemoryPool>) -> Self {
        let reservation = MemoryConsumer::new("rows of a window frame").register(memory);
        let newer_moments = M::default();
        Self { result, older: Vec::new(), newer: Vec::new(), newer_moments, reservation }
    }

    fn push(&mut self, row: M::Row) -> Result<()> {
        if self.newer.len() == self.newer.capacity() {
            self.newer.reserve(1);
            self.reserve()?;
        }
        self.newer.push(row);
        self.newer_moments = self.newer_moments.merged(M::of(row));
        Ok(())
    }

    /// Removes the oldest row.
    fn pop(&mut self) -> Result<()> {
        if self.older.is_empty() {
            self.older.reserve(self.newer.len());
            self.reserve()?;
            let mut moments = M::default();
            self.older.extend(self.newer.drain(..).rev().map(|row| {
                moments = M::of(row).merged(moments);
                moments
            }));
            self.newer_moments = M::default();
        }
        self.older.pop();
        Ok(())
    }

    fn reserve(&self) -> Result<()> {
        self.reservation.try_resize(self.row_bytes())
    }

    fn row_bytes(&self) -> usize {
        self.older.capacity() * size_of::<M>() + self.newer.capacity() * size_of::<M::Row>()
    }

    fn moments(&self) -> M {
        self.older.last().copied().unwrap_or_default().merged(self.newer_moments)
    }
}

impl<M: Arguments> Accumulator for MovingFrame<M> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        M::rows(values)?.try_for_each(|row| self.push(row))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        M::rows(values)?.try_for_each(|_| self.pop())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64((self.result)(self.moments())))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.row_bytes()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(DataFusionError::Internal("the rows of a frame have no state to merge".to_owned()))
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(DataFusionError::Internal("the rows of a frame cannot be merged".to_owned()))
    }
}

/// Reads the arguments of an aggregate.
trait Arguments: Moments + 'static {
    /// The rows without a null: one with a null counts in no result.
    fn rows(values: &[ArrayRef]) -> Result<impl Iterator<Item = Self::Row>>;
}

impl Arguments for NumberMoments {
    fn rows(values: &[ArrayRef]) -> Result<impl Iterator<Item = f64>> {
        Ok(numbers(values, 0)?.iter().flatten())
    }
}

impl Arguments for PairMoments {
    fn rows(values: &[ArrayRef]) -> Result<impl Iterator<Item = (f64, f64)>> {
        let (y, x) = (numbers(values, 0)?, numbers(values, 1)?);
        Ok(y.iter().zip(x).filter_map(|(y, x)| y.zip(x)))
    }
}

fn numbers(values: &[ArrayRef], place: usize) -> Result<&Float64Array> {
    let values = values.get(place);
    values.and_then(|values| values.as_primitive_opt::<Float64Type>()).ok_or_else(|| {
        let found = values.map(|values| values.data_type());
        DataFusionError::Internal(format!("numbers were expected, not {found:?}"))
    })
}
