//! Chooses the units of INT96 times, which have nanoseconds and any year: which of both matters is
//! only known from the values.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::{Field, FieldRef};
use sluice_model::Error;

use super::twelve_bytes::in_micros;
use super::{ParquetInput, stored};

/// The approximate bytes per batch of times.
const BATCH_BYTES: usize = 1 << 20;

/// The columns of a file whose times have to be in microseconds, once chosen. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeUnits(Arc<Mutex<Option<Vec<usize>>>>);

impl TimeUnits {
    fn chosen(&self) -> MutexGuard<'_, Option<Vec<usize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ParquetInput {
    /// The units of its INT96 times; none if it has no such times.
    pub(crate) fn time_units_mut(&mut self) -> Option<&mut TimeUnits> {
        (!self.int96_columns.is_empty()).then_some(&mut self.time_units)
    }

    /// Chooses the unit in which [`as_stored`](Self::as_stored) gives INT96 times in these columns:
    /// microseconds, if nanoseconds cannot hold all of a column. Reads these columns, once. Returns
    /// what a run should say of those in microseconds.
    pub(crate) fn choose_time_units(
        &self,
        fields: &[(usize, FieldRef)],
    ) -> Result<Option<String>, Error> {
        let mut chosen = self.time_units.chosen();
        let micros = match &mut *chosen {
            Some(micros) => micros,
            none => none.insert(self.columns_in_micros(fields)?),
        };
        let fields = micros.iter().filter_map(|place| self.schema.fields().get(*place));
        let names: Vec<String> = fields.map(|field| format!("`{}`", field.name())).collect();
        Ok((!names.is_empty()).then(|| {
            format!(
                "{}: INT96 times are read in microseconds where nanoseconds do not hold all of a \
                 column: {}",
                self.path.to_string_lossy(),
                names.join(", ")
            )
        }))
    }

    /// Those of these columns whose INT96 times have to be in microseconds.
    fn columns_in_micros(&self, fields: &[(usize, FieldRef)]) -> Result<Vec<usize>, Error> {
        let places = self.int96_columns.iter().copied();
        let places = places.filter(|place| fields.iter().any(|(field, _)| field == place));
        let mut columns: Vec<TimeColumn<'_>> = places
            .filter_map(|place| Some((place, self.schema.fields().get(place)?)))
            .map(|(place, field)| TimeColumn { place, field, fits_nanos: true, fits_micros: true })
            .collect();
        let names: Vec<&str> = columns.iter().map(|column| column.field.name().as_str()).collect();
        for span in self.spans.iter().filter(|_| !names.is_empty()) {
            // What cannot be read is reported when its events are.
            let rows = self.read(self.bytes.clone(), *span, Some(&names), None, BATCH_BYTES)?;
            let Ok(mut rows) = rows else { continue };
            while let Ok(Some(slice)) = rows.next_slice()? {
                columns.iter_mut().for_each(|column| column.add(&slice));
            }
        }
        let micros = columns.iter().filter(|column| !column.fits_nanos && column.fits_micros);
        Ok(micros.map(|column| column.place).collect())
    }

    /// Whether the INT96 times in the column at this place have to be in microseconds, if chosen.
    pub(super) fn is_in_micros(&self, place: usize) -> bool {
        self.time_units.chosen().as_ref().is_some_and(|micros| micros.contains(&place))
    }
}

/// Which units hold the INT96 times of a column.
struct TimeColumn<'f> {
    place: usize,
    field: &'f Field,
    fits_nanos: bool,
    fits_micros: bool,
}

impl TimeColumn<'_> {
    fn add(&mut self, rows: &RecordBatch) {
        let Some(column) = rows.column_by_name(self.field.name()) else { return };
        let nanos = self.field.data_type();
        self.fits_nanos &= stored::as_stored(column, nanos).is_ok();
        self.fits_micros &= stored::as_stored(column, &in_micros(nanos)).is_ok();
    }
}
