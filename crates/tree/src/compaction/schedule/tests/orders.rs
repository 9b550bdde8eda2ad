//! Property test of claims: random jobs that are claimed together may install their slices in any
//! order, with flushes in between and further jobs in the keys that are free again.
//!
//! The model holds every version of every key in every table. After each step the versions of a key
//! descend in lookup order, every key reads as it was written, and every claim still fits the tree.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use shamba_key::{Age, KeyspaceId, RunId, SeqNo};
use shamba_table::{BirthId, TableId};

use crate::compaction::policy::{
    CompactionInput, CompactionJob, OutputRun, Reason, Target, slice_edit, slices,
};
use crate::compaction::schedule::{Claims, RunPlace};
use crate::version::{Change, ConsumedValues, KeyRange, TableMeta, TableUse, Version, VersionEdit};

const KEYS: std::ops::Range<u8> = b'a'..b'u';

/// One version of a key.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Entry {
    seq: u64,
    is_delete: bool,
}

type Entries = BTreeMap<u8, Entry>;

#[derive(Clone)]
struct World {
    version: Version,
    claims: Claims,
    running: Vec<Running>,
    tables: HashMap<TableId, Entries>,
    written: BTreeMap<u8, Entry>,
    last_id: u64,
    last_seq: u64,
}

#[derive(Clone)]
struct Running {
    claim: u64,
    job: CompactionJob,
    output: OutputRun,
    version: Version,
    slices: Vec<KeyRange>,
    installed: usize,
}

