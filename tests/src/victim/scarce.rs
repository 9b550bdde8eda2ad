//! Suite M on the real binary: a full disk, and few file descriptors.
//!
//! The disk is a `tmpfs` of a few mebibytes in a separate mount namespace, which a child process
//! holds until it ends; the parent accesses it through `/proc/PID/root`. A ballast file fills the
//! space that the database does not use. Where such a disk cannot be mounted the suite reports
//! that.
//!
//! Not here: a slow disk and memory under overload (`tests/tests/suites/scarce.rs`, `shamba-lab
//! check overload`).

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::oracle::{Change, SPACES, State};
use crate::tally::Tally;
use crate::victim::book::{Book, Outcome, Sent};
use crate::victim::life::{End, Victim};
use crate::victim::options::Options;
use crate::victim::script::{Ask, Mix, Script};

/// Size of the disk.
const DISK_BYTES: u64 = 8 << 20;

/// Interval between attempts of a write after space was freed.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// Maximum number of failed attempts until writes have resumed by themselves: the longest back-off,
/// twice. Attempts are counted instead of time, because none are made while the machine is
/// suspended.
const TRIES_MAX: u32 = 250;

/// A small disk, unmounted when this value is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    holder: Child,
    root: PathBuf,
}

impl SmallDisk {
    /// Mounts a small disk.
    ///
    /// # Errors
    /// The reason why this is not possible here.
    pub fn mount() -> Result<Self, String> {
        // `mktemp` first: the mount must not hide existing files.
        let script = format!(
            "set -e; d=$(mktemp -d); mount -t tmpfs -o size={DISK_BYTES} shamba \"$d\"; echo \"$d\"; read -r end"
        );
        let mut holder = Command::new("unshare")
            .args(["-r", "-m", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let read = holder.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let mounted = line.trim();
        if !matches!(read, Some(Ok(_))) || mounted.is_empty() {
            let _ = holder.wait();
            return Err("no tmpfs can be mounted here".to_owned());
        }
        let root = PathBuf::from(format!("/proc/{}/root{mounted}", holder.id()));
        let disk = Self { holder, root };
        if fs::read_dir(&disk.root).is_err() {
            return Err("what another process has mounted cannot be reached here".to_owned());
        }
        Ok(disk)
    }

    /// A path on the disk.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Fills up to `bytes`, or all free space if there is less.
    fn fill(&self, bytes: u64) -> Result<u64, String> {
        let path = self.path("ballast");
        let failed = |error| format!("{}: {error}", path.display());
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&path).map_err(failed)?;
        let chunk = [0; 4096];
        let mut taken = 0;
        while taken < bytes && file.write_all(&chunk).is_ok() {
            taken += chunk.len() as u64;
        }
        Ok(taken)
    }

    /// Frees the space that [`Self::fill`] took, except for `kept_bytes`.
    ///
    /// It truncates the file instead of removing it. A process that another test is starting has
    /// the file open until it executes its program, and the space of a removed file is freed only
    /// then.
    fn relieve(&self, kept_bytes: u64) -> Result<(), String> {
        let path = self.path("ballast");
        let file = fs::OpenOptions::new().write(true).open(&path);
        let cut = file.and_then(|file| file.set_len(kept_bytes));
        cut.map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // At the end of its input the holder ends, and the mount with it.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A victim with one request and one reply at a time.
struct Talk {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Its error output, read all the time: a victim that has much to warn of would wait for a
    /// reader once the pipe is full.
    said: Option<JoinHandle<String>>,
}

impl Talk {
    fn begin(victim: &Victim, arguments: &[&str]) -> Result<Self, String> {
        let spawned = victim.command("batch", arguments).spawn();
        let mut child = spawned.map_err(|error| format!("the victim does not start: {error}"))?;
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(mut stderr)) => {
                let said = std::thread::spawn(move || {
                    let mut said = Vec::new();
                    let _ = stderr.read_to_end(&mut said);
                    String::from_utf8_lossy(&said).into_owned()
                });
                Ok(Self { child, stdin, stdout: BufReader::new(stdout), said: Some(said) })
            }
            _ => Err("the victim has no pipes".to_owned()),
        }
    }

    fn say(&mut self, line: &str) -> Result<String, String> {
        let asked = writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush());
        let mut reply = String::new();
        asked
            .and_then(|()| self.stdout.read_line(&mut reply))
            .map_err(|error| format!("{line:?}: {error}"))?;
        if reply.pop() == Some('\n') {
            return Ok(reply);
        }
        Err(format!("no reply to {:?}; it said: {}", &line[..line.len().min(40)], all_of(&mut self.said)?))
    }

    /// Ends its input; returns its exit code and its error output.
    fn end(self) -> Result<(Option<i32>, String), String> {
        let Self { mut child, stdin, stdout, mut said } = self;
        drop((stdin, stdout));
        let status = child.wait().map_err(|error| format!("waiting: {error}"))?;
        Ok((status.code(), all_of(&mut said)?))
    }

