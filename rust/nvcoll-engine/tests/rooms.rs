//! The rooms of all crates: each uses only rooms above it in the table of its `lib.rs`, no files use each other in a circle, and no type
//! has a name that another type of the crates has.
//!
//! ```text
//! file ──parse──▶ paths that begin with crate, super, self or a child module ──resolve──▶ file that declares the name
//! ```
//!
//! `use` trees are read with their braces, and paths in code and inside macros too. A path to a name that a module only re-exports
//! (`pub use child::Name`) leads to the child: the module is a door, not a user. Unit tests
//! are not read: a test may build a whole world around the part that it tests. Methods are not seen: a file may call a method that another
//! file adds to a type which both know.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

const CRATES: [&str; 6] =
    ["nvcoll-core", "nvcoll-engine", "nvcoll-fabric", "nvcoll-step", "nvcoll-vgpu", "nvcoll-python"];

/// Names that private types of the binding and types of training steps share with others. Rows leave this list, none is added. The
/// other crates share no name.
const OPEN_NAMES: &[&str] = &[
    "Access",
    "Awaited",
    "Compute",
    "Constant",
    "Constants",
    "Device",
    "Direction",
    "Evidence",
    "Failure",
    "Form",
    "InFlight",
    "Issued",
    "IssuedCall",
    "Layout",
    "LinkRow",
    "Loan",
    "Memory",
    "Model",
    "Network",
    "Operands",
    "Order",
    "Outcome",
    "Pass",
    "Programs",
    "Request",
    "Role",
    "Schedule",
    "Side",
    "Stages",
    "Timeline",
];

type ModulePath = Vec<String>;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src")
}

/// Returns every Rust file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    below.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Returns the module that a file is, as names from the root of its crate; the root has none.
fn module(source: &Path, file: &Path) -> ModulePath {
    let inside = file.strip_prefix(source).unwrap().with_extension("");
    let names = inside.iter().map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| name != "mod" && name != "lib").collect()
}

/// The paths of one file, from the root of the crate.
#[derive(Default)]
struct FileUses {
    /// The module that is read: that of the file, or one inside it.
    place: ModulePath,
    children: BTreeSet<String>,
    /// Modules with files of their own that only tests have.
    of_tests: Vec<ModulePath>,
    used: Vec<ModulePath>,
    /// Names that the file re-exports, with the path to each.
    doors: BTreeMap<String, ModulePath>,
}

impl FileUses {
    fn of(place: ModulePath, text: &str) -> Self {
        let file = syn::parse_file(text).unwrap();
        let child = |item: &syn::Item| match item {
            syn::Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
            _ => None,
        };
        let children = file.items.iter().filter_map(child).collect();
        let of_test = |item: &syn::Item| match item {
            syn::Item::Mod(module) if module.content.is_none() && module.attrs.iter().any(is_of_tests) => {
                Some([&place[..], &[module.ident.to_string()]].concat())
            }
            _ => None,
        };
        let of_tests = file.items.iter().filter_map(of_test).collect();
        let mut uses = Self { place, children, of_tests, ..Self::default() };
        uses.visit_file(&file);
        uses
    }

    /// Returns a path from the root of the crate; none if it leads out of the crate, or begins with a name in scope.
    fn resolve(&self, names: &[String]) -> Option<ModulePath> {
        let first = names.first()?;
        if first == "crate" {
            // `crate` alone is the reach of a `pub(crate)`.
            return (names.len() > 1).then(|| names[1..].to_vec());
        }
        if self.children.contains(first) && names.len() > 1 {
            return Some([&self.place, names].concat());
        }
        let ups = names.iter().take_while(|name| *name == "super").count();
        let own = usize::from(first == "self");
        if ups + own == 0 || names.len() == ups + own {
            return None;
        }
        Some([&self.place[..self.place.len() - ups], &names[ups + own..]].concat())
    }

    fn note(&mut self, names: &[String]) {
        self.used.extend(self.resolve(names));
    }

