//! The types of a set of texts, with resolved names, and their descriptions. Reads no payload.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use sluice_kit::TypeFile;
use sluice_kit::mistake::Mistake;
use sluice_kit::type_library::{ParsedTypes, TypeId, TypeLibrary};

use super::Generation;
use super::idl;
use super::text::{self, Declaration, ElementType, Member, separator, short_name};

/// The most mistakes kept of a file.
const MAX_MISTAKES: usize = 20;

/// The most types of the same name whose packages are compared: texts may be hostile.
const MAX_ENDINGS: usize = 16;

/// What a name in a type refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    Declared(TypeId),
    /// A time or a duration, which texts need not declare.
    Time,
    Duration,
}

/// Declared types.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) types: TypeLibrary<Declaration>,
    generation: Generation,
    /// By the name without `msg`.
    by_name: HashMap<String, TypeId>,
    /// By the name without package.
    by_last_name: HashMap<String, Vec<TypeId>>,
}

impl Library {
    /// The types of files. Each declares the type of its own name, in the package that its folder
    /// is named after.
    pub(crate) fn from_files(files: Vec<TypeFile>, generation: Generation) -> Self {
        let names: Vec<String> =
            files.iter().map(|file| name_of_file(&file.path, generation)).collect();
        Self::parse(files, names, generation, text::parse)
    }

    /// The types of a text that begins with the type `name`.
    pub(crate) fn from_text(name: &str, text: &str, generation: Generation) -> Self {
        let file = TypeFile { path: name.into(), text: text.to_owned() };
        Self::parse(vec![file], vec![name.to_owned()], generation, text::parse)
    }

    /// The types of a text in IDL, which declares the type `name` somewhere: it is the first here.
    pub(crate) fn from_idl(name: &str, text: &str) -> Self {
        let file = TypeFile { path: name.into(), text: text.to_owned() };
        Self::parse(vec![file], vec![name.to_owned()], Generation::Ros2, idl::parse)
    }

    fn parse(
        files: Vec<TypeFile>,
        names: Vec<String>,
        generation: Generation,
        parse: fn(&str, &str) -> ParsedTypes<Declaration>,
    ) -> Self {
        let mut names = names.into_iter();
        let types = TypeLibrary::parse(files, MAX_MISTAKES, |text| {
            parse(&names.next().unwrap_or_default(), text)
        });
        let mut library =
            Self { types, generation, by_name: HashMap::new(), by_last_name: HashMap::new() };
        library.index();
        library.resolve();
        library.types.finish();
        library
    }

    /// The type that a text begins with, if it and all that it uses are sound; or the first
    /// mistake.
    pub(crate) fn first(&self) -> Result<TypeId, String> {
        let first = TypeId::at(0);
        if self.types.is_sound(first) {
            return Ok(first);
        }
        let reasons = self.types.unusable(str::to_owned);
        let reason = reasons.iter().find(|reason| reason.has_mistake).or(reasons.first());
        Err(reason.map_or_else(|| "its declaration has mistakes".to_owned(), |r| r.why.clone()))
    }

    /// The type of this name, with or without `msg`.
    pub(crate) fn find(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(&short_name(name)).copied()
    }

    /// What the type of a member refers to; `None` if it is primitive or unknown.
    pub(crate) fn reference(&self, id: TypeId, name: &str) -> Option<Reference> {
        let (name, full) = self.full_name(id, name);
        let declared = self.by_name.get(&full).copied().or_else(|| self.by_ending(&name));
        declared.map(Reference::Declared).or(match full.as_str() {
            "builtin_interfaces/Time" => Some(Reference::Time),
            "builtin_interfaces/Duration" => Some(Reference::Duration),
            _ => None,
        })
    }

