//! A life: one process of the victim from its start to its end, its requests and its answers.
//!
//! Lines are written as fast as the pipe accepts them, so that a kill hits the victim at work and
//! not waiting for its parent. Replies come in the order of the lines; each is matched with its
//! request, and reads are compared with the writes acknowledged before them.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use shamba::Db;

use crate::compare::{self, Spaces, failed};
use crate::oracle::{SPACES, State};
use crate::victim::book::{Book, Outcome, Sent, apply};
use crate::victim::options::{Keeps, Options};
use crate::victim::script::{self, Ask, Line};

/// Maximum duration of a life; a longer one hangs. No life needs a tenth of it.
const LIFE_MAX: Duration = Duration::from_secs(60);

/// The command, and an optional wrapper command.
#[derive(Clone, Debug)]
pub struct Victim {
    /// The binary.
    pub binary: PathBuf,
    /// The database.
    pub db: PathBuf,
    /// A wrapper command that runs the rest of its command line; empty for none.
    pub through: Vec<OsString>,
}

/// The end of a life.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// At the end of its input.
    Input,
    /// Killed at this time after its start.
    KilledAfter(Duration),
    /// Killed after this number of replies.
    KilledAtReply(usize),
}

/// The results of a life, besides the database.
#[derive(Debug)]
pub struct Ended {
    /// The commits that were requested, in order, with their outcomes.
    pub sent: Vec<Sent>,
    /// The acknowledged commits among this number of first ones must survive.
    pub floor: usize,
    /// Number of replies received.
    pub replies: usize,
    /// Kinds and texts of the errors among them.
    pub errors: Vec<(String, String)>,
    /// Exit status of the process.
    pub status: ExitStatus,
    /// Its standard error output.
    pub stderr: String,
}

impl Ended {
    /// Number of commits with this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.sent.iter().filter(|sent| sent.outcome == outcome).count()
    }

    /// Whether a signal ended it.
    pub fn is_killed(&self) -> bool {
        // A shell or a tracer in between reports it by its own exit code.
        self.status.signal() == Some(9) || self.status.code() == Some(137)
    }
}

impl Victim {
    /// Whether it is started without a wrapper.
    fn is_alone(&self) -> bool {
        self.through.is_empty()
    }

    /// A command of the victim on the database, with its arguments.
    pub fn command<S: AsRef<OsStr>>(&self, name: &str, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut words = self.through.iter().cloned().chain([self.binary.clone().into_os_string()]);
        let mut command = Command::new(words.next().expect("the binary at least"));
        let arguments: Vec<S> = arguments.into_iter().collect();
        let is_of_default = !arguments.iter().any(|argument| argument.as_ref() == "--keyspace");
        command.args(words).arg(name).arg(&self.db).args(arguments);
        if name == "batch" && is_of_default {
            // The operator of scripts; its name is recorded, so each later open needs the same.
            command.args(["--merge-operator", "shamba.append:2c"]);
        }
        // A separate process group, so that a tracer is killed together with its tracee.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command
    }

