//! Queue of requests: compactions that callers and other parts of the engine ask for.
//!
//! A request has a number by which its caller waits for it. A full compaction is *bound* to the job
//! that serves it, so that a later request, which may want newer tables too, gets a job of its own.
//! A filter rewrite takes as many jobs as its tables need, a compaction of a range as many as there
//! are runs and tables. A request is over when its job is done,
//! or when it finds nothing to do.
//!
//! Not here: waiting ([`super::requests`]); the jobs ([`shamba_tree::compaction::schedule`]).

use std::collections::BTreeSet;

use shamba_key::KeyspaceId;
use shamba_table::TableId;
use shamba_tree::compaction::policy::{CompactionJob, Reason, Rules, pick_filter_rewrite, pick_full};
use shamba_tree::compaction::schedule::{Claim, Claims, JobRequest, RangeRequest, RequestKind};
use shamba_tree::version::Version;

/// Maximum bytes of a filter-rewrite job of more than one table; more urgent compactions of the
/// same tables wait for no more than that.
const REWRITE_JOB_BYTES: u64 = 16 << 20;

/// A request in the queue.
#[derive(Clone, Debug)]
struct Queued {
    number: u64,
    keyspace: KeyspaceId,
    request: JobRequest,
    /// The running job that serves it, if it takes one only.
    job: Option<u64>,
}

/// Pending requests, oldest first.
#[derive(Default, Debug)]
pub(super) struct Requests {
    queue: Vec<Queued>,
    numbered: u64,
}

impl Requests {
    /// Requests a compaction of `keyspace` into one run; returns the request's number.
    pub fn add_full(&mut self, keyspace: KeyspaceId) -> u64 {
        self.add(keyspace, RequestKind::Full)
    }

    /// Requests a compaction of a range of `keyspace`; returns the request's number.
    pub fn add_range(&mut self, keyspace: KeyspaceId, range: RangeRequest) -> u64 {
        self.add(keyspace, RequestKind::Range(range))
    }

    /// Requests a rewrite of the filters of `tables`; returns the request's number.
    pub fn add_filter_rewrite(
        &mut self,
        keyspace: KeyspaceId,
        tables: BTreeSet<TableId>,
        is_awaited: bool,
    ) -> u64 {
        self.add(keyspace, RequestKind::Filters { tables, job_bytes: REWRITE_JOB_BYTES, is_awaited })
    }

    fn add(&mut self, keyspace: KeyspaceId, kind: RequestKind) -> u64 {
        self.numbered += 1;
        let request = JobRequest { kind, passed_over: 0 };
        self.queue.push(Queued { number: self.numbered, keyspace, request, job: None });
        debug_assert!(
            self.queue.is_sorted_by(|one, next| one.number < next.number),
            "requests are numbered in the order in which they came"
        );
        self.numbered
    }

    /// Whether any of these requests is pending.
    #[cfg(test)]
    pub fn has_any(&self, numbers: &[u64]) -> bool {
        !self.keyspaces_of(numbers).is_empty()
    }

    /// The keyspaces in which these requests are pending.
    pub fn keyspaces_of(&self, numbers: &[u64]) -> BTreeSet<KeyspaceId> {
        let asked = self.queue.iter().filter(|queued| numbers.contains(&queued.number));
        asked.map(|queued| queued.keyspace).collect()
    }

    /// Whether a full compaction is pending, of any keyspace.
    pub fn has_full(&self) -> bool {
        self.queue.iter().any(|queued| matches!(queued.request.kind, RequestKind::Full))
    }

    /// Whether a full compaction of `keyspace` is pending that no job serves yet.
    pub fn has_waiting_full(&self, keyspace: KeyspaceId) -> bool {
        let is_waiting = |queued: &Queued| queued.job.is_none() && queued.keyspace == keyspace;
        self.queue.iter().any(|queued| is_waiting(queued) && matches!(queued.request.kind, RequestKind::Full))
    }

    /// Whether a filter rewrite is pending.
    pub fn has_filter_rewrite(&self) -> bool {
        self.queue.iter().any(|queued| matches!(queued.request.kind, RequestKind::Filters { .. }))
    }

