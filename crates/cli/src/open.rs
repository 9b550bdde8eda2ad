//! Opening a database for a command: to write, with the options that were given, or to look.
//!
//! Whatever the engine warns of, at recovery or later, goes to standard error, each warning once.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use shamba::{Builder, Db, ErrorKind, Event, EventListener, Recording};

use crate::exit::Failure;
use crate::options::{EngineOptions, ReaderOptions};
use crate::output::{note, warn};
use crate::sizes::counted;

/// What to do where a command that reads meets a writer.
const BESIDE_A_WRITER: &str = "a command that reads cannot open a database while a process has it open for writing \
    (a later version will); stop that process, or let it make a checkpoint (`Db::checkpoint`) and give its directory to \
    the command";
/// What to do where a command that writes meets another user of the database.
const ONE_WRITER: &str = "a command that writes needs the database for itself; try again when the other process, \
    reader or writer, has closed it";

/// Beginnings and ends of the names of files that only a database has.
const OWN_FILES: [&str; 5] = ["CURRENT", "MANIFEST-", "REPAIRING", ".sst", ".log"];

/// Opens a database to write, and makes it if it is not there.
///
/// # Errors
/// As the engine's open.
pub fn create(path: &Path, options: &EngineOptions) -> Result<Db, Failure> {
    must_be_directory(path)?;
    open(options.apply(Db::builder(path))).map_err(|failure| advised(failure, ONE_WRITER))
}

/// Opens a database to write that must be there.
///
/// # Errors
/// [`Failure::Missing`], or as the engine's open.
pub fn existing(path: &Path, options: &EngineOptions) -> Result<Db, Failure> {
    must_exist(path)?;
    open(options.apply(Db::builder(path)).create_if_missing(false))
        .map_err(|failure| advised(failure, ONE_WRITER))
}

/// Opens a database to look: under a shared lock, without writing a byte.
///
/// # Errors
/// [`Failure::Missing`], or as the engine's open.
pub fn reader(path: &Path, options: &ReaderOptions) -> Result<Db, Failure> {
    must_exist(path)?;
    open(options.apply(Db::builder(path)).read_only(true))
        .map_err(|failure| advised(failure, BESIDE_A_WRITER))
}

fn open(builder: Builder) -> Result<Db, Failure> {
    let warnings = Arc::new(Warnings::default());
    let db = builder.event_listener(warnings.clone()).open().map_err(as_typed)?;
    db.warnings().iter().for_each(|text| warnings.say(text));
    Ok(db)
}

/// Ends a recording and says what is in it.
///
/// # Errors
/// Why the file is not whole.
pub fn finish(recording: Recording, path: &Path) -> Result<(), Failure> {
    let operations = recording.finish()?.operations;
    note(format!(
        "shamba: {} recorded in {}",
        counted(operations, "operation", "operations"),
        path.display()
    ));
    Ok(())
}

/// An error that begins with an option's name gets it as it is typed.
fn as_typed(error: shamba::Error) -> Failure {
    if error.kind() == ErrorKind::Invalid
        && let Some((name, rest)) = error.context().split_once(' ')
    {
        let name = name.replace('_', "-");
        if EngineOptions::has(&name) {
            return Failure::Usage(format!("--{name} {rest}"));
        }
    }
    error.into()
}

/// The failure, with `advice` if somebody else has the database.
pub fn advised(failure: Failure, advice: &str) -> Failure {
    match failure {
        Failure::Engine(error) if error.kind() == ErrorKind::Locked => Failure::Advised(error, advice.into()),
        failure => failure,
    }
}

/// Whether there is a database at `path`, or what is left of one.
///
/// # Errors
/// What looking there says.
pub fn has_any(path: &Path) -> Result<bool, Failure> {
    let failed = |error| Failure::io(path.display().to_string(), error);
    if !path.try_exists().map_err(failed)? {
        return Ok(false);
    }
    // What is no directory, or one of somebody else's, is the engine's to refuse.
    Ok(!path.is_dir() || std::fs::read_dir(path).map_err(failed)?.next().is_some())
}

/// Whether there is something like a database at `path`; if there is, whatever is wrong with it,
/// the engine tells.
pub fn must_exist(path: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io(path.display().to_string(), error);
    if !path.try_exists().map_err(failed)? {
        return Err(Failure::missing(path, "there is no such directory"));
    }
    must_be_directory(path)?;
    let mut other = None;
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        if OWN_FILES.iter().any(|own| name.starts_with(own) || name.ends_with(own)) {
            return Ok(());
        }
        other.get_or_insert_with(|| name.into_owned());
    }
    Err(Failure::missing(
        path,
        &other.map_or("the directory is empty".into(), |name| {
            format!("the directory holds {name:?}, but no file of a database")
        }),
    ))
}

/// A file where a directory is due.
fn must_be_directory(path: &Path) -> Result<(), Failure> {
    if path.is_file() {
        let inside = path.parent().filter(|parent| parent.join("CURRENT").is_file());
        let advice = inside.map_or("DB is a directory".into(), |parent| {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            format!("the database is the directory {}", parent.display())
        });
        return Err(Failure::Io(
            format!("{} is a file, but {advice}", path.display()),
            std::io::ErrorKind::NotADirectory.into(),
        ));
    }
    Ok(())
}

/// Prints what the engine warns of.
#[derive(Default)]
struct Warnings {
    said: Mutex<HashSet<String>>,
}

impl Warnings {
    fn say(&self, text: &str) {
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_string()) {
            warn(text);
        }
    }
}

impl EventListener for Warnings {
    fn event(&self, event: &Event) {
        match event {
            Event::Warning(text) | Event::BackgroundError(text) => self.say(text),
            _ => {}
        }
    }
}
