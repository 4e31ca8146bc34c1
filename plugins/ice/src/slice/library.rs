//! The types that a set of files declares, with every name resolved, or every mistake in them.
//!
//! Several files may declare the same name: these are versions of a type. A name refers to the
//! declaration in its own file, else in an included file of the same folder, else to the only type
//! of that name in all files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

pub(crate) use sluice_core::TypeFile;
use sluice_core::UnusableTypes;
use sluice_core::mistake::Mistake;
use sluice_core::name::printable;
pub(crate) use sluice_core::type_library::TypeId;
use sluice_core::type_library::{BrokenTypes, TypeLibrary};

use super::parser::{self, MAX_MISTAKES};
use super::syntax::{Declaration, DeclarationBody, SliceMember, TypeName, TypeRef};
use crate::plan::dotted;

/// A declaration with resolved names.
#[derive(Debug)]
pub struct ResolvedType {
    /// The declaration as parsed.
    pub declaration: Declaration,
    /// For each of [`type_names`], the type it refers to, if that is declared.
    pub uses: Vec<Option<TypeId>>,
    /// The line of its name.
    pub line: usize,
    /// The index of its file.
    file: usize,
}

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

/// Types from any number of files.
#[derive(Debug, Default)]
pub struct SliceLibrary {
    files: Vec<TypeFile>,
    /// For each file, the files that it includes, directly or not, the nearest first.
    included: Vec<Vec<usize>>,
    types: Vec<ResolvedType>,
    by_name: HashMap<String, Vec<TypeId>>,
    /// For each name without its module, the first type of that name.
    by_last_name: HashMap<String, TypeId>,
    /// For each type, the classes that extend it, directly or not, by name; one per name.
    derived: BTreeMap<TypeId, Vec<TypeId>>,
    mistakes: Vec<(usize, Mistake)>,
    /// The number of mistakes reported per file.
    mistake_counts: Vec<usize>,
    broken: BrokenTypes,
    /// The types that cannot be used, including those that contain or extend a broken one.
    unsound: HashSet<TypeId>,
}

/// The maximum number of mistakes shown.
const MAX_SHOWN: usize = 100;
/// The maximum length of a line, and of a file, for which mistakes are shown with their line.
const MAX_SHOWN_LINE: usize = 400;
const MAX_SHOWN_FILE: usize = 1 << 20;
/// The maximum number of classes that extend each other.
pub(crate) const MAX_ANCESTRY: usize = 32;

impl SliceLibrary {
    /// Parses these files and resolves their names.
    pub fn from_files(files: Vec<TypeFile>) -> Self {
        let mistake_counts = vec![0; files.len()];
        let mut library = Self { files, mistake_counts, ..Self::default() };
        let includes: Vec<Vec<String>> =
            (0..library.files.len()).map(|file| library.add(file)).collect();
        library.included = library.transitive_includes(&includes);
        library.broken.note_files(&library.files, &library.mistakes);
        library.resolve();
        library.check_bases();
        library.find_unsound();
        library.mistakes.sort_by_key(|(file, mistake)| (*file, mistake.span.start));
        library
    }

    /// Adds the declarations of a file. Returns its includes.
    fn add(&mut self, file: usize) -> Vec<String> {
        let (unit, mistakes) = parser::parse(&self.files[file].text);
        mistakes.into_iter().for_each(|mistake| self.report(file, mistake));
        let (mut line, mut seen) = (1, 0);
        for declaration in unit.declarations {
            let before = self.files[file].text.as_bytes().get(seen..declaration.span.start);
            line += before.unwrap_or_default().iter().filter(|byte| **byte == b'\n').count();
            seen = declaration.span.start;
            let id = TypeId::at(self.types.len());
            let versions = self.by_name.entry(declaration.name.clone()).or_default();
            if versions.last().is_some_and(|last| self.types[last.index()].file == file) {
                let message = format!("`{}` is declared twice in this file", declaration.name);
                self.report(file, mistake(&declaration.span, message, None));
                continue;
            }
            versions.push(id);
            let last = declaration.name.rsplit("::").next().unwrap_or_default();
            self.by_last_name.entry(last.to_owned()).or_insert(id);
            self.types.push(ResolvedType { declaration, uses: Vec::new(), file, line });
        }
        unit.includes
    }

    /// Adds a mistake, up to a maximum per file.
    fn report(&mut self, file: usize, mistake: Mistake) {
        if !self.is_at_mistake_limit(file) {
            self.mistake_counts[file] += 1;
            self.mistakes.push((file, mistake));
        }
    }

