//! Quaternions and rigid transforms. Knows neither sensors nor calibrations, nor the globe.

/// Points transformed at a time, so that their coordinates stay in the cache for all three rows.
const CHUNK_LEN: usize = 4096;

/// A quaternion. Orientations are unit quaternions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quaternion {
    /// The cosine of half the angle.
    pub w: f64,
    /// x of the axis, times the sine of half the angle.
    pub x: f64,
    /// y of the axis, times the sine of half the angle.
    pub y: f64,
    /// z of the axis, times the sine of half the angle.
    pub z: f64,
}

impl Quaternion {
    /// The identity rotation.
    pub const IDENTITY: Self = Self { w: 1.0, x: 0.0, y: 0.0, z: 0.0 };

    /// The rotation that rolls about x, then pitches about y, then yaws about z, all about fixed
    /// axes.
    pub fn from_roll_pitch_yaw_degrees([roll, pitch, yaw]: [f64; 3]) -> Self {
        let half = |degrees: f64| (degrees.to_radians() / 2.0).sin_cos();
        let ((sr, cr), (sp, cp), (sy, cy)) = (half(roll), half(pitch), half(yaw));
        Self {
            w: cr * cp * cy + sr * sp * sy,
            x: sr * cp * cy - cr * sp * sy,
            y: cr * sp * cy + sr * cp * sy,
            z: cr * cp * sy - sr * sp * cy,
        }
    }

    /// The rotation by an angle, in radians, about an axis of any length. Returns the identity for
    /// an axis of length 0.
    pub fn from_angle_axis(angle: f64, [x, y, z]: [f64; 3]) -> Self {
        let length = (x * x + y * y + z * z).sqrt();
        if length == 0.0 {
            return Self::IDENTITY;
        }
        let (sin, cos) = (angle / 2.0).sin_cos();
        let scale = sin / length;
        Self { w: cos, x: x * scale, y: y * scale, z: z * scale }
    }

    /// Scales to length 1. `None` if all components are zero or one is not finite.
    pub fn normalized(self) -> Option<Self> {
        // Divides by the largest component first, so that squares neither overflow nor underflow.
        let largest = [self.w, self.x, self.y, self.z].into_iter().fold(0.0, max_abs);
        if !(largest > 0.0 && largest.is_finite()) {
            return None;
        }
        let shrunk = self.scaled_down(largest);
        let length = shrunk.dot(shrunk).sqrt();
        Some(shrunk.scaled_down(length))
    }

    fn scaled_down(self, by: f64) -> Self {
        Self { w: self.w / by, x: self.x / by, y: self.y / by, z: self.z / by }
    }

    fn dot(self, other: Self) -> f64 {
        self.w * other.w + self.x * other.x + self.y * other.y + self.z * other.z
    }

    /// The rotation by `first`, then by `self`.
    #[must_use]
    pub fn product(self, first: Self) -> Self {
        let (a, b) = (self, first);
        Self {
            w: a.w * b.w - a.x * b.x - a.y * b.y - a.z * b.z,
            x: a.w * b.x + a.x * b.w + a.y * b.z - a.z * b.y,
            y: a.w * b.y - a.x * b.z + a.y * b.w + a.z * b.x,
            z: a.w * b.z + a.x * b.y - a.y * b.x + a.z * b.w,
        }
    }

    /// The inverse of a unit quaternion.
    #[must_use]
    pub fn conjugate(self) -> Self {
        Self { w: self.w, x: -self.x, y: -self.y, z: -self.z }
    }

    /// Rotates a vector.
    pub fn rotate(self, vector: [f64; 3]) -> [f64; 3] {
        mat_vec(&self.matrix(), vector)
    }

    /// The rotation matrix. Its columns are the images of the axes.
    pub fn matrix(self) -> [[f64; 3]; 3] {
        let Self { w, x, y, z } = self;
        [
            [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
            [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
            [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)],
        ]
    }

    /// Spherical interpolation to `other`, on the shorter arc; `part` goes from 0 to 1.
    #[must_use]
    pub fn slerp(self, other: Self, part: f64) -> Self {
        let cos = self.dot(other);
        // A quaternion and its negative are the same orientation; the nearer one is on the shorter
        // arc.
        let (cos, sign) = if cos < 0.0 { (-cos, -1.0) } else { (cos, 1.0) };
        let (from, to) = match cos {
            // For tiny angles the sine vanishes, and linear interpolation is exact enough.
            ..0.999_999 => {
                let angle = cos.acos();
                let sin = angle.sin();
                (((1.0 - part) * angle).sin() / sin, (part * angle).sin() / sin)
            }
            _ => (1.0 - part, part),
        };
        let mix = |a: f64, b: f64| from * a + sign * to * b;
        let mixed = Self {
            w: mix(self.w, other.w),
            x: mix(self.x, other.x),
            y: mix(self.y, other.y),
            z: mix(self.z, other.z),
        };
        mixed.normalized().unwrap_or(self)
    }
}

/// The larger magnitude; propagates NaN.
fn max_abs(known: f64, next: f64) -> f64 {
    if known.is_nan() || known > next.abs() { known } else { next.abs() }
}

fn mat_vec(matrix: &[[f64; 3]; 3], [x, y, z]: [f64; 3]) -> [f64; 3] {
    matrix.map(|[a, b, c]| a * x + b * y + c * z)
}

/// A rigid transform from one frame to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// The axes of the source frame in the target frame, as columns.
    pub rotation: [[f64; 3]; 3],
    /// The origin of the source frame in the target frame.
    pub translation: [f64; 3],
}

