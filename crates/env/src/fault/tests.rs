//! Rules affect the calls that they name, and no others.

use super::*;
use crate::clock::ManualClock;
use crate::{MemFs, append_all, read_exact_at, read_file, write_file_synced};

fn faulty() -> FaultFs {
    FaultFs::new(Arc::new(MemFs::new()), 1)
}

fn at(path: &str) -> &Path {
    Path::new(path)
}

fn kind_of<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn the_nth_matching_call_fails_once_with_the_system_s_number() {
    for (effect, number, kind) in [
        (Effect::Enospc, 28, io::ErrorKind::StorageFull),
        (Effect::Edquot, 122, io::ErrorKind::QuotaExceeded),
        (Effect::Eintr, 4, io::ErrorKind::Interrupted),
    ] {
        let fs = faulty();
        let mut file = fs.create(at("/a.log")).expect("created");
        fs.add_rule(FaultRule::nth(1, effect).on(&[OpKind::Append]).at_path(".log"));
        assert_eq!(file.append(b"one").expect("the first passes"), 3);
        let failed = file.append(b"two").expect_err("the second fails");
        assert_eq!((failed.raw_os_error(), failed.kind()), (Some(number), kind));
        assert_eq!(file.append(b"three").expect("the third passes"), 5);
        assert_eq!(fs.faults_injected(), 1);
        assert_eq!(read_file(&fs, at("/a.log")).expect("read"), b"onethree");
    }
}

#[test]
fn a_sticky_rule_goes_on_until_it_is_cleared() {
    let fs = faulty();
    let mut file = fs.create(at("/a")).expect("created");
    fs.add_rule(FaultRule::nth(1, Effect::Eio).on(&[OpKind::SyncData]).sticky());
    file.sync_data().expect("the first passes");
    for _ in 0..3 {
        assert_eq!(file.sync_data().expect_err("fails").raw_os_error(), Some(5));
    }
    file.sync_all().expect("another kind passes");
    fs.clear_rules();
    file.sync_data().expect("passes again");
    assert_eq!(fs.faults_injected(), 3);
}

#[test]
fn paths_narrow_a_rule_and_a_rename_has_two() {
    let fs = faulty();
    fs.add_rule(FaultRule::nth(0, Effect::Eio).at_path("CURRENT").sticky());
    drop(fs.create(at("/CURRENT.tmp")).expect_err("named"));
    drop(fs.create(at("/other")).expect("not named"));
    drop(fs.rename(at("/other"), at("/CURRENT")).expect_err("the second path is named"));
    fs.unlink(at("/other")).expect("it was not renamed");
}

#[test]
fn short_calls_are_looped_to_completion_by_the_helpers() {
    let fs = faulty();
    fs.add_rule(FaultRule::nth(0, Effect::ShortWrite).sticky());
    fs.add_rule(FaultRule::nth(0, Effect::ShortRead).sticky());
    let mut file = fs.create(at("/a")).expect("created");
    assert_eq!(file.append(b"12345678").expect("taken in part"), 4);
    append_all(file.as_mut(), b"5678abcdefg").expect("looped");
    let reader = fs.open_read(at("/a")).expect("opened");
    let mut buf = [0; 10];
    assert_eq!(reader.read_at(0, &mut buf).expect("read in part"), 5);
    read_exact_at(reader.as_ref(), 3, &mut buf).expect("looped");
    assert_eq!(&buf, b"45678abcde");
    assert!(fs.faults_injected() > 5);
}

#[test]
fn spoilt_reads_differ_and_the_file_does_not() {
    let inner = MemFs::new();
    let content: Vec<u8> = (0..20_000u32).map(|i| (i / 64 % 251) as u8).collect();
    write_file_synced(&inner, at("/a"), &content).expect("written");
    write_file_synced(&inner, at("/small"), b"0123456789").expect("written");
    for effect in [Effect::FlipBitOnRead, Effect::MisdirectedRead] {
        let fs = FaultFs::new(Arc::new(inner.clone()), 7);
        fs.add_rule(FaultRule::nth(0, effect).sticky());
        for (path, offset, bytes) in [("/a", 0u64, 512usize), ("/a", 9_000, 512), ("/small", 2, 8)] {
            let mut buf = vec![0; bytes];
            let reader = fs.open_read(at(path)).expect("opened");
            assert_eq!(reader.read_at(offset, &mut buf).expect("read"), bytes);
            let truth = read_file(&inner, at(path)).expect("read");
            let truth = &truth[offset as usize..offset as usize + bytes];
            assert_ne!(buf, truth, "{effect:?} on {path} at {offset} shows nothing");
            if effect == Effect::FlipBitOnRead {
                let flipped: u32 = buf.iter().zip(truth).map(|(a, b)| (a ^ b).count_ones()).sum();
                assert_eq!(flipped, 1);
            }
        }
    }
}

#[test]
fn latency_passes_on_the_given_clock() {
    let clock = Arc::new(ManualClock::new());
    let fs = FaultFs::with_clock(Arc::new(MemFs::new()), 1, clock.clone());
    fs.add_rule(FaultRule::nth(0, Effect::LatencyUs(250)).on(&[OpKind::Create]).sticky());
    drop(fs.create(at("/a")).expect("created"));
    drop(fs.create(at("/b")).expect("created"));
    assert!(fs.exists(at("/a")).expect("asked"));
    assert_eq!(clock.now_us(), 500);
}

/// A script that stops at its first error, as the loops over call numbers run it.
fn script(fs: &FaultFs) -> io::Result<()> {
    fs.create_dir_all(at("/d"))?;
    let mut file = fs.create(at("/d/tmp"))?;
    file.append(b"hello")?;
    file.sync_data()?;
    fs.rename(at("/d/tmp"), at("/d/CURRENT"))?;
    fs.sync_dir(at("/d"))?;
    let mut buf = [0; 5];
    fs.open_read(at("/d/CURRENT"))?.read_at(0, &mut buf)?;
    fs.list(at("/d")).map(drop)
}

#[test]
fn failing_each_call_in_turn_covers_the_script_exactly() {
    let traced = faulty();
    traced.start_trace();
    script(&traced).expect("no rules");
    let kinds: Vec<OpKind> = traced.take_trace().into_iter().map(|(kind, _)| kind).collect();
    use OpKind::*;
    assert_eq!(kinds, [CreateDir, Create, Append, SyncData, Rename, SyncDir, OpenRead, Read, List]);
    assert_eq!(traced.calls(), kinds.len() as u64);

    for (effect, sites) in [(Effect::Eio, 9), (Effect::Enospc, 6), (Effect::Emfile, 4), (Effect::Eintr, 2)] {
        let mut failed = 0;
        for i in 0.. {
            let fs = faulty();
            fs.add_rule(FaultRule::nth(i, effect));
            let result = script(&fs);
            if fs.faults_injected() == 0 {
                result.expect("no fault, no error");
                break;
            }
            assert!(result.is_err(), "{effect:?} at matching call {i} was swallowed");
            failed += 1;
        }
        assert_eq!(failed, sites, "call sites of {effect:?}");
    }
}

#[test]
fn a_storm_is_the_same_for_the_same_seed_and_near_its_probability() {
    let run = |seed| {
        let fs = FaultFs::new(Arc::new(MemFs::new()), seed);
        fs.add_rule(FaultRule::storm(0.25, Effect::Eio));
        (0..2_000).map(|_| kind_of(fs.exists(at("/a"))).is_some()).collect::<Vec<bool>>()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
    let failed = run(3).into_iter().filter(|failed| *failed).count();
    assert!((400..600).contains(&failed), "{failed} of 2000");
}
