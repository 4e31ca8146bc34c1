//! The types that a set of files declares, with every name resolved, or every mistake in them.
//!
//! Files may declare the same name: these are versions of a type, side by side. A member refers to
//! the nearest version: the one in its own file, or in the file whose folder shares the longest
//! path with its own.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::Path;

pub(crate) use sluice_kit::TypeFile;
use sluice_kit::mistake::Mistake;
pub use sluice_kit::type_library::TypeId;
use sluice_kit::type_library::{MAX_SHOWN, ResolvedType, TypeLibrary};

use super::graph::{MAX_COMPONENT, TypeComponents};
use super::parser;
use super::syntax::{Declaration, Dimension, TypeBody, TypeName};

/// Types from any number of files. The uses of a struct are the types of its members.
#[derive(Debug)]
pub struct Library {
    types: TypeLibrary<Declaration>,
    /// Whether values of a type take no bytes, by type.
    empty: Vec<bool>,
}

impl Deref for Library {
    type Target = TypeLibrary<Declaration>;

    fn deref(&self) -> &Self::Target {
        &self.types
    }
}

impl Library {
    /// Parses these files and resolves all names.
    pub fn from_files(files: Vec<TypeFile>) -> Self {
        let types = TypeLibrary::parse(files, usize::MAX, |text| {
            let (declared, mistakes) = parser::parse(text);
            (declared.into_iter().map(|d| (d.name.clone(), d.span.clone(), d)).collect(), mistakes)
        });
        let mut library = Self { types, empty: Vec::new() };
        library.resolve();
        library.types.finish();
        library.find_empty_types();
        library
    }

    fn resolve(&mut self) {
        for id in self.ids() {
            let (mut uses, mut wrong) = (Vec::new(), Vec::new());
            let ResolvedType { declaration, file, .. } = self.get(id);
            if let TypeBody::Struct { members, .. } = &declaration.body {
                for member in members {
                    let TypeName::Declared(name) = &member.of else {
                        uses.push(None);
                        continue;
                    };
                    let is_shown = self.mistake_count() + wrong.len() < MAX_SHOWN;
                    let resolved = self.resolve_name(name, *file, is_shown);
                    uses.push(resolved.as_ref().ok().copied());
                    wrong.extend(resolved.err().map(|(message, help)| {
                        let (span, help) = (member.span.clone(), Some(help));
                        Mistake { span, message, help, detail: None }
                    }));
                }
            }
            self.types.set_uses(id, uses);
            wrong.into_iter().for_each(|mistake| self.types.reject_type(id, mistake));
        }
    }

    fn find_empty_types(&mut self) {
        let groups = TypeComponents::new(&self.types);
        self.empty = vec![false; self.ids().count()];
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

    /// Whether values of a type take no bytes.
    pub(crate) fn takes_no_bytes(&self, id: TypeId) -> bool {
        self.empty.get(id.index()).copied().unwrap_or_default()
    }

    /// Resolves the type name of a member in `file`. `Err` has a suggestion if it is shown.
    fn resolve_name(
        &self,
        name: &str,
        file: usize,
        is_shown: bool,
    ) -> Result<TypeId, (String, String)> {
        let (versions, path) = (self.versions(name), &self.files()[file].path);
        let nearness =
            |id: &TypeId| (self.get(*id).file == file, shared_folders(path, self.file_of(*id)));
        let Some(nearest) = versions.iter().map(nearness).max() else {
            // Suggestions compare a name with all others: not done for mistakes that are not shown.
            let help = if is_shown { self.suggestion(name) } else { String::new() };
            return Err((format!("no type `{name}`"), help));
        };
        let near: Vec<TypeId> =
            versions.iter().copied().filter(|id| nearness(id) == nearest).collect();
        let body = |id: &TypeId| &self.get(*id).declaration.body;
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
        let names: BTreeSet<&str> = self.ids().map(|id| self.name(id)).collect();
        if let Some(same) = names.iter().find(|known| short(known) == short_name) {
            return format!("there is `{same}`: use the full name for types of other packages");
        }
        let likely = names.iter().map(|known| (strsim::damerau_levenshtein(known, name), known));
        match likely.filter(|(distance, _)| *distance <= 2).min() {
            Some((_, known)) => format!("did you mean `{known}`?"),
            None => "also pass the file that declares it".to_owned(),
        }
    }
}

/// Folders that two paths share, from the root.
fn shared_folders(a: &Path, b: &Path) -> usize {
    let folders = |path: &'_ Path| path.parent().map(Path::to_path_buf).unwrap_or_default();
    let (a, b) = (folders(a), folders(b));
    a.components().zip(b.components()).take_while(|(a, b)| a == b).count()
}
