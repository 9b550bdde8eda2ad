//! Repair against the oracle: databases of every kind, damaged at random, repaired, and compared.
//!
//! The rules:
//! - The original stays unchanged, byte for byte.
//! - The new database opens and checks clean.
//! - Every value in it was once written, under that key, in that keyspace. Of a value with operands
//!   of a merge operator that is so for the put and for each operand, and their order is kept.
//! - A key outside the lost ranges has its newest value; it is missing if it was deleted, unless
//!   deletes are lost there.
//! - Every entry of an undamaged data block is present, whatever else of its table, of the manifest
//!   or of `CURRENT` is damaged.
//! - The result does not depend on the available memory.
//! - If the manifest is whole, the keyspaces have their options.
//! - A verdict of the compaction filter that a reader saw is not undone, except where deletes are
//!   lost. The repaired database takes the filter, which then makes its verdicts ([`rules`]).
//! - A position in the stream of changes of the original is refused. The stream of the repaired
//!   database, from its first change on, is the repaired content ([`rules`]).
//!
//! Repairs that are killed, or whose disk fails: [`failing`]; concurrent users of the new
//! database's directory: [`beside`].
//!
//! `SHAMBA_REPAIR=n` runs n times as many cases.

mod beside;
mod failing;
mod rules;
mod subject;

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use shamba::env::{Env, MemFs, Vfs, append_all};
use shamba::filter::CompactionFilter;
use shamba::{CheckReport, Db, ErrorKind, Loss, LostRange, RepairReport};
use shamba_tests::files::{Files, disk_of, files_of};
use shamba_tests::oracle::{SPACES, State, contains};
use shamba_tests::runner::caught;
use shamba_tests::tally::Tally;
use shamba_tests::vectors::BUDGET_BYTES;
use shamba_tests::{compare, filters, pool, seed};

use self::subject::{FILTERED, Rules, Subject, Writer, key, subject};

const HOME: &str = "/db";
const OUT: &str = "/repaired";
const CASES: usize = 240;
/// Memory for a few dozen operations of a log.
const LITTLE_BYTES: u64 = 16 << 10;
/// The keyspace into which a repair puts entries of unknown keyspace.
const UNATTRIBUTED: &str = "unattributed";

/// Damages one file; returns a description.
fn damage(rng: &mut Rng, files: &mut Files) -> String {
    let names: Vec<String> = files.keys().filter(|name| *name != "LOCK").cloned().collect();
    let name = &names[rng.usize(..names.len())];
    let bytes = files.get_mut(name).expect("it is there");
    let length = bytes.len();
    match rng.u32(..100) {
        _ if length == 0 => format!("{name}, which is empty, left alone"),
        0..55 => {
            let at = rng.usize(..length);
            bytes[at] ^= 1 << rng.u32(..8);
            format!("byte {at} of {name} flipped")
        }
        55..70 => {
            let to = rng.usize(..length);
            bytes.truncate(to);
            format!("{name} cut from {length} to {to} bytes")
        }
        70..80 => {
            let from = rng.usize(..length) / 512 * 512;
            let to = length.min(from + 512 * rng.usize(1..10));
            bytes[from..to].fill(rng.u8(..) & 0x5a);
            format!("bytes {from}..{to} of {name} overwritten")
        }
        80..88 => {
            files.remove(name);
            format!("{name} removed")
        }
        88..96 => {
            let kind = |name: &str| name.rsplit('.').next().map(str::to_owned);
            let alike: Vec<&String> = names.iter().filter(|other| kind(other) == kind(name)).collect();
            let other = alike[rng.usize(..alike.len())].clone();
            let (one, two) = (files[name].clone(), files[&other].clone());
            files.insert(name.clone(), two);
            files.insert(other.clone(), one);
            format!("{name} and {other} swapped")
        }
        _ => {
            bytes.extend_from_slice(&[0x5a; 100]);
            format!("100 bytes behind the end of {name}")
        }
    }
}

/// The result of a repair.
struct Repaired {
    report: RepairReport,
    state: State,
    /// Of the checks of the stream of changes and the compaction filter.
    tally: Tally,
}

/// Opens the repaired database. Its keyspaces are given their merge operator, and no other options.
fn opened(env: &Env, rules: Rules) -> shamba::Result<Db> {
    // Later than everything that was written: what had expired then has expired.
    env.clock.sleep_us(24 * 60 * 60 * 1_000_000);
    let builder = Db::builder(OUT).env(env.clone()).info_log(false).memory_budget(BUDGET_BYTES);
    rules.merging(builder).create_if_missing(false).open()
}

