//! The boosting loop on a real thread under a real quota, with a guest that is made up: its grace period waits for that
//! thread and never ends. Skipped with a message where quotas are not permitted.
//!
//! How much a thread ran is not asserted, since test machines are noisy: that is tested exactly against a model of the
//! kernel, in the policy crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use reprieve_linux::boost::{Aim, Boosting, Group, GuestRcu, LOOK_NS, Limited, Plan, RcuLook, SETTINGS};
use reprieve_linux::cgroup::{Cgroups, Quota, QuotaTree, unique_name};
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::threads::own_tid;
use reprieve_linux::{Error, Result};

/// Far beyond the 100 ms of a period.
const PATIENCE: Duration = Duration::from_secs(30);
const QUOTA_NS: u64 = 20_000_000;

/// A guest with one vCPU, whose grace period never ends. It may go away.
struct Stuck {
    is_gone: Arc<AtomicBool>,
}

impl GuestRcu for Stuck {
    fn look(&mut self) -> Result<RcuLook> {
        match self.is_gone.load(Ordering::Relaxed) {
            true => Err(Error::Gone { action: "read", path: "guest".into() }),
            false => Ok(RcuLook { open: Some(1), holdouts: 1, ..RcuLook::default() }),
        }
    }
}

/// A thread that spins in a group with a quota.
struct Spinner {
    tree: QuotaTree,
    tid: i32,
    stop: mpsc::Sender<()>,
}

impl Spinner {
    fn start() -> Option<Spinner> {
        let root = ProcRoot::default();
        let made = Cgroups::detect(&root).and_then(|cgroups| cgroups.create(&unique_name(&root)?));
        let mut tree = match made {
            Ok(tree) => tree,
            Err(e @ (Error::Missing { .. } | Error::NotPermitted { .. })) => {
                eprintln!("skipped: {e}");
                return None;
            }
            Err(e) => panic!("{e}"),
        };
        let ((send_tid, tid), (stop, stopped)) = (mpsc::channel(), mpsc::channel::<()>());
        std::thread::spawn(move || {
            send_tid.send(own_tid()).unwrap();
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                std::hint::spin_loop();
            }
        });
        let tid = tid.recv().unwrap();
        tree.adopt_process(std::process::id() as i32).unwrap();
        let group = tree.quota_group("vcpu0", Quota::from_percent(20.0, 100_000).unwrap()).unwrap();
        tree.assign(tid, group).unwrap();
        Some(Spinner { tree, tid, stop })
    }

    fn plan(&self, may_act: bool) -> Plan {
        Plan {
            proc_root: ProcRoot::default(),
            pid: std::process::id() as i32,
            tids: vec![self.tid],
            limits: vec![Limited { directory: self.tree.directory.join("vcpu0"), vcpus: vec![0] }],
            settings: SETTINGS,
            look_ns: LOOK_NS,
            aim: Aim::GracePeriods,
            may_act,
        }
    }

    fn quota_ns(&self) -> u64 {
        Group::open(&self.tree.directory.join("vcpu0")).unwrap().quota_ns()
    }

    fn end(self) {
        drop(self.stop);
        self.tree.close().unwrap();
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_throttled_thread_is_visited_and_its_quota_is_put_back() {
    let Some(spinner) = Spinner::start() else { return };
    let guest = Stuck { is_gone: Arc::default() };
    let boosting = Boosting::start(spinner.plan(true), guest).unwrap();
    wait_until("it was never visited", || boosting.given().visits >= 3 && boosting.given().lent_ns > 0);
    wait_until("the quota was never lowered", || spinner.quota_ns() < QUOTA_NS);
    assert!(!boosting.has_ended());
    boosting.finish().unwrap();
    assert_eq!(spinner.quota_ns(), QUOTA_NS);
    spinner.end();
}

#[test]
fn a_guest_that_goes_away_ends_the_loop_and_the_quota_is_put_back() {
    let Some(spinner) = Spinner::start() else { return };
    let is_gone = Arc::new(AtomicBool::new(false));
    let boosting = Boosting::start(spinner.plan(true), Stuck { is_gone: is_gone.clone() }).unwrap();
    wait_until("the quota was never lowered", || spinner.quota_ns() < QUOTA_NS);
    is_gone.store(true, Ordering::Relaxed);
    wait_until("the loop went on", || boosting.has_ended());
    assert_eq!(spinner.quota_ns(), QUOTA_NS);
    assert!(boosting.finish().unwrap_err().is_gone());
    spinner.end();
}

#[test]
fn a_loop_that_may_not_act_only_counts() {
    let Some(spinner) = Spinner::start() else { return };
    let boosting = Boosting::start(spinner.plan(false), Stuck { is_gone: Arc::default() }).unwrap();
    wait_until("it would never have visited", || {
        assert_eq!(spinner.quota_ns(), QUOTA_NS);
        boosting.given().visits >= 3
    });
    assert_eq!(boosting.given().lent_ns, 0);
    boosting.finish().unwrap();
    spinner.end();
}
