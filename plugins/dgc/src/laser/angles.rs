//! Cosines and sines of a scan's samples, worked out once for scans that lie the same way. A scanner knows
//! few ways: its scans are interlaced by parts of a step.

use super::scan::Bearings;

/// Samples of all tables that are kept at a time.
const MOST_SAMPLES: usize = 1 << 20;

/// The directions of the samples of a scan.
#[derive(Debug)]
pub(super) struct Angles {
    bearings: Bearings,
    /// Radians.
    pub(super) angle: Vec<f64>,
    pub(super) cosine: Vec<f64>,
    pub(super) sine: Vec<f64>,
    /// Degrees.
    pub(super) degrees: Vec<f32>,
}

impl Angles {
    fn of(bearings: Bearings, samples: usize) -> Self {
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
pub(super) struct Tables {
    tables: Vec<Angles>,
    samples: usize,
}

impl Tables {
    /// The directions of so many samples; perhaps of more.
    pub(super) fn table(&mut self, bearings: Bearings, samples: usize) -> &Angles {
        let fits = |table: &Angles| table.bearings == bearings && table.angle.len() >= samples;
        let place = match self.tables.iter().position(fits) {
            Some(place) => place,
            None => self.add(Angles::of(bearings, samples)),
        };
        &self.tables[place]
    }

    fn add(&mut self, table: Angles) -> usize {
        self.samples += table.angle.len();
        if self.samples > MOST_SAMPLES || self.tables.len() >= MOST_TABLES {
            self.samples = table.angle.len();
            self.tables.clear();
        }
        self.tables.push(table);
        self.tables.len() - 1
    }
}

/// As many tables as can be looked through for each scan.
const MOST_TABLES: usize = 64;
