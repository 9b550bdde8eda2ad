//! Walk of a directory tree. Unreadable paths are recorded, and the walk continues.

use std::fs::Metadata;
use std::path::Path;
use std::time::Instant;

use walkdir::WalkDir;

use super::paths::{Entry, Kinds, Paths};
use crate::exit::Failure;
use crate::progress;
use crate::system::describe;

/// Maximum key length: longer paths are reported as unreadable.
const KEY_BYTES_MAX: usize = 65_535;

/// Every path below and including `root`, with its metadata; links are not followed. A random
/// sample of at most `entries_max` is kept.
///
/// # Errors
/// Only if `root` itself cannot be read.
pub fn walk(root: &Path, entries_max: usize) -> Result<Paths, Failure> {
    let start = Instant::now();
    std::fs::symlink_metadata(root).map_err(|error| {
        Failure::io(format!("walking {} (demo --synthetic 200000 needs no files)", root.display()), error)
    })?;
    let bar = progress::bar("walking", None);
    let mut entries = Vec::new();
    let mut unreadable = Vec::new();
    let mut kinds = Kinds::default();
    for found in WalkDir::new(root) {
        let read = found.and_then(|found| found.metadata().map(|metadata| (found, metadata)));
        match read {
            Ok((found, metadata)) => {
                let key = found.path().as_os_str().as_encoded_bytes();
                if key.len() > KEY_BYTES_MAX {
                    unreadable
                        .push(format!("{}...: longer than the maximum key size", found.path().display()));
                    continue;
                }
                count(&metadata, &mut kinds);
                entries.push(Entry { key: key.to_vec(), value: describe(&metadata).into_bytes() });
                bar.inc(1);
            }
            Err(error) => unreadable.push(reason(&error)),
        }
    }
    bar.finish_and_clear();
    let root_bytes = root.as_os_str().len();
    Ok(Paths::new(entries, kinds, unreadable, root_bytes, start.elapsed().as_secs_f64(), entries_max))
}

/// The path and the system's error, or the message of the walk (a loop, for example).
fn reason(error: &walkdir::Error) -> String {
    match (error.path(), error.io_error()) {
        (Some(path), Some(io)) => format!("{}: {io}", path.display()),
        _ => error.to_string(),
    }
}

fn count(metadata: &Metadata, kinds: &mut Kinds) {
    let kind = metadata.file_type();
    let counter = if kind.is_dir() {
        &mut kinds.directories
    } else if kind.is_file() {
        &mut kinds.files
    } else if kind.is_symlink() {
        &mut kinds.links
    } else {
        &mut kinds.others
    };
    *counter += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_small_tree_is_walked_whole() {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::create_dir(dir.path().join("sub")).expect("mkdir");
        std::fs::write(dir.path().join("sub/file"), b"12345").expect("write");
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).expect("symlink");
        let paths = walk(dir.path(), usize::MAX).expect("walks");
        let Kinds { files, directories, links, others } = paths.kinds;
        assert_eq!((files, directories, links, others), (1, 2, 1, 0));
        assert_eq!(paths.entries.len(), 4);
        assert!(paths.unreadable.is_empty());
        let file = paths.entries.iter().find(|entry| entry.key.ends_with(b"sub/file")).expect("there");
        let value = String::from_utf8(file.value.clone()).expect("text");
        assert!(value.starts_with("mode=100") && value.contains(" size=5 modified="), "{value}");
        assert!(walk(&dir.path().join("missing"), usize::MAX).is_err());
    }
}
