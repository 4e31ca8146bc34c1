//! Helpers for libraries of declared types: type ids, and which types are unusable because of
//! errors. Codecs parse the files and resolve names.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::mistake::Mistake;
use crate::{TypeFile, UnusableTypes};

/// The id of a type in its library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(u32);

impl TypeId {
    /// Its index among the library's types.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The type at this index. Panics if a library could not hold as many.
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("a library holds fewer types than that"))
    }
}

/// Types of a set of files, with every name resolved.
pub trait TypeLibrary {
    /// The files.
    fn files(&self) -> &[TypeFile];

    /// The number of types they declare.
    fn types(&self) -> usize;

    /// The index of the file that declares a type.
    fn file(&self, id: TypeId) -> usize;

    /// The name of a type, as shown to users.
    fn shown_name(&self, id: TypeId) -> String;

    /// The types that the declaration of a type refers to.
    fn uses(&self, id: TypeId) -> impl Iterator<Item = TypeId>;
}

/// The files and types with errors of their own, and the reasons.
#[derive(Debug, Default)]
pub struct BrokenTypes {
    files: BTreeMap<usize, String>,
    types: BTreeMap<TypeId, String>,
}

impl BrokenTypes {
    /// Records the files with errors: they cannot be parsed, or contradict themselves.
    pub fn note_files(&mut self, files: &[TypeFile], mistakes: &[(usize, Mistake)]) {
        for (file, mistake) in mistakes {
            let Some(TypeFile { text, .. }) = files.get(*file) else { continue };
            let why = || {
                let before = text.as_bytes().get(..mistake.span.start).unwrap_or_default();
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                format!("{} (line {line})", mistake.message)
            };
            self.files.entry(*file).or_insert_with(why);
        }
    }

    /// Records that nothing of a file can be used, unless recorded already.
    pub fn note_file(&mut self, file: usize, why: &str) {
        self.files.entry(file).or_insert_with(|| why.to_owned());
    }

    /// Records an error in a type declared in this line, unless one is recorded already.
    pub fn note_type(&mut self, id: TypeId, message: &str, line: usize) {
        self.types.entry(id).or_insert_with(|| format!("{message} (type in line {line})"));
    }

    /// The types that cannot be used: those with errors, and all that refer to one, directly or
    /// indirectly.
    pub fn tainted(&self, library: &impl TypeLibrary) -> HashSet<TypeId> {
        let mut named_by: HashMap<TypeId, Vec<TypeId>> = HashMap::new();
        for id in ids(library.types()) {
            library.uses(id).for_each(|used| named_by.entry(used).or_default().push(id));
        }
        let is_broken = |id: &TypeId| {
            self.types.contains_key(id) || self.files.contains_key(&library.file(*id))
        };
        let mut next: Vec<TypeId> = ids(library.types()).filter(is_broken).collect();
        let mut unsound: HashSet<TypeId> = next.iter().copied().collect();
        while let Some(id) = next.pop() {
            let naming = named_by.get(&id).into_iter().flatten();
            next.extend(naming.copied().filter(|other| unsound.insert(*other)));
        }
        unsound
    }

    /// The [tainted](Self::tainted) types by file, and why they cannot be used.
    pub fn unusable(
        &self,
        library: &impl TypeLibrary,
        unsound: &HashSet<TypeId>,
    ) -> Vec<UnusableTypes> {
        let mut names: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for id in ids(library.types()) {
            names.entry(library.file(id)).or_default().push(library.shown_name(id));
        }
        let path = |file: usize| library.files().get(file).map(|file| file.path.clone());
        let whole = self.files.iter().map(|(file, why)| UnusableTypes {
            file: path(*file),
            types: names.remove(file).unwrap_or_default(),
            why: why.clone(),
            has_mistake: true,
        });
        let mut all: Vec<UnusableTypes> = whole.collect();
        for id in ids(library.types()).filter(|id| unsound.contains(id)) {
            let file = library.file(id);
            if self.files.contains_key(&file) {
                continue;
            }
            let own = self.types.get(&id).map(|why| (why.clone(), true));
            let why = own.unwrap_or_else(|| {
                let named = library.uses(id).find(|used| unsound.contains(used));
                let named = named.map(|used| library.shown_name(used)).unwrap_or_default();
                (format!("it holds `{named}`, which cannot be used"), false)
            });
            UnusableTypes::add(&mut all, path(file).as_deref(), &library.shown_name(id), why);
        }
        all.sort_by(|a, b| a.file.cmp(&b.file));
        all
    }
}

/// The ids of this many types.
fn ids(types: usize) -> impl Iterator<Item = TypeId> {
    (0..types).map(TypeId::at)
}

/// The remaining budget for the columns and descriptions of all types of a codec: a small file can
/// declare types that expand exponentially.
#[derive(Debug)]
pub struct TypeBudget {
    columns: usize,
    text: usize,
}

impl Default for TypeBudget {
    fn default() -> Self {
        Self { columns: 300_000, text: 32 << 20 }
    }
}

impl TypeBudget {
    /// Whether another type may be compiled. `Err` says why not.
    pub fn check(&self) -> Result<(), String> {
        if self.columns == 0 || self.text == 0 {
            return Err("the types have too many columns in total; pass fewer files".to_owned());
        }
        Ok(())
    }

    /// Spends the columns and the bytes of description of a type.
    pub fn spend(&mut self, columns: usize, text: usize) {
        self.columns = self.columns.saturating_sub(columns);
        self.text = self.text.saturating_sub(text);
    }
}
