//! Suite L: databases written by released versions can always be opened.
//!
//! `tests/data/golden/VERSION` has two small databases with every kind of structure in them: one
//! was closed, the other killed with a live log. This build must read both, entry by entry, without
//! writing a byte (read-only), and then open them for writing; and it must refuse files with a
//! newer version.
//!
//! A release adds a directory: `SHAMBA_WRITE_GOLDEN=VERSION cargo test -p shamba-tests --test
//! suites formats`. Existing directories are never rewritten. `tests/data/golden-ribbon` is a
//! database with ribbon filters, which are newer than 0.1.0 and need more keys, and
//! `tests/data/golden-merge` is one with operands of merge operators, newer too, and
//! `tests/data/golden-expiry` one with entries that expire.
//!
//! Not here: the meaning of each byte
//! (`docs/formats`, and the tests of the codecs).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shamba::env::{Env, MemFs};
use shamba::merge::{AddU64, Append};
use shamba::{
    Action, Builder, Compression, Db, Durability, ErrorKind, FilterLayout, KeyspaceOptions, MergePolicy,
    Modules, WriteOptions,
};
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
        let to = golden().join(version).join(name);
        assert!(!to.exists(), "{} is there already", to.display());
        std::fs::create_dir_all(&to).expect("mkdir");
        for (name, bytes) in files_of(&fs) {
            std::fs::write(to.join(name), bytes).expect("write");
        }
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

/// Number of keys of the database with ribbon filters; as many again are absent.
const RIBBON_KEYS: u32 = 900;

fn ribbon_builder(fs: &MemFs) -> Builder {
    let layout = "ribbon:2:300".parse().expect("a layout");
    builder(fs).experimental(|e| e.file_size(1 << 20).filter_layout(layout))
}

#[test]
fn ribbon_filters_stay_readable() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden-ribbon");
    if !path.exists() && std::env::var_os("SHAMBA_WRITE_GOLDEN").is_some() {
        let fs = MemFs::new();
        let db = ribbon_builder(&fs).open().expect("open");
        (0..RIBBON_KEYS).for_each(|number| db.put(format!("{number:04}"), number.to_string()).expect("put"));
        db.flush().expect("flush");
        db.close().expect("close");
        std::fs::create_dir_all(&path).expect("mkdir");
        for (name, bytes) in files_of(&fs) {
            std::fs::write(path.join(name), bytes).expect("write");
        }
    }
    let fs = read_dir(&path);
    let tables: Vec<_> = files_of(&fs).into_keys().filter(|name| name.ends_with(".sst")).collect();
    assert_eq!(tables.len(), 1, "{tables:?}");
    let check = || -> shamba::Result<()> {
        let db = ribbon_builder(&fs).create_if_missing(false).open()?;
        for round in 0..2 {
            for number in 0..RIBBON_KEYS {
                assert_eq!(db.get(format!("{number:04}"))?.as_deref(), Some(number.to_string().as_bytes()));
            }
            let before = db.stats().false_positives;
            for number in 0..RIBBON_KEYS {
                assert!(db.get(format!("{number:04}x"))?.is_none());
            }
            let passed = db.stats().false_positives - before;
            assert!(passed < u64::from(RIBBON_KEYS) / 20, "round {round}: {passed} of {RIBBON_KEYS} passed");
            let report = db.verify()?;
            assert!(report.is_clean() && report.warnings.is_empty(), "round {round}: {report:?}");
            db.compact()?;
        }
        db.close()
    };
    check().unwrap_or_else(|error| panic!("{error}"));
}

/// Keys of each keyspace of the database with operands.
const MERGED_KEYS: u64 = 40;
/// Rounds of merges in it, each of which ends in another place.
const ROUNDS: u64 = 4;

fn merged_key(number: u64) -> String {
    format!("sum:{number:03}")
}

