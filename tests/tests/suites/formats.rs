//! Suite L: databases written by released versions can always be opened.
//!
//! `tests/data/golden/VERSION` has two small databases with every kind of structure in them: one
//! was closed, the other killed with a live log. This build must read both, entry by entry, without
//! writing a byte (read-only), and then open them for writing; and it must refuse files with a
//! newer version.
//!
//! A release adds a directory: `SHAMBA_WRITE_GOLDEN=VERSION cargo test -p shamba-tests --test
//! suites formats`. Existing directories are never rewritten. What came after 0.1.0 has a database
//! for each feature ([`features`]).
//!
//! Not here: the meaning of each byte (`docs/formats`, and the tests of the codecs).

mod features;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shamba::env::{Env, MemFs};
use shamba::{Builder, Compression, Db, Durability, ErrorKind, FilterLayout, MergePolicy, Modules};
use shamba_tests::files::{disk_of, files_of};
use shamba_tests::runner::HOME;

const NAMES: [&str; 2] = ["closed", "killed"];
/// Keyspaces besides the default one.
const SPACES: [&str; 4] = ["modular", "standard", "double", "tail"];

type Content = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden")
}

fn builder(fs: &MemFs) -> Builder {
    let env = Env::deterministic(Arc::new(fs.clone()), 1);
    let builder = Db::builder(HOME).env(env).durability(Durability::NoSync).info_log(false);
    builder
        .write_buffer(64 << 10)
        .experimental(|e| e.file_size(4 << 10).block_bytes(512))
        .merge_policy(MergePolicy::LazyLeveling)
}

fn layout(space: &str) -> (FilterLayout, Compression) {
    match space {
        "modular" => (FilterLayout::Modular(Modules::equal(3).expect("three")), Compression::Lz4),
        "standard" => ("standard".parse().expect("a layout"), Compression::Zstd),
        "double" => ("standard-double".parse().expect("a layout"), Compression::None),
        _ => (FilterLayout::Blocked, Compression::None),
    }
}

/// Fills the golden databases and returns their content; without `fs` only the content.
fn fill(fs: Option<&MemFs>) -> shamba::Result<(Content, Option<Db>)> {
    let mut content = Content::new();
    let mut last = None;
    // One open for each family of filters, into a keyspace of its own.
    for space in SPACES {
        drop(last.take());
        let (filters, compression) = layout(space);
        let db = fs
            .map(|fs| {
                builder(fs)
                    .experimental(|e| e.filter_layout(filters).large_values(900, 400))
                    .compression(compression)
                    .open()
            })
            .transpose()?;
        let keyspace = db.as_ref().map(|db| db.keyspace(space)).transpose()?;
        let mut put = |key: String, value: Vec<u8>| {
            if let Some(keyspace) = &keyspace {
                keyspace.put(&key, &value)?;
            }
            content.insert((space.to_owned(), key.into_bytes()), value);
            shamba::Result::Ok(())
        };
        for number in 0..60u32 {
            put(
                format!("user:{number:04}"),
                format!("{space} {number}").repeat(1 + number as usize % 4).into(),
            )?;
        }
        put("large".to_owned(), (0..2_500u32).map(|at| (at * 7) as u8).collect())?;
        let flush = || db.as_ref().map_or(Ok(()), Db::flush);
        flush()?;
        for number in (0..60u32).step_by(7) {
            if let Some(keyspace) = &keyspace {
                keyspace.delete(format!("user:{number:04}"))?;
            }
            content.remove(&(space.to_owned(), format!("user:{number:04}").into_bytes()));
        }
        if let Some(keyspace) = &keyspace {
            keyspace.delete_range("user:0020".."user:0025")?;
        }
        content.retain(|(of, key), _| {
            of != space || !(&b"user:0020"[..]..&b"user:0025"[..]).contains(&&key[..])
        });
        // The last keyspace stays in the log.
        if space != "tail" {
            flush()?;
        }
        last = db;
    }
    Ok((content, last))
}

fn content_of(db: &Db) -> shamba::Result<Content> {
    let mut content = Content::new();
    for space in db.keyspaces().into_iter().filter(|space| SPACES.contains(&space.as_str())) {
        let keyspace = db.keyspace(&space)?;
        for pair in keyspace.iter() {
            let (key, value) = pair?;
            assert_eq!(keyspace.get(&key)?.as_deref(), Some(&value[..]), "{space}: a get and a scan");
            content.insert((space.clone(), key.to_vec()), value.to_vec());
        }
    }
    Ok(content)
}

fn read_dir(path: &Path) -> MemFs {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name");
        (name, std::fs::read(entry.path()).expect("a golden file"))
    };
    disk_of(&std::fs::read_dir(path).expect("a golden directory").map(read).collect())
}

