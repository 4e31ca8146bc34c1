//! The types that a set of files declares, with every name resolved, or every mistake in them.
//!
//! Several files may declare the same name: these are versions of a type. A name refers to the
//! declaration in its own file, else in an included file of the same folder, else to the only type
//! of that name in all files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Deref, Range};
use std::path::Path;

pub(crate) use sluice_kit::TypeFile;
use sluice_kit::mistake::Mistake;
pub(crate) use sluice_kit::type_library::TypeId;
use sluice_kit::type_library::{ResolvedType, TypeLibrary};

use super::parser::{self, MAX_MISTAKES};
use super::syntax::{Declaration, DeclarationBody, SliceMember, TypeName, TypeRef};

/// The type names in a declaration: of members, elements, keys and values; of a class, its base
/// last.
pub fn type_names(body: &DeclarationBody) -> Vec<&TypeName> {
    match body {
        DeclarationBody::Struct(members) => {
            members.iter().map(|member| &member.type_name).collect()
        }
        DeclarationBody::Class { base, members } => {
            members.iter().map(|member| &member.type_name).chain(base.as_ref()).collect()
        }
        DeclarationBody::Sequence(of) => vec![of],
        DeclarationBody::Dictionary { key, value } => vec![key, value],
        DeclarationBody::Enum(_) | DeclarationBody::Undecoded(_) => Vec::new(),
    }
}

/// Types from any number of files. The uses of a type are those of its [`type_names`].
#[derive(Debug)]
pub struct SliceLibrary {
    types: TypeLibrary<Declaration>,
    /// For each file, the files that it includes, directly or not, the nearest first.
    included: Vec<Vec<usize>>,
    /// For each name without its module, the first type of that name.
    by_last_name: HashMap<String, TypeId>,
    /// For each type, the classes that extend it, directly or not, by name; one per name.
    derived: BTreeMap<TypeId, Vec<TypeId>>,
}

impl Deref for SliceLibrary {
    type Target = TypeLibrary<Declaration>;

    fn deref(&self) -> &Self::Target {
        &self.types
    }
}

/// The maximum number of classes that extend each other.
pub(crate) const MAX_ANCESTRY: usize = 32;

impl SliceLibrary {
    /// Parses these files and resolves their names.
    pub fn from_files(files: Vec<TypeFile>) -> Self {
        let mut includes = Vec::new();
        let types = TypeLibrary::parse(files, MAX_MISTAKES, |text| {
            let (unit, mistakes) = parser::parse(text);
            includes.push(unit.includes);
            let declared = unit.declarations.into_iter();
            (declared.map(|d| (d.name.clone(), d.span.clone(), d)).collect(), mistakes)
        });
        let mut by_last_name = HashMap::new();
        for id in types.ids() {
            let last = types.name(id).rsplit("::").next().unwrap_or_default();
            by_last_name.entry(last.to_owned()).or_insert(id);
        }
        let (included, derived) = (transitive_includes(types.files(), &includes), BTreeMap::new());
        let mut library = Self { types, included, by_last_name, derived };
        library.resolve();
        library.check_bases();
        library.types.finish();
        // Records of unsound classes are read up to their known bases.
        let types = &library.types;
        let derived = library.derived.values_mut();
        derived.for_each(|all| all.retain(|id| types.is_sound(*id)));
        library
    }

    fn resolve(&mut self) {
        for id in self.ids() {
            let ResolvedType { declaration, file, .. } = self.get(id);
            let (file, mut uses, mut wrong) = (*file, Vec::new(), Vec::new());
            for of in type_names(&declaration.body) {
                let is_hopeless = self.mistakes_left(file) <= wrong.len();
                let (TypeRef::Declared { name, scope }, false) = (&of.target, is_hopeless) else {
                    uses.push(None);
                    continue;
                };
                let resolved = self.find(name, scope, file);
                if let Err((message, help)) = &resolved {
                    wrong.push(mistake(&of.span, message, Some(help)));
                }
                uses.push(resolved.ok());
            }
            self.types.set_uses(id, uses);
            wrong.into_iter().for_each(|mistake| self.types.reject_type(id, mistake));
            if self.mistakes_left(file) == 0 {
                let reason = "too many mistakes: the rest of the file is not checked";
                self.types.reject_file(file, reason);
            }
        }
    }

