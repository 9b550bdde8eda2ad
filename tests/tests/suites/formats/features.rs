//! Databases with what came after 0.1.0, one for each feature: `tests/data/golden-NAME`. Each was
//! written by the first build with the feature, and every later one must read it.
//!
//! `SHAMBA_WRITE_GOLDEN=1 cargo test -p shamba-tests --test suites formats` makes those that are
//! missing; those that exist are never rewritten.

mod copies;
mod policies;
mod values;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shamba::env::{Env, MemFs};
use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
use shamba::merge::{AddU64, Append};
use shamba::{
    Action, Builder, Change, ChangeOp, ChangePosition, Changes, Compression, Db, ErrorKind, Fifo,
    KeyspaceOptions, Prefix, WriteOptions,
};
use shamba_tests::files::files_of;

use super::{builder, read_dir, write_dir};

/// The files of the database of this name, which `write` makes if it is missing and the
/// environment asks for it.
fn golden(name: &str, write: impl FnOnce(&MemFs) -> shamba::Result<()>) -> MemFs {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(format!("golden-{name}"));
    if !path.exists() && std::env::var_os("SHAMBA_WRITE_GOLDEN").is_some() {
        let fs = MemFs::new();
        write(&fs).unwrap_or_else(|error| panic!("{name}: {error}"));
        write_dir(&path, &fs);
    }
    read_dir(&path)
}

/// Requires `content` of a read-only open, which writes nothing, and of two opens that write, each
/// before and after a compaction, and of copies.
fn check(
    fs: &MemFs,
    builder: impl Fn(&MemFs) -> Builder,
    content: impl Fn(&Db) -> shamba::Result<()>,
) -> shamba::Result<()> {
    copies::check(fs, &builder, &content)?;
    check_itself(fs, builder, content)
}

/// [`check`] without copies.
fn check_itself(
    fs: &MemFs,
    builder: impl Fn(&MemFs) -> Builder,
    content: impl Fn(&Db) -> shamba::Result<()>,
) -> shamba::Result<()> {
    let before = files_of(fs);
    let db = builder(fs).read_only(true).open()?;
    content(&db)?;
    drop(db);
    assert!(files_of(fs) == before, "a read-only open has written");
    for round in 0..2 {
        let db = builder(fs).create_if_missing(false).open()?;
        content(&db)?;
        let report = db.verify()?;
        assert!(report.is_clean() && report.warnings.is_empty(), "open {round}: {report:?}");
        db.compact()?;
        content(&db)?;
        db.close()?;
    }
    Ok(())
}

/// Number of keys of the database with ribbon filters; as many again are absent.
const RIBBON_KEYS: u32 = 900;

fn ribbon_builder(fs: &MemFs) -> Builder {
    let layout = "ribbon:2:300".parse().expect("a layout");
    builder(fs).experimental(|e| e.file_size(1 << 20).filter_layout(layout))
}

#[test]
fn ribbon_filters_stay_readable() {
    let fs = golden("ribbon", |fs| {
        let db = ribbon_builder(fs).open()?;
        (0..RIBBON_KEYS).try_for_each(|number| db.put(format!("{number:04}"), number.to_string()))?;
        db.flush()?;
        db.close()
    });
    let tables: Vec<_> = files_of(&fs).into_keys().filter(|name| name.ends_with(".sst")).collect();
    assert_eq!(tables.len(), 1, "{tables:?}");
    let content = |db: &Db| -> shamba::Result<()> {
        for number in 0..RIBBON_KEYS {
            assert_eq!(db.get(format!("{number:04}"))?.as_deref(), Some(number.to_string().as_bytes()));
        }
        let before = db.stats().false_positives;
        for number in 0..RIBBON_KEYS {
            assert!(db.get(format!("{number:04}x"))?.is_none());
        }
        let passed = db.stats().false_positives - before;
        assert!(passed < u64::from(RIBBON_KEYS) / 20, "{passed} of {RIBBON_KEYS} passed");
        Ok(())
    };
    check(&fs, ribbon_builder, content).unwrap_or_else(|error| panic!("{error}"));
}

/// Keys of the database with long indexes; every second one is there.
const INDEXED_KEYS: u32 = 6_000;

