//! Helpers: run the binary and examine its results.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// Result of a run.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Run {
    /// Asserts success; returns the output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// Asserts the exit code and output on standard error; returns that output.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        assert!(!self.err.trim().is_empty(), "a failure is explained: {self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        self.err
    }

    /// The single JSON object on standard output.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The binary with these arguments.
pub fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shamba"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the binary to its end.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    finish(command(args).spawn().expect("the binary starts"))
}

/// Runs the binary to its end with this standard input.
pub fn run_with<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, input: &[u8]) -> Run {
    let mut child = command(args).stdin(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // The binary may stop reading early; some tests check that.
        let _ = stdin.write_all(&input);
    });
    let run = finish(child);
    writer.join().expect("the writer does not panic");
    run
}

/// Waits for the end of the process.
pub fn finish(child: Child) -> Run {
    let output = child.wait_with_output().expect("the binary ends");
    Run {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A directory for one test, removed at its end.
pub struct Dir {
    temporary: tempfile::TempDir,
}

impl Dir {
    pub fn new() -> Self {
        Self { temporary: tempfile::tempdir().expect("a temporary directory") }
    }

    /// A path in it, as text.
    pub fn path(&self, name: &str) -> String {
        self.temporary.path().join(name).to_str().expect("temporary paths are UTF-8").to_string()
    }

    /// Creates a database of `count` entries (`key00000`, `value of 0`, ...), some of them in
    /// tables.
    pub fn database(&self, name: &str, count: usize) -> String {
        let db = self.path(name);
        let lines: String =
            (0..count).map(|number| format!("put key{number:05} value of {number}\n")).collect();
        let input = format!("{lines}flush\n");
        run_with(["batch", &db, "--write-buffer", "16KiB", "--size-ratio", "3"], input.as_bytes()).ok();
        db
    }
}

/// Files of a database with this extension, or with names that start with this text.
pub fn files(db: &str, extension_or_start: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(db)
        .expect("the directory is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| {
            path.extension().is_some_and(|extension| extension == extension_or_start)
                || path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(extension_or_start))
        })
        .collect();
    found.sort();
    found
}

/// Flips bits of one byte of a file.
pub fn flip(file: &Path, offset: usize, mask: u8) {
    let mut bytes = std::fs::read(file).expect("readable");
    bytes[offset] ^= mask;
    std::fs::write(file, bytes).expect("writable");
}

/// Names and bytes of all files of a directory.
pub fn contents(db: &str) -> Vec<(PathBuf, Vec<u8>)> {
    files(db, "").into_iter().map(|path| (path.clone(), std::fs::read(&path).expect("readable"))).collect()
}
