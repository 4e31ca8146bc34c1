//! The wire formats of both generations: how payloads begin, and the rules of their fields.

use sluice_kit::columns::{
    Endian, EnumEncoding, Faults, LengthEncoding, PayloadField, PayloadPlan, Strictness, WireRules,
};

use crate::types::Generation;

/// ROS 1: neither alignment nor a head.
const ROS1: WireRules = WireRules {
    endian: Endian::Little,
    booleans: 1,
    lengths: LengthEncoding::U32,
    enums: EnumEncoding::I32,
    alignment: 1,
    strictness: Strictness::Lossless,
    // The shapes of types have limits of their own.
    max_columns: usize::MAX,
    max_depth: usize::MAX,
    max_fixed_len: 16 << 20,
    faults: &Faults::DEFAULT,
};

/// CDR of version 1, behind its head.
const ROS2: WireRules = WireRules { lengths: LengthEncoding::U32WithNul, alignment: 8, ..ROS1 };

/// The head of plain CDR of version 1, little-endian, without options.
const CDR_HEAD: [u8; 4] = [0, 1, 0, 0];

/// Why a payload has no usable head.
const NO_HEAD: &str = "it is shorter than the head of CDR";
const OTHER_HEAD: &str = "its head is not that of plain CDR of version 1";

impl Generation {
    /// The codec of its payloads.
    pub(crate) fn codec(self) -> &'static str {
        match self {
            Self::Ros1 => "ros1",
            Self::Ros2 => "ros2",
        }
    }

    /// What the payloads begin with that are encoded.
    pub(super) fn head(self) -> &'static [u8] {
        match self {
            Self::Ros1 => &[],
            Self::Ros2 => &CDR_HEAD,
        }
    }

    /// The fields of a payload and their byte order.
    pub(super) fn body(self, payload: &[u8]) -> Result<(Endian, &[u8]), &'static str> {
        if self == Self::Ros1 {
            return Ok((Endian::Little, payload));
        }
        match payload.split_first_chunk() {
            Some(([0, 0, _, _], body)) => Ok((Endian::Big, body)),
            Some(([0, 1, _, _], body)) => Ok((Endian::Little, body)),
            Some(_) => Err(OTHER_HEAD),
            None => Err(NO_HEAD),
        }
    }

    fn rules(self) -> WireRules {
        match self {
            Self::Ros1 => ROS1,
            Self::Ros2 => ROS2,
        }
    }
}

/// The plans of a type.
#[derive(Debug)]
pub(super) struct Plans {
    pub(super) generation: Generation,
    /// For the payloads that encoding reproduces.
    pub(super) exact: PayloadPlan,
    lenient: PayloadPlan,
    big_endian: Option<PayloadPlan>,
}

impl Plans {
    pub(super) fn compile(generation: Generation, fields: &[PayloadField]) -> Result<Self, String> {
        let rules = generation.rules();
        let lenient = WireRules { strictness: Strictness::Lenient, ..rules };
        let big_endian = (generation == Generation::Ros2)
            .then(|| PayloadPlan::compile(WireRules { endian: Endian::Big, ..lenient }, fields));
        Ok(Self {
            generation,
            exact: PayloadPlan::compile(rules, fields)?,
            lenient: PayloadPlan::compile(lenient, fields)?,
            big_endian: big_endian.transpose()?,
        })
    }

    /// The plan for all payloads of a byte order.
    pub(super) fn lenient(&self, endian: Endian) -> &PayloadPlan {
        match (endian, &self.big_endian) {
            (Endian::Big, Some(plan)) => plan,
            _ => &self.lenient,
        }
    }
}
