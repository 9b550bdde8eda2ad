//! Value files: documents whose bytes lie outside the tables, so that compactions do not copy them.
//!
//! ```text
//! cargo run -p shamba --example documents
//! ```

use std::error::Error;

use shamba::{Db, KeyspaceOptions};

/// A document of this number and version, of 20 KB.
fn document(number: u32, version: u32) -> Vec<u8> {
    format!("document {number}, version {version}. ").into_bytes().repeat(700)
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    // Values from 4 KiB on go to value files, which take at most 1.5 times the live data.
    let options = KeyspaceOptions::new().value_threshold(4_096).value_space(1.5);
    let documents = db.keyspace_with("documents", options)?;
    for number in 0..500u32 {
        documents.put(number.to_be_bytes(), document(number, 1))?;
    }
    db.flush()?;
    documents.compact()?;
    let stats = db.stats();
    let tables: u64 = documents.stats().levels.iter().map(|level| level.bytes).sum();
    println!("{} bytes of values, {tables} bytes of tables", stats.value_bytes);
    assert!(tables < stats.value_bytes / 20);

    // A value is read when it is asked for: keys cost nothing.
    let mut cursor = documents.key_cursor();
    while cursor.next()? && cursor.key() != Some(&7u32.to_be_bytes()[..]) {}
    assert_eq!(cursor.value()?.ok_or("no document")?, document(7, 1)[..]);

    // What is replaced takes space until its file is collected.
    for number in 0..250u32 {
        documents.put(number.to_be_bytes(), document(number, 2))?;
    }
    db.flush()?;
    documents.compact()?;
    let stats = db.stats();
    println!("{} of {} bytes of values are referenced", stats.value_bytes_live, stats.value_bytes);
    assert_eq!(documents.get(7u32.to_be_bytes())?.ok_or("no document")?, document(7, 2)[..]);
    Ok(())
}
