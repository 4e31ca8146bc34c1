//! The types that a set of files declares, with every name resolved; or every mistake in them.
//!
//! Files stand for themselves first: the same name may be declared in several, which are versions of a type
//! side by side. A name means what its own file declares; else what the files declare that it includes, if
//! they lie in the same folder; else the only type of that name among all files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

pub use sluice_core::TypeFile;
use sluice_core::UnusableTypes;
use sluice_core::mistake::Mistake;
use sluice_core::name::printable;
pub use sluice_core::type_library::TypeId;
use sluice_core::type_library::{BrokenTypes, TypeLibrary};

use super::parser::{self, MOST_MISTAKES};
use super::syntax::{Body, Declaration, Member, Named, TypeName};
use crate::plan::dotted;

/// A declaration and what the names in it mean.
#[derive(Debug)]
pub struct Declared {
    /// As it was read.
    pub declaration: Declaration,
    /// For each of [`type_names`], the type that it names, if that is declared.
    pub uses: Vec<Option<TypeId>>,
    /// The line of its name.
    pub line: usize,
    /// The file, by its place among the library's.
    file: usize,
}

/// The types that a declaration names: of members, elements, keys and values; of a class, its base last.
pub fn type_names(body: &Body) -> Vec<&TypeName> {
    match body {
        Body::Struct(members) => members.iter().map(|member| &member.of).collect(),
        Body::Class { base, members } => {
            members.iter().map(|member| &member.of).chain(base.as_ref()).collect()
        }
        Body::Sequence(of) => vec![of],
        Body::Dictionary { key, value } => vec![key, value],
        Body::Enum(_) | Body::Other(_) => Vec::new(),
    }
}

/// Types from any number of files.
#[derive(Debug, Default)]
pub struct Library {
    files: Vec<TypeFile>,
    /// For each file, the others that it includes, directly or not, the nearest first.
    included: Vec<Vec<usize>>,
    types: Vec<Declared>,
    by_name: HashMap<String, Vec<TypeId>>,
    /// For each name without its module, the first type of that name.
    by_last_name: HashMap<String, TypeId>,
    /// For each type, the classes that extend it, directly or not, by name; one of each name.
    derived: BTreeMap<TypeId, Vec<TypeId>>,
    mistakes: Vec<(usize, Mistake)>,
    /// For each file, how many mistakes in it are told.
    told: Vec<usize>,
    broken: BrokenTypes,
    /// The types that cannot be used, those included that hold or extend one that is broken.
    unsound: HashSet<TypeId>,
}

/// More are not shown.
const MOST_SHOWN: usize = 100;
/// Mistakes are shown with their line if it is no longer than this, and their file is not.
const LONGEST_SHOWN_LINE: usize = 400;
const LONGEST_SHOWN_FILE: usize = 1 << 20;
/// Classes that extend each other, one after another; nobody has more.
pub(crate) const LONGEST_LINE: usize = 32;

impl Library {
    /// What these files declare.
    pub fn of(files: Vec<TypeFile>) -> Self {
        let told = vec![0; files.len()];
        let mut library = Self { files, told, ..Self::default() };
        let includes: Vec<Vec<String>> =
            (0..library.files.len()).map(|file| library.add(file)).collect();
        library.included = library.follow(&includes);
        library.broken.note_files(&library.files, &library.mistakes);
        library.resolve();
        library.check_bases();
        library.find_unsound();
        library.mistakes.sort_by_key(|(file, mistake)| (*file, mistake.span.start));
        library
    }

