//! Libraries of declared types: the types of a set of files, the mistakes in them, and which types
//! cannot be used because of these. Codecs parse the files and resolve names.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

use sluice_io::escape::printable;
use sluice_model::UnusableTypes;

use crate::TypeFile;
use crate::mistake::Mistake;

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

/// A declaration with resolved names.
#[derive(Debug)]
pub struct ResolvedType<D> {
    /// The declaration as parsed.
    pub declaration: D,
    /// The types that it refers to, in an order that its codec knows; `None` for others than
    /// declared types.
    pub uses: Vec<Option<TypeId>>,
    /// The line of its name.
    pub line: usize,
    /// The index of its file.
    pub file: usize,
    name: String,
}

/// The types that a set of files declares, and the mistakes in them.
///
/// Several files may declare the same name: these are versions of a type, side by side. A codec
/// parses the files, resolves names by its own rules, and then [finishes](Self::finish).
#[derive(Debug)]
pub struct TypeLibrary<D> {
    files: Vec<TypeFile>,
    types: Vec<ResolvedType<D>>,
    by_name: HashMap<String, Vec<TypeId>>,
    mistakes: Vec<(usize, Mistake)>,
    /// The mistakes reported per file, and the maximum of that.
    counts: Vec<usize>,
    max_mistakes: usize,
    /// The files and types with mistakes of their own, and what they are.
    broken_files: BTreeMap<usize, String>,
    broken_types: BTreeMap<TypeId, String>,
    /// The types that cannot be used, including those that refer to a broken one.
    unsound: HashSet<TypeId>,
}

/// The maximum number of mistakes shown.
pub const MAX_SHOWN: usize = 100;
/// The maximum length of a line, and of a file, for which mistakes are shown with their line.
const MAX_SHOWN_LINE: usize = 400;
const MAX_SHOWN_FILE: usize = 1 << 20;

/// The declarations of a file with their names and positions, and the mistakes in it.
pub type ParsedTypes<D> = (Vec<(String, Range<usize>, D)>, Vec<Mistake>);

impl<D> TypeLibrary<D> {
    /// Parses these files. At most `max_mistakes` of each are kept.
    pub fn parse(
        files: Vec<TypeFile>,
        max_mistakes: usize,
        mut parse: impl FnMut(&str) -> ParsedTypes<D>,
    ) -> Self {
        let mut library = Self {
            counts: vec![0; files.len()],
            files,
            max_mistakes,
            types: Vec::new(),
            by_name: HashMap::new(),
            mistakes: Vec::new(),
            broken_files: BTreeMap::new(),
            broken_types: BTreeMap::new(),
            unsound: HashSet::new(),
        };
        for file in 0..library.files.len() {
            let (declared, mistakes) = parse(&library.files[file].text);
            mistakes.into_iter().for_each(|mistake| library.report(file, mistake));
            library.add(file, declared);
        }
        for (file, mistake) in &library.mistakes {
            let why = || {
                let before = library.files[*file].text.as_bytes().get(..mistake.span.start);
                let line = lines(before.unwrap_or_default()) + 1;
                format!("{} (line {line})", mistake.message)
            };
            library.broken_files.entry(*file).or_insert_with(why);
        }
        library
    }

    fn add(&mut self, file: usize, declared: Vec<(String, Range<usize>, D)>) {
        let (mut line, mut seen) = (1, 0);
        for (name, span, declaration) in declared {
            let before = self.files[file].text.as_bytes().get(seen..span.start);
            line += lines(before.unwrap_or_default());
            seen = span.start;
            let id = TypeId::at(self.types.len());
            let versions = self.by_name.entry(name.clone()).or_default();
            if versions.last().is_some_and(|last| self.types[last.index()].file == file) {
                let message = format!("`{name}` is declared twice in this file");
                self.report(file, Mistake { span, message, help: None, detail: None });
                continue;
            }
            versions.push(id);
            self.types.push(ResolvedType { declaration, uses: Vec::new(), line, file, name });
        }
    }

    /// Adds a mistake, up to the maximum of its file.
    pub fn report(&mut self, file: usize, mistake: Mistake) {
        if self.mistakes_left(file) > 0 {
            self.counts[file] += 1;
            self.mistakes.push((file, mistake));
        }
    }

    /// How many more mistakes of a file are kept. At 0 it need not be checked further.
    pub fn mistakes_left(&self, file: usize) -> usize {
        self.max_mistakes - self.counts[file]
    }

    /// The number of mistakes in all files.
    pub fn mistake_count(&self) -> usize {
        self.mistakes.len()
    }

    /// Records that nothing of a file can be used, unless recorded already.
    pub fn reject_file(&mut self, file: usize, why: &str) {
        self.broken_files.entry(file).or_insert_with(|| why.to_owned());
    }