/// The content of the repaired database.
fn contents(env: &Env, rules: Rules) -> shamba::Result<(State, CheckReport)> {
    contents_of(&opened(env, rules)?)
}

fn contents_of(db: &Db) -> shamba::Result<(State, CheckReport)> {
    let mut state = State::new();
    for name in db.keyspaces() {
        let keyspace = db.keyspace(&name)?;
        let pairs: BTreeMap<_, _> = keyspace.iter().map(compare::owned).collect::<shamba::Result<_>>()?;
        // By the prefixes that filters hold, and by longer ones.
        for prefix in ["k0", "k1", "k12", "k2"] {
            let found = keyspace.prefix(prefix).map(compare::owned).collect::<shamba::Result<Vec<_>>>()?;
            let due = pairs.iter().filter(|(key, _)| key.starts_with(prefix.as_bytes()));
            let is_same = due.eq(found.iter().map(|(key, value)| (key, value)));
            assert!(is_same, "a scan of the prefix {prefix} of {name} gives other entries than a whole one");
        }
        if !pairs.is_empty() {
            state.insert(name, pairs);
        }
    }
    Ok((state, db.verify()?))
}

/// Checks that the keyspaces have the options of the original.
fn recorded(db: &Db, rules: Rules) -> Result<(), String> {
    for name in db.keyspaces().iter().filter(|name| SPACES.contains(&name.as_str())) {
        let keyspace = db.keyspace(name).map_err(|error| format!("keyspace {name}: {error}"))?;
        let mut own = keyspace.own_options();
        own.sort_unstable();
        let mut due = if Some(&name.as_str()) == SPACES.last() { rules.own.to_vec() } else { Vec::new() };
        due.sort_unstable();
        let is_same = own.iter().map(|(name, value)| (*name, value.as_str())).eq(due.iter().copied());
        let filter =
            (rules.is_filtered && name == SPACES[FILTERED]).then(|| filters::Rules.name().to_owned());
        if keyspace.compaction_filter() != filter {
            let recorded = keyspace.compaction_filter();
            return Err(format!("{name} records the filter {recorded:?} instead of {filter:?}"));
        }
        if !is_same || keyspace.prefix_extractor() != rules.prefix {
            let prefix = keyspace.prefix_extractor();
            return Err(format!(
                "{name} records {own:?} and {prefix:?} instead of {due:?} and {:?}",
                rules.prefix
            ));
        }
    }
    Ok(())
}

/// Repairs, and checks the rules that apply to any repair.
fn repaired(subject: &Subject, files: &Files) -> Result<Repaired, String> {
    let mut repairs = Vec::new();
    let mut tally = Tally::default();
    for memory_bytes in [64 << 20, LITTLE_BYTES] {
        let fs = disk_of(files);
        let env = Env::deterministic(Arc::new(fs.clone()), 2);
        let report = shamba::repair_within(&env, Path::new(HOME), Path::new(OUT), memory_bytes)
            .map_err(|error| format!("repair: {error:?}"))?;
        if files_of(&fs) != *files {
            return Err("the original was changed".to_owned());
        }
        let failed = |error: shamba::Error| format!("the repaired database: {error:?}");
        let db = opened(&env, subject.rules).map_err(failed)?;
        let (state, check) = contents_of(&db).map_err(failed)?;
        if report.manifest {
            recorded(&db, subject.rules)?;
        }
        // This open was not given the filter.
        let is_due = |warning: &String| subject.rules.is_filtered && warning.contains("compaction filter");
        if !check.is_clean() || !check.warnings.iter().all(is_due) {
            return Err(format!("the repaired database does not check clean: {check:?}"));
        }
        if repairs.is_empty() {
            rules::stream(subject, &env, (&db, &report, &state), &mut tally)?;
            drop(db);
            rules::filter(subject, &env, &state, &mut tally)?;
        }
        repairs.push((report, state));
    }
    let (report, state) = repairs.swap_remove(0);
    if repairs.iter().any(|little| *little != (report.clone(), state.clone())) {
        return Err(format!("with little memory it comes to something else: {report:?}, {:?}", repairs[0].0));
    }
    for (name, pairs) in &state {
        // Without a manifest and a statement of its own the keyspace of a table is unknown; a log
        // has keyspace numbers.
        let spaces = match SPACES.iter().position(|known| known == name) {
            Some(space) => space..space + 1,
            None if !report.manifest && (name == UNATTRIBUTED || name.starts_with("keyspace-")) => {
                0..SPACES.len()
            }
            None => return Err(format!("there was no keyspace {name:?}")),
        };
        for (key, value) in pairs {
            if !subject.written.has(spaces.clone(), key, value) {
                return Err(format!("{} of {name} has a value that was never written", key.escape_ascii()));
            }
        }
    }
    Ok(Repaired { report, state, tally })
}

