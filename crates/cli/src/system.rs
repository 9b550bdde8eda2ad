//! Platform differences: metadata of a file as text, and command-line arguments that are not UTF-8.
//!
//! Only Linux is tested. Not here: the engine's files (`shamba-env`).

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::Metadata;

/// Converts bytes to a command-line argument.
#[cfg(unix)]
pub(crate) fn word(bytes: &[u8]) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec())
}

/// Converts bytes to a command-line argument; invalid UTF-8 is replaced.
#[cfg(not(unix))]
pub(crate) fn word(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// The metadata as text: mode, owner, size, times.
#[cfg(unix)]
pub(crate) fn describe(metadata: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt;

    let mut text = format!(
        "mode={:06o} uid={} gid={} size={}",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.size()
    );
    for (name, seconds, ns) in [
        ("modified", metadata.mtime(), metadata.mtime_nsec()),
        ("changed", metadata.ctime(), metadata.ctime_nsec()),
        ("accessed", metadata.atime(), metadata.atime_nsec()),
    ] {
        // Writing to a string cannot fail.
        let _ = write!(text, " {name}={seconds}.{ns:09}");
    }
    text
}

/// The metadata as text: size and times.
#[cfg(not(unix))]
pub(crate) fn describe(metadata: &Metadata) -> String {
    let mut text = format!("size={}", metadata.len());
    for (name, time) in [
        ("modified", metadata.modified()),
        ("created", metadata.created()),
        ("accessed", metadata.accessed()),
    ] {
        let Ok(time) = time else { continue };
        if let Ok(since) = time.duration_since(std::time::UNIX_EPOCH) {
            // Writing to a string cannot fail.
            let _ = write!(text, " {name}={}.{:09}", since.as_secs(), since.subsec_nanos());
        }
    }
    text
}
