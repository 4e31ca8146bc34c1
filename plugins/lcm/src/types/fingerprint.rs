//! Fingerprints, the number at the start of every message, computed as lcm-gen does.
//!
//! The base hash of a struct covers the names of its members, their types if primitive, and their
//! dimensions as written. The fingerprints of its member types are added, and the sum is rotated by
//! one bit. Where a type contains itself, the inner occurrence counts as 0.

use std::cell::Cell;

use super::graph::{MAX_COMPONENT, TypeComponents};
use super::syntax::{Declaration, Dimension, TypeBody, TypeName};
use super::{Library, TypeId};

/// The fingerprints of all types of a library, or why a type has none.
pub fn fingerprints(library: &Library) -> Vec<Result<u64, &'static str>> {
    let groups = TypeComponents::new(library);
    let bases = library.ids().map(|id| base_hash(&library.get(id).declaration)).collect();
    let known = vec![Err("not computed yet"); library.ids().count()];
    let steps = Cell::new(MAX_STEPS);
    let mut sums = FingerprintSums {
        library,
        components: &groups,
        base_hashes: bases,
        finished: known,
        steps_left: steps,
    };
    for group in groups.iter() {
        let worked_out: Vec<_> =
            group.iter().map(|id| (*id, sums.fingerprint(*id, group))).collect();
        for (id, fingerprint) in worked_out {
            sums.finished[id.index()] = fingerprint;
        }
    }
    sums.finished
}

/// Most steps for all types of a library: the number of paths through mutually recursive types
/// grows exponentially.
const MAX_STEPS: usize = 4_000_000;
const TOO_ENTANGLED: &str = "too many types contain each other to compute a fingerprint";

struct FingerprintSums<'l> {
    library: &'l Library,
    components: &'l TypeComponents,
    base_hashes: Vec<i64>,
    /// Results of the types of earlier components.
    finished: Vec<Result<u64, &'static str>>,
    /// Steps left.
    steps_left: Cell<usize>,
}

impl FingerprintSums<'_> {
    fn fingerprint(&self, id: TypeId, group: &[TypeId]) -> Result<u64, &'static str> {
        if group.len() > MAX_COMPONENT {
            return Err(TOO_ENTANGLED);
        }
        self.sum_on_path(id, &mut Vec::new()).map(i64::cast_unsigned)
    }

    /// The sum for a type that is contained in the types of `path`, outermost first.
    fn sum_on_path(&self, id: TypeId, path: &mut Vec<TypeId>) -> Result<i64, &'static str> {
        if path.contains(&id) {
            return Ok(0);
        }
        let declared = self.library.get(id);
        let mut sum = self.base_hashes[id.index()];
        if matches!(declared.declaration.body, TypeBody::Enum(_)) {
            return Ok(sum);
        }
        path.push(id);
        for used in declared.uses.iter().flatten() {
            if self.steps_left.get() == 0 {
                return Err(TOO_ENTANGLED);
            }
            self.steps_left.set(self.steps_left.get() - 1);
            // A type that cannot contain this one has the same fingerprint everywhere.
            let part = if self.components.same_component(id, *used) {
                self.sum_on_path(*used, path)?
            } else {
                self.finished[used.index()].map(u64::cast_signed)?
            };
            sum = sum.wrapping_add(part);
        }
        path.pop();
        Ok(sum.rotate_left(1))
    }
}

/// The hash of a declaration without its member types.
fn base_hash(declaration: &Declaration) -> i64 {
    let members = match &declaration.body {
        TypeBody::Enum(_) => {
            let short = declaration.name.rsplit('.').next().unwrap_or_default();
            return LcmGenHash(0x8765_4321).text(short).0;
        }
        TypeBody::Struct { members, .. } => members,
    };
    let mut hash = LcmGenHash(0x1234_5678);
    for member in members {
        hash = hash.text(&member.name);
        if let TypeName::Primitive(primitive) = &member.of {
            hash = hash.text(primitive.name());
        }
        hash = hash.byte(member.dimensions.len() as u8);
        for dimension in &member.dimensions {
            hash = match dimension {
                Dimension::Fixed { text, .. } => hash.byte(0).text(text),
                Dimension::Counted(place) => {
                    hash.byte(1).text(members.get(*place).map_or("", |member| &member.name))
                }
            };
        }
    }
    hash.0
}

/// lcm-gen's hash, as computed on machines where `char` is signed.
struct LcmGenHash(i64);

impl LcmGenHash {
    fn byte(self, byte: u8) -> Self {
        let turned = (self.0 << 8) ^ (self.0 >> 55);
        Self(turned.wrapping_add(i64::from(byte.cast_signed())))
    }

    /// Hashes the low byte of the length, then the bytes.
    fn text(self, text: &str) -> Self {
        text.bytes().fold(self.byte(text.len() as u8), Self::byte)
    }
}