impl World {
    fn new(rng: &mut Rng) -> Self {
        let mut world = Self {
            version: Version::empty(),
            claims: Claims::default(),
            running: Vec::new(),
            tables: HashMap::new(),
            written: BTreeMap::new(),
            last_id: 0,
            last_seq: 0,
        };
        for level in (0..4).rev() {
            for _ in 0..rng.u32(1..4) {
                world.add_run(level, rng);
            }
        }
        world
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Adds a run whose entries are newer than all others.
    fn add_run(&mut self, level: u32, rng: &mut Rng) {
        let mut entries = Entries::new();
        for key in KEYS {
            if rng.u8(0..3) > 0 {
                self.last_seq += 1;
                entries.insert(key, Entry { seq: self.last_seq, is_delete: rng.u8(0..4) == 0 });
            }
        }
        self.written.extend(entries.iter().map(|(key, entry)| (*key, *entry)));
        let (run, age) = (RunId(self.next_id()), Age(self.next_id()));
        let tables = self.write(entries, rng);
        let changes = tables.into_iter().map(|table| Change::Add { level, run, age, table }).collect();
        let edit = VersionEdit { keyspace: KeyspaceId(0), changes };
        self.version = self.version.apply(&edit).expect("a good edit");
    }

    /// Tables of 1 to 5 entries.
    fn write(&mut self, mut entries: Entries, rng: &mut Rng) -> Vec<TableUse> {
        let mut tables = Vec::new();
        while let Some(first) = entries.keys().next().copied() {
            let rest = entries.split_off(&(first + rng.u8(1..7)));
            let table = std::mem::replace(&mut entries, rest);
            let last = *table.keys().next_back().expect("not empty");
            let seqs = || table.values().map(|entry| SeqNo(entry.seq));
            let meta = TableMeta {
                id: TableId(self.next_id()),
                birth: BirthId(0),
                file_bytes: table.len() as u64,
                entries: table.len() as u64,
                deletes: table.values().filter(|entry| entry.is_delete).count() as u64,
                range_deletes: 0,
                smallest: Bytes::from(vec![first]),
                upper: Some(Bytes::from(vec![last + 1])),
                smallest_seq: seqs().min().unwrap_or_default(),
                largest_seq: seqs().max().unwrap_or_default(),
                bits_per_key: 0.0,
                reader: Default::default(),
                oldest_tombstone: Default::default(),
                older_versions: Default::default(),
                expiring: Default::default(),
                values: Default::default(),
                statistics: Default::default(),
            };
            self.tables.insert(meta.id, table);
            tables.push(TableUse::whole(Arc::new(meta)));
        }
        tables
    }

    /// A job that keeps lookup order: random tables of a run, a random target, and every table that
    /// must come along.
    fn random_job(&self, rng: &mut Rng) -> Option<CompactionJob> {
        let runs: Vec<_> = self.version.runs().collect();
        let (level, source) = runs[rng.usize(..runs.len())];
        let (target_level, target_run) = if rng.bool() {
            let (level, run) = runs[rng.usize(..runs.len())];
            (level, Target::Existing(run.id))
        } else {
            (rng.u32(level.max(1)..5), Target::New)
        };
        if target_level < level {
            return None;
        }
        let place = |level, age| RunPlace { level, age };
        let target = match target_run {
            Target::Existing(id) => place(target_level, self.version.run(id)?.1.age),
            Target::New => RunPlace::newest_of(target_level),
        };
        let first = rng.usize(..source.tables().len());
        let count = rng.usize(1..=(source.tables().len() - first).min(3));
        let mut moved: Vec<_> = source.tables()[first..first + count]
            .iter()
            .map(|table| (place(level, source.age), source.id, table.clone()))
            .collect();
        let mut at = 0;
        while at < moved.len() {
            let (from, _, table) = moved[at].clone();
            let (low, high) = (from.min(target), from.max(target));
            for (level, run) in &runs {
                let here = place(*level, run.age);
                if here == from || !(low..=high).contains(&here) {
                    continue;
                }
                for other in run.overlapping(&table.range) {
                    if !moved.iter().any(|(_, id, moved)| *id == run.id && moved.meta.id == other.meta.id) {
                        moved.push((here, run.id, other.clone()));
                    }
                }
            }
            at += 1;
        }
        if target_level == 0 && target != place(level, source.age) {
            // Runs of level 0 are merged whole, as the scheduler does: otherwise the metadata of
            // the tables could not show that their order is kept (`Version::check`).
            let (low, high) = (target.min(place(level, source.age)), target.max(place(level, source.age)));
            let whole = runs.iter().filter(|(level, run)| (low..=high).contains(&place(*level, run.age)));
            moved = whole
                .flat_map(|(level, run)| {
                    run.tables().iter().map(|table| (place(*level, run.age), run.id, table.clone()))
                })
                .collect();
        }
        let inputs = runs.iter().filter_map(|(level, run)| {
            let is_moved = |table: &&TableUse| {
                moved.iter().any(|(_, id, moved)| *id == run.id && moved.meta.id == table.meta.id)
            };
            let tables: Vec<_> = run.tables().iter().filter(is_moved).map(|table| table.meta.id).collect();
            (!tables.is_empty()).then_some(CompactionInput { level: *level, run: run.id, tables })
        });
        Some(CompactionJob { inputs: inputs.collect(), target_level, target_run, reason: Reason::Manual })
    }

    /// Tries to claim random jobs; returns how many conflicted with a running one.
    fn claim_some(&mut self, tries: usize, rng: &mut Rng) -> usize {
        let mut conflicts = 0;
        for _ in 0..tries {
            let Some(job) = self.random_job(rng) else { continue };
            if job.inputs.iter().any(|input| input.level > job.target_level) {
                continue;
            }
            let fresh = (RunId(self.next_id()), Age(self.next_id()));
            match self.claims.claim(&self.version, job.clone(), fresh, 1.0) {
                Ok(claim) => {
                    let (claim, output) = (claim.number(), claim.output());
                    let keys: Vec<_> =
                        KEYS.filter(|_| rng.bool()).map(|key| Bytes::from(vec![key])).collect();
                    let slices = slices(&job, &self.version, 1, &|_, _| keys.clone());
                    let version = self.version.clone();
                    self.running.push(Running { claim, job, output, version, slices, installed: 0 });
                }
                Err(crate::compaction::schedule::Refused::Conflict(_)) => conflicts += 1,
                Err(crate::compaction::schedule::Refused::Invalid(_)) => {}
            }
        }
        for (at, claim) in self.claims.iter().enumerate() {
            assert!(self.claims.iter().take(at).all(|other| !other.span().intersects(claim.span())));
        }
        conflicts
    }

    /// Compacts and installs the next slice of a running job.
    fn install(&mut self, at: usize, rng: &mut Rng) -> Result<(), String> {
        let running = self.running[at].clone();
        let slice = &running.slices[running.installed];
        self.claims.get(running.claim).ok_or("no claim")?.check(&self.version)?;
        let below = running.job.below(&running.version, slice);
        let mut entries = Entries::new();
        for (_, _, table) in running.job.uses(&running.version) {
            for (key, entry) in &self.tables[&table.meta.id] {
                if table.range.contains(&[*key]) && slice.contains(&[*key]) {
                    entries.entry(*key).or_insert(*entry);
                }
            }
        }
        entries.retain(|key, entry| !entry.is_delete || below.iter().any(|range| range.contains(&[*key])));
        let outputs = self.write(entries, rng);
        let live = |table: &TableUse, _: &KeyRange| table.live_bytes;
        let built = (outputs, &ConsumedValues::default());
        let edit =
            slice_edit(KeyspaceId(0), &self.version, &running.job, slice, built, running.output, &live);
        self.version = self.version.apply(&edit)?;
        self.running[at].installed += 1;
        let is_last = self.running[at].installed == running.slices.len();
        self.claims.install(running.claim, slice.upper.as_ref().filter(|_| !is_last));
        if is_last {
            self.claims.release(running.claim);
            self.running.remove(at);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        self.version.check()?;
        for claim in self.claims.iter() {
            claim.check(&self.version).map_err(|why| format!("job {}: {why}", claim.number()))?;
        }
        for key in KEYS {
            let tables = self.version.runs().filter_map(|(_, run)| run.table_for(&[key]));
            let found: Vec<Entry> =
                tables.filter_map(|table| self.tables[&table.meta.id].get(&key).copied()).collect();
            if found.windows(2).any(|pair| pair[0].seq <= pair[1].seq) {
                return Err(format!("versions of {} are {found:?}", key as char));
            }
            let visible = |entry: Option<&Entry>| entry.filter(|entry| !entry.is_delete).copied();
            if visible(found.first()) != visible(self.written.get(&key)) {
                return Err(format!(
                    "{} reads {:?}, {:?} was written",
                    key as char,
                    found.first(),
                    self.written.get(&key)
                ));
            }
        }
        Ok(())
    }
}

#[test]
fn every_order_of_installs_gives_the_same_data() {
    const ORDERS: u64 = 6;
    let (mut conflicts, mut installs, mut at_once, mut flushes) = (0, 0, 0, 0);
    for seed in 0..150 {
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let mut start = World::new(&mut rng);
        start.check().expect("a tree in order");
        conflicts += start.claim_some(40, &mut rng);
        for order in 0..ORDERS {
            let mut rng = Rng::with_seed(seed * ORDERS + order);
            let mut world = start.clone();
            for _ in 0..60 {
                at_once += usize::from(world.running.len() > 1);
                let Some(at) = (!world.running.is_empty()).then(|| rng.usize(..world.running.len())) else {
                    break;
                };
                let what = format!("seed {seed}, order {order}: {}", world.running[at].job);
                let before = world.version.to_string();
                let installed = world.install(at, &mut rng).and_then(|()| world.check());
                installed.unwrap_or_else(|why| panic!("{what}: {why}\n{before}\n{}", world.version));
                installs += 1;
                match rng.u8(0..6) {
                    0 => {
                        world.add_run(0, &mut rng);
                        flushes += 1;
                    }
                    1 => conflicts += world.claim_some(4, &mut rng),
                    _ => {}
                }
                world.check().unwrap_or_else(|why| panic!("{what}, then a flush or claims: {why}"));
            }
        }
    }
    println!(
        "{installs} installs, {at_once} of them beside other jobs, {flushes} flushes, {conflicts} conflicts"
    );
    assert!(installs > 5_000 && at_once > 2_000 && flushes > 300 && conflicts > 1_000);
}
