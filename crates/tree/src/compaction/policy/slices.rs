//! Slices: the key ranges in which a job is carried out, and the edit that records a finished one.
//!
//! Slices ascend and together cover all inputs. When one is finished, its outputs join the target
//! run. The same edit removes the inputs' keys below the slice's end: tables that end there are
//! removed, others are narrowed to start there. So space is freed as the compaction proceeds, and
//! after a crash between two slices every key is either entirely compacted or not at all.
//!
//! A slice ends at every table of the target run that is not an input. No output may span such a
//! table, because tables of a run share no keys.
//!
//! Not here: merging the entries of a slice (`compaction::job`).

use bytes::Bytes;
use shamba_table::TableId;

use super::job::{CompactionJob, OutputRun, Target};
use crate::version::{Change, ConsumedValues, KeyRange, TableUse, Version, VersionEdit};
use shamba_key::KeyspaceId;

/// Split keys are requested this many times closer together than slices are long: with several
/// inputs, the sum of their bytes should be even.
const PIECES_PER_SLICE: u64 = 4;

/// The slices of a job, ascending, each of about `target_slice_bytes` of input. `split_keys`
/// returns keys inside a table that lie about the given number of bytes apart. It may return none;
/// slices then end at table boundaries.
pub fn slices(
    job: &CompactionJob,
    version: &Version,
    target_slice_bytes: u64,
    split_keys: &dyn Fn(&TableUse, u64) -> Vec<Bytes>,
) -> Vec<KeyRange> {
    let every_bytes = (target_slice_bytes / PIECES_PER_SLICE).max(1);
    let mut pieces = Vec::new();
    let mut hull: Option<KeyRange> = None;
    for (_, _, table) in job.uses(version) {
        let mut keys = split_keys(table, every_bytes);
        keys.retain(|key| *key > table.range.lower && table.range.is_above(key));
        keys.push(table.range.lower.clone());
        let bytes = table.live_bytes / keys.len() as u64;
        pieces.extend(keys.into_iter().map(|lower| Piece { lower, bytes, must_begin: false }));
        hull = Some(hull.map_or_else(|| table.range.clone(), |hull| hull.hull(&table.range)));
    }
    let Some(hull) = hull else { return Vec::new() };
    pieces.extend(bystanders(job, version, &hull));
    pieces.sort_by(|a, b| a.lower.cmp(&b.lower));

    let mut slices: Vec<KeyRange> = Vec::new();
    let mut lower = hull.lower.clone();
    let mut bytes = 0u64;
    let mut left_bytes = pieces.iter().fold(0u64, |sum, piece| sum.saturating_add(piece.bytes));
    for piece in pieces {
        // A small remainder does not become a slice of its own, which would make a small table.
        let is_full =
            bytes >= target_slice_bytes.max(1) && left_bytes >= target_slice_bytes / PIECES_PER_SLICE;
        left_bytes = left_bytes.saturating_sub(piece.bytes);
        if (is_full || piece.must_begin) && piece.lower > lower {
            slices.push(KeyRange { lower, upper: Some(piece.lower.clone()) });
            (lower, bytes) = (piece.lower, 0);
        }
        bytes = bytes.saturating_add(piece.bytes);
    }
    slices.push(KeyRange { lower, upper: hull.upper.clone() });
    assert!(slices.iter().all(|slice| !slice.is_empty()), "{job}: a slice without keys: {slices:?}");
    assert!(
        slices.windows(2).all(|pair| pair[0].upper.as_ref() == Some(&pair[1].lower)),
        "{job}: a gap between slices: {slices:?}"
    );
    assert!(
        slices.first().is_some_and(|first| first.lower == hull.lower)
            && slices.last().is_some_and(|last| last.upper == hull.upper),
        "{job}: the slices do not reach over the inputs, {hull}: {slices:?}"
    );
    slices
}

/// Part of an input, or a position where a slice has to begin.
struct Piece {
    lower: Bytes,
    bytes: u64,
    must_begin: bool,
}

/// Slice boundaries at the tables of the target run that are not inputs.
fn bystanders(job: &CompactionJob, version: &Version, hull: &KeyRange) -> Vec<Piece> {
    let Target::Existing(id) = job.target_run else { return Vec::new() };
    let Some(run) = version.level(job.target_level).iter().find(|run| run.id == id) else {
        return Vec::new();
    };
    let merged: std::collections::HashSet<TableId> =
        job.inputs.iter().filter(|input| input.run == id).flat_map(|input| input.tables.clone()).collect();
    run.overlapping(hull)
        .iter()
        .filter(|table| !merged.contains(&table.meta.id))
        .map(|table| Piece { lower: table.range.lower.clone(), bytes: 0, must_begin: true })
        .collect()
}

