//! Tasks of the project: `cargo xtask check` is the whole gate, `cargo xtask tidy` checks the house
//! rules.
//!
//! `cargo xtask fpr-table` and `cargo xtask membership` measure filters and print JSON. `cargo
//! xtask kill`, `syscalls` and `scarce` inject faults into runs of the real binary.
//!
//! Uses the standard library and the filters' crate, so that it builds in seconds. Not here: the
//! suites (`tests/`), the experiments (`lab/`).

mod check;
mod copy;
mod filters;
mod fuzz;
mod layers;
mod minimal;
mod mutants;
mod overview;
mod peers;
mod planted;
mod quick;
mod reliability;
mod resident;
mod targets;
mod tidy;
mod user_crate;
mod victim;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND
  check   the whole gate: tests, format, lints, docs, tidy
  quick   the inner loop, under a minute after a small change: format, tidy, unit tests, a handful of the suites;
          prints what it skipped
  tidy    the house rules: file headers and lengths, forbidden calls and words, order of crates
  minimal-versions
          compiles the published packages with the oldest version of each dependency that their manifests allow; needs a
          nightly toolchain
  user-crate [--native] [--resolve-only] [--keep]
          makes crates outside of the workspace that depend on shamba: one beside the newest versions of popular crates, which
          is resolved, one with tokio, serde, fjall and redb, which is run, one for the oldest Rust; --native adds RocksDB
          (a C++ compiler and libclang); --keep leaves them
  targets
          compiles the library for each platform whose standard library is installed, and names those that are unchecked
  planted [--write | --check] [NAME...]
          applies each patch of tests/planted, an injected defect, to a copy of the sources in target/planted, and fails
          where a test that its header names does not fail within 15 s; prints a JSON object each; --write keeps the
          seconds in the headers and in docs/results/planted.md; --check compiles nothing: every patch applies, and its tests exist
  mutants [--file GLOB]... [--only TEXT] [--jobs N] [--seconds N] [--again]
          changes one place of the sources after another, as `cargo mutants --list` (cargo install cargo-mutants) names them,
          and runs the tests that reach it; all changes are in one build; without --file: the writers, the log, the catalog,
          recovery, the tree's versions and memtables; prints what no test noticed; goes on where the last run ended;
          --again tries those again; --only those whose name has this text; --seconds for each mutant (120)
  reliability [--full | --only STEP,STEP...] [--from DIR [--counted]] [--write] [--json]
          runs the suites and prints what each reaches beside its target; --full adds the kills, the failing system calls,
          the full disk, crashes three deep, pairs of faults, RocksDB, overload, reopens, a soak, the planted defects and every fuzz target for 30 s; --only runs these steps alone. Each step
          leaves one file, in target/reliability, in DIR (--from; steps that have one there already are added), or, with --write, in
          docs/results/raw/reliability, from which --write also writes docs/results/reliability.md; --counted runs nothing
  fuzz TARGET...|all [--seconds N] [--keep]
          decoders, users' files, lives that bytes tell, each for N seconds (60) under libFuzzer, guided by coverage; needs a C++
          compiler; inputs that reach new code go to fuzz/corpus/TARGET, with --keep a few of them to tests/data/fuzz/TARGET
  peers [--only PEER,PEER... | --only none] run|table|differential|engines [OPTIONS]
          compares Shamba with RocksDB, LevelDB, fjall, redb and LMDB: the same workloads, tables, pictures; or the same
          trace to RocksDB, answers compared; needs a C++ compiler, cmake and libclang (lab/peers/README.md); --only
          builds fewer engines; run --write or table --write publishes docs/results/peers.md
  resident [--seconds N] [--only WORD]...
          resident memory beyond budgets of 8, 64 and 512 MiB with small keys and the largest, under the system's allocator,
          mimalloc and jemalloc (lab/allocators), each process in a control group that kills it beyond the stated bound, where
          Linux lets this user make one; --only those with this allocator, budget or kind of keys; --seconds for each phase (5)
  overview [--write]
          the picture of the README, drawn from docs/results/raw/peers; without --write fails if it differs
  fpr-table [--quick] [--seed N]
          measures false-positive rates again; fails where the checked-in table differs by more than chance
  fpr-table --write
          measures them and writes the table
  membership [CHECKS] [--seed N]
          asks filters for keys that they hold, 100 million times; fails on a denial
  kill [--cycles N] [--seed N] [--release]
          the real binary killed at any moment, 300 times; fails where anything acknowledged is lost, or half there
  syscalls [--points N] [--only N] [--sweep WORD] [--seed N] [--release]
          the real binary with an error, or a kill, at its n-th system call, n from 1 to 500, over logs, tables and the
          manifest; needs strace, and says so where there is none
  scarce [--rounds N] [--release]
          the real binary on a disk of 8 MiB, and with 64 file descriptors
  soak [--seconds N | --hours N] [--seed N] [--only N] [--release]
          faults, kills of the real binary and threads beside one another, with options drawn anew for each life; tells each
          life's seed before it begins, and stops at the first violation with the command that runs that life again
  steady [--seconds N | --hours N] [--seed N] [--release]
          one database with all features under the same load: compared with models, at the end and all the time; memory,
          descriptors and files must not grow";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let command = std::env::args().nth(1);
    let result = match command.as_deref() {
        Some("check") => check::run(),
        Some("quick") => quick::run(),
        Some("overview") => overview::run(&arguments),
        Some("tidy") => tidy::run(),
        Some("minimal-versions") => minimal::run(&arguments),
        Some("user-crate") => user_crate::run(&arguments),
        Some("targets") => targets::run(),
        Some("mutants") => mutants::run(&arguments),
        Some("planted") => planted::run(&arguments),
        Some("reliability") => reliability::run(&arguments),
        Some("resident") => resident::run(&arguments),
        Some("fuzz") => fuzz::run(&arguments),
        Some("peers") => peers::run(&arguments),
        Some("fpr-table") => filters::fpr_table(&arguments),
        Some("membership") => filters::membership(&arguments),
        Some(name @ ("kill" | "syscalls" | "scarce" | "soak" | "steady")) => victim::run(name, &arguments),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