    fn kill(mut self) -> Result<(), String> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(|error| format!("kill: {error}"))
    }
}

/// The error output of a victim that has ended or is about to.
fn all_of(said: &mut Option<JoinHandle<String>>) -> Result<String, String> {
    let said = said.take().map(JoinHandle::join).transpose();
    said.map(Option::unwrap_or_default).map_err(|_| "reading what the victim said".to_owned())
}

/// Puts from a seed, one at a time, and their outcomes.
struct Puts {
    sent: Vec<Sent>,
    value_bytes: usize,
    /// The reply to the last refused one.
    refusal: String,
}

impl Puts {
    /// Makes the next put; returns whether there was space.
    fn put(&mut self, talk: &mut Talk) -> Result<bool, String> {
        let number = self.sent.len();
        let (key, value) =
            (format!("k{number:07}"), format!("{number:x}.{}", "v".repeat(self.value_bytes + number % 97)));
        let reply = talk.say(&format!("put {key} {value}"))?;
        // No other error is allowed: writes resume by themselves when there is space, also if the
        // manifest had none.
        let is_done = reply == "ok";
        if !is_done && !reply.starts_with("err NoSpace ") {
            return Err(format!("put {key} gave {reply:?}"));
        }
        if !is_done {
            self.refusal = reply;
        }
        let outcome = if is_done { Outcome::Acked } else { Outcome::Unknown };
        let change = Change::Put { space: 0, key: key.into_bytes(), value: value.into_bytes() };
        self.sent.push(Sent { changes: vec![change], outcome });
        Ok(is_done)
    }

    /// Reads some of the puts: acknowledged ones are present, refused ones are absent.
    fn read(&self, talk: &mut Talk, every: usize) -> Result<u64, String> {
        let mut read = 0;
        let last = self.sent.len().saturating_sub(1);
        for sent in self.sent.iter().step_by(every).chain(self.sent.get(last)) {
            let [Change::Put { key, value, .. }] = sent.changes.as_slice() else { continue };
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            let want = match sent.outcome {
                Outcome::Acked => format!("value {}", text(value)),
                _ => "none".to_owned(),
            };
            let answer = talk.say(&format!("get {}", text(key)))?;
            if answer != want {
                let shown = |text: &str| crate::ops::shown(text.as_bytes());
                return Err(format!("get {} gave {}, not {}", text(key), shown(&answer), shown(&want)));
            }
            read += 1;
        }
        Ok(read)
    }
}

/// A database on a disk that fills up repeatedly, under each of several sets of options. Writes
/// fail with `NoSpace`, reads continue, writes resume by themselves, and acknowledged writes are
/// present after a kill or a close.
///
/// # Errors
/// The first violation.
pub fn full_disk(binary: &Path, disk: &SmallDisk, rounds: u32) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let ways: [&[&str]; 4] = [
        // The log reaches the end of the disk first,
        &["--sync", "never", "--write-buffer", "64KiB", "--memory-budget", "8MiB"],
        &["--sync", "always", "--write-buffer", "64KiB", "--policy", "tiering", "--size-ratio", "4"],
        // or a flush does, or a compaction.
        &["--sync", "never", "--write-buffer", "512KiB", "--compression", "lz4", "--file-size", "64KiB"],
        &["--sync", "50", "--write-buffer", "8KiB", "--size-ratio", "2", "--file-size", "16KiB"],
    ];
    for round in 0..rounds {
        let way = ways[round as usize % ways.len()];
        let told = |error: String| format!("full disk, round {round}, {}: {error}", way.join(" "));
        full_once(binary, disk, way, round, &mut tally).map_err(told)?;
    }
    Ok(tally)
}