/// Writes operands: below a snapshot and above it in a deep level, in level 0 and in the log. The
/// keys of every fourth number have a base.
fn write_merged(fs: &MemFs) -> shamba::Result<()> {
    let db = builder(fs)
        .keyspace("default", KeyspaceOptions::new().merge_operator(AddU64))
        .keyspace("lists", KeyspaceOptions::new().merge_operator(Append::separated_by(", ")))
        .open()?;
    let lists = db.keyspace("lists")?;
    let round = |round: u64| -> shamba::Result<()> {
        for number in 0..MERGED_KEYS {
            // Two at a time, so that a flush has something to combine.
            for _ in 0..2 {
                db.merge(merged_key(number), (number + round).to_le_bytes())?;
                lists.merge(merged_key(number), format!("round {round}"))?;
            }
        }
        Ok(())
    };
    for number in (0..MERGED_KEYS).step_by(4) {
        db.put(merged_key(number), 1_000u64.to_le_bytes())?;
        lists.put(merged_key(number), "base")?;
    }
    round(0)?;
    // What a snapshot sees is not folded with what is newer.
    let snapshot = db.snapshot();
    round(1)?;
    db.compact()?;
    round(2)?;
    lists.delete_range(merged_key(30)..)?;
    db.flush()?;
    round(3)?;
    drop(snapshot);
    // It is dropped without a close, so the last round stays in the log.
    db.sync()
}

/// The values of key `number` in both keyspaces.
fn merged_values(number: u64) -> (u64, String) {
    let has_base = number.is_multiple_of(4);
    let sum: u64 = (0..ROUNDS).map(|round| 2 * (number + round)).sum();
    // The range delete came after the third round.
    let (is_deleted, first) = (number >= 30, if number >= 30 { 3 } else { 0 });
    let rounds = (first..ROUNDS).flat_map(|round| [round; 2]).map(|round| format!("round {round}"));
    let base = (has_base && !is_deleted).then(|| "base".to_owned());
    let list = base.into_iter().chain(rounds).collect::<Vec<_>>().join(", ");
    (sum + if has_base { 1_000 } else { 0 }, list)
}

fn check_merged(db: &Db) -> shamba::Result<()> {
    let lists = db.get_keyspace("lists")?.expect("the keyspace of the lists");
    let (mut sums, mut texts) =
        (db.iter(), lists.iter().rev().collect::<shamba::Result<Vec<_>>>()?.into_iter().rev());
    for number in 0..MERGED_KEYS {
        let (key, (sum, list)) = (merged_key(number), merged_values(number));
        let (found, value) = sums.next().expect("a sum")?;
        assert_eq!((&found[..], &value[..]), (key.as_bytes(), &sum.to_le_bytes()[..]));
        assert_eq!(db.get(&key)?.as_deref(), Some(&sum.to_le_bytes()[..]), "{key}");
        let (found, value) = texts.next().expect("a list");
        assert_eq!((&found[..], &value[..]), (key.as_bytes(), list.as_bytes()));
        assert_eq!(lists.get(&key)?.as_deref(), Some(list.as_bytes()), "{key}");
    }
    assert!(sums.next().is_none() && texts.next().is_none());
    Ok(())
}

/// Operands that an earlier build left in all places. Their operators are built in, so the open is
/// given none.
#[test]
fn operands_stay_readable() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden-merge");
    if !path.exists() && std::env::var_os("SHAMBA_WRITE_GOLDEN").is_some() {
        let fs = MemFs::new();
        write_merged(&fs).expect("a database");
        std::fs::create_dir_all(&path).expect("mkdir");
        for (name, bytes) in files_of(&fs) {
            std::fs::write(path.join(name), bytes).expect("write");
        }
    }
    let fs = read_dir(&path);
    let before = files_of(&fs);
    let check = || -> shamba::Result<()> {
        let db = builder(&fs).read_only(true).open()?;
        check_merged(&db)?;
        let levels: std::collections::BTreeSet<u32> = db.tables().iter().map(|table| table.level).collect();
        assert!(levels.contains(&0) && levels.len() > 1, "levels {levels:?}");
        // Two in the log, one that a flush combined, and in the deep level one for those above the
        // snapshot; what the snapshot saw is a put if there is a base, otherwise another operand.
        for (number, folds) in [(4, [(2, true), (2, true)]), (5, [(3, false), (2, true)])] {
            let steps = db.explain(merged_key(number))?.steps;
            let folded = steps.iter().filter_map(|step| match step.action {
                Action::Folded { operands, has_base, .. } => Some((operands, has_base)),
                _ => None,
            });
            // Those of the tables first, whose result those of the memtable apply to.
            assert_eq!(folded.collect::<Vec<_>>(), folds, "key {number}");
        }
        drop(db);
        assert!(files_of(&fs) == before, "a read-only open has written");
        for round in 0..2 {
            let db = builder(&fs).create_if_missing(false).open()?;
            check_merged(&db)?;
            let report = db.verify()?;
            assert!(report.is_clean() && report.warnings.is_empty(), "open {round}: {report:?}");
            db.compact()?;
            check_merged(&db)?;
            db.close()?;
        }
        Ok(())
    };
    check().unwrap_or_else(|error| panic!("{error}"));
}