    /// Resolves a name in a module of a file: the innermost module with such a type wins.
    fn find(&self, name: &str, scope: &str, file: usize) -> Result<TypeId, (String, String)> {
        if name.starts_with("::") {
            return self
                .find_full(name, file)
                .unwrap_or_else(|| Err(self.unknown_type(name, file)));
        }
        let mut scope = scope;
        loop {
            if let Some(resolved) = self.find_full(&format!("{scope}::{name}"), file) {
                return resolved;
            }
            match scope.rfind("::") {
                Some(end) => scope = &scope[..end],
                None => return Err(self.unknown_type(name, file)),
            }
        }
    }

    /// Resolves a full name in a file; `None` if there is no such type.
    fn find_full(&self, full: &str, file: usize) -> Option<Result<TypeId, (String, String)>> {
        let versions = Some(self.versions(full)).filter(|versions| !versions.is_empty())?;
        let near = std::iter::once(&file).chain(&self.included[file]);
        let is_in = |file: usize| versions.iter().find(|id| self.get(**id).file == file);
        if let Some(resolved) = near.copied().find_map(is_in) {
            return Some(Ok(*resolved));
        }
        Some(match versions {
            [only] => Ok(*only),
            several => {
                let files = several.iter().map(|id| self.file_of(*id).display().to_string());
                let files = files.take(4).collect::<Vec<_>>().join(" and ");
                let help = format!(
                    "it is declared in {files}: include the right one from the same folder"
                );
                Err((format!("`{full}` is ambiguous"), help))
            }
        })
    }

    fn unknown_type(&self, name: &str, file: usize) -> (String, String) {
        let last_name = name.rsplit("::").next().unwrap_or_default();
        let same = self.by_last_name.get(last_name);
        let help = match same {
            Some(same) => {
                let same = self.name(*same);
                format!("there is `{same}`: use the full name for types of other modules")
            }
            None if self.files().len() == 1 && self.included[file].is_empty() => {
                "add the files that it includes".to_owned()
            }
            None => "add the file that declares it".to_owned(),
        };
        (format!("unknown type `{name}`"), help)
    }

    /// Checks the bases of classes, and records which classes extend each.
    fn check_bases(&mut self) {
        let mut derived: BTreeMap<TypeId, Vec<TypeId>> = BTreeMap::new();
        let (names, mut wrong) = (self.member_names(), Vec::new());
        for id in self.ids() {
            match self.check_base(id, &names) {
                Ok(()) => {
                    let above = self.ancestry(id).into_iter().skip(1);
                    above.for_each(|base| derived.entry(base).or_default().push(id));
                }
                Err((span, message, help)) => {
                    wrong.push((id, mistake(&span, message, Some(help))));
                }
            }
        }
        for classes in derived.values_mut() {
            classes.sort_by_key(|id| (self.name(*id), *id));
            classes.dedup_by_key(|id| self.name(*id));
        }
        self.derived = derived;
        wrong.into_iter().for_each(|(id, mistake)| self.types.reject_type(id, mistake));
    }