    /// Runs one life with the requests `asks`, which ends as `end` says. Reads are compared with
    /// the book and with the acknowledged commits.
    ///
    /// # Errors
    /// A wrong answer, an invalid reply, a panic, or a life that does not end.
    pub fn live(&self, book: &Book, options: &Options, asks: &[Ask], end: End) -> Result<Ended, String> {
        let lines = script::lines(asks);
        let text = lines.iter().map(|line| format!("{}\n", line.text)).collect::<String>();
        let spawned = self.command("batch", &options.arguments).spawn();
        let mut child = spawned.map_err(|error| format!("the victim does not start: {error}"))?;
        let (mut stdin, stdout, mut stderr) = pipes(&mut child)?;
        let begun = Instant::now();
        let (sender, replies) = mpsc::channel();
        let (feeding_done, input_may_end) = mpsc::channel::<()>();
        let mut answers = Answers::new(book, options.keeps, asks, &lines);
        let ended = std::thread::scope(|scope| {
            scope.spawn(move || {
                // A victim that has died stops reading; this is expected.
                let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush());
                if !matches!(end, End::Input) {
                    // The input stays open: the end of input would close the database.
                    let _ = input_may_end.recv();
                }
            });
            scope.spawn(move || {
                let mut stdout = BufReader::new(stdout);
                let mut reply = Vec::new();
                // A reply without its line end does not count.
                while stdout.read_until(b'\n', &mut reply).is_ok() && reply.pop() == Some(b'\n') {
                    if sender.send(std::mem::take(&mut reply)).is_err() {
                        return;
                    }
                }
            });
            let said = scope.spawn(move || {
                let mut text = Vec::new();
                let _ = stderr.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            });
            let outcome = attend(&mut child, self.is_alone(), &replies, begun, end, &mut answers);
            let status = child.wait().map_err(|error| format!("waiting for the victim: {error}"));
            drop(feeding_done);
            let stderr = said.join().map_err(|_| "reading what the victim said".to_owned());
            (outcome, status, stderr)
        });
        let (outcome, status, stderr) = (ended.0, ended.1?, ended.2?);
        if stderr.contains("panicked") {
            return Err(format!("the victim panicked: {stderr}"));
        }
        outcome.map_err(|error| format!("{error}; it said: {stderr}"))?;
        Ok(answers.finish(status, stderr))
    }

    /// Reads the whole database without writing a byte; a missing database is an empty one.
    ///
    /// # Errors
    /// A failed call, or a difference between two ways of reading.
    pub fn look(&self) -> Result<State, String> {
        if !self.db.join("CURRENT").exists() {
            return Ok(State::new());
        }
        let db = Db::builder(&self.db).read_only(true).open().map_err(failed("read-only open"))?;
        read_all(&Spaces::existing(db).map_err(failed("keyspace"))?)
    }

    /// Opens the database for writing, as the next victim will, reads it, verifies every byte, and
    /// closes it.
    ///
    /// # Errors
    /// A failed call, or a difference.
    pub fn recover(&self) -> Result<State, String> {
        let db = Db::builder(&self.db).open().map_err(failed("open"))?;
        let spaces = Spaces::existing(db).map_err(failed("keyspace"))?;
        let state = read_all(&spaces)?;
        let report = spaces.db.verify().map_err(failed("verify"))?;
        if let Some(problem) = report.problems.first() {
            return Err(format!("verify reports {problem:?}"));
        }
        spaces.db.clone().close().map_err(failed("close"))?;
        Ok(state)
    }
}

type Pipes = (std::process::ChildStdin, std::process::ChildStdout, std::process::ChildStderr);

fn pipes(child: &mut Child) -> Result<Pipes, String> {
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok((stdin, stdout, stderr)),
        _ => Err("the victim has no pipes".to_owned()),
    }
}