/// The edit of one finished slice, for the tree at that time (all earlier slices recorded). `live`
/// estimates the bytes of a table in a range. `consumed` are the values to which the entries of the
/// slice refer: a narrowed table has its others left.
pub fn slice_edit(
    keyspace: KeyspaceId,
    version: &Version,
    job: &CompactionJob,
    slice: &KeyRange,
    (outputs, consumed): (Vec<TableUse>, &ConsumedValues),
    output_run: OutputRun,
    live: &dyn Fn(&TableUse, &KeyRange) -> u64,
) -> VersionEdit {
    assert!(
        outputs.iter().all(|output| slice.covers(&output.range)),
        "{job}: an output of the slice {slice} has keys outside: {outputs:?}"
    );
    let mut changes = Vec::new();
    for (level, run, use_) in job.uses(version) {
        let (run, table) = (run.id, use_.meta.id);
        debug_assert!(
            slice.lower <= use_.range.lower || !use_.range.overlaps(slice),
            "{job}: the slice {slice} begins within table {table}, {}",
            use_.range
        );
        match &slice.upper {
            Some(end) if use_.range.is_above(end) => {
                if use_.range.lower < *end {
                    let range = KeyRange { lower: end.clone(), upper: use_.range.upper.clone() };
                    let live_bytes = live(use_, &range);
                    let values = consumed.rest(run, table, &use_.values);
                    changes.push(Change::Narrow { level, run, table, range, live_bytes, values });
                }
            }
            _ => changes.push(Change::Remove { level, run, table }),
        }
    }
    changes.extend(outputs.into_iter().map(|table| joining(job, output_run, table)));
    VersionEdit { keyspace, changes }
}

/// The edit of a trivial move ([`CompactionJob::is_trivial_move`]): the tables change runs
/// unchanged.
pub fn move_edit(
    keyspace: KeyspaceId,
    version: &Version,
    job: &CompactionJob,
    output_run: OutputRun,
) -> VersionEdit {
    debug_assert!(
        job.uses(version).iter().all(|(_, run, _)| run.id != output_run.run),
        "{job}: a table moves into the run that it is in"
    );
    let mut changes = Vec::new();
    for (level, run, table) in job.uses(version) {
        changes.push(Change::Remove { level, run: run.id, table: table.meta.id });
        changes.push(joining(job, output_run, table.clone()));
    }
    VersionEdit { keyspace, changes }
}

