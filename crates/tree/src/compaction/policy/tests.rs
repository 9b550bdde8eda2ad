//! Script tests of the policy: each script defines a tree, acts on it and expects text.
//!
//! One file of `tests/data/policy` each; `UPDATE_EXPECT=1` rewrites the expected output. A step is
//! a command, its input lines, a line `----`, and its output, up to a blank line:
//!
//! - `design POLICY T=4 buffer=100 [trigger=2] [K=3] [Z=1] [sizing=auto] [drain=1]`; a design is
//!   manual unless it says otherwise
//! - `tree`, the tree as input in the notation: prints its violation, or its levels, bytes and debt
//! - `pick`, `full`: the job, checked
//! - `run [slice=100] [stop=1]`: carries out the last job, in slices of `slice` bytes and at most
//!   `stop` of them; prints the tree
//! - `slices slice=100`: the slices of the last job
//! - `run_due_jobs [slice=100]`: jobs until there is none, and the tree, whose shape is checked
//! - `capacities`: of the levels of this tree, and the target level of level 0
//!
//! The simulated compactions keep every byte, and a narrowed table keeps half of its bytes.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use expect_test::{ExpectFile, expect_file};
use shamba_key::SeqNo;
use shamba_model::{Design, MergePolicy, Sizing};
use shamba_table::{BirthId, TableId};

use super::job::{CompactionInput, Reason, Target};
use super::*;
use crate::compaction::script::run_script;
use crate::version::{ConsumedValues, KeyRange, TableMeta, TableUse, Version};
use shamba_key::{Age, KeyspaceId, RunId};

/// Upper bound of the jobs that settling takes in any script.
const JOBS_MAX: usize = 200;

fn check(file: &ExpectFile) {
    let mut world = World::new();
    run_script(file, |command, input| world.act(command, input));
}

struct World {
    rules: Rules,
    version: Version,
    job: Option<CompactionJob>,
    last_id: u64,
}

impl World {
    fn new() -> Self {
        let design = Design::new(MergePolicy::Leveling, 4.0, 100, 0.0);
        Self { rules: Rules::manual(design, 1), version: Version::empty(), job: None, last_id: 900 }
    }