    /// Reports a mistake in a type, which makes it unusable.
    pub fn reject_type(&mut self, id: TypeId, mistake: Mistake) {
        let ResolvedType { line, file, .. } = self.types[id.index()];
        let why = || format!("{} (type in line {line})", mistake.message);
        self.broken_types.entry(id).or_insert_with(why);
        self.report(file, mistake);
    }

    /// Records what the names in a type refer to.
    pub fn set_uses(&mut self, id: TypeId, uses: Vec<Option<TypeId>>) {
        self.types[id.index()].uses = uses;
    }

    /// Finds the types that cannot be used: those with mistakes, and all that refer to one,
    /// directly or indirectly. Call it when every name is resolved.
    pub fn finish(&mut self) {
        let mut named_by: HashMap<TypeId, Vec<TypeId>> = HashMap::new();
        for id in self.ids() {
            self.used(id).for_each(|used| named_by.entry(used).or_default().push(id));
        }
        let is_broken = |id: &TypeId| {
            self.broken_types.contains_key(id)
                || self.broken_files.contains_key(&self.get(*id).file)
        };
        let mut next: Vec<TypeId> = self.ids().filter(is_broken).collect();
        let mut unsound: HashSet<TypeId> = next.iter().copied().collect();
        while let Some(id) = next.pop() {
            let naming = named_by.get(&id).into_iter().flatten();
            next.extend(naming.copied().filter(|other| unsound.insert(*other)));
        }
        self.unsound = unsound;
        self.mistakes.sort_by_key(|(file, mistake)| (*file, mistake.span.start));
    }

    /// The files.
    pub fn files(&self) -> &[TypeFile] {
        &self.files
    }

    /// All types, in the order of files and declarations.
    pub fn ids(&self) -> impl Iterator<Item = TypeId> + use<D> {
        (0..self.types.len()).map(TypeId::at)
    }

    /// The types of this full name.
    pub fn versions(&self, name: &str) -> &[TypeId] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// A type.
    pub fn get(&self, id: TypeId) -> &ResolvedType<D> {
        &self.types[id.index()]
    }

    /// The full name of a type.
    pub fn name(&self, id: TypeId) -> &str {
        &self.get(id).name
    }

    /// The file that declares a type.
    pub fn file_of(&self, id: TypeId) -> &Path {
        &self.files[self.get(id).file].path
    }

    /// Whether a type and all that it refers to are declared without mistakes.
    pub fn is_sound(&self, id: TypeId) -> bool {
        !self.unsound.contains(&id)
    }

    fn used(&self, id: TypeId) -> impl Iterator<Item = TypeId> {
        self.get(id).uses.iter().flatten().copied()
    }

    /// The types that are not [sound](Self::is_sound) by file, and why. `shown` spells their names
    /// for users.
    pub fn unusable(&self, shown: impl Fn(&str) -> String) -> Vec<UnusableTypes> {
        let mut names: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for id in self.ids() {
            names.entry(self.get(id).file).or_default().push(shown(self.name(id)));
        }
        let path = |file: usize| self.files.get(file).map(|file| file.path.clone());
        let whole = self.broken_files.iter().map(|(file, why)| UnusableTypes {
            file: path(*file),
            types: names.remove(file).unwrap_or_default(),
            why: why.clone(),
            has_mistake: true,
        });
        let mut all: Vec<UnusableTypes> = whole.collect();
        for id in self.ids().filter(|id| self.unsound.contains(id)) {
            let file = self.get(id).file;
            if self.broken_files.contains_key(&file) {
                continue;
            }
            let own = self.broken_types.get(&id).map(|why| (why.clone(), true));
            let why = own.unwrap_or_else(|| {
                let named = self.used(id).find(|used| self.unsound.contains(used));
                let named = named.map(|used| shown(self.name(used))).unwrap_or_default();
                (format!("it holds `{named}`, which cannot be used"), false)
            });
            UnusableTypes::add(&mut all, path(file).as_deref(), &shown(self.name(id)), why);
        }
        all.sort_by(|a, b| a.file.cmp(&b.file));
        all
    }

    /// The mistakes in the files as text with positions: at most [`MAX_SHOWN`]. Linear in the
    /// length of the files.
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
            let is_all = (0..self.files.len()).all(|file| self.mistakes_left(file) > 0);
            let least = if is_all { "" } else { "at least " };
            shown.push(format!("and {least}{more} more mistakes"));
        }
        shown
    }
}

fn lines(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
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

/// The most bytes of a description: they come from untrusted files. None that Sluice writes is
/// longer.
pub const MAX_DESCRIPTION_LEN: usize = 1 << 20;

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
