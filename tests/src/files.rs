//! A database's files as bytes by name, and a disk in memory that holds them: for suites that
//! damage, swap and keep files.
//!
//! The directory is [`HOME`]; subdirectories are ignored.

use std::collections::BTreeMap;
use std::path::Path;

use shamba::env::{MemFs, Vfs, append_all, read_file};

use crate::runner::HOME;

/// Bytes by file name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The files of the database on `fs`.
///
/// # Panics
/// If they cannot be read.
pub fn files_of(fs: &dyn Vfs) -> Files {
    files_in(fs, Path::new(HOME))
}

/// The files of a directory of `fs`.
///
/// # Panics
/// If they cannot be read.
pub fn files_in(fs: &dyn Vfs, dir: &Path) -> Files {
    let entries = fs.list(dir).expect("list").into_iter().filter(|entry| !entry.is_dir);
    let read = |name: String| {
        let bytes = read_file(fs, &dir.join(&name)).expect("read");
        (name, bytes)
    };
    entries.map(|entry| read(entry.name)).collect()
}

/// A disk with these files.
///
/// # Panics
/// If a name is invalid.
pub fn disk_of(files: &Files) -> MemFs {
    let fs = MemFs::new();
    put_files(&fs, files);
    fs
}

/// Writes these files to a disk that has none.
///
/// # Panics
/// If a name is invalid.
pub fn put_files(fs: &dyn Vfs, files: &Files) {
    fs.create_dir_all(Path::new(HOME)).expect("mkdir");
    for (name, bytes) in files {
        let mut file = fs.create(&Path::new(HOME).join(name)).expect("create");
        append_all(&mut *file, bytes).expect("append");
    }
}
