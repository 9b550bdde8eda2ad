//! Suite N: faults, kills and threads for any length of time, with new options for each life.
//!
//! A life is one of five kinds. It is determined by the soak's seed and its number, except for the
//! timing of threads and processes. The kind and the command that reproduces the life are printed
//! before it begins, so even a life that crashes the machine can be reproduced. The first violation
//! ends the soak.
//!
//! [`steady`] is one long life of one database.
//!
//! Not here: the lives and their guarantees ([`crate::fault`], [`crate::stress`],
//! [`crate::victim::kill`]).

pub mod steady;

use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use shamba::Durability;
use shamba::env::{Effect, FsyncFailure, Persistence};

use crate::fault::{self, Fault};
use crate::runner::caught;
use crate::seed::mixed;
use crate::stress;
use crate::tally::Tally;
use crate::vectors::Vector;
use crate::victim::kill;

/// Kills of the binary in a life, each of one process over the same database.
const KILLS: u64 = 10;
/// Scripts with faults in a life.
const SCRIPTS: u64 = 40;
/// Number of writes in a script.
const WRITES: usize = 30;
/// Rounds of each writer in a life on threads.
const ROUNDS: u64 = 1_500;
/// Closes under load in a life.
const CLOSES: u64 = 5;
/// Storms with threads in a life.
const STORMS: u64 = 8;

/// The kind of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Scripts in which calls fail, followed by power cuts (suite D).
    Faults,
    /// The real binary, killed repeatedly over one database (suite F).
    Kills,
    /// All operations concurrently on threads (suite G).
    Threads,
    /// Closes with concurrent writers (suite G).
    Closes,
    /// Faults with concurrent threads (suites D and G).
    Storms,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Faults, Self::Kills, Self::Threads, Self::Closes, Self::Storms];

    /// The kind of life `number`; the kinds alternate.
    pub fn of(number: u64) -> Self {
        Self::ALL[(number % Self::ALL.len() as u64) as usize]
    }
}

/// A soak.
#[derive(Clone, Copy, Debug)]
pub struct Soak<'a> {
    /// The binary to kill.
    pub binary: &'a Path,
    /// The directory of its databases.
    pub dir: &'a Path,
    /// The seed of all lives.
    pub seed: u64,
}

impl Soak<'_> {
    /// Runs lives until the time is over: at least one of each kind.
    ///
    /// # Errors
    /// The first violation, and the command that reproduces its life.
    pub fn run(&self, time: Duration) -> Result<Tally, String> {
        let begun = Instant::now();
        let mut tally = Tally::default();
        for number in 0.. {
            if begun.elapsed() >= time && number >= Kind::ALL.len() as u64 {
                break;
            }
            tally.merge(&self.life(number)?);
        }
        tally.add("seconds", begun.elapsed().as_secs());
        Ok(tally)
    }

    /// Runs life number `number`.
    ///
    /// # Errors
    /// The violation, and the command that reproduces it.
    pub fn life(&self, number: u64) -> Result<Tally, String> {
        let kind = Kind::of(number);
        let again = format!("cargo xtask soak --seed {} --only {number}", self.seed);
        let seed = mixed(self.seed, number);
        eprintln!("life {number}: {kind:?}, seed {seed}; again: {again}");
        let lived = match kind {
            Kind::Faults => caught(|| faults(seed)),
            Kind::Kills => caught(|| self.kills(seed, number)),
            Kind::Threads => caught(|| Ok(threads(seed))),
            Kind::Closes => caught(|| Ok(closes(seed))),
            Kind::Storms => caught(|| Ok(storms(seed))),
        };
        let mut tally =
            lived.map_err(|error| format!("life {number}, {kind:?}: {error}\n  again: {again}"))?;
        tally.add("lives", 1);
        tally.add(&format!("lives, {kind:?}"), 1);
        Ok(tally)
    }

    fn kills(&self, seed: u64, number: u64) -> Result<Tally, String> {
        let dir = self.dir.join(format!("life{number}"));
        let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
        std::fs::create_dir_all(&dir).map_err(failed)?;
        let done = kill::cycles(self.binary, &dir, seed, KILLS)?;
        // After a violation the directory remains for inspection.
        std::fs::remove_dir_all(&dir).map_err(failed)?;
        Ok(Tally::of(&[
            ("kills", done.get("kills")),
            ("commits acknowledged", done.get("commits acknowledged")),
        ]))
    }
}

