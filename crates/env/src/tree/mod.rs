//! The directory tree of an in-memory file system, with the files' contents: the common base of
//! [`crate::MemFs`] and [`crate::SimFs`].
//!
//! A [`Tree`] holds directories; a [`FileCell`] (`cell.rs`) is one file. Paths start at the root
//! whether or not they begin with a slash; `..` is rejected. Every change of names is also returned
//! as [`NameChange`]s, in the order in which they happened: `SimFs` records them, `MemFs` drops
//! them.
//!
//! Errors have the kinds that Linux returns for the same calls (a test checks this for all file
//! systems).
//!
//! Not here: the state after a crash (`sim/disk.rs`).

mod cell;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};
use std::sync::Arc;

pub(crate) use cell::{CellLock, CellReader, Content, FileCell, FileId};

use crate::vfs::{DirEntry, LockKind};

/// Identifies a directory for the lifetime of its tree; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DirId(pub(crate) u64);

/// The root directory, which always exists.
pub(crate) const ROOT: DirId = DirId(0);

/// The file or directory that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeId {
    /// A file.
    File(FileId),
    /// A directory.
    Dir(DirId),
}

/// One name that was added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameChange {
    /// The directory of the name.
    pub(crate) dir: DirId,
    /// The name.
    pub(crate) name: Arc<str>,
    /// The file or directory that it refers, or referred, to.
    pub(crate) node: NodeId,
    /// Whether it was added (perhaps in place of another) or removed.
    pub(crate) added: bool,
}

/// The content of a name.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    File(Arc<FileCell>),
    Dir(DirId),
}

impl Node {
    pub(crate) fn id(&self) -> NodeId {
        match self {
            Node::File(cell) => NodeId::File(cell.id),
            Node::Dir(dir) => NodeId::Dir(*dir),
        }
    }
}

type Names = BTreeMap<Arc<str>, Node>;

/// The names and contents as a running program sees them.
#[derive(Debug)]
pub(crate) struct Tree {
    dirs: BTreeMap<DirId, Names>,
    next_id: u64,
}

fn error(kind: ErrorKind) -> io::Error {
    io::Error::from(kind)
}

/// The components of `path`, from the root.
fn components(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => match name.to_str() {
                Some(name) => names.push(name),
                None => return Err(io::Error::new(ErrorKind::InvalidInput, "a file name must be text")),
            },
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::new(ErrorKind::InvalidInput, "a path in memory has no `..`"));
            }
        }
    }
    Ok(names)
}

impl Tree {
    /// An empty root.
    pub(crate) fn new() -> Self {
        Self { dirs: BTreeMap::from([(ROOT, Names::new())]), next_id: 1 }
    }

    /// A tree of these directories; `next_id` must be above every id among them.
    pub(crate) fn from_dirs(dirs: BTreeMap<DirId, Names>, next_id: u64) -> Self {
        Self { dirs, next_id }
    }

    /// The lowest unused id.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// The names in a directory of this tree.
    pub(crate) fn names(&self, dir: DirId) -> Option<&Names> {
        self.dirs.get(&dir)
    }

    fn fresh_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn node_of(&self, names: &[&str]) -> io::Result<Node> {
        let mut node = Node::Dir(ROOT);
        for name in names {
            let Node::Dir(dir) = node else {
                return Err(error(ErrorKind::NotADirectory));
            };
            let entries = self.dirs.get(&dir).ok_or_else(|| error(ErrorKind::NotFound))?;
            node = entries.get(*name).cloned().ok_or_else(|| error(ErrorKind::NotFound))?;
        }
        Ok(node)
    }

    fn node(&self, path: &Path) -> io::Result<Node> {
        self.node_of(&components(path)?)
    }