    /// The name of a type as the type `id` writes it, without `msg`, and with its package.
    fn full_name(&self, id: TypeId, name: &str) -> (String, String) {
        let package = match short_name(self.types.name(id)).rsplit_once('/') {
            Some((package, _)) => format!("{package}/"),
            None => String::new(),
        };
        let name = match (name, self.generation) {
            ("Header", Generation::Ros1) => "std_msgs/Header".to_owned(),
            _ => short_name(name),
        };
        let full = if name.contains('/') { name.clone() } else { format!("{package}{name}") };
        (name, full)
    }

    /// The names of the types that are used, but not declared.
    pub(crate) fn undeclared(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for id in self.types.ids() {
            for member in &self.types.get(id).declaration.members {
                if let ElementType::Declared(name) = &member.of
                    && self.reference(id, name).is_none()
                {
                    names.insert(self.full_name(id, name).1);
                }
            }
        }
        names
    }

    /// The only type whose name ends so: some writers name packages in two ways.
    fn by_ending(&self, name: &str) -> Option<TypeId> {
        let ending = format!("/{name}");
        let all = self.by_last_name.get(last_name(name)).filter(|all| all.len() <= MAX_ENDINGS)?;
        let is_it = |id: &TypeId| {
            let declared = short_name(self.types.name(*id));
            declared == name || declared.ends_with(&ending)
        };
        let mut found = all.iter().copied().filter(is_it);
        found.next().filter(|_| found.next().is_none())
    }

    /// The declaration of a type, followed by those it uses, without comments.
    pub(crate) fn description(&self, id: TypeId) -> String {
        let (mut all, mut seen, mut at) = (vec![id], BTreeSet::from([id]), 0);
        let mut text = String::new();
        while let Some(id) = all.get(at).copied() {
            if at > 0 {
                text += &separator(self.types.name(id));
            }
            let declared = self.types.get(id);
            declared.declaration.write(&mut text);
            let used = declared.uses.iter().flatten().copied();
            all.extend(used.filter(|used| seen.insert(*used)));
            at += 1;
        }
        text
    }

    fn index(&mut self) {
        for id in self.types.ids() {
            let name = short_name(self.types.name(id));
            self.by_last_name.entry(last_name(&name).to_owned()).or_default().push(id);
            let Some(other) = self.by_name.get(&name).copied() else {
                self.by_name.insert(name, id);
                continue;
            };
            if !is_same(&self.types.get(id).declaration, &self.types.get(other).declaration) {
                let other = self.types.file_of(other).display();
                let message = format!("`{name}` has other fields in {other}; pass only one");
                self.types
                    .reject_type(id, Mistake { span: 0..0, message, help: None, detail: None });
            }
        }
    }

    fn resolve(&mut self) {
        for id in self.types.ids() {
            let (mut uses, mut unknown) = (Vec::new(), Vec::new());
            for Member { of, span, .. } in &self.types.get(id).declaration.members {
                let ElementType::Declared(name) = of else { continue };
                match self.reference(id, name) {
                    Some(Reference::Declared(used)) => uses.push(Some(used)),
                    Some(_) => {}
                    None => unknown.push((name.clone(), span.clone())),
                }
            }
            for (name, span) in unknown {
                let message = format!("the type `{name}` is not declared");
                self.types.reject_type(id, Mistake { span, message, help: None, detail: None });
            }
            self.types.set_uses(id, uses);
        }
    }
}

/// Whether two declarations have the same members.
fn is_same(a: &Declaration, b: &Declaration) -> bool {
    let key = |member: &Member| (member.name.clone(), member.of.clone(), member.count);
    a.members.iter().map(key).eq(b.members.iter().map(key))
}

fn last_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The type of a file: `std_msgs/msg/Header` for `std_msgs/msg/Header.msg`.
fn name_of_file(path: &Path, generation: Generation) -> String {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let name = text(path.file_stem());
    let mut folders = path.ancestors().skip(1).map(|folder| text(folder.file_name()));
    let package = folders.find(|folder| folder != "msg").unwrap_or_default();
    match (package.as_str(), generation) {
        ("", _) => name,
        (package, Generation::Ros1) => format!("{package}/{name}"),
        (package, Generation::Ros2) => format!("{package}/msg/{name}"),
    }
}