/// A table whose properties say where the blocks of each index partition end. An open need not read
/// the partitions.
#[test]
fn tables_that_state_the_ends_of_their_partitions_stay_readable() {
    let with = |fs: &MemFs| builder(fs).experimental(|e| e.file_size(1 << 20).block_bytes(64));
    let key = |number: u32| format!("{number:05}");
    let fs = golden("partitions", |fs| {
        let db = with(fs).open()?;
        (0..INDEXED_KEYS).step_by(2).try_for_each(|number| db.put(key(number), ""))?;
        db.compact()?;
        db.close()
    });
    let content = |db: &Db| -> shamba::Result<()> {
        let partitions: u64 = db.memory().levels.iter().map(|level| level.partitions.1).sum();
        assert!(partitions > 3, "{partitions} index partitions");
        for number in 0..INDEXED_KEYS {
            assert_eq!(db.contains_key(key(number))?, number % 2 == 0, "{number}");
        }
        for number in (1..INDEXED_KEYS - 1).step_by(97) {
            let (next, _) = db.range(key(number)..).next().expect("a later key")?;
            assert_eq!(next[..], *key(number.next_multiple_of(2)).as_bytes(), "{number}");
        }
        assert_eq!(db.keys(..).count(), INDEXED_KEYS as usize / 2);
        Ok(())
    };
    check(&fs, with, content).unwrap_or_else(|error| panic!("{error}"));
}

/// Keys of the database with dictionaries.
const RECORDS: u32 = 600;