fn lost<'a>(report: &'a RepairReport, loss: &'a [Loss]) -> impl Iterator<Item = &'a LostRange> {
    report.lost.iter().filter(move |lost| loss.contains(&lost.loss))
}

/// Checks that keys outside the lost ranges have the value of a commit from `least` on.
fn compare(subject: &Subject, repaired: &Repaired, least: u64, tally: &mut Tally) -> Result<(), String> {
    let Repaired { report, state, .. } = repaired;
    for (space, name) in SPACES.iter().enumerate() {
        for key in subject.oracle.keys(space) {
            let got = state.get(*name).and_then(|pairs| pairs.get(key)).map(Vec::as_slice);
            let at = |commit| subject.oracle.get(space, key, subject.after(commit));
            let is_known = |value: Option<&[u8]>| value == got || subject.may_become(space, key, value, got);
            tally.add("keys", 1);
            if (least..=subject.oracle.issued()).any(|commit| is_known(at(commit))) {
                tally.add("keys that are right", 1);
                continue;
            }
            // A lost delete brings back a value, alone or below the operands.
            let newest = at(subject.oracle.issued());
            // As does a lost verdict: the value from before it.
            let before = subject.oracle.get(space, key, subject.oracle.issued());
            let is_back = newest.is_none_or(|value| subject.written.is_without_put(space, key, value))
                || (before != newest && before == got);
            let losses: &[Loss] = match is_back {
                true => &[Loss::Entries, Loss::Writes, Loss::Deletions],
                false => &[Loss::Entries, Loss::Writes],
            };
            if !lost(report, losses).any(|lost| lost.contains(name, key)) {
                let got = got.map(|value| value.escape_ascii().to_string());
                return Err(format!(
                    "{} of {name} is {got:?}, outside the lost ranges {:#?}",
                    key.escape_ascii(),
                    report.lost
                ));
            }
            tally.add("keys that are lost", 1);
        }
    }
    Ok(())
}

fn random_case(index: usize, base: u64) -> Result<Tally, String> {
    let mut rng = Rng::with_seed(seed::mixed(base, index as u64));
    let mut tally = Tally::default();
    let subject = subject(&mut rng, index);
    let whole = repaired(&subject, &subject.files).map_err(|error| format!("undamaged: {error}"))?;
    tally.merge(&whole.tally);
    tally.add("verdicts that were seen", subject.verdicts);
    if !whole.report.is_complete() || whole.state != subject.state() {
        return Err(format!("undamaged, something is lost: {:#?}", whole.report));
    }
    for _ in 0..4 {
        let mut files = subject.files.clone();
        let damages: Vec<String> = (0..rng.usize(1..4)).map(|_| damage(&mut rng, &mut files)).collect();
        let told = damages.join("; ");
        tally.add("damaged databases", 1);
        let is_logs = damages.iter().any(|damage| damage.contains(".log"));
        let is_manifest =
            !files.contains_key("CURRENT") || told.contains("MANIFEST") || told.contains("CURRENT");
        // The promises of a log may be lost themselves.
        let least = if is_logs || is_manifest { subject.flushed } else { subject.oracle.issued() };
        let repair = caught(|| {
            let repaired = repaired(&subject, &files)?;
            // Without a manifest it is unknown that there was another table.
            if repaired.report.manifest || !told.contains(".sst removed") {
                compare(&subject, &repaired, least, &mut tally)?;
            }
            Ok(repaired)
        });
        let repaired = repair.map_err(|error| format!("{told}: {error}"))?;
        tally.merge(&repaired.tally);
        tally.add(if repaired.report.manifest { "with a manifest" } else { "without a manifest" }, 1);
        tally.add(if repaired.report.is_complete() { "nothing lost" } else { "something lost" }, 1);
    }
    Ok(tally)
}

