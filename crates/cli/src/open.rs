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

/// Opens a database to write, and makes it if it is not there.
///
/// # Errors
/// As the engine's open.
pub fn create(path: &Path, options: &EngineOptions) -> Result<Db, Failure> {
    open(options.apply(Db::builder(path)))
}

/// Opens a database to write that must be there.
///
/// # Errors
/// [`Failure::Missing`], or as the engine's open.
pub fn existing(path: &Path, options: &EngineOptions) -> Result<Db, Failure> {
    must_exist(path)?;
    open(options.apply(Db::builder(path)).create_if_missing(false))
}

/// Opens a database to look: under a shared lock, without writing a byte.
///
/// # Errors
/// [`Failure::Missing`], or as the engine's open.
pub fn reader(path: &Path, options: &ReaderOptions) -> Result<Db, Failure> {
    must_exist(path)?;
    open(options.apply(Db::builder(path)).read_only(true))
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

/// A path that does not exist at all has no database; what else is wrong with one, the engine tells.
fn must_exist(path: &Path) -> Result<(), Failure> {
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::missing(path)),
        Err(error) => Err(Failure::io(path.display().to_string(), error)),
    }
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