    /// Checks the bases of a class, direct and indirect.
    fn check_base(
        &self,
        id: TypeId,
        names: &HashMap<TypeId, HashSet<&str>>,
    ) -> Result<(), (Range<usize>, String, &'static str)> {
        let DeclarationBody::Class { base: Some(of), .. } = &self.get(id).declaration.body else {
            return Ok(());
        };
        let wrong = |message: String, help| Err((of.span.clone(), message, help));
        let Some(base) = self.base(id) else {
            return match &of.target {
                // An unknown name has been reported.
                TypeRef::Declared { .. } => Ok(()),
                _ => wrong("this is not a class".to_owned(), "classes extend classes"),
            };
        };
        if !matches!(self.get(base).declaration.body, DeclarationBody::Class { .. }) {
            return wrong(
                format!("`{}` is not a class", self.name(base)),
                "classes extend classes",
            );
        }
        let line = self.ancestry(id);
        if line.len() > MAX_ANCESTRY {
            let message = format!("more than {MAX_ANCESTRY} classes that extend each other");
            return wrong(message, "check whether a class extends itself");
        }
        let above = line.iter().skip(1).filter_map(|above| names.get(above));
        let above: Vec<&HashSet<&str>> = above.collect();
        let is_twice =
            |member: &&SliceMember| above.iter().any(|names| names.contains(member.name.as_str()));
        match self.members(id).iter().find(is_twice) {
            Some(twice) => wrong(
                format!("`{}` is a member of both the class and its base", twice.name),
                "rename one of them",
            ),
            None => Ok(()),
        }
    }

    /// The names of each class's own members.
    fn member_names(&self) -> HashMap<TypeId, HashSet<&str>> {
        let is_class =
            |id: &TypeId| matches!(self.get(*id).declaration.body, DeclarationBody::Class { .. });
        let names = |id| self.members(id).iter().map(|member| member.name.as_str()).collect();
        self.ids().filter(is_class).map(|id| (id, names(id))).collect()
    }

    /// The base of a class.
    fn base(&self, id: TypeId) -> Option<TypeId> {
        let declared = self.get(id);
        match &declared.declaration.body {
            DeclarationBody::Class { base: Some(_), .. } => declared.uses.last().copied().flatten(),
            _ => None,
        }
    }

    /// A class and its bases, the root last; truncated at the maximum.
    pub(crate) fn ancestry(&self, id: TypeId) -> Vec<TypeId> {
        let line = std::iter::successors(Some(id), |id| self.base(*id));
        line.take(MAX_ANCESTRY + 1).collect()
    }

    /// The classes that extend a class, directly or not, by name.
    pub(crate) fn derived(&self, id: TypeId) -> &[TypeId] {
        self.derived.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The members of a struct, or of a class without its bases.
    pub(crate) fn members(&self, id: TypeId) -> &[SliceMember] {
        match &self.get(id).declaration.body {
            DeclarationBody::Struct(members) | DeclarationBody::Class { members, .. } => members,
            _ => &[],
        }
    }
}

/// For each file, the files that it includes, directly or not.
fn transitive_includes(files: &[TypeFile], includes: &[Vec<String>]) -> Vec<Vec<usize>> {
    let place: HashMap<&Path, usize> =
        files.iter().enumerate().map(|(at, file)| (file.path.as_path(), at)).collect();
    let direct = |file: usize| {
        let folder = files[file].path.parent().unwrap_or(Path::new(""));
        let beside = includes[file].iter().filter_map(|name| {
            let name = Path::new(name).file_name()?;
            place.get(folder.join(name).as_path()).copied()
        });
        let mut seen = HashSet::new();
        beside.filter(|file| seen.insert(*file)).collect::<Vec<_>>()
    };
    let direct: Vec<Vec<usize>> = (0..files.len()).map(direct).collect();
    let all = |file: usize| {
        let (mut resolved, mut seen, mut next) = (vec![file], HashSet::from([file]), 0);
        while let Some(at) = resolved.get(next) {
            next += 1;
            let new: Vec<usize> =
                direct[*at].iter().copied().filter(|other| seen.insert(*other)).collect();
            resolved.extend(new);
        }
        resolved.split_off(1)
    };
    (0..files.len()).map(all).collect()
}

fn mistake(span: &Range<usize>, message: impl Into<String>, help: Option<&str>) -> Mistake {
    let (span, message, help) = (span.clone(), message.into(), help.map(str::to_owned));
    Mistake { span, message, help, detail: None }
}

#[cfg(test)]
mod tests;
