use crate::guest::rcu::params::Delays;
use crate::guest::rcu::{Effects, Kthread, Params, Rcu, Wakeup};

fn started(params: &Params, cpus: usize) -> Rcu {
    let mut rcu = Rcu::new(params, cpus);
    assert_eq!(run(&mut rcu, 100), Kthread::SleepUntilWoken);
    rcu.start_wanted = true;
    assert_eq!(run(&mut rcu, 100), Kthread::Work);
    rcu
}

fn run(rcu: &mut Rcu, jiffies: u64) -> Kthread {
    let mut effects = Effects::default();
    let next = rcu.kthread(jiffies, jiffies, 0, Wakeup::Woken, &mut effects).next;
    assert!(!effects.wake_kthread);
    next
}

#[test]
fn delays_follow_hz_and_the_number_of_cpus() {
    let delays = |hz, cpus| Params { hz, ..Params::default() }.delays(cpus);
    assert_eq!(delays(250, 2), Delays { first: 1, next: 1, help: 25, stall: 5_250 });
    assert_eq!(delays(300, 2), Delays { first: 2, next: 2, help: 30, stall: 6_300 });
    assert_eq!(delays(1000, 2), Delays { first: 3, next: 3, help: 100, stall: 21_000 });
    assert_eq!(delays(250, 512), Delays { first: 3, next: 3, help: 27, stall: 5_250 });
    let params =
        Params { jiffies_till_first_fqs: Some(0), jiffies_till_next_fqs: Some(0), ..Params::default() };
    assert_eq!((params.delays(2).first, params.delays(2).next), (0, 1), "no scans without a pause");
}

#[test]
fn it_scans_after_each_pause() {
    let params =
        Params { jiffies_till_first_fqs: Some(3), jiffies_till_next_fqs: Some(2), ..Params::default() };
    let mut rcu = started(&params, 2);
    assert_eq!(run(&mut rcu, 100), Kthread::SleepJiffies(3));
    assert_eq!(run(&mut rcu, 101), Kthread::SleepJiffies(2), "woken for nothing: it sleeps on");
    assert_eq!(rcu.scans, 0);
    assert_eq!(run(&mut rcu, 104), Kthread::Work);
    assert_eq!((rcu.scans, run(&mut rcu, 104)), (1, Kthread::SleepJiffies(2)));
}

#[test]
fn a_time_out_too_early_keeps_to_the_time() {
    let mut rcu = started(&Params { jiffies_till_first_fqs: Some(3), ..Params::default() }, 2);
    assert_eq!(run(&mut rcu, 100), Kthread::SleepJiffies(3));
    let step = rcu.kthread(0, 101, 0, Wakeup::TimedOut, &mut Effects::default());
    assert_eq!((step.next, rcu.scans), (Kthread::SleepJiffies(2), 0));
}

#[test]
fn a_wanted_look_is_a_scan_before_its_time() {
    let mut rcu = started(&Params::default(), 2);
    assert_eq!(run(&mut rcu, 100), Kthread::SleepJiffies(1));
    rcu.look_wanted = true;
    assert_eq!(run(&mut rcu, 100), Kthread::Work);
    assert_eq!((rcu.scans, rcu.look_wanted, rcu.gp_in_progress()), (1, false, true));
}

#[test]
fn it_ends_the_grace_period_when_nobody_is_waited_for() {
    let mut rcu = started(&Params::default(), 2);
    assert_eq!(run(&mut rcu, 100), Kthread::SleepJiffies(1));
    rcu.clear_waiting(100, 0, 3, &mut Effects::default());
    assert_eq!(run(&mut rcu, 100), Kthread::Work);
    assert_eq!((rcu.gp_seq, rcu.scans, rcu.look_wanted), (4, 0, false));
    assert_eq!(run(&mut rcu, 100), Kthread::SleepUntilWoken);
}

#[test]
fn a_request_made_meanwhile_starts_the_next_one() {
    let mut rcu = started(&Params::default(), 40);
    // CPU 39's leaf knows; the root does not.
    let leaf = rcu.cpus[39].leaf as usize;
    rcu.tree.nodes[leaf].gp_seq_needed = 8;
    for leaf in rcu.tree.leaves() {
        rcu.clear_waiting(0, leaf as u32, u64::MAX, &mut Effects::default());
    }
    assert_eq!(run(&mut rcu, 100), Kthread::Work);
    assert!(!rcu.gp_in_progress() && rcu.start_wanted);
    assert_eq!(run(&mut rcu, 100), Kthread::Work);
    assert_eq!(rcu.gp_seq, 5);
}

#[test]
fn overload_scans_at_once_twice_and_shortens_the_pause() {
    let params = Params { jiffies_till_next_fqs: Some(6), ..Params::default() };
    let mut rcu = Rcu::new(&params, 2);
    (rcu.start_wanted, rcu.overloaded, rcu.overloaded_next) = (true, true, true);
    rcu.tree.nodes[0].overloaded = 1;
    assert_eq!(run(&mut rcu, 100), Kthread::Work, "the start");
    assert_eq!((run(&mut rcu, 100), rcu.scans), (Kthread::Work, 1));
    assert_eq!((run(&mut rcu, 100), rcu.scans), (Kthread::Work, 2));
    assert_eq!((run(&mut rcu, 100), rcu.scans), (Kthread::SleepJiffies(2), 2));
}

#[test]
fn the_work_is_what_it_visited() {
    let mut rcu = Rcu::new(&Params::default(), 40);
    rcu.start_wanted = true;
    let mut effects = Effects::default();
    assert_eq!(rcu.kthread(0, 0, 0, Wakeup::Woken, &mut effects).visited, 4, "root and three leaves");
    let step = rcu.kthread(0, 0, 0, Wakeup::Woken, &mut effects);
    assert_eq!((step.visited, step.next), (0, Kthread::SleepJiffies(1)));
    assert_eq!(rcu.kthread(0, 2, 0, Wakeup::TimedOut, &mut effects).visited, 3 + 40);
}