    /// Takes over what a file declares, and gives what it includes.
    fn add(&mut self, file: usize) -> Vec<String> {
        let (unit, mistakes) = parser::parse(&self.files[file].text);
        mistakes.into_iter().for_each(|mistake| self.tell(file, mistake));
        let (mut line, mut seen) = (1, 0);
        for declaration in unit.declared {
            let before = self.files[file].text.as_bytes().get(seen..declaration.span.start);
            line += before.unwrap_or_default().iter().filter(|byte| **byte == b'\n').count();
            seen = declaration.span.start;
            let id = TypeId::at(self.types.len());
            let versions = self.by_name.entry(declaration.name.clone()).or_default();
            if versions.last().is_some_and(|last| self.types[last.index()].file == file) {
                let message = format!("`{}` is declared twice in this file", declaration.name);
                self.tell(file, mistake(&declaration.span, message, None));
                continue;
            }
            versions.push(id);
            let last = declaration.name.rsplit("::").next().unwrap_or_default();
            self.by_last_name.entry(last.to_owned()).or_insert(id);
            self.types.push(Declared { declaration, uses: Vec::new(), file, line });
        }
        unit.includes
    }

    /// Adds a mistake, if not so many of that file are told already that nobody reads more.
    fn tell(&mut self, file: usize, mistake: Mistake) {
        if !self.is_hopeless(file) {
            self.told[file] += 1;
            self.mistakes.push((file, mistake));
        }
    }

    /// Whether as many mistakes of a file are told as ever are: it need not be looked at further.
    fn is_hopeless(&self, file: usize) -> bool {
        self.told[file] >= MOST_MISTAKES
    }

