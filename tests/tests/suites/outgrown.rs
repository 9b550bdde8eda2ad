//! A manifest that exceeds its size limit: a new one replaces it when the disk has space for it;
//! until then the old one stays in use. A repair must not take the remains of a failed attempt for
//! the manifest in force.
//!
//! The longest possible keys make edits long: some forty flushes write the 4 MiB after which a
//! manifest is renewed.
//!
//! Not here: a manifest to which nothing can be appended (`faults.rs`).

use std::path::Path;
use std::sync::Arc;

use shamba::Db;
use shamba::env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind};
use shamba_tests::files::{Files, disk_of, files_of};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::BUDGET_BYTES;

const HOME: &str = "/db";
const OUT: &str = "/repaired";
/// The maximum key length.
const KEY_BYTES: usize = 65_535;
/// More flushes than any renewal needs.
const FLUSHES_MAX: u32 = 100;

/// A database whose tables have long bounds, on a disk with injectable faults.
struct Subject {
    fs: MemFs,
    faulty: FaultFs,
    env: Env,
    db: Db,
    /// Number of flushes so far; each wrote its number under the same two keys.
    flushes: u32,
}

fn bounds() -> [Vec<u8>; 2] {
    [b'a', b'z'].map(|byte| vec![byte; KEY_BYTES])
}

impl Subject {
    fn new() -> Self {
        let fs = MemFs::new();
        let faulty = FaultFs::new(Arc::new(fs.clone()), 1);
        let env = Env { vfs: Arc::new(faulty.clone()), ..Env::deterministic(Arc::new(fs.clone()), 1) };
        let db = Self::open(&env).expect("create");
        Self { fs, faulty, env, db, flushes: 0 }
    }

    fn open(env: &Env) -> shamba::Result<Db> {
        let builder = Db::builder(HOME).env(env.clone()).info_log(false).memory_budget(BUDGET_BYTES);
        builder.experimental(|e| e.auto_compaction(false)).open()
    }

    /// One flush, and sometimes a compaction, so that the tree stays small.
    fn flush(&mut self) -> shamba::Result<()> {
        self.flushes += 1;
        for key in bounds() {
            self.db.put(key, self.flushes.to_string())?;
        }
        self.db.flush()?;
        if self.flushes.is_multiple_of(3) { self.db.compact() } else { Ok(()) }
    }

    fn check(&self) {
        for key in bounds() {
            let value = self.db.get(key).expect("get").expect("it was written");
            assert_eq!(value[..], *self.flushes.to_string().as_bytes());
        }
    }

    fn reopen(&mut self) {
        // A close that fails after a failure closes nonetheless.
        let _ = self.db.clone().close();
        self.db = Self::open(&self.env).expect("reopen");
    }

    /// The existing manifests: names and lengths.
    fn manifests(&self) -> Vec<(String, usize)> {
        let files = files_of(&self.fs).into_iter();
        files
            .filter(|(name, _)| name.starts_with("MANIFEST-"))
            .map(|(name, bytes)| (name, bytes.len()))
            .collect()
    }

    fn manifest(&self) -> (String, usize) {
        match &self.manifests()[..] {
            [one] => one.clone(),
            several => panic!("not one manifest: {several:?}"),
        }
    }

    /// Flushes until `is_done`.
    fn until(&mut self, is_done: impl Fn(&Self) -> bool) {
        for _ in 0..FLUSHES_MAX {
            self.flush().expect("flush");
            if is_done(self) {
                return;
            }
        }
        panic!("after {FLUSHES_MAX} flushes the manifests are {:?}", self.manifests());
    }
}

#[test]
fn an_outgrown_manifest_is_replaced_and_one_without_room_goes_on() {
    let mut subject = Subject::new();
    let (first, _) = subject.manifest();
    subject.until(|subject| subject.manifest().0 != first);
    let (second, bytes) = subject.manifest();
    assert!(bytes < 1 << 20, "{bytes} bytes of a state that is small");
    // The next renewal finds no space at any attempt.
    subject
        .faulty
        .add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path("CURRENT.tmp").sticky());
    subject.until(|subject| subject.faulty.faults_injected() > 0);
    for _ in 0..3 {
        let (name, before) = subject.manifest();
        subject.flush().expect("the old one goes on");
        let (same, after) = subject.manifest();
        assert!(
            name == second && same == second && after > before,
            "{name} of {before}, {same} of {after} bytes"
        );
    }
    subject.check();
    subject.faulty.clear_rules();
    subject.flush().expect("flush");
    assert!(subject.manifest().0 != second, "there is room");
    subject.reopen();
    subject.check();
}

