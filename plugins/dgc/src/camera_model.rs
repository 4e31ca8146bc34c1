//! Projects points onto camera images and pixels onto rays. Reads no images.
//!
//! Pixel coordinates start in the upper left corner of the image: the first pixel spans 0 to 1.

use crate::calibration::{Camera, Distortion};
use crate::geometry::Transform;

/// A position on an image, with depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pixel {
    /// The column.
    pub u: f64,
    /// The row.
    pub v: f64,
    /// Depth of the point along the optical axis, in metres.
    pub depth: f64,
}

/// A camera for images of one size.
#[derive(Clone, Debug)]
pub struct CameraModel {
    camera: Camera,
    from_body: Transform,
    /// Size of the images.
    width: f64,
    height: f64,
    /// Scale of the images relative to the calibration images.
    scale: f64,
}

impl CameraModel {
    /// A camera for images of this size. `None` if the aspect ratio differs from the calibration:
    /// then they are cropped, or of another camera.
    pub fn new(camera: &Camera, width: u32, height: u32) -> Option<Self> {
        let scale = f64::from(width) / f64::from(camera.width);
        let off = f64::from(height) - f64::from(camera.height) * scale;
        (width > 0 && height > 0 && off.abs() <= 1.0).then(|| Self {
            camera: camera.clone(),
            from_body: camera.mount.to_body().inverse(),
            width: width.into(),
            height: height.into(),
            scale,
        })
    }

    /// The transform from the body frame to the camera frame.
    pub fn from_body(&self) -> &Transform {
        &self.from_body
    }

    /// Position of the camera in the body frame.
    pub fn position(&self) -> [f64; 3] {
        self.camera.mount.position
    }

    /// Projects a point of the body frame. `None` if it is not ahead or outside the image.
    pub fn project(&self, point: [f64; 3]) -> Option<Pixel> {
        self.apply_distortion(self.project_pinhole(self.from_body.apply(point))?)
    }

    /// Projects a point of the camera frame without distortion, inside or outside the image. `None`
    /// if it is not ahead.
    pub fn project_pinhole(&self, [x, y, depth]: [f64; 3]) -> Option<Pixel> {
        let pinhole = &self.camera.pinhole;
        let (x, y) = (x / depth, y / depth);
        let u = self.scale * (pinhole.fx * x + pinhole.skew * y + pinhole.cx);
        let v = self.scale * (pinhole.fy * y + pinhole.cy);
        (depth > 0.0 && u.is_finite() && v.is_finite()).then_some(Pixel { u, v, depth })
    }

    /// Applies the distortion to a pixel. `None` if it falls outside the image.
    pub fn apply_distortion(&self, undistorted: Pixel) -> Option<Pixel> {
        let (u, v) = self.distort(undistorted.u, undistorted.v);
        let is_inside = (0.0..self.width).contains(&u) && (0.0..self.height).contains(&v);
        is_inside.then_some(Pixel { u, v, depth: undistorted.depth })
    }

    /// The ray of a pixel: the point at depth 1, relative to the camera, along the body axes. The
    /// point at depth `d` is `d` times that vector from the camera.
    ///
    /// `None` where the lens projects nothing.
    pub fn ray(&self, u: f64, v: f64) -> Option<[f64; 3]> {
        let (u, v) = self.undistort(u, v)?;
        let pinhole = &self.camera.pinhole;
        let y = (v / self.scale - pinhole.cy) / pinhole.fy;
        let x = (u / self.scale - pinhole.cx - pinhole.skew * y) / pinhole.fx;
        Some(self.camera.mount.orientation.rotate([x, y, 1.0]))
    }

    /// Maps a position of the undistorted image to the distorted one; may fall outside.
    pub fn distort(&self, u: f64, v: f64) -> (f64, f64) {
        self.scale_radially(u, v, |r2, strength| 1.0 + strength * r2).unwrap_or((u, v))
    }

    /// Maps a position of the distorted image to the undistorted one. `None` beyond the reach of
    /// the lens.
    pub fn undistort(&self, u: f64, v: f64) -> Option<(f64, f64)> {
        self.scale_radially(u, v, |r2, strength| 1.0 - strength * r2)
    }

