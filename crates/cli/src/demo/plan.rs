//! The shape of the demo's trees, from the amount of data.

use super::paths::Paths;

/// T of all three trees: small, so that five levels need no mountain of data.
pub const SIZE_RATIO: f64 = 3.0;
/// The tree gets at least so many levels.
pub const LEVELS: u32 = 5;
/// Data in levels, against what the levels above the last hold at most: the last level gets a fair share.
const FILL: f64 = 1.45;
/// The buffer is never smaller: a handful of paths.
const BUFFER_BYTES_MIN: u64 = 1 << 10;
/// About how many tables the data makes.
const TABLES: u64 = 40;

/// What the databases of the demo are built with.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// T.
    pub size_ratio: f64,
    /// The write buffer.
    pub buffer_bytes: u64,
    /// Where tables are cut.
    pub file_bytes: u64,
    /// How many lookups of each kind are timed.
    pub timed: usize,
    /// How often each of them is.
    pub rounds: usize,
}

impl Plan {
    /// Chooses from the amount of data.
    pub fn of(paths: &Paths) -> Self {
        let bytes = paths.bytes();
        // Level i holds buffer x T^i; the data must overflow levels 1 to LEVELS - 1.
        let above_last: f64 = (1..LEVELS).map(|level| SIZE_RATIO.powf(f64::from(level))).sum();
        let buffer_bytes = ((bytes as f64 / (above_last * FILL)) as u64).max(BUFFER_BYTES_MIN);
        let file_bytes = (bytes / TABLES).clamp(64 << 10, 16 << 20);
        Self { size_ratio: SIZE_RATIO, buffer_bytes, file_bytes, timed: 50_000, rounds: 5 }
    }
}