    fn note_tree(&mut self, mut prefix: Vec<String>, tree: &syn::UseTree, is_door: bool) {
        let (path, name) = match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                return self.note_tree(prefix, &path.tree, is_door);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.note_tree(prefix.clone(), tree, is_door));
            }
            syn::UseTree::Name(name) => ([prefix, vec![name.ident.to_string()]].concat(), name.ident.to_string()),
            syn::UseTree::Rename(name) => ([prefix, vec![name.ident.to_string()]].concat(), name.rename.to_string()),
            syn::UseTree::Glob(_) => (prefix, "*".to_owned()),
        };
        let path = match path.split_last() {
            // `use super::name::{self}` is a use of `name`.
            Some((last, before)) if last == "self" => before.to_vec(),
            _ => path,
        };
        match self.resolve(&path) {
            Some(resolved) if is_door => _ = self.doors.insert(name, resolved),
            Some(resolved) => self.used.push(resolved),
            None => {}
        }
    }

    /// Notes the paths that begin with `crate` among the tokens of a macro, whose text may stand in any module.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Ident(name) => path.push(name.to_string()),
                TokenTree::Punct(mark) if mark.as_char() == ':' => {}
                other => {
                    self.note_from_root(&std::mem::take(&mut path));
                    if let TokenTree::Group(group) = other {
                        self.note_tokens(group.stream());
                    }
                }
            }
        }
        self.note_from_root(&path);
    }

    fn note_from_root(&mut self, names: &[String]) {
        if names.first().is_some_and(|name| name == "crate") {
            self.note(names);
        }
    }
}

/// Says whether an attribute leaves a module to tests: `cfg(test)`.
fn is_of_tests(attribute: &syn::Attribute) -> bool {
    let list = attribute.path().is_ident("cfg").then(|| attribute.meta.require_list().ok()).flatten();
    list.is_some_and(|list| list.tokens.to_string().contains("test"))
}

