//! Fuzz entry points for the parsers of user input and of users' files. A panic is a finding; so is
//! a broken invariant: one reply per line, a finite number of records, text that parses back to the
//! same bytes.
//!
//! Works in memory only. Not here: files of a database (`tests/src/fuzz.rs`, which also runs
//! these).

use std::ffi::OsString;
use std::io::{self, Cursor, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use shamba::env::{Env, MemFs};
use shamba::merge::Append;
use shamba::trace::Line;
use shamba::{Db, KeyspaceOptions};
use shamba_workload::execute_trace;
use shamba_workload::trace::TraceReader;

use crate::Cli;
use crate::commands::Session;
use crate::keyspace::DEFAULT;
use crate::load::{Format, Item, Records};
use crate::output::Out;
use crate::plan::check_rocksdb;
use crate::text::Notation;

/// Parses a command line; `bytes` hold one argument per line.
pub fn command_line(bytes: &[u8]) {
    let words = bytes.split(|byte| *byte == b'\n').map(crate::system::word);
    if let Err(error) = Cli::try_parse_from([OsString::from("shamba")].into_iter().chain(words)) {
        // Help and error messages are generated only when rendered.
        let _ = error.render().to_string();
    }
}

/// Runs lines of `batch`; the first byte says whether they are hex.
///
/// # Panics
/// If the number of replies differs from the number of lines.
pub fn batch_lines(bytes: &[u8]) {
    let Some((options, lines)) = bytes.split_first() else { return };
    // `commit` closes an open batch; otherwise the session prints a warning on standard error.
    let lines = [lines, b"\ncommit\n"].concat();
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let lists = KeyspaceOptions::new().merge_operator(Append::separated_by(","));
    let builder = Db::builder("/db").env(env).info_log(false).memory_budget(4 << 20);
    let db = builder.keyspace(DEFAULT, lists).open().expect("a database in memory");
    let replies = Replies::default();
    let mut session = Session::new(&db, Notation::from_switch(options & 1 == 1));
    let mut out = Out::to(Box::new(replies.clone()));
    session.run(&mut lines.as_slice(), &mut out).expect("memory neither fails nor ends");
    let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    let replies = count(&replies.0.lock().unwrap_or_else(PoisonError::into_inner));
    assert_eq!(replies, count(&lines), "replies, lines");
    db.close().expect("closed");
}

/// Reads records as `load` does; the first byte selects the format, the key column and hex.
///
/// # Panics
/// If there are more records than an input of this length can have.
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
        let Item::Record { key, value, .. } = item else { continue };
        for (notation, bytes) in [(Notation::Text, key), (Notation::Hex, value)] {
            let shown = notation.show(&bytes).into_owned();
            assert_eq!(notation.parse(shown.as_bytes()).as_deref(), Ok(bytes.as_slice()), "{shown}");
        }
    }
}

/// Reads, checks and patches an OPTIONS file of RocksDB.
pub fn rocksdb_options(bytes: &[u8]) {
    // Any failure is allowed.
    let _ = check_rocksdb(bytes);
}

/// Reads a trace line by line, and executes it on a database in memory.
///
/// # Panics
/// If a line that was read is written as a line that means something else.
pub fn trace(bytes: &[u8]) {
    /// Values given by a longer length are not generated: that takes long, and finds nothing.
    const LENGTH_MAX: usize = 4 << 10;
    let path = Path::new("trace");
    let reader = || TraceReader::of(path, Box::new(Cursor::new(bytes.to_vec())));
    let mut is_short = true;
    let mut lines = reader();
    while let Ok(Some(line)) = lines.next_line() {
        let mut written = Vec::new();
        line.write(&mut written);
        assert_eq!(written.pop(), Some(b'\n'));
        assert_eq!(Line::parse(&written).as_ref(), Ok(&line), "{}", String::from_utf8_lossy(&written));
        if let Line::Insert { value, .. } | Line::Update { value, .. } = line {
            is_short &= value.len() <= LENGTH_MAX;
        }
    }
    if is_short {
        let env = Env::deterministic(Arc::new(MemFs::new()), 1);
        let builder = Db::builder("/db").env(env).info_log(false).memory_budget(4 << 20);
        let db = builder.open().expect("a database in memory");
        // Any failure is allowed.
        let _ = execute_trace(&db, &mut reader());
        db.close().expect("closed");
    }
}

/// Collects the replies.
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