fn record(number: u32) -> String {
    let cents = number.wrapping_mul(0x9e37_79b9);
    format!(r#"{{"schema":"https://example.org/customer/v3","country":"Germany","balance_cents":{cents}}}"#)
}

/// Tables whose blocks are compressed with a dictionary, with large values between them.
#[test]
fn dictionaries_stay_readable() {
    let with = |fs: &MemFs| {
        let db = builder(fs).compression(Compression::Zstd);
        db.experimental(|e| e.file_size(32 << 10).compression_dictionary(256).large_values(900, 400))
    };
    let fs = golden("dictionary", |fs| {
        let db = with(fs).open()?;
        for number in 0..RECORDS {
            db.put(format!("{number:04}"), record(number))?;
        }
        db.put("0300/large", [7; 2_000])?;
        db.flush()?;
        db.put("0301", "a second run")?;
        db.compact()?;
        db.close()
    });
    let tables = files_of(&fs).into_iter().filter(|(name, _)| name.ends_with(".sst"));
    // Bit 1 of the required features.
    assert!(tables.map(|(_, bytes)| bytes[16]).any(|features| features & 2 != 0), "no table has one");
    let content = |db: &Db| -> shamba::Result<()> {
        for number in (0..RECORDS).filter(|number| *number != 301) {
            assert_eq!(db.get(format!("{number:04}"))?.as_deref(), Some(record(number).as_bytes()));
        }
        assert_eq!(db.get("0301")?.as_deref(), Some(&b"a second run"[..]));
        assert_eq!(db.get("0300/large")?.as_deref(), Some(&[7; 2_000][..]));
        assert_eq!(db.iter().count(), RECORDS as usize + 1);
        Ok(())
    };
    check(&fs, with, content).unwrap_or_else(|error| panic!("{error}"));
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
    let fs = golden("merge", write_merged);
    let places = || -> shamba::Result<()> {
        let db = builder(&fs).read_only(true).open()?;
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
        Ok(())
    };
    places().and_then(|()| check(&fs, builder, check_merged)).unwrap_or_else(|error| panic!("{error}"));
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

/// Entries with an expiry that an earlier build left in all places. The clock of the opens shows an
/// earlier time than the database has seen.
#[test]
fn expiring_entries_stay_readable_and_expired_ones_hidden() {
    let fs = golden("expiry", write_expiring);
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
    check(&fs, builder, content).unwrap_or_else(|error| panic!("{error}"));
}

/// Users of the database with rules; each has two keys in one of three runs.
const USERS: u32 = 90;

/// Removes odd numbers and shouts the others.
struct Shout;

impl CompactionFilter for Shout {
    fn name(&self) -> &str {
        "golden.shout"
    }

    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
        let number = entry.key().last().copied().unwrap_or_default();
        match entry.value() {
            _ if number % 2 == 1 => Verdict::Remove,
            Some(value) if value.is_ascii() => Verdict::Replace(value.to_ascii_uppercase()),
            _ => Verdict::Keep,
        }
    }
}

/// The database with a keyspace of each rule: a prefix extractor, limits of a FIFO keyspace, and a
/// compaction filter, of which each open is given the code only.
fn ruled_builder(fs: &MemFs) -> Builder {
    builder(fs).keyspace("filtered", KeyspaceOptions::new().compaction_filter(Shout))
}

fn write_ruled(fs: &MemFs) -> shamba::Result<()> {
    let limits = Fifo::bytes(64 << 10).with_age(Duration::from_secs(86_400));
    let db = ruled_builder(fs)
        .keyspace("default", KeyspaceOptions::new().prefix(Prefix::Delimited(b':')))
        .keyspace("events", KeyspaceOptions::new().fifo(limits))
        .open()?;
    let (events, filtered) = (db.keyspace("events")?, db.keyspace("filtered")?);
    for run in 0..3 {
        for user in (run..USERS).step_by(3) {
            db.put(format!("user{user}:mail"), user.to_string())?;
            db.put(format!("user{user}:name"), format!("name {user}"))?;
        }
        for number in 0..10 {
            events.put((run * 10 + number).to_be_bytes(), vec![number as u8; 200])?;
        }
        db.delete_range(format!("user{run}:mail")..format!("user{run}:n"))?;
        db.flush()?;
    }
    for number in 0..20u32 {
        filtered.put(number.to_be_bytes(), format!("number {number}"))?;
    }
    // Only this keyspace: runs are what the filters of the others leave out.
    filtered.compact()?;
    filtered.put(20u32.to_be_bytes(), "IN THE LOG")?;
    db.close()
}

/// A prefix extractor, FIFO limits and a compaction filter that an earlier build recorded, and
/// what it wrote by them.
#[test]
fn rules_of_keyspaces_stay_recorded() {
    let fs = golden("rules", write_ruled);
    let skipping = || -> shamba::Result<()> {
        let db = ruled_builder(&fs).read_only(true).open()?;
        for user in 0..USERS {
            assert!(db.prefix(format!("user{user}:")).count() > 0, "user {user}");
        }
        let skipped = db.stats().prefix_runs_skipped;
        assert!(skipped > u64::from(USERS), "the filters left out {skipped} runs in {USERS} scans");
        Ok(())
    };
    let content = |db: &Db| -> shamba::Result<()> {
        for user in 0..USERS {
            let name = format!("name {user}");
            let found = db.prefix(format!("user{user}:")).collect::<shamba::Result<Vec<_>>>()?;
            let values: Vec<&[u8]> = found.iter().map(|(_, value)| &value[..]).collect();
            let mail = user.to_string();
            let all = [mail.as_bytes(), name.as_bytes()];
            assert_eq!(values, all[if user < 3 { 1 } else { 0 }..], "user {user}");
        }
        let events = db.get_keyspace("events")?.expect("the events");
        let limits = events.fifo().expect("limits");
        assert_eq!(limits.max_bytes().zip(limits.max_age()), Some((64 << 10, Duration::from_secs(86_400))));
        for number in 0..30u32 {
            assert_eq!(events.get(number.to_be_bytes())?.as_deref(), Some(&[(number % 10) as u8; 200][..]));
        }
        let filtered = db.get_keyspace("filtered")?.expect("the filtered keyspace");
        for number in 0..20u32 {
            let value = number.is_multiple_of(2).then(|| format!("NUMBER {number}"));
            let found = filtered.get(number.to_be_bytes())?;
            assert_eq!(found.as_deref(), value.as_deref().map(str::as_bytes), "{number}");
        }
        assert_eq!(filtered.get(20u32.to_be_bytes())?.as_deref(), Some(&b"IN THE LOG"[..]));
        Ok(())
    };
    skipping().and_then(|()| check(&fs, ruled_builder, content)).unwrap_or_else(|error| panic!("{error}"));
    // Without the code of the filter the keyspace stays as it is, and a warning says so.
    let db = builder(&fs).open().expect("an open without the filter");
    content(&db).expect("the same content");
    let warnings = db.warnings();
    assert!(warnings.iter().any(|text| text.contains("golden.shout")), "{warnings:?}");
}

/// The key under which the database with a stream has the position of a subscriber.
const POSITION: &str = "position";

/// Changes of all kinds in kept logs and in a live one, from three opens, two of them unclean.
/// Returns each change that a subscriber from the first position gets, as text.
fn write_streamed(fs: &MemFs) -> shamba::Result<()> {
    for open in 0..3u32 {
        let options = KeyspaceOptions::new().merge_operator(AddU64);
        let db = builder(fs)
            .keyspace("counters", options)
            .keep_log(1 << 20, Duration::from_secs(365 * 100 * 86_400))
            .record()
            .open()?;
        let counters = db.keyspace("counters")?;
        db.put(format!("put {open}"), format!("value {open}"))?;
        if open == 0 {
            db.put(POSITION, db.change_position().to_string())?;
        }
        let mut batch = db.batch();
        batch.put_in(&counters, "n", 1u64.to_le_bytes()).delete(format!("absent {open}"));
        batch.delete_range("x".."y").commit()?;
        db.flush()?;
        counters.merge("n", u64::from(open).to_le_bytes())?;
        db.put_with(
            "expires",
            "never",
            WriteOptions::new().time_to_live(Duration::from_secs(9_000_000_000)),
        )?;
        let passing = format!("passing {open}");
        db.keyspace(&passing)?.put("k", "v")?;
        db.drop_keyspace(&passing)?;
        counters
            .ingest((0..3u32).map(|number| (format!("ingested {open} {number}"), number.to_le_bytes())))?;
        db.flush()?;
        db.put(format!("last {open}"), vec![open as u8; 1_200])?;
        db.sync()?;
        if open == 1 {
            db.close()?;
        }
    }
    Ok(())
}

/// All that the three opens wrote after the position that the first one stored, a line for each
/// operation and event, apart from positions.
fn streamed() -> Vec<String> {
    let mut lines = Vec::new();
    for open in 0..3u32 {
        if open > 0 {
            lines.push(format!("put default/put {open} 7 bytes"));
        } else {
            lines.push(format!("put default/{POSITION} 3 bytes"));
        }
        lines.push("put counters/n 8 bytes".to_owned());
        lines.push(format!("delete default/absent {open}"));
        lines.push("delete default/x..y".to_owned());
        lines.push("merge counters/n 8 bytes".to_owned());
        lines.push("put default/expires 5 bytes, expires".to_owned());
        lines.push(format!("created passing {open}"));
        lines.push(format!("put passing {open}/k 1 bytes"));
        lines.push(format!("dropped passing {open}"));
        lines.push(format!("ingested 3 counters/ingested {open} 0..ingested {open} 2"));
        lines.push(format!("put default/last {open} 1200 bytes"));
    }
    lines
}

/// The changes that are there now, in the form of [`streamed`].
fn lines_of(changes: &mut Changes) -> shamba::Result<Vec<String>> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut lines = Vec::new();
    while let Some(change) = changes.try_next()? {
        match change {
            Change::Batch(batch) => lines.extend(batch.operations().map(|(keyspace, op)| match op {
                ChangeOp::Put { key, value, expiry_ms, .. } => {
                    let expires = if expiry_ms.is_some() { ", expires" } else { "" };
                    format!("put {keyspace}/{} {} bytes{expires}", text(key), value.len())
                }
                ChangeOp::Delete { key, .. } => format!("delete {keyspace}/{}", text(key)),
                ChangeOp::DeleteRange { start, end, .. } => {
                    format!("delete {keyspace}/{}..{}", text(start), text(end.unwrap_or_default()))
                }
                ChangeOp::Merge { key, operand, .. } => {
                    format!("merge {keyspace}/{} {} bytes", text(key), operand.len())
                }
                other => format!("{other:?}"),
            })),
            Change::Ingested { keyspace, entries, first, last, .. } => {
                lines.push(format!("ingested {entries} {keyspace}/{}..{}", text(&first), text(&last)));
            }
            Change::KeyspaceCreated { keyspace, .. } => lines.push(format!("created {keyspace}")),
            Change::KeyspaceDropped { keyspace, .. } => lines.push(format!("dropped {keyspace}")),
            other => lines.push(format!("{other:?}")),
        }
    }
    Ok(lines)
}

/// Kept logs and positions of an earlier build: a subscriber that stored its position there goes
/// on.
#[test]
fn streams_go_on_from_stored_positions() {
    let fs = golden("stream", write_streamed);
    let stored = |db: &Db| -> shamba::Result<ChangePosition> {
        let text = db.get(POSITION)?.expect("a position");
        std::str::from_utf8(&text).expect("text").parse()
    };
    let content = |db: &Db| -> shamba::Result<()> {
        let counters = db.get_keyspace("counters")?.expect("the counters");
        assert_eq!(counters.get("n")?.as_deref(), Some(&3u64.to_le_bytes()[..]));
        assert_eq!(counters.keys(..).count(), 10);
        assert_eq!(db.get("last 2")?.map(|value| value.len()), Some(1_200));
        match db.changes_since(stored(db)?) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"), // Read-only.
            Ok(mut changes) => assert_eq!(lines_of(&mut changes)?, streamed()),
        }
        Ok(())
    };
    check_itself(&fs, builder, content).unwrap_or_else(|error| panic!("{error}"));
}
