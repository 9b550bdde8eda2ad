//! Databases that share a memory budget: what they hold together stays within it, memory moves to
//! where it is used, and their data is that of the oracle.
//!
//! Not here: the division itself (package `shamba-model`, `memory::databases`); grants without a
//! database (`memory::tests` of this package).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shamba::env::{Env, ManualClock, MemFs};
use shamba::{Budget, Builder, Db, ErrorKind};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Pseudo-random numbers of a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The seed: `SHAMBA_SEED`, or a fixed one.
fn seed() -> u64 {
    let seed = std::env::var("SHAMBA_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(25);
    println!("SHAMBA_SEED={seed}");
    seed
}

fn builder(path: &Path, budget: &Budget) -> Builder {
    Db::builder(path).budget(budget).info_log(false).background_threads(1)
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes, deletes and reads at random, compared with the oracle.
fn work(db: &Db, oracle: &mut Oracle, dice: &mut Dice, operations: u64) {
    for number in 0..operations {
        let key = key(dice.below(20_000)).to_vec();
        match dice.below(8) {
            0 => {
                db.delete(&key).expect("delete");
                oracle.remove(&key);
            }
            1 | 2 => {
                let found = db.get(&key).expect("get");
                assert_eq!(found.as_deref(), oracle.get(&key).map(Vec::as_slice), "key {key:?}");
            }
            _ => {
                let mut value = number.to_le_bytes().to_vec();
                value.resize(dice.below(1_500) as usize + 8, number as u8);
                db.put(&key, &value).expect("put");
                oracle.insert(key, value);
            }
        }
    }
}

fn check(db: &Db, oracle: &Oracle) {
    let pairs: Oracle = db
        .iter()
        .map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect::<shamba::Result<_>>()
        .expect("scan");
    assert!(pairs == *oracle, "{} pairs instead of {}", pairs.len(), oracle.len());
    assert!(db.verify().expect("verify").is_clean());
}

fn held_bytes(databases: &[Db]) -> u64 {
    databases.iter().map(|db| db.memory().ledger_bytes).sum()
}

/// Waits until `done`, at most for this number of seconds: a limit for a test that hangs.
fn within_seconds(seconds: u64, done: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !done() {
        if begin.elapsed() > Duration::from_secs(seconds) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// The ledgers are read one after the other: bytes that move meanwhile may be counted twice. So a
/// sum counts as too large if three in a row are.
#[test]
fn databases_under_random_load_stay_within_their_budget() {
    let seed = seed();
    let dir = TempDir::new().expect("a directory");
    let budget = Budget::new(18 * MIB);
    let open = |number: usize| {
        let builder = builder(&dir.path().join(number.to_string()), &budget);
        builder.experimental(|e| e.record_cache(2 * MIB)).open().expect("open")
    };
    let mut databases: Vec<Db> = (0..3).map(open).collect();
    let mut oracles: Vec<Oracle> = vec![Oracle::new(); 3];
    for round in 0..3u64 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                let (mut samples, mut over) = (0u64, 0);
                while !stop.load(Ordering::Acquire) {
                    let bytes = held_bytes(&databases);
                    over = if bytes > budget.bytes() { over + 1 } else { 0 };
                    assert!(over < 3, "seed {seed}: {bytes} bytes of {}", budget.bytes());
                    samples += 1;
                }
                samples
            });
            let workers: Vec<_> = databases
                .iter()
                .zip(&mut oracles)
                .enumerate()
                .map(|(at, (db, oracle))| {
                    let mut dice = Dice(seed ^ round << 8 ^ at as u64);
                    // One of them has little to do in each round.
                    let operations = if at as u64 == round { 500 } else { 40_000 };
                    scope.spawn(move || work(db, oracle, &mut dice, operations))
                })
                .collect();
            let ends: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            stop.store(true, Ordering::Release);
            let samples = sampler.join().expect("the ledgers stay within the budget");
            ends.into_iter().for_each(|end| end.expect("the data is that of the oracle"));
            assert!(samples >= 5, "{samples} samples");
        });
        // One is closed and opened again.
        let at = round as usize;
        databases.remove(at).close().expect("close");
        assert_eq!(budget.databases(), 2);
        databases.insert(at, open(at));
        databases.iter().zip(&oracles).for_each(|(db, oracle)| check(db, oracle));
        let peaks: Vec<u64> = databases.iter().map(|db| db.memory().peak_bytes).collect();
        println!("round {round}: peaks {peaks:?}");
    }
    drop(databases);
    assert_eq!(budget.databases(), 0);
}

