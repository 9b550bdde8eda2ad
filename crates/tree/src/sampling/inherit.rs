//! Statistics that the outputs of a compaction inherit from its inputs. Pure.
//!
//! An input's figures are assumed to be spread evenly over its bytes, and move with its keys. The
//! key space is cut at every bound of an input, and each piece of each run gets its part of the
//! figures. The pieces of the runs over the same keys are combined ([`Probes::merged`]). An output
//! gets the figures of the keys that it answers for: from its start to the start of the next one.
//!
//! So if a single run is compacted, its outputs have all its figures. In a compaction that is
//! carried out slice by slice, each slice takes its part, and the remainder stays with the input
//! ([`share_left`]).

use bytes::Bytes;

use crate::statistics::Probes;
use crate::version::{KeyRange, TableUse};

/// An input table.
pub struct InputTable<'a> {
    /// Identifies the run of the table.
    pub run: u64,
    /// The table; its figures cover its live part.
    pub table: &'a TableUse,
    /// Figures of the table.
    pub probes: Probes,
}

/// Estimates the bytes of a table in a range.
pub type BytesIn<'a> = &'a dyn Fn(&TableUse, &KeyRange) -> u64;

/// The figures of the table that answers for the keys of `stretch`. The inputs are grouped by run,
/// in lookup order.
pub fn inherited(inputs: &[InputTable<'_>], stretch: &KeyRange, bytes_in: BytesIn<'_>) -> Probes {
    let inputs = inputs.iter().filter(|input| input.table.range.overlaps(stretch));
    let inputs: Vec<&InputTable<'_>> = inputs.collect();
    let bounds_of =
        |input: &&InputTable<'_>| [Some(input.table.range.lower.clone()), input.table.range.upper.clone()];
    let mut bounds: Vec<Bytes> = inputs.iter().flat_map(bounds_of).flatten().collect();
    bounds.retain(|bound| stretch.contains(bound));
    bounds.push(stretch.lower.clone());
    bounds.sort_unstable();
    bounds.dedup();
    debug_assert!(bounds.first() == Some(&stretch.lower), "no input divides the keys below {stretch:?}");
    let uppers = bounds.iter().skip(1).cloned().map(Some).chain([stretch.upper.clone()]);
    let pieces = bounds.iter().cloned().zip(uppers).map(|(lower, upper)| KeyRange { lower, upper });
    let of_piece = |piece: KeyRange| {
        let there: Vec<_> = inputs.iter().filter(|input| input.table.range.overlaps(&piece)).collect();
        let runs = there.chunk_by(|left, right| left.run == right.run);
        let of_run = |run: &[&&InputTable<'_>]| -> Probes {
            run.iter().map(|input| input.probes.scaled(share_in(input.table, &piece, bytes_in))).sum()
        };
        Probes::merged(runs.map(of_run))
    };
    pieces.map(of_piece).sum()
}

/// The share of a table's figures that stays with it when the keys of `slice` are removed.
pub fn share_left(table: &TableUse, slice: &KeyRange, bytes_in: BytesIn<'_>) -> f64 {
    1.0 - share_in(table, slice, bytes_in)
}

/// The share of a table's live bytes that lie in `range`.
fn share_in(table: &TableUse, range: &KeyRange, bytes_in: BytesIn<'_>) -> f64 {
    if range.covers(&table.range) {
        return 1.0;
    }
    let Some(part) = table.range.intersection(range) else { return 0.0 };
    (bytes_in(table, &part) as f64 / bytes_in(table, &table.range).max(1) as f64).min(1.0)
}

/// The keys that each output answers for, in a slice whose outputs begin at `lowers`, ascending.
pub fn stretches(slice: &KeyRange, lowers: &[Bytes]) -> Vec<KeyRange> {
    debug_assert!(lowers.is_sorted(), "the outputs of {slice:?} do not ascend: {lowers:?}");
    debug_assert!(
        lowers.iter().all(|lower| slice.contains(lower)),
        "an output of {slice:?} begins elsewhere: {lowers:?}"
    );
    let begins = [slice.lower.clone()].into_iter().chain(lowers.iter().skip(1).cloned());
    let ends = lowers.iter().skip(1).cloned().map(Some).chain([slice.upper.clone()]);
    begins.zip(ends).take(lowers.len()).map(|(lower, upper)| KeyRange { lower, upper }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table over keys `000` to `999` of one byte each.
    fn table(lower: u64, upper: u64) -> TableUse {
        format!("{}:{lower:03}..{upper:03} {}", lower + 1, upper - lower).parse().expect("notation")
    }

    fn range(lower: u64, upper: u64) -> KeyRange {
        format!("{lower:03}..{upper:03}").parse().expect("a range")
    }

    fn bytes_in(table: &TableUse, range: &KeyRange) -> u64 {
        let number = |key: &Bytes| -> u64 {
            std::str::from_utf8(key).ok().and_then(|key| key.parse().ok()).expect("a number")
        };
        let part = table.range.intersection(range).expect("asked only for what is there");
        number(part.upper.as_ref().expect("an end")) - number(&part.lower)
    }

    fn close(left: Probes, right: Probes) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
        near(left.empty, right.empty)
            && near(left.found, right.found)
            && near(left.false_positives, right.false_positives)
            && near(left.seeks, right.seeks)
    }

    #[test]
    fn an_output_takes_the_part_of_the_keys_that_it_takes() {
        let (newer, older) = (table(100, 300), table(0, 400));
        let inputs = [
            InputTable { run: 2, table: &newer, probes: Probes::new(180.0, 20.0, 18.0).with_seeks(50.0) },
            InputTable { run: 1, table: &older, probes: Probes::new(360.0, 40.0, 36.0).with_seeks(100.0) },
        ];
        let of = |lower, upper| inherited(&inputs, &range(lower, upper), &bytes_in);
        // Where only the older one is, its figures; where both are, as many lookups as reached the
        // newer one.
        assert!(close(of(0, 100), Probes::new(90.0, 10.0, 9.0).with_seeks(25.0)), "{:?}", of(0, 100));
        assert!(close(of(100, 300), Probes::new(160.0, 40.0, 16.0).with_seeks(50.0)), "{:?}", of(100, 300));
        assert!(
            close(of(50, 150), Probes::new(45.0 + 40.0, 5.0 + 10.0, 4.5 + 4.0).with_seeks(25.0)),
            "{:?}",
            of(50, 150)
        );
        assert_eq!(of(400, 900), Probes::ZERO);
    }

    #[test]
    fn totals_are_kept_over_slices_and_outputs() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut cuts = |count: usize| -> Vec<u64> {
                let mut cuts: Vec<u64> = (0..count).map(|_| rng.u64(1..999)).chain([0, 999]).collect();
                cuts.sort_unstable();
                cuts.dedup();
                cuts
            };
            let runs: Vec<Vec<TableUse>> =
                (0..3).map(|_| cuts(4).windows(2).map(|pair| table(pair[0], pair[1])).collect()).collect();
            let (slices, outputs) = (cuts(3), cuts(6));
            let mut left: Vec<Vec<(TableUse, Probes)>> = Vec::new();
            for run in &runs {
                let mut probes = |table: &TableUse| {
                    // More lookups reach every place than are found in all runs together.
                    let bytes = table.live_bytes as f64;
                    Probes::new(bytes * (1.0 + rng.f64()), bytes * rng.f64() / 3.0, rng.f64())
                };
                left.push(run.iter().map(|table| (table.clone(), probes(table))).collect());
            }
            let before: Vec<Probes> =
                left.iter().map(|run| run.iter().map(|(_, probes)| *probes).sum()).collect();
            let mut taken = Probes::ZERO;
            for slice in slices.windows(2) {
                let (lower, upper) = (slice[0], slice[1]);
                let slice = range(lower, upper);
                let inputs = left.iter().enumerate().flat_map(|(run, tables)| {
                    tables.iter().map(move |(table, probes)| InputTable {
                        run: run as u64,
                        table,
                        probes: *probes,
                    })
                });
                let inputs: Vec<InputTable<'_>> = inputs.collect();
                let begins: Vec<Bytes> = outputs
                    .iter()
                    .filter(|output| (lower..upper).contains(*output))
                    .map(|output| range(*output, 999).lower)
                    .collect();
                // Without an output no table answers for the keys, and the figures are lost.
                let begins = if begins.is_empty() { vec![slice.lower.clone()] } else { begins };
                let tiles = stretches(&slice, &begins);
                assert_eq!(tiles.len(), begins.len());
                taken += tiles.iter().map(|tile| inherited(&inputs, tile, &bytes_in)).sum::<Probes>();
                for (table, probes) in left.iter_mut().flatten() {
                    *probes = probes.scaled(share_left(table, &slice, &bytes_in));
                    let rest = KeyRange { lower: slice.upper.clone().expect("an end"), upper: None };
                    if let Some(rest) = table.range.intersection(&rest) {
                        table.range = rest;
                    }
                }
            }
            let found: f64 = before.iter().map(|probes| probes.found).sum();
            let lookups = before[0].lookups();
            assert!((taken.found - found).abs() < 1e-6, "seed {seed}: {taken:?} of {before:?}");
            assert!((taken.lookups() - lookups).abs() < 1e-6, "seed {seed}: {taken:?} of {before:?}");
            let nothing: Probes = left.iter().flatten().map(|(_, probes)| *probes).sum();
            assert!(close(nothing, Probes::ZERO), "seed {seed}: {nothing:?} is left");
        }
    }

    #[test]
    fn a_run_merged_alone_loses_nothing() {
        let tables = [table(0, 250), table(300, 900)];
        let probes =
            [Probes::new(50.0, 3.0, 1.0).with_seeks(9.0), Probes::new(7.0, 70.0, 0.5).with_seeks(2.0)];
        let inputs: Vec<InputTable<'_>> =
            tables.iter().zip(probes).map(|(table, probes)| InputTable { run: 1, table, probes }).collect();
        let lowers = ["000", "100", "270", "640"].map(|key| Bytes::from_static(key.as_bytes()));
        let whole = KeyRange::everything();
        let taken: Probes =
            stretches(&whole, &lowers).iter().map(|tile| inherited(&inputs, tile, &bytes_in)).sum();
        assert!(close(taken, probes[0] + probes[1]), "{taken:?}");
    }
}