    /// For each file, the others that it includes, directly or not.
    fn follow(&self, includes: &[Vec<String>]) -> Vec<Vec<usize>> {
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
            let (mut found, mut seen, mut next) = (vec![file], HashSet::from([file]), 0);
            while let Some(at) = found.get(next) {
                next += 1;
                let new: Vec<usize> =
                    direct[*at].iter().copied().filter(|other| seen.insert(*other)).collect();
                found.extend(new);
            }
            found.split_off(1)
        };
        (0..self.files.len()).map(all).collect()
    }

    fn resolve(&mut self) {
        for at in 0..self.types.len() {
            let Declared { declaration, file, .. } = &self.types[at];
            let file = *file;
            let (mut uses, mut wrong) = (Vec::new(), Vec::new());
            for of in type_names(&declaration.body) {
                let is_hopeless = self.told[file] + wrong.len() >= MOST_MISTAKES;
                let (Named::Declared { name, scope }, false) = (&of.named, is_hopeless) else {
                    uses.push(None);
                    continue;
                };
                let found = self.find(name, scope, file);
                if let Err((message, help)) = &found {
                    let line = self.types[at].line;
                    self.broken.note_type(TypeId::at(at), message, line);
                    wrong.push(mistake(&of.span, message, Some(help)));
                }
                uses.push(found.ok());
            }
            self.types[at].uses = uses;
            if self.told[file] + wrong.len() >= MOST_MISTAKES {
                self.broken.note_file(file, "too many mistakes to look further");
            }
            wrong.into_iter().for_each(|mistake| self.tell(file, mistake));
        }
    }

    /// What a name means in a module of a file: the innermost module that has such a type decides.
    fn find(&self, name: &str, scope: &str, file: usize) -> Result<TypeId, (String, String)> {
        if name.starts_with("::") {
            return self.version(name, file).unwrap_or_else(|| Err(self.unknown(name, file)));
        }
        let mut scope = scope;
        loop {
            if let Some(found) = self.version(&format!("{scope}::{name}"), file) {
                return found;
            }
            match scope.rfind("::") {
                Some(end) => scope = &scope[..end],
                None => return Err(self.unknown(name, file)),
            }
        }
    }

    /// Which of the types of this full name is meant in a file; nothing if there is none.
    fn version(&self, full: &str, file: usize) -> Option<Result<TypeId, (String, String)>> {
        let versions = self.by_name.get(full)?;
        let near = std::iter::once(&file).chain(&self.included[file]);
        let is_in = |file: usize| versions.iter().find(|id| self.get(**id).file == file);
        if let Some(found) = near.copied().find_map(is_in) {
            return Some(Ok(*found));
        }
        Some(match versions.as_slice() {
            [only] => Ok(*only),
            several => {
                let files = several.iter().map(|id| self.file_of(*id).display().to_string());
                let files = files.take(4).collect::<Vec<_>>().join(" and ");
                let help = format!(
                    "it is declared in {files}: include the one that is meant, from the same folder"
                );
                Err((format!("`{full}` may be one of several types"), help))
            }
        })
    }

    fn unknown(&self, name: &str, file: usize) -> (String, String) {
        let wanted = name.rsplit("::").next().unwrap_or_default();
        let same = self.by_last_name.get(wanted);
        let help = match same {
            Some(same) => {
                let same = self.name(*same);
                format!("there is `{same}`: types of other modules are named in full")
            }
            None if self.files.len() == 1 && self.included[file].is_empty() => {
                "give the files that it includes, too".to_owned()
            }
            None => "give the file that declares it, too".to_owned(),
        };
        (format!("no type `{name}`"), help)
    }

    /// Looks at what classes extend, and notes it for the classes that are extended.
    fn check_bases(&mut self) {
        let mut derived: BTreeMap<TypeId, Vec<TypeId>> = BTreeMap::new();
        let (names, mut wrong, mut broken) = (self.names(), Vec::new(), Vec::new());
        for id in self.ids() {
            match self.line_of(id, &names) {
                Ok(()) => {
                    let above = self.line(id).into_iter().skip(1);
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
        wrong.into_iter().for_each(|(file, mistake)| self.tell(file, mistake));
    }

    /// Finds the types that are broken, and all that hold or extend them.
    fn find_unsound(&mut self) {
        let unsound = self.broken.tainted(self);
        // Records of these are read as far as what they extend is known.
        self.derived.values_mut().for_each(|all| all.retain(|id| !unsound.contains(id)));
        self.unsound = unsound;
    }

    /// Whether what a class extends is right, directly and further up.
    fn line_of(
        &self,
        id: TypeId,
        names: &HashMap<TypeId, HashSet<&str>>,
    ) -> Result<(), (Range<usize>, String, &'static str)> {
        let Body::Class { base: Some(of), .. } = &self.get(id).declaration.body else {
            return Ok(());
        };
        let wrong = |message: String, help| Err((of.span.clone(), message, help));
        let Some(base) = self.base(id) else {
            return match &of.named {
                // That it is not known has been said.
                Named::Declared { .. } => Ok(()),
                _ => wrong("this is no class".to_owned(), "classes extend classes"),
            };
        };
        if !matches!(self.get(base).declaration.body, Body::Class { .. }) {
            return wrong(format!("`{}` is no class", self.name(base)), "classes extend classes");
        }
        let line = self.line(id);
        if line.len() > LONGEST_LINE {
            let message = format!("more than {LONGEST_LINE} classes that extend each other");
            return wrong(message, "does a class extend itself?");
        }
        let above = line.iter().skip(1).filter_map(|above| names.get(above));
        let above: Vec<&HashSet<&str>> = above.collect();
        let is_twice =
            |member: &&Member| above.iter().any(|names| names.contains(member.name.as_str()));
        match self.members(id).iter().find(is_twice) {
            Some(twice) => wrong(
                format!("`{}` is a member of the class and of what it extends", twice.name),
                "call one of them otherwise",
            ),
            None => Ok(()),
        }
    }

    /// For each class, what its own members are called.
    fn names(&self) -> HashMap<TypeId, HashSet<&str>> {
        let is_class = |id: &TypeId| matches!(self.get(*id).declaration.body, Body::Class { .. });
        let names = |id| self.members(id).iter().map(|member| member.name.as_str()).collect();
        self.ids().filter(is_class).map(|id| (id, names(id))).collect()
    }

    /// The class that a class extends.
    fn base(&self, id: TypeId) -> Option<TypeId> {
        let declared = self.get(id);
        match &declared.declaration.body {
            Body::Class { base: Some(_), .. } => declared.uses.last().copied().flatten(),
            _ => None,
        }
    }

    /// A class and what it extends, the root last; cut off when it is too long.
    pub(crate) fn line(&self, id: TypeId) -> Vec<TypeId> {
        let line = std::iter::successors(Some(id), |id| self.base(*id));
        line.take(LONGEST_LINE + 1).collect()
    }

    /// The classes that extend a class, directly or not, by name.
    pub(crate) fn derived(&self, id: TypeId) -> &[TypeId] {
        self.derived.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The members of a struct, or of a class itself.
    pub(crate) fn members(&self, id: TypeId) -> &[Member] {
        match &self.get(id).declaration.body {
            Body::Struct(members) | Body::Class { members, .. } => members,
            _ => &[],
        }
    }

    /// All types, in the order of files and declarations.
    pub fn ids(&self) -> impl Iterator<Item = TypeId> + use<> {
        (0..self.types.len()).map(TypeId::at)
    }

    /// A type.
    pub fn get(&self, id: TypeId) -> &Declared {
        &self.types[id.index()]
    }

    /// The full name of a type, as records have it: `::orca::Time`.
    pub fn name(&self, id: TypeId) -> &str {
        &self.get(id).declaration.name
    }

    /// The file that declares a type.
    pub fn file_of(&self, id: TypeId) -> &Path {
        &self.files[self.get(id).file].path
    }

    /// Whether a type, all that it holds and all that it extends are declared without mistakes.
    pub fn is_sound(&self, id: TypeId) -> bool {
        !self.unsound.contains(&id)
    }

    /// The types that are not [sound](Self::is_sound), by file, and why.
    pub fn unusable(&self) -> Vec<UnusableTypes> {
        self.broken.unusable(self, &self.unsound)
    }

    /// The mistakes in the files, each with its place, shown as text: at most [`MOST_MISTAKES`] of a file are
    /// counted, and about half as many shown. Takes time by the length of the files.
    pub fn mistakes(&self) -> Vec<String> {
        let mut places = Places::default();
        let shown = self.mistakes.iter().take(MOST_SHOWN).map(|(file, mistake)| {
            let TypeFile { path, text } = &self.files[*file];
            let (line, column) = places.of(*file, text, mistake.span.start);
            let path = path.to_string_lossy();
            if text.len() <= LONGEST_SHOWN_FILE && has_short_line(text, mistake.span.start) {
                mistake.render(&path, text, false)
            } else {
                at_place(mistake, &path, line, column)
            }
        });
        let mut shown: Vec<String> = shown.collect();
        let more = self.mistakes.len().saturating_sub(MOST_SHOWN);
        if more > 0 {
            let is_all = (0..self.files.len()).all(|file| !self.is_hopeless(file));
            let least = if is_all { "" } else { "at least " };
            shown.push(format!("and {least}{more} more mistakes"));
        }
        shown
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
        dotted(self.name(id))
    }

    fn uses(&self, id: TypeId) -> impl Iterator<Item = TypeId> {
        self.get(id).uses.iter().flatten().copied()
    }
}

/// Lines and columns of places that are asked for in their order: each text is gone over once.
#[derive(Debug, Default)]
struct Places {
    file: usize,
    at: usize,
    /// Those before the place, each.
    lines: usize,
    columns: usize,
}

impl Places {
    /// The line and column of a place, both counted from 1.
    fn of(&mut self, file: usize, text: &str, at: usize) -> (usize, usize) {
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

/// Whether the line around a place is short enough to be shown. Looks no further than that.
fn has_short_line(text: &str, at: usize) -> bool {
    let (before, after) = text.as_bytes().split_at(at.min(text.len()));
    let is_break = |byte: &u8| *byte == b'\n';
    let before = before.iter().rev().take(LONGEST_SHOWN_LINE).position(is_break);
    let before = before.or((at < LONGEST_SHOWN_LINE).then_some(at));
    let length = after.iter().take(LONGEST_SHOWN_LINE).position(is_break);
    let after = length.or((after.len() < LONGEST_SHOWN_LINE).then_some(after.len()));
    before.zip(after).is_some_and(|(before, after)| before + after <= LONGEST_SHOWN_LINE)
}

/// A mistake without the line in which it is.
fn at_place(mistake: &Mistake, path: &str, line: usize, column: usize) -> String {
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
