//! Script tests of scheduling, and tests of claims.
//!
//! One file of `tests/data/schedule` each; `UPDATE_EXPECT=1` rewrites the expected output. A step
//! is a command, its input lines, a line `----`, and its output, up to a blank line:
//!
//! - `design POLICY T=4 buffer=100 [trigger=1] [K=3] [Z=1] [sizing=auto] [drain=1] [long=BYTES]`
//! - `tree`, the tree as input in the notation of versions; running jobs stay. Prints the scores of
//!   the levels and, for each running job, what is wrong with it, if anything
//! - `running`, jobs as input in the notation of jobs, without reasons: claims them; prints spans
//! - `next [slots=1] [sealed=0] [flushing=0] [quiet=US]`: prints the jobs to begin, with scores
//! - `start`: claims the jobs of the last `next`
//! - `install JOB upto=KEY`, `end JOB`: the job has installed its slices up to the key, or all;
//!   prints the spans
//! - `request full`, `request filters=1,2 [awaited=1] [passed=0]`

mod orders;

use std::fmt::Write;

use bytes::Bytes;
use expect_test::{ExpectFile, expect_file};
use shamba_model::{Design, MergePolicy, Sizing};
use shamba_table::TableId;

use super::score::raw_score;
use super::*;
use crate::compaction::policy::{CompactionInput, CompactionJob, Reason, Rules, Target};
use crate::compaction::script::run_script;
use crate::version::Version;
use shamba_key::{Age, KeyspaceId, RunId};

fn check(file: &ExpectFile) {
    let mut world = World::new();
    run_script(file, |command, input| world.act(command, input));
}

struct World {
    rules: Rules,
    version: Version,
    claims: Claims,
    requests: Vec<JobRequest>,
    next: Vec<NextJob>,
    last_id: u64,
}

impl World {
    fn new() -> Self {
        Self {
            rules: Rules::manual(Design::new(MergePolicy::Leveling, 4.0, 100, 0.0), 1),
            version: Version::empty(),
            claims: Claims::default(),
            requests: Vec::new(),
            next: Vec::new(),
            last_id: 900,
        }
    }

