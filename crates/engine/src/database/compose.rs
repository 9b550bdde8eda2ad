//! Composition: constructs the parts of a database, from the lowest to the highest, and connects
//! them.
//!
//! A part holds references to lower parts only. A lower part that has to notify a higher one gets a
//! weak reference to it here, as a trait that the lower part defines:
//! - [`InstallObserver`]: versions were installed;
//! - [`Consumer`]: memory is needed;
//! - `Background`: sealed memtables need a flush, or failed work should be retried.

use std::path::Path;
use std::sync::{Arc, Weak};

use shamba_env::{Env, FileLock};
use shamba_memtable::ChunkedMemtable;
use shamba_tree::compaction::filter::Filtering;
use shamba_tree::expiry::ExpiryClock;
use shamba_tree::version::manifest::ManifestState;

use super::builder::Builder;
use super::core::Core;
use crate::catalog::{Catalog, InstallObserver, KeyspaceCore, Keyspaces};
use crate::directory::number_after;
use crate::error::Result;
use crate::filter_bits::FilterBits;
use crate::lifecycle::Lifecycle;
use crate::lock_order;
use crate::memory::{Consumer, Member, MemoryManager};
use crate::options::fifo::FifoState;
use crate::options::keyspace::KeyspaceOptions;
use crate::options::keyspace::rules::{
    GivenOptions, check_fifo_with, fifo_for, filter_for, operator_for, overrides_for, prefix_for,
    recorded_prefix, time_to_live_of,
};
use crate::options::overrides::Overrides;
use crate::options::settings::Settings;
use crate::ranked::Ranked;
use crate::reads::Reads;
use crate::residency::ResidencyManager;
use crate::scheduler::{Scheduler, Worth};
use crate::statistics::SavedStatistics;
use crate::table_files::TableFiles;
use crate::telemetry::{Observers, Telemetry};
use crate::trace::TraceRecorder;
use crate::tuning::{DesignTuning, Moves};
use crate::workers::{Waker, Workers};
use crate::workload::WorkloadObserver;
use crate::workload::locality::sampled_blocks_max;
use crate::writer::{Writer, WriterMemory};

