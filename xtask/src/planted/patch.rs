//! A patch: a header of `Field: value` lines, an empty line, and a unified diff of the sources.
//!
//! `Breaks` is the behaviour of the engine with the defect, `Killer` (once or more) the arguments
//! of the `cargo test` that runs the one test that must fail, and `Seconds` the time in which the
//! first killer failed at the last `cargo xtask planted --write`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::copy::{Copy, output_of};
use crate::tidy;

/// The folder of the patches.
const FOLDER: &str = "tests/planted";

/// A test that must fail.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Killer {
    /// The package.
    pub package: String,
    /// The test binary as `cargo test` names its target: a library, or a file in `tests`.
    pub binary: String,
    /// Whether the binary is the package's library.
    pub is_lib: bool,
    /// The test, as the harness names it.
    pub test: String,
}

impl Killer {
    /// Reads the arguments of `cargo test`: `-p PACKAGE --lib TEST` or `-p PACKAGE --test BINARY
    /// TEST`.
    fn parse(words: &str) -> Option<Self> {
        let words: Vec<&str> = words.split_whitespace().collect();
        let (package, binary, is_lib, test) = match words.as_slice() {
            ["-p", package, "--lib", test] => (package, package.replace('-', "_"), true, test),
            ["-p", package, "--test", binary, test] => (package, (*binary).to_owned(), false, test),
            _ => return None,
        };
        Some(Self { package: (*package).to_owned(), binary, is_lib, test: (*test).to_owned() })
    }

    /// The arguments of `cargo test` that select the binary.
    pub fn target(&self) -> Vec<&str> {
        let package = ["-p", &self.package];
        if self.is_lib {
            [&package[..], &["--lib"]].concat()
        } else {
            [&package[..], &["--test", &self.binary]].concat()
        }
    }
}

impl fmt::Display for Killer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.binary, self.test)
    }
}

/// An injected defect.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The file's name without its extension.
    pub name: String,
    /// The behaviour of the engine with the defect.
    pub breaks: String,
    /// The tests that must fail, at least one.
    pub killers: Vec<Killer>,
    /// Run time of the first killer with the defect.
    pub seconds: String,
    /// The unified diff.
    diff: String,
}

/// Every patch, ordered by name.
pub fn all() -> Result<Vec<Patch>, String> {
    let folder = tidy::root().join(FOLDER);
    let failed = |error: std::io::Error| format!("{FOLDER}: {error}");
    let mut patches = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        patches.push(Patch::parse(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?);
    }
    patches.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(patches)
}

impl Patch {
    fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let name =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".patch"));
        let name = name.ok_or("its name does not end with .patch")?;
        let (header, diff) = text.split_once("\n\n").ok_or("it has no empty line behind its header")?;
        let (mut breaks, mut seconds, mut killers) = (None, None, Vec::new());
        for line in header.lines() {
            let (field, value) = line.split_once(": ").ok_or_else(|| format!("{line:?} is no field"))?;
            match field {
                "Breaks" => breaks = Some(value.to_owned()),
                "Seconds" => seconds = Some(value.to_owned()),
                "Killer" => {
                    let killer = Killer::parse(value);
                    killers.push(killer.ok_or_else(|| format!("{value:?} does not select one test"))?);
                }
                _ => return Err(format!("{field:?} is no known field")),
            }
        }
        if killers.is_empty() {
            return Err("it names no killer".to_owned());
        }
        let patch = Self {
            name: name.to_owned(),
            breaks: breaks.ok_or("it does not say what it breaks")?,
            killers,
            seconds: seconds.unwrap_or_else(|| "?".to_owned()),
            diff: diff.to_owned(),
        };
        if patch.files().next().is_none() { Err("it changes no file".to_owned()) } else { Ok(patch) }
    }

    /// Its file.
    pub fn path(&self) -> PathBuf {
        tidy::root().join(FOLDER).join(format!("{}.patch", self.name))
    }

    /// Paths of the files that it changes.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.diff.lines().filter_map(|line| line.strip_prefix("+++ b/"))
    }

    /// The position of the lowest crate that it changes, from the bottom up.
    pub fn height(&self) -> usize {
        let height = |file: &str| {
            let folder = file.strip_prefix("crates/")?.split('/').next()?;
            tidy::ORDER.iter().position(|(name, _)| *name == folder)
        };
        self.files().map(|file| height(file).unwrap_or(usize::MAX)).min().unwrap_or(usize::MAX)
    }

    /// Changes the copy as the patch says.
    pub fn apply(&self, copy: &Copy) -> Result<(), String> {
        // From the root, with the folder named: below it, git would skip files outside of it.
        let folder = copy.folder();
        let relative = folder.strip_prefix(tidy::root()).unwrap_or(&folder);
        self.git_apply(&["--directory", &relative.to_string_lossy()])
            .map_err(|error| format!("{}: {error}", self.name))
    }

    /// Whether it applies to the sources as they are now.
    pub fn applies(&self) -> Result<(), String> {
        self.git_apply(&["--check"])
    }

    /// Applies it with `git apply`, which finds the place of a hunk that moved within its file.
    fn git_apply(&self, options: &[&str]) -> Result<(), String> {
        let mut command = Command::new("git");
        command.args(["apply", "--whitespace=nowarn"]).args(options).arg(self.path());
        output_of(command.current_dir(tidy::root())).map(|_| ())
    }

    /// Writes the file again.
    pub fn save(&self) -> Result<(), String> {
        let path = self.path();
        fs::write(&path, self.text()).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn text(&self) -> String {
        let killer = |killer: &Killer| format!("Killer: {} {}\n", killer.target().join(" "), killer.test);
        let killers: String = self.killers.iter().map(killer).collect();
        format!("Breaks: {}\n{killers}Seconds: {}\n\n{}", self.breaks, self.seconds, self.diff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Breaks: A key is lost.\nKiller: -p shamba-log --lib wal::tests::a\nKiller: -p shamba-tests \
                        --test suites model::b\nSeconds: 0.2\n\n--- a/crates/log/src/lib.rs\n+++ b/crates/log/src/lib.rs\n\
                        @@ -1 +1 @@\n-a\n+b\n";

    #[test]
    fn a_header_round_trips() {
        let patch = Patch::parse(Path::new("a-key-lost.patch"), TEXT).expect("a patch");
        assert_eq!(patch.text(), TEXT);
        assert_eq!(patch.name, "a-key-lost");
        assert_eq!(
            patch.killers.iter().map(Killer::to_string).collect::<Vec<_>>(),
            ["shamba_log: wal::tests::a", "suites: model::b"]
        );
        assert_eq!(patch.files().collect::<Vec<_>>(), ["crates/log/src/lib.rs"]);
        assert_eq!(tidy::ORDER[patch.height()].0, "log");
    }

    #[test]
    fn a_malformed_patch_is_refused() {
        for (from, to) in [
            ("Breaks", "Defect"),
            ("Breaks: A key is lost.\n", ""),
            ("--lib", "--bin"),
            ("Seconds: 0.2\n\n", "Seconds: 0.2\n"),
            ("+++ b/", "+++ "),
        ] {
            assert!(Patch::parse(Path::new("a.patch"), &TEXT.replace(from, to)).is_err(), "{from}");
        }
        let without_killers: String =
            TEXT.split_inclusive('\n').filter(|line| !line.starts_with("Killer")).collect();
        assert!(Patch::parse(Path::new("a.patch"), &without_killers).is_err());
        assert!(Patch::parse(Path::new("a.diff"), TEXT).is_err());
    }
}