/// Each call on manifests and `CURRENT`, from the one before a renewal to the one after it, finds
/// no space, once.
#[test]
fn a_renewal_without_room_anywhere_loses_nothing() {
    let mut tally = Tally::default();
    let mut subject = Subject::new();
    for file in ["MANIFEST-", "CURRENT"] {
        for nth in 0.. {
            let limit = 4 << 20;
            // Up to where one or two more edits can renew it.
            subject.until(|subject| subject.manifest().1 > limit - 3 * (KEY_BYTES << 1));
            let (before, _) = subject.manifest();
            let struck = subject.faulty.faults_injected();
            subject.faulty.add_rule(FaultRule::nth(nth, Effect::Enospc).at_path(file));
            let mut failures = 0;
            for _ in 0..8 {
                failures += u64::from(subject.flush().is_err());
            }
            let was_struck = subject.faulty.faults_injected() > struck;
            subject.faulty.clear_rules();
            if subject.flush().is_err() {
                tally.add("writes off", 1);
                subject.reopen();
                subject.flush().expect("after a reopen");
            }
            subject.check();
            assert!(subject.manifest().0 != before, "it was renewed");
            tally.add("calls that failed", failures);
            if !was_struck {
                assert_eq!(failures, 0, "nothing was struck");
                break;
            }
            tally.add("calls without room", 1);
            subject.reopen();
            subject.check();
        }
    }
    tally.tell("outgrown-manifest", "suite D, an outgrown manifest without space");
    tally.require(&[("calls without room", 40), ("writes off", 5)]);
}

/// A database with a draft that found no space and could not be removed, besides the manifest that
/// stayed in use. Returns the names of both.
fn with_a_stale_draft() -> (Files, String, String) {
    let mut subject = Subject::new();
    subject.db.put("before", "1").expect("put");
    let (in_force, _) = subject.manifest();
    // The first draft lacks only its `CURRENT`; there is no other.
    let rules = [
        FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path("CURRENT.tmp"),
        FaultRule::nth(0, Effect::Eio).on(&[OpKind::Unlink]).at_path("MANIFEST-").sticky(),
        FaultRule::nth(1, Effect::Enospc).on(&[OpKind::Create]).at_path("MANIFEST-").sticky(),
    ];
    rules.into_iter().for_each(|rule| subject.faulty.add_rule(rule));
    subject.until(|subject| subject.manifests().len() > 1);
    subject.db.put("since", "1").expect("put");
    subject.db.flush().expect("flush");
    subject.db.clone().close().expect("close");
    let manifests = subject.manifests();
    let [(old, _), (draft, _)] = &manifests[..] else { panic!("{manifests:?}") };
    assert!(*old == in_force && in_force < *draft, "{manifests:?}");
    (files_of(&subject.fs), in_force, draft.clone())
}

#[test]
fn a_repair_takes_no_draft_for_the_manifest_in_force() {
    let (files, in_force, draft) = with_a_stale_draft();
    let flip = |name: &str| {
        let mut files = files.clone();
        let bytes = files.get_mut(name).expect("it is there");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        files
    };
    let without = |name: &str| {
        let mut files = files.clone();
        files.remove(name).expect("it was there");
        files
    };
    let cases = [
        ("nothing", files.clone(), true),
        ("the draft flipped", flip(&draft), true),
        ("CURRENT flipped", flip("CURRENT"), false),
        ("no CURRENT", without("CURRENT"), false),
        ("the manifest flipped", flip(&in_force), false),
        ("no manifest", without(&in_force), false),
    ];
    for (damage, files, is_whole) in cases {
        let fs = disk_of(&files);
        let env = Env::deterministic(Arc::new(fs), 2);
        let report = shamba::repair(&env, Path::new(HOME), Path::new(OUT)).expect(damage);
        assert_eq!(report.manifest, is_whole, "{damage}: {report:?}");
        assert_eq!(report.is_complete(), is_whole, "{damage}");
        let db = Db::builder(OUT).env(env).info_log(false).open().expect(damage);
        for key in ["before", "since"] {
            let value = db.get(key).expect(damage);
            assert_eq!(value.as_deref(), Some(&b"1"[..]), "{damage}: {key}");
        }
    }
}