fn full_once(
    binary: &Path,
    disk: &SmallDisk,
    way: &[&str],
    round: u32,
    tally: &mut Tally,
) -> Result<(), String> {
    let db = disk.path("db");
    let victim = Victim { binary: binary.to_path_buf(), db: db.clone(), through: Vec::new() };
    let mut talk = Talk::begin(&victim, way)?;
    let mut puts = Puts { sent: Vec::new(), value_bytes: 300, refusal: String::new() };
    for _ in 0..200 * (round + 1) {
        puts.put(&mut talk)?;
    }
    for fullness in 0..3 {
        // First a completely full disk, later one with some space, so that writes make some
        // progress.
        let left = if fullness == 0 { 0 } else { 200 << 10 };
        let taken = disk.fill(DISK_BYTES)?;
        if left > 0 {
            disk.relieve(taken.saturating_sub(left))?;
        }
        let begun = puts.sent.len();
        let mut refused = 0;
        while refused < 5 {
            refused += u64::from(!puts.put(&mut talk)?);
            if puts.sent.len() - begun > 60_000 {
                return Err("the disk is full and writes go on".to_owned());
            }
        }
        tally.add("writes refused with NoSpace", refused);
        tally.add("reads while the disk was full", puts.read(&mut talk, 37)?);
        disk.relieve(0)?;
        let relieved = Instant::now();
        // The first writes may succeed before the pending flush is retried, and later ones fail
        // because of it.
        let (mut in_a_row, mut failed) = (0, 0);
        while in_a_row < 300 {
            if puts.put(&mut talk)? {
                in_a_row += 1;
                continue;
            }
            in_a_row = 0;
            failed += 1;
            if failed > TRIES_MAX {
                let (waited, told) = (relieved.elapsed(), &puts.refusal);
                let state = state_of(&db);
                return Err(format!("there is space for {waited:?} and writes still fail: {told}; {state}"));
            }
            std::thread::sleep(TRY_EVERY);
        }
        tally.raise("max ms until writes resumed", relieved.elapsed().as_millis() as u64);
        tally.add("reads after writes resumed", puts.read(&mut talk, 53)?);
    }
    if round.is_multiple_of(2) {
        talk.kill()?;
    } else {
        let (code, said) = talk.end()?;
        if code != Some(6) || said.contains("panicked") {
            return Err(format!("its end, with {code:?}, is not that of its first error: {said}"));
        }
    }
    let mut book = Book::new();
    let found = victim.look()?;
    book.reconcile(&puts.sent, puts.sent.len(), &found)?;
    let recovered = victim.recover()?;
    if recovered != found {
        return Err("recovery found another state than a look before it".to_owned());
    }
    let acked = puts.sent.iter().filter(|sent| sent.outcome == Outcome::Acked).count();
    tally.add("commits acknowledged", acked as u64);
    tally.add("rounds on a full disk", 1);
    fs::remove_dir_all(&db).map_err(|error| format!("{}: {error}", db.display()))
}

/// Files and last events of a database that makes no progress, for the failure report.
fn state_of(db: &Path) -> String {
    let files = fs::read_dir(db).into_iter().flatten().flatten().map(|file| {
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        format!("{} {bytes}", file.file_name().to_string_lossy())
    });
    let events = fs::read_to_string(db.join("LOG")).unwrap_or_default();
    let first = events.lines().count().saturating_sub(40);
    let events: Vec<&str> = events.lines().skip(first).collect();
    format!("files: {}; last events:\n{}", files.collect::<Vec<_>>().join(", "), events.join("\n"))
}

/// A tree with many more tables than the process may have files open.
///
/// # Errors
/// The first violation.
pub fn few_descriptors(binary: &Path, dir: &Path, descriptors: u32) -> Result<Tally, String> {
    let limit = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    let through = ["sh", "-c", &limit].map(std::ffi::OsString::from).to_vec();
    let victim = Victim { binary: binary.to_path_buf(), db: dir.join("few"), through };
    let (mut tally, mut book) = (Tally::default(), Book::new());
    let mix = Mix { keys: 4_000, large_one_in: 2_000, flush_every: 300, compact_per_mille: 0, ..Mix::USUAL };
    // The second life has value files, too, which count among the open files.
    for (life, (policy, threshold)) in [("tiering", "off"), ("leveling", "64")].into_iter().enumerate() {
        let options = Options::fixed(&[
            "--policy",
            policy,
            "--value-threshold",
            threshold,
            "--file-size",
            "4KiB",
            "--write-buffer",
            "16KiB",
            "--memory-budget",
            "16MiB",
            "--background-threads",
            "4",
        ]);
        let asks = Script::new(life as u64, life as u64, mix).asks(6_000);
        let ended = victim.live(&book, &options, &asks, End::Input)?;
        if let Some((kind, text)) = ended.errors.first() {
            return Err(format!("{descriptors} descriptors: it answered {kind}: {text}"));
        }
        if !ended.status.success() {
            return Err(format!(
                "{descriptors} descriptors: it ended with {}: {}",
                ended.status, ended.stderr
            ));
        }
        book.reconcile(&ended.sent, ended.floor, &victim.look()?)?;
        // Reads of everything, during which tables are opened and closed all the time.
        let asks = gets(book.state());
        let ended = victim.live(&book, &Options::fixed(&[]), &asks, End::Input)?;
        if let Some((kind, text)) = ended.errors.first() {
            return Err(format!("{descriptors} descriptors: a read answered {kind}: {text}"));
        }
        tally.add("reads with few descriptors", ended.replies as u64);
    }
    let names = fs::read_dir(&victim.db).map_err(|error| format!("{}: {error}", victim.db.display()))?;
    let is_table = |name: &fs::DirEntry| name.path().extension().is_some_and(|extension| extension == "sst");
    tally.raise("max tables with few descriptors", names.flatten().filter(is_table).count() as u64);
    Ok(tally)
}

fn gets(state: &State) -> Vec<Ask> {
    let of = |(space, name): (usize, &&str)| {
        let keys = state.get(*name).into_iter().flat_map(|pairs| pairs.keys());
        keys.map(|key| Ask::Get { space, key: key.clone() }).collect::<Vec<_>>()
    };
    SPACES.iter().enumerate().flat_map(of).collect()
}
