//! Tests of views: what a view shares with the one before it, its memory, and what it states of its
//! tables and memtables.

use shamba_key::Prefix;
use shamba_memtable::ChunkedMemtable;

use super::*;
use crate::iter::testing::{Op, Store};

/// A view of a tree without files.
fn on_paper(text: &str) -> View {
    let memtables: Vec<Arc<dyn Memtable>> = vec![Arc::new(ChunkedMemtable::new(true))];
    View::new(KeyspaceId(0), memtables, Arc::new(text.parse().expect("notation")))
}

#[test]
fn a_view_of_the_same_tree_shares_the_filters_of_open_tables_and_the_fences() {
    let store = Store::new();
    for key in ["a", "b"] {
        store.put(key, "v");
        store.rotate();
        store.flush();
    }
    let view = store.newest_view();
    let (version, memtables) = (&view.version, || view.memtables.clone());
    let next = view.next(memtables(), Arc::clone(version));
    assert!(next.is_like(&view) && view.is_like(&next));
    let fences = [&view, &next].map(|view| Arc::as_ptr(view.fences.as_ref().expect("two runs")));
    assert_eq!(fences[0], fences[1], "the fences were joined again");
    // Another version, and the same one with other filters.
    let copied = view.next(memtables(), Arc::new(Version::clone(version)));
    assert!(!copied.is_like(&view));
    let table = version.level(0)[1].tables()[0].meta.id;
    let changed = view.with_filters_of(&[table].into());
    assert!(!changed.is_like(&view) && !view.is_like(&changed));
    // A table that was not open may be open now.
    let closed = on_paper("L1: r1@1[1:a..c 1]\n");
    assert!(!closed.next(closed.memtables.clone(), Arc::clone(&closed.version)).is_like(&closed));
}

#[test]
fn the_metadata_are_those_of_the_runs_a_line_for_each_table_and_the_joined_fences() {
    assert_eq!(on_paper("").metadata_bytes(), 0);
    let of_run = |view: &View, level: u32, tables: usize| {
        size_of::<RunPlan>() + view.version.level(level)[0].metadata_bytes() + tables * 64
    };
    let one = on_paper("L1: r1@1[1:a..c 1, 2:d..f 1]\n");
    assert_eq!(one.metadata_bytes(), of_run(&one, 1, 2));
    let two = on_paper("L1: r2@2[1:a..c 1, 2:d..f 1]\nL2: r1@1[3:a..e 1, 4:f..h 1, 5:h..k 1]\n");
    let fences_bytes = JoinedFences::new(two.plans()).expect("two runs").memory_bytes();
    assert_eq!(two.metadata_bytes(), of_run(&two, 1, 2) + of_run(&two, 2, 3) + fences_bytes);
}

#[test]
fn a_folded_value_is_for_readers_from_whom_nothing_hides_it() {
    let view = on_paper("");
    view.memtables[0].folded().set(b"k", SeqNo(5), b"v");
    let folded = |key: &[u8], seq, floor| view.folded(key, SeqNo(seq), SeqNo(floor));
    let found = Some((SeqNo(5), Bytes::from_static(b"v")));
    assert_eq!([folded(b"k", 5, 4), folded(b"k", 9, 0)], [found.clone(), found]);
    assert_eq!(
        [folded(b"k", 4, 0), folded(b"k", 9, 5), folded(b"k", 9, 6), folded(b"j", 9, 0)],
        [const { None }; 4]
    );
}

#[test]
fn a_view_states_whether_its_tables_have_prefixes_and_range_tombstones() {
    let stated = |prefix: Option<Prefix>, deleted: Option<(&[u8], &[u8])>| {
        let store = Store::new();
        *store.prefix.lock().expect("not poisoned") = prefix;
        (0..100).for_each(|number| store.put(&format!("{number:04}"), "v"));
        if let Some((start, end)) = deleted {
            store.write(Op::DeleteRange(start.to_vec(), Some(end.to_vec())));
        }
        store.rotate();
        store.flush();
        let view = store.newest_view();
        assert!(view.plans()[0].probes.iter().all(|probe| probe.filter.is_some()));
        (view.has_prefixes(), view.runs_have_range_deletes())
    };
    assert_eq!(stated(None, None), (false, false));
    assert_eq!(stated(Some(Prefix::Fixed(2)), None), (true, false));
    assert_eq!(stated(None, Some((b"0010", b"0020"))), (false, true));
    let closed = on_paper("L1: r1@1[1:a..c 1]\n");
    assert_eq!((closed.has_prefixes(), closed.runs_have_range_deletes()), (false, false));
}
