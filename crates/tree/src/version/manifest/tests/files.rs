//! Tests of creating, replacing and loading manifests.

use super::*;
use crate::version::current::{CURRENT, CURRENT_TEMPORARY, draft_current, read_current};
use shamba_env::{Effect, FaultFs, FaultRule, OpKind};
use shamba_log::framing::HEADER_BYTES;
use shamba_log::framing::frame::FrameHeader;

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
    for name in ["000007.log", "000012.sst", "31.values"] {
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

#[test]
fn a_file_whose_stem_is_no_number_belongs_to_no_database() {
    let env = new_env(1);
    for name in ["notes.log", ".log", ".sst", ".values", "x7.sst", "7x.values", "000007.log.old", "000007"] {
        put_file(&env, &Path::new(DIR).join(name), b"");
        assert!(load(&env).expect("no data").is_none(), "{name}");
    }
    env.vfs.create_dir_all(&Path::new(DIR).join("000007.log")).expect("a directory");
    assert!(load(&env).expect("a directory is no data").is_none());
}

#[test]
fn the_name_of_a_manifest_is_the_one_that_its_number_makes() {
    for number in [1, 5, 999_999, 1_000_000, u64::MAX] {
        assert_eq!(parse_manifest_file_name(&manifest_file_name(number)), Some(number));
    }
    for name in [
        "MANIFEST-000000",
        "MANIFEST-5",
        "MANIFEST-0000005",
        "MANIFEST-+00005",
        "MANIFEST-",
        "MANIFEST",
        "000005",
    ] {
        assert_eq!(parse_manifest_file_name(name), None, "{name}");
    }
}

#[test]
fn a_failed_list_or_remove_does_not_pass_for_a_missing_file() {
    let calm = new_env(1);
    let faults = Arc::new(FaultFs::new(Arc::clone(&calm.vfs), 1));
    let env = Env { vfs: Arc::clone(&faults) as _, ..calm.clone() };
    faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::List]));
    let error = load(&env).expect_err("the list failed");
    assert!(!error.is_corruption() && error.to_string().contains("list"), "{error}");
    faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::Unlink]));
    let error = draft_current(&env, Path::new(DIR), 5, BirthId(7)).expect_err("the removal failed");
    assert!(error.to_string().contains("remove"), "{error}");
    assert_eq!(faults.faults_injected(), 2);
    assert!(!calm.vfs.exists(&Path::new(DIR).join(CURRENT_TEMPORARY)).expect("memory"), "it was written");
    draft_current(&env, Path::new(DIR), 5, BirthId(7)).expect("nothing to remove");
}

#[test]
fn a_manifest_is_outgrown_by_more_bytes_of_edits_than_the_bound_and_the_snapshot() {
    let env = new_env(1);
    let mut writer = written(&env, &life()[..1]);
    let file = bytes_of(&env, "MANIFEST-000003");
    let snapshot = FrameHeader::decode(&file[HEADER_BYTES as usize..]).expect("a frame");
    let snapshot_bytes = HEADER_BYTES + snapshot.frame_bytes() as u64;
    let edit = ManifestEdit { settings: pairs(&[("write_buffer", "1024")]), ..ManifestEdit::default() };
    let mut outgrown = Vec::new();
    for _ in 0..20 {
        let edits_bytes = writer.bytes() - snapshot_bytes;
        let is_outgrown = edits_bytes > snapshot_bytes;
        assert_eq!(writer.is_outgrown(0), is_outgrown, "{edits_bytes} after {snapshot_bytes}");
        assert_eq!(
            writer.is_outgrown(edits_bytes.saturating_sub(1)),
            is_outgrown,
            "{edits_bytes} after {snapshot_bytes}"
        );
        assert!(!writer.is_outgrown(edits_bytes), "{edits_bytes} after {snapshot_bytes}");
        outgrown.push(is_outgrown);
        writer.append(&edit).expect("appended");
    }
    assert_eq!((outgrown.first(), outgrown.last()), (Some(&false), Some(&true)));
}

#[test]
fn a_writer_is_out_of_space_only_after_an_append_that_found_none() {
    let edits = life();
    let states = states(&edits);
    // Appends write first the edit, then the promise of its sync.
    for (kind, nth, effect, is_appended, is_out_of_space) in [
        (OpKind::Append, 0, Effect::Enospc, false, true),
        (OpKind::Append, 1, Effect::Enospc, true, true),
        (OpKind::Append, 0, Effect::Eio, false, false),
        (OpKind::Append, 1, Effect::Eio, false, false),
        (OpKind::SyncData, 0, Effect::Enospc, false, false),
    ] {
        let calm = new_env(1);
        let faults = Arc::new(FaultFs::new(Arc::clone(&calm.vfs), 1));
        let env = Env { vfs: Arc::clone(&faults) as _, ..calm.clone() };
        let mut writer = written(&env, &edits[..2]);
        assert!(!writer.is_out_of_space());
        faults.add_rule(FaultRule::nth(nth, effect).on(&[kind]));
        let told = format!("{effect:?} at call {nth} of {kind:?}");
        assert_eq!(writer.append(&edits[2]).is_ok(), is_appended, "{told}");
        assert_eq!(faults.faults_injected(), 1, "{told}");
        assert_eq!(writer.is_out_of_space(), is_out_of_space, "{told}");
        writer.append(&edits[3]).expect_err("a failed writer stays failed");
        if is_out_of_space {
            let loaded = load(&calm).expect("loaded").expect("a database");
            let expected = &states[if is_appended { 2 } else { 1 }];
            assert_eq!(text(&loaded.state), text(expected), "{told}");
        }
    }
}
