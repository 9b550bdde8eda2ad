//! Design of the demo's databases, from the amount of data.

use super::paths::Paths;

/// Size ratio T of all three trees: small, so that little data fills five levels.
pub const SIZE_RATIO: f64 = 3.0;
/// Minimum number of levels of the tree.
pub const LEVELS: u32 = 5;
/// Data relative to the total capacity of the levels above the last: the last level gets a
/// considerable part.
const FILL: f64 = 1.45;
/// Minimum of the write buffer: a handful of paths.
const BUFFER_BYTES_MIN: u64 = 1 << 10;
/// Approximate number of tables.
const TABLES: u64 = 40;

/// Settings of the demo's databases.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Size ratio T.
    pub size_ratio: f64,
    /// The write buffer.
    pub buffer_bytes: u64,
    /// Target size of tables.
    pub file_bytes: u64,
    /// Number of timed lookups of each kind.
    pub timed: usize,
    /// Number of timings of each.
    pub rounds: usize,
}

impl Plan {
    /// Chooses the settings from the amount of data.
    pub fn of(paths: &Paths) -> Self {
        let bytes = paths.bytes();
        // Level i holds buffer x T^i; the data must overflow levels 1 to LEVELS - 1.
        let above_last: f64 = (1..LEVELS).map(|level| SIZE_RATIO.powf(f64::from(level))).sum();
        let buffer_bytes = ((bytes as f64 / (above_last * FILL)) as u64).max(BUFFER_BYTES_MIN);
        let file_bytes = (bytes / TABLES).clamp(64 << 10, 16 << 20);
        Self { size_ratio: SIZE_RATIO, buffer_bytes, file_bytes, timed: 50_000, rounds: 5 }
    }
}