/// Random options of a database that keeps acknowledged writes over a kill.
fn keeping(rng: &mut Rng) -> Vector {
    let mut vector = Vector::numbered(rng.u64(..), rng.usize(..1 << 20));
    vector.no_wal = false;
    vector.durability = if rng.u8(..3) == 0 { Durability::Sync } else { Durability::NoSync };
    vector
}

fn faults(seed: u64) -> Result<Tally, String> {
    let mut rng = Rng::with_seed(seed);
    let mut tally = Tally::default();
    for _ in 0..SCRIPTS {
        let vector = keeping(&mut rng);
        let steps = fault::script(rng.u64(..), WRITES);
        let fault = fault(&mut rng);
        let seen = fault::checked(&vector, &steps, &[fault])?;
        tally.add("faults", seen.faults);
        tally.add("engine calls that failed", seen.failures);
        tally.add("scripts", 1);
    }
    Ok(tally)
}

/// A storm, or one failing call somewhere in the script.
fn fault(rng: &mut Rng) -> Fault {
    let effects = [Effect::Eio, Effect::Enospc, Effect::ShortWrite, Effect::Emfile, Effect::FlipBitOnRead];
    let effect = effects[rng.usize(..effects.len())];
    let persistence = if rng.bool() { Persistence::Once } else { Persistence::Sticky };
    match rng.u8(..6) {
        0 => {
            let failures = [FsyncFailure::Keep, FsyncFailure::Drop, FsyncFailure::Revert];
            Fault::Fsync { nth: rng.u64(..60), failure: failures[rng.usize(..3)], sticky: false }
        }
        1 => Fault::Torn { nth: rng.u64(..200), effect: Effect::Enospc, persistence },
        // A corrupted read may occur once; a permanent one would be a different disk.
        2 if effect != Effect::FlipBitOnRead => Fault::Call { nth: rng.u64(..600), effect, persistence },
        _ => Fault::Storm { effect, one_in: [10, 40, 150, 600][rng.usize(..4)], seed: rng.u64(..) },
    }
}

fn threads(seed: u64) -> Tally {
    let mut rng = Rng::with_seed(seed);
    let vector = Vector::numbered(rng.u64(..), rng.usize(..1 << 20));
    eprintln!("  {vector:?}");
    stress::everything_at_once(&vector, rng.u64(..), ROUNDS)
}

fn closes(seed: u64) -> Tally {
    let mut rng = Rng::with_seed(seed);
    for _ in 0..CLOSES {
        let vector = Vector::numbered(rng.u64(..), rng.usize(..1 << 20));
        eprintln!("  {vector:?}");
        stress::close_under_load(&vector, rng.u64(10..1_500));
    }
    Tally::of(&[("closes under load", CLOSES)])
}

fn storms(seed: u64) -> Tally {
    let mut rng = Rng::with_seed(seed);
    let effects = [Effect::Eio, Effect::Enospc, Effect::ShortWrite, Effect::Emfile];
    let mut tally = Tally::default();
    for _ in 0..STORMS {
        let vector = keeping(&mut rng);
        eprintln!("  {vector:?}");
        let probability = [0.0005, 0.002, 0.01, 0.05][rng.usize(..4)];
        let stormed = stress::storm(&vector, rng.u64(..), probability, effects[rng.usize(..4)]);
        tally.add("faults", stormed.faults);
        tally.add("writes acknowledged", stormed.acked);
    }
    tally
}