impl Transform {
    /// The identity transform.
    pub const IDENTITY: Self = Self {
        rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        translation: [0.0; 3],
    };

    /// The transform from a frame at `position` with this orientation, a unit quaternion, to its
    /// parent.
    pub fn new(position: [f64; 3], orientation: &Quaternion) -> Self {
        Self { rotation: orientation.matrix(), translation: position }
    }

    /// Transforms a point.
    pub fn apply(&self, [x, y, z]: [f64; 3]) -> [f64; 3] {
        let row = |at: usize| affine_row(&self.rotation[at], self.translation[at], x, y, z);
        [row(0), row(1), row(2)]
    }

    /// Transforms points given coordinate by coordinate. Bit-identical to [`Transform::apply`].
    ///
    /// # Panics
    ///
    /// If the coordinates differ in length.
    pub fn apply_all(&self, [x, y, z]: [&[f64]; 3]) -> [Vec<f64>; 3] {
        assert!(x.len() == y.len() && y.len() == z.len(), "coordinates of equal length");
        let mut moved = [(); 3].map(|()| Vec::with_capacity(x.len()));
        for ((x, y), z) in x.chunks(CHUNK_LEN).zip(y.chunks(CHUNK_LEN)).zip(z.chunks(CHUNK_LEN)) {
            for ((to, a), t) in moved.iter_mut().zip(&self.rotation).zip(self.translation) {
                let points = x.iter().zip(y).zip(z);
                to.extend(points.map(|((x, y), z)| affine_row(a, t, *x, *y, *z)));
            }
        }
        moved
    }

    /// The composition: this transform, then `next`.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        let column = |at: usize| mat_vec(&next.rotation, self.rotation.map(|row| row[at]));
        let columns = [column(0), column(1), column(2)];
        Self {
            rotation: [0, 1, 2].map(|at| columns.map(|column| column[at])),
            translation: next.apply(self.translation),
        }
    }

    /// The inverse transform.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let rotation = [0, 1, 2].map(|at| self.rotation.map(|row| row[at]));
        let translation = mat_vec(&rotation, self.translation).map(|t| -t);
        Self { rotation, translation }
    }
}

