//! Detects that a command was given another kind of file than it takes: by the magic at the start
//! of every file of a database (`docs/formats/`), not by its name.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use shamba::{Error, ErrorKind};

use crate::exit::Failure;

/// Magics, and the advice for such a file.
const KINDS: [(&[u8; 8], &str); 6] = [
    (b"SHAMBAT1", "this is a table file: use `shamba table`"),
    (b"SHAMBAWL", "this is a log file: use `shamba wal`"),
    (b"SHAMBAMF", "this is a manifest: use `shamba manifest`"),
    (b"SHAMBACU", "this file names the current manifest: use `shamba manifest` on its directory"),
    (b"SHAMBAVF", "this is a value file: use `shamba table`"),
    (b"SHAMBAVL", "this is a side file of an unfinished flush: no command describes it"),
];

/// Failure of describing `path`: if the file is of another kind than the one with the magic `own`,
/// the failure says which; otherwise it is the engine's error.
pub fn explain(error: Error, path: &Path, own: &[u8; 8]) -> Failure {
    // A manifest can be named by its directory.
    if path.is_dir() && own != b"SHAMBAMF" {
        return Failure::Io(
            format!("{}: this command takes one file of a database, not its directory", path.display()),
            std::io::ErrorKind::IsADirectory.into(),
        );
    }
    let magic = magic_of(path);
    if error.kind() == ErrorKind::Corruption && magic.as_ref() != Some(own) {
        if let Some((_, advice)) = KINDS.iter().find(|(known, _)| magic.as_ref() == Some(known)) {
            return Failure::Usage(format!("{}: {advice}", path.display()));
        }
        return Failure::Advised(
            error,
            "the file does not start with the expected magic; check the path".into(),
        );
    }
    error.into()
}

/// The magic at the start of a file, if it has one.
pub fn magic_of(path: &Path) -> Option<[u8; 8]> {
    let mut magic = [0; 8];
    let is_read = File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok();
    is_read.then_some(magic)
}
