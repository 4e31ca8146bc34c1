//! The types that a set of files declares, with every name resolved; or every mistake in them.
//!
//! The same name may be declared in several files: these are versions of a type, side by side. What a
//! member means by such a name is the version nearest to it: in its own file, or in the file whose folder
//! it shares most of the way to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

pub use sluice_core::TypeFile;
use sluice_core::UnusableTypes;
use sluice_core::mistake::Mistake;
pub use sluice_core::type_library::TypeId;
use sluice_core::type_library::{BrokenTypes, TypeLibrary};

use super::fingerprint::LARGEST_GROUP;
use super::graph::Groups;
use super::parser;
use super::syntax::{Body, Declaration, Dimension, TypeName};

/// A declaration and what its members mean.
#[derive(Debug)]
pub struct Declared {
    /// As it was read.
    pub declaration: Declaration,
    /// For each member of a struct, the type that was declared elsewhere.
    pub uses: Vec<Option<TypeId>>,
    /// The line of its name.
    pub line: usize,
    /// The file, by its place among the library's.
    file: usize,
}

/// Types from any number of files.
#[derive(Debug, Default)]
pub struct Library {
    files: Vec<TypeFile>,
    types: Vec<Declared>,
    by_name: HashMap<String, Vec<TypeId>>,
    /// For each type, whether its values take no bytes.
    empty: Vec<bool>,
    mistakes: Vec<(usize, Mistake)>,
    broken: BrokenTypes,
    /// The types that cannot be used, those included that hold one that is broken.
    unsound: HashSet<TypeId>,
}

/// More are not shown.
const MOST_SHOWN: usize = 100;

impl Library {
    /// What these files declare.
    pub fn of(files: Vec<TypeFile>) -> Self {
        let mut library = Self { files, ..Self::default() };
        for file in 0..library.files.len() {
            library.add(file);
        }
        library.broken.note_files(&library.files, &library.mistakes);
        library.resolve();
        library.unsound = library.broken.tainted(&library);
        library.measure();
        library.mistakes.sort_by_key(|(file, mistake)| (*file, mistake.span.start));
        library
    }

    fn add(&mut self, file: usize) {
        let (declared, mistakes) = parser::parse(&self.files[file].text);
        self.mistakes.extend(mistakes.into_iter().map(|mistake| (file, mistake)));
        let (mut line, mut seen) = (1, 0);
        for declaration in declared {
            let before = self.files[file].text.as_bytes().get(seen..declaration.span.start);
            line += before.unwrap_or_default().iter().filter(|byte| **byte == b'\n').count();
            seen = declaration.span.start;
            let id = TypeId::at(self.types.len());
            let versions = self.by_name.entry(declaration.name.clone()).or_default();
            if versions.last().is_some_and(|last| self.types[last.index()].file == file) {
                let message = format!("`{}` is declared twice in this file", declaration.name);
                let span = declaration.span;
                let mistake = Mistake { span, message, help: None, detail: None };
                self.mistakes.push((file, mistake));
                continue;
            }
            versions.push(id);
            self.types.push(Declared { declaration, uses: Vec::new(), file, line });
        }
    }

    fn resolve(&mut self) {
        for at in 0..self.types.len() {
            let Body::Struct { members, .. } = &self.types[at].declaration.body else { continue };
            let file = self.types[at].file;
            let mut uses = Vec::with_capacity(members.len());
            for member in members {
                let TypeName::Declared(name) = &member.of else {
                    uses.push(None);
                    continue;
                };
                match self.find(name, file) {
                    Ok(found) => uses.push(Some(found)),
                    Err((message, help)) => {
                        let line = self.types[at].line;
                        self.broken.note_type(TypeId::at(at), &message, line);
                        let (span, help) = (member.span.clone(), Some(help));
                        let mistake = Mistake { span, message, help, detail: None };
                        self.mistakes.push((file, mistake));
                        uses.push(None);
                    }
                }
            }
            self.types[at].uses = uses;
        }
    }

    fn measure(&mut self) {
        let groups = Groups::of(self);
        self.empty = vec![false; self.types.len()];
        for group in groups.iter() {
            let is_next =
                |library: &Self, id: TypeId| !library.takes_no_bytes(id) && library.has_nothing(id);
            // What holds itself takes bytes, as something has to say where it ends. But it may hold itself in
            // arrays of no elements: then one type of a group shows what the next one is.
            // Larger groups are refused elsewhere.
            while group.len() <= LARGEST_GROUP
                && let Some(id) = group.iter().find(|id| is_next(self, **id))
            {
                self.empty[id.index()] = true;
            }
        }
    }

    fn has_nothing(&self, id: TypeId) -> bool {
        let declared = self.get(id);
        let Body::Struct { members, .. } = &declared.declaration.body else { return false };
        members.iter().zip(&declared.uses).all(|(member, used)| {
            let is_none = |d: &Dimension| matches!(d, Dimension::Fixed { size: 0, .. });
            used.is_some_and(|used| self.empty[used.index()])
                || member.dimensions.iter().any(is_none)
        })
    }