const EXPIRING_KEYS: u32 = 30;

/// The value of a key; every ninth one is long enough to be stored apart.
fn expiring_value(number: u32) -> Vec<u8> {
    let bytes = if number.is_multiple_of(9) { 1_500 } else { 20 + number as usize };
    (0..bytes).map(|at| (at as u32 * 7 + number) as u8).collect()
}

/// Writes entries that expire long after, or had expired at the last flush, into level 0, deeper
/// levels and the log. Dropped without a close.
fn write_expiring(fs: &MemFs) -> shamba::Result<()> {
    let day = Duration::from_secs(86_400);
    let env = Env::deterministic(Arc::new(fs.clone()), 1);
    let db = builder(fs)
        .env(env.clone())
        .keyspace("cache", KeyspaceOptions::new().time_to_live(365 * 100 * day))
        .experimental(|e| e.large_values(900, 400))
        .open()?;
    let cache = db.keyspace("cache")?;
    let ttl = |time_to_live| WriteOptions::new().time_to_live(time_to_live);
    for number in 0..EXPIRING_KEYS {
        let value = expiring_value(number);
        db.put(format!("short:{number:02}"), "older, which stays hidden")?;
        db.put_with(format!("long:{number:02}"), &value, ttl(365 * 100 * day))?;
        cache.put(number.to_be_bytes(), &value)?;
        match number {
            9 => db.compact()?,
            19 => db.flush()?,
            _ => {}
        }
    }
    for number in 0..EXPIRING_KEYS {
        db.put_with(format!("short:{number:02}"), expiring_value(number), ttl(Duration::from_secs(1)))?;
    }
    db.flush()?;
    // It sees them, so they stay in their table.
    let snapshot = db.snapshot();
    env.clock.sleep_us(1_000_000);
    db.put("without end", "v")?;
    db.flush()?;
    db.put_with("in the log", expiring_value(0), ttl(365 * 100 * day))?;
    drop(snapshot);
    Ok(())
}

/// Entries with an expiry that an earlier build left in all places.
#[test]
fn expiring_entries_stay_readable_and_expired_ones_hidden() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden-expiry");
    if !path.exists() && std::env::var_os("SHAMBA_WRITE_GOLDEN").is_some() {
        let fs = MemFs::new();
        write_expiring(&fs).expect("a database");
        std::fs::create_dir_all(&path).expect("mkdir");
        for (name, bytes) in files_of(&fs) {
            std::fs::write(path.join(name), bytes).expect("write");
        }
    }
    let fs = read_dir(&path);
    let before = files_of(&fs);
    let content = |db: &Db| -> shamba::Result<()> {
        let cache = db.get_keyspace("cache")?.expect("the cache");
        assert_eq!(cache.time_to_live().map(|it| it.as_secs()), Some(365 * 100 * 86_400));
        assert_eq!(cache.iter().count(), EXPIRING_KEYS as usize);
        for number in 0..EXPIRING_KEYS {
            let value = expiring_value(number);
            assert_eq!(db.get(format!("long:{number:02}"))?.as_deref(), Some(&value[..]), "{number}");
            assert_eq!(cache.get(number.to_be_bytes())?.as_deref(), Some(&value[..]), "{number}");
            assert_eq!(db.get(format!("short:{number:02}"))?, None, "{number}");
        }
        assert_eq!(db.get("in the log")?.as_deref(), Some(&expiring_value(0)[..]));
        assert_eq!(db.keys(..).count(), EXPIRING_KEYS as usize + 2);
        Ok(())
    };
    let check = || -> shamba::Result<()> {
        // The clock of this environment shows an earlier time than the database has seen.
        let db = builder(&fs).read_only(true).open()?;
        content(&db)?;
        drop(db);
        assert!(files_of(&fs) == before, "a read-only open has written");
        for round in 0..2 {
            let db = builder(&fs).create_if_missing(false).open()?;
            content(&db)?;
            let report = db.verify()?;
            assert!(report.is_clean() && report.warnings.is_empty(), "open {round}: {report:?}");
            db.compact()?;
            content(&db)?;
            db.close()?;
        }
        Ok(())
    };
    check().unwrap_or_else(|error| panic!("{error}"));
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
