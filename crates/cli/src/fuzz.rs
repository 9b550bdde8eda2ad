//! What users type and what files of theirs hold, as functions of bytes: for fuzzers. A panic is a finding, and so is a broken
//! promise: one reply a line, records that end, texts that come back as they were.
//!
//! Nothing is read or written but memory. Not here: files of a database (`tests/src/fuzz.rs`, which also runs these).

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use shamba::Db;
use shamba::env::{Env, MemFs};

use crate::Cli;
use crate::commands::Session;
use crate::load::{Format, Item, Records};
use crate::output::Out;
use crate::plan::check_rocksdb;
use crate::text::Notation;

/// Words of a command line, one a line.
pub fn command_line(bytes: &[u8]) {
    let words = bytes.split(|byte| *byte == b'\n').map(crate::system::word);
    if let Err(error) = Cli::try_parse_from([OsString::from("shamba")].into_iter().chain(words)) {
        // Help and complaints are made when they are shown.
        let _ = error.render().to_string();
    }
}

/// Lines of `batch`, behind a byte that says whether they are hex.
///
/// # Panics
/// If there is another number of replies than of lines.
pub fn batch_lines(bytes: &[u8]) {
    let Some((options, lines)) = bytes.split_first() else { return };
    // Nothing stays open, or the session complains on standard error.
    let lines = [lines, b"\ncommit\n"].concat();
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let builder = Db::builder("/db").env(env).info_log(false).memory_budget(4 << 20);
    let db = builder.open().expect("a database in memory");
    let replies = Replies::default();
    let mut session = Session::new(&db, Notation::from_switch(options & 1 == 1));
    let mut out = Out::to(Box::new(replies.clone()));
    session.run(&mut lines.as_slice(), &mut out).expect("memory neither fails nor ends");
    let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    let replies = count(&replies.0.lock().unwrap_or_else(PoisonError::into_inner));
    assert_eq!(replies, count(&lines), "replies, lines");
    db.close().expect("closed");
}

/// What `load` reads, behind a byte that says the format, the key column and whether it is hex.
///
/// # Panics
/// If there are more records than a file of this length can have.
pub fn load_records(bytes: &[u8]) {
    const FORMATS: [Format; 4] = [Format::Tsv, Format::Csv, Format::Jsonl, Format::Lines];
    const KEYS: [Option<&str>; 4] = [None, Some("2"), Some("name"), Some("18446744073709551615")];
    let Some((options, file)) = bytes.split_first() else { return };
    let (format, key) = (FORMATS[usize::from(options & 3)], KEYS[usize::from(options >> 2 & 3)]);
    let Ok(mut records) = Records::new(format, Box::new(file), key, options & 16 != 0, options & 32 != 0)
    else {
        return;
    };
    let mut items = 0;
    while let Some(item) = records.next().expect("memory does not fail") {
        items += 1;
        assert!(items <= file.len() + 1, "{items} records in {} bytes", file.len());
        let Item::Record { key, value } = item else { continue };
        for (notation, bytes) in [(Notation::Text, key), (Notation::Hex, value)] {
            let shown = notation.show(&bytes).into_owned();
            assert_eq!(notation.parse(shown.as_bytes()).as_deref(), Ok(bytes.as_slice()), "{shown}");
        }
    }
}

/// An OPTIONS file of RocksDB: read, judged and patched.
pub fn rocksdb_options(bytes: &[u8]) {
    // What is wrong with it may be anything.
    let _ = check_rocksdb(bytes);
}

/// Where replies go.
#[derive(Clone, Default)]
struct Replies(Arc<Mutex<Vec<u8>>>);

impl Write for Replies {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