impl<'a> Visit<'a> for FileUses {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if item.content.is_some() && !item.attrs.iter().any(is_of_tests) {
            self.place.push(item.ident.to_string());
            let children = std::mem::take(&mut self.children);
            visit::visit_item_mod(self, item);
            self.children = children;
            self.place.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.note_tree(Vec::new(), &item.tree, !matches!(item.vis, syn::Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.note(&path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        self.note_tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

/// The files of a crate, and the files that each uses.
fn arrows(name: &str) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let source = source(name);
    let read = |file: PathBuf| {
        let place = module(&source, &file);
        (place.clone(), FileUses::of(place, &fs::read_to_string(&file).unwrap()))
    };
    let mut uses: BTreeMap<ModulePath, FileUses> = files(&source).into_iter().map(read).collect();
    for tests in uses.values().flat_map(|uses| uses.of_tests.clone()).collect::<Vec<_>>() {
        uses.remove(&tests);
    }
    let owner = |path: &ModulePath| (0..=path.len()).rev().map(|n| path[..n].to_vec()).find(|n| uses.contains_key(n));
    let target = |path: &ModulePath| {
        let mut path = path.clone();
        // Through doors, at most the depth to which modules can nest.
        for _ in 0..16 {
            let at = owner(&path)?;
            let rest = &path[at.len()..];
            let door = rest.first().and_then(|name| uses[&at].doors.get(name));
            match door {
                Some(door) => path = [door, &rest[1..]].concat(),
                None => return Some(at),
            }
        }
        None
    };
    let of_file = |(own, uses): (&ModulePath, &FileUses)| {
        let used = uses.used.iter().filter_map(target).filter(|used| used != own).collect();
        (own.clone(), used)
    };
    uses.iter().map(of_file).collect()
}

/// Returns the rooms of a crate in the order of the table of its `lib.rs`.
fn rooms(name: &str) -> Vec<String> {
    let text = fs::read_to_string(source(name).join("lib.rs")).unwrap();
    let cell = |line: &str| line.strip_prefix("//! | ")?.split_once(" |").map(|(cell, _)| cell.to_owned());
    let names = |cell: String| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    text.lines().filter_map(cell).flat_map(names).collect()
}

#[test]
fn a_room_uses_only_rooms_above_it_in_the_table() {
    let mut faults = Vec::new();
    for name in CRATES {
        let rooms = rooms(name);
        let place = |room: &String| rooms.iter().position(|one| one == room);
        let mut between_rooms = 0;
        for (own, used) in arrows(name) {
            let Some(own_room) = own.first() else { continue };
            let Some(own_place) = place(own_room) else {
                faults.push(format!("{name}: {own_room} has no row in the table"));
                continue;
            };
            for other in used.iter().filter(|used| !used.is_empty()) {
                let Some(other_place) = place(&other[0]) else { continue };
                between_rooms += usize::from(other_place < own_place);
                if other_place > own_place {
                    faults.push(format!("{name}: {} uses {}", own.join("::"), other.join("::")));
                }
            }
        }
        assert!(between_rooms > 50, "{name}: only {between_rooms} arrows were found: the test reads sources wrongly");
    }
    assert!(faults.is_empty(), "these files use a room that stands below theirs: {faults:#?}");
}

/// Returns the files that each file reaches, over any number of arrows.
fn reached(arrows: &BTreeMap<ModulePath, BTreeSet<ModulePath>>, from: &ModulePath) -> BTreeSet<ModulePath> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        next.extend(arrows[file].iter().filter(|used| reached.insert((*used).clone())));
    }
    reached
}

/// Returns the circles: sets of files in which each file reaches all others.
fn circles(arrows: &BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> BTreeSet<BTreeSet<ModulePath>> {
    let reached: BTreeMap<&ModulePath, BTreeSet<ModulePath>> =
        arrows.keys().map(|file| (file, reached(arrows, file))).collect();
    let circle = |file: &ModulePath| reached[file].iter().filter(|one| reached[one].contains(file)).cloned().collect();
    arrows.keys().map(circle).filter(|circle: &BTreeSet<_>| !circle.is_empty()).collect()
}

#[test]
fn no_file_uses_itself_through_others() {
    let mut found = Vec::new();
    for name in CRATES {
        let arrows = arrows(name);
        for circle in circles(&arrows) {
            for file in &circle {
                let used: Vec<String> = arrows[file].intersection(&circle).map(|used| used.join("::")).collect();
                found.push(format!("{name}: {} -> {}", file.join("::"), used.join(", ")));
            }
        }
    }
    assert!(found.is_empty(), "these files use each other: {found:#?}");
}

/// Returns the name of the type that a line declares; associated types, which are indented, are none.
fn declared(line: &str) -> Option<String> {
    let is_associated = line.starts_with("    ") && line.trim_start().starts_with("type ");
    let mut words = line.split_whitespace().filter(|word| !word.starts_with("pub") && *word != "unsafe");
    let is_type = matches!(words.next()?, "struct" | "enum" | "trait" | "union" | "type");
    let name: String = words.next()?.chars().take_while(|c| c.is_alphanumeric()).collect();
    (is_type && !is_associated && name.starts_with(char::is_uppercase)).then_some(name)
}

/// Returns the types that a file declares. A class of the binding may have the name of what it wraps, so it is left out.
fn declared_in(text: &str) -> Vec<String> {
    let mut is_class = false;
    let mut found = Vec::new();
    for line in text.lines() {
        is_class |= line.starts_with("#[pyclass");
        if let Some(name) = declared(line) {
            if !std::mem::take(&mut is_class) {
                found.push(name);
            }
        }
    }
    found
}

#[test]
fn no_two_types_of_the_crates_have_one_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in CRATES {
        // A file that stands in for a room has the room's names: a build has one of the two.
        let stands_in = |file: &PathBuf| file.ends_with("without_engine.rs");
        for file in files(&source(name)).into_iter().filter(|file| !stands_in(file)) {
            for declared in declared_in(&fs::read_to_string(&file).unwrap()) {
                places.entry(declared).or_default().push(format!("{name}: {}", file.display()));
            }
        }
    }
    assert!(places.len() > 500, "only {} types were found: the test reads the sources wrongly", places.len());
    let is_open = |place: &&String| place.starts_with("nvcoll-step") || place.starts_with("nvcoll-python");
    let is_allowed = |name: &str, places: &[String]| {
        let others = places.iter().filter(|place| !is_open(place)).count();
        name == "Error" || name == "Result" || (others < 2 && OPEN_NAMES.contains(&name))
    };
    let repeated = places.iter().filter(|(name, places)| places.len() > 1 && !is_allowed(name, places));
    let repeated: Vec<_> = repeated.collect();
    assert!(repeated.is_empty(), "these types are declared more than once: {repeated:#?}");
    let is_needed = |name: &str| places.get(name).is_some_and(|places| places.len() > 1);
    let unneeded: Vec<&str> = OPEN_NAMES.iter().copied().filter(|name| !is_needed(name)).collect();
    assert!(unneeded.is_empty(), "these names are declared once: take them from OPEN_NAMES: {unneeded:?}");
}
