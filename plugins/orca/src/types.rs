//! The built-in set of types `orca`: the objects that Orca wrote.

/// The `.ice` files, by the years of the software: name and text.
pub(crate) const TYPES: &[(&str, &str)] = &[
    ("a-2006-08/camera.ice", include_str!("../types/a-2006-08/camera.ice")),
    ("a-2006-08/common.ice", include_str!("../types/a-2006-08/common.ice")),
    ("a-2006-08/gps.ice", include_str!("../types/a-2006-08/gps.ice")),
    ("a-2006-08/laser.ice", include_str!("../types/a-2006-08/laser.ice")),
    ("a-2006-08/localise2d.ice", include_str!("../types/a-2006-08/localise2d.ice")),
    ("a-2006-08/polarfeature2d.ice", include_str!("../types/a-2006-08/polarfeature2d.ice")),
    ("a-2006-08/position2d.ice", include_str!("../types/a-2006-08/position2d.ice")),
    ("a-2006-08/position3d.ice", include_str!("../types/a-2006-08/position3d.ice")),
    ("a-2006-08/power.ice", include_str!("../types/a-2006-08/power.ice")),
    ("b-2006-12/camera.ice", include_str!("../types/b-2006-12/camera.ice")),
    ("b-2006-12/common.ice", include_str!("../types/b-2006-12/common.ice")),
    ("b-2006-12/cpu.ice", include_str!("../types/b-2006-12/cpu.ice")),
    ("b-2006-12/polarfeature2d.ice", include_str!("../types/b-2006-12/polarfeature2d.ice")),
    ("b-2006-12/power.ice", include_str!("../types/b-2006-12/power.ice")),
    ("b-2006-12/rangescanner2d.ice", include_str!("../types/b-2006-12/rangescanner2d.ice")),
    ("c-2007-2010/common.ice", include_str!("../types/c-2007-2010/common.ice")),
    ("c-2007-2010/cpu.ice", include_str!("../types/c-2007-2010/cpu.ice")),
    ("c-2007-2010/drivebicycle.ice", include_str!("../types/c-2007-2010/drivebicycle.ice")),
    ("c-2007-2010/gps.ice", include_str!("../types/c-2007-2010/gps.ice")),
    ("c-2007-2010/image.ice", include_str!("../types/c-2007-2010/image.ice")),
    ("c-2007-2010/imu.ice", include_str!("../types/c-2007-2010/imu.ice")),
    ("c-2007-2010/localise2d.ice", include_str!("../types/c-2007-2010/localise2d.ice")),
    (
        "c-2007-2010/odometry2d-2008-06.ice",
        include_str!("../types/c-2007-2010/odometry2d-2008-06.ice"),
    ),
    ("c-2007-2010/odometry2d-2009.ice", include_str!("../types/c-2007-2010/odometry2d-2009.ice")),
    (
        "c-2007-2010/odometry3d-2008-06.ice",
        include_str!("../types/c-2007-2010/odometry3d-2008-06.ice"),
    ),
    ("c-2007-2010/odometry3d-2009.ice", include_str!("../types/c-2007-2010/odometry3d-2009.ice")),
    ("c-2007-2010/polarfeature2d.ice", include_str!("../types/c-2007-2010/polarfeature2d.ice")),
    ("c-2007-2010/power-2007.ice", include_str!("../types/c-2007-2010/power-2007.ice")),
    ("c-2007-2010/power-2008-06.ice", include_str!("../types/c-2007-2010/power-2008-06.ice")),
    ("c-2007-2010/power-2009.ice", include_str!("../types/c-2007-2010/power-2009.ice")),
    ("c-2007-2010/rangescanner2d.ice", include_str!("../types/c-2007-2010/rangescanner2d.ice")),
    (
        "c-2007-2010/vehicledescription.ice",
        include_str!("../types/c-2007-2010/vehicledescription.ice"),
    ),
];

sluice_model::register! {
    types "orca": TYPES,
    codec: "ice",
    encoding: sluice_model::Encoding::Ice,
    about: "scans, poses, images, GPS, power and other objects of the Orca robotics project, 2006 \
        to 2010",
}
