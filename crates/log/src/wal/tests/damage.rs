//! Damage sweep: every byte flipped, every length, zeros from every byte on, every file missing.
//! Replay must return exactly the result that the promises imply.
//!
//! The expected result is computed from the frames of the undamaged story. A promise counts if the
//! damage left it readable. Damage that a promise covers must be an error that names the damaged
//! file; any other damage must leave exactly the batches before it.

use super::*;

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip {
        log: usize,
        at: usize,
        mask: u8,
    },
    Cut {
        log: usize,
        bytes: usize,
    },
    /// From here on the file has zeros, also beyond its end.
    Zero {
        log: usize,
        from: usize,
    },
    Delete {
        log: usize,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Expected {
    Batches(usize),
    Corruption,
    Unsupported,
}

impl Damage {
    fn log(self) -> usize {
        match self {
            Self::Flip { log, .. }
            | Self::Cut { log, .. }
            | Self::Zero { log, .. }
            | Self::Delete { log } => log,
        }
    }

    fn apply(self, story: &Story) -> Env {
        let log = &story.logs[self.log()];
        let replacement = match self {
            Self::Flip { at, mask, .. } => {
                let mut bytes = log.bytes.clone();
                bytes[at] ^= mask;
                Some(bytes)
            }
            Self::Cut { bytes, .. } => Some(log.bytes[..bytes].to_vec()),
            Self::Zero { from, .. } => {
                let mut bytes = log.bytes[..from].to_vec();
                bytes.resize(log.bytes.len() + 700, 0);
                Some(bytes)
            }
            Self::Delete { .. } => None,
        };
        story.restore(&[(self.log(), replacement)])
    }

    /// Whether the bytes from `start` to `end` of log `log` are unchanged.
    fn spares(self, log: usize, start: u64, end: u64) -> bool {
        if log != self.log() {
            return true;
        }
        match self {
            Self::Flip { at, .. } => !(start..end).contains(&(at as u64)),
            Self::Cut { bytes, .. } => end <= bytes as u64,
            Self::Zero { from, .. } => end <= from as u64,
            Self::Delete { .. } => false,
        }
    }

    /// Offset of the damage for replay: the beginning of the file header or frame that is damaged.
    fn place(self, log: &LogFile) -> u64 {
        let at = match self {
            Self::Flip { at, .. } => at as u64,
            Self::Cut { bytes, .. } => bytes as u64,
            Self::Zero { from, .. } => from as u64,
            Self::Delete { .. } => 0,
        };
        if at < HEADER_BYTES {
            return 0;
        }
        log.frames.iter().map(|frame| frame.start).filter(|&start| start <= at).max().unwrap_or(HEADER_BYTES)
    }

    fn expected(self, story: &Story, manifest: Option<(LogNo, u64)>) -> Expected {
        let damaged = &story.logs[self.log()];
        if let Self::Flip { at, mask, .. } = self {
            if (8..20).contains(&at) && (at, mask) != (8, 1) {
                return Expected::Unsupported;
            }
        }
        let untouched = match self {
            Self::Flip { at, .. } => at as u64 >= story.used_bytes(self.log()),
            Self::Cut { bytes, .. } => bytes as u64 >= story.used_bytes(self.log()),
            Self::Zero { from, .. } => from as u64 >= story.used_bytes(self.log()),
            Self::Delete { .. } => false,
        };
        if untouched {
            return Expected::Batches(story.batches.len());
        }
        let place = match self {
            // A cut between two frames is found at the cut.
            Self::Cut { bytes, .. } | Self::Zero { from: bytes, .. }
                if damaged.frames.iter().any(|frame| frame.end == bytes as u64) =>
            {
                bytes as u64
            }
            _ => self.place(damaged),
        };
        let mut promises: Vec<(LogNo, u64)> = manifest.into_iter().collect();
        for (index, log) in story.logs.iter().enumerate() {
            for frame in &log.frames {
                if self.spares(index, frame.start, frame.end) {
                    promises.push((log.number, frame.promise));
                }
            }
            let head_end = log.frames[0].end;
            if let Some(before) = log.head.predecessor {
                if self.spares(index, 0, head_end) {
                    promises.push((before.number, before.synced));
                }
            }
        }
        let number = damaged.number;
        let covers = |&(about, below): &(LogNo, u64)| {
            below > 0 && (about > number || about == number && place < below)
        };
        if promises.iter().any(covers) {
            return Expected::Corruption;
        }
        let whole =
            |batch: &&BatchAt| batch.log < self.log() || batch.log == self.log() && batch.end <= place;
        Expected::Batches(story.batches.iter().filter(whole).count())
    }

    fn check(self, story: &Story, manifest: Option<(LogNo, u64)>) {
        let env = self.apply(story);
        let options = ReplayOptions { promise: manifest, ..story.options() };
        let told = format!("{self:?} of {:?}, manifest {manifest:?}", story.logs[self.log()].frames);
        let result = replay_all(&env, &options);
        match (self.expected(story, manifest), result) {
            (Expected::Batches(count), Ok((report, got))) => {
                assert_eq!(got.len(), count, "{told}");
                story.check_prefix(&got, count);
                let last =
                    story.batches[..count].last().map_or(0, |batch| batch.ops.last().expect("ops").0.0);
                assert_eq!(report.last_seq, SeqNo(last), "{told}");
            }
            (Expected::Corruption, Err(error)) => {
                assert!(matches!(error, Error::Corruption { .. }), "{told}: {error:?}");
                assert_eq!(damaged_file(&error), story.logs[self.log()].path(), "{told}: {error}");
                // Point-in-time recovery: the same damage is no error, and loses only what follows
                // it.
                let options = ReplayOptions { recovery: Recovery::PointInTime, ..options };
                let (report, got) = replay_all(&env, &options).expect("kept what comes before");
                story.check_prefix(&got, got.len());
                assert!(got.len() >= story.batches.iter().filter(|batch| batch.log < self.log()).count());
                assert!(!report.warnings.is_empty(), "{told}");
            }
            (Expected::Unsupported, Err(error)) => {
                assert!(matches!(error, Error::Unsupported { .. }), "{told}: {error:?}");
            }
            (expected, Ok((report, got))) => {
                panic!("{told}: expected {expected:?}, got {} batches, {report:?}", got.len())
            }
            (expected, Err(error)) => panic!("{told}: expected {expected:?}, got {error}"),
        }
    }
}

/// Promises that a manifest could hold: none, a part of the first log, all of the last log.
fn manifests(story: &Story) -> Vec<Option<(LogNo, u64)>> {
    let (first, last) = (&story.logs[0], &story.logs[story.logs.len() - 1]);
    let said =
        last.frames.iter().rfind(|frame| frame.kind != FrameKind::Promise).map_or(0, |frame| frame.end);
    vec![None, Some((first.number, first.frames[0].end)), Some((last.number, said))]
}

#[test]
fn every_flipped_byte() {
    for story in stories() {
        for manifest in manifests(&story) {
            for log in 0..story.logs.len() {
                for at in 0..story.logs[log].bytes.len() {
                    for mask in [0x01, 0x80, 0xff] {
                        Damage::Flip { log, at, mask }.check(&story, manifest);
                    }
                }
            }
        }
    }
}

#[test]
fn every_length() {
    for story in stories() {
        for manifest in manifests(&story) {
            for log in 0..story.logs.len() {
                for bytes in 0..=story.logs[log].bytes.len() {
                    Damage::Cut { log, bytes }.check(&story, manifest);
                }
            }
        }
    }
}

#[test]
fn zeros_from_every_byte_on() {
    for story in stories() {
        for manifest in manifests(&story) {
            for (log, file) in story.logs.iter().enumerate() {
                // Where the file itself has zeros, less is missing than from there on.
                for from in (0..file.bytes.len()).filter(|&from| file.bytes[from] != 0) {
                    Damage::Zero { log, from }.check(&story, manifest);
                }
                Damage::Zero { log, from: file.bytes.len() }.check(&story, manifest);
            }
        }
    }
}

#[test]
fn zeros_after_the_last_record_are_no_damage() {
    for story in stories() {
        let (_, before) = replay_all(&story.restore(&[]), &story.options()).expect("undamaged");
        let last = story.logs.len() - 1;
        let env = Damage::Zero { log: last, from: story.logs[last].bytes.len() }.apply(&story);
        let (report, got) = replay_all(&env, &story.options()).expect("the same");
        assert_eq!(got, before);
        assert_eq!(report.warnings, []);
    }
}

#[test]
fn bytes_after_zeros_are_a_torn_tail() {
    let act = [Act::Batch(60), Act::Flush].repeat(3);
    let story = Story::write(3, &act);
    let mut bytes = story.logs[0].bytes.clone();
    let [second, third] = [0, 1].map(|batch| story.batches[batch].end as usize);
    bytes[second..third].fill(0);
    let (report, got) = replay_all(&story.restore(&[(0, Some(bytes))]), &story.options()).expect("torn");
    story.check_prefix(&got, 1);
    let warnings: Vec<u64> = report.warnings.iter().map(|warning| warning.offset).collect();
    assert_eq!(warnings, [second as u64], "the lost batch is reported");
}

#[test]
fn every_file_gone() {
    for story in stories() {
        for manifest in manifests(&story) {
            for log in 0..story.logs.len() {
                Damage::Delete { log }.check(&story, manifest);
            }
        }
    }
}

#[test]
fn records_of_several_frames() {
    let story = long_story();
    let log = &story.logs[0];
    assert!(log.frames.iter().any(|frame| frame.kind == FrameKind::Middle));
    for frame in &log.frames {
        for at in [frame.start, frame.start + 5, frame.start + 10, frame.end - 1] {
            Damage::Flip { log: 0, at: at as usize, mask: 0x10 }.check(&story, None);
            Damage::Cut { log: 0, bytes: at as usize }.check(&story, None);
        }
        Damage::Cut { log: 0, bytes: frame.end as usize }.check(&story, None);
    }
}

#[test]
fn a_sector_of_zeros_hides_no_promise() {
    let story =
        Story::write(5, &[Act::Batch(600), Act::Sync, Act::Batch(600), Act::Sync, Act::Batch(1), Act::Flush]);
    let log = &story.logs[0];
    let promise = log.frames.iter().map(|frame| frame.promise).max().expect("frames");
    for start in (0..log.bytes.len()).step_by(512) {
        let mut bytes = log.bytes.clone();
        let end = bytes.len().min(start + 512);
        bytes[start..end].fill(0);
        let result = replay_all(&story.restore(&[(0, Some(bytes))]), &story.options());
        let carrier_lost = log
            .frames
            .iter()
            .filter(|frame| frame.promise == promise)
            .all(|frame| (start as u64) < frame.end && frame.start < end as u64);
        match result {
            Err(error) => assert!(matches!(error, Error::Corruption { .. })),
            Ok((_, got)) => {
                assert!(start as u64 >= promise || carrier_lost, "zeros from {start} on were not noticed");
                story.check_prefix(&got, got.len());
            }
        }
    }
}

#[test]
fn any_damage_leaves_whole_batches_or_an_error_that_names_a_file() {
    let rng = SeededRng::new(0xD1CE);
    let stories = stories();
    let below = |bound: usize| (rng.next_u64() % bound.max(1) as u64) as usize;
    for round in 0..4_000 {
        let story = &stories[below(stories.len())];
        let mut replaced = Vec::new();
        for (index, log) in story.logs.iter().enumerate() {
            let mut bytes = log.bytes.clone();
            for _ in 0..below(3) {
                let at = below(bytes.len());
                match below(5) {
                    0 => bytes.truncate(at),
                    1 => bytes.iter_mut().skip(at).take(40).for_each(|byte| *byte = 0),
                    2 => bytes.extend_from_slice(&log.bytes[at.min(log.bytes.len())..]),
                    3 => bytes.iter_mut().skip(at).take(9).for_each(|byte| *byte = rng.next_u64() as u8),
                    _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << below(8)),
                }
            }
            replaced.push((index, Some(bytes)));
        }
        let env = story.restore(&replaced);
        let first = replay_all(&env, &story.options());
        match &first {
            Ok((_, got)) => story.check_prefix(got, got.len()),
            Err(error) if error.is_corruption() => {
                assert!(damaged_file(error).starts_with(DIR), "round {round}");
            }
            Err(error) => assert!(matches!(error, Error::Unsupported { .. }), "round {round}: {error:?}"),
        }
        // Replay changes nothing: a second replay returns the same result.
        let second = replay_all(&env, &story.options());
        match (first, second) {
            (Ok((first, _)), Ok((second, _))) => assert_eq!(first.last_seq, second.last_seq),
            (Err(first), Err(second)) => assert_eq!(first.to_string(), second.to_string()),
            _ => panic!("round {round}: the second replay differs"),
        }
    }
}

#[test]
fn hostile_bytes_are_read_in_linear_time_and_bounded_memory() {
    // Every third offset looks like a promise until its checksum is computed, and none is one.
    let story = Story::write(9, &[Act::Batch(1), Act::Flush]);
    let mut bytes = story.logs[0].bytes.clone();
    bytes.extend([7, 12, 0].iter().copied().cycle().take(1 << 20));
    let (_, got) = replay_all(&story.restore(&[(0, Some(bytes))]), &story.options()).expect("a torn tail");
    story.check_prefix(&got, 1);
}