    /// Moves a position towards or away from the distortion centre, by one over the square root of
    /// a divisor that depends on the squared distance and the strength. `None` if the divisor is
    /// not above 0.
    fn scale_radially(
        &self,
        u: f64,
        v: f64,
        divisor: impl Fn(f64, f64) -> f64,
    ) -> Option<(f64, f64)> {
        let Distortion::Spherical { center, param } = self.camera.distortion else {
            return Some((u, v));
        };
        let [x, y] =
            [u / self.width - self.image_center()[0], v / self.width - self.image_center()[1]];
        let (x, y) = (x - center[0], y - center[1]);
        let r2 = x * x + y * y;
        let by = divisor(r2, param.powi(4)).recip().sqrt();
        // A divisor of 0 yields infinity, a negative one NaN.
        by.is_finite().then(|| {
            let [middle_x, middle_y] = self.image_center();
            let (x, y) = (x * by + middle_x + center[0], y * by + middle_y + center[1]);
            (x * self.width, y * self.width)
        })
    }

    /// The image centre, in image widths.
    fn image_center(&self) -> [f64; 2] {
        let Camera { width, height, .. } = self.camera;
        [0.5, 0.5 * f64::from(height) / f64::from(width)]
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::calibration::{BUILT_IN, Calibration, Mount, Pinhole};
    use crate::geometry::Quaternion;

    /// A camera of 100 by 50 pixels that looks along the x axis of the body.
    fn ahead(distortion: Distortion) -> Camera {
        Camera {
            name: "ahead".into(),
            width: 100,
            height: 50,
            pinhole: Pinhole { fx: 100.0, fy: 100.0, skew: 0.0, cx: 50.0, cy: 25.0 },
            distortion,
            mount: Mount {
                position: [1.0, 0.0, 2.0],
                orientation: Quaternion::from_roll_pitch_yaw_degrees([-90.0, 0.0, -90.0]),
            },
            uid: None,
            thumbnail_channel: None,
            image_url_channel: None,
            full_frame_channel: None,
            short_name: None,
        }
    }

    fn near(pixel: Option<Pixel>, [u, v, depth]: [f64; 3]) -> bool {
        pixel
            .is_some_and(|p| [p.u - u, p.v - v, p.depth - depth].iter().all(|off| off.abs() < 1e-9))
    }

    #[test]
    fn a_point_ahead_is_in_the_middle_and_left_of_it_is_left() {
        let model = CameraModel::new(&ahead(Distortion::None), 100, 50).unwrap();
        assert!(near(model.project([11.0, 0.0, 2.0]), [50.0, 25.0, 10.0]));
        assert!(near(model.project([11.0, 1.0, 2.0]), [40.0, 25.0, 10.0]));
        assert!(near(model.project([11.0, 0.0, 3.0]), [50.0, 15.0, 10.0]));
    }

    #[test]
    fn what_is_behind_or_beside_the_image_is_not_seen() {
        let model = CameraModel::new(&ahead(Distortion::None), 100, 50).unwrap();
        let points = [[-9.0, 0.0, 2.0], [1.0, 0.0, 2.0], [11.0, 6.0, 2.0], [11.0, 0.0, 5.0]];
        for point in points {
            assert_eq!(model.project(point), None, "{point:?}");
        }
        assert_eq!(model.project([f64::NAN, 0.0, 2.0]), None);
        assert_eq!(model.project([11.0, f64::INFINITY, 2.0]), None);
    }

    #[test]
    fn the_upper_left_edge_belongs_to_the_image_and_the_lower_right_one_does_not() {
        let model = CameraModel::new(&ahead(Distortion::None), 100, 50).unwrap();
        let apply_distortion = |u, v| model.apply_distortion(Pixel { u, v, depth: 1.0 }).is_some();
        assert!(apply_distortion(0.0, 0.0) && apply_distortion(99.999, 49.999));
        assert!(
            !apply_distortion(100.0, 0.0)
                && !apply_distortion(0.0, 50.0)
                && !apply_distortion(-0.001, 0.0)
        );
    }

    #[test]
    fn small_images_have_pixels_in_proportion() {
        let camera = ahead(Distortion::Spherical { center: [0.02, -0.01], param: 0.9 });
        let [full, half] = [1, 2].map(|by| CameraModel::new(&camera, 100 / by, 50 / by).unwrap());
        let (full, half) =
            (full.project([11.0, 1.0, 1.0]).unwrap(), half.project([11.0, 1.0, 1.0]).unwrap());
        assert!(near(Some(half), [full.u / 2.0, full.v / 2.0, full.depth]));
    }

    #[test]
    fn images_of_another_shape_are_refused() {
        let camera = ahead(Distortion::None);
        for (width, height) in [(100, 100), (50, 50), (0, 0), (100, 0), (u32::MAX, 50)] {
            assert!(CameraModel::new(&camera, width, height).is_none(), "{width} x {height}");
        }
    }

    #[test]
    fn spherical_distortion_grows_with_the_fourth_power_of_its_parameter() {
        let model = CameraModel::new(
            &ahead(Distortion::Spherical { center: [0.0, 0.0], param: 1.2 }),
            100,
            50,
        );
        let model = model.unwrap();
        // A fifth of the width to the right of the middle.
        let by = (1.0 / (1.0 + 1.2_f64.powi(4) * 0.04)).sqrt();
        let (u, v) = model.distort(70.0, 25.0);
        assert!((u - (50.0 + 20.0 * by)).abs() < 1e-9 && (v - 25.0).abs() < 1e-9);
        let (u, _) = model.distort(50.005, 25.0);
        assert!((u - 50.005).abs() < 1e-9, "near its centre a lens hardly distorts");
        assert_eq!(model.undistort(50.0 + 100.0 / 1.44 + 0.01, 25.0), None);
    }

    #[test]
    fn each_camera_of_the_vehicle_sees_its_middle_and_back() {
        let calibration = Calibration::load(Path::new(BUILT_IN)).unwrap();
        for camera in calibration.cameras() {
            let model = CameraModel::new(camera, 376, 240).unwrap();
            let ray = model.ray(188.0, 120.0).unwrap();
            let at = camera.mount.position;
            let point = [0, 1, 2].map(|axis| at[axis] + 7.0 * ray[axis]);
            assert!(near(model.project(point), [188.0, 120.0, 7.0]), "{}", camera.name);
        }
    }

    proptest! {
        #[test]
        fn undistorting_takes_back_what_distorting_did(
            (u, v) in (-300.0..400.0_f64, -300.0..400.0_f64),
            (x, y) in (-0.1..0.1_f64, -0.1..0.1_f64), param in 0.0..2.0_f64,
        ) {
            let camera = ahead(Distortion::Spherical { center: [x, y], param });
            let model = CameraModel::new(&camera, 100, 50).unwrap();
            let (du, dv) = model.distort(u, v);
            // Far out all positions are drawn to one circle, where rounding decides.
            let back = model.undistort(du, dv);
            let strength = param.powi(4) * ((u - 50.0).hypot(v - 25.0) / 100.0 + 0.2).powi(2);
            let allowed = 1e-9 * (1.0 + strength).powi(2);
            let Some((bu, bv)) = back else {
                return Err(TestCaseError::fail(format!("nothing of {u} {v}")));
            };
            prop_assert!((bu - u).hypot(bv - v) < allowed, "{bu} {bv} from {u} {v}");
        }

        #[test]
        fn distorting_takes_back_what_undistorting_did(
            (u, v) in (0.0..100.0_f64, 0.0..50.0_f64), param in 0.0..2.0_f64,
        ) {
            let camera = ahead(Distortion::Spherical { center: [0.01, -0.02], param });
            let model = CameraModel::new(&camera, 100, 50).unwrap();
            let (x, y) = (u / 100.0 - 0.51, v / 100.0 - 0.23);
            let reach = param.powi(4) * (x * x + y * y);
            let undistorted = model.undistort(u, v);
            // At the edge of the lens, rounding decides.
            prop_assert!(undistorted.is_some() || reach > 0.999_999, "nothing of {u} {v}");
            prop_assert!(undistorted.is_none() || reach < 1.000_001, "something of {u} {v}");
            // Near the edge of the lens, positions come from far out, where few digits are left.
            let allowed = 1e-9 / (1.0 - reach).clamp(1e-9, 1.0);
            let (bu, bv) = undistorted.map_or((u, v), |(fu, fv)| model.distort(fu, fv));
            prop_assert!((bu - u).hypot(bv - v) < allowed, "{bu} {bv} from {u} {v}");
        }

        #[test]
        fn a_point_on_the_ray_of_a_pixel_is_seen_there(
            (u, v) in (0.5..99.5_f64, 0.5..49.5_f64),
            depth in 0.1..200.0_f64, param in 0.0..1.2_f64,
            skew in -9.0..9.0_f64,
        ) {
            let mut camera = ahead(Distortion::Spherical { center: [0.01, -0.02], param });
            camera.pinhole.skew = skew;
            let model = CameraModel::new(&camera, 100, 50).unwrap();
            // Lenses of this strength reach all corners.
            let ray = model.ray(u, v).unwrap();
            let at = camera.mount.position;
            let point = [0, 1, 2].map(|axis| at[axis] + depth * ray[axis]);
            let Pixel { u: pu, v: pv, depth: pd } = model.project(point).unwrap();
            prop_assert!((pu - u).hypot(pv - v) < 1e-9, "{pu} {pv} from {u} {v}");
            prop_assert!((pd - depth).abs() < 1e-9 * depth.max(1.0));
        }
    }
}
