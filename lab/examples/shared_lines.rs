//! Which cache lines do threads write that do the same work on one database? On many cores each
//! such write waits for the line, so operations that make several do not scale. This counts them on
//! any machine, without a timing.
//!
//! Two threads run the same operations, one after the other, on one open database. Valgrind's tool
//! `lackey` runs the process and prints every access to memory. A line that is written in both
//! threads' parts is shared, or at least lies in one line with something of the other thread (false
//! sharing). Time stands still, and the database has no background threads: their work would write
//! during both parts.
//!
//! ```text
//! cargo run --release -p shamba-lab --example shared_lines
//! ```
//!
//! It needs `valgrind`. Some minutes for all operations; an argument selects one (`get`,
//! `get-with`, `multi-get`, `scan` or `put`).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba::Db;
use shamba::env::{Env, RealFs};

const KINDS: [&str; 5] = ["get", "get-with", "multi-get", "scan", "put"];
/// Entries of the database.
const ENTRIES: u64 = 100_000;
/// Operations of a thread that are counted. Each is done before, so that its blocks are cached and
/// its memory is allocated.
const OPERATIONS: u64 = 200;
/// Lines that are written less often by one of the threads are not counted.
const WRITES_PER_OPERATION_MIN: f64 = 0.25;
const LINE_BYTES: u64 = 64;
/// Distance of the stack from the first variable of a thread's work: its lines are not shared.
const STACK_BYTES: u64 = 1 << 20;

/// Changed at the begin and the end of each thread's counted part: its address marks them.
static MARK: AtomicU64 = AtomicU64::new(0);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["traced", kind, path] => run(kind, path),
        [kind] if KINDS.contains(&kind) => report(&[kind]),
        [] => report(&KINDS),
        _ => Err(format!("usage: shared_lines [{}]", KINDS.join("|")).into()),
    }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"shared:.........";
    key[8..].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

fn report(kinds: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("db");
    let db = Db::builder(&path).memory_budget(64 << 20).open()?;
    for number in 0..ENTRIES {
        db.put(key(number), [7; 100])?;
    }
    db.flush()?;
    db.close()?;
    println!("operation   shared lines   writes to them per operation");
    for kind in kinds {
        let lines = trace(kind, &path.display().to_string())?;
        println!("{kind:<12}{:>12}{:>31.2}", lines.len(), lines.iter().fold(0.0, |sum, writes| sum + writes));
    }
    Ok(())
}

/// The writes per operation to each line that both threads write.
fn trace(kind: &str, path: &str) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes"])
        .arg(std::env::current_exe()?)
        .args(["traced", kind, path])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("valgrind: {error}"))?;
    let stderr = child.stderr.take().ok_or("no output of valgrind")?;
    let (mut mark, mut marks, mut stacks) = (0, 0, Vec::new());
    let mut written: HashMap<u64, [u64; 2]> = HashMap::new();
    for line in BufReader::new(stderr).split(b'\n') {
        let line = line?;
        let text = String::from_utf8_lossy(&line);
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        if let Some(address) = text.strip_prefix("mark ").and_then(number) {
            mark = address;
        } else if let Some(address) = text.strip_prefix("stack ").and_then(number) {
            stacks.push(address);
        } else if let Some(access) = text.strip_prefix(" S ").or_else(|| text.strip_prefix(" M ")) {
            let address = access.split(',').next().and_then(number).unwrap_or(0);
            if address == mark {
                marks += 1;
            } else if marks == 1 || marks == 3 {
                written.entry(address / LINE_BYTES).or_default()[marks / 2] += 1;
            }
        }
    }
    if !child.wait()?.success() || marks != 4 {
        return Err(format!("the traced process of {kind} failed, or its {marks} marks are not 4").into());
    }
    let is_stack = |line: u64| stacks.iter().any(|stack| stack.abs_diff(line * LINE_BYTES) < STACK_BYTES);
    let per_operation = |writes: u64| writes as f64 / OPERATIONS as f64;
    let mut shared = Vec::new();
    for (line, [first, second]) in written {
        let least = per_operation(first.min(second));
        if least >= WRITES_PER_OPERATION_MIN && !is_stack(line) {
            shared.push(least);
        }
    }
    Ok(shared)
}

/// The traced process.
fn run(kind: &str, path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let env = Env::deterministic(Arc::new(RealFs), 1);
    let db = Db::builder(path).env(env).memory_budget(256 << 20).open()?;
    print_address("mark", std::ptr::from_ref(&MARK).addr())?;
    let turn = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|number| {
            let (db, turn) = (&db, &turn);
            scope.spawn(move || -> Result<(), String> {
                wait_until(turn, number);
                let done = work(db, kind, number * OPERATIONS);
                turn.store(number + 1, Ordering::Release);
                // While the other thread works its stack and its arena are not reused.
                wait_until(turn, 2);
                done.map_err(|error| error.to_string())
            })
        });
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })?;
    Ok(())
}

fn wait_until(turn: &AtomicU64, number: u64) {
    // Without a loop that fills the trace.
    while turn.load(Ordering::Acquire) < number {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn work(db: &Db, kind: &str, from: u64) -> Result<(), Box<dyn std::error::Error>> {
    let here = 0u8;
    print_address("stack", std::ptr::from_ref(&here).addr())?;
    for _ in 0..3 {
        operations(db, kind, from)?;
    }
    MARK.store(1, Ordering::SeqCst);
    operations(db, kind, from)?;
    MARK.store(2, Ordering::SeqCst);
    Ok(())
}

fn operations(db: &Db, kind: &str, from: u64) -> shamba::Result<()> {
    for number in from..from + OPERATIONS {
        let key = key(number);
        match kind {
            "get" => drop(db.get(key)?),
            "get-with" => drop(db.get_with(key, <[u8]>::len)?),
            "multi-get" => drop(db.multi_get([key, self::key(number + 1)])?),
            "scan" => {
                let mut cursor = db.cursor();
                let mut is_there = cursor.seek(key)?;
                for _ in 0..10 {
                    is_there = is_there && cursor.next()?;
                }
            }
            _ => db.put(key, [8; 100])?,
        }
    }
    Ok(())
}

/// Prints an address to the trace, in one write.
fn print_address(name: &str, address: usize) -> std::io::Result<()> {
    std::io::stderr().write_all(format!("\n{name} {address:x}\n").as_bytes())
}
