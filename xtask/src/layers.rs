//! Layers within a crate: modules of `lib.rs` are listed in groups from low to high, a module uses
//! only its own group and lower ones, and no modules form a cycle.
//!
//! A *room* is a top-level module with everything below it. A room uses another one where its
//! sources, without tests and comments, name it by `crate::room` or, in a file directly below
//! `src`, by `super::room`. Groups are separated by an empty line or a comment in `lib.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::tidy::tests_begin;

/// Groups that a crate of more than [`ROOMS_WITHOUT_GROUPS`] rooms has at least.
const GROUPS_MIN: usize = 4;
/// Rooms up to which a crate needs no groups.
const ROOMS_WITHOUT_GROUPS: usize = 12;

/// The rooms that each room uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Checks the crate in `crates/NAME`; returns its breaches.
///
/// # Errors
/// A file that cannot be read.
pub fn breaches(root: &Path, name: &str) -> Result<Vec<String>, String> {
    let source = root.join("crates").join(name).join("src");
    let lib = source.join("lib.rs");
    let text = fs::read_to_string(&lib).map_err(|error| format!("{}: {error}", lib.display()))?;
    let groups = groups(&text);
    let mut uses = Uses::new();
    for room in groups.keys() {
        let mut used = BTreeSet::new();
        for path in [source.join(format!("{room}.rs")), source.join(room)] {
            if path.exists() {
                gather(&path, path.is_file(), &mut used)?;
            }
        }
        used.retain(|other| other != room && groups.contains_key(other));
        uses.insert(room.clone(), used);
    }
    let mut found = Vec::new();
    for (room, used) in &uses {
        for other in used.iter().filter(|other| groups[*other] > groups[room]) {
            found.push(format!("crates/{name}: {room} uses {other}, which is in a higher group"));
        }
    }
    if let Some(cycle) = cycle(&uses) {
        found.push(format!("crates/{name}: a cycle of modules: {}", cycle.join(" -> ")));
    }
    let count = groups.values().collect::<BTreeSet<_>>().len();
    if groups.len() > ROOMS_WITHOUT_GROUPS && count < GROUPS_MIN {
        found.push(format!("crates/{name}: lib.rs lists {} modules in {count} groups", groups.len()));
    }
    Ok(found)
}

/// The group of each room, counted from 0, the lowest.
fn groups(lib: &str) -> BTreeMap<String, usize> {
    let (mut groups, mut group, mut is_open) = (BTreeMap::new(), 0, false);
    for line in lib.lines() {
        let declared = ["pub mod ", "pub(crate) mod ", "mod "]
            .iter()
            .find_map(|start| line.strip_prefix(start)?.strip_suffix(';'));
        match declared {
            Some("tests") => {}
            Some(room) => {
                groups.insert(room.to_owned(), group);
                is_open = true;
            }
            None if line.starts_with("#[") => {}
            None => {
                group += usize::from(is_open);
                is_open = false;
            }
        }
    }
    groups
}

/// Adds the rooms that the sources at `path` name.
fn gather(path: &Path, is_top: bool, used: &mut BTreeSet<String>) -> Result<(), String> {
    if path.is_dir() {
        let entries = fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("{}: {error}", path.display()))?.path();
            let stem = entry.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if !["tests", "testing"].contains(&stem) && !stem.ends_with("_tests") {
                gather(&entry, false, used)?;
            }
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let code = without_tests_and_comments(&text);
        named_after(&code, "crate::", used);
        if is_top {
            named_after(&code, "super::", used);
        }
    }
    Ok(())
}

/// The code before the tests at the end of a file, without line comments.
fn without_tests_and_comments(text: &str) -> String {
    let code = text.lines().take(tests_begin(text)).map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// Adds the names behind each `start`: one, or those of a list in braces.
fn named_after(code: &str, start: &str, used: &mut BTreeSet<String>) {
    for (at, _) in code.match_indices(start) {
        let is_path_inside =
            code[..at].ends_with(|before: char| before.is_alphanumeric() || ":_".contains(before));
        let rest = &code[at + start.len()..];
        if is_path_inside {
            continue;
        }
        let name = |text: &str| -> String {
            text.trim_start().chars().take_while(|next| next.is_alphanumeric() || *next == '_').collect()
        };
        let Some(list) = rest.strip_prefix('{') else {
            used.insert(name(rest));
            continue;
        };
        let (mut depth, mut begin) = (0, 0);
        for (place, next) in list.char_indices() {
            match next {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    used.insert(name(&list[begin..place]));
                    begin = place + 1;
                    if next == '}' {
                        break;
                    }
                }
                _ => {}
            }
        }
    }
}

/// A cycle, if there is one: each room uses the next, the last the first.
fn cycle(uses: &Uses) -> Option<Vec<String>> {
    fn visit(room: &String, uses: &Uses, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        if let Some(at) = path.iter().position(|earlier| earlier == room) {
            path.drain(..at);
            return true;
        }
        if done.contains(room) {
            return false;
        }
        path.push(room.clone());
        for other in uses.get(room).into_iter().flatten() {
            if visit(other, uses, path, done) {
                return true;
            }
        }
        path.pop();
        done.insert(room.clone());
        false
    }
    let (mut path, mut done) = (Vec::new(), BTreeSet::new());
    uses.keys().any(|room| visit(room, uses, &mut path, &mut done)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn groups_are_separated_by_comments_and_empty_lines() {
        let lib =
            "//! Docs.\n\n// Low.\nmod a;\n#[cfg(unix)]\npub mod b;\n\n// High.\nmod c;\n\nuse x;\nmod d;\n";
        let groups = groups(lib);
        let of = |room: &str| groups[room];
        assert_eq!((of("a"), of("b"), of("c"), of("d")), (0, 0, 1, 2));
    }

    #[test]
    fn names_come_from_paths_and_lists_outside_tests_and_comments() {
        let text = "use crate::a::X;\nuse crate::{b, c::{d, e}};\n// crate::f\nlet x = crate::g::h();\n\
                    use other_crate::i;\n#[cfg(test)]\nmod tests {\nuse crate::j;\n}\n";
        let mut used = BTreeSet::new();
        named_after(&without_tests_and_comments(text), "crate::", &mut used);
        assert_eq!(used, set(&["a", "b", "c", "g"]));
    }

    #[test]
    fn a_cycle_is_found_wherever_it_is() {
        let mut uses = Uses::new();
        uses.insert("a".to_owned(), set(&["b", "c"]));
        uses.insert("b".to_owned(), set(&["c"]));
        uses.insert("c".to_owned(), set(&["d"]));
        assert_eq!(cycle(&uses), None);
        uses.insert("d".to_owned(), set(&["b"]));
        assert_eq!(cycle(&uses).map(|cycle| cycle.into_iter().collect()), Some(set(&["b", "c", "d"])));
    }
}
