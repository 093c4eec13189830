//! What the host does to a guest: quotas, busy processes, pauses. These are undone when they are dropped, and by the warden if this
//! process is killed. Where the vCPUs are bound to is set anew by each run.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reprieve_linux::cgroup::{Cgroups, Quota, QuotaTree, unique_name};
use reprieve_linux::warden::Guarded;
use reprieve_linux::{child, threads};
use reprieve_vm::host::Guard;
use rustix::process::{Pid, Signal, kill_process};

use crate::draw::{Drawn, Injection, Machine};
use crate::guest::{Bench, Error, Guest, list};

/// Between two looks at whether the user interrupts.
const LOOK: Duration = Duration::from_millis(20);

/// What is in force.
#[derive(Default)]
pub struct InForce {
    // The order matters: a process or cgroup is dropped first, and then its guard, which lets the warden forget it.
    hogs: Vec<(Hog, Guard)>,
    quotas: Option<(QuotaTree, Guard)>,
    groups: Vec<PathBuf>,
}

impl InForce {
    /// Binds the vCPUs as drawn, and begins what lasts for the whole look.
    pub fn begin(bench: &Bench, guest: &Guest, drawn: &Drawn) -> Result<InForce, Error> {
        let mut force = InForce::default();
        let tids = &guest.booted.machine.vcpu_tids;
        match drawn.pinned {
            true => bind(tids, &bench.pcpus)?,
            false => tids.iter().try_for_each(|tid| threads::set_affinity(*tid, &bench.pcpus))?,
        }
        match &drawn.injection {
            Injection::Quota { vcpus, percent, period_us } => {
                let quota = Quota::from_percent(*percent, *period_us)?;
                let groups = vcpus.iter().map(|vcpu| (format!("vcpu{vcpu}"), vec![tids[*vcpu]])).collect();
                force.limit(bench, guest, quota, groups)?;
            }
            Injection::VmQuota { percent, period_us } => {
                let all = bench.host.proc_root.thread_ids(guest.booted.machine.pid())?;
                let quota = Quota::from_percent(*percent, *period_us)?;
                force.limit(bench, guest, quota, vec![("vm".into(), all)])?;
            }
            Injection::Contention { hogs } if drawn.pinned => {
                force.hogs(bench, &bench.pcpus.clone(), *hogs, 100, 10_000, 1)?;
            }
            Injection::Contention { hogs } => {
                force.hogs(bench, &bench.pcpus.clone(), *hogs, 100, 10_000, 0)?
            }
            Injection::Neighbour { vcpu, hogs, duty_percent, burst_us } => {
                let pcpu = bench.pcpus[vcpu % bench.pcpus.len()];
                bind_alone(tids, *vcpu, pcpu, &bench.pcpus)?;
                force.hogs(bench, &[pcpu], *hogs, *duty_percent, (*burst_us).max(1), 1)?;
            }
            _ => {}
        }
        Ok(force)
    }

    /// Does what happens once, when a fifth to a half of the look is over. Gives when it was, and for how long the whole VM stood still.
    pub fn once(bench: &Bench, guest: &mut Guest, injection: &Injection) -> Result<Once, Error> {
        match injection {
            Injection::Pause { after_ms, length_ms } => {
                wait(bench, Duration::from_millis(*after_ms))?;
                let (at, stopped) = (Instant::now(), Stopped::stop(guest.booted.machine.pid())?);
                wait(bench, Duration::from_millis(*length_ms))?;
                let was_stopped = stopped.is_stopped(bench);
                drop(stopped);
                Ok(Once { at, stood_still: was_stopped.then(|| at.elapsed()) })
            }
            Injection::ClockStep { after_ms, by_ms } => {
                wait(bench, Duration::from_millis(*after_ms))?;
                guest.step(*by_ms)?;
                Ok(Once { at: Instant::now(), stood_still: None })
            }
            _ => Ok(Once { at: Instant::now(), stood_still: None }),
        }
    }

    /// Processes of the injection.
    pub fn pids(&self) -> Vec<i32> {
        self.hogs.iter().map(|(hog, _)| hog.pid()).collect()
    }

    /// Throttling of each group since it was made, ns.
    pub fn throttled_ns(&self) -> Vec<u64> {
        self.groups.iter().map(|group| throttled_ns(group).unwrap_or(0)).collect()
    }

