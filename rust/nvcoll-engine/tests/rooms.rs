//! The rooms of the engine: each uses only rooms that stand above it in the table of `lib.rs`, no two files use each other, and no
//! type has a name that another type of the three crates has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Returns every Rust file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    below.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Returns the module that a file is, as names from the root of the crate.
fn module(file: &Path) -> Vec<String> {
    let inside = file.strip_prefix(source()).unwrap().with_extension("");
    let names = inside.iter().map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| name != "mod" && name != "lib").collect()
}

/// Returns the paths that a file reaches by `crate::`, in code, tests and links of its documentation.
fn uses(file: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(file).unwrap();
    let path = |rest: &str| {
        let names = rest.split("::").map(|name| name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next());
        names.map(|name| name.unwrap_or_default().to_owned()).collect()
    };
    text.split("crate::").skip(1).map(|rest| path(rest.split([';', ' ', '\n', '(']).next().unwrap())).collect()
}

/// Returns the rooms in the order of the table of `lib.rs`.
fn rooms() -> Vec<String> {
    let text = fs::read_to_string(source().join("lib.rs")).unwrap();
    let room = |line: &str| Some(line.strip_prefix("//! | [`")?.split_once("`]")?.0.to_owned());
    text.lines().filter_map(room).collect()
}

#[test]
fn a_room_uses_only_rooms_above_it_in_the_table() {
    let rooms = rooms();
    let place = |room: &String| rooms.iter().position(|one| one == room);
    let mut arrows = 0;
    for file in files(&source()) {
        let Some(own) = module(&file).first().cloned() else { continue };
        let own = place(&own).unwrap_or_else(|| panic!("{own} has no row in the table of lib.rs"));
        for used in uses(&file) {
            let Some(other) = place(&used[0]) else { panic!("{} uses crate::{}", file.display(), used.join("::")) };
            assert!(other <= own, "{} uses {}, which stands below {}", file.display(), rooms[other], rooms[own]);
            arrows += usize::from(other < own);
        }
    }
    assert!(arrows > 50, "only {arrows} arrows between rooms were found: the test reads the sources wrongly");
}

#[test]
fn no_file_uses_itself_through_others() {
    let modules: BTreeMap<Vec<String>, PathBuf> = files(&source()).into_iter().map(|f| (module(&f), f)).collect();
    let mut unvisited: BTreeMap<&Vec<String>, BTreeSet<&Vec<String>>> = BTreeMap::new();
    for (own, file) in &modules {
        let owner = |used: &Vec<String>| {
            let longest = (1..=used.len()).rev().find_map(|n| modules.get_key_value(&used[..n]));
            longest.map(|(module, _)| module).filter(|module| *module != own)
        };
        unvisited.insert(own, uses(file).iter().filter_map(owner).collect());
    }
    // Takes away files that use nothing which is left, until nothing is left or all that is left lies on or behind a cycle.
    loop {
        let free = |used: &BTreeSet<&Vec<String>>| used.iter().all(|one| !unvisited.contains_key(*one));
        let free: Vec<_> = unvisited.iter().filter(|(_, used)| free(used)).map(|(own, _)| *own).collect();
        if free.is_empty() {
            break;
        }
        free.iter().for_each(|own| _ = unvisited.remove(*own));
    }
    let left: Vec<String> = unvisited.keys().map(|module| module.join("::")).collect();
    assert!(left.is_empty(), "these files use each other, or a file that does: {}", left.join(", "));
}

/// Returns the name of the type that a line declares; associated types, which are indented, are none.
fn declared(line: &str) -> Option<String> {
    let is_associated = line.starts_with("    ") && line.trim_start().starts_with("type ");
    let mut words = line.split_whitespace().filter(|word| !word.starts_with("pub") && *word != "unsafe");
    let is_type = matches!(words.next()?, "struct" | "enum" | "trait" | "union" | "type");
    let name: String = words.next()?.chars().take_while(|c| c.is_alphanumeric()).collect();
    (is_type && !is_associated && name.starts_with(char::is_uppercase)).then_some(name)
}

#[test]
fn no_two_types_of_the_crates_have_one_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in ["nvcoll-core", "nvcoll-engine", "nvcoll-fabric"] {
        for file in files(&source().join("../..").join(name).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let place = |line: &str| declared(line).map(|declared| (declared, format!("{name}: {}", file.display())));
            text.lines()
                .filter_map(place)
                .for_each(|(declared, place)| places.entry(declared).or_default().push(place));
        }
    }
    assert!(places.len() > 200, "only {} types were found: the test reads the sources wrongly", places.len());
    let is_shared = |name: &str| name == "Error" || name == "Result";
    let repeated = places.iter().filter(|(name, places)| places.len() > 1 && !is_shared(name));
    let repeated: Vec<_> = repeated.collect();
    assert!(repeated.is_empty(), "these types are declared more than once: {repeated:#?}");
}
