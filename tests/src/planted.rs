//! Suite O: the tests that detect the injected defects, and how to run one of them.
//!
//! [`ask`] runs one test in a separate process, with a defect activated through the environment
//! ([`shamba::planted::VARIABLE`]). The test must fail by one of its checks: a crash of the
//! process, a hang, or the name of a missing test do not count. Long tests run a small part of
//! themselves when the variable is set. So they are also run with `none`, and must then pass.
//!
//! `cargo xtask planted` runs the whole list, CI a few of it. Not here: the defects
//! ([`shamba::planted`]), the table of results (`docs/results/planted.md`).

use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shamba::planted::{Defect, VARIABLE};

/// Maximum run time of a killer.
pub const LIMIT: Duration = Duration::from_secs(15);

/// Whether this process is run for a defect (or for `none`): a suite then runs a small part of
/// itself.
pub fn is_asked() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// A defect and the test that detects it.
#[derive(Clone, Copy, Debug)]
pub struct Killer {
    /// The defect.
    pub defect: Defect,
    /// The test binary, as cargo names it: `suites`, or that of a crate.
    pub binary: &'static str,
    /// The test, as the harness names it.
    pub test: &'static str,
    /// The one vector that suffices, if the test has vectors.
    pub vector: Option<u32>,
}

impl Killer {
    /// Binary and test, and the vector if there is one.
    pub fn label(&self) -> String {
        match self.vector {
            None => format!("{}: {}", self.binary, self.test),
            Some(vector) => format!("{}: {}, vector {vector}", self.binary, self.test),
        }
    }
}

/// The result of a test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed; with the first line of its failure message.
    Failed(String),
    /// It was still running after [`LIMIT`].
    TimedOut,
    /// Any other result: no such test, a signal.
    Broken(String),
}

/// Runs the killer's test in `executable` with `defect`, or with none.
///
/// # Errors
/// The process could not be started.
pub fn ask(
    executable: &Path,
    killer: &Killer,
    defect: Option<Defect>,
    limit: Duration,
) -> std::io::Result<(Verdict, Duration)> {
    let mut said = tempfile::tempfile()?;
    let mut command = Command::new(executable);
    command.args([killer.test, "--exact", "--nocapture"]).env(VARIABLE, defect.map_or("none", Defect::name));
    // The tallies of a partial run must not count as those of the suite.
    command.env_remove("SHAMBA_TALLIES");
    match killer.vector {
        Some(vector) => command.env("SHAMBA_VECTOR", vector.to_string()),
        None => command.env_remove("SHAMBA_VECTOR"),
    };
    // Into a file: no reader is needed while the test runs.
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?);
    let begin = Instant::now();
    let mut child = command.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begin.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok((Verdict::TimedOut, begin.elapsed()));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = begin.elapsed();
    let mut bytes = Vec::new();
    said.rewind()?;
    said.read_to_end(&mut bytes)?;
    Ok((verdict(status.code(), &String::from_utf8_lossy(&bytes)), took))
}

/// Interprets the harness's exit status and output.
fn verdict(code: Option<i32>, said: &str) -> Verdict {
    let has_one = said.contains("running 1 test");
    match code {
        _ if !has_one => Verdict::Broken("there is no such test".to_owned()),
        Some(0) => Verdict::Passed,
        // The harness's status for "a test failed"; a signal, an abort or an exit have another.
        Some(101) if said.contains("test result: FAILED. 0 passed; 1 failed") => {
            Verdict::Failed(reason(said))
        }
        code => Verdict::Broken(format!("it ended with status {code:?}")),
    }
}

/// The first line of the last panic, which is the test's own, or of the error that it returned.
fn reason(said: &str) -> String {
    let panicked =
        said.rfind("panicked at ").and_then(|at| said.get(at..)).and_then(|rest| rest.split_once('\n'));
    let line = match panicked {
        Some((_, message)) => message.lines().find(|line| !line.trim().is_empty()),
        None => said.lines().find(|line| line.starts_with("Error: ")),
    };
    line.unwrap_or("it said nothing").trim().chars().take(160).collect()
}

macro_rules! killers {
    ($($defect:ident: $binary:literal $test:literal $(, $vector:literal)?;)*) => {
        /// Each defect once, in the order of [`Defect::ALL`].
        pub const KILLERS: &[Killer] = &[$(Killer {
            defect: Defect::$defect,
            binary: $binary,
            test: $test,
            vector: killers!(@vector $($vector)?),
        },)*];
    };
    (@vector) => { None };
    (@vector $vector:literal) => { Some($vector) };
}

