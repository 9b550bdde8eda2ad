//! Suite F: `kill -9` at any moment, many times over the same databases.
//!
//! A cycle is one life that ends with a kill, under new random options. The kill comes at a random
//! time after its start (to hit opening and recovery) or at a random reply (to hit it at work).
//! Then recovery itself may be killed, several times. Other commands (`compact`, `tune`, `check`,
//! one that makes a keyspace FIFO or gives it levels again) may run or be killed. The content is
//! then read, either read-only or by a recovery, and compared with the book. A new database begins
//! every `CYCLES_OF_A_DATABASE` cycles, because the first moments of a database are a special
//! state.

use std::path::Path;
use std::time::Duration;

use fastrand::Rng;

use crate::seed::mixed;
use crate::tally::Tally;
use crate::victim::book::{Book, Outcome};
use crate::victim::life::{self, End, Ended, Victim};
use crate::victim::options::{Keeps, Options};
use crate::victim::script::{Ask, Mix, Script};

/// Number of cycles per database.
const CYCLES_OF_A_DATABASE: u64 = 20;

/// Maximum delay of a kill: a life of this length has performed all kinds of operations.
const KILLED_AFTER_MAX_US: u64 = 60_000;

/// Maximum number of lives per cycle. Lives that end by themselves do not count; with more of them
/// the suite would test nothing.
const LIVES_PER_CYCLE_MAX: u64 = 3;

/// Kills `binary` `count` times. Databases are created in `dir`.
///
/// # Errors
/// The first violation, with the seed and the cycle.
pub fn cycles(binary: &Path, dir: &Path, seed: u64, count: u64) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut at = Databases { binary, dir, number: 0, victim: None, book: Book::new() };
    let mut lives = 0;
    while tally.get("kills") < count {
        let told = |error: String| {
            format!(
                "seed {seed}, life {lives}: {error}\n  rerun: cargo xtask kill --seed {seed} --cycles {count}"
            )
        };
        if lives >= count * LIVES_PER_CYCLE_MAX {
            return Err(told(format!("only {} of {lives} lives could be killed", tally.get("kills"))));
        }
        if lives % CYCLES_OF_A_DATABASE == 0 {
            at.next()?;
        }
        cycle(&mut at, seed, lives, &mut tally).map_err(told)?;
        lives += 1;
    }
    tally.add("lives", lives);
    Ok(tally)
}

/// The database in use.
struct Databases<'a> {
    binary: &'a Path,
    dir: &'a Path,
    number: u64,
    victim: Option<Victim>,
    book: Book,
}

impl Databases<'_> {
    fn next(&mut self) -> Result<(), String> {
        if let Some(old) = self.victim.take() {
            std::fs::remove_dir_all(&old.db).map_err(|error| format!("{}: {error}", old.db.display()))?;
        }
        self.number += 1;
        let db = self.dir.join(format!("db{}", self.number));
        self.victim = Some(Victim { binary: self.binary.to_path_buf(), db, through: Vec::new() });
        self.book = Book::new();
        Ok(())
    }
}

fn cycle(at: &mut Databases<'_>, seed: u64, life: u64, tally: &mut Tally) -> Result<(), String> {
    let mut rng = Rng::with_seed(mixed(seed, life));
    let Some(victim) = at.victim.clone() else { return Err("there is no database".to_owned()) };
    let options = Options::roll(&mut rng);
    let mut asks = Script::new(rng.u64(..), life, Mix::USUAL).asks(4_000);
    if options.keeps == Keeps::Flushed {
        // Without a log there is nothing to sync.
        asks.retain(|ask| !matches!(ask, Ask::Sync));
    }
    let end = match rng.u8(..3) {
        0 => End::KilledAfter(Duration::from_micros(rng.u64(..KILLED_AFTER_MAX_US))),
        _ => End::KilledAtReply(rng.usize(1..3_000)),
    };
    let told =
        |error: String| format!("{error}\n  {end:?}, {:?}, {}", options.keeps, options.arguments.join(" "));
    let ended = victim.live(&at.book, &options, &asks, end).map_err(told)?;
    if let Some((kind, text)) = ended.errors.first() {
        return Err(told(format!("nothing was made to fail, yet it answered {kind}: {text}")));
    }
    count(&ended, options.keeps, tally);
    if !ended.is_killed() && !ended.status.success() {
        return Err(told(format!("it ended with {}: {}", ended.status, ended.stderr)));
    }
    between(&victim, &mut rng, tally).map_err(told)?;
    let found = match rng.u8(..4) {
        0 => {
            tally.add("looks that recovered", 1);
            victim.recover()
        }
        _ => victim.look(),
    };
    let found = found.map_err(told)?;
    let kept = at.book.reconcile(&ended.sent, ended.floor, &found).map_err(told)?;
    let acked = ended.count(Outcome::Acked);
    tally.add("commits kept, not acknowledged", kept.saturating_sub(acked) as u64);
    tally.add("commits lost, as their option allows", acked.saturating_sub(kept) as u64);
    tally.raise("max pairs", found.values().map(|pairs| pairs.len() as u64).sum());
    Ok(())
}

fn count(ended: &Ended, keeps: Keeps, tally: &mut Tally) {
    tally.add("commits acknowledged", ended.count(Outcome::Acked) as u64);
    tally.add("commits cut off", ended.count(Outcome::Unanswered) as u64);
    tally.add("replies", ended.replies as u64);
    if !ended.is_killed() {
        tally.add("lives that ended by themselves", 1);
        return;
    }
    tally.add("kills", 1);
    tally.add(&format!("kills, {keeps:?} kept"), 1);
    if ended.replies == 0 {
        tally.add("kills before the first reply", 1);
    }
}

/// Events between two lives: killed recoveries, and other commands, complete or killed. None of
/// them may change the content.
fn between(victim: &Victim, rng: &mut Rng, tally: &mut Tally) -> Result<(), String> {
    while rng.u8(..3) == 0 {
        // Its input stays open until the kill: it opens the database and waits.
        let after = Duration::from_micros(rng.u64(..12_000));
        let (code, ..) = life::run(victim.command("batch", ["--sync", "never"]), Some(after))?;
        tally.add("recoveries killed", u64::from(code.is_none()));
    }
    if rng.u8(..4) != 0 || !victim.db.join("CURRENT").exists() {
        return Ok(());
    }
    let (name, arguments): (&str, &[&str]) = match rng.u8(..8) {
        0 => ("compact", &[]),
        1 => ("compact", &["--policy", "tiering", "--size-ratio", "3"]),
        2 => ("tune", &[]),
        3 => ("tune", &["--undo"]),
        // So large that nothing is dropped: its tree has no levels, and its content is exact.
        5 | 6 => ("batch", &["--keyspace", "users", "--fifo-bytes", "1GiB"]),
        7 => ("batch", &["--keyspace", "users", "--no-fifo"]),
        _ => ("check", &[]),
    };
    let after = rng.bool().then(|| Duration::from_micros(rng.u64(..20_000)));
    let (code, out, said) = life::run(victim.command(name, arguments), after)?;
    match code {
        None => tally.add(&format!("{name} killed"), 1),
        Some(0) if name == "batch" => tally.add("limits of a FIFO keyspace changed", 1),
        Some(0) => tally.add(&format!("{name} done"), 1),
        // There may be no redesign to undo.
        Some(64) if name == "tune" => tally.add("tune --undo without a move", 1),
        Some(code) => return Err(format!("{name} {arguments:?} ended with {code}: {said}{out}")),
    }
    Ok(())
}