/// Receives replies until there are no more, and kills at the given time.
fn attend(
    child: &mut Child,
    is_alone: bool,
    replies: &mpsc::Receiver<Vec<u8>>,
    begun: Instant,
    end: End,
    answers: &mut Answers<'_>,
) -> Result<(), String> {
    let deadline = begun + if let End::KilledAfter(after) = end { after } else { LIFE_MAX };
    let mut is_killed = false;
    let mut outcome = Ok(());
    loop {
        let due = !is_killed
            && (Instant::now() >= deadline
                || matches!(end, End::KilledAtReply(count) if answers.replies >= count.min(answers.lines.len())));
        if due {
            kill(child, is_alone)?;
            is_killed = true;
            if matches!(end, End::Input) {
                outcome = Err(format!("it hangs: {} replies after {LIFE_MAX:?}", answers.replies));
            }
        }
        let wait = if is_killed { LIFE_MAX } else { deadline.saturating_duration_since(Instant::now()) };
        match replies.recv_timeout(wait) {
            Ok(reply) if outcome.is_ok() => outcome = answers.take(&reply),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // Its output is closed, but it may still run: a pending kill is still carried out, or its own
    // end awaited.
    while !is_killed && child.try_wait().map_err(|error| format!("waiting: {error}"))?.is_none() {
        if Instant::now() >= deadline {
            kill(child, is_alone)?;
            is_killed = true;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    outcome
}

/// Kills the victim with `kill -9`, together with its wrapper.
fn kill(child: &mut Child, is_alone: bool) -> Result<(), String> {
    let failed = |error| format!("kill: {error}");
    if is_alone {
        return child.kill().map_err(failed);
    }
    let group = format!("-{}", child.id());
    Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status().map_err(failed)?;
    Ok(())
}

/// The whole state, by a scan of each keyspace, compared with a scan back, a point read of each key
/// found, and scans of the prefixes of some of them.
fn read_all(spaces: &Spaces) -> Result<State, String> {
    /// Length of the directory of a key of [`script`].
    const PREFIX_BYTES: usize = 7;
    /// One key in this many has its directory scanned.
    const PREFIX_ONE_IN: usize = 100;
    let state = spaces.dump().map_err(failed("scan"))?;
    for (space, name) in SPACES.iter().enumerate() {
        let Some(surface) = spaces.at(space) else { continue };
        let in_space = |error: String| format!("keyspace {name}: {error}");
        let pairs = state.get(*name).into_iter().flatten().map(|(key, value)| (key.clone(), value.clone()));
        let pairs = pairs.collect::<Vec<_>>();
        for (key, value) in &pairs {
            compare::point(surface, key, Some(value)).map_err(in_space)?;
        }
        compare::scan(surface, &compare::everything(), true, &pairs).map_err(in_space)?;
        for (key, _) in pairs.iter().step_by(PREFIX_ONE_IN) {
            let prefix = &key[..key.len().min(PREFIX_BYTES)];
            let mut want = pairs.clone();
            want.retain(|(key, _)| key.starts_with(prefix));
            compare::ends(surface.scan_prefix(prefix), "a scan of a prefix", |step| step % 2 == 1, &want)
                .map_err(in_space)?;
        }
    }
    Ok(state)
}

/// Matches replies with lines.
struct Answers<'a> {
    asks: &'a [Ask],
    lines: &'a [Line],
    keeps: Keeps,
    /// The state that reads see: the acknowledged commits.
    seen: State,
    sent: Vec<Sent>,
    /// The index in `sent` of each request that is a commit.
    places: Vec<Option<usize>>,
    /// Changes whose line was refused, as (request, change).
    refused: Vec<(usize, usize)>,
    floor: usize,
    replies: usize,
    errors: Vec<(String, String)>,
}

impl<'a> Answers<'a> {
    fn new(book: &Book, keeps: Keeps, asks: &'a [Ask], lines: &'a [Line]) -> Self {
        let mut sent = Vec::new();
        let places = asks
            .iter()
            .map(|ask| match ask {
                Ask::Commit(changes) => {
                    sent.push(Sent { changes: changes.clone(), outcome: Outcome::Unanswered });
                    Some(sent.len() - 1)
                }
                _ => None,
            })
            .collect();
        Self {
            asks,
            lines,
            keeps,
            seen: book.state().clone(),
            sent,
            places,
            refused: Vec::new(),
            floor: 0,
            replies: 0,
            errors: Vec::new(),
        }
    }

    fn take(&mut self, reply: &[u8]) -> Result<(), String> {
        let reply = String::from_utf8_lossy(reply);
        let Some(line) = self.lines.get(self.replies) else {
            return Err(format!("a reply to no line: {reply:?}"));
        };
        self.replies += 1;
        let unexpected = || format!("reply {reply:?} to line {:?}", line.text);
        if let Some(error) = reply.strip_prefix("err ") {
            let (kind, text) = error.split_once(' ').ok_or_else(unexpected)?;
            self.errors.push((kind.to_owned(), text.to_owned()));
            if let Some(place) = line.queues {
                self.refused.push((line.ask, place));
            } else if let Some(place) = self.places[line.ask] {
                self.sent[place].outcome = match kind {
                    "Io" | "NoSpace" => Outcome::Unknown,
                    "ReadOnly" | "Stalled" => Outcome::Rejected,
                    _ => return Err(unexpected()),
                };
            }
            return Ok(());
        }
        match (&self.asks[line.ask], reply.as_ref()) {
            (Ask::Commit(_), "ok") if line.begins => {}
            (Ask::Commit(_), "queued") if line.queues.is_some() => {}
            (Ask::Commit(_), "ok") if line.queues.is_none() => self.acknowledged(line.ask),
            (Ask::Flush | Ask::Compact, "ok") => self.floor = self.acked_so_far(line.ask),
            (Ask::Sync, "ok") if self.keeps != Keeps::Flushed => self.floor = self.acked_so_far(line.ask),
            (Ask::Get { space, key }, answer) => {
                let want = self.seen.get(SPACES[*space]).and_then(|pairs| pairs.get(key));
                let want = want.map_or("none".into(), |value| {
                    format!("value {}", std::str::from_utf8(value).unwrap_or_default())
                });
                if answer != want {
                    let shown = |text: &str| crate::ops::shown(text.as_bytes());
                    return Err(format!(
                        "{:?} gave {}, and {} is wanted",
                        line.text,
                        shown(answer),
                        shown(&want)
                    ));
                }
            }
            _ => return Err(unexpected()),
        }
        Ok(())
    }

    /// Records that a commit was answered `ok`: it is present, and reads see it.
    fn acknowledged(&mut self, ask: usize) {
        let Some(place) = self.places[ask] else { return };
        let refused = self.refused.iter().filter(|(of, _)| *of == ask).map(|(_, place)| *place);
        let refused = refused.collect::<Vec<_>>();
        let sent = &mut self.sent[place];
        let mut number = 0;
        sent.changes.retain(|_| {
            number += 1;
            !refused.contains(&(number - 1))
        });
        sent.outcome = Outcome::Acked;
        apply(&mut self.seen, &sent.changes);
        if self.keeps == Keeps::All {
            self.floor = place + 1;
        }
    }

    /// Number of commits sent before this request.
    fn acked_so_far(&self, ask: usize) -> usize {
        self.places[..ask].iter().flatten().next_back().map_or(0, |place| place + 1)
    }

    fn finish(mut self, status: ExitStatus, stderr: String) -> Ended {
        // A victim that ends normally keeps all commits.
        if status.success() {
            self.floor = self.sent.len();
        }
        let Self { sent, floor, replies, errors, .. } = self;
        Ended { sent, floor, replies, errors, status, stderr }
    }
}

/// Runs a command without a wrapper to its end, or kills it after some time. Returns its exit code,
/// if it ended by itself, its output and its error output. Its input is closed at its end.
///
/// # Errors
/// It cannot be started, or it panics.
pub fn run(
    mut command: Command,
    killed_after: Option<Duration>,
) -> Result<(Option<i32>, String, String), String> {
    let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let input = child.stdin.take();
    if let Some(after) = killed_after {
        std::thread::sleep(after);
        // It may have ended by itself.
        kill(&mut child, true)?;
    } else {
        drop(input);
    }
    let output = child.wait_with_output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    if said.contains("panicked") {
        return Err(format!("{command:?} panicked: {said}"));
    }
    Ok((output.status.code(), out, said))
}

/// The binary in this program's own build directory.
///
/// # Errors
/// There is none.
pub fn beside_this_program() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let folders = this.ancestors().skip(1).take(2);
    let mut found = folders.map(|folder| folder.join("shamba")).filter(|path| path.is_file());
    found.next().ok_or_else(|| format!("no shamba beside {}", Path::new(&this).display()))
}
