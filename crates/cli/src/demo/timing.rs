//! Timing of lookups on a machine with other load.
//!
//! The databases are timed alternately on the same keys, in chunks of a few hundred, in several
//! rounds. Of each chunk only the fastest round counts. An interruption by another program
//! therefore costs one round of a chunk, not the figure, and a slowdown of the whole machine
//! affects all databases equally.

use std::time::Instant;

use shamba::Db;

use crate::exit::Failure;

/// Keys timed together: some half a millisecond, short compared with the time slices of an
/// operating system.
pub const CHUNK_KEYS: usize = 500;

/// Time of a lookup.
#[derive(Clone, Copy, Default, Debug)]
pub struct Timing {
    /// Nanoseconds per lookup, with every chunk at its fastest.
    pub ns: f64,
    /// Relative difference of the second fastest times: the part of a difference that may be noise.
    pub noise: f64,
}

/// Times lookups of `keys` in each of the databases.
///
/// # Errors
/// Errors of the lookups.
pub fn compare(databases: &[&Db], keys: &[Vec<u8>], rounds: usize) -> Result<Vec<Timing>, Failure> {
    let chunks = keys.chunks(CHUNK_KEYS).len();
    let mut fastest = vec![vec![Two::default(); chunks]; databases.len()];
    for round in 0..rounds {
        for turn in 0..databases.len() {
            // The order rotates with the round.
            let number = (round + turn) % databases.len();
            for (chunk, times) in keys.chunks(CHUNK_KEYS).zip(&mut fastest[number]) {
                let start = Instant::now();
                for key in chunk {
                    std::hint::black_box(databases[number].get(key)?);
                }
                times.add(start.elapsed().as_nanos() as f64);
            }
        }
    }
    let timing = |times: &Vec<Two>| {
        let (first, second) =
            times.iter().fold((0.0, 0.0), |sum, two| (sum.0 + two.first, sum.1 + two.second));
        Timing { ns: first / keys.len().max(1) as f64, noise: (second / first - 1.0).max(0.0) }
    };
    Ok(fastest.iter().map(timing).collect())
}

/// Looks up `keys` once, to load the data that they need into memory.
///
/// # Errors
/// Errors of the lookups.
pub fn warm(db: &Db, keys: &[Vec<u8>]) -> Result<(), Failure> {
    for key in keys {
        std::hint::black_box(db.get(key)?);
    }
    Ok(())
}

/// The two smallest numbers of a series.
#[derive(Clone, Copy, Debug)]
struct Two {
    first: f64,
    second: f64,
}

impl Default for Two {
    fn default() -> Self {
        Self { first: f64::INFINITY, second: f64::INFINITY }
    }
}

impl Two {
    fn add(&mut self, ns: f64) {
        if ns < self.first {
            (self.first, self.second) = (ns, self.first);
        } else if ns < self.second {
            self.second = ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_smallest_are_kept() {
        let mut two = Two::default();
        for ns in [5.0, 3.0, 9.0, 3.5, 3.0] {
            two.add(ns);
        }
        assert_eq!((two.first, two.second), (3.0, 3.0));
    }
}