/// The parts of the database in `dir`, whose manifest has `state`. `files` are the names of the
/// files there: new numbers are above theirs.
pub(super) fn compose(
    builder: &Builder,
    env: Env,
    dir: &Path,
    (settings, member): (Settings, Option<Member>),
    state: &ManifestState,
    files: &[String],
    file_lock: Box<dyn FileLock>,
) -> Result<Core> {
    let observers = Observers {
        listener: builder.listener.clone(),
        info_log: settings.info_log && !settings.read_only,
        times_lookups: settings.timers,
    };
    let settings = Arc::new(settings);
    let telemetry = Arc::new(Telemetry::new(&env, dir, observers, settings.digest_seed));
    let lifecycle = Arc::new(Lifecycle::new(settings.read_only, Arc::clone(&telemetry)));
    let told = || (Arc::clone(&lifecycle), Arc::clone(&telemetry));
    let waker = Waker::default();
    let recorder = Arc::new(TraceRecorder::new(&env, Arc::clone(&telemetry)));
    // Not of a whole shared budget: each of its databases has a sample.
    let budget_bytes = member.as_ref().map_or(settings.memory_budget_bytes, Member::granted_bytes);
    let sampled_blocks = sampled_blocks_max(budget_bytes);
    let memory = MemoryManager::new(Arc::clone(&settings), member, Arc::clone(&telemetry), sampled_blocks);
    let memory = Arc::new(memory);
    let (cache, ledger) = (memory.cache(), memory.ledger());

    let expiry = Arc::new(ExpiryClock::new(Arc::clone(&env.clock), state.time_ms));
    let keyspaces = keyspaces(state, &settings, &builder.keyspaces, (&lifecycle, &expiry))?;
    let next_id = state.next_id.max(number_after(files.iter().map(String::as_str), u64::MAX));
    let keyspaces = (keyspaces, settings.keep_log);
    let catalog = Catalog::new(&env, dir, keyspaces, next_id, told(), Arc::clone(&expiry));
    let catalog = Arc::new(catalog);
    let reads = Arc::new(Reads::new(
        &env,
        Arc::clone(&settings),
        (Arc::clone(cache), Arc::clone(memory.records())),
        (Arc::clone(memory.iterators()), expiry),
        state.last_seq,
        (Arc::clone(&telemetry), Arc::clone(&recorder)),
    ));
    let residency = Arc::new(ResidencyManager::new(
        &env,
        Arc::clone(&settings),
        Arc::clone(&memory),
        (Arc::clone(&catalog), Arc::clone(&reads)),
        Arc::clone(&telemetry),
        waker.clone(),
    ));
    let filter_bits =
        Arc::new(FilterBits::new(&env, Arc::clone(&settings), Arc::clone(&memory), Arc::clone(&catalog)));
    let statistics =
        SavedStatistics::new(&env, settings.statistics, Arc::clone(&catalog), told().0, told().1);
    let statistics = Arc::new(statistics);
    let workload = Arc::new(WorkloadObserver::new(
        &env,
        &state.settings,
        Arc::clone(&telemetry),
        Arc::clone(&reads),
        Arc::clone(cache),
    ));
    let table_files = Arc::new(TableFiles::new(
        &env,
        Arc::clone(&settings),
        (Arc::clone(cache), Arc::clone(ledger)),
        Arc::clone(&catalog),
        Arc::clone(&telemetry),
    ));

    let writer = Arc::new(Writer::new(
        &env,
        Arc::clone(&settings),
        (Arc::clone(&memory) as Arc<dyn WriterMemory>, Arc::clone(ledger)),
        Arc::clone(&catalog),
        Arc::clone(&reads),
        (Arc::clone(&lifecycle), Arc::clone(&telemetry), Arc::clone(&recorder)),
        state.last_seq,
    ));
    writer.give_options(builder.keyspaces.clone());
    let scheduler = Arc::new(Scheduler::new(
        &env,
        Arc::clone(&settings),
        (Arc::clone(&catalog), Arc::clone(&writer), Arc::clone(&reads)),
        (Arc::clone(&table_files), Arc::clone(&filter_bits), Arc::clone(&statistics)),
        told(),
        (Arc::clone(&residency), waker.clone()),
    ));
    let moves = Arc::new(Moves::new(Arc::clone(&scheduler), Arc::clone(&writer), Arc::clone(&residency)));
    let tuning = Arc::new(DesignTuning::new(
        &env,
        Arc::clone(&settings),
        &state.settings,
        Arc::clone(&catalog),
        told(),
        (Arc::clone(ledger), Arc::clone(&workload), Arc::clone(&filter_bits)),
    ));
    tuning.connect(Arc::clone(&moves) as _, moves);
    // An environment with its own threads (a simulation) gets a pool for this database alone.
    let workers = builder.workers.clone().unwrap_or_else(|| match env.spawner.is_shared() {
        true => Workers::of_process(env.spawner.as_ref()),
        false => Workers::new(scheduler.compaction_threads()),
    });
    let core = Core {
        env,
        settings,
        telemetry,
        lifecycle,
        recorder,
        memory,
        catalog,
        reads,
        residency,
        filter_bits,
        statistics,
        workload,
        table_files,
        writer,
        scheduler,
        tuning,
        workers,
        waker,
        sync_thread: Ranked::new(lock_order::SYNC_THREAD, None),
        sync_thread_id: Arc::default(),
        file_lock: Ranked::new(lock_order::FILE_LOCK, Some(file_lock)),
    };
    connect(&core);
    Ok(core)
}

