//! Data of SVG paths: short, with few decimals.

use std::fmt::Write;

use super::text::{decimals, push_decimals};

/// A path's data under construction.
#[derive(Debug, Default)]
pub(super) struct PathData(String);

impl PathData {
    /// Starts a line at a place.
    pub(super) fn move_to(&mut self, x: f64, y: f64) {
        self.command('M', x, y);
    }

    /// A line to a place.
    pub(super) fn line_to(&mut self, x: f64, y: f64) {
        self.command('L', x, y);
    }

    /// A level line of a length.
    pub(super) fn level(&mut self, length: f64) {
        self.0.push('h');
        push_decimals(&mut self.0, length, 1);
    }

    /// A rectangle, from its lower left corner.
    pub(super) fn bar(&mut self, x: f64, bottom: f64, width: f64, height: f64) {
        self.move_to(x, bottom);
        let (height, width) = (decimals(height, 1), decimals(width, 1));
        // Writing to a string does not fail.
        let _written = write!(self.0, "v-{height}h{width}v{height}z");
    }

    /// A dot, by a line without length whose caps are round.
    pub(super) fn dot(&mut self, x: f64, y: f64) {
        self.move_to(x, y);
        self.0.push_str("h0");
    }

    /// Closes the outline.
    pub(super) fn close(&mut self) {
        self.0.push('z');
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn command(&mut self, letter: char, x: f64, y: f64) {
        self.0.push(letter);
        push_decimals(&mut self.0, x, 1);
        self.0.push(' ');
        let space = self.0.len() - 1;
        push_decimals(&mut self.0, y, 1);
        // A minus separates as well as a space.
        if self.0.as_bytes().get(space + 1) == Some(&b'-') {
            self.0.remove(space);
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that cuts `span` into at most `most` parts.
pub(super) fn round_step(span: f64, most: f64) -> f64 {
    let least = span / most;
    if !(least.is_finite() && least > 0.0) {
        return 1.0;
    }
    let power = 10f64.powi(least.log10().floor() as i32);
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= least);
    step.unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_short() {
        let mut path = PathData::default();
        path.move_to(1.04, -2.0);
        path.line_to(3.0, 4.25);
        path.bar(0.0, 10.0, 2.0, 5.5);
        path.dot(1.0, 1.0);
        assert_eq!(path.as_str(), "M1-2L3 4.2M0 10v-5.5h2v5.5zM1 1h0");
    }

    #[test]
    fn steps_are_round() {
        let steps = [10.0, 37.0, 0.8, 0.0, f64::INFINITY].map(|span| round_step(span, 5.0));
        assert_eq!(steps, [2.0, 10.0, 0.2, 1.0, 1.0]);
    }
}
