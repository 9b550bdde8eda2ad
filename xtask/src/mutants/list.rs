//! The mutants of the sources: the list that `cargo mutants --list --json` prints.
//!
//! A mutant replaces one place of a function: its body, an operator, an arm of a `match`, a guard,
//! a field. `cargo-mutants` finds them. They are built by `build.rs` and run by `trial.rs`.

use std::hash::{Hash as _, Hasher as _};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::copy::output_of;

/// One change of one function.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The path of the file, relative to the root.
    pub file: String,
    /// The change in words, with line and column.
    pub name: String,
    /// The bytes of the file that are replaced.
    pub place: Range<usize>,
    /// Their replacement.
    pub replacement: String,
    /// The bytes of the function that it is in; none outside of functions.
    pub function: Option<Range<usize>>,
    /// A hash of that function's text: a result is of this text only.
    pub text_hash: u64,
}

/// All mutants of the files that match `globs`, in the order of files and places.
pub fn of_files(root: &Path, globs: &[String]) -> Result<Vec<Mutant>, String> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json"]).current_dir(root);
    for glob in globs {
        command.args(["--file", glob]);
    }
    let listing = output_of(&mut command).map_err(|error| {
        format!("{error}\n`cargo mutants` lists the mutants: cargo install cargo-mutants")
    })?;
    let listed: Vec<Value> =
        serde_json::from_str(&listing).map_err(|error| format!("the list of cargo mutants: {error}"))?;
    let mut mutants = Vec::new();
    let mut text = (String::new(), String::new());
    for value in &listed {
        let file = value["file"].as_str().ok_or("a mutant without a file")?;
        if text.0 != file {
            let path = root.join(file);
            let content = std::fs::read_to_string(&path).map_err(|error| format!("{file}: {error}"))?;
            text = (file.to_owned(), content);
        }
        let mutant = parse(value, &text.1).ok_or_else(|| format!("cannot read the mutant {value}"))?;
        mutants.push(mutant);
    }
    mutants.sort_by(|one, other| (&one.file, one.place.start).cmp(&(&other.file, other.place.start)));
    Ok(mutants)
}

fn parse(value: &Value, text: &str) -> Option<Mutant> {
    let function = &value["function"]["span"];
    let function = if function.is_null() { None } else { Some(range(function, text)?) };
    let mut hasher = std::hash::DefaultHasher::new();
    function.as_ref().and_then(|range| text.get(range.clone())).hash(&mut hasher);
    Some(Mutant {
        file: value["file"].as_str()?.to_owned(),
        name: value["name"].as_str()?.to_owned(),
        place: range(&value["span"], text)?,
        replacement: value["replacement"].as_str()?.to_owned(),
        function,
        text_hash: hasher.finish(),
    })
}

/// A range of lines and columns, which count from 1, in bytes.
fn range(span: &Value, text: &str) -> Option<Range<usize>> {
    let at = |place: &Value| offset(text, place["line"].as_u64()?, place["column"].as_u64()?);
    Some(at(&span["start"])?..at(&span["end"])?)
}

fn offset(text: &str, line: u64, column: u64) -> Option<usize> {
    let before: usize =
        text.split_inclusive('\n').take(usize::try_from(line).ok()?.checked_sub(1)?).map(str::len).sum();
    let columns = usize::try_from(column).ok()?.checked_sub(1)?;
    let rest = text.get(before..)?;
    Some(before + rest.chars().take(columns).map(char::len_utf8).sum::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters_from_one() {
        let text = "ab\nä = b;\n";
        assert_eq!((offset(text, 1, 1), offset(text, 2, 1), offset(text, 2, 3)), (Some(0), Some(3), Some(6)));
    }

    #[test]
    fn a_mutant_is_read_with_its_function() {
        let text = "fn a() -> u8 {\n    1 + 2\n}\n";
        let value = serde_json::json!({
            "file": "a.rs", "name": "a.rs:2:7: replace + with - in a", "replacement": "-",
            "span": {"start": {"line": 2, "column": 7}, "end": {"line": 2, "column": 8}},
            "function": {"span": {"start": {"line": 1, "column": 1}, "end": {"line": 3, "column": 2}}},
        });
        let mutant = parse(&value, text).expect("a mutant");
        assert_eq!((&text[mutant.place], mutant.function), ("+", Some(0..text.len() - 1)));
    }
}