    /// Withdraws requests.
    pub fn remove(&mut self, numbers: &[u64]) {
        self.queue.retain(|queued| !numbers.contains(&queued.number));
    }

    /// Withdraws all requests of a keyspace.
    pub fn forget(&mut self, keyspace: KeyspaceId) {
        self.queue.retain(|queued| queued.keyspace != keyspace);
    }

    /// Withdraws the filter rewrites of `keyspace` that no caller waits for: they are requested
    /// again if they still pay.
    pub fn forget_unawaited(&mut self, keyspace: KeyspaceId) {
        self.queue.retain(|queued| queued.keyspace != keyspace || is_awaited(&queued.request));
    }

    /// The requests of `keyspace` that need a job, oldest first. Those that no caller waits for are
    /// left out unless `with_unawaited`.
    pub fn waiting(&self, keyspace: KeyspaceId, with_unawaited: bool) -> Vec<JobRequest> {
        let is_waiting = |queued: &&Queued| {
            queued.keyspace == keyspace
                && queued.job.is_none()
                && (with_unawaited || is_awaited(&queued.request))
        };
        self.queue.iter().filter(is_waiting).map(|queued| queued.request.clone()).collect()
    }

    /// Removes the requests of `keyspace` that find nothing to do; true if there were any. `claims`
    /// are those of its running jobs: a compaction of a range lasts until its jobs have ended.
    pub fn drop_done(
        &mut self,
        keyspace: KeyspaceId,
        (version, rules): (&Version, &Rules),
        claims: Option<&Claims>,
    ) -> bool {
        let before = self.queue.len();
        let of_range = |claim: &Claim| claim.job().reason == Reason::Range;
        let has_job = claims.is_some_and(|claims| claims.iter().any(of_range));
        self.queue.retain(|queued| {
            queued.keyspace != keyspace
                || queued.job.is_some()
                || match &queued.request.kind {
                    RequestKind::Full => pick_full(version, rules).is_some(),
                    RequestKind::Range(range) => has_job || range.pick(version, rules).is_some(),
                    RequestKind::Filters { tables, job_bytes, .. } => {
                        pick_filter_rewrite(version, tables, *job_bytes).is_some()
                    }
                }
        });
        self.queue.len() < before
    }

    /// Notes that `job`, with this number, begins in `keyspace`. All other requests were passed
    /// over once more; a compaction of a range not by its own jobs, which would let it hold up
    /// everything else.
    pub fn began(&mut self, keyspace: KeyspaceId, job: &CompactionJob, number: u64) {
        debug_assert!(self.queue.iter().all(|queued| queued.job != Some(number)), "job {number} began twice");
        let mut served = None;
        if job.reason == Reason::Manual {
            let is_served = |queued: &Queued| {
                queued.keyspace == keyspace
                    && queued.job.is_none()
                    && matches!(queued.request.kind, RequestKind::Full)
            };
            served = self.queue.iter().position(is_served);
        }
        for (at, queued) in self.queue.iter_mut().enumerate() {
            let is_range = matches!(queued.request.kind, RequestKind::Range(_));
            if Some(at) == served {
                queued.job = Some(number);
            } else if !(job.reason == Reason::Range && is_range && queued.keyspace == keyspace) {
                queued.request.passed_over = queued.request.passed_over.saturating_add(1);
            }
        }
    }

    /// Notes that the job of this number has ended. With `is_done`, the request that it served is
    /// over; otherwise the request needs another job.
    pub fn ended(&mut self, number: u64, is_done: bool) {
        debug_assert!(
            self.queue.iter().filter(|queued| queued.job == Some(number)).count() <= 1,
            "job {number} serves several requests"
        );
        if is_done {
            self.queue.retain(|queued| queued.job != Some(number));
        } else {
            let served = self.queue.iter_mut().filter(|queued| queued.job == Some(number));
            served.for_each(|queued| queued.job = None);
        }
    }
}

fn is_awaited(request: &JobRequest) -> bool {
    !matches!(request.kind, RequestKind::Filters { is_awaited: false, .. })
}

#[cfg(test)]
mod tests {
    use shamba_key::{Age, RunId};
    use shamba_model::{Design, MergePolicy};
    use shamba_tree::version::KeyRange;

