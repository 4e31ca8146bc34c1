//! Moments of numbers and of pairs of numbers, and the results of aggregates in terms of these.

use std::fmt::Debug;

/// What the results of some rows are computed from.
pub(super) trait Moments: Copy + Debug + Default + Send + Sync {
    /// The arguments of an aggregate.
    type Row: Copy + Debug + Send + Sync;

    fn of(row: Self::Row) -> Self;

    /// Those of both, by the method of Chan, Golub and LeVeque.
    fn merged(self, later: Self) -> Self;
}

/// The moments of numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NumberMoments {
    count: f64,
    sum: f64,
    mean: f64,
    /// The squared distances from the mean, added up.
    squares: f64,
}

impl Moments for NumberMoments {
    type Row = f64;

    fn of(value: f64) -> Self {
        // The distance of NaN and of infinite values from their mean is NaN.
        let squares = if value.is_finite() { 0.0 } else { f64::NAN };
        Self { count: 1.0, sum: value, mean: value, squares }
    }

    fn merged(self, later: Self) -> Self {
        if self.count == 0.0 || later.count == 0.0 {
            return if later.count == 0.0 { self } else { later };
        }
        let count = self.count + later.count;
        let distance = later.mean - self.mean;
        let mean = self.mean + distance * (later.count / count);
        let between = distance * distance * (self.count * later.count / count);
        let squares = self.squares + later.squares + between;
        Self { count, sum: self.sum + later.sum, mean, squares }
    }
}

impl NumberMoments {
    pub(super) fn sum(self) -> Option<f64> {
        (self.count > 0.0).then_some(self.sum)
    }

    pub(super) fn average(self) -> Option<f64> {
        // The mean of equal numbers is that number; it overflows before the sum does.
        let mean = if self.mean.is_finite() { self.mean } else { self.sum / self.count };
        (self.count > 0.0).then_some(mean)
    }

    fn sum_of_squares(self) -> Option<f64> {
        (self.count > 0.0).then_some(self.squares)
    }

    pub(super) fn sample_variance(self) -> Option<f64> {
        per_degree(self.squares, self.count - 1.0)
    }

    pub(super) fn population_variance(self) -> Option<f64> {
        per_degree(self.squares, self.count)
    }

    pub(super) fn sample_deviation(self) -> Option<f64> {
        self.sample_variance().map(f64::sqrt)
    }

    pub(super) fn population_deviation(self) -> Option<f64> {
        self.population_variance().map(f64::sqrt)
    }
}

/// `None` without degrees of freedom.
fn per_degree(sum: f64, degrees: f64) -> Option<f64> {
    (degrees > 0.0).then(|| sum / degrees)
}

/// The moments of pairs `(y, x)`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PairMoments {
    y: NumberMoments,
    x: NumberMoments,
    /// The products of the distances from both means, added up.
    products: f64,
}

impl Moments for PairMoments {
    type Row = (f64, f64);

    fn of((y, x): (f64, f64)) -> Self {
        let (y, x) = (NumberMoments::of(y), NumberMoments::of(x));
        Self { y, x, products: y.squares + x.squares }
    }

    fn merged(self, later: Self) -> Self {
        let (y, x) = (self.y.merged(later.y), self.x.merged(later.x));
        let between = if self.x.count == 0.0 || later.x.count == 0.0 {
            0.0
        } else {
            let distances = (later.y.mean - self.y.mean) * (later.x.mean - self.x.mean);
            distances * (self.x.count * later.x.count / x.count)
        };
        Self { y, x, products: self.products + later.products + between }
    }
}

impl PairMoments {
    pub(super) fn sample_covariance(self) -> Option<f64> {
        per_degree(self.products, self.x.count - 1.0)
    }

    pub(super) fn population_covariance(self) -> Option<f64> {
        per_degree(self.products, self.x.count)
    }

    /// As of groups: NaN if there is one on both sides, and null if there is one on one side.
    pub(super) fn correlation(self) -> Option<f64> {
        match (self.y.sum.is_nan(), self.x.sum.is_nan()) {
            (true, true) => return Some(f64::NAN),
            (false, false) => {}
            _ => return None,
        }
        let is_line = self.x.count > 1.0 && self.x.squares != 0.0 && self.y.squares != 0.0;
        is_line.then(|| self.products / self.y.squares.sqrt() / self.x.squares.sqrt())
    }

    pub(super) fn slope(self) -> Option<f64> {
        let is_line = self.x.count > 1.0 && self.x.squares != 0.0;
        is_line.then(|| self.products / self.x.squares)
    }

    pub(super) fn intercept(self) -> Option<f64> {
        self.slope().map(|slope| self.y.mean - slope * self.x.mean)
    }

    /// The coefficient of determination.
    pub(super) fn r2(self) -> Option<f64> {
        let slope = self.slope().filter(|_| self.y.squares != 0.0);
        slope.map(|slope| slope * (self.products / self.y.squares))
    }

    pub(super) fn average_x(self) -> Option<f64> {
        self.x.average()
    }

    pub(super) fn average_y(self) -> Option<f64> {
        self.y.average()
    }

    pub(super) fn squares_x(self) -> Option<f64> {
        self.x.sum_of_squares()
    }

    pub(super) fn squares_y(self) -> Option<f64> {
        self.y.sum_of_squares()
    }

    pub(super) fn products(self) -> Option<f64> {
        (self.x.count > 0.0).then_some(self.products)
    }
}
