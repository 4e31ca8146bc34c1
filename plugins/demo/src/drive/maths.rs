//! Trigonometry and rotations that are bit-identical on every machine.
//!
//! Only uses operations that IEEE 754 defines exactly, so not the platform's `sin` and `cos`.

use std::f64::consts::FRAC_PI_2;

pub(super) type Vector = [f64; 3];
pub(super) type Matrix = [[f64; 3]; 3];

/// A unit quaternion, `w x y z`.
pub(super) type Quaternion = [f64; 4];

/// Sine and cosine of an angle in turns.
pub(super) fn sin_cos(turns: f64) -> (f64, f64) {
    let quarters = turns * 4.0;
    let nearest = (quarters + 0.5).floor();
    let angle = (quarters - nearest) * FRAC_PI_2;
    let (sine, cosine) = (short_sine(angle), short_cosine(angle));
    match (nearest as i64).rem_euclid(4) {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

/// The Taylor series up to x¹⁵. The error is below 1e-16 for |x| ≤ π/4.
fn short_sine(x: f64) -> f64 {
    let divisors = [210.0, 156.0, 110.0, 72.0, 42.0, 20.0, 6.0];
    x * nested(x * x, &divisors)
}

/// The Taylor series up to x¹⁶. The error is below 1e-16 for |x| ≤ π/4.
fn short_cosine(x: f64) -> f64 {
    let divisors = [240.0, 182.0, 132.0, 90.0, 56.0, 30.0, 12.0, 2.0];
    nested(x * x, &divisors)
}

/// `1 - s/dₙ·(1 - s/dₙ₋₁·(…))`, innermost divisor first.
fn nested(square: f64, divisors: &[f64]) -> f64 {
    divisors.iter().fold(1.0, |inner, divisor| 1.0 - square / divisor * inner)
}

/// The rotation by roll, then pitch, then yaw, each in turns.
pub(super) fn from_roll_pitch_yaw(turns: Vector) -> Quaternion {
    let about = |axis: usize| {
        let (sine, cosine) = sin_cos(turns[axis] / 2.0);
        let mut rotation = [cosine, 0.0, 0.0, 0.0];
        rotation[axis + 1] = sine;
        rotation
    };
    product(product(about(2), about(1)), about(0))
}

/// The rotation about z that turns the x axis into the unit vector (`cosine`, `sine`).
pub(super) fn from_heading(cosine: f64, sine: f64) -> Quaternion {
    // The larger component comes from the root and the other from it, so neither loses digits.
    if cosine > 0.0 {
        let w = ((1.0 + cosine) / 2.0).sqrt();
        [w, 0.0, 0.0, sine / (2.0 * w)]
    } else {
        let z = ((1.0 - cosine) / 2.0).sqrt().copysign(sine);
        [sine / (2.0 * z), 0.0, 0.0, z]
    }
}

/// The rotation `b`, then the rotation `a`.
pub(super) fn product(a: Quaternion, b: Quaternion) -> Quaternion {
    [
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    ]
}

/// The matrix of a unit quaternion.
pub(super) fn matrix([w, x, y, z]: Quaternion) -> Matrix {
    [
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
        [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
        [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)],
    ]
}

/// `m · v`.
pub(super) fn rotate(m: &Matrix, v: Vector) -> Vector {
    m.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2])
}

/// `a + b`.
pub(super) fn sum(a: Vector, b: Vector) -> Vector {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sines_agree_with_the_standard_library() {
        for step in -2000..2000 {
            let turns = f64::from(step) / 720.0;
            let (sine, cosine) = sin_cos(turns);
            let expected = (turns * std::f64::consts::TAU).sin_cos();
            assert!((sine - expected.0).abs() < 1e-14, "sine of {turns} turns");
            assert!((cosine - expected.1).abs() < 1e-14, "cosine of {turns} turns");
        }
    }

    #[test]
    fn a_heading_turns_the_x_axis_onto_it() {
        for step in 0..360 {
            let (sine, cosine) = sin_cos(f64::from(step) / 360.0);
            let x = rotate(&matrix(from_heading(cosine, sine)), [1.0, 0.0, 0.0]);
            assert!((x[0] - cosine).abs() < 1e-14 && (x[1] - sine).abs() < 1e-14, "{step}°");
        }
    }
}