    fn act(&mut self, command: &str, input: &str) -> Result<String, String> {
        let mut words = command.split_whitespace();
        let name = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        match name {
            "design" => self.set_design(&words),
            "tree" => {
                self.version = input.parse()?;
                self.job = None;
                self.version.check()?;
                Ok(self.summary())
            }
            "pick" => {
                self.job = pick(&self.version, &self.rules);
                self.describe_job()
            }
            "full" => {
                self.job = pick_full(&self.version, &self.rules);
                self.describe_job()
            }
            "run" => {
                let stop = option(&words, "stop").map_or(Ok(u64::MAX), number)?;
                self.carry_out(slice_bytes(&words)?, stop)?;
                Ok(self.version.to_string())
            }
            "slices" => {
                let job = self.job.as_ref().ok_or("no job")?;
                let slices = slices(job, &self.version, slice_bytes(&words)?, &|_, _| Vec::new());
                Ok(slices.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
            }
            "settle" => self.run_due_jobs(slice_bytes(&words)?),
            "capacities" => {
                let arrival = self.rules.arrival_level(&self.version, &self.rules.capacities(&self.version));
                let levels = self.capacities(&self.version, self.version.deepest_level().max(1));
                Ok(format!("{levels}; the inbox goes to L{arrival}"))
            }
            _ => Err(format!("unknown command {name:?}")),
        }
    }

    fn set_design(&mut self, words: &[&str]) -> Result<String, String> {
        let policy: MergePolicy = words.first().ok_or("a design begins with its policy")?.parse()?;
        let size_ratio = option(words, "T").map_or(Ok(4.0), number)?;
        let mut design =
            Design::new(policy, size_ratio, option(words, "buffer").map_or(Ok(100), number)?, 0.0);
        if let Some(runs) = option(words, "K") {
            design.inner_runs = number(runs)?;
        }
        if let Some(runs) = option(words, "Z") {
            design.last_runs = number(runs)?;
        }
        self.rules = Rules::manual(design, option(words, "trigger").map_or(Ok(1), number)?);
        self.rules.sizing = option(words, "sizing").map_or(Ok(Sizing::Manual), str::parse)?;
        self.rules.is_draining = option(words, "drain").is_some();
        self.rules.expired_ms = option(words, "expired").map_or(Ok(0), number)?;
        let Design { size_ratio, inner_runs, last_runs, .. } = design;
        Ok(format!(
            "T={size_ratio} K={inner_runs} Z={last_runs}, capacities: {}",
            self.capacities(&Version::empty(), 4)
        ))
    }

    /// Capacities of levels 1 to `last` of a tree.
    fn capacities(&self, version: &Version, last: u32) -> String {
        let capacities = self.rules.capacities(version);
        let level = |level| match capacities.is_closed(level) {
            true => format!("L{level} closed"),
            false => format!("L{level} {}", capacities.level_bytes(level)),
        };
        (1..=last).map(level).collect::<Vec<_>>().join(", ")
    }

    fn summary(&self) -> String {
        let debt = debt_bytes(&self.version, &self.rules);
        let levels: Vec<_> = self
            .version
            .levels()
            .filter(|(_, runs)| !runs.is_empty())
            .map(|(level, runs)| format!("L{level} {}/{}", self.version.level_bytes(level), runs.len()))
            .collect();
        format!("bytes/runs: {}; debt {debt}", levels.join(", "))
    }

    fn describe_job(&self) -> Result<String, String> {
        let Some(job) = &self.job else { return Ok("nothing to do".to_owned()) };
        job.check(&self.version)?;
        let how = if job.is_trivial_move(&self.version) { "a move" } else { "a merge" };
        Ok(format!("{job}\n{how} of {} bytes", job.input_bytes(&self.version)))
    }

    fn run_due_jobs(&mut self, slice_bytes: u64) -> Result<String, String> {
        let mut out = String::new();
        for _ in 0..JOBS_MAX {
            self.job = pick(&self.version, &self.rules);
            writeln!(out, "{}", self.describe_job()?.replace("\na ", ": a "))
                .map_err(|error| error.to_string())?;
            if self.job.is_none() {
                self.rules.check_shape(&self.version)?;
                return Ok(format!("{out}{}", self.version));
            }
            self.carry_out(slice_bytes, u64::MAX)?;
        }
        Err("the policy does not end".to_owned())
    }

    /// Simulates the last job, up to `stop` slices of it.
    fn carry_out(&mut self, slice_bytes: u64, stop: u64) -> Result<(), String> {
        let job = self.job.take().ok_or("no job")?;
        let fresh = self.next_id();
        let output_run = job.output_run(&self.version, RunId(fresh), Age(fresh))?;
        if job.is_trivial_move(&self.version) {
            return self.apply(&move_edit(KeyspaceId(0), &self.version, &job, output_run));
        }
        let slices = slices(&job, &self.version, slice_bytes, &|_, _| Vec::new());
        for slice in slices.iter().take(usize::try_from(stop).unwrap_or(usize::MAX)) {
            let output = self.merged(&job, slice);
            let built = (vec![output], &ConsumedValues::default());
            let edit = slice_edit(KeyspaceId(0), &self.version, &job, slice, built, output_run, &half);
            self.apply(&edit)?;
        }
        Ok(())
    }

    fn apply(&mut self, edit: &crate::version::VersionEdit) -> Result<(), String> {
        self.version = self.version.apply(edit)?;
        self.version.check()
    }

    /// One table with every byte of the slice.
    fn merged(&mut self, job: &CompactionJob, slice: &KeyRange) -> TableUse {
        let id = TableId(self.next_id());
        let mut range: Option<KeyRange> = None;
        let mut bytes = 0;
        for (_, _, table) in job.uses(&self.version) {
            let Some(part) = table.range.intersection(slice) else { continue };
            let left =
                KeyRange { lower: slice.upper.clone().unwrap_or_default(), upper: table.range.upper.clone() };
            let goes_on = slice.upper.as_ref().is_some_and(|end| table.range.is_above(end));
            bytes += table.live_bytes - if goes_on { half(table, &left) } else { 0 };
            range = Some(range.map_or_else(|| part.clone(), |range| range.hull(&part)));
        }
        let range = range.expect("a slice has input");
        let meta = TableMeta {
            id,
            birth: BirthId(0),
            file_bytes: bytes,
            entries: 0,
            deletes: 0,
            range_deletes: 0,
            smallest: range.lower,
            upper: range.upper,
            smallest_seq: SeqNo::ZERO,
            largest_seq: SeqNo::ZERO,
            bits_per_key: 0.0,
            reader: Default::default(),
            oldest_tombstone: Default::default(),
            older_versions: Default::default(),
            expiring: Default::default(),
            values: Default::default(),
            statistics: Default::default(),
        };
        TableUse::whole(Arc::new(meta))
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

fn half(table: &TableUse, _: &KeyRange) -> u64 {
    table.live_bytes / 2
}

fn slice_bytes(words: &[&str]) -> Result<u64, String> {
    option(words, "slice").map_or(Ok(u64::MAX), number)
}

fn option<'w>(words: &[&'w str], name: &str) -> Option<&'w str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("not a number: {text:?}"))
}

macro_rules! scripts {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            check(&expect_file![concat!(
                env!("CARGO_MANIFEST_DIR"), "/tests/data/policy/", stringify!($name), ".txt"
            )]);
        }
    )*};
}

