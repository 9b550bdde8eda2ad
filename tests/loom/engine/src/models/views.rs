//! Views: concurrent changes of memtables and trees, and files that are removed after their last
//! reader.

use std::sync::Arc;

use loom::thread;

use crate::broken::{Broken, is_broken};
use crate::published::Published;
use crate::swap::ArcSwap;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The largest sequence number in the active memtable, in the sealed one, and in the tree.
#[derive(Clone, Default)]
struct View {
    active: Arc<AtomicU64>,
    sealed: Option<Arc<AtomicU64>>,
    tree: u64,
}

impl View {
    fn newest(&self) -> u64 {
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.load(Ordering::Relaxed));
        self.active.load(Ordering::Relaxed).max(sealed).max(self.tree)
    }
}

/// Two threads that replace the view, one of them the writer, and a reader. In the end the writer's
/// rotation and the other's install are both present; a view has everything that was visible when
/// it was loaded.
pub fn rotation_and_install() {
    let first = View { sealed: Some(Arc::new(AtomicU64::new(1))), ..View::default() };
    let views =
        Arc::new(Views { published: Published::new(first.clone()), unguarded: ArcSwap::from_pointee(first) });
    let visible = Arc::new(AtomicU64::new(1));
    let writer = {
        let (views, visible) = (Arc::clone(&views), Arc::clone(&visible));
        thread::spawn(move || {
            views.replace(|view| View { active: Arc::new(AtomicU64::new(0)), ..view.clone() });
            views.load().active.store(2, Ordering::Relaxed);
            visible.store(2, Ordering::Release);
        })
    };
    let flush = {
        let views = Arc::clone(&views);
        thread::spawn(move || views.replace(|view| View { sealed: None, tree: 1, ..view.clone() }))
    };
    let seen = visible.load(Ordering::Acquire);
    let newest = views.load().newest();
    assert!(newest >= seen, "{seen} was visible, and a view loaded after that ends at {newest}");
    writer.join().expect("no panic");
    flush.join().expect("no panic");
    let view = views.load();
    assert_eq!((view.newest(), view.tree), (2, 1), "a change was lost");
    assert!(view.sealed.is_none(), "a change was lost");
}

/// The engine's cell, and one that is changed without its lock.
struct Views {
    published: Published<View>,
    unguarded: ArcSwap<View>,
}

impl Views {
    fn load(&self) -> Arc<View> {
        if is_broken(Broken::Usage) { self.unguarded.load() } else { self.published.load_full() }
    }

    fn replace(&self, change: impl FnOnce(&View) -> View) {
        if is_broken(Broken::Usage) {
            self.unguarded.store(Arc::new(change(&self.unguarded.load())));
        } else {
            self.published.replace(change);
        }
    }
}

/// A table, and whether its file is removed.
#[derive(Default)]
struct Table {
    is_unlinked: AtomicBool,
}

/// A compaction replaces the table of a view and removes its file when nothing refers to it any
/// more: a reader with the view can still read the file. Removal uses the same count as the
/// engine's `obsolete.rs`; the list is a copy.
pub fn files_of_versions() {
    let views = Arc::new(Published::new(Arc::new(Table::default())));
    let doomed = Arc::new(Mutex::new(Vec::<Arc<Table>>::new()));
    let reader = {
        let (views, doomed) = (Arc::clone(&views), Arc::clone(&doomed));
        thread::spawn(move || {
            let view = views.load_full();
            for _ in 0..2 {
                assert!(!view.is_unlinked.load(Ordering::Acquire), "a reader's file is gone");
            }
            drop(view);
            collect(&doomed);
        })
    };
    let before = Arc::clone(&*views.load());
    views.replace(|_| Arc::new(Table::default()));
    doomed.lock().expect("no panic").push(before);
    collect(&doomed);
    reader.join().expect("no panic");
    collect(&doomed);
    assert!(doomed.lock().expect("no panic").is_empty(), "a dead file stays");
}

fn collect(doomed: &Mutex<Vec<Arc<Table>>>) {
    doomed.lock().expect("no panic").retain(|table| {
        let is_held = Arc::strong_count(table) > 1 && !is_broken(Broken::Usage);
        if !is_held {
            table.is_unlinked.store(true, Ordering::Release);
        }
        is_held
    });
}