/// Fills a database with `mib` MiB in tables.
fn fill(db: &Db, mib: u64) {
    for number in 0..mib << 10 {
        db.put(key(number), [7; 1_000]).expect("put");
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
}

#[test]
fn an_idle_database_gives_memory_to_one_that_reads() {
    let dir = TempDir::new().expect("a directory");
    let budget = Budget::new(32 * MIB);
    let [idle, busy] =
        ["idle", "busy"].map(|name| builder(&dir.path().join(name), &budget).open().expect("open"));
    fill(&idle, 8);
    fill(&busy, 40);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice(1);
            while !stop.load(Ordering::Acquire) {
                assert!(busy.get(key(dice.below(40 << 10))).expect("get").is_some());
            }
        });
        // An eighth of the budget is four steps; writes are forgotten after some windows.
        let before = busy.memory().budget_bytes;
        let grows = within_seconds(60, || busy.memory().budget_bytes >= before.min(14 * MIB) + 4 * MIB);
        stop.store(true, Ordering::Release);
        assert!(grows, "from {before} to {}", busy.memory());
    });
    let (idle, busy) = (idle.memory(), busy.memory());
    assert!(idle.budget_bytes + busy.budget_bytes <= 32 * MIB);
    assert!(idle.ledger_bytes <= idle.budget_bytes && idle.budget_bytes < 12 * MIB, "{idle}");
    assert!(busy.budget_total_bytes == 32 * MIB && busy.budget_target_bytes >= 16 * MIB);
}

/// Without threads and on a clock that only the test moves: windows end when the test says so,
/// however slow the machine is.
#[test]
fn one_that_opens_gets_its_part_and_one_that_closes_returns_it() {
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: Arc::clone(&clock) as _, ..Env::deterministic(Arc::new(MemFs::new()), 1) };
    let budget = Budget::new(68 * MIB);
    let open = |name: &str| builder(Path::new(name), &budget).env(env.clone()).open().expect("open");
    // Filled before: what is written lately counts as a need.
    let filled = Db::builder("/first").env(env.clone()).info_log(false).open().expect("open");
    fill(&filled, 30);
    filled.close().expect("close");
    let first = open("/first");
    assert_eq!(first.memory().budget_bytes, 64 * MIB, "the floor of the next one is kept");
    for number in 0..30 << 10 {
        first.get(key(number)).expect("get");
    }
    let second = open("/second");
    assert!(second.memory().budget_bytes >= 4 * MIB, "at once");
    second.put("key", "value").expect("put");
    // But for the metadata of tables, and a step while lookups were made.
    let is = |db: &Db, mib: u64| db.memory().budget_bytes.abs_diff(mib * MIB) < 4 * MIB;
    // Whether `done` after at most this number of windows.
    let within_windows = |windows: u64, databases: &[&Db], done: &dyn Fn() -> bool| {
        (0..windows).any(|_| {
            clock.advance_us(1_000_000);
            databases.iter().for_each(|db| db.wait_idle().expect("idle"));
            done()
        })
    };
    assert!(
        within_windows(3, &[&first, &second], &|| is(&first, 32) && is(&second, 32)),
        "{} {}",
        first.memory(),
        second.memory()
    );
    second.close().expect("close");
    assert!(within_windows(1, &[&first], &|| is(&first, 64)), "{}", first.memory());
    first.close().expect("close");
    assert_eq!(budget.databases(), 0, "the last one has left");
    assert_eq!(open("/second").memory().budget_bytes, 64 * MIB);
}

#[test]
fn a_budget_that_is_too_small_is_refused_with_numbers_and_nothing_is_made() {
    let dir = TempDir::new().expect("a directory");
    let budget = Budget::new(9 * MIB);
    let open = |name: &str| builder(&dir.path().join(name), &budget).open();
    let _databases = [open("a").expect("open"), open("b").expect("open")];
    let error = open("c").map(|_| ()).expect_err("there are 9 MiB for three");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("9437184") && text.contains("3 databases") && text.contains("12582912"), "{text}");
    assert_eq!(budget.databases(), 2);
    // The directory is neither locked nor a database.
    let empty = Db::builder(dir.path().join("c")).experimental(|e| e.error_if_exists(true));
    empty.open().expect("open").close().expect("close");
}

#[test]
fn databases_without_threads_share_a_budget_too() {
    let env = Env::deterministic(Arc::new(MemFs::new()), seed());
    let budget = Budget::new(16 * MIB);
    let open = |name: &str| builder(Path::new(name), &budget).env(env.clone()).open().expect("open");
    let mut dice = Dice(seed());
    let mut oracles = [(); 3].map(|()| Oracle::new());
    let mut databases = Vec::new();
    for name in ["/a", "/b", "/c"] {
        databases.push(open(name));
        // Those before have not made room yet: none runs before it is used.
        let may_hold: u64 = databases.iter().map(|db| db.memory().budget_bytes).sum();
        assert!(may_hold <= 16 * MIB, "{} databases may hold {may_hold} bytes", databases.len());
        databases.iter().zip(&mut oracles).for_each(|(db, oracle)| work(db, oracle, &mut dice, 3_000));
    }
    for step in 0..60 {
        let at = step % 3;
        work(&databases[at], &mut oracles[at], &mut dice, 2_000);
        let bytes = held_bytes(&databases);
        assert!(bytes <= 16 * MIB, "step {step}: {bytes} bytes");
    }
    databases.iter().zip(&oracles).for_each(|(db, oracle)| check(db, oracle));
}