    /// The directory and the last name of `path`; the name need not exist.
    fn place<'a>(&self, path: &'a Path) -> io::Result<(DirId, &'a str)> {
        let names = components(path)?;
        // The root has no name in any directory: all operations on it fail as busy.
        let (name, above) = names.split_last().ok_or_else(|| error(ErrorKind::ResourceBusy))?;
        match self.node_of(above)? {
            Node::Dir(dir) => Ok((dir, name)),
            Node::File(_) => Err(error(ErrorKind::NotADirectory)),
        }
    }

    fn look_up(&self, dir: DirId, name: &str) -> Option<&Node> {
        self.dirs.get(&dir).and_then(|names| names.get(name))
    }

    fn add(&mut self, dir: DirId, name: &str, node: Node, changes: &mut Vec<NameChange>) {
        let name: Arc<str> = Arc::from(name);
        changes.push(NameChange { dir, name: Arc::clone(&name), node: node.id(), added: true });
        if let Some(names) = self.dirs.get_mut(&dir) {
            names.insert(name, node);
        }
    }

    fn remove(&mut self, dir: DirId, name: &str, changes: &mut Vec<NameChange>) {
        if let Some((name, node)) = self.dirs.get_mut(&dir).and_then(|names| names.remove_entry(name)) {
            changes.push(NameChange { dir, name, node: node.id(), added: false });
        }
    }

    /// The file at `path`.
    pub(crate) fn file(&self, path: &Path) -> io::Result<Arc<FileCell>> {
        match self.node(path)? {
            Node::File(cell) => Ok(cell),
            Node::Dir(_) => Err(error(ErrorKind::IsADirectory)),
        }
    }

    /// The directory at `path`.
    pub(crate) fn dir(&self, path: &Path) -> io::Result<DirId> {
        match self.node(path)? {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(error(ErrorKind::NotADirectory)),
        }
    }

    /// As [`crate::Vfs::exists`].
    pub(crate) fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.node(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// As [`crate::Vfs::list`].
    pub(crate) fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let dir = self.dir(path)?;
        let entries = self.dirs.get(&dir).into_iter().flatten();
        Ok(entries
            .map(|(name, node)| match node {
                Node::File(cell) => DirEntry { name: name.to_string(), bytes: cell.len(), is_dir: false },
                Node::Dir(_) => DirEntry { name: name.to_string(), bytes: 0, is_dir: true },
            })
            .collect())
    }

    /// As [`crate::Vfs::create`].
    pub(crate) fn create(&mut self, path: &Path) -> io::Result<(Arc<FileCell>, Vec<NameChange>)> {
        if components(path)?.is_empty() {
            return Err(error(ErrorKind::AlreadyExists));
        }
        let (dir, name) = self.place(path)?;
        if self.look_up(dir, name).is_some() {
            return Err(error(ErrorKind::AlreadyExists));
        }
        let cell = Arc::new(FileCell::new(FileId(self.fresh_id()), Arc::default()));
        let mut changes = Vec::new();
        self.add(dir, name, Node::File(Arc::clone(&cell)), &mut changes);
        Ok((cell, changes))
    }

    /// As [`crate::Vfs::rename`]; directories too.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<Vec<NameChange>> {
        let (from_dir, from_name) = self.place(from)?;
        let (to_dir, to_name) = self.place(to)?;
        let moved = self.look_up(from_dir, from_name).cloned().ok_or_else(|| error(ErrorKind::NotFound))?;
        let (from_names, to_names) = (components(from)?, components(to)?);
        let is_below = |inner: &[&str], outer: &[&str]| inner.len() > outer.len() && inner.starts_with(outer);
        // A directory cannot move into itself, nor anything onto a directory that contains it.
        if is_below(&to_names, &from_names) {
            return Err(error(ErrorKind::InvalidInput));
        }
        if is_below(&from_names, &to_names) {
            return Err(error(ErrorKind::DirectoryNotEmpty));
        }
        let mut changes = Vec::new();
        if let Some(target) = self.look_up(to_dir, to_name) {
            if target.id() == moved.id() {
                return Ok(changes);
            }
            match (&moved, target) {
                (Node::File(_), Node::File(_)) => {}
                (Node::File(_), Node::Dir(_)) => return Err(error(ErrorKind::IsADirectory)),
                (Node::Dir(_), Node::File(_)) => return Err(error(ErrorKind::NotADirectory)),
                (Node::Dir(_), Node::Dir(target)) => {
                    let target = *target;
                    if self.dirs.get(&target).is_some_and(|names| !names.is_empty()) {
                        return Err(error(ErrorKind::DirectoryNotEmpty));
                    }
                    self.dirs.remove(&target);
                }
            }
        }
        self.remove(from_dir, from_name, &mut changes);
        self.add(to_dir, to_name, moved, &mut changes);
        Ok(changes)
    }

    /// As [`crate::Vfs::unlink`].
    pub(crate) fn unlink(&mut self, path: &Path) -> io::Result<Vec<NameChange>> {
        if components(path)?.is_empty() {
            return Err(error(ErrorKind::IsADirectory));
        }
        let (dir, name) = self.place(path)?;
        match self.look_up(dir, name) {
            None => Err(error(ErrorKind::NotFound)),
            Some(Node::Dir(_)) => Err(error(ErrorKind::IsADirectory)),
            Some(Node::File(_)) => {
                let mut changes = Vec::new();
                self.remove(dir, name, &mut changes);
                Ok(changes)
            }
        }
    }

    /// As [`crate::Vfs::link`].
    pub(crate) fn link(&mut self, from: &Path, to: &Path) -> io::Result<Vec<NameChange>> {
        let node = self.node(from)?;
        let (dir, name) = self.place(to)?;
        if self.look_up(dir, name).is_some() {
            return Err(error(ErrorKind::AlreadyExists));
        }
        if let Node::Dir(_) = node {
            return Err(error(ErrorKind::PermissionDenied));
        }
        let mut changes = Vec::new();
        self.add(dir, name, node, &mut changes);
        Ok(changes)
    }

    /// As [`crate::Vfs::create_dir_all`]: one change for each directory made.
    pub(crate) fn create_dir_all(&mut self, path: &Path) -> io::Result<Vec<NameChange>> {
        let names = components(path)?;
        let mut changes = Vec::new();
        let mut dir = ROOT;
        for (depth, name) in names.iter().enumerate() {
            dir = match self.look_up(dir, name) {
                Some(Node::Dir(next)) => *next,
                Some(Node::File(_)) if depth + 1 == names.len() => {
                    return Err(error(ErrorKind::AlreadyExists));
                }
                Some(Node::File(_)) => return Err(error(ErrorKind::NotADirectory)),
                None => {
                    let made = DirId(self.fresh_id());
                    self.dirs.insert(made, Names::new());
                    self.add(dir, name, Node::Dir(made), &mut changes);
                    made
                }
            };
        }
        Ok(changes)
    }

    /// As [`crate::Vfs::remove_dir`].
    pub(crate) fn remove_dir(&mut self, path: &Path) -> io::Result<Vec<NameChange>> {
        let (dir, name) = self.place(path)?;
        let removed = match self.look_up(dir, name) {
            None => return Err(error(ErrorKind::NotFound)),
            Some(Node::File(_)) => return Err(error(ErrorKind::NotADirectory)),
            Some(Node::Dir(removed)) => *removed,
        };
        if self.dirs.get(&removed).is_some_and(|names| !names.is_empty()) {
            return Err(error(ErrorKind::DirectoryNotEmpty));
        }
        let mut changes = Vec::new();
        self.remove(dir, name, &mut changes);
        self.dirs.remove(&removed);
        Ok(changes)
    }

    /// As [`crate::Vfs::lock`].
    pub(crate) fn lock(&mut self, path: &Path, kind: LockKind) -> io::Result<(CellLock, Vec<NameChange>)> {
        let (cell, changes) = match self.file(path) {
            Ok(cell) => (Some(cell), Vec::new()),
            Err(missing) if missing.kind() == ErrorKind::NotFound => match kind {
                LockKind::Shared => (None, Vec::new()),
                LockKind::Exclusive => {
                    let (cell, changes) = self.create(path)?;
                    (Some(cell), changes)
                }
            },
            Err(other) => return Err(other),
        };
        Ok((CellLock::take(cell, kind)?, changes))
    }
}
