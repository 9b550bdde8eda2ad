//! Memory and work that hostile bytes may cause: a decoder allocates at most their own size plus
//! [`BEYOND_INPUT_BYTES`], whatever lengths they claim. Opens, reads, a check and a repair of a
//! database make at most a number of calls to the file system that is in proportion to its bytes,
//! and no scan goes on for ever: the targets count both (`tests/src/fuzz/steps.rs`).
//!
//! The test runs the targets, mutations and corpora of the suite `fuzz` serially, with an allocator
//! that records the peak. It runs in a child process, because all checksums are equal in it (as in
//! that suite). It is the only test there, because the allocator counts the bytes of all threads.
//! Databases are in memory there: copies of the small files around the hostile one, and the results
//! of a repair, count as well.
//!
//! `SHAMBA_FUZZ` multiplies the number of mutations, `SHAMBA_SEED` selects others. Not here: the
//! targets (`tests/src/fuzz.rs`).

use std::process::{Command, Stdio};

use fastrand::Rng;
use peak_alloc::PeakAlloc;
use shamba_tests::fuzz::{self, TARGETS, Target, corpus, make_checksums_equal, mutated, seeds};
use shamba_tests::runner::caught;
use shamba_tests::seed::{self, mixed};
use shamba_tests::tally::Tally;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const CHILD: &str = "SHAMBA_HOSTILE_MEMORY_CHILD";
/// Maximum allocation besides the input (row 16 of `docs/results/reliability.md`): the budget of
/// the database is 4 MiB of it.
const BEYOND_INPUT_BYTES: usize = 16 << 20;
/// Fraction of the mutations of suite `fuzz` that run here: this test has one thread.
const ONE_IN: u64 = 4;

/// Peak allocation while `target` processes `bytes`, minus the bytes themselves and the allocation
/// before.
fn beyond_input(target: &Target, bytes: &[u8]) -> Result<usize, String> {
    ALLOCATED.reset_peak_usage();
    let before = ALLOCATED.current_usage();
    caught(|| {
        target.run(bytes);
        Ok(())
    })?;
    let beyond = ALLOCATED.peak_usage().saturating_sub(before).saturating_sub(bytes.len());
    if beyond <= BEYOND_INPUT_BYTES {
        return Ok(beyond);
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Err(format!("{beyond} bytes were allocated for an input of {}:\n{hex}", bytes.len()))
}

/// The child's body; a test that does nothing unless started by the parent.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    assert!(make_checksums_equal(), "nothing would get behind the checksums");
    let base = seed::base(0xa110c);
    let times = seed::number("SHAMBA_FUZZ").unwrap_or(1);
    let mut tally = Tally::default();
    for (number, target) in TARGETS.iter().enumerate().filter(|(_, target)| target.is_decoder) {
        let (seeds, mut rng) = (seeds(target), Rng::with_seed(mixed(base, number as u64)));
        // Data that is built once, at the first use, does not count for an input.
        target.run(&seeds[0]);
        let count = (target.in_ci / ONE_IN).max(40) * times;
        let made = (0..count).map(|_| {
            let (from, other) = (&seeds[rng.usize(..seeds.len())], &seeds[rng.usize(..seeds.len())]);
            mutated(from, other, &mut rng)
        });
        for bytes in corpus(target).into_iter().map(|(_, bytes)| bytes).chain(made) {
            let beyond = beyond_input(target, &bytes);
            let beyond = beyond.unwrap_or_else(|error| panic!("{}, seed {base}: {error}", target.name));
            let steps = fuzz::take_maxima();
            tally.add("inputs", 1);
            tally.raise("max percent of the limit of calls", steps.calls_percent);
            tally.raise(&format!("max calls, {}", target.name), steps.calls);
            tally.raise("max entries of a scan", steps.entries);
            tally.raise("max KiB beyond the input", beyond as u64 >> 10);
            tally.raise(&format!("max KiB beyond the input, {}", target.name), beyond as u64 >> 10);
        }
    }
    // Opening a database takes memory and calls, so counters that count nothing are detected.
    tally.require(&[
        ("inputs", 50_000),
        ("max KiB beyond the input", 64),
        ("max calls, log", 100),
        ("max calls, manifest", 100),
        ("max calls, table", 100),
        ("max calls, values", 100),
        ("max calls, table-file", 3),
        ("max entries of a scan", 20),
    ]);
    tally.tell("hostile-memory", "suite I, memory");
}

#[test]
fn hostile_bytes_cause_neither_much_memory_nor_many_calls() {
    if !cfg!(debug_assertions) || std::env::var_os(CHILD).is_some() {
        return;
    }
    let output = Command::new(std::env::current_exe().expect("a test knows its own binary"))
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .output()
        .expect("the test binary starts");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let errors: Vec<&str> = errors.lines().filter(|line| !line.starts_with("  ")).collect();
    let last = errors[errors.len().saturating_sub(20)..].join("\n");
    assert!(output.status.success(), "{}\n{said}\n{last}", output.status);
    assert!(said.contains("inputs"), "nothing was run:\n{said}");
    print!("{said}");
}
