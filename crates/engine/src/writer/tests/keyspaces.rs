//! Tests of what is recorded of keyspaces and of the end of a log.

use shamba_tree::merging::{AssociativeMerge, MergeResult};
use shamba_tree::version::manifest::ManifestState;

use super::*;
use crate::options::fifo::Fifo;
use crate::options::keyspace::KeyspaceOptions;

impl Alone {
    /// The state that the manifest records now.
    fn recorded(&self) -> ManifestState {
        let env = Env::deterministic(Arc::new(self.faults.clone()), 1);
        ManifestReader::load(&env, Path::new("/db")).expect("read").expect("there is one").state
    }

    fn make(&self, name: &str, options: KeyspaceOptions) -> Arc<KeyspaceCore> {
        self.writer.make_keyspace(name, false, Some(&options)).expect("made")
    }
}

#[test]
fn the_number_of_a_creation_and_of_a_drop_is_recorded() {
    for no_wal in [false, true] {
        let alone = alone(Settings { no_wal, ..Settings::default() });
        alone.put("a", b"1", WriteOptions::new()).expect("written");
        alone.writer.make_keyspace("users", true, None).expect("created");
        assert_eq!(alone.recorded().last_seq, SeqNo(2), "without a log: {no_wal}");
        alone.writer.drop_keyspace("users").expect("dropped");
        assert_eq!(alone.recorded().last_seq, SeqNo(3), "without a log: {no_wal}");
        assert_eq!(alone.reads.visible(), SeqNo(3));
    }
}

#[test]
fn a_close_records_the_settings_and_the_numbers_that_are_used() {
    for no_wal in [false, true] {
        let alone = alone(Settings { no_wal, ..Settings::default() });
        alone.put("a", b"1", WriteOptions::new()).expect("written");
        // Numbers that no edit has named, as those of files that were never installed.
        for _ in 0..5 {
            alone.catalog.new_id();
        }
        assert!(alone.writer.close().expect("it was open").is_ok());
        alone.writer.finish_log(vec![("workload".to_owned(), "known".to_owned())]).expect("finished");
        let state = alone.recorded();
        assert_eq!(state.settings.get("workload").map(String::as_str), Some("known"), "{no_wal}");
        assert_eq!(state.next_id, alone.catalog.next_id(), "without a log: {no_wal}");
        assert_eq!((state.last_seq, state.log_promise.is_some()), (SeqNo(1), !no_wal));
    }
}

#[test]
fn a_log_that_was_sealed_for_lack_of_space_ends_without_a_promise() {
    let alone = alone(Settings::default());
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    alone.faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path(".log"));
    assert_eq!(Alone::kind(alone.put("b", b"1", WriteOptions::new())), Some(ErrorKind::NoSpace));
    assert!(alone.writer.close().expect("it was open").is_ok());
    alone.writer.finish_log(vec![("workload".to_owned(), "known".to_owned())]).expect("finished");
    let state = alone.recorded();
    assert_eq!((state.log_promise, state.settings.len()), (None, 0), "nothing is recorded");
}

#[test]
fn expiry_begins_with_the_first_time_to_live_that_ends() {
    let lives = |time_to_live| KeyspaceOptions::new().time_to_live(time_to_live);
    let is_used = |alone: &Alone| {
        assert_eq!(alone.reads.expiry().is_used(), alone.recorded().time_ms.is_some());
        alone.reads.expiry().is_used()
    };
    // Of a new keyspace, and of one that exists.
    for exists in [false, true] {
        let alone = alone(Settings::default());
        for name in ["ever", "while"].into_iter().filter(|_| exists) {
            alone.make(name, KeyspaceOptions::new());
        }
        alone.make("ever", lives(Duration::MAX));
        assert!(!is_used(&alone), "nothing expires; the keyspace exists: {exists}");
        alone.make("while", lives(Duration::from_secs(1)));
        assert!(is_used(&alone), "the keyspace exists: {exists}");
        assert_eq!(alone.keyspace("while").time_to_live(), Some(Duration::from_secs(1)));
    }
}

#[test]
fn limits_of_age_count_from_the_newest_write_and_the_time_at_which_they_are_given() {
    let limits = || KeyspaceOptions::new().fifo(Fifo::age(Duration::from_secs(8)));
    let times = |keyspace: &KeyspaceCore| {
        let pairs = keyspace.fifo().expect("limits").pairs();
        pairs.into_iter().find(|(name, _)| name == "fifo-times").map(|(_, text)| text)
    };
    let alone = alone(Settings::default());
    for key in ["a", "b", "c"] {
        alone.put(key, b"1", WriteOptions::new()).expect("written");
    }
    alone.clock.advance_us(3_000_000);
    let now = |seq: u64| Some(format!("{seq}@{}", alone.clock.unix_ms()));
    let expected = now(3);
    assert_eq!(times(&alone.make("new", limits())), expected);
    alone.make("old", KeyspaceOptions::new());
    alone.clock.advance_us(1_000_000);
    let expected = now(5);
    assert_eq!(times(&alone.make("old", limits())), expected, "the creations have numbers");
}

#[test]
fn background_work_looks_again_when_options_change_the_tree() {
    let alone = alone(Settings::default());
    let woken = || alone.flushes.woken.swap(0, Ordering::Relaxed);
    alone.make("users", KeyspaceOptions::new());
    woken();
    alone.make("users", KeyspaceOptions::new().bits_per_key(4.0));
    assert_eq!(woken(), 1, "the tree has other options");
    alone.make("users", KeyspaceOptions::new().bits_per_key(4.0).time_to_live(Duration::from_secs(1)));
    assert_eq!(woken(), 0, "the tree has the same options");
    alone.make("users", KeyspaceOptions::new().fifo(Fifo::bytes(1 << 20)));
    assert_eq!(woken(), 1, "the tree has no levels any more");
}

struct Latest(&'static str);

impl AssociativeMerge for Latest {
    fn name(&self) -> &str {
        self.0
    }

    fn merge(&self, _key: &[u8], _older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>> {
        Ok(newer.to_vec())
    }
}

#[test]
fn the_code_of_a_merge_operator_is_given_once() {
    let alone = alone(Settings::default());
    let of = |name| KeyspaceOptions::new().merge_operator(Latest(name));
    let merging = |keyspace: &KeyspaceCore| keyspace.merging().expect("an operator");
    assert!(alone.make("counts", KeyspaceOptions::new()).merging().is_none());
    let first = merging(&alone.make("counts", of("latest")));
    assert!(first.is_given() && first.name() == "latest");
    for options in [of("latest"), KeyspaceOptions::new()] {
        assert!(Arc::ptr_eq(&first, &merging(&alone.make("counts", options))), "the first one stays");
    }
    let other = alone.writer.make_keyspace("counts", false, Some(&of("other")));
    assert_eq!(Alone::kind(other.map(drop)), Some(ErrorKind::Invalid));
    // Of an operator without its code, the code is taken.
    let keyspace = alone.make("counts", KeyspaceOptions::new());
    keyspace.set_merging(Arc::new(shamba_tree::merging::Merging::recorded("latest")));
    assert!(!merging(&alone.make("counts", KeyspaceOptions::new())).is_given());
    assert!(merging(&alone.make("counts", of("latest"))).is_given());
}