    fn act(&mut self, command: &str, input: &str) -> Result<String, String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let (name, words) = words.split_first().ok_or("no command")?;
        match *name {
            "design" => self.set_design(words),
            "tree" => {
                self.version = input.parse()?;
                self.version.check()?;
                Ok(self.scores())
            }
            "running" => {
                for line in input.lines() {
                    self.claim(job(line)?, 1.0)?;
                }
                Ok(self.spans())
            }
            "next" => {
                let tree = TreeSituation {
                    keyspace: KeyspaceId(0),
                    version: &self.version,
                    rules: self.rules,
                    claims: &self.claims,
                    requests: &self.requests,
                    triggers: &Triggers::default(),
                    is_automatic: true,
                };
                self.next = next_jobs(&Situation {
                    sealed: option(words, "sealed").map_or(Ok(0), number)?,
                    flushing: option(words, "flushing").map_or(Ok(0), number)?,
                    quiet_us: option(words, "quiet").map_or(Ok(0), number)?,
                    trees: &[tree],
                    slots: option(words, "slots").map_or(Ok(1), number)?,
                });
                let line = |next: &NextJob| match &next.work {
                    Work::Flush => "a flush".to_owned(),
                    Work::Compaction(_, job) => format!("{:.2}: {job}", next.score),
                };
                let lines: Vec<_> = self.next.iter().map(line).collect();
                Ok(if lines.is_empty() { "nothing".to_owned() } else { lines.join("\n") })
            }
            "start" => {
                for next in std::mem::take(&mut self.next) {
                    if let Work::Compaction(_, job) = next.work {
                        self.claim(job, next.score)?;
                    }
                }
                Ok(self.spans())
            }
            "install" => {
                let job = number(words.first().ok_or("which job?")?)?;
                let end = option(words, "upto").ok_or("up to which key?")?;
                self.claims.install(job, Some(&Bytes::copy_from_slice(end.as_bytes())));
                Ok(self.spans())
            }
            "end" => {
                self.claims.release(number(words.first().ok_or("which job?")?)?);
                Ok(self.spans())
            }
            "request" => {
                let kind = match option(words, "filters") {
                    None => RequestKind::Full,
                    Some(tables) => RequestKind::Filters {
                        tables: tables
                            .split(',')
                            .map(|table| number(table).map(TableId))
                            .collect::<Result<_, _>>()?,
                        job_bytes: 1_000,
                        is_awaited: option(words, "awaited").is_some(),
                    },
                };
                let passed_over = option(words, "passed").map_or(Ok(0), number)?;
                self.requests.push(JobRequest { kind, passed_over });
                Ok(format!("{} pending", self.requests.len()))
            }
            _ => Err(format!("unknown command {name:?}")),
        }
    }

    fn set_design(&mut self, words: &[&str]) -> Result<String, String> {
        let policy: MergePolicy = words.first().ok_or("a design begins with its policy")?.parse()?;
        let size_ratio = option(words, "T").map_or(Ok(4.0), number)?;
        let buffer_bytes = option(words, "buffer").map_or(Ok(100), number)?;
        let mut design = Design::new(policy, size_ratio, buffer_bytes, 0.0);
        design.inner_runs = option(words, "K").map_or(Ok(design.inner_runs), number)?;
        design.last_runs = option(words, "Z").map_or(Ok(design.last_runs), number)?;
        self.rules = Rules::manual(design, option(words, "trigger").map_or(Ok(1), number)?);
        self.rules.sizing = option(words, "sizing").map_or(Ok(Sizing::Manual), str::parse)?;
        self.rules.is_draining = option(words, "drain").is_some();
        self.rules.long_bytes = option(words, "long").map_or(Ok(u64::MAX), number)?;
        Ok(format!("T={size_ratio} K={} Z={}", design.inner_runs, design.last_runs))
    }

    fn claim(&mut self, job: CompactionJob, score: f64) -> Result<(), String> {
        self.last_id += 1;
        let fresh = (RunId(self.last_id), Age(self.last_id));
        self.claims.claim(&self.version, job, fresh, score).map(|_| ()).map_err(|why| why.to_string())
    }

    fn scores(&self) -> String {
        let capacities = self.rules.capacities(&self.version);
        let score = |level| raw_score(&self.version, &self.rules, &capacities, level);
        let levels = self.version.levels().filter(|(_, runs)| !runs.is_empty());
        let mut out =
            levels.map(|(level, _)| format!("L{level} {:.2}", score(level))).collect::<Vec<_>>().join(", ");
        for claim in self.claims.iter() {
            if let Err(why) = claim.check(&self.version) {
                write!(out, "\njob {}: {why}", claim.number()).expect("a string grows");
            }
        }
        out
    }

    fn spans(&self) -> String {
        let line =
            |claim: &Claim| format!("{}: {}, run {}", claim.number(), claim.span(), claim.output().run);
        let lines: Vec<_> = self.claims.iter().map(line).collect();
        if lines.is_empty() { "nothing runs".to_owned() } else { lines.join("\n") }
    }
}

/// Parses a job as it is printed, without its reason.
fn job(text: &str) -> Result<CompactionJob, String> {
    let (inputs, target) = text.split_once(" -> ").ok_or("a job is written inputs -> target")?;
    let level_and_run = |text: &str| -> Result<(u32, Option<RunId>), String> {
        let text = text.strip_prefix('L').ok_or("a level begins with L")?;
        match text.split_once(".r") {
            Some((level, run)) => Ok((number(level)?, Some(RunId(number(run)?)))),
            None => Ok((number(text.trim_end_matches(", new run"))?, None)),
        }
    };
    let input = |text: &str| -> Result<CompactionInput, String> {
        let (head, tables) = text.trim().split_once('[').ok_or("an input has tables in brackets")?;
        let (level, run) = level_and_run(head)?;
        let tables = tables.trim_end_matches(']').split(',').map(|table| number(table.trim()).map(TableId));
        Ok(CompactionInput {
            level,
            run: run.ok_or("an input has a run")?,
            tables: tables.collect::<Result<_, _>>()?,
        })
    };
    let (target_level, run) = level_and_run(target.trim())?;
    Ok(CompactionJob {
        inputs: inputs.split(" + ").map(input).collect::<Result<_, _>>()?,
        target_level,
        target_run: run.map_or(Target::New, Target::Existing),
        reason: Reason::Manual,
    })
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
                env!("CARGO_MANIFEST_DIR"), "/tests/data/schedule/", stringify!($name), ".txt"
            )]);
        }
    )*};
}

scripts!(leveling tiering level_0 requests claims);
