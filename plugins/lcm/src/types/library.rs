//! The types that a set of files declares, with every name resolved, or every mistake in them.
//!
//! Files may declare the same name: these are versions of a type, side by side. A member refers to
//! the nearest version: the one in its own file, or in the file whose folder shares the longest
//! path with its own.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

pub(crate) use sluice_core::TypeFile;
use sluice_core::UnusableTypes;
use sluice_core::mistake::Mistake;
pub use sluice_core::type_library::TypeId;
use sluice_core::type_library::{BrokenTypes, TypeLibrary};

use super::fingerprint::MAX_COMPONENT;
use super::graph::TypeComponents;
use super::parser;
use super::syntax::{Declaration, Dimension, TypeBody, TypeName};

/// A declaration with the types of its members resolved.
#[derive(Debug)]
pub struct ResolvedType {
    /// The declaration as parsed.
    pub declaration: Declaration,
    /// The declared type of each member of a struct; `None` for primitives.
    pub uses: Vec<Option<TypeId>>,
    /// The line of its name.
    pub line: usize,
    /// Index of the file in the library.
    file: usize,
}

/// Types from any number of files.
#[derive(Debug, Default)]
pub struct Library {
    files: Vec<TypeFile>,
    types: Vec<ResolvedType>,
    by_name: HashMap<String, Vec<TypeId>>,
    /// Whether values of a type take no bytes, by type.
    empty: Vec<bool>,
    mistakes: Vec<(usize, Mistake)>,
    broken: BrokenTypes,
    /// The types that cannot be used, including those that contain a broken one.
    unsound: HashSet<TypeId>,
}

/// Most mistakes shown.
const MAX_SHOWN: usize = 100;

impl Library {
    /// Parses these files and resolves all names.
    pub fn from_files(files: Vec<TypeFile>) -> Self {
        let mut library = Self { files, ..Self::default() };
        for file in 0..library.files.len() {
            library.add_file(file);
        }
        library.broken.note_files(&library.files, &library.mistakes);
        library.resolve();
        library.unsound = library.broken.tainted(&library);
        library.find_empty_types();
        library.mistakes.sort_by_key(|(file, mistake)| (*file, mistake.span.start));
        library
    }

    fn add_file(&mut self, file: usize) {
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
            self.types.push(ResolvedType { declaration, uses: Vec::new(), file, line });
        }
    }

    fn resolve(&mut self) {
        for at in 0..self.types.len() {
            let TypeBody::Struct { members, .. } = &self.types[at].declaration.body else {
                continue;
            };
            let file = self.types[at].file;
            let mut uses = Vec::with_capacity(members.len());
            for member in members {
                let TypeName::Declared(name) = &member.of else {
                    uses.push(None);
                    continue;
                };
                match self.resolve_name(name, file) {
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

    fn find_empty_types(&mut self) {
        let groups = TypeComponents::new(self);
        self.empty = vec![false; self.types.len()];
        for group in groups.iter() {
            let is_next = |library: &Self, id: TypeId| {
                !library.takes_no_bytes(id) && library.has_only_empty_members(id)
            };
            // A type that contains itself takes bytes, as something has to end the recursion,
            // unless it does so in arrays of size 0 only. Then each type of a component that is
            // found empty may make the next one empty. Components above the limit are refused
            // elsewhere.
            while group.len() <= MAX_COMPONENT
                && let Some(id) = group.iter().find(|id| is_next(self, **id))
            {
                self.empty[id.index()] = true;
            }
        }
    }

    fn has_only_empty_members(&self, id: TypeId) -> bool {
        let declared = self.get(id);
        let TypeBody::Struct { members, .. } = &declared.declaration.body else { return false };
        members.iter().zip(&declared.uses).all(|(member, used)| {
            let is_none = |d: &Dimension| matches!(d, Dimension::Fixed { size: 0, .. });
            used.is_some_and(|used| self.empty[used.index()])
                || member.dimensions.iter().any(is_none)
        })
    }

    /// The types that are not [sound](Self::is_sound) by file, and why.
    pub fn unusable(&self) -> Vec<UnusableTypes> {
        self.broken.unusable(self, &self.unsound)
    }

    /// Whether a type and all types it contains are declared without mistakes.
    pub fn is_sound(&self, id: TypeId) -> bool {
        !self.unsound.contains(&id)
    }

    /// Whether values of a type take no bytes.
    pub(crate) fn takes_no_bytes(&self, id: TypeId) -> bool {
        self.empty.get(id.index()).copied().unwrap_or_default()
    }

    /// Resolves the type name of a member in `file`.
    fn resolve_name(&self, name: &str, file: usize) -> Result<TypeId, (String, String)> {
        let versions = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let nearness = |id: &TypeId| {
            let other = self.types[id.index()].file;
            (other == file, shared_folders(&self.files[file].path, &self.files[other].path))
        };
        let Some(nearest) = versions.iter().map(nearness).max() else {
            // Suggestions compare a name with all others: not done for mistakes that are not shown.
            let is_shown = self.mistakes.len() < MAX_SHOWN;
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
                let help =
                    format!("declared in {files}: put files that belong together in one folder");
                Err((format!("`{name}` is ambiguous"), help))
            }
        }
    }

    fn suggestion(&self, name: &str) -> String {
        let short = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        let short_name = short(name);
        let primitive = match short_name.as_str() {
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
        if let Some(same) = names.keys().find(|known| short(known) == short_name) {
            return format!("there is `{same}`: use the full name for types of other packages");
        }
        let likely = names.keys().map(|known| (strsim::damerau_levenshtein(known, name), known));
        match likely.filter(|(distance, _)| *distance <= 2).min() {
            Some((_, known)) => format!("did you mean `{known}`?"),
            None => "also pass the file that declares it".to_owned(),
        }
    }

    /// All types in the order of their declarations.
    pub fn ids(&self) -> impl Iterator<Item = TypeId> + use<> {
        (0..self.types.len()).map(TypeId::at)
    }

    /// A type.
    pub fn get(&self, id: TypeId) -> &ResolvedType {
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

    /// The mistakes in the files with their positions, rendered as text.
    pub fn mistakes(&self) -> Vec<String> {
        let shown = self.mistakes.iter().take(MAX_SHOWN).map(|(file, mistake)| {
            let TypeFile { path, text } = &self.files[*file];
            mistake.render(&path.to_string_lossy(), text, false)
        });
        let more = self.mistakes.len().saturating_sub(MAX_SHOWN);
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

/// Folders that two paths share, from the root.
fn shared_folders(a: &Path, b: &Path) -> usize {
    let folders = |path: &'_ Path| path.parent().map(Path::to_path_buf).unwrap_or_default();
    let (a, b) = (folders(a), folders(b));
    a.components().zip(b.components()).take_while(|(a, b)| a == b).count()
}