/// The keyspaces of `state`, each with an empty memtable, and with the options that it has in this
/// open.
///
/// # Errors
/// `Invalid` for another operator or filter than the recorded one, for an extractor without bytes,
/// and for options that give a keyspace both a merge operator and FIFO limits.
fn keyspaces(
    state: &ManifestState,
    settings: &Settings,
    given: &GivenOptions,
    (lifecycle, expiry): (&Lifecycle, &ExpiryClock),
) -> Result<Keyspaces> {
    // The ages of FIFO tables do not go back, either.
    for recorded in state.keyspaces.values() {
        let fifo = FifoState::read(&recorded.settings)?;
        expiry.advance_to(fifo.and_then(|fifo| fifo.latest_ms()).unwrap_or(0));
    }
    let keyspaces = state.keyspaces.iter().map(|(id, recorded)| {
        let version = Arc::new(recorded.version.clone());
        let memtable = ChunkedMemtable::new(settings.memtable_index);
        let (name, closed) = (recorded.name.clone(), Arc::clone(lifecycle.closed_flag()));
        let merging = operator_for(&name, recorded.merge_operator.as_deref(), given.get(&name))?;
        let filtering = recorded.compaction_filter.as_deref().map(Filtering::recorded).map(Arc::new);
        let filtering = filter_for(&name, filtering.as_ref(), given.get(&name))?;
        let time_to_live = given.get(&name).and_then(KeyspaceOptions::given_time_to_live);
        let time_to_live =
            time_to_live.map_or_else(|| time_to_live_of(&name, &recorded.settings), |it| Ok(Some(it)))?;
        let prefix = prefix_for(&name, recorded_prefix(&recorded.settings), given.get(&name))?;
        let overrides = Overrides::recorded(&recorded.settings);
        let overrides = overrides_for(&name, &overrides, given.get(&name))?;
        let keyspace = KeyspaceCore::new(*id, name, version, memtable, merging, closed);
        keyspace.set_prefix(prefix);
        keyspace.set_overrides(overrides);
        keyspace.set_time_to_live(time_to_live);
        keyspace.set_filtering(filtering);
        let fifo = FifoState::read(&recorded.settings)?.map(Arc::new);
        let given = given.get(&keyspace.name);
        let fifo = fifo_for(fifo.as_ref(), given, (state.last_seq, expiry.now_ms()))?;
        check_fifo_with(&keyspace.name, (keyspace.merging().as_deref(), fifo.as_ref()), given)?;
        keyspace.set_fifo(fifo);
        Ok((*id, Arc::new(keyspace)))
    });
    keyspaces.collect()
}

/// Gives lower parts the references through which they notify higher ones.
fn connect(core: &Core) {
    let consumer: Weak<dyn Consumer> = Arc::<ResidencyManager>::downgrade(&core.residency);
    core.memory.register(consumer);
    let of_iterators = Arc::downgrade(&core.memory);
    core.memory.iterators().on_growth(Box::new(move || {
        if let Some(memory) = of_iterators.upgrade() {
            memory.balance();
        }
    }));
    // The order matters: writers may resume before residency is settled over the new tables, and
    // workers look for more work after it.
    core.catalog.observe(vec![
        Arc::<Writer>::downgrade(&core.writer) as Weak<dyn InstallObserver>,
        Arc::<ResidencyManager>::downgrade(&core.residency),
        Arc::<Scheduler>::downgrade(&core.scheduler),
    ]);
    let background: Weak<Scheduler> = Arc::downgrade(&core.scheduler);
    core.writer.connect(background);
    let of_failures = Arc::downgrade(&core.scheduler);
    let (lifecycle, durable) = (Arc::downgrade(&core.lifecycle), Arc::clone(core.writer.durable()));
    core.lifecycle.on_failure(Box::new(move || {
        if let Some(scheduler) = of_failures.upgrade() {
            scheduler.notify();
        }
        if let Some(failure) = lifecycle.upgrade().and_then(|lifecycle| lifecycle.failure()) {
            durable.end(&failure);
        }
    }));
    let (of_idle, workload) = (Arc::downgrade(&core.scheduler), Arc::clone(&core.workload));
    core.residency.on_idle(Box::new(move |residency| {
        if let Some(scheduler) = of_idle.upgrade() {
            scheduler.request_filter_rewrites(Worth {
                search_ns: residency.search_ns(),
                byte_ns_per_second: residency.plan_prices().value.gain_per_byte,
                rewrite_ns_per_byte: workload.workload().move_ns_per_byte().unwrap_or_default(),
            });
        }
    }));
}
