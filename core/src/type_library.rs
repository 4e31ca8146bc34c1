//! What libraries of declared types share: numbers of types, and which of them mistakes leave
//! unusable, and why. Parses nothing and resolves no name: codecs do.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::mistake::Mistake;
use crate::{TypeFile, UnusableTypes};

/// A type's number in its library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(u32);

impl TypeId {
    /// Its place among the library's types.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The type at this place. Panics if a library could not hold as many.
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("a library holds fewer types than that"))
    }
}

/// Types of a set of files, with every name resolved.
pub trait TypeLibrary {
    /// The files.
    fn files(&self) -> &[TypeFile];

    /// How many types they declare.
    fn types(&self) -> usize;

    /// The file that declares a type, by its place among the files.
    fn file(&self, id: TypeId) -> usize;

    /// The name of a type as people see it.
    fn shown_name(&self, id: TypeId) -> String;

    /// The types that the declaration of a type names.
    fn uses(&self, id: TypeId) -> impl Iterator<Item = TypeId>;
}

/// The files and types that have mistakes of their own, and why they cannot be used.
#[derive(Debug, Default)]
pub struct BrokenTypes {
    files: BTreeMap<usize, String>,
    types: BTreeMap<TypeId, String>,
}

impl BrokenTypes {
    /// Notes the files that have mistakes: they cannot be read to their end, or contradict
    /// themselves.
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

    /// Notes that nothing of a file can be used, unless that is known.
    pub fn note_file(&mut self, file: usize, why: &str) {
        self.files.entry(file).or_insert_with(|| why.to_owned());
    }

    /// Notes what is wrong with a type that is declared in this line, unless something is known to
    /// be.
    pub fn note_type(&mut self, id: TypeId, message: &str, line: usize) {
        self.types.entry(id).or_insert_with(|| format!("{message} (type in line {line})"));
    }

    /// The types that cannot be used: those that are broken, and all that name one of these,
    /// directly or not.
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

    /// The [unsound](Self::unsound) types by file, and why they cannot be used.
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

/// The numbers of so many types.
fn ids(types: usize) -> impl Iterator<Item = TypeId> {
    (0..types).map(TypeId::at)
}

/// What the columns and descriptions of all types of a codec together may still take: a small file
/// can declare types that hold each other's columns over and over.
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
    /// Whether another type may be made ready for use. `Err` says why not.
    pub fn check(&self) -> Result<(), String> {
        if self.columns == 0 || self.text == 0 {
            return Err(
                "the types given have too many columns together; give fewer files".to_owned()
            );
        }
        Ok(())
    }

    /// Takes what a type has: so many columns, and a description of so many bytes.
    pub fn spend(&mut self, columns: usize, text: usize) {
        self.columns = self.columns.saturating_sub(columns);
        self.text = self.text.saturating_sub(text);
    }
}
