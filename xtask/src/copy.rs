//! A copy of the sources to be changed and compiled, in a folder under `target`.
//!
//! It holds the files that git tracks and those that it does not ignore. A file is written only if
//! its content differs, so that cargo compiles only what changed since the last run. The originals
//! are read once, because they may be edited during a run that takes hours.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tidy;

/// An unchanged or changed copy of the sources.
pub struct Copy {
    /// The folder of the copy and of its builds, relative to the root.
    home: &'static str,
    /// The copied files, relative to the root, with their contents.
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Copy {
    /// Makes or updates the unchanged copy in `home`, a folder under the root.
    pub fn make(home: &'static str) -> Result<Self, String> {
        Self::make_except(home, &BTreeSet::new())
    }

    /// Makes or updates the copy, except for existing files of `others`, which the caller will
    /// write.
    pub fn make_except(home: &'static str, others: &BTreeSet<PathBuf>) -> Result<Self, String> {
        let mut command = Command::new("git");
        command.args(["ls-files", "-z", "-co", "--exclude-standard"]).current_dir(tidy::root());
        let listing = output_of(&mut command)?;
        let listed = listing.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
        // A file that was removed and is still tracked is not in the work tree.
        let listed = listed.filter(|file| tidy::root().join(file).is_file());
        let read = |file: PathBuf| {
            let content = fs::read(tidy::root().join(&file));
            content
                .map(|content| (file.clone(), content))
                .map_err(|error| format!("{}: {error}", file.display()))
        };
        let copy = Self { home, files: listed.map(read).collect::<Result<_, _>>()? };
        copy.restore_except(others)?;
        Ok(copy)
    }

    /// The root of the copy.
    pub fn folder(&self) -> PathBuf {
        tidy::root().join(self.home).join("sources")
    }

    /// The target directory of builds in the copy.
    pub fn target(&self) -> PathBuf {
        tidy::root().join(self.home).join("target")
    }

    /// A cargo command in the copy, without lints: a change may leave names unused, and that is not
    /// what it is judged by.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        cargo.env("RUSTFLAGS", format!("{flags} --cap-lints=allow").trim_start());
        cargo.env("CARGO_TARGET_DIR", self.target()).current_dir(self.folder());
        cargo
    }

    /// Undoes every change.
    pub fn restore(&self) -> Result<(), String> {
        self.restore_except(&BTreeSet::new())
    }

    fn restore_except(&self, others: &BTreeSet<PathBuf>) -> Result<(), String> {
        let failed = |file: &Path, error: io::Error| format!("{}: {error}", file.display());
        let is_kept = |file: &PathBuf| others.contains(file) && self.folder().join(file).exists();
        for (file, content) in self.files.iter().filter(|(file, _)| !is_kept(file)) {
            update(content, &self.folder().join(file)).map_err(|error| failed(file, error))?;
        }
        remove_others(&self.folder(), Path::new(""), &self.files)
            .map_err(|error| failed(&self.folder(), error))
    }
}

/// Writes a file if the content differs.
fn update(content: &[u8], to: &Path) -> io::Result<()> {
    if fs::read(to).is_ok_and(|present| present == content) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(to, content)
}

/// Removes the files below `folder`, which is `prefix` in the copy, that are not in `files`.
fn remove_others(folder: &Path, prefix: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let relative = prefix.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(&entry.path(), &relative, files)?;
        } else if !files.contains_key(&relative) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The standard output of a command that succeeds.
pub fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?} did not start: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{command:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_written_and_what_is_not_listed_goes() {
        let to = std::env::temp_dir().join(format!("shamba-sources-copy-{}", std::process::id()));
        update(b"new", &to.join("a/kept")).expect("copied");
        assert_eq!(fs::read_to_string(to.join("a/kept")).expect("copied"), "new");
        fs::write(to.join("a/kept"), "patched").expect("a file");
        fs::write(to.join("a/other"), "").expect("a file");
        update(b"new", &to.join("a/kept")).expect("restored");
        let before = fs::metadata(to.join("a/kept")).and_then(|file| file.modified()).expect("a time");
        update(b"new", &to.join("a/kept")).expect("equal");
        let after = fs::metadata(to.join("a/kept")).and_then(|file| file.modified()).expect("a time");
        assert_eq!(before, after);
        let listed = BTreeMap::from([(PathBuf::from("a/kept"), b"new".to_vec())]);
        remove_others(&to, Path::new(""), &listed).expect("removed");
        assert!(!to.join("a/other").exists());
        assert_eq!(fs::read_to_string(to.join("a/kept")).expect("kept"), "new");
        fs::remove_dir_all(&to).expect("removed");
    }
}
