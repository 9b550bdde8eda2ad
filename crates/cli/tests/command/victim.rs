//! Suites F and M, in short form: the real binary is killed at any moment, and runs with failing
//! system calls, on a full disk, and with few file descriptors. The long forms are `cargo xtask
//! kill`, `syscalls` and `scarce`.

use std::path::Path;

use shamba_tests::seed;
use shamba_tests::tally::Tally;
use shamba_tests::victim::{kill, place, scarce, syscalls};

const KILLS: u64 = 24;
/// Points of each sweep. Primes, so that they hit calls of every kind.
const POINTS: [u64; 3] = [3, 29, 131];

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_shamba"))
}

#[test]
fn acknowledged_commits_survive_kills() {
    let place = place("kill").expect("a place");
    let seed = seed::base(0xf0);
    let tally =
        kill::cycles(binary(), place.path(), seed, KILLS).unwrap_or_else(|violation| panic!("{violation}"));
    println!("suite F, seed {seed}: {KILLS} kills\n{tally}");
    tally.require(&[("kills", KILLS), ("commits acknowledged", 5_000), ("looks that recovered", 2)]);
}

#[test]
fn faults_at_system_calls_are_reported_and_lose_nothing() {
    if let Err(reason) = syscalls::tracer() {
        println!("skipped: {reason}");
        return;
    }
    let place = place("syscalls").expect("a place");
    let seed = seed::base(0xf1);
    let mut total = Tally::default();
    for sweep in syscalls::sweeps() {
        let swept = sweep.run(binary(), place.path(), seed, &POINTS, POINTS[2]);
        total.merge(&swept.unwrap_or_else(|violation| panic!("{violation}")));
    }
    println!("suite F, seed {seed}: faults at system calls\n{total}");
    total.require(&[("points reached", 40), ("outcome: killed", 10), ("hit: a log", 8), ("hit: a table", 8)]);
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space_again() {
    let disk = match scarce::SmallDisk::mount() {
        Ok(disk) => disk,
        Err(reason) => {
            println!("skipped: {reason}");
            return;
        }
    };
    let tally = scarce::full_disk(binary(), &disk, 2).unwrap_or_else(|violation| panic!("{violation}"));
    println!("suite M, a full disk\n{tally}");
    tally.require(&[("writes refused with NoSpace", 20), ("reads while the disk was full", 100)]);
}

#[test]
fn sixty_four_descriptors_are_enough() {
    let place = place("few").expect("a place");
    let tally = scarce::few_descriptors(binary(), place.path(), 64);
    let tally = tally.unwrap_or_else(|violation| panic!("{violation}"));
    println!("suite M, 64 descriptors\n{tally}");
    tally.require(&[("max tables with few descriptors", 80)]);
}