#[test]
fn damaged_databases_are_repaired_as_far_as_they_are_whole() {
    let base = seed::base(0x5ea1);
    let cases = CASES * seed::number("SHAMBA_REPAIR").map_or(1, |times| times as usize);
    let indexes: Vec<usize> = match seed::only_vector() {
        Some(only) => vec![only],
        None => (0..cases).collect(),
    };
    let tallies = pool::run(indexes.len(), |number| {
        let index = indexes[number];
        random_case(index, base).map_err(|error| {
            let test = "repair::damaged_databases_are_repaired_as_far_as_they_are_whole";
            format!("{error}\nrun again: {}", seed::Rerun { test, seed: base, vector: index })
        })
    });
    let total = Tally::sum(&tallies.unwrap_or_else(|error| panic!("{error}")));
    total.tell("repair", "suite E, repair");
    if seed::only_vector().is_none() {
        total.require(&[
            ("damaged databases", 900),
            ("keys that are right", 100_000),
            ("with a manifest", 300),
            ("without a manifest", 50),
            ("something lost", 200),
            ("nothing lost", 50),
            ("verdicts that were seen", 250),
            ("verdicts after a repair", 500),
            ("positions that are refused", 8_000),
            ("streams of repaired content", 300),
        ]);
        let (right, keys) = (total.get("keys that are right"), total.get("keys"));
        assert!(right * 10 > keys * 6, "{right} of {keys} keys survive");
    }
}

/// The position of a data block and the chunks before it, and the keys from its first to the next
/// block's.
struct Stretch {
    chunks: Range<usize>,
    block: Range<usize>,
    keys: (Vec<u8>, Option<Vec<u8>>),
}

fn stretches(env: &Env, name: &str) -> Vec<Stretch> {
    let table = shamba::inspect::table_file(env, &Path::new(HOME).join(name)).expect("undamaged");
    let mut from = 4096;
    let firsts: Vec<Vec<u8>> = table.blocks.iter().map(|block| block.first_key.to_vec()).collect();
    let blocks = table.blocks.iter().enumerate().map(|(number, block)| {
        let (begin, end) = (block.offset as usize, (block.offset + block.bytes) as usize);
        let chunks = std::mem::replace(&mut from, end)..begin;
        Stretch { chunks, block: begin..end, keys: (firsts[number].clone(), firsts.get(number + 1).cloned()) }
    });
    blocks.collect()
}

/// One run, so that each key is in one block; tables are damaged anywhere, and sometimes the
/// manifest too.
fn block_case(index: usize, base: u64) -> Result<Tally, String> {
    let mut rng = Rng::with_seed(seed::mixed(base, index as u64));
    let mut tally = Tally::default();
    let fs = MemFs::new();
    let mut writer = Writer::open(&fs, &mut rng, index);
    for number in 0..rng.usize(100..250) {
        let length = if rng.u8(..10) == 0 { rng.usize(400..1_500) } else { rng.usize(1..120) };
        writer.put(0, key(number), (0..length).map(|_| rng.u8(b'a'..b'q')).collect());
    }
    writer.spaces.db.compact().expect("compact");
    writer.flushed = writer.oracle.issued();
    let subject = writer.finish(&fs, true);
    let env = Env::deterministic(Arc::new(disk_of(&subject.files)), 3);
    let tables: Vec<&String> = subject.files.keys().filter(|name| name.ends_with(".sst")).collect();
    let stretches: BTreeMap<&String, Vec<Stretch>> =
        tables.iter().map(|name| (*name, stretches(&env, name))).collect();
    for _ in 0..6 {
        let mut files = subject.files.clone();
        let mut told = Vec::new();
        let mut bad: BTreeMap<&String, Vec<Range<usize>>> = BTreeMap::new();
        let is_manifest_gone = rng.u8(..3) == 0;
        if is_manifest_gone {
            let manifest =
                files.keys().find(|name| name.starts_with("MANIFEST")).expect("it is there").clone();
            files.remove("CURRENT");
            files.remove(&manifest);
            told.push("no manifest".to_owned());
        }
        for _ in 0..rng.usize(1..4) {
            let name = tables[rng.usize(..tables.len())];
            let bytes = files.get_mut(name).expect("it is there");
            let length = bytes.len();
            // Data, the sections after it, or the ends of the file; the birth id is needed if no
            // other file has it.
            let at = match rng.u8(..3) {
                0 => rng.usize(4096..length),
                1 => length - 1 - rng.usize(..length.min(1_500)),
                _ if is_manifest_gone => rng.usize(40..4096),
                _ => rng.usize(..4096),
            };
            let end = if rng.bool() { at + 1 } else { length.min(at + rng.usize(1..300)) };
            let end = if at < 4096 { end.min(4096) } else { end };
            bytes[at..end].iter_mut().for_each(|byte| *byte ^= rng.u8(1..));
            told.push(format!("bytes {at}..{end} of {name} ({length})"));
            bad.entry(name).or_default().push(at..end);
        }
        if rng.u8(..2) == 0 {
            // Zeros in place of a block look like the space between blocks, unless an index shows
            // more.
            let name = tables[rng.usize(..tables.len())];
            let bytes = files.get_mut(name).expect("it is there");
            let block = stretches[name][rng.usize(..stretches[name].len())].block.clone();
            bytes[block.clone()].fill(0);
            let at = bytes.len() - 1 - rng.usize(..bytes.len().min(1_500));
            bytes[at] ^= rng.u8(1..);
            told.push(format!("zeros in {block:?} and byte {at} of {name} ({})", bytes.len()));
            bad.entry(name).or_default().extend([block, at..at + 1]);
            tally.add("blocks of zeros", 1);
        }
        let told = told.join("; ");
        let repair = caught(|| {
            let repaired = repaired(&subject, &files)?;
            compare(&subject, &repaired, subject.flushed, &mut tally)?;
            Ok(repaired)
        });
        let repaired = repair.map_err(|error| format!("{told}: {error}"))?;
        tally.add("damaged databases", 1);
        let got = |key: &[u8]| {
            let spaces = [SPACES[0], UNATTRIBUTED].into_iter().filter_map(|name| repaired.state.get(name));
            spaces.filter_map(|pairs| pairs.get(key)).map(Vec::as_slice).next()
        };
        for (name, stretches) in &stretches {
            let touches = |range: &Range<usize>| {
                bad.get(name)
                    .is_some_and(|bad| bad.iter().any(|bad| bad.start < range.end && range.start < bad.end))
            };
            for stretch in stretches.iter().filter(|stretch| !touches(&stretch.block)) {
                let (lower, upper) = stretch.keys.clone();
                let last = stretches.last().map(|last| last.keys.0.clone());
                // The last block ends where the next table begins: the following data determines
                // its own keys.
                let upper = match upper {
                    Some(upper) => Bound::Excluded(upper),
                    None => Bound::Included(last.unwrap_or_default()),
                };
                let span = (Bound::Included(lower), upper);
                for (key, value) in subject.oracle.range(0, &span, subject.oracle.issued()) {
                    if value.len() >= 400 && touches(&stretch.chunks) {
                        continue;
                    }
                    tally.add("entries of undamaged blocks", 1);
                    if got(key) != Some(value) {
                        let key = key.escape_ascii();
                        return Err(format!("{told}: {key}, in an undamaged block of {name}, is not there"));
                    }
                }
                debug_assert!(contains(&span, &stretch.keys.0));
            }
        }
    }
    Ok(tally)
}

