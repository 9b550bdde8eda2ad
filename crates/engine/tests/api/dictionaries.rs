//! Tests of zstd's dictionaries: which tables have one, what it saves, and that everything else
//! reads them.

use std::path::Path;
use std::sync::Arc;

use shamba::env::{Env, MemFs, Vfs};
use shamba::{Compression, Db, ErrorKind, Keyspace, KeyspaceOptions, inspect, repair};

const ROWS: u32 = 4_000;

fn builder(fs: &MemFs) -> shamba::Builder {
    let env = Env::deterministic(Arc::new(fs.clone()), 5);
    let db = Db::builder("/db").env(env).write_buffer(128 << 10).size_ratio(4.0);
    db.compression(Compression::Zstd).experimental(|e| e.file_size(128 << 10))
}

fn key(number: u32) -> String {
    format!("customer/{number:06}")
}

/// A record with many fields, of which some differ from the next one's.
fn value(number: u32) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9);
    format!(
        concat!(
            r#"{{"schema":"https://example.org/customer/v3","street":"Karl-Marx-Allee {}","city":"Berlin","#,
            r#""country":"Germany","balance_cents":{},"is_active":{},"newsletter":"weekly","preferred_language":"en","#,
            r#""last_order":"2026-11-{:02}T{:02}:00:00Z","payment_method":"invoice"}}"#
        ),
        number % 97,
        mixed % 100_000,
        number % 3 == 0,
        mixed % 28 + 1,
        mixed % 24
    )
}

/// Fills the keyspace in an order in which no table can be moved as it is, and compacts it.
fn fill(keyspace: &Keyspace) {
    for number in (0..ROWS).map(|number| number * 7 % ROWS) {
        keyspace.put(key(number), value(number)).expect("put");
    }
    keyspace.compact().expect("compacted");
}

fn check(keyspace: &Keyspace) {
    for number in 0..ROWS {
        assert_eq!(keyspace.get(key(number)).expect("get").as_deref(), Some(value(number).as_bytes()));
    }
    assert_eq!(keyspace.iter().count(), ROWS as usize);
    assert_eq!(keyspace.get("customer/000007x").expect("get"), None);
}

/// Length of all tables of the closed database, the number of those with a dictionary, and of all.
fn tables(fs: &MemFs) -> (u64, usize, usize) {
    let env = Env::deterministic(Arc::new(fs.clone()), 5);
    let files = fs.list(Path::new("/db")).expect("listed");
    let tables: Vec<_> = files.iter().filter(|file| file.name.ends_with(".sst")).collect();
    let with = tables.iter().filter(|file| {
        let described = inspect::table_file(&env, &Path::new("/db").join(&file.name)).expect("described");
        described.dictionary_bytes > 0
    });
    (tables.iter().map(|file| file.bytes).sum(), with.count(), tables.len())
}

/// [`tables`] of a database whose keyspace with these options was filled and compacted.
fn filled(options: KeyspaceOptions) -> (u64, usize, usize) {
    let fs = MemFs::new();
    let db = builder(&fs).open().expect("opens");
    let keyspace = db.keyspace_with("filled", options).expect("made");
    fill(&keyspace);
    check(&keyspace);
    drop(keyspace);
    db.close().expect("closed");
    tables(&fs)
}

#[test]
fn compactions_write_dictionaries_where_they_pay() {
    let options = KeyspaceOptions::new;
    let (plain_bytes, none, _) = filled(options());
    assert_eq!(none, 0, "the database has none");
    let (bytes, dictionaries, all) = filled(options().compression_dictionary(2 << 10));
    assert!(dictionaries > 0 && dictionaries + 1 >= all, "a dictionary in {dictionaries} of {all} tables");
    assert!(20 * bytes < 19 * plain_bytes, "{bytes} bytes in place of {plain_bytes}");
    let lz4 = options().compression(Compression::Lz4).compression_dictionary(2 << 10);
    assert_eq!(filled(lz4).1, 0, "only zstd uses one");
    let later =
        options().compression(vec![Compression::None, Compression::Zstd]).compression_dictionary(2 << 10);
    assert!(filled(later).1 > 0, "the level of the output decides");
    let small = options().file_size(16 << 10).compression_dictionary(2 << 10);
    assert_eq!(filled(small).1, 0, "a dictionary would be an eighth of a table");
}

#[test]
fn another_length_holds_for_tables_written_from_then_on() {
    let fs = MemFs::new();
    let db = builder(&fs).experimental(|e| e.compression_dictionary(2 << 10)).open().expect("opens");
    let keyspace = db.keyspace("a").expect("made");
    fill(&keyspace);
    assert!(db.stats().dictionary_compactions > 0);
    let off = KeyspaceOptions::new().compression_dictionary(0);
    let keyspace = db.keyspace_with("a", off).expect("set");
    assert_eq!(keyspace.own_options(), [("compression-dictionary", "0".to_owned())]);
    for number in 0..ROWS {
        keyspace.put(key(number), value(number)).expect("put");
    }
    keyspace.compact().expect("compacted");
    check(&keyspace);
    drop(keyspace);
    db.close().expect("closed");
    assert_eq!(tables(&fs).1, 0);
}

#[test]
fn tables_with_dictionaries_are_opened_checked_copied_and_repaired() {
    let fs = MemFs::new();
    let with = || builder(&fs).experimental(|e| e.compression_dictionary(1 << 10));
    let db = with().open().expect("opens");
    fill(&db.keyspace("default").expect("the default"));
    db.checkpoint("/copy").expect("copied");
    db.close().expect("closed");
    assert!(tables(&fs).1 > 0);
    // The option is recorded; a build that is not told about it keeps what there is.
    let db = builder(&fs).open().expect("opens");
    check(&db.keyspace("default").expect("the default"));
    assert!(db.verify().expect("checked").is_clean());
    db.close().expect("closed");
    let env = Env::deterministic(Arc::new(fs.clone()), 5);
    let copy = Db::builder("/copy").env(env.clone()).open().expect("opens");
    check(&copy.keyspace("default").expect("the default"));
    copy.close().expect("closed");
    repair(&env, Path::new("/db"), Path::new("/repaired")).expect("repaired");
    let repaired = Db::builder("/repaired").env(env).open().expect("opens");
    check(&repaired.keyspace("default").expect("the default"));
}

#[test]
fn a_length_that_can_save_nothing_is_refused_by_name() {
    for bytes in [1, 255, (64 << 10) + 1] {
        let refused = builder(&MemFs::new()).experimental(|e| e.compression_dictionary(bytes)).open();
        let refused = refused.expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("compression-dictionary"), "{refused}");
        let db = builder(&MemFs::new()).open().expect("opens");
        let asked = KeyspaceOptions::new().compression_dictionary(bytes);
        let refused = db.keyspace_with("a", asked).expect_err("refused").to_string();
        assert!(refused.contains("compression-dictionary") && refused.contains("\"a\""), "{refused}");
    }
}
