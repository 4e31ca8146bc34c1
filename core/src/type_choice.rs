//! Which type the payloads of a number are of, where several types have that number: the one rule
//! for all who name types or decode them. Reads no payload.

use std::collections::BTreeMap;

use crate::{Codecs, KnownType, TypeKey};

/// The types of some codecs, by codec and number.
#[derive(Debug, Default)]
pub struct TypesByKey {
    types: Vec<KnownType>,
    places: BTreeMap<(usize, TypeKey), Vec<usize>>,
}

/// Which type payloads of a number are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeChoice {
    /// No type has this number.
    Unknown,
    /// The type at this place; and the place of another one, if a type of another name has the same
    /// number and the same fields.
    Type(usize, Option<usize>),
    /// Several types whose fields differ.
    Several,
}

impl TypesByKey {
    /// The types of these codecs, in their order.
    pub fn from_codecs(codecs: &Codecs) -> Self {
        let mut all = Self::default();
        for (codec, types) in codecs.iter().enumerate() {
            for known in types.types() {
                let places = all.places.entry((codec, known.message_type.key)).or_default();
                places.push(all.types.len());
                all.types.push(known.clone());
            }
        }
        all
    }

    /// All types, by their places.
    pub fn types(&self) -> &[KnownType] {
        &self.types
    }

    /// The type of payloads of the codec at this place that have this number; of several types the
    /// one called `wanted`, or else the first.
    pub fn choose(&self, codec: usize, key: TypeKey, wanted: Option<&str>) -> TypeChoice {
        let candidates = self.places.get(&(codec, key)).map(Vec::as_slice).unwrap_or_default();
        let known = |at: &usize| self.types.get(*at);
        let name = |at: &usize| known(at).map(|known| &*known.message_type.name);
        let called: Vec<usize> = candidates
            .iter()
            .filter(|at| wanted.is_some() && name(at) == wanted)
            .copied()
            .collect();
        let candidates = if called.is_empty() { candidates } else { &called };
        let Some(first) = candidates.first() else { return TypeChoice::Unknown };
        // A number says which fields a type has, but of types inside of it only that they are
        // there.
        let fields =
            |at: &usize| known(at)?.payload_type.as_ref().ok().map(|form| form.schema().clone());
        if candidates.iter().any(|at| fields(at) != fields(first)) {
            return TypeChoice::Several;
        }
        let other = candidates.iter().find(|at| name(at) != name(first));
        TypeChoice::Type(*first, other.copied())
    }

    /// The names of all types by number, as [`choose`](Self::choose) has them where nothing else is
    /// wanted; types that cannot be told apart have none.
    pub fn names(&self) -> impl Iterator<Item = (TypeKey, &KnownType)> {
        self.places.keys().filter_map(|(codec, key)| match self.choose(*codec, *key, None) {
            TypeChoice::Type(at, _) => Some((*key, self.types.get(at)?)),
            TypeChoice::Unknown | TypeChoice::Several => None,
        })
    }
}