fn joining(job: &CompactionJob, output_run: OutputRun, table: TableUse) -> Change {
    debug_assert!(
        job.target_run == Target::New || job.target_run == Target::Existing(output_run.run),
        "{job}: an output joins run {}",
        output_run.run
    );
    Change::Add { level: job.target_level, run: output_run.run, age: output_run.age, table }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::policy::job::{CompactionInput, Reason};
    use shamba_key::{Age, RunId};
    use shamba_table::ValueFileId;

    fn job(inputs: &[(u32, u64, &[u64])], target_level: u32, target_run: Target) -> CompactionJob {
        let input = |&(level, run, tables): &(u32, u64, &[u64])| CompactionInput {
            level,
            run: RunId(run),
            tables: tables.iter().map(|id| TableId(*id)).collect(),
        };
        CompactionJob {
            inputs: inputs.iter().map(input).collect(),
            target_level,
            target_run,
            reason: Reason::Manual,
        }
    }

    fn cut(job: &CompactionJob, tree: &Version, slice_bytes: u64, keys: &'static [&'static str]) -> String {
        let split_keys =
            |_: &TableUse, _| keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
        let slices = slices(job, tree, slice_bytes, &split_keys);
        slices.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn slices_end_where_enough_bytes_have_gathered() {
        let tree: Version = "L0: r2@2[2:a..z 40]\nL1: r1@1[1:c..m 20, 3:m.. 20]\n".parse().expect("notation");
        let job = job(&[(0, 2, &[2]), (1, 1, &[1, 3])], 1, Target::Existing(RunId(1)));
        assert_eq!(cut(&job, &tree, 1000, &[]), "a..");
        assert_eq!(cut(&job, &tree, 30, &[]), "a..c c..");
        assert_eq!(cut(&job, &tree, 30, &["b", "d", "h", "p"]), "a..d d..p p..");
        assert_eq!(cut(&job, &tree, 0, &["z", "zz"]), "a..c c..m m..z z..zz zz..");
    }

    #[test]
    fn a_small_rest_makes_no_slice() {
        let tree: Version = "L0: r2@2[2:a..z 80]\n".parse().expect("notation");
        let job = job(&[(0, 2, &[2])], 1, Target::New);
        let keys = &["c", "d", "e", "f", "g", "h", "i", "j", "k"];
        assert_eq!(cut(&job, &tree, 48, keys), "a..h h..z");
        assert_eq!(cut(&job, &tree, 64, keys), "a..j j..z");
        assert_eq!(cut(&job, &tree, 70, keys), "a..z", "an eighth of a slice is left");
    }

    #[test]
    fn no_slice_reaches_over_a_table_that_stays() {
        let tree: Version =
            "L0: r2@2[2:a..c 1, 4:x..z 1]\nL1: r1@1[1:b..d 1, 3:m..n 1]\n".parse().expect("notation");
        let job = job(&[(0, 2, &[2, 4]), (1, 1, &[1])], 1, Target::Existing(RunId(1)));
        assert_eq!(cut(&job, &tree, 1000, &[]), "a..m m..z");
    }

    #[test]
    fn a_finished_slice_takes_its_keys_from_all_inputs() {
        let tree: Version = "L0: r2@2[2:a..z 40]\nL1: r1@1[1:c..m 20, 3:m.. 20]\n".parse().expect("notation");
        let job = job(&[(0, 2, &[2]), (1, 1, &[1, 3])], 1, Target::Existing(RunId(1)));
        let output_run = job.output_run(&tree, RunId(9), Age(9)).expect("the target is there");
        let edit = |tree: &Version, slice: &str, output: &str| {
            let outputs = vec![output.parse().expect("notation")];
            let slice = slice.parse().expect("notation");
            let built = (outputs, &ConsumedValues::default());
            slice_edit(KeyspaceId(0), tree, &job, &slice, built, output_run, &|_, _| 7)
        };
        let after = tree.apply(&edit(&tree, "a..m", "11:a..k 50")).expect("a good edit");
        assert_eq!(
            after.to_string(),
            "L0: r2@2[000002:m..z of a..z 7 of 40]\nL1: r1@1[000011:a..k 50, 000003:m.. 20]\n"
        );
        assert_eq!(after.check(), Ok(()));
        let after = after.apply(&edit(&after, "m..", "12:n.. 30")).expect("a good edit");
        assert_eq!(after.to_string(), "L1: r1@1[000011:a..k 50, 000012:n.. 30]\n");
    }

    #[test]
    fn a_narrowed_input_has_the_values_left_that_the_slice_did_not_take() {
        let text = "L0: r2@2[2:a..z 40 val=31:4:400 val=32:1:90]\nL1: r1@1[1:c..m 20 val=31:3:50, 3:m.. 20]\n\
                    V: 000031 1128 n=10, 000032 228 n=1\n";
        let tree: Version = text.parse().expect("notation");
        let job = job(&[(0, 2, &[2]), (1, 1, &[1, 3])], 1, Target::Existing(RunId(1)));
        let output_run = job.output_run(&tree, RunId(9), Age(9)).expect("the target is there");
        let mut consumed = ConsumedValues::default();
        for (run, table, file, bytes) in [(2, 2, 31, 100), (2, 2, 32, 90), (2, 2, 31, 120), (1, 1, 31, 50)] {
            consumed.add(RunId(run), TableId(table), ValueFileId(file), bytes);
        }
        let slice = "a..m".parse().expect("notation");
        let built = (vec!["11:a..k 50".parse().expect("notation")], &consumed);
        let edit = slice_edit(KeyspaceId(0), &tree, &job, &slice, built, output_run, &|_, _| 7);
        let after = tree.apply(&edit).expect("a good edit");
        assert_eq!(
            after.to_string(),
            "L0: r2@2[000002:m..z of a..z 7 of 40 val=31:2:180 of 4:400 val=32:0:0 of 1:90]\n\
             L1: r1@1[000011:a..k 50, 000003:m.. 20]\nV: 000031 1128 n=10, 000032 228 n=1\n"
        );
    }
}