    use super::*;

    const ONE: KeyspaceId = KeyspaceId(1);
    const TWO: KeyspaceId = KeyspaceId(2);

    fn rules() -> Rules {
        Rules::manual(Design::new(MergePolicy::Leveling, 4.0, 100, 0.0), 1)
    }

    fn version() -> Version {
        "L0: r2@2[2:a..z 40]\nL1: r1@1[1:a..z 20]\n".parse().expect("notation")
    }

    #[test]
    fn a_full_compaction_serves_one_request() {
        let mut requests = Requests::default();
        let (first, second, other) = (requests.add_full(ONE), requests.add_full(ONE), requests.add_full(TWO));
        let job = pick_full(&version(), &rules()).expect("a job");
        requests.began(ONE, &job, 7);
        assert_eq!(requests.waiting(ONE, true).len(), 1, "the second one waits");
        assert_eq!(requests.waiting(ONE, true)[0].passed_over, 1);
        requests.ended(7, true);
        assert!(!requests.has_any(&[first]) && requests.has_any(&[second]) && requests.has_any(&[other]));
        // A job that was stopped or has failed leaves its request.
        requests.began(ONE, &job, 8);
        assert!(!requests.has_waiting_full(ONE) && requests.has_full());
        requests.ended(8, false);
        assert!(requests.has_waiting_full(ONE));
        requests.remove(&[second, other]);
        assert!(!requests.has_full());
    }

    #[test]
    fn a_range_lasts_until_its_jobs_have_ended_and_does_not_pass_over_itself() {
        let mut requests = Requests::default();
        let range = requests.add_range(ONE, RangeRequest::new(&version(), KeyRange::everything()));
        let other = requests.add_full(TWO);
        let RequestKind::Range(request) = requests.waiting(ONE, true).remove(0).kind else {
            panic!("a range was asked for")
        };
        let job = request.pick(&version(), &rules()).expect("a job");
        requests.began(ONE, &job, 7);
        assert_eq!(requests.waiting(ONE, true)[0].passed_over, 0, "by its own job");
        assert_eq!(requests.waiting(TWO, true)[0].passed_over, 1);
        requests.began(TWO, &pick_full(&version(), &rules()).expect("a job"), 8);
        assert_eq!(requests.waiting(ONE, true)[0].passed_over, 1);
        // The tree after the job's last slice, while the job still counts and cleans up.
        let after: Version = "L1: r1@1[3:a..z 60]\n".parse().expect("notation");
        let mut claims = Claims::default();
        let number = claims.claim(&version(), job, (RunId(9), Age(9)), 1.0).expect("free").number();
        assert!(!requests.drop_done(ONE, (&after, &rules()), Some(&claims)));
        claims.release(number);
        assert!(requests.drop_done(ONE, (&after, &rules()), Some(&claims)));
        assert!(!requests.has_any(&[range]) && requests.has_any(&[other]));
    }

    #[test]
    fn requests_without_work_and_of_dropped_keyspaces_are_over() {
        let mut requests = Requests::default();
        let full = requests.add_full(ONE);
        let gone = requests.add_filter_rewrite(ONE, BTreeSet::from([TableId(99)]), true);
        let unawaited = requests.add_filter_rewrite(ONE, BTreeSet::from([TableId(1)]), false);
        let other = requests.add_filter_rewrite(TWO, BTreeSet::from([TableId(99)]), true);
        assert!(requests.drop_done(ONE, (&version(), &rules()), None));
        assert!(!requests.has_any(&[gone]), "its table is not in the tree");
        assert!(!requests.drop_done(ONE, (&version(), &rules()), None));
        assert!([full, unawaited, other].iter().all(|number| requests.has_any(&[*number])));
        assert_eq!((requests.waiting(ONE, false).len(), requests.waiting(ONE, true).len()), (1, 2));
        requests.forget_unawaited(ONE);
        assert!(requests.has_any(&[full]) && !requests.has_any(&[unawaited]));
        requests.forget(TWO);
        assert!(requests.has_any(&[full]) && !requests.has_filter_rewrite());
    }
}
