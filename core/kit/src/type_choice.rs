//! Choosing between several types with the same key: the rule shared by everything that names or
//! decodes types.

use std::collections::BTreeMap;

use sluice_model::{KnownType, TypeKey};

use crate::Codecs;

/// The types of some codecs, by codec and key.
#[derive(Debug, Default)]
pub struct TypesByKey {
    types: Vec<KnownType>,
    places: BTreeMap<(usize, TypeKey), Vec<usize>>,
}

/// The type of payloads with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeChoice {
    /// No type has this key.
    Unknown,
    /// The index of the type; and that of another one with the same key and fields, but another
    /// name.
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

    /// All types, by index.
    pub fn types(&self) -> &[KnownType] {
        &self.types
    }

    /// The type of payloads with this key of the codec at this index; of several types the one
    /// called `wanted`, or else the first.
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
        // A key identifies the fields of a type, but not those of nested types.
        let fields =
            |at: &usize| known(at)?.payload_type.as_ref().ok().map(|form| form.schema().clone());
        if candidates.iter().any(|at| fields(at) != fields(first)) {
            return TypeChoice::Several;
        }
        let other = candidates.iter().find(|at| name(at) != name(first));
        TypeChoice::Type(*first, other.copied())
    }

    /// The names of all types by key, as chosen by [`choose`](Self::choose); ambiguous keys are
    /// omitted.
    pub fn names(&self) -> impl Iterator<Item = (TypeKey, &KnownType)> {
        self.places.keys().filter_map(|(codec, key)| match self.choose(*codec, *key, None) {
            TypeChoice::Type(at, _) => Some((*key, self.types.get(at)?)),
            TypeChoice::Unknown | TypeChoice::Several => None,
        })
    }
}
