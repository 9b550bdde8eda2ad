//! No key is ever rejected: every filter family, number of modules, skipping and residency, under
//! every merge policy.
//!
//! A database is written key by key while lookups run: between writes (the trees are so small that
//! compactions run all the time, each inside the call that made it due), over a flush, over
//! `compact`, and after a reopen with another memory limit. Keys are random, ascending, or similar
//! to each other; every eighth vector hashes to four bits, so that all of them collide. A written
//! key must be found, any other must be absent; each lookup method is used. A last part does the
//! same concurrently with compactions on real threads.
//!
//! `SHAMBA_MEMBERSHIP_CHECKS` sets more checks than the million of an ordinary run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use shamba::env::{Env, MemFs};
use shamba::{Db, DigestKind, MergePolicy, Residency, Skipping, Stats};
use shamba_tests::brief::is_brief;
use shamba_tests::seed::mixed;
use shamba_tests::tally::Tally;
use shamba_tests::vectors::{Vector, every_layout};

const HOME: &str = "/db";
const CHECKS: u64 = 1_000_000;
const POLICIES: [MergePolicy; 3] = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];

fn checks_wanted() -> u64 {
    let asked = std::env::var("SHAMBA_MEMBERSHIP_CHECKS").ok();
    // The minimum of a life, in a brief run.
    let usual = if is_brief() { 1 } else { CHECKS };
    asked.map_or(usual, |text| text.parse().expect("SHAMBA_MEMBERSHIP_CHECKS is a number"))
}

/// The ways in which keys are made.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Keys {
    Random,
    InOrder,
    /// Long common prefixes, and suffixes that are prefixes of each other.
    Alike,
}

impl Keys {
    fn key(self, number: u32) -> Vec<u8> {
        match self {
            Self::Random => mixed(11, u64::from(number)).to_be_bytes().to_vec(),
            Self::InOrder => format!("{number:09}").into_bytes(),
            Self::Alike => {
                let mut key = b"/a/long/common/path/of/many/bytes/".to_vec();
                key.extend(std::iter::repeat_n(b'x', number as usize % 40));
                key.extend_from_slice(&(number / 40).to_be_bytes());
                key
            }
        }
    }
}

/// One database and its content.
struct Life {
    vector: Vector,
    env: Env,
    keys: Keys,
    /// Even numbers below this are written, odd ones never.
    written: u32,
    rng: Rng,
    made: u64,
    label: String,
}

impl Life {
    fn open(&self) -> Db {
        self.vector.builder(Path::new(HOME), &self.env).open().expect("the database opens")
    }

    fn value(number: u32) -> Vec<u8> {
        format!("value of {number}").into_bytes()
    }

    fn check_one(&mut self, db: &Db, number: u32) {
        let key = self.keys.key(number);
        let expected = (number < self.written && number.is_multiple_of(2)).then(|| Self::value(number));
        let found = match self.rng.u8(..8) {
            0 => db.contains_key(&key).map(|there| there.then(|| Self::value(number))),
            1 => db.get_with(&key, <[u8]>::to_vec),
            2 => db.snapshot().get(&key).map(|value| value.map(|value| value.to_vec())),
            _ => db.get(&key).map(|value| value.map(|value| value.to_vec())),
        };
        let found = found.unwrap_or_else(|error| panic!("{}: key {number}: {error}", self.label));
        assert_eq!(found, expected, "{}: key {number}\n{}", self.label, db.describe());
        self.made += 1;
    }

    /// Looks up `count` keys, about half of which are present.
    fn check(&mut self, db: &Db, count: u32) {
        for _ in 0..count / 2 {
            let number = self.rng.u32(..self.written + 8);
            self.check_one(db, number);
        }
        let numbers: Vec<u32> = (0..count / 2).map(|_| self.rng.u32(..self.written + 8)).collect();
        let keys = numbers.iter().map(|number| self.keys.key(*number));
        let found = db.multi_get(keys).unwrap_or_else(|error| panic!("{}: {error}", self.label));
        for (number, found) in numbers.iter().zip(found) {
            let expected = (*number < self.written && number.is_multiple_of(2)).then(|| Self::value(*number));
            let found = found.map(|value| value.to_vec());
            assert_eq!(found, expected, "{}: key {number} of a multi_get", self.label);
        }
        self.made += u64::from(count / 2);
    }

    fn live(&mut self, checks: u64) -> Stats {
        let mut db = self.open();
        let share = (checks / 4) as u32;
        // While it is written: 260 keys a life, with lookups between any two.
        let between = (share / 260).max(2);
        for _ in 0..260 {
            let number = self.written.next_multiple_of(2);
            db.put(self.keys.key(number), Self::value(number)).expect("put");
            self.written = number + 1;
            self.check(&db, between);
        }
        db.flush().expect("flush");
        self.check(&db, share);
        let before = db.stats();
        db.close().expect("close");
        self.vector.resident_limit = [None, Some(0), Some(700), Some(3000)][self.rng.usize(..4)];
        db = self.open();
        self.check(&db, share);
        db.compact().expect("compact");
        self.check(&db, share);
        for number in 0..self.written {
            self.check_one(&db, number);
        }
        let after = db.stats();
        db.close().expect("close");
        let mut sum = before;
        sum.modules_tested += after.modules_tested;
        sum.modules_skipped += after.modules_skipped;
        sum.reads.filter.count += after.reads.filter.count;
        sum.filter_hits += after.filter_hits;
        sum
    }
}

