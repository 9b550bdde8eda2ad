//! Environment of one seed's measurement: scale, seed, scratch folder, devices, shared trees.
//!
//! Experiments of a paper with the same seed share a [`Lab`], and through [`Lab::once`] expensive
//! values: trees, and measurements that several figures show. A lab is used by one thread.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::device::{Device, MemoryRead};
use crate::rows::Rows;
use crate::scale::Scale;

/// The assumed time of reading a page from memory at the tiny scale, so that it runs on any
/// machine.
const TINY_MEMORY_NS: u64 = 100;

/// Environment in which an experiment measures one seed.
pub struct Lab<'a> {
    /// The size of runs.
    pub scale: Scale,
    /// The seed of keys, orders and lookups.
    pub seed: u64,
    /// The time of reading a page from memory, which bounds the devices that can be emulated.
    pub(crate) memory_read: MemoryRead,
    dir: PathBuf,
    shared: BTreeMap<String, Rc<dyn Any>>,
    progress: &'a dyn Fn(&str),
}

impl<'a> Lab<'a> {
    /// A laboratory with its trees on disk below `dir`; it reports its progress to `progress`.
    pub fn new(dir: PathBuf, scale: Scale, seed: u64, progress: &'a dyn Fn(&str)) -> Self {
        let memory_read =
            if scale == Scale::Tiny { MemoryRead::Assumed(TINY_MEMORY_NS) } else { MemoryRead::Measured };
        Self { scale, seed, memory_read, dir, shared: BTreeMap::new(), progress }
    }

    /// Returns the value with this name, computed at the first call. The name must contain
    /// everything that the value depends on besides scale and seed.
    ///
    /// # Errors
    /// Errors of `make`. A failed value is made again when it is asked for again.
    pub fn once<T: Any>(
        &mut self,
        name: impl Into<String>,
        make: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<Rc<T>, String> {
        let name = name.into();
        if let Some(made) = self.shared.get(&name) {
            let made = Rc::clone(made).downcast::<T>();
            return made.map_err(|_| format!("two values of different types are named {name:?}"));
        }
        let made = Rc::new(make(self)?);
        self.shared.insert(name, Rc::clone(&made) as Rc<dyn Any>);
        Ok(made)
    }

    /// Drops shared values whose names have this prefix, to free their memory.
    pub fn forget(&mut self, prefix: &str) {
        self.shared.retain(|name, _| !name.starts_with(prefix));
    }

    /// Those of `wanted` that exist or can be emulated here. For each other one a note in `rows`
    /// gives the reason.
    ///
    /// # Errors
    /// When reading from memory fails.
    pub(crate) fn devices(&self, wanted: &[Device], rows: &mut Rows) -> Result<Vec<Device>, String> {
        let mut here = Vec::new();
        for device in wanted {
            match device.why_not_emulated(self.memory_read)? {
                None => here.push(*device),
                Some(why) => rows.note(format!("{} is left out: {why}.", device.name())),
            }
        }
        Ok(here)
    }

    /// The folder of trees that are not in memory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reports the next step.
    pub fn at(&self, what: impl Display) {
        (self.progress)(&what.to_string());
    }

    /// Returns the path of a folder with this name that does not exist.
    ///
    /// # Errors
    /// When an existing entry of this name cannot be removed.
    pub fn scratch(&self, name: &str) -> Result<PathBuf, String> {
        let dir = self.dir.join(name);
        self.discard(&dir)?;
        Ok(dir)
    }

    /// Removes a folder and everything in it.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn discard(&self, dir: &Path) -> Result<(), String> {
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("remove {}: {error}", dir.display()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_values_are_made_once() {
        let mut lab = Lab::new(PathBuf::from("none"), Scale::Tiny, 1, &|_| {});
        let mut made = 0;
        for _ in 0..3 {
            let value = lab.once("tree", |_| {
                made += 1;
                Ok(7u64)
            });
            assert_eq!(value.as_deref(), Ok(&7));
        }
        assert_eq!(made, 1);
        assert!(lab.once("tree", |_| Ok(String::new())).is_err(), "of another type");
        assert!(lab.once("other", |_| Err::<u64, _>("no".to_owned())).is_err());
        assert_eq!(lab.once("other", |_| Ok(1u64)).as_deref(), Ok(&1), "a failure is not kept");
        lab.forget("tr");
        assert_eq!(lab.once("tree", |_| Ok(8u64)).as_deref(), Ok(&8));
    }
}