    /// The types that are not [sound](Self::is_sound), by file, and why.
    pub fn unusable(&self) -> Vec<UnusableTypes> {
        self.broken.unusable(self, &self.unsound)
    }

    /// Whether a type and all that it holds is declared without mistakes.
    pub fn is_sound(&self, id: TypeId) -> bool {
        !self.unsound.contains(&id)
    }

    /// Whether values of a type take no bytes.
    pub(crate) fn takes_no_bytes(&self, id: TypeId) -> bool {
        self.empty.get(id.index()).copied().unwrap_or_default()
    }

    /// What a member in `file` means by the name of a type.
    fn find(&self, name: &str, file: usize) -> Result<TypeId, (String, String)> {
        let versions = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let nearness = |id: &TypeId| {
            let other = self.types[id.index()].file;
            (other == file, shared_folders(&self.files[file].path, &self.files[other].path))
        };
        let Some(nearest) = versions.iter().map(nearness).max() else {
            // Names are compared with all others: not for mistakes that are not shown.
            let is_shown = self.mistakes.len() < MOST_SHOWN;
            let help = if is_shown { self.suggestion(name) } else { String::new() };
            return Err((format!("no type `{name}`"), help));
        };
        let near: Vec<TypeId> =
            versions.iter().copied().filter(|id| nearness(id) == nearest).collect();
        let body = |id: &TypeId| &self.types[id.index()].declaration.body;
        match near.as_slice() {
            [first, others @ ..] if others.iter().all(|other| body(other) == body(first)) => {
                Ok(*first)
            }
            _ => {
                let files = near.iter().map(|id| self.file_of(*id).display().to_string());
                let files = files.collect::<Vec<_>>().join(" and ");
                let help = format!(
                    "it is declared in {files}: put files that belong together in one folder"
                );
                Err((format!("`{name}` may be one of several types"), help))
            }
        }
    }

    fn suggestion(&self, name: &str) -> String {
        let short = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        let wanted = short(name);
        let primitive = match wanted.as_str() {
            "uint8_t" | "char" | "uchar" | "unsigned" => Some("byte"),
            "int" | "uint32_t" => Some("int32_t"),
            "uint16_t" | "short" => Some("int16_t"),
            "uint64_t" | "long" => Some("int64_t"),
            "bool" => Some("boolean"),
            "float32" | "float32_t" => Some("float"),
            "float64" | "float64_t" => Some("double"),
            _ => None,
        };
        if let Some(primitive) = primitive {
            return format!("the language has `{primitive}`");
        }
        let names: BTreeMap<&str, ()> =
            self.by_name.keys().map(|name| (name.as_str(), ())).collect();
        if let Some(same) = names.keys().find(|known| short(known) == wanted) {
            return format!("there is `{same}`: types of other packages are named in full");
        }
        let likely = names.keys().map(|known| (strsim::damerau_levenshtein(known, name), known));
        match likely.filter(|(distance, _)| *distance <= 2).min() {
            Some((_, known)) => format!("did you mean `{known}`?"),
            None => "give the file that declares it, too".to_owned(),
        }
    }

    /// All types, in the order of their declarations.
    pub fn ids(&self) -> impl Iterator<Item = TypeId> + use<> {
        (0..self.types.len()).map(TypeId::at)
    }

    /// A type.
    pub fn get(&self, id: TypeId) -> &Declared {
        &self.types[id.index()]
    }

    /// The full name of a type.
    pub fn name(&self, id: TypeId) -> &str {
        &self.get(id).declaration.name
    }

    /// The file that declares a type.
    pub fn file_of(&self, id: TypeId) -> &Path {
        &self.files[self.get(id).file].path
    }

    /// The mistakes in the files, each with its place, shown as text.
    pub fn mistakes(&self) -> Vec<String> {
        let shown = self.mistakes.iter().take(MOST_SHOWN).map(|(file, mistake)| {
            let TypeFile { path, text } = &self.files[*file];
            mistake.render(&path.to_string_lossy(), text, false)
        });
        let more = self.mistakes.len().saturating_sub(MOST_SHOWN);
        shown.chain((more > 0).then(|| format!("and {more} more mistakes"))).collect()
    }
}

impl TypeLibrary for Library {
    fn files(&self) -> &[TypeFile] {
        &self.files
    }

    fn types(&self) -> usize {
        self.types.len()
    }

    fn file(&self, id: TypeId) -> usize {
        self.get(id).file
    }

    fn shown_name(&self, id: TypeId) -> String {
        self.name(id).to_owned()
    }

    fn uses(&self, id: TypeId) -> impl Iterator<Item = TypeId> {
        self.get(id).uses.iter().flatten().copied()
    }
}

/// How many folders two files share from the top.
fn shared_folders(a: &Path, b: &Path) -> usize {
    let folders = |path: &'_ Path| path.parent().map(Path::to_path_buf).unwrap_or_default();
    let (a, b) = (folders(a), folders(b));
    a.components().zip(b.components()).take_while(|(a, b)| a == b).count()
}