#[inline]
fn affine_row([a, b, c]: &[f64; 3], t: f64, x: f64, y: f64, z: f64) -> f64 {
    a * x + b * y + c * z + t
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(a: [f64; 3], b: [f64; 3]) -> bool {
        a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9 * (1.0 + b.abs()))
    }

    fn vectors() -> impl Strategy<Value = [f64; 3]> {
        prop::array::uniform3(-1e3..1e3)
    }

    fn orientations() -> impl Strategy<Value = Quaternion> {
        prop::array::uniform3(-720.0..720.0).prop_map(Quaternion::from_roll_pitch_yaw_degrees)
    }

    fn same_orientation(a: Quaternion, b: Quaternion) -> bool {
        a.dot(b).abs() > 1.0 - 1e-9
    }

    #[test]
    fn angles_turn_about_x_first_and_about_z_last() {
        let turn = |angles, v| Quaternion::from_roll_pitch_yaw_degrees(angles).rotate(v);
        assert!(near(turn([90.0, 0.0, 0.0], [0.0, 1.0, 0.0]), [0.0, 0.0, 1.0]));
        assert!(near(turn([0.0, 90.0, 0.0], [1.0, 0.0, 0.0]), [0.0, 0.0, -1.0]));
        assert!(near(turn([0.0, 0.0, 90.0], [1.0, 0.0, 0.0]), [0.0, 1.0, 0.0]));
        assert!(near(turn([90.0, 0.0, 90.0], [0.0, 1.0, 0.0]), [0.0, 0.0, 1.0]));
        assert!(near(turn([90.0, 90.0, 0.0], [0.0, 1.0, 0.0]), [1.0, 0.0, 0.0]));
    }

    #[test]
    fn an_axis_of_any_length_turns_alike_and_one_without_a_length_not_at_all() {
        let one = Quaternion::from_angle_axis(0.7, [0.0, 0.0, 1.0]);
        let long = Quaternion::from_angle_axis(0.7, [0.0, 0.0, 25.0]);
        assert!(same_orientation(one, long));
        let degrees = 0.7_f64.to_degrees();
        assert!(same_orientation(
            one,
            Quaternion::from_roll_pitch_yaw_degrees([0.0, 0.0, degrees])
        ));
        assert_eq!(Quaternion::from_angle_axis(0.7, [0.0; 3]), Quaternion::IDENTITY);
    }

    #[test]
    fn quaternions_without_a_direction_do_not_normalize() {
        let with_w = |w| Quaternion { w, x: 0.0, y: 0.0, z: 0.0 }.normalized();
        assert_eq!(with_w(0.0), None);
        assert_eq!(with_w(f64::NAN), None);
        assert_eq!(with_w(f64::INFINITY), None);
        let nan_last = Quaternion { w: 1.0, x: 0.0, y: 0.0, z: f64::NAN };
        let nan_first = Quaternion { w: f64::NAN, x: 0.0, y: 0.0, z: 1.0 };
        assert_eq!((nan_last.normalized(), nan_first.normalized()), (None, None));
        assert_eq!(with_w(1e-300), Some(Quaternion::IDENTITY));
        assert_eq!(with_w(1e300), Some(Quaternion::IDENTITY));
    }

    #[test]
    fn half_way_is_half_the_angle_on_the_shorter_arc() {
        let turn = |degrees| Quaternion::from_roll_pitch_yaw_degrees([0.0, 0.0, degrees]);
        assert!(same_orientation(turn(0.0).slerp(turn(90.0), 0.5), turn(45.0)));
        assert!(same_orientation(turn(-170.0).slerp(turn(170.0), 0.5), turn(180.0)));
        assert!(same_orientation(turn(10.0).slerp(turn(10.0 + 1e-9), 0.5), turn(10.0)));
        // 350 degrees equals -10 degrees, with the opposite sign.
        assert!(same_orientation(turn(0.0).slerp(turn(350.0), 0.5), turn(-5.0)));
    }

    proptest! {
        #[test]
        fn turning_by_a_product_is_turning_twice(
            a in orientations(), b in orientations(), v in vectors(),
        ) {
            prop_assert!(near(a.product(b).rotate(v), a.rotate(b.rotate(v))));
            prop_assert!(near(a.conjugate().rotate(a.rotate(v)), v));
        }

        #[test]
        fn a_slerp_begins_and_ends_where_it_should_and_keeps_the_length(
            a in orientations(), b in orientations(), part in 0.0..=1.0,
        ) {
            prop_assert!(same_orientation(a.slerp(b, 0.0), a));
            prop_assert!(same_orientation(a.slerp(b, 1.0), b));
            let mixed = a.slerp(b, part);
            prop_assert!((mixed.dot(mixed) - 1.0).abs() < 1e-9);
        }

        #[test]
        fn an_inverse_undoes_its_transform(q in orientations(), t in vectors(), v in vectors()) {
            let there = Transform::new(t, &q);
            prop_assert!(near(there.inverse().apply(there.apply(v)), v));
            prop_assert!(near(there.then(&there.inverse()).apply(v), v));
        }

        #[test]
        fn a_composition_applies_both_transforms_in_order(
            (p, q) in (orientations(), orientations()),
            (s, t, v) in (vectors(), vectors(), vectors()),
        ) {
            let (first, next) = (Transform::new(s, &p), Transform::new(t, &q));
            prop_assert!(near(first.then(&next).apply(v), next.apply(first.apply(v))));
        }

        #[test]
        fn apply_all_matches_apply(
            q in orientations(), t in vectors(), len in 0..2 * CHUNK_LEN + 3,
        ) {
            let moved = Transform::new(t, &q);
            let axis = |by: f64| (0..len).map(|i| i as f64 * by - 3.0).collect::<Vec<f64>>();
            let (x, y, z) = (axis(0.5), axis(-0.25), axis(0.125));
            let all = moved.apply_all([&x, &y, &z]);
            for at in [0, len / 2, len.saturating_sub(1)] {
                if at < len {
                    let one = moved.apply([x[at], y[at], z[at]]);
                    prop_assert_eq!(one, [all[0][at], all[1][at], all[2][at]]);
                }
            }
            prop_assert!(all.iter().all(|axis| axis.len() == len));
        }
    }
}