#[test]
fn no_key_is_denied_whatever_is_in_memory() {
    let wanted = checks_wanted();
    let layouts = every_layout();
    let lives = layouts.len() * Residency::ALL.len() * Skipping::ALL.len();
    let seed = 5;
    let (mut made, mut tested, mut skipped, mut read, mut hits) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut skipped_where_forbidden = 0;
    let mut round = 0;
    while made < wanted {
        let mut number = 0usize;
        for layout in &layouts {
            for (residency, skipping) in Residency::ALL
                .into_iter()
                .flat_map(|residency| Skipping::ALL.map(|skipping| (residency, skipping)))
            {
                let mut rng = Rng::with_seed(mixed(seed + round, number as u64));
                // Coprime periods, so that over the rounds all combinations occur.
                let policy = POLICIES[(number + number / 9 + round as usize) % 3];
                let keys = [Keys::Random, Keys::InOrder, Keys::Alike][(number / 3 + round as usize) % 3];
                let mut vector = Vector::plain(policy);
                vector.filter_layout = *layout;
                vector.residency = residency;
                vector.skipping = skipping;
                vector.bits_per_key = [1.5, 5.0, 10.0, 20.0][rng.usize(..4)];
                vector.hash_sharing = rng.u8(..4) > 0;
                vector.prefetch = rng.u8(..4) > 0;
                if number % 8 == 7 {
                    vector.digest = DigestKind::TestFourBit;
                }
                vector.resident_limit = [None, Some(rng.u64(..3000))][rng.usize(..2)];
                let label =
                    format!("round {round}, {layout}, {residency}, skipping {skipping}, {policy}, {keys:?}");
                let env = Env::deterministic(Arc::new(MemFs::new()), mixed(seed, number as u64));
                let mut life = Life { vector, env, keys, written: 0, rng, made: 0, label };
                let stats = life.live((wanted / lives as u64).clamp(1_600, 40_000));
                made += life.made;
                tested += stats.modules_tested;
                skipped += stats.modules_skipped;
                read += stats.reads.filter.count;
                hits += stats.filter_hits;
                if skipping == Skipping::None && residency != Residency::Pinned {
                    skipped_where_forbidden += stats.modules_skipped;
                }
                number += 1;
            }
        }
        round += 1;
    }
    let counts =
        [("checks", made), ("modules tested", tested), ("modules skipped", skipped), ("slices read", read)];
    Tally::of(&counts)
        .tell("membership", &format!("{} lives; {hits} slices in the block cache", lives as u64 * round));
    assert_eq!(skipped_where_forbidden, 0, "modules skipped where none may be");
    // A suite without any of these cases would prove nothing about them.
    assert!(tested > made / 4 && skipped > made / 100 && read > made / 1000 && hits > made / 1000);
}

#[test]
fn no_key_is_denied_beside_merges_on_threads() {
    let made = AtomicU64::new(0);
    let mut tally = Tally::default();
    for (number, policy) in POLICIES.into_iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut vector = Vector::plain(policy);
        vector.filter_layout = "modular:3".parse().expect("a layout");
        vector.write_buffer = 16 << 10;
        vector.file_size = 16 << 10;
        vector.resident_limit = Some(8 << 10);
        vector.skipping = Skipping::ALL[number];
        let db = vector.builder(dir.path(), &Env::real()).open().expect("the database opens");
        let written = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for reader in 0..2u64 {
                let (db, written, made) = (&db, &written, &made);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(mixed(17, reader));
                    let mut own = 0;
                    // Also if the writer finishes before this thread starts.
                    while written.load(Ordering::Acquire) < 20_000 || own < 500 {
                        own += 1;
                        let there = written.load(Ordering::Acquire);
                        let number = rng.u64(..there + 100);
                        let found = db.contains_key(mixed(3, number).to_be_bytes()).expect("lookup");
                        // A concurrently written key may be present already.
                        assert!(found || number >= there, "key {number} of {there} is denied");
                        let absent = mixed(4, number).to_be_bytes();
                        assert!(!db.contains_key(absent).expect("lookup"), "key {number} was never written");
                        made.fetch_add(2, Ordering::Relaxed);
                    }
                });
            }
            for number in 0..20_000u64 {
                db.put(mixed(3, number).to_be_bytes(), number.to_be_bytes()).expect("put");
                written.store(number + 1, Ordering::Release);
            }
        });
        db.wait_idle().expect("wait_idle");
        let stats = db.stats();
        tally.add(&format!("compactions, {policy}"), stats.compactions);
        tally.add("modules tested", stats.modules_tested);
        tally.add("slices read", stats.reads.filter.count);
        db.close().expect("close");
    }
    tally.add("checks", made.into_inner());
    tally.tell("membership-threads", "during compactions");
    let minima = POLICIES.map(|policy| (format!("compactions, {policy}"), 5));
    tally.require(&minima.each_ref().map(|(name, least)| (name.as_str(), *least)));
    tally.require(&[("checks", 1_000), ("modules tested", 1_000), ("slices read", 10)]);
}
