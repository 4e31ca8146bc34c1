//! Caches cosines and sines of scan samples for scans with the same bearings. A scanner has few of
//! them: its scans are interlaced by fractions of a step.

use super::scan::ScanBearings;

/// Maximum number of samples of all cached tables.
const MAX_SAMPLES: usize = 1 << 20;

/// The directions of the samples of a scan.
#[derive(Debug)]
pub(super) struct SampleAngles {
    bearings: ScanBearings,
    /// Radians.
    pub(super) angle: Vec<f64>,
    pub(super) cosine: Vec<f64>,
    pub(super) sine: Vec<f64>,
    /// Degrees.
    pub(super) degrees: Vec<f32>,
}

impl SampleAngles {
    fn new(bearings: ScanBearings, samples: usize) -> Self {
        let angle = |sample: usize| bearings.first + sample as f64 * bearings.step;
        let angle: Vec<f64> = (0..samples).map(angle).collect();
        Self {
            bearings,
            cosine: angle.iter().map(|angle| angle.cos()).collect(),
            sine: angle.iter().map(|angle| angle.sin()).collect(),
            degrees: angle.iter().map(|angle| angle.to_degrees() as f32).collect(),
            angle,
        }
    }
}

/// The tables of a batch.
#[derive(Debug, Default)]
pub(super) struct AngleTables {
    tables: Vec<SampleAngles>,
    samples: usize,
}

impl AngleTables {
    /// The directions of at least `samples` samples.
    pub(super) fn table(&mut self, bearings: ScanBearings, samples: usize) -> &SampleAngles {
        let fits =
            |table: &SampleAngles| table.bearings == bearings && table.angle.len() >= samples;
        let place = match self.tables.iter().position(fits) {
            Some(place) => place,
            None => self.add(SampleAngles::new(bearings, samples)),
        };
        &self.tables[place]
    }

    fn add(&mut self, table: SampleAngles) -> usize {
        self.samples += table.angle.len();
        if self.samples > MAX_SAMPLES || self.tables.len() >= MAX_TABLES {
            self.samples = table.angle.len();
            self.tables.clear();
        }
        self.tables.push(table);
        self.tables.len() - 1
    }
}

/// Maximum number of tables, since each scan searches them linearly.
const MAX_TABLES: usize = 64;