/// Writes the files of `fs` into a new directory.
fn write_dir(to: &Path, fs: &MemFs) {
    assert!(!to.exists(), "{} is there already", to.display());
    std::fs::create_dir_all(to).expect("mkdir");
    for (name, bytes) in files_of(fs) {
        std::fs::write(to.join(name), bytes).expect("write");
    }
}

fn versions() -> Vec<PathBuf> {
    let mut versions: Vec<_> = std::fs::read_dir(golden())
        .expect("golden databases")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    versions.sort();
    assert!(!versions.is_empty());
    versions
}

/// Writes the databases of a release.
fn write_golden(version: &str) {
    for name in NAMES {
        let fs = MemFs::new();
        let (_, db) = fill(Some(&fs)).expect("a database");
        let db = db.expect("open");
        db.sync().expect("sync");
        match name {
            "closed" => db.close().expect("close"),
            _ => drop(db),
        }
        write_dir(&golden().join(version).join(name), &fs);
    }
}

#[test]
fn databases_of_every_release_open() {
    if let Ok(version) = std::env::var("SHAMBA_WRITE_GOLDEN") {
        write_golden(&version);
    }
    let (expected, _) = fill(None).expect("no database, no error");
    assert!(expected.len() > 150);
    for version in versions() {
        for name in NAMES {
            let path = version.join(name);
            let fs = read_dir(&path);
            let before = files_of(&fs);
            let opens = || -> shamba::Result<()> {
                let db = builder(&fs).read_only(true).open()?;
                assert!(content_of(&db)? == expected, "{}: read-only", path.display());
                drop(db);
                assert!(files_of(&fs) == before, "{}: a read-only open has written", path.display());
                for round in 0..2 {
                    let db = builder(&fs).create_if_missing(false).open()?;
                    assert!(content_of(&db)? == expected, "{}: open {round}", path.display());
                    let report = db.verify()?;
                    assert!(
                        report.is_clean() && report.warnings.is_empty(),
                        "{}: {report:?}",
                        path.display()
                    );
                    db.compact()?;
                    db.close()?;
                }
                Ok(())
            };
            opens().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

/// Tables of releases that knew no times of tombstones: these age from the first open that writes.
#[test]
fn deletes_of_older_releases_age_from_the_next_open() {
    let bound = Duration::from_secs(10);
    for path in versions().iter().flat_map(|version| NAMES.map(|name| version.join(name))) {
        let fs = read_dir(&path);
        let age = || -> shamba::Result<()> {
            let env = Env::deterministic(Arc::new(fs.clone()), 1);
            let open = || builder(&fs).env(env.clone()).tombstone_age_max(bound).open();
            let db = open()?;
            let before = content_of(&db)?;
            let age_ms = db.stats().oldest_tombstone_age_ms;
            assert_eq!(age_ms, Some(0), "{}: {}", path.display(), db.describe());
            drop(db);
            env.clock.sleep_us(9_000_000);
            let db = open()?;
            assert_eq!(db.stats().oldest_tombstone_age_ms, Some(9_000), "{}", path.display());
            env.clock.sleep_us(2_000_000);
            db.put("another", "write")?;
            let tree = db.describe();
            assert!(!tree.contains("del="), "{}: {tree}", path.display());
            assert_eq!(db.stats().oldest_tombstone_age_ms, None);
            assert!(content_of(&db)? == before, "{}", path.display());
            Ok(())
        };
        age().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// A newer release changes magic, version and feature bits; the checksum of the header is correct.
#[test]
fn files_that_say_they_are_newer_are_refused_and_left_alone() {
    let fs = read_dir(&golden().join(versions().pop().expect("a version")).join("closed"));
    let whole = files_of(&fs);
    let mut refused = BTreeMap::new();
    for (name, bytes) in &whole {
        // The first bytes after the magic are version and features in every kind of file.
        for at in 8..32.min(bytes.len()) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x40;
            let mut changed = whole.clone();
            changed.insert(name.clone(), bytes);
            let changed = disk_of(&changed);
            let before = files_of(&changed);
            match builder(&changed).open().and_then(|db| content_of(&db)) {
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    assert!(files_of(&changed) == before, "{name}, byte {at}: something was written");
                    let kind = name.rsplit_once('.').map_or(name.as_str(), |(_, ending)| ending);
                    let kind = kind.split('-').next().unwrap_or(kind);
                    *refused.entry(kind.to_owned()).or_insert(0) += 1;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{name}, byte {at}: {error:?}"),
                Ok(_) => {} // A byte that says nothing about what is needed.
            }
        }
    }
    for kind in ["log", "sst", "MANIFEST", "CURRENT"] {
        assert!(refused.get(kind).is_some_and(|count| *count > 0), "{kind}: {refused:?}");
    }
}