    /// Whether a file has the maximum number of mistakes, so that it need not be checked further.
    fn is_at_mistake_limit(&self, file: usize) -> bool {
        self.mistake_counts[file] >= MAX_MISTAKES
    }

    /// For each file, the files that it includes, directly or not.
    fn transitive_includes(&self, includes: &[Vec<String>]) -> Vec<Vec<usize>> {
        let place: HashMap<&Path, usize> =
            self.files.iter().enumerate().map(|(at, file)| (file.path.as_path(), at)).collect();
        let direct = |file: usize| {
            let folder = self.files[file].path.parent().unwrap_or(Path::new(""));
            let beside = includes[file].iter().filter_map(|name| {
                let name = Path::new(name).file_name()?;
                place.get(folder.join(name).as_path()).copied()
            });
            let mut seen = HashSet::new();
            beside.filter(|file| seen.insert(*file)).collect::<Vec<_>>()
        };
        let direct: Vec<Vec<usize>> = (0..self.files.len()).map(direct).collect();
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
        (0..self.files.len()).map(all).collect()
    }

    fn resolve(&mut self) {
        for at in 0..self.types.len() {
            let ResolvedType { declaration, file, .. } = &self.types[at];
            let file = *file;
            let (mut uses, mut wrong) = (Vec::new(), Vec::new());
            for of in type_names(&declaration.body) {
                let is_hopeless = self.mistake_counts[file] + wrong.len() >= MAX_MISTAKES;
                let (TypeRef::Declared { name, scope }, false) = (&of.target, is_hopeless) else {
                    uses.push(None);
                    continue;
                };
                let resolved = self.find(name, scope, file);
                if let Err((message, help)) = &resolved {
                    let line = self.types[at].line;
                    self.broken.note_type(TypeId::at(at), message, line);
                    wrong.push(mistake(&of.span, message, Some(help)));
                }
                uses.push(resolved.ok());
            }
            self.types[at].uses = uses;
            if self.mistake_counts[file] + wrong.len() >= MAX_MISTAKES {
                let reason = "too many mistakes: the rest of the file is not checked";
                self.broken.note_file(file, reason);
            }
            wrong.into_iter().for_each(|mistake| self.report(file, mistake));
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
        let versions = self.by_name.get(full)?;
        let near = std::iter::once(&file).chain(&self.included[file]);
        let is_in = |file: usize| versions.iter().find(|id| self.get(**id).file == file);
        if let Some(resolved) = near.copied().find_map(is_in) {
            return Some(Ok(*resolved));
        }
        Some(match versions.as_slice() {
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
            None if self.files.len() == 1 && self.included[file].is_empty() => {
                "add the files that it includes".to_owned()
            }
            None => "add the file that declares it".to_owned(),
        };
        (format!("unknown type `{name}`"), help)
    }

    /// Checks the bases of classes, and records which classes extend each.
    fn check_bases(&mut self) {
        let mut derived: BTreeMap<TypeId, Vec<TypeId>> = BTreeMap::new();
        let (names, mut wrong, mut broken) = (self.member_names(), Vec::new(), Vec::new());
        for id in self.ids() {
            match self.check_base(id, &names) {
                Ok(()) => {
                    let above = self.ancestry(id).into_iter().skip(1);
                    above.for_each(|base| derived.entry(base).or_default().push(id));
                }
                Err((span, message, help)) => {
                    broken.push((id, message.clone(), self.get(id).line));
                    wrong.push((self.get(id).file, mistake(&span, message, Some(help))));
                }
            }
        }
        for classes in derived.values_mut() {
            classes.sort_by_key(|id| (self.name(*id), *id));
            classes.dedup_by_key(|id| self.name(*id));
        }
        self.derived = derived;
        for (id, message, line) in broken {
            self.broken.note_type(id, &message, line);
        }
        wrong.into_iter().for_each(|(file, mistake)| self.report(file, mistake));
    }

    /// Finds the broken types, and all that contain or extend them.
    fn find_unsound(&mut self) {
        let unsound = self.broken.tainted(self);
        // Records of these are read up to their known bases.
        self.derived.values_mut().for_each(|all| all.retain(|id| !unsound.contains(id)));
        self.unsound = unsound;
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

    /// All types, in the order of files and declarations.
    pub fn ids(&self) -> impl Iterator<Item = TypeId> + use<> {
        (0..self.types.len()).map(TypeId::at)
    }

    /// The type with this id.
    pub fn get(&self, id: TypeId) -> &ResolvedType {
        &self.types[id.index()]
    }

    /// The full name of a type, as in records: `::orca::Time`.
    pub fn name(&self, id: TypeId) -> &str {
        &self.get(id).declaration.name
    }

    /// The file that declares a type.
    pub fn file_of(&self, id: TypeId) -> &Path {
        &self.files[self.get(id).file].path
    }

    /// Whether a type, all that it contains and all that it extends are declared without mistakes.
    pub fn is_sound(&self, id: TypeId) -> bool {
        !self.unsound.contains(&id)
    }

    /// The types that are not [sound](Self::is_sound), by file, with reasons.
    pub fn unusable(&self) -> Vec<UnusableTypes> {
        self.broken.unusable(self, &self.unsound)
    }

    /// The mistakes in the files as text with positions: at most [`MAX_MISTAKES`] per file are
    /// counted, and about half as many shown. Linear in the length of the files.
    pub fn mistakes(&self) -> Vec<String> {
        let mut places = LineColumns::default();
        let shown = self.mistakes.iter().take(MAX_SHOWN).map(|(file, mistake)| {
            let TypeFile { path, text } = &self.files[*file];
            let (line, column) = places.line_and_column(*file, text, mistake.span.start);
            let path = path.to_string_lossy();
            if text.len() <= MAX_SHOWN_FILE && has_short_line(text, mistake.span.start) {
                mistake.render(&path, text, false)
            } else {
                render_short(mistake, &path, line, column)
            }
        });
        let mut shown: Vec<String> = shown.collect();
        let more = self.mistakes.len().saturating_sub(MAX_SHOWN);
        if more > 0 {
            let is_all = (0..self.files.len()).all(|file| !self.is_at_mistake_limit(file));
            let least = if is_all { "" } else { "at least " };
            shown.push(format!("and {least}{more} more mistakes"));
        }
        shown
    }
}

impl TypeLibrary for SliceLibrary {
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
        dotted(self.name(id))
    }

    fn uses(&self, id: TypeId) -> impl Iterator<Item = TypeId> {
        self.get(id).uses.iter().flatten().copied()
    }
}

/// Line and column of ascending offsets: each text is scanned once.
#[derive(Debug, Default)]
struct LineColumns {
    file: usize,
    at: usize,
    /// The numbers of lines and columns before the offset.
    lines: usize,
    columns: usize,
}

impl LineColumns {
    /// The line and column of an offset, both counted from 1.
    fn line_and_column(&mut self, file: usize, text: &str, at: usize) -> (usize, usize) {
        if file != self.file {
            *self = Self { file, ..Self::default() };
        }
        let between = text.get(self.at..at).unwrap_or_default();
        match between.rsplit_once('\n') {
            Some((_, line)) => {
                self.lines += between.bytes().filter(|byte| *byte == b'\n').count();
                self.columns = line.chars().count();
            }
            None => self.columns += between.chars().count(),
        }
        self.at = self.at.max(at);
        (self.lines + 1, self.columns + 1)
    }
}

/// Whether the line around an offset is short enough to be shown. Looks no further than that.
fn has_short_line(text: &str, at: usize) -> bool {
    let (before, after) = text.as_bytes().split_at(at.min(text.len()));
    let is_break = |byte: &u8| *byte == b'\n';
    let before = before.iter().rev().take(MAX_SHOWN_LINE).position(is_break);
    let before = before.or((at < MAX_SHOWN_LINE).then_some(at));
    let length = after.iter().take(MAX_SHOWN_LINE).position(is_break);
    let after = length.or((after.len() < MAX_SHOWN_LINE).then_some(after.len()));
    before.zip(after).is_some_and(|(before, after)| before + after <= MAX_SHOWN_LINE)
}

/// Renders a mistake without its line.
fn render_short(mistake: &Mistake, path: &str, line: usize, column: usize) -> String {
    let (message, path) = (printable(&mistake.message), printable(path));
    let help = mistake.help.as_deref().map(|help| format!("\n   = help: {}", printable(help)));
    format!("error: {message}\n  --> {path}:{line}:{column}{}", help.unwrap_or_default())
}

fn mistake(span: &Range<usize>, message: impl Into<String>, help: Option<&str>) -> Mistake {
    let (span, message, help) = (span.clone(), message.into(), help.map(str::to_owned));
    Mistake { span, message, help, detail: None }
}

#[cfg(test)]
mod tests;
