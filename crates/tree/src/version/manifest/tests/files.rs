//! Tests of creating, replacing and loading manifests.

use super::*;
use crate::version::current::{CURRENT, CURRENT_TEMPORARY, read_current};
use shamba_env::{Effect, FaultFs, FaultRule, OpKind};

#[test]
fn every_state_is_read_back() {
    let edits = life();
    let states = states(&edits);
    for count in 1..=edits.len() {
        let env = new_env(1);
        written(&env, &edits[..count]);
        let loaded = load(&env).expect("loaded").expect("a database");
        assert_eq!(loaded.torn, None);
        assert_eq!(text(&loaded.state), {
            let mut expected = states[count - 1].clone();
            expected.next_id = expected.next_id.max(4);
            text(&expected)
        });
    }
}

#[test]
fn no_directory_and_an_unfinished_creation_are_no_database() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    assert!(load(&env).expect("nothing there").is_none());
    let env = new_env(1);
    assert!(load(&env).expect("empty").is_none());
    written(&env, &life());
    let manifest = bytes_of(&env, "MANIFEST-000003");
    let env = new_env(1);
    for name in ["LOCK", "MANIFEST-000003", CURRENT_TEMPORARY, "notes.txt"] {
        put_file(&env, &Path::new(DIR).join(name), &manifest[..manifest.len() / 2]);
        assert!(load(&env).expect("unfinished").is_none(), "{name}");
    }
    // The creation can be repeated under the same number.
    written(&env, &life());
    assert!(load(&env).expect("loaded").is_some());
}

#[test]
fn data_without_current_is_corruption_that_names_current() {
    for name in ["000007.log", "000012.sst"] {
        let env = new_env(1);
        put_file(&env, &Path::new(DIR).join(name), b"");
        let error = load(&env).expect_err("CURRENT is missing");
        assert!(error.is_corruption());
        assert!(error.file().expect("a file").ends_with(CURRENT));
    }
}

#[test]
fn a_missing_manifest_is_corruption_that_names_it() {
    let env = new_env(1);
    written(&env, &life());
    env.vfs.unlink(&Path::new(DIR).join("MANIFEST-000003")).expect("removed");
    let error = load(&env).expect_err("the manifest is missing");
    assert!(error.is_corruption());
    assert!(error.file().expect("a file").ends_with("MANIFEST-000003"));
}

#[test]
fn another_manifest_of_the_same_name_is_noticed() {
    let env = new_env(1);
    written(&env, &life());
    let other = new_env(2);
    written(&other, &life());
    let path = Path::new(DIR).join("MANIFEST-000003");
    env.vfs.unlink(&path).expect("removed");
    put_file(&env, &path, &bytes_of(&other, "MANIFEST-000003"));
    let error = load(&env).expect_err("swapped");
    assert!(error.is_corruption());
    assert!(error.file().expect("a file").ends_with("MANIFEST-000003"));
}

#[test]
fn a_new_manifest_takes_over_and_the_one_in_force_is_not_overwritten() {
    let env = new_env(1);
    let edits = life();
    let old = written(&env, &edits);
    let states = states(&edits);
    ManifestWriter::create(&env, Path::new(DIR), 3, &states[0]).expect_err("it is in force");
    let new = ManifestWriter::create(&env, Path::new(DIR), 20, &states[3]).expect("created");
    assert!(new.bytes() < old.bytes());
    assert_eq!((new.number(), old.number()), (20, 3));
    let loaded = load(&env).expect("loaded").expect("a database");
    let current = read_current(&env, Path::new(DIR)).expect("read").expect("a file");
    assert_eq!(current.number, 20);
    assert_eq!(loaded.state.next_id, 21, "the manifest's own number counts as used");
    assert_eq!(loaded.state.keyspaces[&KeyspaceId(0)].version.run_count(), 2);
}

#[test]
fn any_failed_call_of_a_creation_or_an_append_leaves_a_state_that_was_asked_for() {
    let edits = life();
    let states = states(&edits);
    for effect in [Effect::Eio, Effect::Enospc, Effect::ShortWrite] {
        for nth in 0.. {
            let calm = new_env(1);
            let faults = Arc::new(FaultFs::new(Arc::clone(&calm.vfs), 1));
            let env = Env { vfs: Arc::clone(&faults) as _, ..calm.clone() };
            let mut writer = written(&env, &edits[..2]);
            faults.add_rule(FaultRule::nth(nth, effect));
            let appended = writer.append(&edits[2]);
            let sealed = writer.append(&edits[3]);
            let rolled = ManifestWriter::create(&env, Path::new(DIR), 9, &states[3]).map(drop);
            let struck = faults.faults_injected() > 0;
            let loaded = load(&calm).expect("loaded").expect("a database");
            let got = text(&ManifestState { next_id: 19, ..loaded.state });
            let is_one_of = |from: usize| {
                states[from..]
                    .iter()
                    .any(|state| text(&ManifestState { next_id: 19, ..state.clone() }) == got)
            };
            match (&appended, &sealed) {
                (Ok(()), Ok(())) => assert!(is_one_of(3), "{effect:?} at call {nth}, {rolled:?}"),
                (Ok(()), Err(_)) => assert!(is_one_of(2), "{effect:?} at call {nth}"),
                (Err(first), Err(second)) => {
                    assert_eq!(first.to_string(), second.to_string(), "a failed writer stays failed");
                    assert!(is_one_of(1), "{effect:?} at call {nth}");
                }
                (Err(_), Ok(())) => panic!("{effect:?} at call {nth}: appended after a failure"),
            }
            if !struck {
                assert!(nth > 4, "{nth} calls were enough");
                break;
            }
        }
    }
}

#[test]
fn a_read_error_is_an_error() {
    let calm = new_env(1);
    written(&calm, &life());
    for nth in 0.. {
        let faults = Arc::new(FaultFs::new(Arc::clone(&calm.vfs), 1));
        faults.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read, OpKind::OpenRead, OpKind::Len]));
        let env = Env { vfs: Arc::clone(&faults) as _, ..calm.clone() };
        let result = load(&env);
        if faults.faults_injected() == 0 {
            assert!(nth > 3 && result.expect("no fault").is_some());
            break;
        }
        assert!(!result.expect_err("a read failed").is_corruption());
    }
}
