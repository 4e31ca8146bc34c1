//! Fingerprints: the number in front of every message, worked out as lcm-gen does.
//!
//! A struct's own part is made of its members' names, their types if the language has them, and their
//! dimensions as they are written. To that the fingerprints of the types it holds are added, and the sum
//! is turned by a bit. Where a type holds itself, its inner occurrence counts as 0.

use std::cell::Cell;

use super::graph::Groups;
use super::syntax::{Body, Declaration, Dimension, TypeName};
use super::{Library, TypeId};

/// The fingerprints of all types of a library, or why one has none.
pub fn fingerprints(library: &Library) -> Vec<Result<u64, &'static str>> {
    let groups = Groups::of(library);
    let bases = library.ids().map(|id| base(&library.get(id).declaration)).collect();
    let known = vec![Err("not worked out yet"); library.ids().count()];
    let steps = Cell::new(MOST_STEPS);
    let mut sums = Sums { library, groups: &groups, bases, known, steps };
    for group in groups.iter() {
        let worked_out: Vec<_> = group.iter().map(|id| (*id, sums.of(*id, group))).collect();
        for (id, fingerprint) in worked_out {
            sums.known[id.index()] = fingerprint;
        }
    }
    sums.known
}

/// How many steps all types of a library may take: paths through types that hold each other grow faster
/// than powers.
const MOST_STEPS: usize = 4_000_000;
/// How many types may hold each other.
pub(super) const LARGEST_GROUP: usize = 64;
const ENTANGLED: &str = "too many types hold each other to work out a fingerprint";

struct Sums<'l> {
    library: &'l Library,
    groups: &'l Groups,
    bases: Vec<i64>,
    /// What is known of the types of earlier groups.
    known: Vec<Result<u64, &'static str>>,
    /// How many steps may still be taken.
    steps: Cell<usize>,
}

impl Sums<'_> {
    fn of(&self, id: TypeId, group: &[TypeId]) -> Result<u64, &'static str> {
        if group.len() > LARGEST_GROUP {
            return Err(ENTANGLED);
        }
        self.on_path(id, &mut Vec::new()).map(i64::cast_unsigned)
    }

    /// The part of a type that is held by the types of `path`, the outermost first.
    fn on_path(&self, id: TypeId, path: &mut Vec<TypeId>) -> Result<i64, &'static str> {
        if path.contains(&id) {
            return Ok(0);
        }
        let declared = self.library.get(id);
        let mut sum = self.bases[id.index()];
        if matches!(declared.declaration.body, Body::Enum(_)) {
            return Ok(sum);
        }
        path.push(id);
        for used in declared.uses.iter().flatten() {
            if self.steps.get() == 0 {
                return Err(ENTANGLED);
            }
            self.steps.set(self.steps.get() - 1);
            // What cannot hold this type again is the same wherever it is held.
            let part = if self.groups.are_together(id, *used) {
                self.on_path(*used, path)?
            } else {
                self.known[used.index()].map(u64::cast_signed)?
            };
            sum = sum.wrapping_add(part);
        }
        path.pop();
        Ok(sum.rotate_left(1))
    }
}

/// What a declaration gives by itself.
fn base(declaration: &Declaration) -> i64 {
    let members = match &declaration.body {
        Body::Enum(_) => {
            let short = declaration.name.rsplit('.').next().unwrap_or_default();
            return Hash(0x8765_4321).text(short).0;
        }
        Body::Struct { members, .. } => members,
    };
    let mut hash = Hash(0x1234_5678);
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

/// lcm-gen's hash, as it comes out on machines whose `char` has a sign.
struct Hash(i64);

impl Hash {
    fn byte(self, byte: u8) -> Self {
        let turned = (self.0 << 8) ^ (self.0 >> 55);
        Self(turned.wrapping_add(i64::from(byte.cast_signed())))
    }

    /// The length, of which only the last byte counts, and the bytes.
    fn text(self, text: &str) -> Self {
        text.bytes().fold(self.byte(text.len() as u8), Self::byte)
    }
}
