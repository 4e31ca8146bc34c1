//! Types declared in the message language of ROS, or in its part of IDL. Knows no payload.

mod idl;
pub(crate) mod library;
pub(crate) mod shapes;
pub(crate) mod text;

/// The generation of ROS. They differ in names and in the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    Ros1,
    Ros2,
}