#[test]
fn every_undamaged_block_is_kept() {
    let base = seed::base(0xb10c);
    let cases = 60 * seed::number("SHAMBA_REPAIR").map_or(1, |times| times as usize);
    let indexes: Vec<usize> = match seed::only_vector() {
        Some(only) => vec![only],
        None => (0..cases).collect(),
    };
    let tallies = pool::run(indexes.len(), |number| {
        let index = indexes[number];
        block_case(index, base).map_err(|error| {
            let test = "repair::every_undamaged_block_is_kept";
            format!("{error}\nrun again: {}", seed::Rerun { test, seed: base, vector: index })
        })
    });
    let total = Tally::sum(&tallies.unwrap_or_else(|error| panic!("{error}")));
    total.tell("repair-blocks", "suite E, blocks kept by repair");
    if seed::only_vector().is_none() {
        total.require(&[
            ("damaged databases", 300),
            ("entries of undamaged blocks", 20_000),
            ("blocks of zeros", 100),
        ]);
    }
}

#[test]
fn a_repair_needs_an_empty_directory_of_its_own() {
    let mut rng = Rng::with_seed(1);
    let subject = subject(&mut rng, 0);
    let fs = disk_of(&subject.files);
    let env = Env::deterministic(Arc::new(fs.clone()), 2);
    let refused = |target: &str| {
        let error = shamba::repair(&env, Path::new(HOME), Path::new(target)).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        error.to_string()
    };
    fs.create_dir_all(Path::new("/full")).expect("mkdir");
    append_all(&mut *fs.create(Path::new("/full/file")).expect("create"), b"x").expect("append");
    assert!(refused("/full").contains("/full is not empty"));
    // A repair's marker file does not make a foreign directory a repair's own.
    fs.create(Path::new("/full/REPAIRING")).expect("create");
    assert!(refused("/full").contains("it contains \"file\""));
    assert!(refused("/db/inside").contains("is inside /db"));
    assert!(refused(HOME).contains("is inside"));
    let error = shamba::repair(&env, Path::new("/nowhere"), Path::new(OUT)).expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    assert_eq!(files_of(&fs), subject.files);
}