killers! {
    SecondHash: "suites" "hash_sharing::one_hash_a_lookup";
    AckBeforeSync: "suites" "crash::every_crash_leaves_a_legal_state";
    IntervalForgotten: "suites" "crash::interval_writes_are_durable_in_time";
    AppendErrorSwallowed: "suites" "faults::every_call_fails_once";
    AppendAfterTornTail: "shamba_log" "wal::tests::writing::a_failed_append_seals_and_cuts_and_another_log_may_follow";
    FsyncRetried: "shamba_log" "wal::tests::writing::a_failed_sync_is_never_retried";
    DirectorySyncRetried: "suites" "fault_then_crash::every_call_fails_and_then_the_power";
    SealedLogUnsynced: "suites" "crash_threads::crashes_of_overlapping_work_leave_a_legal_state";
    LogNameUnsynced: "suites" "crash::every_crash_leaves_a_legal_state";
    PromiseAhead: "shamba_log" "framing::tests::a_promise_is_repeated_in_every_sector_once_there_is_one";
    PromiseIgnored: "suites" "corruption::every_byte_flipped_and_every_length_cut";
    TailRefused: "suites" "crash::every_crash_leaves_a_legal_state";
    LookAheadSkipped: "suites" "corruption::every_byte_flipped_and_every_length_cut";
    RecycledRecord: "shamba_log" "framing::frame::tests::a_frame_round_trips_only_at_its_place_and_every_flip_is_noticed";
    LogNumberUnchecked: "shamba_log" "framing::header::tests::a_header_round_trips_and_knows_its_file";
    JointUnchecked: "shamba_log" "wal::tests::damage::every_length";
    TailCopyPromises: "suites" "crash::every_crash_leaves_a_legal_state";
    TailCopyUnsynced: "suites" "crash::every_crash_leaves_a_legal_state";
    TailCopyShort: "small_tables" "two_thousand_sessions_of_one_small_key_leave_few_tables";
    SequenceGap: "shamba_log" "wal::tests::chain::a_gap_in_the_sequence_needs_an_explanation";
    ReadErrorEndsLog: "shamba_log" "wal::tests::chain::a_read_error_is_never_the_end_of_the_log";
    BatchSplitInLog: "suites" "crash::every_crash_leaves_a_legal_state";
    FollowerAcked: "shamba" "write::queue::tests::every_writer_of_a_group_that_failed_is_told";
    HalfBatchVisible: "suites" "concurrency::sums_hold_under_leveling";
    VisibleLate: "suites" "linear::of_leveling";
    WritesAfterFailure: "failures" "no_write_is_taken_after_a_failed_sync";
    CurrentUnsynced: "suites" "crash::every_crash_leaves_a_legal_state";
    ManifestUnsynced: "suites" "crash::every_crash_leaves_a_legal_state";
    EditUnsynced: "suites" "crash::every_crash_leaves_a_legal_state";
    EditPromiseIgnored: "shamba_tree" "version::manifest::tests::damage::every_flipped_byte_of_a_manifest";
    ManifestUnlinkedEarly: "suites" "crash::every_crash_leaves_a_legal_state";
    TablesUnlinkedEarly: "suites" "crash::every_crash_leaves_a_legal_state";
    TableUnsynced: "suites" "crash::every_crash_leaves_a_legal_state";
    TableNamesUnsynced: "suites" "crash::every_crash_leaves_a_legal_state";
    LeftOversKept: "suites" "crash::every_crash_leaves_a_legal_state";
    TableUnlinkedWhileRead: "shamba" "obsolete::tests::a_table_stays_while_a_view_refers_to_it";
    ValuesUnlinkedWhileRead: "shamba" "obsolete::tests::a_log_stays_while_a_memtable_refers_to_it";
    RefusedTablesKept: "shamba" "background::tests::tables_that_a_close_forestalls_are_removed";
    FlushForgetsRangeDeletes: "suites" "model::operations_against_the_oracle";
    FlushForgetsKeyspaces: "suites" "model::operations_against_the_oracle";
    FailedFlushDone: "suites" "faults::every_call_fails_once";
    IgnoreSnapshots: "suites" "model::operations_against_the_oracle";
    DropTombstones: "suites" "model::operations_against_the_oracle";
    MergeForgetsRangeDeletes: "suites" "model::operations_against_the_oracle";
    RangeDeleteIgnoresSnapshots: "suites" "model::operations_against_the_oracle";
    ReadErrorEndsInput: "failures" "a_read_error_in_the_middle_of_a_merge_loses_nothing";
    KeySplitOverTables: "suites" "model::operations_against_the_oracle";
    OutputUnverified: "shamba_table" "tests::written::a_changed_byte_of_a_block_or_value_is_found";
    SlicesOutOfOrder: "shamba" "compaction::plan::tests::results_come_in_order_whoever_finishes_first";
    SliceOverBystander: "suites" "model::operations_against_the_oracle";
    SliceBoundaryLost: "suites" "model::operations_against_the_oracle";
    BesideTakesInputs: "shamba_tree" "compaction::policy::concurrent::tests::beside_a_long_merge_the_upper_levels_are_a_tree_of_their_own";
    RedesignUnrecorded: "redesign" "a_design_is_in_force_at_once_and_recorded";
    FilterWithoutLastKey: "suites" "membership::no_key_is_denied_whatever_is_in_memory";
    ChecksumWithoutFile: "shamba_table" "tests::damage::a_swapped_file_and_another_way_of_hashing_are_refused";
    ChecksumWithoutPlace: "shamba_table" "tests::damage::a_block_in_another_place_does_not_pass";
    ChecksumConstant: "shamba_table" "checksum::tests::the_file_the_place_and_every_bit_count";
    FenceOffByOne: "suites" "model::operations_against_the_oracle";
    NeighbourPrefix: "suites" "model::operations_against_the_oracle";
    SequenceCut: "suites" "model::operations_against_the_oracle";
    FirstTagOnly: "suites" "model::operations_against_the_oracle";
    ChunkUnchecked: "shamba_table" "values::tests::a_damaged_chunk_is_named_and_those_around_it_are_still_read";
    ModuleMisplaced: "suites" "membership::no_key_is_denied_whatever_is_in_memory";
    AbsentModuleDenies: "suites" "membership::no_key_is_denied_whatever_is_in_memory";
    DamagedSliceDenies: "shamba_table" "tests::damage::every_flipped_byte_is_harmless_to_answers_and_always_found";
    CacheNumberReused: "shamba_table" "tests::files::tables_that_share_a_small_cache_never_get_each_others_blocks";
    FiltersUncharged: "memory" "memtables_and_filters_are_charged_for_what_they_hold";
    MemtablesUncharged: "memory" "memtables_and_filters_are_charged_for_what_they_hold";
    IndexMissesEntry: "suites" "model::operations_against_the_oracle";
    VersionFromFuture: "suites" "model::operations_against_the_oracle";
    RangeDeleteFromFuture: "suites" "model::operations_against_the_oracle";
    RunRangeDeletesUnseen: "suites" "model::operations_against_the_oracle";
    ErrorAsNotFound: "failures" "a_failed_read_is_an_error_however_a_key_is_looked_up";
    MultiGetWithoutFloor: "suites" "model::operations_against_the_oracle";
    MultiGetStopsEarly: "suites" "model::operations_against_the_oracle";
    TurnWithoutSeek: "shamba_tree" "iter::merge::tests::random_walks_agree_with_a_sorted_vector";
    UpperBoundIncluded: "suites" "model::operations_against_the_oracle";
    MemtableSwitchMissed: "suites" "model::operations_against_the_oracle";
    GrownMemtableMissed: "suites" "model::operations_against_the_oracle";
    RevokedIteratorMovesOn: "suites" "model::operations_against_the_oracle";
    KeyGivenTwice: "suites" "model::operations_against_the_oracle";
    PrefixWithoutCarry: "shamba" "key_range::tests::prefixes_carry_over_trailing_ff";
    SnapshotReleasedEarly: "suites" "model::operations_against_the_oracle";
    CheckpointForgetsMemory: "suites" "model::operations_against_the_oracle";
    CheckpointNameUnsynced: "suites" "crash::a_checkpoint_survives_a_power_cut";
    DropUnsynced: "failures" "a_dropped_keyspace_takes_no_earlier_write_along";
    SecondOpener: "suites" "concurrency::a_second_opener_is_locked_out";
    NewerFeature: "suites" "bad_input::unknown_required_features_are_refused_and_nothing_is_changed";
    ReadOnlyCleansUp: "suites" "bad_input::a_read_only_database_never_writes";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_check_counts() {
        let said = "running 1 test\nthread 'a' panicked at x.rs:1:2:\ncaught\nthread 'b' panicked at y.rs:3:4:\nthe \
                    check\nnote: run with\ntest result: FAILED. 0 passed; 1 failed; 0 ignored";
        assert_eq!(verdict(Some(101), said), Verdict::Failed("the check".to_owned()));
        assert_eq!(verdict(Some(0), "running 1 test\n"), Verdict::Passed);
        for (code, said) in
            [(Some(0), "running 0 tests"), (None, said), (Some(134), said), (Some(101), "running 1 test")]
        {
            assert!(matches!(verdict(code, said), Verdict::Broken(_)), "{code:?}");
        }
        let returned = "running 1 test\nError: Error { kind: Io }\ntest result: FAILED. 0 passed; 1 failed;";
        assert_eq!(verdict(Some(101), returned), Verdict::Failed("Error: Error { kind: Io }".to_owned()));
    }

    #[test]
    fn each_defect_has_a_killer_in_its_place() {
        let killers: Vec<Defect> = KILLERS.iter().map(|killer| killer.defect).collect();
        assert_eq!(killers, Defect::ALL);
    }
}