    fn limit(
        &mut self,
        bench: &Bench,
        guest: &Guest,
        quota: Quota,
        groups: Vec<(String, Vec<i32>)>,
    ) -> Result<(), Error> {
        let host = &bench.host;
        let cgroups = Cgroups::detect(&host.proc_root)?;
        let name = unique_name(&host.proc_root)?;
        // First: a kill in between leaves nothing behind.
        let guard = host.guard(Guarded::Cgroup(cgroups.path_of(&name)))?;
        let (tree, _) = self.quotas.insert((cgroups.create(&name)?, guard));
        tree.adopt_process(guest.booted.machine.pid())?;
        for (label, tids) in groups {
            let group = tree.quota_group(&label, quota)?;
            self.groups.push(tree.directory.join(&label));
            tids.into_iter().try_for_each(|tid| tree.assign(tid, group))?;
        }
        Ok(())
    }

    fn hogs(
        &mut self,
        bench: &Bench,
        pcpus: &[usize],
        hogs: usize,
        duty: u64,
        burst_us: u64,
        pinned: u8,
    ) -> Result<(), Error> {
        for number in 0..hogs {
            let on = if pinned == 1 { vec![pcpus[number % pcpus.len()]] } else { pcpus.to_vec() };
            let seed = u64::from(duty < 100) * (number as u64 + 1);
            let cpus = list(&on);
            let words = format!(
                "load busy cpus={cpus} tasks=1 duty={duty} burst_us={burst_us} pinned={pinned} wall=1 seed={seed}"
            );
            let hog = Hog::start(bench, &words)?;
            let guard = bench.host.guard_process(hog.pid())?;
            self.hogs.push((hog, guard));
        }
        Ok(())
    }
}

/// Binds vCPUs to a pCPU each: those that are put to work to one of their own, and the others to the rest, round robin.
fn bind(tids: &[i32], pcpus: &[usize]) -> Result<(), Error> {
    let used = Machine { vcpus: tids.len(), pcpus: pcpus.len() }.used();
    let (own, rest) = pcpus.split_at(used.min(pcpus.len()));
    let rest = if rest.is_empty() { own } else { rest };
    let places = own.iter().chain(rest.iter().cycle());
    Ok(tids.iter().zip(places).try_for_each(|(tid, pcpu)| threads::set_affinity(*tid, &[*pcpu]))?)
}

/// Gives a vCPU a pCPU for itself, and the others the rest.
fn bind_alone(tids: &[i32], vcpu: usize, pcpu: usize, pcpus: &[usize]) -> Result<(), Error> {
    let rest: Vec<usize> = pcpus.iter().copied().filter(|other| *other != pcpu).collect();
    for (other, tid) in tids.iter().enumerate() {
        let is_alone = other == vcpu || rest.is_empty();
        threads::set_affinity(*tid, if is_alone { std::slice::from_ref(&pcpu) } else { &rest })?;
    }
    Ok(())
}

impl Drop for InForce {
    fn drop(&mut self) {
        if let Some((tree, mut guard)) = self.quotas.take()
            && tree.close().is_err()
        {
            guard.leave_to_warden();
        }
    }
}

/// Something that happened once.
pub struct Once {
    /// When.
    pub at: Instant,
    /// For how long all of QEMU was stopped, if it was.
    pub stood_still: Option<Duration>,
}

/// Waits, unless the user interrupts.
pub fn wait(bench: &Bench, length: Duration) -> Result<(), Error> {
    let end = Instant::now() + length;
    while Instant::now() < end {
        if bench.host.interrupt.is_raised() {
            return Err(reprieve_vm::VmError::Interrupted.into());
        }
        std::thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// A busy process of the host.
struct Hog(Child);

impl Hog {
    fn start(bench: &Bench, words: &str) -> Result<Hog, Error> {
        let mut command = Command::new(&bench.exe);
        command.args(words.split(' ')).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        child::die_with_parent(&mut command);
        let mut hog = Hog(command.spawn()?);
        let mut line = String::new();
        hog.0.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line)).transpose()?;
        if line.trim() != "ready" {
            return Err(format!("a busy process did not start: {words}").into());
        }
        Ok(hog)
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // Fails only if it has ended already; waiting reaps it in any case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A stopped process, which goes on when this is dropped. If this program is killed, the stopped process is killed, too.
struct Stopped(i32);

impl Stopped {
    fn stop(pid: i32) -> Result<Stopped, Error> {
        kill_process(Pid::from_raw(pid).ok_or("no process")?, Signal::STOP)?;
        Ok(Stopped(pid))
    }

    fn is_stopped(&self, bench: &Bench) -> bool {
        let stat = bench.host.proc_root.read_task(&format!("{}/stat", self.0)).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0) {
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

/// From `cpu.stat`, in the words of cgroup v1 or v2.
fn throttled_ns(group: &std::path::Path) -> Option<u64> {
    let text = std::fs::read_to_string(group.join("cpu.stat")).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(' '));
    fields.find_map(|(name, value)| match name {
        "throttled_time" => value.parse().ok(),
        "throttled_usec" => value.parse::<u64>().ok()?.checked_mul(1000),
        _ => None,
    })
}