scripts!(leveling tiering lazy_leveling new_design half_done full order auto);

/// Checks refuse jobs that no policy makes.
#[test]
fn jobs_that_would_break_lookup_order_are_refused() {
    let tree: Version = "L0: r9@9[9:a..f 1] r8@8[8:c..k 1]\n\
                         L1: r7@7[7:b..d 1, 17:e..g 1] r6@6[6:a..z 1]\n\
                         L2: r5@5[5:a..e 1, 15:e..z 1]\n"
        .parse()
        .expect("notation");
    let job = |inputs: &[(u32, u64, &[u64])], target_level, target_run| {
        let inputs = inputs
            .iter()
            .map(|&(level, run, tables)| {
                let tables = tables.iter().map(|id| TableId(*id)).collect();
                CompactionInput { level, run: RunId(run), tables }
            })
            .collect();
        CompactionJob { inputs, target_level, target_run, reason: Reason::Manual }.check(&tree)
    };
    let existing = |run| Target::Existing(RunId(run));
    assert_eq!(job(&[(0, 9, &[9]), (0, 8, &[8])], 1, Target::New), Ok(()));
    assert_eq!(job(&[(0, 9, &[9]), (0, 8, &[8]), (1, 7, &[7, 17])], 1, existing(7)), Ok(()));
    assert_eq!(job(&[(1, 6, &[6]), (2, 5, &[5, 15])], 2, existing(5)), Ok(()));
    assert_eq!(job(&[(1, 6, &[6])], 2, Target::New), Ok(()));
    for (result, why) in [
        (
            job(&[(0, 9, &[9])], 1, Target::New),
            "table 000009 would pass table 000008 of run 8, which shares keys with it",
        ),
        (
            job(&[(0, 9, &[9]), (0, 8, &[8]), (1, 7, &[7])], 1, existing(7)),
            "table 000009 would pass table 000017 of run 7, which shares keys with it",
        ),
        (
            job(&[(1, 7, &[7]), (2, 5, &[5])], 2, existing(5)),
            "table 000007 would pass table 000006 of run 6, which shares keys with it",
        ),
        (job(&[(0, 8, &[8]), (0, 9, &[9])], 1, Target::New), "run 9 is out of order among the inputs"),
        (job(&[(2, 5, &[5])], 1, Target::New), "run 5 would move up from level 2"),
        (job(&[(0, 7, &[7])], 1, Target::New), "level 0 has no run 7"),
        (job(&[(1, 7, &[6])], 2, Target::New), "run 7 has no table 000006"),
        (job(&[(1, 7, &[])], 2, Target::New), "no table of run 7 is an input"),
        (job(&[], 1, Target::New), "no inputs"),
        (job(&[(0, 9, &[9])], 0, Target::New), "a compaction cannot make a run of level 0"),
        (job(&[(0, 9, &[9])], 1, existing(5)), "the target, run 5, is not on level 1"),
    ] {
        assert_eq!(result.unwrap_err(), why);
    }
}

/// Older tables count only if they are not inputs themselves.
#[test]
fn tombstones_may_go_where_nothing_older_is() {
    let tree: Version = "L0: r9@9[9:a..z 1]\nL1: r7@7[7:b..d 1] r6@6[6:e..g 1]\nL2: r5@5[5:k..m 1]\n"
        .parse()
        .expect("notation");
    let input = |level, run, table| CompactionInput { level, run: RunId(run), tables: vec![TableId(table)] };
    let job = CompactionJob {
        inputs: vec![input(0, 9, 9), input(1, 7, 7)],
        target_level: 1,
        target_run: Target::Existing(RunId(7)),
        reason: Reason::Level0,
    };
    let below = |range: &str| -> Vec<String> {
        let ranges = job.below(&tree, &range.parse().expect("a range"));
        ranges.iter().map(ToString::to_string).collect()
    };
    for range in ["a..e", "g..k", "m.."] {
        assert_eq!(below(range), [] as [&str; 0]);
    }
    assert_eq!(below("a..f"), ["e..g"]);
    assert_eq!(below("l..l\\x00"), ["k..m"]);
    assert_eq!(below(".."), ["e..g", "k..m"]);
}

#[test]
fn a_key_between_slices_is_bytes() {
    // Split keys of a table need not be keys in it: any byte string inside its range works.
    let tree: Version = "L0: r9@9[9:a..z 100]\n".parse().expect("notation");
    let job = pick(&tree, &Rules::manual(Design::default(), 1)).expect("the inbox is full");
    let outside = |_: &TableUse, _| vec![Bytes::from_static(b"\xff"), Bytes::new(), Bytes::from_static(b"a")];
    assert_eq!(slices(&job, &tree, 1, &outside), ["a..z".parse().expect("a range")]);
}
