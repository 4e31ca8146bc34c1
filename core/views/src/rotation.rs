//! Rotations as unit quaternions, and placements. Knows no frames.

/// A unit quaternion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotation {
    /// Along x.
    pub x: f64,
    /// Along y.
    pub y: f64,
    /// Along z.
    pub z: f64,
    /// The real part.
    pub w: f64,
}

impl Rotation {
    /// No rotation.
    pub const IDENTITY: Self = Self { x: 0.0, y: 0.0, z: 0.0, w: 1.0 };

    /// The rotation of a quaternion of any length; `None` if that is zero or not finite.
    pub fn from_xyzw([x, y, z, w]: [f64; 4]) -> Option<Self> {
        let length = [x, y, z, w].iter().map(|part| part * part).sum::<f64>().sqrt();
        let is_usable = length.is_finite() && length > 0.0;
        is_usable.then(|| Self { x: x / length, y: y / length, z: z / length, w: w / length })
    }

    /// The rotation by these angles in radians: roll, then pitch, then yaw, about fixed axes.
    pub fn from_rpy([roll, pitch, yaw]: [f64; 3]) -> Self {
        let (sr, cr) = (roll / 2.0).sin_cos();
        let (sp, cp) = (pitch / 2.0).sin_cos();
        let (sy, cy) = (yaw / 2.0).sin_cos();
        Self {
            x: sr * cp * cy - cr * sp * sy,
            y: cr * sp * cy + sr * cp * sy,
            z: cr * cp * sy - sr * sp * cy,
            w: cr * cp * cy + sr * sp * sy,
        }
    }
}

/// A position and a rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// Metres.
    pub position: [f64; 3],
    /// How it is turned.
    pub rotation: Rotation,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_become_the_quaternion_about_their_axis() {
        let half = std::f64::consts::FRAC_PI_2;
        let root = std::f64::consts::FRAC_1_SQRT_2;
        for (axis, part) in [(0, "x"), (1, "y"), (2, "z")] {
            let mut angles = [0.0; 3];
            angles[axis] = half;
            let Rotation { x, y, z, w } = Rotation::from_rpy(angles);
            let parts = [x, y, z];
            assert!((w - root).abs() < 1e-15 && (parts[axis] - root).abs() < 1e-15, "{part}");
        }
    }

    #[test]
    fn quaternions_are_normalised_or_refused() {
        assert_eq!(Rotation::from_xyzw([0.0, 0.0, 0.0, 2.0]), Some(Rotation::IDENTITY));
        assert_eq!(Rotation::from_xyzw([0.0; 4]), None);
        assert_eq!(Rotation::from_xyzw([f64::NAN, 0.0, 0.0, 1.0]), None);
    }
}
