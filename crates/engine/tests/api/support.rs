//! Helpers that several modules of these tests use.

use std::error::Error as _;
use std::io;
use std::sync::{Arc, Mutex};

use shamba::env::{Env, MemFs, Vfs};
use shamba::merge::{MergeOperator, MergeResult};
use shamba::{Db, Event, EventListener};

/// A database in memory with small memtables, in steps that the seed determines.
pub fn open(seed: u64) -> Db {
    let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
    Db::builder("/db").env(Env::deterministic(files, seed)).write_buffer(8 << 10).open().expect("opened")
}

/// In real threads, over files in memory; small memtables, so that flushes and compactions come in
/// between.
pub fn open_threaded() -> Db {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    Db::builder("/db").env(env).write_buffer(8 << 10).open().expect("opened")
}

/// Appends after a comma, and never combines operands.
pub struct Apart;

impl MergeOperator for Apart {
    fn name(&self) -> &str {
        "apart"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> MergeResult<Vec<u8>> {
        let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        Ok(parts.join(&b','))
    }
}

/// Remembers warnings.
#[derive(Default)]
pub struct Warnings(pub Mutex<Vec<String>>);

impl EventListener for Warnings {
    fn event(&self, event: &Event) {
        if let Event::Warning(text) = event {
            self.0.lock().expect("no panic").push(text.clone());
        }
    }
}

/// The error code of the system call, at the end of the chain of causes.
pub fn os_error(error: &shamba::Error) -> Option<i32> {
    let mut cause = error.source();
    while let Some(below) = cause.and_then(|cause| cause.source()) {
        cause = Some(below);
    }
    cause?.downcast_ref::<io::Error>()?.raw_os_error()
}
